//! The collector's HTTP port, as its questions see it.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;

use crate::failure::{Failure, Kind};
use crate::token::read_secret;

/// Longest answer, in bytes: a page of rows is at most half of it.
const LONGEST: usize = 64 << 20;
/// A question may read many days of files.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where the collector is.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct CollectorAt {
    /// The collector's HTTP port
    #[arg(long, env = "BODYLOG_URL", default_value = "http://127.0.0.1:9998", value_name = "URL")]
    url: Uri,
    /// File with the collector's token [env: `BODYLOG_HTTP_TOKEN` is the token itself]
    #[arg(long, value_name = "FILE")]
    http_token_file: Option<PathBuf>,
}

/// A collector to ask.
pub(crate) struct Collector {
    client: Client<HttpConnector, Empty<Bytes>>,
    url: String,
    authorization: Option<HeaderValue>,
}

/// Parameters by name; those without a value are left out.
pub(crate) type Parameters<'a> = [(&'a str, Option<String>)];

impl CollectorAt {
    /// Checks where it is and with which token; connects to nothing yet.
    pub(crate) fn open(&self) -> Result<Collector, Failure> {
        if self.url.scheme_str() != Some("http") || self.url.query().is_some() {
            return Err(Failure::usage(format!("--url: http://HOST:PORT expected, got {}", self.url)));
        }
        let token = read_secret("--http-token-file", self.http_token_file.as_deref(), "BODYLOG_HTTP_TOKEN");
        let header = |token: String| {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
                .map_err(|_| Failure::usage("the collector's token holds characters that can't stand in a header"))?;
            value.set_sensitive(true);
            Ok::<_, Failure>(value)
        };
        Ok(Collector {
            client: Client::builder(TokioExecutor::new()).build_http(),
            url: self.url.to_string().trim_end_matches('/').to_owned(),
            authorization: token.map_err(Failure::usage)?.map(header).transpose()?,
        })
    }
}

impl Collector {
    /// Asks one question.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str, parameters: &Parameters<'_>) -> Result<T, Failure> {
        let encode = |value: &str| utf8_percent_encode(value, NON_ALPHANUMERIC).to_string();
        let given = parameters.iter().filter_map(|(name, value)| Some(format!("{name}={}", encode(value.as_deref()?))));
        let target = format!("{}{path}?{}", self.url, given.collect::<Vec<_>>().join("&"));
        let mut request = Request::get(target);
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let request = request.body(Empty::new()).map_err(|error| Failure::usage(format!("--url: {error}")))?;
        let asked = async {
            let answer = self.client.request(request).await.map_err(|_| self.unavailable("can't be reached"))?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), LONGEST).collect().await;
            let body = body.map_err(|_| self.unavailable("broke off its answer"))?;
            Ok::<_, Failure>((status, body.to_bytes()))
        };
        let (status, body) =
            tokio::time::timeout(PATIENCE, asked).await.map_err(|_| self.unavailable("gave no answer in time"))??;
        match status {
            StatusCode::OK => serde_json::from_slice(&body).map_err(|_| {
                Failure::failed(format!("{}{path} answers with something else; is it a collector?", self.url))
            }),
            StatusCode::BAD_REQUEST => Err(Failure::usage(message(&body))),
            StatusCode::UNAUTHORIZED => {
                Err(Failure::failed(message(&body)).hint("set BODYLOG_HTTP_TOKEN or pass --http-token-file"))
            }
            _ => Err(Failure::failed(format!("the collector answers {status}: {}", message(&body)))),
        }
    }

    fn unavailable(&self, what: &str) -> Failure {
        Failure::new(Kind::Unavailable, format!("the collector at {} {what}", self.url))
    }
}

/// What an error says; nothing of what is no error of a collector.
fn message(body: &[u8]) -> String {
    let answer: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let message = answer.pointer("/error/message").and_then(serde_json::Value::as_str);
    message.unwrap_or("no reason was given").to_owned()
}
