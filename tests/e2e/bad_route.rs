//! A bad route document is refused whole, with every complaint naming its field, and nothing changes.

use router_tests::chat::Chat;
use router_tests::cluster::Cluster;
use router_tests::ctl::{self, Said};
use router_tests::database::{Database, DatabaseKind};

router_tests::on_both_databases!(
    a_bad_document_changes_nothing,
    names_must_be_unique_and_one_default_only,
    bad_verbs_are_refused_with_a_hint,
    a_bad_bootstrap_stops_the_start,
);

async fn apply(cluster: &Cluster, document: &str) -> anyhow::Result<Said> {
    cluster.ctl()?.run_with_stdin(&["apply", "-f", "-"], document).await
}

/// Applies a document that must be refused with each of `fields` named; the stored routes must stay as they were.
async fn refused(cluster: &Cluster, document: &str, fields: &[&str]) -> anyhow::Result<()> {
    let before = cluster.ctl()?.ok(&["export"]).await?;
    let said = apply(cluster, document).await?;
    assert_ne!(said.code, Some(0), "{document} was taken");
    for field in fields {
        assert!(said.stderr.contains(field), "{field} not named for {document}: {}", said.stderr);
    }
    assert_eq!(said.stdout, "", "data on stdout only");
    assert_eq!(cluster.ctl()?.ok(&["export"]).await?, before, "{document} changed something");
    Ok(())
}

async fn a_bad_document_changes_nothing(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = Cluster::builder(kind).start().await?;
    let backend = cluster.engines[0].address();
    let two_errors = format!(
        "routes:\n- name: good\n  backends: [\"{backend}\"]\n- name: bad\n  options:\n    max_waiting: lots\n    \
         no_such_option: 1\n  backends: [\"{backend}\"]\n"
    );
    refused(&cluster, &two_errors, &["routes.bad.options.max_waiting", "no_such_option"]).await?;
    let routes = cluster.ctl()?.json(&["route", "list"]).await?.to_string();
    assert!(!routes.contains("good"), "not even the good half: {routes}");

    refused(&cluster, "name: x\nbackends: [\"no port\"]\n", &["backends"]).await?;
    refused(&cluster, "name: \"a/b\"\nbackends: []\n", &["name"]).await?;
    refused(&cluster, "name: x\nbackend: []\n", &["backend"]).await?;
    refused(&cluster, "name: x\noptions: {queue_timeout: -5s}\n", &["queue_timeout"]).await?;
    refused(&cluster, "name: x\noptions: {max_concurrency: 0}\n", &["max_concurrency"]).await?;
    refused(&cluster, "name: x\npreset: fast\n", &["preset"]).await?;
    refused(&cluster, "routes: 5\n", &["routes"]).await?;
    refused(&cluster, "just text", &[]).await?;
    refused(&cluster, "a: [unclosed\n", &[]).await?;
    refused(&cluster, "", &[]).await?;
    Chat::new().send(&cluster.client, cluster.replica(0)?).await?.ok()?;

    let fine = format!("name: fine\noptions: {{max_waiting: 3}}\nbackends: [\"{backend}\"]\n");
    apply(&cluster, &fine).await?.ok()?;
    let shown = cluster.ctl()?.ok(&["route", "show", "fine"]).await?;
    assert!(shown.contains("max_waiting"), "the control: {shown}");
    cluster.finish()
}

async fn names_must_be_unique_and_one_default_only(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = Cluster::builder(kind).start().await?;
    let ctl = cluster.ctl()?;
    refused(&cluster, "routes: [{name: a}, {name: a}]", &["routes.a.name"]).await?;
    refused(&cluster, "routes: [{name: a, default: true}, {name: b, default: true}]", &["default"]).await?;
    // The one that is stored is the default already.
    refused(&cluster, "{name: b, default: true, backends: [\"127.0.0.1:1\"]}", &["default"]).await?;
    refused(&cluster, "{name: b, backends: [\"127.0.0.1:1\", \"127.0.0.1:1\"]}", &["backends"]).await?;
    let twice = "{name: b, backends: [{address: \"127.0.0.1:1\", name: x}, {address: \"127.0.0.1:2\", name: x}]}";
    refused(&cluster, twice, &["name"]).await?;

    let again = ctl.run(&["route", "add", "chat", "--backend", "127.0.0.1:1"]).await?;
    assert_eq!(again.code, Some(1), "{again:?}");
    assert!(again.stderr.contains("exists"), "{again:?}");
    let backend = cluster.engines[0].address().to_string();
    let again = ctl.run(&["backend", "add", "chat", &backend]).await?;
    assert_ne!(again.code, Some(0), "{again:?}");
    ctl.ok(&["key", "add", "k"]).await?;
    let again = ctl.run(&["key", "add", "k"]).await?;
    assert_ne!(again.code, Some(0), "{again:?}");
    cluster.finish()
}

async fn bad_verbs_are_refused_with_a_hint(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = Cluster::builder(kind).start().await?;
    let ctl = cluster.ctl()?;
    let rows: [(&[&str], &str); 9] = [
        (&["route", "set", "nobody", "max_waiting=1"], "nobody"),
        (&["route", "set", "chat", "max_waiting=lots"], "max_waiting"),
        (&["route", "set", "chat", "max_wait=1"], "max_wait"),
        (&["backend", "add", "chat", "not-an-address"], "not-an-address"),
        (&["backend", "remove", "chat", "127.0.0.1:1"], "127.0.0.1:1"),
        (&["drain", "--port", "1"], "1"),
        (&["drain"], "--port"),
        (&["key", "revoke", "nobody"], "nobody"),
        (&["session", "forget", "chat", "zz", "--yes"], "zz"),
    ];
    for (verb, word) in rows {
        let said = ctl.run(verb).await?;
        assert!(said.code.is_some_and(|code| code != 0), "{verb:?}: {said:?}");
        assert!(said.stderr.contains(word), "{word} not named by {verb:?}: {said:?}");
        assert!(!said.stderr.contains("panicked") && said.stdout.is_empty(), "{verb:?}: {said:?}");
    }
    cluster.finish()
}

/// The control is every other test: a good route is stored and served.
async fn a_bad_bootstrap_stops_the_start(kind: DatabaseKind) -> anyhow::Result<()> {
    let folder = tempfile::TempDir::new()?;
    let database = Database::start(kind, folder.path()).await?;
    let file = folder.path().join("bootstrap.json");
    std::fs::write(&file, "{\"name\": \"x\", \"options\": {\"max_waiting\": \"lots\"}}")?;
    let (url, file) = (database.url(), file.display().to_string());
    let args = ["controlplane", "--grpc-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"];
    let said = ctl::run([&args[..], &["--database-url", &url, "--bootstrap", &file]].concat(), None).await?;
    assert!(said.code.is_some_and(|code| code != 0), "{said:?}");
    assert!(said.stderr.contains("max_waiting"), "{said:?}");
    Ok(())
}
