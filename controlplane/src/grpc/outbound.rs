//! The answers to one replica, packed: each message carries whatever was ready, so that batches grow under load and nothing
//! is held back to fill them.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use router_proto::v1;
use tokio::sync::mpsc;
use tonic::Status;

/// Most answers in one message.
const MAX_BATCH: usize = 1024;

/// The stream of answers; ends when the receiver's channel closes.
pub(super) struct Outbound {
    replies: mpsc::UnboundedReceiver<v1::ServerOp>,
    ready: Vec<v1::ServerOp>,
}

impl Outbound {
    pub(super) fn new(replies: mpsc::UnboundedReceiver<v1::ServerOp>) -> Self {
        Self { replies, ready: Vec::new() }
    }
}

impl Stream for Outbound {
    type Item = Result<v1::ServerBatch, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        match this.replies.poll_recv_many(context, &mut this.ready, MAX_BATCH) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(0) => Poll::Ready(None),
            Poll::Ready(_) => Poll::Ready(Some(Ok(v1::ServerBatch { ops: std::mem::take(&mut this.ready) }))),
        }
    }
}
