//! `/<route>/_…`: status pages and switches of a route (rulings §5, payloads.md §9). The control plane answers them for
//! the whole fleet; what only a replica can know of a request is added here: whose it is, what its session weighs, and what
//! would be changed in its body. `_cch_test` is about a body alone and goes no further than this replica.
//!
//! Session ids are told back to the client that sent them and to nobody else. Who may change something is decided by the
//! control plane, by what [`Caller`] says.

mod caller;
mod read;

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use percent_encoding::percent_decode;
use router_policy::ids::RouteName;
use router_policy::option::Affinity;
use router_policy::session::hash;
use router_policy::toggle::page::{PageChange, pages_of, switch_of_page};
use router_proto::v1;
use serde_json::{Map, Value as Json, json};
use tonic::{ConnectError, Status};

pub(crate) use caller::{Caller, Port};
use read::{Counting, Inspected};

use super::handle::Proxy;
use super::{auth, session};
use crate::coordinate::Ask;
use crate::snapshot::{RouteEntry, Snapshot};

const ACTIVE_LEVEL: HeaderName = HeaderName::from_static("x-routed-active-level");
/// How long the control plane may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
const MOST_PARAMETERS: usize = 32;
const LONGEST_QUERY: usize = 4 << 10;
const LONGEST_NAME: usize = 64;

const TOLD_ONLY_TO: &str = "told to this machine only: on the admin port, or on the traffic port where that has status pages, \
                            and through no proxy";

/// Requests whose bodies are read for a page at the same time. Nothing else limits them: they need neither key nor
/// slot.
pub(crate) const INSPECTED_AT_ONCE: usize = 2;

/// A page's path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Page<'a> {
    route: &'a str,
    /// With its underscore.
    name: &'a str,
}

impl<'a> Page<'a> {
    /// `None`: not a page's path.
    pub(crate) fn of(path: &'a str) -> Option<Self> {
        let (route, name) = path.strip_prefix('/')?.split_once('/')?;
        let is_plain = |c: u8| c.is_ascii_alphanumeric() || c == b'_';
        let is_page = name.starts_with('_') && name.len() <= LONGEST_NAME && name.bytes().all(is_plain);
        (is_page && RouteName::new(route).is_ok()).then_some(Self { route, name })
    }

    /// The page that shows what this one changes; `None` for one that changes nothing.
    fn shown_on(&self, query: &HashMap<String, String>) -> Option<&'static str> {
        match self.name {
            "_rate_limit_toggle" => Some("_rate_limit_status"),
            "_ttft_toggle" | "_ttft_429_toggle" => Some("_ttft_status"),
            "_tps_toggle" => Some("_tps_status"),
            "_session_prio_toggle" => Some("_session_status"),
            "_ttft_limit" => query.contains_key("ms").then_some("_ttft_status"),
            "_tps_limit" => query.contains_key("tps").then_some("_tps_status"),
            "_429_status" => query.contains_key("reset").then_some("_429_status"),
            toggle => {
                let switch = switch_of_page(toggle)?;
                let change = PageChange::of(switch, |name| query.get(name).map(String::as_str));
                pages_of(switch).filter(|_| change.is_change()).map(|pages| pages.shown_on)
            }
        }
    }
}

