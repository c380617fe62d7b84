//! `load throughput`: small requests as fast as they go, peer by peer in interleaved rounds.

use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::Serialize;

use crate::client::{Burst, burst, chat_request};
use crate::peer::{Peer, PeerKind, RouterArgs, Traffic};
use crate::process::Process;
use crate::report::{json, median, progress, table};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Peers to measure.
    #[arg(long, value_enum, value_delimiter = ',',
          default_values_t = [PeerKind::Direct, PeerKind::Nginx, PeerKind::NginxLua, PeerKind::Haproxy, PeerKind::Router])]
    peers: Vec<PeerKind>,
    /// Engine behind the peers; a costlier one takes CPU from all of them and evens out their throughput.
    #[arg(long, value_enum, default_value_t = EngineKind::Internal)]
    engine: EngineKind,
    /// Keep-alive connections, each with one request at a time.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: u16,
    /// Sessions that the requests cycle over.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    sessions: u16,
    /// Size of a request's body.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(128..=1_048_576))]
    request_bytes: u32,
    /// Size of an answer's body.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(300..=1_048_576))]
    answer_bytes: u32,
    /// Rounds; the medians are reported.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=50))]
    rounds: u8,
    /// Seconds per peer and round.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=60))]
    seconds: u8,
    /// Seconds of warm-up per peer.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=60))]
    warm_up: u8,
    #[command(flatten)]
    router: RouterArgs,
    /// JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// What answers the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum EngineKind {
    /// The one inside this tool, the cheapest there can be.
    Internal,
    /// `routerctl mock-engine --answer-bytes`.
    Mock,
}

/// One peer's round.
#[derive(Debug, Serialize)]
struct Round {
    per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
    cpu_seconds_per_1000: f64,
    /// CPU of each process of the peer, by role.
    cpu_by_role: Vec<(&'static str, f64)>,
    failures: u64,
}

/// One peer's medians.
#[derive(Debug, Serialize)]
struct Summary {
    peer: &'static str,
    per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
    cpu_seconds_per_1000: f64,
    /// Throughput relative to nginx.
    per_second_of_nginx: Option<f64>,
    /// CPU per request relative to nginx.
    cpu_of_nginx: Option<f64>,
    failures: u64,
    rounds: Vec<Round>,
}

/// Measures and reports.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let folder = tempfile::tempdir().context("make a folder")?;
    let answer_bytes = args.answer_bytes.to_string();
    let mut engine = match args.engine {
        EngineKind::Internal => {
            let own = std::env::current_exe().context("find this program")?;
            let arguments = ["engine", "--answer-bytes", &answer_bytes];
            Process::start(folder.path(), "engine", &own, arguments)?
        }
        EngineKind::Mock => {
            let arguments = ["mock-engine", "--listen=127.0.0.1:0", "--answer-bytes", &answer_bytes];
            Process::start(folder.path(), "engine", &args.router.program()?, arguments)?
        }
    };
    let engine_address = engine.listening().await.context("the engine")?;

    let mut peers = Vec::new();
    for kind in &args.peers {
        match Peer::start(*kind, engine_address, Traffic::Short, &args.router).await {
            Ok(peer) => peers.push(peer),
            Err(error) => progress(&format!("skipped {}: {error:#}", kind.name())),
        }
    }
    if peers.is_empty() {
        bail!("no peer could be started");
    }
    // Kept for the life of the process: tasks borrow the requests without counting references per request.
    let requests: &'static [Vec<u8>] = Vec::leak(
        (0..args.sessions)
            .map(|session| chat_request(usize::from(session), args.request_bytes as usize, false, 16))
            .collect(),
    );
    let connections = usize::from(args.connections);
    if args.warm_up > 0 {
        for peer in &peers {
            burst(peer.address, connections, requests, Duration::from_secs(args.warm_up.into()))
                .await
                .with_context(|| format!("warm up {}", peer.kind.name()))?;
        }
    }
    let mut rounds: Vec<Vec<Round>> = peers.iter().map(|_| Vec::new()).collect();
    for number in 1..=args.rounds {
        for (peer, rounds) in peers.iter().zip(&mut rounds) {
            let round = measure(peer, connections, requests, Duration::from_secs(args.seconds.into()))
                .await
                .with_context(|| format!("measure {}", peer.kind.name()))?;
            let name = peer.kind.name();
            progress(&format!(
                "round {number}/{} {name}: {:.0}/s, {:.3} CPU s/1000",
                args.rounds, round.per_second, round.cpu_seconds_per_1000
            ));
            rounds.push(round);
        }
    }
    let summaries = summarize(&peers, rounds);
    for peer in peers {
        peer.stop().await;
    }
    engine.stop().await;
    if args.json { json(&summaries) } else { print(&summaries) }
}

