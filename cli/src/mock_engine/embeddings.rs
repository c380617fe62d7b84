//! `/v1/embeddings`: vectors that depend on the text alone, of unit length, as floats or as base64 of little-endian `f32`.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::prefix_cache::token_count;
use super::request::BadRequest;

/// Length of a vector when the request names none.
const DEFAULT_DIMENSIONS: u32 = 16;
/// Longest vector.
const MAX_DIMENSIONS: u32 = 4096;

#[derive(Deserialize)]
struct Wire<'a> {
    model: Option<String>,
    #[serde(borrow)]
    input: &'a RawValue,
    encoding_format: Option<String>,
    dimensions: Option<u32>,
}

/// Answers a request, or says why it is refused.
pub(crate) fn answer(body: &[u8], default_model: &str) -> Result<Vec<u8>, BadRequest> {
    let wire: Wire<'_> = serde_json::from_slice(body)
        .map_err(|error| BadRequest { message: format!("invalid request body: {error}"), param: None })?;
    let dimensions = wire.dimensions.unwrap_or(DEFAULT_DIMENSIONS);
    if !(1..=MAX_DIMENSIONS).contains(&dimensions) {
        let message = format!("dimensions: 1 to {MAX_DIMENSIONS} expected, got {dimensions}");
        return Err(BadRequest { message, param: Some("dimensions") });
    }
    let inputs = inputs(wire.input)?;
    let is_base64 = wire.encoding_format.as_deref() == Some("base64");
    let data: Vec<Value> = inputs
        .iter()
        .enumerate()
        .map(|(index, text)| {
            let vector = embed(text, dimensions);
            let embedding = if is_base64 {
                let bytes: Vec<u8> = vector.iter().flat_map(|number| number.to_le_bytes()).collect();
                json!(base64(&bytes))
            } else {
                json!(vector)
            };
            json!({"object": "embedding", "index": index, "embedding": embedding})
        })
        .collect();
    let tokens: usize = inputs.iter().map(|text| token_count(text)).sum();
    let body = json!({
        "object": "list",
        "data": data,
        "model": wire.model.as_deref().unwrap_or(default_model),
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    });
    Ok(body.to_string().into_bytes())
}

/// The texts to embed: a string, a list of strings, one list of token ids, or a list of such lists.
fn inputs(raw: &RawValue) -> Result<Vec<String>, BadRequest> {
    if let Ok(text) = serde_json::from_str::<String>(raw.get()) {
        return Ok(vec![text]);
    }
    if let Ok(texts) = serde_json::from_str::<Vec<String>>(raw.get()) {
        return Ok(texts);
    }
    if serde_json::from_str::<Vec<u64>>(raw.get()).is_ok() {
        return Ok(vec![raw.get().to_owned()]);
    }
    if let Ok(lists) = serde_json::from_str::<Vec<Vec<u64>>>(raw.get()) {
        return Ok(lists.iter().map(|list| format!("{list:?}")).collect());
    }
    Err(BadRequest { message: "input: string or list of strings or token ids expected".into(), param: Some("input") })
}

/// A vector of unit length made of the text's SHA-256, continued by hashing the hash.
fn embed(text: &str, dimensions: u32) -> Vec<f32> {
    let dimensions = usize::try_from(dimensions).unwrap_or(0);
    let mut numbers = Vec::with_capacity(dimensions);
    let mut digest = Sha256::digest(text.as_bytes());
    while numbers.len() < dimensions {
        let (pairs, _) = digest.as_slice().as_chunks::<2>();
        let room = dimensions - numbers.len();
        numbers.extend(pairs.iter().take(room).map(|pair| f32::from(i16::from_le_bytes(*pair)) + 0.5));
        digest = Sha256::digest(digest);
    }
    let length = numbers.iter().map(|number| number * number).sum::<f32>().sqrt();
    numbers.into_iter().map(|number| number / length).collect()
}

/// Standard base64 with padding (RFC 4648, section 4).
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for position in 0..4 {
            if position > group.len() {
                out.push('=');
                continue;
            }
            let index = (bits >> (18 - 6 * position)) & 63;
            let letter = usize::try_from(index).ok().and_then(|index| ALPHABET.get(index));
            out.push(letter.map_or('=', |letter| char::from(*letter)));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_has_the_examples_of_rfc_4648() {
        for (plain, encoded) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }

    #[test]
    fn vectors_depend_on_the_text_alone_and_have_unit_length() {
        assert_eq!(embed("a", 40), embed("a", 40));
        assert_ne!(embed("a", 40), embed("b", 40));
        let length: f32 = embed("a", 40).iter().map(|number| number * number).sum();
        assert!((length - 1.0).abs() < 1e-4, "{length}");
    }

    #[test]
    fn every_kind_of_input_is_taken() {
        for (input, count) in [(r#""a""#, 1), (r#"["a","b"]"#, 2), ("[1,2]", 1), ("[[1],[2]]", 2)] {
            let body = answer(format!(r#"{{"input":{input},"dimensions":4}}"#).as_bytes(), "m").unwrap();
            let parsed: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(parsed["data"].as_array().unwrap().len(), count, "{input}");
            assert_eq!(parsed["data"][0]["embedding"].as_array().unwrap().len(), 4);
        }
        assert_eq!(answer(br#"{"input":{}}"#, "m").unwrap_err().param, Some("input"));
        assert_eq!(answer(br#"{"input":"a","dimensions":0}"#, "m").unwrap_err().param, Some("dimensions"));
    }
}
