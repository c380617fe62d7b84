//! Keys of the key store file beside those of the database (gateway.md §6).

use std::os::unix::fs::{PermissionsExt as _, symlink};

use serde_json::json;

use super::followed::{Place, Still, on_both_databases};
use super::*;
use crate::files::{KeyStoreFile, key_store};

on_both_databases![
    keys_of_both_sources_open,
    a_bad_file_keeps_the_last_good_keys,
    one_secret_in_both_sources_is_one_key,
    without_any_key_the_gateway_is_not_open,
];

/// Something that happens to the file.
type Damage = fn(&Place);

/// A key store with these keys, `true` for active.
fn records(keys: &[(u8, bool)]) -> String {
    let record = |(byte, active): &(u8, bool)| {
        let name = format!("file-{byte}");
        json!({"sha256": format!("{byte:02x}").repeat(32), "active": active, "name": name})
    };
    json!({"version": 1, "records": keys.iter().map(record).collect::<Vec<_>>()}).to_string()
}

/// Name and secret of what replicas know.
fn told(still: &Still) -> Vec<(String, u8)> {
    let mut keys: Vec<_> = still.fleet.hub.since(0).keys.into_iter().map(|key| (key.name, key.sha256[0])).collect();
    keys.sort();
    keys
}

fn named(keys: &[(&str, u8)]) -> Vec<(String, u8)> {
    keys.iter().map(|(name, byte)| ((*name).to_owned(), *byte)).collect()
}

async fn keys_of_both_sources_open(place: Place) {
    place.put("keys", &records(&[(1, true), (2, false)]));
    let still = place.start().await;
    still.fleet.add_key("ci", &[7; 32]).await.unwrap();
    assert_eq!(told(&still), named(&[("ci", 7), ("file-1", 1)]));
    let keys = still.fleet.keys();
    assert_eq!((keys[0].source, keys[1].source), (v1::KeySource::Database, v1::KeySource::File));
    let id = keys[1].id.clone();

    for wanted in [&id, "file-1"] {
        let refused = tonic::Status::from(still.fleet.revoke_key(wanted).await.unwrap_err());
        assert_eq!(refused.code(), Code::FailedPrecondition);
        assert!(refused.message().contains("set `active: false`"), "{refused}");
    }
    assert_eq!(still.fleet.revoke_key("file-2").await.unwrap_err().to_string(), "no key 'file-2'");
    place.put("keys", &records(&[(2, true), (1, false)]));
    still.fleet.follow_key_store().await;
    assert_eq!(told(&still), named(&[("ci", 7), ("file-2", 2)]));
    assert_eq!(still.fleet.revoke_key("file-1").await.unwrap_err().to_string(), "no key 'file-1'");

    place.put("keys", &records(&[(2, true), (1, true)]));
    still.kill().await;
    let still = place.start().await;
    assert_eq!(told(&still), named(&[("ci", 7), ("file-1", 1), ("file-2", 2)]));
    assert!(still.fleet.keys().iter().any(|key| key.id == id), "the id is the same after a restart");
    assert_eq!(still.fleet.store.load().await.unwrap().keys.len(), 1, "the file's keys are not in the database");
}

