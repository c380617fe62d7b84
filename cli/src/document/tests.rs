use super::*;

const GOOD: &str = "\
# the team's routes
routes:
  - name: chat
    default: true
    preset: gateway
    options:
      max_waiting: 3
      queue_timeout: 5s
      retry_on: [connect, '503']
      session_idle_ttl: none
      expose_routed: off
    backends:
      - 127.0.0.1:19001
      - address: 127.0.0.1:19002
        name: two
";

#[test]
fn yaml_says_the_same_as_json() {
    let yaml = Document::parse("routes.yaml", GOOD).unwrap();
    yaml.check().unwrap();
    let json = Document::parse("routes.json", &serde_json::to_string_pretty(&yaml.json).unwrap()).unwrap();
    assert_eq!(yaml.json, json.json);
    assert_eq!(yaml.json["routes"][0]["options"]["max_waiting"], json!(3));
    assert_eq!(yaml.json["routes"][0]["options"]["queue_timeout"], json!("5s"));
}

#[test]
fn what_is_exported_can_be_applied() {
    let document = Document::parse("x", GOOD).unwrap();
    let text = serde_saphyr::to_string(&document.json).unwrap();
    let again = Document::parse("x", &text).unwrap_or_else(|failure| panic!("{failure:?}\n{text}"));
    assert_eq!(document.json, again.json, "{text}");
}

#[test]
fn a_syntax_error_names_line_and_column() {
    let failure = Document::parse("r.yaml", "routes:\n  - name: [chat\n").unwrap_err();
    assert!(failure.message.starts_with("r.yaml:"), "{failure:?}");
    assert_eq!(failure.message.lines().count(), 1, "{failure:?}");
    let failure = Document::parse("r.yaml", "routes:\n  - name: chat\n   default: true\n").unwrap_err();
    assert!(failure.message.starts_with("r.yaml:3:"), "{failure:?}");
    let failure = Document::parse("r.json", "{\"name\": \"chat\",\n \"default\": }").unwrap_err();
    assert!(failure.message.starts_with("r.json:2:"), "{failure:?}");
}

#[test]
fn a_key_that_stands_twice_is_refused() {
    let failure = Document::parse("r.yaml", "name: chat\nname: two\n").unwrap_err();
    assert_eq!(failure.message, "r.yaml:2:1: duplicate mapping key: name");
}

#[test]
fn every_complaint_names_its_line() {
    let text = GOOD.replace("max_waiting: 3", "max_waiting: many").replace("name: two", "nam: two");
    let failure = Document::parse("r.yaml", &text).unwrap().check().unwrap_err();
    let lines: Vec<&str> = failure.message.lines().collect();
    assert_eq!(
        lines,
        [
            "r.yaml:7:7: routes.chat.options.max_waiting: integer expected, got string 'many'; allowed: 0..=100000",
            "r.yaml:15:9: routes.chat.backends[1].nam: unknown field; allowed: address, name, max_concurrency, \
             health_path, context_limit, dp_size, priority, models",
        ]
    );
}

#[test]
fn what_is_missing_is_placed_at_what_it_is_missing_from() {
    let failure = Document::parse("r.yaml", "routes:\n  - default: true\n").unwrap().check().unwrap_err();
    assert!(failure.message.starts_with("r.yaml:2:5: routes[0].name: missing"), "{failure:?}");
    let twice = "routes:\n  - name: a\n  - name: a\n";
    let failure = Document::parse("r.yaml", twice).unwrap().check().unwrap_err();
    assert!(failure.message.starts_with("r.yaml:3:5: routes.a.name: duplicate"), "{failure:?}");
}

#[test]
fn the_control_plane_s_complaints_are_placed_too() {
    let document = Document::parse("r.yaml", GOOD).unwrap();
    let failure = Failure::failed("routes.chat.default: overlaps route x\nthe database is full: sorry");
    assert_eq!(
        locate(&document, &failure).message,
        "r.yaml:4:5: routes.chat.default: overlaps route x\nthe database is full: sorry"
    );
}

#[test]
fn an_empty_file_and_a_missing_file_are_one_line_each() {
    let failure = Document::parse("r.yaml", "").and_then(|document| document.check()).unwrap_err();
    assert!(failure.message.starts_with("r.yaml: "), "{failure:?}");
    let failure = Document::read("/nonexistent/r.yaml").unwrap_err();
    assert!(failure.message.starts_with("/nonexistent/r.yaml: No such file"), "{failure:?}");
}

#[test]
fn backends_of_models_and_peers_have_their_lines_too() {
    let complaint = |text: &str| Document::parse("r.yaml", text).unwrap().check().unwrap_err().message;
    let by_model = "name: chat\nbackends_by_model:\n  m1:\n    - address: gpu:80\n      nam: x\n";
    assert!(complaint(by_model).starts_with("r.yaml:5:7: route.backends_by_model.m1[0].nam: unknown field"));
    let empty = "name: chat\npeers_by_model:\n  m1: []\n";
    assert!(complaint(empty).starts_with("r.yaml:3:3: route.peers_by_model.m1: no backend"), "{}", complaint(empty));
    let peers = "name: chat\npeers:\n  - [gpu, 80, one, high]\n";
    assert!(
        complaint(peers).starts_with("r.yaml:3:5: route.peers[0].priority: number expected"),
        "{}",
        complaint(peers)
    );
}
