//! What the Admin service carries.

use router_policy::route::{Action, BackendSpec, FieldChange, Priority, RouteChange};
use serde_json::{Map, Value as Json, json};

use crate::v1;

impl From<RouteChange> for v1::RouteChange {
    fn from(change: RouteChange) -> Self {
        let action = match change.action {
            Action::Added => v1::route_change::Action::Added,
            Action::Changed => v1::route_change::Action::Changed,
            Action::Removed => v1::route_change::Action::Removed,
        };
        Self {
            route: change.route.to_string(),
            action: action.into(),
            fields: change.fields.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<FieldChange> for v1::FieldChange {
    fn from(change: FieldChange) -> Self {
        Self { field: change.field, before: change.before, after: change.after }
    }
}

impl From<&BackendSpec> for v1::BackendSpec {
    fn from(backend: &BackendSpec) -> Self {
        Self {
            address: backend.id.to_string(),
            name: backend.name.clone(),
            max_concurrency: backend.max_concurrency,
            health_path: backend.health_path.clone(),
            context_limit: backend.context_limit,
            dp_size: backend.dp_size,
            priority_thousandths: Some(backend.priority.thousandths()),
            models: Some(v1::ModelNames { names: backend.models.clone() }),
        }
    }
}

/// The backend object of a route document, for the one validator to check. Absent fields are left out.
impl From<&v1::BackendSpec> for Map<String, Json> {
    fn from(backend: &v1::BackendSpec) -> Self {
        let fields = [
            ("name", backend.name.as_ref().map(|text| json!(text))),
            ("max_concurrency", backend.max_concurrency.map(|number| json!(number))),
            ("health_path", backend.health_path.as_ref().map(|text| json!(text))),
            ("context_limit", backend.context_limit.map(|number| json!(number))),
            ("dp_size", backend.dp_size.map(|number| json!(number))),
            ("priority", backend.priority_thousandths.map(|number| Priority::from_thousandths(number).json())),
            ("models", backend.models.as_ref().map(|models| json!(models.names))),
        ];
        let mut object = Self::from_iter([("address".to_owned(), json!(backend.address))]);
        object.extend(fields.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
        object
    }
}
