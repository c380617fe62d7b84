//! Private paths (gateway.md §6): the files that the control plane reads and writes, with their temporary and companion
//! files, must not overlap one another, and others may not read or change them. Looked at before anything is opened, and at
//! each write, for links may be made later. A symbolic link to somewhere else is fine.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::atomic_write::{TEMPORARY, follow_links, with_suffix};
use super::bounded_read::{SHARED_BITS, SHARED_WRITE_BITS, check_mode};

/// What a path is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Nobody else may read or write it.
    Private,
    /// Nobody else may write it.
    OwnerWrites,
    /// SQLite's file and its companions; nobody else may read or write it.
    Database,
    /// Only read, at start.
    Input,
}

/// A path with the flag that names it.
#[derive(Debug, Clone)]
pub struct Guarded {
    /// With its dashes.
    pub flag: &'static str,
    /// As given.
    pub path: PathBuf,
    /// What for.
    pub used_as: Use,
}

/// A file that is written, and those that it must not become.
#[derive(Debug, Clone)]
pub struct Guard {
    own: Guarded,
    others: Vec<Guarded>,
}

impl Guard {
    /// `all` are the files in use, this one included or not.
    pub fn new(own: Guarded, all: &[Guarded]) -> Self {
        let others = all.iter().filter(|other| other.flag != own.flag).cloned().collect();
        Self { own, others }
    }

    /// Refuses a target (its links followed) that is another of the files, or belongs to one.
    pub fn check(&self, target: &Path) -> std::io::Result<()> {
        let one = footprint(&Guarded { path: target.to_owned(), ..self.own.clone() })?;
        for other in &self.others {
            // One whose folder is gone is nothing that could be written over.
            let Ok(second) = footprint(other) else { continue };
            if let Some(how) = overlap(&one, &second) {
                let text = format!("it overlaps {} {} by now: {how}", other.flag, other.path.display());
                return Err(std::io::Error::other(text));
            }
        }
        Ok(())
    }
}

/// Everything that one flag may touch.
struct Footprint {
    /// The file itself: where it stands, and where it leads.
    own: BTreeSet<PathBuf>,
    /// What is made beside it.
    beside: BTreeSet<PathBuf>,
    /// Device and number of each that exists.
    inodes: BTreeSet<(u64, u64)>,
}

/// Every complaint at once.
pub fn check(paths: &[Guarded]) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut footprints = Vec::new();
    for guarded in paths {
        match footprint(guarded) {
            Ok(footprint) => footprints.push((guarded, footprint)),
            Err(error) => complaints.push(format!("{}: {}: {error}", guarded.flag, guarded.path.display())),
        }
        complaints.extend(check_file(guarded));
    }
    for (at, (one, first)) in footprints.iter().enumerate() {
        for (other, second) in footprints.iter().skip(at + 1) {
            if let Some(how) = overlap(first, second) {
                complaints.push(format!(
                    "{} {} and {} {} overlap: {how}; give each file a path of its own",
                    one.flag,
                    one.path.display(),
                    other.flag,
                    other.path.display()
                ));
            }
        }
    }
    complaints
}

fn check_file(guarded: &Guarded) -> Option<String> {
    let forbidden = match guarded.used_as {
        Use::Private | Use::Database => SHARED_BITS,
        Use::OwnerWrites => SHARED_WRITE_BITS,
        Use::Input => return None,
    };
    // One that is not there yet is made private; one that can't be looked at is complained of by its reader.
    let metadata = fs::metadata(&guarded.path).ok()?;
    if !metadata.is_file() {
        return Some(format!("{}: {}: is not a regular file", guarded.flag, guarded.path.display()));
    }
    let problem = check_mode(&guarded.path, metadata.mode(), forbidden).err()?;
    Some(format!("{}: {}: {problem}", guarded.flag, guarded.path.display()))
}

fn overlap(one: &Footprint, other: &Footprint) -> Option<String> {
    if !one.own.is_disjoint(&other.own) {
        return Some("they are the same file".to_owned());
    }
    let shared = |a: &BTreeSet<PathBuf>, b: &BTreeSet<PathBuf>| a.intersection(b).next().cloned();
    let beside = shared(&one.own, &other.beside)
        .or_else(|| shared(&one.beside, &other.own))
        .or_else(|| shared(&one.beside, &other.beside));
    if let Some(path) = beside {
        return Some(format!("{} is used for both (temporary and companion files count)", path.display()));
    }
    (!one.inodes.is_disjoint(&other.inodes)).then(|| "a hard link makes them the same file".to_owned())
}

fn footprint(guarded: &Guarded) -> std::io::Result<Footprint> {
    let own = BTreeSet::from([place(&guarded.path)?, place(&follow_links(&guarded.path)?)?]);
    let suffixes: &[&str] = match guarded.used_as {
        Use::Private | Use::OwnerWrites => &[TEMPORARY],
        Use::Database => &["-wal", "-shm", "-journal", ".lock"],
        Use::Input => &[],
    };
    let beside: BTreeSet<PathBuf> =
        own.iter().flat_map(|path| suffixes.iter().map(move |suffix| with_suffix(path, suffix))).collect();
    let inodes = own
        .iter()
        .chain(&beside)
        .filter_map(|path| fs::metadata(path).ok())
        .map(|metadata| (metadata.dev(), metadata.ino()))
        .collect();
    Ok(Footprint { own, beside, inodes })
}

