//! Operations that wait for an answer, by number. Belongs to one link and ends with it. Locked for moments only.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use router_policy::ids::{Fingerprint, RouteName};
use router_policy::refusal::Gate;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Lease, Refused};

/// What the control plane said.
pub(crate) type Answer = Result<Lease, Refused>;

/// One that waits, with what its lease needs to be registered.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) answer: oneshot::Sender<Answer>,
    pub(crate) route: RouteName,
    pub(crate) fingerprint: Option<Fingerprint>,
    pub(crate) give_up_at: Instant,
}

#[derive(Debug, Default)]
pub(crate) struct Pending {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Bounded by the requests in flight.
    waiters: HashMap<u64, Waiter>,
    /// Taken back; a grant may have crossed the `Cancel`. Bounded by age.
    cancelled: HashMap<u64, (RouteName, Instant)>,
    is_closed: bool,
}

/// Who an answer is for.
#[derive(Debug)]
pub(crate) enum Taken {
    Waiting(Waiter),
    /// The client went away meanwhile; the route that it asked for.
    Cancelled(RouteName),
    Unknown,
}

/// An answer that crosses a `Cancel` is here within a round trip.
const REMEMBER_CANCELLED: Duration = Duration::from_secs(30);

impl Pending {
    /// False when the link is gone: nobody would answer.
    pub(crate) fn insert(&self, op: u64, waiter: Waiter) -> bool {
        let mut inner = self.inner.lock();
        if inner.is_closed {
            return false;
        }
        inner.waiters.insert(op, waiter);
        true
    }

    pub(crate) fn take(&self, op: u64) -> Taken {
        let mut inner = self.inner.lock();
        match inner.waiters.remove(&op) {
            Some(waiter) => Taken::Waiting(waiter),
            None => inner.cancelled.remove(&op).map_or(Taken::Unknown, |(route, _)| Taken::Cancelled(route)),
        }
    }

    /// The waiter has gone. True when no answer had come yet: the control plane must be told.
    pub(crate) fn cancel(&self, op: u64) -> bool {
        let mut inner = self.inner.lock();
        let Some(waiter) = inner.waiters.remove(&op) else { return false };
        inner.cancelled.insert(op, (waiter.route, Instant::now()));
        true
    }

    /// The link is gone: every waiter learns it, and no more come.
    pub(crate) fn close(&self) {
        let waiters = {
            let mut inner = self.inner.lock();
            inner.is_closed = true;
            std::mem::take(&mut inner.waiters)
        };
        // Waking them needs no lock.
        drop(waiters);
    }

    /// Refuses those that the control plane has forgotten.
    pub(crate) fn expire(&self, now: Instant) {
        let expired: Vec<Waiter> = {
            let mut inner = self.inner.lock();
            inner.cancelled.retain(|_, (_, at)| now.duration_since(*at) < REMEMBER_CANCELLED);
            inner.waiters.extract_if(|_, waiter| waiter.give_up_at < now).map(|(_, waiter)| waiter).collect()
        };
        for waiter in expired {
            // Nobody waits any more: nothing to tell.
            let _ = waiter.answer.send(Err(Refused::by(Gate::ControlPlaneUnavailable)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiter(seconds: u64) -> (Waiter, oneshot::Receiver<Answer>) {
        let (answer, receiver) = oneshot::channel();
        let route = RouteName::new("chat").unwrap();
        let give_up_at = Instant::now() + Duration::from_secs(seconds);
        (Waiter { answer, route, fingerprint: None, give_up_at }, receiver)
    }

    #[tokio::test(start_paused = true)]
    async fn a_stuck_control_plane_is_not_waited_for_for_ever() {
        let pending = Pending::default();
        let ((early, mut gone), (late, mut waiting)) = (waiter(5), waiter(50));
        assert!(pending.insert(2, early) && pending.insert(3, late));
        pending.expire(Instant::now());
        assert!(gone.try_recv().is_err(), "not yet");
        tokio::time::advance(Duration::from_secs(6)).await;
        pending.expire(Instant::now());
        assert_eq!(gone.try_recv().unwrap().unwrap_err().gate, Gate::ControlPlaneUnavailable);
        assert!(waiting.try_recv().is_err());
        assert!(matches!(pending.take(3), Taken::Waiting(_)));
        assert!(matches!(pending.take(3), Taken::Unknown));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_one_is_remembered_once_and_for_a_while() {
        let pending = Pending::default();
        for op in [2, 3] {
            assert!(pending.insert(op, waiter(5).0));
            assert!(pending.cancel(op));
            assert!(!pending.cancel(op));
        }
        assert!(matches!(pending.take(2), Taken::Cancelled(_)));
        assert!(matches!(pending.take(2), Taken::Unknown));
        tokio::time::advance(REMEMBER_CANCELLED).await;
        pending.expire(Instant::now());
        assert!(matches!(pending.take(3), Taken::Unknown));
    }

    #[tokio::test]
    async fn a_lost_link_tells_all_who_wait_and_takes_no_more() {
        let pending = Pending::default();
        let (one, answer) = waiter(5);
        assert!(pending.insert(2, one));
        pending.close();
        assert!(answer.await.is_err());
        assert!(!pending.insert(3, waiter(5).0));
    }
}
