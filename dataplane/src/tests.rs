//! The whole replica over real loopback sockets, with a control plane and backends that do what a test says. Every wait is
//! for an event; the only clocks are upper bounds.

mod admission;
mod affinity;
mod backend;
mod bodylog;
mod client;
mod control;
mod counts;
mod hashing;
mod limits;
mod link;
mod model_pools;
mod models;
mod pages;
mod proxying;
mod refusals;
mod replica;
mod retries;
mod rewriting;
mod sampling;
mod shutdown;
mod streaming;
mod turns;
mod uploads;

use std::time::Duration;

/// Everything here takes milliseconds; what takes longer hangs.
const SOON: Duration = Duration::from_secs(10);

/// The result, or a panic that says what never came.
async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, future).await.unwrap_or_else(|_| panic!("never: {what}"))
}
