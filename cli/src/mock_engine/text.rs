//! The text that the mock "generates": the same words for every request, so that answers are predictable.

/// Words of an answer after the first; none needs escaping in JSON.
const WORDS: [&str; 8] = [" answer", " from", " the", " mock", " engine", ",", " not", " a model"];

/// The text of output token `index`, counted from 0. Needs no escaping inside a JSON string.
pub(crate) fn piece(index: u32) -> &'static str {
    if index == 0 {
        return "An";
    }
    let position = usize::try_from(index - 1).unwrap_or(0) % WORDS.len();
    WORDS.get(position).copied().unwrap_or_default()
}

/// The whole answer of `tokens` tokens.
pub(crate) fn answer(tokens: u32) -> String {
    (0..tokens).map(piece).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_its_pieces() {
        assert_eq!(answer(1), "An");
        assert_eq!(answer(6), "An answer from the mock engine");
        assert_eq!(answer(10), "An answer from the mock engine, not a model answer");
    }

    #[test]
    fn no_piece_needs_escaping() {
        for index in 0..20 {
            assert_eq!(serde_json::to_string(piece(index)).unwrap(), format!("\"{}\"", piece(index)));
        }
    }
}
