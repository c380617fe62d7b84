//! Answers that are rewritten: what clients get, when, and what the replica still learns from the bytes that they don't.

use router_proto::v1;
use router_proto::v1::client_op::Kind;

use super::backend::{Backend, Message, Wire};
use super::client::{connect, get, post};
use super::control::{Control, route};
use super::replica::Replica;

const EVENTS: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
const FRAME: &str = "data: {\"choices\":[{\"delta\":{\"reasoning\":\"The\"},\"logprobs\":null}]}\n\n";
const REWRITTEN: &str = "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"The\"}}]}\n\n";
const USAGE: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":50,\"completion_tokens\":20}}\n\n";
const VLLM: (&str, &str) = ("postprocess", "vllm_format");

struct Bench {
    backend: Backend,
    control: Control,
    replica: Replica,
}

impl Bench {
    async fn start(options: &[(&str, &str)]) -> Self {
        let backend = Backend::start().await;
        let mut control = Control::start(vec![route("chat", options)]).await;
        control.grant(&[&backend.addr]);
        let replica = Replica::start(&control, &[]).await;
        control.hello().await;
        Self { backend, control, replica }
    }

    /// A request, and both its ends.
    async fn exchange(&mut self, request: &str) -> (Wire, Wire, Message) {
        let mut client = connect(self.replica.addr).await;
        client.write(request).await;
        let (upstream, asked) = self.backend.request().await;
        self.control.acquire().await;
        (client, upstream, asked)
    }

    async fn release(&mut self) -> v1::Release {
        loop {
            match self.control.next().await.1 {
                Kind::Release(release) => return release,
                Kind::FirstChunk(_) => {}
                other => panic!("a release expected, not {other:?}"),
            }
        }
    }
}

