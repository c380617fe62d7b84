//! Sums by minute, their files, and late arrivals.

use std::fs;

use tempfile::TempDir;

use super::*;
use crate::bodylog::collector::summary::summary;
use crate::bodylog::zone;

fn at(text: &str) -> Timestamp {
    format!("2026-06-{text}Z").parse().unwrap()
}

fn row(status: u16, rt: f64, frt: f64) -> Details {
    let (backend, stream) = ("b:1".to_owned(), Some(true));
    Details { status, rt, frt, backend, stream, prompt_tokens: 10, total_tokens: 12, ..Details::default() }
}

fn places(folder: &TempDir) -> Places {
    Places::new(folder.path(), zone::parse("Asia/Shanghai").unwrap())
}

/// As the writer does it.
fn save(minutes: &mut Minutes, places: &Places, now: Timestamp, all: bool) {
    for (day, unsaved) in minutes.take_unsaved(places, now, all) {
        crate::bodylog::collector::files::Lines::open(&places.minutes(day)).unwrap().append(&unsaved.lines).unwrap();
    }
}

fn file(folder: &TempDir, day: &str) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(folder.path().join(format!("metrics/{day}.jsonl"))).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn totals(minutes: &Minutes) -> Vec<(Key, Sums)> {
    minutes.totals.iter().map(|(key, sums)| (key.clone(), *sums)).collect()
}

#[test]
fn payloads_7_5_minutes_are_written_once_they_settled_and_late_ones_add_up() {
    let folder = tempfile::tempdir().unwrap();
    let places = places(&folder);
    let mut minutes = Minutes::default();
    let now = at("18T15:59:30");
    minutes.count(&row(200, 2.0, 0.5), at("18T15:59:10"), now);
    minutes.count(&row(429, 1.0, 0.0), at("18T15:59:20"), now);
    save(&mut minutes, &places, now, false);
    assert!(file(&folder, "2026-06-18").is_empty(), "not settled");
    // In Shanghai the next minute is the next day.
    minutes.count(&row(503, 0.25, 0.125), at("18T16:00:00"), now);
    save(&mut minutes, &places, at("18T16:02:31"), false);
    assert_eq!(
        file(&folder, "2026-06-18"),
        [serde_json::json!({"minute": "2026-06-18T23:59:00.000+08:00", "peer": "b:1", "stream": "true", "requests": 2,
            "status_2xx": 1, "status_4xx": 1, "status_5xx": 0, "prompt_tok": 20, "cached_tok": 0, "compl_tok": 0,
            "total_tok": 24, "req_bytes": 0, "resp_bytes": 0, "rt_sum_ms": 3000, "rt_max_ms": 2000, "frt_sum_ms": 500,
            "frt_max_ms": 500, "frt_n": 1})]
    );
    assert_eq!(file(&folder, "2026-06-19").len(), 1);
    // A late one is a line of its own, its first-chunk times with it.
    minutes.count(&row(200, 4.0, 0.75), at("18T15:59:40"), at("18T16:10:00"));
    save(&mut minutes, &places, at("18T16:10:00"), false);
    save(&mut minutes, &places, at("18T16:11:00"), false);
    let lines = file(&folder, "2026-06-18");
    assert_eq!((lines.len(), &lines[1]["requests"], &lines[1]["frt_max_ms"]), (2, &1.into(), &750.into()));

    let loaded = Minutes::load(&places, at("18T16:12:00")).unwrap();
    assert_eq!(totals(&loaded), totals(&minutes));
    assert_eq!(totals(&loaded)[0].1.requests, 3);
    assert_eq!((totals(&loaded)[0].1.rt_max_ms, totals(&loaded)[0].1.frt_sum_ms), (4000, 1250));
    assert!(loaded.unsaved.is_empty());
}

#[test]
fn a_stop_writes_all_and_what_could_not_be_written_is_not_lost() {
    let folder = tempfile::tempdir().unwrap();
    let places = places(&folder);
    let mut minutes = Minutes::default();
    let now = at("18T04:00:30");
    minutes.count(&row(200, 1.0, 0.5), now, now);
    for (_, unsaved) in minutes.take_unsaved(&places, now, true) {
        minutes.put_back(unsaved);
    }
    minutes.count(&row(200, 1.0, 0.5), now, now);
    save(&mut minutes, &places, now, true);
    assert_eq!(file(&folder, "2026-06-18")[0]["requests"], 2);
    assert_eq!(totals(&Minutes::load(&places, now).unwrap()), totals(&minutes));
}

