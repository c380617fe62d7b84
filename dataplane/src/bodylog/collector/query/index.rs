//! What is known of the details files: of every so many bytes the earliest and the latest end time. A question reads only
//! the blocks that can hold a row of its window, whatever the order in which rows came; what no question has read yet is
//! read once, to its end. So `tail`, which asks every second, reads what is new, and a further page goes on where the one
//! before ended.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io::{self, BufRead, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use jiff::Timestamp;
use parking_lot::Mutex;

/// Bytes of a block, at least: it ends with the line that reaches this.
const BLOCK: u64 = 256 << 10;
/// Most blocks that are remembered, each of about 48 bytes: 256 GB of rows. Beyond, everything is forgotten, and read anew.
const MOST_BLOCKS: usize = 1 << 20;

/// What reads rows.
pub(super) trait Reader {
    /// Whether rows that ended from `earliest` to `latest` can matter.
    fn wants(&self, earliest: Timestamp, latest: Timestamp) -> bool;

    /// Takes a line without its end, and tells when the request in it ended; `None` for what is no row.
    fn row(&mut self, line: &[u8]) -> Option<Timestamp>;

    /// Whether to give up.
    fn is_cancelled(&self) -> bool;
}

/// The blocks of all files.
#[derive(Debug, Default)]
pub(crate) struct Index(Mutex<HashMap<PathBuf, Arc<Known>>>);

/// What is known of a file: its first blocks.
#[derive(Debug, Clone)]
struct Known {
    file: Identity,
    blocks: Vec<Block>,
    /// Where the last block ends.
    end: u64,
    /// Whether no line comes after the last block, now or later.
    is_whole: bool,
}

/// Tells a file from another one that had its path before.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    made: Option<SystemTime>,
}

impl Identity {
    fn of(file: &Metadata) -> Self {
        Self { device: file.dev(), inode: file.ino(), made: file.created().ok() }
    }
}

#[derive(Debug, Clone, Copy)]
struct Block {
    length: u64,
    /// Of rows; later than `latest` if there are none.
    earliest: Timestamp,
    latest: Timestamp,
}

impl Block {
    const EMPTY: Self = Self { length: 0, earliest: Timestamp::MAX, latest: Timestamp::MIN };

    fn is_wanted(&self, reader: &impl Reader) -> bool {
        self.earliest <= self.latest && reader.wants(self.earliest, self.latest)
    }
}

impl Index {
    /// Reads what of a growing file can matter.
    pub(super) fn read_plain(&self, path: &Path, file: File, reader: &mut impl Reader) -> io::Result<()> {
        let about = file.metadata()?;
        let known = self.known(path, &about, about.len());
        let mut source = io::BufReader::with_capacity(64 << 10, file);
        let skip = |source: &mut io::BufReader<File>, bytes: u64| {
            i64::try_from(bytes).map_or(Ok(()), |bytes| source.seek_relative(bytes))
        };
        self.read(path, known, &mut source, skip, false, reader)
    }

    /// Reads what of a packed file can matter. There is no way to a block but through those before it, though without
    /// a look at their rows; after the last one that matters, reading ends.
    pub(super) fn read_packed(&self, path: &Path, file: File, reader: &mut impl Reader) -> io::Result<()> {
        let known = self.known(path, &file.metadata()?, u64::MAX);
        let mut source = io::BufReader::with_capacity(64 << 10, zstd::Decoder::new(file)?);
        let skip = |source: &mut io::BufReader<_>, bytes: u64| {
            io::copy(&mut source.by_ref().take(bytes), &mut io::sink()).map(drop)
        };
        self.read(path, known, &mut source, skip, true, reader)
    }

    fn known(&self, path: &Path, about: &Metadata, length: u64) -> Known {
        let file = Identity::of(about);
        let known = self.0.lock().get(path).filter(|known| known.file == file && known.end <= length).cloned();
        known.map_or(Known { file, blocks: Vec::new(), end: 0, is_whole: false }, |known| known.as_ref().clone())
    }

    fn read<S: BufRead>(
        &self,
        path: &Path,
        mut known: Known,
        source: &mut S,
        skip: impl Fn(&mut S, u64) -> io::Result<()>,
        is_closed: bool,
        reader: &mut impl Reader,
    ) -> io::Result<()> {
        let mut unread: u64 = 0;
        let after = if known.is_whole { 0 } else { known.blocks.len() };
        let last = known.blocks.iter().rposition(|block| block.is_wanted(reader)).map_or(0, |last| last + 1);
        for block in known.blocks.iter().take(last.max(after)) {
            if reader.is_cancelled() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            // Asked anew: a page that is full wants less.
            if block.is_wanted(reader) {
                skip(source, unread)?;
                unread = 0;
                lines(source, block.length, reader)?;
            } else {
                unread += block.length;
            }
        }
        if known.is_whole {
            return Ok(());
        }
        skip(source, unread)?;
        let before = known.blocks.len();
        let read = rest(source, &mut known, is_closed, reader);
        if known.blocks.len() > before || known.is_whole {
            self.remember(path, known);
        }
        read
    }

    fn remember(&self, path: &Path, known: Known) {
        let mut files = self.0.lock();
        if files.get(path).is_some_and(|other| other.file == known.file && other.end > known.end) {
            // Another question read on meanwhile.
            return;
        }
        let others = files.iter().filter(|(other, _)| other.as_path() != path);
        let count = others.map(|(_, known)| known.blocks.len() + 1).sum::<usize>() + known.blocks.len() + 1;
        if count > MOST_BLOCKS {
            files.clear();
        }
        files.insert(path.to_owned(), Arc::new(known));
    }
}

/// The lines of a block.
fn lines(source: &mut impl BufRead, length: u64, reader: &mut impl Reader) -> io::Result<()> {
    let mut source = source.take(length);
    let mut line = Vec::new();
    loop {
        line.clear();
        if source.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        reader.row(line.strip_suffix(b"\n").unwrap_or(&line));
        if reader.is_cancelled() {
            return Err(io::ErrorKind::Interrupted.into());
        }
    }
}

/// The lines after all known blocks, which become blocks. A last line without an end is still being written, and left out.
fn rest(source: &mut impl BufRead, known: &mut Known, is_closed: bool, reader: &mut impl Reader) -> io::Result<()> {
    let mut block = Block::EMPTY;
    let mut line = Vec::new();
    loop {
        line.clear();
        let count = source.read_until(b'\n', &mut line)?;
        let Some(whole) = line.strip_suffix(b"\n") else { break };
        if let Some(end) = reader.row(whole) {
            block.earliest = block.earliest.min(end);
            block.latest = block.latest.max(end);
        }
        block.length = block.length.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        if block.length >= BLOCK {
            known.push(std::mem::replace(&mut block, Block::EMPTY));
        }
        if reader.is_cancelled() {
            return Err(io::ErrorKind::Interrupted.into());
        }
    }
    if is_closed {
        known.push(block);
        known.is_whole = true;
    }
    Ok(())
}

impl Known {
    fn push(&mut self, block: Block) {
        self.end = self.end.saturating_add(block.length);
        self.blocks.push(block);
    }
}

#[cfg(test)]
mod tests;
