//! The ordered sources of a session id (rulings §2, gateway.md §2, payloads.md §2). The first acceptable value wins.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName};
use serde_json::value::RawValue;

use self::metadata::Metadata;
use crate::body::peek::{self, Peek};

mod metadata;

/// Longest session id, in characters. A longer one is passed over (rulings §2).
pub const MAX_ID_CHARS: usize = 256;

/// Bytes of a JSON string, quotes left out, of which more than [`MAX_ID_CHARS`] characters are sure: none takes more than an
/// escaped surrogate pair does.
const MAX_RAW_ID: usize = MAX_ID_CHARS * 12;

/// One place that may hold a session id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A request header.
    Header {
        /// Its name.
        name: HeaderName,
        /// `header.<name>`, for `X-Routed-Source`.
        label: String,
    },
    /// `session_id` in `metadata` or `litellm_metadata`.
    SessionId(Space),
    /// `session_id` in the object, or the JSON text, that is `user_id`.
    UserSessionId(Space),
    /// `user_id` as a plain string.
    UserId(Space),
    /// The Responses API's `conversation`: an id, or an object with one.
    Conversation,
    /// `prompt_cache_key`.
    PromptCacheKey,
    /// `user`, a string.
    User,
    /// The content of the first user message. Approximate.
    FirstUserMessage,
}

/// The two metadata objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// `metadata`
    Metadata,
    /// `litellm_metadata`
    Litellm,
}

/// Whose body it is: `input` is a user's message in one API, and a text to embed or to classify in others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Api {
    /// The Responses API.
    Responses,
    /// Any other.
    #[default]
    Other,
}

impl Api {
    /// By the path, without the route's prefix.
    pub fn of_path(path: &str) -> Self {
        let after = path.strip_prefix("/v1/responses");
        if after.is_some_and(|after| after.is_empty() || after.starts_with('/')) {
            Self::Responses
        } else {
            Self::Other
        }
    }
}

/// A session id and where it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found<'a> {
    /// The id, verbatim. Never logged, never sent anywhere.
    pub id: Cow<'a, [u8]>,
    /// `X-Routed-Source` (payloads.md §2.2).
    pub source: &'a str,
}

/// What a look through the sources comes to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Search<'a> {
    /// The first acceptable id.
    pub found: Option<Found<'a>>,
    /// Ids that stood before it and are longer than [`MAX_ID_CHARS`]; each was passed over (rulings §2).
    pub too_long: u32,
}

/// What stands in a source.
#[derive(Debug)]
enum Value<'a> {
    /// Perhaps blank, perhaps too long.
    Id(Cow<'a, [u8]>),
    /// Longer than any id may be; not looked at any further.
    TooLong,
}

/// A body that is looked through: its metadata are read when a source asks for them, once.
#[derive(Debug)]
struct Body<'p, 'a> {
    peek: &'p Peek<'a>,
    api: Api,
    metadata: Metadata<'a>,
    litellm_metadata: Metadata<'a>,
}

impl<'p, 'a> Body<'p, 'a> {
    fn new(peek: &'p Peek<'a>, api: Api) -> Self {
        let (metadata, litellm_metadata) = (Metadata::new(peek.metadata), Metadata::new(peek.litellm_metadata));
        Self { peek, api, metadata, litellm_metadata }
    }

    fn space(&self, space: Space) -> &Metadata<'a> {
        match space {
            Space::Metadata => &self.metadata,
            Space::Litellm => &self.litellm_metadata,
        }
    }
}

/// A route's sources, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceList {
    sources: Vec<Source>,
    /// How many of them stand up to and with the last header.
    headers_end: usize,
    reads_body: bool,
}

