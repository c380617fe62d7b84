//! Request bodies as clients send them, made up: the same ones in each run.

use serde_json::{Value, json};

/// What a body is mostly made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Text {
    /// Prose: a line break (`\n`) or a quotation (`\"`) every few dozen characters.
    English,
    /// Indented source: an escape every dozen characters.
    Code,
    /// Three bytes per character.
    Chinese,
    /// One image, base64: a string without escapes.
    Image,
}

const ENGLISH: [&str; 16] = [
    "the",
    "of",
    "router",
    "sends",
    "every",
    "session",
    "to",
    "a",
    "backend,",
    "which",
    "answers",
    "it.\n",
    "\"quickly\"",
    "and",
    "without",
    "delay;",
];
const CODE: [&str; 8] = [
    "    let total = items.iter().map(|item| item.len()).sum::<usize>();\n",
    "    if name == \"model\" {\n        return Ok(());\n    }\n",
    "\tfor (i = 0; i < n; i++) {\n\t\tprintf(\"%d\\n\", i);\n\t}\n",
    "def f(x):\n    return {\"a\": x, 'b': [x, x + 1]}\n\n",
    "// One more line of a comment that says why.\n",
    "}\n",
    "const url = `https://example.com/${path}?q=1`;\n",
    "SELECT id, name FROM users WHERE name = 'x' AND age > 3;\n",
];
const CHINESE: [&str; 8] =
    ["请", "帮我把这段文字翻译成英文,", "并且说明", "每一个", "词语的意思。\n", "模型", "的回答", "很好。"];

/// Numbers that look random.
struct Noise(u64);

impl Noise {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap_or(0) % below
    }
}

fn words(noise: &mut Noise, size: usize, from: &[&str], gap: &str) -> String {
    let mut text = String::with_capacity(size + 64);
    while text.len() < size {
        text.push_str(from.get(noise.next(from.len())).copied().unwrap_or_default());
        text.push_str(gap);
    }
    text
}

fn base64(noise: &mut Noise, size: usize) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    (0..size).map(|_| char::from(ALPHABET.get(noise.next(64)).copied().unwrap_or(b'A'))).collect()
}

impl Text {
    fn make(self, noise: &mut Noise, size: usize) -> String {
        match self {
            Self::English => words(noise, size, &ENGLISH, " "),
            Self::Code => words(noise, size, &CODE, ""),
            Self::Chinese => words(noise, size, &CHINESE, ""),
            Self::Image => format!("data:image/png;base64,{}", base64(noise, size)),
        }
    }
}

fn message(noise: &mut Noise, text: Text, turn: usize, size: usize) -> Value {
    let role = if turn.is_multiple_of(2) { "user" } else { "assistant" };
    let text_made = text.make(noise, size);
    match text {
        Text::Image => json!({"role": role, "content": [
            {"type": "text", "text": "What is in this image?"},
            {"type": "image_url", "image_url": {"url": text_made}},
        ]}),
        _ => json!({"role": role, "content": text_made}),
    }
}

/// A chat of messages of about 2 KiB (an image is one message), `size` bytes long, give or take one message.
pub(crate) fn chat(text: Text, size: usize) -> String {
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    let mut messages = vec![json!({"role": "system", "content": "You are a helpful assistant."})];
    let step = if text == Text::Image { size.saturating_sub(400) } else { 2048.min(size.saturating_sub(300)) };
    let mut left = size.saturating_sub(300);
    while left > 0 {
        let next = left.min(step);
        messages.push(message(&mut noise, text, messages.len() + 1, next));
        left -= next;
    }
    // `model` and `user` at the end: a look at the first bytes alone would not find them.
    json!({
        "messages": messages,
        "model": "kimi-k2.6",
        "temperature": 0.7,
        "stream": true,
        "metadata": {"session_id": "3b0c2a9e-6f3c-4f0e-9d2a-0c1d9a1f7b11"},
        "user": "someone",
    })
    .to_string()
}
