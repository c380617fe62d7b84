//! A route of the snapshot, with all that a request asks of it looked up beforehand.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use router_policy::body::transform::Transforms;
use router_policy::header::SESSION_TURN;
use router_policy::ids::RouteName;
use router_policy::option::RouteOptions;
use router_policy::option::catalogue::SESSION_SOURCES;
use router_policy::toggle::{Limit, Switch};
use router_proto::convert::{InvalidMessage, KnownRules};
use router_proto::v1;

use crate::metrics::{BackendMetrics, Metrics, RouteMetrics};

/// One route, ready for the request path.
#[derive(Debug)]
pub(crate) struct RouteEntry {
    pub(crate) name: RouteName,
    pub(crate) is_default: bool,
    pub(crate) options: RouteOptions,
    /// Headers that name a session: the route's own and all known ones. No backend sees them.
    pub(crate) session_headers: Vec<HeaderName>,
    /// Sessions are ranked by turn (`session_prio`, or the switch of that name).
    pub(crate) ranks_turns: bool,
    /// What is changed in bodies, whatever their path.
    pub(crate) transforms: Transforms,
    /// `reject_rules` are in force.
    pub(crate) rejects: bool,
    /// Of 100 requests, how many have their bodies captured where there is a collector; 0 when none has.
    pub(crate) bodylog_pct: f64,
    /// The models that have a pool, sorted; `None` on a route with one pool for all.
    pub(crate) models: Option<Vec<String>>,
    /// In the order of the document.
    pub(crate) backends: Vec<BackendEntry>,
    /// `host:port` → its place in `backends`.
    places: HashMap<Arc<str>, usize>,
    /// For the entry that takes this one's place.
    rules: KnownRules,
    pub(crate) metrics: Arc<RouteMetrics>,
}

/// What a replica knows about a backend.
#[derive(Debug, Clone)]
pub(crate) struct BackendEntry {
    /// `host:port`
    pub(crate) address: Arc<str>,
    /// `Host` upstream.
    pub(crate) host: HeaderValue,
    /// `X-Routed-Peer`: the backend's name, or its address.
    pub(crate) peer: HeaderValue,
    /// Nothing stood in its way when the control plane said so last.
    pub(crate) is_admitted: bool,
    /// The context window in tokens that it is known to have.
    pub(crate) context_limit: Option<u64>,
    /// The models that it serves; empty for all.
    models: Vec<String>,
    pub(crate) metrics: Arc<BackendMetrics>,
}

impl RouteEntry {
    /// `old`: the entry that this one takes the place of.
    pub(super) fn new(message: &v1::Route, old: Option<&Self>, metrics: &Metrics) -> Result<Self, InvalidMessage> {
        let unknown = KnownRules::default();
        let (spec, rules) = old.map_or(&unknown, |old| &old.rules).read_route(message)?;
        let options = spec.options();
        let is_by_model = spec.is_by_model();
        let mut session_headers: Vec<HeaderName> = options.session_sources.headers().cloned().collect();
        let known = SESSION_SOURCES.iter().filter_map(|source| source.strip_prefix("header."));
        for name in known.map(HeaderName::from_static) {
            if !session_headers.contains(&name) {
                session_headers.push(name);
            }
        }
        let is_on = |switch: Switch| {
            let switched = message.switches.get(switch.name()).map(|word| word == "on");
            switched.unwrap_or_else(|| switch.by_options(&options, is_by_model))
        };
        let ranks_turns = is_on(Switch::SessionPrio);
        // Where it means nothing it is a header like any other.
        if ranks_turns {
            session_headers.push(SESSION_TURN);
        }
        let transforms = Transforms {
            cch_strip: is_on(Switch::CchStrip),
            kimi_normalize: is_on(Switch::KimiNormalize).then_some(options.payload.kimi_strategy),
            include_usage: is_on(Switch::IncludeUsage),
            system_hoist: is_on(Switch::SystemHoist),
        };
        let rejects = is_on(Switch::RejectRules) && !options.payload.reject_rules.is_empty();
        let pct = message.switches.get(Limit::BodyLogPct.name()).and_then(|number| number.parse().ok());
        let bodylog_pct = if is_on(Switch::BodyLog) { pct.unwrap_or(options.payload.bodylog_pct) } else { 0.0 };
        let models = is_by_model.then(|| spec.models().into_iter().map(str::to_owned).collect());
        // Each backend of the spec was made of the message's at the same place.
        let stated = spec.backends.iter().zip(&message.backends);
        let backends: Vec<BackendEntry> = stated
            .map(|(backend, stated)| BackendEntry {
                is_admitted: stated.condition.is_none_or(|condition| !is_in_the_way(condition)),
                context_limit: backend.context_limit,
                models: backend.models.clone(),
                metrics: metrics.backend(&spec.name, backend.id.as_str()),
                ..BackendEntry::new(backend.id.as_str(), backend.name.as_deref())
            })
            .collect();
        let places =
            backends.iter().enumerate().map(|(place, backend)| (Arc::clone(&backend.address), place)).collect();
        let metrics = metrics.route(&spec.name);
        metrics.payload.keep_rules(spec.rules().iter().map(|rule| rule.name().to_owned()));
        Ok(Self {
            name: spec.name,
            is_default: spec.is_default,
            options,
            session_headers,
            ranks_turns,
            transforms,
            rejects,
            bodylog_pct,
            models,
            backends,
            places,
            rules,
            metrics,
        })
    }

