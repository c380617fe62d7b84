//! What the session id and the model's name of a request cost: one pass over its body.

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use http::HeaderMap;
use router_policy::body::peek::Peek;
use router_policy::option::catalogue::SESSION_SOURCES;
use router_policy::session::extract::SourceList;

#[path = "support/bodies.rs"]
mod bodies;

use bodies::Text;

const SIZES: [usize; 3] = [1 << 10, 100 << 10, 10 << 20];

fn main() {
    divan::main();
}

fn extract(bencher: Bencher<'_, '_>, text: Text, size: usize) {
    extract_from(bencher, &bodies::chat(text, size));
}

fn extract_from(bencher: Bencher<'_, '_>, body: &str) {
    let (sources, headers) = (SourceList::new(SESSION_SOURCES, &[]), HeaderMap::new());
    bencher.counter(BytesCount::of_str(&body)).bench_local(|| {
        let peek = Peek::read(black_box(body.as_bytes()));
        let id = sources.find(&headers, peek.as_ref()).map(|found| found.id.len());
        (id, peek.and_then(|peek| peek.model_name()).map(|name| name.len()))
    });
}

#[divan::bench(args = SIZES)]
fn english(bencher: Bencher<'_, '_>, size: usize) {
    extract(bencher, Text::English, size);
}

#[divan::bench(args = SIZES)]
fn code(bencher: Bencher<'_, '_>, size: usize) {
    extract(bencher, Text::Code, size);
}

#[divan::bench(args = SIZES)]
fn chinese(bencher: Bencher<'_, '_>, size: usize) {
    extract(bencher, Text::Chinese, size);
}

#[divan::bench(args = SIZES)]
fn image(bencher: Bencher<'_, '_>, size: usize) {
    extract(bencher, Text::Image, size);
}

/// JSON text of 10 MiB, half of it escapes, in a place that may name the session.
#[divan::bench]
fn metadata_user_id(bencher: Bencher<'_, '_>) {
    let text = format!("{{\"pad\": [{}0]}}", "\"\",".repeat((10 << 20) / 5));
    let body = serde_json::json!({"model": "m", "metadata": {"user_id": text}, "user": "someone"});
    extract_from(bencher, &body.to_string());
}
