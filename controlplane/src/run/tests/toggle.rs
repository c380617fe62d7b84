//! Run-time switches and limits, on both databases.

use router_policy::ids::RouteName;
use serde_json::json;

use super::followed::{Place, Still, on_both_databases};
use super::*;
use crate::error::AdminError;
use crate::fleet::{BODY_LOG_BY, ToggleChange};
use crate::store::ToggleRow;

const DAY: Duration = Duration::from_secs(86_400);

async fn routed(place: &Place) -> Still {
    let still = place.start_following(None).await;
    let document = json!({"routes": [
        {"name": "chat", "backends": ["127.0.0.1:9"], "options": {"health_failures": 1000,
            "ttft_metrics": [{"metric": "avg", "threshold": 5}]}},
        {"name": "many", "backends": [{"address": "127.0.0.1:9", "models": ["a", "b"]}],
            "options": {"health_failures": 1000, "load_rate_limit": false}},
        {"name": "tps", "backends": ["127.0.0.1:9"], "options": {"health_failures": 1000, "tps_limit_tps": 20}}]});
    still.fleet.apply(&document, ApplyMode::default()).await.unwrap();
    still
}

fn on<'a>(route: &'a str, name: &'a str, value: &'a str) -> ToggleChange<'a> {
    ToggleChange { route, name, value, ..ToggleChange::default() }
}

/// `name`, `name/model` = value.
fn told(states: &[v1::ToggleState]) -> Vec<String> {
    let name = |state: &v1::ToggleState| match state.model.as_str() {
        "" => state.name.clone(),
        model => format!("{}/{model}", state.name),
    };
    states.iter().map(|state| format!("{}={}", name(state), state.value)).collect()
}

async fn rows(still: &Still) -> Vec<String> {
    let stored = still.fleet.store.load().await.unwrap().toggles;
    let text = |row: ToggleRow| format!("{} {} {} {}", row.route, row.name, row.model, row.value);
    let mut rows: Vec<String> = stored.into_iter().map(text).collect();
    rows.sort();
    rows
}

async fn what_is_set_outlives_the_process_and_changes_of_the_route_but_not_the_route(place: Place) {
    let first = routed(&place).await;
    let (states, note) = first.fleet.set_toggle(on("chat", "load_rate_limit", "off")).await.unwrap();
    assert_eq!((told(&states), note.as_str(), states[0].left_ms), (vec!["load_rate_limit=off".to_owned()], "", 0));
    let of_model = ToggleChange { model: "b", ttl: DAY, ..on("many", "tps_limit_tps", "12.5") };
    first.fleet.set_toggle(of_model).await.unwrap();
    let (states, _) = first.fleet.set_toggle(on("many", "tps_limit_tps", "7")).await.unwrap();
    assert_eq!(told(&states), ["tps_limit_tps=7", "tps_limit_tps/b=12.5"]);
    first.kill().await;

    let second = place.start_following(None).await;
    let pool = |route: &str| second.fleet.pool(route).unwrap();
    assert_eq!(told(&pool("chat").toggle_states()), ["load_rate_limit=off"]);
    let states = pool("many").toggle_states();
    assert_eq!(told(&states), ["tps_limit_tps=7", "tps_limit_tps/b=12.5"]);
    assert!(states[1].left_ms > 86_000_000 && states[1].left_ms <= 86_400_000, "{}", states[1].left_ms);
    assert_eq!(pool("chat").message().switches["load_rate_limit"], "off");

    second
        .fleet
        .edit("chat", |spec| {
            spec.is_default = true;
            Ok(())
        })
        .await
        .unwrap();
    assert_eq!(told(&pool("chat").toggle_states()), ["load_rate_limit=off"], "its document is another");

    let timed = || second.fleet.timed_toggles();
    let for_a_day = ToggleChange { ttl: DAY, ..on("chat", "ttft", "off") };
    second.fleet.set_toggle(for_a_day).await.unwrap();
    assert_eq!(timed(), 2, "one of each route");
    second.fleet.remove_route("chat").await.unwrap();
    assert_eq!(timed(), 1, "it goes with its route");
    assert_eq!(rows(&second).await, ["many tps_limit_tps  7", "many tps_limit_tps b 12.5"]);
    let again = json!({"name": "chat", "backends": ["127.0.0.1:9"]});
    second.fleet.apply(&again, ApplyMode::default()).await.unwrap();
    assert_eq!(told(&pool("chat").toggle_states()), [] as [&str; 0]);
    assert!(pool("chat").message().switches.is_empty());

    let reset = ToggleChange { is_reset: true, model: "b", ..on("many", "tps_limit_tps", "") };
    let (states, note) = second.fleet.set_toggle(reset).await.unwrap();
    assert_eq!((told(&states), note.as_str()), (vec!["tps_limit_tps=7".to_owned()], ""));
    assert_eq!(rows(&second).await, ["many tps_limit_tps  7"]);
    assert_eq!(second.fleet.set_toggle(reset).await.unwrap().1, "tps_limit_tps was not set");
    second.kill().await;
}

