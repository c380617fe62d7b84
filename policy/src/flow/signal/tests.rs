//! Rules of limits.md §5.3 that its worked examples don't show.

use super::super::fixtures::{assert_close, at, signal_options};
use super::super::metric::Statistic;
use super::*;
use proptest::prelude::*;

fn avg(name: &str) -> Metric {
    Metric { name: name.to_owned(), statistic: Statistic::Avg, threshold: None }
}

/// Records and gives the EWMA of metric `m` then.
fn after(signal: &mut Signal, now: UnixMs, value: f64) -> Option<f64> {
    let options = signal_options();
    signal.record(now, value, &options, &[avg("m")]);
    signal.ewma("m", now, &options)
}

#[test]
fn one_sample_is_enough_and_the_one_that_folds_is_not_in_it() {
    let mut signal = Signal::new(SignalKind::Tps);
    assert_eq!(after(&mut signal, at(0), 10.0), None);
    assert_eq!(after(&mut signal, at(19), 20.0), None);
    assert_eq!(after(&mut signal, at(20), 1000.0), Some(15.0));
    assert_eq!(after(&mut signal, at(39), 1000.0), Some(15.0), "a window counts once");
    assert_close(after(&mut signal, at(40), 0.0).unwrap(), 0.3 * 1000.0 + 0.7 * 15.0);
}

#[test]
fn windows_without_samples_change_nothing() {
    let mut signal = Signal::new(SignalKind::Ttft);
    after(&mut signal, at(0), 10.0);
    after(&mut signal, at(20), 20.0);
    assert_close(after(&mut signal, at(79), 0.0).unwrap(), 0.3 * 20.0 + 0.7 * 10.0);
}

#[test]
fn an_ewma_lives_for_its_ttl_after_the_last_fold_not_the_last_sample() {
    let mut signal = Signal::new(SignalKind::Ttft);
    after(&mut signal, at(0), 10.0);
    assert_eq!(after(&mut signal, at(20), 20.0), Some(10.0));
    assert_eq!(after(&mut signal, at(39), 20.0), Some(10.0));
    let options = signal_options();
    assert_eq!(signal.ewma("m", at(80), &options), Some(10.0));
    assert_eq!(signal.ewma("m", UnixMs(80_001), &options), None);
    // And it starts afresh, from the window that is left.
    assert_eq!(after(&mut signal, at(81), 0.0), Some(20.0));
}

#[test]
fn a_quiet_spell_longer_than_the_ttl_loses_the_last_window() {
    let quiet = |spell: u64| {
        let mut signal = Signal::new(SignalKind::Ttft);
        after(&mut signal, at(0), 10.0);
        after(&mut signal, UnixMs(spell), 10.0)
    };
    assert_eq!(quiet(60_000), Some(10.0));
    assert_eq!(quiet(60_001), None);
}

#[test]
fn the_weight_is_clamped() {
    for (alpha, expected) in [(30.0, 20.0), (-1.0, 10.0), (1.0, 20.0), (0.0, 10.0), (f64::NAN, 10.0)] {
        let options = SignalOptions { alpha, ..signal_options() };
        let mut signal = Signal::new(SignalKind::Ttft);
        for (now, value) in [(at(0), 10.0), (at(20), 20.0), (at(40), 0.0)] {
            signal.record(now, value, &options, &[avg("m")]);
        }
        assert_close(signal.ewma("m", at(40), &options).unwrap(), expected);
    }
}

#[test]
fn a_new_name_starts_afresh_and_an_old_one_goes_at_the_next_fold() {
    let options = signal_options();
    let mut signal = Signal::new(SignalKind::Ttft);
    for (now, name) in [(at(0), "old"), (at(20), "old"), (at(21), "new")] {
        signal.record(now, 10.0, &options, &[avg(name)]);
    }
    assert_eq!(signal.ewma("old", at(21), &options), Some(10.0), "no fold yet");
    assert_eq!(signal.ewma("new", at(21), &options), None);
    signal.record(at(40), 10.0, &options, &[avg("new")]);
    assert_eq!(signal.ewma("old", at(40), &options), None);
    assert_eq!(signal.ewma("new", at(40), &options), Some(10.0));
}

