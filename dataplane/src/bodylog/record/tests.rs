use super::*;
use crate::bodylog::capture::HEAD_MAX;
use crate::bodylog::settings::Settings;
use crate::metrics::{BodyLogGauges, Metrics};
use crate::snapshot::Snapshot;
use jiff::tz::TimeZone;
use router_proto::v1;
use tokio::sync::mpsc::UnboundedReceiver;

pub(in crate::bodylog) struct Fixture {
    pub(in crate::bodylog) metrics: Metrics,
    pub(in crate::bodylog) gauges: BodyLogGauges,
    snapshot: Snapshot,
    pub(in crate::bodylog) log: Arc<BodyLog>,
    pub(in crate::bodylog) records: UnboundedReceiver<Box<Finished>>,
}

impl Fixture {
    pub(in crate::bodylog) fn new(pct: &str, buffer: usize) -> Self {
        let mut metrics = Metrics::new();
        let gauges = metrics.body_log();
        let options = [("bodylog_default_enabled", "true"), ("bodylog_default_pct", pct)];
        let options = options.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let route = v1::Route { name: "r".into(), options, ..Default::default() };
        let message = v1::Snapshot { full: true, routes: vec![route], ..Default::default() };
        let snapshot = Snapshot::default().apply(&message, &metrics);
        let settings = Settings { host: "unused".into(), port: 1, zone: TimeZone::UTC, buffer };
        let (log, records) = BodyLog::new(&settings, &gauges);
        Self { metrics, gauges, snapshot, log: Arc::new(log), records }
    }

    pub(in crate::bodylog) fn begin(&self, request: http::request::Builder) -> Option<Record> {
        let head = request.body(()).unwrap().into_parts().0;
        let begun = Begun {
            head: &head,
            has_body: true,
            client_ip: &HeaderValue::from_static("10.1.1.1"),
            request_id: &HeaderValue::from_static("req-1"),
            key_id: "",
            started: Instant::now(),
        };
        self.log.begin(self.snapshot.route("r").unwrap(), begun)
    }

    /// A record that holds no more than its head.
    pub(in crate::bodylog) fn plain(&self) -> Record {
        self.begin(http::Request::post("/r/v1/x?a=b")).expect("there is room")
    }

    pub(in crate::bodylog) fn count(&self, name: &str) -> u64 {
        let text = self.metrics.encode();
        let start = format!("router_bodylog_{name}_total{{route=\"r\"}} ");
        text.lines().find_map(|line| line.strip_prefix(start.as_str())).map_or(0, |count| count.parse().unwrap())
    }

    fn taken(&mut self) -> Box<Finished> {
        self.records.try_recv().unwrap()
    }
}

#[test]
fn a_record_knows_what_happened_to_its_request() {
    let mut fixture = Fixture::new("100", 1 << 30);
    let mut record = fixture.plain();
    record.request(&Bytes::from_static(b"question"));
    record.session(&HeaderValue::from_static("body.user"), Some(b"u-1".to_vec()));
    record.chosen(Mode::New, &"10.0.0.1:80".into(), 0);
    record.chosen(Mode::Moved, &"10.0.0.2:80".into(), 1);
    record.answered(StatusCode::OK, Some(&HeaderValue::from_static("http://10.0.0.5:8000/x")));
    for chunk in ["an", "", "swer"] {
        record.saw(chunk.as_bytes());
    }
    record.is_whole();
    drop(record);
    let Finished { facts, request, response, .. } = *fixture.taken();
    assert_eq!((request, response.pieces("").concat()), (Bytes::from("question"), b"answer".to_vec()));
    assert_eq!((response.total(), response.chunks()), (6, 2));
    assert_eq!((facts.uri.as_str(), facts.method), ("/r/v1/x?a=b", Method::POST));
    assert_eq!((facts.request_id.as_str(), facts.client_ip.as_str()), ("req-1", "10.1.1.1"));
    assert_eq!((facts.session_source, facts.session_id.as_deref()), ("body.user".parse().unwrap(), Some("u-1")));
    assert_eq!((facts.mode, facts.peer), (Some(Mode::Moved), Some(("10.0.0.2:80".into(), 1))));
    assert_eq!((facts.status, facts.forwarded_to.as_deref()), (Some(200), Some("http://10.0.0.5:8000/x")));
    assert!(!facts.request_truncated);
    assert!(facts.first_chunk <= facts.last_chunk && facts.last_chunk <= Some(facts.took));
    assert_eq!((fixture.count("frames"), fixture.count("dropped")), (1, 0));
}

