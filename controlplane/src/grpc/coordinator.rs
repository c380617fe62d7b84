//! The Coordinator service: one long stream per replica.

use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use router_policy::ids::{BackendId, Fingerprint, LeaseId};
use router_policy::refusal::{Gate, Refusal};
use router_proto::v1::client_op::Kind;
use router_proto::v1::coordinator_server::Coordinator;
use router_proto::v1::{self, server_op};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status, Streaming};

use super::outbound::Outbound;
use super::watch::Deltas;
use crate::fleet::{AllPools, Fleet};
use crate::page::page;
use crate::pool::{Answered, Asked, Caller, Failed};
use crate::replicas::Replica;

/// How long a new stream may take to say hello.
const HELLO_WITHIN: Duration = Duration::from_secs(5);

/// Serves replicas.
pub struct CoordinatorService {
    /// The state.
    pub fleet: Arc<Fleet>,
    /// Runs the streams' readers.
    pub tracker: TaskTracker,
}

type Responses<T> = std::pin::Pin<Box<dyn futures_core::Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Coordinator for CoordinatorService {
    type CoordinateStream = Responses<v1::ServerBatch>;
    type WatchStream = Responses<v1::Snapshot>;

    async fn coordinate(
        &self,
        request: Request<Streaming<v1::ClientBatch>>,
    ) -> Result<Response<Self::CoordinateStream>, Status> {
        let (replies, receiver) = mpsc::unbounded_channel();
        let cut = self.fleet.shutdown().child_token();
        self.tracker.spawn(read_stream(Arc::clone(&self.fleet), request.into_inner(), replies, cut.clone()));
        let until_cut = async move { cut.cancelled().await };
        Ok(Response::new(Box::pin(Outbound::new(receiver).take_until(Box::pin(until_cut)))))
    }

    /// Carried to its end also when the replica goes away in the middle: a switch that was stored must be taken up too.
    async fn page(&self, request: Request<v1::PageRequest>) -> Result<Response<v1::PageReply>, Status> {
        let (fleet, request) = (Arc::clone(&self.fleet), request.into_inner());
        let answered = self.tracker.spawn(async move { page(&fleet, &request).await }).await;
        answered.map(Response::new).map_err(|_| Status::internal("the page did not come to its end"))
    }

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Ok(Response::new(Box::pin(Deltas::stream(Arc::clone(&self.fleet), request.into_inner().known_version))))
    }
}

/// Reads one replica's operations until its stream ends or is cut.
async fn read_stream(
    fleet: Arc<Fleet>,
    mut batches: Streaming<v1::ClientBatch>,
    replies: mpsc::UnboundedSender<v1::ServerOp>,
    cut: CancellationToken,
) {
    let stream = fleet.next_stream();
    let first = tokio::time::timeout(HELLO_WITHIN, batches.message()).await;
    let Ok(Ok(Some(batch))) = first else {
        cut.cancel();
        return;
    };
    let mut ops = batch.ops.into_iter();
    let Some(v1::ClientOp { op, kind: Some(Kind::Hello(hello)) }) = ops.next() else {
        tracing::warn!("a stream did not start with hello");
        cut.cancel();
        return;
    };
    let replica = fleet.hello(&hello, stream, cut.clone());
    let caller = Arc::new(Caller { replica: Arc::clone(&replica.id), stream, replies });
    if let Err(error) = store_replica(&fleet, &replica).await {
        tracing::info!(%error, "a replica's hello could not be stored");
    }
    tracing::info!(replica = %replica.id, listen = replica.listen, held = hello.held.len(), "replica said hello");

    let serve = async {
        fleet.replicas.recovered().await;
        replica.seen(fleet.context.clock.now());
        welcome(&fleet, &caller, op);
        let mut rest = Some(ops.collect::<Vec<_>>());
        loop {
            let ops = match rest.take() {
                Some(ops) => ops,
                None => match batches.message().await {
                    Ok(Some(batch)) => batch.ops,
                    Ok(None) | Err(_) => return,
                },
            };
            if handle(&fleet, &replica, &caller, ops) {
                fleet.goodbye(&replica, stream).await;
                return;
            }
        }
    };
    tokio::select! {
        () = serve => {}
        () = cut.cancelled() => {}
    }
    fleet.stream_ended(&caller, &replica);
    cut.cancel();
    tracing::info!(replica = %replica.id, listen = replica.listen, "replica's stream ended");
}

async fn store_replica(fleet: &Fleet, replica: &Replica) -> Result<(), crate::store::StoreError> {
    let now = fleet.context.clock.now();
    fleet.store.save_replicas(&[replica.row(fleet.context.clock.unix_ms(now))]).await
}

