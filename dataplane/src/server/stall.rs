//! A client socket that does not wait for ever for its client to read. Without it a client that stops reading its stream,
//! and keeps the connection open, would hold its lease and the backend's slot for as long as it likes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// Fails a write that the client has left no room for during the whole of `limit`.
#[derive(Debug)]
pub(crate) struct Stall<S> {
    socket: S,
    limit: Duration,
    /// Runs while a write waits; made when the first one does, so that a client that keeps up costs nothing.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> Stall<S> {
    pub(crate) fn new(socket: S, limit: Duration) -> Self {
        Self { socket, limit, waiting: None }
    }

    fn watch(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let limit = self.limit;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        waiting.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stall<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stall<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(cx, bytes);
        self.watch(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(cx, pieces);
        self.watch(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::{advance, timeout};

    const LIMIT: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn only_a_client_that_reads_nothing_for_the_whole_limit_is_given_up() {
        let (socket, mut client) = tokio::io::duplex(4);
        let mut socket = Stall::new(socket, LIMIT);
        socket.write_all(b"1234").await.unwrap();
        for _ in 0..3 {
            assert!(timeout(LIMIT / 2, socket.write(b"5")).await.is_err(), "full");
            client.read_u8().await.unwrap();
            socket.write_all(b"6").await.unwrap();
            advance(LIMIT).await;
        }
        let stalled = timeout(LIMIT * 2, socket.write(b"7")).await.unwrap();
        assert_eq!(stalled.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
