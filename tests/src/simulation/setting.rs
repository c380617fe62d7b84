//! The routes that are compared, written as a route writes its options.

use anyhow::Context as _;
use router_policy::option::{OptionSet, Preset, RouteOptions, find};

/// One route.
#[derive(Debug, Clone)]
pub struct Setting {
    /// Its name in the results.
    pub name: &'static str,
    /// Its options.
    pub options: RouteOptions,
}

/// Options as texts.
type Texts = &'static [(&'static str, &'static str)];

/// An operator's guess: far more than a backend serves within the objectives.
const STATIC: Texts = &[("max_concurrency", "64")];

const NO_AFFINITY: Texts = &[("affinity", "off")];

/// The limit follows what is measured. The TPS threshold is the first bucket bound above the objective, as the statistic is
/// the upper bound of its bucket. Slow first tokens lower the limit, and refuse nobody by themselves.
const ADAPTIVE: Texts = &[
    ("adaptive_cc", "true"),
    ("adaptive_cc_min_frac", "0.1"),
    ("adaptive_cc_init_frac", "0.25"),
    ("tps_limit_tps", "20"),
    ("ttft_limit_ms", "3000"),
    ("ttft_429_default_enabled", "false"),
];

const TURN_PRIORITY: Texts = &[("session_prio", "true")];

/// What the settings are made of.
const SETTINGS: [(&str, &[Texts]); 4] = [
    ("no affinity, static limits", &[STATIC, NO_AFFINITY]),
    ("static limits", &[STATIC]),
    ("adaptive limits", &[STATIC, ADAPTIVE]),
    ("adaptive, turn priority", &[STATIC, ADAPTIVE, TURN_PRIORITY]),
];

/// The settings in the order in which they are shown. Those that are adaptive have `more` (`NAME=VALUE`) on top.
pub fn settings(more: &[String]) -> anyhow::Result<Vec<Setting>> {
    let more = more.iter().map(|text| text.split_once('=').with_context(|| format!("{text}: NAME=VALUE expected")));
    let more: Vec<(&str, &str)> = more.collect::<anyhow::Result<_>>()?;
    let setting = |(name, parts): (&'static str, &[Texts])| {
        let more: &[(&str, &str)] = if parts.contains(&ADAPTIVE) { &more } else { &[] };
        let mut set = OptionSet::new();
        for (option, text) in parts.iter().copied().flatten().chain(more) {
            let known = find(option).with_context(|| format!("{option}: no such option"))?;
            let value = known.kind.parse_text(text).map_err(|error| anyhow::anyhow!("{option}={text}: {error}"))?;
            set.insert(known.name, value);
        }
        Ok(Setting { name, options: RouteOptions::resolve(Preset::None, &set) })
    };
    SETTINGS.into_iter().map(setting).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_routes() {
        let known = settings(&["queue_timeout=1s".to_owned()]).unwrap();
        assert!(known.iter().all(|setting| setting.options.max_concurrency == 64));
        let of = |name| known.iter().find(|setting| setting.name == name).unwrap();
        assert_eq!(of("adaptive limits").options.queue_timeout.as_secs(), 1);
        assert_eq!(of("static limits").options.queue_timeout.as_secs(), 5);
        assert!(settings(&["max_concurrency".to_owned()]).is_err());
        assert!(settings(&["no_option=1".to_owned()]).is_err());
        assert!(settings(&["max_concurrency=many".to_owned()]).is_err());
    }
}
