//! A collector over midnight: its timers and its clock are moved by the test.

use std::path::Path;

use super::*;

struct Moved {
    clock: Arc<Mutex<Timestamp>>,
    running: Running,
}

impl Moved {
    async fn start(folder: TempDir, now: &str) -> Self {
        let clock = Arc::new(Mutex::new(at(now)));
        let read = Arc::clone(&clock);
        let more = ["--keep-days=3", "--details-keep-days=5"];
        let running = Running::start_by(folder, &more, Arc::new(move || *read.lock()), Limits::default()).await;
        Self { clock, running }
    }

    /// It is later now, and the timers of upkeep fire.
    async fn later(&self, now: &str) {
        *self.clock.lock() = at(now);
        tokio::time::advance(upkeep::ROUND).await;
    }

    /// Waits until a file is there, or is gone. Other threads make it, so there is nothing to await but the file.
    async fn until(&self, path: &str, is_there: bool) {
        let path = self.path(path);
        for _ in 0..20_000 {
            if path.exists() == is_there {
                return;
            }
            tokio::task::spawn_blocking(|| std::thread::sleep(Duration::from_millis(1))).await.unwrap();
        }
        panic!("{}: expected to be there: {is_there}", path.display());
    }

    fn path(&self, path: &str) -> std::path::PathBuf {
        self.running.folder.path().join(path)
    }
}

fn at(text: &str) -> Timestamp {
    format!("2026-06-{text}Z").parse().unwrap()
}

fn write(folder: &Path, path: &str) {
    let path = folder.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, "{}\n").unwrap();
}

fn unpacked(path: &Path) -> String {
    String::from_utf8(zstd::decode_all(fs::File::open(path).unwrap()).unwrap()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn minutes_are_written_days_packed_and_old_ones_removed_as_time_goes_by() {
    let folder = tempfile::tempdir().unwrap();
    for old in ["2026-06-14.jsonl.zst", "2026-06-13.jsonl.zst", "metrics/details/2026-06-12.jsonl.zst"] {
        write(folder.path(), old);
    }
    let log = Moved::start(folder, "17T23:56:00").await;
    log.until("2026-06-13.jsonl.zst", false).await;
    assert!(log.path("2026-06-14.jsonl.zst").exists() && log.path("metrics/details/2026-06-12.jsonl.zst").exists());
    log.running.send(&frame_of("a", b"1")).await;
    assert!(log.path("2026-06-17/23.jsonl").exists());
    assert!(!log.path("metrics/2026-06-17.jsonl").exists(), "the minute has not settled");
    log.later("17T23:59:00").await;
    log.until("metrics/2026-06-17.jsonl", true).await;
    assert!(log.path("2026-06-17/23.jsonl").exists(), "today is not packed");

    log.later("18T00:00:10").await;
    for (gone, packed) in [
        ("2026-06-17", "2026-06-17.jsonl.zst"),
        ("metrics/details/2026-06-17.jsonl", "metrics/details/2026-06-17.jsonl.zst"),
    ] {
        log.until(gone, false).await;
        assert!(unpacked(&log.path(packed)).contains("\"request_id\":\"a\""));
    }
    log.until("2026-06-14.jsonl.zst", false).await;
    log.until("metrics/details/2026-06-12.jsonl.zst", false).await;
    log.running.send(&frame_of("b", b"2")).await;
    assert_eq!(log.running.metric("bodylog_collector_housekeeping_errors_total").await, "0");

    // Started again with a clock that is behind: what was packed is not written to.
    let folder = log.running.stop().await;
    let log = Moved::start(folder, "17T23:59:59").await;
    log.running.send(&frame_of("c", b"3")).await;
    assert_eq!(ids(&log.running.stop().await), ["b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn minutes_are_written_while_a_day_is_being_packed() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "2026-06-16/00.jsonl");
    // Opening it waits for somebody who writes: a day that takes long to read.
    let pipe = folder.path().join("2026-06-16/01.jsonl");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let log = Moved::start(folder, "17T12:00:00").await;
    log.running.send(&frame_of("a", b"1")).await;
    log.later("17T12:05:00").await;
    log.until("metrics/2026-06-17.jsonl", true).await;
    assert!(!log.path("2026-06-16.jsonl.zst").exists(), "packed already: this shows nothing");
    drop(fs::OpenOptions::new().write(true).open(&pipe).unwrap());
    fs::remove_file(&pipe).unwrap();
    // A pipe can't be packed; the next round finds none.
    while log.running.metric("bodylog_collector_housekeeping_errors_total").await != "1" {}
    log.later("17T18:05:01").await;
    log.until("2026-06-16.jsonl.zst", true).await;
    log.running.stop().await;
}
