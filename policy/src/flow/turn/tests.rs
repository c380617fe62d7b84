//! Rules of limits.md §9.1 and §9.2 that its worked examples don't show.

use super::super::fixtures::assert_close;
use super::*;
use proptest::prelude::*;

fn first_turns(table: &TurnTable) -> Vec<u32> {
    table.rows().iter().map(|row| row.min_turn).collect()
}

fn row(min_turn: u32, share: f64, tol: f64) -> TurnRow {
    TurnRow { min_turn, share, tol }
}

#[test]
fn limits_9_2_the_default_table() {
    let table = TurnTable::by_doubling(0.85, 32, 1.5);
    assert_eq!(first_turns(&table), [1, 2, 4, 8, 16, 32]);
    for ((row, share), tol) in
        table.rows().iter().zip([0.85, 0.88, 0.91, 0.94, 0.97, 1.0]).zip([1.0, 1.1, 1.2, 1.3, 1.4, 1.5])
    {
        assert_close(row.share, share);
        assert_close(row.tol, tol);
    }
}

#[test]
fn limits_9_2_the_last_bucket_starts_at_full_turn() {
    for (full_turn, expected) in
        [(1, vec![1]), (2, vec![1, 2]), (3, vec![1, 2, 3]), (20, vec![1, 2, 4, 8, 16, 20]), (0, vec![1])]
    {
        assert_eq!(first_turns(&TurnTable::by_doubling(0.85, full_turn, 1.5)), expected);
    }
    let huge = TurnTable::by_doubling(0.85, u32::MAX, 1.5);
    assert_eq!(huge.rows().len(), 31);
    assert_eq!(huge.rows().last().map(|row| row.min_turn), Some(MAX_TURN));
}

#[test]
fn numbers_that_cannot_be_still_make_a_table() {
    for bad in [f64::NAN, 0.0, -1.0, f64::INFINITY] {
        let table = TurnTable::by_doubling(bad, 32, bad);
        assert_eq!(first_turns(&table), [1, 2, 4, 8, 16, 32]);
        assert!(TurnTable::from_rows(table.rows().to_vec()).is_ok(), "{bad}: {table:?}");
    }
}

#[test]
fn a_table_of_one_row_sets_nobody_apart() {
    let table = TurnTable::by_doubling(0.85, 1, 1.5);
    let only = table.bucket_of(Some(1));
    assert_close(table.share(only), 1.0);
    assert!(!table.is_cold(only));
    let table = TurnTable::by_doubling(0.85, 2, 1.5);
    assert!(table.is_cold(table.bucket_of(Some(1))));
    assert!(!table.is_cold(table.bucket_of(Some(2))));
    assert!(!table.is_cold(table.bucket_of(None)));
    assert!(!table.is_cold(Bucket { index: 0, is_known: false }), "whatever table it is of");
}

#[test]
fn limits_9_2_a_bad_row_is_named() {
    for (rows, complaint) in [
        (vec![], "0 rows; allowed are 1 to 64"),
        (vec![row(2, 1.0, 1.0)], "row 1: min_turn 2; the first row has 1"),
        (vec![row(1, 1.0, 1.0), row(1, 1.0, 1.0)], "row 2: min_turn 1 after 1; each row's is above the last one's"),
        (
            vec![row(1, 1.0, 1.0), row(MAX_TURN + 1, 1.0, 1.0)],
            "row 2: min_turn 1000000001; allowed are 1 to 1000000000",
        ),
        (vec![row(1, 0.0, 1.0)], "row 1: share 0; allowed are numbers above 0, at most 1"),
        (vec![row(1, 1.1, 1.0)], "row 1: share 1.1; allowed are numbers above 0, at most 1"),
        (vec![row(1, f64::NAN, 1.0)], "row 1: share NaN; allowed are numbers above 0, at most 1"),
        (vec![row(1, 0.5, 0.9)], "row 1: tol 0.9; allowed are numbers from 1"),
        (vec![row(1, 0.5, f64::INFINITY)], "row 1: tol inf; allowed are numbers from 1"),
    ] {
        assert_eq!(TurnTable::from_rows(rows).unwrap_err(), complaint);
    }
    let rows = vec![row(1, 0.5, 1.0), row(5, 0.4, 3.0)];
    let table = TurnTable::from_rows(rows.clone()).unwrap();
    assert_eq!(table.rows(), rows);
    assert_eq!(table.bucket_of(Some(4)).index, 0);
    assert_eq!(table.bucket_of(Some(5)).index, 1);
    let many = (1..=65).map(|turn| row(turn, 1.0, 1.0)).collect();
    assert_eq!(TurnTable::from_rows(many).unwrap_err(), "65 rows; allowed are 1 to 64");
}

