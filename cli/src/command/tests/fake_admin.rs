//! An Admin service in memory: enough of one to see that verbs ask for the right thing and read the answer right. Route
//! documents are real; counters are what a test sets.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};

use futures_core::Stream;
use router_policy::ids::RouteName;
use router_policy::option::resolved::effective;
use router_policy::route::diff::diff_route;
use router_policy::route::raw::document_json;
use router_policy::route::validate::{parse_backend, parse_option};
use router_policy::route::{Priority, RouteSpec, parse_document};
use router_proto::v1;
use router_proto::v1::admin_server::{Admin, AdminServer};
use serde_json::{Map, Value as Json};
use tokio::sync::watch;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

/// What the fake knows.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) routes: BTreeMap<RouteName, RouteSpec>,
    pub(crate) drained: BTreeSet<String>,
    /// Those that the last apply brought in drained.
    pub(crate) start_drained: Vec<String>,
    pub(crate) bans: BTreeMap<String, u64>,
    /// By address.
    pub(crate) in_flight: BTreeMap<String, u32>,
    pub(crate) keys: Vec<(v1::KeyState, Vec<u8>)>,
    /// Told with a revoked key.
    pub(crate) revoke_note: String,
    pub(crate) files: Vec<v1::FileState>,
    pub(crate) sessions: Vec<v1::SessionState>,
    /// By route; no entry for nothing.
    pub(crate) toggles: BTreeMap<String, Vec<v1::ToggleState>>,
    /// Routes that refuse every toggle.
    pub(crate) no_toggles: BTreeSet<String>,
    /// Told when one is set.
    pub(crate) toggle_note: String,
    /// Of every route.
    pub(crate) pools: Vec<v1::PoolState>,
    /// The answer to every `explain`, and what was last asked.
    pub(crate) explained: v1::ExplainReply,
    pub(crate) asked: v1::ExplainRequest,
    /// `authorization` of the last call.
    pub(crate) authorization: Option<String>,
}

/// A handle on the running fake.
#[derive(Clone)]
pub(crate) struct Fake {
    state: Arc<Mutex<State>>,
    /// Sent at each change of what watchers see.
    changed: watch::Sender<()>,
}

type Reply<T> = Result<Response<T>, Status>;

impl Fake {
    /// Starts it on a free port.
    pub(crate) async fn start() -> (Self, SocketAddr) {
        let fake = Self { state: Arc::default(), changed: watch::Sender::new(()) };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = AdminServer::new(fake.clone());
        let server = tonic::transport::Server::builder().add_service(service);
        // Ends with the test's runtime.
        tokio_util::task::TaskTracker::new().spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
        (fake, address)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Changes the state and tells watchers.
    pub(crate) fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.send_replace(());
    }
}

impl State {
    fn route(&self, name: &str) -> Result<RouteSpec, Status> {
        let found = RouteName::new(name).ok().and_then(|name| self.routes.get(&name).cloned());
        found.ok_or_else(|| Status::not_found(format!("route {name}")))
    }

    fn backends(&self, selector: &v1::BackendSelector) -> Vec<v1::BackendState> {
        let of_route = |route: &RouteSpec| {
            let states = route.backends.iter().map(|backend| v1::BackendState {
                route: route.name.to_string(),
                address: backend.id.to_string(),
                name: backend.name.clone().unwrap_or_default(),
                condition: Some(v1::Condition {
                    draining: self.drained.contains(backend.id.as_str()),
                    banned: self.bans.contains_key(backend.id.as_str()),
                    ..Default::default()
                }),
                ban_left_ms: self.bans.get(backend.id.as_str()).copied().unwrap_or(0),
                in_flight: self.in_flight.get(backend.id.as_str()).copied().unwrap_or(0),
                limit: backend.max_concurrency.unwrap_or(route.options().max_concurrency),
                priority_thousandths: backend.priority.thousandths(),
                models: backend.models.clone(),
                ..Default::default()
            });
            states.collect::<Vec<_>>()
        };
        let matches = |state: &v1::BackendState| {
            (selector.port == 0 || state.address.ends_with(&format!(":{}", selector.port)))
                && (selector.backend.is_empty() || [&state.address, &state.name].contains(&&selector.backend))
                && (selector.route.is_empty() || state.route == selector.route)
        };
        self.routes.values().flat_map(of_route).filter(matches).collect()
    }

    fn selected(&self, selector: Option<v1::BackendSelector>) -> Result<Vec<v1::BackendState>, Status> {
        let backends = self.backends(&selector.unwrap_or_default());
        if backends.is_empty() { Err(Status::not_found("no backend matches")) } else { Ok(backends) }
    }

