//! Replicas come and go.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use router_policy::ids::{BackendId, Fingerprint, LeaseId};
use router_policy::tick::Tick;
use router_proto::v1;
use tokio_util::sync::CancellationToken;

use super::Fleet;
use crate::pool::{Caller, Held};
use crate::replicas::Replica;

impl Fleet {
    /// A stream says hello: its replica's leases become those that it reports.
    pub fn hello(&self, hello: &v1::Hello, stream: u64, cut: CancellationToken) -> Arc<Replica> {
        let now = self.context.clock.now();
        let mut held: HashMap<&str, Vec<Held>> = HashMap::new();
        for lease in &hello.held {
            if let Some(read) = read_held(lease, now) {
                held.entry(lease.route.as_str()).or_default().push(read);
            }
        }
        let _alone = self.roll_call.lock();
        let replica = self.replicas.connect(hello, stream, cut, now);
        for pool in self.holders() {
            let held = held.remove(pool.name().as_str()).unwrap_or_default();
            pool.reconcile(&replica.id, &held);
        }
        for binding in &hello.provisional {
            let session = Fingerprint::from_slice(&binding.fingerprint);
            let backend = BackendId::new(&binding.backend).ok();
            if let (Some(session), Some(backend), Ok(pool)) = (session, backend, self.pool(&binding.route)) {
                pool.adopt_binding(session, backend);
            }
        }
        self.replicas.settled(&replica.id);
        replica
    }

    /// A stream has ended: nobody hears its waiters' answers any more. Its leases stay until the lease TTL.
    pub fn stream_ended(&self, caller: &Caller, replica: &Replica) {
        for pool in self.pools().values() {
            pool.drop_stream(caller.stream);
        }
        if *replica.stream.lock() == caller.stream {
            replica.disconnected();
        }
    }

    /// A replica shuts down in order: everything that it held is free at once.
    pub async fn goodbye(&self, replica: &Replica, stream: u64) {
        let spoke_for_it = {
            let _alone = self.roll_call.lock();
            let spoke_for_it = self.replicas.remove(replica, stream);
            if spoke_for_it {
                self.drop_leases(&replica.id);
            }
            spoke_for_it
        };
        if spoke_for_it && let Err(error) = self.store.remove_replica(&replica.id).await {
            tracing::info!(%error, "a replica's goodbye could not be stored; it is given up at the next start");
        }
    }

    /// Gives up replicas that were silent for the lease TTL.
    pub async fn give_up_silent(&self) {
        let silent = {
            let _alone = self.roll_call.lock();
            let silent = self.replicas.take_silent(self.context.clock.now(), self.lease_ttl);
            for replica in &silent {
                let leases = self.drop_leases(&replica.id);
                tracing::warn!(replica = %replica.id, listen = replica.listen, leases, "replica is silent; its leases return");
            }
            silent
        };
        for replica in silent {
            if let Err(error) = self.store.remove_replica(&replica.id).await {
                tracing::info!(%error, "a replica's end could not be stored; it is given up at the next start");
            }
        }
    }

    fn drop_leases(&self, replica: &str) -> usize {
        self.holders().iter().map(|pool| pool.drop_replica(replica)).sum()
    }
}

fn read_held(lease: &v1::HeldLease, now: Tick) -> Option<Held> {
    Some(Held {
        lease: LeaseId(lease.lease),
        backend: if lease.backend.is_empty() { None } else { Some(BackendId::new(&lease.backend).ok()?) },
        fingerprint: Fingerprint::from_slice(&lease.fingerprint),
        window: lease.context_tokens,
        model: lease.model.clone(),
        turn: (lease.turn != 0).then_some(lease.turn),
        is_stream: lease.is_stream,
        granted: Tick(now.0.saturating_sub(Duration::from_millis(lease.age_ms).as_millis().try_into().ok()?)),
    })
}
