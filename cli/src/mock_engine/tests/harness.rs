//! A running engine and a plain client for it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser as _;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::mock_engine::state::{Engine, Stats};
use crate::mock_engine::{MockEngineArgs, engine, serve};

/// Bound on every wait of these tests.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

#[derive(clap::Parser)]
pub(super) struct Cli {
    #[command(flatten)]
    args: MockEngineArgs,
}

/// An engine that serves until it is dropped.
pub(super) struct Running {
    pub(super) address: SocketAddr,
    pub(super) engine: Arc<Engine>,
    _task: JoinSet<()>,
}

impl Running {
    pub(super) async fn start(flags: &[&str]) -> Self {
        let args = Cli::try_parse_from(["mock-engine", "--listen", "127.0.0.1:0"].iter().chain(flags)).unwrap().args;
        let listener = TcpListener::bind(args.listen).await.unwrap();
        let address = listener.local_addr().unwrap();
        let engine = engine(&args, address).unwrap();
        let mut task = JoinSet::new();
        let served = Arc::clone(&engine);
        task.spawn(async move { serve(&listener, &served, std::future::pending()).await });
        Self { address, engine, _task: task }
    }

    /// Sends a request and leaves the connection open.
    pub(super) async fn send(&self, method: &str, path: &str, body: &str) -> TcpStream {
        let mut socket = TcpStream::connect(self.address).await.unwrap();
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: mock\r\nConnection: close\r\nX-Test: a\r\nX-Test: b\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        );
        socket.write_all(request.as_bytes()).await.unwrap();
        socket
    }

    /// Sends a request; returns the status (0: closed without an answer) and the body as it came.
    pub(super) async fn call(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut socket = self.send(method, path, body).await;
        let mut answer = Vec::new();
        // A connection cut on purpose may end in a reset.
        drop(tokio::time::timeout(PATIENCE, socket.read_to_end(&mut answer)).await.unwrap());
        let answer = String::from_utf8(answer).unwrap();
        let status = answer.get(9..12).map_or(0, |status| status.parse().unwrap());
        let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
        (status, body.unwrap_or_default())
    }

    pub(super) async fn call_json(&self, method: &str, path: &str, body: &Value) -> Value {
        let (status, body) = self.call(method, path, &body.to_string()).await;
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    pub(super) async fn set(&self, change: Value) {
        self.call_json("POST", "/_mock/set", &change).await;
    }

    /// Waits until `is_true` of the counts; returns how long that took.
    pub(super) async fn until(&self, is_true: impl Fn(&Stats) -> bool) -> Duration {
        let start = Instant::now();
        while !is_true(&self.engine.stats()) {
            assert!(start.elapsed() < PATIENCE, "{:?}", self.engine.stats());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        start.elapsed()
    }
}

/// The bytes of a chunked body.
pub(super) fn dechunk(mut body: &str) -> (String, bool) {
    let mut out = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return (out, true);
        }
        out.push_str(&rest[..size]);
        body = &rest[size + 2..];
    }
    (out, false)
}
