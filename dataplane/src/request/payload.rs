//! What a request's body is refused for and what is changed in it, by the route's options and switches (payloads.md §1, §3,
//! §4).

use bytes::Bytes;
use http::Method;
use router_policy::body::transform::{Changes, Transforms};
use router_policy::option::resolved::Unreadable;
use router_policy::payload_count::PayloadCount;
use router_policy::toggle::Switch;

use super::error::Error;
use crate::snapshot::RouteEntry;

/// Paths (without the route's prefix) whose bodies may ask for token counts in a stream. The other APIs always tell them.
const COMPLETIONS: [&str; 2] = ["/v1/chat/completions", "/v1/completions"];
const MESSAGES: &str = "/v1/messages";
/// Paths that no rule refuses (payloads.md §4.5).
const NEVER_REFUSED: [&str; 2] = ["/v1/models", "/health"];

/// Why a transform leaves a body that it would change.
const TOO_LONG: &str = "with it the body would more than double its length";

/// A rule's refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rejected {
    pub(crate) rule: String,
    pub(crate) status: u16,
    pub(crate) message: String,
    pub(crate) route: String,
}

/// Asks the route's rules; they see the client's own bytes, and only those that are JSON.
pub(super) fn check_rules(route: &RouteEntry, method: &Method, path: &str, body: &[u8]) -> Result<(), Error> {
    let payload = &route.options.payload;
    if !route.rejects || NEVER_REFUSED.contains(&path) {
        return Ok(());
    }
    let verdict = match payload.reject_rules.try_judge(body) {
        Ok(Some(verdict)) => verdict,
        Ok(None) => return Ok(()),
        Err(_) if body.is_empty() => return Ok(()),
        Err(_) => {
            route.metrics.passed.body_not_judged();
            let is_refused = payload.reject_rules_unreadable == Unreadable::Refuse && *method == Method::POST;
            return if is_refused { Err(Error::BodyNotJson) } else { Ok(()) };
        }
    };
    route.metrics.payload.rule_hit(verdict.rule);
    let message = verdict.message.map_or_else(|| format!("request rejected by rule '{}'", verdict.rule), str::to_owned);
    Err(Error::RejectedByRule(Rejected {
        rule: verdict.rule.to_owned(),
        status: verdict.status.unwrap_or(payload.reject_rules_status),
        message,
        route: route.name.to_string(),
    }))
}

/// Applies the route's transforms and counts what they did; `None`: the body stays as it is.
pub(super) fn transform(route: &RouteEntry, path: &str, body: &[u8]) -> (Option<Bytes>, Changes) {
    let (edited, changes) = edit(route, path, body);
    count(route, &changes);
    (edited, changes)
}

/// Applies the route's transforms.
pub(super) fn edit(route: &RouteEntry, path: &str, body: &[u8]) -> (Option<Bytes>, Changes) {
    let transforms = Transforms {
        include_usage: route.transforms.include_usage && COMPLETIONS.contains(&path),
        system_hoist: route.transforms.system_hoist && path == MESSAGES,
        ..route.transforms
    };
    if transforms == Transforms::default() {
        return (None, Changes::default());
    }
    let (edited, changes) = transforms.apply(body);
    (edited.map(Bytes::from), changes)
}

/// Counts what was done to a body.
pub(super) fn count(route: &RouteEntry, changes: &Changes) {
    let counts = &route.metrics.payload;
    for (count, more) in [
        (PayloadCount::CchStripped, u64::from(changes.cch_stripped)),
        (PayloadCount::KimiChanges, changes.kimi_ids),
        (PayloadCount::KimiRequests, u64::from(changes.kimi_ids > 0)),
        (PayloadCount::UsageInjected, u64::from(changes.usage_asked)),
        (PayloadCount::SystemHoisted, u64::from(changes.hoisted > 0)),
    ] {
        if more > 0 {
            counts.add(count, more);
        }
    }
    for (is_skipped, transform, why) in [
        (
            changes.usage_not_possible,
            Switch::IncludeUsage,
            "stream_options is no object: token counts can't be asked for",
        ),
        (changes.kimi_too_long, Switch::KimiNormalize, TOO_LONG),
        (changes.hoist_too_long, Switch::SystemHoist, TOO_LONG),
    ] {
        if is_skipped {
            route.metrics.passed.transform(transform, why);
        }
    }
}
