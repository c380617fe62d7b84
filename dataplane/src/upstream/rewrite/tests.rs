use http_body_util::Full;
use router_policy::ids::RouteName;

use super::*;
use crate::metrics::Metrics;

const BODY: &str = r#"{"actual_usage":1,"a":1}"#;
const REWRITTEN: &str = r#"{"a":1}"#;
const NOTHING: Wanted = Wanted { handler: None, hides_usage: false, is_head: false };

fn json() -> Wanted {
    Wanted { handler: Handler::named("strip_actual_usage"), ..NOTHING }
}

struct Bench {
    metrics: Metrics,
    route: Arc<RouteMetrics>,
    budget: Arc<Budget>,
}

impl Bench {
    fn new(budget: usize) -> Self {
        let metrics = Metrics::new();
        let route = metrics.route(&RouteName::new("chat").unwrap());
        let budget = Arc::new(Budget::new(budget, metrics.answers_held.clone()));
        Self { metrics, route, budget }
    }

    /// The rewriting of an answer with these headers, and its head then.
    fn of(&self, wanted: Wanted, status: u16, headers: &[(&str, &str)]) -> (Option<Box<Rewriting>>, HeaderMap) {
        let mut answer = Response::builder().status(status);
        for (name, value) in headers {
            answer = answer.header(*name, *value);
        }
        let mut answer = answer.body(Full::<Bytes>::from("x")).unwrap();
        let rewriting = Rewriting::of(&mut answer, wanted, &self.route, &self.budget);
        (rewriting, answer.into_parts().0.headers)
    }

    fn passed(&self) -> u64 {
        let text = self.metrics.encode();
        let line =
            text.lines().find_map(|line| line.strip_prefix(r#"router_answers_not_rewritten_total{route="chat"} "#));
        line.map_or(0, |count| count.parse().unwrap())
    }
}

/// What a client gets of a body in these pieces.
fn through(rewriting: Option<Box<Rewriting>>, pieces: &[&'static str]) -> String {
    let Some(mut rewriting) = rewriting else { return pieces.concat() };
    let mut out: Vec<u8> = Vec::new();
    for piece in pieces {
        out.extend(rewriting.push(Bytes::from_static(piece.as_bytes())).unwrap_or_default());
    }
    out.extend(rewriting.end().unwrap_or_default());
    String::from_utf8(out).unwrap()
}

const JSON: (&str, &str) = ("content-type", "application/json");
const EVENTS: (&str, &str) = ("content-type", "text/event-stream");

#[test]
fn a_part_of_an_answer_and_one_that_nobody_wants_changed_pass() {
    let bench = Bench::new(1000);
    for (wanted, status, is_rewritten) in [(json(), 200, true), (json(), 206, false), (NOTHING, 200, false)] {
        for kind in [JSON, EVENTS] {
            let (rewriting, head) = bench.of(wanted, status, &[kind, ("etag", "1"), ("repr-digest", "x")]);
            assert_eq!(rewriting.is_some(), is_rewritten, "{status} {kind:?}");
            assert_eq!(head.len(), if is_rewritten { 1 } else { 3 });
        }
    }
    assert_eq!(bench.passed(), 0, "nothing was to be done");
}

#[test]
fn held_answers_share_one_budget_and_what_has_no_room_passes_as_it_is() {
    let bench = Bench::new(BODY.len());
    let (first, _) = bench.of(json(), 200, &[JSON]);
    let mut first = first.unwrap();
    assert_eq!(first.push(Bytes::from_static(&BODY.as_bytes()[..20])), None);
    // Of one without a stated length it comes out when its bytes come; all of them pass.
    let (second, _) = bench.of(json(), 200, &[JSON]);
    assert_eq!(through(second, &[&BODY[..4], &BODY[4..15], &BODY[15..]]), BODY);
    assert_eq!(bench.passed(), 1);
    // With one the answer is not even touched.
    let (third, head) = bench.of(json(), 200, &[JSON, ("content-length", "24"), ("etag", "1")]);
    assert!(third.is_none() && head.len() == 3);
    assert_eq!(bench.passed(), 2);
    assert_eq!(first.push(Bytes::from_static(&BODY.as_bytes()[20..])), None);
    assert_eq!(first.end().unwrap(), REWRITTEN);
    // There is room again.
    assert_eq!(bench.metrics.answers_held.get(), 0);
    let (fourth, head) = bench.of(json(), 200, &[JSON, ("content-length", "24"), ("etag", "1")]);
    assert_eq!((fourth.is_some(), head.len()), (true, 1));
    assert!(bench.of(json(), 200, &[JSON, ("content-length", "1")]).0.is_none(), "reserved by what is stated");
    assert_eq!(through(fourth, &[BODY]), REWRITTEN);
    assert_eq!(bench.passed(), 3);
}

#[test]
fn an_answer_that_states_more_than_8_mib_is_not_touched() {
    let bench = Bench::new(HELD_IN_ALL);
    for (length, is_rewritten) in [(HELD_MAX, true), (HELD_MAX + 1, false)] {
        for wanted in [json(), Wanted { is_head: true, ..json() }] {
            let (rewriting, head) = bench.of(wanted, 200, &[JSON, ("content-length", &length.to_string())]);
            assert_eq!(rewriting.is_some(), is_rewritten);
            assert_eq!(head.contains_key("content-length"), !is_rewritten);
        }
    }
    let (events, _) = bench.of(json(), 200, &[EVENTS, ("content-length", &(HELD_MAX + 1).to_string())]);
    assert!(events.is_some(), "streams are not held");
    assert_eq!(bench.passed(), 2);
}

#[test]
fn whole_lines_at_the_start_of_a_chunk_are_not_copied() {
    let bench = Bench::new(0);
    let mut rewriting = bench.of(json(), 200, &[EVENTS]).0.unwrap();
    let chunk = Bytes::from_static(b"data: 1\n\ndata: {\"a");
    let sent = rewriting.push(chunk.clone()).unwrap();
    assert_eq!((sent.as_ptr(), sent.len()), (chunk.as_ptr(), 9));
    assert_eq!(rewriting.push(Bytes::from_static(b"ctual_usage\":1}\n")).unwrap(), "data: {}\n");
}
