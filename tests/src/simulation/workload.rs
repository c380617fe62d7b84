//! Who comes: sessions of many turns, all drawn before the run, so that every setting meets the same ones.

use super::random::Random;
use super::{SECOND, Us};

/// How many turns sessions have: a weight in percent, and the count. Half of them are short; the tail makes most of the work.
const TURNS: [(u64, usize); 9] = [(28, 1), (14, 2), (12, 3), (14, 5), (12, 8), (9, 13), (6, 21), (4, 40), (1, 80)];

/// The load over time: a part of the run in percent, and new sessions in percent of what the fleet can serve.
const PHASES: [(u64, u64); 3] = [(30, 70), (35, 150), (35, 60)];

/// New sessions per 1000 s that 20 backends serve without missing the objectives, found by runs of constant load.
const CAPACITY_PER_1000_S: u64 = 2800;

/// One turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnPlan {
    /// Tokens that its prompt adds to the conversation.
    pub new_tokens: u64,
    /// Tokens of its answer.
    pub answer_tokens: u64,
    /// From the answer to the next turn.
    pub think: Us,
}

/// One session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionPlan {
    /// When its first turn is sent.
    pub arrives: Us,
    /// Its turns, at least one.
    pub turns: Vec<TurnPlan>,
}

/// A run's sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// In order of arrival.
    pub sessions: Vec<SessionPlan>,
    /// When new sessions end to come.
    pub length: Us,
    /// What clients draw while the run goes on comes from this.
    pub seed: u64,
}

impl Workload {
    /// About `sessions` sessions in the three phases, with `load_percent` of the usual rate.
    pub fn new(seed: u64, sessions: usize, load_percent: u64) -> Self {
        let mut random = Random::of(seed, [1, 0, 0]);
        let mean_percent: u64 = PHASES.iter().map(|(part, percent)| part * percent).sum::<u64>() / 100;
        // Independent of the load: half the load is half the sessions in the same time.
        let wanted = u64::try_from(sessions).unwrap_or(u64::MAX);
        let length = wanted * 1000 * SECOND / CAPACITY_PER_1000_S * 100 / mean_percent;
        let mut arrives = 0;
        let mut plans = Vec::new();
        loop {
            let per_million_s = CAPACITY_PER_1000_S * phase_at(arrives, length) * load_percent.max(1) / 10;
            // A million seconds are 10^12 µs.
            arrives += random.exponential(1_000_000 * SECOND / per_million_s);
            if arrives >= length {
                return Self { sessions: plans, length, seed };
            }
            plans.push(SessionPlan { arrives, turns: turns(&mut random) });
        }
    }

    /// How long a client waits beyond `Retry-After`: its own, whatever else happens in the run.
    pub fn jitter(&self, session: u64, turn: u64, attempt: u64) -> Us {
        Random::of(self.seed, [session + 2, turn, attempt]).below(SECOND)
    }

    /// The phases' ends with their load in percent.
    pub fn phases(&self) -> Vec<(Us, u64)> {
        let mut end = 0;
        let until = |(part, percent): &(u64, u64)| {
            end += part;
            (self.length * end / 100, *percent)
        };
        PHASES.iter().map(until).collect()
    }
}

impl Workload {
    /// The time in which more sessions come than the fleet can serve.
    pub fn overload(&self) -> (Us, Us) {
        let mut from = 0;
        for (end, percent) in self.phases() {
            if percent > 100 {
                return (from, end);
            }
            from = end;
        }
        (0, 0)
    }
}

fn phase_at(now: Us, length: Us) -> u64 {
    let mut end = 0;
    for (part, percent) in PHASES {
        end += part;
        if now < length * end / 100 {
            return percent;
        }
    }
    PHASES.last().map_or(100, |(_, percent)| *percent)
}

fn turns(random: &mut Random) -> Vec<TurnPlan> {
    let count = random.pick(&TURNS).max(1);
    let turn = |at: usize| {
        // The first brings the system prompt, the tools and the task.
        let new_tokens = if at == 0 { 1500 + random.exponential(2000) } else { 60 + random.exponential(340) };
        let answer_tokens = (64 + random.exponential(190)).min(1500);
        TurnPlan { new_tokens, answer_tokens, think: SECOND + random.exponential(9 * SECOND) }
    };
    (0..count).map(turn).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_workload_and_half_the_load_is_half_the_sessions() {
        let full = Workload::new(1, 2000, 100);
        assert_eq!(full, Workload::new(1, 2000, 100));
        assert_ne!(full, Workload::new(2, 2000, 100));
        assert!((1900..2100).contains(&full.sessions.len()), "{}", full.sessions.len());
        let half = Workload::new(1, 2000, 50);
        assert_eq!(half.length, full.length);
        assert!((900..1100).contains(&half.sessions.len()), "{}", half.sessions.len());
        let turns: u64 = full.sessions.iter().flat_map(|session| &session.turns).map(|turn| turn.answer_tokens).sum();
        assert_eq!((full.sessions.len(), turns), (1988, 3_735_197), "the same on every machine");
        assert!(full.sessions.is_sorted_by_key(|session| session.arrives));
    }
}
