//! What a collector gets of what crosses the router, and what it never costs.

use std::time::Duration;

use futures_util::FutureExt;
use router_proto::v1;
use router_proto::v1::client_op::Kind;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::backend::{Backend, nobody};
use super::client::{call, connect, get, post};
use super::control::{Answers, Control, route};
use super::replica::Replica;
use super::soon;
use crate::bodylog::frame;

const ON: (&str, &str) = ("bodylog_default_enabled", "true");

struct Collector {
    listener: TcpListener,
    stream: Option<TcpStream>,
    port: String,
}

#[derive(Debug)]
struct Logged {
    meta: Value,
    request: Vec<u8>,
    response: Vec<u8>,
}

impl Collector {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = format!("--bodylog-port={}", listener.local_addr().unwrap().port());
        Self { listener, stream: None, port }
    }

    fn flags(&self) -> [&str; 2] {
        ["--bodylog-host=127.0.0.1", &self.port]
    }

    async fn next(&mut self) -> Logged {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => none.insert(soon("the sender", self.listener.accept()).await.unwrap().0),
        };
        let mut prefix = [0; frame::PREFIX];
        soon("a frame", stream.read_exact(&mut prefix)).await.unwrap();
        let mut rest = vec![0; frame::total(prefix).unwrap()];
        soon("a frame's rest", stream.read_exact(&mut rest)).await.unwrap();
        let frame::Contents { meta, request, response } = frame::decode(&rest).unwrap();
        let meta = serde_json::from_slice(meta).unwrap();
        Logged { meta, request: request.to_vec(), response: response.to_vec() }
    }

    /// Once the replica has ended: whether anybody has ever connected.
    fn is_unused(&self) -> bool {
        self.stream.is_none() && self.listener.accept().now_or_never().is_none()
    }
}

impl Logged {
    fn fields(&self, names: &[&str]) -> Vec<Value> {
        names.iter().map(|name| self.meta.get(name).cloned().unwrap_or_default()).collect()
    }
}

async fn start(options: &[(&str, &str)], backends: &[&str], flags: &[&str]) -> (Control, Replica) {
    let mut control = Control::start(vec![route("chat", options)]).await;
    control.grant(backends);
    let replica = Replica::start(&control, flags).await;
    control.hello().await;
    (control, replica)
}

#[tokio::test]
async fn a_stream_is_logged_with_what_the_client_sent_and_the_backend_said() {
    let (dead, backend, mut collector) = (nobody().await, Backend::start().await, Collector::start().await);
    let (_control, replica) = start(&[ON], &[&dead, &backend.addr], &collector.flags()).await;
    let mut client = connect(replica.addr).await;
    let headers = [("Authorization", "Bearer secret"), ("X-Session-Id", "sess-1"), ("X-Request-Id", "req-7")];
    let body = "{ \"n\": 1.10000000000000000001 }";
    client.write(post("/chat/v1/chat/completions?a=%2Fb", &headers, body)).await;
    let (mut upstream, _) = backend.request().await;
    upstream
        .write("HTTP/1.1 200 OK\r\nX-Routed-Peer: http://10.0.0.5:8000/x\r\nTransfer-Encoding: chunked\r\n\r\n")
        .await;
    for (chunk, part) in [("6\r\ndata: \r\n", "data: "), ("3\r\n1\n\n\r\n", "1\n\n")] {
        upstream.write(chunk).await;
        client.until(part).await;
    }
    upstream.write("0\r\n\r\n").await;
    client.until("0\r\n\r\n").await;

    let logged = collector.next().await;
    assert_eq!((logged.request, logged.response), (body.into(), b"data: 1\n\n".to_vec()));
    let Value::Object(mut meta) = logged.meta else { panic!("no object") };
    let times = ["ts", "rt", "first_chunk_t", "last_chunk_t"].map(|name| meta.remove(name).expect(name));
    assert!(times[0].as_str().unwrap().ends_with("+00:00"), "{times:?}");
    assert!(times[2].as_f64() <= times[3].as_f64() && times[3].as_f64() <= times[1].as_f64(), "{times:?}");
    assert_eq!(
        Value::Object(meta),
        json!({
            "route": "chat", "request_id": "req-7", "client_ip": "127.0.0.1", "method": "POST",
            "uri": "/chat/v1/chat/completions?a=%2Fb",
            "req_headers": {
                "host": "router", "content-length": body.len().to_string(), "x-session-id": "sess-1",
                "x-request-id": "req-7",
            },
            "req_body_truncated": false, "peer": format!("{} (retry#1)", backend.addr),
            "forwarded_to": "http://10.0.0.5:8000/x", "session_id": "sess-1",
            "session_src": "header.x-session-id", "mode": "new", "status": 200, "resp_bytes": 9,
            "resp_body_truncated": false, "chunk_count": 2,
        })
    );
    assert!(replica.metrics().await.contains("router_bodylog_frames_total{route=\"chat\"} 1\n"));
}

