//! Pages of rows: nothing lost, nothing twice, whatever the files look like.

use std::fs::{self, File};

use jiff::tz::TimeZone;
use tempfile::TempDir;

use super::*;
use crate::bodylog::collector::names;

struct Log(TempDir, Index);

/// (day of June it was written, end time, request id, model)
type Row<'a> = (&'a str, &'a str, &'a str, &'a str);

impl Log {
    fn new(rows: &[Row<'_>]) -> Self {
        let log = Self(tempfile::tempdir().unwrap(), Index::default());
        let places = log.places();
        fs::create_dir_all(places.details_folder()).unwrap();
        for (day, ts_end, id, model) in rows {
            let path = places.details(format!("2026-06-{day}").parse().unwrap());
            let mut text = fs::read_to_string(&path).unwrap_or_default();
            let row = serde_json::json!({"ts_end": ts_end, "request_id": id, "model": model, "status": 200,
                "backend": "b", "peer": "p", "frt": 0.5, "rt": 2, "stream": true, "route": "chat", "key_id": "k",
                "refused": "rule:no"});
            text.extend([row.to_string(), "\n".to_owned()]);
            fs::write(path, text).unwrap();
        }
        log
    }

    fn places(&self) -> Places {
        Places::new(self.0.path(), TimeZone::UTC)
    }

    fn page(&self, query: &Query) -> Page {
        query.run(&self.places(), &self.1, &|| false).unwrap()
    }

    /// All pages, as ids and models.
    fn all(&self, query: &Query) -> Vec<String> {
        let (mut query, mut seen) = (query.clone(), Vec::new());
        for _ in 0..1000 {
            let page = self.page(&query);
            assert_eq!(page.count, page.rows.len());
            assert!(page.count <= query.limit);
            seen.extend(ids(&page));
            let Some(next) = page.next_cursor else {
                assert!(!page.truncated && page.hint.is_none());
                return seen;
            };
            assert!(page.truncated && page.returned_from.is_some() && page.returned_to.is_some());
            query.cursor = Some(Cursor::decode(&next).unwrap());
        }
        panic!("pages without end");
    }
}

fn ids(page: &Page) -> Vec<String> {
    let row = |row: &RawValue| serde_json::from_str::<serde_json::Value>(row.get()).unwrap();
    let id = |value: serde_json::Value| {
        format!("{}{}", value["request_id"].as_str().unwrap(), value["model"].as_str().unwrap())
    };
    page.rows.iter().map(|text| id(row(text))).collect()
}

fn query(start: &str, end: &str, limit: usize) -> Query {
    Query {
        start: format!("2026-06-{start}Z").parse().unwrap(),
        end: format!("2026-06-{end}Z").parse().unwrap(),
        cursor: None,
        model: None,
        peer: None,
        status: None,
        route: None,
        key: None,
        refused: None,
        min_frt: None,
        min_rt: None,
        stream: None,
        limit,
    }
}

#[test]
fn payloads_7_6_the_window_is_half_open_and_rows_are_in_order_over_files_and_offsets() {
    let log = Log::new(&[
        ("17", "2026-06-17T23:59:00.000+00:00", "early", ""),
        ("18", "2026-06-18T12:00:00.000+08:00", "b", ""),
        ("18", "2026-06-18T04:00:00.000+00:00", "a", ""),
        ("18", "2026-06-18T03:59:59.999+00:00", "c", ""),
        ("19", "2026-06-18T23:59:59.000+00:00", "written a day later", ""),
        ("18", "2026-06-19T00:00:00.000+00:00", "end", ""),
    ]);
    let day = query("18T00:00:00", "19T00:00:00", 100);
    assert_eq!(log.all(&day), ["c", "a", "b", "written a day later"]);
    // A replica whose clock is ahead wrote into the day before.
    let ahead = query("19T00:00:00", "19T01:00:00", 100);
    assert_eq!(log.all(&ahead), ["end"]);
    assert!(log.all(&query("20T00:00:00", "21T00:00:00", 5)).is_empty());
}

#[test]
fn no_page_size_loses_or_repeats_a_row_with_equal_times_or_ids() {
    let time = "2026-06-18T04:00:00.000+00:00";
    let mut rows: Vec<Row<'_>> = Vec::new();
    let models: Vec<String> = (0..7).map(|index| index.to_string()).collect();
    for model in &models {
        rows.push(("18", time, "", model));
        rows.push(("19", time, "same", model));
        rows.push(("18", time, model, "x"));
    }
    rows.push(("18", "2026-06-18T03:00:00.000+00:00", "first", ""));
    rows.push(("18", "2026-06-18T05:00:00.000+00:00", "last", ""));
    let log = Log::new(&rows);
    let whole = log.all(&query("18T00:00:00", "19T00:00:00", 5000));
    assert_eq!(whole.len(), rows.len());
    for limit in 1..=rows.len() + 1 {
        assert_eq!(log.all(&query("18T00:00:00", "19T00:00:00", limit)), whole, "{limit}");
    }
    // The same with a filter: only what matches counts.
    let filtered = Query { model: Some("3".to_owned()), ..query("18T00:00:00", "19T00:00:00", 1) };
    assert_eq!(log.all(&filtered), ["3", "same3"]);
}

#[test]
fn a_packed_day_gives_the_same_pages() {
    let time = |index: usize| format!("2026-06-18T04:00:{:02}.000+00:00", index / 3);
    let times: Vec<String> = (0..60).map(time).collect();
    let names: Vec<String> = (0..60).map(|index| (index % 2).to_string()).collect();
    let rows: Vec<Row<'_>> =
        times.iter().zip(&names).map(|(time, name)| ("18", time.as_str(), name.as_str(), "m")).collect();
    let log = Log::new(&rows);
    let ask = query("18T00:00:00", "19T00:00:00", 7);
    let before = log.all(&ask);
    assert_eq!(before.len(), 60);
    let places = log.places();
    let day = "2026-06-18".parse().unwrap();
    let packed = zstd::encode_all(File::open(places.details(day)).unwrap(), 3).unwrap();
    fs::write(names::packed(&places.details_folder(), day, 1), packed).unwrap();
    assert_eq!(log.all(&ask), before, "while both are there, one of them counts");
    fs::remove_file(places.details(day)).unwrap();
    assert_eq!(log.all(&ask), before);
}

#[test]
fn a_day_that_was_packed_and_written_to_again_shows_both_parts() {
    let log = Log::new(&[("18", "2026-06-18T04:00:00.000+00:00", "a", "")]);
    let (places, day) = (log.places(), "2026-06-18".parse().unwrap());
    let folder = places.details_folder();
    let ask = query("18T00:00:00", "19T00:00:00", 1);
    let pack = |number| {
        let packed = zstd::encode_all(File::open(places.details(day)).unwrap(), 3).unwrap();
        fs::write(names::packed(&folder, day, number), packed).unwrap();
    };
    pack(1);
    for (number, id, before) in [(2, "b", "a"), (3, "c", "a b")] {
        let row = format!("{{\"ts_end\":\"2026-06-18T05:00:00Z\",\"request_id\":\"{id}\",\"model\":\"\"}}\n");
        fs::write(places.details(day), row).unwrap();
        let all = format!("{before} {id}");
        assert_eq!(log.all(&ask).join(" "), all);
        pack(number);
        assert_eq!(log.all(&ask).join(" "), all, "while both are there, one of them counts");
        fs::remove_file(places.details(day)).unwrap();
        assert_eq!(log.all(&ask).join(" "), all);
    }
}

#[test]
fn a_wide_window_visits_the_days_that_exist() {
    let log = Log::new(&[("18", "2026-06-18T04:00:00.000+00:00", "a", "")]);
    let day = "2026-06-18".parse().unwrap();
    let days = |first: &str, last: &str| {
        let days = days::there_are(&log.places(), first.parse().unwrap(), last.parse().unwrap()).unwrap();
        days.into_keys().collect::<Vec<_>>()
    };
    assert_eq!(days("-009999-01-01", "9999-12-31"), [day]);
    assert!(days("2026-06-19", "9999-12-31").is_empty() && days("-009999-01-01", "2026-06-17").is_empty());
    let ever = Query { start: Timestamp::MIN, end: Timestamp::MAX, ..query("18T00:00:00", "19T00:00:00", 9) };
    assert_eq!(log.all(&ever), ["a"]);
    fs::remove_dir_all(log.places().root()).unwrap();
    assert!(log.all(&ever).is_empty());
}

#[test]
fn pages_over_many_blocks_are_whole_and_a_full_page_reads_no_further() {
    let times: Vec<String> =
        (0..9000).map(|index| format!("2026-06-18T{:02}:{:02}:00.000+00:00", index % 24, index % 60)).collect();
    let rows: Vec<Row<'_>> = times.iter().map(|time| ("18", time.as_str(), "same", "m")).collect();
    let log = Log::new(&[]);
    let path = log.places().details("2026-06-18".parse().unwrap());
    let text = rows.iter().map(|(_, end, id, model)| {
        format!(
            "{{\"ts_end\":\"{end}\",\"request_id\":\"{id}\",\"model\":\"{model}\",\"uri\":\"{}\"}}\n",
            "x".repeat(100)
        )
    });
    fs::write(&path, text.collect::<String>()).unwrap();
    for _ in 0..2 {
        assert_eq!(log.all(&query("18T00:00:00", "19T00:00:00", 1000)).len(), 9000);
        assert_eq!(log.all(&query("18T06:00:00", "18T12:00:00", 1000)).len(), 9000 / 4);
    }
    // A broken file of a later day is not even opened once the page is full.
    fs::write(names::packed(&log.places().details_folder(), "2026-06-20".parse().unwrap(), 1), "no zstd").unwrap();
    let ask = query("18T00:00:00", "21T00:00:00", 1000);
    assert!(log.page(&ask).truncated);
    let rest = Query { limit: 5000, start: "2026-06-18T23:00:00Z".parse().unwrap(), ..ask };
    assert!(rest.run(&log.places(), &log.1, &|| false).is_err(), "the control: here it is opened");
}

#[test]
fn payloads_7_6_filters_take_what_they_say() {
    let log = Log::new(&[("18", "2026-06-18T04:00:00.000+00:00", "r", "m")]);
    let all = query("18T00:00:00", "19T00:00:00", 10);
    let count = |query: Query| log.page(&query).count;
    assert_eq!(count(all.clone()), 1);
    let by = |refused| Query { refused: Some(refused), ..all.clone() };
    for (taken, left) in [
        (Query { model: Some("m".into()), ..all.clone() }, Query { model: Some("M".into()), ..all.clone() }),
        (Query { peer: Some("b".into()), ..all.clone() }, Query { peer: Some("x".into()), ..all.clone() }),
        (Query { peer: Some("p".into()), ..all.clone() }, Query { peer: Some(String::new()), ..all.clone() }),
        (Query { status: Some(200), ..all.clone() }, Query { status: Some(0), ..all.clone() }),
        (Query { min_frt: Some(0.5), ..all.clone() }, Query { min_frt: Some(0.51), ..all.clone() }),
        (Query { min_rt: Some(2.0), ..all.clone() }, Query { min_rt: Some(2.1), ..all.clone() }),
        (Query { route: Some("chat".into()), ..all.clone() }, Query { route: Some("c".into()), ..all.clone() }),
        (Query { key: Some("k".into()), ..all.clone() }, Query { key: Some("K".into()), ..all.clone() }),
        (by(RefusedBy::Any), by(RefusedBy::This("rule".into()))),
        (by(RefusedBy::AnyRule), by(RefusedBy::This("queue_full".into()))),
        (by(RefusedBy::This("rule:no".into())), by(RefusedBy::This(String::new()))),
        (Query { stream: Some(Stream::Yes), ..all.clone() }, Query { stream: Some(Stream::Unknown), ..all.clone() }),
    ] {
        assert_eq!((count(taken.clone()), count(left)), (1, 0), "{taken:?}");
    }
    assert!(!RefusedBy::Any.is("") && RefusedBy::Any.is("queue_full") && !RefusedBy::AnyRule.is("queue_full"));
}

#[test]
fn broken_rows_are_passed_over_and_older_ones_have_no_end_time() {
    let log = Log::new(&[("18", "2026-06-18T04:00:01.000+00:00", "r", "")]);
    let path = log.places().details("2026-06-18".parse().unwrap());
    let mut text = fs::read_to_string(&path).unwrap();
    text.push_str("nonsense\n[]\n{\"ts_end\":7}\n{}\n{\"ts\":\"2026-06-18T04:00:00Z\",\"rt\":0.5,\"request_id\":\"old\",\"model\":\"\"}\n");
    text.push_str("{\"ts\":\"2026-06-18T04:00:00Z\",\"rt\":1e40,\"request_id\":\"never\"}\n{\"half");
    fs::write(path, text).unwrap();
    assert_eq!(log.all(&query("18T00:00:00", "19T00:00:00", 1)), ["old", "r"]);
}

#[test]
fn a_caller_that_left_ends_the_reading() {
    let log = Log::new(&[("18", "2026-06-18T04:00:00.000+00:00", "r", "")]);
    let ask = query("18T00:00:00", "19T00:00:00", 1);
    assert_eq!(ask.run(&log.places(), &log.1, &|| true).unwrap_err().kind(), io::ErrorKind::Interrupted);
}