/// The one name of a path: its folder without links, then its own name. A folder that is not there is an error.
fn place(path: &Path) -> std::io::Result<PathBuf> {
    let Some(name) = path.file_name() else {
        return fs::canonicalize(path);
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok(fs::canonicalize(folder)?.join(name))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    struct Bench {
        folder: tempfile::TempDir,
    }

    impl Bench {
        fn new() -> Self {
            Self { folder: tempfile::tempdir().unwrap() }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn file(&self, name: &str, mode: u32) -> PathBuf {
            let path = self.path(name);
            fs::write(&path, "{}").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            path
        }

        fn check(&self, keys: &str, control: &str, state: &str, database: &str) -> Vec<String> {
            let guard = |flag, name: &str, used_as| Guarded { flag, path: self.path(name), used_as };
            check(&[
                guard("--key-store", keys, Use::Private),
                guard("--control-file", control, Use::OwnerWrites),
                guard("--backend-state", state, Use::Private),
                guard("--database-url", database, Use::Database),
            ])
        }
    }

    #[test]
    fn paths_of_their_own_are_fine_also_through_links() {
        let bench = Bench::new();
        fs::create_dir(bench.path("..data")).unwrap();
        bench.file("..data/keys", 0o600);
        symlink("..data/keys", bench.path("keys")).unwrap();
        bench.file("control", 0o644);
        bench.file("state", 0o600);
        bench.file("db", 0o600);
        assert_eq!(bench.check("keys", "control", "state", "db"), Vec::<String>::new());
        assert_eq!(bench.check("keys", "new-control", "new-state", "new-db"), Vec::<String>::new());
    }

    #[test]
    fn every_kind_of_overlap_is_refused_and_names_both_flags() {
        let bench = Bench::new();
        bench.file("keys", 0o600);
        bench.file("control", 0o600);
        fs::hard_link(bench.path("control"), bench.path("hard")).unwrap();
        symlink("control", bench.path("soft")).unwrap();
        symlink("not-there-yet", bench.path("dangling")).unwrap();
        fs::create_dir(bench.path("folder")).unwrap();
        for (control, state, database, flags) in [
            ("control", "control", "db", "--control-file"),
            ("control", "folder/../control", "db", "--control-file"),
            ("control", "hard", "db", "--control-file"),
            ("control", "soft", "db", "--control-file"),
            ("not-there-yet", "dangling", "db", "--control-file"),
            ("control", "control.router-tmp", "db", "--control-file"),
            ("control", "soft.router-tmp", "db", ""),
            ("control.router-tmp", "control", "db", "--control-file"),
            ("soft", "soft.router-tmp", "db", "--control-file"),
            ("c", "db-wal", "db", "--database-url"),
            ("c", "db.lock", "db", "--database-url"),
            ("c", "db-shm", "db", "--database-url"),
            ("c", "db", "db", "--database-url"),
        ] {
            let complaints = bench.check("keys", control, state, database);
            if flags.is_empty() {
                assert!(complaints.is_empty(), "control: {complaints:?}");
                continue;
            }
            assert_eq!(complaints.len(), 1, "{control} {state} {database}: {complaints:?}");
            for word in [flags, "--backend-state", "overlap", "give each file a path of its own"] {
                assert!(complaints[0].contains(word), "{complaints:?}");
            }
        }
        assert_eq!(bench.check("keys", "keys", "keys", "keys").len(), 6, "every pair");
    }

    #[test]
    fn a_link_that_is_made_later_is_refused_at_the_write() {
        let bench = Bench::new();
        let keys = bench.file("keys", 0o600);
        let guarded = |flag, name: &str, used_as| Guarded { flag, path: bench.path(name), used_as };
        let (own, database) =
            (guarded("--backend-state", "state", Use::Private), guarded("--database-url", "db", Use::Database));
        let guard = Guard::new(own.clone(), &[guarded("--key-store", "keys", Use::Private), own, database]);
        guard.check(&bench.path("state")).unwrap();
        guard.check(&bench.path("elsewhere")).unwrap();
        symlink("keys", bench.path("state")).unwrap();
        fs::hard_link(&keys, bench.path("hard")).unwrap();
        for target in ["keys", "hard", "keys.router-tmp", "db-wal"] {
            let refused = guard.check(&bench.path(target)).unwrap_err().to_string();
            assert!(refused.starts_with("it overlaps --"), "{target}: {refused}");
        }
    }

    #[test]
    fn modes_that_let_others_in_are_refused_with_what_to_run() {
        let bench = Bench::new();
        for (mode, private, written) in [
            (0o600, false, false),
            (0o700, false, false),
            (0o640, true, false),
            (0o604, true, false),
            (0o620, true, true),
            (0o602, true, true),
        ] {
            for name in ["keys", "control", "state", "db"] {
                bench.file(name, mode);
            }
            let complaints = bench.check("keys", "control", "state", "db");
            let about = |flag: &str| complaints.iter().find(|complaint| complaint.starts_with(flag));
            for (flag, name) in [("--key-store", "keys"), ("--backend-state", "state"), ("--database-url", "db")] {
                assert_eq!(about(flag).is_some(), private, "{mode:o} {complaints:?}");
                let advice = format!("run: chmod 600 {}", bench.path(name).display());
                assert!(about(flag).is_none_or(|complaint| complaint.contains(&advice)), "{complaints:?}");
            }
            assert_eq!(about("--control-file").is_some(), written, "{mode:o} {complaints:?}");
        }
    }

    #[test]
    fn folders_and_missing_folders_are_told() {
        let bench = Bench::new();
        fs::create_dir(bench.path("folder")).unwrap();
        let complaints = bench.check("folder", "no/control", "state", "db");
        assert_eq!(complaints.len(), 2, "{complaints:?}");
        assert!(complaints[0].contains("--key-store") && complaints[0].contains("is not a regular file"));
        assert!(complaints[1].contains("--control-file") && complaints[1].contains("No such file"));
    }
}
