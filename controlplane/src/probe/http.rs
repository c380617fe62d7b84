//! One probe: a fresh connection, one GET, the status line.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use router_policy::health::round::Probe;
use router_policy::ids::BackendId;
use tokio::net::TcpStream;

/// What a probe saw, and in words when it was not good.
pub(super) struct Seen {
    pub probe: Probe,
    pub reason: String,
}

/// Probes a backend. Answers within `timeout`.
pub(super) async fn probe(backend: &BackendId, path: &str, timeout: Duration) -> Seen {
    match tokio::time::timeout(timeout, get_status(backend, path)).await {
        Ok(Ok(status)) => {
            let probe = Probe::from_status(status);
            let reason = if probe == Probe::Failed { format!("probe got status {status}") } else { String::new() };
            Seen { probe, reason }
        }
        Ok(Err(problem)) => Seen { probe: Probe::Failed, reason: problem },
        Err(_) => Seen { probe: Probe::Failed, reason: format!("probe got no answer in {} ms", timeout.as_millis()) },
    }
}

async fn get_status(backend: &BackendId, path: &str) -> Result<u16, String> {
    let stream = TcpStream::connect(backend.as_str())
        .await
        .map_err(|error| format!("probe could not connect: {}", error.kind()))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|_| "probe could not speak HTTP".to_owned())?;
    let request = http::Request::get(path)
        .header(http::header::HOST, backend.as_str())
        .header(http::header::USER_AGENT, "router-health-probe")
        .header(http::header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|_| "health path is not a valid path".to_owned())?;
    let mut answer = std::pin::pin!(sender.send_request(request));
    // Driven here: when this future is dropped, the connection closes. It may end in the very step that brings the answer.
    let early = tokio::select! {
        answer = &mut answer => Some(answer),
        _ = connection => None,
    };
    let answer = match early {
        Some(answer) => answer,
        None => answer.await,
    };
    answer.map(|response| response.status().as_u16()).map_err(|_| "probe got no HTTP answer".to_owned())
}
