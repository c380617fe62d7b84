//! The results as Markdown tables.

use std::fmt::Write as _;

use super::tally::{BUCKETS, Figures};

/// The tables: one line a setting.
pub fn markdown(figures: &[Figures]) -> String {
    let mut text = table(
        &[
            "setting",
            "good answers/s",
            "good of all",
            "useful tokens/s",
            "wasted tokens",
            "sessions completed",
            "never begun",
            "cut off",
            "cache hits",
            "TTFT p50",
            "TTFT p99",
            "p99 of later turns",
            "in flight, mean",
        ],
        figures.iter().map(|one| {
            let [never_begun, later @ ..] = one.given_up;
            vec![
                one.setting.to_owned(),
                format!("{:.1}", one.good_per_s),
                format!("{:.1} %", one.good_percent),
                format!("{:.0}", one.useful_tokens_per_s),
                format!("{:.1} %", one.wasted_percent),
                one.completed.iter().sum::<u64>().to_string(),
                never_begun.to_string(),
                later.iter().sum::<u64>().to_string(),
                format!("{:.1} %", one.hit_percent),
                format!("{:.2} s", one.ttft_p50_s),
                format!("{:.2} s", one.ttft_p99_s),
                format!("{:.2} s", one.later_ttft_p99_s),
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
            row.extend(
                one.refused.iter().zip(one.given_up).map(|(refused, given_up)| format!("{refused} ({given_up})")),
            );
            row
        }),
    ));
    text.push('\n');
    let lengths: Vec<String> = bucket_names().into_iter().map(|name| format!("of {name} turns")).collect();
    let mut header = vec!["sessions completed"];
    header.extend(lengths.iter().map(String::as_str));
    text.push_str(&table(
        &header,
        figures.iter().map(|one| {
            let mut row = vec![one.setting.to_owned()];
            row.extend(one.completed.iter().map(u64::to_string));
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
