//! Rules of limits.md §9.3 to §9.5 and §10 for a pool with session priority.

use super::super::fixtures::{
    COLD, HOT, WARM, adaptive_options, assert_close, at, gate_options, is_refused, prio_gate_options, prio_options,
    set_tps, set_ttft,
};
use super::super::turn::TurnTable;
use super::*;

const NOW: UnixMs = UnixMs(1_000_000);
const UNKNOWN: Option<Bucket> = Some(Bucket { index: 5, is_known: false });

/// A pool whose TTFT EWMA is this, with a threshold of 30 000.
fn slow(ms: f64) -> (Flow, FlowOptions) {
    let options = prio_gate_options();
    let mut flow = Flow::default();
    set_ttft(&mut flow, NOW, &options, ms);
    (flow, options)
}

/// How many of nine requests get in.
fn admitted(flow: &mut Flow, now: UnixMs, options: &FlowOptions, bucket: Option<Bucket>) -> usize {
    (0..9).filter(|_| !is_refused(&flow.judge(now, options, bucket))).count()
}

#[test]
fn limits_9_3_the_reserve_is_what_the_bucket_s_share_leaves() {
    let options = prio_gate_options();
    for (bucket, share) in [(COLD, 0.85), (HOT, 1.0), (UNKNOWN, 1.0), (None, 1.0)] {
        assert_close(options.share(bucket), share);
    }
    assert_close(gate_options().share(COLD), 1.0);
}

#[test]
fn limits_9_3_a_refusal_by_the_reserve_counts_for_the_controller() {
    let options = FlowOptions { prio: Some(prio_options()), ..adaptive_options() };
    let mut flow = Flow::default();
    flow.over(NOW, &options, COLD);
    assert_eq!(flow.adaptive(NOW, &options, 128).unwrap().rej, 1);
    assert_eq!(flow.turn_counts().buckets()[0].over, 1);
}

#[test]
fn limits_9_4_tolerance_grows_with_warmth() {
    // Bucket 2 tolerates 1.2 times the threshold, the warmest 1.5 times.
    for (ms, cold, warm, hot) in [
        (29_999.0, 9, 9, 9),
        (30_000.0, 1, 9, 9),
        (35_999.0, 1, 9, 9),
        (36_000.0, 1, 5, 9),
        (44_999.0, 1, 5, 9),
        (45_000.0, 1, 5, 5),
    ] {
        for (bucket, expected) in [(COLD, cold), (WARM, warm), (HOT, hot), (UNKNOWN, hot)] {
            let (mut flow, options) = slow(ms);
            assert_eq!(admitted(&mut flow, NOW, &options, bucket), expected, "{ms} ms, {bucket:?}");
        }
        let (mut flow, _) = slow(ms);
        let plain = if ms < 30_000.0 { 9 } else { 5 };
        assert_eq!(admitted(&mut flow, NOW, &gate_options(), COLD), plain, "without priority a bucket is nothing");
        let (mut flow, options) = slow(ms);
        assert_eq!(admitted(&mut flow, NOW, &options, None), plain);
    }
}

#[test]
fn limits_9_4_a_refusal_names_the_threshold_itself() {
    let (mut flow, options) = slow(50_000.0);
    flow.judge(NOW, &options, COLD);
    let refusal = flow.judge(NOW, &options, COLD).refusal.unwrap();
    assert_eq!((refusal.gate, refusal.metric.as_str()), (LatencyGate::Ttft, "avg"));
    assert_close(refusal.ewma, 50_000.0);
    assert_close(refusal.threshold, 30_000.0);
}

#[test]
fn limits_9_4_turn_1_probes_only_where_no_warm_request_has() {
    let (mut flow, options) = slow(40_000.0);
    assert_eq!(admitted(&mut flow, NOW, &options, COLD), 1);
    assert_eq!(flow.probes_used(NOW, &options, LatencyGate::Ttft), (0, 1));
    assert_eq!(admitted(&mut flow, NOW, &options, WARM), 5, "turn 1 took none of the warm slots");
    assert_eq!(admitted(&mut flow, at(1009), &options, COLD), 0);
    // The next window: a warm one probes first.
    assert!(!is_refused(&flow.judge(at(1010), &options, WARM)));
    assert_eq!(admitted(&mut flow, at(1010), &options, COLD), 0);
    assert_eq!(flow.probes_used(at(1010), &options, LatencyGate::Ttft), (1, 0));
    assert_eq!(admitted(&mut flow, at(1020), &options, COLD), 1, "and in this one none did");
}

