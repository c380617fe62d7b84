//! `affinity: hash`, `rendezvous`, `off`: what the control plane is told of a session that only the replica knows
//! (rulings §1, routing.md §4, §5).

use router_proto::v1;

use super::backend::Backend;
use super::client::{connect, post};
use super::control::{Control, granted, route};
use super::replica::Replica;

/// The peers of routing.md §5.3. Nobody is ever asked there.
const PEERS: [&str; 3] = ["10.0.0.11:8000", "10.0.0.12:8000", "10.0.0.13:8000"];

fn over_peers(options: &[(&str, &str)]) -> v1::Route {
    let backend = |address: &str| v1::Backend { address: address.to_owned(), ..Default::default() };
    v1::Route { backends: PEERS.map(backend).into(), ..route("chat", options) }
}

#[tokio::test]
async fn rulings_1_the_hash_goes_out_and_the_id_does_not() {
    let ranked = [PEERS[1], PEERS[2], PEERS[0]];
    for (affinity, crc32, ranked, source, has_fingerprint) in [
        ("binding", None, &[][..], "header.x-session-id", true),
        // CRC-32 of "user-42", by another implementation.
        ("hash", Some(0x7d06_b873), &[], "header.x-session-id", true),
        ("rendezvous", None, &ranked, "header.x-session-id", true),
        ("off", None, &[], "affinity_off", false),
    ] {
        let backend = Backend::start().await;
        let mut control = Control::start(vec![over_peers(&[("affinity", affinity)])]).await;
        let replica = Replica::start(&control, &[]).await;
        control.hello().await;
        let mut client = connect(replica.addr).await;
        for (headers, is_session) in [(&[("X-Session-Id", "user-42")][..], true), (&[], false)] {
            client.write(post("/v1/x", headers, "{}")).await;
            let (op, acquire) = control.acquire().await;
            assert!(!format!("{acquire:?}").contains("user-42"), "{acquire:?}");
            assert_eq!(acquire.crc32, crc32.filter(|_| is_session), "{affinity}");
            assert_eq!(acquire.ranked, if is_session { ranked } else { &[] }, "{affinity}");
            assert_eq!(acquire.fingerprint.len(), if is_session && has_fingerprint { 16 } else { 0 }, "{affinity}");
            control.send(op, granted(op, &backend.addr));
            let (mut upstream, _) = backend.request().await;
            upstream.write("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}").await;
            let answer = client.message().await;
            assert_eq!(answer.header("x-routed-source"), Some(if is_session { source } else { "none" }), "{affinity}");
            assert_eq!(answer.header("x-routed-session").is_some(), is_session && has_fingerprint, "{affinity}");
            control.release().await;
        }
    }
}

#[tokio::test]
async fn a_ranking_is_of_the_model_s_pool_and_stays_the_same_over_a_transfer() {
    let mut by_model = over_peers(&[("affinity", "rendezvous"), ("connect_timeout", "50ms")]);
    for (backend, models) in by_model.backends.iter_mut().zip([&["a"][..], &["a", "b"], &["b"]]) {
        backend.models = models.iter().map(|&model| model.to_owned()).collect();
    }
    let mut control = Control::start(vec![by_model]).await;
    let replica = Replica::start(&control, &[]).await;
    control.hello().await;
    let dead = super::backend::nobody().await;
    let mut client = connect(replica.addr).await;
    for (model, ranked) in [("a", &[PEERS[1], PEERS[0]][..]), ("b", &[PEERS[1], PEERS[2]]), ("c", &[])] {
        client.write(post("/v1/x", &[("X-Session-Id", "abc")], &format!(r#"{{"model":"{model}"}}"#))).await;
        let (op, acquire) = control.acquire().await;
        assert_eq!(acquire.model, model);
        assert_eq!(acquire.ranked, ranked);
        control.send(op, granted(op, &dead));
        let transfer = control.transfer().await;
        assert_eq!(transfer.again.unwrap().ranked, ranked);
        client = connect(replica.addr).await;
        assert!(matches!(control.next().await.1, v1::client_op::Kind::Cancel(_)), "the client has left");
    }
}
