//! `routerctl toggle`.

use super::*;

#[tokio::test]
async fn a_toggle_is_set_for_a_time_listed_and_reset() {
    let (fake, at) = with_chat().await;
    assert_eq!(run_at(&at, "toggle chat").await.stdout, "nothing is set on route chat\n");
    let set = run_at(&at, "toggle chat load_rate_limit OFF --for 30m").await;
    assert_eq!(
        set.stdout,
        "\
TOGGLE           MODEL  VALUE  LEFT
load_rate_limit  -      off    30m
"
    );
    let set = run_at(&at, "toggle chat ttft_limit_ms 2500 --model m1").await;
    let table = "\
TOGGLE           MODEL  VALUE  LEFT
load_rate_limit  -      off    30m
ttft_limit_ms    m1     2500   until reset
";
    assert_eq!((set.stdout.as_str(), set.stderr.as_str()), (table, ""));
    assert_eq!(run_at(&at, "toggle chat").await.stdout, table);
    let shown = run_at(&at, "route show chat").await.stdout;
    assert!(shown.contains(&format!("\n\n{table}\n")), "{shown}");
    assert_eq!(
        run_at(&at, "toggle chat -o json").await.json(),
        json!({"route": "chat", "note": null, "toggles": [
            {"name": "load_rate_limit", "model": null, "value": "off", "left_ms": 1_800_000, "then": null},
            {"name": "ttft_limit_ms", "model": "m1", "value": "2500", "left_ms": null, "then": null},
        ]})
    );
    let reset = run_at(&at, "toggle chat ttft_limit_ms reset --model m1 -o json").await.json();
    assert_eq!(reset["toggles"].as_array().unwrap().len(), 1);
    assert_eq!(run_at(&at, "toggle chat load_rate_limit reset").await.stdout, "nothing is set on route chat\n");
    assert!(fake.state().toggles.is_empty());
}

#[tokio::test]
async fn what_comes_before_a_toggle_is_told() {
    let (fake, at) = with_chat().await;
    fake.state().toggle_note = "ttft_metrics comes before it".to_owned();
    let set = run_at(&at, "toggle chat ttft_limit_ms 2500").await;
    assert_eq!(set.stderr, "note: ttft_metrics comes before it\n");
    let set = run_at(&at, "toggle chat ttft_limit_ms 2500 -o json").await;
    assert_eq!(set.json()["note"], "ttft_metrics comes before it");
}

#[tokio::test]
async fn a_bad_toggle_is_not_sent() {
    let (fake, at) = with_chat().await;
    let lines = [
        ("toggle chat ttft maybe", "ttft: allowed: on, off or `reset`, which undoes it"),
        (
            "toggle chat ttft_limit_ms on",
            "ttft_limit_ms: number expected, got 'on'; allowed: more than 0, up to 86400000 or `reset`, which undoes it",
        ),
        (
            "toggle chat tps_limit_tps -1",
            "tps_limit_tps: number expected, got '-1'; allowed: more than 0, up to 1000000 or `reset`, which undoes it",
        ),
        ("toggle chat ttft off --model m1", "model: ttft is a switch of the whole route; allowed: no model"),
        ("toggle chat ttft reset --for 5m", "--for: `reset` takes effect at once and for good; leave it out"),
    ];
    for (line, error) in lines {
        let ran = run_at(&at, line).await;
        assert_eq!((ran.code(), ran.error()), (64, error), "{line}");
    }
    assert!(fake.state().toggles.is_empty());
    let missing = run_at(&at, "toggle other ttft off").await;
    assert_eq!((missing.code(), missing.error()), (1, "route other; `routerctl route list` shows the routes"));
}

#[tokio::test]
async fn what_is_toggled_is_seen_in_the_daily_views() {
    let (_fake, at) = with_chat().await;
    run_at(&at, "route add quiet --backend-port 1").await;
    for line in ["status", "route list"] {
        let before = run_at(&at, line).await.stdout.to_lowercase();
        assert!(!before.contains("toggled"), "nothing is: {before}");
    }
    run_at(&at, "toggle chat load_rate_limit off --for 24m").await;
    run_at(&at, "toggle chat ttft_limit_ms 2500 --model m1").await;
    let status = run_at(&at, "status").await.stdout;
    let line = "\nroute chat (default): 0 sessions, 0 waiting\n  toggled: load_rate_limit off, 24m left; ttft_limit_ms 2500 of m1\n";
    assert!(status.contains(line), "{status}");
    assert_eq!(status.matches("toggled").count(), 1, "{status}");
    assert_eq!(
        run_at(&at, "route list").await.stdout,
        "\
ROUTE  DEFAULT  READY  IN FLIGHT  WAITING  SESSIONS  COMPLAINTS  TOGGLED
chat   yes        2/2       0/16        0         0              load_rate_limit off, 24m left
                                                                 ttft_limit_ms 2500 of m1
quiet  -          1/1       0/32        0         0
"
    );
    for line in ["status -o json", "route list -o json"] {
        let json = run_at(&at, line).await.json();
        assert_eq!(
            json["routes"][0]["toggles"][0],
            json!({"name": "load_rate_limit", "model": null, "value": "off", "left_ms": 1_440_000, "then": null})
        );
        assert_eq!(json["routes"][1]["toggles"], json!([]));
    }
}

