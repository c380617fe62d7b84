//! The promises; each name is the claim.

use router_policy::ids::LeaseId;

use super::super::{BindingTouch, FlowRow, MarkKind, PayloadCountsRow, StoreError, Stored, ToggleRow};
use super::{Installation, backend, binding, forget, key, lease, mark, put, replica, route, route_row, session};
use crate::store::{BindingWrite, Store};

fn sorted(mut stored: Stored) -> Stored {
    stored.bindings.sort_by_key(|row| (row.route.clone(), row.fingerprint));
    stored.leases.sort_by_key(|row| row.lease);
    stored.marks.sort_by_key(|row| (row.route.clone(), row.backend.clone(), row.kind));
    stored.flows.sort_by_key(|row| (row.route.clone(), row.model.clone()));
    stored.payload_counts.sort_by_key(|row| row.route.clone());
    stored.toggles.sort_by_key(|row| (row.route.clone(), row.name.clone(), row.model.clone()));
    stored
}

async fn load(store: &dyn Store) -> Stored {
    sorted(store.load().await.unwrap())
}

pub(super) async fn an_empty_installation_holds_nothing(installation: Installation) {
    let store = installation.open().await;
    store.ping().await.unwrap();
    assert_eq!(load(&*store).await, Stored::default());
    store.save_routes(&[], &[]).await.unwrap();
    store.save_bindings(&[]).await.unwrap();
    store.touch_bindings(&[]).await.unwrap();
    store.save_leases(&[], &[]).await.unwrap();
    store.save_marks(&[], &[]).await.unwrap();
    store.save_flows(&[]).await.unwrap();
    store.save_payload_counts(&[]).await.unwrap();
    store.save_toggles(&[], &[]).await.unwrap();
    store.save_replicas(&[]).await.unwrap();
    assert_eq!(load(&*store).await, Stored::default());
    let kind = match installation {
        Installation::Sqlite(_) => "sqlite",
        Installation::Postgres(_) => "postgres",
    };
    assert_eq!(store.kind(), kind);
}

pub(super) async fn epochs_count_up_over_restarts(installation: Installation) {
    let store = installation.open().await;
    assert_eq!(store.begin_epoch().await.unwrap(), 1);
    assert_eq!(store.begin_epoch().await.unwrap(), 2);
    drop(store);
    assert_eq!(installation.open().await.begin_epoch().await.unwrap(), 3);
}

pub(super) async fn the_first_fingerprint_key_stays(installation: Installation) {
    let store = installation.open().await;
    assert_eq!(store.fingerprint_key([7; 32]).await.unwrap(), [7; 32]);
    assert_eq!(store.fingerprint_key([8; 32]).await.unwrap(), [7; 32]);
    drop(store);
    assert_eq!(installation.open().await.fingerprint_key([9; 32]).await.unwrap(), [7; 32]);
}

fn flow(name: &str, model: &str, state: &str) -> FlowRow {
    FlowRow { route: route(name), model: model.into(), state: state.into(), updated_unix_ms: 1_700_000_000_000 }
}

fn payload(name: &str, state: &str) -> PayloadCountsRow {
    PayloadCountsRow { route: route(name), state: state.into(), updated_unix_ms: i64::MAX.unsigned_abs() }
}

fn toggle(on: &str, name: &str, model: &str, value: &str, until_unix_ms: Option<u64>) -> ToggleRow {
    let (name, model, value) = (name.into(), model.into(), value.into());
    ToggleRow { route: route(on), name, model, value, until_unix_ms, standing: None }
}

