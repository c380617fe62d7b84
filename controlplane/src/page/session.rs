//! `_session_status`: session turn priority, its table, and what became of each bucket's requests (limits.md §9, §12.6). Where
//! there is a pool per model, counters are their sums.

use router_policy::flow::{BucketCounts, LatencyGate};
use router_policy::toggle::Switch;
use serde_json::{Map, Value as Json, json};

use super::Asked;
use super::answer::{Answer, object};
use super::refusals::effective;
use crate::pool::FlowSeen;

pub(super) fn status(asked: &Asked<'_>) -> Answer {
    let (seen, flows) = (asked.pool.inspect(), asked.pool.inspect_flows());
    let held = effective(&seen, Switch::SessionPrio);
    let prio = seen.spec.options().flow.prio;
    let (mut buckets, mut no_header) =
        (vec![BucketCounts::default(); prio.table.rows().len()], BucketCounts::default());
    for pool in &flows {
        let counts = pool.flow.turn_counts();
        for (sum, one) in buckets.iter_mut().zip(counts.buckets()) {
            add(sum, one);
        }
        add(&mut no_header, counts.no_header());
    }
    let rows = prio.table.rows().iter().zip(&buckets).enumerate().map(|(at, (row, counts))| {
        let first = [
            ("bucket", Some(json!(at))),
            ("min_turn", Some(json!(row.min_turn))),
            ("share", Some(json!(row.share))),
            ("tol", Some(json!(row.tol))),
        ];
        object(first.into_iter().chain(counted(counts)))
    });
    let pool = |pool: &FlowSeen| {
        let (_, cold) = pool.flow.probes_used(seen.unix, &pool.options, LatencyGate::Ttft);
        let state = json!({"hold": pool.flow.is_held(seen.unix, &pool.options), "t1_probes_used_cur_window": cold});
        (pool.key().to_owned(), state)
    };
    held.tell(Answer::of(asked.route()))
        .with("table", rows.collect::<Vec<Json>>())
        .with("no_header", object(counted(&no_header)))
        .with("severe", prio.severe)
        .with("release", prio.release)
        .with("t1_probes", prio.t1_probes)
        .with("warn_frac", prio.warn_frac)
        .with("pools", flows.iter().map(pool).collect::<Map<_, _>>())
}

/// `over` are those that found their share of the pool full; they may have waited and got in. `ptok` are prompt tokens, `ctok`
/// those of them that were cached.
fn counted(counts: &BucketCounts) -> [(&'static str, Option<Json>); 6] {
    [
        ("admits", Some(json!(counts.admitted))),
        ("refusals", Some(json!(counts.refused))),
        ("over", Some(json!(counts.over))),
        ("ptok", Some(json!(counts.prompt_tokens))),
        ("ctok", Some(json!(counts.cached_tokens))),
        ("hit_rate", counts.hit_rate().map(Json::from)),
    ]
}

fn add(sum: &mut BucketCounts, one: &BucketCounts) {
    sum.admitted = sum.admitted.saturating_add(one.admitted);
    sum.refused = sum.refused.saturating_add(one.refused);
    sum.over = sum.over.saturating_add(one.over);
    sum.prompt_tokens = sum.prompt_tokens.saturating_add(one.prompt_tokens);
    sum.cached_tokens = sum.cached_tokens.saturating_add(one.cached_tokens);
}
