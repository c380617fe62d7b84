//! The writer, with the time passed in.

use std::fs;

use jiff::tz::TimeZone;
use tempfile::TempDir;

use super::*;
use crate::bodylog::frame::Contents;

struct Log {
    folder: TempDir,
    writer: Writer,
}

impl Log {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let places = Places::new(folder.path(), TimeZone::UTC);
        let writer = Writer::new(places, true, Arc::default(), Arc::default());
        Self { folder, writer }
    }

    fn keep(&mut self, id: &str, now: &str) -> io::Result<()> {
        self.writer.keep(&record(id, at(now)), at(now))
    }

    /// A file's request ids.
    fn ids(&self, path: &str) -> String {
        let text = fs::read_to_string(self.folder.path().join(path)).unwrap_or_default();
        let id = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["request_id"].to_string();
        text.lines().map(id).collect::<Vec<_>>().join(" ").replace('"', "")
    }

    fn metric(&self, name: &str) -> String {
        let text = self.writer.metrics.encode();
        text.lines().find_map(|line| line.strip_prefix(&format!("{name} "))).unwrap().to_owned()
    }
}

fn at(text: &str) -> Timestamp {
    format!("2026-06-{text}Z").parse().unwrap()
}

fn record(id: &str, now: Timestamp) -> Record {
    let meta = format!("{{\"request_id\":\"{id}\",\"status\":200}}");
    let frame = Contents { meta: meta.as_bytes(), request: b"", response: b"" };
    Record::new(&frame, [127, 0, 0, 1].into(), now, &TimeZone::UTC).unwrap()
}

#[test]
fn payloads_7_3_hours_and_days_by_the_time_of_writing() {
    let mut log = Log::new();
    for (id, now) in [("a", "17T22:59:59"), ("b", "17T23:00:00"), ("c", "17T23:59:59"), ("d", "18T00:00:00")] {
        log.keep(id, now).unwrap();
    }
    assert_eq!(log.ids("2026-06-17/22.jsonl"), "a");
    assert_eq!(log.ids("2026-06-17/23.jsonl"), "b c");
    assert_eq!(log.ids("2026-06-18/00.jsonl"), "d");
    assert_eq!(log.ids("metrics/details/2026-06-17.jsonl"), "a b c");
    assert_eq!(log.ids("metrics/details/2026-06-18.jsonl"), "d");
}

#[test]
fn a_clock_that_goes_back_writes_into_no_day_that_is_closed() {
    let mut log = Log::new();
    log.keep("a", "17T23:59:59").unwrap();
    let (done, mut closed) = oneshot::channel();
    log.writer.carry_out(Job::ClosePastDays(at("18T00:00:01"), done), at("18T00:00:01"));
    assert!(closed.try_recv().is_ok());
    log.keep("b", "17T23:59:58").unwrap();
    assert_eq!((log.ids("2026-06-17/23.jsonl").as_str(), log.ids("2026-06-18/00.jsonl").as_str()), ("a", "b"));
}

