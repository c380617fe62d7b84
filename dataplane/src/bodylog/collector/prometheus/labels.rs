//! Labels, and the bound on how many values each may take.

use std::collections::HashSet;
use std::sync::Arc;

use prometheus_client::encoding::EncodeLabel as _;
use prometheus_client::encoding::{EncodeLabelSet, LabelSetEncoder};

/// Most combinations of route, backend and model. Each costs up to a few hundred series.
const MOST_BASES: usize = 1000;
const MOST_FINISH_REASONS: usize = 50;
/// Longest value, in bytes.
const LONGEST: usize = 128;
const OTHER: &str = "other";
const UNKNOWN: &str = "unknown";

/// Upper bounds of prompts, in units of 1024 tokens. Dashboards know them: they stay as they are.
const PROMPTS: [u64; 25] =
    [1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256, 384, 512, 768, 1024];

/// The labels of every traffic metric.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Base {
    route: Arc<str>,
    backend: Arc<str>,
    model: Arc<str>,
}

impl EncodeLabelSet for Base {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), std::fmt::Error> {
        // No replica knows the service in front of it; the label is there for queries that name it.
        for (name, value) in
            [("service", UNKNOWN), ("route", &self.route), ("backend", &self.backend), ("model", &self.model)]
        {
            (name, value).encode(encoder.encode_label())?;
        }
        Ok(())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Requests {
    #[prometheus(flatten)]
    pub(super) base: Base,
    pub(super) status_class: &'static str,
    pub(super) stream: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct FinishReason {
    #[prometheus(flatten)]
    pub(super) base: Base,
    pub(super) finish_reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Streamed {
    #[prometheus(flatten)]
    pub(super) base: Base,
    pub(super) stream: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Prompted {
    #[prometheus(flatten)]
    pub(super) base: Base,
    pub(super) prompt_bucket: String,
}

/// The values that were seen so far.
#[derive(Debug, Default)]
pub(super) struct Known {
    bases: HashSet<Base>,
    finish_reasons: HashSet<String>,
}

impl Known {
    /// The labels of a request. Past the bound a new model is `other`, then a new backend too, then everything is.
    pub(super) fn base(&mut self, route: &str, backend: &str, model: &str) -> Base {
        let label = |value: &str, none: &str| -> Arc<str> {
            Arc::from(if value.is_empty() {
                none
            } else {
                value.get(..value.floor_char_boundary(LONGEST)).unwrap_or(none)
            })
        };
        let route = label(route, UNKNOWN);
        let (backend, model) = (label(backend, "(none)"), label(model, UNKNOWN));
        let other: Arc<str> = Arc::from(OTHER);
        let coarser = [
            (MOST_BASES, Base { route: Arc::clone(&route), backend: Arc::clone(&backend), model }),
            (2 * MOST_BASES, Base { route: Arc::clone(&route), backend, model: Arc::clone(&other) }),
            (3 * MOST_BASES, Base { route, backend: Arc::clone(&other), model: Arc::clone(&other) }),
        ];
        for (most, base) in coarser {
            if self.bases.contains(&base) {
                return base;
            }
            if self.bases.len() < most {
                self.bases.insert(base.clone());
                return base;
            }
        }
        Base { route: Arc::clone(&other), backend: Arc::clone(&other), model: other }
    }

    pub(super) fn finish_reason(&mut self, reason: &str) -> String {
        let reason = reason.get(..reason.floor_char_boundary(LONGEST)).unwrap_or(OTHER);
        if self.finish_reasons.contains(reason) || self.finish_reasons.len() < MOST_FINISH_REASONS {
            self.finish_reasons.insert(reason.to_owned());
            return reason.to_owned();
        }
        OTHER.to_owned()
    }
}

/// How long a prompt was, as a half-open range in units of 1024 tokens.
pub(super) fn prompt_bucket(tokens: u64) -> String {
    if tokens == 0 {
        return UNKNOWN.to_owned();
    }
    let units = tokens / 1024;
    let at = PROMPTS.partition_point(|bound| *bound <= units);
    let from = at.checked_sub(1).and_then(|before| PROMPTS.get(before)).copied().unwrap_or(0);
    match PROMPTS.get(at) {
        Some(to) => format!("{from:04}k_{to:04}k"),
        None => format!("{from:04}k_inf"),
    }
}
