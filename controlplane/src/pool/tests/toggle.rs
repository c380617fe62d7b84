//! Toggles that undo themselves.

use router_policy::flow::UnixMs;
use router_policy::toggle::{Toggle, ToggleKey, Toggles};

use super::*;

fn set(name: &str, value: &str, until: Option<UnixMs>) -> Toggles {
    let key = ToggleKey::parse(name, "").unwrap();
    let value = key.parse_value(value).unwrap();
    let mut toggles = Toggles::default();
    toggles.set(Toggle { key, value, until });
    toggles
}

#[tokio::test(start_paused = true)]
async fn limits_10_the_master_switch_is_off_for_its_time_and_no_longer() {
    let mut bench = Bench::new(1, json!({"max_concurrency": 1, "max_waiting": 0})).await;
    bench.ask(Asked::default());
    let _holder = bench.granted().await;
    bench.ask(Asked::default());
    assert_eq!(bench.refused().await.gate, i32::from(v1::Gate::QueueFull), "the control: it is on");

    let clock = bench.pool.context.clock;
    let until = UnixMs(clock.unix_ms(clock.now()) + 60_000);
    bench.pool.set_toggles(set("load_rate_limit", "off", Some(until)));
    let next = bench.pool.tick().expect("a toggle that undoes itself is an event");
    assert!(clock.unix_ms(next) <= until.0);
    tokio::time::advance(Duration::from_millis(59_999)).await;
    bench.pool.tick();
    bench.ask(Asked::default());
    bench.granted().await;
    assert_eq!(bench.loads(), [2], "over its limit");
    assert_eq!(bench.pool.toggle_states()[0].left_ms, 1);

    tokio::time::advance(Duration::from_millis(1)).await;
    bench.pool.take_dirty();
    bench.pool.tick();
    assert!(bench.pool.take_dirty(), "replicas hear of it");
    bench.ask(Asked::default());
    assert_eq!(bench.refused().await.gate, i32::from(v1::Gate::QueueFull));
    assert_eq!(bench.pool.toggle_states(), []);
}

#[tokio::test(start_paused = true)]
async fn a_toggle_for_ever_stays() {
    let mut bench = Bench::new(1, json!({"max_concurrency": 1, "max_waiting": 0})).await;
    bench.pool.set_toggles(set("load_rate_limit", "off", None));
    tokio::time::advance(Duration::from_secs(86_400 * 400)).await;
    bench.pool.tick();
    for _ in 0..3 {
        bench.ask(Asked::default());
        bench.granted().await;
    }
}

#[tokio::test(start_paused = true)]
async fn after_its_time_what_was_set_before_holds_again_and_replicas_hear_of_it() {
    let bench = Bench::new(1, json!({})).await;
    let clock = bench.pool.context.clock;
    let until = UnixMs(clock.unix_ms(clock.now()) + 60_000);
    let mut toggles = set("reject_rules", "on", None);
    let key = ToggleKey::parse("reject_rules", "").unwrap();
    let value = key.parse_value("off").unwrap();
    toggles.set(Toggle { key, value, until: Some(until) });
    bench.pool.set_toggles(toggles);
    let told = || bench.pool.message().switches["reject_rules"].clone();
    tokio::time::advance(Duration::from_millis(59_999)).await;
    bench.pool.tick();
    assert_eq!((told().as_str(), bench.pool.toggle_states()[0].then.as_str()), ("off", "on"));
    tokio::time::advance(Duration::from_millis(1)).await;
    bench.pool.take_dirty();
    bench.pool.tick();
    assert!(bench.pool.take_dirty(), "replicas hear of it");
    let state = &bench.pool.toggle_states()[0];
    assert_eq!((told().as_str(), state.left_ms, state.then.as_str()), ("on", 0, ""));
}
