//! The answer of `/summary`: sums of the last minutes by backend, out of memory (payloads.md §7.6).

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde::Serialize;

use super::minutes::{Minutes, Stream, Sums};
use crate::bodylog::zone::stamp;

/// Most minutes of backends in an answer; the newest are shown. About 20 MB of JSON.
const MOST_BUCKETS: usize = if cfg!(test) { 1000 } else { 50_000 };

/// The answer.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    from: String,
    to: String,
    minutes: i64,
    peers: Vec<PeerSums>,
    #[serde(skip_serializing_if = "Option::is_none")]
    buckets: Option<Vec<Bucket>>,
    /// Older minutes of the window are left out: of the sums too where memory has no room for them, else of `buckets` alone.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
}

/// Sums of one backend. Sizes in bytes, times in milliseconds.
#[derive(Debug, Serialize)]
struct PeerSums {
    peer: String,
    requests: u64,
    status_2xx: u64,
    status_4xx: u64,
    status_5xx: u64,
    prompt_tokens: u64,
    cached_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
    req_body_bytes: u64,
    resp_body_bytes: u64,
    rt_avg_ms: u64,
    rt_max_ms: u64,
    frt_avg_ms: u64,
    frt_max_ms: u64,
    frt_n: u64,
}

/// One minute of one backend.
#[derive(Debug, Serialize)]
struct Bucket {
    minute: String,
    #[serde(flatten)]
    sums: PeerSums,
}

impl PeerSums {
    fn new(peer: &str, sums: &Sums) -> Self {
        Self {
            peer: peer.to_owned(),
            requests: sums.requests,
            status_2xx: sums.status_2xx,
            status_4xx: sums.status_4xx,
            status_5xx: sums.status_5xx,
            prompt_tokens: sums.prompt_tok,
            cached_tokens: sums.cached_tok,
            completion_tokens: sums.compl_tok,
            total_tokens: sums.total_tok,
            req_body_bytes: sums.req_bytes,
            resp_body_bytes: sums.resp_bytes,
            rt_avg_ms: sums.rt_sum_ms.checked_div(sums.requests).unwrap_or(0),
            rt_max_ms: sums.rt_max_ms,
            frt_avg_ms: sums.frt_sum_ms.checked_div(sums.frt_n).unwrap_or(0),
            frt_max_ms: sums.frt_max_ms,
            frt_n: sums.frt_n,
        }
    }
}

/// Sums the last `minutes` before `now`, the running one included. The lock is held for a piece at a time.
pub(crate) fn summary(
    known: &Mutex<Minutes>,
    now: Timestamp,
    minutes: i64,
    stream: Option<bool>,
    with_buckets: bool,
    zone: &TimeZone,
) -> Summary {
    let from = now.checked_sub(SignedDuration::from_mins(minutes)).unwrap_or(now);
    let mut peers: BTreeMap<Arc<str>, Sums> = BTreeMap::new();
    let mut buckets: BTreeMap<(i64, Arc<str>), Sums> = BTreeMap::new();
    let wanted = stream.map(|stream| Stream::from(Some(stream)));
    let mut left_out = None;
    let mut piece = known.lock().piece(from, None);
    while let Some((last, _)) = piece.last().cloned() {
        for (key, sums) in piece.into_iter().filter(|(key, _)| wanted.is_none_or(|wanted| wanted == key.stream)) {
            peers.entry(Arc::clone(&key.peer)).or_default().add(&sums);
            if with_buckets {
                buckets.entry((key.minute, key.peer)).or_default().add(&sums);
            }
            if buckets.len() > MOST_BUCKETS {
                left_out = buckets.pop_first().map(|((minute, _), _)| minute);
            }
        }
        piece = known.lock().piece(from, Some(&last));
    }
    if let Some(minute) = left_out {
        // Minutes are whole or not there.
        buckets = buckets.split_off(&(minute.saturating_add(1), Arc::from("")));
    }
    let truncated = left_out.is_some() || known.lock().lacks_some_since(from);
    let bucket = |((minute, peer), sums): ((i64, Arc<str>), Sums)| Bucket {
        minute: stamp(Timestamp::from_second(minute.saturating_mul(60)).unwrap_or(now), zone),
        sums: PeerSums::new(&peer, &sums),
    };
    Summary {
        from: stamp(from, zone),
        to: stamp(now, zone),
        minutes,
        peers: peers.into_iter().map(|(peer, sums)| PeerSums::new(&peer, &sums)).collect(),
        buckets: with_buckets.then(|| buckets.into_iter().map(bucket).collect()),
        truncated,
    }
}
