//! What real clients send: it passes untouched, its session is found, and each transform changes what it says and nothing else.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use http::Method;
use router_tests::client::Answer;
use router_tests::cluster::Cluster;
use router_tests::database::DatabaseKind;
use router_tests::engine::Recorded;
use serde_json::Value as Json;

use crate::corpus::{self, own_headers};
use crate::naive;

router_tests::on_any_database!(
    bodies_pass_untouched_and_their_sessions_are_found,
    transforms_change_what_they_say_and_nothing_else,
);

/// Sends a recorded request through a replica; the answer, and what the engine got.
async fn send_again(cluster: &Cluster, request: &Recorded) -> anyhow::Result<(Answer, Recorded)> {
    let body = request.body.clone();
    let headers = own_headers(request);
    let answer = cluster.client.send(cluster.replica(0)?, Method::POST, &request.path, &headers, body);
    let answer = answer.await?.ok()?;
    let got = cluster.engines[0].recorded().await?.pop().context("the engine got it")?;
    ensure!(got.path == request.path, "{} became {}", request.path, got.path);
    Ok((answer, got))
}

async fn bodies_pass_untouched_and_their_sessions_are_found() -> anyhow::Result<()> {
    let cluster = Cluster::builder(DatabaseKind::Sqlite).replicas(1).engines(1).start().await?;
    cluster.engines[0].record(1).await?;
    let mut sources = BTreeSet::new();
    for request in corpus::record(cluster.folder()).await? {
        let (answer, got) = send_again(&cluster, &request).await?;
        assert_eq!(got.body, request.body);
        let source = naive::source(&request, &serde_json::from_str(&request.body)?);
        let told = match answer.header("x-routed-source") {
            "" => "none",
            some => some,
        };
        assert_eq!(told, source, "{}", request.body);
        sources.insert(source);
    }
    for expected in [
        "none",
        "header.x-session-affinity",
        "header.x-session-id",
        "header.x-claude-code-session-id",
        "body.metadata.session_id",
        "body.litellm_metadata.session_id",
        "body.metadata.user_id[json].session_id",
        "body.metadata.user_id[plain]",
        "body.conversation",
        "body.prompt_cache_key",
        "body.user",
    ] {
        assert!(sources.contains(expected), "the control: some client names its session by {expected}: {sources:?}");
    }
    cluster.until_in_flight(0).await?;
    cluster.finish()
}

async fn transforms_change_what_they_say_and_nothing_else() -> anyhow::Result<()> {
    let mut builder = Cluster::builder(DatabaseKind::Sqlite).replicas(1).engines(1);
    for option in ["cch", "kimi_normalize", "include_usage", "system_hoist"] {
        builder = builder.option(&format!("{option}_default_enabled"), "true");
    }
    let cluster = builder.start().await?;
    cluster.engines[0].record(1).await?;
    let (mut stripped, mut ids, mut asked, mut hoisted, mut same) = (0, 0, 0, 0, 0);
    let mut kept = BTreeSet::new();
    for request in corpus::record(cluster.folder()).await? {
        let (_, got) = send_again(&cluster, &request).await?;
        let mut expected: Json = serde_json::from_str(&request.body)?;
        let done = naive::transform(&request.path, &mut expected);
        stripped += u64::from(done.cch);
        ids += done.kimi;
        asked += u64::from(done.usage);
        hoisted += u64::from(done.hoisted);
        if done == naive::Done::default() {
            same += 1;
            assert_eq!(got.body, request.body);
        } else {
            assert_eq!(serde_json::from_str::<Json>(&got.body)?, expected, "{}", request.body);
        }
        // Number text and escapes are kept, which a comparison of trees does not see.
        for piece in ["9007199254740993", "0.7000000000000001", r"\u0000", r"\u2028"] {
            assert_eq!(got.body.matches(piece).count(), request.body.matches(piece).count(), "{piece}");
            kept.extend(got.body.contains(piece).then_some(piece));
        }
    }
    assert!(kept.len() >= 3, "the control: clients send them: {kept:?}");
    assert!(stripped > 5 && ids > 20 && asked > 5 && hoisted > 1 && same > 20, "the control");
    cluster.until_in_flight(0).await?;
    cluster.finish()
}
