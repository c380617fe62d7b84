//! `routerctl route explain`, `route options`, `route show` on routes with tiers and models.

use router_proto::v1;

use super::*;

fn gate(name: &str, trips: bool, why: &str) -> v1::GateState {
    v1::GateState { name: name.to_owned(), trips, why: why.to_owned() }
}

fn candidate(address: &str, priority: &str, in_flight: u32, why_not: &str) -> v1::CandidateState {
    v1::CandidateState {
        address: address.to_owned(),
        priority: priority.to_owned(),
        in_flight,
        limit: 8,
        is_candidate: why_not.is_empty(),
        why_not: why_not.to_owned(),
        ..Default::default()
    }
}

fn granted() -> v1::ExplainReply {
    v1::ExplainReply {
        outcome: "It would go to 127.0.0.1:19001, where its session is bound.".to_owned(),
        backend: "127.0.0.1:19001".to_owned(),
        mode: "bound".to_owned(),
        session: "abcd, bound to 127.0.0.1:19001".to_owned(),
        gates: vec![gate("backends", false, "1 of tier 10"), gate("concurrency", false, "3 of 8 in flight")],
        candidates: vec![
            candidate("127.0.0.1:19001", "10", 3, ""),
            candidate("127.0.0.1:19002", "0.5", 0, "a lower tier"),
        ],
        ..Default::default()
    }
}

#[tokio::test]
async fn an_explanation_starts_with_what_would_happen() {
    let (fake, at) = with_chat().await;
    fake.state().explained = granted();
    let line = "route explain chat --session alice-1 --model m1 --turn 3 --context-tokens 4096";
    assert_eq!(
        run_at(&at, line).await.stdout,
        "\
It would go to 127.0.0.1:19001, where its session is bound.
session: abcd, bound to 127.0.0.1:19001

GATE         STOPS IT  WHY
backends     no        1 of tier 10
concurrency  no        3 of 8 in flight

BACKEND          NAME  TIER  LOAD  CANDIDATE  WHY NOT
127.0.0.1:19001  -       10   3/8  yes
127.0.0.1:19002  -      0.5   0/8  no         a lower tier
"
    );
    let asked = v1::ExplainRequest {
        route: "chat".to_owned(),
        session_id: "alice-1".to_owned(),
        model: "m1".to_owned(),
        turn: 3,
        context_tokens: 4096,
        ..Default::default()
    };
    assert_eq!(fake.state().asked, asked);
}

#[tokio::test]
async fn gates_after_the_one_that_stops_it_are_not_asked() {
    let (fake, at) = with_chat().await;
    let gates = |concurrency, ttft| {
        vec![
            gate("backends", false, "1 of 1"),
            gate("concurrency", concurrency, "8 of 8"),
            gate("ttft", ttft, "p80 9000 ms"),
            gate("tps", false, "p80 30"),
        ]
    };
    let cases = [
        (gates(true, false), "queue_full", false, ["no", "yes", "not asked", "not asked"]),
        (gates(false, true), "ttft", false, ["no", "no", "yes", "not asked"]),
        // Full and slow: by its speed.
        (gates(true, true), "ttft", false, ["no", "yes", "yes", "not asked"]),
        // Control: nothing stops it for good, so all are asked.
        (gates(true, false), "", true, ["no", "yes", "no", "no"]),
        (gates(false, false), "", false, ["no"; 4]),
    ];
    for (gates, refused_by, waits, stops) in cases {
        let refused_by = refused_by.to_owned();
        fake.state().explained = v1::ExplainReply { refused_by, waits, gates, ..Default::default() };
        let text = run_at(&at, "route explain chat").await.stdout;
        let lines = text.lines().skip_while(|line| !line.starts_with("GATE")).skip(1).take(4);
        let told: Vec<&str> =
            lines.map(|line| line.split_once("  ").map_or("", |(_, rest)| rest.trim_start())).collect();
        let matches = told.iter().zip(stops).all(|(line, word)| line.starts_with(&format!("{word}  ")));
        assert!(matches, "{stops:?}: {text}");
        let json = run_at(&at, "route explain chat -o json").await.json();
        assert_eq!(json["gates"][3]["trips"], json!(false), "words are for people");
    }
}

