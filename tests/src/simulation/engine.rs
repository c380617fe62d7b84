//! A backend: continuous batching as a flow. The engine works in steps; each gives every decoding request one token and
//! prefills one chunk of the request at the head. A step takes longer the more requests decode, and longer while there is
//! something to prefill. A request is let in when KV memory for its whole conversation is free, in order of arrival.

use std::collections::{BTreeMap, VecDeque};

use super::prefix_cache::PrefixCache;
use super::{Session, Us};

/// Progress is counted in millionths of a step.
const STEP: u64 = 1_000_000;

/// What an engine can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineSpec {
    /// A step's time with nobody decoding, in microseconds.
    pub step_us: Us,
    /// What each decoding request adds.
    pub per_request_us: Us,
    /// What a chunk of prefill adds.
    pub per_chunk_us: Us,
    /// Tokens of a chunk.
    pub chunk_tokens: u64,
    /// KV memory in tokens.
    pub kv_tokens: u64,
    /// Most requests that run at once.
    pub max_running: usize,
}

/// All backends are alike.
pub const ENGINE: EngineSpec = EngineSpec {
    step_us: 20_000,
    per_request_us: 1_200,
    per_chunk_us: 64_000,
    chunk_tokens: 512,
    kv_tokens: 300_000,
    max_running: 128,
};

/// A request.
#[derive(Debug, Clone, Copy)]
pub struct Job {
    /// Whose it is; a session has one at a time.
    pub session: Session,
    /// Its prompt.
    pub prompt_tokens: u64,
    /// Its answer.
    pub answer_tokens: u64,
}

/// What has happened to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Its first token is out.
    FirstToken {
        /// Whose.
        session: Session,
        /// Prompt tokens that needed no prefill.
        cached_tokens: u64,
    },
    /// Its last token is out.
    Done {
        /// Whose.
        session: Session,
    },
}

#[derive(Debug)]
struct Prefill {
    job: Job,
    cached_tokens: u64,
    /// Millionths of a token.
    left: u64,
}

/// One backend.
#[derive(Debug)]
pub struct Engine {
    spec: EngineSpec,
    now: Us,
    /// Steps made, in millionths.
    steps: u64,
    cache: PrefixCache,
    waiting: VecDeque<Job>,
    prefilling: VecDeque<Prefill>,
    /// By the step that ends them.
    decoding: BTreeMap<(u64, Session), Job>,
}

impl Engine {
    /// An idle one with an empty cache.
    pub fn new(spec: EngineSpec) -> Self {
        Self {
            spec,
            now: 0,
            steps: 0,
            cache: PrefixCache::new(spec.kv_tokens),
            waiting: VecDeque::new(),
            prefilling: VecDeque::new(),
            decoding: BTreeMap::new(),
        }
    }

