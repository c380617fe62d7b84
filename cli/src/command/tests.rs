//! Every operator verb as it is typed, against an Admin service in memory.

use clap::Parser as _;
use serde_json::{Value as Json, json};
use sha2::{Digest as _, Sha256};

use std::time::Duration;

use super::*;
use crate::output::Format;

mod explain;
pub(crate) mod fake_admin;
mod import;
mod rules;
mod toggle;
use fake_admin::Fake;

/// What a call left behind.
struct Ran {
    outcome: Outcome,
    stdout: String,
    stderr: String,
}

impl Ran {
    fn code(&self) -> u8 {
        self.outcome.as_ref().map_or_else(|failure| failure.kind.code(), |()| 0)
    }

    fn json(&self) -> Json {
        assert_eq!(self.outcome, Ok(()), "{}", self.stderr);
        serde_json::from_str(&self.stdout).unwrap()
    }

    fn error(&self) -> &str {
        match &self.outcome {
            Ok(()) => panic!("succeeded: {}", self.stdout),
            Err(failure) => &failure.message,
        }
    }
}

fn verb(command: Command) -> (Connect, OperatorVerb) {
    match command {
        Command::Route(noun) => (noun.connect, OperatorVerb::Route(noun.verb)),
        Command::Rules(noun) => (noun.connect, OperatorVerb::Rules(noun.verb)),
        Command::Backend(noun) => (noun.connect, OperatorVerb::Backend(noun.verb)),
        Command::Session(noun) => (noun.connect, OperatorVerb::Session(noun.verb)),
        Command::Key(noun) => (noun.connect, OperatorVerb::Key(noun.verb)),
        Command::Toggle(verb) => (verb.connect, OperatorVerb::Toggle(verb.args)),
        Command::Drain(verb) => (verb.connect, OperatorVerb::Drain(verb.args)),
        Command::Undrain(verb) => (verb.connect, OperatorVerb::Undrain(verb.args)),
        Command::Ban(verb) => (verb.connect, OperatorVerb::Ban(verb.args)),
        Command::Unban(verb) => (verb.connect, OperatorVerb::Unban(verb.args)),
        Command::Apply(verb) => (verb.connect, OperatorVerb::Apply(verb.args)),
        Command::Diff(verb) => (verb.connect, OperatorVerb::Diff(verb.args)),
        Command::Import(noun) => (noun.connect, OperatorVerb::Import(noun.verb)),
        Command::Export(verb) => (verb.connect, OperatorVerb::Export(verb.args)),
        Command::Status(verb) => (verb.connect, OperatorVerb::Status(verb.args)),
        other => panic!("not an operator verb: {other:?}"),
    }
}

/// Runs a command line against the control plane at `address`.
async fn run_at(address: &str, line: &str) -> Ran {
    let words = std::iter::once("routerctl").chain(line.split_ascii_whitespace());
    let cli = crate::args::Cli::try_parse_from(words).unwrap();
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let mut out = Out {
        stdout: &mut stdout,
        stderr: &mut stderr,
        format: cli.global.output,
        is_live: false,
        can_ask: false,
        now_unix_ms: 1_000_000,
    };
    let (connect, verb) = verb(cli.command);
    let connect = Connect { control_plane: Some(address.to_owned()), ..connect };
    let outcome = verb.run(&connect, &mut out).await;
    Ran { outcome, stdout: String::from_utf8(stdout).unwrap(), stderr: String::from_utf8(stderr).unwrap() }
}

/// A fake control plane with the route `chat`, and its address.
async fn with_chat() -> (Fake, String) {
    let (fake, address) = Fake::start().await;
    let address = address.to_string();
    let line = "route add chat --default --backend-port 19001 --backend-port 19002 --set max_concurrency=8";
    assert_eq!(run_at(&address, line).await.code(), 0);
    (fake, address)
}

