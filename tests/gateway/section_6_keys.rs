//! Keys from a file, beside those that `routerctl` makes: followed without a restart, never lost by a bad edit, and checked at
//! start together with the other files.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{Method, StatusCode};
use router_tests::await_event::{PATIENCE, throughout, until};
use router_tests::chat::Chat;
use router_tests::cluster::Cluster;
use router_tests::ctl;
use router_tests::database::DatabaseKind;
use router_tests::key_store::{document, sha256, write_private};
use tempfile::TempDir;

use super::gateway;

router_tests::on_both_databases!(
    file_keys_and_made_keys_live_side_by_side_and_follow_the_file,
    a_bad_file_keeps_the_last_good_keys_and_says_so,
);

router_tests::on_any_database!(paths_that_overlap_or_are_open_to_others_are_refused_at_start);

async fn status_of(cluster: &Cluster, replica: usize, key: &str) -> anyhow::Result<StatusCode> {
    Ok(Chat::of("s").key(key).send(&cluster.client, cluster.replica(replica)?).await?.status)
}

async fn until_status(cluster: &Cluster, key: &str, status: StatusCode) -> anyhow::Result<()> {
    for replica in 0..cluster.replicas.len() {
        let look = || async { Ok((status_of(cluster, replica, key).await? == status).then_some(())) };
        until(&format!("{status} for {key} on replica {replica}"), PATIENCE, look).await?;
    }
    Ok(())
}

async fn with_key_store(kind: DatabaseKind, keys: &[(&str, bool)]) -> anyhow::Result<(Cluster, PathBuf, TempDir)> {
    let folder = TempDir::new()?;
    let path = folder.path().join("keys.json");
    write_private(&path, &document(keys)?.to_string())?;
    let text = path.display().to_string();
    let builder = gateway(kind).option("auth", "required").control_plane_args(&["--key-store", &text]);
    Ok((builder.start().await?, path, folder))
}

async fn file_keys_and_made_keys_live_side_by_side_and_follow_the_file(kind: DatabaseKind) -> anyhow::Result<()> {
    let (mut cluster, path, _folder) = with_key_store(kind, &[("key-one", true), ("key-two", false)]).await?;
    cluster.expect_log("control plane");
    let added = cluster.ctl()?.json(&["key", "add", "made"]).await?;
    let made = added["secret"].as_str().expect("the secret").to_owned();
    until_status(&cluster, &made, StatusCode::OK).await?;
    assert_eq!(status_of(&cluster, 0, "key-one").await?, StatusCode::OK);
    assert_eq!(status_of(&cluster, 1, "key-two").await?, StatusCode::UNAUTHORIZED, "not active");
    assert_eq!(Chat::new().send(&cluster.client, cluster.replica(0)?).await?.status, StatusCode::UNAUTHORIZED);
    let echo = cluster
        .client
        .send(cluster.replica(0)?, Method::POST, "/v1/echo", &[("authorization", "Bearer key-one")], "{}")
        .await?
        .ok()?;
    assert!(!echo.text().contains("key-one"), "the key is not forwarded: {}", echo.text());
    let session = Chat::of("mine").key("key-one").send(&cluster.client, cluster.replica(0)?).await?.ok()?;

    // No restart: the file says who may come in.
    write_private(&path, &document(&[("key-two", true)])?.to_string())?;
    until_status(&cluster, "key-two", StatusCode::OK).await?;
    until_status(&cluster, "key-one", StatusCode::UNAUTHORIZED).await?;
    assert_eq!(status_of(&cluster, 0, &made).await?, StatusCode::OK, "the other door's key stays");
    let listed = cluster.ctl()?.json(&["key", "list"]).await?;
    let keys = listed["keys"].as_array().expect("keys");
    let of = |source: &str| keys.iter().find(|key| key["source"] == source).expect("a key of that source");
    assert_eq!((keys.len(), of("database")["name"].as_str()), (2, Some("made")));
    assert!(!listed.to_string().contains(&sha256("key-two")?[..16]), "{listed}");

    // A key of the file ends in the file.
    let id = of("file")["id"].as_str().expect("an id");
    let refused = cluster.ctl()?.run(&["key", "revoke", id]).await?;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let told = refused.complaint();
    assert!(told.contains("set `active: false`") && told.contains(&path.display().to_string()), "{told}");
    let still_valid = || async { Ok(status_of(&cluster, 0, "key-two").await? == StatusCode::OK) };
    throughout("the key stays as the file says", Duration::from_millis(300), still_valid).await?;

    // A key that comes back has its sessions again, also after a restart.
    write_private(&path, &document(&[("key-one", true)])?.to_string())?;
    until_status(&cluster, "key-one", StatusCode::OK).await?;
    cluster.control_plane.kill9().await?;
    cluster.control_plane.restart().await?;
    cluster.control_plane.ready().await?;
    cluster.until_connected(2).await?;
    let again = Chat::of("mine").key("key-one").send(&cluster.client, cluster.replica(1)?).await?.ok()?;
    assert_eq!((again.mode(), again.peer()), ("bound", session.peer()));
    assert_eq!(again.header("x-routed-session"), session.header("x-routed-session"));
    cluster.finish()
}