impl SourceList {
    /// From the option's words, with extra headers after the last header source.
    pub fn new(words: &[&'static str], extra_headers: &[String]) -> Self {
        let mut sources: Vec<Source> = words.iter().filter_map(|word| Source::from_word(word)).collect();
        let after_headers = |sources: &[Source]| {
            sources.iter().rposition(|source| matches!(source, Source::Header { .. })).map_or(0, |at| at + 1)
        };
        let extra = extra_headers.iter().filter_map(|name| Source::header(name));
        let at = after_headers(&sources);
        sources.splice(at..at, extra);
        let headers_end = after_headers(&sources);
        let reads_body = sources.iter().any(|source| !matches!(source, Source::Header { .. }));
        Self { sources, headers_end, reads_body }
    }

    /// Whether any source is in the body.
    pub fn reads_body(&self) -> bool {
        self.reads_body
    }

    /// Whether a session may be known by what a message says.
    pub fn reads_messages(&self) -> bool {
        self.sources.contains(&Source::FirstUserMessage)
    }

    /// The header sources, which are not passed on to backends.
    pub fn headers(&self) -> impl Iterator<Item = &HeaderName> {
        self.sources.iter().filter_map(|source| match source {
            Source::Header { name, .. } => Some(name),
            _ => None,
        })
    }

    /// The first acceptable id, in a chat's body or one of any other API than [`Api::Responses`].
    pub fn find<'a>(&'a self, headers: &'a HeaderMap, body: Option<&Peek<'a>>) -> Option<Found<'a>> {
        self.search(headers, body).found
    }

    /// Looks through the sources in order, likewise.
    pub fn search<'a>(&'a self, headers: &'a HeaderMap, body: Option<&Peek<'a>>) -> Search<'a> {
        self.search_with(headers, body, None, Api::Other)
    }

    /// The same for a body of any API, with an id that was found elsewhere (the session priority header's) as one more
    /// source, right after the headers.
    pub fn search_with<'a>(
        &'a self,
        headers: &'a HeaderMap,
        body: Option<&Peek<'a>>,
        given: Option<Found<'a>>,
        api: Api,
    ) -> Search<'a> {
        let mut too_long = 0;
        let (first, rest) = self.sources.split_at_checked(self.headers_end).unwrap_or((&self.sources, &[]));
        let body = body.map(|body| Body::new(body, api));
        let mut look = |source: &'a Source| {
            let (value, label) = source.read(headers, body.as_ref())?;
            let id = match value {
                Value::Id(id) if is_blank(&id) => return None,
                // A message is of any length: it is no id.
                Value::Id(id) if *source == Source::FirstUserMessage || !is_too_long(&id) => id,
                Value::Id(_) | Value::TooLong => {
                    too_long += 1;
                    return None;
                }
            };
            Some(Found { id, source: label })
        };
        let found = first.iter().find_map(&mut look).or(given).or_else(|| rest.iter().find_map(&mut look));
        Search { found, too_long }
    }
}

impl Source {
    fn header(name: &str) -> Option<Self> {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        let label = format!("header.{name}");
        Some(Self::Header { name, label })
    }

    fn from_word(word: &str) -> Option<Self> {
        if let Some(name) = word.strip_prefix("header.") {
            return Self::header(name);
        }
        Some(match word {
            "body.metadata.session_id" => Self::SessionId(Space::Metadata),
            "body.litellm_metadata.session_id" => Self::SessionId(Space::Litellm),
            "body.metadata.user_id.session_id" => Self::UserSessionId(Space::Metadata),
            "body.litellm_metadata.user_id.session_id" => Self::UserSessionId(Space::Litellm),
            "body.metadata.user_id" => Self::UserId(Space::Metadata),
            "body.litellm_metadata.user_id" => Self::UserId(Space::Litellm),
            "body.conversation" => Self::Conversation,
            "body.prompt_cache_key" => Self::PromptCacheKey,
            "body.user" => Self::User,
            "body.first_user_message" => Self::FirstUserMessage,
            _ => return None,
        })
    }

