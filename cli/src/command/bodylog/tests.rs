//! Each verb as it is typed, against a collector in this process.

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use clap::Parser as _;
use router_dataplane::bodylog::collector::{self, Listeners};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::*;
use crate::args::{Cli, Command, Global};
use crate::command::now_unix_ms;
use crate::failure::Kind;

struct Running {
    folder: TempDir,
    frames: SocketAddr,
    http: SocketAddr,
    _tasks: JoinSet<()>,
}

fn parse(line: &str) -> (Global, BodyLogVerb) {
    let words = std::iter::once("routerctl").chain(line.split_ascii_whitespace());
    let Cli { global, command, .. } = Cli::try_parse_from(words).unwrap();
    let Command::BodyLog(verb) = command else { panic!("{line}") };
    (global, verb)
}

impl Running {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (_, verb) = parse(&format!("bodylog serve --dir {} --port 0 --http-port 0", folder.path().display()));
        let BodyLogVerb::Serve(args) = verb else { panic!() };
        let config = args.check().unwrap();
        let frames = TcpListener::bind(config.frames).await.unwrap();
        let http = TcpListener::bind(config.http).await.unwrap();
        let (frames_at, http_at) = (frames.local_addr().unwrap(), http.local_addr().unwrap());
        let (ready, is_ready) = oneshot::channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let listeners = Listeners { frames, http, exporter: None };
            let on_ready = move || ready.send(()).unwrap();
            collector::run(config, listeners, std::future::pending(), on_ready).await.unwrap();
        });
        is_ready.await.unwrap();
        Self { folder, frames: frames_at, http: http_at, _tasks: tasks }
    }

    /// Delivers records that end now, and waits until they are written.
    async fn deliver(&self, ids: &[&str]) {
        let mut stream = TcpStream::connect(self.frames).await.unwrap();
        for id in ids {
            let meta = json!({"request_id": id, "status": 200, "rt": 1.5, "peer": "10.0.0.9:80", "first_chunk_t": 0.25,
                    "route": "chat", "key_id": "k-1", "refused": "rule:no"});
            let meta = meta.to_string();
            let answer = br#"{"model":"m\u001b[31m","choices":[{"text":"secret answer","finish_reason":"stop"}]}"#;
            let mut frame = u16::try_from(meta.len()).unwrap().to_be_bytes().to_vec();
            frame.extend_from_slice(meta.as_bytes());
            frame.extend_from_slice(&[0; 4]);
            frame.extend_from_slice(&u32::try_from(answer.len()).unwrap().to_be_bytes());
            frame.extend_from_slice(answer);
            stream.write_all(&u32::try_from(frame.len()).unwrap().to_be_bytes()).await.unwrap();
            stream.write_all(&frame).await.unwrap();
        }
        stream.shutdown().await.unwrap();
        stream.read_to_end(&mut Vec::new()).await.unwrap();
    }

    async fn run(&self, line: &str) -> (Outcome, String, String) {
        run(&format!("{line} --url http://{}", self.http)).await
    }
}

