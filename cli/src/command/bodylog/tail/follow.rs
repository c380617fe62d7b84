//! The newest details file of a collector, read on as it grows.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::failure::Failure;

/// What is read at once, in bytes.
const BLOCK: u64 = 256 << 10;

/// A place in the details files.
pub(super) struct Follow {
    folder: PathBuf,
    path: Option<PathBuf>,
    /// Where the next line begins, in bytes.
    at: u64,
}

impl Follow {
    /// At the end of what there is now, in a collector's folder.
    pub(super) fn at_end(dir: &Path) -> Result<Self, Failure> {
        let folder = dir.join("metrics/details");
        let mut follow = Self { path: None, at: 0, folder };
        follow.seek_end().map_err(|error| follow.failure(&error))?;
        Ok(follow)
    }

    /// Some of what was added since, in order; nothing when all was read. A line that is still being written comes with a
    /// later call.
    pub(super) fn next_rows(&mut self) -> Result<Option<Vec<Value>>, Failure> {
        self.read().map_err(|error| self.failure(&error))
    }

    fn seek_end(&mut self) -> io::Result<()> {
        self.path = self.newest(None)?;
        if let Some(file) = self.open()? {
            self.at = end_of_lines(&file)?;
        }
        Ok(())
    }

    fn read(&mut self) -> io::Result<Option<Vec<Value>>> {
        loop {
            if let Some(rows) = self.block()? {
                return Ok(Some(rows));
            }
            let Some(next) = self.newest(self.path.as_deref())? else { return Ok(None) };
            // The day before was closed when the next one began: its last lines first.
            if let Some(rows) = self.block()? {
                return Ok(Some(rows));
            }
            (self.path, self.at) = (Some(next), 0);
        }
    }

    fn open(&self) -> io::Result<Option<File>> {
        match self.path.as_ref().map(File::open) {
            // Nothing was written yet, or it was packed meanwhile.
            None => Ok(None),
            Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Some(file) => file.map(Some),
        }
    }

    /// The whole lines of the next block; a longer one where a block holds no whole line.
    fn block(&mut self) -> io::Result<Option<Vec<Value>>> {
        let Some(mut file) = self.open()? else { return Ok(None) };
        file.seek(SeekFrom::Start(self.at))?;
        let mut bytes = Vec::new();
        loop {
            let count = (&mut file).take(BLOCK).read_to_end(&mut bytes)?;
            if let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') {
                self.at += u64::try_from(end + 1).unwrap_or(0);
                let lines = bytes.get(..end).unwrap_or_default().split(|byte| *byte == b'\n');
                return Ok(Some(lines.filter_map(|line| serde_json::from_slice(line).ok()).collect()));
            }
            if count == 0 {
                return Ok(None);
            }
        }
    }

    /// The first file after this one; without one, the last of all.
    fn newest(&self, after: Option<&Path>) -> io::Result<Option<PathBuf>> {
        let mut files = Vec::new();
        let entries = match fs::read_dir(&self.folder) {
            // Nothing was written yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "jsonl") {
                files.push(path);
            }
        }
        Ok(match after {
            Some(after) => files.into_iter().filter(|path| path.as_path() > after).min(),
            None => files.into_iter().max(),
        })
    }

    fn failure(&self, error: &io::Error) -> Failure {
        Failure::failed(format!("--dir: read {}: {error}", self.folder.display()))
    }
}

/// Where the last whole line of a file ends, looked for from its end.
fn end_of_lines(file: &File) -> io::Result<u64> {
    let mut end = file.metadata()?.len();
    let mut block = Vec::new();
    while end > 0 {
        let start = end.saturating_sub(BLOCK);
        block.resize(usize::try_from(end - start).unwrap_or(0), 0);
        file.read_exact_at(&mut block, start)?;
        if let Some(at) = block.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + u64::try_from(at + 1).unwrap_or(0));
        }
        end = start;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write as _;

    use super::*;

    #[test]
    fn new_lines_come_once_whole_and_over_the_end_of_a_day() {
        let dir = tempfile::tempdir().unwrap();
        let mut follow = Follow::at_end(dir.path()).unwrap();
        assert!(follow.next_rows().unwrap().is_none(), "nothing there yet");
        let folder = dir.path().join("metrics/details");
        fs::create_dir_all(&folder).unwrap();
        let add = |day: &str, text: &str| {
            let path = folder.join(format!("2026-06-{day}.jsonl"));
            OpenOptions::new().create(true).append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
        };
        add("17", "1\n");
        let mut follow = Follow::at_end(dir.path()).unwrap();
        let mut new = || {
            let blocks = std::iter::from_fn(|| follow.next_rows().unwrap());
            blocks.flatten().map(|row| row.to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(new(), "");
        add("17", "2\n3");
        assert_eq!(new(), "2");
        add("17", "4\n");
        add("18", "5\nnonsense\n");
        add("19", "6\n");
        assert_eq!(new(), "34 5 6");
        fs::remove_file(folder.join("2026-06-19.jsonl")).unwrap();
        assert_eq!(new(), "");
        add("20", "7\n");
        assert_eq!(new(), "7");
    }

    #[test]
    fn a_long_day_is_not_read_to_find_its_end_and_what_is_added_comes_in_blocks() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("metrics/details");
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("2026-06-17.jsonl");
        let mut file = File::create(&path).unwrap();
        // 64 GiB that take no room, and no line is in them.
        file.set_len(64 << 30).unwrap();
        file.seek(SeekFrom::End(0)).unwrap();
        let half = "x".repeat(3 << 18);
        file.write_all(format!("\n1\n\"{half}").as_bytes()).unwrap();
        let mut follow = Follow::at_end(dir.path()).unwrap();
        assert!(follow.next_rows().unwrap().is_none(), "half a line");
        file.write_all(format!("\"\n{}", "2\n".repeat(1 << 20)).as_bytes()).unwrap();
        let first = follow.next_rows().unwrap().unwrap();
        assert_eq!(first[0].as_str().unwrap().len(), half.len());
        let (mut rows, mut blocks) = (first.len() - 1, 0);
        while let Some(block) = follow.next_rows().unwrap() {
            assert!(block.len() <= 1 << 17 && block.iter().all(|row| row == 2));
            (rows, blocks) = (rows + block.len(), blocks + 1);
        }
        assert!(rows == 1 << 20 && blocks >= 7, "{rows} in {blocks}");
    }
}
