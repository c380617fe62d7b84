//! The outgoing side of a link: everything that is ready leaves as one `ClientBatch`, so batches grow by themselves under
//! load, with no task and no delay of their own.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use router_proto::v1;
use router_proto::v1::client_op::Kind;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;

/// Most operations in one message; keeps a message far below gRPC's 4 MiB.
const MOST_OPS: usize = 1024;

/// How many operations of counts have not left the queue.
#[derive(Debug, Default)]
pub(crate) struct CountsWaiting(AtomicUsize);

impl CountsWaiting {
    pub(super) fn one_more(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn is_any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    fn left(&self, ops: &[v1::ClientOp]) {
        let counts = ops.iter().filter(|op| matches!(op.kind, Some(Kind::Counted(_)))).count();
        self.0.fetch_sub(counts, Ordering::Relaxed);
    }
}

/// `Hello`, then nothing until the gate opens (`Welcome`), then batches. Ends after a `Goodbye`, which tells tonic to
/// flush and close the sending half.
#[derive(Debug)]
pub(crate) struct Outgoing {
    hello: Option<v1::ClientOp>,
    welcome: Option<oneshot::Receiver<()>>,
    /// Bounded by the requests in flight: each has one operation waiting at most, one first chunk and one release; and by one of
    /// counts for each route, since no more are put in while some wait.
    ops: UnboundedReceiver<v1::ClientOp>,
    counts: Arc<CountsWaiting>,
    has_ended: bool,
}

impl Outgoing {
    pub(crate) fn new(
        hello: v1::Hello,
        welcome: oneshot::Receiver<()>,
        ops: UnboundedReceiver<v1::ClientOp>,
        counts: Arc<CountsWaiting>,
    ) -> Self {
        let hello = v1::ClientOp { op: 1, kind: Some(Kind::Hello(hello)) };
        Self { hello: Some(hello), welcome: Some(welcome), ops, counts, has_ended: false }
    }
}

impl Stream for Outgoing {
    type Item = v1::ClientBatch;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<v1::ClientBatch>> {
        if let Some(hello) = self.hello.take() {
            return Poll::Ready(Some(v1::ClientBatch { ops: vec![hello] }));
        }
        if self.has_ended {
            return Poll::Ready(None);
        }
        if let Some(welcome) = &mut self.welcome {
            if ready!(Pin::new(welcome).poll(cx)).is_err() {
                self.has_ended = true;
                return Poll::Ready(None);
            }
            self.welcome = None;
        }
        let mut ops = Vec::new();
        let count = ready!(self.ops.poll_recv_many(cx, &mut ops, MOST_OPS));
        self.counts.left(&ops);
        self.has_ended = count == 0 || ops.iter().any(|op| matches!(op.kind, Some(Kind::Goodbye(_))));
        Poll::Ready((count != 0).then_some(v1::ClientBatch { ops }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{FutureExt, StreamExt};
    use tokio::sync::mpsc;

    fn op(op: u64, kind: Kind) -> v1::ClientOp {
        v1::ClientOp { op, kind: Some(kind) }
    }

    #[test]
    fn hello_alone_then_all_that_is_ready_then_the_end() {
        let (sender, ops) = mpsc::unbounded_channel();
        let (open, welcome) = oneshot::channel();
        let mut outgoing = Outgoing::new(v1::Hello::default(), welcome, ops, Arc::default());
        for number in 2..5 {
            sender.send(op(number, Kind::Heartbeat(v1::Heartbeat {}))).unwrap();
        }
        let first = outgoing.next().now_or_never().unwrap().unwrap();
        assert!(matches!(first.ops[..], [v1::ClientOp { op: 1, kind: Some(Kind::Hello(_)) }]));
        assert!(outgoing.next().now_or_never().is_none(), "nothing before Welcome");

        open.send(()).unwrap();
        let batch = outgoing.next().now_or_never().unwrap().unwrap();
        assert_eq!(batch.ops.iter().map(|op| op.op).collect::<Vec<_>>(), [2, 3, 4]);
        assert!(outgoing.next().now_or_never().is_none());

        sender.send(op(0, Kind::Goodbye(v1::Goodbye {}))).unwrap();
        assert_eq!(outgoing.next().now_or_never().unwrap().unwrap().ops.len(), 1);
        assert!(outgoing.next().now_or_never().unwrap().is_none());
    }
}
