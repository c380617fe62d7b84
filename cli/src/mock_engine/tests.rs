//! The engine over real sockets: framing, counts, hold and release, failures.

mod harness;

use std::time::Duration;

use clap::{CommandFactory as _, Parser as _};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use self::harness::{Cli, PATIENCE, Running, dechunk};

fn chat(text: &str) -> Value {
    json!({"model": "some-model", "messages": [{"role": "user", "content": text}]})
}

fn streamed(text: &str) -> Value {
    let mut body = chat(text);
    body["stream"] = json!(true);
    body
}

#[tokio::test]
async fn a_chat_completion_says_what_it_is_and_counts_tokens() {
    let mock = Running::start(&["--tokens", "3"]).await;
    let answer = mock.call_json("POST", "/v1/chat/completions", &chat("hi")).await;
    assert_eq!(answer["object"], "chat.completion");
    assert_eq!(answer["model"], "some-model");
    assert_eq!(answer["system_fingerprint"], "mock-engine");
    assert_eq!(answer["choices"][0]["message"]["content"], "An answer from");
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    assert_eq!(answer["usage"]["completion_tokens"], 3);
    let mut cut = chat("hi");
    cut["max_tokens"] = json!(2);
    let answer = mock.call_json("POST", "/v1/chat/completions", &cut).await;
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
}

#[tokio::test]
async fn a_stream_has_role_tokens_reason_usage_and_done() {
    let mock = Running::start(&["--tokens", "2"]).await;
    let mut body = streamed("hi");
    body["stream_options"] = json!({"include_usage": true});
    let (status, body) = mock.call("POST", "/v1/chat/completions", &body.to_string()).await;
    let (body, is_whole) = dechunk(&body);
    assert_eq!((status, is_whole), (200, true));
    let events: Vec<&str> = body.split_terminator("\n\n").map(|event| event.strip_prefix("data: ").unwrap()).collect();
    assert_eq!(events.len(), 6);
    assert_eq!(events[5], "[DONE]");
    let events: Vec<Value> = events[..5].iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
    assert_eq!(events[1]["choices"][0]["delta"]["content"], "An");
    assert_eq!(events[2]["choices"][0]["delta"]["content"], " answer");
    assert_eq!(events[3]["choices"][0]["finish_reason"], "stop");
    assert_eq!(events[3]["usage"], Value::Null);
    assert_eq!(events[4]["choices"], json!([]));
    assert_eq!(events[4]["usage"]["completion_tokens"], 2);
    assert_eq!(mock.engine.stats().completed_total, 1);
}

/// The usage of a stream, or `None` when it has none.
async fn streamed_usage(mock: &Running, path: &str, ask: &Value) -> Option<Value> {
    let (status, body) = mock.call("POST", path, &ask.to_string()).await;
    let (body, is_whole) = dechunk(&body);
    assert_eq!((status, is_whole), (200, true), "{body}");
    let mut data = body.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
    let last: Value = serde_json::from_str(data.next_back().unwrap()).unwrap();
    last.get("usage").filter(|usage| !usage.is_null()).cloned()
}