async fn bad_toggles_are_named_and_change_nothing(place: Place) {
    let still = routed(&place).await;
    let refused = async |change: ToggleChange<'_>| match still.fleet.set_toggle(change).await {
        Err(error @ (AdminError::Invalid(_) | AdminError::Argument { .. })) => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(refused(on("chat", "rate", "off")).await.starts_with("name: unknown toggle; allowed: load_rate_limit"));
    assert_eq!(refused(on("chat", "ttft", "perhaps")).await, "value: allowed: on, off");
    let of_limit = "number expected, got '-1'; allowed: more than 0, up to 86400000";
    assert_eq!(refused(on("chat", "ttft_limit_ms", "-1")).await, format!("value: {of_limit}"));
    let of_model = |route, model| ToggleChange { model, ..on(route, "ttft_limit_ms", "1") };
    assert_eq!(
        refused(of_model("many", "c")).await,
        "model: not a model of route many; allowed: a, b, or none for the whole route"
    );
    assert_eq!(
        refused(of_model("chat", "a")).await,
        "model: route chat has one pool for all models; allowed: no model"
    );
    let too_long = ToggleChange { ttl: 366 * DAY, ..on("chat", "ttft", "off") };
    assert_eq!(refused(too_long).await, "ttl: allowed: up to 365 days, or 0 for ever");
    // Everything at once.
    let all = ToggleChange { model: "c", value: "-1", ttl: 366 * DAY, ..on("many", "ttft_limit_ms", "") };
    let lines = format!(
        "model: not a model of route many; allowed: a, b, or none for the whole route\nvalue: {of_limit}\n\
         ttl: allowed: up to 365 days, or 0 for ever"
    );
    assert_eq!(refused(all).await, lines);
    let of_switch = ToggleChange { model: "a", ..on("many", "ttft", "perhaps") };
    assert_eq!(
        refused(of_switch).await,
        "model: ttft is a switch of the whole route; allowed: no model\nvalue: allowed: on, off"
    );
    assert_eq!(
        refused(ToggleChange { is_reset: true, ..all }).await,
        lines.lines().next().unwrap(),
        "no value is read"
    );
    let unknown = still.fleet.set_toggle(on("nowhere", "ttft", "off")).await.unwrap_err();
    assert!(matches!(unknown, AdminError::NotFound { what: "route", .. }));
    assert_eq!(rows(&still).await, [] as [&str; 0]);
    still.kill().await;
}

