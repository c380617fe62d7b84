//! The options of flow control, and what they amount to for one pool while run-time toggles are set.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Reader, Value};
use crate::flow::UnixMs;
use crate::flow::aimd::AimdOptions;
use crate::flow::metric::Metric;
use crate::flow::options::FlowOptions;
use crate::flow::signal::SignalOptions;
use crate::flow::tokens::TpsBasis;
use crate::flow::turn::{PrioOptions, TurnTable};
use crate::toggle::{Limit, Switch, Toggles};

/// One signal's limits, as the route states them.
#[derive(Debug, Clone, PartialEq)]
pub struct SignalSettings {
    /// For every pool that has no other.
    pub limit: Option<f64>,
    /// By model.
    pub limit_by_model: BTreeMap<String, f64>,
    /// The declared list; empty for none.
    pub metrics: Vec<Metric>,
    /// Window, weight, life, probe slots.
    pub options: SignalOptions,
}

/// Where a pool's thresholds come from, in their order (limits.md §5.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitSource {
    /// The route's list of metrics.
    Declared,
    /// Set at run time.
    Override,
    /// `…_by_model`.
    Model,
    /// The route's one limit.
    Route,
    /// Nothing is set anywhere.
    None,
}

impl SignalSettings {
    /// The threshold without a list of metrics, and where it is from.
    pub fn threshold(&self, over: Option<f64>, model: Option<&str>) -> (Option<f64>, LimitSource) {
        if let Some(over) = over {
            return (Some(over), LimitSource::Override);
        }
        match (self.static_limit(model), model.is_some_and(|model| self.limit_by_model.contains_key(model))) {
            (None, _) => (None, LimitSource::None),
            (own, true) => (own, LimitSource::Model),
            (own, false) => (own, LimitSource::Route),
        }
    }

    /// The threshold that the document states: the model's own, else the route's.
    pub fn static_limit(&self, model: Option<&str>) -> Option<f64> {
        model.and_then(|model| self.limit_by_model.get(model).copied()).or(self.limit)
    }

    /// Whether the document states any threshold.
    pub fn is_stated(&self) -> bool {
        self.limit.is_some() || !self.limit_by_model.is_empty() || !self.metrics.is_empty()
    }

    fn metrics(&self, over: Option<f64>, model: Option<&str>, default: impl Fn(Option<f64>) -> Metric) -> Vec<Metric> {
        if self.metrics.is_empty() { vec![default(self.threshold(over, model).0)] } else { self.metrics.clone() }
    }
}

/// Every option of flow control.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "each field is the catalogue's option of that name, described there")]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct FlowSettings {
    pub load_rate_limit: bool,
    pub rt_limit_factor: f64,
    pub cluster_avg_interval: Duration,
    pub ttft: SignalSettings,
    pub ttft_429_default_enabled: bool,
    pub tps: SignalSettings,
    pub tps_basis: TpsBasis,
    pub tps_min_tokens: u32,
    pub tps_min_decode: Duration,
    pub adaptive_cc: bool,
    pub adaptive: AimdOptions,
    pub session_prio: bool,
    pub prio: PrioOptions,
}

impl FlowSettings {
    /// Whether the options have TPS measured, whatever is set at run time.
    pub fn measures_tps(&self) -> bool {
        self.tps.is_stated() || self.adaptive_cc
    }

