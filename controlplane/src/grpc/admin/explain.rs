//! What would become of a request now. The session id that is asked about is hashed here, in memory, and goes no further.

use router_policy::ids::{BackendId, Fingerprint};
use router_policy::option::Affinity;
use router_policy::session::extract::MAX_ID_CHARS;
use router_policy::session::{Fingerprinter, hash};
use router_proto::v1;

use crate::error::AdminError;
use crate::fleet::Fleet;
use crate::pool::{Asked, SessionAsked};

pub(super) fn explain(fleet: &Fleet, request: v1::ExplainRequest) -> Result<v1::ExplainReply, AdminError> {
    let pool = fleet.pool(&request.route)?;
    // On a route with a pool per model a session has a name in each, as replicas have it.
    let model = pool.spec().is_by_model().then_some(request.model.as_str());
    let session = session_asked(fleet, &request, model)?;
    let (mut crc32, mut ranked) = (None, Vec::new());
    if !request.session_id.is_empty() {
        let spec = pool.spec();
        let backends: Vec<&BackendId> = spec.backends.iter().map(|backend| &backend.id).collect();
        (crc32, ranked) = preference_of(&request.session_id, spec.options().affinity, &backends);
    }
    let asked = Asked {
        model: request.model,
        turn: (request.turn != 0).then_some(request.turn),
        crc32,
        ranked,
        context_tokens: request.context_tokens,
        ..Asked::default()
    };
    Ok(pool.explain(asked, &session))
}

fn session_asked(fleet: &Fleet, request: &v1::ExplainRequest, model: Option<&str>) -> Result<SessionAsked, AdminError> {
    let argument = |field, problem: &str| AdminError::Argument { field, problem: problem.to_owned() };
    let (id, prefix) = (&request.session_id, &request.fingerprint);
    match (id.is_empty(), prefix.is_empty()) {
        (true, true) => Ok(SessionAsked::Nobody),
        (false, false) => Err(argument("session_id", "a session id or a fingerprint is allowed, not both")),
        (true, false) => {
            let is_hex = prefix.chars().all(|c| c.is_ascii_hexdigit()) && prefix.len() <= 32;
            let error = || argument("fingerprint", "hexadecimal digits expected; allowed: up to 32");
            is_hex.then(|| SessionAsked::Prefix(prefix.to_ascii_lowercase())).ok_or_else(error)
        }
        (false, true) if id.trim().is_empty() || id.chars().count() > MAX_ID_CHARS => {
            let problem = format!("allowed: 1 to {MAX_ID_CHARS} characters that are not all blank");
            Err(AdminError::Argument { field: "session_id", problem })
        }
        (false, true) => Ok(SessionAsked::Named(fingerprints(fleet, id, model))),
    }
}

/// What the session is called without a key, and under each key.
fn fingerprints(fleet: &Fleet, id: &str, model: Option<&str>) -> Vec<(Fingerprint, String)> {
    let Some(by) = Fingerprinter::new(&fleet.hub.fingerprint_key()) else { return Vec::new() };
    let of = |key_id: &str| by.fingerprint_for(key_id, id.as_bytes(), model);
    let without = (of(""), String::new());
    let keys = fleet.keys().into_iter().map(|key| (of(&key.id), key.name));
    std::iter::once(without).chain(keys).collect()
}

/// What `affinity: hash` and `affinity: rendezvous` make of a session id, as replicas do.
fn preference_of(session_id: &str, affinity: Affinity, backends: &[&BackendId]) -> (Option<u32>, Vec<BackendId>) {
    let id = session_id.as_bytes();
    match affinity {
        Affinity::Binding | Affinity::Off => (None, Vec::new()),
        Affinity::Hash => (Some(hash::crc32(id)), Vec::new()),
        Affinity::Rendezvous => {
            let ranked = hash::ranking(id, backends.iter().map(|backend| backend.as_str()));
            (None, ranked.filter_map(|address| BackendId::new(address).ok()).collect())
        }
    }
}
