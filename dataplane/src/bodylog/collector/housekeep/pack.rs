//! Files of a past day into one packed file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::bodylog::collector::files::{copy, whole_length};

/// Speed over size: a day may be hundreds of gigabytes.
const LEVEL: i32 = 3;
/// How far back repetitions are found, as a power of two in bytes: each turn of a session repeats those before it. Readers
/// need as much memory; `zstd` takes up to 27 without being asked.
const WINDOW: u32 = 26;
/// What is compared at once, in bytes.
const BLOCK: u64 = 64 << 10;

/// A file that is to be packed, as it was when it was opened.
#[derive(Debug)]
pub(super) struct Source {
    path: PathBuf,
    file: File,
    length: u64,
    /// Without the half line that a killed process may have left at its end.
    whole: u64,
}

impl Source {
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let file = File::open(&path)?;
        let (length, whole) = (file.metadata()?.len(), whole_length(&file)?);
        Ok(Self { path, file, length, whole })
    }

    fn lines(&self) -> io::Result<impl io::Read> {
        let mut file = &self.file;
        io::Seek::rewind(&mut file)?;
        Ok(file.take(self.whole))
    }

    /// Removes the file, unless something was added since it was opened: that is the next round's.
    pub(super) fn remove(self) -> io::Result<()> {
        if self.file.metadata()?.len() == self.length { fs::remove_file(self.path) } else { Ok(()) }
    }
}

/// Packs `sources` in their order. `packed` is there whole and on the disk afterwards, or not at all.
pub(super) fn write(sources: &[Source], packed: &Path, is_stopping: &dyn Fn() -> bool) -> io::Result<()> {
    let unfinished = packed.with_extension("zst.tmp");
    let written = encode(sources, &unfinished, is_stopping).and_then(|()| fs::rename(&unfinished, packed));
    if let Err(error) = written {
        drop(fs::remove_file(&unfinished));
        return Err(error);
    }
    // The new name must be on the disk before the old ones go.
    packed.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

fn encode(sources: &[Source], target: &Path, is_stopping: &dyn Fn() -> bool) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(target)?;
    let mut encoder = zstd::Encoder::new(file, LEVEL)?;
    encoder.include_checksum(true)?;
    encoder.long_distance_matching(true)?;
    encoder.window_log(WINDOW)?;
    for source in sources {
        copy(&mut source.lines()?, &mut encoder, is_stopping)?;
    }
    encoder.finish()?.sync_all()
}

/// Whether `sources` are in a packed file already: its end, as they are removed from the first to the last. A file that
/// can't be read holds nothing.
pub(super) fn holds(packed: &Path, sources: &[Source], is_stopping: &dyn Fn() -> bool) -> io::Result<bool> {
    match ends_with(packed, sources, is_stopping) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
        compared => Ok(compared.unwrap_or(false)),
    }
}

fn ends_with(packed: &Path, sources: &[Source], is_stopping: &dyn Fn() -> bool) -> io::Result<bool> {
    let mut length = Counted(0);
    copy(&mut zstd::Decoder::new(File::open(packed)?)?, &mut length, is_stopping)?;
    let Some(before) = length.0.checked_sub(sources.iter().map(|source| source.whole).sum()) else { return Ok(false) };
    let mut packed = zstd::Decoder::new(File::open(packed)?)?;
    copy(&mut (&mut packed).take(before), &mut io::sink(), is_stopping)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for source in sources {
        let mut lines = source.lines()?;
        loop {
            ours.clear();
            theirs.clear();
            let count = (&mut lines).take(BLOCK).read_to_end(&mut ours)?;
            (&mut packed).take(u64::try_from(count).unwrap_or(0)).read_to_end(&mut theirs)?;
            if ours != theirs {
                return Ok(false);
            }
            if count == 0 {
                break;
            }
            if is_stopping() {
                return Err(io::ErrorKind::Interrupted.into());
            }
        }
    }
    Ok(true)
}

/// How many bytes were written to it.
struct Counted(u64);

impl io::Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
