//! Rules of limits.md §8 that its worked examples don't show.

use super::super::fixtures::{aimd_options, assert_close};
use super::*;
use proptest::prelude::*;

fn std_pool(options: &AimdOptions) -> Bounds {
    bounds(options, 128)
}

#[test]
fn limits_8_1_what_bounds_are_made_of() {
    let of = |min, min_frac, init, init_frac, static_max| {
        bounds(&AimdOptions { min, min_frac, init, init_frac, ..aimd_options() }, static_max)
    };
    let is = |min: f64, init: f64, max: f64| Bounds { min, init, max };
    assert_eq!(of(None, 0.4, None, None, 1), is(1.0, 1.0, 1.0), "at least 1");
    assert_eq!(of(Some(7.9), 0.4, Some(9.9), None, 128), is(7.0, 9.0, 128.0), "floored");
    assert_eq!(of(Some(0.9), 0.4, None, None, 128).min.to_bits(), 51.0_f64.to_bits(), "below 1 is ignored");
    for (bad, all) in [(0.0, 1.0), (-1.0, 1.0), (f64::NAN, 1.0), (1.1, 128.0)] {
        assert_eq!(of(None, bad, None, Some(bad), 128), is(all, all, 128.0), "{bad} is brought into range");
    }
    assert_eq!(of(None, 1.0, None, None, 128), is(128.0, 128.0, 128.0));
    assert_eq!(of(Some(50.0), 0.4, Some(10.0), None, 128), is(50.0, 50.0, 128.0), "init below min");
    assert_eq!(of(Some(2.0), 0.4, Some(30.0), Some(0.5), 128), is(2.0, 30.0, 128.0), "slots beat a fraction");
    assert_eq!(of(Some(2.0), 0.4, None, Some(0.5), 128), is(2.0, 64.0, 128.0));
    assert_eq!(of(Some(f64::NAN), 0.4, Some(f64::INFINITY), None, 128), is(51.0, 128.0, 128.0));
    assert_eq!(of(None, 0.4, None, None, 0), is(0.0, 0.0, 0.0));
}

#[test]
fn limits_8_1_what_is_pressure_and_what_is_slack() {
    let pressed = |pressure_frac, slack_frac, conc| {
        let options = AimdOptions { pressure_frac, slack_frac, ..aimd_options() };
        let bounds = std_pool(&options);
        (at_pressure(&options, &bounds, Some(100.0), conc), at_slack(&options, &bounds, Some(100.0), conc))
    };
    assert_eq!(pressed(0.9, 0.7, 90), (true, false));
    assert_eq!(pressed(0.9, 0.7, 89), (false, false));
    assert_eq!(pressed(0.9, 0.7, 70), (false, false));
    assert_eq!(pressed(0.9, 0.7, 69), (false, true));
    // Fractions that can't be are brought into range, and slack ends where pressure begins.
    assert_eq!([89, 90].map(|conc| pressed(0.9, 1.5, conc)), [(false, true), (true, false)]);
    assert_eq!([94, 96].map(|conc| pressed(1.5, 0.7, conc)), [(false, false), (true, false)], "fewer than 5 free");
    for bad in [0.0, -0.5, f64::NAN] {
        assert_eq!(pressed(bad, 0.7, 1), (true, false), "{bad}");
        assert_eq!(pressed(0.9, bad, 1), (false, false), "{bad}");
    }
}

#[test]
fn limits_8_2_pressure_by_either_measure() {
    let options = aimd_options();
    let bounds = std_pool(&options);
    assert!(at_pressure(&options, &bounds, Some(60.0), 54), "nine tenths");
    assert!(!at_pressure(&options, &bounds, Some(60.0), 53));
    let options = AimdOptions { abs: 20.0, ..aimd_options() };
    assert!(at_pressure(&options, &bounds, Some(60.0), 41), "19 free");
    assert!(!at_pressure(&options, &bounds, Some(60.0), 40), "20 free");
}

#[test]
fn limits_8_2_a_rise_by_pressure_is_capped_and_one_by_refusals_is_not() {
    let options = AimdOptions { inc: 2.0, ..aimd_options() };
    let bounds = std_pool(&options);
    assert_close(step(&options, &bounds, Some(60.0), 57, 0, false), 57.0 / 0.8);
    assert_close(step(&options, &bounds, Some(60.0), 57, 1, false), 120.0);
    assert_close(step(&options, &bounds, Some(100.0), 0, 1, false), 128.0);
}

#[test]
fn limits_8_2_slack_keeps_what_is_in_use() {
    let options = AimdOptions { min: Some(2.0), dec: 0.1, ..aimd_options() };
    let bounds = std_pool(&options);
    assert_close(step(&options, &bounds, Some(100.0), 60, 0, false), 75.0);
    assert_close(step(&options, &bounds, Some(100.0), 12, 0, false), 17.0);
    let options = AimdOptions { init: Some(40.0), ..options };
    assert_close(step(&options, &std_pool(&options), Some(100.0), 12, 0, false), 40.0);
}

