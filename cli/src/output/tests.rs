//! What users and scripts read, compared as a whole.

use router_proto::v1;

use super::json::{
    BackendListing, Changes, KeyList, KeyView, NewKey, Removed, RouteList, RouteView, SessionList, StatusView,
};
use super::*;

const NOW: u64 = 1_000_000_000;

fn table(answer: &impl Answer) -> String {
    let mut out = Vec::new();
    answer.print(&mut out, NOW).unwrap();
    String::from_utf8(out).unwrap()
}

fn backend(address: &str, name: &str) -> v1::BackendState {
    v1::BackendState {
        route: "chat".to_owned(),
        address: address.to_owned(),
        name: name.to_owned(),
        condition: Some(v1::Condition::default()),
        in_flight: 3,
        limit: 8,
        sessions: 12,
        granted_total: 1234,
        ..Default::default()
    }
}

fn backends() -> Vec<v1::BackendState> {
    let mut banned = backend("gpu-2.internal:8000", "");
    banned.condition = Some(v1::Condition { banned: true, unhealthy: true, ..Default::default() });
    banned.reason = "connect: connection refused".to_owned();
    banned.ban_left_ms = 299_000;
    banned.failures_total = 7;
    let mut drained = backend("127.0.0.1:19003", "three");
    drained.condition = Some(v1::Condition { draining: true, ..Default::default() });
    drained.in_flight = 0;
    drained.max_concurrency = 8;
    vec![backend("127.0.0.1:19001", "one"), banned, drained]
}

fn route() -> v1::RouteState {
    let option =
        |name: &str, value: &str, is_set| v1::OptionState { name: name.to_owned(), value: value.to_owned(), is_set };
    v1::RouteState {
        name: "chat".to_owned(),
        is_default: true,
        options: vec![option("max_waiting", "3", true), option("retry_on", "connect,502,503", false)],
        backends: backends(),
        waiting: 2,
        sessions: 36,
        preset: "gateway".to_owned(),
        reserved: 0,
        complaints: vec!["options.on_full: word expected".to_owned()],
        ..Default::default()
    }
}

#[test]
fn backends_as_a_table() {
    assert_eq!(
        table(&BackendListing::from(backends())),
        "\
ROUTE  BACKEND              NAME   STATE                     IN FLIGHT  SESSIONS  GRANTED  FAILURES  REASON
chat   127.0.0.1:19001      one    ready                           3/8        12     1234         0
chat   gpu-2.internal:8000  -      banned for 4m, unhealthy        3/8        12     1234         7  connect: connection refused
chat   127.0.0.1:19003      three  drained                         0/8        12     1234         0
"
    );
    assert_eq!(table(&BackendListing::from(vec![])), "no backends\n");
}

#[test]
fn a_backend_as_json() {
    let listing = BackendListing::from(backends().into_iter().skip(1).take(1).collect::<Vec<_>>());
    let mut out = Vec::new();
    write_json(&mut out, &listing).unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        r#"{
  "backends": [
    {
      "route": "chat",
      "address": "gpu-2.internal:8000",
      "name": null,
      "states": [
        "banned",
        "unhealthy"
      ],
      "reason": "connect: connection refused",
      "in_flight": 3,
      "limit": 8,
      "sessions": 12,
      "ban_left_ms": 299000,
      "granted_total": 1234,
      "failures_total": 7,
      "max_concurrency": null,
      "health_path": null,
      "context_limit": null,
      "dp_size": null,
      "priority": 0,
      "models": []
    }
  ]
}
"#
    );
}

#[test]
fn yaml_reads_back_as_the_same() {
    let view = RouteView::from(route());
    let mut out = Vec::new();
    write_yaml(&mut out, &view).unwrap();
    let back: serde_json::Value = serde_saphyr::from_slice(&out).unwrap();
    assert_eq!(back, serde_json::to_value(&view).unwrap(), "{}", String::from_utf8_lossy(&out));
}

#[test]
fn routes_as_tables() {
    let list = RouteList { routes: vec![RouteView::from(route())] };
    assert_eq!(
        table(&list),
        "\
ROUTE  DEFAULT  READY  IN FLIGHT  WAITING  SESSIONS  COMPLAINTS
chat   yes        1/3       6/24        2        36  1
"
    );
    assert_eq!(
        table(&RouteList { routes: vec![] }),
        "no routes; add one with `routerctl route add NAME --backend HOST:PORT`\n"
    );
    let shown = table(&RouteView::from(route()));
    assert!(shown.starts_with("route     chat\ndefault   yes\npreset    gateway\n"), "{shown}");
    assert!(
        shown.ends_with(
            "\
OPTION       SET  VALUE
max_waiting  yes  3
retry_on     -    connect,
                  502,
                  503
"
        ),
        "{shown}"
    );
}

