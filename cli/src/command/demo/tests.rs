//! The scenes against mock engines and a stand-in for the router: with one that keeps its promises every check passes, with
//! one that does not the right checks fail.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use clap::Parser as _;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::TaskTracker;

use super::chat::Http;
use super::cluster::Engine;
use super::*;
use crate::args::{Cli, Command, Connect};
use crate::client::Admin;
use crate::command::tests::fake_admin::Fake;

const ENGINES: usize = 3;

/// A router in a few lines, honest or not.
struct StandIn {
    fake: Fake,
    engines: Vec<Engine>,
    slots: Vec<Arc<Semaphore>>,
    bindings: Mutex<HashMap<String, usize>>,
    next: AtomicUsize,
    client: Client<HttpConnector, Full<Bytes>>,
    is_honest: bool,
}

impl StandIn {
    fn is_drained(&self, engine: usize) -> bool {
        self.is_honest && self.fake.state().drained.contains(&self.engines[engine].address)
    }

    /// The session's engine if it may take it, else the one with the most room.
    fn choose(&self, session: &str, is_bound: bool) -> usize {
        if !is_bound || !self.is_honest {
            return self.next.fetch_add(1, Ordering::Relaxed) % ENGINES;
        }
        let mut bindings = self.bindings.lock().unwrap();
        let load = |engine: &usize| bindings.values().filter(|other| *other == engine).count();
        let free = (0..ENGINES).filter(|engine| !self.is_drained(*engine)).min_by_key(load).unwrap();
        let bound = bindings.entry(session.to_owned()).or_insert(free);
        if self.is_drained(*bound) {
            *bound = free;
        }
        *bound
    }

    async fn lease(&self, session: &str, is_bound: bool) -> (usize, Option<OwnedSemaphorePermit>) {
        loop {
            let engine = self.choose(session, is_bound);
            if !self.is_honest {
                return (engine, None);
            }
            let permit = Arc::clone(&self.slots[engine]).acquire_owned().await.unwrap();
            if !self.is_drained(engine) {
                return (engine, Some(permit));
            }
        }
    }

    fn count(&self, engine: usize, step: i32) {
        self.fake.change(|state| {
            let in_flight = state.in_flight.entry(self.engines[engine].address.clone()).or_default();
            *in_flight = in_flight.checked_add_signed(step).unwrap();
        });
    }

    async fn proxy(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let session = head.headers.get("x-session-id").unwrap().to_str().unwrap();
        let is_bound = head.uri.path().starts_with("/chat/");
        let body = body.collect().await.unwrap().to_bytes();
        let (engine, _permit) = self.lease(session, is_bound).await;
        self.count(engine, 1);
        let Engine { name, address } = &self.engines[engine];
        let request = Request::post(format!("http://{address}/v1/chat/completions")).body(Full::new(body)).unwrap();
        let (head, body) = self.client.request(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        self.count(engine, -1);
        let answer = Response::builder().status(head.status).header("x-routed-peer", name);
        answer.body(Full::new(body)).unwrap()
    }
}

async fn engine(tasks: &TaskTracker, number: usize) -> Engine {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let listen = format!("--listen={free}");
    let flags = ["routerctl", "mock-engine", &listen, "--ttft-ms=20", "--token-gap-ms=1", "--tokens=16"];
    let Command::MockEngine(args) = Cli::try_parse_from(flags).unwrap().command else { panic!("not an engine") };
    tasks.spawn(crate::mock_engine::run(*args, std::future::pending()));
    let http = Http::new();
    while http.get(&format!("http://{free}/health")).await.is_err() {
        tokio::task::yield_now().await;
    }
    Engine { name: format!("engine-{number}"), address: free.to_string() }
}

async fn replica(tasks: &TaskTracker, router: Arc<StandIn>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = tasks.clone();
    tasks.spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let router = Arc::clone(&router);
            let service = hyper::service::service_fn(move |request| {
                let router = Arc::clone(&router);
                async move { Ok::<_, Infallible>(router.proxy(request).await) }
            });
            connections
                .spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service));
        }
    });
    address
}

/// Runs every scene and returns what was checked, by claim.
async fn scenes(is_honest: bool) -> (Report, Vec<(String, bool)>) {
    let tasks = TaskTracker::new();
    let (fake, admin_address) = Fake::start().await;
    let mut engines = Vec::new();
    for number in 1..=ENGINES {
        engines.push(engine(&tasks, number).await);
    }
    let document = serde_json::json!({"name": "chat", "backends": engines.iter().map(|engine|
        serde_json::json!({"name": engine.name, "address": engine.address})).collect::<Vec<_>>()});
    let route = router_policy::route::parse_route(&document).unwrap();
    fake.state().routes.insert(route.name.clone(), route);
    let router = Arc::new(StandIn {
        fake,
        engines: engines.clone(),
        slots: (0..ENGINES).map(|_| Arc::new(Semaphore::new(LIMIT as usize))).collect(),
        bindings: Mutex::default(),
        next: AtomicUsize::new(0),
        client: Client::builder(TokioExecutor::new()).build_http(),
        is_honest,
    });
    let grpc = format!("http://{admin_address}");
    let connect = Connect { control_plane: Some(grpc.clone()), token_file: None };
    let mut cluster = Cluster {
        replicas: vec![
            replica(&tasks, Arc::clone(&router)).await.to_string(),
            replica(&tasks, Arc::clone(&router)).await.to_string(),
        ],
        engines,
        admin: Admin::connect(&connect).await.unwrap(),
        http: Http::new(),
        grpc,
        web: String::new(),
    };
    let mut report = Report::new(false);
    affinity::show(&cluster, &mut report).await.unwrap();
    burst::show(&cluster, &mut report).await.unwrap();
    live_drain::show(&mut cluster, &mut report).await.unwrap();
    let checks = report.checks.iter().map(|check| (check.claim.clone(), check.passed)).collect();
    (report, checks)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_router_that_keeps_its_promises_passes() {
    let (report, _) = scenes(true).await;
    assert_eq!(report.failed(), 0, "{report:#?}");
    assert_eq!(report.total(), 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_router_that_does_not_is_found_out() {
    let (report, checks) = scenes(false).await;
    let failed: Vec<&str> = checks.iter().filter(|(_, passed)| !passed).map(|(claim, _)| claim.as_str()).collect();
    for claim in ["each session stayed on one engine", "never above the limit", "nothing new started there"] {
        assert!(failed.contains(&claim), "{claim}: {report:#?}");
    }
}

#[test]
fn hints_carry_the_real_ports() {
    let engine = Engine { name: "engine-1".to_owned(), address: "127.0.0.1:1".to_owned() };
    let hints = cluster::hints("http://127.0.0.1:41", &["127.0.0.1:51".into(), "127.0.0.1:52".into()], &engine.name);
    for part in ["--control-plane http://127.0.0.1:41 status", "http://127.0.0.1:51 http://127.0.0.1:52", "engine-1"] {
        assert!(hints.contains(part), "{hints}");
    }
}
