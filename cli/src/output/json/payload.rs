//! What replicas have counted of a route's payloads.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

/// Rules that a line names.
const RULES_NAMED: usize = 5;

/// Over all replicas and restarts, since the last reset. What is 0 is left out.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct PayloadView {
    /// `parsed`, `cch_stripped`, `kimi_changes`, `kimi_requests`, `usage_injected`, `system_hoisted`, `rule_rejected`,
    /// `bodylog_written`, `bodylog_dropped`, `bodylog_errors`.
    pub(crate) counts: BTreeMap<String, u64>,
    /// Refusals by the rule's name.
    pub(crate) rule_hits: BTreeMap<String, u64>,
}

impl PayloadView {
    pub(super) fn new(counts: HashMap<String, u64>, rule_hits: HashMap<String, u64>) -> Self {
        Self { counts: counts.into_iter().collect(), rule_hits: rule_hits.into_iter().collect() }
    }

    fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    /// `7: big 4, rule2 3`; `None` when rules have refused nobody.
    pub(crate) fn refused_by_rules(&self) -> Option<String> {
        let mut hits: Vec<(&String, &u64)> = self.rule_hits.iter().collect();
        hits.sort_by_key(|(name, hits)| (std::cmp::Reverse(**hits), *name));
        let sum = self.count("rule_rejected");
        if sum == 0 && hits.is_empty() {
            return None;
        }
        let more = hits.len().saturating_sub(RULES_NAMED);
        let mut named: Vec<String> =
            hits.iter().take(RULES_NAMED).map(|(name, hits)| format!("{name} {hits}")).collect();
        named.extend((more > 0).then(|| format!("{more} more")));
        Some(if named.is_empty() { sum.to_string() } else { format!("{sum}: {}", named.join(", ")) })
    }

    /// `120 frames, 3 dropped, 1 failed`; `None` when nothing was captured.
    pub(crate) fn body_log(&self) -> Option<String> {
        let [frames, dropped, failed] =
            ["bodylog_written", "bodylog_dropped", "bodylog_errors"].map(|name| self.count(name));
        (frames > 0 || dropped > 0 || failed > 0)
            .then(|| format!("{frames} frames, {dropped} dropped, {failed} failed"))
    }

    /// `cch_strip 10, include_usage 3`; `None` when no body was changed.
    pub(crate) fn changed(&self) -> Option<String> {
        let transforms = [
            ("cch_strip", "cch_stripped"),
            ("kimi_normalize", "kimi_requests"),
            ("include_usage", "usage_injected"),
            ("system_hoist", "system_hoisted"),
        ];
        let done = transforms.map(|(transform, name)| (transform, self.count(name)));
        let done: Vec<String> =
            done.iter().filter(|(_, sum)| *sum > 0).map(|(transform, sum)| format!("{transform} {sum}")).collect();
        (!done.is_empty()).then(|| done.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(counts: &[(&str, u64)], hits: &[(&str, u64)]) -> PayloadView {
        let map = |pairs: &[(&str, u64)]| pairs.iter().map(|&(name, sum)| (name.to_owned(), sum)).collect();
        PayloadView::new(map(counts), map(hits))
    }

    #[test]
    fn in_a_line_each() {
        let none = view(&[("parsed", 9)], &[]);
        assert_eq!((none.refused_by_rules(), none.body_log(), none.changed()), (None, None, None));
        let some = view(&[("bodylog_dropped", 3), ("usage_injected", 2), ("cch_stripped", 1)], &[]);
        assert_eq!(some.body_log().as_deref(), Some("0 frames, 3 dropped, 0 failed"));
        assert_eq!(some.changed().as_deref(), Some("cch_strip 1, include_usage 2"));
        let rules = view(&[("rule_rejected", 9)], &[("b", 4), ("a", 4), ("c", 1)]);
        assert_eq!(rules.refused_by_rules().as_deref(), Some("9: a 4, b 4, c 1"));
        assert_eq!(view(&[("rule_rejected", 9)], &[]).refused_by_rules().as_deref(), Some("9"));
        let many: Vec<(String, u64)> = (0..8).map(|number| (format!("r{number}"), 1)).collect();
        let many: Vec<(&str, u64)> = many.iter().map(|(name, sum)| (name.as_str(), *sum)).collect();
        assert_eq!(view(&[], &many).refused_by_rules().as_deref(), Some("0: r0 1, r1 1, r2 1, r3 1, r4 1, 3 more"));
    }
}
