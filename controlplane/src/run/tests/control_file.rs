//! The control file and the drains of its route are one state (gateway.md §9).

use serde_json::json;

use super::followed::{Place, on_both_databases};
use super::*;
use crate::files::RouteFile;
use crate::pool::{Asked, Caller};
use crate::store::{MarkKind, MarkRow};
use router_policy::ids::{BackendId, RouteName};

const ONE: &str = "127.0.0.1:19001";
const TWO: &str = "127.0.0.1:19002";
const NOT_LISTED: &str = "not in enabled_ports of the control file";

on_both_databases![
    the_file_drains_and_undrains,
    a_file_that_says_nothing_closes_admission,
    an_operator_s_drain_is_an_edit_of_the_file,
    a_file_that_can_not_be_written_refuses_the_drain,
    after_a_kill_the_file_wins,
    drains_of_a_file_end_when_it_is_not_followed,
    a_refused_drain_leaves_other_routes_alone,
    backends_come_and_leave,
    backends_that_share_a_port,
    the_file_has_the_last_word_over_what_shall_start_drained,
];

async fn the_file_drains_and_undrains(place: Place) {
    place.put("control", r#"{"enabled_ports": [19001, 19008]}"#);
    let still = place.start().await;
    assert!(still.note("control-file").contains("no route 'default'") && still.problem("control-file").is_empty());
    still.apply(&[ONE, TWO]).await;
    assert_eq!(still.drained(), [(TWO.to_owned(), NOT_LISTED.to_owned())], "the file decides about a new route");
    assert_eq!(still.stored_drains().await, [TWO]);
    assert_eq!(still.note("control-file"), "enabled_ports: no backend for 19008; passed over");
    assert_eq!(still.problem("control-file"), "");

    place.put("control", r#"{"enabled_ports": [19002]}"#);
    still.fleet.follow_control_file().await;
    assert_eq!(still.drained_names(), [ONE]);
    assert_eq!(still.stored_drains().await, [ONE]);
    assert_eq!((still.problem("control-file"), still.note("control-file")), (String::new(), String::new()));
    let version = still.fleet.hub.version();
    still.fleet.follow_control_file().await;
    assert_eq!(still.fleet.hub.version(), version, "nothing new, nothing told");
    place.put("control", r#"{"enabled_ports": [19002, 19001]}"#);
    still.fleet.follow_control_file().await;
    assert!(still.drained().is_empty() && still.fleet.hub.version() > version);
    assert!(still.stored_drains().await.is_empty());
}

async fn a_file_that_says_nothing_closes_admission(place: Place) {
    let both = [ONE, TWO];
    let still = place.start().await;
    still.apply(&both).await;
    assert_eq!(still.drained_names(), both, "missing from the start");
    for (text, reason) in [
        (Some(r#"{"enabled_ports": [19001"#), "the control file is not valid: admission is closed"),
        (Some(r#"{"enabled_ports": []}"#), "the control file lists no port: admission is closed"),
        (None, "the control file is missing: admission is closed"),
    ] {
        place.put("control", r#"{"enabled_ports": [19001, 19002]}"#);
        still.fleet.follow_control_file().await;
        assert!(still.drained().is_empty() && still.problem("control-file").is_empty(), "open again");
        match text {
            Some(text) => place.put("control", text),
            None => std::fs::remove_file(place.path("control")).unwrap(),
        }
        still.fleet.follow_control_file().await;
        assert_eq!(still.drained(), both.map(|backend| (backend.to_owned(), reason.to_owned())));
        assert!(still.problem("control-file").contains("admission is closed") && still.note("control-file").is_empty());
        assert_eq!(still.stored_drains().await, both);
    }
    // One that is not valid is nobody's to write over.
    let broken = r#"{"enabled_ports": [19001, 19002"#;
    place.put("control", broken);
    still.fleet.follow_control_file().await;
    let refused = still.drain(ONE, false).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    for words in ["not JSON: line 1", "nothing was changed; fix the file, or remove it and undrain"] {
        assert!(refused.message().contains(words), "{refused}");
    }
    let refused = still.drain(ONE, true).await.unwrap_err();
    assert!(refused.message().contains("is not valid: nobody is admitted"), "{refused}");
    assert_eq!((place.text("control").as_str(), still.drained_names().len()), (broken, 2));
    std::fs::remove_file(place.path("control")).unwrap();
    still.fleet.follow_control_file().await;
    // A drain could not be kept in it; an undrain makes a file that lists what it means.
    let refused = still.drain(ONE, true).await.unwrap_err();
    assert!(refused.message().contains("is missing: nobody is admitted, and a drain can't be kept"), "{refused}");
    assert!(!place.path("control").exists());
    still.drain(ONE, false).await.unwrap();
    assert_eq!(place.text("control"), r#"{"enabled_ports":[19001]}"#);
    assert_eq!(still.drained(), [(TWO.to_owned(), NOT_LISTED.to_owned())]);
    assert_eq!(still.stored_drains().await, [TWO]);
}

async fn an_operator_s_drain_is_an_edit_of_the_file(place: Place) {
    place.put("control", r#"{"by": "hand", "enabled_ports": [19001, 19002, 19009]}"#);
    let still = place.start().await;
    still.apply(&[ONE, TWO]).await;
    still.drain(TWO, true).await.unwrap();
    assert_eq!(place.text("control"), r#"{"by":"hand","enabled_ports":[19001,19009]}"#);
    assert_eq!(still.drained_names(), [TWO]);
    assert_eq!(still.stored_drains().await, [TWO]);

    // The file changed and nobody has looked yet: its change is taken first. The older words that were queued behind must
    // not come after the operator's.
    place.put("control", r#"{"enabled_ports": [19002]}"#);
    still.fleet.follow_control_file().await;
    place.put("control", r#"{"enabled_ports": [19001, 19002]}"#);
    still.drain(TWO, true).await.unwrap();
    assert_eq!(place.text("control"), r#"{"enabled_ports":[19001]}"#);
    assert_eq!(still.drained_names(), [TWO]);
    assert_eq!(still.stored_drains().await, [TWO]);
    still.drain(TWO, false).await.unwrap();
    assert_eq!(place.text("control"), r#"{"enabled_ports":[19001,19002]}"#);
    assert!(still.drained().is_empty());
    assert!(still.stored_drains().await.is_empty());

    // Another route's drains are no business of the file.
    let other = json!({"name": "other", "backends": ["127.0.0.1:7"]});
    still.fleet.apply(&other, ApplyMode::default()).await.unwrap();
    still.drain("127.0.0.1:7", true).await.unwrap();
    assert_eq!(place.text("control"), r#"{"enabled_ports":[19001,19002]}"#);
    assert_eq!(still.stored_drains().await, ["127.0.0.1:7"]);
}

async fn a_file_that_can_not_be_written_refuses_the_drain(place: Place) {
    let open = r#"{"enabled_ports": [19001, 19002]}"#;
    place.put("control", open);
    let still = place.start().await;
    still.apply(&[ONE, TWO]).await;
    std::fs::create_dir(place.path("control.router-tmp")).unwrap();
    let refused = still.drain(TWO, true).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(
        refused.message().contains("control file") && refused.message().contains("nothing was changed"),
        "{refused}"
    );
    assert!(still.drained().is_empty());
    assert!(still.drains_in_database().await.is_empty(), "not even until the next write");
    let added = json!({"name": "default", "default": true, "backends": [ONE, TWO, "127.0.0.1:19003"]});
    assert!(still.fleet.apply(&added, ApplyMode::default()).await.is_err(), "a backend can't be enabled in it either");
    assert_eq!(still.fleet.specs().await[0].backends.len(), 2);
    assert_eq!(place.text("control"), open);

    std::fs::remove_dir(place.path("control.router-tmp")).unwrap();
    still.drain(TWO, true).await.unwrap();
    assert_eq!(still.drained_names(), [TWO]);
    assert_eq!(place.text("control"), r#"{"enabled_ports":[19001]}"#);
}

async fn after_a_kill_the_file_wins(place: Place) {
    place.put("control", r#"{"enabled_ports": [19001, 19002]}"#);
    let still = place.start().await;
    still.apply(&[ONE, TWO]).await;
    // Killed between the mark and the file: the command was not answered, and has not happened.
    let mark = MarkRow {
        route: RouteName::new("default").unwrap(),
        backend: BackendId::new(TWO).unwrap(),
        kind: MarkKind::Drain,
        until_unix_ms: None,
        reason: String::new(),
    };
    still.fleet.store.save_marks(&[mark], &[]).await.unwrap();
    still.kill().await;
    let still = place.start().await;
    assert!(still.drained().is_empty());
    assert!(still.stored_drains().await.is_empty());
    still.kill().await;

    // Killed after the file.
    place.put("control", r#"{"enabled_ports": [19001]}"#);
    let still = place.start().await;
    assert_eq!(still.drained_names(), [TWO]);
    assert_eq!(still.stored_drains().await, [TWO]);
    still.kill().await;
    std::fs::remove_file(place.path("control")).unwrap();
    let still = place.start().await;
    assert_eq!(still.drained_names(), [ONE, TWO], "closed before anybody can ask");
}

async fn drains_of_a_file_end_when_it_is_not_followed(place: Place) {
    let three = "127.0.0.1:19003";
    place.put("control", r#"{"enabled_ports": [19001, 19002]}"#);
    let still = place.start().await;
    still.apply(&[ONE, TWO, three]).await;
    still.drain(TWO, true).await.unwrap();
    assert_eq!(still.drained_names(), [TWO, three]);
    assert_eq!(still.stored_drains().await, [TWO, three]);
    still.kill().await;
    for route in [None, Some("other")] {
        let still = place.start_following(route).await;
        assert_eq!(still.drained(), [(TWO.to_owned(), String::new())], "the operator's stays, the file's has ended");
        assert_eq!(still.stored_drains().await, [TWO]);
        still.kill().await;
    }
    let still = place.start().await;
    assert_eq!(still.drained_names(), [TWO, three], "followed again");
    place.put("control", r#"{"enabled_ports": [19001, 19002, 19003]}"#);
    still.fleet.follow_control_file().await;
    assert!(still.drained().is_empty());
    assert!(still.stored_drains().await.is_empty(), "the file's word ends the operator's drain too");
    still.drain(ONE, true).await.unwrap();
    still.drain(ONE, false).await.unwrap();
    still.kill().await;
    let still = place.start_following(None).await;
    assert!(still.drained().is_empty());
}

/// A drain that means backends of two routes: what is refused is in force nowhere, also after a kill.
async fn a_refused_drain_leaves_other_routes_alone(place: Place) {
    let seven = "127.0.0.1:7";
    place.put("control", r#"{"enabled_ports": [7]}"#);
    let still = place.start().await;
    still.apply(&[seven]).await;
    let other = json!({"name": "other", "backends": [seven]});
    still.fleet.apply(&other, ApplyMode::default()).await.unwrap();
    std::fs::create_dir(place.path("control.router-tmp")).unwrap();
    assert_eq!(still.drain(seven, true).await.unwrap_err().code(), Code::FailedPrecondition);
    assert!(still.drains_in_database().await.is_empty());
    still.kill().await;
    let still = place.start().await;
    let pools = still.fleet.pools();
    assert!(pools.values().all(|pool| !pool.is_draining(&BackendId::new(seven).unwrap())));
    std::fs::remove_dir(place.path("control.router-tmp")).unwrap();
    still.drain(seven, true).await.unwrap();
    assert!(pools.values().all(|pool| pool.is_draining(&BackendId::new(seven).unwrap())));
    let stored = still.fleet.store.load().await.unwrap().marks;
    let by_operator = stored.iter().filter(|mark| mark.kind == MarkKind::Drain).count();
    assert_eq!(by_operator, 2, "in both routes");
}

async fn backends_come_and_leave(place: Place) {
    let three = "127.0.0.1:19003";
    place.put("control", r#"{"enabled_ports": [19001, 19008]}"#);
    let still = place.start().await;
    still.apply(&[ONE, TWO]).await;
    still.apply(&[ONE, TWO, three]).await;
    assert_eq!(place.text("control"), r#"{"enabled_ports":[19001,19008,19003]}"#, "adding is the operator's word");
    assert_eq!(still.drained_names(), [TWO], "and says nothing of the others");
    still.apply(&[TWO, three]).await;
    assert_eq!(place.text("control"), r#"{"enabled_ports":[19008,19003]}"#);
    let dry = ApplyMode { dry_run: true, ..ApplyMode::default() };
    let document = json!({"name": "default", "default": true, "backends": [ONE, TWO, three]});
    assert_eq!(still.fleet.apply(&document, dry).await.unwrap().len(), 1);
    assert_eq!(place.text("control"), r#"{"enabled_ports":[19008,19003]}"#, "a dry run writes nothing");

    still.fleet.remove_route("default").await.unwrap();
    assert_eq!(place.text("control"), r#"{"enabled_ports":[19008,19003]}"#);
    still.apply(&[ONE, TWO, three]).await;
    assert_eq!(still.drained_names(), [ONE, TWO], "the route is new: the file decides");
    std::fs::remove_file(place.path("control")).unwrap();
    still.apply(&[ONE, TWO, three, "127.0.0.1:19004"]).await;
    assert_eq!(still.drained().len(), 4, "what is closed stays closed");
    assert!(!place.path("control").exists());
}

async fn backends_that_share_a_port(place: Place) {
    let (a, b) = ("10.0.0.1:8000", "10.0.0.2:8000");
    place.put("control", r#"{"enabled_ports": [8000]}"#);
    let still = place.start().await;
    still.apply(&[a, b]).await;
    assert!(still.drained().is_empty());
    still.drain(a, true).await.unwrap();
    assert_eq!(place.text("control"), r#"{"enabled_ports":["10.0.0.2:8000"]}"#);
    assert_eq!(still.drained_names(), [a]);
    still.drain(a, false).await.unwrap();
    assert_eq!(place.text("control"), r#"{"enabled_ports":[8000]}"#);
}

async fn the_file_has_the_last_word_over_what_shall_start_drained(place: Place) {
    place.put("control", r#"{"enabled_ports": [19001, 19003]}"#);
    let still = place.start().await;
    still.apply(&[ONE]).await;
    let new = [TWO, "127.0.0.1:19003", "127.0.0.1:19004"];
    let document = json!({"name": "default", "default": true, "options": {"health_failures": 1000},
        "backends": [ONE, new[0], new[1], new[2]]});
    let drained = [TWO.to_owned(), new[1].to_owned()];
    still.fleet.apply_drained(&document, ApplyMode::default(), &drained).await.unwrap();
    assert_eq!(place.text("control"), r#"{"enabled_ports":[19001,19003,19004]}"#, "19002 is not enabled in it");
    assert_eq!(still.drained(), [(TWO.to_owned(), NOT_LISTED.to_owned())], "19003 stood there already");
    assert_eq!(still.stored_drains().await, [TWO]);
}

#[tokio::test]
async fn without_the_database_the_file_s_door_works_and_the_other_changes_nothing() {
    let Some(place) = Place::private_postgres().await else { return };
    place.put("control", r#"{"enabled_ports": [19001, 19002, 19003]}"#);
    let still = place.start().await;
    still.apply(&[ONE, TWO]).await;
    place.database().stop().await.unwrap();
    let before = r#"{"enabled_ports":[19001,19003]}"#;
    place.put("control", before);
    still.fleet.follow_control_file().await;
    assert_eq!(still.drained_names(), [TWO]);
    assert_eq!(still.drain(ONE, true).await.unwrap_err().code(), Code::Unavailable);
    let document = |last: &str| json!({"name": "default", "default": true, "backends": [ONE, TWO, last]});
    for (added, port) in [("127.0.0.1:19003", "listed before"), ("127.0.0.1:19004", "not listed before")] {
        assert!(still.fleet.apply(&document(added), ApplyMode::default()).await.is_err());
        assert_eq!(place.text("control"), before, "{port}");
    }
    assert_eq!(still.drained_names(), [TWO]);

    place.database().restart().await.unwrap();
    assert_eq!(still.stored_drains().await, [TWO], "the file's word reaches the database when it is back");
    still.drain(ONE, true).await.unwrap();
    assert_eq!(place.text("control"), r#"{"enabled_ports":[19003]}"#);
}

#[tokio::test]
async fn a_waiting_request_is_not_served_by_a_backend_that_enters_drained() {
    let place = Place::sqlite();
    place.put("control", r#"{"enabled_ports": [19001]}"#);
    let still = place.start().await;
    let document = |backends: &[&str]| {
        json!({"name": "default", "options": {"max_concurrency": 1, "queue_timeout": "60s", "health_failures": 1000},
            "backends": backends})
    };
    still.fleet.apply(&document(&[ONE]), ApplyMode::default()).await.unwrap();
    let (replies, mut answers) = mpsc::unbounded_channel();
    let caller = Arc::new(Caller { replica: "one".into(), stream: 1, replies });
    let pool = still.fleet.pool("default").unwrap();
    pool.acquire(1, Asked::default(), &caller);
    assert!(matches!(answers.try_recv().unwrap().kind, Some(Answer::Granted(_))));
    pool.acquire(2, Asked::default(), &caller);
    pool.acquire(3, Asked::default(), &caller);
    // The control: a backend that is added as usual serves who waits.
    let three = "127.0.0.1:19003";
    still.fleet.apply(&document(&[ONE, three]), ApplyMode::default()).await.unwrap();
    let Some(Answer::Granted(granted)) = answers.try_recv().unwrap().kind else { panic!("granted expected") };
    assert_eq!(granted.backend, three);
    assert!(answers.try_recv().is_err(), "the other waits");
    std::fs::remove_file(place.path("control")).unwrap();
    still.fleet.apply(&document(&[ONE, three, TWO]), ApplyMode::default()).await.unwrap();
    let Some(Answer::Refused(refused)) = answers.try_recv().unwrap().kind else { panic!("refused expected") };
    assert_eq!(refused.gate, i32::from(v1::Gate::NoBackend), "admission is closed");
}

#[tokio::test]
async fn a_file_that_is_being_written_in_place_closes_nothing() {
    let place = Place::sqlite();
    place.put("control", r#"{"enabled_ports": [19001]}"#);
    let still = place.start().await;
    still.apply(&[ONE, TWO]).await;
    place.put("control", "");
    let mut undrain = Box::pin(still.drain(TWO, false));
    // Until the empty file has been read, and the second look is waited for.
    let half = Duration::from_millis(100);
    assert!(tokio::time::timeout(half, &mut undrain).await.is_err());
    place.put("control", r#"{"enabled_ports": [19001, 19009]}"#);
    (&mut undrain).await.unwrap();
    drop(undrain);
    assert_eq!(place.text("control"), r#"{"enabled_ports":[19001,19009,19002]}"#);
    assert!(still.drained().is_empty());
    still.kill().await;
    place.put("control", "");
    let started = place.start();
    tokio::pin!(started);
    assert!(tokio::time::timeout(half, &mut started).await.is_err(), "a start looks again too");
    place.put("control", r#"{"enabled_ports": [19001, 19002]}"#);
    let still = started.await;
    assert!(still.drained().is_empty());
    // The control: one that stays empty closes.
    place.put("control", "");
    still.fleet.follow_control_file().await;
    assert_eq!(still.drained_names(), [ONE, TWO]);
}

#[tokio::test]
async fn a_file_system_that_hangs_holds_nobody_else_up() {
    let place = Place::sqlite();
    place.put("control", r#"{"enabled_ports": [19001, 19002]}"#);
    let still = place.start().await;
    still.apply(&[ONE, TWO]).await;
    let other = json!({"name": "other", "backends": ["127.0.0.1:7"]});
    still.fleet.apply(&other, ApplyMode::default()).await.unwrap();
    let hung = still.fleet.hang_control_file().await.unwrap();
    let fleet = Arc::clone(&still.fleet);
    let following = still.tracker.spawn(async move { fleet.follow_control_file().await });
    tokio::task::yield_now().await;
    let at_once = async {
        still.drain("127.0.0.1:7", true).await.unwrap();
        assert_eq!(still.fleet.specs().await.len(), 2);
        assert!(!following.is_finished());
    };
    tokio::time::timeout(Duration::from_secs(1), at_once).await.unwrap();
    let refused = still.drain(ONE, true).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("did not answer within 2 s, nothing was changed"), "{refused}");
    following.await.unwrap();
    assert_eq!(still.problem("control-file"), "did not answer within 2 s; drains stay as they are");
    assert!(still.drained().is_empty());
    drop(hung);
    still.drain(ONE, true).await.unwrap();
    assert_eq!(still.drained_names(), [ONE]);
    assert_eq!(still.problem("control-file"), "");
}

#[tokio::test]
async fn running_requests_go_on_while_admission_is_closed() {
    let place = Place::sqlite();
    place.put("control", r#"{"enabled_ports": [9]}"#);
    let control_file = Some(RouteFile { path: place.path("control"), route: RouteName::new("chat").unwrap() });
    let files = FileConfig { control_file, ..FileConfig::default() };
    let running = Running::start_with(place.folder.path(), Duration::from_secs(600), files).await;
    running.one_route().await;
    let set = v1::SetRouteRequest {
        route: "chat".to_owned(),
        set: [("max_concurrency".to_owned(), "5".to_owned())].into(),
        ..v1::SetRouteRequest::default()
    };
    running.admin().set_route(set).await.unwrap();
    let mut link = running.replica("one", vec![]).await;
    link.welcomed().await;
    link.acquire().await;
    let selector = v1::BackendSelector { route: "chat".to_owned(), ..v1::BackendSelector::default() };
    let request = v1::WatchBackendsRequest { selector: Some(selector) };
    let mut states = running.admin().watch_backends(request).await.unwrap().into_inner();
    let mut becomes = async |is_draining: bool| loop {
        let now = tokio::time::timeout(SOON, states.message()).await.unwrap().unwrap().unwrap();
        if now.backends[0].condition.unwrap().draining == is_draining {
            assert_eq!(now.backends[0].in_flight, 1);
            return;
        }
    };
    std::fs::remove_file(place.path("control")).unwrap();
    becomes(true).await;
    link.say(3, Client::Acquire(v1::Acquire { route: "chat".to_owned(), ..v1::Acquire::default() }));
    let Some(Answer::Refused(refused)) = link.hear().await else { panic!("refused expected") };
    assert_eq!((refused.gate, refused.http_status), (i32::from(v1::Gate::NoBackend), 503));
    place.put("control", r#"{"enabled_ports": [9]}"#);
    becomes(false).await;
    link.acquire().await;
    assert_eq!(running.in_flight().await, 2);
    running.stop().await;
}
