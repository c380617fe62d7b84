//! Turns of one session reach one engine, whichever replica takes them; the engine's own prefix cache is the witness.

use std::collections::BTreeSet;

use router_tests::chat::Chat;
use router_tests::cluster::Cluster;
use router_tests::database::DatabaseKind;
use serde_json::{Value as Json, json};
use tokio::task::JoinSet;

router_tests::on_both_databases!(turns_stay_on_one_engine_across_replicas, without_affinity_they_spread);

const SESSIONS: usize = 12;
const TURNS: usize = 6;

/// A conversation whose every turn repeats all that was said before.
fn conversation(session: usize, turn: usize) -> Vec<Json> {
    let say = |number: usize| {
        let text = format!("session {session}, message {number}: {}", "words that fill a cache block ".repeat(20));
        json!({"role": if number.is_multiple_of(2) { "user" } else { "assistant" }, "content": text})
    };
    (0..=2 * turn).map(say).collect()
}

/// Sends every turn of every session, each to the next replica in turn, all sessions at the same time; returns for each
/// session the engines it met, and the share of prompt tokens that engines found in their cache.
async fn talk(cluster: &Cluster, source: &str) -> anyhow::Result<(Vec<BTreeSet<String>>, f64)> {
    let replicas = cluster.replica_addresses()?;
    let mut met = vec![BTreeSet::new(); SESSIONS];
    for turn in 0..TURNS {
        let mut asks = JoinSet::new();
        for session in 0..SESSIONS {
            let (client, replica) = (cluster.client.clone(), replicas[(turn + session) % replicas.len()]);
            let chat = Chat::of(&format!("conversation-{session}")).messages(conversation(session, turn));
            asks.spawn(async move { anyhow::Ok((session, chat.send(&client, replica).await?.ok()?)) });
        }
        while let Some(answer) = asks.join_next().await {
            let (session, answer) = answer??;
            assert_eq!(answer.header("x-routed-source"), source);
            met[session].insert(answer.peer().to_owned());
        }
    }
    let (mut cached, mut prompt) = (0, 0);
    for engine in &cluster.engines {
        let stats = engine.stats().await?;
        cached += stats.cached_tokens_total;
        prompt += stats.prompt_tokens_total;
    }
    #[expect(clippy::cast_precision_loss, reason = "a few thousand tokens")]
    Ok((met, cached as f64 / prompt as f64))
}

async fn turns_stay_on_one_engine_across_replicas(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = Cluster::builder(kind).replicas(3).engines(3).engine_args(&["--ttft-ms", "20"]).start().await?;
    let (met, hit_rate) = talk(&cluster, "header.x-session-id").await?;
    for (session, engines) in met.iter().enumerate() {
        assert_eq!(engines.len(), 1, "session {session} met {engines:?}");
    }
    let used: BTreeSet<&String> = met.iter().flatten().collect();
    assert_eq!(used.len(), 3, "new sessions use every engine");
    assert!(hit_rate > 0.6, "with affinity the engines find most of each prompt in their cache, not {hit_rate:.2}");

    let bindings = cluster.admin().await?.bindings().await?;
    assert_eq!(bindings.len(), SESSIONS);
    cluster.finish()
}

/// The control: the same traffic with affinity off meets several engines.
async fn without_affinity_they_spread(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = Cluster::builder(kind).replicas(3).engines(3).engine_args(&["--ttft-ms", "20"]);
    let cluster = cluster.option("affinity", "off").start().await?;
    let (met, hit_rate) = talk(&cluster, "affinity_off").await?;
    let wanderers = met.iter().filter(|engines| engines.len() > 1).count();
    assert!(wanderers > SESSIONS / 2, "only {wanderers} of {SESSIONS} sessions met more than one engine");
    assert!(hit_rate < 0.95, "{hit_rate:.2}");
    assert_eq!(cluster.admin().await?.bindings().await?.len(), 0, "no bindings are made");
    cluster.finish()
}