    fn route_state(&self, route: &RouteSpec) -> v1::RouteState {
        let options = effective(route.preset, &route.set).into_iter();
        v1::RouteState {
            name: route.name.to_string(),
            is_default: route.is_default,
            options: options
                .map(|(name, value, is_set)| v1::OptionState { name: name.to_owned(), value, is_set })
                .collect(),
            backends: self.backends(&v1::BackendSelector { route: route.name.to_string(), ..Default::default() }),
            toggles: self.toggles.get(route.name.as_str()).cloned().unwrap_or_default(),
            pools: self.pools.clone(),
            ..Default::default()
        }
    }

    /// Stores a changed route and says what changed.
    fn store(&mut self, route: RouteSpec) -> Vec<v1::FieldChange> {
        let change = diff_route(self.routes.get(&route.name), Some(&route));
        self.routes.insert(route.name.clone(), route);
        change.map(|change| change.fields.into_iter().map(Into::into).collect()).unwrap_or_default()
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it stands in `map_err`")]
fn invalid(problem: impl ToString) -> Status {
    Status::invalid_argument(problem.to_string())
}

#[tonic::async_trait]
impl Admin for Fake {
    async fn apply(&self, request: Request<v1::ApplyRequest>) -> Reply<v1::ApplyReply> {
        let request = request.into_inner();
        let document: Json = serde_json::from_str(&request.document_json).map_err(invalid)?;
        let routes = parse_document(&document).map_err(invalid)?;
        let mut state = self.state();
        let mut changes = Vec::new();
        if request.prune {
            let gone = state.routes.values().filter(|old| routes.iter().all(|new| new.name != old.name));
            changes.extend(gone.filter_map(|old| diff_route(Some(old), None)));
        }
        for route in &routes {
            if request.create_only && state.routes.contains_key(&route.name) {
                return Err(Status::already_exists(format!("route {} exists", route.name)));
            }
            changes.extend(diff_route(state.routes.get(&route.name), Some(route)));
        }
        if !request.dry_run {
            let has = |route: &RouteSpec, address: &str| route.backends.iter().any(|one| one.id.as_str() == address);
            let is_new = |address: &String| {
                let old = |route: &RouteSpec| state.routes.get(&route.name).is_some_and(|old| has(old, address));
                routes.iter().any(|route| has(route, address) && !old(route))
            };
            let start_drained: Vec<String> = request.drained.into_iter().filter(is_new).collect();
            state.start_drained.clone_from(&start_drained);
            state.drained.extend(start_drained);
            if request.prune {
                state.routes.clear();
            }
            state.routes.extend(routes.into_iter().map(|route| (route.name.clone(), route)));
        }
        Ok(Response::new(v1::ApplyReply { changes: changes.into_iter().map(Into::into).collect() }))
    }

    async fn export(&self, request: Request<v1::ExportRequest>) -> Reply<v1::ExportReply> {
        let (state, name) = (self.state(), request.into_inner().route);
        let routes = if name.is_empty() { state.routes.values().cloned().collect() } else { vec![state.route(&name)?] };
        Ok(Response::new(v1::ExportReply { document_json: document_json(&routes).to_string() }))
    }

    async fn list_routes(&self, request: Request<v1::ListRoutesRequest>) -> Reply<v1::ListRoutesReply> {
        let (state, name) = (self.state(), request.into_inner().route);
        let routes = if name.is_empty() { state.routes.values().cloned().collect() } else { vec![state.route(&name)?] };
        Ok(Response::new(v1::ListRoutesReply { routes: routes.iter().map(|route| state.route_state(route)).collect() }))
    }

    async fn remove_route(&self, request: Request<v1::RemoveRouteRequest>) -> Reply<v1::RemoveRouteReply> {
        let mut state = self.state();
        let route = state.route(&request.into_inner().route)?;
        state.routes.remove(&route.name);
        Ok(Response::new(v1::RemoveRouteReply { in_flight: 1, sessions_forgotten: 2 }))
    }

    async fn set_route(&self, request: Request<v1::SetRouteRequest>) -> Reply<v1::SetRouteReply> {
        let (mut state, request) = (self.state(), request.into_inner());
        let mut route = state.route(&request.route)?;
        for (name, value) in request.set {
            if name == "default" {
                route.is_default = value == "true";
            } else {
                let (name, value) = parse_option(&name, &Json::String(value)).map_err(invalid)?;
                route.set.insert(name, value);
            }
        }
        route.set.retain(|name, _| !request.unset.iter().any(|gone| gone == name));
        Ok(Response::new(v1::SetRouteReply { fields: state.store(route) }))
    }

    async fn set_toggle(&self, request: Request<v1::SetToggleRequest>) -> Reply<v1::SetToggleReply> {
        let (mut state, request) = (self.state(), request.into_inner());
        state.route(&request.route)?;
        if state.no_toggles.contains(&request.route) {
            return Err(Status::failed_precondition("not today"));
        }
        let v1::SetToggleRequest { route, name, model, value, ttl_ms, reset } = request;
        let mut toggles = state.toggles.remove(&route).unwrap_or_default();
        let mut then = String::new();
        toggles.retain(|one| {
            let is_other = (&one.name, &one.model) != (&name, &model);
            if !is_other && ttl_ms > 0 {
                then.clone_from(if one.left_ms == 0 { &one.value } else { &one.then });
            }
            is_other
        });
        if !reset {
            toggles.push(v1::ToggleState { name, model, value, left_ms: ttl_ms, then });
        }
        if !toggles.is_empty() {
            state.toggles.insert(route, toggles.clone());
        }
        Ok(Response::new(v1::SetToggleReply { toggles, note: state.toggle_note.clone() }))
    }

    async fn explain(&self, request: Request<v1::ExplainRequest>) -> Reply<v1::ExplainReply> {
        let mut state = self.state();
        state.asked = request.into_inner();
        state.route(&state.asked.route)?;
        Ok(Response::new(state.explained.clone()))
    }

    async fn add_backend(&self, request: Request<v1::AddBackendRequest>) -> Reply<v1::AddBackendReply> {
        let (mut state, request) = (self.state(), request.into_inner());
        let mut route = state.route(&request.route)?;
        let document = Json::Object(Map::from(&request.backend.unwrap_or_default()));
        route.backends.push(parse_backend("backend", &document).map_err(invalid)?);
        state.store(route);
        Ok(Response::new(v1::AddBackendReply {}))
    }

    async fn set_backend(&self, request: Request<v1::SetBackendRequest>) -> Reply<v1::SetBackendReply> {
        let (mut state, request) = (self.state(), request.into_inner());
        let (mut route, wanted) = (state.route(&request.route)?, request.backend.unwrap_or_default());
        let backend = route.backends.iter_mut().find(|backend| backend.id.as_str() == wanted.address);
        let backend = backend
            .ok_or_else(|| Status::not_found(format!("backend {} of route {}", wanted.address, request.route)))?;
        backend.max_concurrency = wanted.max_concurrency.or(backend.max_concurrency);
        backend.name = wanted.name.or(backend.name.take());
        backend.priority = wanted.priority_thousandths.map_or(backend.priority, Priority::from_thousandths);
        backend.models = wanted.models.map_or(std::mem::take(&mut backend.models), |models| models.names);
        Ok(Response::new(v1::SetBackendReply { fields: state.store(route) }))
    }

    async fn remove_backend(&self, request: Request<v1::RemoveBackendRequest>) -> Reply<v1::RemoveBackendReply> {
        let (mut state, request) = (self.state(), request.into_inner());
        let mut route = state.route(&request.route)?;
        route.backends.retain(|backend| backend.id.as_str() != request.address);
        state.store(route);
        Ok(Response::new(v1::RemoveBackendReply { in_flight: 0 }))
    }

    async fn set_drain(&self, request: Request<v1::SetDrainRequest>) -> Reply<v1::SetDrainReply> {
        let request = request.into_inner();
        let addresses = self.state().selected(request.selector.clone())?.into_iter().map(|state| state.address);
        for address in addresses.collect::<Vec<_>>() {
            self.change(|state| {
                let _ = if request.drain { state.drained.insert(address) } else { state.drained.remove(&address) };
            });
        }
        Ok(Response::new(v1::SetDrainReply { backends: self.state().selected(request.selector)? }))
    }

    async fn set_ban(&self, request: Request<v1::SetBanRequest>) -> Reply<v1::SetBanReply> {
        let (mut state, request) = (self.state(), request.into_inner());
        for backend in state.selected(request.selector.clone())? {
            if request.ban {
                state.bans.insert(backend.address, request.ttl_ms);
            } else {
                state.bans.remove(&backend.address);
            }
        }
        Ok(Response::new(v1::SetBanReply { backends: state.selected(request.selector)? }))
    }

    type WatchBackendsStream = Pin<Box<dyn Stream<Item = Result<v1::BackendStates, Status>> + Send>>;

    async fn watch_backends(&self, request: Request<v1::WatchBackendsRequest>) -> Reply<Self::WatchBackendsStream> {
        let (fake, selector) = (self.clone(), request.into_inner().selector);
        let mut changed = self.changed.subscribe();
        changed.mark_changed();
        let states = futures_util::stream::unfold((fake, changed), move |(fake, mut changed)| {
            let selector = selector.clone();
            async move {
                changed.changed().await.ok()?;
                let now = fake.state().selected(selector).map(|backends| v1::BackendStates { backends });
                Some((now, (fake, changed)))
            }
        });
        Ok(Response::new(Box::pin(states)))
    }

    async fn list_sessions(&self, request: Request<v1::ListSessionsRequest>) -> Reply<v1::ListSessionsReply> {
        let (state, request) = (self.state(), request.into_inner());
        let mut sessions = state.sessions.clone();
        sessions.retain(|session| session.fingerprint.starts_with(&request.prefix));
        let total = sessions.len() as u64;
        sessions.truncate(request.limit as usize);
        Ok(Response::new(v1::ListSessionsReply { sessions, total }))
    }

    async fn forget_sessions(&self, request: Request<v1::ForgetSessionsRequest>) -> Reply<v1::ForgetSessionsReply> {
        let (mut state, request) = (self.state(), request.into_inner());
        let before = state.sessions.len();
        state.sessions.retain(|session| !session.fingerprint.starts_with(&request.prefix));
        Ok(Response::new(v1::ForgetSessionsReply { forgotten: (before - state.sessions.len()) as u64 }))
    }

    async fn add_key(&self, request: Request<v1::AddKeyRequest>) -> Reply<v1::AddKeyReply> {
        let (mut state, request) = (self.state(), request.into_inner());
        if state.keys.iter().any(|(key, sha256)| key.name == request.name || *sha256 == request.sha256) {
            return Err(Status::already_exists(format!("key {} exists", request.name)));
        }
        let key = v1::KeyState {
            id: format!("k{}", state.keys.len() + 1),
            name: request.name,
            sha256_prefix: request.sha256.iter().take(4).fold(String::new(), |text, byte| format!("{text}{byte:02x}")),
            created_unix_ms: 1,
            source: v1::KeySource::Database.into(),
        };
        state.keys.push((key.clone(), request.sha256.to_vec()));
        Ok(Response::new(v1::AddKeyReply { key: Some(key) }))
    }

    async fn list_keys(&self, _request: Request<v1::ListKeysRequest>) -> Reply<v1::ListKeysReply> {
        let keys = self.state().keys.iter().map(|(key, _)| key.clone()).collect();
        Ok(Response::new(v1::ListKeysReply { keys }))
    }

    async fn find_keys(&self, request: Request<v1::FindKeysRequest>) -> Reply<v1::FindKeysReply> {
        let state = self.state();
        let found = request.into_inner().sha256.into_iter().filter_map(|sha256| {
            let (key, _) = state.keys.iter().find(|(_, known)| *known == sha256)?;
            Some(v1::FoundKey { sha256, key: Some(key.clone()) })
        });
        Ok(Response::new(v1::FindKeysReply { found: found.collect() }))
    }

    async fn revoke_key(&self, request: Request<v1::RevokeKeyRequest>) -> Reply<v1::RevokeKeyReply> {
        let (mut state, key) = (self.state(), request.into_inner().key);
        let found = state.keys.iter().position(|(known, _)| known.id == key || known.name == key);
        let index = found.ok_or_else(|| Status::not_found(format!("key {key}")))?;
        let note = state.revoke_note.clone();
        Ok(Response::new(v1::RevokeKeyReply { key: Some(state.keys.remove(index).0), note }))
    }

    async fn get_status(&self, request: Request<v1::GetStatusRequest>) -> Reply<v1::GetStatusReply> {
        let mut state = self.state();
        let authorization = request.metadata().get("authorization").and_then(|value| value.to_str().ok());
        state.authorization = authorization.map(str::to_owned);
        if state.authorization.as_deref() == Some("Bearer wrong") {
            return Err(Status::unauthenticated("the token is not valid"));
        }
        let routes = state.routes.values().map(|route| state.route_state(route)).collect();
        let (database, files) = ("sqlite".to_owned(), state.files.clone());
        let reply = v1::GetStatusReply { database, database_ok: true, routes, files, ..Default::default() };
        Ok(Response::new(reply))
    }
}
