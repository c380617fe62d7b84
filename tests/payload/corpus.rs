//! The clients, and what they send when they talk to an engine directly.

use std::path::Path;

use anyhow::ensure;
use router_tests::engine::{Engine, Recorded};
use router_tests::script::Scripts;

/// Where the clients' scripts stand.
pub(crate) const SCRIPTS: Scripts =
    Scripts { folder: concat!(env!("CARGO_MANIFEST_DIR"), "/payload/clients"), target: env!("CARGO_TARGET_TMPDIR") };

/// The official Python SDKs, and the npm packages.
pub(crate) const CLIENTS: [&str; 5] =
    ["chat_openai.py", "messages_anthropic.py", "chat_openai.mjs", "messages_anthropic.mjs", "chat_ai_sdk.mjs"];

/// Every request of every client, in order.
pub(crate) async fn record(folder: &Path) -> anyhow::Result<Vec<Recorded>> {
    let engine = Engine::start("recorder", &[], folder).await?;
    let environment = [("TARGET".to_owned(), format!("http://{}", engine.address()))];
    let mut corpus = Vec::new();
    for client in CLIENTS {
        engine.reset().await?;
        engine.record(1000).await?;
        SCRIPTS.run(client, &environment).await?;
        let sent = engine.recorded().await?;
        ensure!(sent.len() > 5, "{client} sends more than a few: {}", sent.len());
        ensure!(sent.iter().all(|request| request.body.starts_with('{')), "{client} sends JSON");
        corpus.extend(sent);
    }
    Ok(corpus)
}

/// The headers that a client chose itself, to be sent again.
pub(crate) fn own_headers(request: &Recorded) -> Vec<(&str, &str)> {
    const OF_THE_CONNECTION: [&str; 6] =
        ["host", "content-length", "connection", "accept-encoding", "transfer-encoding", "authorization"];
    let headers = request.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    headers.filter(|(name, _)| !OF_THE_CONNECTION.contains(name)).collect()
}
