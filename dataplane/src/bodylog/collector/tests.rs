//! The collector as a whole, over real sockets.

mod days;

use std::fs;
use std::net::SocketAddr;

use clap::Parser as _;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::*;
use crate::bodylog::frame;

mod stop;

const SOON: Duration = Duration::from_secs(20);

#[derive(clap::Parser)]
struct Cli {
    #[command(flatten)]
    args: CollectorArgs,
}

struct Running {
    folder: TempDir,
    frames: SocketAddr,
    http: SocketAddr,
    exporter: SocketAddr,
    stop: CancellationToken,
    tasks: JoinSet<Result<(), Error>>,
}

async fn any_port() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

impl Running {
    async fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap()).await
    }

    async fn start_in(folder: TempDir) -> Self {
        Self::start_by(folder, &[], Arc::new(Timestamp::now), Limits::default()).await
    }

    async fn start_with(limits: Limits) -> Self {
        Self::start_by(tempfile::tempdir().unwrap(), &[], Arc::new(Timestamp::now), limits).await
    }

    async fn start_by(folder: TempDir, more: &[&str], clock: Clock, limits: Limits) -> Self {
        let dir = format!("--dir={}", folder.path().display());
        let words = ["test", &dir].into_iter().chain(more.iter().copied());
        let config = Cli::parse_from(words).args.validate(None).unwrap();
        let [(frames, frames_at), (http, http_at), (exporter, exporter_at)] =
            [any_port().await, any_port().await, any_port().await];
        let listeners = Listeners { frames, http, exporter: Some(exporter) };
        let stop = CancellationToken::new();
        let (ready, is_ready) = oneshot::channel();
        let mut tasks = JoinSet::new();
        let stopped = stop.clone().cancelled_owned();
        tasks.spawn(run_by(clock, limits, config, listeners, stopped, move || ready.send(()).unwrap()));
        is_ready.await.unwrap();
        Self { folder, frames: frames_at, http: http_at, exporter: exporter_at, stop, tasks }
    }

    /// Sends bytes on one connection, and waits until the collector has closed it: it is done with all of them then.
    async fn send(&self, bytes: &[u8]) {
        let mut stream = TcpStream::connect(self.frames).await.unwrap();
        // A connection that is refused half-way ends the writing too.
        let _ = stream.write_all(bytes).await;
        let _ = stream.shutdown().await;
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }

    async fn get(&self, address: SocketAddr, path: &str) -> String {
        self.ask(address, "GET", path).await
    }

    async fn ask(&self, address: SocketAddr, method: &str, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    async fn metric(&self, name: &str) -> String {
        let text = self.get(self.http, "/metrics").await;
        text.lines().find_map(|line| line.strip_prefix(&format!("{name} "))).unwrap_or("absent").to_owned()
    }

    /// Asks until the metric is so.
    async fn sees(&self, name: &str, is_so: impl Fn(u64) -> bool) {
        let waiting = async {
            while !self.metric(name).await.parse().is_ok_and(&is_so) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(SOON, waiting).await.unwrap_or_else(|_| panic!("never: {name}"));
    }

    async fn stop(mut self) -> TempDir {
        self.stop.cancel();
        self.tasks.join_next().await.unwrap().unwrap().unwrap();
        self.folder
    }
}

fn frame_of(id: &str, request: &[u8]) -> Vec<u8> {
    let meta = format!("{{\"request_id\":\"{id}\",\"status\":200,\"rt\":1,\"peer\":\"b:1\"}}");
    let mut out = Vec::new();
    frame::encode(&mut out, meta.as_bytes(), request, &[b"ok"]).unwrap();
    out
}

/// All full records' request ids, in order.
fn ids(folder: &TempDir) -> Vec<String> {
    let mut hours: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir() && path.file_name().unwrap() != "metrics")
        .flat_map(|day| fs::read_dir(day).unwrap().map(|hour| hour.unwrap().path()))
        .collect();
    hours.sort();
    let text: String = hours.iter().map(|hour| fs::read_to_string(hour).unwrap()).collect();
    assert!(text.is_empty() || text.ends_with('\n'));
    let id = |line: &str| {
        serde_json::from_str::<serde_json::Value>(line).unwrap()["request_id"].as_str().unwrap().to_owned()
    };
    text.lines().map(id).collect()
}