#[test]
fn limits_9_2_turn_1_has_as_many_probes_as_it_is_given() {
    for slots in [0, 3] {
        let (mut flow, mut options) = slow(50_000.0);
        options.prio = Some(PrioOptions { t1_probes: slots, ..prio_options() });
        assert_eq!(admitted(&mut flow, NOW, &options, COLD), slots as usize);
    }
}

#[test]
fn limits_9_4_turn_1_is_held_until_well_below() {
    let (mut flow, options) = slow(30_000.0);
    assert!(!flow.is_held(NOW, &options));
    flow.judge(NOW, &options, WARM);
    assert!(!flow.is_held(NOW, &options), "warm requests hold nobody");
    flow.judge(NOW, &options, COLD);
    assert!(flow.is_held(NOW, &options));
    // Below its line, not below the release line: held, and without a probe.
    set_ttft(&mut flow, at(1040), &options, 27_000.0);
    let verdict = flow.peek(at(1040), &options, COLD);
    assert!(verdict.would_trip_ttft && is_refused(&verdict));
    assert_eq!(admitted(&mut flow, at(1040), &options, COLD), 0);
    assert_eq!(flow.probes_used(at(1040), &options, LatencyGate::Ttft), (0, 0));
    assert_eq!(flow.judge(at(1040), &options, WARM), Verdict::default());
    // Below it: free, and free it stays when it comes back between the lines.
    set_ttft(&mut flow, at(1080), &options, 26_999.0);
    set_ttft(&mut flow, at(1120), &options, 29_000.0);
    assert_eq!(admitted(&mut flow, at(1120), &options, COLD), 9);
}

#[test]
fn limits_9_4_a_hold_ends_with_the_ewma_and_with_its_own_time() {
    let (mut flow, options) = slow(40_000.0);
    flow.judge(NOW, &options, COLD);
    assert_eq!(admitted(&mut flow, at(1060), &options, COLD), 1, "still tripped");
    assert_eq!(admitted(&mut flow, UnixMs(1_060_001), &options, COLD), 9, "no EWMA any more");
    // A new EWMA between the lines finds no hold, though the last trip was 40 seconds ago.
    set_ttft(&mut flow, at(1100), &options, 28_000.0);
    assert_eq!(admitted(&mut flow, at(1100), &options, COLD), 9);

    // The same when no request came by while there was none.
    let (mut flow, options) = slow(40_000.0);
    flow.judge(at(1059), &options, COLD);
    flow.record_ttft(at(1061), &options, 28_000.0);
    flow.record_ttft(at(1081), &options, 28_000.0);
    assert_eq!(flow.ttft_metrics(at(1081), &options)[0].ewma, Some(28_000.0));
    assert!(!flow.is_held(at(1081), &options));

    // The EWMA lives on by new folds; the hold does not.
    let (mut flow, options) = slow(40_000.0);
    flow.judge(NOW, &options, COLD);
    for seconds in [1030, 1060] {
        set_ttft(&mut flow, at(seconds), &options, 28_000.0);
        assert!(flow.is_held(at(seconds), &options));
    }
    assert!(!flow.is_held(UnixMs(1_060_001), &options));
    assert_eq!(admitted(&mut flow, UnixMs(1_060_001), &options, COLD), 9);
}

#[test]
fn limits_9_4_a_hold_ends_with_the_line_that_it_was_for() {
    let (mut flow, options) = slow(40_000.0);
    flow.judge(NOW, &options, COLD);
    let mut higher = options.clone();
    higher.ttft_metrics[0].threshold = Some(50_000.0);
    assert!(!flow.peek(NOW, &higher, COLD).would_trip_ttft);
    assert!(flow.is_held(NOW, &options), "a peek ends nothing");
    flow.judge(NOW, &higher, WARM);
    assert!(!flow.is_held(NOW, &options));
}

#[test]
fn limits_10_the_hold_is_neither_set_nor_cleared_with_the_master_switch_off() {
    let (mut flow, on) = slow(40_000.0);
    let off = FlowOptions { is_enforced: false, ..on.clone() };
    flow.judge(NOW, &off, COLD);
    assert!(!flow.is_held(NOW, &on));
    flow.judge(NOW, &on, COLD);
    set_ttft(&mut flow, at(1030), &off, 10_000.0);
    flow.judge(at(1030), &off, COLD);
    set_ttft(&mut flow, at(1060), &off, 28_000.0);
    assert!(flow.is_held(at(1060), &on), "what went below the release line and came back did not clear it");
    assert_eq!(flow.judge(at(1060), &off, COLD), Verdict { would_trip_ttft: true, ..Verdict::default() });
    assert!(is_refused(&flow.judge(at(1060), &on, COLD)));
    assert!(!flow.is_held(UnixMs(1_060_001), &on), "its time runs");
}