async fn run(line: &str) -> (Outcome, String, String) {
    let (global, BodyLogVerb::Ask(question)) = parse(line) else { panic!("{line}") };
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let mut out = Out {
        stdout: &mut stdout,
        stderr: &mut stderr,
        format: global.output,
        is_live: false,
        can_ask: false,
        now_unix_ms: now_unix_ms() + 1000,
    };
    let outcome = question.run(&mut out).await;
    (outcome, String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[tokio::test]
async fn query_prints_rows_follows_pages_and_shows_no_bodies() {
    let running = Running::start().await;
    assert_eq!(running.run("bodylog query").await.1, "no requests\n");
    let ids: Vec<String> = (0..12).map(|index| format!("r{index:02}")).collect();
    running.deliver(&ids.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let (outcome, table, notes) = running.run("bodylog query").await;
    assert_eq!((outcome, notes.as_str(), table.lines().count()), (Ok(()), "", 13), "{table}");
    assert!(table.starts_with("ENDED "), "{table}");
    assert!(table.contains(" m?[31m ") && !table.contains('\u{1b}'), "a terminal obeys nothing of it: {table}");
    let (_, text, notes) = running.run("bodylog query -o json --limit 5 --start 0").await;
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((answer["rows"].as_array().unwrap().len(), &answer["truncated"]), (5, &json!(true)));
    assert_eq!(notes, "note: more requests match than --limit 5 shows\n");
    assert!(!text.contains("secret") && !table.contains("secret"));
    assert!(table.contains(" ROUTE ") && table.contains(" chat ") && table.contains(" refused:rule:no "), "{table}");
    for (filter, count) in [
        ("--status 200", 12),
        ("--status 429", 0),
        ("--min-frt 0.3", 0),
        ("--stream unknown", 12),
        ("--route chat --key k-1 --refused any --min-rt 1.5", 12),
        ("--route other", 0),
        ("--key k", 0),
        ("--refused queue_full", 0),
        ("--refused rule:no", 12),
        ("--min-rt 1.6", 0),
        ("--start 0 --end 2020-01-01", 0),
        ("--start 2020-01-01 --end 2100-01-01", 12),
    ] {
        let (_, text, _) = running.run(&format!("bodylog query -o json {filter}")).await;
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["rows"].as_array().unwrap().len(), count, "{filter}");
    }
}

#[tokio::test]
async fn tail_prints_what_comes_and_ends_after_its_count() {
    let running = Running::start().await;
    running.deliver(&["a", "b"]).await;
    let (outcome, text, _) = running.run("bodylog tail --since 1m --count 2").await;
    assert_eq!((outcome, text.lines().count()), (Ok(()), 2), "{text}");
    assert!(text.contains(" request=a\n") && text.contains(" request=b\n"), "{text}");
    // Only new ones: those that are there already are passed over.
    let tail = running.run("bodylog tail -o json --count 1 --interval 20ms");
    let deliver = async {
        let mut index = 0;
        loop {
            index += 1;
            running.deliver(&[&format!("new{index}")]).await;
        }
    };
    let (outcome, text, _) = tokio::select! {
        ran = tail => ran,
        () = deliver => unreachable!("delivers for ever"),
    };
    assert_eq!(outcome, Ok(()));
    let row: Value = serde_json::from_str(text.trim()).unwrap();
    assert!(row["request_id"].as_str().unwrap().starts_with("new"), "{row}");
    let dir = running.folder.path().display();
    let (outcome, ..) = run(&format!("bodylog tail -o yaml --dir {dir}")).await;
    assert_eq!(outcome.unwrap_err().kind, Kind::Usage);
}

#[tokio::test]
async fn get_prints_a_full_record_that_a_terminal_does_not_obey() {
    let running = Running::start().await;
    running.deliver(&["a", "b\u{9b}31m"]).await;
    let dir = running.folder.path().display();
    let (outcome, text, _) = run(&format!("bodylog get a --dir {dir}")).await;
    let record: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((outcome, &record["request_id"], &record["resp_body"]), (Ok(()), &json!("a"), &json!("secret answer")));
    let (_, text, _) = run(&format!("bodylog get b\u{9b}31m -o json --dir {dir}")).await;
    assert_eq!(text.matches(char::is_control).collect::<String>(), "\n", "{text:?}");
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["request_id"], "b\u{9b}31m");
    let (_, text, _) = run(&format!("bodylog get a -o yaml --dir {dir}")).await;
    assert!(text.contains("resp_body: secret answer\n"), "{text}");
    let failure = run(&format!("bodylog get c --dir {dir}")).await.0.unwrap_err();
    assert!(
        failure.kind == Kind::Failed && failure.message.starts_with("no record of request \"c\" in "),
        "{failure:?}"
    );
    let failure = run("bodylog get a --dir /nowhere").await.0.unwrap_err();
    assert!(failure.message.starts_with("--dir: read /nowhere: "), "{failure:?}");
}

#[test]
fn the_help_of_summary_explains_its_columns() {
    let help = Cli::try_parse_from(["routerctl", "bodylog", "summary", "--help"]).unwrap_err().to_string();
    for column in ["CACHED", "FIRST, MOST", "(none)"] {
        assert!(help.contains(column), "{column} in {help}");
    }
}

#[test]
fn the_files_of_tail_have_no_filters() {
    for filter in ["route=r", "key=k", "refused=any", "min-rt=1", "model=m"] {
        let tail = format!("routerctl bodylog tail --{filter}");
        assert!(Cli::try_parse_from(tail.split(' ')).is_ok(), "{filter}");
        let with_files = format!("{tail} --dir x");
        let refused = Cli::try_parse_from(with_files.split(' ')).unwrap_err();
        assert_eq!(refused.kind(), clap::error::ErrorKind::ArgumentConflict, "{filter}");
    }
}

#[tokio::test]
async fn tail_shows_all_however_many_end_at_once() {
    const MANY: usize = 60_000;
    let running = Running::start().await;
    let now = jiff::Timestamp::now();
    let details = running.folder.path().join("metrics/details");
    std::fs::create_dir_all(&details).unwrap();
    let end = now - jiff::SignedDuration::from_secs(20);
    let rows = (0..MANY).map(|index| format!("{{\"ts_end\":\"{end}\",\"request_id\":\"r{index}\"}}\n"));
    std::fs::write(details.join(format!("{}.jsonl", now.strftime("%Y-%m-%d"))), rows.collect::<String>()).unwrap();
    let line = format!("bodylog tail -o json --since 55s --interval 20ms --count {MANY}");
    let ran = tokio::time::timeout(Duration::from_secs(60), running.run(&line)).await;
    let (outcome, text, _) = ran.expect("rows are lacking");
    assert_eq!(outcome, Ok(()));
    let id = |line: &str| serde_json::from_str::<Value>(line).unwrap()["request_id"].as_str().unwrap().to_owned();
    let ids: std::collections::HashSet<String> = text.lines().map(id).collect();
    assert_eq!((ids.len(), text.lines().count()), (MANY, MANY), "each of them once");
}

#[tokio::test]
async fn summary_prints_sums() {
    let running = Running::start().await;
    assert_eq!(running.run("bodylog summary").await.1, "no requests\n");
    running.deliver(&["a", "b"]).await;
    let (_, table, _) = running.run("bodylog summary").await;
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_ascii_whitespace().collect()).collect();
    assert_eq!(lines[1], ["10.0.0.9:80", "2", "2", "0", "0", "0", "0", "0", "1500ms", "1500ms", "250ms", "250ms"]);
    let (_, text, _) = running.run("bodylog summary --breakdown -o json --since 60m").await;
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&answer["minutes"], answer["buckets"].as_array().unwrap().len()), (&json!(60), 1));
}

