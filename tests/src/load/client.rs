//! A keep-alive HTTP/1.1 client on raw sockets that does as little as it can: requests are made once and sent as they are,
//! of a response only status and length are looked at.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Bound on one exchange.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(20);

/// The head of a message, up to and with its empty line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head<'a>(pub(crate) &'a [u8]);

/// Where the head in `buffer` ends, if it is whole.
pub(crate) fn head_end(buffer: &[u8]) -> Option<usize> {
    buffer.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4)
}

/// The value of header `name`, trimmed.
fn header<'a>(head: Head<'a>, name: &[u8]) -> Option<&'a [u8]> {
    head.0.split(|byte| *byte == b'\n').find_map(|line| {
        let (key, value) = line.split_at_checked(name.len())?;
        (key.eq_ignore_ascii_case(name)).then(|| value.strip_prefix(b":")).flatten().map(<[u8]>::trim_ascii)
    })
}

/// The announced length of the body.
pub(crate) fn content_length(head: Head<'_>) -> Option<usize> {
    std::str::from_utf8(header(head, b"content-length")?).ok()?.parse().ok()
}

fn is_chunked(head: Head<'_>) -> bool {
    header(head, b"transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case(b"chunked"))
}

fn status(head: Head<'_>) -> Option<u16> {
    std::str::from_utf8(head.0.get(9..12)?).ok()?.parse().ok()
}

/// A chat completion request whose body has `body_bytes` bytes, in session `session`.
pub(crate) fn chat_request(session: usize, body_bytes: usize, is_streamed: bool, max_tokens: u32) -> Vec<u8> {
    let start = format!(
        r#"{{"model":"load","stream":{is_streamed},"max_tokens":{max_tokens},"messages":[{{"role":"user","content":"session {session:05} "#
    );
    let end = r#""}]}"#;
    let padding = "word ".repeat(body_bytes / 5 + 1);
    let room = body_bytes.saturating_sub(start.len() + end.len()).min(padding.len());
    let body = format!("{start}{}{end}", padding.get(..room).unwrap_or_default());
    let length = body.len();
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: load\r\nContent-Type: application/json\r\n\
         x-session-id: session-{session:05}\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// One connection.
pub(crate) struct Connection {
    socket: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let socket = timeout(EXCHANGE_TIMEOUT, TcpStream::connect(address))
            .await
            .context("connect: timed out")?
            .with_context(|| format!("connect to {address}"))?;
        socket.set_nodelay(true).context("set TCP_NODELAY")?;
        Ok(Self { socket, buffer: Vec::with_capacity(16 << 10) })
    }

    /// Sends `request`.
    pub(crate) async fn send(&mut self, request: &[u8]) -> anyhow::Result<()> {
        self.socket.write_all(request).await.context("send a request")
    }

    /// Sends `request` and reads the whole response; returns its status.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> anyhow::Result<u16> {
        self.send(request).await?;
        self.buffer.clear();
        let (status, end, length) = self.head().await?;
        match length {
            Some(length) => {
                while self.buffer.len() < end + length {
                    self.more().await?;
                }
            }
            None => {
                while !self.buffer.ends_with(b"\r\n0\r\n\r\n") {
                    self.more().await?;
                }
            }
        }
        Ok(status)
    }

    /// Waits for a successful head and at least one byte of the body.
    pub(crate) async fn first_bytes(&mut self) -> anyhow::Result<()> {
        let (status, end, _) = self.head().await?;
        if status != 200 {
            bail!("status {status}: {}", String::from_utf8_lossy(&self.buffer));
        }
        while self.buffer.len() <= end {
            self.more().await?;
        }
        Ok(())
    }

    /// Reads a chunked event stream to its end without keeping it; returns the bytes of the body as framed.
    pub(crate) async fn drain_stream(&mut self) -> anyhow::Result<u64> {
        self.first_bytes().await?;
        let mut bytes = 0;
        let mut tail = Vec::new();
        loop {
            bytes += self.buffer.len() as u64;
            // The end may be cut anywhere: the last bytes of the read before are kept for the comparison.
            tail.extend_from_slice(self.buffer.get(self.buffer.len().saturating_sub(64)..).unwrap_or_default());
            if tail.ends_with(b"\r\n0\r\n\r\n") {
                break;
            }
            tail.drain(..tail.len().saturating_sub(64));
            self.buffer.clear();
            self.more().await?;
        }
        if !tail.windows(6).any(|window| window == b"[DONE]") {
            bail!("the stream ended without [DONE]");
        }
        Ok(bytes)
    }

    /// Reads until the head is whole: its status, its end, and the body's length unless chunked.
    async fn head(&mut self) -> anyhow::Result<(u16, usize, Option<usize>)> {
        let end = loop {
            if let Some(end) = head_end(&self.buffer) {
                break end;
            }
            self.more().await?;
        };
        let head = Head(self.buffer.get(..end).unwrap_or_default());
        let status = status(head).context("a response without a status")?;
        let length = if is_chunked(head) { None } else { Some(content_length(head).unwrap_or(0)) };
        Ok((status, end, length))
    }

    async fn more(&mut self) -> anyhow::Result<()> {
        let read = self.socket.read_buf(&mut self.buffer).await.context("read a response")?;
        if read == 0 {
            bail!("the connection was closed inside a response");
        }
        Ok(())
    }
}

