//! Health, readiness, metrics, and the paths that are nobody's.

use http::StatusCode;
use router_tests::chat::Chat;
use router_tests::cluster::Cluster;
use router_tests::database::DatabaseKind;
use serde_json::json;

router_tests::on_both_databases!(
    health_and_readiness_are_told,
    metrics_count_requests,
    an_unknown_route_is_404_and_tells_nothing,
    errors_have_the_shape_that_clients_expect,
    status_and_lists_speak_json_and_yaml,
);

async fn health_and_readiness_are_told(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = Cluster::builder(kind).start().await?;
    for address in [cluster.replica_admin(0)?, cluster.control_plane.address("http")?] {
        for path in ["/healthz", "/readyz"] {
            cluster.client.get(address, path).await?.ok()?;
        }
        let nothing = cluster.client.get(address, "/nothing-here").await?;
        assert_eq!(nothing.status, StatusCode::NOT_FOUND, "the control");
    }
    cluster.finish()
}

async fn metrics_count_requests(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = Cluster::builder(kind).start().await?;
    let before = cluster.client.get(cluster.replica_admin(0)?, "/metrics").await?.ok()?.text();
    for _ in 0..3 {
        Chat::of("s").send(&cluster.client, cluster.replica(0)?).await?.ok()?;
    }
    let after = cluster.client.get(cluster.replica_admin(0)?, "/metrics").await?.ok()?.text();
    assert_ne!(before, after);
    let requests = after.lines().find(|line| line.contains("requests_total{") && line.contains("200"));
    assert!(requests.is_some_and(|line| line.ends_with(" 3")), "{after}");
    for line in after.lines().filter(|line| !line.starts_with('#') && !line.is_empty() && !line.starts_with("200 OK")) {
        assert!(line.starts_with("router_"), "one prefix for all: {line}");
    }
    let control = cluster.client.get(cluster.control_plane.address("http")?, "/metrics").await?.ok()?.text();
    assert!(control.lines().any(|line| line.starts_with("router_")), "{control}");
    cluster.finish()
}

async fn an_unknown_route_is_404_and_tells_nothing(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = Cluster::builder(kind).start().await?;
    let backend = cluster.engines[0].address().to_string();
    for path in ["/nobody/v1/chat/completions", "/", "/chat", "/v2/chat/completions", "//v1/models"] {
        let answer = cluster.client.post(cluster.replica(0)?, path, &json!({"model": "m"})).await?;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}: {}", answer.text());
        assert!(answer.json()?.pointer("/error/message").is_some(), "{path}: {}", answer.text());
        assert!(!answer.text().contains(&backend) && !answer.text().contains("127.0.0.1"), "{}", answer.text());
    }
    let dots = cluster.client.get(cluster.replica(0)?, "/chat/../v1/models").await?;
    assert_eq!(dots.status, StatusCode::BAD_REQUEST, "a path that could mean two things: {}", dots.text());
    cluster.ctl()?.ok(&["route", "set", "chat", "--default", "false"]).await?;
    let named = Chat::new().route("chat").send(&cluster.client, cluster.replica(0)?).await?;
    assert_eq!(named.status, StatusCode::OK, "a route without default still answers under its name");
    cluster.finish()
}

async fn errors_have_the_shape_that_clients_expect(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = Cluster::builder(kind).option("auth", "required").start().await?;
    let replica = cluster.replica(0)?;
    let openai = cluster.client.post(replica, "/v1/chat/completions", &json!({})).await?;
    assert_eq!(openai.status, StatusCode::UNAUTHORIZED);
    let body = openai.json()?;
    for field in ["message", "type", "code"] {
        assert!(body["error"][field].is_string(), "{field} in {body}");
    }
    assert!(body["error"].get("param").is_some(), "{body}");
    assert!(openai.header("content-type").starts_with("application/json"));
    let anthropic = cluster.client.post(replica, "/v1/messages", &json!({})).await?.json()?;
    assert_eq!(anthropic["type"], "error", "{anthropic}");
    assert!(anthropic["error"]["type"].is_string() && anthropic["error"]["message"].is_string(), "{anthropic}");
    cluster.finish()
}

async fn status_and_lists_speak_json_and_yaml(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = Cluster::builder(kind).start().await?;
    let ctl = cluster.ctl()?;
    let status = ctl.json(&["status"]).await?;
    let database = if kind == DatabaseKind::Sqlite { "sqlite" } else { "postgres" };
    assert!(status.to_string().contains(database), "{status}");
    assert_eq!(status["replicas"].as_array().map(Vec::len), Some(2), "{status}");
    for verb in [&["route", "list"][..], &["backend", "list"], &["session", "list"], &["key", "list"], &["status"]] {
        ctl.json(verb).await?;
        let yaml = ctl.ok(&[verb, &["-o", "yaml"]].concat()).await?;
        assert!(!yaml.trim_start().starts_with('{') && !yaml.is_empty(), "{verb:?}: {yaml}");
        let table = ctl.ok(verb).await?;
        assert!(!table.contains('\u{1b}'), "no colours where nobody sees them: {table:?}");
    }
    cluster.finish()
}
