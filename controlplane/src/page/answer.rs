//! What a page answers with, and the one place where an operator's error becomes an HTTP status.

use router_policy::route::Priority;
use router_proto::v1;
use serde_json::{Map, Value as Json, json};

use crate::error::AdminError;

/// A status and a JSON object, in the order in which it was made.
pub(super) struct Answer {
    status: u32,
    object: Map<String, Json>,
    active: Option<Priority>,
    /// Of a page whose own `scope` is another thing.
    has_own_scope: bool,
}

impl Answer {
    /// 200 with nothing in it yet.
    pub(super) fn ok() -> Self {
        Self { status: 200, object: Map::new(), active: None, has_own_scope: false }
    }

    /// 200 about a route.
    pub(super) fn of(route: &str) -> Self {
        Self::ok().with("route", route)
    }

    pub(super) fn error(status: u32, error: &str) -> Self {
        Self { status, ..Self::ok() }.with("error", error)
    }

    /// An operator's call was turned down.
    pub(super) fn turned_down(route: &str, error: &AdminError) -> Self {
        let status = match error {
            AdminError::Invalid(_) | AdminError::Argument { .. } => 400,
            AdminError::NotFound { .. } | AdminError::NothingSelected { .. } => 404,
            AdminError::Exists { .. } | AdminError::Precondition(_) => 409,
            AdminError::Store(store) if store.is_transient() => 503,
            AdminError::Store(_) | AdminError::Unfinished => 500,
        };
        Self { status, ..Self::of(route) }.with("ok", false).with("error", error.to_string())
    }

    /// Nobody serves the route.
    pub(super) fn no_peers(route: &str) -> Self {
        Self::error(503, "no peers configured").with("route", route)
    }

    pub(super) fn with(mut self, key: &str, value: impl Into<Json>) -> Self {
        self.object.insert(key.to_owned(), value.into());
        self
    }

    /// Leaves the key out when there is no value.
    pub(super) fn with_some(self, key: &str, value: Option<impl Into<Json>>) -> Self {
        match value {
            Some(value) => self.with(key, value),
            None => self,
        }
    }

    /// The tier that takes requests: in the object and for `X-Routed-Active-Level`.
    pub(super) fn with_active(mut self, active: Option<Priority>) -> Self {
        self.active = active;
        self.with_some("active_level", active.map(Priority::json))
    }

    /// Its `scope` is the session router's, a route's name or `all`.
    pub(super) fn with_scope(mut self, scope: &str) -> Self {
        self.has_own_scope = true;
        self.with("scope", scope)
    }

    pub(super) fn reply(mut self) -> v1::PageReply {
        if self.has_own_scope {
            self.object.insert("fleet".to_owned(), json!(true));
        } else {
            self.object.insert("scope".to_owned(), json!("fleet"));
        }
        v1::PageReply {
            http_status: self.status,
            json: Json::Object(self.object).to_string(),
            active_level: self.active.map(|active| active.to_string()).unwrap_or_default(),
        }
    }
}

/// An object from pairs some of which have no value.
pub(super) fn object<'a>(pairs: impl IntoIterator<Item = (&'a str, Option<Json>)>) -> Json {
    pairs.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect::<Map<_, _>>().into()
}