#[tokio::test]
async fn an_explanation_s_fields_are_stable() {
    let (fake, at) = with_chat().await;
    fake.state().explained = v1::ExplainReply {
        outcome: "It would be refused with 429: TTFT is past its limit.".to_owned(),
        refused_by: "ttft".to_owned(),
        gates: vec![gate("ttft", true, "p80 31000 ms, limit 30000 ms")],
        candidates: vec![candidate("127.0.0.1:19001", "0", 8, "full")],
        ..Default::default()
    };
    let ran = run_at(&at, "route explain chat --fingerprint ABCD -o json").await;
    assert_eq!(fake.state().asked.fingerprint, "abcd");
    assert_eq!(
        ran.json(),
        json!({
            "outcome": "It would be refused with 429: TTFT is past its limit.",
            "backend": null, "mode": null, "refused_by": "ttft", "waits": false, "session": null,
            "gates": [{"name": "ttft", "trips": true, "why": "p80 31000 ms, limit 30000 ms"}],
            "candidates": [{"address": "127.0.0.1:19001", "name": null, "priority": 0, "in_flight": 8, "limit": 8,
                "is_candidate": false, "why_not": "full"}],
            "rules": 0,
        })
    );
    let missing = run_at(&at, "route explain other").await;
    assert_eq!((missing.code(), missing.error()), (1, "route other; `routerctl route list` shows the routes"));
}

#[tokio::test]
async fn options_are_listed_by_group_and_hidden_ones_when_asked_for() {
    // Nobody listens there, and nobody is asked.
    let at = "127.0.0.1:1";
    let listed = run_at(at, "route options").await.stdout;
    assert!(
        listed.contains(
            "\n[limit]\n\
             NAME                 UNIT      DEFAULT  OPENRESTY  ALLOWED\n\
             max_concurrency      requests  32       20         1..=100000\n    \
             Requests in flight on each backend"
        ),
        "{listed}"
    );
    assert!(!listed.contains("tps_min_tokens"), "{listed}");
    let hidden = router_policy::option::catalogue::CATALOGUE.iter().filter(|option| option.is_hidden).count();
    assert!(
        listed.ends_with(&format!(
            "\n{hidden} more options for fine tuning: `routerctl route options --all`\n\
             `routerctl route options NAME` explains one, and what ends in `…` whole\n"
        )),
        "{listed}"
    );
    let all = run_at(at, "route options --all").await.stdout;
    assert!(all.contains("\ntps_min_tokens* ") && !all.contains("for fine tuning: `"), "{all}");
    assert!(
        all.contains("\nmax_concurrency  ") && all.contains("\n* for fine tuning: listed with `--all` only\n"),
        "{all}"
    );
    let is_marked = |line: &&str| line.split(' ').next().is_some_and(|name| name.len() > 1 && name.ends_with('*'));
    assert_eq!((all.lines().filter(is_marked).count(), listed.lines().find(is_marked)), (hidden, None));
}

#[tokio::test]
async fn json_says_everything_of_every_option() {
    let options = run_at("127.0.0.1:1", "route options -o json").await.json();
    let options = options["options"].as_array().unwrap().clone();
    assert_eq!(options.len(), router_policy::option::catalogue::CATALOGUE.len());
    let of = |name: &str| options.iter().find(|option| option["name"] == name).unwrap().clone();
    assert_eq!(
        of("max_concurrency"),
        json!({"name": "max_concurrency", "label": "max concurrency", "group": "limit", "kind": "integer",
            "unit": "requests", "hidden": false, "alias": "default_max", "default": "32",
            "preset_defaults": {"openresty": "20"}, "allowed": "1..=100000",
            "description": of("max_concurrency")["description"]})
    );
    let fine = of("tps_min_tokens");
    assert_eq!((&fine["hidden"], &fine["alias"], &fine["unit"]), (&json!(true), &json!(null), &json!("tokens")));
}

