use super::*;

fn encoded(meta: &[u8], request: &[u8], response: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out, meta, request, response).unwrap();
    out
}

/// A whole frame as a receiver reads it.
fn decoded(frame: &[u8]) -> Result<Contents<'_>, DecodeError> {
    let (prefix, rest) = frame.split_first_chunk().unwrap();
    assert_eq!(total(*prefix)?, rest.len(), "the test's own frame");
    decode(rest)
}

#[test]
fn payloads_10_5_example_50() {
    let meta = br#"{"status":200}"#;
    let expected = "0000001d 000e 7b22737461747573223a3230307d 00000002 6869 00000003 6f6b21".replace(' ', "");
    for response in [&[&b"ok!"[..]][..], &[b"o", b"", b"k!"]] {
        let frame = encoded(meta, b"hi", response);
        let hex = frame.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
        assert_eq!(hex, expected);
        assert_eq!(decoded(&frame), Ok(Contents { meta, request: b"hi", response: b"ok!" }));
    }
}

#[test]
fn frames_follow_each_other_and_may_be_empty() {
    let mut out = encoded(b"", b"", &[]);
    assert_eq!(out, [0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    encode(&mut out, b"{}", b"", &[b"\0\xff"]).unwrap();
    let (first, second) = out.split_at(14);
    assert_eq!(decoded(first), Ok(Contents { meta: b"", request: b"", response: b"" }));
    assert_eq!(decoded(second), Ok(Contents { meta: b"{}", request: b"", response: b"\0\xff" }));
}

#[test]
fn limits_hold_at_the_exact_byte_and_a_refused_record_leaves_nothing_behind() {
    let meta = vec![b' '; MAX_META + 1];
    let mut out = vec![1];
    assert_eq!(encode(&mut out, &meta, b"", &[b""; 0]), Err(EncodeError::MetaTooLong(65_536)));
    let body = vec![0; MAX_TOTAL - LENGTHS + 1];
    assert_eq!(encode(&mut out, b"", b"", &[&body]), Err(EncodeError::FrameTooLong));
    assert_eq!(encode(&mut out, b"", &body, &[b""; 0]), Err(EncodeError::FrameTooLong));
    assert_eq!(out, [1]);
    let frame = encoded(&meta[1..], b"", &[]);
    assert_eq!(decoded(&frame).unwrap().meta.len(), MAX_META);
    let frame = encoded(b"", b"", &[&body[1..]]);
    assert_eq!(decoded(&frame).unwrap().response.len(), MAX_TOTAL - LENGTHS);
}

#[test]
fn totals_that_no_frame_has_are_refused_before_anything_is_read() {
    for (stated, is_fine) in [(0, false), (9, false), (10, true), (64 << 20, true), ((64 << 20) + 1, false)] {
        assert_eq!(total(u32::to_be_bytes(stated)).is_ok(), is_fine, "{stated}");
    }
    assert_eq!(total([0xff; 4]), Err(DecodeError::Total(u32::MAX)));
}

#[test]
fn a_frame_cut_or_continued_anywhere_is_refused() {
    let frame = encoded(b"{\"a\":1}", b"request", &[b"response"]);
    let frame = &frame[PREFIX..];
    assert!(decode(frame).is_ok());
    for end in 0..frame.len() {
        assert_eq!(decode(&frame[..end]), Err(DecodeError::Inconsistent), "{end}");
    }
    assert_eq!(decode(&[frame, b"x"].concat()), Err(DecodeError::Inconsistent));
    // Every length that lies.
    for place in [0, 9, 20] {
        let mut lying = frame.to_vec();
        lying[place] = 0xff;
        assert_eq!(decode(&lying), Err(DecodeError::Inconsistent), "{place}");
    }
}
