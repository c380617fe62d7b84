//! A metadata object of a body: both fields that may name a session in one pass, made when the first source asks.

use std::borrow::Cow;
use std::cell::OnceCell;

use serde_json::value::RawValue;

use super::{MAX_RAW_ID, Value, text, text_or_number};
use crate::body::peek;

/// The longest string that is read as JSON, in bytes as it stands in the body. A longer one is a plain id, and too long.
pub(super) const MAX_JSON_TEXT: usize = 16 << 10;

#[derive(Debug)]
pub(super) struct Metadata<'a> {
    raw: Option<&'a RawValue>,
    /// `session_id` and `user_id`.
    fields: OnceCell<[Option<&'a RawValue>; 2]>,
    /// `user_id` when it is a string that may hold JSON.
    user_text: OnceCell<Option<Cow<'a, str>>>,
}

impl<'a> Metadata<'a> {
    pub(super) fn new(raw: Option<&'a RawValue>) -> Self {
        Self { raw, fields: OnceCell::new(), user_text: OnceCell::new() }
    }

    pub(super) fn session_id(&self) -> Option<&'a RawValue> {
        self.fields()[0]
    }

    pub(super) fn user_id(&self) -> Option<&'a RawValue> {
        self.fields()[1]
    }

    /// The `session_id` of the JSON text that `user_id` is.
    pub(super) fn user_json_session_id(&self) -> Option<Value<'a>> {
        let inner = self.short_user_text()?.trim_start();
        let [id] = peek::pick(inner, ["session_id"])?;
        Some(match text_or_number(id?)? {
            Value::Id(id) => Value::Id(Cow::Owned(id.into_owned())),
            Value::TooLong => Value::TooLong,
        })
    }

    /// `user_id` as a plain string.
    pub(super) fn user_text(&self) -> Option<Value<'a>> {
        let user = self.user_id()?;
        if user.get().len() > MAX_RAW_ID + 2 {
            return text(user);
        }
        Some(Value::Id(match self.short_user_text()? {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.as_bytes().to_vec()),
        }))
    }

    fn short_user_text(&self) -> Option<&Cow<'a, str>> {
        let read = || peek::string(self.user_id().filter(|user| user.get().len() <= MAX_JSON_TEXT + 2)?);
        self.user_text.get_or_init(read).as_ref()
    }

    fn fields(&self) -> &[Option<&'a RawValue>; 2] {
        let read = || self.raw.and_then(|raw| peek::pick(raw.get(), ["session_id", "user_id"])).unwrap_or_default();
        self.fields.get_or_init(read)
    }
}