#[test]
fn an_answer_that_breaks_off_and_a_client_that_leaves_are_logged_as_such() {
    let mut fixture = Fixture::new("100", 1 << 30);
    let mut record = fixture.plain();
    record.answered(StatusCode::OK, None);
    record.saw(b"some");
    drop(record);
    let facts = fixture.taken().facts;
    assert_eq!((facts.status, facts.first_chunk.is_some(), facts.last_chunk), (Some(200), true, None));
    drop(fixture.plain());
    let Finished { facts, request, .. } = *fixture.taken();
    assert_eq!((facts.status, facts.peer), (Some(499), None));
    assert!(request.is_empty() && facts.request_truncated, "a body existed, and never became known");
}

#[test]
fn what_the_router_answers_is_the_response() {
    let mut fixture = Fixture::new("100", 1 << 30);
    let mut record = fixture.plain();
    record.answered_here(&Response::builder().status(429).body(Full::new(Bytes::from_static(b"no"))).unwrap());
    drop(record);
    let Finished { facts, response, .. } = *fixture.taken();
    assert_eq!((facts.status, response.pieces("").concat()), (Some(429), b"no".to_vec()));
    assert!(facts.last_chunk.is_some());
}

#[test]
fn payloads_6_only_methods_with_bodies_are_said_to_have_lost_one() {
    let mut fixture = Fixture::new("100", 1 << 30);
    for (method, is_truncated) in [("POST", true), ("PUT", true), ("GET", false), ("DELETE", false), ("HEAD", false)] {
        drop(fixture.begin(http::Request::builder().method(method).uri("/r/v1/x")));
        assert_eq!(fixture.taken().facts.request_truncated, is_truncated, "{method}");
    }
}

#[test]
fn payloads_6_the_first_2_mib_of_a_request_are_kept() {
    let mut fixture = Fixture::new("100", 1 << 30);
    let body = Bytes::from(vec![b'q'; REQUEST_MAX + 1]);
    for (length, kept, is_shared) in [
        (0, 0, false),
        (COPIED_MAX, COPIED_MAX, false),
        (COPIED_MAX + 1, COPIED_MAX + 1, true),
        (REQUEST_MAX, REQUEST_MAX, true),
        (REQUEST_MAX + 1, REQUEST_MAX, false),
    ] {
        let mut record = fixture.plain();
        record.request(&body.slice(..length));
        drop(record);
        let Finished { facts, request, .. } = *fixture.taken();
        assert_eq!((request.len(), facts.request_truncated), (kept, length > kept), "{length}");
        assert_eq!(request.as_ptr() == body.as_ptr(), is_shared, "{length}");
    }
}

#[test]
fn sampling_of_none_all_and_about_half() {
    for (pct, expected) in [("0", 0..=0), ("100", 1000..=1000), ("50", 350..=650)] {
        let fixture = Fixture::new(pct, 1 << 30);
        let begun = (0..1000).filter(|_| fixture.begin(http::Request::post("/")).is_some()).count();
        assert!(expected.contains(&begun), "{pct}: {begun}");
    }
}

#[test]
fn what_finds_no_room_is_dropped_counted_and_gives_its_room_back() {
    let mut fixture = Fixture::new("100", 3 << 20);
    let body = Bytes::from(vec![b'q'; 2 << 20]);
    let mut first = fixture.plain();
    first.request(&body);
    // A request's body, a response's growth, and a record at its very start.
    let mut second = fixture.plain();
    second.request(&body);
    let mut third = fixture.plain();
    third.saw(&vec![b'r'; HEAD_MAX]);
    third.saw(b"still taken, to no avail");
    assert_eq!(fixture.count("dropped"), 2);
    let many: Vec<_> = (0..2000).map_while(|_| fixture.begin(http::Request::post("/"))).collect();
    assert!((500..2000).contains(&many.len()), "{}", many.len());
    assert_eq!(fixture.count("dropped"), 3);
    drop((second, third));
    assert!(fixture.records.try_recv().is_err(), "what was given up is not sent");
    drop((first, many));
    assert_eq!(fixture.taken().request.len(), 2 << 20);
    while fixture.records.try_recv().is_ok() {}
    let mut next = fixture.plain();
    next.request(&body);
    drop(next);
    assert_eq!((fixture.taken().request.len(), fixture.count("dropped")), (2 << 20, 3));
}

#[test]
fn after_the_sender_has_ended_records_are_dropped_and_counted() {
    let mut fixture = Fixture::new("100", 1 << 20);
    drop(fixture.plain());
    assert_eq!(fixture.count("dropped"), 0);
    fixture.records.close();
    drop(fixture.plain());
    assert_eq!(fixture.count("dropped"), 1);
}
