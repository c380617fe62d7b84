//! Data-parallel ranks: a session keeps its rank on its backend, a client can't choose one, and engines that schedule their own
//! get the session headers in place of it.

use std::collections::BTreeMap;

use http::Method;
use router_tests::client::Answer;
use router_tests::cluster::Cluster;
use router_tests::database::DatabaseKind;
use serde_json::Value as Json;

use super::gateway;

router_tests::on_both_databases!(a_session_keeps_its_rank_over_replicas_and_restarts);

router_tests::on_any_database!(managed_affinity_passes_session_headers_and_no_rank);

async fn ranked(kind: DatabaseKind) -> anyhow::Result<Cluster> {
    let cluster = gateway(kind).engines(2).start().await?;
    for engine in &cluster.engines {
        let address = engine.address().to_string();
        cluster.ctl()?.ok(&["backend", "set", "chat", &address, "--dp-size", "4"]).await?;
    }
    Ok(cluster)
}

/// Asks for an echo; the answer, and the headers that the engine saw.
async fn echo(
    cluster: &Cluster,
    replica: usize,
    headers: &[(&str, &str)],
) -> anyhow::Result<(Answer, Vec<(String, String)>)> {
    let answer = cluster.client.send(cluster.replica(replica)?, Method::POST, "/v1/echo", headers, "{}").await?.ok()?;
    let json = answer.json()?;
    let pairs = json["headers"].as_array().expect("the echo lists headers");
    let text = |pair: &Json, at: usize| pair[at].as_str().expect("text").to_owned();
    Ok((answer, pairs.iter().map(|pair| (text(pair, 0), text(pair, 1))).collect()))
}

fn value<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

const RANK: &str = "x-data-parallel-rank";

async fn a_session_keeps_its_rank_over_replicas_and_restarts(kind: DatabaseKind) -> anyhow::Result<()> {
    let mut cluster = ranked(kind).await?;
    cluster.expect_log("control plane");
    let mut places = Vec::new();
    let mut used: BTreeMap<(String, String), u32> = BTreeMap::new();
    for number in 0..16 {
        let id = format!("s{number}");
        // A client's own value is dropped.
        let (answer, seen) = echo(&cluster, number % 2, &[("x-session-id", &id), (RANK, "99")]).await?;
        let rank = value(&seen, RANK).expect("a rank").to_owned();
        *used.entry((answer.peer().to_owned(), rank.clone())).or_default() += 1;
        places.push((answer.peer().to_owned(), rank));
    }
    assert_eq!(used.len(), 8, "least used first: {used:?}");
    assert!(used.values().all(|count| *count == 2), "{used:?}");

    cluster.control_plane.kill9().await?;
    cluster.control_plane.restart().await?;
    cluster.control_plane.ready().await?;
    cluster.until_connected(2).await?;
    for (number, (peer, rank)) in places.iter().enumerate() {
        let (answer, seen) = echo(&cluster, (number + 1) % 2, &[("x-session-id", &format!("s{number}"))]).await?;
        assert_eq!((answer.peer(), value(&seen, RANK)), (peer.as_str(), Some(rank.as_str())), "session {number}");
        assert_eq!(value(&seen, "x-session-id"), None, "the session's name stays behind");
    }
    let (_, seen) = echo(&cluster, 0, &[(RANK, "1")]).await?;
    assert_eq!(value(&seen, RANK), None, "without a session the engine chooses");
    cluster.finish()
}

async fn managed_affinity_passes_session_headers_and_no_rank() -> anyhow::Result<()> {
    let cluster = ranked(DatabaseKind::Sqlite).await?;
    let headers = [("x-session-id", "s"), ("x-deepinfer-cache-namespace", "n"), (RANK, "1")];
    let (_, seen) = echo(&cluster, 0, &headers).await?;
    assert!(value(&seen, RANK).is_some(), "the control");
    assert_eq!((value(&seen, "x-session-id"), value(&seen, "x-deepinfer-cache-namespace")), (None, None));

    cluster.ctl()?.ok(&["route", "set", "chat", "backend_managed_affinity=true"]).await?;
    let passed = || async {
        let (_, seen) = echo(&cluster, 0, &headers).await?;
        Ok((value(&seen, "x-session-id") == Some("s")).then_some(seen))
    };
    let seen =
        router_tests::await_event::until("the replica knows", router_tests::await_event::PATIENCE, passed).await?;
    assert_eq!((value(&seen, "x-deepinfer-cache-namespace"), value(&seen, RANK)), (Some("n"), None));
    cluster.finish()
}
