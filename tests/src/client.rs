//! The HTTP client of the suites: one request, its head and its body as it arrives, no retries of its own, no cleverness.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value as Json;

/// The longest that any answer may take; a test that means to wait says so itself.
const ANSWER_PATIENCE: Duration = Duration::from_secs(60);

/// A pooled client. Clones share the pool.
#[derive(Debug, Clone)]
pub struct Client {
    inner: legacy::Client<HttpConnector, Full<Bytes>>,
    version: Version,
}

impl Default for Client {
    fn default() -> Self {
        Self::http1()
    }
}

impl Client {
    /// Speaks HTTP/1.1.
    pub fn http1() -> Self {
        let inner = legacy::Client::builder(TokioExecutor::new()).retry_canceled_requests(false).build_http();
        Self { inner, version: Version::HTTP_11 }
    }

    /// Speaks HTTP/2 without TLS, by prior knowledge.
    pub fn h2c() -> Self {
        let mut builder = legacy::Client::builder(TokioExecutor::new());
        builder.http2_only(true).retry_canceled_requests(false);
        Self { inner: builder.build_http(), version: Version::HTTP_2 }
    }

    /// Sends a request and returns as soon as the response's head is there.
    ///
    /// # Errors
    /// When no head arrives.
    pub async fn open(
        &self,
        address: SocketAddr,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> anyhow::Result<Response<Incoming>> {
        let mut request =
            Request::builder().method(method).uri(format!("http://{address}{path}")).version(self.version);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into())).context("build a request")?;
        let answer = tokio::time::timeout(ANSWER_PATIENCE, self.inner.request(request)).await;
        answer.with_context(|| format!("no head from {address}{path}"))?.with_context(|| format!("ask {address}{path}"))
    }

    /// Sends a request and reads the whole answer.
    ///
    /// # Errors
    /// When the answer does not come whole.
    pub async fn send(
        &self,
        address: SocketAddr,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> anyhow::Result<Answer> {
        let response = self.open(address, method, path, headers, body).await?;
        Answer::read(response).await
    }

    /// GET.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub async fn get(&self, address: SocketAddr, path: &str) -> anyhow::Result<Answer> {
        self.send(address, Method::GET, path, &[], Bytes::new()).await
    }

    /// POST of a JSON body.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub async fn post(&self, address: SocketAddr, path: &str, body: &Json) -> anyhow::Result<Answer> {
        self.send(address, Method::POST, path, &[("content-type", "application/json")], body.to_string()).await
    }
}

/// A whole answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// Every header.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

impl Answer {
    /// Reads the rest of a response.
    ///
    /// # Errors
    /// When the body breaks off.
    pub async fn read(response: Response<Incoming>) -> anyhow::Result<Self> {
        let (head, body) = response.into_parts();
        let body = tokio::time::timeout(ANSWER_PATIENCE, body.collect()).await.context("the body doesn't end")?;
        let body = body.context("read a response body")?.to_bytes();
        Ok(Self { status: head.status, headers: head.headers, body })
    }

    /// A header as text; empty when it is missing.
    pub fn header(&self, name: &str) -> &str {
        header(&self.headers, name)
    }

    /// The body as JSON.
    ///
    /// # Errors
    /// When it is none.
    pub fn json(&self) -> anyhow::Result<Json> {
        serde_json::from_slice(&self.body).with_context(|| format!("JSON expected, got {}", self.text()))
    }

    /// The body as text, for messages.
    pub fn text(&self) -> String {
        format!("{} {}", self.status, String::from_utf8_lossy(&self.body))
    }

    /// The answer itself if its status is 200.
    ///
    /// # Errors
    /// Names the status and the body.
    pub fn ok(self) -> anyhow::Result<Self> {
        if self.status == StatusCode::OK { Ok(self) } else { bail!("200 expected, got {}", self.text()) }
    }

    /// The backend that answered (`X-Routed-Peer`).
    pub fn peer(&self) -> &str {
        self.header("x-routed-peer")
    }

    /// Why that one (`X-Routed-Mode`).
    pub fn mode(&self) -> &str {
        self.header("x-routed-mode")
    }

    /// `error.code` of an `OpenAI`-shaped error.
    ///
    /// # Errors
    /// When the body is no such error.
    pub fn error_code(&self) -> anyhow::Result<String> {
        let json = self.json()?;
        let code = json.pointer("/error/code").and_then(Json::as_str);
        code.map(str::to_owned).with_context(|| format!("error.code expected, got {}", self.text()))
    }
}

/// A header as text; empty when it is missing.
pub fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// The next piece of a body, or `None` at its end.
///
/// # Errors
/// When the body breaks off, or nothing comes for a minute.
pub async fn next_chunk(body: &mut Incoming) -> anyhow::Result<Option<Bytes>> {
    loop {
        let frame = tokio::time::timeout(ANSWER_PATIENCE, body.frame()).await.context("no more of the body came")?;
        match frame {
            None => return Ok(None),
            Some(frame) => {
                if let Ok(data) = frame.context("read a piece of the body")?.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

/// Reads a body to its end, with the time of each piece since `started`.
///
/// # Errors
/// As [`next_chunk`].
pub async fn timed_chunks(body: &mut Incoming, started: Instant) -> anyhow::Result<Vec<(Duration, Bytes)>> {
    let mut chunks = Vec::new();
    while let Some(chunk) = next_chunk(body).await? {
        chunks.push((started.elapsed(), chunk));
    }
    Ok(chunks)
}

/// Pieces put together.
pub fn joined<'a>(chunks: impl IntoIterator<Item = &'a Bytes>) -> Bytes {
    let mut whole = BytesMut::new();
    for chunk in chunks {
        whole.extend_from_slice(chunk);
    }
    whole.freeze()
}
