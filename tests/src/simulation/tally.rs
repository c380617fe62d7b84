//! What one run amounts to. Everything is counted as clients see it.

use router_policy::refusal::Gate;
use serde::Serialize;

use super::router::Load;
use super::{SECOND, Us};

/// An answer is good when its first token came within this time of the accepted request, waiting in the queue included …
pub const GOOD_TTFT: Us = 3 * SECOND;

/// … and its tokens by its whole time make at least so many per second.
pub const GOOD_TPS: u64 = 15;

/// First turns of the buckets that refusals are counted in.
pub const BUCKETS: [u32; 6] = [1, 2, 4, 8, 16, 32];

/// Points of the curves.
pub const BINS: usize = 60;

/// One answer.
#[derive(Debug, Clone, Copy)]
pub struct Answered {
    /// When it ended.
    pub now: Us,
    /// Its turn, from 1.
    pub turn: u32,
    /// From the request to the first token.
    pub ttft: Us,
    /// From the request to the last.
    pub total: Us,
    /// Tokens of the answer.
    pub answer_tokens: u64,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Those that the engine had.
    pub cached_tokens: u64,
}

impl Answered {
    fn is_good(&self) -> bool {
        self.ttft <= GOOD_TTFT && self.answer_tokens * SECOND >= GOOD_TPS * self.total
    }
}

/// A part of the run.
#[derive(Debug, Clone, Default)]
pub struct Bin {
    /// Good answers that ended in it.
    pub good: u64,
    /// Times to first token of answers that ended in it.
    pub ttfts: Vec<Us>,
    /// In-flight requests, summed over its microseconds.
    pub held: u64,
    /// The pool's limit at its last event.
    pub limit: f64,
}

/// The counters of one run. Rates and means are of the time in which sessions come; the rest is of the whole run.
#[derive(Debug)]
pub struct Tally {
    /// The setting.
    pub name: &'static str,
    /// How long sessions come.
    pub length: Us,
    /// The curves, up to `length`.
    pub bins: Vec<Bin>,
    /// Requests sent, each attempt.
    pub asked: u64,
    /// Answers.
    pub answers: u64,
    /// Good answers.
    pub good: u64,
    /// Times to first token, of first turns and of later ones.
    pub ttfts: [Vec<Us>; 2],
    /// Refused attempts by the turn's bucket.
    pub refused: [u64; BUCKETS.len()],
    /// Refused attempts by gate.
    pub gates: Vec<(Gate, u64)>,
    /// Sessions whose last turn was answered, by the bucket of that turn.
    pub completed: [u64; BUCKETS.len()],
    /// Sessions given up, by the bucket of the turn that was refused.
    pub given_up: [u64; BUCKETS.len()],
    /// Answer tokens of sessions that were completed before `length`.
    pub useful_tokens: u64,
    /// Answer tokens of sessions that were given up.
    pub wasted_tokens: u64,
    /// Prompt tokens.
    pub prompt_tokens: u64,
    /// Those of them that were cached.
    pub cached_tokens: u64,
    /// Most requests in flight.
    pub most_in_flight: u32,
    /// Events after which a backend held more than its limit, or not what its engine has.
    pub faults: u64,
    /// From when to when there are more sessions than the fleet can serve.
    overload: (Us, Us),
    last: Us,
}

impl Tally {
    /// An empty one.
    pub fn new(name: &'static str, length: Us, overload: (Us, Us)) -> Self {
        Self {
            name,
            length,
            bins: vec![Bin::default(); BINS],
            asked: 0,
            answers: 0,
            good: 0,
            ttfts: [Vec::new(), Vec::new()],
            refused: [0; BUCKETS.len()],
            gates: Vec::new(),
            completed: [0; BUCKETS.len()],
            given_up: [0; BUCKETS.len()],
            useful_tokens: 0,
            wasted_tokens: 0,
            prompt_tokens: 0,
            cached_tokens: 0,
            most_in_flight: 0,
            faults: 0,
            overload,
            last: 0,
        }
    }

    /// The length of a bin.
    pub fn bin_length(&self) -> Us {
        (self.length / wide(BINS)).max(1) + 1
    }

    /// Time has passed up to `now` with this load.
    pub(super) fn passes(&mut self, now: Us, load: &Load) {
        self.most_in_flight = self.most_in_flight.max(load.in_flight);
        let bin_length = self.bin_length();
        let end = now.min(self.length);
        while self.last < end {
            let index = self.last / bin_length;
            let until = ((index + 1) * bin_length).min(end);
            if let Some(bin) = self.bin(self.last) {
                bin.limit = load.limit;
            }
            let passed = until - self.last;
            if let Some(bin) = self.bin(self.last) {
                bin.held += u64::from(load.in_flight) * passed;
            }
            self.last = until;
        }
    }

    pub(super) fn asked(&mut self) {
        self.asked += 1;
    }

    pub(super) fn answered(&mut self, answer: &Answered) {
        self.answers += 1;
        self.prompt_tokens += answer.prompt_tokens;
        self.cached_tokens += answer.cached_tokens;
        let [first, later] = &mut self.ttfts;
        if answer.turn == 1 { first } else { later }.push(answer.ttft);
        let is_good = answer.is_good();
        self.good += u64::from(is_good);
        if let Some(bin) = self.bin(answer.now) {
            bin.good += u64::from(is_good);
            bin.ttfts.push(answer.ttft);
        }
    }

