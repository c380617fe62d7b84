//! One full record out of the files, by its request id. Only whoever may read the files can ask: the HTTP port gives no
//! bodies, with a token or without.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jiff::civil::Date;
use memchr::memmem::Finder;

use super::files::{each_line, open_if_there};
use super::json::Members;
use super::names::{self, Kind};

/// The newest record with this request id, as the line of JSON that it is, without its line end; `None` when there is none.
/// Looks in the files of a collector's folder (payloads.md §7.3), hours and packed days, newest first; the collector may be
/// writing and packing meanwhile. Holds the longest record in memory twice, and 64 MiB while it unpacks.
///
/// # Errors
/// When the folder or a file in it can't be read; the path is part of the error.
pub fn find_record(dir: &Path, request_id: &str) -> io::Result<Option<String>> {
    fs::read_dir(dir).map_err(|error| named(dir, &error))?;
    let mut days: BTreeMap<Date, u32> = BTreeMap::new();
    for (kind, day, _) in names::list(dir).map_err(|error| named(dir, &error))? {
        let packed = match kind {
            Kind::Hours | Kind::Plain => 0,
            Kind::Packed(number) => number,
            Kind::Unfinished | Kind::Foreign => continue,
        };
        let most = days.entry(day).or_default();
        *most = packed.max(*most);
    }
    for (day, packed) in days.into_iter().rev() {
        let hours = hours(&dir.join(day.to_string()))?;
        // Last what is packed, and one more: while this one reads hours, they may be packed and removed.
        let packed = (1..=packed.saturating_add(1)).rev().map(|number| names::packed(dir, day, number));
        let plain = std::iter::once(dir.join(format!("{day}.jsonl")));
        for path in hours.into_iter().rev().chain(plain).chain(packed) {
            if let Some(line) = last_in(&path, request_id).map_err(|error| named(&path, &error))? {
                return Ok(Some(line));
            }
        }
    }
    Ok(None)
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("read {}: {error}", path.display()))
}

/// The hours in the folder of a day, in order; none when the day has no folder.
fn hours(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(named(folder, &error)),
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut hours: Vec<PathBuf> = paths.filter(|path| path.extension() == Some(OsStr::new("jsonl"))).collect();
    hours.sort();
    Ok(hours)
}

/// The last record of a file with this id: clients choose ids, so there may be several.
fn last_in(path: &Path, request_id: &str) -> io::Result<Option<String>> {
    let Some(file) = open_if_there(path)? else { return Ok(None) };
    // Most lines are passed over without being parsed: those without the id's longest part that every writer of JSON writes
    // in the same way.
    let is_plain = |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.' | ':');
    let plain = request_id.split(|character| !is_plain(character)).max_by_key(|part| part.len()).unwrap_or_default();
    let plain = Finder::new(plain);
    let mut found = None;
    let each = |line: &[u8]| {
        if plain.find(line).is_some() && is_of(line, request_id) {
            found = std::str::from_utf8(line).ok().map(str::to_owned);
        }
        true
    };
    if path.extension() == Some(OsStr::new("zst")) {
        each_line(zstd::Decoder::new(file)?, each)?;
    } else {
        each_line(file, each)?;
    }
    Ok(found)
}

fn is_of(line: &[u8], request_id: &str) -> bool {
    let id = Members::read(line, &["request_id"]).and_then(|record| record.text("request_id"));
    id.is_some_and(|id| id == request_id)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn add(path: &Path, lines: &[(&str, &str)]) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut file = fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        for (id, body) in lines {
            let line = serde_json::json!({"request_id": id, "req_body": body});
            writeln!(file, "{line}").unwrap();
        }
    }

    fn body(dir: &Path, id: &str) -> Option<String> {
        let line = find_record(dir, id).unwrap()?;
        assert!(!line.contains('\n'));
        let record: serde_json::Value = serde_json::from_str(&line).unwrap();
        Some(record["req_body"].as_str().unwrap().to_owned())
    }

    #[test]
    fn the_newest_record_is_found_in_hours_and_packed_days() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        assert_eq!(body(dir, "a"), None);
        let packed = dir.join("2026-06-16.jsonl");
        add(&packed, &[("old", "1"), ("a", "packed")]);
        let bytes = zstd::encode_all(fs::File::open(&packed).unwrap(), 3).unwrap();
        fs::write(dir.join("2026-06-16.jsonl.zst"), bytes).unwrap();
        fs::remove_file(packed).unwrap();
        let again = zstd::encode_all(&b"{\"request_id\":\"old\",\"req_body\":\"again\"}\n"[..], 3).unwrap();
        fs::write(dir.join("2026-06-16.2.jsonl.zst"), again).unwrap();
        add(&dir.join("2026-06-17/23.jsonl"), &[("b", "day before")]);
        add(&dir.join("2026-06-18/09.jsonl"), &[("b", "nine"), ("b", "nine again"), ("c \"/é", "odd")]);
        add(&dir.join("2026-06-18/10.jsonl"), &[("other", "{\"request_id\":\"a\"} b"), ("b2", "b")]);
        add(&dir.join("metrics/2026-06-18.jsonl"), &[("minute", "no record")]);
        fs::write(dir.join(".lock"), "").unwrap();
        for (id, expected) in [
            ("a", Some("packed")),
            ("old", Some("again")),
            ("b", Some("nine again")),
            ("c \"/é", Some("odd")),
            ("minute", None),
            ("", None),
            ("ol", None),
        ] {
            assert_eq!(body(dir, id).as_deref(), expected, "{id}");
        }
    }

    #[test]
    fn other_writers_escapes_half_lines_and_nonsense_make_no_difference() {
        let folder = tempfile::tempdir().unwrap();
        let hour = folder.path().join("2026-06-18/09.jsonl");
        add(&hour, &[]);
        fs::write(&hour, "nonsense r/1\n{\"request_id\":\"r\\/1\",\"req_body\":\"x\"}\n{\"request_id\":\"half")
            .unwrap();
        assert_eq!(body(folder.path(), "r/1").as_deref(), Some("x"));
        assert_eq!(body(folder.path(), "half"), None);
    }

    #[test]
    fn what_can_not_be_read_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = find_record(&folder.path().join("nowhere"), "a").unwrap_err();
        assert!(error.kind() == io::ErrorKind::NotFound && error.to_string().contains("nowhere"), "{error}");
        let broken = folder.path().join("2026-06-18.jsonl.zst");
        fs::write(&broken, "not packed").unwrap();
        assert!(find_record(folder.path(), "a").unwrap_err().to_string().contains(broken.to_str().unwrap()));
    }
}
