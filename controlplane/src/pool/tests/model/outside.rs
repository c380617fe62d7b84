//! What a run must look like from outside, kept by counting answers only.

use super::*;

/// What an operation asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) session: Option<u8>,
    pub(super) replica: bool,
    pub(super) model: bool,
    pub(super) is_transfer: bool,
}

/// A lease as its holder knows it.
#[derive(Debug, Clone)]
pub(super) struct HeldLease {
    pub(super) lease: u64,
    /// Empty for a reservation.
    pub(super) backend: String,
    pub(super) replica: bool,
    pub(super) wanted: Wanted,
    pub(super) is_wide: bool,
}

/// What a run must look like from outside, kept by counting answers only.
pub(super) struct Model {
    pub(super) shape: Shape,
    pub(super) held: Vec<HeldLease>,
    pub(super) waiting: HashSet<u64>,
    pub(super) answered: HashSet<u64>,
    pub(super) bound: HashMap<u8, String>,
    pub(super) asked: HashMap<u64, (Wanted, bool)>,
}

impl Model {
    /// Takes one of the leases whose backend suits.
    pub(super) fn take(&mut self, pick: usize, suits: impl Fn(&str) -> bool) -> Option<HeldLease> {
        let places: Vec<usize> = (0..self.held.len()).filter(|at| suits(&self.held[*at].backend)).collect();
        let at = places.get(pick % places.len().max(1))?;
        Some(self.held.swap_remove(*at))
    }

    pub(super) fn on(&self, name: &str) -> usize {
        self.held.iter().filter(|held| held.backend == name).count()
    }

    pub(super) fn hear(&mut self, op: v1::ServerOp, limit: u32) {
        assert!(self.answered.insert(op.op), "answered twice");
        assert!(self.waiting.remove(&op.op), "answered without being asked");
        let (wanted, is_wide) = self.asked[&op.op];
        let granted = match op.kind {
            Some(Kind::Granted(granted)) => granted,
            Some(Kind::Refused(refused)) => {
                if refused.gate == i32::from(v1::Gate::SessionTableFull) {
                    let session = wanted.session.expect("only a session needs a place in the table");
                    assert!(!self.bound.contains_key(&session), "a full table refuses only new sessions");
                    assert_eq!(self.bound.len(), MAX_SESSIONS);
                }
                assert_ne!(refused.gate, i32::from(v1::Gate::UnknownModel), "both models have a backend");
                return;
            }
            other => panic!("an answer expected, got {other:?}"),
        };
        self.bind(wanted.session, &granted);
        let backend = granted.backend.clone();
        self.held.push(HeldLease { lease: granted.lease, backend, replica: wanted.replica, wanted, is_wide });
        if granted.backend.is_empty() {
            let room: usize = (0..BACKENDS).map(|at| (limit as usize).saturating_sub(self.on(&name(at)))).sum();
            assert!(self.on("") <= room, "more is reserved than the pool has");
            return;
        }
        let load = self.on(&granted.backend);
        assert!(load <= limit as usize, "{load} on {} with limit {limit}", granted.backend);
        if self.shape.is_by_model {
            let place = (0..BACKENDS).find(|at| name(*at) == granted.backend).unwrap();
            assert!(serves(place, wanted.model), "a backend of another model");
        }
    }

    fn bind(&mut self, session: Option<u8>, granted: &v1::Granted) {
        let is_bound = self.shape.is_binding && !granted.backend.is_empty();
        let Some(session) = session.filter(|_| is_bound) else { return };
        let before = self.bound.insert(session, granted.backend.clone());
        if granted.mode == i32::from(v1::Mode::Bound) {
            assert_eq!(before.as_ref(), Some(&granted.backend), "bound means: where it was");
        }
        if granted.mode == i32::from(v1::Mode::New) {
            assert_eq!(before, None, "a session is new once");
        }
        if granted.mode == i32::from(v1::Mode::Moved) {
            assert!(before.is_some_and(|home| home != granted.backend), "moved means: elsewhere");
        }
    }
}
