//! Room for so many connections. When there is none for another, the one that has been silent between two frames for longest
//! is asked to leave: many that only hold a place can't keep replicas out.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// All places, free and taken.
#[derive(Debug)]
pub(super) struct Slots {
    free: Arc<Semaphore>,
    idle: Mutex<Idle>,
    /// One more connection is silent.
    another_idle: Notify,
    /// Ends all.
    stopping: CancellationToken,
}

/// Connections between two frames, in the order in which they came to be.
#[derive(Debug, Default)]
struct Idle {
    next: u64,
    connections: BTreeMap<u64, CancellationToken>,
}

/// One connection's place, given back in `Drop`.
#[derive(Debug)]
pub(super) struct Slot {
    slots: Arc<Slots>,
    leave: CancellationToken,
    _place: Option<OwnedSemaphorePermit>,
}

/// Its connection may be asked to leave as long as this lives.
#[derive(Debug)]
pub(super) struct Silent<'a> {
    slots: &'a Slots,
    number: u64,
}

impl Slots {
    pub(super) fn new(count: usize) -> Arc<Self> {
        Arc::new(Self {
            free: Arc::new(Semaphore::new(count)),
            idle: Mutex::default(),
            another_idle: Notify::new(),
            stopping: CancellationToken::new(),
        })
    }

    /// Waits for a place. For each call at most one connection is asked to leave.
    pub(super) async fn room(self: &Arc<Self>) -> Slot {
        let place = Arc::clone(&self.free).acquire_owned();
        tokio::pin!(place);
        let mut is_asked = false;
        loop {
            if let Some(place) = (&mut place).now_or_never() {
                // Never closed; without a place there is room all the same.
                return self.slot(place.ok());
            }
            is_asked = is_asked || self.ask_longest_idle();
            tokio::select! {
                place = &mut place => return self.slot(place.ok()),
                () = self.another_idle.notified(), if !is_asked => {}
            }
        }
    }

    /// A place beyond all others, for what the kernel has accepted when the collector stops.
    pub(super) fn beyond(self: &Arc<Self>) -> Slot {
        self.slot(None)
    }

    /// Asks all to leave.
    pub(super) fn stop(&self) {
        self.stopping.cancel();
    }

    /// Cancelled by [`Self::stop`].
    pub(super) fn stopping(&self) -> &CancellationToken {
        &self.stopping
    }

    fn slot(self: &Arc<Self>, place: Option<OwnedSemaphorePermit>) -> Slot {
        Slot { slots: Arc::clone(self), leave: self.stopping.child_token(), _place: place }
    }

    fn ask_longest_idle(&self) -> bool {
        let longest = self.idle.lock().connections.pop_first();
        longest.is_some_and(|(_, leave)| {
            leave.cancel();
            true
        })
    }
}

impl Slot {
    /// The connection is between two frames.
    pub(super) fn silent(&self) -> Silent<'_> {
        let number = {
            let mut idle = self.slots.idle.lock();
            let number = idle.next;
            idle.next += 1;
            idle.connections.insert(number, self.leave.clone());
            number
        };
        self.slots.another_idle.notify_one();
        Silent { slots: &self.slots, number }
    }

    /// Cancelled when the connection is asked to leave.
    pub(super) fn leave(&self) -> &CancellationToken {
        &self.leave
    }
}

impl Drop for Silent<'_> {
    fn drop(&mut self) {
        self.slots.idle.lock().connections.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_idle_leaves_for_one_that_needs_its_place() {
        let slots = Slots::new(3);
        let mut held: Vec<Slot> = (0..3).map(|_| slots.room().now_or_never().unwrap()).collect();
        let has_to_leave = |held: &[Slot]| held.iter().map(|slot| slot.leave().is_cancelled()).collect::<Vec<_>>();
        // Nobody is idle: the next one waits.
        let mut next = Box::pin(slots.room());
        assert!((&mut next).now_or_never().is_none());
        assert_eq!(has_to_leave(&held), [false; 3]);
        // Busy again before it is asked; the second has been idle for longer than the third.
        drop(held[0].silent());
        let silent = (held[1].silent(), held[2].silent());
        assert!((&mut next).now_or_never().is_none());
        assert!((&mut next).now_or_never().is_none());
        assert_eq!(has_to_leave(&held), [false, true, false], "one for one");
        drop(silent);
        drop(held.remove(1));
        assert!(next.now_or_never().is_some());
        slots.stop();
        assert_eq!(has_to_leave(&held), [true; 2]);
        assert!(slots.beyond().leave().is_cancelled());
    }
}
