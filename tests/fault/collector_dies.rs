//! The body log's collector is killed while it writes: no record is missing between two that are kept, lines that were whole
//! stay as they are, and the next process leaves no broken line behind. What a replica loses by that is in `replica`.

mod replica;

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use router_tests::await_event::PATIENCE;
use router_tests::process::Process;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const KILLS: u64 = 12;
/// Of one request body, in bytes: long enough that a kill often hits the middle of a line.
const BODY: usize = 2_000_000;
/// Most bytes that are written before a kill, besides those that pass until it comes.
const MOST: u64 = 5_000_000;

/// A frame as payloads.md §6.2 has it.
fn frame(id: &str, body: usize) -> Vec<u8> {
    let meta = format!("{{\"request_id\":\"{id}\",\"status\":200,\"rt\":0.5}}").into_bytes();
    let mut inner = Vec::new();
    inner.extend_from_slice(&u16::try_from(meta.len()).unwrap().to_be_bytes());
    inner.extend_from_slice(&meta);
    inner.extend_from_slice(&u32::try_from(body).unwrap().to_be_bytes());
    inner.resize(inner.len() + body, b'x');
    inner.extend_from_slice(&2_u32.to_be_bytes());
    inner.extend_from_slice(b"ok");
    [&u32::try_from(inner.len()).unwrap().to_be_bytes()[..], &inner].concat()
}

/// All files of one kind in their order: their whole lines, and whether the newest ends with half a line. An older one may
/// do so for good, when the hour changed between a kill and the next start: nothing comes after it.
#[derive(Debug, Default)]
struct Lines {
    whole: Vec<String>,
    ends_in_half: bool,
}

impl Lines {
    fn read(mut files: Vec<PathBuf>) -> anyhow::Result<Self> {
        files.sort();
        let mut all = Self::default();
        for file in files {
            let text = std::fs::read_to_string(file)?;
            all.ends_in_half = false;
            for line in text.split_inclusive('\n') {
                match line.strip_suffix('\n') {
                    Some(whole) => all.whole.push(whole.to_owned()),
                    None => all.ends_in_half = true,
                }
            }
        }
        Ok(all)
    }

    /// The request ids; fails on a line that is no JSON.
    fn ids(&self) -> anyhow::Result<Vec<String>> {
        let id = |line: &String| Ok(serde_json::from_str::<Value>(line)?["request_id"].as_str().unwrap().to_owned());
        self.whole.iter().map(id).collect()
    }
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Full records and details.
fn read_log(log: &Path) -> anyhow::Result<(Lines, Lines)> {
    let days = files_in(log).into_iter().filter(|path| path.is_dir() && !path.ends_with("metrics"));
    let full = Lines::read(days.flat_map(|day| files_in(&day)).collect())?;
    let details = files_in(&log.join("metrics/details")).into_iter().filter(|path| path.is_file());
    Ok((full, Lines::read(details.collect())?))
}

/// Bytes of all full records.
fn size(log: &Path) -> u64 {
    let days = files_in(log).into_iter().filter(|path| path.is_dir() && !path.ends_with("metrics"));
    let hours = days.flat_map(|day| files_in(&day));
    hours.map(|hour| std::fs::metadata(hour).map_or(0, |metadata| metadata.len())).sum()
}

async fn start(round: u64, log: &Path, folder: &Path) -> anyhow::Result<Process> {
    let log = log.to_str().unwrap();
    let args = ["bodylog", "serve", "--port", "0", "--http-port", "0", "--dir", log];
    let process = Process::start(&format!("collector-{round}"), &args, folder).await?;
    process.ready().await?;
    Ok(process)
}

/// Sends one frame, and waits until the collector has written it.
async fn deliver(process: &Process, id: &str) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(process.address("frames")?).await?;
    stream.write_all(&frame(id, 10)).await?;
    stream.shutdown().await?;
    assert_eq!(stream.read_to_end(&mut Vec::new()).await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_kill_leaves_whole_lines_without_a_gap() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let log = folder.path().join("log");
    let mut random = 88_172_645_463_325_252_u64;
    let (mut before, mut survivors) = (Lines::default(), 0);
    for round in 0..KILLS {
        let mut process = start(round, &log, folder.path()).await?;
        // The process before this one left at most half a line; with the first record it is gone.
        deliver(&process, &format!("{round}-first")).await?;
        let (full, details) = read_log(&log)?;
        assert!(!full.ends_in_half && !details.ends_in_half, "round {round}");
        assert_eq!(full.whole[..before.whole.len()], before.whole[..], "round {round}: whole lines stay as they were");

        // xorshift: other points each round, the same ones each run.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let enough = size(&log) + random % MOST;
        let mut stream = TcpStream::connect(process.address("frames")?).await?;
        let deliveries = async {
            for number in 0_u64.. {
                stream.write_all(&frame(&format!("{round}-{number}"), BODY)).await?;
            }
            anyhow::Ok(())
        };
        // Looks without a pause: the file grows while a line is being written, and the kill shall come then.
        let grown = tokio::task::spawn_blocking({
            let log = log.clone();
            move || {
                let started = Instant::now();
                while size(&log) < enough {
                    anyhow::ensure!(started.elapsed() < PATIENCE, "the files do not grow");
                }
                anyhow::Ok(())
            }
        });
        tokio::select! {
            sent = deliveries => sent?,
            grown = grown => grown??,
        }
        process.kill9().await?;

        let (full, details) = read_log(&log)?;
        let (full_ids, details_ids) = (full.ids()?, details.ids()?);
        let first = format!("{round}-first");
        let of_round = |ids: &[String]| ids.iter().skip_while(|id| **id != first).skip(1).cloned().collect::<Vec<_>>();
        let (kept, rows) = (of_round(&full_ids), of_round(&details_ids));
        let expected: Vec<String> = (0..kept.len()).map(|number| format!("{round}-{number}")).collect();
        assert_eq!(kept, expected, "none is missing in the middle");
        // Between the two files of one record a kill may come too.
        assert!(rows == kept || rows == kept[..kept.len().saturating_sub(1)], "round {round}: {rows:?} {kept:?}");
        survivors += kept.len();
        before = full;
    }
    assert!(survivors > 0, "records were written when the kills came");
    // And for certain, should no kill have come in the middle of a line.
    let (newest, rows) =
        (files_in(&log).into_iter().filter(|path| !path.ends_with("metrics")), log.join("metrics/details"));
    let newest = newest.filter(|path| path.is_dir()).flat_map(|day| files_in(&day)).max();
    for file in [newest, files_in(&rows).into_iter().max()].into_iter().flatten() {
        OpenOptions::new().append(true).open(file)?.write_all(b"{\"request_id\":\"half")?;
    }
    let mut process = start(KILLS, &log, folder.path()).await?;
    deliver(&process, "last").await?;
    let (full, details) = read_log(&log)?;
    assert!(!full.ends_in_half && !details.ends_in_half);
    assert_eq!((full.ids()?.last(), details.ids()?.last()), (Some(&"last".to_owned()), Some(&"last".to_owned())));
    assert!(process.sigterm(PATIENCE).await?.success());
    Ok(())
}
