//! Sums by minute, their files, and late arrivals.

use std::fs;

use parking_lot::Mutex;
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
    for (day, unsaved) in by_day(minutes.take_unsaved(now, all), places) {
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
    for (_, unsaved) in by_day(minutes.take_unsaved(now, true), &places) {
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
    minutes.take_unsaved(at("18T13:00:00"), true);
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
    let minutes = Mutex::new(minutes);
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

#[test]
fn a_long_summary_comes_in_pieces_and_shows_the_newest_minutes_whole() {
    let mut minutes = Minutes::default();
    let now = at("18T12:00:00");
    let ends: Vec<Timestamp> = (0..1500).map(|minute| now - SignedDuration::from_mins(minute)).collect();
    for (end, peer) in ends.iter().flat_map(|end| (0..7).map(move |peer| (end, peer))) {
        minutes.count(&Details { backend: format!("b{peer}"), ..row(200, 1.0, 0.5) }, *end, now);
    }
    let (mut after, mut pieces) = (None, Vec::new());
    loop {
        let piece = minutes.piece(ends[1499], after.as_ref());
        let Some((last, _)) = piece.last() else { break };
        after = Some(last.clone());
        pieces.push(piece.len());
    }
    assert_eq!(pieces, [PIECE, PIECE, 10_500 - 2 * PIECE]);
    let minutes = Mutex::new(minutes);
    let ask =
        |back| serde_json::to_value(summary(&minutes, now, back, None, true, &zone::parse("UTC").unwrap())).unwrap();
    let all = ask(1500);
    assert!(all["peers"].as_array().unwrap().iter().all(|peer| peer["requests"] == 1500), "the sums have all");
    let buckets = all["buckets"].as_array().unwrap();
    assert_eq!((buckets.len(), &all["truncated"]), (142 * 7, &true.into()), "whole minutes, 1000 buckets at most");
    assert_eq!(buckets.last().unwrap()["minute"], "2026-06-18T12:00:00.000+00:00");
    let few = ask(100);
    assert_eq!((few["buckets"].as_array().unwrap().len(), few.get("truncated")), (101 * 7, None));
}

#[test]
fn memory_is_bounded_by_the_sums_too_and_a_summary_says_what_is_lacking() {
    let mut minutes = Minutes::default();
    let now = at("18T12:00:00");
    let back = |minutes: i64| now - SignedDuration::from_mins(minutes);
    for end in (0..100).rev() {
        for peer in 0..MOST_ENTRIES / 50 {
            minutes.count(&Details { backend: format!("b{peer}"), ..row(200, 1.0, 0.5) }, back(end), now);
        }
    }
    assert_eq!((minutes.totals.len(), minutes.unsaved.len()), (MOST_ENTRIES, MOST_ENTRIES));
    assert!(minutes.lacks_some_since(back(50)) && !minutes.lacks_some_since(back(49)));
    let unsaved = by_day(minutes.take_unsaved(now, true), &places(&tempfile::tempdir().unwrap()));
    minutes.count(&row(200, 1.0, 0.5), back(60), now);
    for (_, unsaved) in unsaved {
        minutes.put_back(unsaved);
    }
    assert_eq!(minutes.unsaved.len(), MOST_ENTRIES);
    let minutes = Mutex::new(minutes);
    let truncated = |minutes: &Mutex<Minutes>, back| {
        summary(minutes, now, back, None, false, &zone::parse("UTC").unwrap());
        serde_json::to_value(summary(minutes, now, back, None, false, &zone::parse("UTC").unwrap())).unwrap()["truncated"]
            == true
    };
    assert!(truncated(&minutes, 99) && !truncated(&minutes, 10));
}

/// What a process had counted and written when it was killed.
struct Killed {
    folder: TempDir,
    minutes: Minutes,
}

impl Killed {
    fn count(&mut self, status: u16, end: &str) {
        let end = at(end);
        let ts_end = crate::bodylog::zone::stamp(end, places(&self.folder).zone());
        let details = Details { ts_end, stored_resp_bytes: 7, ..row(status, 1.5, 0.25) };
        self.minutes.count(&details, end, end);
        let places = places(&self.folder);
        let mut rows = crate::bodylog::collector::files::Lines::open(&places.details(places.day(end))).unwrap();
        rows.append(&details.line()).unwrap();
    }

    fn save(&mut self, now: &str, all: bool) {
        save(&mut self.minutes, &places(&self.folder), at(now), all);
    }

    /// As a new process counts it, but for the length of answers; and saves it.
    fn is_counted_again(&mut self, now: &str) {
        let clean = |minutes: &Minutes| {
            let totals = totals(minutes).into_iter();
            totals.map(|(key, sums)| (key, Sums { resp_bytes: 0, ..sums })).collect::<Vec<_>>()
        };
        let mut loaded = Minutes::load(&places(&self.folder), at(now)).unwrap();
        assert_eq!(clean(&loaded), clean(&self.minutes));
        // And once only, whether it is saved now or killed again.
        assert_eq!(clean(&Minutes::load(&places(&self.folder), at(now)).unwrap()), clean(&self.minutes));
        save(&mut loaded, &places(&self.folder), at(now), true);
        let saved = Minutes::load(&places(&self.folder), at(now)).unwrap();
        assert_eq!(clean(&saved), clean(&self.minutes));
        assert!(saved.unsaved.is_empty());
        self.minutes.unsaved.clear();
    }
}

#[test]
fn a_kill_loses_no_minutes() {
    let mut log = Killed { folder: tempfile::tempdir().unwrap(), minutes: Minutes::default() };
    log.count(200, "18T11:50:00");
    log.is_counted_again("18T11:50:01");
    let mut log = Killed { folder: tempfile::tempdir().unwrap(), minutes: Minutes::default() };
    log.count(200, "18T12:00:10");
    log.count(500, "18T12:00:20");
    log.save("18T12:03:00", false);
    // A late one of a minute that was saved, one in a minute that has others, one of the next day in Shanghai.
    log.count(429, "18T12:00:30");
    log.count(200, "18T12:04:00");
    log.count(200, "18T16:00:00");
    log.is_counted_again("18T16:00:30");
    // A stop saves the running minute, which goes on after it.
    log.save("18T16:00:30", true);
    log.count(200, "18T16:00:40");
    log.is_counted_again("18T16:00:50");
}

#[test]
fn a_backend_that_was_summed_as_other_is_not_counted_again_by_its_name() {
    let mut log = Killed { folder: tempfile::tempdir().unwrap(), minutes: Minutes::default() };
    let now = at("18T12:00:00");
    for index in 0..MOST_BACKENDS {
        log.minutes.count(&Details { backend: format!("b{index}"), ..row(200, 1.0, 0.5) }, now, now);
    }
    log.count(200, "18T12:00:10");
    log.save("18T12:00:20", true);
    // Room is there again: the names of the files are fewer.
    let minutes = log.folder.path().join("metrics/2026-06-18.jsonl");
    let few = fs::read_to_string(&minutes).unwrap();
    let few: Vec<&str> = few.lines().filter(|line| !line.contains("\"b9")).collect();
    fs::write(&minutes, few.join("\n") + "\n").unwrap();
    let loaded = Minutes::load(&places(&log.folder), at("18T12:00:30")).unwrap();
    assert!(loaded.unsaved.is_empty() && loaded.totals.keys().any(|key| &*key.peer == OTHER));
}

#[test]
fn damaged_details_keep_nobody_from_starting() {
    let mut log = Killed { folder: tempfile::tempdir().unwrap(), minutes: Minutes::default() };
    log.count(200, "18T12:00:10");
    log.save("18T12:00:20", true);
    let places = places(&log.folder);
    fs::write(places.details_folder().join("2026-06-18.jsonl.zst"), "no zstd").unwrap();
    assert_eq!(totals(&Minutes::load(&places, at("18T12:00:30")).unwrap()), totals(&log.minutes));
}

#[test]
fn rebuilding_starts_near_the_end_of_a_long_day_and_takes_packed_days_too() {
    let mut log = Killed { folder: tempfile::tempdir().unwrap(), minutes: Minutes::default() };
    log.count(200, "18T10:00:00");
    let places = places(&log.folder);
    let path = places.details(places.day(at("18T10:00:00")));
    let line = fs::read_to_string(&path).unwrap();
    // The rows of hours that were saved, of which the files of minutes know nothing here: they are not even read.
    let saved = line.repeat(20_000);
    fs::write(&path, &saved).unwrap();
    fs::write(log.folder.path().join("metrics/2026-06-18.jsonl"), "").unwrap();
    log.minutes = Minutes::default();
    log.count(200, "18T14:00:00");
    log.save("18T14:00:30", true);
    log.count(200, "18T14:01:00");
    let start = rebuild::start_of(&fs::File::open(&path).unwrap(), at("18T13:50:00")).unwrap();
    let start = usize::try_from(start).unwrap();
    assert!(start > saved.len() - (2 << 20) && start <= saved.len() && start % line.len() == 0, "{start}");
    log.is_counted_again("18T14:01:30");
    log.count(500, "18T14:02:00");
    let packed = zstd::encode_all(fs::File::open(&path).unwrap(), 1).unwrap();
    fs::write(path.with_extension("jsonl.zst"), packed).unwrap();
    for _ in 0..2 {
        log.is_counted_again("18T14:02:30");
        let _ = fs::remove_file(&path);
    }
}
