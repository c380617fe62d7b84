//! Where a page ended: unpadded base64url of `<end time>|<request id>` (payloads.md §7.6). The next page starts strictly
//! after that. Between rows that are equal in both, `<end time>#<n>|<request id>` says how many of them were shown.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;

/// A place in the order of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// End time of the last row shown.
    pub(crate) end: Timestamp,
    /// Its request id.
    pub(crate) request_id: String,
    /// How many rows of this key were shown; `None`: all.
    pub(crate) shown: Option<u64>,
}

impl Cursor {
    /// The text of a cursor; `end` is the end time as the row writes it.
    pub(crate) fn encode(&self, end: &str) -> String {
        let shown = self.shown.map(|shown| format!("#{shown}")).unwrap_or_default();
        URL_SAFE_NO_PAD.encode(format!("{end}{shown}|{}", self.request_id))
    }

    /// Reads one. Padding is let through.
    pub(crate) fn decode(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()?;
        let text = String::from_utf8(bytes).ok()?;
        let (end, request_id) = text.split_once('|')?;
        let (end, shown) = match end.split_once('#') {
            Some((end, shown)) => (end, Some(shown.parse().ok()?)),
            None => (end, None),
        };
        Some(Self { end: end.parse().ok()?, request_id: request_id.to_owned(), shown })
    }

    /// Whether one more row of the cursor's own key was shown, after `skipped` of them.
    pub(crate) fn passes_over(&self, skipped: u64) -> bool {
        self.shown.is_none_or(|shown| skipped < shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_10_5_row_51_cursor() {
        let text = "2026-06-18T12:48:01.250+08:00";
        let cursor = Cursor { end: text.parse().unwrap(), request_id: "abc123".to_owned(), shown: None };
        let encoded = "MjAyNi0wNi0xOFQxMjo0ODowMS4yNTArMDg6MDB8YWJjMTIz";
        assert_eq!(cursor.encode(text), encoded);
        assert_eq!(Cursor::decode(encoded).unwrap(), cursor);
        let split = Cursor { shown: Some(3), request_id: "a|b#1".to_owned(), ..cursor };
        assert_eq!(Cursor::decode(&split.encode(text)).unwrap(), split);
    }

    #[test]
    fn what_is_no_cursor_is_none() {
        for text in ["", "?", "YWJj", "MjAyNg", "MjAyNi0wNi0xOFQxMjo0ODowMSswODowMCN4fGE"] {
            assert!(Cursor::decode(text).is_none(), "{text}");
        }
    }
}
