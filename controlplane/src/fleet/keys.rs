//! Client keys of two sources: the database (stored first, then told to every replica) and the key store file, which is its
//! own storage. Where both hold one secret, the database's key has it: the file's takes over when that is revoked.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use rand::RngExt as _;
use router_policy::ids::{KEY_LABEL, hash_prefix, is_key_label};
use router_proto::v1;

use super::Fleet;
use crate::error::AdminError;
use crate::files::health::FileHealth;
use crate::files::key_store::FileKey;
use crate::snapshot::SnapshotHub;
use crate::store::{KeyRow, StoreError};

/// A key that opens the gateway now.
#[derive(Clone, PartialEq, Eq)]
pub struct KnownKey {
    /// Names it for ever.
    pub id: String,
    /// Its label.
    pub name: String,
    /// SHA-256 of the secret. Never shown as a whole.
    pub sha256: [u8; 32],
    /// When it was added; 0 for a key of the file, which does not say.
    pub created_unix_ms: u64,
    /// Where it comes from.
    pub source: v1::KeySource,
}

impl fmt::Debug for KnownKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KnownKey")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("sha256_prefix", &hash_prefix(&self.sha256))
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

/// A key that was revoked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevokedKey {
    /// As it was.
    pub key: KeyRow,
    /// Why its secret is valid all the same, and what ends it; empty when it is not.
    pub note: String,
}

/// The keys of both sources, and what replicas have been told of them.
pub(super) struct Keys {
    database: BTreeMap<String, KeyRow>,
    file: BTreeMap<[u8; 32], FileKey>,
    told: BTreeMap<String, v1::Key>,
    /// Told while a key store is followed and there is no key at all: no secret has this hash, and a gateway whose last key
    /// was taken away must not be open because it has none.
    nobody: Option<v1::Key>,
}

impl Keys {
    /// `file` are the key store's keys, when one is followed.
    pub(super) fn new(database: Vec<KeyRow>, file: Option<Vec<FileKey>>) -> Self {
        let nobody = file.is_some().then(|| v1::Key {
            id: "file_none".to_owned(),
            name: "file_none".to_owned(),
            sha256: rand::rng().random::<[u8; 32]>().to_vec().into(),
        });
        Self {
            database: database.into_iter().map(|key| (key.id.clone(), key)).collect(),
            file: by_hash(file.unwrap_or_default()),
            told: BTreeMap::new(),
            nobody,
        }
    }

    fn known(&self) -> Vec<KnownKey> {
        let taken: HashSet<[u8; 32]> = self.database.values().map(|key| key.sha256).collect();
        let stored = self.database.values().map(|key| KnownKey {
            id: key.id.clone(),
            name: key.name.clone(),
            sha256: key.sha256,
            created_unix_ms: key.created_unix_ms,
            source: v1::KeySource::Database,
        });
        let listed = self.file.values().filter(|key| !taken.contains(&key.sha256)).map(|key| KnownKey {
            id: key.id.clone(),
            name: key.name.clone(),
            sha256: key.sha256,
            created_unix_ms: 0,
            source: v1::KeySource::File,
        });
        stored.chain(listed).collect()
    }

    /// Tells replicas what has changed since the last time.
    pub(super) fn tell(&mut self, hub: &SnapshotHub) {
        let message = |key: KnownKey| v1::Key { id: key.id, name: key.name, sha256: key.sha256.to_vec().into() };
        let mut now: Vec<v1::Key> = self.known().into_iter().map(message).collect();
        if now.is_empty() {
            now.extend(self.nobody.clone());
        }
        let now: BTreeMap<String, v1::Key> = now.into_iter().map(|key| (key.id.clone(), key)).collect();
        let gone: Vec<String> = self.told.keys().filter(|id| !now.contains_key(*id)).cloned().collect();
        let new = now.values().filter(|key| self.told.get(&key.id) != Some(key)).cloned().collect();
        hub.change_keys(&gone, new);
        self.told = now;
    }
}

