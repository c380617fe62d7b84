//! Operations that wait for an answer, by number. Belongs to one link and ends with it. Locked for moments only.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use router_policy::ids::{Fingerprint, RouteName};
use router_policy::refusal::Gate;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::lease::Said;
use super::{Lease, Refused};

/// What the control plane said.
pub(crate) type Answer = Result<Lease, Refused>;

/// One that waits, with what its lease needs to be registered.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) answer: oneshot::Sender<Answer>,
    pub(crate) route: RouteName,
    pub(crate) fingerprint: Option<Fingerprint>,
    pub(crate) said: Said,
    pub(crate) give_up_at: Instant,
    /// The route's; a grant may be on its way for so long, while its binding waits for the database.
    pub(crate) queue_timeout: Duration,
}

impl Waiter {
    /// What is remembered of it once it waits no more: its route, and until when.
    fn gone(&self, now: Instant) -> (RouteName, Instant) {
        (self.route.clone(), now + self.queue_timeout + REMEMBER_CANCELLED)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Pending {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Bounded by the requests in flight.
    waiters: HashMap<u64, Waiter>,
    /// Taken back or given up; a grant may have crossed the `Cancel`. With the time when each is forgotten, which bounds it.
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

/// An answer that crosses a `Cancel` is here within a round trip, or after its binding's wait for the database.
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
        inner.cancelled.insert(op, waiter.gone(Instant::now()));
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

    /// Refuses those that the control plane has forgotten. Returns their numbers: it must be told, and a grant that comes
    /// all the same is one for nobody.
    pub(crate) fn expire(&self, now: Instant) -> Vec<u64> {
        let expired: Vec<(u64, Waiter)> = {
            let mut inner = self.inner.lock();
            inner.cancelled.retain(|_, (_, forget_at)| now < *forget_at);
            let expired: Vec<(u64, Waiter)> = inner.waiters.extract_if(|_, waiter| waiter.give_up_at < now).collect();
            inner.cancelled.extend(expired.iter().map(|(op, waiter)| (*op, waiter.gone(now))));
            expired
        };
        let refuse = |(op, waiter): (u64, Waiter)| {
            // Nobody waits any more: nothing to tell.
            let _ = waiter.answer.send(Err(Refused::by(Gate::ControlPlaneUnavailable)));
            op
        };
        expired.into_iter().map(refuse).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiter(seconds: u64) -> (Waiter, oneshot::Receiver<Answer>) {
        let (answer, receiver) = oneshot::channel();
        let route = RouteName::new("chat").unwrap();
        let give_up_at = Instant::now() + Duration::from_secs(seconds);
        (
            Waiter {
                answer,
                route,
                fingerprint: None,
                said: Said::default(),
                give_up_at,
                queue_timeout: Duration::from_secs(60),
            },
            receiver,
        )
    }

    #[tokio::test(start_paused = true)]
    async fn a_stuck_control_plane_is_not_waited_for_for_ever() {
        let pending = Pending::default();
        let ((early, mut gone), (late, mut waiting)) = (waiter(5), waiter(50));
        assert!(pending.insert(2, early) && pending.insert(3, late));
        pending.expire(Instant::now());
        assert!(gone.try_recv().is_err(), "not yet");
        tokio::time::advance(Duration::from_secs(6)).await;
        assert_eq!(pending.expire(Instant::now()), [2]);
        assert_eq!(gone.try_recv().unwrap().unwrap_err().gate, Gate::ControlPlaneUnavailable);
        assert!(matches!(pending.take(2), Taken::Cancelled(_)), "a late grant goes back");
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
        assert!(pending.insert(4, waiter(500).0) && pending.cancel(4));
        tokio::time::advance(Duration::from_secs(60)).await;
        pending.expire(Instant::now());
        assert!(matches!(pending.take(4), Taken::Cancelled(_)), "its binding may wait for so long");
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
