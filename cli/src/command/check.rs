//! `routerctl check URL`: whether an HTTP address answers with 200. For health checks of containers, which have no curl.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Empty;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

use crate::failure::{Failure, Outcome};

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// `http://HOST:PORT/PATH`
    #[arg(value_name = "URL")]
    url: http::Uri,
    /// Longest time for the answer, in seconds
    #[arg(long, default_value_t = 2, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=60))]
    timeout: u64,
}

/// Asks once.
pub(crate) fn run(args: &CheckArgs) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("start the runtime: {error}")))?;
    let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let asked = async { tokio::time::timeout(Duration::from_secs(args.timeout), client.get(args.url.clone())).await };
    match runtime.block_on(asked) {
        Ok(Ok(answer)) if answer.status() == http::StatusCode::OK => Ok(()),
        Ok(Ok(answer)) => Err(Failure::failed(format!("{} answers {}", args.url, answer.status()))),
        Ok(Err(_)) => Err(Failure::failed(format!("{} can't be reached", args.url))),
        Err(_) => Err(Failure::failed(format!("{} gave no answer within {} s", args.url, args.timeout))),
    }
}
