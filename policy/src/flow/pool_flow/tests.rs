//! Rules of limits.md §5 to §7, §10 and §12.8 for a whole pool, without session priority.

use super::super::aimd::AimdOptions;
use super::super::fixtures::{
    adaptive_options, aimd_options, answer, assert_close, at, avg, flow_at_limit, gate_options, is_refused, secs,
    set_tps, set_ttft,
};
use super::super::metric::Statistic;
use super::super::signal::SignalOptions;
use super::*;

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
