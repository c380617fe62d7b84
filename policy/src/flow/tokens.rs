//! Throughput samples: which answers are one, and of what value (limits.md §4, rulings §3).

use std::time::Duration;

/// Which time the tokens are divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TpsBasis {
    /// The whole answer, prefill included.
    Total,
    /// From the first byte of the body to its end.
    Decode,
}

/// How an answer went. No time includes the wait in the router's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerTimes {
    /// The engine's own count of completion tokens, if it sent one.
    pub tokens: Option<u32>,
    /// From the request's first byte to the answer's last.
    pub total: Duration,
    /// From the request's first byte to the body's first. Zero for an answer that came whole: it has no decode phase of its
    /// own, and all of its time counts.
    pub ttft: Duration,
}

/// What an answer says about throughput.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sample {
    /// Tokens per second.
    Tps(f64),
    /// Nothing, as the engine told no token count. These are counted.
    NoUsage,
    /// Nothing, as it was too short to judge by, or too fast to be true. These are not.
    TooSmall,
}

/// No engine writes this many tokens per second into one answer: a count that says so is wrong, and would drown all others.
const FASTEST: f64 = 100_000.0;

/// The sample that an answer makes. `min_decode` is compared with the time that the tokens are divided by.
pub fn sample(answer: &AnswerTimes, min_tokens: u32, min_decode: Duration, basis: TpsBasis) -> Sample {
    let Some(tokens) = answer.tokens else {
        return Sample::NoUsage;
    };
    let elapsed = match basis {
        TpsBasis::Total => answer.total,
        TpsBasis::Decode => answer.total.saturating_sub(answer.ttft),
    };
    if tokens < min_tokens || elapsed < min_decode || elapsed.is_zero() {
        return Sample::TooSmall;
    }
    let tps = f64::from(tokens) / elapsed.as_secs_f64();
    if tps > FASTEST { Sample::TooSmall } else { Sample::Tps(tps) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(tokens: Option<u32>, total_ms: u64, ttft_ms: u64, min_ms: u64, basis: TpsBasis) -> Sample {
        let answer =
            AnswerTimes { tokens, total: Duration::from_millis(total_ms), ttft: Duration::from_millis(ttft_ms) };
        sample(&answer, 16, Duration::from_millis(min_ms), basis)
    }

    #[test]
    fn rulings_3_the_basis_chooses_the_time() {
        assert_eq!(of(Some(500), 20_000, 10_000, 500, TpsBasis::Total), Sample::Tps(25.0));
        assert_eq!(of(Some(500), 20_000, 10_000, 500, TpsBasis::Decode), Sample::Tps(50.0));
        assert_eq!(of(Some(500), 20_000, 0, 500, TpsBasis::Decode), Sample::Tps(25.0), "an answer that came whole");
        assert_eq!(of(Some(500), 20_000, 19_600, 500, TpsBasis::Decode), Sample::TooSmall);
        assert_eq!(of(Some(500), 20_000, 19_600, 500, TpsBasis::Total), Sample::Tps(25.0));
    }

    #[test]
    fn limits_4_no_count_is_not_the_same_as_a_small_one() {
        assert_eq!(of(None, 20_000, 0, 500, TpsBasis::Total), Sample::NoUsage);
        assert_eq!(of(None, 1, 0, 500, TpsBasis::Total), Sample::NoUsage);
        assert_eq!(of(Some(0), 20_000, 0, 500, TpsBasis::Total), Sample::TooSmall);
        assert_eq!(of(Some(u32::MAX), 20_000, 0, 500, TpsBasis::Total), Sample::TooSmall, "too fast to be true");
    }

    #[test]
    fn no_time_is_never_divided_by() {
        for basis in [TpsBasis::Total, TpsBasis::Decode] {
            assert_eq!(of(Some(100), 0, 0, 0, basis), Sample::TooSmall);
        }
        assert_eq!(of(Some(100), 10, 20, 0, TpsBasis::Decode), Sample::TooSmall, "a first byte after the last");
    }
}