/// Answers a page; 404 for what is none.
pub(crate) async fn answer<B>(proxy: &Proxy, caller: Caller, request: Request<B>) -> Response<Full<Bytes>>
where
    B: Body<Data = Bytes> + Unpin,
{
    let path = request.uri().path().to_owned();
    let Some(page) = Page::of(&path) else {
        return respond(StatusCode::NOT_FOUND, json!({"error": "no such page"}).to_string());
    };
    let mut query = match parameters(request.uri().query().unwrap_or_default()) {
        Ok(query) => query,
        Err(problem) => return refuse(StatusCode::BAD_REQUEST, &page, problem),
    };
    // A session's id, for one page; no other has a use for it, and it is not sent anywhere.
    let id = query.remove("sid");
    let is_loopback = caller.may_change || (caller.is_local && page.shown_on(&query).is_none());
    let mut question = v1::PageRequest {
        route: page.route.to_owned(),
        page: page.name.to_owned(),
        query,
        is_loopback,
        request: None,
        session_source: String::new(),
    };
    // A route that this replica does not know is one that the control plane says so of.
    let snapshot = proxy.snapshots.load();
    let known = snapshot.as_deref().and_then(|snapshot| Some((snapshot, snapshot.route(page.route)?.as_ref())));
    let view = match (page.name, known) {
        ("_route_debug", Some((snapshot, route))) => {
            let key_id = key_of(proxy, route, snapshot, request.headers());
            Some(debug(route, snapshot, &key_id, id, &mut question))
        }
        ("_cch_test", _) if !caller.is_local => return refuse(StatusCode::FORBIDDEN, &page, TOLD_ONLY_TO),
        ("_cch_test", Some((snapshot, route))) => {
            let of = (route, snapshot);
            let read = Inspected::read(&page, proxy, of, request, &question.query, Counting::Uncounted).await;
            let is_full = question.query.get("full").is_some_and(|full| full == "1");
            let read = match read {
                Ok(read) => read,
                Err(refused) => return refused,
            };
            let _turn = proxy.inspections.acquire().await;
            // Digests of bodies of up to 200 MiB are no work for a thread that serves others.
            return match tokio::task::spawn_blocking(move || read.trial(is_full).to_string()).await {
                Ok(page) => respond(StatusCode::OK, page),
                Err(_) => refuse(StatusCode::INTERNAL_SERVER_ERROR, &page, "the trial was not finished"),
            };
        }
        ("_route_inspect", Some((snapshot, route))) => {
            let of = (route, snapshot);
            match Inspected::read(&page, proxy, of, request, &question.query, Counting::Counted).await {
                Ok(read) => Some(View::of(read, &mut question)),
                Err(response) => return response,
            }
        }
        _ => None,
    };
    // Where to look what became of a change.
    let shown_on = page.shown_on(&question.query).filter(|_| caller.may_change);
    let asked = tokio::time::timeout(ANSWER_WITHIN, proxy.control_plane.clone().page(question)).await;
    let reply = match asked {
        Ok(Ok(reply)) => reply.into_inner(),
        Ok(Err(status)) => {
            tracing::debug!(page = page.name, code = ?status.code(), "no page from the control plane");
            let is_unsure = !was_never_asked(&status);
            return unanswered(&page, shown_on.filter(|_| is_unsure), "the control plane can't be reached");
        }
        Err(_elapsed) => return unanswered(&page, shown_on, "the control plane did not answer in time"),
    };
    let status = u16::try_from(reply.http_status).ok().and_then(|status| StatusCode::from_u16(status).ok());
    let json = match (view, known) {
        (Some(view), Some((_, route))) if status == Some(StatusCode::OK) => view.added_to(route, reply.json),
        _ => reply.json,
    };
    let mut response = respond(status.unwrap_or(StatusCode::BAD_GATEWAY), json);
    if let Some(level) = HeaderValue::try_from(reply.active_level).ok().filter(|level| !level.is_empty()) {
        response.headers_mut().insert(ACTIVE_LEVEL, level);
    }
    response
}

/// What is added to an answer.
struct View {
    is_debug: bool,
    session_id: Option<Vec<u8>>,
    source: Option<String>,
    model: String,
    is_cch_stripped: bool,
}

/// Whose sessions are meant: no key is needed, but one that is valid counts as it does under `/v1/`. Empty without one.
fn key_of(proxy: &Proxy, route: &RouteEntry, snapshot: &Snapshot, headers: &HeaderMap) -> Arc<str> {
    let checked = auth::check(route.options.auth, snapshot, headers, proxy.is_loopback);
    checked.ok().flatten().unwrap_or_default()
}

/// `_route_debug`: where a session would go, by its id from the query.
fn debug(
    route: &RouteEntry,
    snapshot: &Snapshot,
    key_id: &str,
    id: Option<String>,
    question: &mut v1::PageRequest,
) -> View {
    let id = id.filter(|id| !id.trim().is_empty()).unwrap_or_else(|| "default".to_owned());
    let model = session::model_name(question.query.get("model").map(String::as_str).unwrap_or_default().into());
    let has_session = route.options.affinity != Affinity::Off;
    let fingerprint = has_session.then(|| session::fingerprint(route, snapshot, key_id, id.as_bytes(), &model));
    let ask = Ask {
        model: model.clone(),
        fingerprint: fingerprint.flatten(),
        placement: session::placement(route, id.as_bytes(), &model),
        ..Ask::new(route.name.clone(), key_id, route.options.queue_timeout)
    };
    question.request = Some(ask.as_question());
    View { is_debug: true, session_id: Some(id.into_bytes()), source: None, model, is_cch_stripped: false }
}

impl View {
    /// `_route_inspect`: the request, read as if it were to be served.
    fn of(read: Inspected, question: &mut v1::PageRequest) -> Self {
        question.request = Some(read.ask.as_question());
        question.session_source.clone_from(&read.source);
        Self {
            is_debug: false,
            session_id: read.session_id,
            source: Some(read.source),
            model: read.ask.model,
            is_cch_stripped: read.changes.cch_stripped,
        }
    }

