//! Byte edits against the same edits on a tree, on made-up bodies (payloads.md §3).

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::Value;
use serde_json::value::RawValue;

use self::bodies::Written;
use super::*;
use crate::body::peek::Peek;

mod bodies;
mod oracle;

fn transforms() -> impl Strategy<Value = Transforms> {
    let strategy = prop_oneof![
        Just(KimiStrategy::Rerank),
        Just(KimiStrategy::Hash),
        Just(KimiStrategy::RerankMaxlast),
        Just(KimiStrategy::Keepinc),
    ];
    (any::<bool>(), prop::option::weighted(0.7, strategy), any::<bool>(), any::<bool>()).prop_map(
        |(cch_strip, kimi_normalize, include_usage, system_hoist)| Transforms {
            cch_strip,
            kimi_normalize,
            include_usage,
            system_hoist,
        },
    )
}

fn apply(transforms: Transforms, body: &str) -> (Option<String>, Changes) {
    let (edited, changes) = transforms.apply(body.as_bytes());
    (edited.map(|edited| String::from_utf8(edited).unwrap()), changes)
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn raw_fields(text: &str) -> BTreeMap<String, &str> {
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(text).unwrap();
    fields.into_iter().map(|(key, value)| (key, value.get())).collect()
}

fn raw_items(text: &str) -> Vec<&str> {
    serde_json::from_str::<Vec<&RawValue>>(text).unwrap_or_default().into_iter().map(RawValue::get).collect()
}

/// The two texts without what they start and end with in common.
fn difference<'t>(before: &'t [u8], after: &'t [u8]) -> (&'t [u8], &'t [u8]) {
    let start = before.iter().zip(after).take_while(|(a, b)| a == b).count();
    let (before, after) = (&before[start..], &after[start..]);
    let end = before.iter().rev().zip(after.iter().rev()).take_while(|(a, b)| a == b).count();
    (&before[..before.len() - end], &after[..after.len() - end])
}

