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
            {"name": "load_rate_limit", "model": null, "value": "off", "left_ms": 1_800_000},
            {"name": "ttft_limit_ms", "model": "m1", "value": "2500", "left_ms": null},
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