#[test]
fn limits_8_2_exactly_abs_free_is_neither_pressure_nor_slack() {
    for (abs, expected) in [(40.0, (false, false)), (39.0, (false, true)), (41.0, (true, false))] {
        let options = AimdOptions { abs, ..aimd_options() };
        let bounds = std_pool(&options);
        let (pressure, slack) =
            (at_pressure(&options, &bounds, Some(100.0), 60), at_slack(&options, &bounds, Some(100.0), 60));
        assert_eq!((pressure, slack), expected, "abs {abs}");
    }
}

#[test]
fn factors_that_are_no_numbers_keep_the_limit() {
    for bad in [f64::NAN, f64::INFINITY] {
        let options = AimdOptions { dec: bad, inc: bad, ..aimd_options() };
        let bounds = std_pool(&options);
        assert_close(step(&options, &bounds, Some(60.0), 0, 0, true), 60.0);
        assert_close(step(&options, &bounds, Some(60.0), 0, 1, false), 60.0);
    }
}

#[test]
fn limits_8_2_only_overload_goes_below_the_start() {
    let options = AimdOptions { min: Some(2.0), init: Some(20.0), ..aimd_options() };
    let bounds = std_pool(&options);
    assert_close(step(&options, &bounds, Some(20.0), 1, 0, false), 20.0);
    assert!(!at_slack(&options, &bounds, Some(20.0), 1), "at the start");
    assert!(at_slack(&options, &bounds, Some(21.0), 1), "above it");
    assert_close(step(&options, &bounds, Some(20.0), 1, 0, true), 19.4);
    // The way back doesn't need traffic, and hold doesn't stop it.
    let held = AimdOptions { hold_when_idle: true, ..options };
    assert_close(step(&held, &bounds, Some(10.0), 0, 0, false), 10.2);
}

#[test]
fn limits_8_2_hold_stops_slack_alone() {
    let options = AimdOptions { hold_when_idle: true, ..aimd_options() };
    let bounds = std_pool(&options);
    assert!(!at_slack(&options, &bounds, Some(100.0), 10));
    assert!(at_slack(&aimd_options(), &bounds, Some(100.0), 10));
    assert_close(step(&options, &bounds, Some(100.0), 10, 0, true), 97.0);
    assert_close(step(&options, &bounds, Some(100.0), 95, 0, false), 102.0);
}

#[test]
fn limits_8_2_nothing_to_judge_by_keeps_within_the_bounds() {
    let bounds = std_pool(&aimd_options());
    for (stored, expected) in [(Some(60.5), 60.5), (None, 51.0), (Some(1.0), 51.0), (Some(500.0), 128.0)] {
        assert_close(keep(&bounds, stored), expected);
    }
}

fn any_options() -> impl Strategy<Value = AimdOptions> {
    let any_f64 = || prop_oneof![proptest::num::f64::ANY, 0.0_f64..3.0];
    let slots = || proptest::option::of(prop_oneof![proptest::num::f64::ANY, 0.0_f64..300.0]);
    let fractions = (any_f64(), proptest::option::of(any_f64()), any_f64(), any_f64());
    (slots(), slots(), fractions, any_f64(), any_f64(), any_f64(), any::<bool>()).prop_map(
        |(min, init, (min_frac, init_frac, pressure_frac, slack_frac), dec, inc, abs, hold_when_idle)| {
            let shape = AimdOptions { min, min_frac, init, init_frac, ..aimd_options() };
            AimdOptions { dec, inc, pressure_frac, slack_frac, abs, hold_when_idle, ..shape }
        },
    )
}

proptest! {
    #[test]
    fn the_limit_stays_within_its_bounds(
        options in any_options(), static_max in 0_u32..2000, first in proptest::option::of(proptest::num::f64::ANY),
        steps in proptest::collection::vec((any::<u32>(), 0_u32..3, any::<bool>()), 1..50),
    ) {
        let bounds = bounds(&options, static_max);
        prop_assert!(0.0 <= bounds.min && bounds.min <= bounds.init && bounds.init <= bounds.max);
        let mut stored = first;
        for (conc, rej, is_overloaded) in steps {
            let value = step(&options, &bounds, stored, conc % 3000, rej, is_overloaded);
            prop_assert!(bounds.min <= value && value <= bounds.max, "{} not in {:?}", value, bounds);
            stored = Some(value);
        }
    }

    #[test]
    fn usual_options_move_the_right_way(
        current in 51.0_f64..128.0, conc in 0_u32..200, rej in 0_u32..3, is_overloaded: bool,
    ) {
        let options = aimd_options();
        let bounds = std_pool(&options);
        let value = step(&options, &bounds, Some(current), conc, rej, is_overloaded);
        if is_overloaded {
            prop_assert!(value < current || value <= bounds.min);
        } else if rej > 0 {
            prop_assert!(value > current || value >= bounds.max);
        } else {
            prop_assert_eq!(at_slack(&options, &bounds, Some(current), conc), value < current);
        }
    }
}
