//! Routes with a pool per model: the router's own list, and what an unknown model is told (routing.md §6, §7).

use router_policy::ids::Fingerprint;
use router_proto::v1;
use sha2::{Digest, Sha256};

use super::backend::{Backend, Message, nobody};
use super::client::{call, connect, get, post};
use super::control::{Answers, Control, route};
use super::replica::Replica;

async fn by_model(addresses: &[(&str, &[&str])]) -> (Control, Replica) {
    let mut chat = route("chat", &[]);
    chat.backends = addresses
        .iter()
        .map(|(address, models)| v1::Backend {
            address: (*address).to_owned(),
            models: models.iter().map(|&model| model.to_owned()).collect(),
            // Out of admission: the list needs no pool.
            condition: Some(v1::Condition { unhealthy: true, ..Default::default() }),
            ..Default::default()
        })
        .collect();
    let mut control = Control::start(vec![chat]).await;
    let replica = Replica::start(&control, &["--debug-endpoints"]).await;
    control.hello().await;
    (control, replica)
}

fn code(answer: &Message) -> String {
    let json: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    json["error"]["code"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn routing_6_step_4_the_list_is_the_route_s_and_nobody_is_asked() {
    let dead = [nobody().await, nobody().await];
    let (mut control, replica) = by_model(&[(&dead[0], &["b", "org/a 1"]), (&dead[1], &["b", "\"c"])]).await;
    let list = r#"{"object":"list","data":[{"id":"\"c","object":"model"},{"id":"b","object":"model"},{"id":"org/a 1","object":"model"}]}"#;
    for request in [get("/v1/models"), get("/chat/v1/models"), get("/v1/models/"), post("/v1/models", &[], "{}")] {
        let answer = call(replica.addr, &request).await;
        assert_eq!((answer.status(), answer.text()), (200, list), "{request}");
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert_eq!(answer.header("x-routed-retries"), Some("0"));
    }
    let mut client = connect(replica.addr).await;
    client.write("HEAD /v1/models HTTP/1.1\r\nHost: r\r\n\r\n").await;
    assert_eq!(client.head().await.header("content-length"), Some(list.len().to_string().as_str()));
    let one = call(replica.addr, &get("/v1/models/org/a%201")).await;
    assert_eq!((one.status(), one.text()), (200, r#"{"id":"org/a 1","object":"model"}"#));
    for unknown in ["/v1/models/a", "/v1/models/org", "/v1/models/%ff"] {
        let answer = call(replica.addr, &get(unknown)).await;
        assert_eq!((answer.status(), code(&answer).as_str()), (404, "model_not_found"), "{unknown}");
    }
    let bad = call(replica.addr, "GET /v1/models HTTP/1.1\r\nHost: r\r\nX-Model-Context-Window: x\r\n\r\n").await;
    assert_eq!((bad.status(), code(&bad).as_str()), (400, "invalid_context_window"));
    control.publish(|snapshot| {
        let sha256 = Sha256::digest("sk-1").to_vec().into();
        snapshot.keys = vec![v1::Key { id: "k1".into(), name: "one".into(), sha256 }];
    });
    replica.sees_snapshot(2).await;
    assert_eq!(call(replica.addr, &get("/v1/models")).await.status(), 401, "after the key check");
    assert!(control.heartbeat().await.is_empty(), "no lease was asked for");
}

#[tokio::test]
async fn an_unknown_model_is_told_which_there_are() {
    let backend = Backend::start().await;
    let (mut control, replica) = by_model(&[(&backend.addr, &["a", "b"])]).await;
    control.answers(Answers::Refuse(v1::Refused {
        gate: v1::Gate::UnknownModel.into(),
        http_status: 400,
        detail: "model 'x' not configured on this route".into(),
        details_json: r#"{"supported_models":["a","b"]}"#.into(),
        ..Default::default()
    }));
    for (body, model) in [
        (r#"{"model":"x"}"#.to_owned(), "x"),
        ("{}".to_owned(), ""),
        (format!(r#"{{"model":"{}"}}"#, "x".repeat(257)), ""),
    ] {
        let answer = call(replica.addr, &post("/v1/chat/completions", &[], &body)).await;
        let json: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!((answer.status(), answer.header("retry-after")), (400, None));
        assert_eq!(json["error"]["type"], "model_not_supported");
        assert_eq!(json["error"]["details"]["supported_models"], serde_json::json!(["a", "b"]));
        assert_eq!(control.acquire().await.1.model, model);
    }
    let metrics = replica.metrics().await;
    assert!(metrics.contains(r#"router_refused_total{route="chat",gate="model_not_supported"} 3"#), "{metrics}");
}

#[tokio::test]
async fn a_session_has_one_name_for_each_model_s_pool() {
    let backend = Backend::start().await;
    let ask = async |control: &mut Control, replica: &Replica, path: &str, model: &str| {
        let body = format!(r#"{{"model":"{model}","user":"u"}}"#);
        let answer = call(replica.addr, &post(path, &[], &body)).await;
        let acquired = if path.starts_with("/v1/") {
            control.acquire().await.1
        } else {
            control.page_asked().await.0.request.unwrap()
        };
        assert_eq!(acquired.model, model);
        let told = answer.header("x-routed-session").map(str::to_owned);
        (acquired.fingerprint, told)
    };
    let refused =
        || Answers::Refuse(v1::Refused { gate: v1::Gate::NoBackend.into(), http_status: 503, ..Default::default() });
    let chat = "/v1/chat/completions";
    let (mut control, replica) = by_model(&[(&backend.addr, &["a", "b"])]).await;
    control.answers(refused());
    control.page(200, "{}", "");
    let (a, told) = ask(&mut control, &replica, chat, "a").await;
    let (b, _) = ask(&mut control, &replica, chat, "b").await;
    assert_ne!(a, b);
    assert_eq!(told, Fingerprint::from_slice(&a).map(Fingerprint::short), "what the client is told is its name there");
    assert_eq!(ask(&mut control, &replica, chat, "a").await.0, a);
    assert_eq!(ask(&mut control, &replica, "/chat/_route_inspect", "b").await.0, b);
    for (model, name) in [("a", &a), ("b", &b)] {
        call(replica.admin, &get(&format!("/chat/_route_debug?sid=u&model={model}"))).await;
        assert_eq!(control.page_asked().await.0.request.unwrap().fingerprint, name);
    }
    // The control: one pool for all models, one name.
    let mut control = Control::start(vec![route("chat", &[])]).await;
    let replica = Replica::start(&control, &[]).await;
    control.hello().await;
    control.answers(refused());
    let (a, _) = ask(&mut control, &replica, chat, "a").await;
    assert_eq!(ask(&mut control, &replica, chat, "b").await.0, a);
}