#[test]
fn limits_10_trips_are_counted_before_tolerance() {
    let (mut flow, on) = slow(31_000.0);
    let off = FlowOptions { is_enforced: false, ..on.clone() };
    assert_eq!(flow.judge(NOW, &off, HOT), Verdict { would_trip_ttft: true, ..Verdict::default() });
    assert_eq!(flow.trips().ttft, 1);
    assert_eq!(admitted(&mut flow, NOW, &on, HOT), 9, "its tolerance lets it through");
    let (mut flow, _) = slow(29_999.0);
    assert_eq!(flow.judge(NOW, &off, COLD), Verdict::default());
}

#[test]
fn limits_9_5_throughput_is_the_mirror_image_without_a_hold() {
    // The lines: 20 for turn 1, 20 / 1.2 for bucket 2, 20 / 1.5 for the warmest; all of them strict.
    let options = FlowOptions { tps_min_tokens: 1, ..prio_gate_options() };
    for (tps, cold, warm, hot) in
        [(20, 9, 9, 9), (19, 1, 9, 9), (17, 1, 9, 9), (16, 1, 5, 9), (14, 1, 5, 9), (13, 1, 5, 5)]
    {
        for (bucket, expected) in [(COLD, cold), (WARM, warm), (HOT, hot), (UNKNOWN, hot)] {
            let mut flow = Flow::default();
            set_tps(&mut flow, NOW, &options, tps);
            assert_eq!(admitted(&mut flow, NOW, &options, bucket), expected, "{tps} tok/s, {bucket:?}");
            assert!(!flow.is_held(NOW, &options));
            assert_eq!(flow.peek(NOW, &options, bucket).would_trip_tps, tps < 20, "at the threshold is not beyond it");
        }
    }
    let mut flow = Flow::default();
    set_tps(&mut flow, NOW, &options, 16);
    assert_eq!(admitted(&mut flow, NOW, &options, COLD), 1);
    assert_eq!(flow.probes_used(NOW, &options, LatencyGate::Tps), (0, 1));
    set_tps(&mut flow, at(1040), &options, 20);
    assert_eq!(admitted(&mut flow, at(1040), &options, COLD), 9, "nobody is held");
    // Without priority, at the threshold is tripped.
    assert_eq!(admitted(&mut flow, at(1040), &gate_options(), COLD), 5);
}

#[test]
fn a_table_of_one_row_has_no_turn_1() {
    let (mut flow, mut options) = slow(50_000.0);
    options.prio = Some(PrioOptions { table: TurnTable::by_doubling(0.85, 1, 1.5), ..prio_options() });
    assert_eq!(admitted(&mut flow, NOW, &options, COLD), 5);
    assert!(!flow.is_held(NOW, &options));
}

#[test]
fn factors_that_cannot_be_are_brought_into_range() {
    for value in [f64::NAN, 0.0, -1.0, f64::INFINITY] {
        let bad = PrioOptions { severe: value, release: value, ..prio_options() };
        assert!(bad.severe() >= 1.0 && bad.severe().is_finite(), "{value}");
        assert!(bad.release() > 0.0 && bad.release() <= 1.0, "{value}");
    }
    assert_close(prio_options().severe(), 1.5);
    assert_close(prio_options().release(), 0.9);
}

#[test]
fn requests_without_priority_are_not_counted() {
    let mut flow = Flow::default();
    flow.admitted(None);
    flow.refused(None);
    flow.counted_tokens(None, 10, 5);
    flow.over(NOW, &gate_options(), None);
    assert_eq!(flow, Flow::default());
    flow.admitted(HOT);
    flow.refused(UNKNOWN);
    flow.counted_tokens(HOT, 10, 5);
    assert_eq!(flow.turn_counts().buckets()[5].admitted, 1);
    assert_eq!(flow.turn_counts().buckets()[5].cached_tokens, 5);
    assert_eq!(flow.turn_counts().no_header().refused, 1);
    assert_eq!(flow.take_warning(NOW, &prio_options()), None);
}