#[tokio::test]
async fn frames_become_records_rows_minutes_and_metrics() {
    let running = Running::start().await;
    running.send(&[frame_of("a", b"1"), frame_of("b", b"2")].concat()).await;
    running.send(&frame_of("c", &vec![b'x'; 3 << 20])).await;
    assert_eq!(running.metric("bodylog_collector_frames_total").await, "3");
    assert_eq!(running.metric("bodylog_collector_connections").await, "0");
    let text = running.get(running.exporter, "/metrics").await;
    assert!(text.contains("bodylog_exporter_lines_total 3\n"), "{text}");
    assert!(running.get(running.exporter, "/details?end=1").await.starts_with("HTTP/1.1 404 "));
    for (at, method, status) in [
        (running.exporter, "POST", "405"),
        (running.http, "DELETE", "405"),
        (running.exporter, "HEAD", "200"),
        (running.http, "HEAD", "200"),
    ] {
        let answer = running.ask(at, method, "/metrics").await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{method}: {answer}");
        assert_eq!(answer.ends_with("\r\n\r\n"), method == "HEAD", "{answer}");
    }
    assert!(running.get(running.http, "/summary").await.contains("\"requests\":3"));
    let folder = running.stop().await;
    assert_eq!(ids(&folder), ["a", "b", "c"]);
    // Minutes and rows are there again after a restart, Prometheus' counters begin anew.
    let running = Running::start_in(folder).await;
    assert!(running.get(running.http, "/summary").await.contains("\"requests\":3"));
    assert!(running.get(running.http, "/details?start=0&end=4000000000").await.contains("\"count\":3"));
    assert_eq!(running.metric("bodylog_exporter_lines_total").await, "0");
}

#[tokio::test]
async fn hostile_frames_end_their_connection_and_no_other() {
    let running = Running::start().await;
    let good = frame_of("good", b"1");
    let mut wrong_inside = good.clone();
    wrong_inside[4] = 0xff;
    let lengths: [&[u8]; 5] = [&[0; 4], &[0, 0, 0, 9], &[4, 0, 0, 1], &[0xff; 4], &wrong_inside];
    for bytes in lengths {
        running.send(&[bytes, &good].concat()).await;
    }
    let bad = |reason: &str| format!("bodylog_collector_bad_frames_total{{reason=\"{reason}\"}}");
    assert_eq!(running.metric(&bad("lengths")).await, "5");
    // Cut off: in the prefix, at its end, and in the middle of what was announced as 64 MiB.
    for bytes in [&[0][..], &[0, 0, 1, 0], &[&[4, 0, 0, 0][..], &vec![0; 100_000]].concat()] {
        running.send(bytes).await;
    }
    assert_eq!(running.metric(&bad("cut")).await, "3");
    // Meta that is no JSON costs its record only.
    let mut no_meta = Vec::new();
    frame::encode(&mut no_meta, b"nonsense", b"", &[b""]).unwrap();
    running.send(&[&no_meta[..], &good].concat()).await;
    assert_eq!(running.metric(&bad("meta")).await, "1");
    running.send(&good).await;
    assert_eq!(ids(&running.stop().await), ["good", "good"]);
}

#[tokio::test]
async fn silent_connections_hold_up_no_other() {
    let running = Running::start().await;
    let mut silent = Vec::new();
    for _ in 0..100 {
        let mut stream = TcpStream::connect(running.frames).await.unwrap();
        stream.write_all(&[&[4, 0, 0, 0][..], &[0; 1000]].concat()).await.unwrap();
        silent.push(stream);
    }
    running.send(&frame_of("a", b"")).await;
    drop(silent);
    assert_eq!(ids(&running.stop().await), ["a"]);
}

#[tokio::test]
async fn while_files_can_not_be_written_nothing_more_is_read_and_nothing_is_lost() {
    let running = Running::start_with(Limits { retry: Duration::from_millis(20), ..Limits::default() }).await;
    assert!(running.get(running.http, "/healthz").await.starts_with("HTTP/1.1 200 "));
    let details = running.folder.path().join("metrics");
    fs::write(&details, "a file where the folder belongs").unwrap();
    let mut first = TcpStream::connect(running.frames).await.unwrap();
    first.write_all(&[frame_of("a", b""), frame_of("b", b"")].concat()).await.unwrap();
    let mut second = TcpStream::connect(running.frames).await.unwrap();
    let body = vec![b'x'; 1 << 18];
    let long: Vec<Vec<u8>> = (0..64).map(|number| frame_of(&format!("{number:02}"), &body)).collect();
    let mut sending = JoinSet::new();
    sending.spawn(async move {
        for frame in &long {
            second.write_all(frame).await.unwrap();
        }
        second.shutdown().await.unwrap();
        second.read_to_end(&mut Vec::new()).await.unwrap()
    });
    running.sees("bodylog_collector_write_errors_total", |errors| errors > 3).await;
    // One frame of each is here, the rest waits in the kernel and at the sender.
    assert_eq!(running.metric("bodylog_collector_frames_total").await, "2");
    assert_eq!(running.metric("bodylog_collector_writable").await, "0");
    for port in [running.http, running.exporter] {
        assert!(running.get(port, "/healthz").await.starts_with("HTTP/1.1 503 "));
    }
    assert!(sending.try_join_next().is_none());
    fs::remove_file(&details).unwrap();
    first.shutdown().await.unwrap();
    assert_eq!(first.read_to_end(&mut Vec::new()).await.unwrap(), 0);
    assert_eq!(tokio::time::timeout(SOON, sending.join_next()).await.unwrap().unwrap().unwrap(), 0);
    assert_eq!(running.metric("bodylog_collector_writable").await, "1");
    assert!(running.get(running.http, "/healthz").await.starts_with("HTTP/1.1 200 "));
    let mut kept = ids(&running.stop().await);
    kept.sort();
    let numbers = (0..64).map(|number| format!("{number:02}"));
    assert_eq!(kept, numbers.chain(["a", "b"].map(str::to_owned)).collect::<Vec<_>>(), "each once");
}

