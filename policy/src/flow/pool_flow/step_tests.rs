//! Rules of limits.md §6.1, §6.4 and §8.2 for a whole pool: what the adaptive limit remembers, and when it moves.

use super::super::aimd::AimdOptions;
use super::super::controller::ControllerView;
use super::super::fixtures::{
    adaptive_options, aimd_options, answer, assert_close, at, flow_at_limit, gate_options, secs, set_tps, set_ttft,
};
use super::*;

fn view(flow: &Flow, now: UnixMs, options: &FlowOptions) -> ControllerView {
    flow.adaptive(now, options, 128).unwrap()
}

/// A pool that became adaptive at `t = 0`, with 60 in flight of then and this throughput; its first step is due.
fn due(options: &FlowOptions, tps: u32) -> Flow {
    let mut flow = flow_at_limit(60.0);
    set_tps(&mut flow, at(20), options, tps);
    flow.judged(at(20), options, 60);
    flow
}

#[test]
fn limits_6_1_load_and_refusals_count_for_their_time() {
    let options = adaptive_options();
    let mut flow = Flow::default();
    flow.judged(at(0), &options, 7);
    flow.over(at(0), &options, None);
    flow.judged(at(30), &options, 8);
    flow.over(at(30), &options, None);
    let seen = |now| (view(&flow, now, &options).conc, view(&flow, now, &options).rej);
    assert_eq!(seen(at(60)), (Some(8), 2));
    assert_eq!(seen(UnixMs(60_001)), (Some(8), 0), "the first refusal set the time");
    assert_eq!(seen(at(90)), (Some(8), 0));
    assert_eq!(seen(UnixMs(90_001)), (None, 0));
    flow.over(UnixMs(60_001), &options, None);
    assert_eq!(view(&flow, UnixMs(60_001), &options).rej, 1);
    let slow = FlowOptions { adaptive: Some(AimdOptions { interval: secs(30), ..aimd_options() }), ..gate_options() };
    let mut other = Flow::default();
    other.judged(at(0), &slow, 7);
    assert_eq!(view(&other, at(90), &slow).conc, Some(7), "three intervals, if those are longer");
    assert_eq!(view(&other, UnixMs(90_001), &slow).conc, None);
    // Neither in a pool that isn't adaptive.
    for other in [gate_options(), FlowOptions { tps_on: false, ..adaptive_options() }] {
        let mut flow = Flow::default();
        flow.judged(at(0), &other, 7);
        flow.over(at(0), &other, None);
        assert_eq!((view(&flow, at(0), &options).conc, view(&flow, at(0), &options).rej), (None, 0));
    }
}

#[test]
fn limits_6_2_the_hard_switch_stops_refusals_and_not_the_controller() {
    let options = FlowOptions { ttft_429: false, ..adaptive_options() };
    let mut flow = due(&options, 64);
    set_ttft(&mut flow, at(40), &options, 40_000.0);
    for _ in 0..9 {
        assert_eq!(flow.judge(at(40), &options, None), Verdict::default());
    }
    assert_eq!(flow.probes_used(at(40), &options, LatencyGate::Ttft), (0, 0));
    assert!(flow.judge(at(40), &adaptive_options(), None).would_trip_ttft);
    assert!(flow.step(at(40), &options, 128));
    assert_close(flow.limit(at(40), &options, 128, 128), 58.2);
}

#[test]
fn rulings_3_refusals_count_for_the_controller_while_the_master_switch_is_off() {
    let options = FlowOptions { is_enforced: false, ..adaptive_options() };
    let mut flow = due(&options, 64);
    flow.judged(at(20), &options, 0);
    flow.over(at(20), &options, None);
    assert!(flow.step(at(40), &options, 128));
    assert_close(view(&flow, at(40), &options).value.unwrap(), 61.2);
}

#[test]
fn limits_8_2_the_first_step_comes_one_interval_after_the_pool_became_adaptive() {
    let options = adaptive_options();
    let mut flow = Flow::default();
    assert_eq!(flow.next_step(&options), None);
    flow.judged(at(7), &options, 51);
    assert_eq!(flow.next_step(&options), Some(at(27)));
    assert_eq!(flow.next_step(&gate_options()), None);
    flow.record_answer(at(8), &options, &answer(64, secs(1)));
    flow.record_answer(at(20), &options, &answer(64, secs(1)));
    assert!(!flow.step(UnixMs(26_999), &options, 128));
    assert!(flow.step(at(27), &options, 128));
    assert_close(view(&flow, at(27), &options).value.unwrap(), 52.02);
    // However late, one step, and a whole interval to the next.
    assert_eq!(flow.next_step(&options), Some(at(47)));
    assert!(flow.step(at(60), &options, 128));
    assert!(!flow.step(UnixMs(79_999), &options, 128));
    // Off and on again: the value is still there, and the interval is new.
    assert!(!flow.step(at(81), &FlowOptions { tps_on: false, ..adaptive_options() }, 128));
    assert!(!flow.step(at(82), &options, 128));
    assert_eq!(flow.next_step(&options), Some(at(102)));
    assert!(view(&flow, at(82), &options).value.is_some());
}

#[test]
fn an_interval_of_nothing_does_not_make_steps_without_end() {
    let adaptive = Some(AimdOptions { interval: Duration::ZERO, ..aimd_options() });
    let options = FlowOptions { adaptive, ..gate_options() };
    let mut flow = due(&options, 64);
    assert!(flow.step(at(40), &options, 128));
    assert!(!flow.step(at(40), &options, 128));
    assert!(flow.next_step(&options).unwrap() > at(40));
}

