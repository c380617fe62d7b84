//! What is done to the bodies of a route, counted: for Prometheus here, and for the control plane, which adds it up over the
//! replicas (`Counted`). Counting is an atomic add; telling is the business of one task, `coordinate::counts`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use router_policy::payload_count::PayloadCount;
use router_policy::toggle::Switch;
use router_proto::v1;

use super::{RouteLabel, RuleLabels, TransformLabels};

/// The series of payload handling.
#[derive(Debug, Clone, Default)]
pub(super) struct PayloadFamilies {
    transforms: Family<TransformLabels, Counter>,
    kimi_ids_replaced: Family<RouteLabel, Counter>,
    bodies_parsed: Family<RouteLabel, Counter>,
    rule_refusals: Family<RuleLabels, Counter>,
    bodylog_frames: Family<RouteLabel, Counter>,
    bodylog_dropped: Family<RouteLabel, Counter>,
    bodylog_errors: Family<RouteLabel, Counter>,
}

impl PayloadFamilies {
    pub(super) fn register(&self, r: &mut Registry) {
        r.register("transforms", "Requests whose body was changed, by transform", self.transforms.clone());
        r.register("kimi_ids_replaced", "Tool call ids that were replaced", self.kimi_ids_replaced.clone());
        r.register("bodies_parsed", "Request bodies that are a JSON object or list", self.bodies_parsed.clone());
        r.register("rule_refusals", "Requests that a reject rule refused", self.rule_refusals.clone());
        r.register("bodylog_frames", "Frames that the body log's sender took", self.bodylog_frames.clone());
        r.register(
            "bodylog_dropped",
            "Frames that found no room, or that the collector did not take",
            self.bodylog_dropped.clone(),
        );
        r.register("bodylog_errors", "Frames that could not be made", self.bodylog_errors.clone());
    }

    /// The series of one count; the sum of refusals by rules has none, its parts have.
    fn counter(&self, count: PayloadCount, route: &str) -> Counter {
        let label = RouteLabel { route: route.to_owned() };
        let transform = |transform: Switch| {
            let labels = TransformLabels { route: route.to_owned(), transform: transform.name() };
            self.transforms.get_or_create_owned(&labels)
        };
        match count {
            PayloadCount::Parsed => self.bodies_parsed.get_or_create_owned(&label),
            PayloadCount::CchStripped => transform(Switch::CchStrip),
            PayloadCount::KimiRequests => transform(Switch::KimiNormalize),
            PayloadCount::UsageInjected => transform(Switch::IncludeUsage),
            PayloadCount::SystemHoisted => transform(Switch::SystemHoist),
            PayloadCount::KimiChanges => self.kimi_ids_replaced.get_or_create_owned(&label),
            PayloadCount::RuleRejected => Counter::default(),
            PayloadCount::BodyLogWritten => self.bodylog_frames.get_or_create_owned(&label),
            PayloadCount::BodyLogDropped => self.bodylog_dropped.get_or_create_owned(&label),
            PayloadCount::BodyLogErrors => self.bodylog_errors.get_or_create_owned(&label),
        }
    }
}

/// One count, and how much of it the control plane has been told.
#[derive(Debug)]
struct Slot {
    counter: Counter,
    told: AtomicU64,
}

impl Slot {
    fn new(counter: Counter) -> Self {
        Self { told: AtomicU64::new(counter.get()), counter }
    }

    /// What has come since the last call.
    fn take(&self) -> u64 {
        let now = self.counter.get();
        now.saturating_sub(self.told.swap(now, Ordering::Relaxed))
    }

    /// What was taken has not been told.
    fn give_back(&self, taken: u64) {
        self.told.fetch_sub(taken, Ordering::Relaxed);
    }
}

/// One route's counts since the replica started. They only rise.
#[derive(Debug)]
pub(crate) struct PayloadCounts {
    route: String,
    families: PayloadFamilies,
    counts: [Slot; PayloadCount::ALL.len()],
    /// Of the rules that the route has now.
    rules: RwLock<BTreeMap<String, Slot>>,
    /// When the body log's sender last took a frame, in Unix milliseconds; 0 for never.
    body_log_last: AtomicU64,
}

impl PayloadCounts {
    pub(super) fn new(families: &PayloadFamilies, route: &str) -> Self {
        Self {
            route: route.to_owned(),
            counts: PayloadCount::ALL.map(|count| Slot::new(families.counter(count, route))),
            rules: RwLock::default(),
            body_log_last: AtomicU64::new(0),
            families: families.clone(),
        }
    }

    pub(crate) fn add(&self, count: PayloadCount, more: u64) {
        if let Some(slot) = self.slot(count) {
            slot.counter.inc_by(more);
        }
    }

    /// A rule refused a request. One that the route does not have any more is counted in the sum alone.
    pub(crate) fn rule_hit(&self, rule: &str) {
        self.add(PayloadCount::RuleRejected, 1);
        if let Some(slot) = self.rules.read().get(rule) {
            slot.counter.inc();
        }
    }

    /// The body log's sender has taken a frame.
    pub(crate) fn body_log_written(&self, unix_ms: u64) {
        self.add(PayloadCount::BodyLogWritten, 1);
        self.body_log_last.fetch_max(unix_ms, Ordering::Relaxed);
    }

