//! The `metrics` list of `_ttft_status` and `_tps_status`: for each pool what is watched, with which threshold, and from where
//! that comes (limits.md §5.4).

use router_policy::flow::{LatencyGate, MetricView, Statistic, UnixMs};
use router_policy::option::resolved::{LimitSource, SignalSettings};
use router_policy::toggle::{Limit, Toggles};
use serde_json::{Map, Value as Json, json};

use super::answer::object;
use crate::pool::{FlowSeen, RouteSeen};

/// One signal of a route, as pages name it.
pub(super) struct SignalPage<'a> {
    pub gate: LatencyGate,
    pub settings: &'a SignalSettings,
    pub toggles: &'a Toggles,
    pub unix: UnixMs,
}

impl<'a> SignalPage<'a> {
    pub(super) fn new(gate: LatencyGate, seen: &'a RouteSeen, settings: &'a SignalSettings) -> Self {
        Self { gate, settings, toggles: &seen.toggles, unix: seen.unix }
    }

    /// `ms` or `tps`: how its names end.
    pub(super) fn unit(&self) -> &'static str {
        match self.gate {
            LatencyGate::Ttft => "ms",
            LatencyGate::Tps => "tps",
        }
    }

    /// The limit that may be set at run time.
    pub(super) fn limit(&self) -> Limit {
        match self.gate {
            LatencyGate::Ttft => Limit::TtftMs,
            LatencyGate::Tps => Limit::Tps,
        }
    }

    /// What is set at run time for a model, or for the route.
    pub(super) fn over(&self, model: Option<&str>) -> Option<f64> {
        self.toggles.limit(self.limit(), model, self.unix)
    }

    pub(super) fn views<'f>(&self, pool: &'f FlowSeen) -> Vec<MetricView<'f>> {
        match self.gate {
            LatencyGate::Ttft => pool.flow.ttft_metrics(self.unix, &pool.options),
            LatencyGate::Tps => pool.flow.tps_metrics(self.unix, &pool.options),
        }
    }

    /// The first metric's EWMA of each pool that has one.
    pub(super) fn ewmas(&self, flows: &[FlowSeen]) -> Map<String, Json> {
        let first = |pool: &FlowSeen| Some((pool.key().to_owned(), json!(self.views(pool).first()?.ewma?)));
        flows.iter().filter_map(first).collect()
    }

    /// Whether anything is set for it in any pool.
    pub(super) fn has_threshold(&self, flows: &[FlowSeen]) -> bool {
        let metrics = |pool: &FlowSeen| match self.gate {
            LatencyGate::Ttft => pool.options.ttft_metrics.iter().any(|metric| metric.threshold.is_some()),
            LatencyGate::Tps => pool.options.tps_metrics.iter().any(|metric| metric.threshold.is_some()),
        };
        flows.iter().any(metrics)
    }

    /// Probe slots taken in this window, over all pools.
    pub(super) fn probes_used(&self, flows: &[FlowSeen]) -> u32 {
        let used = flows.iter().map(|pool| pool.flow.probes_used(self.unix, &pool.options, self.gate).0);
        used.fold(0, u32::saturating_add)
    }

    pub(super) fn by_model(&self) -> Option<Json> {
        let by_model = &self.settings.limit_by_model;
        (!by_model.is_empty()).then(|| json!(by_model))
    }

    /// Each pool's metrics.
    pub(super) fn list(&self, flows: &[FlowSeen]) -> Vec<Json> {
        flows.iter().map(|pool| self.of_pool(pool)).collect()
    }

    fn of_pool(&self, pool: &FlowSeen) -> Json {
        let model = pool.model.as_deref();
        let threshold = format!("threshold_{}", self.unit());
        let over = self.over(model);
        let stated = self.settings.static_limit(model);
        let is_declared = !self.settings.metrics.is_empty();
        let (_, from) = self.settings.threshold(over, model);
        let word = |source| match source {
            LimitSource::Declared => "declared",
            LimitSource::Override => "override",
            LimitSource::Model | LimitSource::Route | LimitSource::None => "static",
        };
        let source = if is_declared { "declared" } else { word(from) };
        // What would hold if what holds were not there.
        let shadowed = match (is_declared, over, stated) {
            (true, Some(over), _) => Some(("override", over)),
            (true, None, Some(stated)) | (false, Some(_), Some(stated)) => Some(("static", stated)),
            _ => None,
        };
        let shadowed =
            shadowed.map(|(source, value)| object([("source", Some(json!(source))), (&threshold, Some(json!(value)))]));
        let ignored = over.filter(|_| is_declared).map(|over| {
            let name = format!("override_{}", self.unit());
            object([(name.as_str(), Some(json!(over))), ("reason", Some(json!(self.ignored_reason())))])
        });
        let items: Vec<Json> = self.views(pool).iter().map(|view| self.item(view)).collect();
        object([
            ("model", Some(json!(pool.key()))),
            ("source", Some(json!(source))),
            ("items", Some(json!(items))),
            ("shadowed", shadowed),
            ("ignored_override", ignored),
        ])
    }

    pub(super) fn ignored_reason(&self) -> &'static str {
        match self.gate {
            LatencyGate::Ttft => "a declared list ttft_metrics comes before it",
            LatencyGate::Tps => "a declared list tps_metrics comes before it",
        }
    }

    fn item(&self, view: &MetricView<'_>) -> Json {
        let q = match view.metric.statistic {
            Statistic::Avg => None,
            Statistic::Quantile(q) => Some(json!(q)),
        };
        let (threshold, ewma) = (format!("threshold_{}", self.unit()), format!("ewma_{}", self.unit()));
        object([
            ("metric", Some(json!(view.metric.name))),
            ("q", q),
            (threshold.as_str(), view.metric.threshold.map(Json::from)),
            (ewma.as_str(), view.ewma.map(Json::from)),
        ])
    }
}