#[test]
fn a_clock_set_back_does_not_stop_the_steps() {
    let options = adaptive_options();
    let mut flow = due(&options, 64);
    flow.step(at(40), &options, 128);
    assert_eq!(flow.next_step(&options), Some(at(60)));
    flow.judged(at(10), &options, 51);
    assert_eq!(flow.next_step(&options), Some(at(30)));
}

#[test]
fn limits_8_2_no_throughput_no_step() {
    let options = adaptive_options();
    let mut flow = flow_at_limit(60.0);
    flow.judged(at(0), &options, 60);
    flow.over(at(10), &options, None);
    set_ttft(&mut flow, at(20), &options, 40_000.0);
    let before = view(&flow, at(20), &options);
    assert!(!flow.step(at(20), &options, 128), "a slow first token alone moves nothing");
    assert_eq!(view(&flow, at(20), &options), before, "the refusal is still there");
    set_tps(&mut flow, at(40), &options, 64);
    assert!(flow.step(at(40), &options, 128));
    assert_eq!(view(&flow, at(40), &options).rej, 0);
    assert_close(view(&flow, at(40), &options).value.unwrap(), 58.2);
}

#[test]
fn limits_6_4_the_controller_wants_strictly_beyond() {
    for (tps, ttft, expected) in [(20, 0.0, 61.2), (19, 0.0, 58.2), (64, 30_000.0, 61.2), (64, 30_001.0, 58.2)] {
        let options = adaptive_options();
        let mut flow = due(&options, tps);
        set_ttft(&mut flow, at(40), &options, ttft);
        assert!(flow.step(at(40), &options, 128));
        assert_close(view(&flow, at(40), &options).value.unwrap(), expected);
    }
}

#[test]
fn limits_8_2_slow_first_tokens_count_only_when_asked_to() {
    let ignoring = FlowOptions { adaptive: Some(AimdOptions { use_ttft: false, ..aimd_options() }), ..gate_options() };
    for (options, expected) in [(adaptive_options(), 58.2), (ignoring, 61.2)] {
        let mut flow = due(&options, 64);
        set_ttft(&mut flow, at(40), &options, 40_000.0);
        let off = FlowOptions { ttft_on: false, ..options.clone() };
        let mut other = flow.clone();
        flow.step(at(40), &options, 128);
        assert_close(view(&flow, at(40), &options).value.unwrap(), expected);
        other.step(at(40), &off, 128);
        assert_close(view(&other, at(40), &off).value.unwrap(), 61.2);
    }
}

#[test]
fn limits_8_2_without_thresholds_the_value_is_kept_and_refusals_are_spent() {
    let mut options = adaptive_options();
    options.tps_metrics[0].threshold = None;
    let mut flow = due(&options, 16);
    flow.over(at(20), &options, None);
    assert!(!flow.step(at(40), &options, 128));
    assert_close(view(&flow, at(40), &options).value.unwrap(), 60.0);
    assert_eq!(view(&flow, at(40), &options).rej, 0);
    options.tps_metrics[0].threshold = Some(20.0);
    assert!(due(&options, 16).step(at(40), &options, 128), "with one, it falls");
}

#[test]
fn a_pool_without_backends_makes_no_step() {
    let options = adaptive_options();
    let mut flow = due(&options, 64);
    flow.over(at(20), &options, None);
    assert!(!flow.step(at(40), &options, 0));
    assert_eq!(view(&flow, at(40), &options).rej, 1);
    assert!(flow.step(at(60), &options, 128));
}

#[test]
fn limits_8_2_a_value_lasts_for_its_ttl_and_under_hold_for_ever() {
    let held = FlowOptions { adaptive: Some(AimdOptions { hold_when_idle: true, ..aimd_options() }), ..gate_options() };
    let stepped = |options: &FlowOptions| {
        let mut flow = due(options, 64);
        assert!(flow.step(at(40), options, 128));
        flow
    };
    let flow = stepped(&adaptive_options());
    assert_close(flow.limit(at(340), &adaptive_options(), 128, 128), 61.2);
    assert_close(flow.limit(UnixMs(340_001), &adaptive_options(), 128, 128), 51.0);
    let mut flow = stepped(&held);
    assert_close(flow.limit(at(1_000_000), &held, 128, 128), 61.2);
    // Turned off later, the time begins with the next write.
    assert_close(flow.limit(at(1_000_000), &adaptive_options(), 128, 128), 61.2);
    set_tps(&mut flow, at(1_000_020), &adaptive_options(), 64);
    flow.step(at(1_000_020), &adaptive_options(), 128);
    assert_eq!(view(&flow, at(1_000_321), &adaptive_options()).value, None);
}

#[test]
fn limits_12_4_the_page_predicts_the_next_step() {
    let options = adaptive_options();
    for (conc, pressure, slack) in [(57, true, false), (48, false, false), (30, false, true), (0, false, false)] {
        let mut flow = due(&options, 64);
        flow.judged(at(20), &options, conc);
        let view = view(&flow, at(20), &options);
        assert_eq!((view.at_pressure, view.at_slack), (pressure, slack), "{conc} in flight");
        flow.step(at(40), &options, 128);
        let change = flow.limit(at(40), &options, 128, 128) - 60.0;
        assert_eq!((change > 0.0, change < 0.0), (pressure, slack));
    }
}
