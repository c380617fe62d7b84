//! What stands after `?`. A bad or unknown parameter is named, and nothing is answered in its place: a filter that was
//! misspelt would otherwise answer with everything.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use percent_encoding::percent_decode_str;

use super::cursor::Cursor;
use super::{MOST_ROWS, Query, RefusedBy};
use crate::bodylog::collector::minutes::Stream;

/// A parameter that can't be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {problem}")]
pub(crate) struct BadParameter {
    pub(crate) name: String,
    problem: String,
}

fn bad(name: &str, problem: impl Into<String>) -> BadParameter {
    // Names come from the caller.
    let name = name.get(..name.floor_char_boundary(64)).unwrap_or_default();
    BadParameter { name: name.to_owned(), problem: problem.into() }
}

/// Parameters of the details query.
const DETAILS: &[&str] = &[
    "cursor", "end", "key", "limit", "min_frt", "min_rt", "model", "peer", "refused", "route", "start", "status",
    "stream",
];

/// Parameters, decoded. One that is given twice counts as given last; an empty one as not given.
#[derive(Debug, Default)]
pub(crate) struct Parameters(Vec<(String, String)>);

impl Parameters {
    pub(crate) fn read(query: &str) -> Self {
        let decode = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        Self(pairs.map(|(name, value)| (decode(name), decode(value))).collect())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().rfind(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// Refuses what no page has. `token` may stand on all.
    pub(crate) fn allow(&self, names: &[&str]) -> Result<(), BadParameter> {
        match self.0.iter().find(|(name, _)| name != "token" && !names.contains(&name.as_str())) {
            Some((name, _)) => Err(bad(name, format!("unknown parameter; allowed: {}", names.join(", ")))),
            None => Ok(()),
        }
    }

    /// Whether a parameter of the details query was given, be it empty.
    pub(crate) fn asks_for_details(&self) -> bool {
        self.0.iter().any(|(name, _)| DETAILS.contains(&name.as_str()))
    }

    /// `minutes` of a summary: 5 without it or below 1, at most seven days.
    pub(crate) fn minutes(&self) -> Result<i64, BadParameter> {
        let Some(text) = self.get("minutes") else { return Ok(5) };
        let minutes: i64 = text.parse().map_err(|_| bad("minutes", "whole number expected; allowed: 1 to 10080"))?;
        Ok(if minutes <= 0 { 5 } else { minutes.min(10_080) })
    }

    /// The question to `/details`.
    pub(crate) fn query(&self, zone: &TimeZone) -> Result<Query, BadParameter> {
        self.allow(DETAILS)?;
        let end = self.get("end").ok_or_else(|| bad("end", format!("required; {TIME}")))?;
        let end = time("end", end, zone)?;
        let cursor = self
            .get("cursor")
            .map(|text| Cursor::decode(text).ok_or_else(|| bad("cursor", "next_cursor of an earlier answer expected")));
        let cursor = cursor.transpose()?;
        let start = self.get("start").map(|text| time("start", text, zone)).transpose()?;
        let start = start.or(cursor.as_ref().map(|cursor| cursor.end));
        let start = start.ok_or_else(|| bad("start", format!("required without cursor; {TIME}")))?;
        if start > end {
            return Err(bad("start", "later than end; an earlier time expected"));
        }
        Ok(Query {
            start,
            end,
            cursor,
            model: self.get("model").map(str::to_owned),
            peer: self.get("peer").map(str::to_owned),
            status: self.get("status").map(status).transpose()?,
            route: self.get("route").map(str::to_owned),
            key: self.get("key").map(str::to_owned),
            refused: self.get("refused").map(refused_by),
            min_frt: self.get("min_frt").map(|text| seconds("min_frt", text)).transpose()?,
            min_rt: self.get("min_rt").map(|text| seconds("min_rt", text)).transpose()?,
            stream: self.get("stream").map(stream).transpose()?,
            limit: self.get("limit").map(limit).transpose()?.unwrap_or(MOST_ROWS),
        })
    }
}

const TIME: &str =
    "time expected: 2026-06-18T12:48:01+08:00, 2026-06-18 12:48:01 or 2026-06-18 (local), or Unix seconds";

/// RFC 3339, local time, a day (its first moment), or Unix seconds.
fn time(name: &str, text: &str, zone: &TimeZone) -> Result<Timestamp, BadParameter> {
    parse_time(text.trim(), zone).ok_or_else(|| bad(name, TIME))
}

fn parse_time(text: &str, zone: &TimeZone) -> Option<Timestamp> {
    if let Ok(seconds) = text.parse::<f64>() {
        let since = jiff::SignedDuration::try_from_secs_f64(seconds).ok()?;
        return Timestamp::from_duration(since).ok();
    }
    // A `+` that was not encoded arrives as a space, in front of an offset.
    let offset = text.len().checked_sub(6).and_then(|at| text.split_at_checked(at));
    let with_plus = match offset {
        Some((time, offset)) if offset.starts_with(' ') && time.len() > 10 => {
            format!("{time}+{}", offset.trim_start())
        }
        _ => text.to_owned(),
    };
    if let Ok(time) = with_plus.parse() {
        return Some(time);
    }
    // `YYYY-MM-DD` alone is midnight; what is shorter is no whole day.
    let local: DateTime = (text.len() >= 10).then(|| text.parse().ok())??;
    local.to_zoned(zone.clone()).ok().map(|zoned| zoned.timestamp())
}

fn status(text: &str) -> Result<u16, BadParameter> {
    text.parse().map_err(|_| bad("status", "whole number expected; allowed: 0 to 65535"))
}

fn seconds(name: &str, text: &str) -> Result<f64, BadParameter> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite());
    number.ok_or_else(|| bad(name, "number of seconds expected"))
}

