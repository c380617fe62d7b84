//! Token counts of an answer, read out of its last bytes: what the engine itself counted, in whichever of the three APIs'
//! words (limits.md §4). Nothing is parsed: streams end with their usage, and so do whole answers.

/// What is kept of an answer.
const KEPT: usize = 2048;

/// The last bytes of an answer, kept as chunks pass. Memory is taken once, with the first byte.
#[derive(Debug, Default)]
pub struct Tail {
    /// Grows to `KEPT` bytes, then is a ring that starts at `start`.
    ring: Vec<u8>,
    start: usize,
}

impl Tail {
    /// The next chunk.
    pub fn push(&mut self, chunk: &[u8]) {
        let chunk = chunk.get(chunk.len().saturating_sub(KEPT)..).unwrap_or_default();
        if self.ring.capacity() == 0 && !chunk.is_empty() {
            self.ring.reserve_exact(KEPT);
        }
        let (grows, rest) = chunk.split_at(chunk.len().min(KEPT - self.ring.len()));
        self.ring.extend_from_slice(grows);
        // What is left finds the ring full, and is no longer than it.
        let (to_end, around) = rest.split_at(rest.len().min(KEPT - self.start));
        for (at, part) in [(self.start, to_end), (0, around)] {
            if let Some(place) = self.ring.get_mut(at..at + part.len()) {
                place.copy_from_slice(part);
            }
        }
        self.start = (self.start + rest.len()) % KEPT;
    }

    /// What the bytes say, once all have passed.
    pub fn usage(mut self) -> Usage {
        self.ring.rotate_left(self.start);
        Usage::read(&self.ring)
    }
}

/// An answer's token counts, as far as its engine told them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Of the answer.
    pub completion: Option<u32>,
    /// Of the whole prompt.
    pub prompt: Option<u32>,
    /// Of these, served from the engine's prefix cache.
    pub cached: Option<u32>,
}

/// The fields, by what `tokens` follows in their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    /// Chat Completions.
    Completion,
    /// Messages, Responses.
    Output,
    Prompt,
    Input,
    /// Chat Completions, Responses: part of the prompt's tokens.
    Cached,
    /// Messages: beside `input_tokens`, not among them.
    CacheRead,
    CacheCreation,
}

const FIELDS: [(&[u8], Field); 7] = [
    (b"\"completion_", Field::Completion),
    (b"\"output_", Field::Output),
    (b"\"prompt_", Field::Prompt),
    (b"\"input_", Field::Input),
    (b"\"cached_", Field::Cached),
    (b"\"cache_read_input_", Field::CacheRead),
    (b"\"cache_creation_input_", Field::CacheCreation),
];

/// A field that was found. `None`: its number is none that could be true.
type Found = Option<Option<u32>>;

impl Usage {
    /// [`Usage::read`] of as much of an answer as [`Tail`] would keep.
    pub fn read_end(bytes: &[u8]) -> Self {
        Self::read(bytes.get(bytes.len().saturating_sub(KEPT)..).unwrap_or_default())
    }

    /// The last match of each field in the bytes; one whose value is no whole number is no match.
    pub fn read(bytes: &[u8]) -> Self {
        let mut found: [Found; FIELDS.len()] = [None; FIELDS.len()];
        let mut rest = bytes;
        // From the end, quote by quote: each may close a field's name.
        while let Some(at) = rest.iter().rposition(|byte| *byte == b'"') {
            let (before, after) = (rest.get(..at).unwrap_or_default(), bytes.get(at + 1..).unwrap_or_default());
            rest = before;
            let Some(name) = before.strip_suffix(b"tokens") else { continue };
            let field = FIELDS.iter().zip(&mut found).find(|((start, _), _)| name.ends_with(start));
            if let Some((_, found @ None)) = field {
                *found = whole_number(after);
            }
        }
        let of = |field| FIELDS.iter().zip(found).find(|((_, known), _)| *known == field).and_then(|(_, found)| found);
        let cached = of(Field::Cached);
        let beside = [Field::CacheRead, Field::CacheCreation].map(of);
        let input = || {
            let parts = beside.into_iter().map(|found| found.flatten().unwrap_or(0));
            let mut parts = parts.filter(|_| cached.is_none());
            of(Field::Input).map(|input| parts.try_fold(input?, u32::checked_add))
        };
        let [read, _] = beside;
        let prompt = of(Field::Prompt).or_else(input).flatten();
        // More cannot come from a cache than the prompt has.
        let cached = cached.or(read).flatten().map(|cached| cached.min(prompt.unwrap_or(cached)));
        Self { completion: of(Field::Completion).or_else(|| of(Field::Output)).flatten(), prompt, cached }
    }
}

