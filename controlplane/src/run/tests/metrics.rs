//! What Prometheus is told of pools.

use router_policy::ids::{BackendId, Fingerprint, LeaseId};
use serde_json::json;

use super::followed::Place;
use super::*;
use crate::fleet::ToggleChange;
use crate::pool::{Answered, Asked, Caller, Failed};
use crate::web::health::metrics_text;

fn value(text: &str, series: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[tokio::test]
async fn pools_and_backends_are_told_as_long_as_they_are_there() {
    let place = Place::sqlite();
    let still = place.start_following(None).await;
    let options = json!({"health_failures": 1000, "session_prio": true, "adaptive_cc": true, "tps_limit_tps": 20,
        "load_rate_limit": false, "max_concurrency": 1, "adaptive_cc_min": 1});
    let document = json!({"name": "chat", "options": options, "backends": [
        {"address": "127.0.0.1:9", "models": ["m"]}, {"address": "127.0.0.1:10", "models": ["n"]}]});
    still.fleet.apply(&document, ApplyMode::default()).await.unwrap();
    let pool = still.fleet.pool("chat").unwrap();
    let (replies, mut answers) = mpsc::unbounded_channel();
    let caller = Arc::new(Caller { replica: "r1".into(), stream: 1, replies });
    for turn in [Some(1), Some(40), None] {
        pool.acquire(1, Asked { model: "m".to_owned(), turn, ..Asked::default() }, &caller);
    }
    let Some(Answer::Granted(granted)) = answers.recv().await.unwrap().kind else { panic!("granted expected") };
    let answered = Answered {
        has_failed: true,
        status: 200,
        ttft: Some(Duration::from_millis(10)),
        prompt: Some((100, 40)),
        ..Answered::default()
    };
    pool.release(LeaseId(granted.lease), &caller, &answered);

    for _ in 0..2 {
        let text = metrics_text(&still.fleet);
        let told =
            |name: &str, labels: &str| value(&text, &format!("router_control_{name}{{route=\"chat\",{labels}}}"));
        let of_pool = r#"model="m""#;
        assert_eq!((told("pool_limit", of_pool), told("pool_in_flight", of_pool)), (Some(1.0), Some(2.0)));
        assert_eq!(told("adaptive_limit", of_pool), Some(1.0));
        assert_eq!(told("ttft_ewma_seconds", of_pool), None, "it is not known yet");
        assert_eq!(told("would_trip_total", r#"model="m",gate="concurrency""#), Some(2.0));
        let bucket = |name: &str, bucket: &str| told(name, &format!(r#"model="m",bucket="{bucket}""#));
        assert_eq!((bucket("turns_admitted_total", "0"), bucket("turns_admitted_total", "5")), (Some(1.0), Some(1.0)));
        assert_eq!(bucket("turns_admitted_total", "none"), Some(1.0), "never counted twice");
        assert_eq!(bucket("turns_prompt_tokens_total", "0"), Some(100.0));
        assert_eq!(bucket("turns_cached_tokens_total", "0"), Some(40.0));
        assert_eq!(told("new_sessions_held", of_pool), Some(0.0));
        let backend = |name: &str| told(name, r#"backend="127.0.0.1:9""#);
        assert_eq!((backend("backend_granted_total"), backend("backend_failures_total")), (Some(3.0), Some(1.0)));
        assert_eq!(backend("backend_banned_total"), Some(0.0));
    }
    let off = ToggleChange { route: "chat", name: "session_prio", value: "off", ..ToggleChange::default() };
    still.fleet.set_toggle(off).await.unwrap();
    assert!(!metrics_text(&still.fleet).contains("bucket="), "nobody's turn counts");
    still
        .fleet
        .edit("chat", |spec| {
            spec.backends.remove(1);
            Ok(())
        })
        .await
        .unwrap();
    let text = metrics_text(&still.fleet);
    assert!(!text.contains(r#"model="n""#) && !text.contains("127.0.0.1:10"), "{text}");
    still.fleet.remove_route("chat").await.unwrap();
    let text = metrics_text(&still.fleet);
    assert!(!text.contains(r#"model="m""#) && !text.contains("127.0.0.1:9"), "{text}");
    still.kill().await;
}

#[tokio::test]
async fn retries_are_told_of_the_backend_that_failed_and_moves_of_the_one_that_took_over() {
    let place = Place::sqlite();
    let still = place.start_following(None).await;
    let options = json!({"health_failures": 1000, "passive_ban": "off"});
    let backends = ["127.0.0.1:9", "127.0.0.1:10"];
    let document = json!({"name": "chat", "options": options, "backends": backends});
    still.fleet.apply(&document, ApplyMode::default()).await.unwrap();
    let pool = still.fleet.pool("chat").unwrap();
    let (replies, mut answers) = mpsc::unbounded_channel();
    let caller = Arc::new(Caller { replica: "r1".into(), stream: 1, replies });
    let mut granted = async || match answers.recv().await.unwrap().kind.unwrap() {
        Answer::Granted(granted) => granted,
        other => panic!("granted expected, got {other:?}"),
    };
    let told = |name: &str, backend: &str| {
        let labels = format!("{{route=\"chat\",backend=\"{backend}\"}}");
        value(&metrics_text(&still.fleet), &format!("router_control_backend_{name}_total{labels}"))
    };
    let asked = || Asked { fingerprint: Some(Fingerprint([1; 16])), ..Asked::default() };
    pool.acquire(1, asked(), &caller);
    let first = granted().await;
    let failed = BackendId::new(&first.backend).unwrap();
    let other = backends.into_iter().find(|one| *one != first.backend).unwrap();
    for name in ["retries", "session_moves"] {
        assert_eq!((told(name, &first.backend), told(name, other)), (Some(0.0), Some(0.0)), "{name}: the control");
    }
    let again = Asked { tried: vec![failed.clone()], ..asked() };
    let failed = Failed { lease: LeaseId(first.lease), backend: failed, is_connect: false };
    pool.transfer(2, &failed, again, &caller);
    assert_eq!(granted().await.backend, other);
    for _ in 0..2 {
        assert_eq!((told("retries", &first.backend), told("retries", other)), (Some(1.0), Some(0.0)));
        assert_eq!((told("session_moves", &first.backend), told("session_moves", other)), (Some(0.0), Some(1.0)));
    }
    // A session that stays moves nowhere.
    pool.acquire(3, asked(), &caller);
    assert_eq!(granted().await.backend, other);
    assert_eq!(told("session_moves", other), Some(1.0));
    let leave = |spec: &mut router_policy::route::RouteSpec| {
        spec.backends.retain(|backend| backend.id.as_str() != other);
        Ok(())
    };
    still.fleet.edit("chat", leave).await.unwrap();
    assert_eq!((told("session_moves", other), told("session_moves", &first.backend)), (None, Some(0.0)));
    still.kill().await;
}

#[tokio::test]
async fn both_throughputs_are_told() {
    for (basis, shown) in [("total", "decode"), ("decode", "total")] {
        let place = Place::sqlite();
        let still = place.start_following(None).await;
        let options = json!({"health_failures": 1000, "tps_window": "1s", "tps_basis": basis});
        let document = json!({"name": "chat", "options": options, "backends": ["127.0.0.1:9"]});
        still.fleet.apply(&document, ApplyMode::default()).await.unwrap();
        let pool = still.fleet.pool("chat").unwrap();
        let (replies, mut answers) = mpsc::unbounded_channel();
        let caller = Arc::new(Caller { replica: "r1".into(), stream: 1, replies });
        let told = |name: &str| value(&metrics_text(&still.fleet), &format!("router_control_{name}"));
        let other = format!("tps_other_ewma{{route=\"chat\",model=\"\",basis=\"{shown}\"}}");
        assert_eq!(told(&other), None, "not known yet");
        let deadline = tokio::time::Instant::now() + SOON;
        while told(&other).is_none() {
            assert!(tokio::time::Instant::now() < deadline);
            pool.acquire(1, Asked::default(), &caller);
            let Some(Answer::Granted(granted)) = answers.recv().await.unwrap().kind else { panic!("granted expected") };
            let (ttft, lease) = (Duration::from_secs(1), LeaseId(granted.lease));
            pool.first_chunk(lease, &caller, ttft);
            let answered =
                Answered { status: 200, ttft: Some(ttft), decode: ttft, tokens: Some(40), ..Answered::default() };
            pool.release(lease, &caller, &answered);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let number = |basis: &str| if basis == "total" { 20.0 } else { 40.0 };
        assert_eq!(told(&other), Some(number(shown)));
        assert_eq!(told("tps_ewma{route=\"chat\",model=\"\"}"), Some(number(basis)));
        still.kill().await;
    }
}