fn welcome(fleet: &Fleet, caller: &Caller, op: u64) {
    let lease_ttl_ms = u32::try_from(fleet.lease_ttl.as_millis()).unwrap_or(u32::MAX);
    let welcome = v1::Welcome { epoch: fleet.context.epoch, lease_ttl_ms, heartbeat_ms: (lease_ttl_ms / 5).max(1) };
    let _ = caller.replies.send(v1::ServerOp { op, kind: Some(server_op::Kind::Welcome(welcome)) });
}

/// Handles one message's operations in order, as long as this stream speaks for its replica. True after a goodbye.
fn handle(fleet: &Fleet, replica: &Replica, caller: &Arc<Caller>, ops: Vec<v1::ClientOp>) -> bool {
    let speaker = replica.stream.lock();
    if *speaker != caller.stream {
        return false;
    }
    replica.seen(fleet.context.clock.now());
    let pools = fleet.all_pools();
    for v1::ClientOp { op, kind } in ops {
        match kind {
            Some(Kind::Acquire(acquire)) => start_acquire(&pools, op, acquire, caller),
            Some(Kind::Release(release)) => end(&pools, &release, caller),
            Some(Kind::FirstChunk(chunk)) => begin_answer(&pools, &chunk, caller),
            Some(Kind::Counted(counted)) => {
                if let Some(pool) = pools.find(&counted.route) {
                    pool.counted(&counted);
                }
            }
            Some(Kind::Cancel(cancel)) => {
                for pool in pools.open.values() {
                    pool.cancel(caller.stream, cancel.target);
                }
            }
            Some(Kind::Transfer(transfer)) => start_transfer(&pools, op, transfer, caller),
            Some(Kind::Goodbye(_)) => return true,
            None if op != 0 => {
                let kind = Some(server_op::Kind::Unsupported(v1::Unsupported {}));
                let _ = caller.replies.send(v1::ServerOp { op, kind });
            }
            // Every message is a sign of life already; a second hello says nothing new.
            Some(Kind::Heartbeat(_) | Kind::Hello(_)) | None => {}
        }
    }
    false
}

fn start_acquire(pools: &AllPools, op: u64, acquire: v1::Acquire, caller: &Arc<Caller>) {
    // A closed pool refuses, and takes back what was reserved of it.
    match pools.find(&acquire.route) {
        Some(pool) => pool.acquire(op, asked(acquire), caller),
        None => caller.refuse(op, Refusal::by(Gate::UnknownRoute)),
    }
}

fn start_transfer(pools: &AllPools, op: u64, transfer: v1::Transfer, caller: &Arc<Caller>) {
    let again = transfer.again.unwrap_or_default();
    let backend = BackendId::new(&transfer.failed_backend);
    match (pools.find(&transfer.route), backend) {
        (Some(pool), Ok(backend)) => {
            let is_connect = transfer.reason == i32::from(v1::FailureReason::Connect);
            let failed = Failed { lease: LeaseId(transfer.lease), backend, is_connect };
            pool.transfer(op, &failed, asked(again), caller);
        }
        _ => caller.refuse(op, Refusal::by(Gate::UnknownRoute)),
    }
}

fn begin_answer(pools: &AllPools, chunk: &v1::FirstChunk, caller: &Caller) {
    if let Some(pool) = pools.find(&chunk.route) {
        pool.first_chunk(LeaseId(chunk.lease), caller, Duration::from_micros(chunk.ttft_us));
    }
}

fn end(pools: &AllPools, release: &v1::Release, caller: &Caller) {
    let has_failed = matches!(
        v1::Outcome::try_from(release.outcome),
        Ok(v1::Outcome::ConnectFailed | v1::Outcome::StreamBroken | v1::Outcome::BackendError | v1::Outcome::Timeout)
    );
    let ms = |ms: u32| Duration::from_millis(u64::from(ms));
    let answered = Answered {
        has_failed,
        status: u16::try_from(release.http_status).unwrap_or(0),
        ttft: release.ttft_ms.map(ms),
        decode: release.decode_ms.map(ms).unwrap_or_default(),
        tokens: release.tokens,
        prompt: release.prompt_tokens.map(|prompt| (prompt, release.cached_tokens.unwrap_or(0))),
    };
    if let Some(pool) = pools.find(&release.route) {
        pool.release(LeaseId(release.lease), caller, &answered);
    }
}

pub(crate) fn asked(acquire: v1::Acquire) -> Asked {
    let backends = |texts: &[String]| texts.iter().filter_map(|backend| BackendId::from_str(backend).ok()).collect();
    Asked {
        fingerprint: Fingerprint::from_slice(&acquire.fingerprint),
        model: acquire.model,
        turn: (acquire.turn != 0).then_some(acquire.turn),
        crc32: acquire.crc32,
        ranked: backends(&acquire.ranked),
        tried: backends(&acquire.tried),
        context_tokens: acquire.context_tokens,
        waited: Duration::from_millis(u64::from(acquire.waited_ms)),
        is_reserve: acquire.reserve,
        reservation: (acquire.reservation != 0).then_some(LeaseId(acquire.reservation)),
    }
}
