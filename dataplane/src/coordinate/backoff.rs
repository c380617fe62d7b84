//! How long to wait before the next try: 50 ms, doubling to 1 s, each less up to half at random, so that the replicas of
//! a fleet do not return in step.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    random: RandomState,
    tries: u32,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { next: FIRST, random: RandomState::new(), tries: 0 }
    }

    /// After a success.
    pub(crate) fn reset(&mut self) {
        self.next = FIRST;
        self.tries = 0;
    }

    /// Tries since the last success.
    pub(crate) fn tries(&self) -> u32 {
        self.tries
    }

    /// The wait before the next try.
    pub(crate) fn next(&mut self) -> Duration {
        let full = self.next;
        self.next = (full * 2).min(LONGEST);
        self.tries = self.tries.saturating_add(1);
        // Keyed at random per process, so this is a random number.
        let thousandths = u32::try_from(self.random.hash_one(self.tries) % 500).unwrap_or(0);
        full * (1000 - thousandths) / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_to_a_second_and_starts_again_after_a_success() {
        let mut backoff = Backoff::new();
        for full in [50, 100, 200, 400, 800, 1000, 1000] {
            let wait = backoff.next();
            let full = Duration::from_millis(full);
            assert!(wait <= full && wait >= full / 2, "{wait:?} of {full:?}");
        }
        backoff.reset();
        assert!(backoff.next() <= FIRST);
    }
}
