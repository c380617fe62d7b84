use proptest::prelude::*;

use super::*;

#[test]
fn parts_are_replaced_removed_and_put_in() {
    let mut edits = Edits::new("0123456789");
    edits.replace(8..9, "eight");
    edits.remove(0..2);
    edits.insert(4, "a");
    edits.insert(4, "b");
    edits.insert(10, "end");
    assert_eq!(edits.apply().unwrap().unwrap(), "23ab4567eight9end");
}

#[test]
fn without_an_edit_nothing_is_made() {
    assert_eq!(Edits::new("text").apply(), Ok(None));
}

#[test]
fn what_is_moved_takes_its_edits_along_and_what_is_gone_loses_them() {
    let mut edits = Edits::new("a[bcd]e<fgh>i");
    edits.replace(3..4, "C");
    edits.replace(9..10, "G");
    edits.remove(1..6);
    let pieces = vec![edits.words("("), Piece::Moved(2..5), edits.words(")")];
    edits.rearrange(7..7, pieces);
    edits.remove(7..12);
    assert_eq!(edits.apply().unwrap().unwrap(), "ae(bCd)i");
}

#[test]
fn growth_has_a_bound() {
    let text = "x".repeat(1000);
    for (count, is_fine) in [(66, true), (67, false)] {
        let mut edits = Edits::new(&text);
        for at in 0..count {
            edits.replace(at..at + 1, "y".repeat(1000));
        }
        assert_eq!(edits.is_too_long(), !is_fine);
        assert_eq!(edits.apply().is_ok(), is_fine, "{count}");
    }
}

#[test]
fn who_adds_too_much_loses_its_own_edits_alone() {
    let text = "x".repeat(1000);
    let grow = |edits: &mut Edits<'_>, times: usize| (0..times).for_each(|_| edits.insert(1000, "y".repeat(1000)));
    let mut edits = Edits::new(&text);
    assert_eq!(edits.attempt(|edits| edits.remove(0..998)), Some(()));
    assert_eq!(edits.attempt(|edits| grow(edits, 67)), None);
    assert_eq!(edits.attempt(|edits| grow(edits, 66)), Some(()), "each has room of its own");
    assert_eq!(edits.attempt(|edits| edits.replace(998..999, "z")), Some(()));
    assert_eq!(edits.apply(), Ok(Some(format!("zx{}", "y".repeat(66_000)))));
}

#[test]
fn places_of_borrowed_parts() {
    let text = String::from("abcdef");
    assert_eq!(place(&text, &text[2..4]), 2..4);
    assert_eq!(place(&text, &text[6..]), 6..6);
    assert_eq!(place(&text, "elsewhere"), 6..6);
}

proptest! {
    #[test]
    fn it_is_what_replacing_from_the_end_gives(text in "[a-zé]{0,40}", cuts in prop::collection::vec((0_usize..45, 0_usize..4, "[A-Z]{0,3}"), 0..8)) {
        let chars: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        let mut edits = Edits::new(&text);
        let mut ranges = Vec::new();
        let mut at = 0;
        for (skip, length, new) in cuts {
            let start = at + skip % 6;
            let end = start + length;
            let (Some(from), Some(to)) = (chars.get(start), chars.get(end)) else { break };
            ranges.push((*from..*to, new));
            at = end + 1;
        }
        // The order in which they are named does not count.
        for (range, new) in ranges.iter().rev() {
            edits.replace(range.clone(), new.clone());
        }
        let mut expected = text.clone();
        for (range, new) in ranges.iter().rev() {
            expected.replace_range(range.clone(), new);
        }
        prop_assert_eq!(edits.apply().unwrap().unwrap_or(text), expected);
    }
}
