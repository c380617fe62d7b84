//! 1 to 15, 44 and 45: samples, windows, EWMAs, probes. 16 is tested in `body::usage`.

use crate::flow::controller::ControllerView;
use crate::flow::fixtures::*;
use crate::flow::options::FlowOptions;
use crate::flow::pool_flow::{Flow, LatencyGate};
use crate::flow::signal::{Signal, SignalKind, SignalOptions, windows_to_fold};
use crate::flow::time::UnixMs;
use crate::flow::tokens::{self, AnswerTimes, Sample, TpsBasis};
use crate::flow::window::{Counts, TPS_BOUNDS, TTFT_BOUNDS_MS};
use crate::flow::{Metric, Statistic};
use std::time::Duration;

const BOUNDS: [f64; 5] = [100.0, 200.0, 400.0, 800.0, 1600.0];

/// Some numbers of samples, each number with its value.
fn counts(samples: &[(u32, f64)], bounds: &[f64]) -> Counts {
    let mut counts = Counts::default();
    for (number, value) in samples {
        for _ in 0..*number {
            counts.add(*value, bounds);
        }
    }
    counts
}

#[test]
fn example_01_four_fast_and_one_slow() {
    let counts = counts(&[(4, 90.0), (1, 700.0)], &BOUNDS);
    assert_eq!(counts.quantile(0.8, &BOUNDS), Some(100.0));
    assert_eq!(counts.quantile(0.2, &BOUNDS), Some(100.0));
}

#[test]
fn example_02_one_fast_and_four_slow() {
    let counts = counts(&[(1, 90.0), (4, 700.0)], &BOUNDS);
    assert_eq!(counts.quantile(0.8, &BOUNDS), Some(800.0));
    assert_eq!(counts.quantile(0.2, &BOUNDS), Some(100.0));
}

#[test]
fn example_03_overflow_is_twice_the_last_bound() {
    assert_eq!(counts(&[(3, 1601.0)], &BOUNDS).quantile(0.8, &BOUNDS), Some(3200.0));
}

#[test]
fn example_04_no_samples_no_value() {
    let counts = Counts::default();
    assert_eq!(counts.quantile(0.8, &BOUNDS), None);
    assert_eq!(counts.avg(), None);
}

#[test]
fn example_05_the_mean_is_of_raw_values() {
    let counts = counts(&[(4, 100.0), (1, 700.0)], &BOUNDS);
    assert_eq!(counts.value(Statistic::Avg, &BOUNDS), Some(220.0));
    assert_eq!(counts.value(Statistic::Quantile(0.8), &BOUNDS), Some(100.0));
}

#[test]
fn example_06_seven_fast_and_three_slow() {
    let counts = counts(&[(7, 1200.0), (3, 9000.0)], &TTFT_BOUNDS_MS);
    assert_eq!(counts.quantile(0.8, &TTFT_BOUNDS_MS), Some(12_000.0));
}

#[test]
fn example_07_eight_of_ten_are_enough() {
    let counts = counts(&[(8, 1200.0), (2, 9000.0)], &TTFT_BOUNDS_MS);
    assert_eq!(counts.quantile(0.8, &TTFT_BOUNDS_MS), Some(1500.0));
}

#[test]
fn example_08_single_values_at_the_edges() {
    for (value, expected) in [(90_000.0, 160_000.0), (250.0, 250.0), (251.0, 500.0)] {
        assert_eq!(counts(&[(1, value)], &TTFT_BOUNDS_MS).quantile(0.8, &TTFT_BOUNDS_MS), Some(expected));
    }
}

#[test]
fn example_09_an_ewma_comes_down() {
    let (options, metrics) = (signal_options(), [Metric::ttft_default(None)]);
    let mut signal = Signal::new(SignalKind::Ttft);
    signal.record(at(0), 9000.0, &options, &metrics);
    for (window, expected) in (1..).zip([12_000.0, 8850.0, 6645.0, 5101.5, 4021.05]) {
        let now = at(window * 20);
        signal.record(now, 1200.0, &options, &metrics);
        assert_close(signal.ewma("p80", now, &options).unwrap(), expected);
    }
}

#[test]
fn example_10_a_window_counts_once_a_later_sample_comes() {
    let options = SignalOptions { window: secs(10), ..signal_options() };
    let metrics = [Metric::ttft_default(None)];
    let mut signal = Signal::new(SignalKind::Ttft);
    signal.record(at(5), 300.0, &options, &metrics);
    assert_eq!(signal.ewma("p80", at(14), &options), None);
    signal.record(at(15), 9000.0, &options, &metrics);
    assert_eq!(signal.ewma("p80", at(15), &options), Some(500.0), "window 0 alone");
}

