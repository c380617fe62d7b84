//! Bodies that are no JSON object, and bodies made to hurt.

use std::fmt::Write;

use super::examples::ALL;
use super::*;

const STRATEGIES: [KimiStrategy; 4] =
    [KimiStrategy::Rerank, KimiStrategy::Hash, KimiStrategy::RerankMaxlast, KimiStrategy::Keepinc];
const MARKER: &str = "x-anthropic-billing-header: cc_version=1; cc_entrypoint=cli; cch=ab;";

/// What each strategy makes of it; the others do the same each time.
fn apply(body: &[u8]) -> [(Option<Vec<u8>>, Changes); 4] {
    STRATEGIES.map(|strategy| Transforms { kimi_normalize: Some(strategy), ..ALL }.apply(body))
}

fn is_json(body: &[u8]) -> bool {
    std::str::from_utf8(body).is_ok_and(|text| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok())
}

/// A body in which each transform has something to do.
fn busy(extra: &str) -> String {
    format!(
        r#"{{"model":"kimi-k2.6","stream":true,"messages":[{{"role":"system","content":"{MARKER}x"}},{{"tool_calls":[{{"id":"a","function":{{"name":"f"}}}}]}}]{extra}}}"#
    )
}

#[test]
fn what_is_not_one_json_object_in_utf_8_stays() {
    let body = busy("");
    let cut = &body[..body.len() - 1];
    let mut broken = body.clone().into_bytes();
    let x = broken.iter().rposition(|byte| *byte == b'x').unwrap();
    broken[x] = 0xff;
    let bodies = [
        b"".to_vec(),
        cut.as_bytes().to_vec(),
        format!("{body}}}").into_bytes(),
        format!("{body}{body}").into_bytes(),
        format!("[{body}]").into_bytes(),
        format!("\u{feff}\u{feff}{body}").into_bytes(),
        body.replace("true", "True").into_bytes(),
        body.replace("\"a\"", "\"\\a\"").into_bytes(),
        body.replace("\"a\"", "\"\u{0}\"").into_bytes(),
        broken,
    ];
    for body in bodies {
        for (edited, changes) in apply(&body) {
            assert_eq!((edited, changes), (None, Changes::default()), "{}", String::from_utf8_lossy(&body));
        }
    }
    for (edited, changes) in apply(body.as_bytes()) {
        assert!(edited.is_some_and(|edited| is_json(&edited)), "the control");
        assert!(changes.cch_stripped && changes.usage_asked && (changes.kimi_ids, changes.hoisted) == (1, 1));
    }
}

#[test]
fn a_byte_order_mark_stays_before_what_is_edited() {
    let body = busy("");
    let marked = format!("\u{feff}{body}");
    for ((plain, changes), (marked, same)) in apply(body.as_bytes()).into_iter().zip(apply(marked.as_bytes())) {
        assert_eq!(marked.unwrap(), ["\u{feff}".as_bytes(), &plain.unwrap()].concat());
        assert_eq!(changes, same);
    }
}

