//! A client by hand.

use std::net::SocketAddr;

use tokio::net::TcpStream;

use super::backend::{Message, Wire};

pub(super) async fn connect(addr: SocketAddr) -> Wire {
    Wire::new(TcpStream::connect(addr).await.unwrap())
}

/// A request with a body.
pub(super) fn post(path: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut text = format!("POST {path} HTTP/1.1\r\nHost: router\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        text.extend([name, ": ", value, "\r\n"]);
    }
    text + "\r\n" + body
}

/// A request without one.
pub(super) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: router\r\n\r\n")
}

/// Sends a request on a connection of its own and reads the answer.
pub(super) async fn call(addr: SocketAddr, request: &str) -> Message {
    let mut wire = connect(addr).await;
    wire.write(request).await;
    wire.message().await
}
