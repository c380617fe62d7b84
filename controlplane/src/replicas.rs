//! The replicas: who is connected, who is silent, and whose silence has lasted too long.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use router_policy::tick::Tick;
use router_proto::v1;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::store::ReplicaRow;

/// One replica.
#[derive(Debug)]
pub struct Replica {
    /// Its id.
    pub id: Arc<str>,
    /// What it said of itself.
    pub version: String,
    /// Where it takes traffic.
    pub listen: String,
    /// The stream that speaks for it now. Whoever handles operations holds the lock and checks that it is its own: after a
    /// new stream has said hello, nothing of the old one counts.
    pub stream: Mutex<u64>,
    state: Mutex<Link>,
}

#[derive(Debug)]
struct Link {
    last_seen: Tick,
    is_connected: bool,
    /// Ends the stream.
    cut: CancellationToken,
}

/// All replicas by id.
#[derive(Debug)]
pub struct Replicas {
    by_id: Mutex<HashMap<Arc<str>, Arc<Replica>>>,
    /// Replicas from before this start that have not said hello yet.
    missing: Mutex<Vec<Arc<str>>>,
    has_recovered: watch::Sender<bool>,
}

impl Replicas {
    /// With the replicas that the database remembers; nobody is welcomed before they are back or given up.
    pub fn new(remembered: Vec<ReplicaRow>, now: Tick) -> Self {
        let by_id: HashMap<Arc<str>, Arc<Replica>> = remembered
            .into_iter()
            .map(|row| {
                let id: Arc<str> = row.replica.into();
                let link = Link { last_seen: now, is_connected: false, cut: CancellationToken::new() };
                let replica = Replica {
                    id: Arc::clone(&id),
                    version: row.version,
                    listen: row.listen,
                    stream: Mutex::new(0),
                    state: Mutex::new(link),
                };
                (id, Arc::new(replica))
            })
            .collect();
        let missing: Vec<Arc<str>> = by_id.keys().cloned().collect();
        let has_recovered = watch::Sender::new(missing.is_empty());
        Self { by_id: Mutex::new(by_id), missing: Mutex::new(missing), has_recovered }
    }

    /// A stream says hello for a replica; its earlier stream is cut.
    pub fn connect(&self, hello: &v1::Hello, stream: u64, cut: CancellationToken, now: Tick) -> Arc<Replica> {
        let id: Arc<str> = hello.replica_id.as_str().into();
        let replica = Arc::new(Replica {
            id: Arc::clone(&id),
            version: hello.version.clone(),
            listen: hello.listen.clone(),
            stream: Mutex::new(stream),
            state: Mutex::new(Link { last_seen: now, is_connected: true, cut }),
        });
        let earlier = self.by_id.lock().insert(id, Arc::clone(&replica));
        if let Some(earlier) = earlier {
            // Waits for an operation of the old stream that is being handled; none follows it.
            *earlier.stream.lock() = stream;
            earlier.state.lock().cut.cancel();
        }
        replica
    }

    /// A replica's leases are settled. The last of those that were missing lets everybody in.
    pub fn settled(&self, replica: &str) {
        let mut missing = self.missing.lock();
        missing.retain(|id| &**id != replica);
        if missing.is_empty() {
            self.has_recovered.send_replace(true);
        }
    }

    /// Stops waiting for replicas that have not come back.
    pub fn give_up_missing(&self) {
        let missing = std::mem::take(&mut *self.missing.lock());
        if !missing.is_empty() {
            tracing::info!(replicas = missing.len(), "replicas of the last start have not come back");
        }
        self.has_recovered.send_replace(true);
    }

    /// Resolves when streams may be welcomed.
    pub async fn recovered(&self) {
        let mut seen = self.has_recovered.subscribe();
        // The sender lives as long as `self`.
        let _ = seen.wait_for(|has_recovered| *has_recovered).await;
    }

    /// Takes a replica out at its own wish. True when `stream` spoke for it.
    pub fn remove(&self, replica: &Replica, stream: u64) -> bool {
        if *replica.stream.lock() != stream {
            return false;
        }
        self.by_id.lock().remove(&replica.id);
        self.settled(&replica.id);
        true
    }

    /// Takes `span` off everyone's silence.
    pub fn pardon(&self, span: Duration) {
        for replica in self.by_id.lock().values() {
            let mut link = replica.state.lock();
            link.last_seen = link.last_seen + span;
        }
    }

    /// Takes out the replicas that have been silent for `ttl`, and cuts their streams.
    pub fn take_silent(&self, now: Tick, ttl: Duration) -> Vec<Arc<Replica>> {
        let mut by_id = self.by_id.lock();
        let silent: Vec<Arc<Replica>> =
            by_id.values().filter(|replica| now.since(replica.state.lock().last_seen) >= ttl).cloned().collect();
        for replica in &silent {
            replica.state.lock().cut.cancel();
            by_id.remove(&replica.id);
        }
        drop(by_id);
        for replica in &silent {
            // As in `connect`: nothing of the cut stream counts from here.
            *replica.stream.lock() = 0;
            self.settled(&replica.id);
        }
        silent
    }

    /// Everyone, as the database keeps it.
    pub fn rows(&self, unix_ms: impl Fn(Tick) -> u64) -> Vec<ReplicaRow> {
        let by_id = self.by_id.lock();
        by_id.values().map(|replica| replica.row(unix_ms(replica.state.lock().last_seen))).collect()
    }

    /// How many are connected.
    pub fn connected(&self) -> usize {
        self.by_id.lock().values().filter(|replica| replica.state.lock().is_connected).count()
    }

    /// Everyone, for operators; `leases` counts a replica's leases.
    pub fn states(&self, now: Tick, leases: impl Fn(&str) -> u32) -> Vec<v1::ReplicaState> {
        let everyone: Vec<Arc<Replica>> = self.by_id.lock().values().cloned().collect();
        let mut states: Vec<v1::ReplicaState> = everyone
            .iter()
            .map(|replica| {
                let link = replica.state.lock();
                v1::ReplicaState {
                    replica_id: replica.id.to_string(),
                    version: replica.version.clone(),
                    listen: replica.listen.clone(),
                    connected: link.is_connected,
                    last_seen_ms: u64::try_from(now.since(link.last_seen).as_millis()).unwrap_or(u64::MAX),
                    leases: leases(&replica.id),
                }
            })
            .collect();
        states.sort_by(|a, b| (&a.listen, &a.replica_id).cmp(&(&b.listen, &b.replica_id)));
        states
    }
}

impl Replica {
    /// Any message is a sign of life.
    pub fn seen(&self, now: Tick) {
        self.state.lock().last_seen = now;
    }

    /// Its stream has ended.
    pub fn disconnected(&self) {
        self.state.lock().is_connected = false;
    }

    /// As the database keeps it.
    pub fn row(&self, last_seen_unix_ms: u64) -> ReplicaRow {
        ReplicaRow {
            replica: self.id.to_string(),
            version: self.version.clone(),
            listen: self.listen.clone(),
            last_seen_unix_ms,
        }
    }
}
