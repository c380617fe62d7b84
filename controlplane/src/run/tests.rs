//! The whole control plane over a real socket and a real SQLite file, spoken to as replicas and operators speak to it.

use std::path::Path;
use std::time::Duration;

use router_policy::ids::LeaseId;
use router_proto::v1;
use router_proto::v1::admin_client::AdminClient;
use router_proto::v1::client_op::Kind as Client;
use router_proto::v1::coordinator_client::CoordinatorClient;
use router_proto::v1::server_op::Kind as Answer;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Code;
use tonic::transport::Channel;

use super::*;
use crate::files::FileConfig;
use crate::store::SqliteSync;

mod backend_state;
mod control_file;
mod counted;
mod explain;
mod flow;
mod followed;
mod key_store;
mod metrics;
mod page;
mod removed_route;
mod routes;
mod toggle;

const SOON: Duration = Duration::from_secs(10);

struct Running {
    channel: Channel,
    stop: Option<oneshot::Sender<()>>,
    done: tokio::task::JoinHandle<Result<(), Error>>,
}

impl Running {
    async fn start(folder: &Path, lease_ttl: Duration) -> Self {
        Self::start_with(folder, lease_ttl, FileConfig::default()).await
    }

    async fn start_with(folder: &Path, lease_ttl: Duration, files: FileConfig) -> Self {
        let grpc = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let http = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = grpc.local_addr().unwrap();
        let config = Config {
            database_url: format!("sqlite:{}", folder.join("router.db").display()),
            sqlite_sync: SqliteSync::Normal,
            bootstrap: None,
            lease_ttl,
            token: None,
            files,
        };
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = oneshot::channel();
        let stopped = async { stopped.await.unwrap_or(()) };
        let tasks = TaskTracker::new();
        let done = tasks.spawn(run(config, Listeners { grpc, http }, stopped, move || ready.send(()).unwrap_or(())));
        is_ready.await.unwrap();
        let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect_lazy();
        Self { channel, stop: Some(stop), done }
    }

    fn admin(&self) -> AdminClient<Channel> {
        AdminClient::new(self.channel.clone())
    }

    async fn apply(&self, document: serde_json::Value) -> Result<v1::ApplyReply, tonic::Status> {
        let request = v1::ApplyRequest { document_json: document.to_string(), ..v1::ApplyRequest::default() };
        self.admin().apply(request).await.map(tonic::Response::into_inner)
    }

    async fn one_route(&self) {
        let document = serde_json::json!({"name": "chat", "default": true,
            "options": {"max_concurrency": 1, "queue_timeout": "60s", "health_failures": 1000, "passive_ban": "off"},
            "backends": ["127.0.0.1:9"]});
        self.apply(document).await.unwrap();
    }

    async fn in_flight(&self) -> u32 {
        let reply = self.admin().list_routes(v1::ListRoutesRequest::default()).await.unwrap().into_inner();
        reply.routes[0].backends.iter().map(|backend| backend.in_flight).sum()
    }

    async fn replica(&self, id: &str, held: Vec<v1::HeldLease>) -> Link {
        let (ops, receiver) = mpsc::unbounded_channel();
        let link = Link { ops, answers: None };
        let hello = v1::Hello { replica_id: id.to_owned(), held, ..v1::Hello::default() };
        link.say(1, Client::Hello(hello));
        let mut client = CoordinatorClient::new(self.channel.clone());
        let answers = client.coordinate(UnboundedReceiverStream::new(receiver)).await.unwrap().into_inner();
        Link { answers: Some(answers), ..link }
    }

    async fn stop(mut self) {
        let _ = self.stop.take().unwrap().send(());
        self.done.await.unwrap().unwrap();
    }
}

struct Link {
    ops: mpsc::UnboundedSender<v1::ClientBatch>,
    answers: Option<tonic::Streaming<v1::ServerBatch>>,
}

impl Link {
    fn say(&self, op: u64, kind: Client) {
        let ops = vec![v1::ClientOp { op, kind: Some(kind) }];
        let _ = self.ops.send(v1::ClientBatch { ops });
    }