async fn notes_say_what_makes_a_toggle_idle(place: Place) {
    let still = routed(&place).await;
    let note = async |change: ToggleChange<'_>| still.fleet.set_toggle(change).await.unwrap().1;
    assert_eq!(
        note(on("chat", "ttft_limit_ms", "9")).await,
        "a declared list ttft_metrics comes before this limit: stored, without effect"
    );
    assert_eq!(
        note(on("many", "load_rate_limit", "off")).await,
        "load_rate_limit is already off by the route's option"
    );
    assert_eq!(note(on("many", "load_rate_limit", "on")).await, "");
    assert_eq!(note(on("many", "ttft", "off")).await, "");
    assert_eq!(
        note(ToggleChange { model: "a", ..on("many", "ttft_limit_ms", "9") }).await,
        "ttft is switched off: the limit has no effect while it is"
    );
    assert_eq!(
        note(on("chat", "reject_rules", "on")).await,
        "the route has no rules (option reject_rules): nobody is refused"
    );
    // It says so only where nothing changes.
    let off_for_a_while = ToggleChange { ttl: DAY, ..on("chat", "reject_rules", "off") };
    assert_eq!(note(off_for_a_while).await, "", "it was on by a toggle");
    assert_eq!(note(off_for_a_while).await, "reject_rules is already off by the route's option");
    let with_collector = BODY_LOG_BY;
    let by_option = "bodylog is already on by the route's option";
    assert_eq!(note(on("chat", "bodylog", "on")).await, format!("{by_option}; {with_collector}"));
    assert_eq!(note(on("chat", "bodylog_pct", "50")).await, "");
    assert_eq!(note(on("chat", "bodylog_pct", "0")).await, "of 100 requests 0 are captured");
    assert_eq!(
        note(on("chat", "bodylog", "on")).await,
        format!("{by_option}; {with_collector}; of 100 requests 0 are: bodylog_pct or bodylog_default_pct says so")
    );
    assert_eq!(note(on("chat", "bodylog", "off")).await, "");
    assert_eq!(note(on("chat", "bodylog_pct", "5")).await, "bodylog is off: nothing is captured");
    let sampled = "streams whose clients do not ask for token counts tell none: they are no samples of tps";
    assert_eq!(note(on("tps", "include_usage", "off")).await, sampled);
    assert_eq!(
        note(on("chat", "include_usage", "off")).await,
        "include_usage is already off by the route's option",
        "the control: it measures no tps"
    );
    still.kill().await;
}

async fn rows_whose_time_is_over_go(place: Place) {
    let first = routed(&place).await;
    let short = ToggleChange { ttl: Duration::from_millis(50), ..on("chat", "tps", "off") };
    first.fleet.set_toggle(short).await.unwrap();
    first.fleet.set_toggle(ToggleChange { ttl: DAY, ..on("chat", "ttft", "off") }).await.unwrap();
    assert_eq!(rows(&first).await.len(), 2, "until somebody looks");
    first.kill().await;
    tokio::time::sleep(Duration::from_millis(60)).await;

    let second = place.start_following(None).await;
    assert_eq!(told(&second.fleet.pool("chat").unwrap().toggle_states()), ["ttft=off"]);
    second.fleet.forget_expired_toggles().await;
    assert_eq!(rows(&second).await, ["chat ttft  off"]);
    // One that was set anew for ever stays, whatever it was before.
    second.fleet.set_toggle(short).await.unwrap();
    second.fleet.set_toggle(on("chat", "tps", "on")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(60)).await;
    second.fleet.forget_expired_toggles().await;
    assert_eq!(rows(&second).await, ["chat tps  on", "chat ttft  off"]);
    second.kill().await;
}

