//! Day change, packing and retention, with the day passed in.

use std::os::unix::fs::PermissionsExt as _;

use jiff::tz::TimeZone;
use tempfile::TempDir;

use super::*;

const KEEP: Keep = Keep { full: 3, details: 5 };

struct Log(TempDir);

impl Log {
    fn new(files: &[(&str, &str)]) -> Self {
        let log = Self(tempfile::tempdir().unwrap());
        for (path, text) in files {
            let path = log.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        log
    }

    fn round(&self, today: &str) -> Report {
        let places = Places::new(self.0.path(), TimeZone::UTC);
        let report = housekeep(&places, today.parse().unwrap(), KEEP, &|| false);
        assert!(report.failed.is_empty(), "{report:?}");
        report
    }

    /// All files, by their path below the log.
    fn files(&self) -> Vec<String> {
        fn walk(folder: &Path, root: &Path, found: &mut Vec<String>) {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    walk(&path, root, found);
                } else {
                    found.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
                }
            }
        }
        let mut found = Vec::new();
        walk(self.0.path(), self.0.path(), &mut found);
        found.sort();
        found
    }

    fn unpacked(&self, path: &str) -> String {
        String::from_utf8(zstd::decode_all(File::open(self.0.path().join(path)).unwrap()).unwrap()).unwrap()
    }
}

#[test]
fn payloads_7_3_past_days_are_packed_in_order_and_today_is_not_touched() {
    let log = Log::new(&[
        ("2026-06-17/23.jsonl", "{\"h\":23}\n"),
        ("2026-06-17/09.jsonl", "{\"h\":9}\n{\"h\":9}\n{\"half"),
        ("2026-06-17/10.jsonl", ""),
        ("2026-06-18/00.jsonl", "{\"h\":0}\n"),
        ("2026-06-19/00.jsonl", "{\"clock\":\"ahead\"}\n"),
        ("metrics/2026-06-17.jsonl", "{}\n"),
        ("metrics/details/2026-06-17.jsonl", "{\"d\":17}\n"),
        ("metrics/details/2026-06-18.jsonl", "{\"d\":18}\n"),
        ("notes.txt", "mine"),
        (".lock", ""),
    ]);
    let report = log.round("2026-06-18");
    assert_eq!((report.packed.len(), report.removed.len()), (2, 0));
    assert_eq!(
        log.files(),
        [
            ".lock",
            "2026-06-17.jsonl.zst",
            "2026-06-18/00.jsonl",
            "2026-06-19/00.jsonl",
            "metrics/2026-06-17.jsonl",
            "metrics/details/2026-06-17.jsonl.zst",
            "metrics/details/2026-06-18.jsonl",
            "notes.txt",
        ]
    );
    assert_eq!(log.unpacked("2026-06-17.jsonl.zst"), "{\"h\":9}\n{\"h\":9}\n{\"h\":23}\n");
    assert_eq!(log.unpacked("metrics/details/2026-06-17.jsonl.zst"), "{\"d\":17}\n");
    let mode = fs::metadata(log.0.path().join("2026-06-17.jsonl.zst")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // The day goes on, and the next one comes.
    assert_eq!(log.round("2026-06-18").packed.len(), 0);
    assert_eq!(log.round("2026-06-19").packed.len(), 2);
    assert_eq!(log.unpacked("2026-06-18.jsonl.zst"), "{\"h\":0}\n");
}

#[test]
fn payloads_7_3_old_days_go_whether_packed_or_not() {
    let log = Log::new(&[
        ("2026-06-14.jsonl.zst", "x"),
        ("2026-06-14/01.jsonl", "{}\n"),
        ("2026-06-13.tar.gz", "x"),
        ("2026-06-15.jsonl.zst", "x"),
        ("2026-06-15.tar.gz", "x"),
        ("metrics/2020-01-01.jsonl", "{}\n"),
        ("metrics/details/2026-06-12.jsonl", "{}\n"),
        ("metrics/details/2026-06-12.parquet", "x"),
        ("metrics/details/2026-06-13.parquet", "x"),
    ]);
    log.round("2026-06-18");
    assert_eq!(
        log.files(),
        ["2026-06-15.jsonl.zst", "2026-06-15.tar.gz", "metrics/2020-01-01.jsonl", "metrics/details/2026-06-13.parquet"]
    );
}

#[test]
fn what_a_crash_left_is_cleared() {
    let log = Log::new(&[
        ("2026-06-16/01.jsonl", "{}\n"),
        ("2026-06-16.jsonl.zst.tmp", "half"),
        ("2026-06-15.tar.gz.tmp", "half"),
        ("2026-06-17/01.jsonl", "{}\n"),
        ("2026-06-17.jsonl.zst", "packed already"),
        ("2026-06-15.jsonl", "{\"old\":\"layout\"}\n"),
        ("2026-06-15/03.jsonl", "{\"h\":3}\n"),
    ]);
    log.round("2026-06-18");
    assert_eq!(log.files(), ["2026-06-15.jsonl.zst", "2026-06-16.jsonl.zst", "2026-06-17.jsonl.zst"]);
    assert_eq!(fs::read(log.0.path().join("2026-06-17.jsonl.zst")).unwrap(), b"packed already");
    assert_eq!(log.unpacked("2026-06-15.jsonl.zst"), "{\"old\":\"layout\"}\n{\"h\":3}\n");
}

#[test]
fn a_stop_in_the_middle_leaves_the_day_as_it_was() {
    let log = Log::new(&[("2026-06-17/01.jsonl", "{}\n")]);
    let places = Places::new(log.0.path(), TimeZone::UTC);
    let asked = std::cell::Cell::new(0);
    let is_stopping = || {
        asked.set(asked.get() + 1);
        asked.get() > 1
    };
    let report = housekeep(&places, "2026-06-18".parse().unwrap(), KEEP, &is_stopping);
    assert!(report.failed.is_empty() && report.packed.is_empty());
    assert_eq!(log.files(), ["2026-06-17/01.jsonl"]);
    log.round("2026-06-18");
    assert_eq!(log.files(), ["2026-06-17.jsonl.zst"]);
}

#[test]
fn what_fails_is_told_and_the_rest_is_done() {
    let log = Log::new(&[("2026-06-16/01.jsonl/x", ""), ("2026-06-17/01.jsonl", "{}\n")]);
    let places = Places::new(log.0.path(), TimeZone::UTC);
    let report = housekeep(&places, "2026-06-18".parse().unwrap(), KEEP, &|| false);
    assert_eq!((report.failed.len(), report.packed.len()), (1, 1));
    assert!(report.failed[0].0.ends_with("2026-06-16"));
    assert_eq!(log.files(), ["2026-06-16/01.jsonl/x", "2026-06-17.jsonl.zst"]);
}
