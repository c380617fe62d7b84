//! Files that only grow, by whole lines (payloads.md §7.3). A file that a killed process left with half a line is cut back
//! to its last whole one before anything is added, so that no broken line ever has lines after it.
//!
//! Bodies are private: files are open to their owner alone (0600), folders too (0700).

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

/// How much is read at once while the end of the last whole line is looked for.
const BLOCK: usize = 64 << 10;

/// One file with a place for more lines at its end.
#[derive(Debug)]
pub(crate) struct Lines {
    path: PathBuf,
    file: File,
    length: u64,
    is_cut: bool,
}

impl Lines {
    /// Opens or makes a file, with the folders above it, and drops half a line at its end.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            make_folder(folder)?;
        }
        let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        let length = file.seek(SeekFrom::End(0))?;
        let whole = end_of_lines(&file, length)?;
        if whole < length {
            tracing::warn!(path = %path.display(), bytes = length - whole, "half a line at the end was dropped");
            file.set_len(whole)?;
        }
        Ok(Self { path: path.to_owned(), file, length: whole, is_cut: whole < length })
    }

    /// Adds whole lines: all of them or none. Returns where they begin. After an error, open the file anew.
    pub(crate) fn append(&mut self, lines: &[u8]) -> io::Result<u64> {
        let before = self.length;
        if let Err(error) = self.file.write_all(lines) {
            // What came through is taken back; if that fails too, the next `open` cuts the half line off.
            drop(self.file.set_len(before));
            return Err(error);
        }
        self.length += u64::try_from(lines.len()).unwrap_or(u64::MAX);
        Ok(before)
    }

    /// Takes back what was added since `length`, as [`Lines::append`] returned it.
    pub(crate) fn take_back(&mut self, length: u64) -> io::Result<()> {
        self.file.set_len(length)?;
        self.length = length;
        Ok(())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// How long the file is, in bytes.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Whether half a line was dropped when the file was opened.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut
    }
}

/// How many bytes of a file are whole lines.
pub(crate) fn whole_length(file: &File) -> io::Result<u64> {
    end_of_lines(file, file.metadata()?.len())
}

/// Where the last whole line of a file ends.
fn end_of_lines(file: &File, length: u64) -> io::Result<u64> {
    let mut block = vec![0; BLOCK];
    let mut end = length;
    while end > 0 {
        let start = end.saturating_sub(BLOCK as u64);
        let part = block.get_mut(..usize::try_from(end - start).unwrap_or(BLOCK)).unwrap_or_default();
        file.read_exact_at(part, start)?;
        if let Some(at) = part.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

/// Makes a folder and those above it that are missing.
pub(crate) fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Makes the folder of the log and takes it for this process alone, as long as the value lives.
pub(crate) fn take_folder(folder: &Path) -> io::Result<File> {
    make_folder(folder)?;
    let path = folder.join(".lock");
    let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(fs::TryLockError::WouldBlock) => {
            Err(io::Error::new(io::ErrorKind::ResourceBusy, "another collector writes there; choose another folder"))
        }
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}

/// Where everything lies under the folder of the log.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    root: PathBuf,
    zone: TimeZone,
}

impl Places {
    pub(crate) fn new(root: &Path, zone: TimeZone) -> Self {
        Self { root: root.to_owned(), zone }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn zone(&self) -> &TimeZone {
        &self.zone
    }

    /// Full records of the hour of `at`.
    pub(crate) fn hour(&self, at: Timestamp) -> PathBuf {
        let local = self.local(at);
        self.root.join(local.date().to_string()).join(format!("{:02}.jsonl", local.hour()))
    }

    /// Rows of a day.
    pub(crate) fn details(&self, day: Date) -> PathBuf {
        self.details_folder().join(format!("{day}.jsonl"))
    }

    pub(crate) fn details_folder(&self) -> PathBuf {
        self.minutes_folder().join("details")
    }

    /// Minutes of a day.
    pub(crate) fn minutes(&self, day: Date) -> PathBuf {
        self.minutes_folder().join(format!("{day}.jsonl"))
    }

    pub(crate) fn minutes_folder(&self) -> PathBuf {
        self.root.join("metrics")
    }

    /// The local day of a moment.
    pub(crate) fn day(&self, at: Timestamp) -> Date {
        self.local(at).date()
    }

    /// The first moment of a local day.
    pub(crate) fn start_of(&self, day: Date) -> Option<Timestamp> {
        day.to_zoned(self.zone.clone()).ok().map(|start| start.timestamp())
    }

    fn local(&self, at: Timestamp) -> Zoned {
        at.to_zoned(self.zone.clone())
    }
}

/// The whole lines of a file, handed to `each` one by one without their line ends, until it says no. A last line without
/// an end is still being written, and left out.
pub(crate) fn each_line(source: impl io::Read, mut each: impl FnMut(&[u8]) -> bool) -> io::Result<()> {
    let mut source = io::BufReader::with_capacity(BLOCK, source);
    let mut line = Vec::new();
    loop {
        line.clear();
        let more = io::BufRead::read_until(&mut source, b'\n', &mut line)?;
        match line.strip_suffix(b"\n") {
            Some(whole) if more > 0 => {
                if !each(whole) {
                    return Ok(());
                }
            }
            _ => return Ok(()),
        }
    }
}

/// A file, or nothing when there is none.
pub(crate) fn open_if_there(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// All of `source` into `target`, until `is_stopping`.
pub(crate) fn copy(
    source: &mut impl io::Read,
    target: &mut impl io::Write,
    is_stopping: &dyn Fn() -> bool,
) -> io::Result<()> {
    let mut block = vec![0; BLOCK];
    loop {
        if is_stopping() {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "stopped"));
        }
        match source.take(BLOCK as u64).read(&mut block)? {
            0 => return Ok(()),
            count => target.write_all(block.get(..count).unwrap_or_default())?,
        }
    }
}

#[cfg(test)]
mod tests;
