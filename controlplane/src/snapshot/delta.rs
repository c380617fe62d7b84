//! Items with versions and tombstones, and the difference to what a replica knows.

use std::collections::BTreeMap;

use router_proto::v1;

use super::version::Items;

/// An item, or the mark that it is gone, and the version at which that became so.
pub(super) struct Versioned<T> {
    version: u64,
    item: Option<T>,
}

/// Stores an item; false when it is as before.
pub(super) fn put<T: PartialEq>(
    items: &mut BTreeMap<String, Versioned<T>>,
    name: String,
    item: T,
    version: u64,
) -> bool {
    let is_new = items.get(&name).and_then(|known| known.item.as_ref()) != Some(&item);
    if is_new {
        items.insert(name, Versioned { version, item: Some(item) });
    }
    is_new
}

/// Takes an item out; false when there was none.
pub(super) fn remove<T>(items: &mut BTreeMap<String, Versioned<T>>, name: &str, version: u64) -> bool {
    match items.get_mut(name) {
        Some(known) if known.item.is_some() => {
            *known = Versioned { version, item: None };
            true
        }
        _ => false,
    }
}

/// Drops the oldest tombstones beyond `keep`; the version from which deltas are still whole.
pub(super) fn prune<T>(items: &mut BTreeMap<String, Versioned<T>>, keep: usize) -> u64 {
    let mut graves: Vec<u64> = items.values().filter(|known| known.item.is_none()).map(|known| known.version).collect();
    if graves.len() <= keep {
        return 0;
    }
    graves.sort_unstable();
    // Half at once, so that this is rare.
    let Some(last) = graves.get(graves.len() - keep / 2).copied() else {
        return 0;
    };
    items.retain(|_, known| known.item.is_some() || known.version > last);
    last
}

/// The snapshot for a replica that knows `known`.
pub(super) fn since(items: &Items, known: u64) -> v1::Snapshot {
    let is_full = known < items.oldest || known > items.version;
    let from = if is_full { 0 } else { known };
    let mut snapshot =
        v1::Snapshot { version: items.version, full: is_full, epoch: items.epoch, ..v1::Snapshot::default() };
    if is_full {
        snapshot.settings = Some(items.settings.clone());
        snapshot.control_planes.clone_from(&items.control_planes);
    }
    (snapshot.routes, snapshot.removed_routes) = changed(&items.routes, from, is_full);
    (snapshot.keys, snapshot.removed_keys) = changed(&items.keys, from, is_full);
    snapshot
}

fn changed<T: Clone>(items: &BTreeMap<String, Versioned<T>>, from: u64, is_full: bool) -> (Vec<T>, Vec<String>) {
    let mut put = Vec::new();
    let mut removed = Vec::new();
    for (name, known) in items.iter().filter(|(_, known)| known.version > from) {
        match &known.item {
            Some(item) => put.push(item.clone()),
            None if !is_full => removed.push(name.clone()),
            None => {}
        }
    }
    (put, removed)
}