    pub(super) fn read(read: &Reader<'_>) -> Self {
        let signal = |name: &str, limit: &str| SignalSettings {
            limit: read.optional_decimal(limit),
            limit_by_model: read.decimals(&format!("{name}_limit_by_model")),
            metrics: read.metrics(&format!("{name}_metrics")),
            options: SignalOptions {
                window: read.duration(&format!("{name}_window")),
                alpha: read.decimal(&format!("{name}_ewma_alpha")),
                ttl: read.duration(&format!("{name}_ttl")),
                probe_window: read.duration(&format!("{name}_probe_window")),
                probes_per_window: read.small(&format!("{name}_probe_per_window")),
            },
        };
        let tps = signal("tps", "tps_limit_tps");
        let pressure_frac = read.decimal("adaptive_cc_pressure_frac");
        let slack_frac = read.decimal("adaptive_cc_slack_frac");
        let usual_slack_frac = read.without_set().decimal("adaptive_cc_slack_frac");
        let slots = |name: &str| read.optional_int(name).and_then(|slots| u32::try_from(slots).ok()).map(f64::from);
        let adaptive = AimdOptions {
            min: slots("adaptive_cc_min"),
            min_frac: read.decimal("adaptive_cc_min_frac"),
            init: slots("adaptive_cc_init"),
            init_frac: read.optional_decimal("adaptive_cc_init_frac"),
            interval: read.optional_duration("adaptive_cc_interval").unwrap_or(tps.options.window),
            dec: read.decimal("adaptive_cc_dec"),
            inc: read.decimal("adaptive_cc_inc"),
            pressure_frac,
            // One that is not below the pressure can't be meant, and its default may not be below it either (limits.md §8.1).
            slack_frac: if slack_frac < pressure_frac { slack_frac } else { usual_slack_frac.min(pressure_frac * 0.8) },
            abs: read.decimal("adaptive_cc_abs"),
            ttl: read.duration("adaptive_cc_ttl"),
            use_ttft: read.flag("adaptive_cc_use_ttft"),
            hold_when_idle: read.flag("adaptive_cc_hold_when_idle"),
        };
        let severe = read.decimal("session_prio_severe");
        let by_doubling =
            || TurnTable::by_doubling(read.decimal("session_prio_r_new"), read.small("session_prio_full_turn"), severe);
        let table = match read.value("session_prio_table") {
            // Checked when the value was read.
            Some(Value::Turns(rows)) if !rows.is_empty() => {
                TurnTable::from_rows(rows).unwrap_or_else(|_| by_doubling())
            }
            _ => by_doubling(),
        };
        Self {
            load_rate_limit: read.flag("load_rate_limit"),
            rt_limit_factor: read.decimal("rt_limit_factor"),
            cluster_avg_interval: read.duration("cluster_avg_interval"),
            ttft: signal("ttft", "ttft_limit_ms"),
            ttft_429_default_enabled: read.flag("ttft_429_default_enabled"),
            tps,
            tps_basis: match read.word("tps_basis") {
                "decode" => TpsBasis::Decode,
                _ => TpsBasis::Total,
            },
            tps_min_tokens: read.small("tps_min_tokens"),
            tps_min_decode: read.duration("tps_min_decode_s"),
            adaptive_cc: read.flag("adaptive_cc"),
            adaptive,
            session_prio: read.flag("session_prio"),
            prio: PrioOptions {
                table,
                severe,
                release: read.decimal("session_prio_release"),
                t1_probes: read.small("session_prio_t1_probes"),
                warn_frac: read.decimal("session_prio_warn_frac"),
            },
        }
    }

    /// Whether sessions are ranked by turn now.
    pub fn ranks_turns(&self, toggles: &Toggles, now: UnixMs) -> bool {
        toggles.switch(Switch::SessionPrio, now).unwrap_or(self.session_prio)
    }

