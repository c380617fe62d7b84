//! The `X-Routed-*` headers: who answered, why, after how many tries (rulings §4). On each answer of a route; `Mode` and
//! `Peer` only when a backend was chosen, `Session` only when the request got far enough for it to be known.

use http::{HeaderMap, HeaderName, HeaderValue};
use router_proto::v1::Mode;

use super::session::Session;

const SESSION: HeaderName = HeaderName::from_static("x-routed-session");
const SOURCE: HeaderName = HeaderName::from_static("x-routed-source");
const MODE: HeaderName = HeaderName::from_static("x-routed-mode");
pub(crate) const PEER: HeaderName = HeaderName::from_static("x-routed-peer");
const RETRIES: HeaderName = HeaderName::from_static("x-routed-retries");

/// What is known of a request's way; grows as it goes.
#[derive(Debug, Default)]
pub(crate) struct Routed {
    pub(crate) session: Option<Session>,
    /// Set once there was a lease.
    pub(crate) choice: Option<Choice>,
    /// `expose_routed`; false while the route isn't known.
    pub(crate) is_exposed: bool,
}

/// The last backend that was tried.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) mode: Mode,
    pub(crate) peer: HeaderValue,
    pub(crate) retries: u32,
}

impl Routed {
    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        if !self.is_exposed {
            return;
        }
        match &self.session {
            Some(session) => {
                // Sixteen hexadecimal digits are always a header value.
                let short = session.fingerprint.and_then(|name| HeaderValue::try_from(name.short()).ok());
                if let Some(short) = short {
                    headers.insert(SESSION, short);
                }
                headers.insert(SOURCE, session.source.clone());
            }
            None => {
                headers.insert(SOURCE, HeaderValue::from_static("none"));
            }
        }
        if let Some(choice) = &self.choice {
            headers.insert(MODE, HeaderValue::from_static(choice.mode.word()));
            headers.insert(PEER, choice.peer.clone());
        }
        headers.insert(RETRIES, HeaderValue::from(self.choice.as_ref().map_or(0, |choice| choice.retries)));
    }
}
