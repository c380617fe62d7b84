//! Day change, packing and retention, with the day passed in.

use std::fs::File;
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
            log.add(path, text);
        }
        log
    }

    fn add(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
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
        ("2026-06-17.jsonl.zst", "damaged"),
        ("2026-06-15.jsonl", "{\"old\":\"layout\"}\n"),
        ("2026-06-15/03.jsonl", "{\"h\":3}\n"),
    ]);
    log.round("2026-06-18");
    assert_eq!(
        log.files(),
        ["2026-06-15.jsonl.zst", "2026-06-16.jsonl.zst", "2026-06-17.2.jsonl.zst", "2026-06-17.jsonl.zst"]
    );
    assert_eq!(fs::read(log.0.path().join("2026-06-17.jsonl.zst")).unwrap(), b"damaged");
    assert_eq!(log.unpacked("2026-06-17.2.jsonl.zst"), "{}\n");
    assert_eq!(log.unpacked("2026-06-15.jsonl.zst"), "{\"old\":\"layout\"}\n{\"h\":3}\n");
}

#[test]
fn a_day_that_was_written_to_after_it_was_packed_loses_nothing() {
    let log = Log::new(&[("2026-06-17/09.jsonl", "{\"n\":1}\n"), ("metrics/details/2026-06-17.jsonl", "{\"n\":1}\n")]);
    log.round("2026-06-18");
    for number in [2, 3] {
        for path in ["2026-06-17/09.jsonl", "metrics/details/2026-06-17.jsonl"] {
            log.add(path, &format!("{{\"n\":{number}}}\n"));
        }
        let report = log.round("2026-06-18");
        assert_eq!((report.packed.len(), report.removed.len()), (2, 0));
    }
    for folder in ["", "metrics/details/"] {
        for (name, number) in [("", 1), (".2", 2), (".3", 3)] {
            let text = log.unpacked(&format!("{folder}2026-06-17{name}.jsonl.zst"));
            assert_eq!(text, format!("{{\"n\":{number}}}\n"));
        }
    }
    assert_eq!(log.files().len(), 6, "{:?}", log.files());
}

#[test]
fn a_crash_between_packing_and_removing_packs_nothing_twice() {
    let hours = [("2026-06-17/09.jsonl", "{\"h\":9}\n"), ("2026-06-17/10.jsonl", "{\"h\":10}\n{\"half")];
    let log = Log::new(&hours);
    log.round("2026-06-18");
    // All of them are still there, or the last of them only.
    for left in [&hours[..], &hours[1..]] {
        for (path, text) in left {
            log.add(path, text);
        }
        assert_eq!(log.round("2026-06-18").packed.len(), 0);
        assert_eq!(log.files(), ["2026-06-17.jsonl.zst"]);
    }
    // The first one only, or a longer one, is something else.
    log.add("2026-06-17/09.jsonl", "{\"h\":9}\n");
    log.round("2026-06-18");
    log.add("2026-06-17/10.jsonl", "{\"h\":10}\n{\"half\":2}\n");
    log.round("2026-06-18");
    assert_eq!(log.files(), ["2026-06-17.2.jsonl.zst", "2026-06-17.3.jsonl.zst", "2026-06-17.jsonl.zst"]);
}

#[test]
fn what_is_not_ours_in_a_days_folder_stays() {
    let foreign = ["note.jsonl", "99.jsonl", "keep.txt"];
    let log =
        Log::new(&[("2026-06-17/09.jsonl", "{}\n"), ("2026-06-10/09.jsonl", "{}\n"), ("2026-06-16/09.jsonl", "{}\n")]);
    for day in ["2026-06-17", "2026-06-10"] {
        for name in foreign {
            log.add(&format!("{day}/{name}"), "mine");
        }
    }
    for _ in 0..2 {
        log.round("2026-06-18");
        let left = log.files();
        assert_eq!(left.iter().filter(|path| foreign.iter().any(|name| path.ends_with(name))).count(), 6, "{left:?}");
        assert_eq!(left.len(), 8, "{left:?}");
    }
    assert!(!log.0.path().join("2026-06-16").exists(), "a folder without anything else goes");
    assert_eq!(log.unpacked("2026-06-17.jsonl.zst"), "{}\n");
}

#[test]
fn what_is_added_while_a_day_is_packed_is_not_removed() {
    let log = Log::new(&[("2026-06-17/09.jsonl", "{}\n")]);
    let source = Source::open(log.0.path().join("2026-06-17/09.jsonl")).unwrap();
    log.add("2026-06-17/09.jsonl", "{}\n{}\n");
    source.remove().unwrap();
    assert_eq!(log.files(), ["2026-06-17/09.jsonl"]);
    Source::open(log.0.path().join("2026-06-17/09.jsonl")).unwrap().remove().unwrap();
    assert!(log.files().is_empty());
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