async fn after_its_time_what_was_set_before_holds_again(place: Place) {
    let first = routed(&place).await;
    let set = async |still: &Still, change: ToggleChange<'_>| still.fleet.set_toggle(change).await.unwrap().0;
    let short = |change| ToggleChange { ttl: Duration::from_millis(50), ..change };
    let day = |change| ToggleChange { ttl: DAY, ..change };
    set(&first, on("chat", "reject_rules", "on")).await;
    set(&first, day(on("chat", "reject_rules", "off"))).await;
    set(&first, on("chat", "ttft_limit_ms", "900")).await;
    let states = set(&first, short(on("chat", "ttft_limit_ms", "100"))).await;
    assert_eq!(
        (told(&states), states[1].then.as_str()),
        (vec!["reject_rules=off".into(), "ttft_limit_ms=100".into()], "900")
    );
    first.kill().await;
    tokio::time::sleep(Duration::from_millis(60)).await;

    let second = place.start_following(None).await;
    let states = async || second.fleet.pool("chat").unwrap().toggle_states();
    let now = states().await;
    assert_eq!(told(&now), ["reject_rules=off", "ttft_limit_ms=900"]);
    assert_eq!((now[0].then.as_str(), now[1].then.as_str(), now[1].left_ms), ("on", "", 0));
    second.fleet.forget_expired_toggles().await;
    assert_eq!(rows(&second).await, ["chat reject_rules  off", "chat ttft_limit_ms  900"]);
    assert_eq!(second.fleet.timed_toggles(), 1);
    // For another time: what was set until undone is still beneath, once more over a restart.
    set(&second, short(on("chat", "reject_rules", "off"))).await;
    second.kill().await;
    tokio::time::sleep(Duration::from_millis(60)).await;
    let third = place.start_following(None).await;
    assert_eq!(told(&third.fleet.pool("chat").unwrap().toggle_states()), ["reject_rules=on", "ttft_limit_ms=900"]);
    assert_eq!(third.fleet.pool("chat").unwrap().message().switches["reject_rules"], "on");
    // One that is set until undone replaces both, and a reset undoes both.
    set(&third, day(on("chat", "reject_rules", "off"))).await;
    let states = set(&third, on("chat", "reject_rules", "off")).await;
    assert_eq!((states[0].left_ms, states[0].then.as_str(), third.fleet.timed_toggles()), (0, "", 0));
    set(&third, day(on("chat", "reject_rules", "on"))).await;
    let reset = ToggleChange { is_reset: true, ..on("chat", "reject_rules", "") };
    assert_eq!(told(&set(&third, reset).await), ["ttft_limit_ms=900"]);
    assert_eq!(rows(&third).await, ["chat ttft_limit_ms  900"]);
    third.kill().await;
}

async fn rows_that_mean_nothing_are_passed_over(place: Place) {
    let first = routed(&place).await;
    let row = |name: &str, value: &str| ToggleRow {
        route: RouteName::new("chat").unwrap(),
        name: name.to_owned(),
        model: String::new(),
        value: value.to_owned(),
        until_unix_ms: None,
        standing: None,
    };
    let over =
        |row: ToggleRow| ToggleRow { until_unix_ms: Some(i64::MAX.unsigned_abs()), standing: Some("on".into()), ..row };
    let rows = [row("of_tomorrow", "1"), row("tps", "off"), row("ttft", "2"), over(row("bodylog", "maybe"))];
    first.fleet.store.save_toggles(&rows, &[]).await.unwrap();
    first.kill().await;
    let second = place.start_following(None).await;
    assert_eq!(told(&second.fleet.pool("chat").unwrap().toggle_states()), ["tps=off", "bodylog=on"]);
    second.kill().await;
}

on_both_databases![
    what_is_set_outlives_the_process_and_changes_of_the_route_but_not_the_route,
    bad_toggles_are_named_and_change_nothing,
    notes_say_what_makes_a_toggle_idle,
    rows_whose_time_is_over_go,
    after_its_time_what_was_set_before_holds_again,
    rows_that_mean_nothing_are_passed_over,
];

#[tokio::test]
async fn replicas_hear_of_a_switch_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(folder.path(), Duration::from_secs(600)).await;
    running.one_route().await;
    let mut client = CoordinatorClient::new(running.channel.clone());
    let mut snapshots = client.watch(v1::WatchRequest::default()).await.unwrap().into_inner();
    let mut switches = async || {
        loop {
            let snapshot = tokio::time::timeout(SOON, snapshots.message()).await.expect("a snapshot").unwrap().unwrap();
            if let Some(route) = snapshot.routes.into_iter().find(|route| route.name == "chat") {
                return route.switches;
            }
        }
    };
    assert!(switches().await.is_empty());
    let off = v1::SetToggleRequest {
        route: "chat".to_owned(),
        name: "session_prio".to_owned(),
        value: "on".to_owned(),
        ttl_ms: 2000,
        ..v1::SetToggleRequest::default()
    };
    let reply = running.admin().set_toggle(off.clone()).await.unwrap().into_inner();
    assert!((1..=2000).contains(&reply.toggles[0].left_ms));
    assert_eq!(switches().await["session_prio"], "on");
    assert!(switches().await.is_empty(), "its time is over, and replicas hear of that too");
    let bad = running.admin().set_toggle(v1::SetToggleRequest { name: "prio".to_owned(), ..off }).await.unwrap_err();
    assert_eq!(bad.code(), Code::InvalidArgument);
    running.stop().await;
}