#[tokio::test]
async fn payloads_6_what_the_router_answers_is_logged_from_the_step_on_that_captures() {
    let (dead, mut collector) = (nobody().await, Collector::start().await);
    let options = [ON, ("auth", "required"), ("max_body_size", "10B"), ("max_more_tries", "0")];
    let (control, replica) = start(&options, &[&dead], &collector.flags()).await;
    control.publish(|snapshot| {
        snapshot.keys = vec![v1::Key { id: "k".into(), sha256: key_hash("sk-1"), ..Default::default() }];
    });
    replica.sees_snapshot(2).await;
    let key = ("Authorization", "Bearer sk-1");
    // Before the capture: no key, too long by its head, the list of models.
    assert_eq!(call(replica.addr, &post("/v1/x", &[], "")).await.status(), 401);
    assert_eq!(call(replica.addr, &post("/v1/x", &[key], "12345678901")).await.status(), 413);
    let models = "GET /v1/models HTTP/1.1\r\nHost: r\r\nAuthorization: Bearer sk-1\r\n\r\n";
    call(replica.addr, models).await;
    // After it.
    let answer = call(replica.addr, &post("/v1/x", &[key], "1")).await;
    let logged = collector.next().await;
    assert_eq!(
        logged.fields(&["status", "peer", "mode", "key_id", "refused"]),
        [json!(502), json!(dead), json!("new"), json!("k"), Value::Null]
    );
    assert_eq!((logged.request, &logged.response), (b"1".to_vec(), &answer.body));
    control.answers(Answers::Refuse(v1::Refused { gate: v1::Gate::QueueFull.into(), ..Default::default() }));
    let answer = call(replica.addr, &post("/v1/x", &[key, ("x-session-id", "s")], "2")).await;
    let logged = collector.next().await;
    assert_eq!(
        logged.fields(&["status", "peer", "mode", "session_id", "chunk_count", "key_id", "refused"]),
        [json!(429), Value::Null, Value::Null, json!("s"), json!(1), json!("k"), json!("queue_full")]
    );
    assert_eq!((logged.request, &logged.response), (b"2".to_vec(), &answer.body));
    // Too long, as only its end tells: the body is not known.
    let chunked = "POST /v1/x HTTP/1.1\r\nHost: r\r\nAuthorization: Bearer sk-1\r\nTransfer-Encoding: chunked\r\n\r\n\
                   b\r\n12345678901\r\n0\r\n\r\n";
    assert_eq!(call(replica.addr, chunked).await.status(), 413);
    let logged = collector.next().await;
    assert_eq!(logged.fields(&["status", "req_body_truncated"]), [json!(413), json!(true)]);
    assert!(logged.request.is_empty());
}

/// As the control plane stores it.
fn key_hash(key: &str) -> bytes::Bytes {
    use sha2::Digest as _;
    sha2::Sha256::digest(key).to_vec().into()
}

#[tokio::test]
async fn every_way_in_which_an_answer_ends_is_logged() {
    let (backend, mut collector) = (Backend::start().await, Collector::start().await);
    let (_control, replica) = start(&[ON], &[&backend.addr], &collector.flags()).await;
    let fields = ["status", "resp_bytes"];
    for leaves in [false, true] {
        let mut client = connect(replica.addr).await;
        client.write(post("/v1/x", &[], "")).await;
        let (mut upstream, _) = backend.request().await;
        upstream.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n01234").await;
        client.head().await;
        client.bytes(5).await;
        if leaves {
            drop(client);
            upstream.closed().await;
        } else {
            drop(upstream);
            client.closed().await;
        }
        let logged = collector.next().await;
        assert_eq!(logged.fields(&fields), [json!(200), json!(5)], "{leaves}");
        assert_eq!((logged.meta.get("last_chunk_t"), logged.response), (None, b"01234".to_vec()), "{leaves}");
    }
    let mut client = connect(replica.addr).await;
    client.write(post("/v1/x", &[], "question")).await;
    let (mut upstream, _) = backend.request().await;
    drop(client);
    upstream.closed().await;
    let logged = collector.next().await;
    assert_eq!(logged.fields(&fields), [json!(499), json!(0)]);
    assert_eq!(logged.request, b"question");
}

