//! Each run-time toggle acts on all replicas at once, survives a restart of the control plane, and undoes itself in time.

use std::time::{Duration, Instant};

use http::StatusCode;
use router_tests::await_event::{PATIENCE, until};
use router_tests::chat::Chat;
use router_tests::cluster::Cluster;
use router_tests::database::DatabaseKind;
use serde_json::json;

use super::{Tasks, expect_outage, restart_control_plane, send, toggle};

router_tests::on_both_databases!(
    the_master_switch_lets_everybody_in_and_counts_who_would_have_been_refused,
    limits_and_switches_of_latency_act_at_once_and_survive,
);
router_tests::on_any_database!(a_toggle_for_a_time_undoes_itself, what_can_not_be_set_is_named);

async fn status(cluster: &Cluster, replica: usize, chat: &Chat) -> anyhow::Result<(StatusCode, String)> {
    let answer = chat.send(&cluster.client, cluster.replica(replica)?).await?;
    let code = if answer.status == StatusCode::OK { String::new() } else { answer.error_code()? };
    Ok((answer.status, code))
}

async fn the_master_switch_lets_everybody_in_and_counts_who_would_have_been_refused(
    kind: DatabaseKind,
) -> anyhow::Result<()> {
    let builder = Cluster::builder(kind).engines(1).option("max_concurrency", "1").option("max_waiting", "0");
    let mut cluster = builder.start().await?;
    expect_outage(&mut cluster);
    cluster.engines[0].hold().await?;
    let mut tasks = Tasks::new();
    send(&cluster, 0, Chat::new(), &mut tasks)?;
    cluster.until_in_flight(1).await?;
    for replica in 0..2 {
        assert_eq!(status(&cluster, replica, &Chat::new()).await?.1, "queue_full", "the control");
    }

    toggle(&cluster, &["load_rate_limit", "off"]).await?;
    send(&cluster, 0, Chat::new(), &mut tasks)?;
    send(&cluster, 1, Chat::new(), &mut tasks)?;
    cluster.until_in_flight(3).await?;
    let page = cluster.client.get(cluster.replica_admin(0)?, "/chat/_rate_limit_status").await?.ok()?.json()?;
    assert_eq!((&page["enabled"], &page["source"]), (&json!(false), &json!("runtime")), "{page}");
    assert_eq!(page["trips"]["concurrency"], 2, "{page}");
    let refusals = cluster.client.get(cluster.replica_admin(1)?, "/chat/_429_status").await?.ok()?.json()?;
    assert_eq!(refusals["by_reason"]["concurrency"], 2, "only the real ones: {refusals}");

    restart_control_plane(&mut cluster).await?;
    cluster.until_in_flight(3).await?;
    send(&cluster, 1, Chat::new(), &mut tasks)?;
    cluster.until_in_flight(4).await?;

    toggle(&cluster, &["load_rate_limit", "reset"]).await?;
    for replica in 0..2 {
        assert_eq!(status(&cluster, replica, &Chat::new()).await?.1, "queue_full", "as before");
    }
    cluster.engines[0].release().await?;
    while let Some(answer) = tasks.join_next().await {
        answer??.ok()?;
    }
    cluster.finish()
}

async fn limits_and_switches_of_latency_act_at_once_and_survive(kind: DatabaseKind) -> anyhow::Result<()> {
    let mut builder = Cluster::builder(kind).engines(1).engine_args(&["--ttft-ms", "50", "--token-gap-ms", "20"]);
    for (name, value) in [
        ("ttft_window", "1s"),
        ("ttft_probe_per_window", "0"),
        ("tps_window", "1s"),
        ("tps_probe_per_window", "0"),
        ("tps_min_decode_s", "0s"),
    ] {
        builder = builder.option(name, value);
    }
    let mut cluster = builder.start().await?;
    expect_outage(&mut cluster);
    let streamed = Chat::new().streamed();
    // Measured, though no limit is set.
    let is_measured = || async {
        status(&cluster, 0, &streamed).await?;
        status(&cluster, 1, &Chat::new()).await?;
        let pool = cluster.route().await?.pools[0].clone();
        Ok((pool.ttft_ewma_ms.is_some() && pool.tps_ewma.is_some()).then_some(()))
    };
    until("both signals", PATIENCE, is_measured).await?;

    for (limit, value, gate, switch) in
        [("ttft_limit_ms", "1", "ttft", "ttft_429"), ("tps_limit_tps", "100000", "tps", "tps")]
    {
        toggle(&cluster, &[limit, value]).await?;
        let asked = Instant::now();
        for replica in 0..2 {
            assert_eq!(status(&cluster, replica, &streamed).await?.1, gate, "replica {replica}");
        }
        assert!(asked.elapsed() < Duration::from_secs(1), "every replica acts within a second");
        toggle(&cluster, &[switch, "off"]).await?;
        for replica in 0..2 {
            assert_eq!(status(&cluster, replica, &streamed).await?.0, StatusCode::OK, "{switch} is off");
        }
        toggle(&cluster, &[switch, "reset"]).await?;
        restart_control_plane(&mut cluster).await?;
        for replica in 0..2 {
            assert_eq!(status(&cluster, replica, &streamed).await?.1, gate, "limit and samples survive");
        }
        toggle(&cluster, &[limit, "reset"]).await?;
        for replica in 0..2 {
            assert_eq!(status(&cluster, replica, &streamed).await?.0, StatusCode::OK);
        }
    }
    cluster.finish()
}

async fn a_toggle_for_a_time_undoes_itself() -> anyhow::Result<()> {
    let cluster = Cluster::builder(DatabaseKind::Sqlite).engines(1).start().await?;
    toggle(&cluster, &["load_rate_limit", "off", "--for", "2s"]).await?;
    toggle(&cluster, &["ttft", "off"]).await?;
    let names = || async {
        let set = cluster.route().await?.toggles;
        anyhow::Ok(set.into_iter().map(|toggle| toggle.name).collect::<Vec<_>>())
    };
    assert_eq!(names().await?, ["load_rate_limit", "ttft"]);
    let left = cluster.route().await?.toggles[0].left_ms;
    assert!(left > 0 && left <= 2000, "{left}");
    let is_over = || async { Ok((names().await? == ["ttft"]).then_some(())) };
    until("only the other is left", PATIENCE, is_over).await?;
    cluster.finish()
}

async fn what_can_not_be_set_is_named() -> anyhow::Result<()> {
    let cluster = Cluster::builder(DatabaseKind::Sqlite).engines(1).start().await?;
    let ctl = cluster.ctl()?;
    for (words, piece) in [
        (&["toggle", "chat", "rate", "off"][..], "load_rate_limit"),
        (&["toggle", "chat", "ttft", "maybe"], "on, off"),
        (&["toggle", "chat", "ttft_limit_ms", "-3"], "more than 0"),
        (&["toggle", "chat", "ttft_limit_ms", "3", "--model", "m"], "model"),
        (&["toggle", "nowhere", "ttft", "off"], "nowhere"),
        (&["toggle", "chat", "ttft", "off", "--for", "soon"], "soon"),
    ] {
        let said = ctl.run(words).await?;
        assert_ne!(said.code, Some(0), "{words:?}");
        assert!(said.complaint().contains(piece), "{words:?}: {}", said.complaint());
    }
    assert!(cluster.route().await?.toggles.is_empty(), "nothing is half set");
    cluster.finish()
}
