//! Past days: packed, and removed when they are old enough (payloads.md §7.3, rulings §7). Today is never touched, minutes
//! are kept for ever.
//!
//! A day's hours become one `YYYY-MM-DD.jsonl.zst` in their order, so `zstdcat` shows the day from its first record to its
//! last. It is written beside its place and moved there when it is whole; a stop or a crash in between costs nothing.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use jiff::Span;
use jiff::civil::Date;

use super::files::{Places, copy};

/// Speed over size: a day may be hundreds of gigabytes.
const LEVEL: i32 = 3;
/// How far back repetitions are found, as a power of two in bytes: each turn of a session repeats those before it. Readers
/// need as much memory; `zstd` takes up to 27 without being asked.
const WINDOW: u32 = 26;

/// How long past days are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Keep {
    /// Full records, in days.
    pub(crate) full: u32,
    /// Details, in days.
    pub(crate) details: u32,
}

/// What was done.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) packed: Vec<PathBuf>,
    pub(crate) removed: Vec<PathBuf>,
    /// What could not be done. The next round tries again.
    pub(crate) failed: Vec<(PathBuf, io::Error)>,
}

/// One round over the folder of the log, as of the local day `today`. Ends early once `is_stopping`.
pub(crate) fn housekeep(places: &Places, today: Date, keep: Keep, is_stopping: &dyn Fn() -> bool) -> Report {
    let mut round = Round { today, is_stopping, report: Report::default() };
    round.folder(places.root(), keep.full);
    round.folder(&places.details_folder(), keep.details);
    round.report
}

/// What a name in the folder stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// What was being packed when a process ended.
    Unfinished,
    /// A folder of hours.
    Hours,
    /// A whole day in one file.
    Day,
    /// A packed day: ours, or left by the listener of the reference.
    Packed,
}

fn kind(name: &str) -> Option<(Kind, Date)> {
    let (date, rest) = name.split_at_checked(10)?;
    let kind = match rest {
        "" => Kind::Hours,
        ".jsonl" => Kind::Day,
        ".jsonl.zst" | ".tar.gz" | ".parquet" | ".jsonl.gz" => Kind::Packed,
        ".jsonl.zst.tmp" | ".tar.gz.tmp" => Kind::Unfinished,
        _ => return None,
    };
    Some((kind, date.parse().ok()?))
}

struct Round<'a> {
    today: Date,
    is_stopping: &'a dyn Fn() -> bool,
    report: Report,
}

impl Round<'_> {
    fn folder(&mut self, folder: &Path, keep_days: u32) {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => return self.report.failed.push((folder.to_owned(), error)),
        };
        let oldest = self.today.saturating_sub(Span::new().days(i64::from(keep_days).min(3_650_000)));
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut found: Vec<_> = names.filter_map(|name| Some((kind(&name)?, name))).collect();
        found.sort();
        for ((kind, day), name) in found {
            if (self.is_stopping)() {
                return;
            }
            let path = folder.join(&name);
            let packed = folder.join(format!("{day}.jsonl.zst"));
            let done = match kind {
                _ if day >= self.today && kind != Kind::Unfinished => continue,
                Kind::Unfinished => self.remove(&path),
                _ if day < oldest => self.remove(&path),
                Kind::Packed => continue,
                // Packed together with the folder of its day.
                Kind::Day if !path.exists() => continue,
                Kind::Hours | Kind::Day if packed.exists() => self.remove(&path),
                Kind::Hours | Kind::Day => {
                    self.pack(&[folder.join(format!("{day}.jsonl")), folder.join(day.to_string())], &packed)
                }
            };
            match done {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => self.report.failed.push((path, error)),
                _ => {}
            }
        }
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        remove(path)?;
        self.report.removed.push(path.to_owned());
        Ok(())
    }

    /// Packs what there is of a day: a file of old, then its hours.
    fn pack(&mut self, parts: &[PathBuf], packed: &Path) -> io::Result<()> {
        let mut sources = Vec::new();
        for part in parts {
            if part.is_dir() {
                sources.extend(hours(part)?);
            } else if part.exists() {
                sources.push(part.clone());
            }
        }
        let unfinished = packed.with_extension("zst.tmp");
        let written =
            write_packed(&sources, &unfinished, self.is_stopping).and_then(|()| fs::rename(&unfinished, packed));
        if let Err(error) = written {
            drop(fs::remove_file(&unfinished));
            return Err(error);
        }
        if let Some(folder) = packed.parent() {
            // The new name must be on the disk before the old ones go.
            File::open(folder)?.sync_all()?;
        }
        self.report.packed.push(packed.to_owned());
        for part in parts.iter().filter(|part| part.exists()) {
            remove(part)?;
        }
        Ok(())
    }
}

fn remove(path: &Path) -> io::Result<()> {
    if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}

/// The hours of a day, in their order.
fn hours(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut hours = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension() == Some(OsStr::new("jsonl")) {
            hours.push(path);
        }
    }
    hours.sort();
    Ok(hours)
}

fn write_packed(sources: &[PathBuf], target: &Path, is_stopping: &dyn Fn() -> bool) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(target)?;
    let mut encoder = zstd::Encoder::new(file, LEVEL)?;
    encoder.include_checksum(true)?;
    encoder.long_distance_matching(true)?;
    encoder.window_log(WINDOW)?;
    for source in sources {
        copy(&mut whole_lines(source)?, &mut encoder, is_stopping)?;
    }
    encoder.finish()?.sync_all()
}

/// A file without the half line that a killed process may have left at its end.
fn whole_lines(path: &Path) -> io::Result<io::Take<File>> {
    use std::io::Read as _;

    let file = File::open(path)?;
    let length = super::files::whole_length(&file)?;
    Ok(file.take(length))
}

#[cfg(test)]
mod tests;
