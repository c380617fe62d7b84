//! The cheapest possible engine: one thread, one fixed answer, no parsing beyond the length of the request's body.
//!
//! It is the same for all peers and runs as a process of its own, so that its cost is in nobody's figures.

use std::io::Write as _;
use std::net::SocketAddr;

use anyhow::Context as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::client::{Head, content_length, head_end};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Size of the answer's body.
    #[arg(long, default_value_t = 300)]
    answer_bytes: usize,
}

/// Serves until killed.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let listener = TcpListener::bind(args.listen).await.context("engine: listen")?;
    let address = listener.local_addr().context("engine: read the bound address")?;
    writeln!(std::io::stdout().lock(), "listening role=load-engine http={address}").context("write to stdout")?;
    let answer = answer(args.answer_bytes);
    let mut connections = JoinSet::new();
    loop {
        let (socket, _) = listener.accept().await.context("engine: accept")?;
        connections.spawn(serve(socket, answer.clone()));
        while connections.try_join_next().is_some() {}
    }
}

/// The response, head included, to whatever is asked.
fn answer(body_bytes: usize) -> Vec<u8> {
    let start = r#"{"id":"chatcmpl-load","object":"chat.completion","created":0,"model":"load","choices":[{"index":0,"message":{"role":"assistant","content":""#;
    let end =
        r#""},"finish_reason":"stop"}],"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0},"data":[]}"#;
    let padding = "x".repeat(body_bytes.saturating_sub(start.len() + end.len()));
    let body = format!("{start}{padding}{end}");
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
}

/// Answers the requests of one connection until it ends, also in error: the client sees it.
async fn serve(mut socket: TcpStream, answer: Vec<u8>) {
    let _ = socket.set_nodelay(true);
    let mut buffer = Vec::with_capacity(16 << 10);
    loop {
        let Some(end) = head_end(&buffer) else {
            match socket.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(_) => continue,
            }
        };
        let head = Head(buffer.get(..end).unwrap_or_default());
        let whole = end + content_length(head).unwrap_or(0);
        while buffer.len() < whole {
            match socket.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
        buffer.drain(..whole);
        if socket.write_all(&answer).await.is_err() {
            return;
        }
    }
}
