//! Flow control: how many requests a pool may hold, and when slow answers refuse new ones (limits.md). Pure maths: samples
//! and moments in, limits and verdicts out. The owner of a pool keeps one [`Flow`] for it and calls it under the pool's lock.
//!
//! | module | says |
//! | --- | --- |
//! | [`tokens`] | which answers are throughput samples |
//! | [`window`], [`signal`] | from samples to a window's statistic, from windows to an EWMA |
//! | [`metric`] | which statistics are watched, and their thresholds |
//! | [`latency_gate`], [`probe_slots`] | when an EWMA trips, and who may pass to see whether it still should |
//! | [`aimd`], [`controller`] | the limit that follows throughput: one step, and its memory |
//! | [`turn`], [`turn_counts`] | session turn priority: buckets, shares, tolerances, counters |
//! | [`cluster_avg`] | the five-minute average, which is only shown |
//! | [`pool_flow`], [`options`] | all of it for one pool |

pub mod aimd;
pub mod cluster_avg;
pub mod controller;
mod exact;
pub mod latency_gate;
pub mod metric;
pub mod options;
pub mod pool_flow;
pub mod probe_slots;
mod range;
pub mod signal;
pub mod time;
pub mod tokens;
pub mod turn;
pub mod turn_counts;
pub mod window;

pub use aimd::{AimdOptions, Bounds};
pub use cluster_avg::{ClusterAvg, ClusterAvgView};
pub use controller::ControllerView;
pub use metric::{Metric, Statistic};
pub use options::FlowOptions;
pub use pool_flow::{Flow, LatencyGate, LatencyRefusal, MetricView, Trips, Verdict};
pub use probe_slots::ProbeSlots;
pub use signal::{Signal, SignalKind, SignalOptions};
pub use time::UnixMs;
pub use tokens::{AnswerTimes, Sample, TpsBasis};
pub use turn::{Bucket, PrioOptions, TurnHeader, TurnRow, TurnTable, parse_turn_header};
pub use turn_counts::{BucketCounts, TurnCounts};
pub use window::Counts;

#[cfg(test)]
mod examples;
#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod properties;