#[test]
fn broken_lines_and_old_days_are_not_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let places = places(&folder);
    fs::create_dir(folder.path().join("metrics")).unwrap();
    let line = |day: &str| {
        format!("{{\"minute\":\"2026-06-{day}T12:00:00+08:00\",\"peer\":\"p\",\"stream\":\"\",\"requests\":1}}\n")
    };
    fs::write(folder.path().join("metrics/2026-06-10.jsonl"), line("10")).unwrap();
    fs::write(
        folder.path().join("metrics/2026-06-18.jsonl"),
        format!("{}nonsense\n{{}}\n{}half", line("18"), line("18")),
    )
    .unwrap();
    let loaded = Minutes::load(&places, at("18T12:00:00")).unwrap();
    assert_eq!(totals(&loaded).len(), 1);
    assert_eq!(totals(&loaded)[0].1, Sums { requests: 2, ..Sums::default() });
}

#[test]
fn memory_holds_seven_days_of_believable_minutes_and_not_more_backends_than_it_should() {
    let mut minutes = Minutes::default();
    let now = at("18T12:00:00");
    for end in ["01T00:00:00", "18T12:06:00", "11T11:59:59"] {
        minutes.count(&row(200, 1.0, 0.5), at(end), now);
    }
    assert_eq!(totals(&minutes).len(), 1, "what is no believable time counts now");
    minutes.count(&row(200, 1.0, 0.5), at("11T12:00:00"), now);
    assert_eq!(totals(&minutes).len(), 2);
    let folder = tempfile::tempdir().unwrap();
    minutes.take_unsaved(&places(&folder), at("18T13:00:00"), true);
    assert_eq!(totals(&minutes).len(), 1, "the oldest is forgotten");
    for index in 0..MOST_BACKENDS + 10 {
        minutes.count(&Details { backend: format!("b{index}"), ..row(200, 1.0, 0.5) }, now, now);
    }
    assert_eq!(totals(&minutes).len(), MOST_BACKENDS + 1);
    let other = totals(&minutes).into_iter().find(|(key, _)| &*key.peer == OTHER).unwrap();
    assert_eq!(other.1.requests, 11);
}

#[test]
fn payloads_7_6_summary() {
    let mut minutes = Minutes::default();
    let now = at("18T04:10:30");
    minutes.count(&row(200, 2.0, 0.5), at("18T04:09:00"), now);
    minutes.count(&Details { stream: None, ..row(500, 1.0, 0.0) }, at("18T04:09:30"), now);
    minutes.count(&Details { stream: Some(false), ..row(200, 1.0, 0.0) }, at("18T04:08:30"), now);
    minutes.count(&row(200, 9.0, 9.0), at("18T04:04:00"), now);
    let zone = zone::parse("UTC").unwrap();
    let ask =
        |stream, with_buckets| serde_json::to_value(summary(&minutes, now, 5, stream, with_buckets, &zone)).unwrap();
    let all = ask(None, true);
    assert_eq!(
        (&all["from"], &all["to"]),
        (&"2026-06-18T04:05:30.000+00:00".into(), &"2026-06-18T04:10:30.000+00:00".into())
    );
    assert_eq!(
        all["peers"],
        serde_json::json!([{"peer": "b:1", "requests": 3, "status_2xx": 2, "status_4xx": 0, "status_5xx": 1,
            "prompt_tokens": 30, "cached_tokens": 0, "completion_tokens": 0, "total_tokens": 36, "req_body_bytes": 0,
            "resp_body_bytes": 0, "rt_avg_ms": 1333, "rt_max_ms": 2000, "frt_avg_ms": 500, "frt_max_ms": 500, "frt_n": 1}])
    );
    let buckets = all["buckets"].as_array().unwrap();
    assert_eq!(buckets.len(), 2);
    assert_eq!((&buckets[1]["minute"], &buckets[1]["requests"]), (&"2026-06-18T04:09:00.000+00:00".into(), &2.into()));
    assert_eq!(ask(Some(true), false)["peers"][0]["requests"], 1);
    assert_eq!(ask(Some(false), true)["buckets"].as_array().unwrap().len(), 1);
    assert!(ask(None, false).get("buckets").is_none());
}
