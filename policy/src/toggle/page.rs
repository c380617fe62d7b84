//! What the query of a payload feature's switch page asks for (payloads.md §9). A replica reads it to know whether a request
//! may only be a POST from this machine, the control plane to do it: both by this one reading, or a link in some web page
//! could change what the replica took for a look.

use super::{Limit, Switch, ToggleKey, ToggleValue};

/// The switch that a page shows and sets.
pub fn switch_of_page(page: &str) -> Option<Switch> {
    Switch::ALL.into_iter().find(|switch| pages_of(*switch).is_some_and(|pages| pages.toggle == page))
}

/// Pages of a payload feature's switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SwitchPages {
    /// Shows and sets it.
    pub toggle: &'static str,
    /// Shows the feature; the same without a change, where there is no other.
    pub shown_on: &'static str,
}

/// The pages of a switch; `None` for the switches of flow control, whose pages are others (limits.md §12).
pub fn pages_of(switch: Switch) -> Option<SwitchPages> {
    let alone = |toggle| Some(SwitchPages { toggle, shown_on: toggle });
    match switch {
        Switch::BodyLog => Some(SwitchPages { toggle: "_bodylog_toggle", shown_on: "_bodylog_status" }),
        Switch::CchStrip => Some(SwitchPages { toggle: "_cch_strip_toggle", shown_on: "_cch_strip_status" }),
        Switch::RejectRules => Some(SwitchPages { toggle: "_reject_rules_toggle", shown_on: "_reject_rules_status" }),
        Switch::KimiNormalize => alone("_kimi_normalize_toggle"),
        Switch::IncludeUsage => alone("_include_usage_toggle"),
        Switch::SystemHoist => alone("_system_hoist_toggle"),
        Switch::LoadRateLimit | Switch::Ttft | Switch::Ttft429 | Switch::Tps | Switch::SessionPrio => None,
    }
}

/// A change by such a page. Values that are none are passed over.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PageChange {
    /// `on`: `1`, `true`, `0`, `false`.
    pub on: Option<bool>,
    /// `pct`, of the body log alone: 0 to 100.
    pub pct: Option<f64>,
    /// `reset=1`: the feature's counters are cleared.
    pub resets: bool,
}

impl PageChange {
    /// Reads the parameters of a page.
    pub fn of<'a>(switch: Switch, param: impl Fn(&str) -> Option<&'a str>) -> Self {
        let on = match param("on") {
            Some("1" | "true") => Some(true),
            Some("0" | "false") => Some(false),
            _ => None,
        };
        let pct = param("pct").filter(|_| switch == Switch::BodyLog).and_then(|text| {
            match ToggleKey::Limit(Limit::BodyLogPct, None).parse_value(text) {
                Ok(ToggleValue::Number(pct)) => Some(pct),
                _ => None,
            }
        });
        Self { on, pct, resets: param("reset") == Some("1") }
    }

    /// Whether it changes anything; else it is a look.
    pub fn is_change(&self) -> bool {
        *self != Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(switch: Switch, query: &str) -> PageChange {
        let pairs: Vec<_> = query.split('&').filter_map(|pair| pair.split_once('=')).collect();
        PageChange::of(switch, |name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| *value))
    }

    #[test]
    fn payloads_9_what_is_taken_and_what_is_passed_over() {
        for (query, on) in [("on=1", true), ("on=true", true), ("on=0", false), ("on=false", false)] {
            let expected = PageChange { on: Some(on), ..PageChange::default() };
            assert_eq!(read(Switch::CchStrip, query), expected, "{query}");
        }
        for look in ["", "on=", "on=2", "on=TRUE", "on=yes", "reset=0", "reset=true", "pct=50", "x=1"] {
            assert!(!read(Switch::CchStrip, look).is_change(), "{look}");
        }
        assert!(read(Switch::CchStrip, "reset=1").resets);
        for (query, pct) in [("pct=0", 0.0), ("pct=12", 12.0), ("pct=100", 100.0)] {
            assert_eq!(read(Switch::BodyLog, query).pct, Some(pct));
        }
        for look in ["pct=-1", "pct=12.5", "pct=100.5", "pct=nan", "pct=x", "pct="] {
            assert!(!read(Switch::BodyLog, look).is_change(), "{look}");
        }
    }

    #[test]
    fn only_switch_pages_have_a_switch() {
        assert_eq!(switch_of_page("_bodylog_toggle"), Some(Switch::BodyLog));
        assert_eq!((switch_of_page("_bodylog_status"), switch_of_page("_ttft_toggle")), (None, None));
    }

    #[test]
    fn each_page_is_one_switch_s() {
        let pages: Vec<_> = Switch::ALL.into_iter().filter_map(pages_of).collect();
        assert_eq!(pages.len(), 6);
        for switch in Switch::ALL {
            let found = pages_of(switch).and_then(|pages| switch_of_page(pages.toggle));
            assert_eq!(found, pages_of(switch).map(|_| switch));
        }
        assert_eq!(switch_of_page("_cch_strip_status"), None);
        assert_eq!(pages_of(Switch::CchStrip).unwrap().shown_on, "_cch_strip_status");
        assert_eq!(pages_of(Switch::SystemHoist).unwrap().shown_on, "_system_hoist_toggle");
    }
}
