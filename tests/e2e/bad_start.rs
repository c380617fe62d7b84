//! A start that can't work says why in one clear line and ends with a code that is not 0.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use router_tests::cluster::Cluster;
use router_tests::ctl::{self, Said};
use router_tests::database::DatabaseKind;
use tempfile::TempDir;

router_tests::on_both_databases!(a_used_port);

router_tests::on_any_database!(
    an_unreachable_database,
    a_database_url_that_is_none,
    a_database_file_that_others_may_read,
    a_database_file_that_is_none,
    bad_flags_are_all_named_at_once,
    no_control_plane_to_talk_to,
);

/// A start must have failed by then.
const START_PATIENCE: Duration = Duration::from_secs(45);

async fn control_plane(database_url: &str) -> anyhow::Result<Said> {
    let args = ["controlplane", "--grpc-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--database-url"];
    ctl::run_within(START_PATIENCE, [&args[..], &[database_url]].concat(), None).await
}

/// Not 0, and one line besides logs that holds `word`.
fn failed_clearly(said: &Said, word: &str) {
    assert!(said.code.is_some_and(|code| code != 0), "{said:?}");
    let complaint = said.complaint();
    let lines: Vec<&str> = complaint.lines().filter(|line| line.contains(word)).collect();
    assert_eq!(lines.len(), 1, "one line that names {word}: {said:?}");
    assert!(complaint.lines().count() <= 3, "no wall of text: {said:?}");
    assert!(!complaint.contains("panicked") && !complaint.contains("stack backtrace"), "{said:?}");
    assert!(!said.stdout.contains("ready"), "{said:?}");
}

async fn an_unreachable_database() -> anyhow::Result<()> {
    let said = control_plane("postgres://somebody:hunter2@127.0.0.1:1/router").await?;
    failed_clearly(&said, "database");
    assert!(!said.stderr.contains("hunter2"), "the password is told to nobody: {said:?}");
    Ok(())
}

async fn a_database_url_that_is_none() -> anyhow::Result<()> {
    for url in ["mysql://x", "nonsense", ""] {
        failed_clearly(&control_plane(url).await?, "database");
    }
    Ok(())
}

async fn a_database_file_that_others_may_read() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let path = folder.path().join("state.db");
    for mode in [0o644, 0o660, 0o666] {
        std::fs::write(&path, "")?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))?;
        let said = control_plane(&format!("sqlite:{}", path.display())).await?;
        failed_clearly(&said, "state.db");
    }
    // The control: the file that the control plane makes itself is private, and it starts with it.
    let cluster = Cluster::builder(DatabaseKind::Sqlite).replicas(0).engines(1).start().await?;
    for entry in std::fs::read_dir(cluster.folder())? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("state.db") {
            assert_eq!(entry.metadata()?.permissions().mode() & 0o077, 0, "{}", entry.path().display());
        }
    }
    cluster.finish()
}

async fn a_database_file_that_is_none() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let path = folder.path().join("text.db");
    std::fs::write(&path, "this is no database. ".repeat(500))?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    failed_clearly(&control_plane(&format!("sqlite:{}", path.display())).await?, "database");
    let said = control_plane(&format!("sqlite:{}", folder.path().join("no/such/folder/x.db").display())).await?;
    failed_clearly(&said, "x.db");
    failed_clearly(&control_plane(&format!("sqlite:{}", folder.path().display())).await?, "database");
    Ok(())
}

async fn bad_flags_are_all_named_at_once() -> anyhow::Result<()> {
    let args = ["dataplane", "--control-plane", "ftp://nowhere", "--max-body-size", "much", "--grace", "soon"];
    let said = ctl::run(args, None).await?;
    assert_eq!(said.code, Some(64), "{said:?}");
    for flag in ["--control-plane", "--max-body-size", "--grace"] {
        assert!(said.stderr.contains(flag), "{flag}: {said:?}");
    }
    let said = ctl::run(["controlplane", "--lease-ttl", "1ms", "--bootstrap", "/no/such/file"], None).await?;
    assert_eq!(said.code, Some(64), "{said:?}");
    assert!(said.stderr.contains("--lease-ttl") && said.stderr.contains("--bootstrap"), "{said:?}");
    Ok(())
}

async fn no_control_plane_to_talk_to() -> anyhow::Result<()> {
    let said = ctl::run(["--control-plane", "http://127.0.0.1:1", "route", "list"], None).await?;
    assert_eq!(said.code, Some(69), "{said:?}");
    assert!(said.stderr.contains("127.0.0.1:1"), "{said:?}");
    Ok(())
}

async fn a_used_port(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = Cluster::builder(kind).start().await?;
    let taken = cluster.replica(0)?.to_string();
    let url = format!("http://{}", cluster.control_plane.address("grpc")?);
    let replica = ["dataplane", "--control-plane", &url, "--admin-listen", "127.0.0.1:0", "--listen", &taken];
    failed_clearly(&ctl::run(replica, None).await?, &taken);
    let folder = TempDir::new()?;
    let database = format!("sqlite:{}", folder.path().join("state.db").display());
    let taken = cluster.control_plane.address("grpc")?.to_string();
    let args = ["controlplane", "--http-listen", "127.0.0.1:0", "--database-url", &database, "--grpc-listen", &taken];
    failed_clearly(&ctl::run(args, None).await?, &taken);
    let taken = cluster.engines[0].address().to_string();
    failed_clearly(&ctl::run(["mock-engine", "--listen", &taken], None).await?, &taken);
    cluster.finish()
}