#[tokio::test]
async fn routes_are_added_shown_changed_and_removed() {
    let (fake, at) = with_chat().await;
    let again = run_at(&at, "route add chat --backend-port 1").await;
    assert_eq!(again.code(), 1);
    assert_eq!(
        again.error(),
        "route chat exists; change it with `routerctl route set chat ...`, `routerctl backend add chat HOST:PORT` or \
         `routerctl apply -f FILE`, or take it away first with `routerctl route remove chat`"
    );

    let listed = run_at(&at, "route list").await;
    assert!(listed.stdout.contains("chat   yes        2/2       0/16"), "{}", listed.stdout);
    let shown = run_at(&at, "route show chat -o json").await.json();
    assert_eq!(shown["backends"][1]["address"], json!("127.0.0.1:19002"));
    let options = shown["options"].as_array().unwrap();
    assert!(options.contains(&json!({"name": "max_concurrency", "value": "8", "is_set": true})), "{options:?}");

    let set = run_at(&at, "route set chat max_waiting=3 --unset max_concurrency --default false").await;
    assert_eq!(
        set.stdout,
        "route chat: changed\n  - default: true\n  - options.max_concurrency: 8\n  + options.max_waiting: 3\n\
         1 route changed\n"
    );
    assert_eq!(run_at(&at, "route set chat max_waiting=3").await.stdout, "no change\n");
    let both = run_at(&at, "route set chat max_waiting=3 --unset max_waiting").await;
    assert_eq!((both.code(), both.error()), (64, "max_waiting: both set and unset"));

    let missing = run_at(&at, "route show other").await;
    assert_eq!((missing.code(), missing.error()), (1, "route other; `routerctl route list` shows the routes"));
    let unsure = run_at(&at, "route remove chat").await;
    assert_eq!(unsure.code(), 64);
    assert!(unsure.error().starts_with("Remove route chat with 2 backends and 0 sessions? Pass --yes"));
    assert_eq!(fake.state().routes.len(), 1);
    let removed = run_at(&at, "route remove chat --yes").await;
    assert_eq!(removed.stdout, "route chat removed, 2 sessions forgotten, 1 request still in flight\n");
    assert!(run_at(&at, "route list").await.stdout.starts_with("no routes; "));
}

#[tokio::test]
async fn backends_are_added_changed_and_removed() {
    let (_fake, at) = with_chat().await;
    let added = run_at(&at, "backend add chat gpu:80 --name three --max-concurrency 4").await;
    assert_eq!(added.stdout, "backend gpu:80 added to route chat\n");
    let set = run_at(&at, "backend set chat gpu:80 --max-concurrency 5 -o json").await.json();
    assert_eq!(
        set["changes"][0]["fields"],
        json!([{"field": "backends[gpu:80].max_concurrency", "before": "4", "after": "5"}])
    );
    let listed = run_at(&at, "backend list chat").await.stdout;
    assert!(listed.contains("chat   gpu:80           three  ready        0/5"), "{listed}");
    let bad = run_at(&at, "backend add chat gpu:81 --max-concurrency 0").await;
    assert_eq!(bad.code(), 64);
    assert!(bad.error().starts_with("backends[gpu:81].max_concurrency: integer expected"), "{}", bad.error());
    let missing = run_at(&at, "backend set chat gpu:82 --name x").await;
    assert_eq!(missing.error(), "backend gpu:82 of route chat; `routerctl backend list` shows the backends");
    assert_eq!(run_at(&at, "backend remove chat gpu:80").await.stdout, "backend gpu:80 of route chat removed\n");
}

#[tokio::test]
async fn a_drain_waits_for_the_last_request_and_shows_them_end() {
    let (fake, at) = with_chat().await;
    let busy = "127.0.0.1:19002";
    fake.state().in_flight.insert(busy.to_owned(), 2);
    let ends = async {
        // The verb has drained it: its requests end one by one.
        while !fake.state().drained.contains(busy) {
            tokio::task::yield_now().await;
        }
        for left in [1, 0] {
            tokio::time::sleep(Duration::from_millis(20)).await;
            fake.change(|state| {
                state.in_flight.insert(busy.to_owned(), left);
            });
        }
    };
    let (ran, ()) = tokio::join!(run_at(&at, "drain --port 19002 --wait"), ends);
    assert_eq!(ran.outcome, Ok(()));
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert_eq!(lines.first(), Some(&"2 requests in flight: 127.0.0.1:19002 2"));
    assert_eq!(lines.last(), Some(&"0 requests in flight"));
    assert!(ran.stdout.contains("127.0.0.1:19002  -     drained        0/8"), "{}", ran.stdout);

    fake.state().in_flight.insert(busy.to_owned(), 1);
    let late = run_at(&at, "drain --backend 127.0.0.1:19002 --wait --timeout 50ms").await;
    assert_eq!(late.code(), 124);
    assert!(late.error().contains("the drain stays"), "{}", late.error());
    assert_eq!(run_at(&at, "undrain --route chat").await.code(), 0);
    assert!(fake.state().drained.is_empty());
    assert_eq!(run_at(&at, "drain --port 5").await.code(), 1);
}

