//! Reading a small file that somebody else writes: bounded, regular files only, and nobody else may have changed it.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Read or write for group or others.
pub const SHARED_BITS: u32 = 0o066;
/// Write for group or others.
pub const SHARED_WRITE_BITS: u32 = 0o022;

/// Opening does not wait, whatever stands there by then; no effect on a regular file. The C headers' number.
const O_NONBLOCK: i32 = if cfg!(target_os = "linux") { 0o4000 } else { 0x4 };

/// A file that was touched this recently may be touched again without a sign: its times are that coarse on some file systems.
const COARSEST_TIME: Duration = Duration::from_secs(2);

/// Tells one state of a file from another without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    place: (u64, u64),
    size: u64,
    mode: u32,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &fs::Metadata) -> Self {
        Self {
            place: (metadata.dev(), metadata.ino()),
            size: metadata.size(),
            mode: metadata.mode(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Of what stands at `path` now; `None` when that can't be looked at.
    pub fn at(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().map(|metadata| Self::of(&metadata))
    }

    /// Whether every later write shows in the stamp. A time in the future shows nothing.
    pub fn is_settled(&self, now: SystemTime) -> bool {
        let seconds =
            |time: SystemTime| time.duration_since(UNIX_EPOCH).ok().and_then(|t| i64::try_from(t.as_secs()).ok());
        let newest = self.modified.0.max(self.changed.0);
        now.checked_sub(COARSEST_TIME).and_then(seconds).is_some_and(|until| newest < until)
    }
}

/// Why a file gives nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadProblem {
    /// There is none.
    Missing,
    /// In words, without the path.
    Bad(String),
}

impl std::fmt::Display for ReadProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing => f.write_str("does not exist"),
            Self::Bad(problem) => f.write_str(problem),
        }
    }
}

/// Reads a file of at most `max` bytes. `forbidden` are permission bits that it must not have.
pub fn read_bounded(path: &Path, max: u64, forbidden: u32) -> Result<Vec<u8>, ReadProblem> {
    read_stamped(path, max, forbidden).map(|(bytes, _)| bytes)
}

/// [`read_bounded`], with the stamp from before the first byte was read.
pub fn read_stamped(path: &Path, max: u64, forbidden: u32) -> Result<(Vec<u8>, Stamp), ReadProblem> {
    // Looked at before it is opened: to open a device may do something.
    check_kind(&fs::metadata(path).map_err(|error| problem(&error))?)?;
    read_opened(path, max, forbidden)
}

/// What was looked at may be something else by now: a pipe, whose writer must not be waited for.
fn read_opened(path: &Path, max: u64, forbidden: u32) -> Result<(Vec<u8>, Stamp), ReadProblem> {
    let opened = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(path);
    let file: File = opened.map_err(|error| problem(&error))?;
    let metadata = file.metadata().map_err(|error| problem(&error))?;
    check_kind(&metadata)?;
    check_mode(path, metadata.mode(), forbidden).map_err(ReadProblem::Bad)?;
    let mut bytes = Vec::new();
    file.take(max + 1).read_to_end(&mut bytes).map_err(|error| problem(&error))?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > max {
        return Err(ReadProblem::Bad(format!("larger than {max} bytes")));
    }
    Ok((bytes, Stamp::of(&metadata)))
}

/// Refuses permission bits, saying what to run.
pub fn check_mode(path: &Path, mode: u32, forbidden: u32) -> Result<(), String> {
    if mode & forbidden == 0 {
        return Ok(());
    }
    let (what, advice) = if forbidden == SHARED_BITS { ("read or written", "600") } else { ("written", "go-w") };
    Err(format!("can be {what} by other users (mode {:04o}); run: chmod {advice} {}", mode & 0o7777, path.display()))
}

fn check_kind(metadata: &fs::Metadata) -> Result<(), ReadProblem> {
    if metadata.is_file() { Ok(()) } else { Err(ReadProblem::Bad("is not a regular file".to_owned())) }
}

fn problem(error: &std::io::Error) -> ReadProblem {
    match error.kind() {
        ErrorKind::NotFound => ReadProblem::Missing,
        _ => ReadProblem::Bad(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_pipe_that_takes_the_file_s_place_is_refused_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let _ = send.send([read_opened(&path, 10, 0), read_stamped(&path, 10, 0)]);
        });
        let refused = receive.recv_timeout(Duration::from_secs(10)).expect("it does not wait for a writer");
        for one in refused {
            assert_eq!(one.unwrap_err().to_string(), "is not a regular file");
        }
    }

    #[test]
    fn as_much_as_allowed_is_read_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "12345").unwrap();
        assert_eq!(read_bounded(&path, 5, 0).unwrap(), b"12345");
        assert_eq!(read_bounded(&path, 4, 0).unwrap_err().to_string(), "larger than 4 bytes");
        assert_eq!(read_bounded(&folder.path().join("none"), 4, 0), Err(ReadProblem::Missing));
    }
}