    /// The backend of a grant. One that the snapshot doesn't know yet (the grant was faster) goes by its address.
    pub(crate) fn backend(&self, address: &str) -> Cow<'_, BackendEntry> {
        match self.places.get(address).and_then(|place| self.backends.get(*place)) {
            Some(known) => Cow::Borrowed(known),
            None => Cow::Owned(BackendEntry::new(address, None)),
        }
    }

    /// Whether a backend of the document has this address.
    pub(super) fn has_backend(&self, address: &str) -> bool {
        self.places.contains_key(address)
    }

    /// The backends that serve a model, in the order of the document.
    pub(crate) fn pool(&self, model: &str) -> impl Iterator<Item = &BackendEntry> {
        self.backends.iter().filter(move |backend| {
            // A route is by model as a whole, so an empty list there serves none.
            self.models.is_none() || backend.models.iter().any(|served| served == model)
        })
    }
}

impl BackendEntry {
    fn new(address: &str, name: Option<&str>) -> Self {
        let host = HeaderValue::from_str(address).unwrap_or(HeaderValue::from_static("backend"));
        let peer = name.and_then(|name| HeaderValue::from_str(name).ok()).unwrap_or_else(|| host.clone());
        Self {
            address: address.into(),
            host,
            peer,
            is_admitted: false,
            context_limit: None,
            models: Vec::new(),
            metrics: Arc::default(),
        }
    }
}

