//! The pools of a route: one for all of its backends, or one per model. Each has its own flow control ([`Flow`]); they share
//! backends, leases and the lock.

use std::collections::HashMap;

use router_policy::admit::{BackendView, PoolView, Slot};
use router_policy::flow::{Bucket, Flow, FlowOptions, UnixMs};
use router_policy::option::RouteOptions;
use router_policy::route::{Priority, RouteSpec};
use router_policy::toggle::Toggles;

use super::Asked;

/// Of a lease whose pool is not in the route any more.
pub(super) const NO_POOL: usize = usize::MAX;

/// One pool.
#[derive(Debug)]
pub(super) struct ModelPool {
    /// `None`: the route has one pool for all models.
    pub model: Option<String>,
    /// Its backends, in the order of the document.
    pub members: Vec<Slot>,
    /// What they may hold when all are healthy (limits.md §1).
    pub static_max: u32,
    pub flow: Flow,
    /// What holds for it now.
    pub options: FlowOptions,
    /// Load 429s by reason, since the start or the last reset (limits.md §12.2).
    pub refusals: LoadRefusals,
    /// The flow has changed since it was stored last.
    pub is_dirty: bool,
    /// The interval in which the average was sampled last.
    pub sampled_in: Option<u64>,
}

/// Refusals for load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LoadRefusals {
    /// The pool was full, and so was its queue, or for too long.
    pub concurrency: u64,
    /// Its time to first token was past its limit.
    pub ttft: u64,
    /// Its throughput was.
    pub tps: u64,
}

impl ModelPool {
    fn new(model: Option<String>, options: &RouteOptions, toggles: &Toggles, now: UnixMs) -> Self {
        let options = options.flow.of_pool(model.as_deref(), toggles, now);
        Self {
            model,
            members: Vec::new(),
            static_max: 0,
            flow: Flow::default(),
            options,
            refusals: LoadRefusals::default(),
            // In place of what the database may hold of one that was here before.
            is_dirty: true,
            sampled_in: None,
        }
    }

    /// Its model as operators write it; empty for none.
    pub(super) fn name(&self) -> &str {
        self.model.as_deref().unwrap_or_default()
    }

    /// The step of a request's turn; `None` while turns are not ranked.
    pub(super) fn bucket(&self, asked: &Asked) -> Option<Bucket> {
        self.options.prio.as_ref().map(|prio| prio.table.bucket_of(asked.turn))
    }

    /// The adaptive limit, where there is one.
    pub(super) fn adaptive(&self, now: UnixMs) -> Option<f64> {
        self.options.active_adaptive()?;
        Some(self.flow.limit(now, &self.options, u32::MAX, self.static_max))
    }

    /// The pool as decisions see it; the route's part is the caller's.
    pub(super) fn view<'a>(&'a self, route: PoolView<'a>, now: UnixMs) -> PoolView<'a> {
        PoolView {
            members: &self.members,
            adaptive: self.adaptive(now),
            factor: self.options.rt_limit_factor,
            is_enforced: self.options.is_enforced,
            ..route
        }
    }
}

/// All pools of a route.
#[derive(Debug)]
pub(super) struct ModelPools {
    /// In order of the model's name; one without a name where models don't matter.
    pub list: Vec<ModelPool>,
    by_model: HashMap<String, usize>,
    /// Every backend of the route, for requests whose model is not known yet.
    pub everybody: Vec<Slot>,
}

impl ModelPools {
    pub(super) fn new() -> Self {
        Self { list: Vec::new(), by_model: HashMap::new(), everybody: Vec::new() }
    }

    pub(super) fn is_by_model(&self) -> bool {
        !self.by_model.is_empty()
    }

    /// The place of a model's pool; `None` when the route has no backend for it.
    pub(super) fn place(&self, model: &str) -> Option<usize> {
        if self.is_by_model() { self.by_model.get(model).copied() } else { (!self.list.is_empty()).then_some(0) }
    }

    /// The models that have a pool, sorted.
    pub(super) fn models(&self) -> Vec<&str> {
        self.list.iter().filter_map(|pool| pool.model.as_deref()).collect()
    }

    /// Makes the pools those of a document; a pool whose model stays keeps its flow. Says where each pool of before is now.
    pub(super) fn install(
        &mut self,
        spec: &RouteSpec,
        options: &RouteOptions,
        toggles: &Toggles,
        now: UnixMs,
    ) -> Vec<usize> {
        let models = spec.models();
        let wanted: Vec<Option<String>> = if models.is_empty() {
            vec![None]
        } else {
            models.into_iter().map(|model| Some(model.to_owned())).collect()
        };
        let mut before: Vec<Option<ModelPool>> = std::mem::take(&mut self.list).into_iter().map(Some).collect();
        let mut moved = vec![NO_POOL; before.len()];
        self.by_model.clear();
        for (place, model) in wanted.into_iter().enumerate() {
            let known = before.iter().position(|old| old.as_ref().is_some_and(|old| old.model == model));
            if let Some(known) = known.and_then(|known| moved.get_mut(known)) {
                *known = place;
            }
            let old = known.and_then(|known| before.get_mut(known)).and_then(Option::take);
            if let Some(model) = &model {
                self.by_model.insert(model.clone(), place);
            }
            self.list.push(old.unwrap_or_else(|| ModelPool::new(model, options, toggles, now)));
        }
        self.refresh_options(options, toggles, now);
        moved
    }

    /// Every pool starts anew.
    pub(super) fn forget_flow(&mut self) {
        for pool in &mut self.list {
            pool.flow = Flow::default();
            pool.refusals = LoadRefusals::default();
            pool.sampled_in = None;
            pool.is_dirty = true;
        }
    }

    /// Takes what is set at run time into account.
    pub(super) fn refresh_options(&mut self, options: &RouteOptions, toggles: &Toggles, now: UnixMs) {
        for pool in &mut self.list {
            pool.options = options.flow.of_pool(pool.model.as_deref(), toggles, now);
        }
    }

    /// Finds each pool's backends again: slots have moved or come.
    pub(super) fn refresh_members(
        &mut self,
        spec: &RouteSpec,
        options: &RouteOptions,
        slot_of: impl Fn(&router_policy::ids::BackendId) -> Option<Slot>,
        views: &[BackendView],
    ) {
        let slots = |serves: &dyn Fn(&router_policy::route::BackendSpec) -> bool| -> Vec<Slot> {
            spec.backends.iter().filter(|one| serves(one)).filter_map(|one| slot_of(&one.id)).collect()
        };
        self.everybody = slots(&|_| true);
        for pool in &mut self.list {
            pool.members = slots(&|one| one.serves(pool.model.as_deref().unwrap_or_default()));
            pool.static_max = static_max(&pool.members, views, options);
        }
    }
}

/// The largest tier's sum, or that of all tiers where they are crossed; health is left aside.
fn static_max(members: &[Slot], views: &[BackendView], options: &RouteOptions) -> u32 {
    let mut by_tier: HashMap<Priority, u32> = HashMap::new();
    for view in members.iter().filter_map(|slot| views.get(*slot)) {
        let tier = if options.cross_tier_fallback { Priority::default() } else { view.priority };
        let sum = by_tier.entry(tier).or_default();
        *sum = sum.saturating_add(view.limit);
    }
    by_tier.into_values().max().unwrap_or(options.max_concurrency)
}
