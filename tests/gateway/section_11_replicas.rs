//! What the reference can't do: any number of replicas, one truth. The same sessions, limits, queue and drains, whichever replica
//! is asked; and an installation of the reference is taken over.

use std::collections::BTreeSet;

use http::StatusCode;
use router_tests::await_event::{PATIENCE, until};
use router_tests::chat::Chat;
use router_tests::database::DatabaseKind;
use router_tests::engine::Engine;
use router_tests::key_store::{document, sha256, write_private};
use serde_json::json;
use tempfile::TempDir;

use super::gateway;

router_tests::on_both_databases!(five_replicas_decide_as_one);

router_tests::on_any_database!(import_takes_an_installation_over, what_is_not_enabled_is_never_admitted_by_an_import);

async fn five_replicas_decide_as_one(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = gateway(kind).replicas(5).engines(3).start().await?;
    for number in 0..12 {
        let mut peers = BTreeSet::new();
        for replica in 0..5 {
            let chat = Chat::of(&format!("s{number}"));
            let answer = chat.send(&cluster.client, cluster.replica((replica + number) % 5)?).await?.ok()?;
            assert_eq!(answer.mode(), if replica == 0 { "new" } else { "bound" });
            peers.insert(answer.peer().to_owned());
        }
        assert_eq!(peers.len(), 1, "{peers:?}");
    }
    cluster.finish()
}

async fn import_takes_an_installation_over() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let at = |name: &str| folder.path().join(name).display().to_string();
    let cluster = gateway(DatabaseKind::Sqlite).engines(2).option("auth", "required").start().await?;
    let ports: Vec<String> = cluster.engines.iter().map(|engine| engine.address().port().to_string()).collect();
    let one: u16 = ports[0].parse()?;
    let records = document(&[("key-one", true), ("key-two", false)])?;
    write_private(&folder.path().join("keys.json"), &records.to_string())?;
    std::fs::write(at("admission.json"), json!({"enabled_ports": [one]}).to_string())?;
    let (keys, control) = (at("keys.json"), at("admission.json"));
    let verb = ["import", "gateway", "--name", "chat", "--key-store", &keys, "--control-file", &control];
    let backends = ["--backend-port", &ports[0], "--backend-port", &ports[1], "--max-active-per-backend", "5"];
    let import = [&verb[..], &backends].concat();

    let status =
        async |key: &str| anyhow::Ok(Chat::new().key(key).send(&cluster.client, cluster.replica(0)?).await?.status);
    let plan = cluster.ctl()?.ok(&[&import[..], &["--dry-run"]].concat()).await?;
    assert!(plan.contains("max_concurrency") && plan.contains(&ports[1]), "{plan}");
    assert!(!plan.contains(&sha256("key-one")?), "{plan}");
    assert_eq!(status("key-one").await?, StatusCode::UNAUTHORIZED, "only shown");
    let unasked = cluster.ctl()?.run(&import).await?;
    assert_ne!(unasked.code, Some(0), "nobody said yes: {unasked:?}");
    assert_eq!(status("key-one").await?, StatusCode::UNAUTHORIZED);

    cluster.ctl()?.ok(&[&import[..], &["--yes"]].concat()).await?;
    let is_in = || async { Ok((status("key-one").await? == StatusCode::OK).then_some(())) };
    until("the key is known to the replica", PATIENCE, is_in).await?;
    assert_eq!(status("key-two").await?, StatusCode::UNAUTHORIZED);
    assert!(cluster.backend(1).await?.condition.is_some_and(|condition| condition.draining));
    assert!(!cluster.backend(0).await?.condition.is_some_and(|condition| condition.draining));
    assert_eq!(cluster.backend(0).await?.limit, 5);
    let again = cluster.ctl()?.ok(&[&import[..], &["--yes"]].concat()).await?;
    assert!(again.to_lowercase().contains("nothing"), "a second time there is nothing to do: {again}");
    cluster.finish()
}

async fn what_is_not_enabled_is_never_admitted_by_an_import() -> anyhow::Result<()> {
    let cluster = gateway(DatabaseKind::Sqlite).replicas(3).engines(1).option("auth", "required").start().await?;
    let folder = TempDir::new()?;
    let mut added = Vec::new();
    for index in 0..6 {
        added.push(Engine::start(&format!("added{index}"), &[], folder.path()).await?);
    }
    let one = cluster.engines[0].address().port();
    let control = folder.path().join("admission.json");
    std::fs::write(&control, json!({"enabled_ports": [one]}).to_string())?;
    let ports: Vec<String> = added.iter().map(|engine| engine.address().port().to_string()).collect();
    let one = one.to_string();
    let mut import = vec!["import", "gateway", "--name", "chat", "--yes", "--control-file"];
    let control = control.display().to_string();
    import.extend([control.as_str(), "--backend-port", &one]);
    import.extend(ports.iter().flat_map(|port| ["--backend-port", port.as_str()]));

    // Served already: there is a key. New sessions go wherever there are the fewest, so an added one is asked at once.
    let key = cluster.add_key("made").await?;
    let ask = async |number: usize| {
        let chat = Chat::of(&format!("new-{number}")).key(&key);
        chat.send(&cluster.client, cluster.replica(number % 3)?).await
    };
    for replica in 0..3 {
        let is_known = || async { Ok((ask(replica).await?.status == StatusCode::OK).then_some(())) };
        until("the key is known", PATIENCE, is_known).await?;
    }
    let ctl = cluster.ctl()?;
    let imported = ctl.ok(&import);
    tokio::pin!(imported);
    let mut numbers = 3..;
    loop {
        let (first, second) = (numbers.next().expect("endless"), numbers.next().expect("endless"));
        let both = async { anyhow::Ok((ask(first).await?.ok()?, ask(second).await?.ok()?)) };
        tokio::select! {
            done = &mut imported => break drop(done?),
            answers = both => drop(answers?),
        };
    }
    for number in numbers.take(24) {
        ask(number).await?.ok()?;
    }
    for engine in &added {
        assert_eq!(engine.stats().await?.requests_total, 0, "{}", engine.address());
    }
    assert!(cluster.route().await?.backends[1..].iter().all(|one| one.condition.is_some_and(|one| one.draining)));
    // The control: an undrained one takes its part.
    cluster.ctl()?.ok(&["undrain", "--port", &ports[0]]).await?;
    let healthy = || async {
        let route = cluster.route().await?;
        let out = |one: &router_proto::v1::Condition| one.draining || one.unhealthy;
        let is_in = route.backends.iter().find(|backend| backend.address.ends_with(&ports[0]));
        Ok(is_in.and_then(|backend| backend.condition).filter(|one| !out(one)).map(drop))
    };
    until("it is in", PATIENCE, healthy).await?;
    ask(usize::MAX).await?.ok()?;
    assert_eq!(added[0].stats().await?.requests_total, 1);
    cluster.finish()
}