#[tokio::test]
async fn payloads_6_1_a_status_that_clients_do_not_see_is_logged_beside_the_501() {
    let (backend, mut collector) = (Backend::start().await, Collector::start().await);
    let options = [ON, ("answer_501_for", "404")];
    let (_control, replica) = start(&options, &[&backend.addr], &collector.flags()).await;
    for (status, logged_status, mode) in [(404, 501, "new|4xx_to_501(orig=404)"), (403, 403, "new")] {
        let mut client = connect(replica.addr).await;
        client.write(post("/v1/x", &[], "")).await;
        let (mut upstream, _) = backend.request().await;
        upstream.write(format!("HTTP/1.1 {status} Oops\r\nContent-Length: 4\r\n\r\noops")).await;
        let answer = client.message().await;
        let logged = collector.next().await;
        let fields = ["status", "mode", "peer"];
        assert_eq!(logged.fields(&fields), [json!(logged_status), json!(mode), json!(backend.addr)], "{status}");
        assert_eq!((answer.status(), &answer.body), (logged_status, &logged.response), "{status}");
    }
}

#[tokio::test]
async fn payloads_1_bodies_are_logged_as_they_were_before_anything_was_changed_in_them() {
    let (backend, mut collector) = (Backend::start().await, Collector::start().await);
    let options = [ON, ("cch_default_enabled", "true"), ("postprocess", "strip_actual_usage")];
    let (_control, replica) = start(&options, &[&backend.addr], &collector.flags()).await;
    let body = r#"{"system":"x-anthropic-billing-header: cc_version=1; cc_entrypoint=cli; cch=ab; You"}"#;
    let mut client = connect(replica.addr).await;
    client.write(post("/v1/messages", &[], body)).await;
    let (mut upstream, request) = backend.request().await;
    assert_eq!(request.text(), r#"{"system":" You"}"#);
    let answer = r#"{"usage":{"a":1},"actual_usage":{"a":2}}"#;
    upstream.answer(answer).await;
    client.until(r#"{"usage":{"a":1}}"#).await;
    let logged = collector.next().await;
    assert_eq!((logged.request.as_slice(), logged.response.as_slice()), (body.as_bytes(), answer.as_bytes()));
}

#[tokio::test]
async fn payloads_6_off_means_that_nobody_connects() {
    for (host, enabled, pct, is_used) in [
        ("--bodylog-host=127.0.0.1", "true", "100", true),
        ("--bodylog-host=", "true", "100", false),
        ("--bodylog-host= ", "true", "100", false),
        ("--bodylog-host=127.0.0.1", "false", "100", false),
        ("--bodylog-host=127.0.0.1", "true", "0", false),
    ] {
        let (backend, collector) = (Backend::start().await, Collector::start().await);
        let options = [("bodylog_default_enabled", enabled), ("bodylog_default_pct", pct)];
        let (_control, replica) = start(&options, &[&backend.addr], &[host, &collector.port]).await;
        let mut client = connect(replica.addr).await;
        client.write(post("/v1/x", &[], "")).await;
        backend.request().await.0.answer("ok").await;
        assert_eq!(client.message().await.text(), "ok");
        // Whatever waited is sent by then.
        drop(client);
        replica.stop();
        replica.stopped().await;
        assert_eq!(!collector.is_unused(), is_used, "{host} {enabled} {pct}");
    }
}

#[tokio::test]
async fn a_drain_sends_what_waits_and_the_stream_that_it_waited_for() {
    let (backend, mut collector) = (Backend::start().await, Collector::start().await);
    let (_control, replica) = start(&[ON], &[&backend.addr], &collector.flags()).await;
    let mut client = connect(replica.addr).await;
    client.write(post("/v1/x", &[], "")).await;
    let (mut upstream, _) = backend.request().await;
    upstream.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n01234").await;
    client.head().await;
    replica.stop();
    upstream.write("56789").await;
    assert_eq!(client.rest().await, b"0123456789");
    replica.stopped().await;
    assert_eq!(collector.next().await.response, b"0123456789");
}

#[tokio::test]
async fn a_drain_counts_what_the_collector_did_not_take_before_it_says_goodbye() {
    let (backend, port) = (Backend::start().await, nobody().await.rsplit_once(':').unwrap().1.to_owned());
    let flags = ["--bodylog-host=127.0.0.1", &format!("--bodylog-port={port}")];
    let (mut control, replica) = start(&[ON], &[&backend.addr], &flags).await;
    let mut client = connect(replica.addr).await;
    client.write(post("/v1/x", &[], "")).await;
    backend.request().await.0.answer("ok").await;
    assert_eq!(client.message().await.text(), "ok");
    drop(client);
    replica.stop();
    replica.stopped().await;
    let told = control.unread_with_counts();
    let count = |name| -> u64 {
        let counted = told.iter().filter_map(|kind| if let Kind::Counted(one) = kind { Some(one) } else { None });
        counted.filter_map(|one| one.counts.get(name)).sum()
    };
    assert_eq!((count("bodylog_written"), count("bodylog_dropped")), (1, 1), "{told:?}");
    assert!(matches!(told.last(), Some(Kind::Goodbye(_))), "{told:?}");
}

/// The median of some requests with a body of 64 KiB.
async fn latency(replica: &Replica, backend: &Backend) -> Duration {
    let request = post("/v1/x", &[], &"q".repeat(64 << 10));
    let mut client = connect(replica.addr).await;
    let mut upstream = None;
    let mut times = Vec::new();
    for _ in 0..60 {
        let started = Instant::now();
        client.write(&request).await;
        let wire = match &mut upstream {
            Some(wire) => wire,
            none => none.insert(backend.accept().await),
        };
        wire.message().await;
        wire.answer("ok").await;
        assert_eq!(client.message().await.text(), "ok");
        times.push(started.elapsed());
    }
    times.sort_unstable();
    times[times.len() / 2]
}

fn dropped(metrics: &str) -> u64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix("router_bodylog_dropped_total{route=\"chat\"} "));
    line.map_or(0, |count| count.parse().unwrap())
}

