//! The client's body on its way in: tells a client that broke it off from one that sent what can't be read.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http_body::Body;
use http_body_util::BodyExt;

/// Passes `body` on, and sets `has_left` once it ends because its client is gone.
pub(crate) fn watched<B>(body: B, has_left: Arc<AtomicBool>) -> impl Body<Data = B::Data, Error = B::Error> + Unpin
where
    B: Body<Error: StdError + 'static> + Unpin,
{
    body.map_err(move |error| {
        if !is_malformed(&error) {
            has_left.store(true, Ordering::Relaxed);
        }
        error
    })
}

/// What the client sent can't be read (a chunk's size, say): it is still there to be told.
fn is_malformed(error: &(dyn StdError + 'static)) -> bool {
    std::iter::successors(Some(error), |error| (*error).source())
        .filter_map(|error| error.downcast_ref::<io::Error>())
        .any(|error| matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData))
}