/// The number after a field's name. One that the bytes end with may go on beyond them, and is none.
fn whole_number(after: &[u8]) -> Found {
    let digits = after.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
    let end = digits.iter().position(|byte| !byte.is_ascii_digit())?;
    let (digits, rest) = digits.split_at(end);
    if digits.is_empty() || matches!(rest.first(), Some(b'.' | b'e' | b'E')) {
        return None;
    }
    let number = digits
        .iter()
        .try_fold(0_u32, |number, digit| number.checked_mul(10)?.checked_add(u32::from(digit.wrapping_sub(b'0'))));
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completion(text: &str) -> Option<u32> {
        Usage::read(text.as_bytes()).completion
    }

    fn of(text: &str) -> (Option<u32>, Option<u32>, Option<u32>) {
        let Usage { completion, prompt, cached } = Usage::read(text.as_bytes());
        (completion, prompt, cached)
    }

    #[test]
    fn limits_14_example_16_the_last_match_counts() {
        assert_eq!(completion(r#""completion_tokens":99999 … "completion_tokens":20}"#), Some(20));
    }

    #[test]
    fn what_is_a_match() {
        for (text, expected) in [
            ("{\"completion_tokens\" :\n\t 7\n}", Some(7)),
            (r#"{"completion_tokens":0}"#, Some(0)),
            (r#"{"completion_tokens":4294967295}"#, Some(u32::MAX)),
            // A later one that is no number is passed over.
            (r#"{"completion_tokens":7,"x":{"completion_tokens":null}}"#, Some(7)),
            (r#"{"completion_tokens":7,"completion_tokens_details":{"reasoning_tokens":9}}"#, Some(7)),
            (r#"{"completion_tokens_details":{"reasoning_tokens":9}}"#, None),
            (r#"{"reasoning_completion_tokens":9}"#, None),
            (r#"{"completion_tokens":"9"}"#, None),
            (r#"{"completion_tokens":-9}"#, None),
            (r#"{"completion_tokens":9.5}"#, None),
            (r#"{"completion_tokens":9e3}"#, None),
            (r#"{"completion_tokens":}"#, None),
            // In a model's text quotes are escaped.
            (r#"{"content":"\"completion_tokens\":9"}"#, None),
            // One that can't be true is no reason to believe an older one.
            (r#"{"completion_tokens":7} {"completion_tokens":99999999999999999999}"#, None),
            (r#"{"completion_tokens":4294967296}"#, None),
            ("", None),
            ("\"", None),
        ] {
            assert_eq!(completion(text), expected, "{text}");
        }
    }

    #[test]
    fn cut_anywhere_it_is_the_whole_number_or_none() {
        let whole = r#"data: {"usage":{"prompt_tokens":31,"completion_tokens":204,"x":1}}"#;
        for at in 0..=whole.len() {
            let (before, after) = whole.split_at(at);
            assert!(matches!(completion(before), None | Some(204)), "{before}");
            assert!(matches!(completion(after), None | Some(204)), "{after}");
        }
        assert_eq!(completion(whole), Some(204), "the control");
    }

    #[test]
    fn an_answer_in_one_piece_reads_as_one_in_many() {
        let text =
            format!(r#"{}{{"completion_tokens":1}}{}{{"completion_tokens":2}}"#, "x".repeat(5000), " ".repeat(1990));
        for end in [text.len(), 7000, 5030, 300] {
            let whole = text.as_bytes().get(..end).unwrap_or_default();
            let mut tail = Tail::default();
            whole.chunks(7).for_each(|chunk| tail.push(chunk));
            assert_eq!(tail.usage(), Usage::read_end(whole), "{end}");
        }
        assert_eq!(Usage::read_end(text.as_bytes()).completion, Some(2));
    }

    #[test]
    fn each_api_s_words() {
        let chat = r#"{"usage":{"prompt_tokens":50,"total_tokens":60,"completion_tokens":10,
            "prompt_tokens_details":{"cached_tokens":48}}}"#;
        assert_eq!(of(chat), (Some(10), Some(50), Some(48)));
        let absurd = r#"{"usage":{"prompt_tokens":5,"prompt_tokens_details":{"cached_tokens":48}}}"#;
        assert_eq!(of(absurd), (None, Some(5), Some(5)), "no more than the prompt has");
        let null_details = r#"{"usage":{"prompt_tokens":5,"completion_tokens":1,"prompt_tokens_details":null}}"#;
        assert_eq!(of(null_details), (Some(1), Some(5), None));
        let responses =
            r#"{"usage":{"input_tokens":50,"input_tokens_details":{"cached_tokens":48},"output_tokens":10}}"#;
        assert_eq!(of(responses), (Some(10), Some(50), Some(48)));
        // What the cache had is told beside the rest of the prompt.
        let messages = r#"{"usage":{"input_tokens":2,"cache_creation_input_tokens":8,"cache_read_input_tokens":40,
            "output_tokens":10}}"#;
        assert_eq!(of(messages), (Some(10), Some(50), Some(40)));
        let stream = r#"{"usage":{"input_tokens":25,"output_tokens":1}} {"usage":{"output_tokens":15}}"#;
        assert_eq!(of(stream), (Some(15), Some(25), None));
        assert_eq!(of(r#"{"output_tokens":3,"completion_tokens":4}"#).0, Some(4), "before the other word");
    }

    #[test]
    fn the_tail_is_the_last_bytes_however_they_came() {
        let whole: Vec<u8> = (0..5 * KEPT + 77).map(|at| u8::try_from(at % 251).unwrap()).collect();
        for total in [0, 1, KEPT - 1, KEPT, KEPT + 1, 2 * KEPT, whole.len()] {
            for size in [1, 2, 7, 100, 1000, KEPT - 1, KEPT, KEPT + 1, 3 * KEPT] {
                let bytes = &whole[..total];
                let mut tail = Tail::default();
                for chunk in bytes.chunks(size) {
                    tail.push(chunk);
                    tail.push(b"");
                }
                tail.ring.rotate_left(tail.start);
                assert_eq!(tail.ring, bytes[total.saturating_sub(KEPT)..], "{total} in pieces of {size}");
                assert!(tail.ring.capacity() <= KEPT, "memory is taken once");
            }
        }
    }

    #[test]
    fn usage_that_comes_in_pieces() {
        let mut tail = Tail::default();
        tail.push(&[b'x'; 3000]);
        for piece in ["{\"usage\":{\"completion_", "tok", "ens\":1", "2,\"prompt_tokens\":3}}\n\n", "data: [DONE]\n\n"]
        {
            tail.push(piece.as_bytes());
        }
        assert_eq!(tail.usage(), Usage { completion: Some(12), prompt: Some(3), cached: None });
        assert_eq!(Tail::default().usage(), Usage::default());
    }
}
