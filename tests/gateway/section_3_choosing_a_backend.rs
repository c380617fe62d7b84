//! Where a request goes: the idlest backend for a new session, its own for a bound one, another one for good when that can't
//! take it; a bounded queue; 429 and 503.

use std::time::{Duration, Instant};

use http::StatusCode;
use router_tests::await_event::{PATIENCE, until};
use router_tests::chat::Chat;
use router_tests::client::Answer;
use router_tests::database::DatabaseKind;
use router_tests::raw::RawClient;
use tokio::task::JoinSet;

use super::gateway;

router_tests::on_both_databases!(
    fewest_in_flight_then_fewest_sessions,
    a_session_moves_when_its_backend_is_out_draining_or_full_and_stays,
    thirty_two_run_thirty_two_wait_and_the_rest_is_429,
    no_admitted_backend_is_503,
    a_client_that_leaves_closes_its_request,
);

async fn fewest_in_flight_then_fewest_sessions(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = gateway(kind).engines(2).start().await?;
    let peer_of = async |session: &str| -> anyhow::Result<String> {
        Ok(Chat::of(session).send(&cluster.client, cluster.replica(0)?).await?.ok()?.peer().to_owned())
    };
    let (one, two) = (peer_of("a").await?, peer_of("b").await?);
    assert_ne!(one, two, "both idle: the one with fewer sessions");
    // Two more on the first: by sessions the second would be next, by load it is not.
    // The last answer is out a moment before its lease is back; the next wait must not count that one.
    cluster.until_in_flight(0).await?;
    cluster.engine_at(&two)?.hold().await?;
    let mut busy = RawClient::send(cluster.replica(1)?, &Chat::of("b")).await?;
    cluster.until_in_flight(1).await?;
    assert_eq!((peer_of("c").await?, peer_of("d").await?), (one.clone(), one.clone()), "fewest in flight comes first");
    cluster.engine_at(&two)?.release().await?;
    busy.read_until("usage").await?;
    cluster.until_in_flight(0).await?;
    assert_eq!((peer_of("e").await?, peer_of("f").await?), (two.clone(), two), "then fewest sessions");
    cluster.finish()
}

async fn a_session_moves_when_its_backend_is_out_draining_or_full_and_stays(kind: DatabaseKind) -> anyhow::Result<()> {
    let builder = gateway(kind).engines(2).option("max_concurrency", "1").option("health_probe_path", "/health");
    let mut cluster = builder.start().await?;
    cluster.expect_log("backend");
    let turn = async || Chat::of("s").send(&cluster.client, cluster.replica(0)?).await?.ok();
    let mut home = turn().await?.peer().to_owned();
    for cause in ["draining", "unhealthy", "full"] {
        let engine = cluster.engine_at(&home)?;
        let index = cluster.engines.iter().position(|one| one.address() == engine.address()).expect("one of them");
        let mut busy = None;
        match cause {
            "draining" => drop(cluster.ctl()?.ok(&["drain", "--backend", &home]).await?),
            "unhealthy" => {
                engine.set(&serde_json::json!({"health": "fail"})).await?;
                let look =
                    || async { Ok(cluster.backend(index).await?.condition.is_some_and(|c| c.unhealthy).then_some(())) };
                until("it is out", PATIENCE, look).await?;
            }
            _ => {
                cluster.until_in_flight(0).await?;
                engine.hold().await?;
                busy = Some(RawClient::send(cluster.replica(1)?, &Chat::of("s")).await?);
                cluster.until_in_flight(1).await?;
            }
        }
        let moved = turn().await?;
        assert_eq!(moved.mode(), "moved", "{cause}");
        assert_ne!(moved.peer(), home, "{cause}");
        // Its old home is well again: it stays where it went.
        match cause {
            "draining" => drop(cluster.ctl()?.ok(&["undrain", "--backend", &home]).await?),
            "unhealthy" => engine.set(&serde_json::json!({"health": "ok"})).await?,
            _ => engine.release().await?,
        }
        if let Some(mut busy) = busy {
            busy.read_until("usage").await?;
        }
        cluster.until_healthy().await?;
        cluster.until_in_flight(0).await?;
        let stays = turn().await?;
        assert_eq!((stays.mode(), stays.peer()), ("bound", moved.peer()), "{cause}");
        home = stays.peer().to_owned();
    }
    cluster.finish()
}

async fn thirty_two_run_thirty_two_wait_and_the_rest_is_429(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = gateway(kind).engines(1).start().await?;
    cluster.engines[0].hold().await?;
    let mut clients: JoinSet<anyhow::Result<(Answer, Duration)>> = JoinSet::new();
    let mut send = |number: usize| -> anyhow::Result<()> {
        let (client, address) = (cluster.client.clone(), cluster.replica(number % 2)?);
        clients.spawn(async move {
            let asked = Instant::now();
            Ok((Chat::of(&format!("s{number}")).send(&client, address).await?, asked.elapsed()))
        });
        Ok(())
    };
    for number in 0..32 {
        send(number)?;
    }
    cluster.until_in_flight(32).await?;
    for number in 32..64 {
        send(number)?;
    }
    cluster.until_waiting(32).await?;
    let refused = Chat::new().send(&cluster.client, cluster.replica(0)?).await?;
    assert_eq!((refused.status, refused.header("retry-after")), (StatusCode::TOO_MANY_REQUESTS, "1"));
    assert_eq!(refused.error_code()?, "queue_full");
    // Nobody gets a slot: each waiter is refused after its five seconds, and not before.
    let mut timed_out = 0;
    while timed_out < 32 {
        let (answer, took) = clients.join_next().await.expect("waiters are left")??;
        assert_eq!((answer.status, answer.header("retry-after")), (StatusCode::TOO_MANY_REQUESTS, "1"));
        assert_eq!(answer.error_code()?, "queue_timeout");
        assert!(took > Duration::from_millis(4500), "{took:?}");
        timed_out += 1;
    }
    cluster.engines[0].release().await?;
    while let Some(ended) = clients.join_next().await {
        ended??.0.ok()?;
    }
    assert_eq!(cluster.engines[0].stats().await?.max_in_flight, 32);
    cluster.finish()
}

async fn no_admitted_backend_is_503(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = gateway(kind).engines(2).start().await?;
    cluster.ctl()?.ok(&["drain", "--route", "chat"]).await?;
    let refused = Chat::of("s").send(&cluster.client, cluster.replica(0)?).await?;
    assert_eq!((refused.status, refused.error_code()?.as_str()), (StatusCode::SERVICE_UNAVAILABLE, "no_backend"));
    cluster.ctl()?.ok(&["undrain", "--route", "chat"]).await?;
    Chat::of("s").send(&cluster.client, cluster.replica(0)?).await?.ok()?;
    cluster.finish()
}

async fn a_client_that_leaves_closes_its_request(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = gateway(kind).engines(1).option("max_concurrency", "1").start().await?;
    let engine = &cluster.engines[0];
    engine.hold().await?;
    let streaming = RawClient::send(cluster.replica(0)?, &Chat::new().streamed()).await?;
    cluster.until_in_flight(1).await?;
    let waiting = RawClient::send(cluster.replica(1)?, &Chat::new()).await?;
    cluster.until_waiting(1).await?;
    drop(waiting);
    cluster.until_waiting(0).await?;
    assert_eq!(engine.stats().await?.requests_total, 1, "what never had a slot never reached the engine");
    drop(streaming);
    let look = || async { Ok((engine.stats().await?.aborted_total == 1).then_some(())) };
    until("the engine sees its client leave", PATIENCE, look).await?;
    cluster.until_in_flight(0).await?;
    cluster.finish()
}
