//! A slot, its backend, and the next one when that fails, until there is a response's head.

use std::time::Duration;

use futures_util::FutureExt;
use http::Response;
use hyper::body::Incoming;
use router_policy::option::RouteOptions;
use router_policy::refusal::Gate;
use router_policy::retry::Failure;
use tokio::time::Instant;

use super::{Error, Exchange};
use crate::coordinate::lease::Outcome;
use crate::coordinate::{Ask, Lease, Reservation};
use crate::request::routed::Choice;
use crate::snapshot::RouteEntry;
use crate::upstream::client::{Conn, Pool};
use crate::upstream::forward::{Outbound, Target};
use crate::upstream::rewrite::Rewriting;
use crate::upstream::sample::Sampler;
use crate::upstream::stream::Silence;
use crate::upstream::whole;

/// Of a body that is not passed on, how much is read for its connection's sake, in bytes.
const DISCARDED_MAX: usize = 64 << 10;

/// A backend's answer, up to its head.
pub(super) struct Answer {
    pub(super) response: Response<Incoming>,
    pub(super) conn: Box<Conn>,
    /// `None` when a refused transfer has ended it.
    pub(super) lease: Option<Lease>,
    pub(super) silence: Silence,
    pub(super) sampler: Option<Sampler>,
    /// Of what the client is sent.
    pub(super) rewriting: Option<Box<Rewriting>>,
}

impl Exchange<'_> {
    /// Takes a slot and asks its backend; a failure that the route retries takes the next one, until a response's head is
    /// there to be sent (gateway.md §4).
    pub(super) async fn proxy_to_backend(
        &mut self,
        route: &RouteEntry,
        mut ask: Ask,
        reservation: Option<Reservation>,
        outbound: &Outbound,
    ) -> Result<Answer, Error> {
        let started = Instant::now();
        let granted = self.proxy.admission.acquire(&ask, reservation).await;
        route.metrics.waited(ask.waited + started.elapsed());
        let mut lease = granted.map_err(Error::Refused)?;
        // A transfer's wait is another one.
        ask.waited = Duration::ZERO;
        let mut silence = Silence::new(route.options.upstream_timeout);
        let mut attempts = Attempts::begin(&route.options);
        loop {
            let backend = route.backend(&lease.backend);
            self.tally.queued(lease.queued);
            route.metrics.granted(lease.mode);
            self.routed.choice =
                Some(Choice { mode: lease.mode, peer: backend.peer.clone(), retries: attempts.failed });
            if let Some(record) = &mut self.record {
                record.chosen(lease.mode, &lease.backend, attempts.failed);
            }
            let target = Target {
                backend: &lease.backend,
                host: &backend.host,
                // Engines that schedule their own ranks are sent none, whatever a grant says.
                dp_rank: lease.dp_rank.filter(|_| !route.options.backend_managed_affinity),
                connect_timeout: route.options.connect_timeout,
            };
            let sent = outbound.send(&self.proxy.pool, target, &mut silence, &self.proxy.metrics).await;
            let sampler =
                sent.as_ref().ok().and_then(|(answer, _)| Sampler::of(answer, &route.options, &backend.metrics));
            let failure = match &sent {
                Ok((response, _)) if response.status().is_server_error() => Failure::Status(response.status().as_u16()),
                Ok(_) => return Answer::new(sent, Some(lease), silence, sampler),
                Err(failure) => *failure,
            };
            if !attempts.may_follow(failure, &route.options) {
                return match sent {
                    Ok(_) => Answer::new(sent, Some(lease), silence, sampler),
                    Err(failure) => {
                        lease.failed(failure);
                        Err(error_of(failure))
                    }
                };
            }
            ask.tried.push(lease.backend.as_ref().to_owned());
            match attempts.in_time(self.proxy.admission.transfer(lease, failure, &ask)).await {
                Some(Ok(next)) => {
                    route.metrics.retries.inc();
                    lease = next;
                }
                Some(Err(refused)) if !is_no_better(refused.gate) => return Err(Error::Refused(refused)),
                // There is nothing better than what is at hand.
                Some(Err(_)) | None => return Answer::new(sent, None, silence, sampler),
            }
        }
    }
}

