//! Everything that is set on one route. What is set for a time lies over what was set until undone, and uncovers it again
//! when its time is over.

use std::collections::BTreeMap;

use super::{Limit, Switch, Toggle, ToggleKey, ToggleValue};
use crate::flow::UnixMs;

/// Everything that is set on one route.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Toggles(BTreeMap<ToggleKey, Held>);

/// What is set of one key; never neither.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Held {
    /// For a time.
    timed: Option<(ToggleValue, UnixMs)>,
    /// Until it is undone.
    standing: Option<ToggleValue>,
}

impl Held {
    fn in_force(&self, now: UnixMs) -> Option<(ToggleValue, Option<UnixMs>)> {
        let timed = self.timed.filter(|(_, until)| now < *until).map(|(value, until)| (value, Some(until)));
        timed.or_else(|| self.standing.map(|value| (value, None)))
    }
}

impl Toggles {
    /// Sets one. What was set for a time goes; what was set until undone goes too, unless this one is for a time: then it
    /// holds again afterwards.
    pub fn set(&mut self, toggle: Toggle) {
        let held = self.0.entry(toggle.key).or_default();
        *held = match toggle.until {
            Some(until) => Held { timed: Some((toggle.value, until)), ..*held },
            None => Held { timed: None, standing: Some(toggle.value) },
        };
    }

    /// Undoes all that is set of one; whether anything was.
    pub fn reset(&mut self, key: &ToggleKey) -> bool {
        self.0.remove(key).is_some()
    }

    /// What is set now, in order of name.
    pub fn iter(&self, now: UnixMs) -> impl Iterator<Item = Toggle> {
        self.0.iter().filter_map(move |(key, held)| {
            let (value, until) = held.in_force(now)?;
            Some(Toggle { key: key.clone(), value, until })
        })
    }

    /// What was set until undone, whatever lies over it for a time.
    pub fn standing(&self, key: &ToggleKey) -> Option<ToggleValue> {
        self.0.get(key)?.standing
    }

    /// A switch, where it is set.
    pub fn switch(&self, switch: Switch, now: UnixMs) -> Option<bool> {
        match self.get(&ToggleKey::Switch(switch), now) {
            Some(ToggleValue::On(is_on)) => Some(is_on),
            _ => None,
        }
    }

    /// A limit, where it is set: the model's own, else the route's.
    pub fn limit(&self, limit: Limit, model: Option<&str>, now: UnixMs) -> Option<f64> {
        let own = model.and_then(|model| self.get(&ToggleKey::Limit(limit, Some(model.to_owned())), now));
        match own.or_else(|| self.get(&ToggleKey::Limit(limit, None), now)) {
            Some(ToggleValue::Number(number)) => Some(number),
            _ => None,
        }
    }

    /// Takes out what has undone itself.
    pub fn expire(&mut self, now: UnixMs) -> Vec<ToggleKey> {
        let mut over = Vec::new();
        self.0.retain(|key, held| {
            if held.timed.take_if(|(_, until)| *until <= now).is_some() {
                over.push(key.clone());
            }
            *held != Held::default()
        });
        over
    }

    /// When the next one undoes itself.
    pub fn next_expiry(&self) -> Option<UnixMs> {
        self.0.values().filter_map(|held| held.timed.map(|(_, until)| until)).min()
    }

