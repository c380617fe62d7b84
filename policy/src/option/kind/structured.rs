//! Option values with a structure of their own: metrics, turn tables, numbers by name. They are written as JSON, also on
//! command lines and on the wire.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

use super::{Value, json_kind};
use crate::flow::metric::{MAX_METRICS, Metric, Statistic};
use crate::flow::turn::{MAX_ROWS, TurnRow, TurnTable};
use crate::reject::{InvalidRule, RuleList};

/// Names of models and metrics, in characters.
const NAME_MAX: usize = 256;

/// JSON text, or `none`; what is no JSON is a text.
pub(super) fn json_of(text: &str) -> Json {
    if text == "none" || text.is_empty() {
        return Json::Null;
    }
    serde_json::from_str(text).unwrap_or_else(|_| Json::String(text.to_owned()))
}

/// `{"m1": 30000, "m2": 500}`; in text also `m1=30000,m2=500`.
pub(super) fn numbers(json: &Json, above: f64, max: f64) -> Result<Value, String> {
    let mut numbers = BTreeMap::new();
    match json {
        Json::Null => {}
        Json::String(text) => {
            for part in text.split(',') {
                let (name, number) = part.rsplit_once('=').ok_or("a part without =")?;
                let number = number.trim().parse().map_err(|_| "a part without a number after =")?;
                if numbers.insert(checked_name(name.trim())?, checked(number, above, max)?).is_some() {
                    return Err("a name that stands twice".to_owned());
                }
            }
        }
        Json::Object(fields) => {
            for (name, number) in fields {
                let number = number.as_f64().ok_or_else(|| format!("object with a {}", json_kind(number)))?;
                numbers.insert(checked_name(name)?, checked(number, above, max)?);
            }
        }
        other => return Err(json_kind(other).to_owned()),
    }
    Ok(Value::Decimals(numbers))
}

/// A list of rules; in text also its JSON. Every problem with its place in the list.
pub(super) fn reject_rules(json: &Json, is_stored: bool) -> (RuleList, Vec<InvalidRule>) {
    let inner = json.as_str().map(json_of);
    let json = inner.as_ref().unwrap_or(json);
    if is_stored {
        return RuleList::parse_stored(json);
    }
    match RuleList::parse(json) {
        Ok(rules) => (rules, Vec::new()),
        Err(problems) => (RuleList::default(), problems),
    }
}

fn checked(number: f64, above: f64, max: f64) -> Result<f64, String> {
    let is_good = number > above && number <= max;
    if is_good { Ok(number) } else { Err(format!("the number {number}")) }
}

fn checked_name(name: &str) -> Result<String, String> {
    let is_good = !name.trim().is_empty() && name.chars().count() <= NAME_MAX && !name.chars().any(char::is_control);
    if is_good {
        Ok(name.to_owned())
    } else {
        Err("a name that is empty, too long or has control characters".to_owned())
    }
}

/// `[{"metric": "p80", "q": 0.8, "threshold": 30000}, {"metric": "avg", "threshold": 9000}]` (limits.md §5.4).
pub(super) fn metrics(json: &Json) -> Result<Value, String> {
    let items = match json {
        Json::Null => return Ok(Value::Metrics(Vec::new())),
        Json::Array(items) if (1..=MAX_METRICS).contains(&items.len()) => items,
        Json::Array(items) => return Err(format!("a list of {}", items.len())),
        other => return Err(json_kind(other).to_owned()),
    };
    let mut metrics: Vec<Metric> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let metric = metric(item).map_err(|problem| format!("entry [{index}] with {problem}"))?;
        if metrics.iter().any(|other| other.name == metric.name) {
            return Err(format!("entry [{index}] with a name that stands twice"));
        }
        metrics.push(metric);
    }
    Ok(Value::Metrics(metrics))
}

fn metric(item: &Json) -> Result<Metric, String> {
    let fields = object(item, &["metric", "q", "threshold"])?;
    let name = fields.get("metric").and_then(Json::as_str).ok_or("no `metric` that is a text")?;
    // What is there and is no number is for the metric to refuse.
    let number = |json: &Json| json.as_f64().unwrap_or(f64::NAN);
    let q = fields.get("q").filter(|q| !q.is_null()).map(number);
    let threshold = fields.get("threshold").map_or(f64::NAN, number);
    Ok(Metric::declared(checked_name(name)?, q, threshold)?)
}

/// `[{"min_turn": 1, "share": 0.85, "tol": 1.0}, ...]` (limits.md §9.2).
pub(super) fn turns(json: &Json) -> Result<Value, String> {
    let items = match json {
        Json::Null => return Ok(Value::Turns(Vec::new())),
        Json::Array(items) if (1..=MAX_ROWS).contains(&items.len()) => items,
        Json::Array(items) => return Err(format!("a list of {}", items.len())),
        other => return Err(json_kind(other).to_owned()),
    };
    let row = |(index, item): (usize, &Json)| row(item).map_err(|problem| format!("entry [{index}] with {problem}"));
    let rows = items.iter().enumerate().map(row).collect::<Result<Vec<TurnRow>, String>>()?;
    TurnTable::from_rows(rows.clone()).map_err(|problem| format!("a table that is not valid: {problem}"))?;
    Ok(Value::Turns(rows))
}

fn row(item: &Json) -> Result<TurnRow, String> {
    let fields = object(item, &["min_turn", "share", "tol"])?;
    let min_turn = fields.get("min_turn").and_then(Json::as_u64).and_then(|turn| u32::try_from(turn).ok());
    let number =
        |key: &str| fields.get(key).and_then(Json::as_f64).ok_or_else(|| format!("no `{key}` that is a number"));
    Ok(TurnRow {
        min_turn: min_turn.ok_or("no `min_turn` that is a whole number")?,
        share: number("share")?,
        tol: number("tol")?,
    })
}

fn object<'a>(item: &'a Json, known: &[&str]) -> Result<&'a Map<String, Json>, String> {
    let fields = item.as_object().ok_or_else(|| format!("a {} in place of an object", json_kind(item)))?;
    match fields.keys().find(|key| !known.contains(&key.as_str())) {
        Some(_) => Err(format!("an unknown field (known: {})", known.join(", "))),
        None => Ok(fields),
    }
}

/// A number as people write it: without `.0`.
pub(super) fn number(number: f64) -> Json {
    // Whole numbers up to 2^53 are exact in both forms.
    #[expect(clippy::cast_possible_truncation, reason = "checked whole and in range")]
    let whole = (number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0).then_some(number as i64);
    whole.map_or_else(|| json!(number), |whole| json!(whole))
}

/// The JSON that reads back as these metrics.
pub(super) fn metrics_json(metrics: &[Metric]) -> Json {
    let one = |metric: &Metric| match metric.statistic {
        Statistic::Avg => json!({"metric": metric.name, "threshold": metric.threshold.map(number)}),
        Statistic::Quantile(q) => {
            json!({"metric": metric.name, "q": q, "threshold": metric.threshold.map(number)})
        }
    };
    metrics.iter().map(one).collect()
}

/// The JSON that reads back as this table.
pub(super) fn turns_json(rows: &[TurnRow]) -> Json {
    rows.iter()
        .map(|row| json!({"min_turn": row.min_turn, "share": number(row.share), "tol": number(row.tol)}))
        .collect()
}