#[tokio::test]
async fn every_route_is_listed_set_and_reset_at_once() {
    let (fake, at) = with_chat().await;
    run_at(&at, "route add fast --backend-port 1").await;
    assert_eq!(run_at(&at, "toggle").await.stdout, "nothing is set on any route\n");
    let set = run_at(&at, "toggle --all load_rate_limit off --for 30m").await;
    let table = "\
ROUTE  TOGGLE           MODEL  VALUE  LEFT
chat   load_rate_limit  -      off    30m
fast   load_rate_limit  -      off    30m
";
    assert_eq!((set.code(), set.stdout.as_str()), (0, table));
    assert_eq!(run_at(&at, "toggle").await.stdout, table);
    run_at(&at, "toggle chat load_rate_limit reset").await;
    let toggle = json!({"name": "load_rate_limit", "model": null, "value": "off", "left_ms": 1_800_000, "then": null});
    assert_eq!(
        run_at(&at, "toggle -o json").await.json(),
        json!({"routes": [
            {"route": "chat", "toggles": [], "note": null, "error": null},
            {"route": "fast", "toggles": [toggle], "note": null, "error": null},
        ]})
    );
    let reset = run_at(&at, "toggle --all load_rate_limit reset").await;
    let empty = "\
ROUTE  TOGGLE  MODEL  VALUE  LEFT
chat   -       -      -      -
fast   -       -      -      -
";
    assert_eq!((reset.code(), reset.stdout.as_str()), (0, empty));
    assert!(fake.state().toggles.is_empty());
}

#[tokio::test]
async fn a_route_that_refuses_keeps_no_other_from_it_and_ends_with_1() {
    let (fake, at) = with_chat().await;
    run_at(&at, "route add able --backend-port 1").await;
    run_at(&at, "route add last --backend-port 1").await;
    fake.state().no_toggles.insert("chat".to_owned());
    let set = run_at(&at, "toggle --all ttft off").await;
    assert_eq!((set.code(), set.error()), (1, "route chat: not today"));
    assert_eq!(
        set.stdout,
        "\
ROUTE  TOGGLE  MODEL  VALUE  LEFT
able   ttft    -      off    until reset
chat   FAILED  -      -      -
last   ttft    -      off    until reset
"
    );
    let json = run_at(&at, "toggle --all ttft off -o json").await;
    assert_eq!(json.code(), 1);
    let json: Json = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((&json["routes"][1]["error"], &json["routes"][2]["error"]), (&json!("not today"), &json!(null)));
    // What no route could take is not sent to any.
    let bad = run_at(&at, "toggle --all rate off").await;
    assert_eq!(bad.code(), 64);
    assert!(bad.error().contains("load_rate_limit"), "{}", bad.error());
    let none = Fake::start().await.1.to_string();
    assert_eq!(run_at(&none, "toggle --all ttft off").await.stdout, "no routes\n");
}

#[tokio::test]
async fn what_holds_after_a_time_is_told() {
    let (_fake, at) = with_chat().await;
    run_at(&at, "toggle chat reject_rules on").await;
    let set = run_at(&at, "toggle chat reject_rules off --for 9m").await;
    let table = "\
TOGGLE        MODEL  VALUE  LEFT
reject_rules  -      off    9m, then on
";
    assert_eq!(set.stdout, table);
    assert_eq!(run_at(&at, "toggle chat -o json").await.json()["toggles"][0]["then"], "on");
    let status = run_at(&at, "status").await.stdout;
    assert!(status.contains("\n  toggled: reject_rules off, 9m left, then on\n"), "{status}");
    run_at(&at, "toggle chat reject_rules off").await;
    let set = run_at(&at, "toggle chat ttft_limit_ms 100 --for 30m").await.stdout;
    assert!(set.contains("off    until reset\n") && set.contains("100    30m\n"), "the control: {set}");
}
