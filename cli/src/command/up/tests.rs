use std::os::unix::fs::MetadataExt as _;

use serde_json::json;

use super::*;
use crate::failure::Kind;

fn args(line: &str) -> UpArgs {
    let words = ["routerctl", "up"].into_iter().chain(line.split_ascii_whitespace());
    match Cli::try_parse_from(words).unwrap().command {
        Command::Up(args) => *args,
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
fn everything_that_is_wrong_is_told_at_once_and_by_its_flag() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let line = format!(
        "--grpc-listen 127.0.0.1:7480 --max-waiting many --queue-timeout 5 --backend-dp-size 1 --set max_sessions=1 \
         --max-sessions 2 --state-dir {}",
        dir.path().display()
    );
    let failure = args(&line).check().unwrap_err();
    assert_eq!(failure.kind, Kind::Usage);
    let flags: Vec<&str> = failure.message.lines().map(|line| line.split(": ").next().unwrap()).collect();
    let state = format!("--state-dir {}", dir.path().display());
    assert_eq!(
        flags,
        ["--http-listen", "--max-waiting", "--backend-dp-size", "--set max_sessions", state.as_str()],
        "{failure:?}"
    );
}

#[test]
fn without_a_database_options_need_backends() {
    let dir = tempfile::tempdir().unwrap();
    let check = |line: &str| args(&format!("{line} --state-dir {}/state", dir.path().display())).check();
    let failure = check("--set max_waiting=1 --max-sessions 3").unwrap_err();
    assert!(failure.message.starts_with("--set, --max-sessions: no route is stored yet; "), "{failure:?}");
    assert!(check("--backend-port 1 --backend 127.0.0.1:1").unwrap_err().message.contains("stands twice"));
    let failure = check("--preset gateway --backend-context-limit 19003=1").unwrap_err();
    assert_eq!(failure.message, "--backend-context-limit: no backend has port 19003; there are: 19001, 19002");
    check("--preset gateway --max-active-per-backend 8 --backend-dp-size 19002=8").unwrap();
    check("").unwrap();
    // It may hold the route that the flags mean: only the running control plane can tell.
    state::prepare(&dir.path().join("state")).unwrap();
    std::fs::write(dir.path().join("state/router.db"), "").unwrap();
    check("--max-sessions 3").unwrap();
}

#[test]
fn a_start_that_does_not_happen_leaves_no_directory() {
    let dir = tempfile::tempdir().unwrap();
    let (there, state) = (dir.path().join("there"), dir.path().join("there/a/b/state"));
    std::fs::create_dir(&there).unwrap();
    let file = state.join("backend-state.json");
    let line = format!("--state-dir {} --backend-state {}", state.display(), file.display());
    assert!(args(&format!("{line} --max-waiting many")).check().is_err());
    assert!(there.exists() && !dir.path().join("there/a").exists(), "nothing more, and nothing less, than before");
    args(&line).check().unwrap();
    assert!(state.exists(), "the control: the check had made it");
    std::fs::write(state.join("mine"), "").unwrap();
    assert!(args(&format!("{line} --max-waiting many")).check().is_err());
    assert!(state.exists());
}

#[test]
fn the_control_plane_s_own_complaints_are_told_too() {
    let failure = args("--grpc-listen 192.0.2.1:7400 --max-waiting many --backend-port 1").check().unwrap_err();
    let lines: Vec<&str> = failure.message.lines().collect();
    assert_eq!(lines.len(), 2, "{failure:?}");
    assert!(lines[1].starts_with("--grpc-listen: 192.0.2.1:7400 is not a loopback address"), "{failure:?}");
}

#[test]
fn a_gateway_s_line_is_a_route_and_files() {
    let given = args(
        "--preset gateway --key-store keys.json --control-file admission.json --backend-state state.json \
         --backend-port 19001 --backend-port 19008 --listen 127.0.0.1:8080 --max-active-per-backend 16 --queue-timeout 5 \
         --backend-context-limit 19008=131072 --backend-managed-affinity --backend-dp-size 19008=8",
    );
    let mut complaints = Vec::new();
    let route = given.overlay(&mut complaints).over(&Json::Null).unwrap();
    assert!(complaints.is_empty(), "{complaints:?}");
    assert_eq!(
        route,
        json!({"name": "default", "default": true, "preset": "gateway",
            "options": {"max_concurrency": "16", "queue_timeout": "5", "backend_context_limits": "19008=131072",
                "backend_managed_affinity": "true"},
            "backends": ["127.0.0.1:19001", {"address": "127.0.0.1:19008", "dp_size": 8}]})
    );
    let flags: Vec<OsString> = flag_words(given.controlplane_flags(Path::new("/x/router.db"))).collect();
    assert_eq!(
        flags,
        [
            "--grpc-listen=127.0.0.1:7400",
            "--http-listen=127.0.0.1:7480",
            "--database-url=sqlite:/x/router.db",
            "--gateway-route=default",
            "--key-store=keys.json",
            "--control-file=admission.json",
            "--backend-state=state.json"
        ]
    );
    assert_eq!(args("").controlplane_flags(Path::new("/x/router.db")).len(), 4);
    assert!(args("").overlay(&mut Vec::new()).is_empty());
}

#[test]
fn each_replica_is_told_whether_to_serve_its_status_pages() {
    for (line, word) in [("", "false"), ("--debug-endpoints", "true"), ("--debug-endpoints=false", "false")] {
        let given = args(line);
        let flags = given.dataplane_flags(given.listen, given.admin_listen, "http://127.0.0.1:7400");
        let words: Vec<OsString> =
            ["routerctl".into(), "dataplane".into()].into_iter().chain(flag_words(flags)).collect();
        assert!(words.contains(&format!("--debug-endpoints={word}").into()), "{line}");
        let Command::DataPlane(role) = Cli::try_parse_from(words).unwrap().command else { panic!("{line}") };
        assert_eq!(role.args.debug_endpoints.to_string(), word);
    }
}

#[test]
fn each_replica_is_told_where_the_body_log_s_collector_is() {
    let all = "--bodylog-host=c --bodylog-port=1234 --bodylog-zone=Asia/Shanghai --bodylog-buffer=1GiB";
    for (line, expected) in [("", ["", "9999", "UTC", "256MiB"]), (all, ["c", "1234", "Asia/Shanghai", "1GiB"])] {
        let given = args(line);
        let flags = given.dataplane_flags(given.listen, given.admin_listen, "http://127.0.0.1:7400");
        let words = ["routerctl".into(), "dataplane".into()].into_iter().chain(flag_words(flags));
        let Command::DataPlane(role) = Cli::try_parse_from(words).unwrap().command else { panic!("{line}") };
        let told = role.args.bodylog;
        let port = told.bodylog_port.to_string();
        assert_eq!([&told.bodylog_host, &port, &told.bodylog_zone, &told.bodylog_buffer], expected, "{line}");
        assert_eq!(told.validate().unwrap().is_some(), !line.is_empty());
    }
    let complaint = args("--bodylog-zone=Mars").check().unwrap_err().message;
    assert!(complaint.contains("--bodylog-zone: "), "{complaint}");
}

#[test]
fn the_state_directory_is_private() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("a #%/state");
    let path = state::prepare(&state).unwrap();
    assert_eq!(std::fs::metadata(&state).unwrap().mode() & 0o777, 0o700);
    assert!(path.is_absolute() && path.ends_with("a #%/state/router.db"), "{path:?}");
    std::fs::set_permissions(&state, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let complaint = state::prepare(&state).unwrap_err();
    assert!(complaint.contains("mode 755") && complaint.contains("chmod 700"), "{complaint}");
    std::fs::write(dir.path().join("file"), "").unwrap();
    assert!(state::database(&dir.path().join("file")).unwrap_err().contains("not a directory"));
}
