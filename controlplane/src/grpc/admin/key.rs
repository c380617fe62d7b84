//! Keys: add, list, revoke.

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