/// Strings, runs of whitespace, and what is between them.
fn tokens(text: &str) -> Vec<&str> {
    let (mut tokens, mut rest) = (Vec::new(), text);
    while let Some(first) = rest.chars().next() {
        let end = match first {
            '"' => {
                let mut is_escaped = true;
                let end = rest.find(|c| {
                    let is_end = c == '"' && !is_escaped;
                    is_escaped = c == '\\' && !is_escaped;
                    is_end
                });
                end.map_or(rest.len(), |end| end + 1)
            }
            ' ' | '\n' => rest.find(|c| c != ' ' && c != '\n').unwrap_or(rest.len()),
            _ => rest.find(['"', ' ', '\n']).unwrap_or(rest.len()),
        };
        let (token, after) = rest.split_at(end);
        tokens.push(token);
        rest = after;
    }
    tokens
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn byte_edits_are_edits_of_the_tree(transforms in transforms(), body in bodies::body()) {
        let Written { text, has_decoys } = body;
        let before = parse(&text);
        let (expected, expected_changes) = oracle::apply(transforms, before.clone());
        let (edited, changes) = apply(transforms, &text);
        let after = edited.as_deref().map_or_else(|| before.clone(), parse);
        // As text: the order of fields counts, too.
        prop_assert_eq!(after.to_string(), expected.to_string());
        if has_decoys {
            // Fields that stand twice are one in a tree.
            prop_assert!(changes.kimi_ids >= expected_changes.kimi_ids);
        } else {
            prop_assert_eq!(changes, expected_changes);
        }
        let is_changed = Changes { usage_not_possible: false, ..changes } != Changes::default();
        prop_assert_eq!(edited.is_some(), is_changed);
    }

    #[test]
    fn only_markers_and_ids_change(kimi in transforms(), body in bodies::body()) {
        let transforms = Transforms { cch_strip: true, include_usage: false, system_hoist: false, ..kimi };
        let Some(edited) = apply(transforms, &body.text).0 else { return Ok(()) };
        let (before, after) = (tokens(&body.text), tokens(&edited));
        prop_assert_eq!(before.len(), after.len());
        for (before, after) in before.into_iter().zip(after).filter(|(before, after)| before != after) {
            let is_stripped = before.starts_with("\"x-anthropic-billing-header:") && before.ends_with(&after[1..]);
            prop_assert!(is_stripped || after.starts_with("\"functions."), "{} to {}", before, after);
        }
    }

    #[test]
    fn the_ask_for_usage_is_one_edit_and_is_made_once(body in bodies::body()) {
        let usage = Transforms { include_usage: true, ..Transforms::default() };
        let Some(edited) = apply(usage, &body.text).0 else { return Ok(()) };
        let (before, after) = difference(body.text.as_bytes(), edited.as_bytes());
        prop_assert!(before.len() <= bodies::LONGEST_SCALAR, "{:?}", before);
        prop_assert!(after.len() <= r#","stream_options":{"include_usage":true}"#.len(), "{:?}", after);
        prop_assert_eq!(apply(usage, &edited), (None, Changes::default()));
    }

    #[test]
    fn hoisting_moves_raw_text_once(body in bodies::body()) {
        let hoist = Transforms { system_hoist: true, ..Transforms::default() };
        let Some(edited) = apply(hoist, &body.text).0 else { return Ok(()) };
        let (before, after) = (raw_fields(&body.text), raw_fields(&edited));
        for (key, value) in &before {
            prop_assert!(["messages", "system"].contains(&key.as_str()) || after.get(key) == Some(value), "{}", key);
        }
        let (stay, go): (Vec<&str>, Vec<&str>) =
            raw_items(before["messages"]).into_iter().partition(|message| parse(message)["role"] != "system");
        prop_assert_eq!(raw_items(after["messages"]), stay);
        for content in go.into_iter().filter(|message| message.starts_with('{')).filter_map(|message| raw_fields(message).remove("content")) {
            let blocks = if content.starts_with('"') { vec![content] } else { raw_items(content) };
            for block in blocks.into_iter().filter(|block| block.starts_with(['"', '{'])) {
                prop_assert!(after["system"].contains(block), "{}", block);
            }
        }
        prop_assert_eq!(apply(hoist, &edited), (None, Changes::default()));
    }

    #[test]
    fn what_was_done_once_is_not_done_again(transforms in transforms(), body in bodies::body()) {
        let ids = oracle::ids(&parse(&body.text));
        let are_distinct = ids.iter().collect::<BTreeSet<_>>().len() == ids.len();
        // Of calls that share an id one may be renumbered each time; `rerank_maxlast` may give a number that was none before.
        let is_stable =
            are_distinct && !body.has_decoys && transforms.kimi_normalize != Some(KimiStrategy::RerankMaxlast);
        let transforms = Transforms {
            kimi_normalize: transforms.kimi_normalize.filter(|_| is_stable),
            // What it moves is not what it was: a bare string becomes a `text` with a marker, calls of its messages go.
            system_hoist: false,
            ..transforms
        };
        let Some(edited) = apply(transforms, &body.text).0 else { return Ok(()) };
        prop_assert_eq!(apply(transforms, &edited).0, None);
    }

    #[test]
    fn broken_bodies_stay(
        transforms in transforms(),
        body in bodies::body(),
        breaks in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..3, prop::sample::select(&b"\"\\{}[],:ue0 \n\x00\xff"[..])), 1..4),
    ) {
        let mut bytes = body.text.into_bytes();
        for (at, kind, byte) in breaks {
            let at = at.index(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => { bytes.remove(at); }
            }
            if bytes.is_empty() {
                return Ok(());
            }
        }
        let is_object = |bytes: &[u8]| Peek::read(bytes).is_some();
        match transforms.apply(&bytes).0 {
            Some(edited) => prop_assert!(is_object(&bytes) && is_object(&edited)),
            None => prop_assert!(!bytes.is_empty()),
        }
    }

    #[test]
    fn any_bytes_are_taken(transforms in transforms(), bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(transforms.apply(&bytes).0.is_none());
    }
}
