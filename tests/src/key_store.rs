//! A session gateway's key store, as an operator's tools write it.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use serde_json::{Value as Json, json};

/// The SHA-256 of a secret in hexadecimal digits, by another implementation than the router's.
///
/// # Errors
/// When `sha256sum` is missing.
pub fn sha256(secret: &str) -> anyhow::Result<String> {
    let child = Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = child.context("start sha256sum")?;
    let mut stdin = child.stdin.take().context("sha256sum's stdin")?;
    stdin.write_all(secret.as_bytes()).context("write to sha256sum")?;
    drop(stdin);
    let output = child.wait_with_output().context("read from sha256sum")?;
    let text = String::from_utf8(output.stdout)?;
    let hash = text.split_whitespace().next().unwrap_or_default();
    ensure!(hash.len() == 64, "sha256sum said {text:?}");
    Ok(hash.to_owned())
}

/// A key store with these secrets, each active or not.
///
/// # Errors
/// As [`sha256`].
pub fn document(keys: &[(&str, bool)]) -> anyhow::Result<Json> {
    let record = |(secret, active): &(&str, bool)| anyhow::Ok(json!({"sha256": sha256(secret)?, "active": active}));
    let records: Vec<Json> = keys.iter().map(record).collect::<anyhow::Result<_>>()?;
    Ok(json!({"version": 1, "records": records}))
}

/// Writes a private file: beside it, then in its place.
///
/// # Errors
/// When it can't be written.
pub fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    let beside = path.with_extension("new");
    std::fs::write(&beside, text)?;
    std::fs::set_permissions(&beside, std::fs::Permissions::from_mode(0o600))?;
    Ok(std::fs::rename(beside, path)?)
}
