//! `routerctl check URL...`: whether an HTTP address answers with 200. For health checks of containers without curl.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::Empty;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use crate::failure::{Failure, Outcome};

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// `http://HOST:PORT/PATH`. Of several, the first where something listens decides: one check for any role
    #[arg(value_name = "URL", required = true)]
    urls: Vec<http::Uri>,
    /// Longest time for the answer of each, in seconds
    #[arg(long, default_value_t = 2, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=60))]
    timeout: u64,
}

/// Asks each address once, until one is there.
pub(crate) fn run(args: &CheckArgs) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("start the runtime: {error}")))?;
    runtime.block_on(async {
        let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let mut absent = Vec::new();
        for url in &args.urls {
            match ask(&client, url, Duration::from_secs(args.timeout)).await {
                Ok(StatusCode::OK) => return Ok(()),
                Ok(status) => return Err(Failure::failed(format!("{url} answers {status}"))),
                Err(Silent::NoAnswer(problem)) => return Err(Failure::failed(format!("{url} {problem}"))),
                Err(Silent::NotThere) => absent.push(format!("{url} can't be reached")),
            }
        }
        Err(Failure::failed(absent.join("\n")))
    })
}

/// Why there is no status.
enum Silent {
    /// No connection: the role that would listen there may not be the one that runs.
    NotThere,
    /// Something listens and does not do its work.
    NoAnswer(String),
}

async fn ask(
    client: &Client<HttpConnector, Empty<Bytes>>,
    url: &http::Uri,
    timeout: Duration,
) -> Result<StatusCode, Silent> {
    match tokio::time::timeout(timeout, client.get(url.clone())).await {
        Ok(Ok(answer)) => Ok(answer.status()),
        Ok(Err(error)) if error.is_connect() => Err(Silent::NotThere),
        Ok(Err(_)) => Err(Silent::NoAnswer("closed the connection without an answer".to_owned())),
        Err(_) => Err(Silent::NoAnswer(format!("gave no answer within {} s", timeout.as_secs()))),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpListener};

    use super::*;

    /// Answers one request with `answer`, if one comes.
    fn serve(answer: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            assert!(socket.read(&mut request).unwrap() > 0);
            socket.write_all(answer.as_bytes()).unwrap();
        });
        address
    }

    /// A port where nothing listens: bound, so that nobody else gets it, and not listening.
    fn nobody() -> (tokio::net::TcpSocket, SocketAddr) {
        let held = tokio::net::TcpSocket::new_v4().unwrap();
        held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = held.local_addr().unwrap();
        (held, address)
    }

    fn check(addresses: &[SocketAddr]) -> Outcome {
        let urls = addresses.iter().map(|address| format!("http://{address}/readyz").parse().unwrap()).collect();
        run(&CheckArgs { urls, timeout: 2 })
    }

    const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    const NOT_READY: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";

    #[test]
    fn the_first_address_where_something_listens_decides() {
        let (_held, absent) = nobody();
        assert_eq!(check(&[absent, serve(OK)]), Ok(()));
        let failure = check(&[absent, serve(NOT_READY), serve(OK)]).unwrap_err();
        assert!(failure.message.ends_with("answers 503 Service Unavailable"), "{failure:?}");
        let failure = check(&[serve(""), serve(OK)]).unwrap_err();
        assert!(failure.message.ends_with("closed the connection without an answer"), "{failure:?}");
    }

    #[test]
    fn with_nobody_there_each_address_is_named() {
        let ((_one, first), (_two, second)) = (nobody(), nobody());
        let failure = check(&[first, second]).unwrap_err();
        assert_eq!(failure.message.lines().count(), 2, "{failure:?}");
        assert!(failure.message.lines().all(|line| line.ends_with("can't be reached")), "{failure:?}");
    }
}