    async fn hear(&mut self) -> Option<Answer> {
        let answers = self.answers.as_mut().unwrap();
        let batch = tokio::time::timeout(SOON, answers.message()).await.expect("an answer").ok()??;
        assert_eq!(batch.ops.len(), 1, "one question at a time");
        batch.ops.into_iter().next()?.kind
    }

    async fn welcomed(&mut self) -> v1::Welcome {
        match self.hear().await {
            Some(Answer::Welcome(welcome)) => welcome,
            other => panic!("welcome expected, got {other:?}"),
        }
    }

    async fn acquire(&mut self) -> v1::Granted {
        let acquire = v1::Acquire { route: "chat".to_owned(), ..v1::Acquire::default() };
        self.say(2, Client::Acquire(acquire));
        match self.hear().await {
            Some(Answer::Granted(granted)) => granted,
            other => panic!("granted expected, got {other:?}"),
        }
    }
}

fn held(granted: &v1::Granted) -> v1::HeldLease {
    v1::HeldLease {
        lease: granted.lease,
        route: "chat".to_owned(),
        backend: granted.backend.clone(),
        ..v1::HeldLease::default()
    }
}

#[tokio::test]
async fn nobody_is_welcomed_after_a_restart_before_the_replicas_of_the_last_start_have_reported() {
    let folder = tempfile::tempdir().unwrap();
    let first = Running::start(folder.path(), Duration::from_secs(600)).await;
    first.one_route().await;
    let mut one = first.replica("one", vec![]).await;
    let welcome = one.welcomed().await;
    assert_eq!((welcome.epoch, welcome.lease_ttl_ms, welcome.heartbeat_ms), (1, 600_000, 120_000));
    let granted = one.acquire().await;
    first.stop().await;

    let second = Running::start(folder.path(), Duration::from_secs(600)).await;
    assert_eq!(second.in_flight().await, 1, "the lease counts although nobody has confirmed it");
    let mut two = second.replica("two", vec![]).await;
    let early = tokio::time::timeout(Duration::from_millis(300), two.welcomed()).await;
    assert!(early.is_err(), "the first replica is missing still");
    let mut one = second.replica("one", vec![held(&granted)]).await;
    assert_eq!(one.welcomed().await.epoch, 2);
    assert_eq!(two.welcomed().await.epoch, 2);
    assert_eq!(second.in_flight().await, 1, "reported, not counted twice");

    let acquire = v1::Acquire { route: "chat".to_owned(), ..v1::Acquire::default() };
    two.say(9, Client::Acquire(acquire));
    let release = v1::Release { lease: granted.lease, route: "chat".to_owned(), ..v1::Release::default() };
    one.say(0, Client::Release(release));
    let Some(Answer::Granted(next)) = two.hear().await else { panic!("granted expected") };
    assert_ne!(LeaseId(next.lease), LeaseId(granted.lease));
    second.stop().await;
}

#[tokio::test]
async fn a_replica_that_never_comes_back_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let ttl = Duration::from_secs(1);
    let first = Running::start(folder.path(), ttl).await;
    first.one_route().await;
    let mut one = first.replica("one", vec![]).await;
    one.welcomed().await;
    one.acquire().await;
    first.stop().await;

    let second = Running::start(folder.path(), ttl).await;
    let mut two = second.replica("two", vec![]).await;
    two.welcomed().await;
    // The slot is still counted for the dead replica; it comes free when the lease TTL has passed.
    let granted = two.acquire().await;
    assert!(granted.queued_ms > 0 || second.in_flight().await == 1);
    second.stop().await;
}

#[tokio::test]
async fn a_silent_replica_loses_its_leases_and_a_living_one_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(folder.path(), Duration::from_secs(1)).await;
    running.one_route().await;
    let mut living = running.replica("living", vec![]).await;
    living.welcomed().await;
    living.acquire().await;
    let mut silent = running.replica("silent", vec![]).await;
    silent.welcomed().await;
    for _ in 0..15 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        living.say(0, Client::Heartbeat(v1::Heartbeat {}));
    }
    assert_eq!(running.in_flight().await, 1, "heartbeats keep it");
    assert!(silent.hear().await.is_none(), "its stream is cut");
    assert!(living.hear().await.is_none(), "silent now, and cut as well");
    assert_eq!(running.in_flight().await, 0);
    running.stop().await;
}

