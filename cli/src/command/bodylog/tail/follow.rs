//! The newest details file of a collector, read on as it grows.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::failure::Failure;

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
        follow.path = follow.newest(None).map_err(|error| follow.failure(&error))?;
        follow.new_rows()?;
        Ok(follow)
    }

    /// What was added since. A line that is still being written comes with the next call.
    pub(super) fn new_rows(&mut self) -> Result<Vec<Value>, Failure> {
        self.read().map_err(|error| self.failure(&error))
    }

    fn read(&mut self) -> io::Result<Vec<Value>> {
        let mut rows = self.rest()?;
        while let Some(next) = self.newest(self.path.as_deref())? {
            // The day before was closed when the next one began: its last lines first.
            rows.extend(self.rest()?);
            (self.path, self.at) = (Some(next), 0);
            rows.extend(self.rest()?);
        }
        Ok(rows)
    }

    fn rest(&mut self) -> io::Result<Vec<Value>> {
        let Some(path) = &self.path else { return Ok(Vec::new()) };
        let mut file = match File::open(path) {
            Ok(file) => file,
            // Packed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        file.seek(SeekFrom::Start(self.at))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.at += u64::try_from(whole).unwrap_or(0);
        let lines = bytes.get(..whole).unwrap_or_default().split(|byte| *byte == b'\n');
        Ok(lines.filter_map(|line| serde_json::from_slice(line).ok()).collect())
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

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write as _;

    use super::*;

    #[test]
    fn new_lines_come_once_whole_and_over_the_end_of_a_day() {
        let dir = tempfile::tempdir().unwrap();
        let mut follow = Follow::at_end(dir.path()).unwrap();
        assert!(follow.new_rows().unwrap().is_empty(), "nothing there yet");
        let folder = dir.path().join("metrics/details");
        fs::create_dir_all(&folder).unwrap();
        let add = |day: &str, text: &str| {
            let path = folder.join(format!("2026-06-{day}.jsonl"));
            OpenOptions::new().create(true).append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
        };
        add("17", "1\n");
        let mut follow = Follow::at_end(dir.path()).unwrap();
        let mut new = || follow.new_rows().unwrap().iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
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
}