fn refused_by(text: &str) -> RefusedBy {
    match text {
        "any" => RefusedBy::Any,
        "rule" => RefusedBy::AnyRule,
        this => RefusedBy::This(this.to_owned()),
    }
}

fn stream(text: &str) -> Result<Stream, BadParameter> {
    match text {
        "true" | "1" => Ok(Stream::Yes),
        "false" | "0" => Ok(Stream::No),
        "null" | "unknown" => Ok(Stream::Unknown),
        _ => Err(bad("stream", "allowed: true, 1, false, 0, null, unknown")),
    }
}

/// A number out of range means the most; what is no number is a mistake.
fn limit(text: &str) -> Result<usize, BadParameter> {
    let number: i64 = text.parse().map_err(|_| bad("limit", "whole number expected; allowed: 1 to 5000"))?;
    Ok(usize::try_from(number).ok().filter(|limit| (1..=MOST_ROWS).contains(limit)).unwrap_or(MOST_ROWS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Result<Query, BadParameter> {
        Parameters::read(text).query(&TimeZone::get("Asia/Shanghai").unwrap())
    }

    #[test]
    fn payloads_7_6_times_come_in_three_forms() {
        let expected: Timestamp = "2026-06-18T04:48:01.25Z".parse().unwrap();
        for text in [
            "2026-06-18T12:48:01.250%2B08:00",
            "2026-06-18T12:48:01.250+08:00",
            "2026-06-18T04:48:01.250Z",
            "2026-06-18T12:48:01.250",
            "2026-06-18%2012:48:01.250",
            "2026-06-18+12:48:01.250",
            "1781758081.25",
        ] {
            assert_eq!(query(&format!("start=0&end={text}")).unwrap().end, expected, "{text}");
        }
        // A day is its midnight in the zone.
        let days = query("start=2026-06-17&end=2026-06-18").unwrap();
        assert_eq!(days.start, "2026-06-16T16:00:00Z".parse().unwrap());
        assert_eq!(days.end, "2026-06-17T16:00:00Z".parse().unwrap());
    }

    #[test]
    fn payloads_7_6_filters() {
        let all =
            query("start=1&end=2&model=m%201&peer=p&status=200&min_frt=0.5&stream=unknown&limit=7&token=t").unwrap();
        assert_eq!((all.model.as_deref(), all.peer.as_deref()), (Some("m 1"), Some("p")));
        assert_eq!((all.status, all.min_frt, all.stream, all.limit), (Some(200), Some(0.5), Some(Stream::Unknown), 7));
        let new = query("start=1&end=2&route=r&key=k&refused=rule:a%20b&min_rt=2").unwrap();
        assert_eq!((new.route.as_deref(), new.key.as_deref(), new.min_rt), (Some("r"), Some("k"), Some(2.0)));
        assert_eq!(new.refused, Some(RefusedBy::This("rule:a b".to_owned())));
        for limit in ["0", "-1", "5001", "99999999999"] {
            assert_eq!(query(&format!("start=1&end=2&limit={limit}")).unwrap().limit, 5000, "{limit}");
        }
        assert_eq!(query("start=1&end=2&stream=&model=").unwrap().stream, None);
    }

    #[test]
    fn a_bad_parameter_is_named() {
        for (text, name) in [
            ("start=1", "end"),
            ("end=2", "start"),
            ("start=3&end=2", "start"),
            ("start=yesterday&end=2", "start"),
            ("start=2026-06&end=2e9", "start"),
            ("start=2026-13-01&end=2e9", "start"),
            ("start=1&end=1e300", "end"),
            ("start=1&end=NaN", "end"),
            ("end=2&cursor=%%%", "cursor"),
            ("start=1&end=2&status=ok", "status"),
            ("start=1&end=2&min_frt=inf", "min_frt"),
            ("start=1&end=2&min_rt=slow", "min_rt"),
            ("start=1&end=2&stream=maybe", "stream"),
            ("start=1&end=2&limit=many", "limit"),
            ("start=1&end=2&modle=x", "modle"),
        ] {
            let error = query(text).unwrap_err();
            assert_eq!(error.name, name, "{text}");
            assert!(error.to_string().starts_with(&format!("{name}: ")), "{error}");
        }
    }

    #[test]
    fn minutes_of_a_summary() {
        let minutes = |text| Parameters::read(text).minutes();
        for (text, expected) in
            [("", 5), ("minutes=0", 5), ("minutes=-3", 5), ("minutes=60", 60), ("minutes=99999", 10_080)]
        {
            assert_eq!(minutes(text).unwrap(), expected, "{text}");
        }
        assert_eq!(minutes("minutes=x").unwrap_err().name, "minutes");
    }
}