    /// The rules that the route has now. Series of the others end; whoever still judges by them counts unseen.
    pub(crate) fn keep_rules(&self, names: impl IntoIterator<Item = String>) {
        let names: BTreeSet<String> = names.into_iter().collect();
        let labels = |rule: &str| RuleLabels { route: self.route.clone(), rule: rule.to_owned() };
        let mut rules = self.rules.write();
        rules.retain(|rule, _| {
            let is_kept = names.contains(rule);
            if !is_kept {
                self.families.rule_refusals.remove(&labels(rule));
            }
            is_kept
        });
        for rule in names {
            let labels = labels(&rule);
            rules.entry(rule).or_insert_with(|| Slot::new(self.families.rule_refusals.get_or_create_owned(&labels)));
        }
    }

    /// What has come since the last call, to be told; `None` for nothing.
    pub(crate) fn take(&self) -> Option<v1::Counted> {
        let counts = PayloadCount::ALL.iter().zip(&self.counts);
        let counts = counts.map(|(count, slot)| (count.name().to_owned(), slot.take())).filter(|(_, more)| *more > 0);
        let counted = v1::Counted {
            route: self.route.clone(),
            counts: counts.collect(),
            rule_hits: {
                let rules = self.rules.read();
                let hits = rules.iter().map(|(rule, slot)| (rule.clone(), slot.take()));
                hits.filter(|(_, more)| *more > 0).collect()
            },
            body_log_last_unix_ms: self.body_log_last.load(Ordering::Relaxed),
        };
        (!counted.counts.is_empty() || !counted.rule_hits.is_empty()).then_some(counted)
    }

    /// What was taken can't have been told: it is taken again.
    pub(crate) fn give_back(&self, counted: &v1::Counted) {
        for (count, slot) in PayloadCount::ALL.iter().zip(&self.counts) {
            slot.give_back(counted.counts.get(count.name()).copied().unwrap_or(0));
        }
        for (rule, slot) in self.rules.read().iter() {
            slot.give_back(counted.rule_hits.get(rule).copied().unwrap_or(0));
        }
    }

    fn slot(&self, count: PayloadCount) -> Option<&Slot> {
        PayloadCount::ALL.iter().zip(&self.counts).find(|(known, _)| **known == count).map(|(_, slot)| slot)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use router_policy::ids::RouteName;

    use super::super::{Metrics, RouteMetrics};
    use super::*;

    fn route(metrics: &Metrics) -> Arc<RouteMetrics> {
        metrics.route(&RouteName::new("chat").unwrap())
    }

    fn rules(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn every_count_has_its_series() {
        let metrics = Metrics::new();
        let counts = &route(&metrics).payload;
        counts.keep_rules(rules(&["big", "never"]));
        for (more, count) in (1..).zip(PayloadCount::ALL) {
            counts.add(count, more);
        }
        counts.rule_hit("big");
        counts.body_log_written(5);
        let text = metrics.encode();
        for line in [
            r#"router_bodies_parsed_total{route="chat"} 1"#,
            r#"router_transforms_total{route="chat",transform="cch_strip"} 2"#,
            r#"router_kimi_ids_replaced_total{route="chat"} 3"#,
            r#"router_transforms_total{route="chat",transform="kimi_normalize"} 4"#,
            r#"router_transforms_total{route="chat",transform="include_usage"} 5"#,
            r#"router_transforms_total{route="chat",transform="system_hoist"} 6"#,
            r#"router_rule_refusals_total{route="chat",rule="big"} 1"#,
            r#"router_rule_refusals_total{route="chat",rule="never"} 0"#,
            r#"router_bodylog_frames_total{route="chat"} 9"#,
            r#"router_bodylog_dropped_total{route="chat"} 9"#,
            r#"router_bodylog_errors_total{route="chat"} 10"#,
        ] {
            assert!(text.lines().any(|is| is == line), "{line} in\n{text}");
        }
    }

    #[test]
    fn a_count_is_told_once() {
        let metrics = Metrics::new();
        let route = route(&metrics);
        let counts = &route.payload;
        counts.keep_rules(rules(&["big"]));
        assert_eq!(counts.take(), None);
        counts.add(PayloadCount::Parsed, 2);
        counts.rule_hit("big");
        counts.body_log_written(7);
        let told = counts.take().unwrap();
        assert_eq!((told.route.as_str(), told.body_log_last_unix_ms), ("chat", 7));
        let mut named: Vec<_> = told.counts.iter().map(|(name, more)| (name.as_str(), *more)).collect();
        named.sort_unstable();
        assert_eq!(named, [("bodylog_written", 1), ("parsed", 2), ("rule_rejected", 1)]);
        assert_eq!(told.rule_hits.iter().collect::<Vec<_>>(), [(&"big".to_owned(), &1)]);
        assert_eq!(counts.take(), None);
        // Not told after all: it comes again, with what has come since.
        counts.give_back(&told);
        counts.add(PayloadCount::Parsed, 1);
        counts.rule_hit("big");
        let again = counts.take().unwrap();
        assert_eq!((again.counts["parsed"], again.counts["bodylog_written"], again.rule_hits["big"]), (3, 1, 2));
    }

    #[test]
    fn series_of_a_rule_end_with_it() {
        let metrics = Metrics::new();
        let route = route(&metrics);
        let counts = &route.payload;
        counts.keep_rules(rules(&["old", "stays"]));
        counts.rule_hit("stays");
        counts.keep_rules(rules(&["stays", "new"]));
        // By somebody who still judges by the old list.
        counts.rule_hit("old");
        let text = metrics.encode();
        assert!(!text.contains(r#"rule="old""#), "{text}");
        assert!(text.contains(r#"rule="stays"} 1"#) && text.contains(r#"rule="new"} 0"#), "{text}");
        let told = counts.take().unwrap();
        assert_eq!((told.counts["rule_rejected"], told.rule_hits.len()), (2, 1));
    }
}
