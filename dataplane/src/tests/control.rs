//! A control plane that grants what it is told to, and tells what it was asked.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::StreamExt;
use parking_lot::Mutex;
use router_proto::v1;
use router_proto::v1::client_op::Kind;
use router_proto::v1::coordinator_server::{Coordinator, CoordinatorServer};
use router_proto::v1::server_op::Kind as ServerKind;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::watch;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status, Streaming};

use super::soon;

type Out<T> = Pin<Box<dyn futures_core::Stream<Item = Result<T, Status>> + Send>>;

/// What happens to acquires and transfers.
#[derive(Clone)]
pub(super) enum Answers {
    /// The first of these that was not tried.
    Grant(Vec<String>),
    Refuse(v1::Refused),
    /// The test answers.
    Hold,
}

struct State {
    answers: Answers,
    next_lease: u64,
    /// Of the newest stream.
    link: Option<UnboundedSender<Result<v1::ServerBatch, Status>>>,
    watchers: Vec<UnboundedSender<Result<v1::Snapshot, Status>>>,
    snapshot: v1::Snapshot,
    is_open: bool,
    welcomes: bool,
    last_metadata: Option<String>,
    /// What pages are answered with; `None`: no answer.
    page: Option<v1::PageReply>,
}

#[derive(Clone)]
struct Service {
    state: Arc<Mutex<State>>,
    ops: UnboundedSender<v1::ClientOp>,
    refused: watch::Sender<Option<v1::Hello>>,
    pages: UnboundedSender<(v1::PageRequest, Option<String>)>,
    tasks: TaskTracker,
}

