//! Random runs of a whole pool.

use proptest::prelude::*;
use std::time::Duration;

use super::aimd::AimdOptions;
use super::fixtures::{adaptive_options, aimd_options, answer, gate_options, prio_options};
use super::metric::Metric;
use super::options::FlowOptions;
use super::pool_flow::Flow;
use super::time::UnixMs;
use super::tokens::AnswerTimes;
use super::turn::Bucket;

const STATIC_MAX: u32 = 128;

#[derive(Debug, Clone)]
enum Op {
    Judge { bucket: Option<Bucket>, in_flight: u32 },
    Over { bucket: Option<Bucket> },
    Ttft { ms: f64 },
    Answer { tokens: Option<u32>, ms: u64 },
    Count { bucket: Option<Bucket>, is_admitted: bool },
    Warning,
    Average { in_flight: u32 },
    Step,
}

fn any_bucket() -> impl Strategy<Value = Option<Bucket>> {
    proptest::option::of((0_usize..7, any::<bool>()).prop_map(|(index, is_known)| Bucket { index, is_known }))
}

fn any_op() -> impl Strategy<Value = Op> {
    let odd = prop_oneof![4 => 0.0_f64..90_000.0, 1 => proptest::num::f64::ANY];
    prop_oneof![
        4 => (any_bucket(), 0_u32..200).prop_map(|(bucket, in_flight)| Op::Judge { bucket, in_flight }),
        1 => any_bucket().prop_map(|bucket| Op::Over { bucket }),
        4 => odd.prop_map(|ms| Op::Ttft { ms }),
        4 => (proptest::option::of(0_u32..2000), 0_u64..60_000).prop_map(|(tokens, ms)| Op::Answer { tokens, ms }),
        1 => (any_bucket(), any::<bool>()).prop_map(|(bucket, is_admitted)| Op::Count { bucket, is_admitted }),
        1 => Just(Op::Warning),
        1 => (0_u32..200).prop_map(|in_flight| Op::Average { in_flight }),
        4 => Just(Op::Step),
    ]
}

fn any_options() -> impl Strategy<Value = FlowOptions> {
    (any::<[bool; 6]>(), any::<bool>()).prop_map(
        |([is_enforced, is_adaptive, hold_when_idle, has_prio, ttft_429, tps_on], is_default_metric)| {
            let base = if is_adaptive { adaptive_options() } else { gate_options() };
            let adaptive = base.adaptive.is_some().then(|| AimdOptions { hold_when_idle, ..aimd_options() });
            let mut options = FlowOptions { is_enforced, tps_on, ttft_429, adaptive, ..base };
            options.prio = has_prio.then(prio_options);
            options.ttft.alpha = 0.3;
            if is_default_metric {
                options.ttft_metrics.insert(0, Metric::ttft_default(Some(20_000.0)));
                options.tps_metrics.insert(0, Metric::tps_default(Some(25.0)));
            }
            options
        },
    )
}

/// Does it, and says all that can be seen of the pool then.
fn run(flow: &mut Flow, now: UnixMs, options: &FlowOptions, op: &Op) -> String {
    let seen = match *op {
        Op::Judge { bucket, in_flight } => {
            flow.judged(now, options, in_flight);
            format!("{:?}", flow.judge(now, options, bucket))
        }
        Op::Over { bucket } => format!("{:?}", flow.over(now, options, bucket)),
        Op::Ttft { ms } => format!("{:?}", flow.record_ttft(now, options, ms)),
        Op::Answer { tokens, ms } => {
            let times = AnswerTimes { tokens, ..answer(0, Duration::from_millis(ms)) };
            format!("{:?}", flow.record_answer(now, options, &times))
        }
        Op::Count { bucket, is_admitted: true } => format!("{:?}", flow.admitted(bucket)),
        Op::Count { bucket, is_admitted: false } => format!("{:?}", flow.refused(bucket)),
        Op::Warning => format!("{:?}", flow.take_warning(now, &prio_options())),
        Op::Average { in_flight } => format!("{:?}", flow.record_in_flight(now, options, in_flight)),
        Op::Step => format!("{}", flow.step(now, options, STATIC_MAX)),
    };
    format!(
        "{seen} {:?} {:?} {:?} {:?} {:?} {:?}",
        flow.adaptive(now, options, STATIC_MAX),
        flow.ttft_metrics(now, options),
        flow.tps_metrics(now, options),
        flow.cluster_avg(now, options),
        (flow.is_held(now, options), flow.next_step(options), flow.no_usage(now, options), flow.trips()),
        flow.turn_counts(),
    )
}

proptest! {
    #[test]
    fn a_stored_pool_goes_on_as_if_it_had_not_been(
        options in any_options(), before in proptest::collection::vec((0_u64..30_000, any_op()), 0..40),
        after in proptest::collection::vec((0_u64..30_000, any_op()), 1..40),
    ) {
        let mut flow = Flow::default();
        let mut now = UnixMs(1_700_000_000_000);
        for (pause, op) in &before {
            now = now + Duration::from_millis(*pause);
            run(&mut flow, now, &options, op);
        }
        let text = serde_json::to_string(&flow).unwrap();
        prop_assert!(text.len() < 4000, "{}", text);
        let mut read: Flow = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(&read, &flow);
        for (pause, op) in &after {
            now = now + Duration::from_millis(*pause);
            prop_assert_eq!(run(&mut read, now, &options, op), run(&mut flow, now, &options, op));
        }
    }

    #[test]
    fn a_pool_stays_sane_at_any_moment_and_under_changing_options(
        steps in proptest::collection::vec((any::<u64>(), any_options(), any_op()), 1..60),
    ) {
        let mut flow = Flow::default();
        for (now, options, op) in steps {
            let now = UnixMs(now);
            run(&mut flow, now, &options, &op);
            let limit = flow.limit(now, &options, STATIC_MAX, STATIC_MAX);
            let floor = if options.active_adaptive().is_some() { 51.0 } else { f64::from(STATIC_MAX) };
            prop_assert!(floor <= limit && limit <= f64::from(STATIC_MAX), "{}", limit);
            let verdict = flow.peek(now, &options, None);
            prop_assert!(verdict.refusal.is_none() || options.is_enforced);
        }
        let text = serde_json::to_string(&flow).unwrap();
        prop_assert!(serde_json::from_str::<Flow>(&text).is_ok());
    }
}
