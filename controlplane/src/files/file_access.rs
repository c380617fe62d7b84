//! One file's reads and writes, each on a thread of its own and with a time limit: a network file system may stand still, and
//! nobody who waits for a file may wait for ever. One piece of work at a time, so that one that hangs keeps one thread.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};

use super::atomic_write::{Hardness, Mode, prepare};
use super::private_paths::Guard;

/// How long one piece of work may take.
const WITHIN: Duration = Duration::from_secs(2);

/// Why nothing came of a piece of work, in words that follow the file's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// It is not done yet, and may be done later.
    #[error("did not answer within 2 s")]
    Late,
    /// Its thread ended.
    #[error("could not be worked on: the work itself failed")]
    Failed,
}

/// Why a file could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteProblem {
    /// It stands as it was, and will.
    #[error("{0}")]
    Unchanged(String),
    /// Somebody else wrote it since it was read; theirs stands.
    #[error("was written by somebody else meanwhile")]
    Overtaken,
    /// It may be the old one or the new one.
    #[error("{0}; whether it was written shows when it answers again")]
    Unknown(Trouble),
}

/// The way to one file.
pub struct FileAccess {
    path: PathBuf,
    turn: Arc<Semaphore>,
    within: Duration,
}

/// Who decides about a write: it begins, or nobody waits for it any more. The first has it.
#[derive(Default)]
struct Decision(AtomicU8);

impl Decision {
    const BEGUN: u8 = 1;
    const GIVEN_UP: u8 = 2;

    /// Whether it is `to` now, for ever.
    fn take(&self, to: u8) -> bool {
        self.0.compare_exchange(0, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

impl FileAccess {
    /// To the file at `path`.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), turn: Arc::new(Semaphore::new(1)), within: WITHIN }
    }

    /// Does `work` with the path.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce(&Path) -> T + Send + 'static) -> Result<T, Trouble> {
        let end = Instant::now() + self.within;
        let Ok(Ok(turn)) = timeout_at(end, Arc::clone(&self.turn).acquire_owned()).await else {
            return Err(Trouble::Late);
        };
        let path = self.path.clone();
        let done = spawn_blocking(move || {
            let _turn = turn;
            work(&path)
        });
        match timeout_at(end, done).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(_)) => Err(Trouble::Failed),
            Err(_) => Err(Trouble::Late),
        }
    }

    /// Replaces the content, unless `guard` finds that the path leads to another of our files by now, or `is_current` that it is
    /// not what the new content was made from. That is asked last, when all that is left is a rename.
    pub async fn replace(
        &self,
        content: String,
        mode: Mode,
        hardness: Hardness,
        guard: Arc<Guard>,
        is_current: impl FnOnce(&Path) -> bool + Send + 'static,
    ) -> Result<(), WriteProblem> {
        let decision = Arc::new(Decision::default());
        let decided = Arc::clone(&decision);
        let work = move |path: &Path| {
            let prepared = prepare(path, content.as_bytes(), mode, hardness, |target| guard.check(target))?;
            if !is_current(path) {
                return Ok(false);
            }
            // What was called off is not done behind everybody's back.
            if decided.take(Decision::BEGUN) { prepared.commit().map(|()| true) } else { Ok(true) }
        };
        match self.run(work).await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err(WriteProblem::Overtaken),
            Ok(Err(error)) => Err(WriteProblem::Unchanged(error.to_string())),
            Err(trouble) if decision.take(Decision::GIVEN_UP) => Err(WriteProblem::Unchanged(trouble.to_string())),
            Err(trouble) => Err(WriteProblem::Unknown(trouble)),
        }
    }

    /// As when earlier work hangs, until the answer is dropped.
    #[cfg(test)]
    pub(crate) async fn hang(&self) -> tokio::sync::OwnedSemaphorePermit {
        Arc::clone(&self.turn).acquire_owned().await.unwrap()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::files::private_paths::{Guarded, Use};

    fn access(folder: &Path) -> (FileAccess, Arc<Guard>) {
        let path = folder.join("control");
        let own = Guarded { flag: "--control-file", path: path.clone(), used_as: Use::OwnerWrites };
        let within = Duration::from_millis(50);
        (FileAccess { within, ..FileAccess::new(&path) }, Arc::new(Guard::new(own, &[])))
    }

    #[tokio::test]
    async fn work_that_hangs_is_not_waited_for_and_holds_one_thread() {
        let folder = tempfile::tempdir().unwrap();
        let (access, _) = access(folder.path());
        let (go, hanging) = mpsc::channel::<()>();
        assert_eq!(access.run(move |_| hanging.recv().is_ok()).await, Err(Trouble::Late));
        let (ran, runs) = mpsc::channel();
        assert_eq!(access.run(move |_| ran.send(())).await, Err(Trouble::Late));
        assert!(runs.try_recv().is_err(), "not begun while the other hangs");
        go.send(()).unwrap();
        let end = Instant::now() + Duration::from_secs(10);
        while access.run(|_| ()).await.is_err() {
            assert!(Instant::now() < end);
        }
        assert_eq!(access.run(|_| std::panic::resume_unwind(Box::new(()))).await, Err::<(), _>(Trouble::Failed));
        assert_eq!(access.run(|_| 7).await, Ok(7), "and the next has its turn");
    }

    #[tokio::test]
    async fn a_write_that_is_overtaken_leaves_what_the_other_wrote() {
        let folder = tempfile::tempdir().unwrap();
        let (access, guard) = access(folder.path());
        let text = || std::fs::read_to_string(folder.path().join("control")).unwrap();
        let overtake = |path: &Path| std::fs::write(path, "theirs").is_err();
        let overtaken =
            access.replace("ours".to_owned(), Mode::Kept, Hardness::Soft, Arc::clone(&guard), overtake).await;
        assert!(matches!(overtaken, Err(WriteProblem::Overtaken)), "{overtaken:?}");
        assert_eq!(text(), "theirs");
        access.replace("ours".to_owned(), Mode::Kept, Hardness::Soft, guard, |_| true).await.unwrap();
        assert_eq!(text(), "ours", "the control");
    }

    #[tokio::test]
    async fn a_write_that_is_called_off_is_not_done_later() {
        let folder = tempfile::tempdir().unwrap();
        let (access, guard) = access(folder.path());
        let write =
            |text: &str| access.replace(text.to_owned(), Mode::Kept, Hardness::Soft, Arc::clone(&guard), |_| true);
        write("old").await.unwrap();
        let hung = access.hang().await;
        let called_off = write("new").await;
        assert!(matches!(called_off, Err(WriteProblem::Unchanged(_))), "{called_off:?}");
        drop(hung);
        access.run(|_| ()).await.unwrap();
        assert_eq!(std::fs::read_to_string(folder.path().join("control")).unwrap(), "old");
    }
}
