//! Whether a file is as it should be: for `routerctl status`, the metric, and the log, which hears of each problem once.

use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use router_proto::v1;

/// One file's state.
pub struct FileHealth {
    flag: &'static str,
    path: PathBuf,
    gauge: Gauge,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Empty when all is well.
    problem: String,
    /// Empty when something is wrong.
    note: String,
    good_unix_ms: u64,
}

impl FileHealth {
    /// Not read or written yet. The gauge is 1 while all is well.
    pub fn new(flag: &'static str, path: &Path, gauge: Gauge) -> Self {
        gauge.set(1);
        Self { flag, path: path.to_owned(), gauge, state: Mutex::default() }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// It was read or written. `note` is empty, or what an operator should know although nothing is wrong.
    pub fn good(&self, now_unix_ms: u64, note: &str) {
        let mut state = self.state.lock();
        let was_bad = !std::mem::take(&mut state.problem).is_empty();
        let is_news = state.note != note;
        note.clone_into(&mut state.note);
        state.good_unix_ms = now_unix_ms;
        drop(state);
        self.gauge.set(1);
        if was_bad {
            tracing::info!(flag = self.flag, path = %self.path.display(), "file is good again");
        }
        if is_news && !note.is_empty() {
            tracing::info!(flag = self.flag, path = %self.path.display(), note, "file has a note");
        }
    }

    /// It is what it was, good or bad.
    pub fn seen_again(&self, now_unix_ms: u64) {
        let mut state = self.state.lock();
        if state.problem.is_empty() {
            state.good_unix_ms = now_unix_ms;
        }
    }

    /// Something is wrong: what, and what that means.
    pub fn bad(&self, problem: &str) {
        let mut state = self.state.lock();
        let is_news = state.problem != problem;
        problem.clone_into(&mut state.problem);
        state.note.clear();
        drop(state);
        self.gauge.set(0);
        if is_news {
            tracing::warn!(flag = self.flag, path = %self.path.display(), problem, "file is not as it should be");
        }
    }

    /// For operators.
    pub fn message(&self) -> v1::FileState {
        let state = self.state.lock();
        v1::FileState {
            flag: self.flag.to_owned(),
            path: self.path.display().to_string(),
            problem: state.problem.clone(),
            note: state.note.clone(),
            good_unix_ms: state.good_unix_ms,
        }
    }
}
