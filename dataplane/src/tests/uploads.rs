//! Bodies that take time to come in: each holds a slot, and none is kept twice (gateway.md §1).

use router_proto::v1;
use router_proto::v1::client_op::Kind;

use super::backend::Backend;
use super::client::{connect, post};
use super::control::{Control, granted, route};
use super::replica::Replica;

const HEAD: &str = "POST /v1/x HTTP/1.1\r\nHost: r\r\nX-Session-Id: s\r\nContent-Length: 10\r\n\r\n";

async fn start(options: &[(&str, &str)]) -> (Control, Replica) {
    let mut control = Control::start(vec![route("chat", options)]).await;
    let replica = Replica::start(&control, &[]).await;
    control.hello().await;
    (control, replica)
}

#[tokio::test]
async fn gateway_1_a_slow_body_takes_a_slot_first_and_its_backend_in_place_of_it() {
    let backend = Backend::start().await;
    let (mut control, replica) = start(&[]).await;
    let mut client = connect(replica.addr).await;
    client.write(format!("{HEAD}01234")).await;
    let (op, reserve) = control.reserve().await;
    assert_eq!((reserve.route.as_str(), reserve.fingerprint.len(), reserve.reservation), ("chat", 0, 0));
    control.send(op, granted(7, ""));
    client.write("56789").await;
    let (op, acquire) = control.acquire().await;
    assert_eq!((acquire.reserve, acquire.reservation, acquire.fingerprint.len()), (false, 7, 16));
    control.send(op, granted(8, &backend.addr));
    let (mut upstream, request) = backend.request().await;
    assert_eq!(request.text(), "0123456789");
    upstream.answer("ok").await;
    assert_eq!(client.message().await.status(), 200);
    assert_eq!(control.release().await.lease, 8);
    assert!(control.heartbeat().await.is_empty(), "the reservation ended with the acquire and is not given back again");

    // The control: a body that comes with its head asks once.
    let mut client = connect(replica.addr).await;
    client.write(post("/v1/x", &[], "0123456789")).await;
    let (_, acquire) = control.acquire().await;
    assert_eq!((acquire.reserve, acquire.reservation), (false, 0));
}

#[tokio::test]
async fn a_client_that_leaves_during_its_upload_gives_the_slot_back() {
    let (mut control, replica) = start(&[]).await;
    let mut client = connect(replica.addr).await;
    client.write(format!("{HEAD}01234")).await;
    let (op, _) = control.reserve().await;
    control.send(op, granted(7, ""));
    drop(client);
    // The grant and the news that nobody waits for it may cross.
    let mut last = control.next().await.1;
    if matches!(last, Kind::Cancel(_)) {
        last = control.next().await.1;
    }
    let Kind::Release(release) = last else { panic!("Release expected, got {last:?}") };
    assert_eq!((release.lease, release.outcome()), (7, v1::Outcome::ClientGone));
}

#[tokio::test]
async fn a_client_that_leaves_while_it_waits_for_its_slot_leaves_the_queue() {
    let (mut control, replica) = start(&[]).await;
    let mut client = connect(replica.addr).await;
    client.write(format!("{HEAD}01234")).await;
    let (op, _) = control.reserve().await;
    drop(client);
    match control.next().await.1 {
        Kind::Cancel(cancel) => assert_eq!(cancel.target, op),
        other => panic!("Cancel expected, got {other:?}"),
    }
}

#[tokio::test]
async fn a_full_pool_refuses_before_the_body_is_in_and_the_client_reads_it() {
    let (mut control, replica) = start(&[("max_body_size", "64MiB")]).await;
    let gate = v1::Gate::QueueFull.into();
    let mut client = connect(replica.addr).await;
    client.write("POST /v1/x HTTP/1.1\r\nHost: r\r\nContent-Length: 20000000\r\n\r\n").await;
    let (op, _) = control.reserve().await;
    let refused = v1::Refused { gate, http_status: 429, retry_after_s: 1, ..Default::default() };
    control.send(op, v1::server_op::Kind::Refused(refused));
    // Twenty megabytes fit no socket buffer: a replica that did not read on would reset this.
    client.write("x".repeat(20_000_000)).await;
    let answer = client.message().await;
    assert_eq!((answer.status(), answer.header("retry-after")), (429, Some("1")));
}

#[tokio::test]
async fn a_reservation_outlives_the_link() {
    let backend = Backend::start().await;
    let (mut control, replica) = start(&[]).await;
    let mut client = connect(replica.addr).await;
    client.write(format!("{HEAD}01234")).await;
    let (op, _) = control.reserve().await;
    control.send(op, granted(7, ""));
    // The grant has been taken up once a release could follow: await it through a second request's round trip.
    let mut other = connect(replica.addr).await;
    other.write(post("/v1/x", &[], "1")).await;
    let (op, _) = control.acquire().await;
    control.send(op, granted(8, "127.0.0.1:1"));
    control.transfer().await;
    control.cut();
    let hello = control.hello().await;
    let held: Vec<_> = hello.held.iter().map(|held| (held.lease, held.backend.as_str())).collect();
    assert_eq!(held, [(7, "")]);
    control.grant(&[&backend.addr]);
    client.write("56789").await;
    loop {
        let (_, acquire) = control.acquire().await;
        if acquire.reservation == 7 {
            break;
        }
    }
    // The other client's request is asked for again too.
    let mut texts = vec![backend.request().await.1.text().to_owned(), backend.request().await.1.text().to_owned()];
    texts.sort();
    assert_eq!(texts, ["0123456789", "1"]);
}
