//! However a stream is cut into chunks, its client gets the same bytes.

use proptest::prelude::*;

use super::streams::ALL;
use super::{handler, through};
use crate::sse::rewrite::{Output, Rewriter};

fn rewriters() -> [Rewriter; 5] {
    [
        Rewriter::events(Some(handler("vllm_format")), true),
        Rewriter::events(Some(handler("vllm_format")), false),
        Rewriter::events(Some(handler("strip_actual_usage")), true),
        Rewriter::events(None, true),
        Rewriter::json(handler("vllm_format")),
    ]
}

fn rewriter(which: usize) -> Rewriter {
    rewriters().into_iter().nth(which).unwrap()
}

/// The stream in pieces of these sizes, over and over.
fn pieces<'a>(mut stream: &'a [u8], sizes: &'a [usize]) -> impl Iterator<Item = &'a [u8]> {
    let mut sizes = sizes.iter().cycle();
    std::iter::from_fn(move || {
        let size = *sizes.next()?;
        let (piece, rest) = stream.split_at(size.min(stream.len()));
        stream = rest;
        (!piece.is_empty() || !rest.is_empty()).then_some(piece)
    })
}

#[test]
fn every_cut_in_two_gives_the_same_bytes() {
    for stream in ALL {
        let stream = stream.as_bytes();
        for which in 0..rewriters().len() {
            let whole = through(rewriter(which), [stream]);
            assert_eq!(whole == stream, which == 4, "{which} changes it; as a JSON answer it is none");
            for at in 0..=stream.len() {
                let (before, after) = stream.split_at(at);
                assert!(through(rewriter(which), [before, after]) == whole, "{which} at {at}");
            }
            let bytes = through(rewriter(which), stream.chunks(1));
            assert!(bytes == whole, "{which} byte by byte");
        }
    }
}

#[test]
fn whole_lines_leave_with_the_chunk_that_ends_them() {
    for stream in ALL {
        for which in 0..4 {
            let mut byte_by_byte = rewriter(which);
            let mut sent = Vec::new();
            for (at, byte) in stream.bytes().enumerate() {
                match byte_by_byte.push(&[byte]) {
                    Output::Same => sent.push(byte),
                    Output::First(bytes) => assert_eq!(bytes, 0),
                    Output::Changed(changed) => sent.extend(changed),
                }
                if byte == b'\n' {
                    let lines = &stream.as_bytes()[..=at];
                    let due = through(rewriter(which), [lines]);
                    assert!(sent == due, "{which} at {at}: {}", String::from_utf8_lossy(&sent));
                }
            }
        }
    }
}

/// Bytes that make lines, and pieces of what handlers look for.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"data: ".to_vec()),
        Just(b"data:{\"choices\":[".to_vec()),
        Just(b"],\"usage\":{}}".to_vec()),
        Just(b"{\"reasoning\":\"".to_vec()),
        Just(b"\"logprobs\":null,".to_vec()),
        Just(b"\"actual_usage\":1}".to_vec()),
        Just(b"\n".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"[DONE]".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..4),
        Just(b"\xf0\x9f".to_vec()),
        "[\\[\\]{}:,\"\\\\ 0-9eE.-]{0,6}".prop_map(String::into_bytes),
    ];
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn many_cuts_give_the_same_bytes(
        which in 0..ALL.len(),
        sizes in proptest::collection::vec(0_usize..90, 1..12),
    ) {
        prop_assume!(sizes.iter().any(|size| *size > 0));
        let stream = ALL[which].as_bytes();
        for (cut, whole) in rewriters().into_iter().zip(rewriters()) {
            prop_assert_eq!(through(cut, pieces(stream, &sizes)), through(whole, [stream]));
        }
    }

    #[test]
    fn no_bytes_are_too_strange(
        stream in hostile(),
        sizes in proptest::collection::vec(1_usize..20, 1..8),
    ) {
        for (cut, whole) in rewriters().into_iter().zip(rewriters()) {
            prop_assert_eq!(through(cut, pieces(&stream, &sizes)), through(whole, [&stream[..]]));
        }
        // Without a rule, nothing changes.
        let nothing = Rewriter::events(None, false);
        prop_assert_eq!(through(nothing, pieces(&stream, &sizes)), stream);
    }
}
