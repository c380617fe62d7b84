//! What is known of a pool's speed outlives the process.

use router_policy::ids::LeaseId;
use serde_json::json;

use super::followed::{Place, Still, on_both_databases};
use super::*;
use crate::pool::{Answered, Asked, Caller};

/// Windows of a second, and a limit that any answer here is beyond.
fn document() -> serde_json::Value {
    json!({"name": "chat", "backends": ["127.0.0.1:9"], "options": {"health_failures": 1000, "max_concurrency": 100,
        "adaptive_cc": true, "tps_limit_tps": 1000, "tps_window": "1s", "ttft_window": "1s", "adaptive_cc_init": 50}})
}

/// Answers of 20 tokens per second, until the limit has fallen and both signals are known.
async fn make_slow(still: &Still) {
    let pool = still.fleet.pool("chat").unwrap();
    let (replies, mut answers) = mpsc::unbounded_channel();
    let caller = Arc::new(Caller { replica: "r1".into(), stream: 1, replies });
    let deadline = tokio::time::Instant::now() + SOON;
    loop {
        assert!(tokio::time::Instant::now() < deadline, "the limit never fell");
        pool.acquire(1, Asked::default(), &caller);
        let Some(Answer::Granted(granted)) = answers.recv().await.unwrap().kind else { panic!("granted expected") };
        let (lease, ttft) = (LeaseId(granted.lease), Duration::from_millis(700));
        pool.first_chunk(lease, &caller, ttft);
        let decode = Duration::from_millis(1300);
        let answered = Answered { status: 200, ttft: Some(ttft), decode, tokens: Some(40), ..Answered::default() };
        pool.release(lease, &caller, &answered);
        pool.tick();
        let now = state(still);
        if now.limit < 50.0 && now.tps_ewma.is_some() && now.ttft_ewma_ms.is_some() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn state(still: &Still) -> v1::PoolState {
    still.fleet.pool("chat").unwrap().route_state().pools.remove(0)
}

fn told(state: &v1::PoolState) -> (u64, Option<u64>, Option<u64>) {
    (state.limit.to_bits(), state.ttft_ewma_ms.map(f64::to_bits), state.tps_ewma.map(f64::to_bits))
}

async fn a_pool_s_limit_and_speed_outlive_the_process(place: Place) {
    let first = place.start_following(None).await;
    first.fleet.apply(&document(), ApplyMode::default()).await.unwrap();
    make_slow(&first).await;
    first.fleet.store_flows().await;
    let before = state(&first);
    first.kill().await;

    let second = place.start_following(None).await;
    assert_eq!(told(&state(&second)), told(&before), "{:?} {before:?}", state(&second));
    // And the control: a route of the same name that comes later knows nothing.
    second.fleet.remove_route("chat").await.unwrap();
    second.fleet.apply(&document(), ApplyMode::default()).await.unwrap();
    assert_eq!(state(&second).tps_ewma, None);
    second.kill().await;
}

async fn what_could_not_be_stored_is_stored_later(place: Place) {
    let still = place.start_following(None).await;
    still.fleet.apply(&document(), ApplyMode::default()).await.unwrap();
    make_slow(&still).await;
    let pool = still.fleet.pool("chat").unwrap();
    assert_eq!(pool.take_flow_rows().len(), 1);
    assert_eq!(pool.take_flow_rows(), [], "it has not changed");
    pool.flow_not_stored();
    still.fleet.store_flows().await;
    assert_eq!(still.fleet.store.load().await.unwrap().flows.len(), 1);
    still.kill().await;
}

on_both_databases![a_pool_s_limit_and_speed_outlive_the_process, what_could_not_be_stored_is_stored_later,];

#[tokio::test]
async fn a_control_plane_that_stops_leaves_its_last_word() {
    let folder = tempfile::tempdir().unwrap();
    let first = Running::start(folder.path(), Duration::from_secs(600)).await;
    first.apply(document()).await.unwrap();
    let mut one = first.replica("one", vec![]).await;
    one.welcomed().await;
    let granted = one.acquire().await;
    let release = v1::Release {
        lease: granted.lease,
        route: "chat".to_owned(),
        outcome: i32::from(v1::Outcome::Complete),
        ttft_ms: Some(100),
        decode_ms: Some(1000),
        http_status: 200,
        ..v1::Release::default()
    };
    one.say(0, Client::Release(release));
    while first.in_flight().await > 0 {
        tokio::task::yield_now().await;
    }
    first.stop().await;

    let url = format!("sqlite:{}", folder.path().join("router.db").display());
    let stored = store::open(&url, SqliteSync::Normal).await.unwrap().load().await.unwrap();
    let flow: serde_json::Value = serde_json::from_str(&stored.flows[0].state).unwrap();
    assert_eq!(flow["no_usage"]["count"], 1, "{flow}");
}
