//! What `export` prints, `apply` takes, and `diff` finds no difference: the routes of one installation move to another.

use router_tests::cluster::Cluster;
use router_tests::database::DatabaseKind;

router_tests::on_both_databases!(
    export_and_apply_are_each_others_inverse,
    diff_tells_what_apply_would_do,
    set_is_seen_at_once
);

async fn export_and_apply_are_each_others_inverse(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = Cluster::builder(kind).start().await?;
    let ctl = cluster.ctl()?;
    let first = cluster.engines[0].address().to_string();
    ctl.ok(&["backend", "set", "chat", &first, "--max-concurrency", "5", "--health-path", "/health"]).await?;
    ctl.ok(&["route", "add", "other", "--preset", "gateway", "--backend", &first, "--set", "queue_timeout=1500ms"])
        .await?;

    for format in ["yaml", "json"] {
        let exported = ctl.ok(&["export", "-o", format]).await?;
        let file = cluster.folder().join(format!("routes.{format}"));
        std::fs::write(&file, &exported)?;
        let file = file.display().to_string();
        let same = ctl.run(&["diff", "-f", &file]).await?;
        assert_eq!(same.code, Some(0), "{format}: {same:?}\n{exported}");

        ctl.ok(&["route", "remove", "other", "--yes"]).await?;
        let differs = ctl.run(&["diff", "-f", &file]).await?;
        assert_eq!(differs.code, Some(1), "{format}: {differs:?}");
        assert!(differs.stdout.contains("other"), "{differs:?}");
        ctl.ok(&["apply", "-f", &file]).await?;
        assert_eq!(ctl.ok(&["export", "-o", format]).await?, exported);
    }

    // The same document on another, empty installation.
    let exported = ctl.ok(&["export"]).await?;
    let stranger = Cluster::builder(kind).replicas(0).engines(1).start().await?;
    stranger.ctl()?.run_with_stdin(&["apply", "--prune", "-f", "-"], &exported).await?.ok()?;
    assert_eq!(stranger.ctl()?.ok(&["export"]).await?, exported);
    stranger.finish()?;
    cluster.finish()
}

async fn diff_tells_what_apply_would_do(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = Cluster::builder(kind).start().await?;
    let ctl = cluster.ctl()?;
    let before = ctl.ok(&["export"]).await?;
    let document = "routes:\n- name: new\n  options: {max_waiting: 7}\n  backends: [\"127.0.0.1:1\"]\n";
    let said = ctl.run_with_stdin(&["diff", "-o", "json", "-f", "-"], document).await?;
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stdout.contains("new") && said.stdout.contains("max_waiting"), "{said:?}");
    assert!(!said.stdout.contains("chat"), "without --prune what is not named stays: {said:?}");
    let pruned = ctl.run_with_stdin(&["diff", "--prune", "-f", "-"], document).await?;
    assert!(pruned.stdout.contains("chat"), "with it, it would go: {pruned:?}");
    assert_eq!(ctl.ok(&["export"]).await?, before, "a diff stores nothing");
    let trouble = ctl.run(&["diff", "-f", "/no/such/file"]).await?;
    assert!(trouble.code.is_some_and(|code| code > 1), "{trouble:?}");
    cluster.finish()
}

async fn set_is_seen_at_once(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = Cluster::builder(kind).start().await?;
    let ctl = cluster.ctl()?;
    ctl.ok(&["route", "set", "chat", "max_waiting=3", "queue_timeout=250ms"]).await?;
    let exported = ctl.json(&["export"]).await?;
    let options = &exported["routes"][0]["options"];
    assert_eq!(
        (options["max_waiting"].as_i64(), options["queue_timeout"].as_str()),
        (Some(3), Some("250ms")),
        "{exported}"
    );
    ctl.ok(&["route", "set", "chat", "--unset", "max_waiting"]).await?;
    let exported = ctl.json(&["export"]).await?;
    assert!(exported["routes"][0]["options"].get("max_waiting").is_none(), "{exported}");
    let shown = ctl.json(&["route", "show", "chat"]).await?;
    assert!(shown.to_string().contains("\"queue_timeout\""), "{shown}");
    cluster.finish()
}
