//! What is changed in requests and answers, and what requests are refused for what they hold (payloads.md §3 to §5).

use super::super::OptionDef;
use super::option;
use crate::option::kind::Kind;
use crate::reject::MatchSyntax;
use crate::sse::rewrite::HANDLER_NAMES;

const GROUP: &str = "payload";

pub(super) const ENTRIES: &[OptionDef] = &[
    option(
        "cch_default_enabled",
        GROUP,
        Kind::Bool,
        "false",
        "Take the billing marker with its changing hash off the start of prompts, so that prefix caches hit. The switch \
         `cch_strip` comes before it.",
    )
    .openresty("true"),
    option(
        "kimi_normalize_default_enabled",
        GROUP,
        Kind::Bool,
        "false",
        "Give the tool calls of Kimi models the ids that the model itself writes. The switch `kimi_normalize` comes \
         before it.",
    )
    .openresty("true"),
    option(
        "kimi_normalize_strategy",
        GROUP,
        Kind::Word(&["rerank", "hash", "rerank_maxlast", "keepinc"]),
        "rerank",
        "How those ids are numbered. `rerank`: by place in the conversation. `hash`: by content. `rerank_maxlast`: by \
         place, the last one with the largest number seen. `keepinc`: numbers that rise are kept.",
    )
    .hidden(),
    option(
        "include_usage_default_enabled",
        GROUP,
        Kind::Word(&["auto", "by_model", "true", "false"]),
        "auto",
        "Ask engines to end streamed completions with their token counts. `auto`: where the route measures TPS. \
         `by_model`: where it has a pool per model. The switch `include_usage` comes before it.",
    )
    .openresty("by_model"),
    option(
        "include_usage_hide",
        GROUP,
        Kind::Bool,
        "true",
        "Take the frame with those counts out of the stream again, unless the client itself asked for it.",
    )
    .openresty("false"),
    option(
        "system_hoist_default_enabled",
        GROUP,
        Kind::Bool,
        "false",
        "On `/v1/messages`, move messages of the role `system` to the top-level `system`. The switch `system_hoist` \
         comes before it.",
    )
    .openresty("true"),
    option(
        "reject_rules",
        GROUP,
        Kind::RejectRules,
        "none",
        "Requests that are refused for what their body holds: a list of rules, the first that matches decides.",
    ),
    option(
        "reject_rules_default_enabled",
        GROUP,
        Kind::Bool,
        "false",
        "Whether `reject_rules` are in force. The switch `reject_rules` comes before it.",
    ),
    option(
        "reject_rules_status",
        GROUP,
        Kind::Int { min: 400, max: 599 },
        "429",
        "HTTP status of a refusal by a rule that states none.",
    ),
    option(
        "reject_rules_unreadable",
        GROUP,
        Kind::Word(&["pass", "refuse"]),
        "pass",
        "A POST whose body rules can't read, since it is no JSON object or list in UTF-8: `pass`: it is served. \
         `refuse`: it is refused with 400, uploads of files too.",
    )
    .hidden(),
    option(
        "match_syntax",
        GROUP,
        Kind::Word(&MatchSyntax::NAMES),
        "regex",
        "What the patterns of `match` in `reject_rules` are: regular expressions, or the Lua patterns of the session \
         router.",
    )
    .openresty("lua")
    .hidden(),
    option(
        "postprocess",
        GROUP,
        Kind::Word(&HANDLER_NAMES),
        "none",
        "How answers are rewritten for clients. `strip_actual_usage`: without `actual_usage`. `vllm_format`: without the \
         fields that only vLLM has, and with `reasoning_content`.",
    ),
    option(
        "bodylog_default_enabled",
        GROUP,
        Kind::Bool,
        "true",
        "Whether the bodies of this route are captured on replicas that have a collector (`--bodylog-host`). The switch \
         `bodylog` comes before it.",
    ),
    option(
        "bodylog_default_pct",
        GROUP,
        Kind::Int { min: 0, max: 100 },
        "100",
        "How many of 100 requests are captured. The run-time limit `bodylog_pct` comes before it.",
    )
    .unit("percent"),
];