#[test]
fn limits_9_1_a_turn_that_nobody_can_have_is_none() {
    let table = TurnTable::by_doubling(0.85, 32, 1.5);
    for turn in [None, Some(0), Some(MAX_TURN + 1)] {
        assert_eq!(table.bucket_of(turn), Bucket { index: 5, is_known: false });
    }
    assert_eq!(table.bucket_of(Some(MAX_TURN)), Bucket { index: 5, is_known: true });
}

#[test]
fn limits_9_1_headers() {
    let turn = |text: &str| parse_turn_header(text).map(|header| header.turn);
    assert_eq!(turn(r#" {"turn": 3, "session_id": "s", "more": [1]} "#), Some(3));
    assert_eq!(turn(r#"{"session_id": "s", "turn": 3.0}"#), Some(3));
    assert_eq!(turn(r#"{"session_id": "s", "turn": 1e9}"#), Some(MAX_TURN));
    for text in [
        "",
        "3",
        "null",
        r#"["s", 3]"#,
        r#"{"session_id": "s"}"#,
        r#"{"turn": 3}"#,
        r#"{"session_id": "s", "turn": "3"}"#,
        r#"{"session_id": "s", "turn": null}"#,
        r#"{"session_id": "s", "turn": true}"#,
        r#"{"session_id": "s", "turn": 1e300}"#,
        r#"{"session_id": "s", "turn": 18446744073709551617}"#,
        r#"{"session_id": 7, "turn": 3}"#,
        r#"{"session_id": "", "turn": 3}"#,
        r#"{"session_id": "\t\u00a0", "turn": 3}"#,
        r#"{"session_id": "s", "turn": 3"#,
        r#"{"session_id": "s", "turn": 3} x"#,
    ] {
        assert_eq!(turn(text), None, "{text}");
    }
    // Characters, not bytes.
    let id = "é".repeat(256);
    assert_eq!(parse_turn_header(&format!(r#"{{"session_id": "{id}", "turn": 1}}"#)).unwrap().session_id, id);
}

#[test]
fn an_id_is_not_printed() {
    let header = TurnHeader { session_id: "secret".to_owned(), turn: 7 };
    assert_eq!(format!("{header:?}"), "TurnHeader { turn: 7, .. }");
}

proptest! {
    #[test]
    fn a_warmer_bucket_never_holds_less(
        r_new in proptest::num::f64::ANY, small in 0.0_f64..1.0, full_turn in any::<u32>(),
        severe in proptest::num::f64::ANY, usual in 0.5_f64..4.0, limit in 0.0_f64..2000.0,
    ) {
        for (r_new, severe) in [(r_new, severe), (small, usual)] {
            let table = TurnTable::by_doubling(r_new, full_turn, severe);
            for pair in table.rows().windows(2) {
                prop_assert!(pair[0].min_turn < pair[1].min_turn);
                prop_assert!((limit * pair[0].share).ceil() <= (limit * pair[1].share).ceil());
                prop_assert!(pair[0].tol <= pair[1].tol);
            }
            prop_assert!(TurnTable::from_rows(table.rows().to_vec()).is_ok());
            prop_assert_eq!(table.share(table.bucket_of(None)).to_bits(), 1.0_f64.to_bits());
        }
    }

    #[test]
    fn no_header_panics(text in ".*") {
        let _ = parse_turn_header(&text);
    }
}
