//! What the mock engine knows while it runs: settings that tests change live, counters, and the prefix cache.
//!
//! `max_in_flight` is the proof of exact limits in tests, so a request counts from its head's arrival until its last byte
//! is handed to the connection or the connection is gone, and never a moment less: [`InFlight`] is the only way to count.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::openai;
use super::prefix_cache::PrefixCache;
use super::record::Records;

/// How the engine fails on purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FailMode {
    /// It works.
    #[default]
    None,
    /// Close the connection without an answer, also for `/health` and `/v1/models`.
    Refuse,
    /// Answer 500.
    #[value(name = "500")]
    #[serde(rename = "500")]
    Status500,
    /// Answer 503.
    #[value(name = "503")]
    #[serde(rename = "503")]
    Status503,
    /// Take the request and never send a response head.
    Hang,
    /// Cut the connection after half of the answer.
    DieMidStream,
}

/// How `/health` answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Health {
    /// 200.
    #[default]
    Ok,
    /// 503.
    Fail,
    /// Never.
    Hang,
}

/// Behaviour that `/_mock/set` changes while the engine runs.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Settings {
    /// Milliseconds until the first token of an uncached prompt.
    pub(crate) ttft_ms: u64,
    /// Milliseconds between two tokens.
    pub(crate) token_gap_ms: u64,
    /// Output tokens of an answer.
    pub(crate) tokens: u32,
    /// Longest prompt in tokens; `/v1/models` states it.
    pub(crate) max_model_len: u32,
    /// Share of the first-token time that a wholly cached prompt saves, 0 to 1.
    pub(crate) cached_speedup: f64,
    /// Streams end with their usage whether it was asked for or not.
    pub(crate) always_usage: bool,
    pub(crate) fail: FailMode,
    pub(crate) health: Health,
    /// How many requests are kept as they came in.
    pub(crate) record: usize,
    /// The fixed answer of load tests; empty: answer properly.
    #[serde(rename = "answer_bytes", serialize_with = "length")]
    pub(crate) canned: Bytes,
}

/// Shows the fixed answer as its length.
fn length<S: serde::Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(bytes.len() as u64)
}

impl Settings {
    /// Time to the first token for a prompt of `prompt_tokens`, `cached_tokens` of them cached.
    pub(crate) fn ttft(&self, cached_tokens: usize, prompt_tokens: usize) -> Duration {
        let full = Duration::from_millis(self.ttft_ms);
        if self.cached_speedup == 0.0 || cached_tokens == 0 {
            return full;
        }
        let cached = f64::from(u32::try_from(cached_tokens).unwrap_or(u32::MAX));
        let prompt = f64::from(u32::try_from(prompt_tokens.max(1)).unwrap_or(u32::MAX));
        full.mul_f64((1.0 - self.cached_speedup * cached / prompt).clamp(0.0, 1.0))
    }

    /// Time between two tokens.
    pub(crate) fn token_gap(&self) -> Duration {
        Duration::from_millis(self.token_gap_ms)
    }
}

/// Counts since the start or the last reset.
#[derive(Debug, Default)]
struct Counters {
    in_flight: AtomicU64,
    max_in_flight: AtomicU64,
    requests: AtomicU64,
    completed: AtomicU64,
    aborted: AtomicU64,
    refused: AtomicU64,
    prompt_tokens: AtomicU64,
    cached_tokens: AtomicU64,
}

/// Answer of `/_mock/stats`.
#[derive(Debug, Serialize)]
pub(crate) struct Stats {
    pub(crate) in_flight: u64,
    pub(crate) max_in_flight: u64,
    pub(crate) requests_total: u64,
    /// Answers handed over whole, error answers included.
    pub(crate) completed_total: u64,
    /// Requests that ended before their answer did: the client left, or the engine died on purpose.
    pub(crate) aborted_total: u64,
    /// Requests refused by the failure mode of that name; they are in no other count.
    pub(crate) refused_total: u64,
    pub(crate) prompt_tokens_total: u64,
    pub(crate) cached_tokens_total: u64,
    pub(crate) held: bool,
}

/// One mock engine.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) model: String,
    pub(crate) address: SocketAddr,
    settings: Mutex<Settings>,
    cache: Mutex<PrefixCache>,
    records: Mutex<Records>,
    counters: Counters,
    held: watch::Sender<bool>,
    next_answer: AtomicU64,
}

impl Engine {
    pub(crate) fn new(model: String, cache_blocks: usize, address: SocketAddr, settings: Settings) -> Self {
        Self {
            model,
            address,
            settings: Mutex::new(settings),
            cache: Mutex::new(PrefixCache::new(cache_blocks)),
            records: Mutex::default(),
            counters: Counters::default(),
            held: watch::Sender::new(false),
            next_answer: AtomicU64::new(1),
        }
    }