    /// Requests that it has, running or waiting.
    pub fn len(&self) -> usize {
        self.waiting.len() + self.prefilling.len() + self.decoding.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes a request.
    pub fn submit(&mut self, now: Us, job: Job) {
        self.advance(now);
        self.waiting.push_back(job);
        self.let_in();
    }

    /// When something happens next, if nothing is submitted before.
    pub fn next(&self) -> Option<Us> {
        let step = self.step_time();
        let first = self.prefilling.front().map(|head| (head.left * step).div_ceil(self.spec.chunk_tokens * STEP));
        let last = self.decoding.first_key_value();
        let last = last.map(|((end, _), _)| (end.saturating_sub(self.steps) * step).div_ceil(STEP));
        [first, last].into_iter().flatten().min().map(|after| self.now + after)
    }

    /// What has happened up to now.
    pub fn settle(&mut self, now: Us) -> Vec<Progress> {
        self.advance(now);
        let mut happened = Vec::new();
        while let Some(head) = self.prefilling.pop_front_if(|head| head.left == 0) {
            let Prefill { job, cached_tokens, .. } = head;
            happened.push(Progress::FirstToken { session: job.session, cached_tokens });
            let end = self.steps + job.answer_tokens.saturating_sub(1) * STEP;
            self.decoding.insert((end, job.session), job);
        }
        while let Some(last) = self.decoding.first_entry()
            && last.key().0 <= self.steps
        {
            let session = last.remove().session;
            self.cache.unpin(session);
            happened.push(Progress::Done { session });
        }
        self.let_in();
        happened
    }

    fn step_time(&self) -> Us {
        let decoding = u64::try_from(self.decoding.len()).unwrap_or(u64::MAX);
        let chunk = if self.prefilling.is_empty() { 0 } else { self.spec.per_chunk_us };
        self.spec.step_us + self.spec.per_request_us * decoding + chunk
    }

    fn advance(&mut self, now: Us) {
        let passed = now.saturating_sub(self.now);
        self.now = now;
        if self.prefilling.is_empty() && self.decoding.is_empty() {
            return;
        }
        let step = self.step_time();
        self.steps += passed * STEP / step;
        if let Some(head) = self.prefilling.front_mut() {
            head.left = head.left.saturating_sub(passed * self.spec.chunk_tokens * STEP / step);
        }
    }

    /// Lets requests in, first come, first served.
    fn let_in(&mut self) {
        while let Some(job) = self.waiting.front().copied()
            && self.prefilling.len() + self.decoding.len() < self.spec.max_running
            && let Some(known) = self.cache.pin(job.session, job.prompt_tokens + job.answer_tokens)
        {
            self.waiting.pop_front();
            // The last token of a prompt is always computed: the first one of the answer comes of it.
            let cached_tokens = known.min(job.prompt_tokens.saturating_sub(1));
            let left = (job.prompt_tokens - cached_tokens) * STEP;
            self.prefilling.push_back(Prefill { job, cached_tokens, left });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(engine: &mut Engine) -> Vec<(Us, Progress)> {
        let mut all = Vec::new();
        while let Some(now) = engine.next() {
            all.extend(engine.settle(now).into_iter().map(|progress| (now, progress)));
        }
        all
    }

    fn job(session: Session, prompt_tokens: u64, answer_tokens: u64) -> Job {
        Job { session, prompt_tokens, answer_tokens }
    }

    #[test]
    fn one_request_alone_and_its_next_turn() {
        let mut engine = Engine::new(ENGINE);
        engine.submit(0, job(1, 1024, 101));
        // Two chunks of 20 + 64 ms, then 100 steps of 20 + 1.2 ms.
        let first = (168_000, Progress::FirstToken { session: 1, cached_tokens: 0 });
        assert_eq!(run(&mut engine), [first, (168_000 + 2_120_000, Progress::Done { session: 1 })]);
        engine.submit(10_000_000, job(1, 1024 + 101 + 512, 1));
        let first = (10_084_000, Progress::FirstToken { session: 1, cached_tokens: 1125 });
        assert_eq!(run(&mut engine), [first, (10_084_000, Progress::Done { session: 1 })]);
    }

    #[test]
    fn many_are_slower_each_and_faster_together() {
        let seconds = |count: usize| {
            let mut engine = Engine::new(ENGINE);
            (0..count).for_each(|session| engine.submit(0, job(session, 1, 1000)));
            run(&mut engine).last().unwrap().0 / 1_000_000
        };
        assert_eq!((seconds(1), seconds(10), seconds(40)), (21, 31, 67));
    }

    #[test]
    fn who_finds_no_memory_waits() {
        let mut engine = Engine::new(EngineSpec { kv_tokens: 1500, ..ENGINE });
        engine.submit(0, job(1, 1000, 100));
        engine.submit(0, job(2, 1000, 100));
        let order: Vec<Progress> = run(&mut engine).into_iter().map(|(_, progress)| progress).collect();
        assert_eq!(order.len(), 4);
        assert_eq!(order.get(1), Some(&Progress::Done { session: 1 }));
    }
}
