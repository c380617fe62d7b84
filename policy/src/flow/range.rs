//! Numbers brought into range. Options arrive checked; whatever arrives, no limit and no line may become what is no number.

/// Within the bounds; a value that is no number is the lower one. Not `f64::clamp`, which keeps such values, and panics on
/// bounds that somebody made the wrong way round.
pub(super) fn within(value: f64, min: f64, max: f64) -> f64 {
    value.max(min).min(max)
}

/// A part of something: above 0, at most 1.
pub(super) fn fraction(value: f64) -> f64 {
    within(value, f64::MIN_POSITIVE, 1.0)
}

/// A factor from 1. The upper bound keeps products finite; no line is ever that far away.
pub(super) fn factor(value: f64) -> f64 {
    within(value, 1.0, 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_in_range_stays() {
        for (value, expected) in [
            (fraction(0.5), 0.5_f64),
            (fraction(1.0), 1.0),
            (factor(1.0), 1.0),
            (factor(1.5), 1.5),
            (within(f64::NAN, 2.0, 3.0), 2.0),
        ] {
            assert_eq!(value.to_bits(), expected.to_bits());
        }
    }

    proptest! {
        #[test]
        fn everything_is_in_range_then(value in proptest::num::f64::ANY) {
            prop_assert!(fraction(value) > 0.0 && fraction(value) <= 1.0);
            prop_assert!(factor(value) >= 1.0 && factor(value).is_finite());
        }
    }
}
