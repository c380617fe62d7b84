//! Which data-parallel rank of its backend a session gets (gateway.md §8).

/// The rank that the fewest sessions use, the lowest of several. `used` counts the sessions of a rank; `size` is at least 1.
pub fn least_used(size: u32, used: impl Fn(u32) -> u64) -> u32 {
    (0..size).min_by_key(|rank| (used(*rank), *rank)).unwrap_or(0)
}

/// Whether a session's rank still exists on its backend.
pub fn is_valid(rank: u32, size: u32) -> bool {
    rank < size
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateway_8_least_used_first_then_the_lowest() {
        let used = [2, 1, 1, 3];
        assert_eq!(least_used(4, |rank| used[rank as usize]), 1);
        assert_eq!(least_used(1, |_| 9), 0);
        assert!(is_valid(3, 4) && !is_valid(4, 4));
    }

    #[test]
    fn gateway_8_sessions_spread_evenly_over_ranks() {
        let mut used = [0_u64; 8];
        for _ in 0..80 {
            let rank = least_used(8, |rank| used[rank as usize]);
            used[rank as usize] += 1;
        }
        assert_eq!(used, [10; 8]);
    }
}
