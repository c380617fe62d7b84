//! Client keys: stored first, then told to every replica.

use rand::RngExt as _;
use router_proto::v1;

use super::Fleet;
use crate::error::AdminError;
use crate::store::{KeyRow, StoreError};

impl Fleet {
    /// Adds a key by the SHA-256 of its secret.
    pub async fn add_key(&self, name: &str, sha256: &[u8]) -> Result<KeyRow, AdminError> {
        let is_label = (1..=64).contains(&name.len())
            && name.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-' | b'@'));
        if !is_label {
            let problem = "label expected; allowed: 1 to 64 of a-z A-Z 0-9 . _ - @".to_owned();
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
        self.use_key(key.clone());
        tracing::info!(key = key.id, name, "key added");
        Ok(key)
    }

    /// Takes up a key that is stored already.
    pub(super) fn use_key(&self, key: KeyRow) {
        self.hub.put_key(v1::Key { id: key.id.clone(), name: key.name.clone(), sha256: key.sha256.to_vec().into() });
        self.keys.lock().insert(key.id.clone(), key);
    }

    /// Every key, by name.
    pub fn keys(&self) -> Vec<KeyRow> {
        let mut keys: Vec<KeyRow> = self.keys.lock().values().cloned().collect();
        keys.sort_by(|a, b| a.name.cmp(&b.name));
        keys
    }

    /// Revokes a key by id or name; replicas hear of it at once.
    pub async fn revoke_key(&self, wanted: &str) -> Result<KeyRow, AdminError> {
        let found = self.keys.lock().values().find(|key| key.id == wanted || key.name == wanted).cloned();
        let key = found.ok_or_else(|| AdminError::NotFound { what: "key", name: wanted.to_owned() })?;
        self.store.remove_key(&key.id).await?;
        self.keys.lock().remove(&key.id);
        self.hub.remove_key(&key.id);
        tracing::info!(key = key.id, name = key.name, "key revoked");
        Ok(key)
    }
}