fn by_hash(keys: Vec<FileKey>) -> BTreeMap<[u8; 32], FileKey> {
    keys.into_iter().map(|key| (key.sha256, key)).collect()
}

impl Fleet {
    /// Adds a key by the SHA-256 of its secret.
    pub async fn add_key(&self, name: &str, sha256: &[u8]) -> Result<KeyRow, AdminError> {
        if !is_key_label(name) {
            let problem = format!("label expected; {KEY_LABEL}");
            return Err(AdminError::Argument { field: "name", problem });
        }
        let sha256: [u8; 32] = sha256.try_into().map_err(|_| AdminError::Argument {
            field: "sha256",
            problem: format!("32 bytes expected, got {}", sha256.len()),
        })?;
        let id = format!("key_{:016x}", rand::rng().random::<u64>());
        let created_unix_ms = self.context.clock.unix_ms(self.context.clock.now());
        let key = KeyRow { id, name: name.to_owned(), sha256, created_unix_ms };
        self.store.add_key(&key).await.map_err(|error| match error {
            StoreError::Conflict { .. } => AdminError::Exists { what: "key", name: name.to_owned() },
            other => other.into(),
        })?;
        let mut keys = self.keys.lock();
        keys.database.insert(key.id.clone(), key.clone());
        keys.tell(&self.hub);
        drop(keys);
        tracing::info!(key = key.id, name, "key added");
        Ok(key)
    }

    /// Every key that opens the gateway, by name.
    pub fn keys(&self) -> Vec<KnownKey> {
        let mut keys = self.keys.lock().known();
        keys.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
        keys
    }

    /// Revokes a key of the database by id or name; replicas hear of it at once.
    pub async fn revoke_key(&self, wanted: &str) -> Result<RevokedKey, AdminError> {
        let found = self.keys.lock().database.values().find(|key| key.id == wanted || key.name == wanted).cloned();
        let Some(key) = found else {
            return Err(self.not_revocable(wanted));
        };
        self.store.remove_key(&key.id).await?;
        let mut keys = self.keys.lock();
        keys.database.remove(&key.id);
        keys.tell(&self.hub);
        let file_key = keys.file.get(&key.sha256).cloned();
        drop(keys);
        tracing::info!(key = key.id, name = key.name, "key revoked");
        let note = file_key.map(|file_key| self.still_valid(&file_key)).unwrap_or_default();
        if !note.is_empty() {
            tracing::warn!(key = key.id, note, "the secret of a revoked key stays valid");
        }
        Ok(RevokedKey { key, note })
    }

    /// A secret that was revoked in the database and stands in the file too.
    fn still_valid(&self, file_key: &FileKey) -> String {
        let path = self.key_store.as_ref().map(|file| file.health.path().display().to_string()).unwrap_or_default();
        format!(
            "its secret is active in the key store file too and stays valid, as key '{}' ({}); set `active: false` for it in {path}",
            file_key.name, file_key.id
        )
    }

    fn not_revocable(&self, wanted: &str) -> AdminError {
        let in_file = self.keys.lock().file.values().any(|key| key.id == wanted || key.name == wanted);
        match &self.key_store {
            Some(file) if in_file => AdminError::Precondition(format!(
                "key '{wanted}' stands in the key store file; set `active: false` for it in {}",
                file.health.path().display()
            )),
            _ => AdminError::NotFound { what: "key", name: wanted.to_owned() },
        }
    }

    /// Takes up what the key store file holds.
    pub(super) fn use_file_keys(&self, file: &FileHealth, found: Vec<FileKey>) {
        let found = by_hash(found);
        let mut keys = self.keys.lock();
        if keys.file != found {
            let added = found.keys().filter(|hash| !keys.file.contains_key(*hash)).count();
            let ended = keys.file.keys().filter(|hash| !found.contains_key(*hash)).count();
            keys.file = found;
            keys.tell(&self.hub);
            tracing::info!(active = keys.file.len(), added, ended, "key store file read anew");
        }
        drop(keys);
        file.good(self.context.clock.unix_ms(self.context.clock.now()), "");
    }
}
