//! Rules of limits.md §6 to §8, §10 and §13 for a whole pool, without session priority.

use super::super::aimd::AimdOptions;
use super::super::controller::ControllerView;
use super::super::fixtures::{
    adaptive_options, aimd_options, answer, assert_close, at, avg, flow_at_limit, gate_options, is_refused, secs,
    set_tps, set_ttft,
};
use super::super::metric::Statistic;
use super::super::signal::SignalOptions;
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
fn limits_6_1_what_the_limit_is() {
    let now = at(0);
    let stored = flow_at_limit(60.0);
    assert_close(stored.limit(now, &adaptive_options(), 128, 128), 60.0);
    assert_close(stored.limit(now, &adaptive_options(), 40, 128), 40.0);
    let new = Flow::default();
    assert_close(new.limit(now, &adaptive_options(), 128, 128), 51.0);
    assert_close(new.limit(now, &adaptive_options(), 40, 128), 40.0);
    let adaptive = Some(AimdOptions { init: Some(90.0), ..aimd_options() });
    assert_close(new.limit(now, &FlowOptions { adaptive, ..gate_options() }, 128, 128), 90.0);
    // Not adaptive, or without throughput: the pool's limit at once, and the value comes back.
    assert_close(stored.limit(now, &gate_options(), 128, 128), 128.0);
    assert_close(stored.limit(now, &FlowOptions { tps_on: false, ..adaptive_options() }, 128, 128), 128.0);
}

#[test]
fn a_factor_that_cannot_be_is_1() {
    for factor in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let options = FlowOptions { rt_limit_factor: factor, ..gate_options() };
        assert_close(Flow::default().ceiling(at(0), &options, 8, 8, None), 8.0);
    }
    let options = FlowOptions { rt_limit_factor: 0.5, ..gate_options() };
    assert_close(Flow::default().ceiling(at(0), &options, 8, 8, None), 4.0);
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
    // Neither in a pool that isn't adaptive.
    for other in [gate_options(), FlowOptions { tps_on: false, ..adaptive_options() }] {
        let mut flow = Flow::default();
        flow.judged(at(0), &other, 7);
        flow.over(at(0), &other, None);
        assert_eq!((view(&flow, at(0), &options).conc, view(&flow, at(0), &options).rej), (None, 0));
    }
}

#[test]
fn limits_6_2_ttft_at_the_threshold_trips() {
    let options = gate_options();
    for (ms, is_tripped) in [(29_999.0, false), (30_000.0, true)] {
        let mut flow = Flow::default();
        set_ttft(&mut flow, at(1000), &options, ms);
        assert_eq!(flow.peek(at(1000), &options, None).would_trip_ttft, is_tripped);
        let admitted = (0..9).filter(|_| !is_refused(&flow.judge(at(1000), &options, None))).count();
        assert_eq!(admitted, if is_tripped { 5 } else { 9 });
    }
}

#[test]
fn limits_6_3_tps_at_the_threshold_trips() {
    let options = gate_options();
    for (tps, is_tripped) in [(21, false), (20, true)] {
        let mut flow = Flow::default();
        set_tps(&mut flow, at(1000), &options, tps);
        assert_eq!(flow.peek(at(1000), &options, None).would_trip_tps, is_tripped);
        let admitted = (0..9).filter(|_| !is_refused(&flow.judge(at(1000), &options, None))).count();
        assert_eq!(admitted, if is_tripped { 5 } else { 9 });
        let adaptive = adaptive_options();
        assert!(!flow.peek(at(1000), &adaptive, None).would_trip_tps);
        assert_eq!(flow.judge(at(1000), &adaptive, None), Verdict::default());
    }
}

#[test]
fn limits_5_4_any_metric_trips_and_the_first_of_them_is_named() {
    let named = |name: &str, threshold| Metric { name: name.to_owned(), threshold, ..avg(0.0) };
    let p50 = Metric { statistic: Statistic::Quantile(0.5), ..named("p50", Some(99_999.0)) };
    let mut options = gate_options();
    options.ttft_metrics = vec![p50, named("free", None), named("b", Some(500.0)), named("a", Some(400.0))];
    let mut flow = Flow::default();
    set_ttft(&mut flow, at(1000), &options, 450.0);
    options.ttft.probes_per_window = 0;
    let refusal = |options: &FlowOptions| flow.peek(at(1000), options, None).refusal;
    assert_eq!(
        refusal(&options),
        Some(LatencyRefusal { gate: LatencyGate::Ttft, metric: "a".to_owned(), ewma: 450.0, threshold: 400.0 })
    );
    options.ttft_metrics[2].threshold = Some(450.0);
    assert_eq!(refusal(&options).map(|refusal| refusal.metric), Some("b".to_owned()));
    // Without thresholds, or without metrics, there is nothing to trip.
    for metric in &mut options.ttft_metrics {
        metric.threshold = None;
    }
    assert_eq!(refusal(&options), None);
    assert_eq!(flow.ttft_metrics(at(1000), &options)[1].ewma, Some(450.0), "measured all the same");
    options.ttft_metrics.clear();
    assert_eq!(refusal(&options), None);
}

