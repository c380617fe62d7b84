//! A real replica and a real collector that is ended under load: what a stop and a kill cost.

use std::collections::BTreeSet;

use router_tests::await_event::until;
use router_tests::chat::Chat;
use router_tests::cluster::Cluster;
use router_tests::database::DatabaseKind;
use router_tests::process::Signal;
use router_tests::traffic::{Outcome, Traffic};
use serde_json::json;

use super::*;

/// Of one question, in bytes.
const QUESTION: usize = 20_000;
/// What the kernels of both sides may hold of one connection, in bytes: twice 64 KiB at each end.
const BUFFERS: u64 = 256 << 10;

struct Logged {
    folder: TempDir,
    collector: Process,
    port: String,
    cluster: Cluster,
}

impl Logged {
    async fn start() -> anyhow::Result<Self> {
        Self::start_with(&[]).await
    }

    async fn start_with(replica_args: &[&str]) -> anyhow::Result<Self> {
        let folder = TempDir::new()?;
        let collector = start_at("0", 0, folder.path()).await?;
        let port = collector.address("frames")?.port().to_string();
        let builder = Cluster::builder(DatabaseKind::Sqlite).replicas(1).engines(1);
        let builder = builder.option("bodylog_default_enabled", "true");
        let to_collector = ["--bodylog-host", "127.0.0.1", "--bodylog-port", &port];
        let builder = builder.replica_args(&[&to_collector[..], replica_args].concat());
        let mut cluster = builder.start().await?;
        cluster.expect_log("body log");
        Ok(Self { folder, collector, port, cluster })
    }

    fn traffic(&self, clients: usize) -> anyhow::Result<Traffic> {
        let question = json!({"role": "user", "content": "q".repeat(QUESTION)});
        Ok(Traffic::start(clients, &[self.cluster.replica(0)?], &Chat::new().messages(vec![question])))
    }

    /// Another process on the same port and the same files.
    async fn next_collector(&mut self, round: u64) -> anyhow::Result<()> {
        self.collector = start_at(&self.port, round, self.folder.path()).await?;
        Ok(())
    }

    /// What the replica counts.
    async fn count(&self, name: &str) -> anyhow::Result<u64> {
        let answer = self.cluster.client.get(self.cluster.replica_admin(0)?, "/metrics").await?.ok()?;
        let start = format!("router_bodylog_{name}_total{{route=\"chat\"}} ");
        let text = answer.text();
        let line = text.lines().find_map(|line| line.strip_prefix(&start));
        Ok(line.map(str::parse).transpose()?.unwrap_or(0))
    }

    /// Request ids of all whole lines. None twice, none broken: but for the last line of a file while it is written.
    fn kept(&self) -> anyhow::Result<BTreeSet<String>> {
        let ids = read_log(&self.folder.path().join("log"))?.0.ids()?;
        let unique: BTreeSet<String> = ids.iter().cloned().collect();
        assert_eq!(unique.len(), ids.len(), "each record once");
        Ok(unique)
    }

    /// Waits until one more request, which comes last, is in the log; then all before it are there, or lost.
    async fn settled(&self) -> anyhow::Result<u64> {
        let id = "the-last-one";
        let last = Chat::new().header("x-request-id", id);
        last.send(&self.cluster.client, self.cluster.replica(0)?).await?.ok()?;
        until("the last record", PATIENCE, async || Ok(self.kept()?.contains(id).then_some(()))).await?;
        Ok(self.kept()?.len() as u64 - 1)
    }
}

async fn start_at(port: &str, round: u64, folder: &Path) -> anyhow::Result<Process> {
    let log = folder.join("log");
    let args = ["bodylog", "serve", "--port", port, "--http-port", "0", "--dir", log.to_str().unwrap()];
    let process = Process::start(&format!("collector-{round}"), &args, folder).await?;
    process.ready().await?;
    Ok(process)
}