    fn get(&self, key: &ToggleKey, now: UnixMs) -> Option<ToggleValue> {
        self.0.get(key)?.in_force(now).map(|(value, _)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toggle(name: &str, model: &str, value: &str, until: Option<u64>) -> Toggle {
        let key = ToggleKey::parse(name, model).unwrap();
        let value = key.parse_value(value).unwrap();
        Toggle { key, value, until: until.map(UnixMs) }
    }

    #[test]
    fn what_is_set_for_a_time_undoes_itself() {
        let mut toggles = Toggles::default();
        toggles.set(toggle("load_rate_limit", "", "off", Some(1000)));
        toggles.set(toggle("ttft", "", "off", None));
        assert_eq!(toggles.switch(Switch::LoadRateLimit, UnixMs(999)), Some(false));
        assert_eq!(toggles.switch(Switch::LoadRateLimit, UnixMs(1000)), None);
        assert_eq!(toggles.next_expiry(), Some(UnixMs(1000)));
        assert!(toggles.expire(UnixMs(999)).is_empty());
        assert_eq!(toggles.expire(UnixMs(1000)), [ToggleKey::Switch(Switch::LoadRateLimit)]);
        assert_eq!(toggles.switch(Switch::LoadRateLimit, UnixMs(0)), None, "it is gone, not only over");
        assert_eq!(toggles.switch(Switch::Ttft, UnixMs(u64::MAX)), Some(false), "the other stays");
        assert!(toggles.reset(&ToggleKey::Switch(Switch::Ttft)) && !toggles.reset(&ToggleKey::Switch(Switch::Ttft)));
    }

    #[test]
    fn after_its_time_the_standing_value_holds_again() {
        let key = ToggleKey::Switch(Switch::RejectRules);
        let mut toggles = Toggles::default();
        toggles.set(toggle("reject_rules", "", "on", None));
        toggles.set(toggle("reject_rules", "", "off", Some(500)));
        toggles.set(toggle("reject_rules", "", "off", Some(1000)));
        let seen = |toggles: &Toggles, now| toggles.iter(UnixMs(now)).collect::<Vec<_>>();
        let standing = toggle("reject_rules", "", "on", None);
        assert_eq!(toggles.switch(Switch::RejectRules, UnixMs(999)), Some(false));
        assert_eq!(seen(&toggles, 999), [toggle("reject_rules", "", "off", Some(1000))]);
        assert_eq!(toggles.switch(Switch::RejectRules, UnixMs(1000)), Some(true), "also before it is taken out");
        assert_eq!(seen(&toggles, 1000), std::slice::from_ref(&standing));
        assert_eq!(toggles.expire(UnixMs(1000)), std::slice::from_ref(&key));
        assert_eq!((seen(&toggles, 0), toggles.next_expiry()), (vec![standing], None));
        assert!(toggles.expire(UnixMs(u64::MAX)).is_empty());

        toggles.set(toggle("reject_rules", "", "off", Some(1000)));
        assert_eq!(toggles.standing(&key), Some(ToggleValue::On(true)));
        toggles.set(toggle("reject_rules", "", "off", None));
        assert_eq!(
            toggles.switch(Switch::RejectRules, UnixMs(2000)),
            Some(false),
            "set until undone: it replaces both"
        );
        toggles.set(toggle("reject_rules", "", "on", Some(1000)));
        assert!(toggles.reset(&key), "undoes both");
        assert_eq!(toggles, Toggles::default());
    }

    #[test]
    fn limits_come_back_too_each_model_s_its_own() {
        let mut toggles = Toggles::default();
        toggles.set(toggle("ttft_limit_ms", "m", "900", None));
        toggles.set(toggle("ttft_limit_ms", "m", "100", Some(10)));
        toggles.set(toggle("ttft_limit_ms", "", "500", Some(10)));
        let limit = |model, now| toggles.limit(Limit::TtftMs, model, UnixMs(now));
        assert_eq!((limit(Some("m"), 9), limit(None, 9)), (Some(100.0), Some(500.0)));
        assert_eq!((limit(Some("m"), 10), limit(None, 10)), (Some(900.0), None));
    }

    #[test]
    fn a_model_s_limit_comes_before_the_route_s() {
        let mut toggles = Toggles::default();
        toggles.set(toggle("ttft_limit_ms", "", "500", None));
        toggles.set(toggle("ttft_limit_ms", "m", "900", Some(10)));
        let limit = |model, now| toggles.limit(Limit::TtftMs, model, UnixMs(now));
        assert_eq!(limit(Some("m"), 9), Some(900.0));
        assert_eq!(limit(Some("m"), 10), Some(500.0), "its own is over");
        assert_eq!(limit(Some("other"), 9), Some(500.0));
        assert_eq!(toggles.limit(Limit::Tps, Some("m"), UnixMs(9)), None);
    }
}
