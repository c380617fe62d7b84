//! A backend's KV memory: one conversation per session, running ones pinned, the others kept until room is wanted and then
//! dropped whole, the longest unused first.

use std::collections::BTreeMap;

use super::Session;

/// The memory, in tokens.
#[derive(Debug)]
pub struct PrefixCache {
    capacity: u64,
    used: u64,
    pinned: u64,
    entries: BTreeMap<Session, Entry>,
    /// Those that are not pinned, by their last use.
    idle: BTreeMap<u64, Session>,
    next_use: u64,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    tokens: u64,
    /// `None` while it is pinned.
    last_use: Option<u64>,
}

impl PrefixCache {
    /// An empty one.
    pub fn new(capacity: u64) -> Self {
        Self { capacity, used: 0, pinned: 0, entries: BTreeMap::new(), idle: BTreeMap::new(), next_use: 0 }
    }

    /// Pins `tokens` for a session's request and makes room for them. How many of its tokens were there already; `None`, and
    /// nothing changes, while what is pinned leaves too little room.
    pub fn pin(&mut self, session: Session, tokens: u64) -> Option<u64> {
        if self.pinned + tokens > self.capacity {
            return None;
        }
        let known = self.entries.remove(&session);
        if let Some(last_use) = known.and_then(|entry| entry.last_use) {
            self.idle.remove(&last_use);
        }
        let cached = known.map_or(0, |entry| entry.tokens);
        self.used -= cached;
        while self.used + tokens > self.capacity {
            let Some((_, oldest)) = self.idle.pop_first() else { break };
            if let Some(entry) = self.entries.remove(&oldest) {
                self.used -= entry.tokens;
            }
        }
        self.used += tokens;
        self.pinned += tokens;
        self.entries.insert(session, Entry { tokens, last_use: None });
        Some(cached.min(tokens))
    }

    /// Ends a pin; the conversation stays until its room is wanted.
    pub fn unpin(&mut self, session: Session) {
        let Some(entry) = self.entries.get_mut(&session) else { return };
        if entry.last_use.is_none() {
            self.pinned -= entry.tokens;
            entry.last_use = Some(self.next_use);
            self.idle.insert(self.next_use, session);
            self.next_use += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_unused_goes_first_and_what_runs_stays() {
        let mut cache = PrefixCache::new(100);
        assert_eq!(cache.pin(1, 40), Some(0));
        assert_eq!(cache.pin(2, 40), Some(0));
        assert_eq!(cache.pin(3, 40), None, "both are running");
        cache.unpin(2);
        cache.unpin(1);
        assert_eq!(cache.pin(3, 40), Some(0), "2 had to go");
        assert_eq!(cache.pin(1, 50), Some(40), "1 is still there and grows");
        cache.unpin(3);
        assert_eq!(cache.pin(2, 50), Some(0), "3 had to go");
        assert_eq!(cache.pin(4, 1), None);
    }
}
