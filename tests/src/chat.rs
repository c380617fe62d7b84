//! A chat completion request in few words.

use std::net::SocketAddr;

use http::{Method, Response};
use hyper::body::Incoming;
use serde_json::{Value as Json, json};

use crate::client::{Answer, Client};

/// One request to `/v1/chat/completions`, or to a named route's.
#[derive(Debug, Clone)]
pub struct Chat {
    path: String,
    model: String,
    session: Option<String>,
    key: Option<String>,
    headers: Vec<(String, String)>,
    is_streamed: bool,
    max_tokens: Option<u32>,
    messages: Vec<Json>,
}

impl Default for Chat {
    fn default() -> Self {
        Self::new()
    }
}

impl Chat {
    /// A request without a session, not streamed, on the default route.
    pub fn new() -> Self {
        Self {
            path: "/v1/chat/completions".to_owned(),
            model: "mock-model".to_owned(),
            session: None,
            key: None,
            headers: Vec::new(),
            is_streamed: false,
            max_tokens: None,
            messages: vec![json!({"role": "user", "content": "Say something."})],
        }
    }

    /// A request of the session with that id.
    pub fn of(session: &str) -> Self {
        Self::new().session(session)
    }

    /// Sets the session id, sent as `x-session-id`.
    #[must_use]
    pub fn session(mut self, session: &str) -> Self {
        self.session = Some(session.to_owned());
        self
    }

    /// Sends `Authorization: Bearer KEY`.
    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self
    }

    /// One more header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// On a named route.
    #[must_use]
    pub fn route(mut self, route: &str) -> Self {
        self.path = format!("/{route}/v1/chat/completions");
        self
    }

    /// Of another model than the mock engine's own.
    #[must_use]
    pub fn model(mut self, model: &str) -> Self {
        model.clone_into(&mut self.model);
        self
    }

    /// Asks for a stream.
    #[must_use]
    pub fn streamed(mut self) -> Self {
        self.is_streamed = true;
        self
    }

    /// Limits the answer.
    #[must_use]
    pub fn max_tokens(mut self, count: u32) -> Self {
        self.max_tokens = Some(count);
        self
    }

    /// Replaces the conversation.
    #[must_use]
    pub fn messages(mut self, messages: Vec<Json>) -> Self {
        self.messages = messages;
        self
    }

    /// The request's path.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The body that is sent.
    pub fn body(&self) -> String {
        let mut body = json!({"model": self.model, "messages": self.messages});
        if let Some(fields) = body.as_object_mut() {
            if self.is_streamed {
                fields.insert("stream".to_owned(), json!(true));
            }
            if let Some(count) = self.max_tokens {
                fields.insert("max_tokens".to_owned(), json!(count));
            }
        }
        body.to_string()
    }

    /// Every header that is sent.
    pub fn headers(&self) -> Vec<(String, String)> {
        let mut headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        if let Some(session) = &self.session {
            headers.push(("x-session-id".to_owned(), session.clone()));
        }
        if let Some(key) = &self.key {
            headers.push(("authorization".to_owned(), format!("Bearer {key}")));
        }
        headers.extend(self.headers.iter().cloned());
        headers
    }

    /// Sends it and returns with the response's head.
    ///
    /// # Errors
    /// As [`Client::open`].
    pub async fn open(&self, client: &Client, address: SocketAddr) -> anyhow::Result<Response<Incoming>> {
        let headers = self.headers();
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        client.open(address, Method::POST, &self.path, &headers, self.body()).await
    }

    /// Sends it and reads the whole answer.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub async fn send(&self, client: &Client, address: SocketAddr) -> anyhow::Result<Answer> {
        Answer::read(self.open(client, address).await?).await
    }
}
