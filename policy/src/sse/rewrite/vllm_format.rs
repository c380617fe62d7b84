//! `vllm_format`: vLLM's answers as other engines and the clients' libraries have them (payloads.md §5.4).

use std::ops::Range;

use super::Handler;
use crate::body::edit::Edits;
use crate::sse::object::{Object, Winner, items};

/// Of the whole answer.
const NULLS: &[&str] = &["prompt_logprobs", "prompt_token_ids", "prompt_text", "metrics", "logprobs", "token_ids"];
const DROPPED: &[&str] =
    &["service_tier", "system_fingerprint", "kv_transfer_params", "ec_transfer_params", "actual_usage"];
/// Of `usage.prompt_tokens_details`.
const DETAILS_NULLS: &[&str] = &["multimodal_tokens"];
const CREATED: &str = "created_cache_tokens";
const WRITTEN: &str = "cache_write_tokens";
/// Of each choice.
const CHOICE_NULLS: &[&str] = &["logprobs", "token_ids", "routed_experts", "prompt_token_ids", "prompt_text"];
const CHOICE_DROPPED: &[&str] = &["stop_reason"];
/// Of `choice.message`.
const MESSAGE_NULLS: &[&str] = &["refusal", "annotations", "audio", "function_call"];
/// Of a choice, and of its delta or message.
const REASONING: &str = "reasoning";
const REASONING_CONTENT: &str = "reasoning_content";

pub(super) const HANDLER: Handler = Handler {
    name: "vllm_format",
    looks_for: &[NULLS, DROPPED, DETAILS_NULLS, &[CREATED, REASONING], CHOICE_NULLS, CHOICE_DROPPED, MESSAGE_NULLS],
    edit,
};

fn edit(text: &str, edits: &mut Edits<'_>) {
    let Some(mut top) = Object::read(text) else { return };
    let Some(choices) = top.value("choices") else { return };
    if !text.get(choices.clone()).is_some_and(|choices| choices.starts_with(['[', '{'])) {
        return;
    }
    top.drop_nulls(NULLS);
    top.drop_all(DROPPED);
    let inner = |object: &Object<'_>, name| Object::read_at(text, &object.value(name)?);
    if let Some(mut details) = inner(&top, "usage").and_then(|usage| inner(&usage, "prompt_tokens_details")) {
        details.drop_nulls(DETAILS_NULLS);
        details.rename(CREATED, WRITTEN, Winner::Existing);
        details.finish(edits);
    }
    top.finish(edits);
    for choice in items(text, choices) {
        edit_choice(text, &choice, edits);
    }
}

fn edit_choice(text: &str, at: &Range<usize>, edits: &mut Edits<'_>) {
    let Some(mut choice) = Object::read_at(text, at) else { return };
    for (name, nulls) in [("delta", &[][..]), ("message", MESSAGE_NULLS)] {
        let part = choice.value(name).and_then(|at| Object::read_at(text, &at));
        if let Some(mut part) = part {
            part.drop_nulls(nulls);
            part.rename(REASONING, REASONING_CONTENT, Winner::Renamed);
            part.finish(edits);
        }
    }
    choice.drop_nulls(CHOICE_NULLS);
    choice.drop_all(CHOICE_DROPPED);
    choice.rename(REASONING, REASONING_CONTENT, Winner::Renamed);
    choice.finish(edits);
}