#[tokio::test]
async fn a_second_stream_of_a_replica_replaces_the_first_and_a_goodbye_frees_everything() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(folder.path(), Duration::from_secs(600)).await;
    running.one_route().await;
    let mut old = running.replica("one", vec![]).await;
    old.welcomed().await;
    let granted = old.acquire().await;
    let mut new = running.replica("one", vec![held(&granted)]).await;
    new.welcomed().await;
    assert!(old.hear().await.is_none(), "cut");
    assert_eq!(running.in_flight().await, 1, "its waiters go, its leases are the replica's");
    new.say(0, Client::Goodbye(v1::Goodbye {}));
    assert!(new.hear().await.is_none());
    assert_eq!(running.in_flight().await, 0);
    let status = running.admin().get_status(v1::GetStatusRequest {}).await.unwrap().into_inner();
    assert!(status.replicas.is_empty());
    running.stop().await;
}

#[tokio::test]
async fn what_a_newer_replica_says_is_tolerated() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(folder.path(), Duration::from_secs(600)).await;
    running.one_route().await;
    let mut link = running.replica("one", vec![]).await;
    link.welcomed().await;
    for op in [0, 7] {
        link.ops.send(v1::ClientBatch { ops: vec![v1::ClientOp { op, kind: None }] }).unwrap();
    }
    assert!(matches!(link.hear().await, Some(Answer::Unsupported(_))), "op 7 is answered, op 0 needs no answer");
    link.acquire().await;
    let unknown = v1::Acquire { route: "nobody".to_owned(), ..v1::Acquire::default() };
    link.say(8, Client::Acquire(unknown));
    let Some(Answer::Refused(refused)) = link.hear().await else { panic!("refused expected") };
    assert_eq!((refused.gate, refused.http_status), (i32::from(v1::Gate::UnknownRoute), 404));
    running.stop().await;
}

#[tokio::test]
async fn watchers_get_the_whole_and_then_the_changes() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(folder.path(), Duration::from_secs(600)).await;
    running.one_route().await;
    let mut client = CoordinatorClient::new(running.channel.clone());
    let mut watch = client.watch(v1::WatchRequest::default()).await.unwrap().into_inner();
    let full = watch.message().await.unwrap().unwrap();
    assert!(full.full && full.routes.len() == 1 && full.settings.unwrap().fingerprint_key.len() == 32);

    let key = v1::AddKeyRequest { name: "ci".to_owned(), sha256: vec![5; 32].into() };
    let id = running.admin().add_key(key.clone()).await.unwrap().into_inner().key.unwrap().id;
    let added = tokio::time::timeout(SOON, watch.message()).await.unwrap().unwrap().unwrap();
    assert_eq!((added.full, added.keys.len()), (false, 1));
    assert_eq!(running.admin().add_key(key).await.unwrap_err().code(), Code::AlreadyExists);
    running.admin().revoke_key(v1::RevokeKeyRequest { key: "ci".to_owned() }).await.unwrap();
    let revoked = tokio::time::timeout(SOON, watch.message()).await.unwrap().unwrap().unwrap();
    assert_eq!(revoked.removed_keys, [id]);

    let selector = v1::BackendSelector { port: 9, ..v1::BackendSelector::default() };
    let drain = v1::SetDrainRequest { selector: Some(selector), drain: true };
    running.admin().set_drain(drain).await.unwrap();
    let drained = tokio::time::timeout(SOON, watch.message()).await.unwrap().unwrap().unwrap();
    assert!(drained.routes[0].backends[0].condition.unwrap().draining);
    running.stop().await;
}

