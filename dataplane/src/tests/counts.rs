//! What was done to bodies, told to the control plane once.

use std::collections::HashMap;

use router_proto::v1;
use router_proto::v1::client_op::Kind;

use super::backend::{Backend, Wire};
use super::client::{call, connect, post};
use super::control::{Control, route};
use super::replica::Replica;

fn parsed(more: u64) -> v1::Counted {
    v1::Counted { route: "chat".to_owned(), counts: HashMap::from([("parsed".to_owned(), more)]), ..Default::default() }
}

async fn serve(replica: &Replica, backend: &Backend, body: &str) {
    let mut client = connect(replica.addr).await;
    client.write(post("/v1/x", &[], body)).await;
    answered(&mut client, backend).await;
}

async fn answered(client: &mut Wire, backend: &Backend) {
    let (mut upstream, _) = backend.request().await;
    upstream.answer("ok").await;
    assert_eq!(client.message().await.text(), "ok");
}

async fn start() -> (Control, Replica, Backend) {
    let backend = Backend::start().await;
    let mut control = Control::start(vec![route("chat", &[])]).await;
    control.grant(&[&backend.addr]);
    let replica = Replica::start(&control, &[]).await;
    control.hello().await;
    (control, replica, backend)
}

#[tokio::test]
async fn what_is_counted_is_told_once_and_what_comes_without_a_link_waits_for_the_next() {
    let (mut control, replica, backend) = start().await;
    serve(&replica, &backend, r#"{"model":"m"}"#).await;
    serve(&replica, &backend, "no json").await;
    assert_eq!(control.counted().await, parsed(1));

    control.open(false);
    control.cut();
    replica.unlinked().await;
    // Read and counted; it waits for a slot.
    let mut client = connect(replica.addr).await;
    client.write(post("/v1/x", &[], r#"{"model":"m"}"#)).await;
    replica.sees_metric("router_bodies_parsed_total{route=\"chat\"} 2").await;
    control.open(true);
    answered(&mut client, &backend).await;
    assert_eq!(control.counted().await, parsed(1), "not what the first link was told");

    serve(&replica, &backend, "{}").await;
    assert_eq!(control.counted().await, parsed(1));
}

#[tokio::test]
async fn the_last_counts_go_before_the_goodbye() {
    let (mut control, replica, backend) = start().await;
    for _ in 0..3 {
        serve(&replica, &backend, "{}").await;
    }
    replica.stop();
    replica.stopped().await;
    let told = control.unread_with_counts();
    let sum: u64 = told.iter().map(|kind| if let Kind::Counted(one) = kind { one.counts["parsed"] } else { 0 }).sum();
    assert_eq!(sum, 3, "{told:?}");
    assert!(matches!(told.last(), Some(Kind::Goodbye(_))), "{told:?}");
}

#[tokio::test]
async fn with_nothing_counted_nothing_is_told() {
    let (mut control, replica, backend) = start().await;
    serve(&replica, &backend, "no json").await;
    assert_eq!(call(replica.addr, &post("/nowhere/v1/x", &[], "{}")).await.status(), 404);
    replica.stop();
    replica.stopped().await;
    let told = control.unread_with_counts();
    assert!(!told.iter().any(|kind| matches!(kind, Kind::Counted(_))), "{told:?}");
}

#[tokio::test]
async fn series_of_rules_come_and_go_with_the_route_s_document() {
    let rules = |names: &[&str]| {
        let rules = names.iter().map(|name| format!(r#"{{"name":"{name}","field":"never","op":"exists"}}"#));
        format!("[{}]", rules.collect::<Vec<_>>().join(","))
    };
    let of = |names: &[&str]| route("chat", &[("reject_rules", &rules(names))]);
    let control = Control::start(vec![of(&["big", "small"])]).await;
    let replica = Replica::start(&control, &[]).await;
    let series = |name: &str| format!(r#"router_rule_refusals_total{{route="chat",rule="{name}"}} 0"#);
    let text = replica.metrics().await;
    assert!(text.contains(&series("big")) && text.contains(&series("small")), "{text}");
    control.publish(|snapshot| snapshot.routes = vec![of(&["small"])]);
    replica.sees_snapshot(2).await;
    let text = replica.metrics().await;
    assert!(!text.contains(&series("big")) && text.contains(&series("small")), "{text}");
    control.publish(|snapshot| snapshot.routes.clear());
    replica.sees_snapshot(3).await;
    assert!(!replica.metrics().await.contains("rule_refusals_total{"), "the route is gone");
}

#[tokio::test]
async fn refusals_are_told_by_rule() {
    let rules = r#"[{"name":"big","field":"n","op":"gt","value":5},{"field":"x","op":"exists"}]"#;
    let options = [("reject_rules", rules), ("reject_rules_default_enabled", "true")];
    let mut control = Control::start(vec![route("chat", &options)]).await;
    let replica = Replica::start(&control, &[]).await;
    for body in [r#"{"n":6}"#, r#"{"x":null}"#, r#"{"n":7}"#] {
        assert_eq!(call(replica.addr, &post("/v1/x", &[], body)).await.status(), 429);
    }
    let line = "router_rule_refusals_total{route=\"chat\",rule=\"big\"} 2\n";
    assert!(replica.metrics().await.contains(line));
    let (mut hits, mut sums) = (HashMap::new(), HashMap::new());
    while sums.get("rule_rejected") != Some(&3) {
        let counted = control.counted().await;
        counted.rule_hits.into_iter().for_each(|(rule, more)| *hits.entry(rule).or_insert(0) += more);
        counted.counts.into_iter().for_each(|(count, more)| *sums.entry(count).or_insert(0) += more);
    }
    assert_eq!(hits, HashMap::from([("big".to_owned(), 2), ("rule2".to_owned(), 1)]));
    assert_eq!(sums["parsed"], 3);
}
