//! The dataplane: a stateless streaming proxy. Each request takes a lease from the control plane and goes to the backend
//! that the lease names; nothing that another replica would need is kept here.
//!
//! The caller (`cli`) binds the sockets, owns signals and logs, and calls [`run`].
//!
//! | module | is |
//! | --- | --- |
//! | [`config`] | the settings, checked whole |
//! | `server` | sockets, admin port, shutdown |
//! | `request` | one request as a list of steps |
//! | `upstream` | backends: connections, headers, the streaming body |
//! | `bodylog` | what clients sent and were answered, for a collector |
//! | `coordinate` | the control plane link: leases |
//! | `snapshot` | what is known without asking |
//! | `metrics` | every metric |

pub mod bodylog;
pub mod config;
mod coordinate;
mod metrics;
mod request;
mod server;
mod snapshot;
#[cfg(test)]
mod tests;
mod upstream;

use std::io;
use std::sync::Arc;

use bodylog::BodyLog;
pub use config::{Config, DataplaneArgs};
use coordinate::Admission;
use coordinate::link::Identity;
use metrics::Metrics;
use request::handle::Proxy;
use request::id::RequestIds;
use request::models::Turns;
use request::page::INSPECTED_AT_ONCE;
use server::accept::{Signals, accept};
use server::admin;
use server::drain::{Drain, Stage};
use server::readiness::Readiness;
use snapshot::SnapshotStore;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use upstream::client::Pool;

/// Bound sockets.
#[derive(Debug)]
pub struct Listeners {
    /// For clients.
    pub traffic: TcpListener,
    /// For the admin port.
    pub admin: TcpListener,
}

/// Why a replica can't run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A listener that isn't one.
    #[error("read the address of the traffic listener")]
    Listener(#[source] io::Error),
}

/// Runs a replica until `shutdown`, then drains it. `on_ready` is called once, the first time that `/readyz` says yes.
pub async fn run(
    config: Config,
    listeners: Listeners,
    shutdown: impl Future<Output = ()> + Send,
    on_ready: impl FnOnce() + Send,
) -> Result<(), Error> {
    let listen = listeners.traffic.local_addr().map_err(Error::Listener)?;
    let replica_id = uuid::Uuid::new_v4().to_string();
    let mut metrics = Metrics::new();
    let snapshots = Arc::new(SnapshotStore::new());
    let admission = Arc::new(Admission::new());
    let pool = Arc::new(Pool::default());
    let readiness = Arc::new(Readiness::new(Arc::clone(&snapshots), Arc::clone(&admission)));
    let client = coordinate::client(&config);
    let background = TaskTracker::new();
    let background_stop = CancellationToken::new();
    let (sender, sender_stop) = (TaskTracker::new(), CancellationToken::new());
    let body_log = config.bodylog.clone().map(|settings| {
        // Whoever runs this must know: what clients write leaves the router, in plain text.
        tracing::warn!(
            host = settings.host,
            port = settings.port,
            buffer_bytes = settings.buffer,
            "body log is on: bodies of all routes are captured and sent to the collector, but for routes that have \
             bodylog_default_enabled=false or were switched off"
        );
        let gauges = metrics.body_log();
        let (body_log, records) = BodyLog::new(&settings, &gauges);
        sender.spawn(bodylog::ship::ship(settings, records, gauges.connected, sender_stop.clone()));
        Arc::new(body_log)
    });
    let metrics = Arc::new(metrics);

    let proxy = Arc::new(Proxy {
        request_ids: RequestIds::new(&replica_id),
        model_turns: Turns::default(),
        control_plane: client.clone(),
        inspections: Semaphore::new(INSPECTED_AT_ONCE),
        is_loopback: listen.ip().is_loopback(),
        config,
        snapshots: Arc::clone(&snapshots),
        admission: Arc::clone(&admission),
        pool: Arc::clone(&pool),
        metrics: Arc::clone(&metrics),
        readiness: Arc::clone(&readiness),
        body_log,
    });

    background.spawn(admin::serve(listeners.admin, Arc::clone(&proxy), background_stop.clone()));
    background.spawn(snapshot::follow::follow(
        client.clone(),
        replica_id.clone(),
        Arc::clone(&snapshots),
        Arc::clone(&metrics),
        background_stop.clone(),
    ));
    background.spawn(Arc::clone(&pool).keep_young(background_stop.clone()));

    let link = TaskTracker::new();
    let link_stop = CancellationToken::new();
    let identity = Identity { replica_id: replica_id.clone(), listen: listen.to_string() };
    link.spawn(coordinate::link::keep(
        Arc::clone(&admission),
        client,
        identity,
        Arc::clone(&metrics),
        link_stop.clone(),
    ));
    let connections = TaskTracker::new();
    let signals = Signals::default();
    background.spawn(accept(listeners.traffic, Arc::clone(&proxy), connections.clone(), signals.clone()));

    let mut shutdown = std::pin::pin!(shutdown);
    tokio::select! {
        () = shutdown.as_mut() => {}
        () = readiness.ready() => {
            if let Some(snapshot) = snapshots.load().filter(|_| proxy.body_log.is_some()) {
                let (captured, routes) = snapshot.captured_routes();
                tracing::info!(captured, routes, "body log: so many routes are captured now");
            }
            on_ready();
            shutdown.await;
        }
    }
    let body_log = Stage { stop: sender_stop, tasks: sender };
    Drain { proxy, signals, connections, body_log, link_stop, link, background_stop, background }.run().await;
    Ok(())
}
