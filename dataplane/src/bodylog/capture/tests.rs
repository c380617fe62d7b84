use super::*;
use proptest::prelude::*;

fn captured(capture: &Capture) -> Vec<u8> {
    capture.pieces(&capture.marker()).concat()
}

fn of<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Capture {
    let mut capture = Capture::default();
    for chunk in chunks {
        capture.push(chunk);
    }
    capture
}

/// What the buffers take up, in bytes.
fn cost(capture: &Capture) -> usize {
    capture.head.capacity() + capture.tail.as_ref().map_or(0, Tail::cost)
}

fn marker(missing: usize) -> String {
    format!("\n[BODYLOG_TRUNCATED {missing} BYTES MISSING IN MIDDLE]\n")
}

/// Bytes that show where they are from.
fn text(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect()
}

#[test]
fn the_head_is_full_at_its_last_byte() {
    let body = text(HEAD_MAX + 1);
    let full = of([&body[..HEAD_MAX - 1], &body[HEAD_MAX - 1..HEAD_MAX], b""]);
    assert!(!full.is_truncated());
    assert_eq!((full.total(), full.chunks(), cost(&full)), (HEAD_MAX as u64, 2, HEAD_MAX));
    assert_eq!(captured(&full), &body[..HEAD_MAX]);
    let one_more = of([&body[..HEAD_MAX], &body[HEAD_MAX..]]);
    assert!(one_more.is_truncated());
    assert_eq!(captured(&one_more), [&body[..HEAD_MAX], marker(0).as_bytes(), &body[HEAD_MAX..]].concat());
}

#[test]
fn rulings_7_the_head_is_closed_at_the_first_overflow() {
    let body = text(HEAD_MAX + 2);
    // The second chunk does not fit; the third would.
    let capture = of([&body[..HEAD_MAX - 2], &body[HEAD_MAX - 2..=HEAD_MAX], &body[HEAD_MAX + 1..]]);
    let expected = [&body[..HEAD_MAX - 2], marker(0).as_bytes(), &body[HEAD_MAX - 2..]].concat();
    assert!(captured(&capture) == expected);
}

#[test]
fn the_ring_is_full_at_its_last_byte_and_loses_whole_chunks_oldest_first() {
    let (head, tail) = (text(HEAD_MAX), text(TAIL_MAX));
    let mut capture = of([&head[..], &tail[..10], &tail[10..30], &tail[30..]]);
    assert!(captured(&capture) == [&head[..], marker(0).as_bytes(), &tail].concat());
    capture.push(b"x");
    assert!(captured(&capture) == [&head[..], marker(10).as_bytes(), &tail[10..], b"x"].concat());
    capture.push(&[b'y'; 10]);
    assert!(captured(&capture) == [&head[..], marker(30).as_bytes(), &tail[30..], b"xyyyyyyyyyy"].concat());
    assert_eq!(capture.total(), (HEAD_MAX + TAIL_MAX + 11) as u64);
}

#[test]
fn rulings_7_a_chunk_larger_than_the_ring_keeps_its_end_and_the_marker_is_right() {
    let chunk = text(HEAD_MAX + 7);
    let alone = of([&chunk[..]]);
    let kept = &chunk[chunk.len() - TAIL_MAX..];
    assert!(captured(&alone) == [marker(chunk.len() - TAIL_MAX).as_bytes(), kept].concat());
    let after = of([&b"head"[..], &chunk, &chunk]);
    let missing = 2 * chunk.len() - TAIL_MAX;
    assert!(captured(&after) == [b"head", marker(missing).as_bytes(), kept].concat());
    assert!(cost(&after) <= HEAD_MIN + TAIL_MAX + 64);
}

#[test]
fn the_cost_is_bounded_however_small_the_chunks_are() {
    let mut capture = Capture::default();
    let mut grown = capture.push(&text(HEAD_MAX));
    for _ in 0..2 * TAIL_MAX {
        grown += capture.push(b"x");
    }
    assert_eq!(grown, cost(&capture));
    assert_eq!(grown, HEAD_MAX + TAIL_MAX + TAIL_MAX * size_of::<u32>());
    assert_eq!(capture.marker(), marker(TAIL_MAX));
}

/// The rules, written for reading.
fn naive(chunks: &[&[u8]]) -> Vec<u8> {
    let mut head = Vec::new();
    let mut rest = chunks.iter().filter(|chunk| !chunk.is_empty()).peekable();
    while let Some(chunk) = rest.next_if(|chunk| head.len() + chunk.len() <= HEAD_MAX) {
        head.extend_from_slice(chunk);
    }
    if rest.peek().is_none() {
        return head;
    }
    let rest: Vec<&[u8]> = rest.map(|chunk| &chunk[chunk.len().saturating_sub(TAIL_MAX)..]).collect();
    let fits = |from: usize| rest[from..].concat().len() <= TAIL_MAX;
    let from = (0..rest.len()).find(|&from| fits(from)).unwrap();
    let tail = rest[from..].concat();
    let total: usize = chunks.iter().map(|chunk| chunk.len()).sum();
    [&head, marker(total - head.len() - tail.len()).as_bytes(), &tail].concat()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn head_and_tail_are_what_a_naive_model_keeps(
        lengths in prop::collection::vec(
            prop_oneof![Just(0), 1..200_usize, 1..300_000_usize, (HEAD_MAX - 3)..(HEAD_MAX + 3), (TAIL_MAX - 3)..(TAIL_MAX + 3)],
            0..24,
        ),
    ) {
        let body = text(lengths.iter().sum());
        let mut rest = &body[..];
        let chunks: Vec<&[u8]> = lengths
            .iter()
            .map(|&length| {
                let (chunk, after) = rest.split_at(length);
                rest = after;
                chunk
            })
            .collect();
        let mut capture = Capture::default();
        let grown: usize = chunks.iter().map(|chunk| capture.push(chunk)).sum();
        prop_assert_eq!(grown, cost(&capture));
        prop_assert!(captured(&capture) == naive(&chunks));
        prop_assert_eq!(capture.total(), body.len() as u64);
    }
}
