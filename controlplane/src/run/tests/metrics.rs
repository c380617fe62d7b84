//! What Prometheus is told of pools.

use serde_json::json;

use super::followed::Place;
use super::*;
use crate::fleet::ToggleChange;
use crate::pool::{Answered, Asked, Caller};
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
    pool.release(router_policy::ids::LeaseId(granted.lease), &caller, &answered);

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