    /// The settings as they are now.
    pub(crate) fn settings(&self) -> Settings {
        lock(&self.settings).clone()
    }

    /// Changes the settings in one step.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Settings)) {
        change(&mut lock(&self.settings));
    }

    /// Sets the fixed answer's size; 0 turns it off. Fails if no proper JSON answer is that short.
    pub(crate) fn set_answer_bytes(&self, bytes: usize) -> Result<(), String> {
        let canned = if bytes == 0 { Bytes::new() } else { openai::canned(&self.model, bytes)? };
        self.change(|settings| settings.canned = canned);
        Ok(())
    }

    /// Counts a request as in flight until the returned guard is finished or dropped.
    pub(crate) fn enter(self: &Arc<Self>) -> InFlight {
        self.counters.requests.fetch_add(1, Ordering::Relaxed);
        let now = self.counters.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        self.counters.max_in_flight.fetch_max(now, Ordering::SeqCst);
        InFlight { engine: Arc::clone(self), is_finished: false }
    }

    /// Counts a connection closed without an answer.
    pub(crate) fn count_refused(&self) {
        self.counters.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Looks `prompt` up in the prefix cache, stores it with its `answer`, and returns the cached tokens.
    pub(crate) fn use_prefix(&self, prompt: &str, answer: &str, prompt_tokens: usize) -> usize {
        let cached = lock(&self.cache).use_prefix(prompt, answer);
        self.counters.prompt_tokens.fetch_add(prompt_tokens as u64, Ordering::Relaxed);
        self.counters.cached_tokens.fetch_add(cached as u64, Ordering::Relaxed);
        cached
    }

    /// Keeps a request as it came in, if told to.
    pub(crate) fn record(&self, head: &http::request::Parts, body: &Bytes) {
        let most = lock(&self.settings).record;
        if most > 0 {
            lock(&self.records).add(head, body, most);
        }
    }

    /// What was kept.
    pub(crate) fn recorded(&self) -> serde_json::Value {
        lock(&self.records).to_json()
    }

    /// Empties the prefix cache.
    pub(crate) fn flush_cache(&self) {
        lock(&self.cache).clear();
    }

    /// Makes counted requests wait, or lets them go.
    pub(crate) fn set_held(&self, is_held: bool) {
        self.held.send_replace(is_held);
    }

    /// Returns at once unless requests are held.
    pub(crate) async fn wait_until_released(&self) {
        if *self.held.borrow() {
            // An error means that the sender is gone, but `self` owns it.
            drop(self.held.subscribe().wait_for(|is_held| !is_held).await);
        }
    }

    /// A number for the next answer's id.
    pub(crate) fn next_answer(&self) -> u64 {
        self.next_answer.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn stats(&self) -> Stats {
        let counters = &self.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        Stats {
            in_flight: read(&counters.in_flight),
            max_in_flight: read(&counters.max_in_flight),
            requests_total: read(&counters.requests),
            completed_total: read(&counters.completed),
            aborted_total: read(&counters.aborted),
            refused_total: read(&counters.refused),
            prompt_tokens_total: read(&counters.prompt_tokens),
            cached_tokens_total: read(&counters.cached_tokens),
            held: *self.held.borrow(),
        }
    }

    /// Starts the counts again; what is in flight stays counted. Kept requests are forgotten.
    pub(crate) fn reset(&self) {
        lock(&self.records).clear();
        let counters = &self.counters;
        for counter in [
            &counters.requests,
            &counters.completed,
            &counters.aborted,
            &counters.refused,
            &counters.prompt_tokens,
            &counters.cached_tokens,
        ] {
            counter.store(0, Ordering::SeqCst);
        }
        counters.max_in_flight.store(counters.in_flight.load(Ordering::SeqCst), Ordering::SeqCst);
    }
}

/// Seconds since 1970, as in the `created` fields.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Locks for a short section; a panic elsewhere leaves these plain values usable.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One request in flight. Dropped unfinished, it counts as aborted.
#[derive(Debug)]
pub(crate) struct InFlight {
    engine: Arc<Engine>,
    is_finished: bool,
}

impl InFlight {
    /// The answer is complete.
    pub(crate) fn finish(mut self) {
        self.is_finished = true;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let counters = &self.engine.counters;
        let ending = if self.is_finished { &counters.completed } else { &counters.aborted };
        ending.fetch_add(1, Ordering::Relaxed);
        counters.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}
