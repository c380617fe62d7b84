//! JSON numbers, compared by the value that their text states: `1`, `1.0` and `10e-1` are one number, and whole numbers beyond
//! 2^53 stay apart, which they would not as doubles.

use std::borrow::Cow;
use std::cmp::Ordering;

/// Exponents beyond this are all the same: infinitely large or small.
const MAX_EXPONENT: i64 = 1 << 60;

/// A number in decimal: `0.DIGITS * 10^exponent`, with neither zeros in front of the digits nor behind them.
#[derive(Debug, Clone)]
pub(super) struct Number<'a> {
    is_negative: bool,
    /// Of the first digit; 0 for zero.
    exponent: i64,
    /// The digits are `head`, then `tail`: the point may stand between them.
    head: Cow<'a, [u8]>,
    tail: &'a [u8],
}

impl<'a> Number<'a> {
    /// Reads a JSON number. Of what is none something is read all the same.
    pub(super) fn read(text: &'a str) -> Self {
        let (is_negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, exponent) = text.split_once(['e', 'E']).map_or((text, 0), |(mantissa, e)| (mantissa, power(e)));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let head = whole.trim_start_matches('0');
        let tail = fraction.trim_end_matches('0');
        let (head, tail, first) = if head.is_empty() {
            // 0.00123: the point moves behind the zeros.
            let digits = tail.trim_start_matches('0');
            (digits, "", length(digits) - length(tail))
        } else if tail.is_empty() {
            (head.trim_end_matches('0'), "", length(head))
        } else {
            (head, tail, length(head))
        };
        if head.is_empty() {
            return Self { is_negative: false, exponent: 0, head: Cow::Borrowed(&[]), tail: &[] };
        }
        let exponent = first.saturating_add(exponent).clamp(-MAX_EXPONENT, MAX_EXPONENT);
        Self { is_negative, exponent, head: Cow::Borrowed(head.as_bytes()), tail: tail.as_bytes() }
    }

    /// The same, with digits of its own.
    pub(super) fn into_owned(self) -> Number<'static> {
        let mut head = self.head.into_owned();
        head.extend_from_slice(self.tail);
        Number { head: Cow::Owned(head), tail: &[], is_negative: self.is_negative, exponent: self.exponent }
    }

    fn is_zero(&self) -> bool {
        self.head.is_empty()
    }

    /// Compares by value; looks at no more digits than the shorter one has.
    pub(super) fn compare(&self, other: &Number<'_>) -> Ordering {
        match (self.is_negative, other.is_negative) {
            (true, true) => other.compare_size(self),
            (false, false) => self.compare_size(other),
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
        }
    }

    fn compare_size(&self, other: &Number<'_>) -> Ordering {
        match (self.is_zero(), other.is_zero()) {
            (true, true) => return Ordering::Equal,
            (true, false) => return Ordering::Less,
            (false, true) => return Ordering::Greater,
            (false, false) => {}
        }
        // Without zeros behind them, digits that are a start of others are the smaller ones.
        let digits = |number: &Number<'_>| number.head.len() + number.tail.len();
        let at_most = digits(self).min(digits(other));
        let each = |(mine, theirs): (&u8, &u8)| mine.cmp(theirs);
        self.exponent
            .cmp(&other.exponent)
            .then_with(|| {
                let mine = self.head.iter().chain(self.tail);
                let theirs = other.head.iter().chain(other.tail);
                mine.zip(theirs).take(at_most).map(each).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
            })
            .then_with(|| digits(self).cmp(&digits(other)))
    }
}

impl From<u64> for Number<'static> {
    fn from(count: u64) -> Self {
        Number::read(&count.to_string()).into_owned()
    }
}

fn length(digits: &str) -> i64 {
    i64::try_from(digits.len()).unwrap_or(MAX_EXPONENT)
}

/// What stands behind the `e`.
fn power(text: &str) -> i64 {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let size = digits.trim_start_matches('0').parse::<i64>().unwrap_or(match digits.trim_start_matches('0') {
        "" => 0,
        _ => MAX_EXPONENT,
    });
    let size = size.min(MAX_EXPONENT);
    if is_negative { -size } else { size }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn compare(left: &str, right: &str) -> Ordering {
        let (left, right) = (Number::read(left), Number::read(right));
        let order = left.compare(&right);
        assert_eq!(right.compare(&left), order.reverse());
        assert_eq!(left.clone().into_owned().compare(&right.clone().into_owned()), order);
        order
    }

    #[test]
    fn equal_values_are_equal_however_they_are_written() {
        for same in [
            &["1", "1.0", "10e-1", "0.1e1", "1E0", "1e-0", "100E-2"][..],
            &["0", "-0", "0.000", "0e99999999999999999999", "-0.0e-7"],
            &["123.45", "12345e-2", "0.0012345e5", "123.4500"],
            &["-20", "-2e1", "-20.0", "-200e-1"],
            &["1e99999999999999999999", "1e9999999999999999999999"],
        ] {
            for (left, right) in same.iter().flat_map(|left| same.iter().map(move |right| (left, right))) {
                assert_eq!(compare(left, right), Ordering::Equal, "{left} {right}");
            }
        }
    }

    #[test]
    fn the_order_is_that_of_the_values() {
        let ascending = [
            "-1e99999999999999999999",
            "-1e400",
            "-10",
            "-9.5",
            "-1",
            "-0.5",
            "-1e-400",
            "0",
            "1e-99999999999999999999",
            "1e-400",
            "0.05",
            "0.049e1",
            "0.5",
            "1",
            "1.0000000000000000000001",
            "9",
            "10",
            "10.5",
            "99",
            "100",
            "9007199254740992",
            "9007199254740993",
            "9007199254740993.5",
            "18446744073709551615",
            "18446744073709551616",
            "1e400",
            "1.5e400",
        ];
        for (place, left) in ascending.iter().enumerate() {
            for (other, right) in ascending.iter().enumerate() {
                assert_eq!(compare(left, right), place.cmp(&other), "{left} {right}");
            }
        }
        assert_eq!(Number::from(600).compare(&Number::read("6e2")), Ordering::Equal);
        assert_eq!(Number::from(0).compare(&Number::read("-0")), Ordering::Equal);
    }

    proptest! {
        #[test]
        fn as_whole_numbers(left: i64, right: i64) {
            prop_assert_eq!(compare(&left.to_string(), &right.to_string()), left.cmp(&right));
        }

        #[test]
        fn as_doubles_where_those_differ(left: f64, right: f64) {
            // Shortest text that reads back: two doubles differ exactly when these do.
            if let Some(order) = left.partial_cmp(&right).filter(|_| left.is_finite() && right.is_finite()) {
                prop_assert_eq!(compare(&format!("{left:e}"), &format!("{right}")), order);
            }
        }

        #[test]
        fn no_text_panics(text in ".{0,40}", other in "[0-9eE.+-]{0,12}") {
            compare(&text, &other);
        }
    }
}