#[test]
fn a_name_listed_twice_is_moved_once_by_each_window() {
    let options = signal_options();
    let mut signal = Signal::new(SignalKind::Ttft);
    for (now, value) in [(at(0), 10.0), (at(20), 20.0), (at(40), 0.0)] {
        signal.record(now, value, &options, &[avg("m"), avg("m")]);
    }
    assert_close(signal.ewma("m", at(40), &options).unwrap(), 13.0);
}

#[test]
fn what_is_no_number_from_0_is_no_sample() {
    let mut signal = Signal::new(SignalKind::Ttft);
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0] {
        after(&mut signal, at(0), value);
        assert_eq!(signal, Signal::new(SignalKind::Ttft));
    }
    after(&mut signal, at(0), f64::MAX);
    after(&mut signal, at(0), f64::MAX);
    assert_eq!(after(&mut signal, at(20), 0.0), Some(1e12), "more than that is not believed");
}

#[test]
fn a_clock_set_back_neither_panics_nor_stops_the_signal() {
    let mut signal = Signal::new(SignalKind::Ttft);
    after(&mut signal, at(100_000), 10.0);
    after(&mut signal, at(100_020), 10.0);
    // A little: the sample counts in the window in progress.
    assert_eq!(after(&mut signal, at(100_019), 30.0), Some(10.0));
    assert_close(after(&mut signal, at(100_040), 0.0).unwrap(), 0.3 * 20.0 + 0.7 * 10.0);
    // Far: all of it was of a future that is no more.
    assert_eq!(after(&mut signal, at(1000), 50.0), None);
    assert_eq!(after(&mut signal, at(1020), 0.0), Some(50.0));
}

proptest! {
    #[test]
    fn an_ewma_stays_within_what_was_folded(
        samples in proptest::collection::vec((0_u64..60_000, 0.0_f64..1e6), 2..100), alpha in 0.0_f64..=1.0,
    ) {
        let options = SignalOptions { alpha, ..signal_options() };
        let metrics = [avg("avg"), Metric::ttft_default(None)];
        let mut signal = Signal::new(SignalKind::Ttft);
        let (mut now, mut low, mut high) = (UnixMs(0), f64::INFINITY, f64::NEG_INFINITY);
        for (step, value) in samples {
            now = now + Duration::from_millis(step);
            signal.record(now, value, &options, &metrics);
            if let Some(ewma) = signal.ewma("avg", now, &options) {
                prop_assert!(low * (1.0 - 1e-9) <= ewma && ewma <= high * (1.0 + 1e-9), "{} {} {}", low, ewma, high);
            }
            if let Some(ewma) = signal.ewma("p80", now, &options) {
                prop_assert!((250.0 * (1.0 - 1e-9)..=160_000.0 * (1.0 + 1e-9)).contains(&ewma));
            }
            low = low.min(value);
            high = high.max(value);
        }
    }

    #[test]
    fn a_signal_stays_small_whatever_comes(
        samples in proptest::collection::vec((any::<u64>(), proptest::num::f64::ANY, any::<u8>()), 0..100),
        window_ms in 0_u64..100_000, ttl_ms in any::<u64>(),
    ) {
        let options = SignalOptions {
            window: Duration::from_millis(window_ms), ttl: Duration::from_millis(ttl_ms), ..signal_options()
        };
        let mut signal = Signal::new(SignalKind::Ttft);
        for (now, value, name) in samples {
            signal.record(UnixMs(now), value, &options, &[avg(&name.to_string()), avg("m")]);
            prop_assert!(signal.ewmas.len() <= 2);
            prop_assert!(signal.ewma("m", UnixMs(now), &options).is_none_or(f64::is_finite));
        }
        prop_assert!(serde_json::to_string(&signal).unwrap().len() < 500);
    }
}