async fn measure(
    peer: &Peer,
    connections: usize,
    requests: &'static [Vec<u8>],
    time: Duration,
) -> anyhow::Result<Round> {
    let before: Vec<f64> = peer.processes.iter().map(|(_, process)| process.cpu_seconds()).collect();
    let burst: Burst = burst(peer.address, connections, requests, time).await?;
    let thousands = (burst.requests() / 1000.0).max(0.001);
    let cpu_by_role: Vec<(&'static str, f64)> = peer
        .processes
        .iter()
        .zip(before)
        .map(|((role, process), before)| (*role, (process.cpu_seconds() - before) / thousands))
        .collect();
    Ok(Round {
        per_second: burst.per_second(),
        p50_ms: burst.percentile_ms(50),
        p99_ms: burst.percentile_ms(99),
        // Not `sum`: that of nothing is -0.
        cpu_seconds_per_1000: cpu_by_role.iter().fold(0.0, |sum, (_, cpu)| sum + cpu),
        cpu_by_role,
        failures: burst.failures,
    })
}

fn summarize(peers: &[Peer], rounds: Vec<Vec<Round>>) -> Vec<Summary> {
    let mut summaries: Vec<Summary> = peers
        .iter()
        .zip(rounds)
        .map(|(peer, rounds)| Summary {
            peer: peer.kind.name(),
            per_second: median(rounds.iter().map(|round| round.per_second)),
            p50_ms: median(rounds.iter().map(|round| round.p50_ms)),
            p99_ms: median(rounds.iter().map(|round| round.p99_ms)),
            cpu_seconds_per_1000: median(rounds.iter().map(|round| round.cpu_seconds_per_1000)),
            per_second_of_nginx: None,
            cpu_of_nginx: None,
            failures: rounds.iter().map(|round| round.failures).sum(),
            rounds,
        })
        .collect();
    let nginx = summaries.iter().find(|summary| summary.peer == PeerKind::Nginx.name());
    if let Some((per_second, cpu)) = nginx.map(|nginx| (nginx.per_second, nginx.cpu_seconds_per_1000)) {
        for summary in &mut summaries {
            summary.per_second_of_nginx = (per_second > 0.0).then(|| summary.per_second / per_second);
            summary.cpu_of_nginx = (cpu > 0.0).then(|| summary.cpu_seconds_per_1000 / cpu);
        }
    }
    summaries
}

fn print(summaries: &[Summary]) -> anyhow::Result<()> {
    let ratio = |ratio: Option<f64>| ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}"));
    let rows: Vec<[String; 9]> = summaries
        .iter()
        .map(|summary| {
            let roles = summary.rounds.first().map(|round| round.cpu_by_role.as_slice()).unwrap_or_default();
            let by_role: Vec<String> = roles
                .iter()
                .enumerate()
                .map(|(at, (role, _))| {
                    let cpu = summary.rounds.iter().filter_map(|round| round.cpu_by_role.get(at)).map(|(_, cpu)| *cpu);
                    format!("{role} {:.3}", median(cpu))
                })
                .collect();
            [
                summary.peer.to_owned(),
                format!("{:.0}", summary.per_second),
                format!("{:.2}", summary.p50_ms),
                format!("{:.2}", summary.p99_ms),
                format!("{:.3}", summary.cpu_seconds_per_1000),
                ratio(summary.per_second_of_nginx),
                ratio(summary.cpu_of_nginx),
                summary.failures.to_string(),
                by_role.join(", "),
            ]
        })
        .collect();
    let header =
        ["peer", "req/s", "p50 ms", "p99 ms", "CPU s/1000", "req/s : nginx", "CPU : nginx", "failures", "by process"];
    table(header, &rows)
}
