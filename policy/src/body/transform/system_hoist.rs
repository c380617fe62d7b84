//! Messages of the role `system` are moved to the top-level `system`, which engines behind the Messages API know (payloads.md
//! §3.5, rulings §7). The raw text of blocks is moved, nothing is encoded again.

use serde_json::value::RawValue;

use super::look::Look;
use super::top_level::{TopLevel, is_empty};
use crate::body::edit::{Edits, Piece};
use crate::body::peek;

const BLOCK_START: &str = r#"{"type":"text","text":"#;
const BLOCK_END: &str = "}";

/// Moves them. How many were moved.
pub(super) fn edit(top: &TopLevel<'_>, edits: &mut Edits<'_>) -> u64 {
    let Some(messages) = top.messages else { return 0 };
    let mut run = Run::default();
    let mut blocks = Blocks::default();
    let mut moved = 0;
    let look = Look::new("\"system\"");
    let content = |message| if look.may_find(RawValue::get(message)) { system_content(message) } else { None };
    let is_list = peek::each_item(messages, |message| match content(message) {
        Some(content) => {
            moved += 1;
            run.is_removed(top, message);
            if let Some(content) = content {
                blocks.take(top, content, edits);
            }
        }
        None => run.is_kept(top, message, edits),
    });
    if is_list.is_none() || moved == 0 {
        return 0;
    }
    run.ends(edits);
    append(top, blocks, edits);
    moved
}

/// The content, if it has one, of what is a message of the system.
#[expect(clippy::option_option, reason = "no message of the system, or one without content")]
fn system_content(message: &RawValue) -> Option<Option<&RawValue>> {
    let [role, content] = peek::pick(message.get(), ["role", "content"])?;
    (peek::string(role?)? == "system").then_some(content)
}

/// Neighbours that are removed: they go with the commas between them.
#[derive(Debug, Default)]
struct Run {
    /// Where the last message ends that stays.
    kept_end: Option<usize>,
    /// Where the first and the last of the run start and end.
    removed: Option<(usize, usize)>,
}

impl Run {
    fn is_removed(&mut self, top: &TopLevel<'_>, message: &RawValue) {
        let place = top.place(message);
        let start = self.removed.map_or(place.start, |(start, _)| start);
        self.removed = Some((start, place.end));
    }

    fn is_kept(&mut self, top: &TopLevel<'_>, message: &RawValue, edits: &mut Edits<'_>) {
        let place = top.place(message);
        if let Some((start, _)) = self.removed.take() {
            edits.remove(start..place.start);
        }
        self.kept_end = Some(place.end);
    }

    fn ends(self, edits: &mut Edits<'_>) {
        if let Some((start, end)) = self.removed {
            edits.remove(self.kept_end.unwrap_or(start)..end);
        }
    }
}

/// Blocks to append, with a comma before each.
#[derive(Debug, Default)]
struct Blocks(Vec<Piece>);

impl Blocks {
    /// A string becomes a block, a list's objects are blocks as they are, its strings become some. All else says nothing.
    fn take(&mut self, top: &TopLevel<'_>, content: &RawValue, edits: &mut Edits<'_>) {
        match content.get().as_bytes().first() {
            Some(b'"') => self.wrap(top, content, edits),
            Some(b'[') => {
                peek::each_item(content, |item| match item.get().as_bytes().first() {
                    Some(b'"') => self.wrap(top, item, edits),
                    Some(b'{') => self.push(edits.words(","), top, item),
                    _ => {}
                });
            }
            _ => {}
        }
    }

    fn wrap(&mut self, top: &TopLevel<'_>, text: &RawValue, edits: &mut Edits<'_>) {
        if edits.is_too_long() {
            return;
        }
        let (comma, start, end) = (edits.words(","), edits.words(BLOCK_START), edits.words(BLOCK_END));
        self.0.push(comma);
        self.push(start, top, text);
        self.0.push(end);
    }

    fn push(&mut self, before: Piece, top: &TopLevel<'_>, value: &RawValue) {
        self.0.extend([before, Piece::Moved(top.place(value))]);
    }

    /// As the items of a list in which nothing stands before them.
    fn alone(self) -> impl Iterator<Item = Piece> {
        self.0.into_iter().skip(1)
    }

    /// As a list.
    fn list(self, edits: &mut Edits<'_>) -> Vec<Piece> {
        [edits.words("[")].into_iter().chain(self.alone()).chain([edits.words("]")]).collect()
    }
}

/// Appends the blocks to the top-level `system`, which becomes a list if it is none.
fn append(top: &TopLevel<'_>, blocks: Blocks, edits: &mut Edits<'_>) {
    let Some(system) = top.system else {
        let start = top.text.find('{').map_or(0, |at| at + 1);
        let mut field = vec![edits.words(r#""system":"#)];
        field.extend(blocks.list(edits));
        // At least `messages` comes after it.
        field.push(edits.words(","));
        edits.rearrange(start..start, field);
        return;
    };
    let place = top.place(system);
    match system.get().as_bytes().first() {
        Some(b'"') => {
            let start = vec![edits.words("["), edits.words(BLOCK_START)];
            edits.rearrange(place.start..place.start, start);
            let mut end = vec![edits.words(BLOCK_END)];
            end.extend(blocks.0);
            end.push(edits.words("]"));
            edits.rearrange(place.end..place.end, end);
        }
        Some(b'[') if blocks.0.is_empty() => {}
        Some(b'[') => {
            let end = place.end.saturating_sub(1);
            let pieces = if is_empty(system) { blocks.alone().collect() } else { blocks.0 };
            edits.rearrange(end..end, pieces);
        }
        _ => {
            let list = blocks.list(edits);
            edits.rearrange(place, list);
        }
    }
}
