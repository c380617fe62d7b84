//! A backend's tier: the larger number is preferred.

use std::fmt;

use serde_json::{Value as Json, json};

/// A priority in thousandths, so that it compares exactly; negatives and fractions are allowed (routing.md §2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Priority(i64);

/// Far more than tiers need.
const MAX: i64 = 1_000_000_000;

/// A number that is no priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a number of -1000000 to 1000000 with at most 3 decimals is allowed")]
pub struct InvalidPriority;

impl Priority {
    /// From a number as documents and people write it.
    pub fn new(number: f64) -> Result<Self, InvalidPriority> {
        let thousandths = (number * 1000.0).round();
        let is_exact = (thousandths / 1000.0 - number).abs() < 1e-9;
        #[expect(clippy::cast_precision_loss, reason = "the bound is far below 2^53")]
        let is_in_range = thousandths.abs() <= MAX as f64;
        // NaN and infinities fail both.
        #[expect(clippy::cast_possible_truncation, reason = "whole and in range")]
        if is_exact && is_in_range { Ok(Self(thousandths as i64)) } else { Err(InvalidPriority) }
    }

    /// From the thousandths that the wire carries; out of range is the nearest in range.
    pub fn from_thousandths(thousandths: i64) -> Self {
        Self(thousandths.clamp(-MAX, MAX))
    }

    /// For the wire.
    pub fn thousandths(self) -> i64 {
        self.0
    }

    /// As documents have it.
    pub fn json(self) -> Json {
        if self.0 % 1000 == 0 { json!(self.0 / 1000) } else { json!(self.number()) }
    }

    fn number(self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "the bound is far below 2^53")]
        let thousandths = self.0 as f64;
        thousandths / 1000.0
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.number())
    }
}

impl std::str::FromStr for Priority {
    type Err = InvalidPriority;

    fn from_str(text: &str) -> Result<Self, InvalidPriority> {
        Self::new(text.parse().map_err(|_| InvalidPriority)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_back_and_order() {
        for text in ["0", "10", "-3", "0.5", "-2.125"] {
            let priority: Priority = text.parse().unwrap();
            assert_eq!(priority.to_string(), text);
            assert_eq!(Priority::from_thousandths(priority.thousandths()), priority);
        }
        assert!("2".parse::<Priority>().unwrap() > "1.5".parse().unwrap());
        assert!("-1".parse::<Priority>().unwrap() < Priority::default());
        for bad in ["", "a", "nan", "inf", "0.0001", "1000001"] {
            assert!(bad.parse::<Priority>().is_err(), "{bad}");
        }
        assert_eq!(Priority::new(3.0).unwrap().json(), json!(3));
    }
}
