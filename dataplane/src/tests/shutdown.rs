//! The way down.

use std::time::{Duration, Instant};

use router_proto::v1::client_op::Kind;

use super::backend::{Backend, Wire};
use super::client::{connect, get, post};
use super::control::{Control, route};
use super::replica::Replica;
use super::soon;

async fn with_stream(flags: &[&str]) -> (Control, Replica, Wire, Wire) {
    let backend = Backend::start().await;
    let mut control = Control::start(vec![route("chat", &[])]).await;
    control.grant(&[&backend.addr]);
    let replica = Replica::start(&control, flags).await;
    control.hello().await;
    let mut client = connect(replica.addr).await;
    client.write(post("/v1/x", &[], "")).await;
    let (mut upstream, _) = backend.request().await;
    upstream.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n01234").await;
    client.head().await;
    client.bytes(5).await;
    control.acquire().await;
    (control, replica, client, upstream)
}

#[tokio::test]
async fn a_drain_cuts_no_stream_closes_what_idles_and_says_goodbye() {
    let (mut control, replica, mut client, mut upstream) = with_stream(&[]).await;
    let mut idle = connect(replica.addr).await;
    idle.write(get("/health")).await;
    idle.message().await;
    let mut silent = connect(replica.addr).await;
    replica.stop();
    idle.closed().await;
    silent.closed().await;
    assert_eq!(replica.readyz().await.status(), 503);
    assert!(tokio::net::TcpStream::connect(replica.addr).await.is_err(), "accepts no more");
    upstream.write("56789").await;
    assert_eq!(client.rest().await, b"56789", "whole, then closed");
    replica.stopped().await;
    let ends: Vec<Kind> = control.unread();
    assert!(matches!(ends[..], [Kind::Release(_), Kind::Goodbye(_)]), "{ends:?}");
}

#[tokio::test]
async fn http2_clients_are_sent_away_once_their_answers_are_whole() {
    let (_control, replica, _client, mut upstream) = with_stream(&[]).await;
    let socket = tokio::net::TcpStream::connect(replica.addr).await.unwrap();
    let io = hyper_util::rt::TokioIo::new(socket);
    let executor = hyper_util::rt::TokioExecutor::new();
    let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(connection);
    let request =
        http::Request::get("http://router/health").body(http_body_util::Empty::<bytes::Bytes>::new()).unwrap();
    assert_eq!(sender.send_request(request).await.unwrap().status(), 200);
    replica.stop();
    soon("GOAWAY", tasks.join_next()).await.unwrap().unwrap().unwrap();
    upstream.write("56789").await;
    replica.stopped().await;
}

#[tokio::test]
async fn the_grace_period_ends_what_would_not_end() {
    let (mut control, replica, mut client, mut upstream) = with_stream(&["--grace", "200ms"]).await;
    let start = Instant::now();
    replica.stop();
    replica.stopped().await;
    assert!(start.elapsed() >= Duration::from_millis(200));
    assert!(client.rest().await.is_empty());
    upstream.closed().await;
    let ends: Vec<Kind> = control.unread();
    assert!(matches!(ends[..], [Kind::Release(_), Kind::Goodbye(_)]), "{ends:?}");
}

#[tokio::test]
async fn with_a_delay_it_still_serves_while_it_says_that_it_is_not_ready() {
    let control = Control::start(vec![route("chat", &[])]).await;
    let replica = Replica::start(&control, &["--drain-delay", "400ms"]).await;
    let start = Instant::now();
    replica.stop();
    while replica.readyz().await.status() == 200 {}
    let mut client = connect(replica.addr).await;
    client.write(get("/health")).await;
    assert_eq!(client.message().await.status(), 200);
    replica.stopped().await;
    assert!(start.elapsed() >= Duration::from_millis(400));
}
