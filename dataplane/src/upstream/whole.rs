//! A small answer, read whole: what the router itself answers from. No lease is held for it and nobody reads along, so the
//! caller sets the time that it may take.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use hyper::body::Incoming;

use super::client::{Conn, Pool};

/// The answer broke off or is too large. Its connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotWhole;

/// The body's bytes, at most `limit`. The connection goes back to the pool after the last one.
pub(crate) async fn read(
    mut incoming: Incoming,
    mut conn: Box<Conn>,
    pool: &Pool,
    limit: usize,
) -> Result<Bytes, NotWhole> {
    let mut whole = BytesMut::new();
    loop {
        let next = poll_fn(|cx| {
            conn.drive(cx);
            match Pin::new(&mut incoming).poll_frame(cx) {
                // Asking the body for a frame is what lets hyper read on, so a body that has none is asked again.
                Poll::Pending => {
                    conn.drive(cx);
                    Pin::new(&mut incoming).poll_frame(cx)
                }
                ready @ Poll::Ready(_) => ready,
            }
        });
        let Some(frame) = next.await else { break };
        // Trailers are hop-by-hop for this router.
        let Ok(chunk) = frame.map_err(|_| NotWhole)?.into_data() else { continue };
        if whole.len() + chunk.len() > limit {
            return Err(NotWhole);
        }
        whole.extend_from_slice(&chunk);
    }
    let mut conn = Some(conn);
    poll_fn(|cx| {
        if let Some(conn) = conn.take() {
            pool.give(conn, cx);
        }
        Poll::Ready(())
    })
    .await;
    Ok(whole.freeze())
}
