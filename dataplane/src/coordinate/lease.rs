//! Leases and the register of those held. A [`Lease`] gives itself back in `Drop`; the register is the truth that `Hello`
//! tells, so a release that is lost with the link needs no repeat: the lease is not in the next `Hello`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use router_policy::body::usage::Usage;
use router_policy::ids::{Fingerprint, RouteName};
use router_policy::retry::Failure;
use router_proto::v1;
use router_proto::v1::client_op::Kind;
pub(crate) use router_proto::v1::{Mode, Outcome};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use super::link::Link;
use super::whole_ms;

/// No model of a route has a longer name: 256 characters of up to 4 bytes.
const MODEL_MAX_BYTES: usize = 1024;

type Outbox = UnboundedSender<v1::ClientOp>;

/// Every lease of the process, and the link that hears of their ends. One short lock covers both, so that a lease is
/// either in a `Hello` or its release follows that `Hello`; never neither, never both.
#[derive(Debug)]
pub(crate) struct Held {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Bounded by the fleet's limits: the control plane grants no more.
    leases: HashMap<u64, Entry>,
    outbox: Option<Outbox>,
}

#[derive(Debug)]
struct Entry {
    route: RouteName,
    backend: Arc<str>,
    fingerprint: Option<Fingerprint>,
    said: Said,
    granted_at: Instant,
    /// Its answer is a stream that has begun.
    is_stream: bool,
}

/// What a lease was asked for with, and a control plane that has started anew can hear from its replica only.
#[derive(Debug, Clone, Default)]
pub(crate) struct Said {
    /// Empty when there is none, or it is no model's name.
    model: String,
    turn: u32,
    /// Told of reservations, whose backend is chosen later.
    context_tokens: u64,
}

impl Said {
    pub(crate) fn new(model: &str, turn: u32, context_tokens: u64) -> Self {
        let model = if model.len() <= MODEL_MAX_BYTES { model.to_owned() } else { String::new() };
        Self { model, turn, context_tokens }
    }
}

impl Held {
    pub(crate) fn new() -> Self {
        Self { inner: Mutex::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.inner.lock().leases.len()
    }

    /// A new link takes over. Everything held now goes into its `Hello`; every release from now on goes to `outbox`.
    pub(crate) fn attach(&self, outbox: Outbox) -> Vec<v1::HeldLease> {
        let mut inner = self.inner.lock();
        inner.outbox = Some(outbox);
        inner
            .leases
            .iter()
            .map(|(lease, entry)| v1::HeldLease {
                lease: *lease,
                route: entry.route.to_string(),
                backend: entry.backend.as_ref().to_owned(),
                fingerprint: entry.fingerprint.map(|f| Bytes::copy_from_slice(&f.0)).unwrap_or_default(),
                age_ms: u64::from(whole_ms(entry.granted_at.elapsed())),
                context_tokens: if entry.backend.is_empty() { entry.said.context_tokens } else { 0 },
                model: entry.said.model.clone(),
                turn: entry.said.turn,
                is_stream: entry.is_stream,
            })
            .collect()
    }

    /// The link is gone.
    pub(crate) fn detach(&self) {
        self.inner.lock().outbox = None;
    }

    /// A grant from the wire becomes a lease.
    pub(crate) fn granted(
        self: &Arc<Self>,
        granted: &v1::Granted,
        route: RouteName,
        fingerprint: Option<Fingerprint>,
        said: Said,
    ) -> Lease {
        let backend: Arc<str> = granted.backend.as_str().into();
        let granted_at = Instant::now();
        let entry = Entry {
            route: route.clone(),
            backend: Arc::clone(&backend),
            fingerprint,
            said,
            granted_at,
            is_stream: false,
        };
        self.inner.lock().leases.insert(granted.lease, entry);
        Lease {
            id: granted.lease,
            mode: granted.mode(),
            dp_rank: granted.dp_rank,
            queued: Duration::from_millis(u64::from(granted.queued_ms)),
            backend,
            held: Arc::clone(self),
            report: Report {
                outcome: Outcome::ClientGone,
                ttft: None,
                decode: None,
                usage: Usage::default(),
                status: 0,
            },
            route: Some(route),
        }
    }

    fn first_chunk(&self, lease: u64, route: &RouteName, ttft: Duration) {
        let mut inner = self.inner.lock();
        if let Some(entry) = inner.leases.get_mut(&lease) {
            entry.is_stream = true;
        }
        if let Some(outbox) = &inner.outbox {
            let ttft_us = u64::try_from(ttft.as_micros()).unwrap_or(u64::MAX);
            let first_chunk = v1::FirstChunk { lease, route: route.to_string(), ttft_us };
            // Without a link it is a sample less.
            let _ = outbox.send(v1::ClientOp { op: 0, kind: Some(Kind::FirstChunk(first_chunk)) });
        }
    }

    fn release(&self, lease: u64, route: &RouteName, report: Report) {
        let mut inner = self.inner.lock();
        inner.leases.remove(&lease);
        if let Some(outbox) = &inner.outbox {
            let release = v1::Release {
                lease,
                route: route.to_string(),
                outcome: report.outcome.into(),
                ttft_ms: report.ttft.map(whole_ms),
                tokens: report.usage.completion,
                decode_ms: report.decode.map(whole_ms),
                prompt_tokens: report.usage.prompt,
                cached_tokens: report.usage.cached,
                http_status: u32::from(report.status),
            };
            // A link that is gone learns of it from the next Hello.
            let _ = outbox.send(v1::ClientOp { op: 0, kind: Some(Kind::Release(release)) });
        }
    }
}

/// A slot of the pool for a request whose body is still coming in: a lease on no backend. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Reservation(pub(super) Lease);

impl Reservation {
    /// Time in the control plane's queue.
    pub(crate) fn queued(&self) -> Duration {
        self.0.queued
    }

