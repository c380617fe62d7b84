//! HTTP/2 streams whose client does not open its window: the socket is never full, so [`super::stall`] does not see them.
//! The answer's body notes whether it waits for its client, and the stream's task ends when that lasts too long.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

tokio::task_local! {
    static READER: Reader;
}

/// Shared by a stream's task and the body of its answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reader(Arc<AtomicBool>);

impl Reader {
    /// The stream's whose task this is; `None` on a connection of HTTP/1.1.
    pub(crate) fn current() -> Option<Self> {
        READER.try_with(Clone::clone).ok()
    }

    /// True once a part of the answer is handed over, false while the body itself waits for more.
    pub(crate) fn is_awaited(&self, is_awaited: bool) {
        self.0.store(is_awaited, Ordering::Relaxed);
    }
}

/// Runs a stream until it ends, or until its client has taken nothing for `limit`. Dropping it resets the stream.
pub(super) async fn attended<F: Future>(stream: F, limit: Duration) {
    let reader = Reader::default();
    let mut stream = pin!(READER.scope(reader.clone(), stream));
    let mut waiting: Option<std::pin::Pin<Box<tokio::time::Sleep>>> = None;
    poll_fn(|cx| {
        if stream.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        if !reader.0.load(Ordering::Relaxed) {
            waiting = None;
            return Poll::Pending;
        }
        let timer = waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        if timer.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        // Woken before the time: the client has opened its window a little, if not enough.
        timer.as_mut().reset(Instant::now() + limit);
        timer.as_mut().poll(cx)
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use tokio::time::{sleep, timeout};

    const LIMIT: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_stream_ends_when_its_client_takes_nothing_and_not_when_its_backend_says_nothing() {
        let silent_backend = attended(pending::<()>(), LIMIT);
        assert!(timeout(LIMIT * 10, silent_backend).await.is_err());
        let slow_client = async {
            let reader = Reader::current().unwrap();
            for _ in 0..10 {
                reader.is_awaited(true);
                sleep(LIMIT / 2).await;
            }
            reader.is_awaited(true);
            pending::<()>().await;
        };
        let started = Instant::now();
        attended(slow_client, LIMIT).await;
        assert_eq!(started.elapsed(), LIMIT * 6);
        assert!(Reader::current().is_none());
    }
}
