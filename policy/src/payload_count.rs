//! What replicas count of payload handling and tell the control plane, which adds it up for the fleet (payloads.md §3, §9).

use crate::toggle::Switch;

mod totals;

pub use totals::PayloadTotals;

/// One count of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PayloadCount {
    /// Bodies that are a JSON object or list, whether or not a transform is on.
    Parsed,
    /// Requests that lost a billing marker.
    CchStripped,
    /// Tool call ids that were replaced.
    KimiChanges,
    /// Requests in which some were.
    KimiRequests,
    /// Requests that were made to ask for token counts.
    UsageInjected,
    /// Requests whose system messages were moved.
    SystemHoisted,
    /// Requests that a rule refused.
    RuleRejected,
    /// Records that the body log's buffer took.
    BodyLogWritten,
    /// Records that were lost: no room in the buffer, given up by the sender, or not sent at shutdown.
    BodyLogDropped,
    /// Frames that could not be made.
    BodyLogErrors,
}

impl PayloadCount {
    /// Every count.
    pub const ALL: [PayloadCount; 10] = [
        PayloadCount::Parsed,
        PayloadCount::CchStripped,
        PayloadCount::KimiChanges,
        PayloadCount::KimiRequests,
        PayloadCount::UsageInjected,
        PayloadCount::SystemHoisted,
        PayloadCount::RuleRejected,
        PayloadCount::BodyLogWritten,
        PayloadCount::BodyLogDropped,
        PayloadCount::BodyLogErrors,
    ];

    /// Its name on the wire and in the database.
    pub fn name(self) -> &'static str {
        match self {
            PayloadCount::Parsed => "parsed",
            PayloadCount::CchStripped => "cch_stripped",
            PayloadCount::KimiChanges => "kimi_changes",
            PayloadCount::KimiRequests => "kimi_requests",
            PayloadCount::UsageInjected => "usage_injected",
            PayloadCount::SystemHoisted => "system_hoisted",
            PayloadCount::RuleRejected => "rule_rejected",
            PayloadCount::BodyLogWritten => "bodylog_written",
            PayloadCount::BodyLogDropped => "bodylog_dropped",
            PayloadCount::BodyLogErrors => "bodylog_errors",
        }
    }

    /// The count of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|count| count.name() == name)
    }

    /// The feature whose `reset=1` clears it. `None`: it is cleared with `_429_status`.
    pub fn feature(self) -> Option<Switch> {
        Some(match self {
            PayloadCount::Parsed | PayloadCount::CchStripped => Switch::CchStrip,
            PayloadCount::KimiChanges | PayloadCount::KimiRequests => Switch::KimiNormalize,
            PayloadCount::UsageInjected => Switch::IncludeUsage,
            PayloadCount::SystemHoisted => Switch::SystemHoist,
            PayloadCount::BodyLogWritten | PayloadCount::BodyLogDropped | PayloadCount::BodyLogErrors => {
                Switch::BodyLog
            }
            PayloadCount::RuleRejected => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for count in PayloadCount::ALL {
            assert_eq!(PayloadCount::named(count.name()), Some(count));
        }
        assert_eq!(PayloadCount::named("x"), None);
    }
}
