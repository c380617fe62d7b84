//! Which session a request belongs to, and that its binding is kept: per key, over restarts, up to a bound, never evicted.

use http::{Method, StatusCode};
use router_tests::chat::Chat;
use router_tests::cluster::Cluster;
use router_tests::database::{Database, DatabaseKind};
use serde_json::{Value as Json, json};

use super::gateway;

router_tests::on_both_databases!(
    a_restart_reassigns_no_session,
    a_full_table_refuses_new_sessions_only_and_evicts_nobody,
    the_same_id_under_two_keys_is_two_sessions,
    no_id_and_no_content_is_stored,
);

router_tests::on_any_database!(the_first_valid_source_wins);

type Headers<'a> = &'a [(&'a str, &'a str)];

async fn the_first_valid_source_wins() -> anyhow::Result<()> {
    let cluster = gateway(DatabaseKind::Sqlite).start().await?;
    let body = json!({"model": "mock-model", "prompt_cache_key": "c", "user": "u", "metadata": {"session_id": "m"},
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "hello"}]});
    let without = |field: &str| {
        let mut body = body.clone();
        body.as_object_mut().expect("an object").remove(field);
        body
    };
    let (long, limit) = ("x".repeat(257), "x".repeat(256));
    let rows: [(Headers<'_>, &Json, &str); 7] = [
        (
            &[("x-session-id", "c"), ("x-deepseek-harness-session-id", "b"), ("x-session-affinity", "a")],
            &body,
            "header.x-session-affinity",
        ),
        (
            &[("x-session-id", "c"), ("x-deepseek-harness-session-id", "b")],
            &body,
            "header.x-deepseek-harness-session-id",
        ),
        (&[("x-session-id", &limit), ("x-session-affinity", &long)], &body, "header.x-session-id"),
        (&[("x-session-affinity", "   ")], &body, "body.prompt_cache_key"),
        (&[("x-litellm-session-id", "not one of the gateway's")], &body, "body.prompt_cache_key"),
        (&[], &without("prompt_cache_key"), "body.first_user_message"),
        (&[], &json!({"model": "mock-model", "messages": [{"role": "system", "content": "s"}]}), "none"),
    ];
    for (headers, body, source) in rows {
        let headers = [&[("content-type", "application/json")], headers].concat();
        let path = "/v1/chat/completions";
        let answer = cluster.client.send(cluster.replica(0)?, Method::POST, path, &headers, body.to_string()).await?;
        assert_eq!(answer.header("x-routed-source"), source, "{headers:?}");
    }
    cluster.finish()
}

async fn a_restart_reassigns_no_session(kind: DatabaseKind) -> anyhow::Result<()> {
    let mut cluster = gateway(kind).engines(3).start().await?;
    cluster.expect_log("control plane");
    let turn = async |cluster: &Cluster, number: usize| {
        let chat = Chat::of(&format!("s{number}"));
        chat.send(&cluster.client, cluster.replica(number % 2)?).await?.ok()
    };
    let mut homes = Vec::new();
    for number in 0..30 {
        homes.push(turn(&cluster, number).await?.peer().to_owned());
    }
    cluster.control_plane.kill9().await?;
    cluster.control_plane.restart().await?;
    cluster.control_plane.ready().await?;
    cluster.until_connected(2).await?;
    for (number, home) in homes.iter().enumerate() {
        let answer = turn(&cluster, number).await?;
        assert_eq!((answer.mode(), answer.peer()), ("bound", home.as_str()), "session {number}");
    }
    assert_eq!(turn(&cluster, 30).await?.mode(), "new", "the control");
    cluster.finish()
}

async fn a_full_table_refuses_new_sessions_only_and_evicts_nobody(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = gateway(kind).option("max_sessions", "4").start().await?;
    let send = async |session: &str| Chat::of(session).send(&cluster.client, cluster.replica(0)?).await;
    let mut homes = Vec::new();
    for session in ["a", "b", "c", "d"] {
        homes.push(send(session).await?.ok()?.peer().to_owned());
    }
    for _ in 0..3 {
        let refused = send("e").await?;
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "{}", refused.text());
        assert_eq!((refused.error_code()?.as_str(), refused.header("retry-after")), ("session_table_full", "1"));
        for (session, home) in ["a", "b", "c", "d"].into_iter().zip(&homes) {
            let answer = send(session).await?.ok()?;
            assert_eq!((answer.mode(), answer.peer()), ("bound", home.as_str()));
        }
    }
    // One without a session needs no place; and an operator makes room.
    let raw = json!({"model": "mock-model", "messages": []});
    let keyless = cluster.client.post(cluster.replica(0)?, "/v1/chat/completions", &raw).await?;
    assert_ne!(keyless.status, StatusCode::TOO_MANY_REQUESTS);
    let (fingerprint, _) = cluster.admin().await?.bindings().await?.into_iter().next().expect("a binding");
    cluster.ctl()?.ok(&["session", "forget", "chat", &fingerprint, "--yes"]).await?;
    assert_eq!(send("e").await?.ok()?.mode(), "new");
    cluster.finish()
}

async fn the_same_id_under_two_keys_is_two_sessions(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = gateway(kind).option("auth", "required").start().await?;
    let mut names = Vec::new();
    for key in ["one", "two"] {
        let secret = cluster.add_key(key).await?;
        for mode in ["new", "bound"] {
            let answer = Chat::of("same").key(&secret).send(&cluster.client, cluster.replica(0)?).await?.ok()?;
            assert_eq!(answer.mode(), mode);
            names.push(answer.header("x-routed-session").to_owned());
        }
    }
    assert!(names[0] == names[1] && names[2] == names[3] && names[0] != names[2], "{names:?}");
    assert_eq!(cluster.admin().await?.bindings().await?.len(), 2);
    cluster.finish()
}

async fn no_id_and_no_content_is_stored(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = gateway(kind).start().await?;
    let (id, content) = ("my-very-own-session", "my-very-own-words");
    let message = json!({"role": "user", "content": content});
    let chat = Chat::of(id).messages(vec![message]);
    let answer = chat.send(&cluster.client, cluster.replica(0)?).await?.ok()?;
    let shown = answer.header("x-routed-session").to_owned();
    let mut kept = String::new();
    match &cluster.database {
        Database::Sqlite(path) => {
            for suffix in ["", "-wal"] {
                let bytes = std::fs::read(format!("{}{suffix}", path.display())).unwrap_or_default();
                kept.push_str(&String::from_utf8_lossy(&bytes));
                kept.extend(bytes.iter().map(|byte| format!("{byte:02x}")));
            }
        }
        Database::Postgres(server) => {
            kept = server.sql("SELECT string_agg(bindings::text, ' ') FROM bindings").await?;
        }
    }
    for process in cluster.processes() {
        kept.push_str(&process.log()?);
    }
    assert!(!kept.contains(id) && !kept.contains(content));
    assert!(kept.contains(&shown), "the control: the fingerprint is there");
    cluster.finish()
}