/// What a burst of load saw.
#[derive(Debug, Default)]
pub(crate) struct Burst {
    pub(crate) elapsed: Duration,
    /// Latencies of successful requests in microseconds, ascending.
    pub(crate) latencies_us: Vec<u32>,
    /// Answers with another status than 200.
    pub(crate) failures: u64,
}

impl Burst {
    /// Successful requests per second.
    pub(crate) fn per_second(&self) -> f64 {
        self.requests() / self.elapsed.as_secs_f64()
    }

    /// Successful requests.
    pub(crate) fn requests(&self) -> f64 {
        f64::from(u32::try_from(self.latencies_us.len()).unwrap_or(u32::MAX))
    }

    /// Latency in milliseconds that `percent` % of the requests stayed within.
    pub(crate) fn percentile_ms(&self, percent: usize) -> f64 {
        let at = (self.latencies_us.len() * percent / 100).min(self.latencies_us.len().saturating_sub(1));
        self.latencies_us.get(at).map_or(0.0, |micros| f64::from(*micros) / 1000.0)
    }
}

/// Sends `requests` in turn over `connections` connections for `time`, each connection one at a time.
pub(crate) async fn burst(
    address: SocketAddr,
    connections: usize,
    requests: &'static [Vec<u8>],
    time: Duration,
) -> anyhow::Result<Burst> {
    let mut open = Vec::new();
    for _ in 0..connections {
        open.push(Connection::open(address).await?);
    }
    let start = Instant::now();
    let mut workers = JoinSet::new();
    for (index, mut connection) in open.into_iter().enumerate() {
        workers.spawn(async move {
            let mut latencies_us = Vec::with_capacity(1 << 14);
            let mut failures = 0_u64;
            for request in requests.iter().cycle().skip(index) {
                let sent = Instant::now();
                if sent.duration_since(start) >= time {
                    break;
                }
                let status = connection.exchange(request).await?;
                if status == 200 {
                    latencies_us.push(u32::try_from(sent.elapsed().as_micros()).unwrap_or(u32::MAX));
                } else {
                    failures += 1;
                }
            }
            anyhow::Ok((latencies_us, failures))
        });
    }
    let mut burst = Burst::default();
    let joined = timeout(time + EXCHANGE_TIMEOUT, async {
        while let Some(worker) = workers.join_next().await {
            let (latencies_us, failures) = worker.context("a client task failed")??;
            burst.latencies_us.extend(latencies_us);
            burst.failures += failures;
        }
        anyhow::Ok(())
    });
    joined.await.context("the peer stopped answering")??;
    burst.elapsed = start.elapsed();
    burst.latencies_us.sort_unstable();
    Ok(burst)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_size_asked_for() {
        let request = chat_request(7, 1024, false, 100);
        let end = head_end(&request).unwrap();
        assert_eq!(request.len() - end, 1024);
        assert_eq!(content_length(Head(&request[..end])), Some(1024));
        serde_json::from_slice::<serde_json::Value>(&request[end..]).unwrap();
    }

    #[test]
    fn heads_are_read_whatever_their_case() {
        let head = Head(b"HTTP/1.1 429 Too Many\r\ncontent-LENGTH:  12\r\nTransfer-Encoding: chunked\r\n\r\n");
        assert_eq!((status(head), content_length(head), is_chunked(head)), (Some(429), Some(12), true));
        assert_eq!(content_length(Head(b"HTTP/1.1 200 OK\r\nX-Content-Length: 1\r\n\r\n")), None);
    }

    #[test]
    fn percentiles_are_taken_from_the_sorted_latencies() {
        let burst = Burst {
            elapsed: Duration::from_secs(1),
            latencies_us: (1..=100).map(|ms| ms * 1000).collect(),
            failures: 0,
        };
        assert!((burst.percentile_ms(50) - 51.0).abs() < 0.01);
        assert!((burst.percentile_ms(99) - 100.0).abs() < 0.01);
        assert!((burst.per_second() - 100.0).abs() < 0.01);
    }
}
