//! The one writer of all files: a thread of its own, so that a slow disk holds up nothing but the senders, who wait for
//! their own record. Local time does not go back here: a clock that is set back does not write into a day that was packed.
//! A clock that was ahead by more than a day is not followed for that long: what is written then into a packed day becomes
//! another packed file of it.

use std::io;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use super::files::{Lines, Places};
use super::minutes::{self, Minutes};
use super::names;
use super::prometheus::CollectorMetrics;
use super::record::Record;

/// What the writer is asked to do.
pub(crate) enum Job {
    /// Keep a record, or give it back.
    Keep(Unkept, oneshot::Sender<Option<Unkept>>),
    /// Write the minutes that have settled.
    SaveMinutes,
    /// Leave the days before that of this moment alone from here on.
    ClosePastDays(Timestamp, oneshot::Sender<()>),
}

/// A record that is in no file yet. Whoever gives it up counts it as lost.
pub(crate) struct Unkept {
    record: Box<Record>,
    metrics: Arc<CollectorMetrics>,
    is_kept: bool,
}

impl Unkept {
    pub(crate) fn new(record: Record, metrics: Arc<CollectorMetrics>) -> Self {
        Self { record: Box::new(record), metrics, is_kept: false }
    }
}

impl Drop for Unkept {
    fn drop(&mut self) {
        if !self.is_kept {
            self.metrics.lost();
        }
    }
}

/// Files, minutes and counts.
pub(crate) struct Writer {
    places: Places,
    with_details: bool,
    minutes: Arc<Mutex<Minutes>>,
    metrics: Arc<CollectorMetrics>,
    full: Option<Lines>,
    details: Option<Lines>,
    latest: Timestamp,
    records_state: State,
    minutes_state: State,
}

impl Writer {
    pub(crate) fn new(
        places: Places,
        with_details: bool,
        minutes: Arc<Mutex<Minutes>>,
        metrics: Arc<CollectorMetrics>,
    ) -> Self {
        Self {
            places,
            with_details,
            minutes,
            metrics,
            full: None,
            details: None,
            latest: Timestamp::MIN,
            records_state: State::default(),
            minutes_state: State::default(),
        }
    }

    /// Starts after the newest day that was packed, whatever the clock or another zone says.
    pub(crate) fn after_packed_days(mut self) -> io::Result<Self> {
        for folder in [self.places.root().to_owned(), self.places.details_folder()] {
            let next = names::newest_packed(&folder)?.and_then(|day| self.places.start_of(day.tomorrow().ok()?));
            self.latest = self.latest.max(next.unwrap_or(Timestamp::MIN));
        }
        Ok(self)
    }

    /// A day ahead of the clock at most: questions look for a row in the files of its day and of the next one.
    fn move_on(&mut self, now: Timestamp) {
        let is_ahead = self.places.day(now).tomorrow().is_ok_and(|next| self.places.day(self.latest) > next);
        self.latest = if is_ahead { now } else { self.latest.max(now) };
    }

    /// Works until nobody can ask any more, then writes all minutes.
    pub(crate) fn run(mut self, mut jobs: mpsc::Receiver<Job>, clock: impl Fn() -> Timestamp) {
        while let Some(job) = jobs.blocking_recv() {
            self.carry_out(job, clock());
        }
        self.save_minutes(clock(), true);
    }

    fn carry_out(&mut self, job: Job, now: Timestamp) {
        match job {
            Job::Keep(mut unkept, done) => {
                let kept = self.keep(&unkept.record, now);
                self.records_state.note(&kept, "records", &self.places, &self.metrics);
                self.note_writable();
                unkept.is_kept = kept.is_ok();
                // The connection may be gone. Then a record that is kept is kept, and another one is lost.
                let _ = done.send((!unkept.is_kept).then_some(unkept));
            }
            Job::SaveMinutes => self.save_minutes(now, false),
            Job::ClosePastDays(asked, done) => {
                self.move_on(now.max(asked));
                self.full = None;
                self.details = None;
                let _ = done.send(());
            }
        }
    }

    /// Writes a record to both of its files, or to none.
    pub(crate) fn keep(&mut self, record: &Record, now: Timestamp) -> io::Result<()> {
        self.move_on(now);
        let full = at(&mut self.full, &self.places.hour(self.latest), &self.metrics)?;
        let before = full.append(&record.line).inspect_err(|_| self.full = None)?;
        if self.with_details {
            let day = self.places.day(self.latest);
            let written = at(&mut self.details, &self.places.details(day), &self.metrics).and_then(|details| {
                details.append(&record.details.line())?;
                self.metrics.set_offset(details.length());
                Ok(())
            });
            if let Err(error) = written {
                self.details = None;
                if self.full.as_mut().is_some_and(|full| full.take_back(before).is_err()) {
                    self.full = None;
                }
                return Err(error);
            }
        }
        self.minutes.lock().count(&record.details, record.end, now);
        self.metrics.observe(&record.details, record.end);
        Ok(())
    }

    fn save_minutes(&mut self, now: Timestamp, all: bool) {
        let unsaved = self.minutes.lock().take_unsaved(now, all);
        let mut saved = Ok(());
        for (day, unsaved) in minutes::by_day(unsaved, &self.places) {
            // The lock is free meanwhile: a slow disk must not hold up those who ask.
            let written =
                open_lines(&self.places.minutes(day), &self.metrics).and_then(|mut file| file.append(&unsaved.lines));
            if let Err(error) = written {
                self.minutes.lock().put_back(unsaved);
                saved = Err(error);
            }
        }
        self.minutes_state.note(&saved, "the minutes", &self.places, &self.metrics);
        self.note_writable();
    }

    fn note_writable(&self) {
        self.metrics.set_writable(!self.records_state.is_failing && !self.minutes_state.is_failing);
    }
}

/// Whether one kind of file can be written.
#[derive(Debug, Default)]
struct State {
    is_failing: bool,
}

impl State {
    /// Counts each failure; says so once, and once that it is over.
    fn note(&mut self, done: &io::Result<()>, what: &str, places: &Places, metrics: &CollectorMetrics) {
        match done {
            Ok(()) if self.is_failing => tracing::info!("{what} can be written again"),
            Ok(()) => {}
            Err(error) => {
                metrics.write_failed();
                if !self.is_failing {
                    tracing::error!(%error, dir = %places.root().display(), "{what} can't be written");
                }
            }
        }
        self.is_failing = done.is_err();
    }
}

/// The file of this path: the one that is open, or another in its place.
fn at<'a>(open: &'a mut Option<Lines>, path: &Path, metrics: &CollectorMetrics) -> io::Result<&'a mut Lines> {
    if open.as_ref().is_some_and(|lines| lines.path() != path) {
        *open = None;
    }
    match open {
        Some(lines) => Ok(lines),
        None => Ok(open.insert(open_lines(path, metrics)?)),
    }
}

fn open_lines(path: &Path, metrics: &CollectorMetrics) -> io::Result<Lines> {
    let lines = Lines::open(path)?;
    if lines.is_cut() {
        metrics.recovered();
    }
    Ok(lines)
}

#[cfg(test)]
mod tests;