async fn all_good(traffic: Traffic) -> anyhow::Result<u64> {
    let outcomes = traffic.stop().await?;
    let bad: Vec<String> = outcomes.iter().filter(|outcome| !outcome.is_good()).map(Outcome::text).collect();
    assert!(bad.is_empty(), "a request never pays for the log: {bad:#?}");
    Ok(outcomes.len() as u64)
}

#[tokio::test]
async fn a_stop_under_load_loses_nothing() -> anyhow::Result<()> {
    let mut logged = Logged::start().await?;
    let traffic = logged.traffic(8)?;
    for round in 1..=6 {
        traffic.until_more(60).await?;
        assert!(logged.collector.sigterm(PATIENCE).await?.success());
        traffic.until_more(10).await?;
        logged.next_collector(round).await?;
    }
    traffic.until_more(60).await?;
    let sent = all_good(traffic).await?;
    let kept = logged.settled().await?;
    assert_eq!((sent, logged.count("dropped").await?), (kept, 0));
    assert_eq!(logged.count("frames").await?, sent + 1);
    logged.cluster.finish()
}

/// The files of this hour and the next, on a disk that is full.
async fn fill_up(log: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut hours = Vec::new();
    for when in ["now", "+1 hour"] {
        let date = tokio::process::Command::new("date").args(["-u", "-d", when, "+%Y-%m-%d/%H"]).output().await?;
        let hour = log.join(format!("{}.jsonl", String::from_utf8(date.stdout)?.trim()));
        std::fs::create_dir_all(hour.parent().unwrap())?;
        std::os::unix::fs::symlink("/dev/full", &hour)?;
        hours.push(hour);
    }
    Ok(hours)
}

#[tokio::test]
async fn a_full_disk_costs_records_that_are_counted_and_nothing_else() -> anyhow::Result<()> {
    let mut logged = Logged::start_with(&["--bodylog-buffer", "1MiB"]).await?;
    assert!(logged.collector.sigterm(PATIENCE).await?.success());
    let hours = fill_up(&logged.folder.path().join("log")).await?;
    logged.next_collector(1).await?;
    let traffic = logged.traffic(8)?;
    until("the buffer is full", PATIENCE, async || Ok((logged.count("dropped").await? > 10).then_some(()))).await?;
    for hour in hours {
        std::fs::remove_file(hour)?;
    }
    traffic.until_more(60).await?;
    let sent = all_good(traffic).await?;
    // What waited is kept, each record is one or the other.
    let kept = until("every record is kept or counted", PATIENCE, async || {
        let kept = logged.kept()?.len() as u64;
        Ok((kept + logged.count("dropped").await? == sent).then_some(kept))
    })
    .await?;
    assert!(kept > 30, "{kept} of {sent}");
    logged.cluster.finish()
}

#[tokio::test]
async fn a_kill_loses_no_more_than_the_kernel_holds() -> anyhow::Result<()> {
    let mut logged = Logged::start().await?;
    let (mut sent, mut most) = (0, 0);
    for round in 1..=4 {
        let traffic = logged.traffic(8)?;
        traffic.until_more(30).await?;
        // Half of the kills come while the collector is behind, so that the kernel holds all that it can.
        if round % 2 == 0 {
            logged.collector.signal(Signal::Stop).await?;
            traffic.until_more(100).await?;
        }
        logged.collector.kill9().await?;
        // And the frame that is read, and the one that is written.
        most += BUFFERS / QUESTION as u64 + 2;
        logged.next_collector(round).await?;
        traffic.until_more(30).await?;
        sent += all_good(traffic).await?;
    }
    let kept = logged.settled().await?;
    let lost = sent - kept - logged.count("dropped").await?;
    assert!(lost <= most, "{lost} of {sent} are lost; the kernel holds {most}");
    let (full, details) = read_log(&logged.folder.path().join("log"))?;
    assert!(!full.ends_in_half && !details.ends_in_half);
    logged.cluster.finish()
}