#[test]
fn pools_are_one_line_each() {
    let pool = |model: &str, level: &str, limit, ewmas: Option<(f64, f64)>| v1::PoolState {
        model: model.to_owned(),
        active_level: level.to_owned(),
        in_flight: 3,
        pool_limit: 16,
        limit,
        is_adaptive: ewmas.is_some(),
        ttft_ewma_ms: ewmas.map(|(ttft, _)| ttft),
        tps_ewma: ewmas.map(|(_, tps)| tps),
    };
    let pools = vec![
        pool("m1", "10", 10.25, Some((812.4, 34.56))),
        pool("m2", "-0.5", 16.0, None),
        pool("m3", "", 0.0, None),
        pool("", "0", 16.0, None),
    ];
    let mut state = route();
    state.pools = pools;
    state.options.push(v1::OptionState { name: "tps_min_tokens".to_owned(), value: "16".to_owned(), is_set: false });
    state.options.push(v1::OptionState {
        name: "ttft_metrics".to_owned(),
        value: r#"[{"metric":"p80","q":0.8}]"#.to_owned(),
        is_set: true,
    });
    let view = RouteView::from(state);
    let shown = table(&view);
    assert!(
        shown.contains(
            "\n
POOL  TIER  IN FLIGHT  LIMIT                TTFT     TPS
m1      10     3/10.2  adaptive, up to 16  812ms  34.6/s
m2    -0.5       3/16  static                  -       -
m3    none        3/0  static                  -       -
-        0       3/16  static                  -       -

BACKEND"
        ),
        "{shown}"
    );
    assert!(
        shown.ends_with(
            "\
ttft_metrics  yes  [{\"metric\":\"p80\",\"q\":0.8}]
1 more option of fine tuning not set; `-o json` shows all
"
        ),
        "{shown}"
    );
    assert_eq!(
        serde_json::to_value(&view.pools[..3]).unwrap(),
        serde_json::json!([
            {"model": "m1", "active_level": 10, "in_flight": 3, "pool_limit": 16, "limit": 10.25, "is_adaptive": true,
             "ttft_ewma_ms": 812.4, "tps_ewma": 34.56},
            {"model": "m2", "active_level": -0.5, "in_flight": 3, "pool_limit": 16, "limit": 16.0, "is_adaptive": false,
             "ttft_ewma_ms": null, "tps_ewma": null},
            {"model": "m3", "active_level": null, "in_flight": 3, "pool_limit": 16, "limit": 0.0, "is_adaptive": false,
             "ttft_ewma_ms": null, "tps_ewma": null},
        ])
    );
}

#[test]
fn a_diff_reads_like_diff() {
    let field = |field: &str, before: Option<&str>, after: Option<&str>| v1::FieldChange {
        field: field.to_owned(),
        before: before.map(str::to_owned),
        after: after.map(str::to_owned),
    };
    let change = v1::RouteChange {
        route: "chat".to_owned(),
        action: v1::route_change::Action::Changed.into(),
        fields: vec![
            field("backends[h:1].address", Some("h:1"), None),
            field("default", None, Some("true")),
            field("options.max_waiting", Some("1"), Some("2")),
        ],
    };
    let changes = Changes { changes: vec![change.into()], is_applied: false };
    assert_eq!(
        table(&changes),
        "\
route chat: changed
  - backends[h:1].address: h:1
  + default: true
  - options.max_waiting: 1
  + options.max_waiting: 2
1 route would change
"
    );
    assert_eq!(table(&Changes { changes: vec![], is_applied: true }), "no change\n");
}

#[test]
fn the_whole_state_as_a_table() {
    let status = v1::GetStatusReply {
        version: "0.1.0".to_owned(),
        epoch: 3,
        uptime_ms: 7_500_000,
        database: "sqlite".to_owned(),
        database_ok: false,
        database_error: "disk full".to_owned(),
        replicas: vec![v1::ReplicaState {
            replica_id: "r1".to_owned(),
            version: "0.1.0".to_owned(),
            listen: "127.0.0.1:8080".to_owned(),
            connected: true,
            last_seen_ms: 12,
            leases: 3,
        }],
        routes: vec![],
        keys: 2,
        snapshot_version: 17,
        files: vec![
            v1::FileState {
                flag: "key-store".to_owned(),
                path: "/etc/router/keys.json".to_owned(),
                problem: String::new(),
                note: "a note".to_owned(),
                good_unix_ms: NOW - 2000,
            },
            v1::FileState {
                flag: "control-file".to_owned(),
                path: "/etc/router/admission.json".to_owned(),
                problem: "missing: admission is closed".to_owned(),
                note: String::new(),
                good_unix_ms: 0,
            },
        ],
    };
    let files = &serde_json::to_value(StatusView::from(status.clone())).unwrap()["files"];
    assert_eq!(
        *files,
        serde_json::json!([
            {"flag": "key-store", "path": "/etc/router/keys.json", "problem": null, "note": "a note",
             "good_unix_ms": NOW - 2000},
            {"flag": "control-file", "path": "/etc/router/admission.json",
             "problem": "missing: admission is closed", "note": null, "good_unix_ms": null},
        ])
    );
    assert_eq!(
        table(&StatusView::from(status)),
        "\
control plane  0.1.0, up 2h, epoch 3
database       sqlite, FAILING: disk full
snapshot       version 17
keys           2

FILE          PATH                        LAST GOOD  PROBLEM                       NOTE
key-store     /etc/router/keys.json       2s ago                                   a note
control-file  /etc/router/admission.json  never      missing: admission is closed

REPLICA  LISTEN          STATE      VERSION  LEASES
r1       127.0.0.1:8080  connected  0.1.0         3

no routes; add one with `routerctl route add NAME --backend HOST:PORT`
"
    );
}