#[test]
fn limits_5_3_an_expired_ewma_lets_traffic_through() {
    let options = FlowOptions { ttft: SignalOptions { probes_per_window: 0, ..gate_options().ttft }, ..gate_options() };
    let mut flow = Flow::default();
    set_ttft(&mut flow, at(1000), &options, 40_000.0);
    assert!(is_refused(&flow.judge(at(1060), &options, None)));
    assert_eq!(flow.judge(UnixMs(1_060_001), &options, None), Verdict::default());
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
fn limits_12_8_off_is_a_whole_feature_switch() {
    let off = FlowOptions { ttft_on: false, tps_on: false, ..gate_options() };
    let mut flow = Flow::default();
    set_ttft(&mut flow, at(1000), &off, 40_000.0);
    set_tps(&mut flow, at(1000), &off, 16);
    assert_eq!(flow, Flow::default(), "no samples");
    set_ttft(&mut flow, at(1000), &gate_options(), 40_000.0);
    set_tps(&mut flow, at(1000), &gate_options(), 16);
    let verdict = flow.peek(at(1000), &gate_options(), None);
    assert!(verdict.would_trip_ttft && verdict.would_trip_tps);
    assert_eq!(flow.judge(at(1000), &off, None), Verdict::default());
}

#[test]
fn limits_2_a_request_takes_no_slot_of_a_gate_that_it_does_not_reach() {
    let mut options = gate_options();
    options.ttft.probes_per_window = 2;
    options.tps.probes_per_window = 1;
    let mut flow = Flow::default();
    set_ttft(&mut flow, at(1000), &options, 40_000.0);
    set_tps(&mut flow, at(1000), &options, 16);
    let used = |flow: &Flow| {
        (
            flow.probes_used(at(1000), &options, LatencyGate::Ttft).0,
            flow.probes_used(at(1000), &options, LatencyGate::Tps).0,
        )
    };
    assert_eq!(flow.judge(at(1000), &options, None).refusal, None);
    assert_eq!(used(&flow), (1, 1));
    let gate = |flow: &mut Flow| flow.judge(at(1000), &options, None).refusal.map(|refusal| refusal.gate);
    assert_eq!(gate(&mut flow), Some(LatencyGate::Tps));
    assert_eq!(used(&flow), (2, 1), "the slot of the first gate is spent even so");
    assert_eq!(gate(&mut flow), Some(LatencyGate::Ttft));
    assert_eq!(used(&flow), (2, 1));
}

#[test]
fn a_peek_changes_nothing_and_says_what_comes() {
    let mut options = gate_options();
    options.ttft.probes_per_window = 1;
    let mut flow = Flow::default();
    set_ttft(&mut flow, at(1000), &options, 40_000.0);
    for is_expected in [false, true, true] {
        let before = flow.clone();
        let peeked = flow.peek(at(1000), &options, None);
        assert_eq!(flow, before);
        assert_eq!(peeked, flow.judge(at(1000), &options, None));
        assert_eq!(is_refused(&peeked), is_expected);
    }
}

#[test]
fn limits_10_with_the_master_switch_off_trips_are_only_counted() {
    let off = FlowOptions { is_enforced: false, ..gate_options() };
    let mut flow = Flow::default();
    set_ttft(&mut flow, at(1000), &off, 40_000.0);
    set_tps(&mut flow, at(1000), &off, 16);
    for _ in 0..9 {
        let verdict = flow.judge(at(1000), &off, None);
        assert_eq!(verdict, Verdict { refusal: None, would_trip_ttft: true, would_trip_tps: true });
    }
    flow.over(at(1000), &off, None);
    assert_eq!(flow.trips(), Trips { concurrency: 1, ttft: 9, tps: 9 });
    assert_eq!(flow.probes_used(at(1000), &off, LatencyGate::Ttft), (0, 0));
    // On again: all slots are there, and these trips are nobody's.
    let on = gate_options();
    let admitted = (0..9).filter(|_| !is_refused(&flow.judge(at(1000), &on, None))).count();
    flow.over(at(1000), &on, None);
    assert_eq!(admitted, 5);
    assert_eq!(flow.trips(), Trips { concurrency: 1, ttft: 9, tps: 9 });
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

#[test]
fn limits_4_answers_without_a_count_are_counted_for_a_while() {
    let options = gate_options();
    let mut flow = Flow::default();
    let silent = AnswerTimes { tokens: None, ..answer(0, secs(1)) };
    flow.record_answer(at(1000), &options, &silent);
    flow.record_answer(at(1050), &options, &silent);
    flow.record_answer(at(1050), &options, &answer(15, secs(3)));
    assert_eq!(flow.no_usage(at(1060), &options), 2);
    assert_eq!(flow.no_usage(UnixMs(1_060_001), &options), 0);
    flow.record_answer(at(1070), &options, &silent);
    assert_eq!(flow.no_usage(at(1070), &options), 1);
    let off = FlowOptions { tps_on: false, ..gate_options() };
    flow.record_answer(at(1070), &off, &silent);
    assert_eq!(flow.no_usage(at(1070), &options), 1);
}

#[test]
fn a_stored_state_may_lack_parts_and_hold_others() {
    assert_eq!(serde_json::from_str::<Flow>("{}").unwrap(), Flow::default());
    let newer = r#"{"later": [1], "ttft_gate": {"later": 1}, "tps": {"kind": "tps"}, "turns": {"minute": {}}}"#;
    assert_eq!(serde_json::from_str::<Flow>(newer).unwrap(), Flow::default());
}
