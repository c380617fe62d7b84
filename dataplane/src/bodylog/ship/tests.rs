//! The sender alone, with collectors that do what a test says, over real loopback sockets.

use bytes::Bytes;
use http::StatusCode;
use jiff::tz::TimeZone;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

use super::*;
use crate::bodylog::frame;
use crate::bodylog::record::tests::Fixture;

const SOON: Duration = Duration::from_secs(20);

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(SOON, future).await.unwrap_or_else(|_| panic!("never: {what}"))
}

struct Sender {
    fixture: Fixture,
    stop: CancellationToken,
    task: JoinSet<()>,
}

impl Sender {
    fn start(port: u16, buffer: usize) -> Self {
        let mut fixture = Fixture::new("100", buffer);
        let settings = Settings { host: "127.0.0.1".into(), port, zone: TimeZone::UTC, buffer };
        let stop = CancellationToken::new();
        let records = std::mem::replace(&mut fixture.records, tokio::sync::mpsc::unbounded_channel().1);
        let mut task = JoinSet::new();
        task.spawn(ship(settings, records, fixture.gauges.connected.clone(), stop.clone()));
        Self { fixture, stop, task }
    }

    fn log(&self, request: &str) {
        self.log_bytes(&Bytes::copy_from_slice(request.as_bytes()));
    }

    fn log_bytes(&self, request: &Bytes) {
        let mut record = self.fixture.begin(http::Request::post("/r/v1/x")).expect("there is room");
        record.request(request);
        record.answered(StatusCode::OK, None);
    }

    async fn stopped(mut self) -> Fixture {
        self.stop.cancel();
        soon("the sender's end", self.task.join_next()).await.unwrap().unwrap();
        self.fixture
    }
}