#[tokio::test]
async fn a_collector_that_is_down_or_slow_costs_no_request_anything_and_drops_are_counted() {
    let (off_backend, down_backend, slow_backend) =
        (Backend::start().await, Backend::start().await, Backend::start().await);
    let (_off_control, off) = start(&[ON], &[&off_backend.addr], &[]).await;
    let down_port = format!("--bodylog-port={}", nobody().await.rsplit_once(':').unwrap().1);
    let flags = ["--bodylog-host=127.0.0.1", "--bodylog-buffer=1MiB", &down_port];
    let (_down_control, down) = start(&[ON], &[&down_backend.addr], &flags).await;
    let collector = Collector::start().await;
    let flags = ["--bodylog-host=127.0.0.1", "--bodylog-buffer=1MiB", &collector.port];
    let (_slow_control, slow) = start(&[ON], &[&slow_backend.addr], &flags).await;
    let mut reading = JoinSet::new();
    reading.spawn(async move {
        let mut stream = collector.listener.accept().await.unwrap().0;
        // A byte a second.
        while stream.read_u8().await.is_ok() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    // The buffers are full after these.
    for (replica, backend) in [(&down, &down_backend), (&slow, &slow_backend)] {
        while dropped(&replica.metrics().await) == 0 {
            latency(replica, backend).await;
        }
    }
    let (mut ratios, mut fits) = (Vec::new(), false);
    for _ in 0..5 {
        let base = latency(&off, &off_backend).await;
        let measured = [latency(&down, &down_backend).await, latency(&slow, &slow_backend).await];
        ratios.push(measured.map(|latency| latency.as_secs_f64() / base.as_secs_f64()));
        // Other tests run beside this one: it is enough that nothing slows requests by itself.
        fits |= ratios.last().is_some_and(|pair| pair.iter().all(|ratio| *ratio < 1.5));
        if fits {
            break;
        }
    }
    assert!(fits, "{ratios:?}");
    for replica in [&down, &slow] {
        assert!(dropped(&replica.metrics().await) >= 30, "they are counted, and seen");
    }
    assert_eq!(dropped(&off.metrics().await), 0);
}

#[tokio::test]
async fn requests_that_name_no_route_are_not_logged() {
    let (backend, mut collector) = (Backend::start().await, Collector::start().await);
    let (_control, replica) = start(&[ON], &[&backend.addr], &collector.flags()).await;
    assert_eq!(call(replica.addr, &get("/health")).await.status(), 200);
    assert_eq!(call(replica.addr, &get("/nowhere/x")).await.status(), 404);
    let mut client = connect(replica.addr).await;
    client.write(get("/v1/files/1")).await;
    backend.request().await.0.answer("ok").await;
    client.message().await;
    let logged = collector.next().await;
    assert_eq!(
        logged.fields(&["uri", "method", "req_body_truncated"]),
        [json!("/v1/files/1"), json!("GET"), json!(false)]
    );
}
