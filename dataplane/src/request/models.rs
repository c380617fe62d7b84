//! `GET|HEAD /v1/models` and `/v1/models/{id}`: the router's own answer. On a route with a pool per model, the models
//! that it has pools for ([`stated`]); else the union over the pool's admitted backends (gateway.md §7, conventions
//! §2).
//!
//! All of these are asked at once, without a lease: engines answer this without the GPU, as they answer probes. Each
//! has the route's `health_timeout` for its whole answer, so a backend that is dead or mute costs its own models and no
//! more time than that. Dropping the future closes what is still open.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::header::{ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, IF_MODIFIED_SINCE, IF_NONE_MATCH, RANGE};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri};
use http_body_util::Full;
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use router_policy::admit::has_window;
use router_policy::body::models::{ModelList, Union};
use router_policy::ids::RouteName;
use router_policy::refusal::Gate;
use router_policy::retry::Failure;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::Error;
use super::handle::Proxy;
use crate::coordinate::Refused;
use crate::snapshot::{BackendEntry, RouteEntry};
use crate::upstream::forward::{Outbound, Target};
use crate::upstream::stream::Silence;
use crate::upstream::whole;

const PATH: &str = "/v1/models";

/// Longest answer of a backend, in bytes.
const LONGEST: usize = 2 << 20;

/// Questions of a route that are put to its backends at the same time; further ones wait as long as requests do. Each
/// asks every backend, with no slot taken there, and holds an answer of each: clients must not be able to multiply
/// either.
const AT_ONCE: usize = 16;

/// Whose turn it is to ask, by route. Bounded by the names that routes ever had.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<HashMap<RouteName, Arc<Semaphore>>>);

impl Turns {
    async fn take(&self, route: &RouteEntry) -> Result<OwnedSemaphorePermit, Error> {
        let turns =
            Arc::clone(self.0.lock().entry(route.name.clone()).or_insert_with(|| Arc::new(Semaphore::new(AT_ONCE))));
        let turn = tokio::time::timeout(route.options.queue_timeout, turns.acquire_owned()).await;
        // Never closed, so a turn comes or the time passes.
        turn.ok().and_then(Result::ok).ok_or_else(|| Error::Refused(Refused::by(Gate::QueueTimeout)))
    }
}

/// Headers under which an answer is something else than the whole list in plain JSON.
const NOT_PASSED_ON: [http::HeaderName; 5] = [ACCEPT_ENCODING, CONTENT_LENGTH, IF_MODIFIED_SINCE, IF_NONE_MATCH, RANGE];

/// What the client asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The whole list.
    List,
    /// One model's object; `None` for an id that is no text.
    Model(Option<String>),
}

impl Wanted {
    /// `path` has no route prefix. `None`: a request that is proxied like any other. A route that has a pool per model
    /// has no backend for the list, whatever the method (routing.md §6).
    pub(crate) fn of(method: &Method, path: &str, is_by_model: bool) -> Option<Self> {
        if is_by_model && path == PATH {
            return Some(Self::List);
        }
        if !matches!(*method, Method::GET | Method::HEAD) {
            return None;
        }
        let rest = path.strip_prefix(PATH)?;
        if rest.is_empty() || rest == "/" {
            return Some(Self::List);
        }
        let id = percent_decode_str(rest.strip_prefix('/')?).decode_utf8();
        Some(Self::Model(id.ok().map(std::borrow::Cow::into_owned)))
    }
}

/// The answer of a route that has a pool per model: no backend is asked (routing.md §7).
pub(crate) fn stated(models: &[String], wanted: &Wanted) -> Result<Response<Full<Bytes>>, Error> {
    let object = |id: &String| json!({"id": id, "object": "model"});
    let json = match wanted {
        Wanted::List => json!({"object": "list", "data": models.iter().map(object).collect::<Vec<_>>()}),
        Wanted::Model(id) => {
            let found = id.as_ref().filter(|id| models.binary_search(id).is_ok());
            object(found.ok_or(Error::ModelNotFound)?)
        }
    };
    Ok(answered(json.to_string()))
}

fn answered(json: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(json)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A client's question, ready for backends.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) wanted: Wanted,
    /// `x-model-context-window`
    pub(crate) context_window: Option<u64>,
    /// To each backend.
    outbound: Outbound,
}

impl Question {
    /// `uri` and `headers` are those of a request that is proxied.
    pub(crate) fn new(wanted: Wanted, context_window: Option<u64>, uri: &Uri, mut headers: HeaderMap) -> Self {
        for name in &NOT_PASSED_ON {
            headers.remove(name);
        }
        let whole = uri.query().map(|query| PathAndQuery::try_from(format!("{PATH}?{query}")));
        // A query that was part of one URI can be part of another.
        let uri = whole.and_then(Result::ok).unwrap_or(PathAndQuery::from_static(PATH)).into();
        // HEAD too is answered from the list.
        Self { wanted, context_window, outbound: Outbound { method: Method::GET, uri, headers, body: Bytes::new() } }
    }
}

/// Why a backend has no part in the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Absent {
    Unreachable,
    Silent,
    /// This status; or 200 and no list.
    Answered(StatusCode),
}

