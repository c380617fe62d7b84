//! `routerctl key add|list|revoke`. The secret is made here, shown once, and never leaves this process: the control plane
//! gets its SHA-256.

use std::io::{self, Write};

use clap::{Args, Subcommand};
use rand::Rng as _;
use router_proto::v1;
use sha2::{Digest as _, Sha256};

use crate::client::Admin;
use crate::failure::{Failure, Outcome};
use crate::output::json::{KeyList, KeyView, NewKey, RevokedKey};
use crate::output::table::{Columns, ago, print_pairs};
use crate::output::{Answer, Out};

/// What to do with client keys.
#[derive(Debug, Subcommand)]
pub(crate) enum KeyVerb {
    /// Make a key and show its secret once.
    Add(AddArgs),
    /// List keys, without secrets.
    List,
    /// Revoke a key: requests with it are refused on every replica within a second.
    Revoke(RevokeArgs),
}

/// Arguments of `key add`.
#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// A label for people; no other key may have it.
    #[arg(value_name = "NAME")]
    name: String,
}

/// Arguments of `key revoke`.
#[derive(Debug, Args)]
pub(crate) struct RevokeArgs {
    /// The key.
    #[arg(value_name = "ID|NAME")]
    key: String,
}

impl KeyVerb {
    /// Carries it out.
    pub(crate) async fn run(self, admin: &mut Admin, out: &mut Out<'_>) -> Outcome {
        match self {
            Self::Add(args) => add(args, admin, out).await,
            Self::List => {
                let answer = admin.rpc.list_keys(v1::ListKeysRequest {}).await;
                let reply = admin.answer(answer)?;
                out.answer(&KeyList { keys: reply.keys.into_iter().map(Into::into).collect() })
            }
            Self::Revoke(args) => {
                let answer = admin.rpc.revoke_key(v1::RevokeKeyRequest { key: args.key }).await;
                let v1::RevokeKeyReply { key, note } = admin.answer(answer)?;
                let revoked = RevokedKey::new(view(key)?, note);
                out.answer(&revoked)?;
                if let Some(note) = &revoked.note {
                    out.note(&format!("note: {note}"));
                }
                Ok(())
            }
        }
    }
}

async fn add(args: AddArgs, admin: &mut Admin, out: &mut Out<'_>) -> Outcome {
    let secret = new_secret();
    let sha256 = Sha256::digest(secret.as_bytes()).to_vec().into();
    let answer = admin.rpc.add_key(v1::AddKeyRequest { name: args.name, sha256 }).await;
    let key = view(admin.answer(answer)?.key)?;
    out.answer(&NewKey { key, secret })?;
    out.note("store the secret now: it is shown this once and kept nowhere");
    Ok(())
}

fn view(key: Option<v1::KeyState>) -> Result<KeyView, Failure> {
    key.map(KeyView::from).ok_or_else(|| Failure::failed("the control plane's answer names no key"))
}

/// `sk-` and 32 random bytes in hexadecimal.
fn new_secret() -> String {
    let mut bytes = [0_u8; 32];
    rand::rng().fill_bytes(&mut bytes);
    bytes.iter().fold("sk-".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

impl Answer for KeyList {
    fn print(&self, out: &mut dyn Write, now_unix_ms: u64) -> io::Result<()> {
        let mut columns = Columns::new(&["ID", "NAME", "SHA-256", "SOURCE", "CREATED"]);
        for key in &self.keys {
            columns.row([
                key.id.clone(),
                key.name.clone(),
                format!("{}…", key.sha256_prefix),
                key.source.to_owned(),
                key.created_unix_ms.map_or_else(|| "-".to_owned(), |at| ago(at, now_unix_ms)),
            ]);
        }
        columns.print(out, "", "no keys; add one with `routerctl key add NAME`")
    }
}

impl Answer for NewKey {
    fn print(&self, out: &mut dyn Write, _now_unix_ms: u64) -> io::Result<()> {
        print_pairs(
            out,
            &[("id", self.key.id.clone()), ("name", self.key.name.clone()), ("secret", self.secret.clone())],
        )
    }
}

impl Answer for RevokedKey {
    fn print(&self, out: &mut dyn Write, _now_unix_ms: u64) -> io::Result<()> {
        writeln!(out, "key {} ({}) revoked", self.revoked.name, self.revoked.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_long_and_never_the_same() {
        let (one, two) = (new_secret(), new_secret());
        assert_ne!(one, two);
        assert_eq!(one.len(), 3 + 64);
        assert!(one.starts_with("sk-") && one[3..].bytes().all(|c| c.is_ascii_hexdigit()));
    }
}
