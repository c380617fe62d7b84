//! Replacing a file so that a reader sees the old content or the new one, never a part: a temporary file `<name>.tmp` in the
//! same folder, then a rename. A symbolic link stays; what it points to is replaced.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Ends the temporary file's name.
pub const TEMPORARY: &str = ".tmp";
/// Links followed before a path is given up as a circle.
const MAX_LINKS: usize = 40;

/// What a power loss may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hardness {
    /// Take the content back, or leave an empty file.
    Soft,
    /// Nothing, once the call has returned.
    Synced,
}

/// Replaces `path`'s content. After an error the old content stands.
pub fn replace(path: &Path, content: &[u8], mode: u32, hardness: Hardness) -> io::Result<()> {
    let target = follow_links(path)?;
    let temporary = with_suffix(&target, TEMPORARY);
    let written = write_new(&temporary, content, mode, hardness).and_then(|()| fs::rename(&temporary, &target));
    if let Err(error) = written {
        // Not there, or left for the next call.
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    if hardness == Hardness::Synced
        && let Some(folder) = target.parent()
    {
        // The new content is in place; some file systems can't sync a folder.
        let _ = File::open(if folder.as_os_str().is_empty() { Path::new(".") } else { folder }).map(|f| f.sync_all());
    }
    Ok(())
}

/// Where a path leads when every symbolic link at its end is followed; what it names need not exist.
pub fn follow_links(path: &Path) -> io::Result<PathBuf> {
    let mut at = path.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::symlink_metadata(&at) {
            Ok(metadata) if metadata.is_symlink() => {
                let target = fs::read_link(&at)?;
                at = at.parent().unwrap_or(Path::new("")).join(target);
            }
            Ok(_) => return Ok(at),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(at),
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

/// A path with more at its end.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn write_new(path: &Path, content: &[u8], mode: u32, hardness: Hardness) -> io::Result<()> {
    // What a killed process left. `create_new` follows no link that somebody puts here.
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(content)?;
    if hardness == Hardness::Synced {
        file.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(folder: &Path) -> Vec<OsString> {
        let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_content_and_the_mode_are_as_told_and_nothing_else_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        fs::write(folder.path().join("state.json.tmp"), "left by a killed process").unwrap();
        for (content, mode) in [("one", 0o600), ("two", 0o640)] {
            replace(&path, content.as_bytes(), mode, Hardness::Synced).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
            assert_eq!(names(folder.path()), ["state.json"]);
        }
    }

    #[test]
    fn a_link_stays_and_a_link_in_the_temporary_place_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link, other) = (folder.path().join("real"), folder.path().join("link"), folder.path().join("other"));
        symlink("real", &link).unwrap();
        fs::write(&other, "untouched").unwrap();
        symlink(&other, folder.path().join("real.tmp")).unwrap();
        replace(&link, b"new", 0o600, Hardness::Soft).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&real).unwrap(), "new");
        assert_eq!(fs::read_to_string(&other).unwrap(), "untouched");
    }

    #[test]
    fn after_an_error_the_old_content_stands() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        replace(&path, b"old", 0o600, Hardness::Soft).unwrap();
        // A folder in the temporary file's place fails for root too.
        fs::create_dir(folder.path().join("state.json.tmp")).unwrap();
        assert!(replace(&path, b"new", 0o600, Hardness::Soft).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        fs::remove_dir(folder.path().join("state.json.tmp")).unwrap();
        replace(&path, b"new", 0o600, Hardness::Soft).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }

    /// Reads in a loop while `write` writes; whether some reading was not one of the two whole contents.
    fn is_seen_torn(path: &Path, give_up: std::time::Duration, write: impl Fn(&[u8])) -> bool {
        let contents = [vec![b'a'; 1 << 20], vec![b'b'; 1 << 20]];
        write(&contents[0]);
        let is_done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|threads| {
            let reader = threads.spawn(|| {
                while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                    if !contents.contains(&fs::read(path).unwrap()) {
                        return true;
                    }
                }
                false
            });
            let end = std::time::Instant::now() + give_up;
            for content in contents.iter().cycle() {
                write(content);
                if reader.is_finished() || std::time::Instant::now() > end {
                    break;
                }
            }
            is_done.store(true, std::sync::atomic::Ordering::Relaxed);
            reader.join().unwrap()
        })
    }

    #[test]
    fn a_reader_never_sees_a_part() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        let second = std::time::Duration::from_secs(1);
        assert!(!is_seen_torn(&path, second, |content| replace(&path, content, 0o600, Hardness::Soft).unwrap()));
        // The control: written in place, the same reader sees it at once.
        assert!(is_seen_torn(&path, 20 * second, |content| fs::write(&path, content).unwrap()));
    }
}
