//! The details files of a window, day by day.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use jiff::civil::Date;

use super::index::{Index, Reader};
use crate::bodylog::collector::files::{Places, open_if_there};
use crate::bodylog::collector::names::{self, Kind};

/// What is compared of a file and a packed one, in bytes at most.
const BEGINNING: u64 = 64 << 10;

/// A packed file and its path.
pub(crate) type Archive = (PathBuf, File);

/// The days in the folder from `first` to `last`, and how many packed files each has.
pub(crate) fn there_are(places: &Places, first: Date, last: Date) -> io::Result<BTreeMap<Date, u32>> {
    let mut days = BTreeMap::new();
    for (kind, day, _) in names::list(&places.details_folder())? {
        let count = match kind {
            Kind::Plain => 0,
            Kind::Packed(number) => number,
            Kind::Hours | Kind::Unfinished | Kind::Foreign => continue,
        };
        if (first..=last).contains(&day) {
            let most: &mut u32 = days.entry(day).or_default();
            *most = count.max(*most);
        }
    }
    Ok(days)
}

/// Reads a day.
pub(super) fn read(places: &Places, day: Date, packed: u32, index: &Index, reader: &mut impl Reader) -> io::Result<()> {
    let (archives, plain) = open(places, day, packed)?;
    for (path, file) in archives {
        index.read_packed(&path, file, reader)?;
    }
    match plain {
        Some(file) => index.read_plain(&places.details(day), file, reader),
        None => Ok(()),
    }
}

/// Opens the files of a day: those that are packed, and the one that is not. No row is in two of them. `packed` is how many
/// are known; there may be one more by now.
pub(crate) fn open(places: &Places, day: Date, packed: u32) -> io::Result<(Vec<Archive>, Option<File>)> {
    // Opened first: if it is packed and removed meanwhile, it is found in either form and never in none.
    let plain = open_if_there(&places.details(day))?;
    let mut archives = Vec::new();
    for number in 1..=packed.saturating_add(1) {
        let path = names::packed(&places.details_folder(), day, number);
        if let Some(file) = open_if_there(&path)? {
            archives.push((path, file));
        }
    }
    let plain = match plain {
        Some(file) if is_packed(&file, &archives)? => None,
        plain => plain,
    };
    Ok((archives, plain))
}

/// Whether a file is the same as a packed one that is there already: it is removed only after that. A day that was written
/// to again after it was packed begins with another row.
fn is_packed(plain: &File, archives: &[Archive]) -> io::Result<bool> {
    if archives.is_empty() {
        return Ok(false);
    }
    let mut beginning = vec![0; usize::try_from(BEGINNING).unwrap_or(0)];
    let count = std::os::unix::fs::FileExt::read_at(plain, &mut beginning, 0)?;
    let lines = beginning.get(..count).and_then(|read| read.split_inclusive(|byte| *byte == b'\n').next());
    let first = lines.filter(|line| line.ends_with(b"\n")).unwrap_or_default();
    for (path, _) in archives {
        if !first.is_empty() && begins_with(path, first)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn begins_with(packed: &Path, line: &[u8]) -> io::Result<bool> {
    let mut beginning = Vec::new();
    let length = u64::try_from(line.len()).unwrap_or(0);
    zstd::Decoder::new(File::open(packed)?)?.take(length).read_to_end(&mut beginning)?;
    Ok(beginning == line)
}
