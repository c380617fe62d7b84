//! What passes as it is although something was to be done to it, by route: counted each time, said in the log at most once in
//! a minute, since clients and engines can bring it about as often as they like.

use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use router_policy::toggle::Switch;
use tokio::time::Instant;

use super::{RouteLabel, TransformLabels};

/// How long the log is silent after it has said something.
const SAID_EVERY: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Default)]
pub(super) struct PassedFamilies {
    answers: Family<RouteLabel, Counter>,
    transforms: Family<TransformLabels, Counter>,
    bodies: Family<RouteLabel, Counter>,
}

impl PassedFamilies {
    pub(super) fn register(&self, r: &mut Registry) {
        r.register(
            "answers_not_rewritten",
            "Answers, or lines of them, that were too large to be rewritten or found no room",
            self.answers.clone(),
        );
        r.register(
            "transforms_skipped",
            "Request bodies that a transform had to leave as they are, by transform",
            self.transforms.clone(),
        );
        r.register(
            "bodies_not_judged",
            "Request bodies that reject rules could not read: no JSON object or list in UTF-8",
            self.bodies.clone(),
        );
    }
}

/// Of one route.
#[derive(Debug)]
pub(crate) struct Passed {
    route: String,
    families: PassedFamilies,
    answers: Counter,
    bodies: Counter,
    answer_said: Seldom,
    transform_said: Seldom,
}

impl Passed {
    pub(super) fn new(families: &PassedFamilies, route: &str) -> Self {
        let label = RouteLabel { route: route.to_owned() };
        Self {
            route: route.to_owned(),
            answers: families.answers.get_or_create_owned(&label),
            bodies: families.bodies.get_or_create_owned(&label),
            answer_said: Seldom::default(),
            transform_said: Seldom::default(),
            families: families.clone(),
        }
    }

    /// An answer, or a line of it, is not rewritten.
    pub(crate) fn answer(&self) {
        self.answers.inc();
        if self.answer_said.may_say() {
            tracing::warn!(
                route = self.route,
                "an answer or a line of it is too large to be rewritten, or too many are held, and passes as it is"
            );
        }
    }

    /// A transform left a request's body as it is.
    pub(crate) fn transform(&self, transform: Switch, why: &'static str) {
        let labels = TransformLabels { route: self.route.clone(), transform: transform.name() };
        self.families.transforms.get_or_create_owned(&labels).inc();
        if self.transform_said.may_say() {
            tracing::warn!(route = self.route, transform = transform.name(), why, "a request's body stays as it is");
        }
    }

    /// Reject rules are on, and there is a body that they can't read.
    pub(crate) fn body_not_judged(&self) {
        self.bodies.inc();
    }
}

/// Says when it may be said again.
#[derive(Debug, Default)]
struct Seldom(Mutex<Option<Instant>>);

impl Seldom {
    fn may_say(&self) -> bool {
        let now = Instant::now();
        let mut last = self.0.lock();
        let may = last.is_none_or(|last| now.duration_since(last) >= SAID_EVERY);
        if may {
            *last = Some(now);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use router_policy::ids::RouteName;

    use super::super::Metrics;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_log_says_it_once_in_a_minute() {
        let (first, other) = (Seldom::default(), Seldom::default());
        assert!(first.may_say() && !first.may_say() && other.may_say());
        tokio::time::advance(Duration::from_millis(59_999)).await;
        assert!(!first.may_say());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(first.may_say() && !first.may_say());
    }

    #[test]
    fn each_time_is_counted() {
        let metrics = Metrics::new();
        let passed = &metrics.route(&RouteName::new("chat").unwrap()).passed;
        for _ in 0..2 {
            passed.answer();
            passed.body_not_judged();
            passed.transform(Switch::IncludeUsage, "x");
        }
        let text = metrics.encode();
        for line in [
            r#"router_answers_not_rewritten_total{route="chat"} 2"#,
            r#"router_bodies_not_judged_total{route="chat"} 2"#,
            r#"router_transforms_skipped_total{route="chat",transform="include_usage"} 2"#,
        ] {
            assert!(text.lines().any(|is| is == line), "{line} in\n{text}");
        }
    }
}