/// Asks the backends and merges what they say.
pub(crate) async fn answer(
    proxy: &Proxy,
    route: &RouteEntry,
    question: &Question,
) -> Result<Response<Full<Bytes>>, Error> {
    let _turn = proxy.model_turns.take(route).await?;
    let backends = candidates(route, question.context_window)?;
    let answers = join_all(backends.into_iter().map(|backend| Box::pin(ask(proxy, route, backend, question)))).await;
    let mut lists = Vec::new();
    let mut absent = Vec::new();
    for answer in &answers {
        match answer {
            Ok(body) => match ModelList::read(body) {
                Some(list) => lists.push(list),
                None => absent.push(Absent::Answered(StatusCode::OK)),
            },
            Err(why) => absent.push(*why),
        }
    }
    // The client's window takes the place of the limit that all backends share: it is served where there is room for
    // it.
    let limit = question.context_window.or(route.options.model_context_limit);
    let union = Union::of(&lists, limit).ok_or_else(|| nobody_answered(&absent))?;
    let json = match &question.wanted {
        Wanted::List => union.list(),
        Wanted::Model(id) => id.as_deref().and_then(|id| union.model(id)).ok_or(Error::ModelNotFound)?,
    };
    Ok(answered(json))
}

/// The backends that a request of this client could go to, in the order of the route.
fn candidates(route: &RouteEntry, context_window: Option<u64>) -> Result<Vec<&BackendEntry>, Error> {
    let refuse = |gate| Error::Refused(Refused::by(gate));
    let mut backends: Vec<&BackendEntry> = route.backends.iter().filter(|backend| backend.is_admitted).collect();
    if backends.is_empty() {
        return Err(refuse(Gate::NoBackend));
    }
    backends.retain(|backend| has_window(backend.context_limit, context_window.unwrap_or(0)));
    if backends.is_empty() { Err(refuse(Gate::ContextWindow)) } else { Ok(backends) }
}

async fn ask(proxy: &Proxy, route: &RouteEntry, backend: &BackendEntry, question: &Question) -> Result<Bytes, Absent> {
    let limit = route.options.health_timeout;
    let answer = tokio::time::timeout(limit, exchange(proxy, route, backend, question, limit)).await;
    let answer = answer.unwrap_or(Err(Absent::Silent));
    if let Err(why) = &answer {
        tracing::debug!(route = %route.name, backend = %backend.address, ?why, "no list of models from a backend");
    }
    answer
}

async fn exchange(
    proxy: &Proxy,
    route: &RouteEntry,
    backend: &BackendEntry,
    question: &Question,
    limit: Duration,
) -> Result<Bytes, Absent> {
    let target = Target {
        backend: &backend.address,
        host: &backend.host,
        dp_rank: None,
        connect_timeout: route.options.connect_timeout,
    };
    let sent = question.outbound.send(&proxy.pool, target, &mut Silence::new(limit), &proxy.metrics).await;
    let (response, conn) = sent.map_err(|failure| match failure {
        Failure::HeaderTimeout => Absent::Silent,
        Failure::Connect | Failure::NoHead | Failure::Status(_) => Absent::Unreachable,
    })?;
    let status = response.status();
    if status != StatusCode::OK {
        return Err(Absent::Answered(status));
    }
    whole::read(response.into_body(), conn, &proxy.pool, LONGEST).await.map_err(|_| Absent::Answered(status))
}

/// Engines without a list say so: then the client hears that, too. Anything else is a failure, and the first one
/// speaks.
fn nobody_answered(absent: &[Absent]) -> Error {
    let has_no_list = |why: &&Absent| {
        let Absent::Answered(status) = why else { return false };
        matches!(*status, StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED)
    };
    match absent.iter().find(|why| !has_no_list(why)) {
        None => Error::NoModelList,
        Some(Absent::Unreachable) => Error::BackendUnreachable,
        Some(Absent::Silent) => Error::BackendSilent,
        Some(Absent::Answered(status)) => Error::BackendBadAnswer { status: status.as_u16() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_requests_the_router_answers() {
        let get = |path| Wanted::of(&Method::GET, path, false);
        let model = |id: &str| Some(Wanted::Model(Some(id.to_owned())));
        assert_eq!(get("/v1/models"), Some(Wanted::List));
        assert_eq!(get("/v1/models/"), Some(Wanted::List));
        assert_eq!(get("/v1/models/a"), model("a"));
        assert_eq!(get("/v1/models/org/a%20b"), model("org/a b"));
        assert_eq!(get("/v1/models/org%2Fa"), model("org/a"));
        assert_eq!(get("/v1/models/%C3%BC+%"), model("ü+%"));
        assert_eq!(get("/v1/models/%FF"), Some(Wanted::Model(None)));
        assert_eq!(Wanted::of(&Method::HEAD, "/v1/models", false), Some(Wanted::List));
        for (method, path) in [
            (Method::POST, "/v1/models"),
            (Method::DELETE, "/v1/models/a"),
            (Method::GET, "/v1/modelsX"),
            (Method::GET, "/v1/model"),
            (Method::GET, "/v1/chat/completions"),
        ] {
            assert_eq!(Wanted::of(&method, path, false), None, "{method} {path}");
            let by_model = (method == Method::POST).then_some(Wanted::List);
            assert_eq!(Wanted::of(&method, path, true), by_model, "{method} {path}");
        }
    }

    #[test]
    fn what_is_said_when_no_backend_has_a_list() {
        use Absent::{Answered, Silent, Unreachable};
        let [missing, broken, odd] =
            [StatusCode::NOT_FOUND, StatusCode::INTERNAL_SERVER_ERROR, StatusCode::OK].map(Answered);
        let rows = [
            (&[missing, Answered(StatusCode::NOT_IMPLEMENTED)][..], Error::NoModelList),
            (&[missing, broken], Error::BackendBadAnswer { status: 500 }),
            (&[broken, Silent], Error::BackendBadAnswer { status: 500 }),
            (&[odd], Error::BackendBadAnswer { status: 200 }),
            (&[Silent, broken], Error::BackendSilent),
            (&[missing, Unreachable], Error::BackendUnreachable),
        ];
        for (absent, error) in rows {
            assert_eq!(nobody_answered(absent), error, "{absent:?}");
        }
    }
}
