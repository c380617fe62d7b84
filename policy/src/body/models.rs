//! The union of the backends' `/v1/models` answers (gateway.md §7, conventions §2): a list of models by `id`, in the order
//! of the answers, each model's object as its first backend wrote it, byte for byte, except for `max_model_len`, which
//! tells the smallest window of the backends that have the model and is lowered to a limit, never raised.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use serde_json::value::RawValue;

use super::peek::{fields, items, string};

const DATA: &str = "data";
const ID: &str = "id";
const MAX_MODEL_LEN: &str = "max_model_len";

/// One backend's answer, taken apart.
#[derive(Debug, Clone)]
pub struct ModelList<'a> {
    text: &'a str,
    /// Where the list stands in `text`: once, but JSON forbids no more.
    data: Vec<Range<usize>>,
    models: Vec<Model<'a>>,
}

/// One model's object.
#[derive(Debug, Clone)]
struct Model<'a> {
    id: Cow<'a, str>,
    text: &'a str,
    /// The values of `max_model_len` and where they stand in `text`.
    windows: Vec<(Range<usize>, &'a str)>,
}

impl<'a> ModelList<'a> {
    /// Reads an answer's body; `None` unless it is an object in UTF-8 that has a list under `data`. What is in the list but
    /// is no object with an `id` that is a string is passed over: nobody could ask for it.
    pub fn read(body: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(body).ok()?.trim_ascii();
        let data = values(text, DATA)?;
        let (_, list) = data.last()?;
        let models = items(list)?.into_iter().filter_map(|item| Model::read(item.get())).collect();
        Some(Self { text, data: data.into_iter().map(|(at, _)| at).collect(), models })
    }
}

impl<'a> Model<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let (_, id) = values(text, ID)?.pop()?;
        let windows = values(text, MAX_MODEL_LEN)?.into_iter().map(|(at, value)| (at, value.get())).collect();
        Some(Self { id: string(id)?, text, windows })
    }

    /// The window that it states; of two, JSON readers see the last.
    fn window(&self) -> Stated<'a> {
        self.windows
            .last()
            .map_or(Stated::Nothing, |(_, text)| Window::read(text).map_or(Stated::Other, Stated::Window))
    }

    /// The object with this window.
    fn with_window(&self, window: &str) -> String {
        if !self.windows.is_empty() {
            return replace(self.text, self.windows.iter().map(|(at, _)| at), window);
        }
        // It has an id, so something stands before the brace.
        let end = self.text.rfind('}').unwrap_or(self.text.len());
        let (object, brace) = self.text.split_at(end);
        format!("{},\"{MAX_MODEL_LEN}\":{window}{brace}", object.trim_ascii_end())
    }
}

/// What a model says of its window.
#[derive(Debug, Clone, Copy)]
enum Stated<'a> {
    Nothing,
    Window(Window<'a>),
    /// Something that is no number. It is left alone.
    Other,
}

/// A number, as the backend wrote it.
#[derive(Debug, Clone, Copy)]
struct Window<'a> {
    text: &'a str,
    /// Whole tokens, rounded up, at most `u64::MAX`: only for comparisons.
    tokens: u64,
}

impl<'a> Window<'a> {
    fn read(text: &'a str) -> Option<Self> {
        if !text.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
            return None;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "saturates: a window below zero is zero, one beyond u64 is unlimited"
        )]
        let rounded = || text.parse::<f64>().ok().map(|number| number.ceil() as u64);
        let tokens = text.parse::<u64>().ok().or_else(rounded)?;
        Some(Self { text, tokens })
    }
}

/// The models of all answers.
#[derive(Debug)]
pub struct Union<'a> {
    first: &'a ModelList<'a>,
    models: Vec<(&'a Model<'a>, Option<Window<'a>>)>,
    /// No model states more than this; one that states nothing states this.
    limit: Option<u64>,
}

impl<'a> Union<'a> {
    /// Of at least one answer, in the order of the backends.
    pub fn of(answers: &'a [ModelList<'a>], limit: Option<u64>) -> Option<Self> {
        let mut union = Self { first: answers.first()?, models: Vec::new(), limit };
        let mut places: HashMap<&str, usize> = HashMap::new();
        for model in answers.iter().flat_map(|answer| &answer.models) {
            let window = match model.window() {
                Stated::Window(window) => Some(window),
                Stated::Nothing | Stated::Other => None,
            };
            let place = *places.entry(&model.id).or_insert(union.models.len());
            if let Some((_, smallest)) = union.models.get_mut(place) {
                // `min_by_key` keeps the first of two equals: its text stays.
                *smallest = smallest.iter().copied().chain(window).min_by_key(|window| window.tokens);
            } else {
                union.models.push((model, window));
            }
        }
        Some(union)
    }

    /// The whole answer: the first backend's, with the models of all.
    pub fn list(&self) -> String {
        let models: Vec<Cow<'_, str>> = self.models.iter().map(|(model, window)| self.object(model, *window)).collect();
        replace(self.first.text, self.first.data.iter(), &format!("[{}]", models.join(",")))
    }

    /// The object of one model.
    pub fn model(&self, id: &str) -> Option<String> {
        let (model, window) = self.models.iter().find(|(model, _)| model.id == id)?;
        Some(self.object(model, *window).into_owned())
    }

    fn object(&self, model: &Model<'a>, smallest: Option<Window<'a>>) -> Cow<'a, str> {
        let limited = self.limit.filter(|limit| smallest.is_none_or(|smallest| smallest.tokens > *limit));
        let told =
            limited.map(|limit| Cow::Owned(limit.to_string())).or(smallest.map(|window| Cow::Borrowed(window.text)));
        match (model.window(), told) {
            (Stated::Other, _) | (_, None) => Cow::Borrowed(model.text),
            (Stated::Window(own), Some(told)) if own.text == told => Cow::Borrowed(model.text),
            (Stated::Window(_) | Stated::Nothing, Some(told)) => Cow::Owned(model.with_window(&told)),
        }
    }
}

/// The values of the object's fields of this name, and where they stand; `None` when `text` is no object.
fn values<'a>(text: &'a str, name: &str) -> Option<Vec<(Range<usize>, &'a RawValue)>> {
    let found = fields(text, name)?;
    // A borrowed value is a part of the text that it was read from.
    let place = |value: &RawValue| {
        let start = value.get().as_ptr().addr().checked_sub(text.as_ptr().addr())?;
        Some(start..start + value.get().len())
    };
    found.into_iter().map(|value| Some((place(value)?, value))).collect()
}

/// `text` with other bytes in these places, which are in order.
fn replace<'r>(text: &str, places: impl Iterator<Item = &'r Range<usize>>, with: &str) -> String {
    let mut out = String::with_capacity(text.len() + with.len());
    let mut from = 0;
    for place in places {
        out.push_str(text.get(from..place.start).unwrap_or_default());
        out.push_str(with);
        from = place.end;
    }
    out.push_str(text.get(from..).unwrap_or_default());
    out
}

#[cfg(test)]
#[path = "models/tests.rs"]
mod tests;
