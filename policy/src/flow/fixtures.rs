//! Options and states that the tests of flow control share.

use std::time::Duration;

use serde_json::json;

use super::aimd::AimdOptions;
use super::metric::{Metric, Statistic};
use super::options::FlowOptions;
use super::pool_flow::{Flow, Verdict};
use super::signal::SignalOptions;
use super::time::UnixMs;
use super::tokens::{AnswerTimes, TpsBasis};
use super::turn::{Bucket, PrioOptions, TurnTable};

pub(super) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Seconds since the epoch.
pub(super) fn at(seconds: u64) -> UnixMs {
    UnixMs(seconds * 1000)
}

#[track_caller]
pub(super) fn assert_close(value: f64, expected: f64) {
    assert!((value - expected).abs() < 1e-9, "{value} is not {expected}");
}

/// The defaults of limits.md §5.3.
pub(super) fn signal_options() -> SignalOptions {
    SignalOptions { window: secs(20), alpha: 0.3, ttl: secs(60), probe_window: secs(10), probes_per_window: 5 }
}

/// The defaults of limits.md §8.1, hold off.
pub(super) fn aimd_options() -> AimdOptions {
    AimdOptions {
        min: None,
        min_frac: 0.4,
        init: None,
        init_frac: None,
        interval: secs(20),
        dec: 0.97,
        inc: 1.02,
        pressure_frac: 0.9,
        slack_frac: 0.7,
        abs: 5.0,
        ttl: secs(300),
        use_ttft: true,
        hold_when_idle: false,
    }
}

/// The defaults of limits.md §9.2.
pub(super) fn prio_options() -> PrioOptions {
    PrioOptions {
        table: TurnTable::by_doubling(0.85, 32, 1.5),
        severe: 1.5,
        release: 0.9,
        t1_probes: 1,
        warn_frac: 0.2,
    }
}

pub(super) fn avg(threshold: f64) -> Metric {
    Metric { name: "avg".to_owned(), statistic: Statistic::Avg, threshold: Some(threshold) }
}

/// Both gates on, by the mean and with alpha 1, so that a test chooses each EWMA exactly; not adaptive.
pub(super) fn gate_options() -> FlowOptions {
    let signal = SignalOptions { alpha: 1.0, ..signal_options() };
    FlowOptions {
        is_enforced: true,
        rt_limit_factor: 1.0,
        ttft_on: true,
        tps_on: true,
        ttft_429: true,
        ttft: signal,
        tps: signal,
        ttft_metrics: vec![avg(30_000.0)],
        tps_metrics: vec![avg(20.0)],
        tps_min_tokens: 16,
        tps_min_decode: Duration::from_millis(500),
        tps_basis: TpsBasis::Total,
        adaptive: None,
        prio: None,
        cluster_avg_interval: secs(30),
    }
}

/// The same, adaptive.
pub(super) fn adaptive_options() -> FlowOptions {
    FlowOptions { adaptive: Some(aimd_options()), ..gate_options() }
}

/// The same as [`gate_options`], with session priority.
pub(super) fn prio_gate_options() -> FlowOptions {
    FlowOptions { prio: Some(prio_options()), ..gate_options() }
}

/// A pool as a stored state without anything but an adaptive limit gives it.
pub(super) fn flow_at_limit(value: f64) -> Flow {
    serde_json::from_value(json!({"controller": {"value": {"value": value, "until": null}}})).unwrap()
}

/// Makes `ms` the TTFT EWMA of [`gate_options`], folded at `now`: a sample in the window before, and one now.
pub(super) fn set_ttft(flow: &mut Flow, now: UnixMs, options: &FlowOptions, ms: f64) {
    flow.record_ttft(UnixMs(now.0 - 20_000), options, ms);
    flow.record_ttft(now, options, ms);
}

/// Makes `tps`, a whole number from 16, the TPS EWMA of [`gate_options`], folded at `now`.
pub(super) fn set_tps(flow: &mut Flow, now: UnixMs, options: &FlowOptions, tps: u32) {
    flow.record_answer(UnixMs(now.0 - 20_000), options, &answer(tps, secs(1)));
    flow.record_answer(now, options, &answer(tps, secs(1)));
}

pub(super) fn answer(tokens: u32, total: Duration) -> AnswerTimes {
    AnswerTimes { tokens: Some(tokens), total, ttft: Duration::ZERO }
}

/// How many of a burst get in, when each that gets in stays.
pub(super) fn burst(ceiling: f64, requests: u32) -> u32 {
    (0..requests).fold(0, |in_flight, _| in_flight + u32::from(f64::from(in_flight) < ceiling))
}

pub(super) const COLD: Option<Bucket> = Some(Bucket { index: 0, is_known: true });
pub(super) const WARM: Option<Bucket> = Some(Bucket { index: 2, is_known: true });
pub(super) const HOT: Option<Bucket> = Some(Bucket { index: 5, is_known: true });

pub(super) fn is_refused(verdict: &Verdict) -> bool {
    verdict.refusal.is_some()
}
