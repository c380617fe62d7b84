//! What an outage of Postgres looks like, and what comes back after it.

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use router_tests::postgres::{TestDatabase, required_or_skipped};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{binding, lease, put, route, route_row};
use crate::store::group_commit::{Committer, Durability};
use crate::store::health::StoreHealth;
use crate::store::write_behind::Journal;
use crate::store::{OpenError, SqliteSync, StoreError, open};

#[tokio::test(flavor = "multi_thread")]
async fn calls_fail_fast_and_writes_come_through_when_postgres_returns() {
    let Some(database) = required_or_skipped(TestDatabase::start_private().await) else { return };
    let store = open(&database.url(), SqliteSync::Normal).await.unwrap();
    store.save_routes(&[route_row("chat")], &[]).await.unwrap();
    let (tracker, shutdown, health) = (TaskTracker::new(), CancellationToken::new(), StoreHealth::new());
    health.start_pings(Arc::clone(&store), &tracker, shutdown.clone());
    let committer = Committer::start(Arc::clone(&store), &tracker, shutdown.clone(), Arc::clone(&health));
    let journal = Journal::start(Arc::clone(&store), &tracker, shutdown.clone(), Arc::clone(&health));
    committer.submit(Some(put("chat", 1)), tokio::time::Instant::now() + Duration::from_secs(10), |_| ());
    assert_eq!(committer.flush().await, Durability::Written);

    database.kill9().await.unwrap();
    let asked = Instant::now();
    let failed = store.save_bindings(&[put("chat", 9)]).await;
    assert!(matches!(failed, Err(StoreError::Unreachable(_))), "{failed:?}");
    assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());

    let (tell, told) = mpsc::channel();
    let deadline = Duration::from_millis(200);
    let submitted = Instant::now();
    let sequence = committer.submit(Some(put("chat", 2)), tokio::time::Instant::now() + deadline, move |durability| {
        tell.send((durability, Instant::now())).unwrap();
    });
    journal.lease_granted(lease("chat", 1, "r1"));
    journal.touched(&route("chat"), binding("chat", 1).fingerprint, 1_900_000_000_000);
    let (durability, when) = tokio::task::spawn_blocking(move || told.recv().unwrap()).await.unwrap();
    assert_eq!(durability, Durability::Provisional);
    assert!((deadline..deadline + Duration::from_millis(300)).contains(&(when - submitted)), "{:?}", when - submitted);
    let mut changes = health.subscribe();
    changes.wait_for(|state| !state.is_ok).await.unwrap();
    assert!(health.state().last_error.is_some());

    database.restart().await.unwrap();
    changes.wait_for(|state| state.is_ok).await.unwrap();
    assert_eq!(committer.flush().await, Durability::Written);
    assert!(committer.committed() > sequence);
    journal.flush_now().await.unwrap();
    let mut stored = store.load().await.unwrap();
    stored.bindings.sort_by_key(|row| row.fingerprint);
    let mut touched = binding("chat", 1);
    touched.last_used_unix_ms = 1_900_000_000_000;
    touched.requests += 1;
    assert_eq!(stored.bindings, [touched, binding("chat", 2)]);
    assert_eq!(stored.leases, [lease("chat", 1, "r1")]);

    // A stop in order drops the idle connections: the next call may fail, the one after a reconnect may not.
    database.stop().await.unwrap();
    database.restart().await.unwrap();
    tokio::time::timeout(Duration::from_secs(5), async {
        while store.ping().await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
    .unwrap();
    shutdown.cancel();
    tracker.close();
    tracker.wait().await;
}

#[tokio::test]
async fn an_absent_server_is_one_line_without_the_password() {
    let started = Instant::now();
    // Bound and never listening: connections are refused.
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    drop(socket);
    let url = format!("postgres://router:hunter2@127.0.0.1:{port}/routers");
    let Err(error) = open(&url, SqliteSync::Normal).await else { panic!("opened") };
    let text = error.to_string();
    assert!(started.elapsed() < Duration::from_secs(3));
    assert!(text.contains(&format!("127.0.0.1:{port}/routers")), "{text}");
    assert!(!text.contains("hunter2") && !format!("{error:?}").contains("hunter2"), "{text}");
    assert_eq!(text.lines().count(), 1);
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up() {
    // Connections are taken by the kernel and nothing is ever said.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://router@127.0.0.1:{}/routers", silent.local_addr().unwrap().port());
    let started = Instant::now();
    let Err(error) = open(&url, SqliteSync::Normal).await else { panic!("opened") };
    assert!(matches!(error, OpenError::Unreachable { .. }), "{error}");
    assert!((Duration::from_secs(2)..Duration::from_secs(3)).contains(&started.elapsed()));
}
