//! `strip_actual_usage`: answers without what an engine counts for itself (payloads.md §5.3).

use super::Handler;
use crate::body::edit::Edits;
use crate::sse::object::Object;

const DROPPED: &[&str] = &["actual_usage"];

pub(super) const HANDLER: Handler = Handler { name: "strip_actual_usage", looks_for: &[DROPPED], edit };

fn edit(text: &str, edits: &mut Edits<'_>) {
    let Some(mut top) = Object::read(text) else { return };
    top.drop_all(DROPPED);
    top.finish(edits);
}
