//! What the features of flow control do to a fleet under overload, by simulation. Relations are pinned, not numbers: those
//! change with every rule.

use std::sync::LazyLock;

use anyhow::Context as _;
use router_tests::simulation::setting::settings;
use router_tests::simulation::tally::Figures;
use router_tests::simulation::workload::Workload;
use router_tests::simulation::world;

const NO_AFFINITY: &str = "no affinity, static limits";
const STATIC: &str = "static limits";
const ADAPTIVE: &str = "adaptive limits";
const PRIORITY: &str = "adaptive, turn priority";

/// Every setting's figures.
fn run(seed: u64, sessions: usize, load_percent: u64) -> anyhow::Result<Vec<Figures>> {
    let workload = Workload::new(seed, sessions, load_percent);
    Ok(settings(&[])?.iter().map(|setting| world::run(&workload, setting).figures()).collect())
}

/// A setting's figures of one overloaded run, the same for every test.
fn overloaded(name: &str) -> anyhow::Result<&'static Figures> {
    static RUNS: LazyLock<Vec<Figures>> = LazyLock::new(|| run(1, 6000, 100).unwrap_or_default());
    RUNS.iter().find(|figures| figures.setting == name).context("no such setting")
}

fn after_turn(buckets: &[u64; 6], skipped: usize) -> u64 {
    buckets.iter().skip(skipped).sum()
}

#[test]
fn adaptive_limits_keep_answers_fast_where_static_ones_collapse() -> anyhow::Result<()> {
    let (fixed, adaptive) = (overloaded(STATIC)?, overloaded(ADAPTIVE)?);
    assert!(adaptive.ttft_p99_s < fixed.ttft_p99_s / 2.0, "{} {}", adaptive.ttft_p99_s, fixed.ttft_p99_s);
    assert!(adaptive.good_per_s > fixed.good_per_s, "{} {}", adaptive.good_per_s, fixed.good_per_s);
    assert!(adaptive.useful_tokens_per_s > fixed.useful_tokens_per_s);
    assert!(adaptive.hit_percent > fixed.hit_percent, "the engines' caches are not overrun");
    assert!(after_turn(&adaptive.refused, 0) > 0, "the control: there was something to refuse");
    Ok(())
}

#[test]
fn turn_priority_cuts_off_no_session_that_has_begun() -> anyhow::Result<()> {
    let (without, with) = (overloaded(ADAPTIVE)?, overloaded(PRIORITY)?);
    let from_turn_4 = |figures: &Figures| after_turn(&figures.refused, 2);
    assert!(from_turn_4(with) * 10 < from_turn_4(without), "{} {}", from_turn_4(with), from_turn_4(without));
    let cut_off = |figures: &Figures| after_turn(&figures.given_up, 1);
    assert!(cut_off(with) * 10 < cut_off(without), "{} {}", cut_off(with), cut_off(without));
    assert!(with.wasted_percent < without.wasted_percent);
    // Of all lengths, fewer sessions complete: those that would have been short are not begun.
    let long = |figures: &Figures| after_turn(&figures.completed, 4);
    assert!(long(with) > long(without), "{} {}", long(with), long(without));
    Ok(())
}

#[test]
fn sessions_that_stay_where_they_are_need_less_prefill() -> anyhow::Result<()> {
    let (off, on) = (overloaded(NO_AFFINITY)?, overloaded(STATIC)?);
    assert!(on.hit_percent > 5.0 * off.hit_percent, "{} {}", on.hit_percent, off.hit_percent);
    assert!(on.good_per_s > off.good_per_s);
    Ok(())
}

#[test]
fn no_backend_ever_holds_more_than_its_limit_nor_other_than_its_engine() -> anyhow::Result<()> {
    for name in [NO_AFFINITY, STATIC, ADAPTIVE, PRIORITY] {
        let figures = overloaded(name)?;
        assert_eq!(figures.faults, 0, "{name}");
        assert!(figures.most_in_flight <= 20 * 64, "{name}");
    }
    Ok(())
}

#[test]
fn half_the_load_is_served_alike_and_nothing_is_refused() -> anyhow::Result<()> {
    let mut figures = run(1, 3000, 50)?;
    figures.retain(|one| one.setting != NO_AFFINITY);
    assert_eq!(figures.len(), 3);
    for one in &mut figures {
        assert_eq!((after_turn(&one.refused, 0), after_turn(&one.given_up, 0)), (0, 0), "{}", one.setting);
        assert!(one.good_percent > 99.0, "{} {}", one.setting, one.good_percent);
        one.setting = "";
        one.overload_limit = 0.0;
    }
    figures.dedup();
    assert_eq!(figures.len(), 1, "{figures:#?}");
    Ok(())
}

#[test]
fn a_seed_gives_the_same_figures_again_and_another_gives_others() -> anyhow::Result<()> {
    let json = |seed| anyhow::Ok(serde_json::to_string(&run(seed, 1500, 120)?)?);
    assert_eq!(json(3)?, json(3)?);
    assert_ne!(json(3)?, json(4)?);
    Ok(())
}
