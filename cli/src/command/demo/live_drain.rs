//! Scene 4: a backend is drained while sessions run. None fails, its own move, and nothing new starts there.

use std::time::{Duration, Instant};

use router_proto::v1;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::chat::{Conversation, Turn};
use super::cluster::{BOUND, Cluster};
use super::report::Report;
use crate::client::Admin;
use crate::failure::{Failure, Kind, Outcome};

const SESSIONS: usize = 12;

/// Until nothing may be in flight on the drained engine any more. An answer takes well below a second.
const EMPTY_WITHIN: Duration = Duration::from_secs(5);

/// Turns of each session before the drain, and again after it.
const TURNS: usize = 2;

/// Where the scene is when a turn starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Before,
    Drained,
    Over,
}

/// A turn as its session tells it.
struct Told {
    session: usize,
    phase: Phase,
    outcome: Result<Turn, Failure>,
}

/// Shows it.
pub(crate) async fn show(cluster: &mut Cluster, report: &mut Report) -> Outcome {
    report.title("4. An engine is drained while sessions run")?;
    let (phase, _) = watch::channel(Phase::Before);
    let (tell, mut told) = mpsc::channel(SESSIONS);
    let mut sessions = JoinSet::new();
    for number in 0..SESSIONS {
        sessions.spawn(run_session(cluster, number, phase.subscribe(), tell.clone()));
    }
    drop(tell);
    let mut turns = Vec::new();
    until_each(&mut told, &mut turns, Phase::Before).await;
    let homes: Vec<Option<String>> = (0..SESSIONS).map(|session| peers(&turns, session).pop()).collect();
    let victim = busiest(&homes).ok_or_else(|| first_error(&turns))?;
    let selector = v1::BackendSelector { backend: victim.clone(), ..Default::default() };
    let drain = v1::SetDrainRequest { selector: Some(selector.clone()), drain: true };
    let answer = cluster.admin.rpc.set_drain(drain.clone()).await;
    cluster.admin.answer(answer)?;
    let began = Instant::now();
    phase.send_replace(Phase::Drained);
    let is_empty = {
        // Traffic must not stop while the engine empties: its reports are taken meanwhile.
        let empty = tokio::time::timeout(EMPTY_WITHIN, until_empty(&mut cluster.admin, &selector));
        tokio::pin!(empty);
        loop {
            tokio::select! {
                emptied = &mut empty => break emptied.map_or(Ok(false), |watched| watched.map(|()| true))?,
                Some(one) = told.recv() => turns.push(one),
            }
        }
    };
    let took_ms = began.elapsed().as_millis();
    until_each(&mut told, &mut turns, Phase::Drained).await;
    phase.send_replace(Phase::Over);
    while let Some(one) = told.recv().await {
        turns.push(one);
    }
    drop(sessions.join_all().await);
    let answer = cluster.admin.rpc.set_drain(v1::SetDrainRequest { drain: false, ..drain }).await;
    cluster.admin.answer(answer)?;
    report.value("drained", &victim)?;
    report.check(is_empty, "what ran there ended", &format!("watched for {took_ms} ms"))?;
    judge(&turns, &homes, &victim, report)
}

/// Asks on and on, through one replica after the other, until the scene is over.
fn run_session(
    cluster: &Cluster,
    number: usize,
    phase: watch::Receiver<Phase>,
    tell: mpsc::Sender<Told>,
) -> impl Future<Output = ()> + Send + use<> {
    let (http, replicas) = (cluster.http.clone(), cluster.replicas.clone());
    let mut conversation = Conversation::new(BOUND, "drain", number);
    async move {
        for replica in replicas.iter().cycle().skip(number) {
            let now = *phase.borrow();
            if now == Phase::Over {
                return;
            }
            let outcome = conversation.turn(&http, replica).await;
            let has_failed = outcome.is_err();
            if tell.send(Told { session: number, phase: now, outcome }).await.is_err() || has_failed {
                return;
            }
        }
    }
}

/// Takes reports until each session has done its turns of a phase, or has ended.
async fn until_each(told: &mut mpsc::Receiver<Told>, turns: &mut Vec<Told>, phase: Phase) {
    let is_done = |turns: &[Told]| {
        (0..SESSIONS).all(|session| {
            let own = || turns.iter().filter(|one| one.session == session);
            own().filter(|one| one.phase == phase).count() >= TURNS || own().any(|one| one.outcome.is_err())
        })
    };
    while !is_done(turns) {
        match told.recv().await {
            Some(one) => turns.push(one),
            None => return,
        }
    }
}

/// Follows the backend until nothing is in flight there.
async fn until_empty(admin: &mut Admin, selector: &v1::BackendSelector) -> Result<(), Failure> {
    let answer = admin.rpc.watch_backends(v1::WatchBackendsRequest { selector: Some(selector.clone()) }).await;
    let mut states = admin.answer(answer)?;
    while let Some(now) = states.message().await.map_err(|status| admin.failure(&status))? {
        if now.backends.iter().all(|backend| backend.in_flight == 0) {
            return Ok(());
        }
    }
    Err(Failure::new(Kind::Unavailable, "the control plane ended the watch"))
}

/// The engines of a session's turns, in order.
fn peers(turns: &[Told], session: usize) -> Vec<String> {
    let own = turns.iter().filter(|one| one.session == session);
    own.filter_map(|one| Some(one.outcome.as_ref().ok()?.peer.clone())).collect()
}

/// The engine that most sessions would miss.
fn busiest(homes: &[Option<String>]) -> Option<String> {
    let at = |engine: &str| homes.iter().flatten().filter(|home| *home == engine).count();
    let most = homes.iter().flatten().max_by_key(|engine| (at(engine), (*engine).clone()));
    most.filter(|engine| !engine.is_empty()).cloned()
}

fn first_error(turns: &[Told]) -> Failure {
    let found = turns.iter().find_map(|one| one.outcome.as_ref().err().cloned());
    found.unwrap_or_else(|| Failure::failed("the answers carry no X-Routed-Peer header"))
}

fn judge(turns: &[Told], homes: &[Option<String>], victim: &str, report: &mut Report) -> Outcome {
    let errors = turns.iter().filter(|one| one.outcome.is_err()).count();
    let reason = if errors == 0 { String::new() } else { format!("; first error: {}", first_error(turns).message) };
    let sent = turns.len();
    report.check(errors == 0, "no request failed", &format!("{} of {sent} answered{reason}", sent - errors))?;
    let late = turns.iter().filter(|one| one.phase == Phase::Drained);
    let late = late.filter(|one| one.outcome.as_ref().is_ok_and(|turn| turn.peer == victim)).count();
    report.check(late == 0, "nothing new started there", &format!("{late} requests after the drain"))?;
    // A session's engines without repetitions: `[home]` if it stayed, `[home, other]` if it moved once.
    let way = |session: usize| {
        let mut way = peers(turns, session);
        way.dedup();
        way
    };
    let of = |is_victims: bool| {
        let homes = homes.iter().enumerate();
        homes.filter(move |(_, home)| (home.as_deref() == Some(victim)) == is_victims).map(|(session, _)| session)
    };
    let (victims, others) = (of(true).count(), of(false).count());
    let moved = of(true).filter(|session| matches!(way(*session).as_slice(), [home, _] if home == victim)).count();
    report.check(moved == victims, "its sessions moved once and stayed moved", &format!("{moved} of {victims}"))?;
    let kept = of(false).filter(|session| way(*session).len() == 1).count();
    report.check(kept == others, "all others stayed where they were", &format!("{kept} of {others}"))
}
