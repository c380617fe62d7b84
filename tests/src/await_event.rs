//! Waiting for something that can't be awaited: the one place in the suites where a condition is polled.
//!
//! Everything that can be awaited (a line on stdout, a process's end, bytes on a socket) is awaited instead. A deadline is
//! the longest that a condition may take on a busy machine, never a measure of speed.

use std::time::{Duration, Instant};

use anyhow::bail;

/// Generous: a debug build on two busy cores, with a database just started.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(15);

/// Calls `look` until it gives a value, and returns it.
///
/// # Errors
/// The error of `look`, or the deadline's, which names `what`.
pub async fn until<T, F, L>(what: &str, patience: Duration, mut look: L) -> anyhow::Result<T>
where
    L: FnMut() -> F,
    F: Future<Output = anyhow::Result<Option<T>>>,
{
    let started = Instant::now();
    loop {
        if let Some(value) = look().await? {
            return Ok(value);
        }
        if started.elapsed() > patience {
            bail!("waited {patience:?} in vain for: {what}");
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Calls `look` for the whole of `span` and fails as soon as it is false: for controls ("nothing happens meanwhile").
///
/// # Errors
/// The error of `look`, or one that names `what`.
pub async fn throughout<F, L>(what: &str, span: Duration, mut look: L) -> anyhow::Result<()>
where
    L: FnMut() -> F,
    F: Future<Output = anyhow::Result<bool>>,
{
    let started = Instant::now();
    while started.elapsed() < span {
        if !look().await? {
            bail!("after {:?} it was no longer so that: {what}", started.elapsed());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}
