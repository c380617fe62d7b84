use super::text::{parse_bytes, parse_duration, print_bytes, print_duration};
use super::*;
use serde_json::json;

const SPAN: Kind = Kind::Duration { min: Duration::from_millis(1), max: Duration::from_secs(3600), optional: true };

#[test]
fn numbers_texts_and_words_are_read() {
    let int = Kind::Int { min: 1, max: 10 };
    assert_eq!(int.parse_json(&json!(10)).unwrap(), Value::Int(10));
    assert_eq!(int.parse_json(&json!("7")).unwrap(), Value::Int(7));
    assert_eq!(SPAN.parse_json(&json!("300ms")).unwrap(), Value::Duration(Duration::from_millis(300)));
    assert_eq!(SPAN.parse_json(&json!(0.5)).unwrap(), Value::Duration(Duration::from_millis(500)));
    assert_eq!(SPAN.parse_json(&json!(null)).unwrap(), Value::None);
    let bytes = Kind::Bytes { min: 1, max: 1 << 30 };
    assert_eq!(bytes.parse_json(&json!("10MiB")).unwrap(), Value::Bytes(10 << 20));
    for (text, flag) in [("Yes", true), ("ON", true), ("1", true), ("no", false), ("Off", false), ("0", false)] {
        assert_eq!(Kind::Bool.parse_text(text).unwrap(), Value::Bool(flag));
    }
    let words = Kind::Words(&["connect", "502"]);
    assert_eq!(words.parse_json(&json!(["502", "connect"])).unwrap(), Value::Words(vec!["502", "connect"]));
    assert_eq!(words.parse_json(&json!([502])).unwrap(), Value::Words(vec!["502"]));
    assert!(words.parse_json(&json!([["502"]])).is_err());
    assert_eq!(words.parse_text("none").unwrap(), Value::Words(vec![]));
    assert!(words.parse_text("502,502").is_err());
}

#[test]
fn statuses_are_read_from_text_and_list() {
    let statuses = Kind::Statuses { min: 400, max: 499 };
    let expected = Value::Statuses(vec![404, 400]);
    for json in [json!("404, 400"), json!([404, 400]), json!(["404", 400])] {
        assert_eq!(statuses.parse_json(&json).unwrap(), expected, "{json}");
    }
    assert_eq!(statuses.parse_text(&expected.to_string()).unwrap(), expected);
    assert_eq!(statuses.parse_json(&json!(499)).unwrap(), Value::Statuses(vec![499]));
    for none in [json!(null), json!([]), json!("none")] {
        assert_eq!(statuses.parse_json(&none).unwrap().to_string(), "none");
    }
    for bad in [json!([399]), json!([500]), json!([404, 404]), json!("4xx"), json!({"404": 1}), json!([40.4])] {
        assert!(statuses.parse_json(&bad).is_err(), "{bad}");
    }
}

#[test]
fn numbers_by_port_are_read_from_text_list_and_object() {
    let ports = Kind::Ports { min: 1, max: 1000 };
    let expected = Value::Ports(BTreeMap::from([(19001, 7), (19002, 8)]));
    for json in [json!("19002=8, 19001=7"), json!(["19001=7", "19002=8"]), json!({"19001": 7, "19002": 8})] {
        assert_eq!(ports.parse_json(&json).unwrap(), expected, "{json}");
    }
    assert_eq!(ports.parse_text(&expected.to_string()).unwrap(), expected);
    assert_eq!(ports.parse_json(&json!({})).unwrap().to_string(), "none");
    for bad in [json!("19001"), json!("0=1"), json!("1=0"), json!("1=1,1=2"), json!("70000=1"), json!({"1": "2"})] {
        assert!(ports.parse_json(&bad).is_err(), "{bad}");
    }
}

#[test]
fn an_error_names_kind_value_and_bounds() {
    let error = Kind::Int { min: 1, max: 10 }.parse_json(&json!("many")).unwrap_err();
    assert_eq!(error.to_string(), "integer expected, got string 'many'; allowed: 1..=10");
    let error = Kind::Int { min: 1, max: 10 }.parse_json(&json!(-1)).unwrap_err();
    assert_eq!(error.to_string(), "integer expected, got number '-1'; allowed: 1..=10");
    let error = SPAN.parse_json(&json!({"a": 1})).unwrap_err();
    assert!(error.to_string().contains("got object"), "{error}");
    for bad in ["nan", "inf", "-1s", "1e400", "5 weeks", ""] {
        assert!(SPAN.parse_text(bad).is_err(), "{bad}");
    }
}

#[test]
fn printing_reads_back() {
    for ms in [1, 999, 1000, 1500, 60_000, 90_000, 3_600_000] {
        let span = Duration::from_millis(ms);
        assert_eq!(parse_duration(&print_duration(span)), Some(span));
    }
    for size in [0, 1, 1023, 1024, 10 << 20, (64 << 20) + 1] {
        assert_eq!(parse_bytes(&print_bytes(size)), Some(size));
    }
}

