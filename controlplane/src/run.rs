//! Assembly: storage, state, services; and the order in which they end.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use rand::RngExt as _;
use router_proto::v1::admin_server::AdminServer;
use router_proto::v1::coordinator_server::CoordinatorServer;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Server;

use crate::clock::Clock;
use crate::config::Config;
use crate::error::Error;
use crate::fleet::{ApplyMode, Fleet, Parts};
use crate::grpc::admin::AdminService;
use crate::grpc::auth::TokenCheck;
use crate::grpc::coordinator::CoordinatorService;
use crate::marks::MarkJournal;
use crate::pool::Context;
use crate::probe::schedule::Prober;
use crate::snapshot::SnapshotHub;
use crate::store::group_commit::Committer;
use crate::store::health::StoreHealth;
use crate::store::write_behind::Journal;
use crate::{store, upkeep, web};

/// Largest message from a replica: a `Hello` with very many leases.
const MESSAGE_MAX: usize = 64 << 20;
/// How long connections may take to end at shutdown.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

/// The sockets, bound by the caller.
pub struct Listeners {
    /// For replicas and operators.
    pub grpc: TcpListener,
    /// For health and metrics.
    pub http: TcpListener,
}

/// Runs until `shutdown` resolves. `on_ready` is called once calls are answered.
pub async fn run(
    config: Config,
    listeners: Listeners,
    shutdown: impl Future<Output = ()> + Send,
    on_ready: impl FnOnce() + Send,
) -> Result<(), Error> {
    let tracker = TaskTracker::new();
    // Two stages: whoever writes to the database outlives whoever makes something to write.
    let stop = CancellationToken::new();
    let stop_store = CancellationToken::new();
    let address = listeners.grpc.local_addr().map(|address| address.to_string()).unwrap_or_default();
    let (fleet, marks) = start(&config, address, &tracker, &stop, &stop_store).await?;
    upkeep::start(&fleet, &tracker, &stop);

    let check = TokenCheck::new(config.token.as_deref());
    let coordinator = CoordinatorService { fleet: Arc::clone(&fleet), tracker: tracker.clone() };
    let coordinator = CoordinatorServer::new(coordinator).max_decoding_message_size(MESSAGE_MAX);
    let admin = AdminService { fleet: Arc::clone(&fleet), tracker: tracker.clone(), started: Instant::now() };
    let grpc = Server::builder()
        .tcp_nodelay(true)
        .http2_keepalive_interval(Some(Duration::from_secs(5)))
        .http2_keepalive_timeout(Some(Duration::from_secs(5)))
        .add_service(InterceptedService::new(coordinator, check.clone()))
        .add_service(AdminServer::with_interceptor(admin, check))
        .serve_with_incoming_shutdown(TcpListenerStream::new(listeners.grpc), stop.clone().cancelled_owned());
    let http = axum::serve(listeners.http, web::health::router(Arc::clone(&fleet)))
        .with_graceful_shutdown(stop.clone().cancelled_owned());
    let mut servers = tokio::task::JoinSet::new();
    servers.spawn(async move { grpc.await.map_err(|error| serve_error("grpc", &error)) });
    servers.spawn(async move { http.await.map_err(|error| serve_error("http", &error)) });
    tracing::info!(epoch = fleet.context.epoch, database = fleet.store.kind(), "control plane is up");
    on_ready();

    let ended = tokio::select! {
        () = shutdown => Ok(()),
        // A server that ends by itself has failed.
        ended = servers.join_next() => match ended {
            Some(Ok(result)) => result,
            _ => Err(Error::Serve { what: "listeners", problem: "a server task ended".to_owned() }),
        },
    };
    stop.cancel();
    let closed = tokio::time::timeout(CLOSE_WITHIN, async { while servers.join_next().await.is_some() {} }).await;
    if closed.is_err() {
        servers.abort_all();
    }
    fleet.context.committer.flush().await;
    if let Err(error) = fleet.context.journal.flush_now().await {
        tracing::warn!(%error, "the last leases could not be stored");
    }
    marks.flush(&*fleet.store).await;
    fleet.store_flows().await;
    stop_store.cancel();
    tracker.close();
    if tokio::time::timeout(CLOSE_WITHIN, tracker.wait()).await.is_err() {
        tracing::warn!("some tasks did not end in time");
    }
    tracing::info!("control plane has stopped");
    ended
}

async fn start(
    config: &Config,
    address: String,
    tracker: &TaskTracker,
    stop: &CancellationToken,
    stop_store: &CancellationToken,
) -> Result<(Arc<Fleet>, Arc<MarkJournal>), Error> {
    let store = store::open(&config.database_url, config.sqlite_sync).await?;
    if !store.claim().await.map_err(Error::Load)? {
        return Err(Error::InUse);
    }
    let epoch = store.begin_epoch().await.map_err(Error::Load)?;
    let fresh_key = rand::rng().random();
    let fingerprint_key = store.fingerprint_key(fresh_key).await.map_err(Error::Load)?;
    let stored = store.load().await.map_err(Error::Load)?;
    let is_new = stored.routes.is_empty();

    let store_health = StoreHealth::new();
    store_health.start_pings(Arc::clone(&store), tracker, stop_store.clone());
    let committer = Committer::start(Arc::clone(&store), tracker, stop_store.clone(), Arc::clone(&store_health));
    let journal = Journal::start(Arc::clone(&store), tracker, stop_store.clone(), Arc::clone(&store_health));
    let marks = Arc::new(MarkJournal::default());
    tracker.spawn(Arc::clone(&marks).run(Arc::clone(&store), stop_store.clone()));
    let context = Context {
        clock: Clock::start(),
        epoch,
        lease_count: AtomicU64::new(0),
        store_health: Arc::clone(&store_health),
        committer,
        journal,
        marks: Arc::clone(&marks),
        publish: Notify::new(),
    };
    let parts = Parts {
        store,
        store_health,
        context: Arc::new(context),
        hub: SnapshotHub::new(epoch, fingerprint_key, address),
        prober: Prober::new(tracker.clone(), stop.clone()),
        lease_ttl: config.lease_ttl,
        files: config.files.clone(),
        shutdown: stop.clone(),
    };
    let fleet = Arc::new(Fleet::start(parts, stored));
    fleet.follow_control_file().await;
    if let Some(text) = config.bootstrap.as_ref().filter(|_| is_new) {
        let document = serde_json::from_str(text).map_err(|error| Error::Bootstrap(format!("not JSON: {error}")))?;
        fleet.apply(&document, ApplyMode::default()).await.map_err(|error| Error::Bootstrap(error.to_string()))?;
    }
    Ok((fleet, marks))
}

fn serve_error(what: &'static str, error: &dyn std::error::Error) -> Error {
    Error::Serve { what, problem: error.to_string() }
}

#[cfg(test)]
mod tests;
