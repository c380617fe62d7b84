//! Whether token counts are asked for, of all that a route's options and its run-time toggles say together (rulings §7).

use super::{Limit, Switch, ToggleKey, Toggles};
use crate::flow::UnixMs;
use crate::option::resolved::{FlowSettings, IncludeUsage, RouteOptions};
use crate::route::RouteSpec;

impl Toggles {
    /// Whether the route measures TPS now: by its options or by a limit that is set, and not while the switch is off.
    pub fn measures_tps(&self, flow: &FlowSettings, now: UnixMs) -> bool {
        let has_limit = || self.iter(now).any(|toggle| matches!(toggle.key, ToggleKey::Limit(Limit::Tps, _)));
        self.switch(Switch::Tps, now) != Some(false) && (flow.measures_tps() || has_limit())
    }

    /// Whether streams are asked for their token counts now. The switch comes first; where the option says `auto`, it goes
    /// with what is measured.
    pub fn asks_for_usage(&self, spec: &RouteSpec, now: UnixMs) -> bool {
        let RouteOptions { payload, flow, .. } = &spec.options();
        let without = || match payload.include_usage {
            IncludeUsage::Auto => self.measures_tps(flow, now),
            _ => payload.asks_for_usage(flow, spec.is_by_model()),
        };
        self.switch(Switch::IncludeUsage, now).unwrap_or_else(without)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Toggle;
    use super::*;
    use crate::route::parse_route;

    #[test]
    fn limits_that_are_set_have_token_counts_asked_for_while_tps_is_on_and_the_option_is_auto() {
        let tps = [("tps_limit_tps", "", "20")];
        let of_model = [("tps_limit_tps", "m", "20")];
        let off = [("tps", "", "off")];
        let off_with_limit = [off[0], tps[0]];
        let switched_off = [("include_usage", "", "off"), tps[0]];
        let switched_on = [("include_usage", "", "on"), off[0]];
        let ttft = [("ttft_limit_ms", "", "500")];
        for (options, set, is_asked) in [
            (json!({}), &[][..], false),
            (json!({}), &tps, true),
            (json!({}), &of_model, true),
            (json!({}), &ttft, false),
            (json!({}), &off_with_limit, false),
            (json!({}), &switched_off, false),
            (json!({"tps_limit_tps": 5}), &[], true),
            (json!({"tps_limit_tps": 5}), &off, false),
            (json!({"tps_limit_tps": 5}), &switched_on, true),
            (json!({"adaptive_cc": true, "tps_limit_tps": 5}), &off, false),
            (json!({"include_usage_default_enabled": "false"}), &tps, false),
            (json!({"include_usage_default_enabled": "true"}), &off, true),
        ] {
            let spec = parse_route(&json!({"name": "r", "options": options.clone()})).unwrap();
            let mut toggles = Toggles::default();
            for (name, model, value) in set {
                let key = ToggleKey::parse(name, model).unwrap();
                toggles.set(Toggle { value: key.parse_value(value).unwrap(), key, until: Some(UnixMs(10)) });
            }
            assert_eq!(toggles.asks_for_usage(&spec, UnixMs(9)), is_asked, "{options} {set:?}");
            let by_document = Switch::IncludeUsage.by_default(&spec);
            assert_eq!(toggles.asks_for_usage(&spec, UnixMs(10)), by_document, "{options}: their time is over");
        }
    }
}
