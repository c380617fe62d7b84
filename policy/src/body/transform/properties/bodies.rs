//! Made-up bodies, full of what transforms look for, and ways to write them down.

use std::fmt::Write;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// A body's text.
#[derive(Debug, Clone)]
pub(super) struct Written {
    pub(super) text: String,
    /// Whether fields stand twice in it, with other values before those that count.
    pub(super) has_decoys: bool,
}

/// The longest scalar that is written, in bytes.
pub(super) const LONGEST_SCALAR: usize = 6 * 120;

const KEYS: [&str; 16] = [
    "content",
    "text",
    "id",
    "tool_call_id",
    "role",
    "system",
    "messages",
    "stream",
    "stream_options",
    "include_usage",
    "tool_calls",
    "function",
    "name",
    "model",
    "x",
    "é",
];
const STRINGS: [&str; 12] = [
    "x-anthropic-billing-header: cc_version=1; cc_entrypoint=cli; cch=ab; You",
    "x-anthropic-billing-header:cc_version=;cc_entrypoint=;cch=;",
    "x-anthropic-billing-header: cc_version=\"; cc_entrypoint=cli; cch=ab; You",
    "x-anthropic-billing-header: cc_version=1; cch=ab;",
    "hello \"stream_options\": null \\ \u{1F600}\u{0}\n",
    "{\"id\":\"c1\",\"include_usage\":false}",
    "system",
    "kimi-k2.5",
    "user",
    "",
    " ",
    "true",
];
const IDS: [&str; 9] = [
    "c1",
    "c2",
    "call_\"é",
    "functions.f:0",
    "functions.f:1",
    "functions.f:7",
    "functions.read_file:0",
    "functions.read_file:3",
    " ",
];

fn word(words: &'static [&'static str]) -> impl Strategy<Value = Value> {
    prop::sample::select(words).prop_map(|word| json!(word))
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        2 => Just(Value::Null),
        2 => any::<bool>().prop_map(Value::from),
        2 => (-3_i64..1000).prop_map(Value::from),
        1 => any::<u64>().prop_map(Value::from),
        1 => (-1e9..1e9).prop_map(|number: f64| json!(number)),
        4 => word(&STRINGS),
        4 => word(&IDS),
        1 => "\\PC{0,8}".prop_map(Value::from),
    ]
}

fn object<V: Strategy<Value = Value> + 'static>(value: V) -> impl Strategy<Value = Value> {
    prop::collection::vec((prop::sample::select(&KEYS[..]), value), 0..5)
        .prop_map(|fields| Value::Object(fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()))
}

/// Anything, with the interesting keys at any depth.
fn tree() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(3, 16, 4, |inner| {
        prop_oneof![prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from), object(inner)]
    })
}

/// Mostly these, otherwise anything.
fn mostly(usual: impl Strategy<Value = Value> + 'static) -> impl Strategy<Value = Value> {
    prop_oneof![8 => usual, 1 => tree()]
}

