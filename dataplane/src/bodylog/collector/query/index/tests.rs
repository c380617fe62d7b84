//! How much is read, and that nothing is missed.

use std::fs;

use tempfile::TempDir;

use super::*;

/// A question for rows of some seconds, whose lines are their seconds and a filling.
struct Ask {
    from: i64,
    to: i64,
    found: Vec<i64>,
    looked_at: usize,
}

impl Reader for Ask {
    fn wants(&self, earliest: Timestamp, latest: Timestamp) -> bool {
        self.from <= latest.as_second() && earliest.as_second() < self.to
    }

    fn row(&mut self, line: &[u8]) -> Option<Timestamp> {
        self.looked_at += 1;
        let second = std::str::from_utf8(line).unwrap().split(' ').next()?.parse().ok()?;
        if (self.from..self.to).contains(&second) {
            self.found.push(second);
        }
        Timestamp::from_second(second).ok()
    }

    fn is_cancelled(&self) -> bool {
        false
    }
}

struct Log {
    folder: TempDir,
    index: Index,
}

fn line(second: i64) -> String {
    format!("{second} {}\n", "x".repeat(100))
}

impl Log {
    fn new(seconds: impl Iterator<Item = i64>) -> Self {
        let log = Self { folder: tempfile::tempdir().unwrap(), index: Index::default() };
        fs::write(log.plain(), seconds.map(line).collect::<String>()).unwrap();
        log
    }

    fn plain(&self) -> PathBuf {
        self.folder.path().join("rows")
    }

    fn add(&self, text: &str) {
        io::Write::write_all(&mut fs::OpenOptions::new().append(true).open(self.plain()).unwrap(), text.as_bytes())
            .unwrap();
    }

    /// What is found, and how many lines were looked at.
    fn ask(&self, from: i64, to: i64) -> (Vec<i64>, usize) {
        let mut ask = Ask { from, to, found: Vec::new(), looked_at: 0 };
        let packed = self.folder.path().join("packed");
        match File::open(&packed) {
            Ok(file) => self.index.read_packed(&packed, file, &mut ask).unwrap(),
            Err(_) => self.index.read_plain(&self.plain(), File::open(self.plain()).unwrap(), &mut ask).unwrap(),
        }
        (ask.found, ask.looked_at)
    }
}

/// More lines than a block has.
const IN_A_BLOCK: usize = 3000;
const ALL: i64 = 50_000;

#[test]
fn the_second_question_reads_what_is_new_and_what_can_match() {
    let log = Log::new(0..ALL);
    assert_eq!(log.ask(ALL - 1, ALL).1, 50_000, "the first one reads all");
    for _ in 0..3 {
        log.add(&line(ALL));
        log.add("half a l");
        let (found, looked_at) = log.ask(ALL, ALL + 1);
        assert!(found.iter().all(|second| *second == ALL) && looked_at <= 2 * IN_A_BLOCK, "{looked_at}");
        log.add("ine\n");
    }
    assert_eq!(log.ask(ALL, ALL + 1).0, [ALL; 3]);
    let (found, looked_at) = log.ask(20_000, 20_010);
    assert_eq!(found, (20_000..20_010).collect::<Vec<_>>());
    assert!(looked_at <= 3 * IN_A_BLOCK, "{looked_at}");
}

#[test]
fn rows_that_came_hours_late_are_found() {
    let log = Log::new(0..ALL);
    log.ask(0, 1);
    log.add(&line(7));
    log.add(&(0..ALL).map(|second| line(ALL + second)).collect::<String>());
    for _ in 0..2 {
        assert_eq!(log.ask(7, 8).0, [7, 7]);
    }
    assert_eq!(log.ask(3, 4).0, [3]);
}

#[test]
fn a_packed_file_is_read_whole_once_and_then_as_far_as_it_matters() {
    let log = Log::new(0..ALL);
    let packed = zstd::encode_all(File::open(log.plain()).unwrap(), 1).unwrap();
    fs::write(log.folder.path().join("packed"), packed).unwrap();
    assert_eq!(log.ask(5, 6), (vec![5], 50_000));
    let (found, looked_at) = log.ask(5, 6);
    assert!(found == [5] && looked_at <= IN_A_BLOCK, "{looked_at}");
    let (found, looked_at) = log.ask(ALL - 1, ALL + 9);
    assert!(found == [ALL - 1] && looked_at <= IN_A_BLOCK, "{looked_at}");
    assert_eq!(log.ask(ALL, ALL + 9), (Vec::new(), 0));
}

#[test]
fn another_file_of_the_same_name_is_read_anew_and_memory_is_bounded() {
    let log = Log::new(0..ALL);
    log.ask(0, 1);
    fs::remove_file(log.plain()).unwrap();
    fs::write(log.plain(), (0..100).map(|second| line(ALL + second)).collect::<String>()).unwrap();
    assert_eq!(log.ask(ALL, ALL + 1).0, [ALL]);
    let blocks = vec![Block::EMPTY; MOST_BLOCKS];
    let file = Identity::of(&fs::metadata(log.plain()).unwrap());
    for name in ["a", "b"] {
        let known = Known { file: file.clone(), blocks: blocks.clone(), end: 0, is_whole: true };
        log.index.remember(Path::new(name), known);
    }
    assert_eq!(log.index.0.lock().len(), 1);
}
