//! Names of files in the folders of the log: which day, and what of it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jiff::civil::Date;

/// What a name in a folder stands for, in the order in which housekeeping takes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// What was being packed when a process ended.
    Unfinished,
    /// A folder of hours.
    Hours,
    /// A whole day in one file.
    Plain,
    /// A packed day of ours: the first file of that day, or a later one.
    Packed(u32),
    /// A packed day, left by the listener of the reference.
    Foreign,
}

/// Kind and day of a name; `None` for what is not the log's.
pub(crate) fn read(name: &str) -> Option<(Kind, Date)> {
    let (date, rest) = name.split_at_checked(10)?;
    let kind = match rest {
        "" => Kind::Hours,
        ".jsonl" => Kind::Plain,
        ".jsonl.zst" => Kind::Packed(1),
        ".tar.gz" | ".parquet" | ".jsonl.gz" => Kind::Foreign,
        ".jsonl.zst.tmp" | ".tar.gz.tmp" => Kind::Unfinished,
        _ => {
            let rest = rest.strip_prefix('.')?;
            let (number, is_packed) = match (rest.strip_suffix(".jsonl.zst"), rest.strip_suffix(".jsonl.zst.tmp")) {
                (Some(number), _) => (number, true),
                (None, number) => (number?, false),
            };
            let number = number.parse().ok().filter(|known: &u32| *known > 1 && known.to_string() == number)?;
            if is_packed { Kind::Packed(number) } else { Kind::Unfinished }
        }
    };
    Some((kind, date.parse().ok()?))
}

/// A packed file of a day. A day that was written to again after it was packed has a second one, and so on.
pub(crate) fn packed(folder: &Path, day: Date, number: u32) -> PathBuf {
    folder.join(if number < 2 { format!("{day}.jsonl.zst") } else { format!("{day}.{number}.jsonl.zst") })
}

/// All that is the log's in a folder; nothing when there is no folder.
pub(crate) fn list(folder: &Path) -> io::Result<Vec<(Kind, Date, String)>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut found: Vec<_> = names
        .filter_map(|name| {
            let (kind, day) = read(&name)?;
            Some((kind, day, name))
        })
        .collect();
    found.sort();
    Ok(found)
}

/// The newest day that was packed.
pub(crate) fn newest_packed(folder: &Path) -> io::Result<Option<Date>> {
    let packed = list(folder)?.into_iter().filter(|(kind, ..)| matches!(kind, Kind::Packed(_) | Kind::Foreign));
    Ok(packed.map(|(_, day, _)| day).max())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_log_are_known_and_no_others() {
        let day: Date = "2026-06-17".parse().unwrap();
        for (rest, kind) in [
            ("", Some(Kind::Hours)),
            (".jsonl", Some(Kind::Plain)),
            (".jsonl.zst", Some(Kind::Packed(1))),
            (".2.jsonl.zst", Some(Kind::Packed(2))),
            (".10.jsonl.zst.tmp", Some(Kind::Unfinished)),
            (".tar.gz", Some(Kind::Foreign)),
            (".1.jsonl.zst", None),
            (".02.jsonl.zst", None),
            (".jsonl.bak", None),
            (".x.jsonl.zst", None),
        ] {
            assert_eq!(read(&format!("2026-06-17{rest}")).map(|(kind, _)| kind), kind, "{rest}");
        }
        assert!(read("2026-13-17.jsonl").is_none() && read("notes.txt").is_none() && read("").is_none());
        for number in [1, 2, 10] {
            let path = packed(Path::new("x"), day, number);
            assert_eq!(read(path.file_name().unwrap().to_str().unwrap()), Some((Kind::Packed(number), day)));
        }
    }
}