/// A pool at pressure under its adaptive limit, one interval after it began, with these samples in the first window.
fn stepped(options: &FlowOptions, ttft: &[f64], tps: &[f64]) -> (Flow, ControllerView) {
    let mut flow = Flow::default();
    flow.judged(at(0), options, 51);
    // The last of each comes a window later and only ends the first one.
    for (now, times) in [(at(1), usize::MAX), (at(20), 1)] {
        for ms in ttft.iter().take(times) {
            flow.record_ttft(now, options, *ms);
        }
        for value in tps.iter().take(times) {
            let total = Duration::from_secs_f64(512.0 / value);
            flow.record_answer(now, options, &answer(512, total));
        }
    }
    flow.step(at(20), options, 128);
    let view = flow.adaptive(at(20), options, 128).unwrap();
    (flow, view)
}

#[test]
fn example_11_at_the_ttft_threshold_the_gate_trips_and_the_limit_stays_up() {
    let options = FlowOptions {
        ttft_metrics: vec![Metric::ttft_default(Some(30_000.0))],
        tps_metrics: vec![Metric::tps_default(Some(20.0))],
        ..adaptive_options()
    };
    let (flow, view) = stepped(&options, &[20_001.0], &[64.0]);
    assert_eq!(flow.ttft_metrics(at(20), &options)[0].ewma, Some(30_000.0));
    assert!(flow.peek(at(20), &options, None).would_trip_ttft);
    assert_close(view.value.unwrap(), 52.02);
    let (_, view) = stepped(&options, &[30_001.0], &[64.0]);
    assert_close(view.value.unwrap(), 51.0);
}

#[test]
fn example_12_at_the_tps_threshold_the_gate_trips_and_the_limit_stays_up() {
    let values = [64.0, 64.0, 64.0, 64.0, 64.0, 64.0, 64.0, 18.0, 18.0, 18.0];
    let options = FlowOptions { tps_metrics: vec![Metric::tps_default(Some(20.0))], ..adaptive_options() };
    let (flow, view) = stepped(&options, &[], &values);
    assert_eq!(flow.tps_metrics(at(20), &options)[0].ewma, Some(20.0));
    assert_close(view.value.unwrap(), 52.02);
    assert!(!flow.peek(at(20), &options, None).would_trip_tps, "an adaptive pool has no TPS gate");
    let hard = FlowOptions { adaptive: None, ..options.clone() };
    assert!(flow.peek(at(20), &hard, None).would_trip_tps);
    let (_, view) = stepped(&options, &[], &[14.0, 14.0]);
    assert_close(view.value.unwrap(), 51.0);
}

#[test]
fn example_13_one_slow_of_ten_does_not_show() {
    assert_eq!(counts(&[(9, 64.0), (1, 18.0)], &TPS_BOUNDS).quantile(0.2, &TPS_BOUNDS), Some(75.0));
}

#[test]
fn example_14_the_prefill_is_in_the_time() {
    let answer = AnswerTimes { tokens: Some(512), total: secs(16), ttft: secs(6) };
    let min = Duration::from_millis(500);
    assert_eq!(tokens::sample(&answer, 16, min, TpsBasis::Total), Sample::Tps(32.0));
    assert_eq!(tokens::sample(&answer, 16, min, TpsBasis::Decode), Sample::Tps(51.2));
    assert_eq!(counts(&[(1, 32.0)], &TPS_BOUNDS).quantile(0.2, &TPS_BOUNDS), Some(40.0));
}

#[test]
fn example_15_small_answers_are_no_samples() {
    let of = |tokens, ms| {
        let min = Duration::from_millis(500);
        tokens::sample(&answer(tokens, Duration::from_millis(ms)), 16, min, TpsBasis::Total)
    };
    assert_eq!(of(15, 3000), Sample::TooSmall);
    assert_eq!(of(16, 400), Sample::TooSmall);
    assert_eq!(of(16, 500), Sample::Tps(32.0));
}

#[test]
fn example_44_probe_windows_are_aligned() {
    let options = gate_options();
    let mut flow = Flow::default();
    set_ttft(&mut flow, at(1009), &options, 40_000.0);
    let mut probe = |now| !is_refused(&flow.judge(now, &options, None));
    let admitted: Vec<bool> = (0..6).map(|_| probe(UnixMs(1_009_900))).collect();
    assert_eq!(admitted, [true, true, true, true, true, false]);
    assert!(probe(at(1010)));
    assert_eq!(flow.probes_used(at(1010), &options, LatencyGate::Ttft), (1, 0));
}

#[test]
fn example_45_no_further_back_than_the_horizon() {
    let horizon = signal_options().horizon();
    assert_eq!(horizon, 3);
    assert_eq!(windows_to_fold(10, 20, horizon).collect::<Vec<_>>(), [17, 18, 19]);
    assert_eq!(windows_to_fold(17, 20, horizon), 17..20, "just within");
    assert_eq!(windows_to_fold(16, 20, horizon), 17..20);
}
