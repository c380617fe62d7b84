//! What would become of a request now, for operators who ask: the same decision that the request itself would meet, and
//! nothing changes by asking.

use router_policy::admit::{self, Decision, Slot};
use router_policy::flow::{Bucket, UnixMs, Verdict};
use router_policy::refusal::{Gate, Refusal};
use router_policy::tick::Tick;

use super::model_pool::ModelPool;
use super::state::{Lists, State};
use super::{Asked, Place};

/// One request's outlook.
pub(super) struct Foreseen<'a> {
    pub pool: &'a ModelPool,
    /// Its turn's step, where turns are ranked.
    pub bucket: Option<Bucket>,
    /// The session table is full, and one of its sessions would end for this request's.
    pub may_evict: bool,
    /// What the gates that count slots say.
    pub decision: Decision,
    /// What those say that judge the pool by its speed; a request that waits or is refused before does not meet them.
    pub speed: Verdict,
    /// Where its session belongs, whether that can take it or not.
    pub belongs: Option<Slot>,
    /// The load that was decided on; its gate means nothing.
    pub load: Refusal,
}

impl State {
    /// `None` when the route has no pool for the request's model.
    pub(super) fn foresee(&self, asked: &Asked, now: Tick, unix: UnixMs) -> Option<Foreseen<'_>> {
        let place = self.pools.place(&asked.model).map(Place::Pool)?;
        let pool = self.pool(place)?;
        let view = self.view_for(place, asked, now, unix);
        let lists = Lists { tried: self.tried(asked), ranked: self.ranked(asked) };
        let ask = self.ask(place, asked, &lists, false);
        let bucket = pool.bucket(asked);
        let mut decision = admit::decide(&view, &ask);
        if let Decision::Refuse(refusal) = decision
            && refusal.gate == Gate::QueueFull
            && self.has_colder_waiter(asked)
        {
            decision = Decision::Wait;
        }
        Some(Foreseen {
            pool,
            bucket,
            may_evict: self.view(place, unix).sessions_full && !view.sessions_full,
            decision,
            speed: pool.flow.peek(unix, &pool.options, bucket),
            belongs: admit::belongs(&view, &ask),
            load: admit::refusal(&view, &ask, Gate::QueueFull),
        })
    }
}
