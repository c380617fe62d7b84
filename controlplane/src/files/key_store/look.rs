//! Looking at the key store each second costs one system call while it stays as it is: it may be large.

use std::path::Path;
use std::time::SystemTime;

use router_policy::gateway_file::key_store::MAX_BYTES;
use sha2::{Digest, Sha256};

use super::{FileKey, parse};
use crate::files::bounded_read::{SHARED_BITS, Stamp, read_stamped};

/// What the last look has seen.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    stamp: Stamp,
    /// No later write can have left the stamp as it is.
    is_settled: bool,
    digest: [u8; 32],
}

/// What a look gave.
#[derive(Debug)]
pub enum Look {
    /// What the last look has seen stands there still.
    Same(Seen),
    /// Something else: its keys, or every complaint.
    New(Seen, Result<Vec<FileKey>, Vec<String>>),
    /// It can't be read.
    NotRead(String),
}

/// Looks at the file. `now` is compared with the file's times.
pub fn look(path: &Path, last: Option<Seen>, now: SystemTime) -> Look {
    if let Some(last) = last.filter(|last| last.is_settled && Stamp::at(path) == Some(last.stamp)) {
        return Look::Same(last);
    }
    let (bytes, stamp) = match read_stamped(path, MAX_BYTES, SHARED_BITS) {
        Ok(read) => read,
        Err(problem) => return Look::NotRead(problem.to_string()),
    };
    let seen = Seen { stamp, is_settled: stamp.is_settled(now), digest: Sha256::digest(&bytes).into() };
    if last.is_some_and(|last| last.digest == seen.digest) { Look::Same(seen) } else { Look::New(seen, parse(&bytes)) }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, Permissions};
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Duration;

    use super::*;

    fn put(path: &Path, byte: u8) {
        let record = format!(r#"{{"sha256": "{}", "active": true}}"#, format!("{byte:02x}").repeat(32));
        fs::write(path, format!(r#"{{"version": 1, "records": [{record}]}}"#)).unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
    }

    fn new(look: Look) -> (Seen, u8) {
        match look {
            Look::New(seen, keys) => (seen, keys.unwrap()[0].sha256[0]),
            other => panic!("new keys expected, got {other:?}"),
        }
    }

    #[test]
    fn a_write_in_place_is_seen_whatever_the_times_say() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        put(&path, 1);
        let now = SystemTime::now();
        let (seen, key) = new(look(&path, None, now));
        assert!(key == 1 && !seen.is_settled, "just written: it may change within the same tick of the clock");
        // Not even a stamp that says the same is believed.
        put(&path, 2);
        let forged = Seen { stamp: Stamp::at(&path).unwrap(), ..seen };
        assert_eq!(new(look(&path, Some(forged), now)).1, 2);

        let later = now + Duration::from_secs(10);
        let (seen, _) = new(look(&path, None, later));
        assert!(seen.is_settled);
        assert!(matches!(look(&path, Some(seen), later), Look::Same(_)));
        put(&path, 3);
        File::options().write(true).open(&path).unwrap().set_modified(now - Duration::from_secs(60)).unwrap();
        assert_eq!(new(look(&path, Some(seen), later)).1, 3);
    }

    #[test]
    fn what_stands_still_is_not_read_and_what_says_the_same_is_not_parsed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        put(&path, 1);
        let later = SystemTime::now() + Duration::from_secs(10);
        let (seen, _) = new(look(&path, None, later));
        // It would not match: it is not asked.
        assert!(matches!(look(&path, Some(Seen { digest: [0; 32], ..seen }), later), Look::Same(_)));
        put(&path, 1);
        let Look::Same(again) = look(&path, Some(seen), later) else { panic!("the same bytes") };
        assert_ne!(again.stamp, seen.stamp);
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(look(&path, Some(again), later), Look::NotRead(problem) if problem.contains("chmod 600")));
        fs::remove_file(&path).unwrap();
        assert!(matches!(look(&path, Some(again), later), Look::NotRead(_)));
    }
}
