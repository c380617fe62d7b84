//! Scene 3: a burst over all replicas. The engines themselves count what is in flight.

use std::sync::Arc;

use serde_json::{Value as Json, json};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::LIMIT;
use super::chat::Conversation;
use super::cluster::{BOUND, Cluster};
use super::report::Report;
use crate::failure::Outcome;

const REQUESTS: usize = 200;

/// Shows it.
pub(crate) async fn show(cluster: &Cluster, report: &mut Report) -> Outcome {
    report.title("3. Limits are exact over all replicas")?;
    cluster.tell_engines("reset", &json!({})).await?;
    let start = Arc::new(Barrier::new(REQUESTS));
    let mut running = JoinSet::new();
    for (number, replica) in cluster.replicas.iter().cycle().take(REQUESTS).enumerate() {
        let (http, replica, start) = (cluster.http.clone(), replica.clone(), Arc::clone(&start));
        running.spawn(async move {
            let mut conversation = Conversation::new(BOUND, "burst", number);
            start.wait().await;
            conversation.turn(&http, &replica).await
        });
    }
    let outcomes = running.join_all().await;
    let answered = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    let whole = LIMIT as usize * cluster.engines.len();
    report.value(
        "sent",
        &format!(
            "{REQUESTS} requests at once through {} replicas; limit {LIMIT} per engine, {whole} in all",
            cluster.replicas.len()
        ),
    )?;
    let mut most = Vec::new();
    for engine in &cluster.engines {
        let stats = cluster.http.get(&format!("http://{}/_mock/stats", engine.address)).await?;
        most.push((engine.name.clone(), stats.get("max_in_flight").and_then(Json::as_u64).unwrap_or(0)));
    }
    let shown: Vec<String> = most.iter().map(|(name, count)| format!("{name} {count}/{LIMIT}")).collect();
    report.value("most in flight, by engine", &shown.join(", "))?;
    let limit = u64::from(LIMIT);
    let above = most.iter().filter(|(_, count)| *count > limit).count();
    report.check(above == 0, "never above the limit", &format!("{above} engines above {LIMIT}"))?;
    let full = most.iter().filter(|(_, count)| *count >= limit).count();
    report.check(
        full == most.len(),
        "the whole limit was used",
        &format!("{full} of {} engines reached {LIMIT}", most.len()),
    )?;
    let first_error = outcomes.iter().find_map(|outcome| outcome.as_ref().err());
    let reason = first_error.map(|failure| format!("; first error: {}", failure.message)).unwrap_or_default();
    report.check(answered == REQUESTS, "the rest waited and was answered", &format!("{answered} of {REQUESTS}{reason}"))
}
