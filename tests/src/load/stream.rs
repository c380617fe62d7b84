//! `load stream`: many event streams with many tokens at full speed; events per second and the proxies' CPU.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::client::{Connection, chat_request};
use crate::memory::mock_engine;
use crate::peer::{Peer, PeerKind, RouterArgs, Traffic};
use crate::report::{json, median, progress, table};

/// Bound on one peer's round.
const ROUND_TIMEOUT: Duration = Duration::from_mins(2);
/// Events of a stream beside its tokens: role, finish reason, `[DONE]`.
const OTHER_EVENTS: u32 = 3;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Peers to measure.
    #[arg(long, value_enum, value_delimiter = ',',
          default_values_t = [PeerKind::Direct, PeerKind::Nginx, PeerKind::Haproxy, PeerKind::Router])]
    peers: Vec<PeerKind>,
    /// Streams at the same time.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1000))]
    streams: u16,
    /// Tokens of a stream.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    tokens: u32,
    /// Milliseconds between two tokens; at 0 the engine writes as fast as it can and events share packets.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=1000))]
    token_gap_ms: u32,
    /// Rounds; the medians are reported.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=20))]
    rounds: u8,
    #[command(flatten)]
    router: RouterArgs,
    /// JSON instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Round {
    events_per_second: f64,
    cpu_seconds_per_million: f64,
}

#[derive(Debug, Serialize)]
struct Summary {
    peer: &'static str,
    events_per_second: f64,
    cpu_seconds_per_million: f64,
    rounds: Vec<Round>,
}

/// Measures and reports.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let folder = tempfile::tempdir().context("make a folder")?;
    let (engine, engine_address) =
        mock_engine(folder.path(), &args.router, args.token_gap_ms, args.tokens, "16").await?;
    let mut router = args.router.clone();
    router.max_concurrency = Some(router.max_concurrency.unwrap_or(u32::from(args.streams) + 16));
    let mut measured: Vec<(Peer, Vec<Round>)> = Vec::new();
    for kind in &args.peers {
        match Peer::start(*kind, engine_address, Traffic::Streams, &router).await {
            Ok(peer) => measured.push((peer, Vec::new())),
            Err(error) => progress(&format!("skipped {}: {error:#}", kind.name())),
        }
    }
    if measured.is_empty() {
        bail!("no peer could be started");
    }
    for number in 1..=args.rounds {
        for (peer, rounds) in &mut measured {
            let round = timeout(ROUND_TIMEOUT, measure(peer, &args))
                .await
                .with_context(|| format!("{}: the round took too long", peer.kind.name()))?
                .with_context(|| format!("measure {}", peer.kind.name()))?;
            let name = peer.kind.name();
            progress(&format!("round {number}/{} {name}: {:.0} events/s", args.rounds, round.events_per_second));
            rounds.push(round);
        }
    }
    let mut summaries = Vec::new();
    for (peer, rounds) in measured {
        summaries.push(Summary {
            peer: peer.kind.name(),
            events_per_second: median(rounds.iter().map(|round| round.events_per_second)),
            cpu_seconds_per_million: median(rounds.iter().map(|round| round.cpu_seconds_per_million)),
            rounds,
        });
        peer.stop().await;
    }
    engine.stop().await;
    if args.json {
        return json(&summaries);
    }
    let rows: Vec<[String; 3]> = summaries
        .iter()
        .map(|summary| {
            [
                summary.peer.to_owned(),
                format!("{:.0}", summary.events_per_second),
                format!("{:.2}", summary.cpu_seconds_per_million),
            ]
        })
        .collect();
    table(["peer", "events/s", "CPU s/1M events"], &rows)
}

/// Runs all streams once to their end; a stream that breaks fails the measurement.
async fn measure(peer: &Peer, args: &Args) -> anyhow::Result<Round> {
    let cpu_before = peer.cpu_seconds();
    let start = Instant::now();
    let mut streams = JoinSet::new();
    for session in 0..usize::from(args.streams) {
        let (address, max_tokens) = (peer.address, args.tokens);
        streams.spawn(async move {
            let mut connection = Connection::open(address).await?;
            connection.send(&chat_request(session, 1024, true, max_tokens)).await?;
            connection.drain_stream().await
        });
    }
    while let Some(stream) = streams.join_next().await {
        stream.context("a client task failed")??;
    }
    let events = f64::from(args.streams) * f64::from(args.tokens + OTHER_EVENTS);
    Ok(Round {
        events_per_second: events / start.elapsed().as_secs_f64(),
        cpu_seconds_per_million: (peer.cpu_seconds() - cpu_before) / events * 1e6,
    })
}
