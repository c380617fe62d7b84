//! The state directory: where the database is, for nobody else to read.

use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// The database's path, checked as far as it can be without making anything. An error names the flag.
pub(super) fn database(dir: &Path) -> Result<PathBuf, String> {
    let complain = |problem: &str| format!("--state-dir {}: {problem}", dir.display());
    match std::fs::metadata(dir) {
        Ok(found) if found.is_dir() => {
            let mode = found.mode() & 0o777;
            if mode & 0o077 != 0 {
                let advice =
                    format!("open to other users (mode {mode:o}); close it with `chmod 700 {}`", dir.display());
                return Err(complain(&advice));
            }
        }
        Ok(_) => return Err(complain("not a directory")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(complain(&error.to_string())),
    }
    let path = std::path::absolute(dir).map_err(|error| complain(&error.to_string()))?.join("router.db");
    match path.to_str() {
        None => Err(complain("not UTF-8; choose another")),
        Some(text) if text.contains('?') => Err(complain("a ? can't stand in the database's path; choose another")),
        Some(_) => Ok(path),
    }
}

/// The directories that [`prepare`] would make, the innermost first.
pub(super) fn missing(dir: &Path) -> Vec<PathBuf> {
    let above = dir.ancestors().take_while(|above| !above.as_os_str().is_empty() && !above.exists());
    above.map(Path::to_owned).collect()
}

/// Makes the directory with mode 0700 if it is not there, and returns the database's path.
pub(super) fn prepare(dir: &Path) -> Result<PathBuf, String> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|error| format!("--state-dir {}: {error}", dir.display()))?;
    database(dir)
}
