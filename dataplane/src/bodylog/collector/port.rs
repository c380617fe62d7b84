//! The sockets under the HTTP ports. A caller that opens connections and says nothing, or asks and does not read, holds a
//! place for a bounded time, and there is a bounded number of places.

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::server::stall::Stall;

/// Connections of a port at the same time. More wait to be accepted.
const CONNECTIONS: usize = 64;
/// Longest time for the head of a request, and between two requests of one connection.
const HEAD: Duration = Duration::from_secs(30);
/// Longest time during which a caller reads nothing of its answer.
const STALLED: Duration = Duration::from_secs(30);
/// Pause after a failed `accept`, so that a lack of file descriptors does not become a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Answers requests until `stop`. Connections are dropped then rather than drained: one that a scraper keeps open must not
/// hold up the process.
pub(crate) async fn serve<A, F>(listener: TcpListener, answer: A, stop: CancellationToken)
where
    A: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    let accepting = async {
        loop {
            while connections.try_join_next().is_some() {}
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((socket, _)) => {
                    let answer = answer.clone();
                    connections.spawn(async move {
                        let _place = place;
                        connection(socket, answer).await;
                    });
                }
                Err(error) => {
                    tracing::debug!(%error, "accept a caller");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    stop.run_until_cancelled(accepting).await;
}

async fn connection<A, F>(socket: TcpStream, answer: A)
where
    A: Fn(Request<Incoming>) -> F,
    F: Future<Output = Response>,
{
    let service = service_fn(|request| {
        let answered = answer(request);
        async move { Ok::<_, std::convert::Infallible>(answered.await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .serve_connection(TokioIo::new(Stall::new(socket, STALLED)), service)
        .await;
    if let Err(error) = served {
        // Callers leave: no news.
        tracing::trace!(%error, "a caller's connection ended");
    }
}

#[cfg(test)]
mod tests;
