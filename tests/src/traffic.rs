//! Live traffic for tests that change something underneath it: clients that ask without a pause until told to stop.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::Context as _;
use tokio::task::JoinSet;

use crate::await_event::{PATIENCE, until};
use crate::chat::Chat;
use crate::client::{Answer, Client};

/// Clients that run.
#[derive(Debug)]
pub struct Traffic {
    clients: JoinSet<Vec<Outcome>>,
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
}

/// One request's end.
#[derive(Debug)]
pub struct Outcome {
    /// The session, by the number of its client.
    pub client: usize,
    /// The answer, or why there was none.
    pub answer: Result<Answer, String>,
}

impl Outcome {
    /// Whether the client got what it asked for.
    pub fn is_good(&self) -> bool {
        self.answer.as_ref().is_ok_and(|answer| answer.status.is_success())
    }

    /// For messages.
    pub fn text(&self) -> String {
        match &self.answer {
            Ok(answer) => format!("client {}: {}", self.client, answer.text()),
            Err(error) => format!("client {}: {error}", self.client),
        }
    }
}

impl Traffic {
    /// Starts `clients` clients, each with a session of its own (`traffic-N`), each asking one replica after the other.
    pub fn start(clients: usize, replicas: &[SocketAddr], chat: &Chat) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let sent = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        for number in 0..clients {
            let chat = chat.clone().session(&format!("traffic-{number}"));
            tasks.spawn(ask(number, chat, replicas.to_vec(), Arc::clone(&stop), Arc::clone(&sent)));
        }
        Self { clients: tasks, stop, sent }
    }

    /// Answers and failures so far.
    pub fn count(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Waits until `more` further requests have ended: "some time passes under load".
    ///
    /// # Errors
    /// When the traffic stands still.
    pub async fn until_more(&self, more: u64) -> anyhow::Result<()> {
        let goal = self.count() + more;
        let look = || async { Ok((self.count() >= goal).then_some(())) };
        until(&format!("{more} more requests"), PATIENCE, look).await
    }

    /// Stops after each client's current request; everything that came of it.
    ///
    /// # Errors
    /// When a client doesn't end.
    pub async fn stop(mut self) -> anyhow::Result<Vec<Outcome>> {
        self.stop.store(true, Ordering::Relaxed);
        let mut outcomes = Vec::new();
        while let Some(ended) = self.clients.join_next().await {
            outcomes.extend(ended.context("a client of the traffic")?);
        }
        Ok(outcomes)
    }
}

async fn ask(
    number: usize,
    chat: Chat,
    replicas: Vec<SocketAddr>,
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
) -> Vec<Outcome> {
    let client = Client::http1();
    let mut outcomes = Vec::new();
    for replica in replicas.iter().cycle().skip(number) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let answer = chat.send(&client, *replica).await.map_err(|error| format!("{error:#}"));
        let is_refused = !answer.as_ref().is_ok_and(|answer| answer.status.is_success());
        outcomes.push(Outcome { client: number, answer });
        sent.fetch_add(1, Ordering::Relaxed);
        if is_refused {
            // Refused clients come back, but not in a busy loop.
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }
    outcomes
}
