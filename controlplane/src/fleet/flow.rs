//! Pools' flow control, kept over restarts: adaptive limits, EWMAs and counters are at most a second old in the database
//! (design.md §4). What is lost is made anew by traffic.

use std::sync::Arc;

use super::Fleet;
use crate::pool::Pool;
use crate::store::FlowRow;

impl Fleet {
    /// Takes up what the database holds, before anything is admitted.
    pub(super) fn restore_flows(&self, rows: &[FlowRow]) {
        let pools = self.pools();
        for row in rows {
            if let Some(pool) = pools.get(&row.route) {
                pool.restore_flow(row);
            }
        }
    }

    /// Stores what has changed since the last call. On an error, the next one stores it.
    pub async fn store_flows(&self) {
        // An older word must not reach the database after a newer one.
        let _alone = self.storing_flows.lock().await;
        let pools: Vec<Arc<Pool>> = self.pools().values().cloned().collect();
        let (mut rows, mut told) = (Vec::new(), Vec::new());
        for pool in pools {
            let of_pool = pool.take_flow_rows();
            if !of_pool.is_empty() {
                rows.extend(of_pool);
                told.push(pool);
            }
        }
        if rows.is_empty() {
            return;
        }
        if let Err(error) = self.store.save_flows(&rows).await {
            tracing::debug!(%error, "flow control of pools could not be stored; the next time");
            for pool in told {
                pool.flow_not_stored();
            }
        }
    }
}
