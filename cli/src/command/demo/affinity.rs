//! Scene 1 and 2: turns of a session stay on one engine whichever replica they pass, and what that is worth.

use std::collections::BTreeMap;

use serde_json::json;
use tokio::task::JoinSet;

use super::chat::{Conversation, Turn};
use super::cluster::{BOUND, Cluster, SCATTERED};
use super::report::Report;
use crate::failure::{Failure, Outcome};

const SESSIONS: usize = 12;
const TURNS: usize = 6;

/// Shows both.
pub(crate) async fn show(cluster: &Cluster, report: &mut Report) -> Outcome {
    report.title("1. A session stays on its engine, whichever replica its turns pass")?;
    let with = pass(cluster, BOUND, "bound").await?;
    report.value("sent", &format!("{SESSIONS} sessions × {TURNS} turns, each turn through the next replica"))?;
    let mut per_engine: BTreeMap<&str, usize> = BTreeMap::new();
    for turns in &with {
        if let Some(first) = turns.first() {
            *per_engine.entry(&first.peer).or_default() += 1;
        }
    }
    let spread: Vec<String> = per_engine.iter().map(|(engine, sessions)| format!("{engine}: {sessions}")).collect();
    report.value("sessions per engine", &spread.join(", "))?;
    let stayed = with.iter().filter(|turns| stayed(turns)).count();
    report.check(
        stayed == SESSIONS,
        "each session stayed on one engine",
        &format!("{stayed} of {SESSIONS} sessions"),
    )?;

    report.title("2. What that is worth: the engines' prefix cache")?;
    cluster.tell_engines("flush", &json!({})).await?;
    let without = pass(cluster, SCATTERED, "scattered").await?;
    let (hit, miss) = (hit_rate(&with), hit_rate(&without));
    report.value("prompt tokens from cache", &format!("{hit:.1} % with affinity, {miss:.1} % without"))?;
    report.check(hit > miss, "affinity raises the hit rate", &format!("by {:.1} points", hit - miss))
}

/// Runs all conversations at once, each one's turns in order.
async fn pass(cluster: &Cluster, route: &str, label: &str) -> Result<Vec<Vec<Turn>>, Failure> {
    let mut running = JoinSet::new();
    for number in 0..SESSIONS {
        let mut conversation = Conversation::new(route, label, number);
        let (http, replicas) = (cluster.http.clone(), cluster.replicas.clone());
        running.spawn(async move {
            let mut turns = Vec::new();
            for replica in replicas.iter().cycle().skip(number).take(TURNS) {
                turns.push(conversation.turn(&http, replica).await?);
            }
            Ok::<_, Failure>(turns)
        });
    }
    running.join_all().await.into_iter().collect()
}

fn stayed(turns: &[Turn]) -> bool {
    turns.len() == TURNS
        && turns.windows(2).all(|pair| matches!(pair, [a, b] if a.peer == b.peer && !a.peer.is_empty()))
}

/// Per cent of prompt tokens that were in the cache.
fn hit_rate(sessions: &[Vec<Turn>]) -> f64 {
    let turns = || sessions.iter().flatten();
    let prompt: u64 = turns().map(|turn| turn.prompt_tokens).sum();
    let cached: u64 = turns().map(|turn| turn.cached_tokens).sum();
    #[expect(clippy::cast_precision_loss, reason = "token counts of a demo are far below 2^52")]
    let rate = 100.0 * cached as f64 / prompt.max(1) as f64;
    rate
}