#[tokio::test]
async fn one_option_is_found_by_name_or_alias_and_a_typo_gets_an_offer() {
    let at = "127.0.0.1:1";
    let one = run_at(at, "route options default_max").await.stdout;
    assert_eq!(one, run_at(at, "route options max_concurrency").await.stdout);
    assert!(one.starts_with("max_concurrency (limit, integer)\n    Requests in flight on each backend"), "{one}");
    assert!(one.ends_with("    allowed: 1..=100000\n    also called: default_max\n"), "{one}");
    let hidden = run_at(at, "route options tps_min_tokens").await.stdout;
    assert!(hidden.starts_with("tps_min_tokens (tps, integer, for fine tuning)\n"), "{hidden}");
    let json = run_at(at, "route options default_max -o json").await.json();
    assert_eq!(json["options"].as_array().unwrap().len(), 1);
    let typo = run_at(at, "route options max_wating").await;
    let text = "max_wating: unknown option; near it: max_waiting; `routerctl route options --all` lists all";
    assert_eq!((typo.code(), typo.error()), (64, text));
}

#[tokio::test]
async fn tiers_and_models_are_stated_changed_and_listed() {
    let (_fake, at) = with_chat().await;
    assert!(!run_at(&at, "backend list").await.stdout.contains("TIER"), "nobody states one");
    run_at(&at, "backend set chat 127.0.0.1:19001 --model m2 --model m1 --priority 10").await;
    let added = run_at(&at, "backend add chat gpu:80 --model m1 --priority -0.5").await;
    assert_eq!(added.stdout, "backend gpu:80 added to route chat\n");
    let listed = run_at(&at, "backend list chat").await.stdout;
    assert!(
        listed.starts_with(
            "\
ROUTE  BACKEND          NAME  TIER  MODELS  STATE  IN FLIGHT  SESSIONS  GRANTED  FAILURES  REASON
chat   127.0.0.1:19001  -       10  m2,     ready        0/8         0        0         0
                                    m1
chat   127.0.0.1:19002  -        0          ready        0/8         0        0         0
chat   gpu:80           -     -0.5  m1      ready        0/8         0        0         0
"
        ),
        "{listed}"
    );
    let json = run_at(&at, "backend list -o json").await.json();
    assert_eq!((&json["backends"][2]["priority"], &json["backends"][2]["models"]), (&json!(-0.5), &json!(["m1"])));
    let set = run_at(&at, "backend set chat gpu:80 --priority 2").await.stdout;
    assert!(set.contains("backends[gpu:80].priority") && set.contains("2\n"), "{set}");
    assert!(run_at(&at, "backend list chat").await.stdout.contains("gpu:80           -        2  m1"));
    let empty = run_at(&at, "backend add chat gpu:81 --model=").await;
    assert_eq!(empty.code(), 64);
    assert!(empty.error().starts_with("backends[gpu:81].models: a model's name has"), "{}", empty.error());
}

#[tokio::test]
async fn a_route_with_tiers_and_models_is_one_command() {
    let (fake, address) = Fake::start().await;
    let at = address.to_string();
    let line = "route add chat --preset openresty --backend 10.0.0.1:8000,priority=10,model=m1,max-concurrency=4 \
                --backend 10.0.0.2:8000,model=m1,model=m2 --set cross_tier_fallback=yes";
    assert_eq!(run_at(&at, line).await.code(), 0);
    let exported = run_at(&at, "export chat -o json").await.json();
    assert_eq!(
        exported["routes"][0],
        json!({"name": "chat", "preset": "openresty", "options": {"cross_tier_fallback": true}, "backends": [
            {"address": "10.0.0.1:8000", "max_concurrency": 4, "priority": 10, "models": ["m1"]},
            {"address": "10.0.0.2:8000", "models": ["m1", "m2"]},
        ]})
    );
    let half = run_at(&at, "route add other --backend 10.0.0.1:8000,model=m1 --backend-port 1").await;
    assert_eq!(half.code(), 64);
    assert!(half.error().starts_with("routes.other.backends[127.0.0.1:1].models: missing; other"), "{}", half.error());
    assert_eq!(fake.state().routes.len(), 1);
}

#[tokio::test]
async fn reject_rules_in_force_are_told_in_one_line() {
    let (fake, at) = with_chat().await;
    fake.state().explained = v1::ExplainReply { rules: 2, ..granted() };
    let told = run_at(&at, "route explain chat").await.stdout;
    let line = "\nbefore that, its body must pass 2 reject rules: try it with `routerctl rules test`\n\nGATE ";
    assert!(told.contains(line), "{told}");
    fake.state().explained = granted();
    assert!(!run_at(&at, "route explain chat").await.stdout.contains("reject rule"), "the control: none is in force");
}