    /// Sends `acquire` on `link` in its place, when that is the link in use; else plainly gives it back and leaves the rest to
    /// the caller's repeat.
    pub(super) fn use_for(self, link: &Link, op: u64, acquire: v1::Acquire) {
        let acquire = v1::Acquire { reservation: self.0.id, ..acquire };
        self.0.replaced_by(link, |_| link.send(op, Kind::Acquire(acquire)));
    }
}

/// How the lease's request ended.
#[derive(Debug, Clone, Copy)]
struct Report {
    outcome: Outcome,
    ttft: Option<Duration>,
    decode: Option<Duration>,
    usage: Usage,
    /// Of the answer; 0 while there is none.
    status: u16,
}

/// One slot on one backend. Dropping it gives it back; without [`Lease::end`] the outcome is that the client left.
#[derive(Debug)]
pub(crate) struct Lease {
    id: u64,
    /// `host:port`
    pub(crate) backend: Arc<str>,
    pub(crate) mode: Mode,
    pub(crate) dp_rank: Option<u32>,
    /// Time in the control plane's queue.
    pub(crate) queued: Duration,
    held: Arc<Held>,
    report: Report,
    /// `None` once transferred.
    route: Option<RouteName>,
}

impl Lease {
    /// Gives the slot back.
    pub(crate) fn end(mut self, outcome: Outcome) {
        self.report.outcome = outcome;
    }

    /// Gives the slot back because its backend failed before it answered.
    pub(crate) fn failed(self, failure: Failure) {
        self.end(outcome_of(failure));
    }

    /// The answer's first body byte came this long after the request's head, queue time left out.
    pub(crate) fn first_byte_after(&mut self, ttft: Duration) {
        self.report.ttft = Some(ttft);
    }

    /// The answer's head is here.
    pub(crate) fn answered(&mut self, status: http::StatusCode) {
        self.report.status = status.as_u16();
    }

    /// Tells at once that a streamed answer has begun. Waits for nothing.
    pub(crate) fn has_begun_to_stream(&self, ttft: Duration) {
        if let Some(route) = &self.route {
            self.held.first_chunk(self.id, route, ttft);
        }
    }

    /// What the engine counted.
    pub(crate) fn used(&mut self, usage: Usage) {
        self.report.usage = usage;
    }

    /// The answer's last body byte came this long after its first.
    pub(crate) fn decoded_for(&mut self, decode: Duration) {
        self.report.decode = Some(decode);
    }

    /// Sends `Transfer` on `link` when that is the link in use; else plainly gives the lease back and leaves it to the
    /// caller's repeat.
    pub(super) fn transfer(mut self, link: &Link, op: u64, failure: Failure, again: v1::Acquire) {
        self.report.outcome = outcome_of(failure);
        self.replaced_by(link, |lease| {
            let transfer = v1::Transfer {
                lease: lease.id,
                route: again.route.clone(),
                failed_backend: lease.backend.as_ref().to_owned(),
                reason: v1::FailureReason::from(failure).into(),
                status: match failure {
                    Failure::Status(status) => u32::from(status),
                    Failure::Connect | Failure::NoHead | Failure::HeaderTimeout => 0,
                },
                again: Some(again),
            };
            link.send(op, Kind::Transfer(transfer));
        });
    }

    /// Ends the lease by another operation than `Release`. Removal and sending are one step: no `Hello` can come between.
    fn replaced_by(mut self, link: &Link, send: impl FnOnce(&Self)) {
        let mut inner = self.held.inner.lock();
        let is_current = inner.outbox.as_ref().is_some_and(|outbox| link.sends_to(outbox));
        if !is_current {
            drop(inner);
            // The link is lost: its waiter is told so and asks again, and dropping `self` releases.
            return;
        }
        inner.leases.remove(&self.id);
        send(&self);
        drop(inner);
        self.route = None;
    }
}

fn outcome_of(failure: Failure) -> Outcome {
    match failure {
        Failure::Connect => Outcome::ConnectFailed,
        Failure::NoHead => Outcome::StreamBroken,
        Failure::HeaderTimeout => Outcome::Timeout,
        Failure::Status(_) => Outcome::BackendError,
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(route) = self.route.take() {
            self.held.release(self.id, &route, self.report);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_control_plane_hears_what_its_samples_belong_to() {
        let held = Arc::new(Held::new());
        let outbox = || tokio::sync::mpsc::unbounded_channel().0;
        let granted = |lease, said| {
            let granted = v1::Granted { lease, backend: "10.0.0.1:8000".to_owned(), ..v1::Granted::default() };
            held.granted(&granted, RouteName::new("chat").unwrap(), None, said)
        };
        let one = granted(1, Said::new("m", 7, 100));
        let _two = granted(2, Said::new(&"x".repeat(MODEL_MAX_BYTES + 1), 0, 0));
        one.has_begun_to_stream(Duration::from_millis(5));
        let mut told = held.attach(outbox());
        told.sort_unstable_by_key(|lease| lease.lease);
        let told: Vec<_> = told
            .iter()
            .map(|lease| (lease.model.as_str(), lease.turn, lease.is_stream, lease.context_tokens))
            .collect();
        assert_eq!(told, [("m", 7, true, 0), ("", 0, false, 0)], "begun without a link as well");
        drop(one);
        assert_eq!(held.attach(outbox()).len(), 1);
    }
}