#[tokio::test]
async fn an_engine_may_send_usage_unasked() {
    let question = "a question of some length, ".repeat(20);
    let completion = json!({"prompt": question, "stream": true});
    for (flags, change) in
        [(vec!["--tokens", "2", "--always-usage"], json!({})), (vec!["--tokens", "2"], json!({"always_usage": true}))]
    {
        let mock = Running::start(&flags).await;
        mock.set(change).await;
        let usage = streamed_usage(&mock, "/v1/chat/completions", &streamed(&question)).await.unwrap();
        assert_eq!(
            (&usage["completion_tokens"], &usage["prompt_tokens_details"]["cached_tokens"]),
            (&json!(2), &json!(0))
        );
        let again = streamed_usage(&mock, "/v1/chat/completions", &streamed(&question)).await.unwrap();
        let cached = again["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
        assert!(cached > 0 && cached < again["prompt_tokens"].as_u64().unwrap(), "{again}");
        assert!(streamed_usage(&mock, "/v1/completions", &completion).await.is_some());
        mock.set(json!({"always_usage": false})).await;
        assert_eq!(streamed_usage(&mock, "/v1/chat/completions", &streamed(&question)).await, None);
        let mut asked = streamed(&question);
        asked["stream_options"] = json!({"include_usage": true});
        assert!(streamed_usage(&mock, "/v1/chat/completions", &asked).await.is_some());
    }
}

#[tokio::test]
async fn its_speed_changes_while_it_runs() {
    let mock = Running::start(&["--tokens", "3"]).await;
    let took = async |ask: &Value| {
        let start = std::time::Instant::now();
        assert_eq!(mock.call("POST", "/v1/chat/completions", &ask.to_string()).await.0, 200);
        start.elapsed()
    };
    mock.set(json!({"ttft_ms": 120, "token_ms": 40})).await;
    let settings = mock.call_json("GET", "/_mock/settings", &json!({})).await;
    assert_eq!((&settings["ttft_ms"], &settings["token_gap_ms"]), (&json!(120), &json!(40)));
    for ask in [chat("hi"), streamed("hi")] {
        let slow = took(&ask).await;
        assert!(slow >= Duration::from_millis(200), "{slow:?}");
    }
    mock.set(json!({"token_gap_ms": 0})).await;
    assert_eq!(mock.engine.settings().ttft_ms, 120, "the other stays");
    assert!(took(&streamed("hi")).await >= Duration::from_millis(120));
    assert_eq!(mock.call("POST", "/_mock/set", r#"{"token_ms": 3600001}"#).await.0, 400);
}

#[tokio::test]
async fn a_second_turn_is_served_from_the_cache() {
    let mock = Running::start(&[]).await;
    let question = "a question of some length, ".repeat(20);
    let first = mock.call_json("POST", "/v1/chat/completions", &chat(&question)).await;
    assert_eq!(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    let mut second = chat(&question);
    let messages = second["messages"].as_array_mut().unwrap();
    messages.push(first["choices"][0]["message"].clone());
    messages.push(json!({"role": "user", "content": "and?"}));
    let second = mock.call_json("POST", "/v1/chat/completions", &second).await;
    let cached = second["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    assert!(cached > first["usage"]["prompt_tokens"].as_u64().unwrap(), "{cached}");
    assert_eq!(mock.engine.stats().cached_tokens_total, cached);
}

#[tokio::test]
async fn anthropic_messages_come_whole_and_streamed() {
    let mock = Running::start(&["--tokens", "2"]).await;
    let mut ask = chat("hi");
    ask["max_tokens"] = json!(100);
    let answer = mock.call_json("POST", "/v1/messages", &ask).await;
    assert_eq!(answer["content"][0]["text"], "An answer");
    assert_eq!(answer["stop_reason"], "end_turn");
    ask["stream"] = json!(true);
    let (_, body) = mock.call("POST", "/v1/messages", &ask.to_string()).await;
    let (body, _) = dechunk(&body);
    let names: Vec<&str> = body.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    let expected = [
        "message_start",
        "content_block_start",
        "ping",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ];
    assert_eq!(names, expected);
    for data in body.lines().filter_map(|line| line.strip_prefix("data: ")) {
        serde_json::from_str::<Value>(data).unwrap();
    }
}

#[tokio::test]
async fn errors_have_the_shape_of_their_api() {
    let mock = Running::start(&["--max-model-len", "20"]).await;
    let (status, body) = mock.call("POST", "/v1/chat/completions", "{broken").await;
    assert_eq!(status, 400);
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["error"]["type"], "invalid_request_error");
    let (status, body) = mock.call("POST", "/v1/messages", "{broken").await;
    assert_eq!(status, 400);
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["type"], "error");
    let (status, body) = mock.call("POST", "/v1/chat/completions", &chat(&"long ".repeat(100)).to_string()).await;
    assert_eq!(status, 400);
    assert!(body.contains("maximum context length is 20 tokens"), "{body}");
    assert_eq!(mock.call("GET", "/nowhere", "").await.0, 404);
    assert_eq!(mock.call("GET", "/v1/chat/completions", "").await.0, 405);
    assert_eq!(mock.engine.stats().in_flight, 0);
}

#[tokio::test]
async fn other_paths_under_v1_echo_the_request() {
    let mock = Running::start(&[]).await;
    let (status, body) = mock.call("PUT", "/v1/anything/else?q=%20", "abc").await;
    assert_eq!(status, 200);
    let echo: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(echo["method"], "PUT");
    assert_eq!(echo["path"], "/v1/anything/else?q=%20");
    assert_eq!(echo["body_bytes"], 3);
    assert_eq!(echo["body_sha256"], "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    let headers: Vec<(String, String)> = serde_json::from_value(echo["headers"].clone()).unwrap();
    let repeated: Vec<&str> = headers.iter().filter(|(name, _)| name == "x-test").map(|(_, v)| v.as_str()).collect();
    assert_eq!(repeated, ["a", "b"]);
    assert_eq!(mock.call("HEAD", "/v1/echo", "").await, (200, String::new()));
    assert_eq!(mock.engine.stats().completed_total, 2);
    assert_eq!(mock.engine.stats().aborted_total, 0);
}

#[tokio::test]
async fn a_client_that_leaves_is_noticed_at_once_wherever_the_request_is() {
    let mock = Running::start(&["--ttft-ms", "60000"]).await;
    let at_once = Duration::from_millis(500);
    for (case, body) in [("before the head", chat("hi")), ("before the first token", streamed("hi"))] {
        let socket = mock.send("POST", "/v1/chat/completions", &body.to_string()).await;
        mock.until(|stats| stats.in_flight == 1).await;
        drop(socket);
        assert!(mock.until(|stats| stats.in_flight == 0).await < at_once, "{case}");
    }

    mock.set(json!({"ttft_ms": 0, "token_gap_ms": 60_000})).await;
    let mut socket = mock.send("POST", "/v1/chat/completions", &streamed("hi").to_string()).await;
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("\"An\"") {
        assert_ne!(tokio::time::timeout(PATIENCE, socket.read_buf(&mut seen)).await.unwrap().unwrap(), 0);
    }
    drop(socket);
    assert!(mock.until(|stats| stats.in_flight == 0).await < at_once, "between two tokens");

    mock.engine.set_held(true);
    let socket = mock.send("POST", "/v1/echo", "").await;
    mock.until(|stats| stats.in_flight == 1).await;
    drop(socket);
    assert!(mock.until(|stats| stats.in_flight == 0).await < at_once, "held");
    assert_eq!(mock.engine.stats().aborted_total, 4);
    assert_eq!(mock.engine.stats().completed_total, 0);
}

#[tokio::test]
async fn held_requests_are_counted_and_go_on_when_released() {
    let mock = Running::start(&[]).await;
    mock.call_json("POST", "/_mock/hold", &json!({})).await;
    let mut sockets = Vec::new();
    for _ in 0..5 {
        sockets.push(mock.send("POST", "/v1/chat/completions", &chat("hi").to_string()).await);
    }
    mock.until(|stats| stats.in_flight == 5).await;
    // Neither health nor the control calls wait or count.
    assert_eq!(mock.call("GET", "/health", "").await.0, 200);
    assert_eq!(mock.call("GET", "/v1/models", "").await.0, 200);
    let stats = mock.call_json("GET", "/_mock/stats", &json!({})).await;
    assert_eq!((&stats["in_flight"], &stats["completed_total"]), (&json!(5), &json!(0)));
    mock.call_json("POST", "/_mock/release", &json!({})).await;
    for mut socket in sockets {
        let mut answer = String::new();
        tokio::time::timeout(PATIENCE, socket.read_to_string(&mut answer)).await.unwrap().unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    let stats = mock.call_json("POST", "/_mock/reset", &json!({})).await;
    assert_eq!(stats["max_in_flight"], 0);
}

#[tokio::test]
async fn max_in_flight_is_the_most_there_ever_was() {
    let mock = Running::start(&["--ttft-ms", "30"]).await;
    let body = chat("hi").to_string();
    futures_util::future::join_all((0..8).map(|_| mock.call("POST", "/v1/chat/completions", &body))).await;
    mock.call("POST", "/v1/chat/completions", &body).await;
    let stats = mock.engine.stats();
    assert_eq!((stats.in_flight, stats.max_in_flight, stats.completed_total), (0, 8, 9));
}

#[tokio::test]
async fn failures_fail_as_told_and_can_be_undone() {
    let mock = Running::start(&["--fail", "500"]).await;
    let whole = chat("hi").to_string();
    assert_eq!(mock.call("POST", "/v1/chat/completions", &whole).await.0, 500);
    mock.set(json!({"fail": "503", "health": "fail"})).await;
    assert_eq!(mock.call("POST", "/v1/chat/completions", &whole).await.0, 503);
    assert_eq!(mock.call("GET", "/health", "").await.0, 503);
    mock.set(json!({"fail": "refuse", "health": "ok"})).await;
    assert_eq!(mock.call("POST", "/v1/chat/completions", &whole).await.0, 0);
    assert_eq!(mock.call("GET", "/health", "").await.0, 0);

    mock.set(json!({"fail": "die-mid-stream"})).await;
    let (status, body) = mock.call("POST", "/v1/chat/completions", &streamed("hi").to_string()).await;
    let (body, is_whole) = dechunk(&body);
    assert_eq!((status, is_whole), (200, false));
    assert!(body.contains(" answer") && !body.contains("[DONE]"), "{body}");
    let (status, body) = mock.call("POST", "/v1/chat/completions", &whole).await;
    assert_eq!(status, 200);
    assert!(serde_json::from_str::<Value>(&body).is_err() && !body.is_empty(), "{body}");

    mock.set(json!({"fail": "hang"})).await;
    let socket = mock.send("POST", "/v1/chat/completions", &whole).await;
    mock.until(|stats| stats.in_flight == 1).await;
    drop(socket);
    mock.until(|stats| stats.in_flight == 0).await;

    mock.set(json!({"fail": "none"})).await;
    assert_eq!(mock.call("POST", "/v1/chat/completions", &whole).await.0, 200);
    let counts = mock.engine.stats();
    assert_eq!((counts.refused_total, counts.aborted_total, counts.completed_total), (2, 3, 3));
}

#[tokio::test]
async fn a_bad_change_is_refused_whole() {
    let mock = Running::start(&[]).await;
    for change in [json!({"tokens": 0, "ttft_ms": 9}), json!({"nonsense": 1}), json!({"answer_bytes": 10})] {
        assert_eq!(mock.call("POST", "/_mock/set", &change.to_string()).await.0, 400, "{change}");
    }
    assert_eq!(mock.engine.settings().ttft_ms, 0);
    mock.set(json!({"answer_bytes": 300})).await;
    let (status, body) = mock.call("POST", "/v1/chat/completions", "not even json").await;
    assert_eq!((status, body.len()), (200, 300));
}

#[tokio::test]
async fn a_cached_prompt_answers_sooner() {
    let mock = Running::start(&["--ttft-ms", "1000", "--cached-speedup", "1"]).await;
    let settings = mock.engine.settings();
    assert_eq!(settings.ttft(0, 100), Duration::from_secs(1));
    assert_eq!(settings.ttft(50, 100), Duration::from_millis(500));
    assert_eq!(settings.ttft(100, 100), Duration::ZERO);
}

#[test]
fn flags_out_of_range_are_refused() {
    Cli::command().debug_assert();
    for flags in [["--cached-speedup", "1.5"], ["--tokens", "0"], ["--fail", "sometimes"], ["--ttft-ms", "3600001"]] {
        assert!(Cli::try_parse_from(["mock-engine"].iter().chain(&flags)).is_err(), "{flags:?}");
    }
    let modes = ["none", "refuse", "500", "503", "hang", "die-mid-stream"];
    assert!(modes.iter().all(|mode| Cli::try_parse_from(["mock-engine", "--fail", mode]).is_ok()));
}

#[tokio::test]
async fn the_window_that_it_states_is_the_one_that_it_keeps() {
    let mock = Running::start(&["--max-model-len", "100"]).await;
    let stated = async || mock.call_json("GET", "/v1/models", &json!({})).await["data"][0]["max_model_len"].clone();
    let long = chat(&"word ".repeat(100)).to_string();
    assert_eq!(stated().await, 100);
    assert_eq!(mock.call("POST", "/v1/chat/completions", &long).await.0, 400);
    mock.set(json!({"max_model_len": 5000})).await;
    assert_eq!(stated().await, 5000);
    assert_eq!(mock.call("POST", "/v1/chat/completions", &long).await.0, 200);
}

#[tokio::test]
async fn an_answer_says_which_rank_was_asked_for() {
    let mock = Running::start(&[]).await;
    let body = chat("hi").to_string();
    for (rank, said) in [("X-Data-Parallel-Rank: 3\r\n", Some("3")), ("", None)] {
        let mut socket = tokio::net::TcpStream::connect(mock.address).await.unwrap();
        let head = "POST /v1/chat/completions HTTP/1.1\r\nHost: mock\r\nConnection: close\r\n";
        let request = format!("{head}{rank}Content-Length: {}\r\n\r\n{body}", body.len());
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        tokio::time::timeout(PATIENCE, socket.read_to_string(&mut answer)).await.unwrap().unwrap();
        let seen = answer.lines().find_map(|line| line.strip_prefix("x-mock-data-parallel-rank: "));
        assert_eq!(seen, said, "{answer}");
    }
}
