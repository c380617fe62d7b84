//! Keys: add, list, revoke.

use std::collections::HashMap;

use router_policy::ids::hash_prefix;
use router_proto::v1;

use crate::error::AdminError;
use crate::fleet::{Fleet, KnownKey, RevokedKey};
use crate::store::KeyRow;

pub(super) async fn add(fleet: &Fleet, request: &v1::AddKeyRequest) -> Result<v1::AddKeyReply, AdminError> {
    let key = fleet.add_key(&request.name, &request.sha256).await?;
    Ok(v1::AddKeyReply { key: Some(stored(key)) })
}

pub(super) fn list(fleet: &Fleet) -> v1::ListKeysReply {
    v1::ListKeysReply { keys: fleet.keys().into_iter().map(state).collect() }
}

pub(super) fn find(fleet: &Fleet, request: v1::FindKeysRequest) -> Result<v1::FindKeysReply, AdminError> {
    let known: HashMap<[u8; 32], KnownKey> = fleet.keys().into_iter().map(|key| (key.sha256, key)).collect();
    let mut found = Vec::new();
    for asked in request.sha256 {
        let sha256: [u8; 32] = (&*asked).try_into().map_err(|_| AdminError::Argument {
            field: "sha256",
            problem: format!("32 bytes expected, got {}", asked.len()),
        })?;
        let key = known.get(&sha256).cloned().map(state);
        found.extend(key.map(|key| v1::FoundKey { sha256: asked, key: Some(key) }));
    }
    Ok(v1::FindKeysReply { found })
}

pub(super) async fn revoke(fleet: &Fleet, request: &v1::RevokeKeyRequest) -> Result<v1::RevokeKeyReply, AdminError> {
    let RevokedKey { key, note } = fleet.revoke_key(&request.key).await?;
    Ok(v1::RevokeKeyReply { key: Some(stored(key)), note })
}

fn stored(key: KeyRow) -> v1::KeyState {
    let KeyRow { id, name, sha256, created_unix_ms } = key;
    state(KnownKey { id, name, sha256, created_unix_ms, source: v1::KeySource::Database })
}

fn state(key: KnownKey) -> v1::KeyState {
    v1::KeyState {
        id: key.id,
        name: key.name,
        sha256_prefix: hash_prefix(&key.sha256),
        created_unix_ms: key.created_unix_ms,
        source: key.source.into(),
    }
}