    pub(super) fn refused(&mut self, gate: Gate, turn: u32) {
        count(&mut self.refused, turn);
        match self.gates.iter_mut().find(|(known, _)| *known == gate) {
            Some((_, times)) => *times += 1,
            None => self.gates.push((gate, 1)),
        }
        self.gates.sort_unstable();
    }

    pub(super) fn gave_up(&mut self, turn: u32, answered_tokens: u64) {
        count(&mut self.given_up, turn);
        self.wasted_tokens += answered_tokens;
    }

    pub(super) fn completed(&mut self, now: Us, turn: u32, answered_tokens: u64) {
        count(&mut self.completed, turn);
        if now < self.length {
            self.useful_tokens += answered_tokens;
        }
    }

    pub(super) fn checked(&mut self, is_sound: bool) {
        self.faults += u64::from(!is_sound);
    }

    fn bin(&mut self, at: Us) -> Option<&mut Bin> {
        let index = usize::try_from(at / self.bin_length()).ok()?;
        self.bins.get_mut(index)
    }
}

/// A run's figures, as they are shown.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// The setting.
    pub setting: &'static str,
    /// Good answers per second.
    pub good_per_s: f64,
    /// Answers that were good, in percent of all.
    pub good_percent: f64,
    /// Answer tokens per second of completed sessions.
    pub useful_tokens_per_s: f64,
    /// Answer tokens of sessions that were given up, in percent of all that ended.
    pub wasted_percent: f64,
    /// Sessions whose last turn was answered, by the bucket of that turn.
    pub completed: [u64; BUCKETS.len()],
    /// Sessions given up, by the bucket of the turn that was refused.
    pub given_up: [u64; BUCKETS.len()],
    /// Requests sent, each attempt.
    pub asked: u64,
    /// Refused attempts by bucket.
    pub refused: [u64; BUCKETS.len()],
    /// Refused attempts by gate.
    pub gates: Vec<(&'static str, u64)>,
    /// Cached prompt tokens in percent.
    pub hit_percent: f64,
    /// Median time to first token.
    pub ttft_p50_s: f64,
    /// 99 of 100 come within this.
    pub ttft_p99_s: f64,
    /// The same, of turns after the first.
    pub later_ttft_p99_s: f64,
    /// Mean in-flight requests.
    pub mean_in_flight: f64,
    /// Most in-flight requests.
    pub most_in_flight: u32,
    /// The pool's limit, mean over the time of overload.
    pub overload_limit: f64,
    /// What must be 0.
    pub faults: u64,
}

impl Tally {
    /// The figures.
    pub fn figures(&self) -> Figures {
        let seconds = float(self.length) / float(SECOND);
        let good = self.bins.iter().map(|bin| bin.good).sum();
        let [_, later] = &self.ttfts;
        let held: u64 = self.bins.iter().map(|bin| bin.held).sum();
        Figures {
            setting: self.name,
            good_per_s: float(good) / seconds,
            good_percent: percent(self.good, self.answers),
            useful_tokens_per_s: float(self.useful_tokens) / seconds,
            wasted_percent: percent(self.wasted_tokens, self.wasted_tokens + self.useful_tokens),
            completed: self.completed,
            given_up: self.given_up,
            asked: self.asked,
            refused: self.refused,
            gates: self.gates.iter().map(|(gate, times)| (gate.code(), *times)).collect(),
            hit_percent: percent(self.cached_tokens, self.prompt_tokens),
            ttft_p50_s: quantile(&self.ttfts.concat(), 50),
            ttft_p99_s: quantile(&self.ttfts.concat(), 99),
            later_ttft_p99_s: quantile(later, 99),
            mean_in_flight: float(held) / float(self.length),
            most_in_flight: self.most_in_flight,
            overload_limit: self.overload_limit(),
            faults: self.faults,
        }
    }
}

impl Tally {
    fn overload_limit(&self) -> f64 {
        let (from, to) = self.overload;
        let limits = self.bins.iter().zip(0_u64..).filter(|(_, at)| (from..to).contains(&(at * self.bin_length())));
        let (sum, count) = limits.fold((0.0, 0), |(sum, count), (bin, _)| (sum + bin.limit, count + 1));
        sum / float(count.max(1))
    }
}

/// The smallest value that `percent` of all don't exceed, in seconds; 0 of none.
pub fn quantile(values: &[Us], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let place = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    float(sorted.get(place).copied().unwrap_or(0)) / float(SECOND)
}

/// As a float; what is counted here is far below 2^53.
#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
pub fn float(number: u64) -> f64 {
    number as f64
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * float(part) / float(whole) }
}

fn count(buckets: &mut [u64; BUCKETS.len()], turn: u32) {
    let index = BUCKETS.iter().rposition(|first| *first <= turn).unwrap_or(0);
    if let Some(bucket) = buckets.get_mut(index) {
        *bucket += 1;
    }
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
