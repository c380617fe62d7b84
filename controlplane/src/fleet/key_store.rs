//! Follows the key store file. One that can't be read or is not valid leaves the keys as they are.

use std::time::SystemTime;

use parking_lot::Mutex;

use super::Fleet;
use crate::files::file_access::FileAccess;
use crate::files::health::FileHealth;
use crate::files::key_store::look::{Look, Seen, look};

/// The file and what it was when it was looked at last.
pub(super) struct KeyStore {
    pub(super) health: FileHealth,
    access: FileAccess,
    seen: Mutex<Option<Seen>>,
}

impl KeyStore {
    pub(super) fn new(health: FileHealth) -> Self {
        Self { access: FileAccess::new(health.path()), health, seen: Mutex::default() }
    }
}

impl Fleet {
    /// Looks at the key store file again.
    pub async fn follow_key_store(&self) {
        let Some(file) = &self.key_store else { return };
        let stays = |problem: &str| file.health.bad(&format!("{problem}; the last good keys stay in force"));
        let last = *file.seen.lock();
        let looked = file.access.run(move |path| look(path, last, SystemTime::now())).await;
        let seen = match looked {
            Ok(Look::Same(seen)) => {
                file.health.seen_again(self.context.clock.unix_ms(self.context.clock.now()));
                Some(seen)
            }
            Ok(Look::New(seen, Ok(keys))) => {
                self.use_file_keys(&file.health, keys);
                Some(seen)
            }
            Ok(Look::New(seen, Err(problems))) => {
                stays(&problems.join("; "));
                Some(seen)
            }
            Ok(Look::NotRead(problem)) => {
                stays(&problem);
                None
            }
            // A large file on a slow file system, or a failure of ours: the next look begins from the start.
            Err(trouble) => {
                stays(&trouble.to_string());
                None
            }
        };
        *file.seen.lock() = seen;
    }
}