async fn a_bad_file_keeps_the_last_good_keys(place: Place) {
    place.put("keys", &records(&[(1, true)]));
    let still = place.start().await;
    let first = named(&[("file-1", 1)]);
    let wide = |place: &Place| {
        place.put("keys", &records(&[]));
        std::fs::set_permissions(place.path("keys"), std::fs::Permissions::from_mode(0o640)).unwrap();
    };
    let breaks: [(Damage, &str); 5] = [
        (|place| place.put("keys", r#"{"version": 1, "records": ["#), "not JSON"),
        (
            |place| place.put("keys", r#"{"version": 2, "records": [5]}"#),
            "version: 2 is not known; allowed: 1; records[0]:",
        ),
        (|place| std::fs::remove_file(place.path("keys")).unwrap(), "does not exist"),
        (wide, "can be read or written by other users (mode 0640); run: chmod 600"),
        (|place| place.put("keys", ""), "not JSON"),
    ];
    for (damage, problem) in breaks {
        damage(&place);
        still.fleet.follow_key_store().await;
        assert_eq!(told(&still), first);
        let found = still.problem("key-store");
        assert!(found.contains(problem) && found.contains("the last good keys stay"), "{found}");
        place.put("keys", &records(&[(1, true)]));
        still.fleet.follow_key_store().await;
        assert_eq!(still.problem("key-store"), "");
    }
    // A symbolic link that is swapped, as Kubernetes does.
    place.put("other", &records(&[(3, true)]));
    symlink("other", place.path("swap")).unwrap();
    std::fs::rename(place.path("swap"), place.path("keys")).unwrap();
    still.fleet.follow_key_store().await;
    assert_eq!(told(&still), named(&[("file-3", 3)]));
}

async fn one_secret_in_both_sources_is_one_key(place: Place) {
    place.put("keys", &records(&[(7, true), (1, true)]));
    let still = place.start().await;
    let before = still.fleet.hub.version();
    still.fleet.add_key("ci", &[7; 32]).await.unwrap();
    assert_eq!(told(&still), named(&[("ci", 7), ("file-1", 1)]), "the database's key has it");
    let delta = still.fleet.hub.since(before);
    assert_eq!((delta.keys.len(), delta.removed_keys.len()), (1, 1));
    assert_eq!(still.fleet.hub.version(), before + 1, "in one step: at no time is the secret unknown");
    assert_eq!(still.fleet.keys().len(), 2);
    let note = still.fleet.revoke_key("ci").await.unwrap().note;
    assert!(note.starts_with("its secret is active in the key store file too") && note.contains("'file-7'"), "{note}");
    assert!(note.ends_with(&format!("set `active: false` for it in {}", place.path("keys").display())), "{note}");
    assert_eq!(told(&still), named(&[("file-1", 1), ("file-7", 7)]), "the file's key takes over");
    let key = still.fleet.add_key("ci", &[7; 32]).await.unwrap();
    place.put("keys", &records(&[(1, true)]));
    still.fleet.follow_key_store().await;
    assert_eq!(told(&still), named(&[("ci", 7), ("file-1", 1)]));
    assert_eq!(still.fleet.revoke_key(&key.id).await.unwrap().note, "");
    assert_eq!(told(&still), named(&[("file-1", 1)]), "and ends with the last of both");
}

async fn without_any_key_the_gateway_is_not_open(place: Place) {
    let open = place.start().await;
    assert!(open.fleet.hub.since(0).keys.is_empty(), "no key store: as before");
    open.kill().await;
    place.put("keys", &records(&[(1, false)]));
    let still = place.start().await;
    let keys = still.fleet.hub.since(0).keys;
    assert_eq!((keys.len(), keys[0].id.as_str()), (1, "file_none"), "replicas must ask for a key that nobody has");
    assert!(still.fleet.keys().is_empty());
    place.put("keys", &records(&[(1, true)]));
    still.fleet.follow_key_store().await;
    assert_eq!(told(&still), named(&[("file-1", 1)]));
}

#[tokio::test]
async fn a_changed_file_reaches_replicas_without_a_restart() {
    let place = Place::sqlite();
    place.put("keys", &records(&[(1, true)]));
    let keys = key_store::parse(place.text("keys").as_bytes()).unwrap();
    let key_store = Some(KeyStoreFile { path: place.path("keys"), keys });
    let files = FileConfig { key_store, ..FileConfig::default() };
    let running = Running::start_with(place.folder.path(), Duration::from_secs(600), files).await;
    let mut client = CoordinatorClient::new(running.channel.clone());
    let mut watch = client.watch(v1::WatchRequest::default()).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().keys[0].name, "file-1");
    place.put("new", &records(&[(2, true)]));
    std::fs::rename(place.path("new"), place.path("keys")).unwrap();
    let delta = tokio::time::timeout(SOON, watch.message()).await.unwrap().unwrap().unwrap();
    assert_eq!((delta.keys[0].name.as_str(), delta.removed_keys.len()), ("file-2", 1));
    let listed = running.admin().list_keys(v1::ListKeysRequest {}).await.unwrap().into_inner().keys;
    assert_eq!((listed.len(), listed[0].source), (1, i32::from(v1::KeySource::File)));
    let files = running.admin().get_status(v1::GetStatusRequest {}).await.unwrap().into_inner().files;
    assert_eq!((files[0].flag.as_str(), files[0].problem.as_str()), ("key-store", ""));
    assert!(files[0].good_unix_ms > 0);
    running.stop().await;
}