#[tokio::test]
async fn a_drain_that_is_undone_meanwhile_is_no_success() {
    let (fake, at) = with_chat().await;
    for left in [3, 0] {
        fake.state().in_flight.insert("127.0.0.1:19001".to_owned(), 3);
        let undone = async {
            while fake.state().drained.len() < 2 {
                tokio::task::yield_now().await;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            fake.change(|state| {
                state.drained.remove("127.0.0.1:19001");
                state.in_flight.insert("127.0.0.1:19001".to_owned(), left);
            });
        };
        let (ran, ()) = tokio::join!(run_at(&at, "drain --route chat --wait"), undone);
        assert_eq!(ran.code(), 1, "with {left} in flight: {}", ran.stdout);
        assert!(ran.error().starts_with("127.0.0.1:19001 of route chat was undrained meanwhile; "), "{}", ran.error());
        assert_eq!(ran.stdout, "");
        assert_eq!(run_at(&at, "undrain --route chat").await.code(), 0);
    }
}

#[tokio::test]
async fn bans_have_a_length() {
    let (fake, at) = with_chat().await;
    let banned = run_at(&at, "ban --port 19001 --for 30m").await;
    assert!(banned.stdout.contains("banned for 30m"), "{}", banned.stdout);
    assert_eq!(fake.state().bans.get("127.0.0.1:19001"), Some(&1_800_000));
    assert_eq!(run_at(&at, "unban --port 19001").await.code(), 0);
    assert!(fake.state().bans.is_empty());
}

#[tokio::test]
async fn a_key_s_secret_stays_here_and_its_hash_goes_out() {
    let (fake, at) = with_chat().await;
    let added = run_at(&at, "key add laptop -o json").await;
    let secret = added.json()["secret"].as_str().unwrap().to_owned();
    assert_eq!(fake.state().keys[0].1, Sha256::digest(secret.as_bytes()).to_vec());
    assert!(added.stderr.contains("shown this once"), "{}", added.stderr);
    assert!(!run_at(&at, "key list -o yaml").await.stdout.contains(&secret));
    let revoked = run_at(&at, "key revoke laptop").await;
    assert_eq!((revoked.stdout.as_str(), revoked.stderr.as_str()), ("key laptop (k1) revoked\n", ""));
    let missing = run_at(&at, "key revoke laptop").await;
    assert_eq!(missing.error(), "key laptop; `routerctl key list` shows the keys");
}

#[tokio::test]
async fn a_revoked_key_s_note_is_told() {
    let (fake, at) = with_chat().await;
    fake.state().revoke_note = "its secret stays valid".to_owned();
    run_at(&at, "key add one").await;
    let revoked = run_at(&at, "key revoke one").await;
    assert_eq!(revoked.stdout, "key one (k1) revoked\n");
    assert_eq!(revoked.stderr, "note: its secret stays valid\n");
    run_at(&at, "key add two").await;
    assert_eq!(run_at(&at, "key revoke two -o json").await.json()["note"], "its secret stays valid");
}

#[tokio::test]
async fn status_warns_of_problems_and_not_of_notes() {
    let (fake, at) = with_chat().await;
    let file = |flag: &str, problem: &str, note: &str| router_proto::v1::FileState {
        flag: flag.to_owned(),
        path: format!("/{flag}"),
        problem: problem.to_owned(),
        note: note.to_owned(),
        good_unix_ms: 0,
    };
    fake.state().files = vec![file("key-store", "missing", ""), file("control-file", "", "no backend for 7")];
    let status = run_at(&at, "status").await;
    assert_eq!(status.stderr, "warning: --key-store /key-store: missing\n");
    assert!(status.stdout.contains("no backend for 7"), "{}", status.stdout);
}

#[tokio::test]
async fn sessions_are_found_by_the_start_of_their_fingerprint() {
    let (fake, at) = with_chat().await;
    for digit in ["a", "ab"] {
        let session = v1_session(&format!("{digit:c<32}"));
        fake.state().sessions.push(session);
    }
    let listed = run_at(&at, "session list --limit 1").await;
    assert!(listed.stderr.contains("1 more; raise --limit"), "{}", listed.stderr);
    assert!(run_at(&at, "session show ab").await.stdout.starts_with("session    abcc"));
    assert_eq!(run_at(&at, "session show a").await.error(), "2 sessions start with a; give more digits, or --route");
    assert!(run_at(&at, "session show d").await.error().starts_with("no session d; "));
    assert_eq!(run_at(&at, "session forget chat abcc").await.code(), 64);
    assert_eq!(run_at(&at, "session forget chat abcc --yes").await.stdout, "1 session forgotten\n");
}

fn v1_session(fingerprint: &str) -> router_proto::v1::SessionState {
    router_proto::v1::SessionState {
        route: "chat".to_owned(),
        fingerprint: fingerprint.to_owned(),
        backend: "127.0.0.1:19001".to_owned(),
        ..Default::default()
    }
}

#[tokio::test]
async fn a_file_is_compared_applied_and_exported() {
    let (fake, at) = with_chat().await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("routes.yaml");
    let file = path.to_str().unwrap();
    let exported = run_at(&at, "export").await.stdout;
    std::fs::write(&path, &exported).unwrap();
    let same = run_at(&at, &format!("diff -f {file}")).await;
    assert_eq!((same.code(), same.stdout.as_str()), (0, "no change\n"));

    std::fs::write(&path, exported.replace("max_concurrency: 8", "max_concurrency: 9")).unwrap();
    let differs = run_at(&at, &format!("diff -f {file}")).await;
    assert_eq!((differs.code(), differs.error()), (1, ""));
    assert!(differs.stdout.contains("  - options.max_concurrency: 8\n  + options.max_concurrency: 9\n"));
    let dry = run_at(&at, &format!("apply -f {file} --dry-run -o json")).await.json();
    assert_eq!((dry["is_applied"].clone(), dry["changes"][0]["action"].clone()), (json!(false), json!("changed")));
    assert!(run_at(&at, &format!("apply -f {file}")).await.stdout.ends_with("1 route changed\n"));
    let exported: Json = run_at(&at, "export chat -o json").await.json();
    assert_eq!(exported["routes"][0]["options"]["max_concurrency"], json!(9));

    let backends = "backends: ['127.0.0.1:19001', '127.0.0.1:19002']";
    let text = format!("name: chat\ndefault: true\npreset: openresty\noptions: {{max_concurrency: 9}}\n{backends}\n");
    std::fs::write(&path, text).unwrap();
    let by_preset = run_at(&at, &format!("diff -f {file}")).await.stdout;
    let lines = "  - options.affinity (by the preset): binding\n  + options.affinity (by the preset): hash\n";
    assert!(by_preset.contains(lines) && !by_preset.contains("options.max_concurrency"), "{by_preset}");
    let dry = run_at(&at, &format!("apply -f {file} --dry-run -o json")).await.json();
    let field = json!({"field": "options.affinity (by the preset)", "before": "binding", "after": "hash"});
    assert!(dry["changes"][0]["fields"].as_array().unwrap().contains(&field), "{dry}");

    std::fs::write(&path, "name: other\n").unwrap();
    let pruned = run_at(&at, &format!("apply -f {file} --prune")).await.stdout;
    assert!(pruned.contains("route chat: removed") && pruned.contains("route other: added"), "{pruned}");
    assert_eq!(fake.state().routes.len(), 1);

    std::fs::write(&path, "name: other\noptions:\n  max_waiting: many\n").unwrap();
    for (line, code) in [("apply", 64), ("apply --dry-run", 64), ("diff", 2)] {
        let bad = run_at(&at, &format!("{line} -f {file}")).await;
        assert_eq!(bad.code(), code);
        assert!(bad.error().starts_with(&format!("{file}:3:3: route.options.max_waiting: integer")), "{}", bad.error());
        let missing = run_at(&at, &format!("{line} -f {file}.none")).await;
        assert_eq!((missing.code(), missing.stdout.as_str()), (code, ""), "{line}");
    }
}

#[tokio::test]
async fn the_token_goes_with_each_call_and_a_wrong_one_is_explained() {
    let (fake, at) = with_chat().await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    std::fs::write(&path, "right\n").unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let line = format!("status --token-file {}", path.display());
    assert!(run_at(&at, &line).await.stdout.contains("route chat (default): 0 sessions, 0 waiting"));
    assert_eq!(fake.state().authorization.as_deref(), Some("Bearer right"));
    std::fs::write(&path, "wrong\n").unwrap();
    let refused = run_at(&at, &line).await;
    assert_eq!(refused.code(), 1);
    assert!(refused.error().ends_with("pass --token-file FILE or set ROUTER_TOKEN"), "{}", refused.error());
}

#[tokio::test]
async fn an_unreachable_control_plane_is_69_and_for_diff_2() {
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    assert_eq!(run_at(&address, "status").await.code(), 69);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.yaml");
    std::fs::write(&path, "name: a\n").unwrap();
    assert_eq!(run_at(&address, &format!("diff -f {}", path.display())).await.code(), 2);
    // The catalogue needs nobody.
    let options = run_at(&address, "route options -o json").await.json();
    assert_eq!(options["options"][0]["name"], json!("affinity"));
}

/// Fails like a pipe whose reader is gone.
struct Closed;

impl io::Write for Closed {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_closed_pipe_is_no_error() {
    for format in [Format::Table, Format::Json, Format::Yaml] {
        let mut stderr = Vec::new();
        let mut out =
            Out { stdout: &mut Closed, stderr: &mut stderr, format, is_live: false, can_ask: false, now_unix_ms: 0 };
        let failure = route::options::run(&route::options::OptionsArgs::default(), &mut out).unwrap_err();
        assert_eq!((failure.kind.code(), failure.message.as_str()), (0, ""));
    }
}
