//! Replacing a file so that a reader sees the old content or the new one, never a part: a temporary file `<name>.router-tmp` in the
//! same folder, then a rename. A symbolic link stays; what it points to is replaced. Owner and group stay where the system
//! allows it.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

/// Ends the temporary file's name.
pub const TEMPORARY: &str = ".router-tmp";
/// Links followed before a path is given up as a circle.
const MAX_LINKS: usize = 40;
/// Permission bits that [`Mode::Kept`] keeps.
const KEPT_BITS: u32 = 0o755;

/// What a power loss may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hardness {
    /// Take the content back, or leave an empty file.
    Soft,
    /// Nothing, once the call has returned.
    Synced,
}

/// Who may read the new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Its owner.
    Private,
    /// Whoever could before, and nobody but the owner may write it; its owner alone when it is new.
    Kept,
}

/// A new content beside the old one, which stands until [`Prepared::commit`]. Dropped, it is taken away again.
pub struct Prepared {
    target: PathBuf,
    temporary: PathBuf,
    hardness: Hardness,
    is_in_place: bool,
}

/// Writes a new content for `path` beside it. `allow` is asked about the file that `path` leads to, before anything is
/// touched.
pub fn prepare(
    path: &Path,
    content: &[u8],
    mode: Mode,
    hardness: Hardness,
    allow: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<Prepared> {
    let target = follow_links(path)?;
    allow(&target)?;
    let temporary = with_suffix(&target, TEMPORARY);
    let before = fs::metadata(&target).ok();
    let mode = match (mode, &before) {
        (Mode::Kept, Some(before)) => before.mode() & KEPT_BITS,
        (Mode::Private, _) | (Mode::Kept, None) => 0o600,
    };
    let prepared = Prepared { target, temporary, hardness, is_in_place: false };
    write_new(&prepared.temporary, content, mode, before.as_ref(), hardness)?;
    Ok(prepared)
}

impl Prepared {
    /// Puts it in the old one's place. After an error the old content stands.
    pub fn commit(mut self) -> io::Result<()> {
        fs::rename(&self.temporary, &self.target)?;
        self.is_in_place = true;
        if self.hardness == Hardness::Synced
            && let Some(folder) = self.target.parent()
        {
            // The new content is in place; some file systems can't sync a folder.
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            let _ = File::open(folder).map(|folder| folder.sync_all());
        }
        Ok(())
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        if !self.is_in_place {
            // Not there, or left for the next call.
            let _ = fs::remove_file(&self.temporary);
        }
    }
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

fn write_new(
    path: &Path,
    content: &[u8],
    mode: u32,
    before: Option<&fs::Metadata>,
    hardness: Hardness,
) -> io::Result<()> {
    // What a killed process left. `create_new` follows no link that somebody puts here.
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    if let Some(before) = before {
        keep_owner(&file, before)?;
    }
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(content)?;
    if hardness == Hardness::Synced {
        file.sync_all()?;
    }
    Ok(())
}

/// Only root may give a file away; to give it to another group of one's own, anybody may.
fn keep_owner(file: &File, before: &fs::Metadata) -> io::Result<()> {
    let now = file.metadata()?;
    if (now.uid(), now.gid()) == (before.uid(), before.gid()) {
        return Ok(());
    }
    let allowed = |done: io::Result<()>| match done {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(false),
        done => done.map(|()| true),
    };
    if !allowed(fchown(file, Some(before.uid()), Some(before.gid())))? {
        allowed(fchown(file, None, Some(before.gid())))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn replace(path: &Path, content: &[u8], mode: Mode, hardness: Hardness) -> io::Result<()> {
        prepare(path, content, mode, hardness, |_| Ok(()))?.commit()
    }

    fn names(folder: &Path) -> Vec<OsString> {
        let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_content_and_the_mode_are_as_told_and_nothing_else_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        fs::write(folder.path().join("state.json.router-tmp"), "left by a killed process").unwrap();
        for (content, before, wanted, mode) in [
            ("one", 0o600, Mode::Kept, 0o600),
            ("two", 0o664, Mode::Kept, 0o644),
            ("three", 0o644, Mode::Private, 0o600),
        ] {
            if path.exists() {
                fs::set_permissions(&path, Permissions::from_mode(before)).unwrap();
            }
            replace(&path, content.as_bytes(), wanted, Hardness::Synced).unwrap();
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
        symlink(&other, folder.path().join("real.router-tmp")).unwrap();
        replace(&link, b"new", Mode::Private, Hardness::Soft).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&real).unwrap(), "new");
        assert_eq!(fs::read_to_string(&other).unwrap(), "untouched");
    }

    #[test]
    fn after_an_error_the_old_content_stands() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        replace(&path, b"old", Mode::Private, Hardness::Soft).unwrap();
        // A folder in the temporary file's place fails for root too.
        fs::create_dir(folder.path().join("state.json.router-tmp")).unwrap();
        assert!(replace(&path, b"new", Mode::Private, Hardness::Soft).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        fs::remove_dir(folder.path().join("state.json.router-tmp")).unwrap();
        replace(&path, b"new", Mode::Private, Hardness::Soft).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn the_owner_stays_where_that_is_allowed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.json");
        fs::write(&path, "old").unwrap();
        if std::os::unix::fs::chown(&path, Some(12_345), Some(54_321)).is_err() {
            // Only root can make the case.
            return;
        }
        replace(&path, b"new", Mode::Kept, Hardness::Soft).unwrap();
        let after = fs::metadata(&path).unwrap();
        assert_eq!((after.uid(), after.gid()), (12_345, 54_321));
    }

    #[test]
    fn what_is_not_allowed_touches_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        fs::write(&path, "old").unwrap();
        fs::write(folder.path().join("state.json.router-tmp"), "somebody's").unwrap();
        let refused = prepare(&path, b"new", Mode::Private, Hardness::Soft, |_| Err(io::Error::other("no")));
        assert_eq!(refused.err().unwrap().to_string(), "no");
        assert_eq!(fs::read_to_string(folder.path().join("state.json.router-tmp")).unwrap(), "somebody's");
        drop(prepare(&path, b"new", Mode::Private, Hardness::Soft, |_| Ok(())).unwrap());
        assert_eq!(names(folder.path()), ["state.json"], "one that is given up leaves nothing");
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
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
        assert!(!is_seen_torn(&path, second, |content| replace(&path, content, Mode::Private, Hardness::Soft).unwrap()));
        // The control: written in place, the same reader sees it at once.
        assert!(is_seen_torn(&path, 20 * second, |content| fs::write(&path, content).unwrap()));
    }
}
