//! 37 to 40: session turn priority. What is admitted by share, 34 to 36, is tested in `admit`.

use crate::flow::fixtures::*;
use crate::flow::options::FlowOptions;
use crate::flow::pool_flow::Flow;
use crate::flow::turn::{Bucket, PrioOptions, TurnRow, TurnTable, parse_turn_header};

/// Priority whose warm bucket would tolerate more than `severe`.
fn lenient() -> FlowOptions {
    let row = |min_turn, tol| TurnRow { min_turn, share: 1.0, tol };
    let table = TurnTable::from_rows(vec![row(1, 1.0), row(2, 9.0)]).unwrap();
    FlowOptions { prio: Some(PrioOptions { table, ..prio_options() }), ..gate_options() }
}

#[test]
fn example_37_hard_line_and_release_line() {
    let options = lenient();
    let warm = Some(Bucket { index: 1, is_known: true });
    let trips = |ms: f64| {
        let mut flow = Flow::default();
        set_ttft(&mut flow, at(1000), &options, ms);
        (0..6).any(|_| is_refused(&flow.judge(at(1000), &options, warm)))
    };
    assert!(!trips(44_999.0));
    assert!(trips(45_000.0));

    let mut flow = Flow::default();
    set_ttft(&mut flow, at(1000), &options, 30_000.0);
    flow.judge(at(1000), &options, COLD);
    assert!(flow.is_held(at(1000), &options));
    set_ttft(&mut flow, at(1040), &options, 27_000.0);
    assert!(flow.is_held(at(1040), &options));
    set_ttft(&mut flow, at(1080), &options, 26_999.0);
    assert!(!flow.is_held(at(1080), &options));
}

#[test]
fn example_38_the_hard_line_of_throughput() {
    let options = FlowOptions { tps_min_tokens: 1, ..lenient() };
    let warm = Some(Bucket { index: 1, is_known: true });
    let trips = |tokens: u32| {
        let mut flow = Flow::default();
        for now in [at(980), at(1000)] {
            flow.record_answer(now, &options, &answer(tokens, secs(100)));
        }
        (0..6).any(|_| is_refused(&flow.judge(at(1000), &options, warm)))
    };
    assert!(!trips(1334), "13.34 tokens per second");
    assert!(trips(1333), "13.33 tokens per second");
}

#[test]
fn example_39_buckets_of_turns() {
    let table = TurnTable::by_doubling(0.85, 32, 1.5);
    for (turn, index) in [(1, 0), (3, 1), (7, 2), (8, 3), (31, 4), (32, 5), (1_000_000_000, 5)] {
        assert_eq!(table.bucket_of(Some(turn)), Bucket { index, is_known: true }, "turn {turn}");
    }
}

#[test]
fn example_40_headers_that_cannot_be_used() {
    let table = TurnTable::by_doubling(0.85, 32, 1.5);
    let header = |id: &str, turn: &str| parse_turn_header(&format!(r#"{{"session_id": "{id}", "turn": {turn}}}"#));
    for (id, turn) in
        [("s", "0"), ("s", "-1"), ("s", "1.5"), ("s", "1000000001"), ("  ", "1"), ("x".repeat(257).as_str(), "1")]
    {
        let turn = header(id, turn).map(|header| header.turn);
        assert_eq!(table.bucket_of(turn), Bucket { index: 5, is_known: false });
    }
    let usable = header(&"x".repeat(256), "1").unwrap();
    assert_eq!(table.bucket_of(Some(usable.turn)), Bucket { index: 0, is_known: true });
}
