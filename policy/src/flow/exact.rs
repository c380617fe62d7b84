//! Numbers that are stored to the last bit. As a JSON number `serde_json` reads one of 17 digits back a bit off (without a
//! feature that would slow down every body it reads), and a restored pool would not quite be the one that was stored.

use serde::{Deserialize, Serialize, Serializer};

/// A number that is stored as text. One that stands there as a number is read too.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(try_from = "Stored")]
pub(super) struct Exact(pub(super) f64);

#[derive(Deserialize)]
#[serde(untagged)]
enum Stored {
    Number(f64),
    Text(String),
}

impl Serialize for Exact {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:?}", self.0))
    }
}

impl TryFrom<Stored> for Exact {
    type Error = std::num::ParseFloatError;

    fn try_from(stored: Stored) -> Result<Self, Self::Error> {
        match stored {
            Stored::Number(value) => Ok(Self(value)),
            Stored::Text(text) => text.parse().map(Self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_read_and_other_text_is_not() {
        assert_eq!(serde_json::from_str::<Exact>("10.5").unwrap(), Exact(10.5));
        assert_eq!(serde_json::from_str::<Exact>("10").unwrap(), Exact(10.0));
        assert_eq!(serde_json::to_string(&Exact(10.5)).unwrap(), "\"10.5\"");
        assert!(serde_json::from_str::<Exact>("\"ten\"").is_err());
    }

    proptest! {
        #[test]
        fn every_bit_comes_back(value: f64) {
            let text = serde_json::to_string(&Exact(value)).unwrap();
            let read: Exact = serde_json::from_str(&text).unwrap();
            prop_assert!(read.0.to_bits() == value.to_bits() || value.is_nan());
        }
    }
}
