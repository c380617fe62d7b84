//! The selected backends now, and at each change: what `drain --wait` shows.

use std::sync::Arc;
use std::time::Duration;

use futures_core::Stream;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use router_proto::v1;
use tokio::sync::watch;
use tonic::Status;

use super::backend::states;
use crate::fleet::{Fleet, Selected};

/// Changes within this time are told together.
const AT_MOST_EVERY: Duration = Duration::from_millis(100);

struct Watched {
    fleet: Arc<Fleet>,
    selected: Selected,
    activity: Vec<watch::Receiver<()>>,
    last: Option<Vec<v1::BackendState>>,
}

/// The states, first at once.
pub(super) fn states_stream(
    fleet: Arc<Fleet>,
    selected: Selected,
) -> impl Stream<Item = Result<v1::BackendStates, Status>> {
    let activity = selected.iter().map(|(pool, _)| pool.watch_activity()).collect();
    let watched = Watched { fleet, selected, activity, last: None };
    futures_util::stream::unfold(watched, |mut at| async move {
        loop {
            if at.last.is_some() {
                let mut changes: FuturesUnordered<_> = at.activity.iter_mut().map(watch::Receiver::changed).collect();
                tokio::select! {
                    // A pool's sender lives as long as the pool, and `selected` holds that.
                    change = changes.next() => change?.ok()?,
                    () = at.fleet.shutdown().cancelled() => return None,
                }
                drop(changes);
                tokio::time::sleep(AT_MOST_EVERY).await;
                at.activity.iter_mut().for_each(watch::Receiver::mark_unchanged);
            }
            let now = states(&at.selected);
            if at.last.as_ref() != Some(&now) {
                at.last = Some(now.clone());
                return Some((Ok(v1::BackendStates { backends: now }), at));
            }
        }
    })
}
