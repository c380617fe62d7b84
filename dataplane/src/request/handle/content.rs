//! What a request's body says: who it is, whether it may come in, and what is changed in it.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use router_policy::body::transform::Changes;
use router_policy::payload_count::PayloadCount;
use tokio::runtime::{Handle, RuntimeFlavor};

use super::{Error, Exchange};
use crate::request::{payload, session};
use crate::snapshot::RouteEntry;

/// Longer bodies are read beside the worker's other requests, which would wait for milliseconds otherwise.
const LONG: usize = 1 << 20;

/// A body that was read.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) identity: session::Identity,
    /// As the backend gets it.
    pub(super) body: Bytes,
    pub(super) changes: Changes,
    /// It is not what the client sent.
    pub(super) is_edited: bool,
}

impl Exchange<'_> {
    /// Reads a whole body, sent to this path by this method.
    pub(super) fn read_content(
        &mut self,
        route: &RouteEntry,
        reader: &session::Reader<'_>,
        to: (&Method, &str),
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Content, Error> {
        let is_long = body.len() > LONG;
        let read = || self.read_now(route, reader, to, headers, body);
        // Where there are other workers to go on with the rest.
        if is_long && Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread {
            tokio::task::block_in_place(read)
        } else {
            read()
        }
    }

    fn read_now(
        &mut self,
        route: &RouteEntry,
        reader: &session::Reader<'_>,
        to: (&Method, &str),
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Content, Error> {
        let (method, path) = to;
        if let Some(record) = &mut self.record {
            record.request(&body);
        }
        let mut identity = self.identify(reader, headers, &body);
        if identity.session.is_none() {
            route.metrics.keyless.inc();
        }
        route.metrics.session_ids_too_long.inc_by(identity.too_long.into());
        if identity.is_json {
            route.metrics.payload.add(PayloadCount::Parsed, 1);
        }
        if let Err(error) = payload::check_rules(route, method, path, &body) {
            self.routed.session = identity.session;
            return Err(error);
        }
        let (edited, changes) =
            if identity.is_json { payload::transform(route, path, &body) } else { (None, Changes::default()) };
        let Some(edited) = edited else { return Ok(Content { identity, body, changes, is_edited: false }) };
        // A message that sessions are known by must be the same in each turn, which it may be without its marker only.
        if route.options.session_sources.reads_messages()
            && changes != (Changes { usage_asked: true, ..Changes::default() })
        {
            identity = self.identify(reader, headers, &edited);
        }
        Ok(Content { identity, body: edited, changes, is_edited: true })
    }

    /// Who it is. The id itself is told to the body log only.
    pub(super) fn identify(
        &mut self,
        reader: &session::Reader<'_>,
        headers: &HeaderMap,
        body: &[u8],
    ) -> session::Identity {
        let Some(record) = &mut self.record else { return reader.identify(headers, body) };
        let (identity, id) = reader.identify_and_tell(headers, body);
        match &identity.session {
            Some(session) => record.session(&session.source, id.filter(|_| session.fingerprint.is_some())),
            None => record.session(&HeaderValue::from_static("none"), None),
        }
        identity
    }
}