    /// The control plane's answer with what it was not told. One that is no object, or that says what is wrong, stays
    /// as it is.
    fn added_to(self, route: &RouteEntry, json: String) -> String {
        let Ok(mut page) = serde_json::from_str::<Map<String, Json>>(&json) else { return json };
        if page.contains_key("error") {
            return json;
        }
        if let Some(source) = &self.source {
            page.entry("source").or_insert_with(|| Json::from(source.as_str()));
            page.entry("cch_stripped").or_insert(Json::Bool(self.is_cch_stripped));
        }
        let Some(id) = &self.session_id else { return Json::Object(page).to_string() };
        page.insert("session_id".to_owned(), Json::from(String::from_utf8_lossy(id)));
        let hashes = Hashes::of(route, id, &self.model);
        if self.is_debug {
            page.entry("session_affinity_enabled").or_insert(Json::Bool(route.options.affinity != Affinity::Off));
            page.insert("algorithm".to_owned(), Json::from(algorithm(route.options.affinity)));
            for (target, field) in [("natural_target", "natural_hash"), ("actual_pick", "actual_hash")] {
                let hash = page.get(target).and_then(Json::as_str).and_then(|backend| hashes.of_backend(backend));
                page.extend(hash.map(|hash| (field.to_owned(), Json::from(hash))));
            }
            page.extend(hashes.scores().map(|scores| ("scores".to_owned(), scores)));
        } else {
            let hash = page.get("pick").and_then(Json::as_str).and_then(|backend| hashes.of_backend(backend));
            page.extend(hash.map(|hash| ("hash".to_owned(), Json::from(hash))));
        }
        Json::Object(page).to_string()
    }
}

fn algorithm(affinity: Affinity) -> &'static str {
    match affinity {
        Affinity::Binding => "binding",
        Affinity::Hash => "crc32",
        Affinity::Rendezvous => "rendezvous",
        Affinity::Off => "off",
    }
}

/// What a session id comes to on its pool.
enum Hashes {
    None,
    Crc32(u32),
    Weights(Vec<Weight>),
}

struct Weight {
    address: String,
    name: String,
    hash: u32,
    is_admitted: bool,
}

impl Hashes {
    fn of(route: &RouteEntry, id: &[u8], model: &str) -> Self {
        match route.options.affinity {
            Affinity::Binding | Affinity::Off => Self::None,
            Affinity::Hash => Self::Crc32(hash::crc32(id)),
            Affinity::Rendezvous => {
                let addresses = route.pool(model).map(|backend| backend.address.as_ref());
                let weights = route.pool(model).zip(hash::weights(id, addresses));
                let weights = weights.map(|(backend, (address, hash))| Weight {
                    address: address.to_owned(),
                    name: backend.peer.to_str().unwrap_or(address).to_owned(),
                    hash,
                    is_admitted: backend.is_admitted,
                });
                Self::Weights(weights.collect())
            }
        }
    }

    /// Of a backend by its address or its name.
    fn of_backend(&self, backend: &str) -> Option<u32> {
        match self {
            Self::None => None,
            Self::Crc32(crc32) => Some(*crc32),
            Self::Weights(weights) => weights
                .iter()
                .find(|weight| weight.address == backend || weight.name == backend)
                .map(|weight| weight.hash),
        }
    }

    /// Of every backend, counted from 1 in the order of the document.
    fn scores(&self) -> Option<Json> {
        let Self::Weights(weights) = self else { return None };
        let score = |(idx, weight): (u32, &Weight)| {
            let Weight { name, hash, is_admitted, .. } = weight;
            json!({"idx": idx, "name": name, "hash": hash, "banned": !is_admitted})
        };
        Some((1..).zip(weights).map(score).collect())
    }
}

/// A query's parameters; of one that stands twice the last counts.
fn parameters(query: &str) -> Result<HashMap<String, String>, &'static str> {
    if query.len() > LONGEST_QUERY {
        return Err("the query is longer than 4 KiB");
    }
    let mut parameters = HashMap::new();
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    for (count, pair) in pairs.enumerate() {
        if count == MOST_PARAMETERS {
            return Err("the query has more than 32 parameters");
        }
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        parameters.insert(decoded(name)?, decoded(value)?);
    }
    Ok(parameters)
}

fn decoded(text: &str) -> Result<String, &'static str> {
    let spaced = text.replace('+', " ");
    let text = percent_decode(spaced.as_bytes()).decode_utf8();
    text.map(std::borrow::Cow::into_owned).map_err(|_| "the query is not UTF-8")
}

/// Whether the question has not left this replica.
fn was_never_asked(status: &Status) -> bool {
    let first: Option<&(dyn Error + 'static)> = status.source();
    std::iter::successors(first, |error| (*error).source()).any(<dyn Error>::is::<ConnectError>)
}

/// No answer. A change that was asked for may have been made all the same.
fn unanswered(page: &Page<'_>, shown_on: Option<&str>, why: &str) -> Response<Full<Bytes>> {
    let Some(shown_on) = shown_on else { return refuse(StatusCode::SERVICE_UNAVAILABLE, page, why) };
    let see = format!("/{}/{shown_on}", page.route);
    let error = format!("{why}; whether the change was made is not known, {see} shows it");
    respond(StatusCode::SERVICE_UNAVAILABLE, json!({"error": error, "route": page.route, "see": see}).to_string())
}

fn refuse(status: StatusCode, page: &Page<'_>, error: &str) -> Response<Full<Bytes>> {
    respond(status, json!({"error": error, "route": page.route}).to_string())
}

fn respond(status: StatusCode, json: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(json)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests;
