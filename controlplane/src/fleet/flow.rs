//! Pools' flow control and payload counts, kept over restarts: adaptive limits, EWMAs and counters are at most a second old in
//! the database (design.md §4). What is lost of flow control is made anew by traffic.

use std::sync::Arc;

use super::Fleet;
use crate::pool::Pool;
use crate::store::{FlowRow, PayloadCountsRow};

impl Fleet {
    /// Takes up what the database holds, before anything is admitted.
    pub(super) fn restore_flows(&self, flows: &[FlowRow], counts: &[PayloadCountsRow]) {
        let pools = self.pools();
        for row in flows {
            if let Some(pool) = pools.get(&row.route) {
                pool.restore_flow(row);
            }
        }
        for row in counts {
            if let Some(pool) = pools.get(&row.route) {
                pool.restore_payload(row);
            }
        }
    }

    /// Stores what has changed since the last call. On an error, the next one stores it.
    pub async fn store_flows(&self) {
        // An older word must not reach the database after a newer one.
        let _alone = self.storing_flows.lock().await;
        let pools: Vec<Arc<Pool>> = self.pools().values().cloned().collect();
        self.store_changed_flows(&pools).await;
        self.store_changed_counts(&pools).await;
    }

    async fn store_changed_flows(&self, pools: &[Arc<Pool>]) {
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

    async fn store_changed_counts(&self, pools: &[Arc<Pool>]) {
        let changed = pools.iter().filter_map(|pool| Some((pool.take_payload_row()?, pool)));
        let (rows, told): (Vec<_>, Vec<_>) = changed.unzip();
        if rows.is_empty() {
            return;
        }
        if let Err(error) = self.store.save_payload_counts(&rows).await {
            tracing::debug!(%error, "payload counts could not be stored; the next time");
            for pool in told {
                pool.payload_not_stored();
            }
        }
    }
}
