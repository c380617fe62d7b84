//! Pages of limits: what is measured, what is set, who was refused.

use super::*;
use crate::pool::Answered;

#[tokio::test]
async fn limits_12_3_and_12_4_what_is_measured_and_from_where_its_limits_come() {
    let place = Place::sqlite();
    let options = json!({"ttft_limit_ms": 500, "ttft_limit_by_model": {"b": 900}, "tps_limit_tps": 20,
        "adaptive_cc": true, "ttft_window": "1s", "tps_window": "1s"});
    let still = still(&place, options, models()).await;
    let mut client = Client::new();
    let pool = still.fleet.pool("chat").unwrap();
    let deadline = tokio::time::Instant::now() + SOON;
    while pool.route_state().pools[0].ttft_ewma_ms.is_none() {
        assert!(tokio::time::Instant::now() < deadline);
        let lease = client.granted(&still, Asked { model: "a".to_owned(), ..Asked::default() }).await;
        let ttft = Duration::from_millis(700);
        pool.first_chunk(lease, &client.caller, ttft);
        let decode = Duration::from_millis(1300);
        let answered = Answered { status: 200, ttft: Some(ttft), decode, tokens: Some(40), ..Answered::default() };
        pool.release(lease, &client.caller, &answered);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let ttft = get(&still, "_ttft_status").await;
    let fields = "route global_enabled dict_declared runtime_off active enforcing ttft_429_enabled ttft_limit_ms \
        ttft_limit_by_model ewma_ms alpha ttl probe_window probe_per_window probe_used_cur_window metrics";
    assert_eq!(missing(&ttft, fields), [] as [&str; 0]);
    assert_eq!(ttft["ewma_ms"], json!({"a": 1000.0}));
    assert_eq!(ttft["queue_wait_ms"], 0.0, "nobody had to wait");
    assert_eq!(ttft["metrics"][1]["items"][0], json!({"metric": "p80", "q": 0.8, "threshold_ms": 900.0}));
    assert_eq!(ttft["metrics"][0]["source"], "static");

    let limit = get(&still, "_ttft_limit?ms=700&model=a&ttl=60").await;
    assert_eq!(
        limit,
        json!({"route": "chat", "ok": true, "model": "a", "limit_override_ms": 700.0, "static_limit_ms": 500.0,
            "static_by_model": {"b": 900.0}, "priority": limit["priority"], "override_ttl_s": 60,
            "override_effective": true, "shadowed_limit_ms": 500.0, "declares_metrics": false, "scope": "fleet"})
    );
    let ttft = get(&still, "_ttft_status").await;
    assert_eq!(
        (&ttft["metrics"][0]["source"], &ttft["metrics"][0]["shadowed"]),
        (&json!("override"), &json!({"source": "static", "threshold_ms": 500.0}))
    );

    let tps = get(&still, "_tps_status").await;
    let fields = "opt_in tps_limit_source tps_limit_tps ewma_tps nousage_samples min_tokens metrics adaptive_cc_on \
        adaptive_cc adaptive_cc_min adaptive_cc_max adaptive_cc_init adaptive_cc_conc adaptive_cc_rej \
        adaptive_cc_at_pressure adaptive_cc_at_slack adaptive_cc_hold_when_idle adaptive_cc_pressure_frac \
        adaptive_cc_slack_frac adaptive_cc_abs adaptive_cc_interval";
    assert_eq!(missing(&tps, fields), [] as [&str; 0]);
    // Of each 40 tokens in 2 s, 1.3 s after the first byte: both numbers are kept, and the one that steers is the first.
    assert_eq!((&tps["ewma_tps"], &tps["decode_tps"]), (&json!({"a": 20.0}), &json!({"a": 40.0})));
    assert_eq!(tps.get("total_tps"), None);
    assert_eq!((&tps["tps_limit_source"], &tps["adaptive_cc_max"]), (&json!("route"), &json!({"a": 30.0, "b": 20.0})));
    let off = get(&still, "_tps_toggle?on=0").await;
    assert_eq!(off["runtime_off"], true);
    let tps = get(&still, "_tps_status").await;
    assert_eq!((&tps["active"], &tps["adaptive_cc_on"]), (&json!(false), &json!(false)));
    assert_eq!(get(&still, "_tps_toggle?on=1").await["active"], true);
    still.kill().await;
}

#[tokio::test]
async fn limits_12_8_limits_for_a_time() {
    let place = Place::sqlite();
    let list = json!([{"metric": "avg", "threshold": 5}]);
    let still = still(&place, json!({"tps_metrics": list, "tps_limit_tps": 3}), gpus()).await;
    let set = get(&still, "_ttft_limit?ms=250.5").await;
    assert_eq!((&set["limit_override_ms"], &set["override_ttl_s"]), (&json!(250.5), &json!(7200)));
    assert_eq!(get(&still, "_ttft_limit?ms=9&ttl=0").await["override_ttl_s"], 0, "for ever");
    assert_eq!(get(&still, "_ttft_limit").await["limit_override_ms"], 9.0, "telling changes nothing");
    let cleared = get(&still, "_ttft_limit?ms=0").await;
    assert_eq!((cleared.get("limit_override_ms"), cleared.get("override_effective")), (None, None));
    for bad in ["ms=-1", "ms=NaN", "ms=inf", "ms=x", "ms=1&ttl=-1", "ms=1&ttl=x", "ms=1&model=m", "ms=1&ttl=99999999"] {
        assert_eq!(status(&still, &format!("_ttft_limit?{bad}")).await, 400, "{bad}");
    }
    let (_, told) = told(&still, request("_ttft_limit?ms=86400001&model=m")).await;
    assert_eq!(
        told["error"],
        "model: route chat has one pool for all models; allowed: no model\n\
         ms: number expected, got '86400001'; allowed: more than 0, up to 86400000"
    );
    let idle = get(&still, "_tps_limit?tps=7").await;
    assert_eq!(
        (&idle["override_effective"], &idle["declares_metrics"], &idle["shadowed_limit_tps"]),
        (&json!(false), &json!(true), &json!(3.0))
    );
    assert!(idle["override_ignored_reason"].as_str().unwrap().contains("tps_metrics"));
    assert_eq!(
        (&idle["enforcing"], idle["warning"].as_str().unwrap().contains("without effect")),
        (&json!(true), true)
    );
    let tps = get(&still, "_tps_status").await;
    assert_eq!(tps["tps_limit_source"], "declared");
    assert_eq!(tps["metrics"][0]["items"], json!([{"metric": "avg", "threshold_tps": 5.0}]));
    assert_eq!(tps["metrics"][0]["shadowed"], json!({"source": "override", "threshold_tps": 7.0}));
    assert_eq!(tps["metrics"][0]["ignored_override"]["override_tps"], 7.0);
    still.kill().await;
}

#[tokio::test]
async fn switches_say_by_whose_word_they_stand() {
    let place = Place::sqlite();
    let still = still(&place, json!({"session_prio": true}), gpus()).await;
    let rate = get(&still, "_rate_limit_status").await;
    assert_eq!(
        rate,
        json!({"route": "chat", "enabled": true, "source": "default",
            "trips": {"concurrency": 0, "ttft": 0, "tps": 0}, "scope": "fleet"})
    );
    let off = get(&still, "_rate_limit_toggle?on=0&ttl=60").await;
    assert_eq!((&off["enabled"], &off["source"], off["until_ms"].is_u64()), (&json!(false), &json!("runtime"), true));
    assert_eq!(off["then"], true, "what the option says");
    get(&still, "_rate_limit_toggle?on=0").await;
    let timed = get(&still, "_rate_limit_toggle?on=0&ttl=60").await;
    assert_eq!((&timed["until_ms"].is_u64(), &timed["then"]), (&true, &json!(false)), "what was set before");
    get(&still, "_ttft_limit?ms=900&ttl=0").await;
    let limit = get(&still, "_ttft_limit?ms=100").await;
    assert_eq!((&limit["limit_override_ms"], &limit["override_then_ms"]), (&json!(100.0), &json!(900.0)));
    get(&still, "_ttft_limit?ms=0").await;
    let mut client = Client::new();
    for _ in 0..6 {
        client.granted(&still, Asked::default()).await;
    }
    assert_eq!(get(&still, "_rate_limit_status").await["trips"]["concurrency"], 2);
    assert_eq!(get(&still, "_429_status").await["rate_limit"]["trips"]["concurrency"], 2);
    assert_eq!(get(&still, "_rate_limit_toggle?reset=1").await["source"], "default");

    let prio = get(&still, "_session_status").await;
    assert_eq!(
        (&prio["enabled"], &prio["source"], prio["table"].as_array().unwrap().len()),
        (&json!(true), &json!("route"), 6)
    );
    assert_eq!((&prio["no_header"]["admits"], prio["no_header"].get("hit_rate")), (&json!(6), None));
    assert_eq!((&prio["no_header"]["over"], &prio["no_header"]["refusals"]), (&json!(2), &json!(0)), "they got in");
    assert_eq!(
        prio["table"][5],
        json!({"bucket": 5, "min_turn": 32, "share": 1.0, "tol": 1.5, "admits": 0, "refusals": 0, "over": 0,
            "ptok": 0, "ctok": 0})
    );
    assert_eq!(prio["pools"], json!({"_": {"hold": false, "t1_probes_used_cur_window": 0}}));
    assert_eq!(get(&still, "_session_prio_toggle?on=0").await["source"], "runtime");
    assert_eq!(get(&still, "_ttft_429_toggle?on=0").await["ttft_429_enabled"], false);
    assert_eq!(get(&still, "_ttft_toggle?on=0").await["active"], false);
    for bad in
        ["_ttft_toggle", "_tps_toggle?on=2", "_ttft_429_toggle?on=x", "_rate_limit_toggle", "_session_prio_toggle?on="]
    {
        assert_eq!(status(&still, bad).await, 400, "{bad}");
    }
    let states = still.fleet.pool("chat").unwrap().toggle_states();
    assert_eq!(states.len(), 3, "they are the operator's own: {states:?}");
    still.kill().await;
}

#[tokio::test]
async fn limits_12_2_refusals_by_reason_and_their_reset() {
    let place = Place::sqlite();
    let still = still(&place, json!({"max_waiting": 0}), gpus()).await;
    let mut client = Client::new();
    for _ in 0..4 {
        client.granted(&still, Asked::default()).await;
    }
    assert!(matches!(client.ask(&still, Asked::default()).await, Answer::Refused(_)));
    let counted = get(&still, "_429_status").await;
    let reasons = json!({"concurrency": 1, "ttft": 0, "tps": 0});
    assert_eq!((&counted["scope"], &counted["total"], &counted["by_reason"]), (&json!("chat"), &json!(1), &reasons));
    assert_eq!(counted["by_route"], json!({"chat": reasons}));
    let all = get(&still, "_429_status?all=1").await;
    assert_eq!((&all["scope"], all["by_route"].as_object().unwrap().len()), (&json!("all"), 2));
    assert_eq!(all["rate_limit"]["empty"]["enabled"], true);
    assert_eq!(get(&still, "_429_status?reset=1").await, json!({"reset": true, "scope": "chat", "fleet": true}));
    assert_eq!(get(&still, "_429_status").await["total"], 0);
    still.kill().await;
}