/// Whether the backend is kept from new requests.
fn is_in_the_way(condition: v1::Condition) -> bool {
    let v1::Condition { unhealthy, draining, banned, removed } = condition;
    unhealthy || draining || banned || removed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route() -> v1::Route {
        v1::Route { name: "a".into(), ..Default::default() }
    }

    #[test]
    fn backends_keep_their_order_and_only_those_with_nothing_in_their_way_are_admitted() {
        let none = v1::Condition::default();
        let conditions = [
            None,
            Some(none),
            Some(v1::Condition { unhealthy: true, ..none }),
            Some(v1::Condition { draining: true, ..none }),
            Some(v1::Condition { banned: true, ..none }),
            Some(v1::Condition { removed: true, ..none }),
        ];
        let mut message = route();
        message.backends = (1_u64..)
            .zip(conditions)
            .map(|(number, condition)| v1::Backend {
                address: format!("h:{number}"),
                condition,
                context_limit: number - 1,
                ..Default::default()
            })
            .collect();
        let entry = RouteEntry::new(&message, None, &Metrics::new()).unwrap();
        let shown: Vec<_> = entry
            .backends
            .iter()
            .map(|backend| (backend.address.as_ref(), backend.is_admitted, backend.context_limit))
            .collect();
        assert_eq!(shown[..3], [("h:1", true, None), ("h:2", true, Some(1)), ("h:3", false, Some(2))]);
        assert!(shown[3..].iter().all(|(_, is_admitted, _)| !is_admitted));
        assert_eq!(entry.backend("h:2").context_limit, Some(1));
    }

    #[test]
    fn limits_9_the_switch_comes_before_the_option_and_the_header_is_a_session_s_only_while_it_is_on() {
        for (option, switch, is_on) in [
            (None, None, false),
            (Some("true"), None, true),
            (Some("true"), Some("off"), false),
            (None, Some("on"), true),
        ] {
            let mut message = route();
            message.options.extend(option.map(|value| ("session_prio".to_owned(), value.to_owned())));
            message.switches.extend(switch.map(|value| ("session_prio".to_owned(), value.to_owned())));
            let entry = RouteEntry::new(&message, None, &Metrics::new()).unwrap();
            let is_stripped = entry.session_headers.contains(&SESSION_TURN);
            assert_eq!((entry.ranks_turns, is_stripped), (is_on, is_on), "{option:?} {switch:?}");
        }
    }

    #[test]
    fn pools_by_model_and_one_for_all() {
        let served = |address: &str, models: &[&str]| v1::Backend {
            address: address.into(),
            models: models.iter().map(|model| (*model).to_owned()).collect(),
            ..Default::default()
        };
        let mut message = route();
        message.backends = vec![served("h:1", &["b", "a"]), served("h:2", &["b"])];
        let by_model = RouteEntry::new(&message, None, &Metrics::new()).unwrap();
        let pool = |entry: &RouteEntry, model: &str| -> Vec<String> {
            entry.pool(model).map(|backend| backend.address.to_string()).collect()
        };
        assert_eq!(by_model.models.as_deref().unwrap(), ["a", "b"]);
        assert_eq!(pool(&by_model, "a"), ["h:1"]);
        assert_eq!(pool(&by_model, "b"), ["h:1", "h:2"]);
        assert!(pool(&by_model, "").is_empty());
        message.backends = vec![served("h:1", &[]), served("h:2", &[])];
        let flat = RouteEntry::new(&message, None, &Metrics::new()).unwrap();
        assert!(flat.models.is_none());
        assert_eq!(pool(&flat, "whatever"), ["h:1", "h:2"]);
    }

    #[test]
    fn all_known_session_headers_are_stripped_whatever_the_route_reads() {
        let metrics = Metrics::new();
        let mut message = route();
        message.options.insert("session_sources".into(), "body.user".into());
        message.options.insert("extra_session_headers".into(), "x-smg-routing-key".into());
        let entry = RouteEntry::new(&message, None, &metrics).unwrap();
        for name in ["x-session-id", "x-session-affinity", "x-smg-routing-key"] {
            assert!(entry.session_headers.iter().any(|header| header == name), "{name}");
        }
    }

    #[test]
    fn rules_are_made_ready_once_for_each_text_and_syntax() {
        let metrics = Metrics::new();
        let rules = |entry: &RouteEntry| entry.options.payload.reject_rules.clone();
        let mut message = route();
        let text = r#"[{"field":"model","op":"match","value":"^a"}]"#;
        message.options.insert("reject_rules".into(), text.into());
        let first = RouteEntry::new(&message, None, &metrics).unwrap();
        message.switches.insert("reject_rules".into(), "on".into());
        let second = RouteEntry::new(&message, Some(&first), &metrics).unwrap();
        assert!(second.rejects && rules(&second).is_same_as(&rules(&first)));
        assert!(!rules(&RouteEntry::new(&message, None, &metrics).unwrap()).is_same_as(&rules(&first)), "the control");
        let third = RouteEntry::new(&message, Some(&second), &metrics).unwrap();
        assert!(rules(&third).is_same_as(&rules(&first)), "over any number of changes");
        let mut lua = message.clone();
        lua.options.insert("match_syntax".into(), "lua".into());
        let lua = RouteEntry::new(&lua, Some(&third), &metrics).unwrap();
        assert!(!rules(&lua).is_same_as(&rules(&third)));
        message.options.insert("reject_rules".into(), text.replace("^a", "^b"));
        let other = RouteEntry::new(&message, Some(&third), &metrics).unwrap();
        assert!(
            rules(&other).judge(br#"{"model":"b"}"#).is_some() && rules(&third).judge(br#"{"model":"b"}"#).is_none()
        );
        message.options.remove("reject_rules");
        assert!(rules(&RouteEntry::new(&message, Some(&other), &metrics).unwrap()).is_empty());
    }
}
