//! A pool per model: each with its own backends and limits; the router makes the list of models; an unknown one is 400.

use http::StatusCode;
use router_tests::chat::Chat;
use router_tests::cluster::Cluster;
use router_tests::database::DatabaseKind;
use serde_json::json;

use super::{Tasks, send};

router_tests::on_both_databases!(
    each_model_has_its_own_pool,
    a_session_that_alternates_between_models_stays_bound_in_each
);

async fn each_model_has_its_own_pool(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = Cluster::builder(kind).engines(2).start().await?;
    let (first, second) = (cluster.engines[0].address().to_string(), cluster.engines[1].address().to_string());
    let document = json!({"name": "models", "options": {"max_concurrency": 1, "max_waiting": 0},
        "peers_by_model": {"org/big": [first], "small": [second]}});
    let document = document.to_string();
    let ctl = cluster.ctl()?;
    ctl.run_with_stdin(&["apply", "-f", "-"], &document).await?.ok()?;
    let ask = |model: &str| Chat::new().route("models").model(model);
    for replica in 0..2 {
        let address = cluster.replica(replica)?;
        let list = cluster.client.get(address, "/models/v1/models").await?.ok()?.json()?;
        assert_eq!(
            list,
            json!({"object": "list", "data": [
            {"id": "org/big", "object": "model"}, {"id": "small", "object": "model"}]})
        );
        assert_eq!(ask("org/big").send(&cluster.client, address).await?.ok()?.peer(), first);
        assert_eq!(ask("small").send(&cluster.client, address).await?.ok()?.peer(), second);
        let unknown = ask("a \"quoted\" one").send(&cluster.client, address).await?;
        assert_eq!(unknown.status, StatusCode::BAD_REQUEST, "{}", unknown.text());
        let error = unknown.json()?["error"].clone();
        assert_eq!(error["type"], "model_not_supported");
        assert_eq!(error["message"], "model 'a \"quoted\" one' not configured on this route");
        assert_eq!(error["details"]["supported_models"], json!(["org/big", "small"]));
    }

    // One model's pool is full: the other's is not.
    cluster.engines[0].hold().await?;
    let mut tasks = Tasks::new();
    send(&cluster, 0, ask("org/big"), &mut tasks)?;
    let is_held = || async { Ok((cluster.engines[0].stats().await?.in_flight == 1).then_some(())) };
    router_tests::await_event::until("held", router_tests::await_event::PATIENCE, is_held).await?;
    let refused = ask("org/big").send(&cluster.client, cluster.replica(1)?).await?;
    assert_eq!(refused.error_code()?, "queue_full");
    ask("small").send(&cluster.client, cluster.replica(1)?).await?.ok()?;
    cluster.engines[0].release().await?;
    while let Some(answer) = tasks.join_next().await {
        answer??.ok()?;
    }

    // A backend for one more model: one command, no restart.
    ctl.ok(&["backend", "set", "models", &second, "--model", "small", "--model", "new"]).await?;
    let found = || async {
        let answer = ask("new").send(&cluster.client, cluster.replica(0)?).await?;
        Ok((answer.status == StatusCode::OK).then(|| answer.peer().to_owned()))
    };
    let peer = router_tests::await_event::until("the new model", router_tests::await_event::PATIENCE, found).await?;
    assert_eq!(peer, second);
    // The control: where backends state no models, any model will do.
    Chat::new().model("whatever").send(&cluster.client, cluster.replica(0)?).await?.ok()?;
    cluster.finish()
}

async fn a_session_that_alternates_between_models_stays_bound_in_each(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = Cluster::builder(kind).engines(2).start().await?;
    let addresses: Vec<String> = cluster.engines.iter().map(|engine| engine.address().to_string()).collect();
    let document = json!({"name": "models", "backends_by_model": {"a": addresses, "b": addresses}}).to_string();
    cluster.ctl()?.run_with_stdin(&["apply", "-f", "-"], &document).await?.ok()?;
    let mut peers = Vec::new();
    for (at, model) in ["a", "b", "a", "b", "a"].into_iter().enumerate() {
        let chat = Chat::new().route("models").model(model).session("alternates");
        let answer = chat.send(&cluster.client, cluster.replica(at % 2)?).await?.ok()?;
        assert_eq!(answer.mode(), if at < 2 { "new" } else { "bound" }, "turn {at} with model {model}");
        peers.push(answer.peer().to_owned());
    }
    assert_eq!((&peers[2], &peers[3], &peers[4]), (&peers[0], &peers[1], &peers[0]));
    cluster.finish()
}
