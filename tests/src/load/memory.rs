//! `load memory`: what one slow stream costs the router in resident memory.

use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;
use tokio::time::{sleep, timeout};

use crate::client::{Connection, chat_request};
use crate::peer::{Peer, PeerKind, RouterArgs, Traffic};
use crate::process::Process;
use crate::report::{json, progress, table};

/// Bound on opening all streams.
const OPEN_TIMEOUT: Duration = Duration::from_mins(1);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Peer to measure.
    #[arg(long, value_enum, default_value_t = PeerKind::Router)]
    peer: PeerKind,
    /// Streams open at the same time.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    streams: u32,
    /// Milliseconds between two tokens of a stream.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    token_gap_ms: u32,
    /// Tokens of a stream; it must outlive the measurement.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(10..=10_000))]
    tokens: u32,
    /// Seconds from the last stream's first byte to the measurement.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=60))]
    settle_seconds: u8,
    /// Size of a request's body.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(128..=1_048_576))]
    request_bytes: u32,
    #[command(flatten)]
    router: RouterArgs,
    /// JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// One process's resident memory in KB.
#[derive(Debug, Serialize)]
struct Row {
    process: &'static str,
    before_kb: u64,
    open_kb: u64,
    closed_kb: u64,
    kb_per_stream: f64,
}

/// Measures and reports.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let folder = tempfile::tempdir().context("make a folder")?;
    let (engine, engine_address) =
        mock_engine(folder.path(), &args.router, args.token_gap_ms, args.tokens, "16").await?;
    let mut router = args.router.clone();
    router.max_concurrency = Some(router.max_concurrency.unwrap_or(args.streams + 16));
    let peer = Peer::start(args.peer, engine_address, Traffic::Streams, &router).await.context(args.peer.name())?;

    // One stream has run before the first reading, so that what is made once is not counted per stream.
    let mut first = open(&peer, 0, &args).await?;
    first.first_bytes().await?;
    drop(first);
    sleep(Duration::from_secs(1)).await;
    let before = readings(&peer);

    progress(&format!("opening {} streams through {}", args.streams, args.peer.name()));
    let streams = timeout(OPEN_TIMEOUT, open_all(&peer, &args)).await.context("open the streams: timed out")??;
    sleep(Duration::from_secs(args.settle_seconds.into())).await;
    let open = readings(&peer);
    drop(streams);
    sleep(Duration::from_secs(2)).await;
    let closed = readings(&peer);

    let count = f64::from(args.streams);
    let rows: Vec<Row> = peer
        .processes
        .iter()
        .zip(before.into_iter().zip(open).zip(closed))
        .map(|((process, _), ((before_kb, open_kb), closed_kb))| {
            let growth = u32::try_from(open_kb.saturating_sub(before_kb)).unwrap_or(u32::MAX);
            Row { process, before_kb, open_kb, closed_kb, kb_per_stream: f64::from(growth) / count }
        })
        .collect();
    peer.stop().await;
    engine.stop().await;
    report(&args, &rows)
}

fn report(args: &Args, rows: &[Row]) -> anyhow::Result<()> {
    if args.json {
        return json(&rows);
    }
    let mut lines: Vec<[String; 5]> = rows
        .iter()
        .map(|row| {
            [
                row.process.to_owned(),
                row.before_kb.to_string(),
                row.open_kb.to_string(),
                row.closed_kb.to_string(),
                format!("{:.1}", row.kb_per_stream),
            ]
        })
        .collect();
    let sum: f64 = rows.iter().map(|row| row.kb_per_stream).sum();
    let blank = String::new;
    lines.push(["together".to_owned(), blank(), blank(), blank(), format!("{sum:.1}")]);
    table(["process", "before KB", "open KB", "closed KB", "KB per stream"], &lines)
}

/// Starts the mock engine of routerctl.
pub(crate) async fn mock_engine(
    folder: &std::path::Path,
    router: &RouterArgs,
    token_gap_ms: u32,
    tokens: u32,
    cache_blocks: &str,
) -> anyhow::Result<(Process, std::net::SocketAddr)> {
    let (gap, tokens) = (token_gap_ms.to_string(), tokens.to_string());
    let arguments = [
        "mock-engine",
        "--listen=127.0.0.1:0",
        "--token-gap-ms",
        &gap,
        "--tokens",
        &tokens,
        "--cache-blocks",
        cache_blocks,
    ];
    let mut engine = Process::start(folder, "engine", &router.program()?, arguments)?;
    let address = engine.listening().await.context("routerctl mock-engine")?;
    Ok((engine, address))
}

async fn open(peer: &Peer, session: u32, args: &Args) -> anyhow::Result<Connection> {
    let mut connection = Connection::open(peer.address).await?;
    connection.send(&chat_request(session as usize, args.request_bytes as usize, true, args.tokens)).await?;
    Ok(connection)
}

/// Opens the streams one after the other, then waits for the first bytes of each. What comes later stays in the sockets'
/// buffers: a stream of a few dozen tokens fits.
async fn open_all(peer: &Peer, args: &Args) -> anyhow::Result<Vec<Connection>> {
    let mut streams = Vec::new();
    for session in 0..args.streams {
        streams.push(open(peer, session, args).await?);
    }
    for stream in &mut streams {
        stream.first_bytes().await?;
    }
    Ok(streams)
}

/// Resident memory of each process in KB.
fn readings(peer: &Peer) -> Vec<u64> {
    peer.processes.iter().map(|(_, process)| process.resident_kb()).collect()
}