#[test]
fn odd_values_beside_the_edits_stay_as_they_are() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for odd in
        [deep.as_str(), r#""\ud800""#, r#""\u0000""#, "1e999", "-0.00", &"9".repeat(5000), r#"{"\udc00":1,"\udc00":2}"#]
    {
        let body = busy(&format!(r#","odd" :{odd}"#));
        for (edited, changes) in apply(body.as_bytes()) {
            let edited = String::from_utf8(edited.unwrap()).unwrap();
            assert!(edited.contains(&format!(r#","odd" :{odd},"stream_options""#)) && is_json(edited.as_bytes()));
            assert!(changes.cch_stripped && changes.kimi_ids == 1);
        }
    }
    // In the places that are looked at.
    for odd in [deep.as_str(), r#""\ud800""#, "1e999", "{}", "[]"] {
        for body in [
            format!(
                r#"{{"model":"kimi-k2.6","messages":[{odd},{{"role":{odd},"tool_calls":{odd}}},{{"role":"system","content":{odd}}}],"stream":true,"stream_options":{odd},"system":{odd}}}"#
            ),
            format!(
                r#"{{"model":"kimi-k2.6","messages":[{{"tool_calls":[{odd},{{"id":{odd},"function":{{"name":"f","arguments":{odd}}}}}]}}],"system":"x"}}"#
            ),
            format!(r#"{{"model":{odd},"messages":{odd},"stream":{odd},"tool_calls":"kimi-k2.6","system":"system"}}"#),
        ] {
            for (edited, _) in apply(body.as_bytes()) {
                assert!(edited.is_none_or(|edited| is_json(&edited)));
            }
        }
    }
}

#[test]
fn a_body_that_would_more_than_double_stays() {
    let long = "n".repeat(100_000);
    let body = |references: usize| {
        let first = format!(r#"{{"id":"a","function":{{"name":"{long}"}}}}"#);
        format!(
            r#"{{"model":"kimi-k2.6","messages":[{{"tool_calls":[{first}]}}{}]}}"#,
            r#",{"id":"a"}"#.repeat(references)
        )
    };
    assert_eq!(ALL.apply(body(0).as_bytes()).1.kimi_ids, 1, "the control");
    let too_long = Changes { kimi_too_long: true, ..Changes::default() };
    assert_eq!(ALL.apply(body(200_000).as_bytes()), (None, too_long));
    let blocks = |count| format!(r#"{{"messages":[{{"role":"system","content":[{}""]}}]}}"#, r#""","#.repeat(count));
    assert_eq!(ALL.apply(blocks(1000).as_bytes()).1.hoisted, 1, "the control");
    let too_long = Changes { hoist_too_long: true, ..Changes::default() };
    assert_eq!(ALL.apply(blocks(100_000).as_bytes()), (None, too_long));
    // What does not grow is done all the same.
    let both =
        body(200_000).replace(r#""messages":["#, &format!(r#""stream":true,"messages":[{{"content":"{MARKER}x"}},"#));
    let (edited, changes) = ALL.apply(both.as_bytes());
    assert!(changes.kimi_too_long && changes.usage_asked && changes.cch_stripped && changes.kimi_ids == 0);
    let edited = String::from_utf8(edited.unwrap()).unwrap();
    assert!(edited.contains(r#"[{"content":"x"},{"tool_calls""#) && edited.ends_with(r#""include_usage":true}}"#));
}

/// Bodies of about `size` bytes, each made of many of what one part of the code looks for.
fn made_to_hurt(size: usize) -> Vec<String> {
    let fill = |part: &str| part.repeat(size / part.len());
    let messages = |list: &str| format!(r#"{{"model":"kimi-k2.6","stream":true,"system":"s","messages":[{list}0]}}"#);
    let mut calls = String::new();
    for at in 0..size / 60 {
        let _ = write!(calls, r#"{{"id":"{at}","function":{{"name":"f","arguments":"{{}}"}}}},"#);
    }
    vec![
        messages(&format!(r#"{{"tool_calls":[{calls}0]}},"#)),
        messages(&fill(r#"{"tool_calls":[{"id":"a","function":{"name":"f"}}]},"#)),
        messages(&fill(r#"{"role":"system","content":"x"},"#)),
        messages(&fill(r#"{"role":"system","content":"x"},1,"#)),
        messages(&format!(r#"{{"role":"system","content":[{}0]}},"#, fill("{},"))),
        messages(&fill(&format!(r#"{{"content":"{MARKER}"}},"#))),
        messages(&fill(r#"{"content":"x-anthropic-billing-header: cc_version="},"#)),
        messages(&format!(r#"{{"content":"{}"}},"#, fill("x-anthropic-billing-header: cc_version=;"))),
        messages(&format!(r#"{{"role":"system","content":"{}"}},"#, fill(r#"\\\"\u0061"#))),
        messages(&format!("{}1{},", "[".repeat(size / 2), "]".repeat(size / 2))),
        messages(&format!("{}1{},", r#"{"a":"#.repeat(size / 6), "}".repeat(size / 6))),
        messages(&format!("0{},", " ".repeat(size))),
        messages(&fill(r#""tool_calls","#)),
        format!(r#"{{{}"messages":[],"tool_calls":"imi-","stream":true}}"#, fill(r#""stream_options":{},"#)),
        format!(r#"{{"{}":1,"stream":true}}"#, fill(r"\u0073")),
    ]
}

/// One body that is 16 times as long takes about as long as 16 bodies, and 16 times as long if the work grew with the square.
/// The least of all trials of each counts: what else the machine does lengthens single trials, and the least ones come near to
/// what the work itself takes.
#[test]
fn work_is_in_proportion_to_the_length() {
    const SMALL: usize = 16 << 10;
    const TRIALS: usize = 40;
    #[expect(clippy::disallowed_methods, reason = "a test of how long it takes")]
    let time = |body: &str, times: usize| {
        let start = std::time::Instant::now();
        (0..times).for_each(|_| drop(ALL.apply(body.as_bytes())));
        start.elapsed()
    };
    for (number, (small, large)) in made_to_hurt(SMALL).iter().zip(made_to_hurt(SMALL * 16)).enumerate() {
        assert!(is_json(small.as_bytes()), "number {number} is what it should be");
        let (mut of_small, mut of_large) = (std::time::Duration::MAX, std::time::Duration::MAX);
        let is_in_proportion = (1..=TRIALS).any(|trial| {
            of_small = of_small.min(time(small, 16));
            of_large = of_large.min(time(&large, 1));
            trial >= 3 && of_large < of_small * 4
        });
        assert!(is_in_proportion, "number {number}: {of_large:?} of one, {of_small:?} of 16");
    }
}
