//! Times of the body log, as both sides write them: with the real offset of a zone that an option names (rulings §7).

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// A zone by its name in the time zone database, which is part of the program. Case makes no difference.
pub(crate) fn parse(name: &str) -> Result<TimeZone, String> {
    TimeZone::get(name.trim())
        .map_err(|_| format!("time zone expected, such as UTC, Europe/Berlin or Asia/Shanghai; got {name:?}"))
}

/// `2026-06-18T12:48:01.250+08:00`
pub(crate) fn stamp(at: Timestamp, zone: &TimeZone) -> String {
    at.to_zoned(zone.clone()).strftime("%Y-%m-%dT%H:%M:%S%.3f%:z").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rulings_7_times_carry_their_real_offset() {
        let at: Timestamp = "2026-06-18T04:48:01.25Z".parse().unwrap();
        for (name, expected) in [
            ("UTC", "2026-06-18T04:48:01.250+00:00"),
            ("Asia/Shanghai", "2026-06-18T12:48:01.250+08:00"),
            ("America/St_Johns", "2026-06-18T02:18:01.250-02:30"),
            (" europe/berlin ", "2026-06-18T06:48:01.250+02:00"),
        ] {
            assert_eq!(stamp(at, &parse(name).unwrap()), expected, "{name}");
        }
        let winter: Timestamp = "2026-01-18T04:48:01Z".parse().unwrap();
        assert_eq!(stamp(winter, &parse("Europe/Berlin").unwrap()), "2026-01-18T05:48:01.000+01:00");
        for name in ["", "Mars/Base", "+08:00"] {
            assert!(parse(name).unwrap_err().contains("expected"), "{name}");
        }
    }
}
