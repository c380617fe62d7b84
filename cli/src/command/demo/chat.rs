//! A client of the router as the demo needs it: turns of conversations, and what the answers say of their way.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value as Json, json};

use crate::failure::Failure;

/// Until an answer must be there, queueing included.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// An HTTP client with its connections.
#[derive(Clone)]
pub(crate) struct Http(Client<HttpConnector, Full<Bytes>>);

/// An answer read whole.
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// `X-Routed-Peer`.
    pub(crate) peer: String,
    pub(crate) body: Json,
}

impl Http {
    /// A client without connections yet.
    pub(crate) fn new() -> Self {
        Self(Client::builder(TokioExecutor::new()).build_http())
    }

    /// Sends JSON.
    pub(crate) async fn post(&self, url: &str, body: &Json) -> Result<Answer, Failure> {
        let request = Request::post(url).header(header::CONTENT_TYPE, "application/json");
        self.send(url, request, body.to_string()).await
    }

    /// Sends JSON as a turn of a session.
    async fn post_turn(&self, url: &str, session: &str, body: &Json) -> Result<Answer, Failure> {
        let request =
            Request::post(url).header(header::CONTENT_TYPE, "application/json").header("x-session-id", session);
        self.send(url, request, body.to_string()).await
    }

    /// Asks for JSON.
    pub(crate) async fn get(&self, url: &str) -> Result<Json, Failure> {
        Ok(self.send(url, Request::get(url), String::new()).await?.body)
    }

    async fn send(&self, url: &str, request: http::request::Builder, body: String) -> Result<Answer, Failure> {
        let complain = |problem: &str| Failure::failed(format!("{url}: {problem}"));
        let request = request.body(Full::new(Bytes::from(body))).map_err(|error| complain(&error.to_string()))?;
        let exchange = async {
            let response = self.0.request(request).await.map_err(|error| complain(&cause(&error)))?;
            let (head, body) = Response::into_parts(response);
            let bytes = body.collect().await.map_err(|error| complain(&cause(&error)))?.to_bytes();
            let peer = head.headers.get("x-routed-peer").and_then(|value| value.to_str().ok()).unwrap_or_default();
            Ok(Answer {
                status: head.status.as_u16(),
                peer: peer.to_owned(),
                body: serde_json::from_slice(&bytes).unwrap_or(Json::Null),
            })
        };
        let timed = tokio::time::timeout(ANSWER_TIMEOUT, exchange).await;
        timed.unwrap_or_else(|_| Err(complain(&format!("no answer within {} s", ANSWER_TIMEOUT.as_secs()))))
    }
}

fn cause(error: &dyn std::error::Error) -> String {
    let mut texts = vec![error.to_string()];
    let mut next = error.source();
    while let Some(inner) = next {
        texts.push(inner.to_string());
        next = inner.source();
    }
    texts.join(": ")
}

/// One session's conversation, which grows with each turn.
pub(crate) struct Conversation {
    id: String,
    path: String,
    turns: usize,
    messages: Vec<Json>,
}

/// What came of a turn.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    /// The engine that answered.
    pub(crate) peer: String,
    pub(crate) prompt_tokens: u64,
    pub(crate) cached_tokens: u64,
}

impl Conversation {
    /// A conversation on a route. No other has its opening, so that a prefix cache can't serve two.
    pub(crate) fn new(route: &str, label: &str, number: usize) -> Self {
        let id = format!("{label}-{number}");
        let opening = format!("You help customer {id}. ") + &"Answer in few words, and name your sources. ".repeat(8);
        Self {
            path: format!("/{route}/v1/chat/completions"),
            turns: 0,
            messages: vec![json!({"role": "system", "content": opening})],
            id,
        }
    }

    /// Asks the next question through a replica. An answer other than 200 is an error that says what was answered.
    pub(crate) async fn turn(&mut self, http: &Http, replica: &str) -> Result<Turn, Failure> {
        self.turns += 1;
        let question = format!("Question {} of {}: ", self.turns, self.id) + &"what about the case before? ".repeat(14);
        self.messages.push(json!({"role": "user", "content": question}));
        let body = json!({"model": "mock-model", "messages": self.messages});
        let answer = http.post_turn(&format!("http://{replica}{}", self.path), &self.id, &body).await?;
        if answer.status != 200 {
            let message = answer.body.pointer("/error/message").and_then(Json::as_str).unwrap_or_default();
            return Err(Failure::failed(format!("status {} {message}", answer.status)));
        }
        let text = answer.body.pointer("/choices/0/message/content").cloned().unwrap_or_default();
        self.messages.push(json!({"role": "assistant", "content": text}));
        let number = |pointer: &str| answer.body.pointer(pointer).and_then(Json::as_u64).unwrap_or(0);
        Ok(Turn {
            peer: answer.peer,
            prompt_tokens: number("/usage/prompt_tokens"),
            cached_tokens: number("/usage/prompt_tokens_details/cached_tokens"),
        })
    }
}