fn collector() -> (TcpListener, u16) {
    let listener = collector_again(0);
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// The same port again. What it does not read is not taken by its kernel either, but for a few kilobytes.
fn collector_again(port: u16) -> TcpListener {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.set_recv_buffer_size(64 << 10).unwrap();
    socket.bind(([127, 0, 0, 1], port).into()).unwrap();
    socket.listen(16).unwrap()
}

async fn accepted(listener: &TcpListener) -> TcpStream {
    soon("a connection to the collector", listener.accept()).await.unwrap().0
}

/// The next frame's request body; `None` when the connection ends before it is whole.
async fn request(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut prefix = [0; frame::PREFIX];
    soon("a frame", stream.read_exact(&mut prefix)).await.ok()?;
    let mut rest = vec![0; frame::total(prefix).unwrap()];
    soon("a frame's rest", stream.read_exact(&mut rest)).await.ok()?;
    let contents = frame::decode(&rest).unwrap();
    let meta: serde_json::Value = serde_json::from_slice(contents.meta).unwrap();
    assert_eq!(meta["status"], 200);
    Some(contents.request.to_vec())
}

async fn text(stream: &mut TcpStream) -> String {
    String::from_utf8(request(stream).await.expect("a whole frame")).unwrap()
}

#[tokio::test]
async fn payloads_6_3_little_waits_for_a_second_and_4096_bytes_go_at_once() {
    let (listener, port) = collector();
    let sender = Sender::start(port, 1 << 20);
    let started = Instant::now();
    sender.log("small");
    let mut stream = accepted(&listener).await;
    assert_eq!(text(&mut stream).await, "small");
    assert!(started.elapsed() >= Duration::from_millis(990), "{:?}", started.elapsed());
    let started = Instant::now();
    let large = "l".repeat(4096);
    sender.log(&large);
    assert_eq!(text(&mut stream).await, large);
    assert!(started.elapsed() < Duration::from_millis(900), "{:?}", started.elapsed());
    assert_eq!(sender.stopped().await.count("frames"), 2);
}

#[tokio::test]
async fn a_collector_that_comes_late_gets_everything_in_order() {
    let (listener, port) = collector();
    drop(listener);
    let sender = Sender::start(port, 1 << 20);
    let bodies: Vec<String> = (0..50).map(|number| format!("{number} {}", "x".repeat(4096))).collect();
    for body in &bodies {
        sender.log(body);
    }
    // Some tries have failed by now; how many makes no difference.
    tokio::task::yield_now().await;
    let listener = collector_again(port);
    let gauge = |name: &str, value: &str| {
        let line = format!("router_bodylog_{name} {value}\n");
        sender.fixture.metrics.encode().contains(&line)
    };
    assert!(gauge("connected", "0") && !gauge("buffered_bytes", "0"), "they wait");
    let mut stream = accepted(&listener).await;
    for body in &bodies {
        assert_eq!(&text(&mut stream).await, body);
    }
    let all_sent = async {
        while !gauge("buffered_bytes", "0") {
            tokio::task::yield_now().await;
        }
    };
    soon("an empty buffer", all_sent).await;
    assert!(gauge("connected", "1"));
    drop(stream);
    let seen = async {
        while !gauge("connected", "0") {
            tokio::task::yield_now().await;
        }
    };
    soon("the lost connection", seen).await;
    let fixture = sender.stopped().await;
    assert_eq!((fixture.count("frames"), fixture.count("dropped")), (50, 0));
}

#[tokio::test]
async fn a_frame_that_breaks_off_comes_whole_on_the_next_connection() {
    let (listener, port) = collector();
    let sender = Sender::start(port, 64 << 20);
    // Larger than the sockets' buffers, so that its end can't be on its way yet when the collector is killed.
    let large = Bytes::from(vec![b'l'; 2 << 20]);
    for _ in 0..8 {
        sender.log_bytes(&large);
    }
    sender.log("last");
    let mut stream = accepted(&listener).await;
    let mut begun = vec![0; 1000];
    soon("a frame's start", stream.read_exact(&mut begun)).await.unwrap();
    drop(stream);
    let mut stream = accepted(&listener).await;
    let mut whole = 0;
    loop {
        let request = request(&mut stream).await.expect("a whole frame");
        if request == b"last" {
            break;
        }
        assert!(request == large);
        whole += 1;
    }
    assert_eq!(whole, 8, "not one was in the buffers as a whole");
    assert_eq!(sender.stopped().await.count("dropped"), 0);
}

#[tokio::test]
async fn a_collector_that_restarts_while_nothing_is_sent_loses_nothing() {
    let (listener, port) = collector();
    let sender = Sender::start(port, 1 << 20);
    let body = "b".repeat(4096);
    sender.log(&body);
    let mut stream = accepted(&listener).await;
    assert_eq!(text(&mut stream).await, body);
    for round in 0..3 {
        let mut end = [0];
        // Waits until the sender has seen the end and closed as well.
        tokio::io::AsyncWriteExt::shutdown(&mut stream).await.unwrap();
        assert_eq!(soon("the sender's close", stream.read(&mut end)).await.unwrap(), 0);
        let body = format!("{round} {body}");
        sender.log(&body);
        stream = accepted(&listener).await;
        assert_eq!(text(&mut stream).await, body);
    }
}

#[tokio::test]
async fn a_collector_that_reads_nothing_fills_the_buffer_and_costs_new_records_only() {
    let (listener, port) = collector();
    let sender = Sender::start(port, 16 << 20);
    let body = Bytes::from(vec![b'b'; 1 << 20]);
    let mut logged = 0;
    let refused = async {
        while sender.fixture.count("dropped") == 0 {
            sender.log_bytes(&body);
            logged += 1;
            tokio::task::yield_now().await;
        }
    };
    soon("a full buffer", refused).await;
    // What the kernel holds, and the buffer.
    assert!((16..=20).contains(&logged), "{logged}");
    assert_eq!(sender.fixture.count("frames"), logged - 1, "the new one is dropped");
    // What waits comes as soon as it is read again.
    let mut stream = accepted(&listener).await;
    assert!(request(&mut stream).await.is_some_and(|request| request == body));
}

#[tokio::test]
async fn a_frame_that_never_gets_through_is_given_up_and_counted() {
    let (listener, port) = collector();
    let sender = Sender::start(port, 16 << 20);
    sender.log_bytes(&Bytes::from(vec![b'l'; 2 << 20]));
    sender.log("next");
    // Each connection is closed before the frame is whole.
    for _ in 0..4 {
        let mut stream = accepted(&listener).await;
        assert_eq!(sender.fixture.count("dropped"), 0);
        let mut begun = vec![0; 1000];
        soon("a frame's start", stream.read_exact(&mut begun)).await.unwrap();
    }
    let mut stream = accepted(&listener).await;
    assert_eq!(text(&mut stream).await, "next");
    assert_eq!(sender.fixture.count("dropped"), 1);
}

#[tokio::test]
async fn at_shutdown_what_waits_is_sent() {
    let (listener, port) = collector();
    let sender = Sender::start(port, 1 << 20);
    for body in ["1", "2", "3"] {
        sender.log(body);
    }
    let started = Instant::now();
    sender.stopped().await;
    assert!(started.elapsed() < Duration::from_millis(900), "no waiting for more");
    let mut stream = accepted(&listener).await;
    for body in ["1", "2", "3"] {
        assert_eq!(text(&mut stream).await, body);
    }
    assert_eq!(request(&mut stream).await, None);
}

#[tokio::test]
async fn at_shutdown_a_collector_that_is_down_or_slow_is_not_waited_for() {
    let (listener, port) = collector();
    drop(listener);
    let sender = Sender::start(port, 1 << 20);
    sender.log("1");
    let started = Instant::now();
    let fixture = sender.stopped().await;
    assert!(started.elapsed() < Duration::from_secs(1));
    assert_eq!((fixture.count("frames"), fixture.count("dropped")), (1, 1), "what is lost is counted");
    let listener = collector_again(port);
    let sender = Sender::start(port, 64 << 20);
    for _ in 0..16 {
        sender.log_bytes(&Bytes::from(vec![b'l'; 2 << 20]));
    }
    let _stream = accepted(&listener).await;
    let started = Instant::now();
    sender.stopped().await;
    assert!(started.elapsed() < Duration::from_secs(2));
}

#[test]
fn a_record_that_is_no_frame_is_counted_and_leaves_the_others() {
    let mut fixture = Fixture::new("100", 1 << 20);
    let mut batch = Batch::new(TimeZone::UTC);
    drop(fixture.plain());
    drop(fixture.plain());
    let mut too_large = *fixture.records.try_recv().unwrap();
    too_large.request = Bytes::from(vec![0; frame::MAX_TOTAL]);
    batch.add(too_large);
    assert_eq!((fixture.count("errors"), batch.frames(), batch.due()), (1, 0, None));
    batch.add(*fixture.records.try_recv().unwrap());
    assert_eq!((fixture.count("errors"), batch.frames(), batch.due().is_some()), (1, 1, true));
}

#[test]
fn a_batch_that_is_written_by_the_byte_keeps_its_frames_apart() {
    let mut fixture = Fixture::new("100", 1 << 20);
    let mut batch = Batch::new(TimeZone::UTC);
    for _ in 0..2 {
        drop(fixture.plain());
        batch.add(*fixture.records.try_recv().unwrap());
    }
    let bytes = batch.unwritten().to_vec();
    let prefix = bytes.first_chunk().copied().unwrap();
    let first = frame::PREFIX + frame::total(prefix).unwrap();
    assert!(!batch.wrote(first - 1) && batch.frames() == 2);
    batch.rewind();
    assert_eq!(batch.unwritten(), bytes, "nothing of it counts as sent");
    assert!(batch.wrote(first + 1) && batch.frames() == 1);
    batch.rewind();
    assert_eq!(batch.unwritten(), &bytes[first..]);
    batch.skip();
    assert!(batch.is_empty() && batch.unwritten().is_empty() && batch.due().is_none());
    assert_eq!(fixture.count("dropped"), 1);
}
