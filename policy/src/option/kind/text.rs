//! Option values as text: how each simple kind is written and printed.

use std::collections::BTreeMap;
use std::time::Duration;

/// A short, safe echo of what was written.
pub(super) fn quote(text: &str) -> String {
    if text.chars().count() <= 40 && !text.chars().any(char::is_control) {
        format!("'{text}'")
    } else {
        "a longer text".to_owned()
    }
}

pub(super) fn in_range<T: PartialOrd + Copy>(value: Option<T>, min: T, max: T) -> Option<T> {
    value.filter(|value| *value >= min && *value <= max)
}

pub(super) fn parse_bool(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Some(true),
        "false" | "no" | "off" | "0" => Some(false),
        _ => None,
    }
}

pub(super) fn parse_words(text: &str, allowed: &'static [&'static str]) -> Option<Vec<&'static str>> {
    let mut words = Vec::new();
    if text == "none" || text.is_empty() {
        return Some(words);
    }
    for part in text.split(',') {
        let word = *allowed.iter().find(|word| **word == part.trim())?;
        if words.contains(&word) {
            return None;
        }
        words.push(word);
    }
    Some(words)
}

pub(super) fn parse_statuses(text: &str, min: u16, max: u16) -> Option<Vec<u16>> {
    let mut statuses = Vec::new();
    if text == "none" || text.is_empty() {
        return Some(statuses);
    }
    for part in text.split(',') {
        let status = in_range(part.trim().parse().ok(), min, max)?;
        if statuses.contains(&status) {
            return None;
        }
        statuses.push(status);
    }
    Some(statuses)
}

pub(super) fn parse_headers(text: &str) -> Option<Vec<String>> {
    if text == "none" || text.is_empty() {
        return Some(Vec::new());
    }
    text.split(',')
        .map(|part| http::HeaderName::from_bytes(part.trim().as_bytes()).ok().map(|name| name.as_str().to_owned()))
        .collect()
}

pub(super) fn parse_ports(text: &str, min: u64, max: u64) -> Option<BTreeMap<u16, u64>> {
    let mut ports = BTreeMap::new();
    if text == "none" || text.is_empty() {
        return Some(ports);
    }
    for part in text.split(',') {
        let (port, number) = part.split_once('=')?;
        let port = in_range(port.trim().parse().ok(), 1, u16::MAX)?;
        let number = in_range(number.trim().parse().ok(), min, max)?;
        if ports.insert(port, number).is_some() {
            return None;
        }
    }
    Some(ports)
}

/// Splits `12.5ms` into number and unit.
pub(super) fn split_unit(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    Some((number.parse().ok()?, unit.trim()))
}

/// `5s`, `300ms`, `1.5h`, `2d` (of 24 hours), `90` (seconds).
pub fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = split_unit(text)?;
    let seconds = match unit {
        "ms" => number / 1000.0,
        "s" | "" => number,
        "m" => number * 60.0,
        "h" => number * 3600.0,
        "d" => number * 86_400.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(seconds).ok()
}

/// The form without days that [`parse_duration`] reads back as the same milliseconds.
pub fn print_duration(span: Duration) -> String {
    let ms = span.as_millis();
    match ms {
        0 => "0s".to_owned(),
        _ if ms.is_multiple_of(3_600_000) => format!("{}h", ms / 3_600_000),
        _ if ms.is_multiple_of(60_000) => format!("{}m", ms / 60_000),
        _ if ms.is_multiple_of(1000) => format!("{}s", ms / 1000),
        _ => format!("{ms}ms"),
    }
}

/// `10MiB`, `512`, `64KiB`.
pub(super) fn parse_bytes(text: &str) -> Option<u64> {
    let (number, unit) = split_unit(text)?;
    let factor: u32 = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    let size = number * f64::from(factor);
    // Sizes past 2^53 are refused: a float would round them.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked whole and in range")]
    (size.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&size)).then_some(size as u64)
}

pub(super) fn print_bytes(size: u64) -> String {
    match size {
        0 => "0B".to_owned(),
        _ if size.is_multiple_of(1 << 30) => format!("{}GiB", size >> 30),
        _ if size.is_multiple_of(1 << 20) => format!("{}MiB", size >> 20),
        _ if size.is_multiple_of(1 << 10) => format!("{}KiB", size >> 10),
        _ => format!("{size}B"),
    }
}
