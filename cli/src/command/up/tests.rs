use clap::Parser as _;

use super::*;
use crate::args::{Cli, Command};
use crate::failure::Kind;

fn args(line: &str) -> UpArgs {
    let words = ["routerctl", "up"].into_iter().chain(line.split_ascii_whitespace());
    match Cli::try_parse_from(words).unwrap().command {
        Command::Up(args) => args,
        other => panic!("{other:?}"),
    }
}

#[test]
fn ports_that_meet_are_all_complained_about() {
    args("--replicas 10").check().unwrap();
    args("--listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 --replicas 64").check().unwrap();
    let failure = args("--replicas 11 --http-listen 127.0.0.1:7400").check().unwrap_err();
    assert_eq!(failure.kind, Kind::Usage);
    let lines: Vec<&str> = failure.message.lines().collect();
    assert_eq!(lines.len(), 2, "{failure:?}");
    assert!(lines[0].starts_with("--http-listen: 127.0.0.1:7400 is taken by --grpc-listen"), "{failure:?}");
    assert!(lines[1].starts_with("--listen of replica 10: 127.0.0.1:8090 is taken by --admin-listen"), "{failure:?}");
    let failure = args("--replicas 2 --listen 127.0.0.1:65535").check().unwrap_err();
    assert_eq!(failure.message, "--listen of replica 1: port 65535 + 1 is above 65535");
}

#[test]
fn options_need_a_backend_and_backends_must_differ() {
    assert!(args("--set max_waiting=1").check().unwrap_err().message.starts_with("--set: needs --backend"));
    let failure = args("--backend-port 1 --backend 127.0.0.1:1").check().unwrap_err();
    assert!(failure.message.contains("duplicate"), "{failure:?}");
}

#[test]
fn the_quick_route_keeps_what_is_stored_of_it() {
    let given = args("--backend-port 1 --backend-port 2 --set max_waiting=3");
    assert_eq!(
        given.route(&Json::Null, true).unwrap(),
        json!({"name": "default", "default": true, "options": {"max_waiting": "3"},
            "backends": ["127.0.0.1:1", "127.0.0.1:2"]})
    );
    let stored = json!({"name": "default", "preset": "gateway", "options": {"max_waiting": 9, "on_full": "refuse"},
        "backends": [{"address": "127.0.0.1:2", "name": "two"}, {"address": "127.0.0.1:9"}]});
    assert_eq!(
        given.route(&stored, true).unwrap(),
        json!({"name": "default", "default": true, "preset": "gateway",
            "options": {"max_waiting": "3", "on_full": "refuse"},
            "backends": ["127.0.0.1:1", {"address": "127.0.0.1:2", "name": "two"}]})
    );
    assert_eq!(given.route(&stored, false).unwrap()["default"], json!(false));
    assert_eq!(args("").route(&stored, true), None);
}

#[test]
fn the_state_directory_is_private() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("a #%/state");
    let url = prepare(&state).unwrap();
    assert_eq!(std::fs::metadata(&state).unwrap().mode() & 0o777, 0o700);
    assert!(url.starts_with("sqlite:/") && url.ends_with("/a #%/state/router.db"), "{url}");
    std::fs::set_permissions(&state, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let failure = prepare(&state).unwrap_err();
    assert_eq!(failure.kind, Kind::Usage);
    assert!(failure.message.contains("mode 755") && failure.message.contains("chmod 700"), "{failure:?}");
}

#[test]
fn the_summary_names_the_real_ports() {
    let text = summary("http://127.0.0.1:7400", "127.0.0.1:7480", &["127.0.0.1:8080".to_owned()], true);
    assert!(text.contains("curl http://127.0.0.1:8080/v1/chat/completions"), "{text}");
    assert!(text.contains("  routerctl status\n"), "{text}");
    let text = summary("http://127.0.0.1:41", "127.0.0.1:42", &[], false);
    assert!(text.contains("routerctl status --control-plane http://127.0.0.1:41"), "{text}");
    assert!(text.contains("routerctl route add"), "{text}");
}
