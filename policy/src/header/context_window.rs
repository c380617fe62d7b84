//! `x-model-context-window: N` (gateway.md §7): how many tokens, output included, the client's session needs room for.

use http::{HeaderMap, HeaderName};

/// The header. Only the router reads it; no backend sees it.
pub const CONTEXT_WINDOW: HeaderName = HeaderName::from_static("x-model-context-window");

/// What stood there in place of one positive integer. Never the value itself: it is the client's, and goes into an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{CONTEXT_WINDOW}: positive integer expected, got {}; allowed 1..={} in ASCII digits", .0.words(), u64::MAX)]
pub struct InvalidContextWindow(pub Seen);

/// Kinds of values that are no context window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "`words` says what each is")]
pub enum Seen {
    Empty,
    Several,
    Zero,
    TooLarge,
    Signed,
    Other,
}

impl Seen {
    fn words(self) -> &'static str {
        match self {
            Self::Empty => "an empty value",
            Self::Several => "several values that differ",
            Self::Zero => "zero",
            Self::TooLarge => "a number that is too large",
            Self::Signed => "a value with a sign",
            Self::Other => "a value with other characters than digits",
        }
    }
}

/// The number of tokens; `None` without the header. Sent twice with one value it is that value: what a proxy that repeats
/// headers makes of one.
pub fn context_window(headers: &HeaderMap) -> Result<Option<u64>, InvalidContextWindow> {
    let mut found = None;
    for value in headers.get_all(CONTEXT_WINDOW) {
        let tokens = tokens(value.as_bytes()).map_err(InvalidContextWindow)?;
        if found.is_some_and(|earlier| earlier != tokens) {
            return Err(InvalidContextWindow(Seen::Several));
        }
        found = Some(tokens);
    }
    Ok(found)
}

fn tokens(value: &[u8]) -> Result<u64, Seen> {
    let digits = value.trim_ascii();
    match digits {
        [] => return Err(Seen::Empty),
        [b'+' | b'-', ..] => return Err(Seen::Signed),
        _ if !digits.iter().all(u8::is_ascii_digit) => return Err(Seen::Other),
        _ => {}
    }
    let number =
        digits.iter().try_fold(0_u64, |number, digit| number.checked_mul(10)?.checked_add(u64::from(digit - b'0')));
    number.ok_or(Seen::TooLarge).and_then(|number| if number == 0 { Err(Seen::Zero) } else { Ok(number) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    fn read(values: &[&[u8]]) -> Result<Option<u64>, Seen> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(CONTEXT_WINDOW, HeaderValue::from_bytes(value).unwrap());
        }
        context_window(&headers).map_err(|error| error.0)
    }

    #[test]
    fn gateway_7_positive_integers() {
        assert_eq!(read(&[]), Ok(None));
        let rows: [(&[u8], u64); 5] = [
            (b"1", 1),
            (b" 1000000\t", 1_000_000),
            (b"0064", 64),
            (b"18446744073709551615", u64::MAX),
            (b"00000000000000000000000000001", 1),
        ];
        for (value, tokens) in rows {
            assert_eq!(read(&[value]), Ok(Some(tokens)));
        }
        assert_eq!(read(&[b"64", b" 64"]), Ok(Some(64)));
    }

    #[test]
    fn gateway_7_malformed_values() {
        let rows: [(&[&[u8]], Seen); 14] = [
            (&[b""], Seen::Empty),
            (&[b" \t "], Seen::Empty),
            (&[b"0"], Seen::Zero),
            (&[b"000"], Seen::Zero),
            (&[b"-5"], Seen::Signed),
            (&[b"+5"], Seen::Signed),
            (&[b"5.0"], Seen::Other),
            (&[b"1e6"], Seen::Other),
            (&[b"5, 5"], Seen::Other),
            (&[b"1_000"], Seen::Other),
            (&[b"128k"], Seen::Other),
            (&["\u{0665}".as_bytes()], Seen::Other),
            (&[b"18446744073709551616"], Seen::TooLarge),
            (&[b"5", b"6"], Seen::Several),
        ];
        for (values, seen) in rows {
            assert_eq!(read(values), Err(seen), "{values:?}");
        }
        assert_eq!(read(&[b"5", b""]), Err(Seen::Empty));
    }

    #[test]
    fn the_message_names_the_header_and_what_is_allowed_and_echoes_nothing() {
        for seen in [Seen::Empty, Seen::Several, Seen::Zero, Seen::TooLarge, Seen::Signed, Seen::Other] {
            let text = InvalidContextWindow(seen).to_string();
            assert!(text.starts_with("x-model-context-window: positive integer expected, got "), "{text}");
            assert!(text.contains(seen.words()) && text.contains(&format!("1..={}", u64::MAX)), "{text}");
        }
    }

    proptest! {
        #[test]
        fn exactly_the_digit_strings_of_positive_u64_are_read(text in "[ -~]{0,24}|[0-9]{1,22}") {
            let trimmed = text.trim_ascii();
            let expected = trimmed.parse::<u64>().ok()
                .filter(|number| *number > 0 && trimmed.bytes().all(|byte| byte.is_ascii_digit()));
            prop_assert_eq!(read(&[text.as_bytes()]).ok().flatten(), expected);
        }
    }
}
