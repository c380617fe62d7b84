//! A client that is only a socket: for requests that no proper client sends, and for leaving in the middle.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::chat::Chat;

/// The longest wait for bytes.
const READ_PATIENCE: Duration = Duration::from_secs(30);

/// An open connection. Dropping it closes it: the client has gone away.
#[derive(Debug)]
pub struct RawClient {
    socket: TcpStream,
    received: Vec<u8>,
}

impl RawClient {
    /// Connects.
    ///
    /// # Errors
    /// When nobody listens.
    pub async fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        let socket = TcpStream::connect(address).await.with_context(|| format!("connect to {address}"))?;
        socket.set_nodelay(true)?;
        Ok(Self { socket, received: Vec::new() })
    }

    /// Connects and sends a whole chat request.
    ///
    /// # Errors
    /// As [`RawClient::connect`] and [`RawClient::write`].
    pub async fn send(address: SocketAddr, chat: &Chat) -> anyhow::Result<Self> {
        let mut client = Self::connect(address).await?;
        let body = chat.body();
        let mut head =
            format!("POST {} HTTP/1.1\r\nhost: {address}\r\ncontent-length: {}\r\n", chat.path(), body.len());
        for (name, value) in chat.headers() {
            head.extend([name.as_str(), ": ", value.as_str(), "\r\n"]);
        }
        client.write(format!("{head}\r\n{body}").as_bytes()).await?;
        Ok(client)
    }

    /// Writes bytes as they are.
    ///
    /// # Errors
    /// When the other side has closed.
    pub async fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.socket.write_all(bytes).await.context("write to a raw connection")
    }

    /// Reads until what was received contains `text`, and returns everything received.
    ///
    /// # Errors
    /// When the connection ends first, or after half a minute without bytes.
    pub async fn read_until(&mut self, text: &str) -> anyhow::Result<String> {
        loop {
            let so_far = String::from_utf8_lossy(&self.received).into_owned();
            if so_far.contains(text) {
                return Ok(so_far);
            }
            if !self.read_some().await? {
                bail!("the connection ended before {text:?}; received {so_far:?}");
            }
        }
    }

    /// Reads until the other side closes (or resets), and returns everything received.
    ///
    /// # Errors
    /// After half a minute without bytes.
    pub async fn read_to_end(&mut self) -> anyhow::Result<String> {
        while self.read_some().await? {}
        Ok(String::from_utf8_lossy(&self.received).into_owned())
    }

    /// Everything received so far.
    pub fn received(&self) -> &[u8] {
        &self.received
    }

    /// False at the connection's end.
    async fn read_some(&mut self) -> anyhow::Result<bool> {
        let mut buffer = vec![0; 16 * 1024];
        let read = tokio::time::timeout(READ_PATIENCE, self.socket.read(&mut buffer)).await;
        let Ok(count @ 1..) = read.context("no bytes came")? else { return Ok(false) };
        self.received.extend_from_slice(buffer.get(..count).unwrap_or_default());
        Ok(true)
    }
}