/// What a request has behind it, and until when it may begin anew.
#[derive(Debug)]
struct Attempts {
    failed: u32,
    /// `None`: whenever.
    until: Option<Instant>,
}

impl Attempts {
    /// The first one starts now.
    fn begin(options: &RouteOptions) -> Self {
        Self { failed: 0, until: options.retry_within.map(|within| Instant::now() + within) }
    }

    /// One has failed. Whether another backend may be tried.
    fn may_follow(&mut self, failure: Failure, options: &RouteOptions) -> bool {
        self.failed += 1;
        options.retry_on.covers(failure)
            && options.max_more_tries.allows(self.failed)
            && self.until.is_none_or(|until| Instant::now() < until)
    }

    /// The next slot; `None` when it came too late to begin with.
    async fn in_time<T>(&self, slot: impl Future<Output = T>) -> Option<T> {
        match self.until {
            Some(until) => tokio::time::timeout_at(until, slot).await.ok(),
            None => Some(slot.await),
        }
    }
}

impl Answer {
    fn new(
        sent: Result<(Response<Incoming>, Box<Conn>), Failure>,
        lease: Option<Lease>,
        silence: Silence,
        sampler: Option<Sampler>,
    ) -> Result<Self, Error> {
        let (response, conn) = sent.map_err(error_of)?;
        Ok(Self { response, conn, lease, silence, sampler, rewriting: None })
    }

    /// Gives up an answer whose status clients of the route are not to see (routing.md §8.3), and says what they see.
    pub(super) fn discard(self, pool: &Pool) -> Error {
        let status = self.response.status();
        if let Some(mut lease) = self.lease {
            lease.answered(status);
            lease.end(Outcome::Complete);
        }
        // Nobody waits for its body; one that is here already leaves the connection for others.
        let _ = whole::read(self.response.into_body(), self.conn, pool, DISCARDED_MAX).now_or_never();
        Error::HiddenStatus { status: status.as_u16() }
    }
}

/// A refused transfer that leaves the client with the backend's own failure.
fn is_no_better(gate: Gate) -> bool {
    match gate {
        // A model that is gone by now was there when the request came: it is no client's mistake.
        Gate::NoMoreBackends
        | Gate::NoBackend
        | Gate::ContextWindow
        | Gate::ControlPlaneUnavailable
        | Gate::UnknownModel => true,
        // What a client that comes again later gets past. Latency gates are not asked on transfers.
        Gate::UnknownRoute | Gate::QueueFull | Gate::QueueTimeout | Gate::SessionTableFull | Gate::Ttft | Gate::Tps => {
            false
        }
    }
}

fn error_of(failure: Failure) -> Error {
    match failure {
        Failure::HeaderTimeout => Error::BackendSilent,
        Failure::Connect | Failure::NoHead | Failure::Status(_) => Error::BackendUnreachable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use router_policy::option::{OptionSet, Preset, find};

    fn options(within: &str) -> RouteOptions {
        let set = [("retry_within", within), ("max_more_tries", "all")].map(|(name, text)| {
            let option = find(name).unwrap();
            (option.name, option.kind.parse_text(text).unwrap())
        });
        RouteOptions::resolve(Preset::None, &OptionSet::from(set))
    }

    #[tokio::test(start_paused = true)]
    async fn routing_8_2_no_attempt_starts_once_60_s_have_passed_since_the_first() {
        for (within, is_bounded) in [("60s", true), ("none", false)] {
            let options = options(within);
            let mut attempts = Attempts::begin(&options);
            tokio::time::advance(Duration::from_millis(59_999)).await;
            assert!(attempts.may_follow(Failure::Connect, &options), "{within}");
            assert!(!attempts.may_follow(Failure::Status(500), &options), "not retried at any time");
            let slot = |ms| async move { tokio::time::sleep(Duration::from_millis(ms)).await };
            assert_eq!(attempts.in_time(slot(0)).await, Some(()), "{within}");
            assert_eq!(attempts.in_time(slot(5000)).await.is_none(), is_bounded, "{within}");
            assert_eq!(attempts.may_follow(Failure::Connect, &options), !is_bounded, "{within}");
            assert_eq!(attempts.failed, 3);
        }
    }
}