#[test]
fn no_rows_at_all_is_no_limit() {
    let read = |line: &str| Cli::try_parse_from(line.split(' ')).map(drop);
    for line in ["routerctl bodylog query --limit", "routerctl bodylog tail --count"] {
        let error = read(&format!("{line} 0")).unwrap_err();
        assert_eq!(error.kind(), clap::error::ErrorKind::ValueValidation, "{error}");
        read(&format!("{line} 1")).unwrap();
    }
}

#[tokio::test]
async fn a_question_that_can_not_be_answered_says_why() {
    let running = Running::start().await;
    let failure = running.run("bodylog query --start yesterday").await.0.unwrap_err();
    assert!(failure.kind == Kind::Usage && failure.message.starts_with("start: time expected"), "{failure:?}");
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let failure = run(&format!("bodylog query --url http://{nobody}")).await.0.unwrap_err();
    assert!(failure.kind == Kind::Unavailable && failure.message.ends_with("can't be reached"), "{failure:?}");
    let failure = run("bodylog query --url https://example.org").await.0.unwrap_err();
    assert!(failure.kind == Kind::Usage && failure.message.starts_with("--url: "), "{failure:?}");
}

#[tokio::test]
async fn a_token_is_read_from_a_file_and_a_bad_start_tells_everything() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().display().to_string();
    let start = |more: &str| match parse(&format!("bodylog serve {more}")).1 {
        BodyLogVerb::Serve(args) => args.check(),
        BodyLogVerb::Ask(_) => panic!(),
    };
    let failure = start(&format!("--http-host 0.0.0.0 --keep-days 0 --http-token-file {path}")).unwrap_err();
    let lines: Vec<&str> = failure.message.lines().collect();
    assert!(lines.len() == 2 && lines[0].starts_with("--keep-days: "), "{lines:?}");
    assert!(lines[1].starts_with(&format!("--http-token-file {path}: empty")), "{lines:?}");
    file.write_all(b"secret-token\n").unwrap();
    assert!(
        !format!("{:?}", start(&format!("--http-host 0.0.0.0 --http-token-file {path}")).unwrap()).contains("secret")
    );
    assert!(start("--http-host 0.0.0.0").unwrap_err().message.starts_with("--http-host: "));
}
