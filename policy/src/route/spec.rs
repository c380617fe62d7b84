//! A route that is valid by construction.

use super::priority::Priority;
use crate::ids::{BackendId, RouteName};
use crate::option::{OptionSet, Preset, RouteOptions, Value};
use crate::reject::condition::{RuleText, describe};

const WINDOWS: &str = "backend_context_limits";

/// A checked route document.
#[derive(Debug, Clone, PartialEq)]
pub struct RouteSpec {
    /// Name and path prefix.
    pub name: RouteName,
    /// Also answers bare `/v1/...`.
    pub is_default: bool,
    /// Where unset options take their defaults from.
    pub preset: Preset,
    /// The options that the document sets.
    pub set: OptionSet,
    /// In the order written; no address twice.
    pub backends: Vec<BackendSpec>,
}

impl RouteSpec {
    /// Takes the entries of `backend_context_limits` out whose port is no backend's any more: for a change that removes
    /// backends, so that what they leave behind is no complaint.
    pub fn forget_windows_of_others(&mut self) {
        let Some(Value::Ports(windows)) = self.set.get_mut(WINDOWS) else { return };
        let before = windows.len();
        windows.retain(|port, _| self.backends.iter().any(|backend| backend.id.port() == *port));
        // One that was set to `none` stays set.
        if windows.len() < before && windows.is_empty() {
            self.set.remove(WINDOWS);
        }
    }

    /// Whether the route has a pool per model. Then every backend states its models.
    pub fn is_by_model(&self) -> bool {
        self.backends.iter().any(|backend| !backend.models.is_empty())
    }

    /// The models that the route has pools for, sorted.
    pub fn models(&self) -> Vec<&str> {
        let mut models: Vec<&str> =
            self.backends.iter().flat_map(|backend| &backend.models).map(String::as_str).collect();
        models.sort_unstable();
        models.dedup();
        models
    }

    /// Its rules in words, also of those that are not in force.
    pub fn rules(&self) -> Vec<RuleText> {
        match self.set.get("reject_rules") {
            Some(Value::RejectRules(rules)) => describe(rules),
            _ => Vec::new(),
        }
    }

    /// The effective options.
    pub fn options(&self) -> RouteOptions {
        RouteOptions::resolve(self.preset, &self.set)
    }
}

/// A backend as a route document states it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendSpec {
    /// Its identity.
    pub id: BackendId,
    /// A label for people and for `X-Routed-Peer`; unique in the route.
    pub name: Option<String>,
    /// In place of the route's `max_concurrency`.
    pub max_concurrency: Option<u32>,
    /// In place of the route's `health_probe_path`.
    pub health_path: Option<String>,
    /// Largest context in tokens.
    pub context_limit: Option<u64>,
    /// Data-parallel ranks.
    pub dp_size: Option<u32>,
    /// Its tier: the larger number is preferred.
    pub priority: Priority,
    /// The models that it serves, sorted; empty on a route that has one pool for all.
    pub models: Vec<String>,
}

impl BackendSpec {
    /// A backend with nothing stated but its address.
    pub fn new(id: BackendId) -> Self {
        Self {
            id,
            name: None,
            max_concurrency: None,
            health_path: None,
            context_limit: None,
            dp_size: None,
            priority: Priority::default(),
            models: Vec::new(),
        }
    }

    /// The context window in tokens that the backend is known to have: its own, else its port's in the options, else what
    /// all backends share. `None`: nobody has stated one.
    pub fn known_context(&self, options: &RouteOptions) -> Option<u64> {
        let by_port = || options.backend_context_limits.get(&self.id.port()).copied();
        self.context_limit.or_else(by_port).or(options.model_context_limit)
    }

    /// The data-parallel ranks that the router chooses from; `None` when it chooses none.
    pub fn ranks(&self, options: &RouteOptions) -> Option<u32> {
        self.dp_size.filter(|size| *size > 1 && !options.backend_managed_affinity)
    }

    /// Whether it serves this model; any, on a route that has one pool for all.
    pub fn serves(&self, model: &str) -> bool {
        self.models.is_empty() || self.models.iter().any(|own| own == model)
    }

    /// Whether an operator may mean this backend by `text`: its address or its name.
    pub fn answers_to(&self, text: &str) -> bool {
        self.id.as_str() == text || self.name.as_deref() == Some(text)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn windows_after_removal(windows: &[(u16, u64)]) -> Option<Value> {
        let set = Value::Ports(windows.iter().copied().collect());
        let mut spec = RouteSpec {
            name: RouteName::new("chat").unwrap(),
            is_default: false,
            preset: Preset::None,
            set: OptionSet::from([(WINDOWS, set)]),
            backends: vec![BackendSpec::new(BackendId::new("h:1").unwrap())],
        };
        spec.forget_windows_of_others();
        spec.set.remove(WINDOWS)
    }

    #[test]
    fn windows_go_with_the_last_backend_on_their_port() {
        assert_eq!(windows_after_removal(&[(1, 4096), (2, 8192)]), Some(Value::Ports(BTreeMap::from([(1, 4096)]))));
        assert_eq!(windows_after_removal(&[(2, 8192)]), None);
        assert_eq!(windows_after_removal(&[]), Some(Value::Ports(BTreeMap::new())), "`none` was said");
    }
}
