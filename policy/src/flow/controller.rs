//! What the adaptive limit remembers between steps, and for how long (limits.md §6.1, §8.2).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::aimd::{self, AimdOptions, Bounds};
use super::exact::Exact;
use super::time::UnixMs;

/// One pool's adaptive limit.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Controller {
    value: Option<Lasting<Exact>>,
    conc: Option<Lasting<u32>>,
    rej: Option<Lasting<u32>>,
    /// The last step, or when the pool became adaptive.
    last_step: Option<UnixMs>,
}

/// Something that is gone from a moment on, which was set when it was written: options that change later don't move it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Lasting<T> {
    value: T,
    /// `None`: it stays.
    until: Option<UnixMs>,
}

impl<T: Copy> Lasting<T> {
    fn read(this: Option<Self>, now: UnixMs) -> Option<T> {
        this.filter(|this| this.until.is_none_or(|until| now <= until)).map(|this| this.value)
    }
}

/// The state of an adaptive limit, for status pages (limits.md §12.4).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ControllerView {
    /// The limit that the last steps led to; `None`: none yet, or it expired, and `init` holds.
    pub value: Option<f64>,
    /// Its bounds.
    pub bounds: Bounds,
    /// Requests in flight at the last judged one.
    pub conc: Option<u32>,
    /// Refused for want of room since the last step.
    pub rej: u32,
    /// Whether the next step, if healthy, would see pressure.
    pub at_pressure: bool,
    /// Whether the next step, if healthy, would lower the limit.
    pub at_slack: bool,
}

/// How answers are, as far as a step cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answers {
    /// No metric has a threshold: there is nothing to judge by.
    Unjudged,
    /// Fast enough.
    Healthy,
    /// Too slow.
    Overloaded,
}

impl Controller {
    pub(super) fn value(&self, now: UnixMs) -> Option<f64> {
        Lasting::read(self.value, now).map(|value| value.0)
    }

    /// Starts the interval when the pool has become adaptive. `false` when it had been already.
    pub(super) fn begin(&mut self, now: UnixMs) -> bool {
        // A last step in the future is of a clock that has been set back: it must not stop the steps until then.
        let is_new = self.last_step.is_none_or(|last| last > now);
        if is_new {
            self.last_step = Some(now);
        }
        is_new
    }

    /// The pool is not adaptive now: the next interval begins afresh. The value stays for its time.
    pub(super) fn end(&mut self) {
        self.last_step = None;
    }

    pub(super) fn judged(&mut self, now: UnixMs, lasts: Duration, in_flight: u32) {
        self.conc = Some(Lasting { value: in_flight, until: Some(now + lasts) });
    }

    pub(super) fn over(&mut self, now: UnixMs, lasts: Duration) {
        match &mut self.rej {
            // Only the first sets the time.
            Some(rej) if rej.until.is_none_or(|until| now <= until) => rej.value = rej.value.saturating_add(1),
            rej => *rej = Some(Lasting { value: 1, until: Some(now + lasts) }),
        }
    }

    pub(super) fn next_step(&self, interval: Duration) -> Option<UnixMs> {
        // Without any interval, a step would be due again at once, for ever.
        self.last_step.map(|last| last + interval.max(Duration::from_millis(1)))
    }

    /// Whether a step is due; if so, the next interval begins.
    pub(super) fn is_due(&mut self, now: UnixMs, interval: Duration) -> bool {
        let is_due = !self.begin(now) && self.next_step(interval).is_some_and(|due| now >= due);
        if is_due {
            self.last_step = Some(now);
        }
        is_due
    }

    /// One step. `true` when the limit in force changed.
    pub(super) fn step(&mut self, now: UnixMs, options: &AimdOptions, bounds: &Bounds, answers: Answers) -> bool {
        let stored = self.value(now);
        let conc = Lasting::read(self.conc, now).unwrap_or(0);
        // Spent whatever the step makes of them.
        let rej = Lasting::read(self.rej.take(), now).unwrap_or(0);
        let next = match answers {
            Answers::Unjudged => aimd::keep(bounds, stored),
            Answers::Healthy => aimd::step(options, bounds, stored, conc, rej, false),
            Answers::Overloaded => aimd::step(options, bounds, stored, conc, rej, true),
        };
        let until = (!options.hold_when_idle).then(|| now + options.ttl);
        self.value = Some(Lasting { value: Exact(next), until });
        next.to_bits() != stored.unwrap_or(bounds.init).to_bits()
    }

    pub(super) fn view(&self, now: UnixMs, options: &AimdOptions, bounds: Bounds) -> ControllerView {
        let value = self.value(now);
        let conc = Lasting::read(self.conc, now);
        let load = conc.unwrap_or(0);
        ControllerView {
            value,
            bounds,
            conc,
            rej: Lasting::read(self.rej, now).unwrap_or(0),
            at_pressure: aimd::at_pressure(options, &bounds, value, load),
            at_slack: aimd::at_slack(options, &bounds, value, load),
        }
    }
}
