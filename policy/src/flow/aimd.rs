//! One step of the adaptive limit (limits.md §8): it falls while answers are slow, and rises while they are fast and the
//! requests press against it.

use std::time::Duration;

use super::range::{fraction, within};

/// The adaptive limit's options.
#[derive(Debug, Clone, PartialEq)]
pub struct AimdOptions {
    /// The lowest limit; `None`: `min_frac` of the static max.
    pub min: Option<f64>,
    /// Above 0, at most 1.
    pub min_frac: f64,
    /// The first limit; `None`: `init_frac` of the static max, or the lowest.
    pub init: Option<f64>,
    /// Above 0, at most 1.
    pub init_frac: Option<f64>,
    /// Time between two steps.
    pub interval: Duration,
    /// Factor of a fall.
    pub dec: f64,
    /// Factor of a rise.
    pub inc: f64,
    /// From this part of the limit on, requests press against it. Above 0, at most 1.
    pub pressure_frac: f64,
    /// Below this part of the limit there is slack. Above 0, below `pressure_frac`.
    pub slack_frac: f64,
    /// Fewer free slots than this are pressure, and a healthy limit keeps that many free. From 0.
    pub abs: f64,
    /// How long a limit lasts without a step.
    pub ttl: Duration,
    /// Whether a slow first token lowers it too.
    pub use_ttft: bool,
    /// Whether it stays up while few requests come. It then lasts for ever.
    pub hold_when_idle: bool,
}

impl AimdOptions {
    fn pressure(&self) -> f64 {
        fraction(self.pressure_frac)
    }

    fn slack(&self) -> f64 {
        fraction(self.slack_frac).min(self.pressure())
    }

    fn abs(&self) -> f64 {
        within(self.abs, 0.0, f64::MAX)
    }
}

/// Where the limit may be, all from the static max: health plays no part (limits.md §8.1).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// Never lower.
    pub min: f64,
    /// Where it starts. Only overload takes it below.
    pub init: f64,
    /// Never higher.
    pub max: f64,
}

/// The bounds of a pool whose configured backends hold `static_max` requests.
pub fn bounds(options: &AimdOptions, static_max: u32) -> Bounds {
    let max = f64::from(static_max);
    let part = |of_max: f64| f64::max(1.0, (max * fraction(of_max)).floor());
    let slots = |given: Option<f64>| given.filter(|slots| *slots >= 1.0).map(f64::floor);
    let min = slots(options.min).unwrap_or_else(|| part(options.min_frac)).min(max);
    let init = slots(options.init).or_else(|| options.init_frac.map(part)).unwrap_or(min);
    Bounds { min, init: init.min(max).max(min), max }
}

/// The limit after one step from `stored` (the initial one when there is none), with `conc` requests in flight and `rej`
/// refused for want of room since the last step. Within the bounds whatever comes.
pub fn step(
    options: &AimdOptions,
    bounds: &Bounds,
    stored: Option<f64>,
    conc: u32,
    rej: u32,
    is_overloaded: bool,
) -> f64 {
    let current = start(bounds, stored);
    let next = if is_overloaded {
        current * options.dec
    } else if rej > 0 {
        // Demand is proven: what is in flight now says nothing against it.
        current * options.inc
    } else {
        healthy(options, bounds, current, f64::from(conc))
    };
    let next = if next.is_finite() { next } else { current };
    within(next, bounds.min, bounds.max)
}

/// The step of a pool none of whose metrics has a threshold: nothing can be judged, and the limit stays.
pub fn keep(bounds: &Bounds, stored: Option<f64>) -> f64 {
    within(start(bounds, stored), bounds.min, bounds.max)
}

/// Whether the next step, if healthy, would see requests press against the limit.
pub fn at_pressure(options: &AimdOptions, bounds: &Bounds, stored: Option<f64>, conc: u32) -> bool {
    load(options, bounds, start(bounds, stored), f64::from(conc)) == Load::Pressure
}

/// Whether the next step, if healthy, would take the limit back.
pub fn at_slack(options: &AimdOptions, bounds: &Bounds, stored: Option<f64>, conc: u32) -> bool {
    load(options, bounds, start(bounds, stored), f64::from(conc)) == Load::Slack
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Load {
    Pressure,
    Steady,
    Slack,
}

fn load(options: &AimdOptions, bounds: &Bounds, current: f64, conc: f64) -> Load {
    let headroom = current - conc;
    if conc >= current * options.pressure() || headroom < options.abs() {
        return Load::Pressure;
    }
    // Idle is not slack: nothing in flight says nothing about how much would fit.
    let is_slack = conc > 0.0 && conc < current * options.slack() && headroom > options.abs();
    if is_slack && current > bounds.init && !options.hold_when_idle { Load::Slack } else { Load::Steady }
}

fn healthy(options: &AimdOptions, bounds: &Bounds, current: f64, conc: f64) -> f64 {
    let mid = f64::midpoint(options.pressure(), options.slack());
    let desired = f64::max(conc / mid, conc + options.abs());
    let next = match load(options, bounds, current, conc) {
        Load::Pressure => f64::min(current * options.inc, desired),
        Load::Slack => f64::max(current * options.dec, desired).max(bounds.init),
        Load::Steady => current,
    };
    if current < bounds.init {
        // Back to the start after an overload, whatever the traffic.
        return f64::max(next, f64::min(current * options.inc, bounds.init));
    }
    next
}

fn start(bounds: &Bounds, stored: Option<f64>) -> f64 {
    stored.filter(|value| value.is_finite()).unwrap_or(bounds.init)
}

#[cfg(test)]
mod tests;
