//! Requests that run on while the control plane starts anew: their answers count as if nothing had happened.

use crate::store::LeaseRow;

use super::*;

const STORED: u64 = 71;
const NOT_STORED: u64 = 72;
const SILENT: u64 = 73;

/// A route with a pool for each of `a` and `b`, just started; its database remembers two leases.
async fn restarted() -> Bench {
    let options = json!({"session_prio": true, "tps_window": "1s", "tps_basis": "decode"});
    let bench = Bench::forgetful(&json!({"name": "chat", "options": options, "backends": [
        {"address": backend(0).to_string(), "models": ["a"]}, {"address": backend(1).to_string(), "models": ["a", "b"]}]}))
    .await;
    let row = |lease| LeaseRow {
        lease: LeaseId(lease),
        route: bench.pool.name().clone(),
        backend: backend(1),
        replica: "r1".to_owned(),
        fingerprint: None,
        granted_unix_ms: 1,
    };
    bench.pool.restore_leases(vec![row(STORED), row(SILENT)]);
    bench
}

fn of(lease: u64, model: &str, turn: Option<u32>) -> Held {
    Held { model: model.to_owned(), turn, is_stream: true, ..held(lease, Some(backend(1))) }
}

fn end(bench: &Bench, lease: u64) {
    let (ttft, decode) = (Some(Duration::from_secs(1)), Duration::from_secs(1));
    let prompt = Some((100, 60));
    let answered = Answered { status: 200, ttft, decode, tokens: Some(40), prompt, ..Answered::default() };
    bench.pool.release(LeaseId(lease), &bench.caller, &answered);
}

/// Prompt tokens by model and step of the turn; the last are those without a turn.
fn prompts(bench: &Bench) -> Vec<(String, Vec<u64>)> {
    let of_pool = |pool: FlowSeen| {
        let counts = pool.flow.turn_counts();
        let all = counts.buckets().iter().chain([counts.no_header()]);
        (pool.model.clone().unwrap_or_default(), all.map(|counts| counts.prompt_tokens).collect())
    };
    bench.pool.inspect_flows().into_iter().map(of_pool).collect()
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_a_sample_of_its_model_s_pool_and_of_its_turn() {
    for lease in [STORED, NOT_STORED] {
        let bench = restarted().await;
        // Twice: a replica whose link is lost once more says the same again.
        for _ in 0..2 {
            bench.pool.reconcile(&"r1".into(), &[of(lease, "b", Some(3)), of(SILENT, "", None)]);
        }
        assert_eq!(bench.loads(), [0, 2]);
        end(&bench, SILENT);
        assert_eq!(
            prompts(&bench),
            [("a".to_owned(), vec![0]), ("b".to_owned(), vec![0])],
            "nobody knows whose it was"
        );
        end(&bench, lease);
        assert_eq!(prompts(&bench), [("a".to_owned(), vec![0]), ("b".to_owned(), vec![0, 100, 0])], "{lease}");
        // Of a stream: its decoding is a part of its time. The sample after the window shows it.
        tokio::time::advance(Duration::from_secs(2)).await;
        bench.pool.reconcile(&"r1".into(), &[of(lease + 10, "b", None)]);
        end(&bench, lease + 10);
        assert_eq!(
            bench.pool.route_state().pools.iter().map(|pool| pool.tps_ewma).collect::<Vec<_>>(),
            [None, Some(40.0)]
        );
    }
}

#[tokio::test]
async fn what_the_control_plane_has_granted_itself_it_knows_better() {
    let mut bench = restarted().await;
    bench.ask(Asked { model: "a".to_owned(), turn: Some(1), ..Asked::default() });
    let granted = bench.granted().await;
    bench.pool.reconcile(&"r1".into(), &[Held { turn: Some(40), ..of(granted.lease, "b", None) }]);
    end(&bench, granted.lease);
    assert_eq!(prompts(&bench), [("a".to_owned(), vec![100, 0]), ("b".to_owned(), vec![0])]);
}

#[tokio::test]
async fn a_replica_says_nothing_of_another_s_lease() {
    let bench = restarted().await;
    bench.pool.reconcile(&"r2".into(), &[of(STORED, "b", Some(3))]);
    end(&bench, STORED);
    assert_eq!(prompts(&bench), [("a".to_owned(), vec![0]), ("b".to_owned(), vec![0])]);
}