#[test]
fn numbers_metrics_and_turn_tables_are_read_and_print_back() {
    let fraction = Kind::Decimal { min: 0.0, max: 1.0, is_above: true, word: Some("none") };
    assert_eq!(fraction.parse_json(&json!(0.4)).unwrap(), Value::Decimal(0.4));
    assert_eq!(fraction.parse_text("none").unwrap(), Value::Word("none"));
    for bad in [json!(0), json!(1.1), json!("nan"), json!("inf"), json!([0.1]), json!(true)] {
        assert!(fraction.parse_json(&bad).is_err(), "{bad}");
    }
    let by_model = Kind::DecimalsByModel { above: 0.0, max: 100.0 };
    for same in [json!({"org/m:1": 5, "n": 0.5}), json!("org/m:1=5,n=0.5"), json!("{\"n\": 0.5, \"org/m:1\": 5}")] {
        assert_eq!(by_model.parse_json(&same).unwrap().to_string(), r#"{"n":0.5,"org/m:1":5}"#, "{same}");
    }
    for bad in [
        json!({"m": "5"}),
        json!({"m": 101}),
        json!({"m": 0}),
        json!("m=nan"),
        json!({"": 1}),
        json!("m"),
        json!("m=1,m=2"),
        json!(7),
    ] {
        assert!(by_model.parse_json(&bad).is_err(), "{bad}");
    }
    let metrics = json!([{"metric": "p80", "q": 0.8, "threshold": 30000}, {"metric": "avg", "threshold": 9.5}]);
    let turns = json!([{"min_turn": 1, "share": 0.5, "tol": 1}, {"min_turn": 9, "share": 1, "tol": 1.5}]);
    for (kind, json) in [(Kind::Metrics, metrics), (Kind::Turns, turns)] {
        let value = kind.parse_json(&json).unwrap();
        assert_eq!(value.to_string(), json.to_string());
        assert_eq!(kind.parse_text(&value.to_string()).unwrap(), value);
        let none = kind.parse_json(&json!(null)).unwrap();
        assert_eq!(kind.parse_text(&none.to_string()).unwrap(), none);
    }
}

#[test]
fn limits_5_4_a_bad_list_is_refused_whole_and_says_where() {
    let problem = |kind: Kind, json| kind.parse_json(&json).unwrap_err().got;
    let metrics = |json| problem(Kind::Metrics, json);
    assert!(metrics(json!([])).contains("a list of 0"));
    assert!(metrics(json!([3])).contains("entry [0] with a number"));
    assert!(
        metrics(json!([{"metric": "avg", "threshold": 1}, {"metric": "p", "threshold": 1}]))
            .contains("entry [1] with no `q`")
    );
    assert!(metrics(json!([{"metric": "p", "q": 1, "threshold": 1}])).contains("between 0 and 1"));
    assert!(metrics(json!([{"metric": "avg", "threshold": -1}])).contains("no `threshold`"));
    assert!(metrics(json!([{"metric": "", "q": 0.5, "threshold": 1}])).contains("empty"));
    assert!(metrics(json!([{"metric": "avg", "threshold": 1}, {"metric": "avg", "threshold": 2}])).contains("twice"));
    assert!(metrics(json!([{"metric": "avg", "limit": 1}])).contains("unknown field"));
    assert!(problem(Kind::Turns, json!([{"min_turn": 2, "share": 1, "tol": 1}])).contains("the first row has 1"));
}

#[test]
fn days_are_read_and_printed_as_hours() {
    let day = Duration::from_secs(86_400);
    assert_eq!((parse_duration("1d"), parse_duration("0.5d")), (Some(day), Some(day / 2)));
    assert_eq!(print_duration(parse_duration("2d").unwrap()), "48h", "one value, one form");
    for none in ["1w", "d", "1dd", "1 day"] {
        assert_eq!(parse_duration(none), None, "{none}");
    }
    let kind = Kind::Duration { min: day, max: 3 * day, optional: false };
    assert_eq!(kind.parse_json(&json!("3d")), Ok(Value::Duration(3 * day)));
    assert!(kind.parse_text("4d").unwrap_err().to_string().contains("allowed: 24h..=72h (units ms, s, m, h, d)"));
}

#[test]
fn an_unknown_word_is_told_with_those_that_are() {
    let kind = Kind::Word(&["none", "vllm_format"]);
    assert_eq!(kind.parse_json(&json!("vllm_format")), Ok(Value::Word("vllm_format")));
    let expected = "one of none, vllm_format expected, got 'vllm-format'";
    assert_eq!(kind.parse_json(&json!("vllm-format")).unwrap_err().to_string(), expected);
    assert_eq!(kind.parse_text("vllm-format").unwrap_err().to_string(), expected);
    let list = kind.parse_json(&json!(["none"])).unwrap_err().to_string();
    assert_eq!(list, "one of none, vllm_format expected, got list");
    assert!(kind.parse_json(&json!(7)).unwrap_err().to_string().ends_with("got number '7'"));
}