#[tokio::test]
async fn a_bad_document_changes_nothing_and_names_every_field() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(folder.path(), Duration::from_secs(600)).await;
    running.one_route().await;
    let before = running.admin().export(v1::ExportRequest::default()).await.unwrap().into_inner().document_json;
    let bad = [
        (
            serde_json::json!({"routes": [{"name": "new"}, {"name": "b", "options": {"max_waiting": "many"}}]}),
            "routes.b.options.max_waiting",
        ),
        (serde_json::json!({"routes": [{"name": "new"}, {"name": "other", "default": true}]}), "default"),
    ];
    for (document, field) in bad {
        let status = running.apply(document).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains(field), "{}", status.message());
    }
    let mut set = v1::SetRouteRequest { route: "chat".to_owned(), ..v1::SetRouteRequest::default() };
    set.set.insert("max_waiting".to_owned(), "7".to_owned());
    set.set.insert("queue_timeout".to_owned(), "soon".to_owned());
    let status = running.admin().set_route(set.clone()).await.unwrap_err();
    assert!(status.message().contains("options.queue_timeout: duration expected"), "{}", status.message());
    let after = running.admin().export(v1::ExportRequest::default()).await.unwrap().into_inner().document_json;
    assert_eq!(before, after);

    set.set.remove("queue_timeout");
    let changed = running.admin().set_route(set).await.unwrap().into_inner().fields;
    assert_eq!(changed.len(), 1);
    assert_eq!(changed[0].field, "options.max_waiting");
    let again = v1::ApplyRequest { document_json: before, create_only: true, ..v1::ApplyRequest::default() };
    assert_eq!(running.admin().apply(again).await.unwrap_err().code(), Code::AlreadyExists);
    running.stop().await;
}

#[tokio::test]
async fn a_route_that_is_removed_and_added_again_still_counts_what_runs() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(folder.path(), Duration::from_secs(600)).await;
    running.one_route().await;
    let mut link = running.replica("one", vec![]).await;
    link.welcomed().await;
    let granted = link.acquire().await;
    running.admin().remove_route(v1::RemoveRouteRequest { route: "chat".to_owned() }).await.unwrap();
    link.say(3, Client::Acquire(v1::Acquire { route: "chat".to_owned(), ..v1::Acquire::default() }));
    assert!(matches!(link.hear().await, Some(Answer::Refused(_))), "it is gone");
    running.one_route().await;
    assert_eq!(running.in_flight().await, 1);
    link.say(4, Client::Acquire(v1::Acquire { route: "chat".to_owned(), ..v1::Acquire::default() }));
    let release = v1::Release { lease: granted.lease, route: "chat".to_owned(), ..v1::Release::default() };
    link.say(0, Client::Release(release));
    assert!(matches!(link.hear().await, Some(Answer::Granted(_))), "the slot came free");
    assert_eq!(running.in_flight().await, 1);
    running.stop().await;
}

#[tokio::test]
async fn drains_and_routes_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let first = Running::start(folder.path(), Duration::from_secs(600)).await;
    first.one_route().await;
    let selector = v1::BackendSelector { route: "chat".to_owned(), ..v1::BackendSelector::default() };
    let drain = v1::SetDrainRequest { selector: Some(selector.clone()), drain: true };
    first.admin().set_drain(drain).await.unwrap();
    first.stop().await;
    let second = Running::start(folder.path(), Duration::from_secs(600)).await;
    let request = v1::WatchBackendsRequest { selector: Some(selector) };
    let mut states = second.admin().watch_backends(request).await.unwrap().into_inner();
    let now = states.message().await.unwrap().unwrap();
    assert!(now.backends[0].condition.unwrap().draining);
    let nobody = v1::BackendSelector { port: 10, ..v1::BackendSelector::default() };
    let drain = v1::SetDrainRequest { selector: Some(nobody), drain: true };
    let nothing = second.admin().set_drain(drain).await.unwrap_err();
    assert_eq!((nothing.code(), nothing.message()), (Code::NotFound, "no backend with port 10"));
    for (backend, port, route, words) in [
        ("gpu", 0, "", "no backend 'gpu'"),
        ("gpu", 10, "chat", "no backend 'gpu' with port 10 in route chat"),
        ("", 10, "chat", "no backend with port 10 in route chat"),
    ] {
        let selector = v1::BackendSelector { port, backend: backend.to_owned(), route: route.to_owned() };
        let drain = v1::SetDrainRequest { selector: Some(selector), drain: true };
        assert_eq!(second.admin().set_drain(drain).await.unwrap_err().message(), words);
    }
    drop(states);
    second.stop().await;
}
