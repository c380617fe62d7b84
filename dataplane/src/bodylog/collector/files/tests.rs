//! Whole lines, whatever happens in between.

use std::os::unix::fs::PermissionsExt as _;

use tempfile::TempDir;

use super::*;

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("2026-06-18/12.jsonl");
    (folder, path)
}

#[test]
fn files_and_folders_are_the_owners_alone() {
    let (_folder, path) = folder();
    Lines::open(&path).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
}

#[test]
fn payloads_7_3_half_a_line_is_dropped_and_whole_ones_stay() {
    let (_folder, path) = folder();
    let long = format!("{}\n", "x".repeat(3 * BLOCK));
    for (before, after) in [
        (String::new(), String::new()),
        ("{}\n{}\n".to_owned(), "{}\n{}\n".to_owned()),
        ("{}\n{\"a\":".to_owned(), "{}\n".to_owned()),
        ("{\"a\":".to_owned(), String::new()),
        (format!("{{}}\n{}", "y".repeat(2 * BLOCK)), "{}\n".to_owned()),
        (format!("{long}{}", "y".repeat(BLOCK - 1)), long.clone()),
    ] {
        drop(fs::remove_dir_all(path.parent().unwrap()));
        make_folder(path.parent().unwrap()).unwrap();
        fs::write(&path, &before).unwrap();
        let mut lines = Lines::open(&path).unwrap();
        lines.append(b"new\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{after}new\n"));
    }
}

#[test]
fn what_was_added_can_be_taken_back() {
    let (_folder, path) = folder();
    let mut lines = Lines::open(&path).unwrap();
    lines.append(b"a\n").unwrap();
    let before = lines.append(b"b\n").unwrap();
    lines.take_back(before).unwrap();
    lines.append(b"c\n").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "a\nc\n");
}

#[test]
fn a_full_disk_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("full.jsonl");
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    let error = Lines::open(&path).unwrap().append(b"a\n").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
}

#[test]
fn a_folder_is_taken_by_one_collector() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let first = take_folder(&path).unwrap();
    assert!(take_folder(&path).unwrap_err().to_string().contains("another collector"));
    drop(first);
    take_folder(&path).unwrap();
}

#[test]
fn lines_are_read_whole_and_only_so_far_as_wanted() {
    let read = |text: &str, most: usize| {
        let mut lines = Vec::new();
        each_line(text.as_bytes(), |line| {
            lines.push(String::from_utf8(line.to_vec()).unwrap());
            lines.len() < most
        })
        .unwrap();
        lines.join("|")
    };
    assert_eq!(read("a\n\nb\nhalf", 9), "a||b");
    assert_eq!(read("a\nb\nc\n", 2), "a|b");
    assert_eq!(read("", 9), "");
}
