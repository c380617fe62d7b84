//! Callers that hold connections, over real sockets and with a clock that the test moves.

use std::net::SocketAddr;

use axum::response::IntoResponse as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

async fn start(tasks: &mut JoinSet<()>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tasks.spawn(serve(listener, |_| async { "OK".into_response() }, CancellationToken::new()));
    at
}

async fn ask(at: SocketAddr) -> String {
    let mut stream = TcpStream::connect(at).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test(start_paused = true)]
async fn half_a_head_and_silence_end_after_a_while() {
    let mut tasks = JoinSet::new();
    let at = start(&mut tasks).await;
    for sent in ["GET / HTTP/1.1\r\nHost:", "", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"] {
        let mut stream = TcpStream::connect(at).await.unwrap();
        stream.write_all(sent.as_bytes()).await.unwrap();
        let began = tokio::time::Instant::now();
        let ended = tokio::time::timeout(HEAD * 3, stream.read_to_end(&mut Vec::new())).await;
        assert!(ended.is_ok(), "{sent:?} is held open");
        assert!(began.elapsed() >= HEAD, "{sent:?}: {:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn callers_that_hold_all_places_hold_up_others_for_a_bounded_time_and_no_more_are_let_in() {
    let mut tasks = JoinSet::new();
    let at = start(&mut tasks).await;
    assert!(ask(at).await.ends_with("OK"));
    let mut silent = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut stream = TcpStream::connect(at).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        silent.push(stream);
    }
    let began = tokio::time::Instant::now();
    assert!(ask(at).await.ends_with("OK"));
    assert!(began.elapsed() >= HEAD, "one more was let in after {:?}", began.elapsed());
}
