//! Worked examples of payloads.md §10.5, and the bounds of labels.

use super::labels::prompt_bucket;
use super::*;

fn details(status: u16) -> Details {
    let [route, backend, model] = ["chat", "b:1", "m"].map(str::to_owned);
    Details { status, backend, route, model, ..Details::default() }
}

fn observe(details: &Details) -> String {
    let metrics = CollectorMetrics::new();
    metrics.observe(details, "2026-06-18T04:48:01.25Z".parse().unwrap());
    metrics.encode()
}

const BASE: &str = r#"service="unknown",route="chat",backend="b:1",model="m""#;

#[test]
fn payloads_10_5_row_53_prompt_buckets() {
    for (tokens, bucket) in [
        (0, "unknown"),
        (1, "0000k_0001k"),
        (1023, "0000k_0001k"),
        (1024, "0001k_0002k"),
        (6144, "0006k_0008k"),
        (1_048_575, "0768k_1024k"),
        (1_048_576, "1024k_inf"),
        (2_000_000, "1024k_inf"),
    ] {
        assert_eq!(prompt_bucket(tokens), bucket, "{tokens}");
    }
}

#[test]
fn payloads_10_5_row_54_an_end_that_is_missing() {
    let counted = |details: &Details| {
        let text = observe(details);
        let lines = text.lines().filter(|line| line.starts_with("bodylog_finish_reason_total{"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(counted(&details(200)), [format!(r#"bodylog_finish_reason_total{{{BASE},finish_reason="none"}} 1"#)]);
    assert!(counted(&details(429)).is_empty() && counted(&details(201)).is_empty());
    let stop = Details { finish_reason: "stop".to_owned(), ..details(429) };
    assert_eq!(counted(&stop), [format!(r#"bodylog_finish_reason_total{{{BASE},finish_reason="stop"}} 1"#)]);
}

#[test]
fn payloads_10_5_row_55_tokens_per_second() {
    let row = Details { completion_tokens: 100, rt: 5.0, frt: 1.0, lct: 3.0, stream: Some(true), ..details(200) };
    let text = observe(&row);
    for line in [
        format!("bodylog_overall_output_tok_per_second_sum{{{BASE}}} 20.0"),
        format!(r#"bodylog_output_tok_per_second_sum{{{BASE},prompt_bucket="unknown"}} 20.0"#),
        format!("bodylog_decode_output_tok_per_second_sum{{{BASE}}} 50.0"),
        format!(r#"bodylog_ttft_seconds_sum{{{BASE},prompt_bucket="unknown"}} 1.0"#),
        format!(r#"bodylog_rt_seconds_sum{{{BASE},stream="true"}} 5.0"#),
        format!(r#"bodylog_requests_total{{{BASE},status_class="2xx",stream="true"}} 1"#),
        format!("bodylog_completion_tokens_total{{{BASE}}} 100"),
        "bodylog_exporter_lines_total 1".to_owned(),
        "bodylog_exporter_last_ts_seconds 1781758081.25".to_owned(),
    ] {
        assert!(text.contains(&line), "{line} in\n{text}");
    }
    // Nothing of what is 0 or does not apply.
    let other = observe(&Details { completion_tokens: 15, rt: 5.0, frt: 1.0, lct: 1.2, ..details(500) });
    for name in [
        "prompt_tokens_total{",
        "overall_output",
        "decode_output",
        "bodylog_output_tok",
        "ttft_seconds",
        "req_bytes_total{",
    ] {
        let is_there = |line: &str| line.contains(name) && !line.starts_with('#');
        assert!(!other.lines().any(is_there), "{name} in\n{other}");
    }
    assert!(other.contains(r#"status_class="5xx",stream="unknown"} 1"#), "{other}");
}

#[test]
fn long_waits_and_fast_answers_have_buckets_and_the_help_says_which() {
    let slow =
        Details { completion_tokens: 16_000, rt: 604.0, frt: 600.0, lct: 604.0, stream: Some(true), ..details(200) };
    let text = observe(&slow);
    let bucket = |name: &str, bound: &str| {
        let start = format!("{name}_bucket{{le=\"{bound}\"");
        text.lines().find(|line| line.starts_with(&start)).unwrap_or("absent").ends_with(" 1")
    };
    assert!(bucket("bodylog_ttft_seconds", "600.0") && !bucket("bodylog_ttft_seconds", "300.0"), "{text}");
    let decode = "bodylog_decode_output_tok_per_second";
    assert!(bucket(decode, "5000.0") && !bucket(decode, "2000.0"), "{text}");
    let histograms = text.lines().filter(|line| line.starts_with("# TYPE") && line.ends_with(" histogram"));
    for name in histograms.map(|line| line.split(' ').nth(2).unwrap()) {
        let help = text.lines().find(|line| line.starts_with(&format!("# HELP {name} "))).unwrap();
        assert!(help.contains("classic buckets up to "), "{help}");
    }
}

#[test]
fn a_model_that_was_only_asked_for_and_a_route_that_nobody_told_are_unknown() {
    let text = observe(&Details { model_is_asked: true, route: String::new(), ..details(429) });
    let labels = r#"bodylog_requests_total{service="unknown",route="unknown",backend="b:1",model="unknown","#;
    assert!(text.contains(labels), "{text}");
}

#[test]
fn names_out_of_bodies_are_bounded() {
    let metrics = CollectorMetrics::new();
    let end = Timestamp::UNIX_EPOCH;
    for index in 0..3000 {
        let row = Details {
            model: format!("m{index}\n\"}}{}", "x".repeat(500)),
            finish_reason: format!("f{index}"),
            ..details(200)
        };
        metrics.observe(&row, end);
    }
    // Known ones go on under their own name; new backends are told apart for longer than new models.
    metrics.observe(&Details { backend: "new:1".to_owned(), model: "late".to_owned(), ..details(200) }, end);
    let text = metrics.encode();
    let requests = text.lines().filter(|line| line.starts_with("bodylog_requests_total{"));
    let requests: Vec<&str> = requests.collect();
    assert_eq!(requests.len(), 1000 + 2);
    let other = requests.iter().find(|line| line.contains(r#"backend="b:1",model="other""#)).unwrap();
    assert!(other.ends_with(" 2000"), "{other}");
    assert!(requests.iter().any(|line| line.contains(r#"backend="new:1",model="other""#)));
    assert!(requests.iter().all(|line| line.len() < 400), "long names are cut");
    let reasons: std::collections::BTreeSet<&str> =
        text.lines().filter_map(|line| line.split("finish_reason=").nth(1)).collect();
    assert!(reasons.len() <= 2 * 51 + 2, "{}", reasons.len());
    for index in 0..5000 {
        let row = Details { backend: format!("b{index}"), route: format!("r{index}"), ..details(200) };
        metrics.observe(&row, end);
    }
    let count = metrics.encode().lines().filter(|line| line.starts_with("bodylog_requests_total{")).count();
    assert!(count <= 3001, "{count}");
}
