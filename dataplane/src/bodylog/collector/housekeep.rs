//! Past days: packed, and removed when they are old enough (payloads.md §7.3, rulings §7). Today is never touched, minutes
//! are kept for ever.
//!
//! A day's hours become one `YYYY-MM-DD.jsonl.zst` in their order, so `zstdcat` shows the day from its first record to its
//! last. It is written beside its place and moved there when it is whole; a stop or a crash in between costs nothing. Only
//! what is in a packed file is removed: a day that was written to after it was packed, as a clock that is set back can do,
//! gets a second file `YYYY-MM-DD.2.jsonl.zst`. What else lies in a day's folder is not ours and stays.

mod pack;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Span;
use jiff::civil::Date;

use super::files::Places;
use super::names::{self, Kind};
use pack::Source;

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

struct Round<'a> {
    today: Date,
    is_stopping: &'a dyn Fn() -> bool,
    report: Report,
}

impl Round<'_> {
    fn folder(&mut self, folder: &Path, keep_days: u32) {
        let found = match names::list(folder) {
            Ok(found) => found,
            Err(error) => return self.report.failed.push((folder.to_owned(), error)),
        };
        let oldest = self.today.saturating_sub(Span::new().days(i64::from(keep_days).min(3_650_000)));
        let mut archives: BTreeMap<Date, Vec<u32>> = BTreeMap::new();
        for (kind, day, _) in &found {
            if let Kind::Packed(number) = kind {
                archives.entry(*day).or_default().push(*number);
            }
        }
        for (kind, day, name) in found {
            if (self.is_stopping)() {
                return;
            }
            let path = folder.join(&name);
            let done = match kind {
                _ if day >= self.today && kind != Kind::Unfinished => continue,
                Kind::Hours if day < oldest => self.remove_hours(&path),
                Kind::Unfinished => self.remove(&path),
                _ if day < oldest => self.remove(&path),
                Kind::Packed(_) | Kind::Foreign => continue,
                // Packed together with the folder of its day.
                Kind::Plain if !path.exists() => continue,
                Kind::Hours | Kind::Plain => self.pack(folder, day, archives.entry(day).or_default()),
            };
            match done {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => self.report.failed.push((path, error)),
                _ => {}
            }
        }
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)?;
        self.report.removed.push(path.to_owned());
        Ok(())
    }

    /// Removes a day's hours, and its folder if nothing else is in it.
    fn remove_hours(&mut self, folder: &Path) -> io::Result<()> {
        for hour in hours(folder)? {
            self.remove(&hour)?;
        }
        remove_if_empty(folder)
    }

    /// Packs what there is of a day, a file of old and then its hours, into the next free file; then removes that.
    fn pack(&mut self, folder: &Path, day: Date, archives: &mut Vec<u32>) -> io::Result<()> {
        let (plain, of_hours) = (folder.join(format!("{day}.jsonl")), folder.join(day.to_string()));
        let mut paths = Vec::new();
        if plain.is_file() {
            paths.push(plain);
        }
        if of_hours.is_dir() {
            paths.extend(hours(&of_hours)?);
        }
        let sources = paths.into_iter().map(Source::open).collect::<io::Result<Vec<_>>>()?;
        if !sources.is_empty() && !self.is_packed(folder, day, archives, &sources)? {
            let number = archives.iter().max().map_or(1, |last| last.saturating_add(1));
            let packed = names::packed(folder, day, number);
            pack::write(&sources, &packed, self.is_stopping)?;
            archives.push(number);
            self.report.packed.push(packed);
        }
        for source in sources {
            source.remove()?;
        }
        if of_hours.is_dir() { remove_if_empty(&of_hours) } else { Ok(()) }
    }

    /// Whether a crash came between packing and removing.
    fn is_packed(&self, folder: &Path, day: Date, archives: &[u32], sources: &[Source]) -> io::Result<bool> {
        for number in archives {
            if pack::holds(&names::packed(folder, day, *number), sources, self.is_stopping)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn remove_if_empty(folder: &Path) -> io::Result<()> {
    match fs::remove_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        removed => removed,
    }
}

/// The hours of a day, in their order.
fn hours(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut hours = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(is_hour) {
            hours.push(entry.path());
        }
    }
    hours.sort();
    Ok(hours)
}

/// `HH.jsonl`
fn is_hour(name: &str) -> bool {
    let hour = name.strip_suffix(".jsonl").filter(|hour| hour.len() == 2 && !hour.starts_with('+'));
    hour.and_then(|hour| hour.parse::<u8>().ok()).is_some_and(|hour| hour < 24)
}

#[cfg(test)]
mod tests;
