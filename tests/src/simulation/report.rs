//! The results as Markdown tables.

use std::fmt::Write as _;

use super::tally::{BUCKETS, Figures};

/// Both tables: one line a setting.
pub fn markdown(figures: &[Figures]) -> String {
    let mut text = table(
        &[
            "setting", "good answers/s", "good of all", "useful tokens/s", "completed", "given up", "of them after turn 1",
            "wasted tokens", "cache hits", "TTFT p50", "TTFT p99", "in flight, mean",
        ],
        figures.iter().map(|one| {
            let given_up: u64 = one.given_up.iter().sum();
            let [first, ..] = one.given_up;
            vec![
                one.setting.to_owned(),
                format!("{:.1}", one.good_per_s),
                format!("{:.1} %", one.good_percent),
                format!("{:.0}", one.useful_tokens_per_s),
                one.completed.to_string(),
                given_up.to_string(),
                (given_up - first).to_string(),
                format!("{:.1} %", one.wasted_percent),
                format!("{:.1} %", one.hit_percent),
                format!("{:.2} s", one.ttft_p50_s),
                format!("{:.2} s", one.ttft_p99_s),
                format!("{:.0}", one.mean_in_flight),
            ]
        }),
    );
    text.push('\n');
    let buckets: Vec<String> = bucket_names().into_iter().map(|name| format!("turn {name}")).collect();
    let mut header = vec!["refused attempts (sessions given up)", "attempts", "refused"];
    header.extend(buckets.iter().map(String::as_str));
    text.push_str(&table(
        &header,
        figures.iter().map(|one| {
            let refused: u64 = one.refused.iter().sum();
            let mut row = vec![one.setting.to_owned(), one.asked.to_string(), refused.to_string()];
            row.extend(one.refused.iter().zip(one.given_up).map(|(refused, given_up)| format!("{refused} ({given_up})")));
            row
        }),
    ));
    text
}

fn bucket_names() -> Vec<String> {
    let name = |(at, first): (usize, &u32)| match BUCKETS.get(at + 1) {
        None => format!("≥ {first}"),
        Some(next) if next - first == 1 => first.to_string(),
        Some(next) => format!("{first}–{}", next - 1),
    };
    BUCKETS.iter().enumerate().map(name).collect()
}

fn table(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(text, "| {} |", header.join(" | "));
    let _ = writeln!(text, "| --- |{}", " ---: |".repeat(header.len().saturating_sub(1)));
    for row in rows {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text
}