/// A bit of everything, with the extremes of each column.
fn everything() -> Stored {
    let mut moved = binding("chat", 2);
    moved.dp_rank = Some(u32::MAX);
    moved.moves = u32::MAX;
    moved.last_used_unix_ms = i64::MAX.unsigned_abs();
    moved.requests = 1 << 40;
    let mut sessionless = lease("embed", 2, "r2");
    sessionless.fingerprint = None;
    sessionless.lease = LeaseId::new((1 << 23) - 1, LeaseId::PER_EPOCH - 1);
    let mut timed = mark("chat", MarkKind::Ban);
    timed.until_unix_ms = Some(1_700_000_000_123);
    Stored {
        routes: vec![route_row("chat"), route_row("embed")],
        bindings: vec![binding("chat", 1), moved, binding("embed", 1)],
        leases: vec![lease("chat", 1, "r1"), sessionless],
        marks: vec![
            mark("chat", MarkKind::Drain),
            timed,
            mark("embed", MarkKind::FileDrain),
            mark("embed", MarkKind::Unhealthy),
        ],
        flows: vec![flow("chat", "", "{}"), flow("embed", "an \"ü\" model", r#"{"value": "1e-9"}"#)],
        payload_counts: vec![payload("chat", "{}"), payload("embed", r#"{"rule_hits": {"a \"ü\" rule": 1}}"#)],
        toggles: vec![
            toggle("chat", "load_rate_limit", "", "off", None),
            toggle("embed", "ttft_limit_ms", "", "12.5", Some(i64::MAX.unsigned_abs())),
            ToggleRow {
                standing: Some("9.25".into()),
                ..toggle("embed", "ttft_limit_ms", "an \"ü\" model", "7", Some(1))
            },
        ],
        keys: vec![key("k1", "alice's \"laptop\"", 1), key("k2", "bob", 2)],
        replicas: vec![replica("r1"), replica("r2")],
    }
}

async fn save(store: &dyn Store, stored: &Stored) {
    store.save_routes(&stored.routes, &[]).await.unwrap();
    let writes: Vec<_> = stored.bindings.iter().cloned().map(BindingWrite::Put).collect();
    store.save_bindings(&writes).await.unwrap();
    store.save_leases(&stored.leases, &[]).await.unwrap();
    store.save_marks(&stored.marks, &[]).await.unwrap();
    store.save_flows(&stored.flows).await.unwrap();
    store.save_payload_counts(&stored.payload_counts).await.unwrap();
    store.save_toggles(&stored.toggles, &[]).await.unwrap();
    for key in &stored.keys {
        store.add_key(key).await.unwrap();
    }
    store.save_replicas(&stored.replicas).await.unwrap();
}

pub(super) async fn all_rows_come_back_after_a_restart(installation: Installation) {
    let store = installation.open().await;
    save(&*store, &everything()).await;
    assert_eq!(load(&*store).await, everything());
    drop(store);
    assert_eq!(load(&*installation.open().await).await, everything());
}

pub(super) async fn a_repeated_call_changes_nothing(installation: Installation) {
    let store = installation.open().await;
    save(&*store, &everything()).await;
    save(&*store, &everything()).await;
    assert_eq!(load(&*store).await, everything());

    let (kept, gone) = (route("chat"), route("embed"));
    for _ in 0..2 {
        store.save_routes(&[], std::slice::from_ref(&gone)).await.unwrap();
        store.save_bindings(&[forget("chat", 1)]).await.unwrap();
        store.save_leases(&[], &[LeaseId::new(3, 1)]).await.unwrap();
        store.save_marks(&[], &[(kept.clone(), backend("[::1]:8000"), MarkKind::Ban)]).await.unwrap();
        store.save_toggles(&[], &[(kept.clone(), "load_rate_limit".into(), String::new())]).await.unwrap();
        store.remove_key("k1").await.unwrap();
        store.remove_replica("r1").await.unwrap();
    }
    let left = load(&*store).await;
    assert_eq!(left.routes, [route_row("chat")]);
    assert_eq!(left.bindings, everything().bindings[1..2]);
    assert_eq!(left.leases, []);
    assert_eq!(left.marks, everything().marks[..1]);
    assert_eq!((left.flows, left.toggles), (everything().flows[..1].to_vec(), vec![]));
    assert_eq!(left.payload_counts, everything().payload_counts[..1]);
    assert_eq!(left.keys, everything().keys[1..]);
    assert_eq!(left.replicas, everything().replicas[1..]);
}

pub(super) async fn the_last_write_of_a_session_counts(installation: Installation) {
    let store = installation.open().await;
    store.save_routes(&[route_row("chat"), route_row("embed")], &[]).await.unwrap();
    let mut moved = binding("chat", 1);
    moved.backend = backend("10.0.0.2:8000");
    store
        .save_bindings(&[
            put("chat", 1),
            put("embed", 1),
            BindingWrite::Put(moved.clone()),
            put("chat", 2),
            forget("chat", 2),
            forget("chat", 3),
            put("chat", 3),
        ])
        .await
        .unwrap();
    assert_eq!(load(&*store).await.bindings, [moved, binding("chat", 3), binding("embed", 1)]);
    store.save_bindings(&[forget("chat", 1), forget("chat", 3), put("chat", 1)]).await.unwrap();
    assert_eq!(load(&*store).await.bindings, [binding("chat", 1), binding("embed", 1)]);
}

pub(super) async fn the_last_row_of_a_pool_a_payload_and_a_toggle_counts(installation: Installation) {
    let store = installation.open().await;
    store.save_routes(&[route_row("chat")], &[]).await.unwrap();
    store.save_flows(&[flow("chat", "m", "1"), flow("chat", "", "2"), flow("chat", "m", "3")]).await.unwrap();
    store.save_payload_counts(&[payload("chat", "1"), payload("chat", "2")]).await.unwrap();
    let early = ToggleRow { standing: Some("off".into()), ..toggle("chat", "ttft", "", "on", Some(9)) };
    let late = toggle("chat", "ttft", "", "off", None);
    let of_model = toggle("chat", "tps_limit_tps", "m", "5", None);
    store.save_toggles(&[early.clone(), of_model.clone(), late.clone()], &[]).await.unwrap();
    let stored = load(&*store).await;
    assert_eq!(stored.flows, [flow("chat", "", "2"), flow("chat", "m", "3")]);
    assert_eq!(stored.toggles, [of_model.clone(), late]);
    assert_eq!(stored.payload_counts, [payload("chat", "2")]);

    store.save_flows(&[flow("chat", "", "4")]).await.unwrap();
    store.save_payload_counts(&[payload("chat", "3")]).await.unwrap();
    // What goes, goes before what comes.
    let key = |row: &ToggleRow| (row.route.clone(), row.name.clone(), row.model.clone());
    store.save_toggles(std::slice::from_ref(&early), &[key(&early), key(&of_model)]).await.unwrap();
    let stored = load(&*store).await;
    assert_eq!(stored.flows, [flow("chat", "", "4"), flow("chat", "m", "3")]);
    assert_eq!((stored.toggles, stored.payload_counts), (vec![early], vec![payload("chat", "3")]));
}

pub(super) async fn touches_add_up_and_never_revive(installation: Installation) {
    let store = installation.open().await;
    store.save_routes(&[route_row("chat")], &[]).await.unwrap();
    store.save_bindings(&[put("chat", 1), put("chat", 2)]).await.unwrap();
    let touch = |number, last_used_unix_ms, more_requests| BindingTouch {
        route: route("chat"),
        fingerprint: session(number),
        last_used_unix_ms,
        more_requests,
    };
    let newest = 1_800_000_000_000;
    store.touch_bindings(&[touch(1, newest, 2), touch(2, 1, 1), touch(1, 5, 3), touch(9, newest, 1)]).await.unwrap();
    let (mut first, mut second) = (binding("chat", 1), binding("chat", 2));
    first.last_used_unix_ms = newest;
    first.requests += 5;
    second.requests += 1;
    assert_eq!(load(&*store).await.bindings, [first, second]);
}

pub(super) async fn rows_of_unknown_routes_are_passed_over(installation: Installation) {
    let store = installation.open().await;
    store.save_routes(&[route_row("chat")], &[]).await.unwrap();
    store.save_bindings(&[put("gone", 1), put("chat", 1)]).await.unwrap();
    store.save_leases(&[lease("gone", 1, "r1"), lease("chat", 2, "r1")], &[]).await.unwrap();
    store.save_marks(&[mark("gone", MarkKind::Ban), mark("chat", MarkKind::Ban)], &[]).await.unwrap();
    store.save_flows(&[flow("gone", "", "{}"), flow("chat", "", "{}")]).await.unwrap();
    store.save_payload_counts(&[payload("gone", "{}"), payload("chat", "{}")]).await.unwrap();
    let on = |name| toggle(name, "ttft", "", "on", None);
    store.save_toggles(&[on("gone"), on("chat")], &[]).await.unwrap();
    let stored = load(&*store).await;
    assert_eq!(stored.bindings, [binding("chat", 1)]);
    assert_eq!(stored.leases, [lease("chat", 2, "r1")]);
    assert_eq!(stored.marks, [mark("chat", MarkKind::Ban)]);
    assert_eq!((stored.flows, stored.toggles), (vec![flow("chat", "", "{}")], vec![on("chat")]));
    assert_eq!(stored.payload_counts, [payload("chat", "{}")]);
}

pub(super) async fn a_removed_route_takes_its_rows_along(installation: Installation) {
    let store = installation.open().await;
    save(&*store, &everything()).await;
    // In both lists: it starts afresh.
    store.save_routes(&[route_row("chat")], &[route("chat"), route("embed")]).await.unwrap();
    let stored = load(&*store).await;
    assert_eq!(stored.routes, [route_row("chat")]);
    assert_eq!((stored.bindings, stored.leases, stored.marks), (vec![], vec![], vec![]));
    assert_eq!((stored.flows, stored.payload_counts, stored.toggles), (vec![], vec![], vec![]));
    // Marks that come with a route are not those that went with it.
    let marks = [mark("chat", MarkKind::Drain), mark("gone", MarkKind::Drain)];
    store.save_routes_marked(&[route_row("chat")], &[route("chat")], &marks).await.unwrap();
    assert_eq!(load(&*store).await.marks, marks[..1]);
    // A route that is only changed keeps its rows.
    store.save_bindings(&[put("chat", 1)]).await.unwrap();
    let mut changed = route_row("chat");
    changed.document = "{}".into();
    store.save_routes(std::slice::from_ref(&changed), &[]).await.unwrap();
    let stored = load(&*store).await;
    assert_eq!((stored.routes, stored.bindings), (vec![changed], vec![binding("chat", 1)]));
}

pub(super) async fn a_removed_replica_takes_its_leases_along(installation: Installation) {
    let store = installation.open().await;
    save(&*store, &everything()).await;
    store.remove_replica("r2").await.unwrap();
    let stored = load(&*store).await;
    assert_eq!(stored.leases, [lease("chat", 1, "r1")]);
    assert_eq!(stored.replicas, [replica("r1")]);
}

pub(super) async fn conflicts_name_the_constraint(installation: Installation) {
    fn constraint(outcome: Result<(), StoreError>) -> String {
        match outcome {
            Err(error @ StoreError::Conflict { .. }) if error.is_transient() => panic!("a conflict stays one"),
            Err(StoreError::Conflict { constraint }) => constraint,
            other => panic!("{other:?}"),
        }
    }
    let store = installation.open().await;
    store.add_key(&key("k1", "alice", 1)).await.unwrap();
    assert_eq!(constraint(store.add_key(&key("k2", "alice", 2)).await), "keys_name");
    assert_eq!(constraint(store.add_key(&key("k2", "bob", 1)).await), "keys_sha256");
    assert_eq!(load(&*store).await.keys, [key("k1", "alice", 1)]);
    store.add_key(&key("k2", "bob", 2)).await.unwrap();
    assert_eq!(constraint(store.add_key(&key("k2", "alice", 2)).await), "keys_name");
    store.add_key(&key("k1", "alice", 1)).await.unwrap();
}

pub(super) async fn a_failing_batch_leaves_nothing(installation: Installation) {
    let store = installation.open().await;
    save(&*store, &everything()).await;
    let poison = match installation {
        Installation::Sqlite(_) => {
            "CREATE TRIGGER poisoned BEFORE INSERT ON routes WHEN NEW.name = 'poison' \
             BEGIN SELECT RAISE(ABORT, 'poison'); END; \
             CREATE TRIGGER poisoned_backend BEFORE INSERT ON bindings WHEN NEW.backend = 'poison:1' \
             BEGIN SELECT RAISE(ABORT, 'poison'); END;"
        }
        Installation::Postgres(_) => {
            "ALTER TABLE routes ADD CONSTRAINT poisoned CHECK (name <> 'poison'); \
             ALTER TABLE bindings ADD CONSTRAINT poisoned CHECK (backend <> 'poison:1')"
        }
    };
    installation.sql(poison).await;
    let (rows, marks) = ([route_row("new"), route_row("poison")], [mark("embed", MarkKind::Drain)]);
    let failed = store.save_routes_marked(&rows, &[route("chat")], &marks).await;
    assert!(matches!(failed, Err(StoreError::Other(_))), "{failed:?}");
    let mut refused = binding("chat", 7);
    refused.backend = backend("poison:1");
    let failed = store.save_bindings(&[forget("chat", 1), put("chat", 6), BindingWrite::Put(refused)]).await;
    assert!(matches!(failed, Err(StoreError::Other(_))), "{failed:?}");
    assert_eq!(load(&*store).await, everything());
    store.save_bindings(&[put("chat", 1)]).await.unwrap();
}

pub(super) async fn invalid_rows_are_refused(installation: Installation) {
    let store = installation.open().await;
    save(&*store, &everything()).await;
    installation.sql("UPDATE bindings SET backend = 'http://not-a-backend/'").await;
    let failed = store.load().await;
    let Err(StoreError::Corrupt { what, problem }) = failed else { panic!("{failed:?}") };
    assert_eq!(what, "binding");
    assert!(!problem.contains("not-a-backend"), "{problem}");
}

pub(super) async fn numbers_that_do_not_fit_are_refused(installation: Installation) {
    let store = installation.open().await;
    store.save_routes(&[route_row("chat")], &[]).await.unwrap();
    let mut large = binding("chat", 1);
    large.requests = 1 << 63;
    assert!(store.save_bindings(&[put("chat", 2), BindingWrite::Put(large)]).await.is_err());
    assert!(store.save_leases(&[], &[LeaseId(u64::MAX)]).await.is_err());
    assert_eq!(load(&*store).await.bindings, []);
}

pub(super) async fn large_batches_are_one_call(installation: Installation) {
    let store = installation.open().await;
    store.save_routes(&[route_row("chat")], &[]).await.unwrap();
    let writes: Vec<_> = (0..20_000).map(|number| put("chat", number)).collect();
    store.save_bindings(&writes).await.unwrap();
    assert_eq!(store.load().await.unwrap().bindings.len(), writes.len());
    let leases: Vec<_> = (0..20_000).map(|number| lease("chat", number, "r1")).collect();
    store.save_leases(&leases, &[]).await.unwrap();
    let ids: Vec<_> = leases.iter().map(|row| row.lease).collect();
    store.save_leases(&[], &ids).await.unwrap();
    let touches: Vec<_> = (0..20_000)
        .map(|number| BindingTouch {
            route: route("chat"),
            fingerprint: session(number),
            last_used_unix_ms: 1_800_000_000_000,
            more_requests: 1,
        })
        .collect();
    let before = std::time::Instant::now();
    store.touch_bindings(&touches).await.unwrap();
    // A plan that scans one side for each row of the other would need minutes.
    assert!(before.elapsed() < std::time::Duration::from_secs(10));
    let gone: Vec<_> = (0..20_000).map(|number| forget("chat", number)).collect();
    store.save_bindings(&gone).await.unwrap();
    assert!(store.load().await.unwrap().bindings.is_empty());
}