pub(super) struct Control {
    pub(super) addr: SocketAddr,
    state: Arc<Mutex<State>>,
    ops: UnboundedReceiver<v1::ClientOp>,
    /// Came between other operations.
    counted: Vec<v1::Counted>,
    /// The last Hello that came while no streams were taken.
    refused: watch::Receiver<Option<v1::Hello>>,
    pages: UnboundedReceiver<(v1::PageRequest, Option<String>)>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Control {
    /// With these routes; grants nothing yet.
    pub(super) async fn start(routes: Vec<v1::Route>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let snapshot = v1::Snapshot {
            version: 1,
            full: true,
            routes,
            settings: Some(v1::Settings { fingerprint_key: vec![9; 32].into() }),
            ..Default::default()
        };
        let state = Arc::new(Mutex::new(State {
            answers: Answers::Hold,
            next_lease: 100,
            link: None,
            watchers: Vec::new(),
            snapshot,
            is_open: true,
            welcomes: true,
            last_metadata: None,
            page: None,
        }));
        let (sender, ops) = mpsc::unbounded_channel();
        let (sender_refused, refused) = watch::channel(None);
        let tasks = TaskTracker::new();
        let stop = CancellationToken::new();
        let (sender_pages, pages) = mpsc::unbounded_channel();
        let service = Service {
            state: Arc::clone(&state),
            ops: sender,
            refused: sender_refused,
            pages: sender_pages,
            tasks: tasks.clone(),
        };
        let stopped = stop.clone();
        tasks.spawn(async move {
            let incoming = tonic::transport::server::TcpIncoming::from(listener).with_nodelay(Some(true));
            let serving = tonic::transport::Server::builder()
                .add_service(CoordinatorServer::new(service))
                .serve_with_incoming(incoming);
            stopped.run_until_cancelled(serving).await
        });
        Self { addr, state, ops, counted: Vec::new(), refused, pages, tasks, stop }
    }

    pub(super) fn answers(&self, answers: Answers) {
        self.state.lock().answers = answers;
    }

    pub(super) fn grant(&self, backends: &[&str]) {
        self.answers(Answers::Grant(backends.iter().map(|&backend| backend.to_owned()).collect()));
    }

    /// Whether new streams are taken.
    pub(super) fn open(&self, is_open: bool) {
        self.state.lock().is_open = is_open;
    }

    /// Whether `Hello` is answered.
    pub(super) fn welcomes(&self, welcomes: bool) {
        self.state.lock().welcomes = welcomes;
    }

    /// Ends the Coordinate stream.
    pub(super) fn cut(&self) {
        self.state.lock().link = None;
    }

    pub(super) fn send(&self, op: u64, kind: ServerKind) {
        let batch = v1::ServerBatch { ops: vec![v1::ServerOp { op, kind: Some(kind) }] };
        self.state.lock().link.as_ref().unwrap().send(Ok(batch)).unwrap();
    }

    /// Answers pages with this JSON from now on.
    pub(super) fn page(&self, http_status: u32, json: &str, active_level: &str) {
        let (json, active_level) = (json.to_owned(), active_level.to_owned());
        self.state.lock().page = Some(v1::PageReply { http_status, json, active_level });
    }

    /// Answers no page any more.
    pub(super) fn no_pages(&self) {
        self.state.lock().page = None;
    }

    /// What was asked for, with the replica's token.
    pub(super) async fn page_asked(&mut self) -> (v1::PageRequest, Option<String>) {
        soon("a page asked for", self.pages.recv()).await.unwrap()
    }

    /// Whether nothing was asked for that is not read yet.
    pub(super) fn no_page_asked(&mut self) -> bool {
        self.pages.try_recv().is_err()
    }

    /// Sends a delta to all who watch, and to those who come later as part of the whole.
    pub(super) fn publish(&self, change: impl FnOnce(&mut v1::Snapshot)) {
        let mut state = self.state.lock();
        change(&mut state.snapshot);
        state.snapshot.version += 1;
        let next = state.snapshot.clone();
        state.watchers.retain(|watcher| watcher.send(Ok(next.clone())).is_ok());
    }

    pub(super) fn token_seen(&self) -> Option<String> {
        self.state.lock().last_metadata.clone()
    }

    /// The next operation; heartbeats and counts are passed over.
    pub(super) async fn next(&mut self) -> (u64, Kind) {
        loop {
            let op = soon("an operation from the replica", self.ops.recv()).await.unwrap();
            match op.kind.unwrap() {
                Kind::Heartbeat(_) => {}
                Kind::Counted(counted) => self.counted.push(counted),
                kind => return (op.op, kind),
            }
        }
    }

    /// What was sent and not read yet; heartbeats and counts are passed over.
    pub(super) fn unread(&mut self) -> Vec<Kind> {
        let mut kinds = self.unread_with_counts();
        kinds.retain(|kind| !matches!(kind, Kind::Counted(_)));
        kinds
    }

    /// What was sent and not read yet; heartbeats are passed over.
    pub(super) fn unread_with_counts(&mut self) -> Vec<Kind> {
        let mut kinds = Vec::new();
        while let Ok(op) = self.ops.try_recv() {
            kinds.extend(op.kind.filter(|kind| !matches!(kind, Kind::Heartbeat(_))));
        }
        kinds
    }

    /// What was counted, in the order in which it was told; waits until there is something. Other operations are passed over.
    pub(super) async fn counted(&mut self) -> v1::Counted {
        while self.counted.is_empty() {
            let op = soon("counts from the replica", self.ops.recv()).await.unwrap();
            if let Some(Kind::Counted(counted)) = op.kind {
                self.counted.push(counted);
            }
        }
        self.counted.remove(0)
    }

    pub(super) async fn hello(&mut self) -> v1::Hello {
        match self.next().await.1 {
            Kind::Hello(hello) => hello,
            other => panic!("Hello expected, got {other:?}"),
        }
    }

    /// Waits until a replica that is not let in has greeted like this.
    pub(super) async fn refused_hello(&self, is_it: impl Fn(&v1::Hello) -> bool) {
        let mut refused = self.refused.clone();
        let it = refused.wait_for(|hello| hello.as_ref().is_some_and(&is_it));
        soon("the refused Hello", it).await.unwrap();
    }

    pub(super) async fn acquire(&mut self) -> (u64, v1::Acquire) {
        match self.next().await {
            (op, Kind::Acquire(acquire)) => (op, acquire),
            other => panic!("Acquire expected, got {other:?}"),
        }
    }

    /// Waits for a request for a slot while a body comes in.
    pub(super) async fn reserve(&mut self) -> (u64, v1::Acquire) {
        let (op, acquire) = self.acquire().await;
        assert!(acquire.reserve, "{acquire:?}");
        (op, acquire)
    }

    pub(super) async fn transfer(&mut self) -> v1::Transfer {
        match self.next().await.1 {
            Kind::Transfer(transfer) => transfer,
            other => panic!("Transfer expected, got {other:?}"),
        }
    }

    pub(super) async fn release(&mut self) -> v1::Release {
        match self.next().await.1 {
            Kind::Release(release) => release,
            other => panic!("Release expected, got {other:?}"),
        }
    }

    pub(super) async fn first_chunk(&mut self) -> v1::FirstChunk {
        match self.next().await.1 {
            Kind::FirstChunk(first_chunk) => first_chunk,
            other => panic!("FirstChunk expected, got {other:?}"),
        }
    }

    /// Waits until a heartbeat has come: whatever was sent before it has been read.
    pub(super) async fn heartbeat(&mut self) -> Vec<Kind> {
        let mut before = Vec::new();
        loop {
            match soon("a heartbeat", self.ops.recv()).await.unwrap().kind.unwrap() {
                Kind::Heartbeat(_) => return before,
                Kind::Counted(counted) => self.counted.push(counted),
                kind => before.push(kind),
            }
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stop.cancel();
        self.tasks.close();
    }
}

/// A grant without extras.
pub(super) fn granted(lease: u64, backend: &str) -> ServerKind {
    ServerKind::Granted(v1::Granted {
        lease,
        backend: backend.to_owned(),
        mode: v1::Mode::New.into(),
        ..Default::default()
    })
}

/// A default route with these options.
pub(super) fn route(name: &str, options: &[(&str, &str)]) -> v1::Route {
    let options = options.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
    v1::Route { name: name.to_owned(), is_default: true, options, ..Default::default() }
}

impl State {
    fn answer(&mut self, acquire: &v1::Acquire, is_transfer: bool) -> Option<ServerKind> {
        match &self.answers {
            Answers::Hold => None,
            Answers::Refuse(refused) => Some(ServerKind::Refused(refused.clone())),
            Answers::Grant(_) if acquire.reserve => {
                self.next_lease += 1;
                Some(granted(self.next_lease - 1, ""))
            }
            Answers::Grant(backends) => {
                let Some(backend) = backends.iter().find(|backend| !acquire.tried.contains(backend)) else {
                    let gate = if is_transfer { v1::Gate::NoMoreBackends } else { v1::Gate::NoBackend };
                    return Some(ServerKind::Refused(v1::Refused { gate: gate.into(), ..Default::default() }));
                };
                let kind = granted(self.next_lease, backend);
                self.next_lease += 1;
                Some(kind)
            }
        }
    }
}

#[tonic::async_trait]
impl Coordinator for Service {
    type CoordinateStream = Out<v1::ServerBatch>;
    type WatchStream = Out<v1::Snapshot>;

    async fn coordinate(
        &self,
        request: Request<Streaming<v1::ClientBatch>>,
    ) -> Result<Response<Self::CoordinateStream>, Status> {
        let (out, answers) = mpsc::unbounded_channel();
        let is_open = self.state.lock().is_open;
        if !is_open {
            let first = request.into_inner().next().await;
            let ops = first.into_iter().flatten().flat_map(|batch| batch.ops);
            for kind in ops.filter_map(|op| op.kind) {
                if let Kind::Hello(hello) = kind {
                    self.refused.send_replace(Some(hello));
                }
            }
            return Err(Status::unavailable("closed by the test"));
        }
        {
            let mut state = self.state.lock();
            let token = request.metadata().get("authorization").and_then(|value| value.to_str().ok());
            state.last_metadata = token.map(str::to_owned);
            state.link = Some(out.clone());
        }
        let weak = out.downgrade();
        drop(out);
        let this = self.clone();
        self.tasks.spawn(async move {
            let mut incoming = request.into_inner();
            while let Some(Ok(batch)) = incoming.next().await {
                let Some(out) = weak.upgrade() else { return };
                let mut state = this.state.lock();
                for op in batch.ops {
                    let answer = match op.kind.as_ref().unwrap() {
                        Kind::Hello(_) if state.welcomes => {
                            Some(ServerKind::Welcome(v1::Welcome { epoch: 1, lease_ttl_ms: 10_000, heartbeat_ms: 50 }))
                        }
                        Kind::Acquire(acquire) => state.answer(acquire, false),
                        Kind::Transfer(transfer) => state.answer(transfer.again.as_ref().unwrap(), true),
                        _ => None,
                    };
                    let number = op.op;
                    let _ = this.ops.send(op);
                    if let Some(kind) = answer {
                        let ops = vec![v1::ServerOp { op: number, kind: Some(kind) }];
                        let _ = out.send(Ok(v1::ServerBatch { ops }));
                    }
                }
            }
            // The replica has ended its half, so this one ends too.
            if weak.upgrade().is_some() {
                this.state.lock().link = None;
            }
        });
        Ok(Response::new(Box::pin(UnboundedReceiverStream::new(answers))))
    }

    async fn page(&self, request: Request<v1::PageRequest>) -> Result<Response<v1::PageReply>, Status> {
        let token = request.metadata().get("authorization").and_then(|value| value.to_str().ok()).map(str::to_owned);
        let _ = self.pages.send((request.into_inner(), token));
        let reply = self.state.lock().page.clone();
        match reply {
            Some(reply) => Ok(Response::new(reply)),
            None => std::future::pending().await,
        }
    }

    async fn watch(&self, _: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        if !self.state.lock().is_open {
            return Err(Status::unavailable("closed by the test"));
        }
        let mut state = self.state.lock();
        let (sender, snapshots) = mpsc::unbounded_channel();
        let _ = sender.send(Ok(state.snapshot.clone()));
        state.watchers.push(sender);
        Ok(Response::new(Box::pin(UnboundedReceiverStream::new(snapshots))))
    }
}
