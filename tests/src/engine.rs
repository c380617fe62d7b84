//! A mock engine under test, and what it counted: the suites believe the engines' counters, never the router's.

use std::net::SocketAddr;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Value as Json, json};

use crate::client::Client;
use crate::process::Process;

/// What an engine counted since its start or last reset.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Stats {
    /// Generation requests now.
    pub in_flight: u64,
    /// The most at once.
    pub max_in_flight: u64,
    /// Generation requests that came in.
    pub requests_total: u64,
    /// Those answered to the end.
    pub completed_total: u64,
    /// Those whose client went away.
    pub aborted_total: u64,
    /// Prompt tokens found in the prefix cache.
    pub cached_tokens_total: u64,
    /// All prompt tokens.
    pub prompt_tokens_total: u64,
}

/// A request as an engine got it.
#[derive(Debug, Clone, Deserialize)]
pub struct Recorded {
    /// With its query.
    pub path: String,
    /// In their order.
    pub headers: Vec<(String, String)>,
    /// Exactly as it came; empty when it was no UTF-8.
    #[serde(default)]
    pub body: String,
}

/// A mock engine process.
#[derive(Debug)]
pub struct Engine {
    /// The process.
    pub process: Process,
    address: SocketAddr,
    client: Client,
}

impl Engine {
    /// Starts one on a free port.
    ///
    /// # Errors
    /// As [`Process::start`].
    pub async fn start(name: &str, args: &[&str], folder: &Path) -> anyhow::Result<Self> {
        let all = [&["mock-engine", "--listen", "127.0.0.1:0"], args].concat();
        let process = Process::start(name, &all, folder).await?;
        let address = process.address("http")?;
        Ok(Self { process, address, client: Client::http1() })
    }

    /// Where it listens; also its name as a backend.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its counters.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn stats(&self) -> anyhow::Result<Stats> {
        let answer = self.client.get(self.address, "/_mock/stats").await?.ok()?;
        Ok(serde_json::from_slice(&answer.body)?)
    }

    /// Sets its counters to 0.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn reset(&self) -> anyhow::Result<()> {
        self.control("reset", &json!({})).await
    }

    /// Changes its behaviour: `{"ttft_ms": 5, "fail": "500", …}`.
    ///
    /// # Errors
    /// When it refuses the change.
    pub async fn set(&self, change: &Json) -> anyhow::Result<()> {
        self.control("set", change).await
    }

    /// Lets generation requests wait until [`Engine::release`].
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn hold(&self) -> anyhow::Result<()> {
        self.control("hold", &json!({})).await
    }

    /// Lets held requests go on.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn release(&self) -> anyhow::Result<()> {
        self.control("release", &json!({})).await
    }

    /// Keeps the last `most` requests as they come in, for [`Engine::recorded`].
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn record(&self, most: usize) -> anyhow::Result<()> {
        self.set(&json!({"record": most})).await
    }

    /// The requests that it kept, the oldest first.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn recorded(&self) -> anyhow::Result<Vec<Recorded>> {
        let answer = self.client.get(self.address, "/_mock/recorded").await?.ok()?;
        Ok(serde_json::from_slice(&answer.body)?)
    }

    async fn control(&self, word: &str, body: &Json) -> anyhow::Result<()> {
        self.client.post(self.address, &format!("/_mock/{word}"), body).await?.ok().map(drop)
    }
}