/// An object of these fields, each there or not.
fn of_fields(fields: Vec<(&'static str, BoxedStrategy<Value>)>) -> impl Strategy<Value = Value> {
    let fields: Vec<_> = fields
        .into_iter()
        .map(|(key, value)| prop::option::weighted(0.8, value.prop_map(move |value| (key.to_owned(), value))))
        .collect();
    fields.prop_shuffle().prop_map(|fields| Value::Object(fields.into_iter().flatten().collect::<Map<_, _>>()))
}

fn call() -> impl Strategy<Value = Value> {
    let function = of_fields(vec![
        ("name", mostly(word(&["f", "f", "read_file", "a b", ""])).boxed()),
        ("arguments", mostly(word(&["", "{}", "{\"id\":\"c1\"}", "é"])).boxed()),
    ]);
    of_fields(vec![("id", mostly(word(&IDS)).boxed()), ("function", mostly(function).boxed())])
}

fn message() -> impl Strategy<Value = Value> {
    let block = of_fields(vec![("type", Just(json!("text")).boxed()), ("text", mostly(word(&STRINGS)).boxed())]);
    let blocks = prop::collection::vec(mostly(prop_oneof![block, word(&STRINGS)]), 0..4).prop_map(Value::from);
    let calls = prop::collection::vec(mostly(call()), 0..4).prop_map(Value::from);
    of_fields(vec![
        ("role", mostly(word(&["system", "system", "user", "assistant", "tool"])).boxed()),
        ("content", mostly(prop_oneof![word(&STRINGS), blocks]).boxed()),
        ("tool_calls", mostly(calls).boxed()),
        ("tool_call_id", mostly(word(&IDS)).boxed()),
    ])
}

fn tree_of_body() -> impl Strategy<Value = Value> {
    let options = of_fields(vec![("include_usage", scalar().boxed()), ("x", tree().boxed())]);
    let schema = tree().prop_map(|tree| json!([{"function": {"parameters": {"stream_options": tree}}}]));
    of_fields(vec![
        ("model", mostly(word(&["kimi-k2.5", "Kimi-K2.6", "moonshotai/kimi-k2.6", "gpt"])).boxed()),
        ("messages", mostly(prop::collection::vec(mostly(message()), 0..6).prop_map(Value::from)).boxed()),
        ("stream", mostly(Just(json!(true))).boxed()),
        ("stream_options", mostly(prop_oneof![Just(Value::Null), options]).boxed()),
        ("system", tree().boxed()),
        ("tools", schema.boxed()),
        ("x", tree().boxed()),
    ])
}

/// A body, written in some way.
pub(super) fn body() -> impl Strategy<Value = Written> {
    (tree_of_body(), any::<u64>(), any::<[bool; 3]>()).prop_map(|(tree, seed, [has_space, has_escapes, has_decoys])| {
        let mut writer = Writer { out: String::new(), seed, has_space, has_escapes, has_decoys };
        writer.space();
        writer.value(&tree);
        writer.space();
        Written { text: writer.out, has_decoys }
    })
}

struct Writer {
    out: String,
    seed: u64,
    has_space: bool,
    has_escapes: bool,
    has_decoys: bool,
}

impl Writer {
    /// One time in so many.
    fn is_time(&mut self, one_in: u64) -> bool {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33).is_multiple_of(one_in)
    }

    fn space(&mut self) {
        if self.has_space && self.is_time(3) {
            let space = if self.is_time(2) { " " } else { "\n  " };
            self.out.push_str(space);
        }
    }

    fn token(&mut self, token: &str) {
        self.space();
        self.out.push_str(token);
        self.space();
    }

    /// A marker is one only as it stands: written with other escapes it would be one, or be none, in the tree alone.
    fn string(&mut self, text: &str) {
        let is_marker = text.starts_with("x-anthropic");
        let may_escape = self.has_escapes && !is_marker;
        self.out.push('"');
        for c in text.chars() {
            let must_escape = c < ' ' || c == '"' || c == '\\';
            if must_escape && (is_marker || self.is_time(2)) {
                let quoted = Value::from(c.to_string()).to_string();
                self.out.push_str(&quoted[1..quoted.len() - 1]);
            } else if must_escape || (may_escape && self.is_time(4)) {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(self.out, "\\u{unit:04x}");
                }
            } else {
                self.out.push(c);
            }
        }
        self.out.push('"');
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.string(text),
            Value::Array(items) => {
                self.out.push('[');
                self.space();
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        self.token(",");
                    }
                    self.value(item);
                }
                self.space();
                self.out.push(']');
            }
            Value::Object(fields) => {
                self.out.push('{');
                self.space();
                for (at, (key, value)) in fields.iter().enumerate() {
                    if at > 0 {
                        self.token(",");
                    }
                    if self.has_decoys && self.is_time(6) {
                        let decoy = if self.is_time(2) { STRINGS[0] } else { IDS[0] };
                        self.field(key, &json!(decoy));
                        self.token(",");
                    }
                    self.field(key, value);
                }
                self.space();
                self.out.push('}');
            }
            Value::Number(number) if number.is_i64() && self.is_time(3) => {
                let _ = write!(self.out, "{number}.50E+01");
            }
            other => self.out.push_str(&other.to_string()),
        }
    }

    fn field(&mut self, key: &str, value: &Value) {
        self.string(key);
        self.token(":");
        self.value(value);
    }
}