#[tokio::test]
async fn slow_senders_of_long_frames_do_not_hold_up_others_for_ever() {
    let running = Running::start_with(Limits { frame_time: Duration::from_millis(500), ..Limits::default() }).await;
    // They hold all of the memory for long frames, and go on.
    let mut slow = JoinSet::new();
    for _ in 0..8 {
        let mut stream = TcpStream::connect(running.frames).await.unwrap();
        stream.write_all(&[&[4, 0, 0, 0][..], &vec![0; 300_000]].concat()).await.unwrap();
        slow.spawn(async move {
            while stream.write_all(&[0; 10]).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
    }
    let long = frame_of("long", &vec![b'x'; 3 << 20]);
    tokio::time::timeout(SOON, running.send(&long)).await.expect("memory for the frame");
    running.sees("bodylog_collector_bad_frames_total{reason=\"slow\"}", |count| count == 8).await;
    assert_eq!(ids(&running.stop().await), ["long"]);
}

#[tokio::test]
async fn idle_connections_make_room_for_others() {
    let running = Running::start_with(Limits { connections: 4, ..Limits::default() }).await;
    let mut idle = Vec::new();
    for number in 0..4 {
        let mut stream = TcpStream::connect(running.frames).await.unwrap();
        stream.write_all(&frame_of(&format!("{number}"), b"")).await.unwrap();
        running.sees("bodylog_collector_frames_total", |frames| frames == number + 1).await;
        idle.push(stream);
    }
    tokio::time::timeout(SOON, running.send(&frame_of("new", b""))).await.expect("room for another");
    // One of them is told so, and no other.
    let reads = idle.iter_mut().map(|stream| Box::pin(stream.read_u8()));
    let (end, told, _) = tokio::time::timeout(SOON, futures_util::future::select_all(reads)).await.expect("an end");
    assert_eq!(end.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    idle.remove(told);
    idle[0].write_all(&frame_of("last", b"")).await.unwrap();
    running.sees("bodylog_collector_frames_total", |frames| frames == 6).await;
    drop(idle);
    let mut kept = ids(&running.stop().await);
    kept.sort();
    assert_eq!(kept, ["0", "1", "2", "3", "last", "new"]);
}

#[tokio::test]
async fn failed_accepts_are_counted() {
    let (listener, _) = any_port().await;
    // What is shut down accepts nothing, as a process does that has no descriptors left.
    socket2::SockRef::from(&listener).shutdown(std::net::Shutdown::Both).unwrap();
    let (metrics, stop) = (Arc::new(CollectorMetrics::new()), CancellationToken::new());
    let intake =
        Intake::new(jiff::tz::TimeZone::UTC, Arc::clone(&metrics), Limits::default(), Arc::new(Timestamp::now));
    let (jobs, _waiting) = mpsc::channel(1);
    let mut accepting = JoinSet::new();
    accepting.spawn(listen::accept(listener, intake, jobs, TaskTracker::new(), stop.clone()));
    let counted = |count: u64| metrics.encode().contains(&format!("bodylog_collector_accept_errors_total {count}\n"));
    assert!(counted(0));
    let failing = async {
        while !counted(2) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, failing).await.expect("counted");
    stop.cancel();
    accepting.join_next().await.unwrap().unwrap();
}

#[tokio::test]
async fn a_folder_that_another_collector_has_is_an_error() {
    let running = Running::start().await;
    let dir = format!("--dir={}", running.folder.path().display());
    let config = Cli::parse_from(["test", &dir]).args.validate(None).unwrap();
    let listeners = Listeners { frames: any_port().await.0, http: any_port().await.0, exporter: None };
    let error = run(config, listeners, std::future::pending(), || {}).await.unwrap_err();
    assert!(error.to_string().contains(running.folder.path().to_str().unwrap()), "{error}");
}
