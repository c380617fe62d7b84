//! What replicas have counted of one route, added up over the fleet and over time (payloads.md §9).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::PayloadCount;
use crate::toggle::Switch;

/// The sums. Nothing overflows: a sum that is full stays full.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct PayloadTotals {
    counts: BTreeMap<PayloadCount, u64>,
    /// Of each rule that the route has, and of no other.
    rule_hits: BTreeMap<String, u64>,
    body_log_last_unix_ms: u64,
}

/// As the database keeps it.
#[derive(Serialize, Deserialize)]
struct Stored {
    #[serde(default)]
    counts: BTreeMap<String, u64>,
    #[serde(default)]
    rule_hits: BTreeMap<String, u64>,
    #[serde(default)]
    body_log_last_unix_ms: u64,
}

impl From<Stored> for PayloadTotals {
    /// Counts that another version has and this one doesn't are left out.
    fn from(stored: Stored) -> Self {
        let counts = stored.counts.into_iter().filter_map(|(name, sum)| Some((PayloadCount::named(&name)?, sum)));
        Self {
            counts: counts.collect(),
            rule_hits: stored.rule_hits,
            body_log_last_unix_ms: stored.body_log_last_unix_ms,
        }
    }
}

impl From<PayloadTotals> for Stored {
    fn from(totals: PayloadTotals) -> Self {
        Self {
            counts: totals.counts.into_iter().map(|(count, sum)| (count.name().to_owned(), sum)).collect(),
            rule_hits: totals.rule_hits.into_iter().filter(|(_, hits)| *hits > 0).collect(),
            body_log_last_unix_ms: totals.body_log_last_unix_ms,
        }
    }
}

impl PayloadTotals {
    /// One sum.
    pub fn get(&self, count: PayloadCount) -> u64 {
        self.counts.get(&count).copied().unwrap_or(0)
    }

    /// Requests that a rule refused; `None`: the route has no such rule.
    pub fn rule_hits(&self, rule: &str) -> Option<u64> {
        self.rule_hits.get(rule).copied()
    }

    /// The rules that have refused something, with how much, by name.
    pub fn hit_rules(&self) -> impl Iterator<Item = (&str, u64)> {
        self.rule_hits.iter().filter(|(_, hits)| **hits > 0).map(|(rule, hits)| (rule.as_str(), *hits))
    }

    /// When a body log's sender last took a frame, in Unix milliseconds.
    pub fn body_log_last_unix_ms(&self) -> Option<u64> {
        (self.body_log_last_unix_ms > 0).then_some(self.body_log_last_unix_ms)
    }

    /// Adds what a replica tells. Only known counts and rules are asked for, so whatever else it tells takes no room. True when
    /// something has changed.
    pub fn add(
        &mut self,
        counted: impl Fn(PayloadCount) -> u64,
        hits: impl Fn(&str) -> u64,
        body_log_last_unix_ms: u64,
    ) -> bool {
        let mut has_changed = false;
        for count in PayloadCount::ALL {
            let more = counted(count);
            if more > 0 {
                let sum = self.counts.entry(count).or_default();
                *sum = sum.saturating_add(more);
                has_changed = true;
            }
        }
        for (rule, sum) in &mut self.rule_hits {
            let more = hits(rule);
            *sum = sum.saturating_add(more);
            has_changed |= more > 0;
        }
        if body_log_last_unix_ms > self.body_log_last_unix_ms {
            self.body_log_last_unix_ms = body_log_last_unix_ms;
            has_changed = true;
        }
        has_changed
    }

    /// Makes the rules those of the route's document: one that stays keeps its hits, one that has gone loses them. True when
    /// something has changed that is worth storing.
    pub fn set_rules(&mut self, names: impl IntoIterator<Item = String>) -> bool {
        let mut before = std::mem::take(&mut self.rule_hits);
        for name in names {
            let hits = before.remove(&name).or_else(|| self.rule_hits.get(&name).copied()).unwrap_or(0);
            self.rule_hits.insert(name, hits);
        }
        before.values().any(|hits| *hits > 0)
    }

    /// Takes up what was stored, for the rules that there are now.
    pub fn restore(&mut self, stored: Self) {
        let rules = std::mem::take(&mut self.rule_hits);
        *self = stored;
        self.set_rules(rules.into_keys());
    }

    /// Clears a feature's counters (`reset=1` of its switch). Of reject rules those by rule; their sum belongs to `_429_status`.
    pub fn reset(&mut self, feature: Switch) {
        self.counts.retain(|count, _| count.feature() != Some(feature));
        if feature == Switch::RejectRules {
            self.rule_hits.values_mut().for_each(|hits| *hits = 0);
        }
    }