#[test]
fn sessions_keys_and_removals() {
    let session = v1::SessionState {
        route: "chat".to_owned(),
        fingerprint: "ab".repeat(16),
        backend: "127.0.0.1:1".to_owned(),
        created_unix_ms: NOW - 3_600_000 * 3,
        last_used_unix_ms: NOW - 5000,
        requests: 6,
        ..Default::default()
    };
    assert_eq!(
        table(&SessionList { sessions: vec![session.into()], total: 1 }),
        "\
ROUTE  SESSION                           BACKEND      IN FLIGHT  REQUESTS  MOVES  LAST USED  CREATED
chat   abababababababababababababababab  127.0.0.1:1          0         6      0  5s ago     3h ago
"
    );
    let key = || KeyView {
        id: "k1".to_owned(),
        name: "laptop".to_owned(),
        sha256_prefix: "01234567".to_owned(),
        created_unix_ms: Some(NOW - 60_000),
        source: "database",
    };
    let followed = KeyView::from(v1::KeyState {
        id: "k2".to_owned(),
        name: "ci".to_owned(),
        sha256_prefix: "89abcdef".to_owned(),
        created_unix_ms: 0,
        source: v1::KeySource::File.into(),
    });
    assert_eq!(
        table(&KeyList { keys: vec![key(), followed] }),
        "\
ID  NAME    SHA-256    SOURCE    CREATED
k1  laptop  01234567…  database  60s ago
k2  ci      89abcdef…  file      -
"
    );
    let new = NewKey { key: key(), secret: "sk-1".to_owned() };
    assert_eq!(table(&new), "id      k1\nname    laptop\nsecret  sk-1\n");
    assert_eq!(
        serde_json::to_value(&new).unwrap(),
        serde_json::json!({"id": "k1", "name": "laptop", "sha256_prefix": "01234567",
            "created_unix_ms": NOW - 60_000, "source": "database", "secret": "sk-1"})
    );
    let removed = Removed { removed: "route chat".to_owned(), in_flight: 1, sessions_forgotten: Some(2) };
    assert_eq!(table(&removed), "route chat removed, 2 sessions forgotten, 1 request still in flight\n");
}

#[test]
fn without_a_person_to_ask_yes_must_be_given() {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let mut out = Out {
        stdout: &mut stdout,
        stderr: &mut stderr,
        format: Format::Table,
        is_live: false,
        can_ask: false,
        now_unix_ms: NOW,
    };
    let failure = out.confirm("Remove route chat?").unwrap_err();
    assert_eq!(failure.kind.code(), 64);
    assert_eq!(failure.message, "Remove route chat? Pass --yes to confirm");
}

#[test]
fn what_was_done_to_payloads_is_told_where_there_is_something() {
    let plain = table(&RouteView::from(route()));
    let counts = [("cch_stripped", 7), ("rule_rejected", 5), ("bodylog_written", 90), ("bodylog_dropped", 2)];
    let counted = v1::RouteState {
        payload_counts: counts.map(|(name, sum)| (name.to_owned(), sum)).into(),
        rule_hits: [("big", 4), ("small", 1)].map(|(rule, hits)| (rule.to_owned(), hits)).into(),
        ..route()
    };
    let shown = table(&RouteView::from(counted.clone()));
    let added: Vec<&str> = shown.lines().filter(|line| !plain.contains(line.split("  ").next().unwrap())).collect();
    let lines = [
        "bodies changed    cch_strip 7",
        "refused by rules  5: big 4, small 1",
        "body log          90 frames, 2 dropped, 0 failed",
    ];
    assert_eq!(added, lines, "{shown}");
    let status = |route| table(&StatusView::from(v1::GetStatusReply { routes: vec![route], ..Default::default() }));
    let lines = "  refused by rules: 5: big 4, small 1\n  body log: 90 frames, 2 dropped, 0 failed\n";
    assert!(status(counted).contains(lines) && !status(route()).contains("body log"));
}