#[test]
fn a_restart_writes_into_no_day_that_was_packed_but_follows_a_clock_that_was_far_ahead() {
    let start = |packed: &[&str]| {
        let Log { folder, writer } = Log::new();
        for path in packed {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let mut log = Log { folder, writer: writer.after_packed_days().unwrap() };
        log.keep("a", "17T23:00:00").unwrap();
        log
    };
    assert_eq!(start(&["2026-06-16.jsonl.zst"]).ids("2026-06-17/23.jsonl"), "a");
    // Packed by a clock that was ahead, or in another zone.
    for packed in ["2026-06-17.jsonl.zst", "2026-06-17.tar.gz", "metrics/details/2026-06-17.2.jsonl.zst"] {
        let log = start(&[packed]);
        assert_eq!((log.ids("2026-06-17/23.jsonl").as_str(), log.ids("2026-06-18/00.jsonl").as_str()), ("", "a"));
        assert_eq!(log.ids("metrics/details/2026-06-18.jsonl"), "a");
    }
    assert_eq!(start(&["2027-06-17.jsonl.zst"]).ids("2026-06-17/23.jsonl"), "a");
}

#[test]
fn a_record_is_in_both_files_or_in_none_and_trouble_ends() {
    let mut log = Log::new();
    log.keep("a", "18T04:00:00").unwrap();
    // The details of the next day can't be written: a folder is in the way.
    let blocked = log.folder.path().join("metrics/details/2026-06-19.jsonl");
    fs::create_dir_all(&blocked).unwrap();
    let now = at("19T04:00:00");
    let unkept = |log: &Log, id: &str, now: Timestamp| Unkept::new(record(id, now), Arc::clone(&log.writer.metrics));
    let mut waits = unkept(&log, "b", now);
    for _ in 0..2 {
        let (done, mut written) = oneshot::channel();
        log.writer.carry_out(Job::Keep(waits, done), now);
        waits = written.try_recv().unwrap().expect("given back");
    }
    assert_eq!(log.metric("bodylog_collector_lost_records_total"), "0");
    // Given up by its connection.
    let (done, _) = oneshot::channel();
    log.writer.carry_out(Job::Keep(unkept(&log, "lost", now), done), now);
    assert_eq!(log.metric("bodylog_collector_lost_records_total"), "1");
    assert_eq!(log.ids("2026-06-19/04.jsonl"), "");
    assert_eq!(log.metric("bodylog_collector_write_errors_total"), "3");
    assert_eq!(
        (log.metric("bodylog_collector_writable"), log.metric("bodylog_exporter_lines_total")),
        ("0".into(), "1".into())
    );
    fs::remove_dir(&blocked).unwrap();
    let (done, mut written) = oneshot::channel();
    log.writer.carry_out(Job::Keep(waits, done), at("19T04:00:01"));
    assert!(written.try_recv().unwrap().is_none());
    assert_eq!(log.metric("bodylog_collector_lost_records_total"), "1");
    assert_eq!(
        (log.ids("2026-06-19/04.jsonl").as_str(), log.ids("metrics/details/2026-06-19.jsonl").as_str()),
        ("b", "b")
    );
    assert_eq!(log.metric("bodylog_collector_writable"), "1");
}

#[test]
fn payloads_8_2_the_length_of_the_details_and_half_lines_are_counted() {
    let mut log = Log::new();
    log.keep("a", "18T04:00:00").unwrap();
    let details = log.folder.path().join("metrics/details/2026-06-18.jsonl");
    let length = fs::metadata(&details).unwrap().len();
    assert_eq!(log.metric("bodylog_exporter_offset_bytes"), length.to_string());
    assert_eq!(log.metric("bodylog_exporter_recovery_total"), "0");
    // As a kill leaves both files.
    for path in [&details, &log.folder.path().join("2026-06-18/04.jsonl")] {
        fs::write(path, [&fs::read(path).unwrap()[..], b"{\"half"].concat()).unwrap();
    }
    let mut log = Log { writer: Writer::new(log.writer.places.clone(), true, Arc::default(), Arc::default()), ..log };
    log.keep("b", "18T04:00:01").unwrap();
    assert_eq!(log.metric("bodylog_exporter_recovery_total"), "2");
    assert_eq!(log.metric("bodylog_exporter_offset_bytes"), (2 * length).to_string());
    log.keep("c", "18T04:00:02").unwrap();
    assert_eq!(log.metric("bodylog_exporter_recovery_total"), "2");
}

#[test]
fn a_full_disk_loses_records_and_nothing_else() {
    let mut log = Log::new();
    let hour = log.folder.path().join("2026-06-18/04.jsonl");
    fs::create_dir_all(hour.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("/dev/full", &hour).unwrap();
    assert_eq!(log.keep("lost", "18T04:00:00").unwrap_err().kind(), io::ErrorKind::StorageFull);
    fs::remove_file(&hour).unwrap();
    log.keep("b", "18T04:00:01").unwrap();
    assert_eq!(
        (log.ids("2026-06-18/04.jsonl").as_str(), log.ids("metrics/details/2026-06-18.jsonl").as_str()),
        ("b", "b")
    );
}

#[test]
fn the_end_of_the_jobs_writes_all_minutes() {
    let log = Log::new();
    let folder = log.folder;
    let (jobs, waiting) = mpsc::channel(4);
    let (done, _written) = oneshot::channel();
    let unkept = Unkept::new(record("a", at("18T04:00:00")), Arc::clone(&log.writer.metrics));
    jobs.try_send(Job::Keep(unkept, done)).unwrap();
    jobs.try_send(Job::SaveMinutes).unwrap();
    drop(jobs);
    log.writer.run(waiting, || at("18T04:00:00"));
    let minutes = fs::read_to_string(folder.path().join("metrics/2026-06-18.jsonl")).unwrap();
    assert_eq!(minutes.lines().count(), 1);
    assert!(minutes.contains("\"requests\":1"));
}
