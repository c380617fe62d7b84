//! A backend by hand: a listener whose connections the test reads and writes byte by byte.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::soon;

pub(super) struct Backend {
    listener: TcpListener,
    pub(super) addr: String,
}

impl Backend {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        Self { listener, addr }
    }

    /// The next connection of the replica.
    pub(super) async fn accept(&self) -> Wire {
        Wire::new(soon("a connection to the backend", self.listener.accept()).await.unwrap().0)
    }

    /// Accepts a connection and reads a request.
    pub(super) async fn request(&self) -> (Wire, Message) {
        let mut wire = self.accept().await;
        let message = wire.message().await;
        (wire, message)
    }
}

/// An address where nobody listens.
pub(super) async fn nobody() -> String {
    Backend::start().await.addr
}

/// One end of a connection.
pub(super) struct Wire {
    socket: TcpStream,
    read: Vec<u8>,
}

/// A request or a response.
#[derive(Debug)]
pub(super) struct Message {
    /// Start line and headers, lower case, without the empty line.
    pub(super) head: String,
    pub(super) first_line: String,
    pub(super) body: Vec<u8>,
}

impl Message {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    pub(super) fn status(&self) -> u16 {
        self.first_line.split(' ').nth(1).unwrap().parse().unwrap()
    }

    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

impl Wire {
    pub(super) fn new(socket: TcpStream) -> Self {
        socket.set_nodelay(true).unwrap();
        Self { socket, read: Vec::new() }
    }

    pub(super) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.socket.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Start line and headers; what follows stays unread.
    pub(super) async fn head(&mut self) -> Message {
        let end = loop {
            if let Some(at) = self.read.windows(4).position(|part| part == b"\r\n\r\n") {
                break at;
            }
            assert!(self.more().await, "ended within a head: {:?}", String::from_utf8_lossy(&self.read));
        };
        let head: Vec<u8> = self.read.drain(..end + 4).take(end).collect();
        let head = String::from_utf8(head).unwrap();
        let first_line = head.lines().next().unwrap().to_owned();
        Message { head: head.to_ascii_lowercase(), first_line, body: Vec::new() }
    }

    /// Head and body, by `Content-Length`; without one, no body.
    pub(super) async fn message(&mut self) -> Message {
        let mut message = self.head().await;
        let length = message.header("content-length").map_or(0, |length| length.parse().unwrap());
        message.body = self.bytes(length).await;
        message
    }

    pub(super) async fn bytes(&mut self, count: usize) -> Vec<u8> {
        while self.read.len() < count {
            assert!(self.more().await, "ended early");
        }
        self.read.drain(..count).collect()
    }

    /// Reads up to and with `end`.
    pub(super) async fn until(&mut self, end: &str) -> String {
        let at = loop {
            if let Some(at) = self.read.windows(end.len()).position(|part| part == end.as_bytes()) {
                break at + end.len();
            }
            assert!(self.more().await, "ended before {end:?}: {:?}", String::from_utf8_lossy(&self.read));
        };
        String::from_utf8(self.read.drain(..at).collect()).unwrap()
    }

    /// What comes until the other side closes.
    pub(super) async fn rest(&mut self) -> Vec<u8> {
        while self.more().await {}
        std::mem::take(&mut self.read)
    }

    /// Waits until the other side has closed or reset.
    pub(super) async fn closed(&mut self) {
        while self.more().await {}
    }

    /// False at the end.
    async fn more(&mut self) -> bool {
        self.read.reserve(4096);
        matches!(soon("bytes", self.socket.read_buf(&mut self.read)).await, Ok(1..))
    }

    /// A 200 with this JSON.
    pub(super) async fn answer(&mut self, body: &str) {
        let length = body.len();
        self.write(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        ))
        .await;
    }
}