fn streamed() -> String {
    post("/v1/chat/completions", &[], r#"{"stream":true}"#)
}

async fn chunk(wire: &mut Wire, text: &str) {
    wire.write(format!("{:x}\r\n{text}\r\n", text.len())).await;
}

/// Reads the one chunk that these bytes are sent as.
async fn sees(client: &mut Wire, text: &str) {
    let expected = format!("{:X}\r\n{text}\r\n", text.len());
    assert_eq!(String::from_utf8(client.bytes(expected.len()).await).unwrap(), expected);
}

#[tokio::test]
async fn each_rewritten_frame_arrives_before_the_next_is_sent() {
    let mut bench = Bench::start(&[VLLM]).await;
    let (mut client, mut upstream, _) = bench.exchange(&streamed()).await;
    upstream.write(EVENTS).await;
    client.head().await;
    for (sent, seen) in [
        (FRAME, REWRITTEN),
        (": heartbeat\n\n", ": heartbeat\n\n"),
        (
            "data: {\"error\":{\"message\":\"no room\",\"logprobs\":null}}\n\n",
            "data: {\"error\":{\"message\":\"no room\",\"logprobs\":null}}\n\n",
        ),
        // Whole lines leave, the beginning of one waits for its end.
        ("\ndata: {\"choices\":[],", "\n"),
        ("\"logprobs\":null}\n", "data: {\"choices\":[]}\n"),
    ] {
        chunk(&mut upstream, sent).await;
        sees(&mut client, seen).await;
    }
    // A piece that leaves nothing to be sent is no chunk: that would end the answer.
    for piece in ["da", "ta: {\"choices\":", "[],\"logprobs\"", ":null}"] {
        chunk(&mut upstream, piece).await;
    }
    chunk(&mut upstream, "\r\n").await;
    sees(&mut client, "data: {\"choices\":[]}\r\n").await;
    // The last line needs no ending.
    chunk(&mut upstream, FRAME.trim_end()).await;
    upstream.write("0\r\n\r\n").await;
    sees(&mut client, REWRITTEN.trim_end()).await;
    assert_eq!(client.until("0\r\n\r\n").await, "0\r\n\r\n");
    assert_eq!(bench.release().await.outcome(), v1::Outcome::Complete);
    // Both connections go on.
    client.write(get("/v1/x")).await;
    upstream.message().await;
}

const BODY: &str = r#"{"choices":[{"message":{"content":"a","refusal":null,"reasoning":null}}]}"#;
const BODY_REWRITTEN: &str = r#"{"choices":[{"message":{"content":"a","reasoning_content":null}}]}"#;

/// payloads.md §10.4 example 48 among them. The reference drops the length of every 2xx; here only where bytes may change.
#[tokio::test]
async fn payloads_5_1_which_answers_are_rewritten_and_what_their_heads_say() {
    for (option, status, more, is_rewritten) in [
        (VLLM, 200, "Content-Type: application/json\r\n", true),
        (VLLM, 201, "Content-Type: Application/JSON; charset=utf-8\r\nContent-Encoding: identity\r\n", true),
        (("postprocess", "none"), 200, "Content-Type: application/json\r\n", false),
        (("postprocess", "strip_actual_usage"), 200, "Content-Type: text/plain\r\n", false),
        (VLLM, 500, "Content-Type: application/json\r\n", false),
        (VLLM, 400, "Content-Type: application/json\r\n", false),
        (VLLM, 200, "Content-Type: text/plain\r\n", false),
        (VLLM, 200, "", false),
        (VLLM, 200, "Content-Type: application/json\r\nContent-Encoding: gzip\r\n", false),
        (VLLM, 200, "Content-Type: application/json\r\nContent-Encoding: identity\r\nContent-Encoding: br\r\n", false),
    ] {
        let mut bench = Bench::start(&[option, ("max_more_tries", "0")]).await;
        let (mut client, mut upstream, _) = bench.exchange(&post("/v1/x", &[], "{}")).await;
        let length = BODY.len();
        let head = format!("HTTP/1.1 {status} X\r\n{more}ETag: \"1\"\r\nDigest: x\r\nContent-Length: {length}\r\n\r\n");
        upstream.write(format!("{head}{BODY}")).await;
        let head = client.head().await;
        let stated = ["content-length", "etag", "digest"].map(|name| head.header(name).is_some());
        assert_eq!(stated, [!is_rewritten; 3], "{status} {more}");
        if is_rewritten {
            assert_eq!(head.header("transfer-encoding"), Some("chunked"));
            sees(&mut client, BODY_REWRITTEN).await;
            assert_eq!(client.until("0\r\n\r\n").await, "0\r\n\r\n");
        } else {
            assert_eq!(client.bytes(length).await, BODY.as_bytes(), "{status} {more}");
        }
        // The answer ended where its head says: the connection serves again.
        client.write(get("/health")).await;
        assert_eq!(client.message().await.status(), 200);
        let expected = if status == 500 { v1::Outcome::BackendError } else { v1::Outcome::Complete };
        assert_eq!(bench.release().await.outcome(), expected);
    }
}

#[tokio::test]
async fn an_answer_without_bytes_ends_as_ever() {
    for (method, head, length) in [
        ("HEAD", "200 OK\r\nContent-Type: application/json\r\nContent-Length: 73", None),
        ("GET", "200 OK\r\nContent-Type: application/json\r\nContent-Length: 0", Some("0")),
        ("GET", "204 No Content\r\nContent-Type: application/json", None),
        ("HEAD", "200 OK\r\nContent-Type: text/plain\r\nContent-Length: 73", Some("73")),
    ] {
        let mut bench = Bench::start(&[VLLM]).await;
        let request = format!("{method} /v1/x HTTP/1.1\r\nHost: router\r\n\r\n");
        let (mut client, mut upstream, _) = bench.exchange(&request).await;
        upstream.write(format!("HTTP/1.1 {head}\r\n\r\n")).await;
        assert_eq!(client.head().await.header("content-length"), length, "{method} {head}");
        assert_eq!(bench.release().await.outcome(), v1::Outcome::Complete);
        client.write(get("/health")).await;
        assert_eq!(client.message().await.status(), 200, "{method} {head}");
    }
}

#[tokio::test]
async fn payloads_5_2_a_json_answer_of_more_than_8_mib_passes_as_it_is() {
    const MOST: usize = 8 << 20;
    let mut bench = Bench::start(&[("postprocess", "strip_actual_usage")]).await;
    for (size, taken_out) in [(MOST, 17), (MOST + 1, 0)] {
        let (before, after) = (r#"{"actual_usage":1,"a":""#, "\"}");
        let body = format!("{before}{}{after}", "x".repeat(size - before.len() - after.len()));
        let (mut client, mut upstream, _) = bench.exchange(&get("/v1/x")).await;
        let reading = async {
            assert_eq!(client.head().await.header("content-length"), None);
            client.until("0\r\n\r\n").await
        };
        // Without a stated length, as one that is too large to be held would not be touched with it.
        let sending = async {
            upstream.write(EVENTS.replace("text/event-stream", "application/json")).await;
            chunk(&mut upstream, &body).await;
            upstream.write("0\r\n\r\n").await;
        };
        let (answer, ()) = tokio::join!(reading, sending);
        // Without the lengths of its chunks.
        let mut got = String::new();
        let mut rest = answer.as_str();
        while let Some((length, after)) = rest.split_once("\r\n") {
            let length = usize::from_str_radix(length, 16).unwrap();
            got.push_str(&after[..length]);
            rest = &after[length + 2..];
        }
        assert_eq!(got.len(), size - taken_out);
        assert_eq!(got.starts_with(before), taken_out == 0);
        assert!(got.ends_with("xxx\"}"));
        assert_eq!(bench.release().await.outcome(), v1::Outcome::Complete);
    }
}

#[tokio::test]
async fn what_is_held_of_an_answer_that_breaks_off_is_not_sent() {
    for (kind, sent, seen) in [
        ("text/event-stream", format!("{FRAME}data: {{\"choices\""), REWRITTEN),
        ("application/json", BODY[..40].to_owned(), ""),
    ] {
        let mut bench = Bench::start(&[VLLM]).await;
        let (mut client, mut upstream, _) = bench.exchange(&streamed()).await;
        upstream.write(EVENTS.replace("text/event-stream", kind)).await;
        client.head().await;
        chunk(&mut upstream, &sent).await;
        if !seen.is_empty() {
            sees(&mut client, seen).await;
        }
        drop(upstream);
        let rest = client.rest().await;
        assert!(rest.is_empty(), "no clean end: {:?}", String::from_utf8_lossy(&rest));
        assert_eq!(bench.release().await.outcome(), v1::Outcome::StreamBroken);
    }
}

#[tokio::test]
async fn a_silent_backend_is_given_up_also_while_its_answer_is_held() {
    let mut bench = Bench::start(&[VLLM, ("upstream_timeout", "200ms")]).await;
    let (mut client, mut upstream, _) = bench.exchange(&streamed()).await;
    upstream.write(EVENTS).await;
    client.head().await;
    chunk(&mut upstream, "data: {\"choices\"").await;
    assert!(client.rest().await.is_empty());
    assert_eq!(bench.release().await.outcome(), v1::Outcome::Timeout);
    upstream.closed().await;
}

#[tokio::test]
async fn a_client_that_leaves_a_held_answer_closes_the_upstream() {
    let mut bench = Bench::start(&[VLLM]).await;
    let (mut client, mut upstream, _) = bench.exchange(&get("/v1/x")).await;
    upstream
        .write(format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{BODY}"))
        .await;
    client.head().await;
    drop(client);
    upstream.closed().await;
    assert_eq!(bench.release().await.outcome(), v1::Outcome::ClientGone);
}

#[tokio::test]
async fn rulings_7_the_usage_frame_is_seen_by_clients_that_asked_and_counted_for_all() {
    const ASKED: (&str, &str) = ("include_usage_default_enabled", "true");
    let own = r#"{"stream":true,"stream_options":{"include_usage":true}}"#;
    for (options, body, is_seen) in [
        (&[ASKED][..], r#"{"stream":true}"#, false),
        (&[ASKED, VLLM], r#"{"stream":true,"stream_options":null}"#, false),
        (&[ASKED], own, true),
        (&[], own, true),
        // Nobody asked: the engine's own doing.
        (&[], r#"{"stream":true}"#, true),
        (&[ASKED, ("include_usage_hide", "false")], r#"{"stream":true}"#, true),
    ] {
        let mut bench = Bench::start(options).await;
        let (mut client, mut upstream, asked) = bench.exchange(&post("/v1/chat/completions", &[], body)).await;
        assert_eq!(asked.text().contains("include_usage"), !options.is_empty() || body == own, "{body}");
        upstream.write(EVENTS).await;
        client.head().await;
        chunk(&mut upstream, "data: 1\n\n").await;
        sees(&mut client, "data: 1\n\n").await;
        // Cut in the middle of its line, and before its blank line.
        let (before, after) = USAGE.split_at(30);
        let (after, blank) = after.split_at(after.len() - 1);
        for piece in [before, after, blank, "data: [DONE]\n\n"] {
            chunk(&mut upstream, piece).await;
        }
        upstream.write("0\r\n\r\n").await;
        let rest = client.until("0\r\n\r\n").await;
        assert_eq!(rest.contains("usage"), is_seen, "{body} {options:?}: {rest}");
        assert_eq!(rest.matches('\n').count() - rest.matches("\r\n").count(), if is_seen { 4 } else { 2 }, "{rest}");
        let release = bench.release().await;
        assert_eq!((release.tokens, release.prompt_tokens), (Some(20), Some(50)), "{body}");
    }
}

#[tokio::test]
async fn routing_8_3_chosen_statuses_of_backends_are_answered_with_501() {
    let mut bench = Bench::start(&[("answer_501_for", "400,404")]).await;
    let secret = r#"{"error":"of the backend"}"#;
    for (status, path, expected) in [
        (404, "/v1/x", r#"{"error":{"message":"Not Implemented","type":"not_implemented","code":501}}"#),
        (400, "/v1/messages", r#"{"type":"error","error":{"type":"api_error","message":"Not Implemented"}}"#),
        (403, "/v1/x", ""),
        (200, "/v1/x", ""),
    ] {
        let (mut client, mut upstream, _) = bench.exchange(&post(path, &[], "{}")).await;
        let length = secret.len();
        upstream.write(format!("HTTP/1.1 {status} X\r\nX-Own: 1\r\nContent-Length: {length}\r\n\r\n{secret}")).await;
        let answer = client.message().await;
        let is_hidden = !expected.is_empty();
        assert_eq!(answer.status(), if is_hidden { 501 } else { status });
        assert_eq!(answer.text(), if is_hidden { expected } else { secret });
        assert_eq!(answer.header("x-own").is_some(), !is_hidden);
        assert!(answer.header("x-routed-peer").is_some());
        // The slot is free, and the control plane knows what the backend said.
        let release = bench.release().await;
        assert_eq!((release.http_status, release.outcome()), (u32::from(status), v1::Outcome::Complete));
    }
    // The router's own stay.
    let mut client = connect(bench.replica.addr).await;
    client.write(get("/nobody/v1/x")).await;
    assert_eq!(client.message().await.status(), 404);
    assert!(bench.replica.metrics().await.contains(r#"router_requests_total{route="chat",code="501"} 2"#));
}

#[tokio::test]
async fn a_body_that_is_not_passed_on_is_not_waited_for() {
    let mut bench = Bench::start(&[("answer_501_for", "404")]).await;
    for (body, is_whole) in [("{}", true), ("{", false)] {
        let (mut client, mut upstream, _) = bench.exchange(&get("/v1/x")).await;
        upstream.write(format!("HTTP/1.1 404 X\r\nContent-Length: 2\r\n\r\n{body}")).await;
        assert_eq!(client.message().await.status(), 501);
        assert_eq!(bench.release().await.outcome(), v1::Outcome::Complete);
        if is_whole {
            // One that came with its head is read, so that the connection serves again.
            client.write(get("/v1/x")).await;
            upstream.message().await;
            upstream.answer("{}").await;
            assert_eq!(client.message().await.status(), 200);
            bench.control.acquire().await;
            bench.release().await;
        } else {
            upstream.closed().await;
        }
    }
}

#[tokio::test]
async fn an_answer_that_comes_in_many_small_pieces_at_once_is_read_to_its_end() {
    let mut bench = Bench::start(&[VLLM]).await;
    let (mut client, mut upstream, _) = bench.exchange(&get("/v1/x")).await;
    // More pieces than are kept in one go, all in the replica's hands before it is asked for the next.
    let pieces = BODY.chars().fold(String::new(), |pieces, c| pieces + "1\r\n" + &String::from(c) + "\r\n");
    assert!(BODY.len() > 64);
    let head = EVENTS.replace("text/event-stream", "application/json");
    upstream.write(format!("{head}{pieces}0\r\n\r\n")).await;
    client.head().await;
    sees(&mut client, BODY_REWRITTEN).await;
    assert_eq!(client.until("0\r\n\r\n").await, "0\r\n\r\n");
    assert_eq!(bench.release().await.outcome(), v1::Outcome::Complete);
}

#[tokio::test]
async fn digests_of_a_body_that_was_edited_are_not_passed_on() {
    let mut bench = Bench::start(&[("include_usage_default_enabled", "true")]).await;
    let digests = ["digest", "content-digest", "repr-digest", "content-md5"];
    let headers = digests.map(|name| (name, "x"));
    for (body, is_edited) in [(r#"{"stream":true}"#, true), (r#"{"stream":false}"#, false)] {
        let (mut client, mut upstream, asked) = bench.exchange(&post("/v1/completions", &headers, body)).await;
        assert_eq!(asked.text() != body, is_edited);
        for name in digests {
            assert_eq!(asked.header(name).is_some(), !is_edited, "{name}");
        }
        upstream.answer("{}").await;
        client.message().await;
        bench.release().await;
    }
}

#[tokio::test]
async fn what_the_router_must_read_is_not_asked_for_compressed() {
    let gzip = [("accept-encoding", "gzip")];
    for (options, is_asked) in
        [(vec![VLLM], false), (vec![("include_usage_default_enabled", "true")], false), (vec![], true)]
    {
        let mut bench = Bench::start(&options).await;
        let (.., asked) = bench.exchange(&post("/v1/chat/completions", &gzip, r#"{"stream":true}"#)).await;
        assert_eq!(asked.header("accept-encoding").is_some(), is_asked, "{options:?}");
    }
}

#[tokio::test]
async fn a_kind_that_only_begins_like_json_is_not_held() {
    let mut bench = Bench::start(&[VLLM]).await;
    let (mut client, mut upstream, _) = bench.exchange(&streamed()).await;
    let head = EVENTS.replace("text/event-stream", "application/jsonl");
    upstream.write(&head).await;
    chunk(&mut upstream, "{\"logprobs\":null}\n").await;
    client.until("{\"logprobs\":null}").await;
}
