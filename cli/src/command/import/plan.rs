//! What an import would do: decided here without any call, shown before anything is done. Its fields are the JSON form.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use router_policy::gateway_file::control_file::{Content, Entry};
use router_policy::gateway_file::key_store::Record;
use router_policy::ids::{BackendId, hash_prefix};
use serde::Serialize;

use crate::output::Answer;
use crate::output::diff::print_change;
use crate::output::json::{ChangeView, KeyView};
use crate::output::table::count;

/// Everything that is to be done, and what is done already.
#[derive(Serialize)]
pub(super) struct Plan {
    /// The route that is made or changed.
    pub(super) route: String,
    /// Its changes; empty when it is stored as it shall be.
    pub(super) changes: Vec<ChangeView>,
    /// One step for each record of the key store.
    pub(super) keys: Vec<KeyStep>,
    /// One step for each backend that the control file does not enable.
    pub(super) drains: Vec<DrainStep>,
    /// What else an operator should know.
    pub(super) notes: Vec<String>,
    /// Whether it has been carried out.
    pub(super) is_applied: bool,
}

/// What happens to a record of the key store.
#[derive(Serialize)]
pub(super) struct KeyStep {
    /// `records[3]`.
    pub(super) record: String,
    /// The key's label, here; null for one that is skipped.
    pub(super) name: Option<String>,
    /// As much of the hash as `key list` shows.
    pub(super) sha256_prefix: String,
    /// `add`, `present`, `inactive`.
    pub(super) step: &'static str,
    #[serde(skip)]
    pub(super) sha256: [u8; 32],
}

/// What happens to a backend that is not enabled.
#[derive(Serialize)]
pub(super) struct DrainStep {
    /// `host:port`.
    pub(super) backend: String,
    /// `drain`, `present`.
    pub(super) step: &'static str,
}

impl Plan {
    /// How much there is to do: changes of the route, keys, drains.
    fn work(&self) -> [(u64, &'static str); 3] {
        let keys = self.keys.iter().filter(|key| key.step == "add").count();
        let drains = self.drains_to_do().count();
        [(self.changes.len() as u64, "route"), (keys as u64, "key"), (drains as u64, "drain")]
    }

    /// The backends that are to be drained and are not yet.
    pub(super) fn drains_to_do(&self) -> impl Iterator<Item = &String> {
        self.drains.iter().filter(|drain| drain.step == "drain").map(|drain| &drain.backend)
    }

    /// Whether everything is as it shall be.
    pub(super) fn is_done(&self) -> bool {
        self.work().iter().all(|(number, _)| *number == 0)
    }
}

/// The steps for the records of a key store. `known` are the keys that there are, `found` those with a record's secret, by its
/// hash: as the control plane tells them, for the digits that a list shows may be alike.
pub(super) fn key_steps(
    records: &[Record],
    known: &[KeyView],
    found: &BTreeMap<[u8; 32], KeyView>,
    notes: &mut Vec<String>,
) -> Vec<KeyStep> {
    let is_stored = |key: &&KeyView| key.source == "database";
    // The label of a followed file's key is free for the record with its secret.
    let followed: BTreeSet<&str> = found.values().filter(|key| !is_stored(key)).map(|key| key.id.as_str()).collect();
    let others = known.iter().filter(|key| !followed.contains(key.id.as_str()));
    let mut taken: BTreeSet<String> = others.map(|key| key.name.clone()).collect();
    let mut steps = Vec::new();
    let mut is_followed = false;
    for (index, record) in records.iter().enumerate() {
        let (at, sha256_prefix) = (format!("records[{index}]"), hash_prefix(&record.sha256));
        let found = found.get(&record.sha256);
        let (step, name) = match (record.is_active, found.filter(is_stored)) {
            (true, Some(key)) => ("present", Some(key.name.clone())),
            (true, None) => {
                let name = free_label(record, &taken);
                taken.insert(name.clone());
                is_followed |= found.is_some();
                ("add", Some(name))
            }
            (false, key) => {
                if let Some(KeyView { name, .. }) = key {
                    notes.push(format!(
                        "{at} is inactive, but key {name} is stored: `routerctl key revoke {name}` ends it"
                    ));
                }
                ("inactive", None)
            }
        };
        steps.push(KeyStep { record: at, name, sha256_prefix, step, sha256: record.sha256 });
    }
    if is_followed {
        notes.push("the control plane follows a key store with some of these keys: as stored keys they begin new sessions, and \
                    outlive their end in the file".to_owned());
    }
    steps
}

/// The record's own label if nobody has it, else one made of what `key list` shows anyway.
fn free_label(record: &Record, taken: &BTreeSet<String>) -> String {
    if let Some(label) = record.label.as_ref().filter(|label| !taken.contains(*label)) {
        return label.clone();
    }
    let plain = format!("gateway-{}", hash_prefix(&record.sha256));
    let numbered = (2..).map(|number: u32| format!("{plain}-{number}"));
    std::iter::once(plain.clone()).chain(numbered).find(|label| !taken.contains(label)).unwrap_or(plain)
}

/// The steps for backends that are not enabled. `draining` are those that take nothing new already.
pub(super) fn drain_steps(
    backends: &[BackendId],
    enabled: &Content,
    draining: &BTreeSet<String>,
    notes: &mut Vec<String>,
) -> Vec<DrainStep> {
    for entry in enabled.unmatched(backends) {
        let what = if matches!(entry, Entry::Port(_)) { "port " } else { "" };
        notes.push(format!("{what}{entry} is enabled but is not a backend of the route: it is left out"));
    }
    let disabled = backends.iter().filter(|backend| !enabled.lists(backend)).map(BackendId::to_string);
    let step = |address: &String| if draining.contains(address) { "present" } else { "drain" };
    disabled.map(|backend| DrainStep { step: step(&backend), backend }).collect()
}

impl Answer for Plan {
    fn print(&self, out: &mut dyn Write, _now_unix_ms: u64) -> io::Result<()> {
        if self.changes.is_empty() {
            writeln!(out, "route {}: no change", self.route)?;
        }
        for change in &self.changes {
            print_change(out, change)?;
        }
        if !self.keys.is_empty() {
            writeln!(out, "keys")?;
        }
        for KeyStep { record, name, sha256_prefix, step, .. } in &self.keys {
            let name = name.as_deref().unwrap_or(record);
            match *step {
                "add" => writeln!(out, "  + {name} ({sha256_prefix}…)")?,
                "present" => writeln!(out, "  = {name} ({sha256_prefix}…): there already")?,
                _ => writeln!(out, "  - {name} ({sha256_prefix}…): inactive, skipped")?,
            }
        }
        if !self.drains.is_empty() {
            writeln!(out, "drains")?;
        }
        for DrainStep { backend, step } in &self.drains {
            match *step {
                "drain" => writeln!(out, "  + {backend}")?,
                _ => writeln!(out, "  = {backend}: draining already")?,
            }
        }
        if self.is_done() {
            return writeln!(out, "nothing to do: everything is there already");
        }
        let work: Vec<String> =
            self.work().iter().filter(|(number, _)| *number > 0).map(|(number, noun)| count(*number, noun)).collect();
        writeln!(out, "to do: {}", work.join(", "))
    }
}
