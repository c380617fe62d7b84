//! A route that is valid by construction.

use crate::ids::{BackendId, RouteName};
use crate::option::{OptionSet, Preset, RouteOptions};

/// A checked route document.
#[derive(Debug, Clone, PartialEq, Eq)]
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
}

impl BackendSpec {
    /// A backend with nothing stated but its address.
    pub fn new(id: BackendId) -> Self {
        Self { id, name: None, max_concurrency: None, health_path: None, context_limit: None, dp_size: None }
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

    /// Whether an operator may mean this backend by `text`: its address or its name.
    pub fn answers_to(&self, text: &str) -> bool {
        self.id.as_str() == text || self.name.as_deref() == Some(text)
    }
}