    /// What holds for one pool now; `model` is `None` on a route without a pool per model.
    pub fn of_pool(&self, model: Option<&str>, toggles: &Toggles, now: UnixMs) -> FlowOptions {
        let switch = |switch, option| toggles.switch(switch, now).unwrap_or(option);
        let ttft_limit = toggles.limit(Limit::TtftMs, model, now);
        let tps_limit = toggles.limit(Limit::Tps, model, now);
        let tps_metrics = self.tps.metrics(tps_limit, model, Metric::tps_default);
        let can_adapt = tps_metrics.iter().any(|metric| metric.threshold.is_some());
        FlowOptions {
            is_enforced: switch(Switch::LoadRateLimit, self.load_rate_limit),
            rt_limit_factor: self.rt_limit_factor,
            ttft_on: switch(Switch::Ttft, true),
            tps_on: switch(Switch::Tps, true),
            ttft_429: switch(Switch::Ttft429, self.ttft_429_default_enabled),
            ttft: self.ttft.options,
            tps: self.tps.options,
            ttft_metrics: self.ttft.metrics(ttft_limit, model, Metric::ttft_default),
            tps_metrics,
            tps_min_tokens: self.tps_min_tokens,
            tps_min_decode: self.tps_min_decode,
            tps_basis: self.tps_basis,
            adaptive: (self.adaptive_cc && can_adapt).then(|| self.adaptive.clone()),
            prio: self.ranks_turns(toggles, now).then(|| self.prio.clone()),
            cluster_avg_interval: self.cluster_avg_interval,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{OptionSet, RouteOptions};
    use super::*;
    use crate::option::{Preset, find};
    use crate::toggle::{Toggle, ToggleKey};

    fn settings(options: &[(&str, &str)]) -> FlowSettings {
        let set: OptionSet = options
            .iter()
            .map(|(name, text)| {
                let option = find(name).unwrap();
                (option.name, option.kind.parse_text(text).unwrap())
            })
            .collect();
        RouteOptions::resolve(Preset::None, &set).flow
    }

    fn toggles(set: &[(&str, &str, &str)]) -> Toggles {
        let mut toggles = Toggles::default();
        for (name, model, text) in set {
            let key = ToggleKey::parse(name, model).unwrap();
            let value = key.parse_value(text).unwrap();
            toggles.set(Toggle { key, value, until: None });
        }
        toggles
    }

    fn ttft(settings: &FlowSettings, model: Option<&str>, toggles: &Toggles) -> Vec<(String, Option<f64>)> {
        let options = settings.of_pool(model, toggles, UnixMs(0));
        options.ttft_metrics.into_iter().map(|metric| (metric.name, metric.threshold)).collect()
    }

    #[test]
    fn limits_5_4_priority_of_thresholds() {
        let p80 = |threshold| vec![("p80".to_owned(), threshold)];
        let none = Toggles::default();
        assert_eq!(ttft(&settings(&[]), None, &none), p80(None), "measured, never refusing");
        let route = settings(&[("ttft_limit_ms", "100"), ("ttft_limit_by_model", "m=200")]);
        assert_eq!(ttft(&route, None, &none), p80(Some(100.0)));
        assert_eq!(ttft(&route, Some("m"), &none), p80(Some(200.0)));
        assert_eq!(ttft(&route, Some("other"), &none), p80(Some(100.0)));
        let over = toggles(&[("ttft_limit_ms", "", "300")]);
        assert_eq!(ttft(&route, Some("m"), &over), p80(Some(300.0)));
        let over = toggles(&[("ttft_limit_ms", "", "300"), ("ttft_limit_ms", "m", "400")]);
        assert_eq!(ttft(&route, Some("m"), &over), p80(Some(400.0)));
        let declared = settings(&[("ttft_metrics", r#"[{"metric": "avg", "threshold": 5}]"#)]);
        assert_eq!(ttft(&declared, Some("m"), &over), vec![("avg".to_owned(), Some(5.0))], "before every override");
    }

    #[test]
    fn rulings_3_a_metrics_list_is_enough_for_adaptive_and_nothing_is_not() {
        let adapts =
            |options: &[(&str, &str)], over: &Toggles| settings(options).of_pool(None, over, UnixMs(0)).adaptive;
        let none = Toggles::default();
        assert!(adapts(&[("adaptive_cc", "true")], &none).is_none());
        assert!(adapts(&[("tps_limit_tps", "20")], &none).is_none(), "opt-in");
        assert!(adapts(&[("adaptive_cc", "true"), ("tps_limit_tps", "20")], &none).is_some());
        let list = r#"[{"metric": "avg", "threshold": 5}]"#;
        assert!(adapts(&[("adaptive_cc", "true"), ("tps_metrics", list)], &none).is_some());
        assert!(adapts(&[("adaptive_cc", "true")], &toggles(&[("tps_limit_tps", "", "9")])).is_some());
    }

    #[test]
    fn limits_8_1_slack_lies_below_pressure_and_the_interval_is_the_window() {
        let fracs = |options: &[(&str, &str)]| settings(options).adaptive.slack_frac;
        assert!((fracs(&[]) - 0.7).abs() < 1e-9);
        assert!((fracs(&[("adaptive_cc_pressure_frac", "0.5")]) - 0.4).abs() < 1e-9);
        // As a document of before may have it: the default, where that is below.
        assert!((fracs(&[("adaptive_cc_slack_frac", "0.95")]) - 0.7).abs() < 1e-9);
        assert!((fracs(&[("adaptive_cc_slack_frac", "0.85")]) - 0.85).abs() < 1e-9, "the control");
        assert_eq!(settings(&[("tps_window", "7s")]).adaptive.interval, Duration::from_secs(7));
        assert_eq!(settings(&[("adaptive_cc_interval", "3s")]).adaptive.interval, Duration::from_secs(3));
    }

    #[test]
    fn switches_come_before_options() {
        let now = UnixMs(0);
        let plain = settings(&[]).of_pool(None, &Toggles::default(), now);
        assert!(plain.is_enforced && plain.ttft_on && plain.tps_on && plain.ttft_429 && plain.prio.is_none());
        let off = toggles(&[
            ("load_rate_limit", "", "off"),
            ("ttft", "", "off"),
            ("tps", "", "off"),
            ("ttft_429", "", "off"),
            ("session_prio", "", "on"),
        ]);
        let turned = settings(&[]).of_pool(None, &off, now);
        assert!(!turned.is_enforced && !turned.ttft_on && !turned.tps_on && !turned.ttft_429 && turned.prio.is_some());
        assert!(!settings(&[("load_rate_limit", "off")]).of_pool(None, &Toggles::default(), now).is_enforced);
    }
}