    /// What stands there, acceptable or not, and what the source is called.
    fn read<'a>(&'a self, headers: &'a HeaderMap, body: Option<&Body<'_, 'a>>) -> Option<(Value<'a>, &'a str)> {
        if let Self::Header { name, label } = self {
            let mut values = headers.get_all(name).iter();
            let value = values.next()?;
            // A header sent twice names no session (routing.md §4).
            let is_single = values.next().is_none();
            return is_single.then(|| (Value::Id(Cow::Borrowed(value.as_bytes())), label.as_str()));
        }
        let body = body?;
        let peek = body.peek;
        Some(match self {
            Self::Header { .. } => return None,
            Self::SessionId(space) => {
                (body.space(*space).session_id().and_then(text_or_number)?, space.pick("session_id"))
            }
            Self::UserSessionId(space) => {
                let user = body.space(*space).user_id()?;
                if user.get().starts_with('{') {
                    (peek::field(user, "session_id").and_then(text_or_number)?, space.pick("user_id.session_id"))
                } else {
                    (body.space(*space).user_json_session_id()?, space.pick("user_id[json].session_id"))
                }
            }
            Self::UserId(space) => (body.space(*space).user_text()?, space.pick("user_id[plain]")),
            Self::Conversation => {
                let raw = peek.conversation?;
                let id = if raw.get().starts_with('{') { peek::field(raw, "id")? } else { raw };
                (text(id)?, "body.conversation")
            }
            Self::PromptCacheKey => (text(peek.prompt_cache_key?)?, "body.prompt_cache_key"),
            Self::User => (text(peek.user?)?, "body.user"),
            Self::FirstUserMessage => {
                let input = peek.input.filter(|_| body.api == Api::Responses);
                let content = peek::first_user_content(peek.messages.or(input)?)?;
                if is_empty_content(content) {
                    return None;
                }
                (Value::Id(Cow::Borrowed(content.get().as_bytes())), "body.first_user_message")
            }
        })
    }
}

impl Space {
    fn pick(self, field: &str) -> &'static str {
        match (self, field) {
            (Self::Metadata, "session_id") => "body.metadata.session_id",
            (Self::Metadata, "user_id.session_id") => "body.metadata.user_id.session_id",
            (Self::Metadata, "user_id[json].session_id") => "body.metadata.user_id[json].session_id",
            (Self::Metadata, _) => "body.metadata.user_id[plain]",
            (Self::Litellm, "session_id") => "body.litellm_metadata.session_id",
            (Self::Litellm, "user_id.session_id") => "body.litellm_metadata.user_id.session_id",
            (Self::Litellm, "user_id[json].session_id") => "body.litellm_metadata.user_id[json].session_id",
            (Self::Litellm, _) => "body.litellm_metadata.user_id[plain]",
        }
    }
}

fn is_blank(id: &[u8]) -> bool {
    id.iter().all(|c| matches!(c, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c))
}

fn is_too_long(id: &[u8]) -> bool {
    // Continuation bytes do not start a character.
    id.iter().filter(|c| **c & 0xc0 != 0x80).count() > MAX_ID_CHARS
}

/// A message that says nothing names no session: all such clients would be one.
fn is_empty_content(content: &RawValue) -> bool {
    matches!(content.get(), "null" | "[]") || peek::string(content).is_some_and(|text| text.trim().is_empty())
}

/// A string's text. One that is sure to be too long is not even unescaped.
fn text(raw: &RawValue) -> Option<Value<'_>> {
    if raw.get().starts_with('"') && raw.get().len() > MAX_RAW_ID + 2 {
        return Some(Value::TooLong);
    }
    Some(Value::Id(match peek::string(raw)? {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }))
}

/// A number's literal text is kept: ids differ where a float would not (payloads.md §2.1).
fn text_or_number(raw: &RawValue) -> Option<Value<'_>> {
    let literal = raw.get();
    if literal.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
        return Some(Value::Id(Cow::Borrowed(literal.as_bytes())));
    }
    text(raw)
}

#[cfg(test)]
#[path = "extract/examples.rs"]
mod examples;
#[cfg(test)]
#[path = "extract/tests.rs"]
mod tests;
