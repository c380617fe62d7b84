//! 17 to 29, 33 and 41 to 43: the adaptive limit.

use crate::flow::aimd::{self, AimdOptions, Bounds};
use crate::flow::cluster_avg::ClusterAvg;
use crate::flow::fixtures::*;
use crate::flow::pool_flow::Flow;

/// A step of the standard pool.
fn std_step(stored: Option<f64>, conc: u32, rej: u32, is_overloaded: bool) -> f64 {
    let options = aimd_options();
    let bounds = aimd::bounds(&options, 128);
    assert_eq!(bounds, Bounds { min: 51.0, init: 51.0, max: 128.0 });
    aimd::step(&options, &bounds, stored, conc, rej, is_overloaded)
}

#[test]
fn example_17_a_floor_by_fraction() {
    let options = AimdOptions { min_frac: 0.1, ..aimd_options() };
    assert_close(aimd::bounds(&options, 40).min, 4.0);
}

#[test]
fn example_18_a_floor_above_the_maximum() {
    let options = AimdOptions { min: Some(10.0), ..aimd_options() };
    let bounds = aimd::bounds(&options, 6);
    assert_close(bounds.min, 6.0);
    assert_close(aimd::step(&options, &bounds, Some(6.0), 6, 0, true), 6.0);
}

#[test]
fn example_19_where_it_starts() {
    for (init, init_frac, expected) in
        [(Some(20.0), None, 20.0), (None, Some(0.1), 20.0), (Some(0.5), None, 2.0), (Some(500.0), None, 200.0)]
    {
        let options = AimdOptions { min: Some(2.0), init, init_frac, ..aimd_options() };
        assert_close(aimd::bounds(&options, 200).init, expected);
    }
}

#[test]
fn example_20_pressure() {
    assert_close(std_step(Some(60.0), 57, 0, false), 61.2);
}

#[test]
fn example_21_dead_band() {
    assert_close(std_step(Some(60.0), 48, 0, false), 60.0);
}

#[test]
fn example_22_slack_and_hold() {
    assert_close(std_step(Some(60.0), 30, 0, false), 58.2);
    let options = AimdOptions { hold_when_idle: true, ..aimd_options() };
    let bounds = aimd::bounds(&options, 128);
    assert_close(aimd::step(&options, &bounds, Some(60.0), 30, 0, false), 60.0);
}

#[test]
fn example_23_slack_stops_at_the_start() {
    assert_close(std_step(Some(52.0), 30, 0, false), 51.0);
}

#[test]
fn example_24_idle_is_not_slack() {
    assert_close(std_step(Some(60.0), 0, 0, false), 60.0);
}

/// Through the pool, for the count of refusals.
fn pool_with_refusals(tps: u32) -> (f64, u32) {
    let options = adaptive_options();
    let mut flow = flow_at_limit(60.0);
    flow.judged(at(40), &options, 10);
    for _ in 0..3 {
        flow.over(at(40), &options, None);
    }
    assert_eq!(flow.adaptive(at(40), &options, 128).unwrap().rej, 3);
    set_tps(&mut flow, at(60), &options, tps);
    assert!(flow.step(at(60), &options, 128));
    let view = flow.adaptive(at(60), &options, 128).unwrap();
    (view.value.unwrap(), view.rej)
}

#[test]
fn example_25_refusals_raise_and_overload_beats_them() {
    assert_close(std_step(Some(60.0), 10, 3, false), 61.2);
    assert_close(std_step(Some(60.0), 10, 3, true), 58.2);
    for (tps, expected) in [(64, 61.2), (19, 58.2)] {
        let (value, rej) = pool_with_refusals(tps);
        assert_close(value, expected);
        assert_eq!(rej, 0);
    }
}

#[test]
fn example_26_overload_without_a_value() {
    assert_close(std_step(None, 0, 0, true), 51.0);
}

#[test]
fn example_27_back_to_the_start() {
    let options = AimdOptions { min: Some(2.0), init: Some(20.0), ..aimd_options() };
    let bounds = aimd::bounds(&options, 200);
    assert_close(aimd::step(&options, &bounds, Some(12.0), 1, 0, false), 12.24);
    assert_close(aimd::step(&options, &bounds, Some(19.9), 1, 0, false), 20.0);
}

fn low(inc: f64) -> (AimdOptions, Bounds) {
    let options = AimdOptions { min: Some(2.0), init: Some(2.0), inc, ..aimd_options() };
    let bounds = aimd::bounds(&options, 200);
    assert_eq!(bounds, Bounds { min: 2.0, init: 2.0, max: 200.0 });
    (options, bounds)
}

#[test]
fn example_28_pressure_by_headroom() {
    let (options, bounds) = low(2.0);
    assert_close(aimd::step(&options, &bounds, Some(10.0), 6, 0, false), 11.0);
}

#[test]
fn example_29_small_limits_grow_even_idle() {
    let (options, bounds) = low(1.02);
    assert_close(aimd::step(&options, &bounds, Some(2.0), 0, 0, false), 2.04);
}

// Example 30 is the pool's: which backends `pool_limit` is the sum of (rulings §3: the candidates now, of the active tier,
// or of all tiers with `cross_tier_fallback`; not the largest tier). 31 and 32 are of what is admitted under a limit. Their
// tests stand in `admit`.

#[test]
fn example_33_a_ban_lowers_the_limit_at_once() {
    let options = adaptive_options();
    let flow = flow_at_limit(6.0);
    assert_close(flow.limit(at(0), &options, 6, 6), 6.0);
    assert_close(flow.limit(at(0), &options, 3, 6), 3.0);
}

fn steps_between(from: f64, to: f64, is_overloaded: bool) -> u32 {
    let options = aimd_options();
    let bounds = aimd::bounds(&options, 128);
    let (mut value, mut steps) = (from, 0);
    while (value - to).abs() > 1e-9 && steps < 1000 {
        // In flight as many as the limit lets in.
        let conc = burst(value, 200);
        value = aimd::step(&options, &bounds, Some(value), conc, 0, is_overloaded);
        steps += 1;
    }
    steps
}

#[test]
fn example_41_from_the_start_to_the_top() {
    assert_eq!(steps_between(51.0, 128.0, false), 47);
}

#[test]
fn example_42_from_the_top_to_the_floor() {
    assert_eq!(steps_between(128.0, 51.0, true), 31);
}

#[test]
fn example_43_the_mean_is_of_the_slots_present() {
    let mut avg = ClusterAvg::default();
    for (slot, in_flight) in (0..).zip([10, 20, 30]) {
        avg.record(at(slot * 30), secs(30), in_flight);
    }
    let view = avg.read(at(60), secs(30));
    assert_eq!(view.samples, 3);
    assert_close(view.avg, 20.0);
    let mut flow = Flow::default();
    flow.record_in_flight(at(60), &gate_options(), 7);
    assert_eq!(flow.cluster_avg(at(60), &gate_options()).buckets[2], Some(7));
}
