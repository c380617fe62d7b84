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