    /// Clears the sum of refusals by rules (`reset=1` of `_429_status`).
    pub fn reset_refusals(&mut self) {
        self.counts.remove(&PayloadCount::RuleRejected);
    }

    /// The sums that are not 0, by name.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.counts.iter().filter(|(_, sum)| **sum > 0).map(|(count, sum)| (count.name(), *sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_rules(rules: &[&str]) -> PayloadTotals {
        let mut totals = PayloadTotals::default();
        totals.set_rules(rules.iter().map(|&rule| rule.to_owned()));
        totals
    }

    fn hit(totals: &mut PayloadTotals, rule: &str, more: u64) -> bool {
        let of_rule = |known: &str| if known == rule { more } else { 0 };
        totals.add(|count| if count == PayloadCount::RuleRejected { more } else { 0 }, of_rule, 0)
    }

    #[test]
    fn sums_are_full_at_the_end_and_stay_so() {
        let mut totals = with_rules(&["a"]);
        assert!(hit(&mut totals, "a", u64::MAX) && hit(&mut totals, "a", 5));
        assert_eq!((totals.get(PayloadCount::RuleRejected), totals.rule_hits("a")), (u64::MAX, Some(u64::MAX)));
        assert!(!hit(&mut totals, "a", 0));
    }

    #[test]
    fn rules_that_the_route_does_not_have_are_passed_over_and_those_that_go_lose_their_hits() {
        let mut totals = with_rules(&["a", "b", "b"]);
        for rule in ["a", "b", "unknown"] {
            hit(&mut totals, rule, 2);
        }
        assert_eq!(totals.hit_rules().collect::<Vec<_>>(), [("a", 2), ("b", 2)]);
        assert_eq!((totals.rule_hits("unknown"), totals.get(PayloadCount::RuleRejected)), (None, 6));
        assert!(totals.set_rules(["b".to_owned(), "c".to_owned(), "b".to_owned()]));
        assert_eq!((totals.rule_hits("a"), totals.rule_hits("b"), totals.rule_hits("c")), (None, Some(2), Some(0)));
        totals.set_rules(["a".to_owned()]);
        assert_eq!(totals.rule_hits("a"), Some(0), "one that comes back starts anew");
    }

    #[test]
    fn each_reset_clears_its_own() {
        let mut full = with_rules(&["a"]);
        full.add(|_| 3, |_| 3, 9);
        let cleared = |switch| {
            let mut totals = full.clone();
            totals.reset(switch);
            let gone = PayloadCount::ALL.iter().filter(|count| totals.get(**count) == 0).count();
            (gone, totals.rule_hits("a").unwrap(), totals.body_log_last_unix_ms().unwrap())
        };
        assert_eq!(cleared(Switch::CchStrip), (2, 3, 9));
        assert_eq!(cleared(Switch::KimiNormalize), (2, 3, 9));
        assert_eq!(cleared(Switch::IncludeUsage), (1, 3, 9));
        assert_eq!(cleared(Switch::SystemHoist), (1, 3, 9));
        assert_eq!(cleared(Switch::BodyLog), (3, 3, 9));
        assert_eq!(cleared(Switch::RejectRules), (0, 0, 9), "the sum is another page's");
        let mut totals = full.clone();
        totals.reset_refusals();
        assert_eq!((totals.get(PayloadCount::RuleRejected), totals.rule_hits("a")), (0, Some(3)));
    }

    #[test]
    fn what_is_stored_comes_back_for_the_rules_that_there_are() {
        let mut before = with_rules(&["a", "b"]);
        before.add(|_| 3, |_| 4, 9);
        let text = serde_json::to_string(&before).unwrap();
        let mut after = with_rules(&["b", "c"]);
        after.restore(serde_json::from_str(&text).unwrap());
        assert_eq!(after.counts().collect::<Vec<_>>(), before.counts().collect::<Vec<_>>());
        assert_eq!(after.counts().count(), PayloadCount::ALL.len());
        assert_eq!((after.rule_hits("a"), after.rule_hits("b"), after.rule_hits("c")), (None, Some(4), Some(0)));
        assert_eq!(after.body_log_last_unix_ms(), Some(9));
        // Of a version that counts something else as well, or less.
        let other: PayloadTotals = serde_json::from_str(r#"{"counts": {"parsed": 1, "new": 2}, "more": 3}"#).unwrap();
        assert_eq!(other.counts().collect::<Vec<_>>(), [("parsed", 1)]);
    }
}