async fn a_bad_file_keeps_the_last_good_keys_and_says_so(kind: DatabaseKind) -> anyhow::Result<()> {
    let (mut cluster, path, _folder) = with_key_store(kind, &[("key-one", true)]).await?;
    cluster.expect_log("key store");
    cluster.expect_log("key-store");
    let file = || async {
        let files = cluster.status().await?.files;
        anyhow::Ok(files.into_iter().find(|file| file.flag == "key-store").expect("the file is listed"))
    };
    assert_eq!(file().await?.problem, "");
    let secret_in_the_wrong_place = r#"{"version": 1, "records": [{"sha256": "sk-oops", "active": true}]}"#;
    for bad in ["{", r#"{"version": 2, "records": []}"#, secret_in_the_wrong_place, ""] {
        write_private(&path, bad)?;
        let told = || async { Ok(Some(file().await?.problem).filter(|problem| !problem.is_empty())) };
        let problem = until("the problem is told", PATIENCE, told).await?;
        assert!(!problem.contains("sk-oops"), "{problem}");
        assert_eq!(status_of(&cluster, 0, "key-one").await?, StatusCode::OK, "{bad}: {problem}");
        assert_eq!(status_of(&cluster, 1, "key-two").await?, StatusCode::UNAUTHORIZED);
    }
    std::fs::remove_file(&path)?;
    throughout("a missing file ends no key", Duration::from_secs(2), || async {
        Ok(status_of(&cluster, 0, "key-one").await? == StatusCode::OK)
    })
    .await?;
    let table = cluster.ctl()?.ok(&["status"]).await?;
    assert!(table.contains("keys.json"), "an operator sees it: {table}");
    // The control: a good file counts again.
    write_private(&path, &document(&[("key-two", true)])?.to_string())?;
    until_status(&cluster, "key-two", StatusCode::OK).await?;
    until_status(&cluster, "key-one", StatusCode::UNAUTHORIZED).await?;
    assert_eq!(file().await?.problem, "");
    assert!(!cluster.control_plane.log()?.contains("sk-oops"));
    cluster.finish()
}

async fn paths_that_overlap_or_are_open_to_others_are_refused_at_start() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let at = |name: &str| folder.path().join(name).display().to_string();
    write_private(&folder.path().join("keys.json"), &document(&[("key-one", true)])?.to_string())?;
    write_private(&folder.path().join("admission.json"), r#"{"enabled_ports": []}"#)?;
    symlink(at("keys.json"), at("link.json"))?;
    std::fs::hard_link(at("keys.json"), at("hard.json"))?;
    std::fs::write(at("open.json"), document(&[])?.to_string())?;
    std::fs::set_permissions(at("open.json"), std::fs::Permissions::from_mode(0o644))?;
    let rows = [
        (at("keys.json"), at("admission.json"), at("keys.json"), "--backend-state"),
        (at("keys.json"), at("admission.json"), at("link.json"), "--backend-state"),
        (at("keys.json"), at("hard.json"), at("state.json"), "--control-file"),
        (at("keys.json"), at("admission.json"), at("router.db"), "--backend-state"),
        (at("keys.json"), at("router.db-wal"), at("state.json"), "--control-file"),
        (at("open.json"), at("admission.json"), at("state.json"), "--key-store"),
        (at("missing.json"), at("admission.json"), at("state.json"), "--key-store"),
    ];
    for (keys, control, state, named) in rows {
        let database = format!("sqlite:{}", at("router.db"));
        let args = ["controlplane", "--grpc-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"];
        let files = ["--database-url", &database, "--key-store", &keys, "--control-file", &control];
        let args = [&args[..], &files, &["--backend-state", &state]].concat();
        let said = ctl::run_within(PATIENCE, args, None).await?;
        assert_eq!(said.code, Some(64), "{keys} {control} {state}: {said:?}");
        assert!(said.stderr.contains(named), "{named}: {}", said.stderr);
        assert!(!Path::new(&at("router.db")).exists() && !Path::new(&at("state.json")).exists(), "nothing was made");
    }
    assert_eq!(
        std::fs::read_to_string(at("keys.json"))?,
        document(&[("key-one", true)])?.to_string(),
        "and nothing was written over"
    );
    Ok(())
}
