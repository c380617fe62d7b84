//! `routerctl session list|show|forget`. Sessions are named by their fingerprint: the ids themselves are stored nowhere.

use std::io::{self, Write};

use clap::{ArgGroup, Args, Subcommand};
use router_policy::ids::RouteName;
use router_proto::v1;

use crate::client::Admin;
use crate::failure::{Failure, Outcome};
use crate::output::json::{Forgotten, SessionDetail, SessionList, SessionView};
use crate::output::table::{Columns, ago, count, print_pairs};
use crate::output::{Answer, Out};

/// What to do with sessions.
#[derive(Debug, Subcommand)]
pub(crate) enum SessionVerb {
    /// List sessions, the most recently used first.
    List(ListArgs),
    /// Show one session.
    Show(ShowArgs),
    /// End bindings: the next request of each session is placed as a new one.
    Forget(ForgetArgs),
}

/// Arguments of `session list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only sessions of this route.
    #[arg(long, value_name = "NAME")]
    route: Option<RouteName>,
    /// Only sessions of the backend of this address or name.
    #[arg(long, value_name = "HOST:PORT|NAME")]
    backend: Option<String>,
    /// Only sessions whose fingerprint starts so, for instance with `X-Routed-Session` of an answer.
    #[arg(long, value_name = "HEX", value_parser = fingerprint_start)]
    prefix: Option<String>,
    /// List at most this many.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
}

/// Arguments of `session show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The start of its fingerprint, for instance `X-Routed-Session` of an answer.
    #[arg(value_name = "HEX", value_parser = fingerprint_start)]
    prefix: String,
    /// Only look in this route.
    #[arg(long, value_name = "NAME")]
    route: Option<RouteName>,
}

/// Arguments of `session forget`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").required(true).args(["prefix", "backend"]))]
pub(crate) struct ForgetArgs {
    /// The route.
    route: RouteName,
    /// The start of a fingerprint, 4 digits or more.
    #[arg(value_name = "HEX", value_parser = fingerprint_start_4)]
    prefix: Option<String>,
    /// All sessions of the backend of this address or name.
    #[arg(long, value_name = "HOST:PORT|NAME")]
    backend: Option<String>,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
}

/// Reads the start of a fingerprint.
pub(crate) fn fingerprint_start(text: &str) -> Result<String, String> {
    let lower = text.to_ascii_lowercase();
    let is_hex = (1..=32).contains(&lower.len()) && lower.bytes().all(|c| c.is_ascii_hexdigit());
    if is_hex {
        Ok(lower)
    } else {
        Err("the start of a fingerprint expected, 1 to 32 hexadecimal digits: see `X-Routed-Session` or `routerctl session list`".to_owned())
    }
}

fn fingerprint_start_4(text: &str) -> Result<String, String> {
    fingerprint_start(text)
        .and_then(|hex| if hex.len() < 4 { Err("4 digits or more expected".to_owned()) } else { Ok(hex) })
}

impl SessionVerb {
    /// Carries it out.
    pub(crate) async fn run(self, admin: &mut Admin, out: &mut Out<'_>) -> Outcome {
        match self {
            Self::List(args) => {
                let request = v1::ListSessionsRequest {
                    route: args.route.map(|name| name.to_string()).unwrap_or_default(),
                    prefix: args.prefix.unwrap_or_default(),
                    backend: args.backend.unwrap_or_default(),
                    limit: args.limit,
                };
                let list = list(request, admin).await?;
                out.answer(&list)?;
                let hidden = list.total.saturating_sub(list.sessions.len() as u64);
                if hidden > 0 {
                    out.note(&format!("{hidden} more; raise --limit to see them"));
                }
                Ok(())
            }
            Self::Show(args) => show(args, admin, out).await,
            Self::Forget(args) => forget(args, admin, out).await,
        }
    }
}

async fn list(request: v1::ListSessionsRequest, admin: &mut Admin) -> Result<SessionList, Failure> {
    let answer = admin.rpc.list_sessions(request).await;
    let reply = admin.answer(answer)?;
    Ok(SessionList { sessions: reply.sessions.into_iter().map(Into::into).collect(), total: reply.total })
}

async fn show(args: ShowArgs, admin: &mut Admin, out: &mut Out<'_>) -> Outcome {
    let route = args.route.map(|name| name.to_string()).unwrap_or_default();
    let request = v1::ListSessionsRequest { route, prefix: args.prefix.clone(), backend: String::new(), limit: 2 };
    let found = list(request, admin).await?;
    let total = found.total;
    match <[SessionView; 1]>::try_from(found.sessions) {
        Ok([session]) => out.answer(&SessionDetail(session)),
        Err(none) if none.is_empty() => Err(Failure::failed(format!("no session {}", args.prefix))
            .hint("`routerctl session list` shows the sessions; one that was forgotten or never bound is not there")),
        Err(_) => Err(Failure::failed(format!("{} sessions start with {}", total.max(2), args.prefix))
            .hint("give more digits, or --route")),
    }
}

async fn forget(args: ForgetArgs, admin: &mut Admin, out: &mut Out<'_>) -> Outcome {
    let (prefix, backend) = (args.prefix.unwrap_or_default(), args.backend.unwrap_or_default());
    let route = args.route.to_string();
    if !args.yes {
        let ask = v1::ListSessionsRequest {
            route: route.clone(),
            prefix: prefix.clone(),
            backend: backend.clone(),
            limit: 1,
        };
        let total = list(ask, admin).await?.total;
        out.confirm(&format!("Forget {} of route {route}?", count(total, "session")))?;
    }
    let answer = admin.rpc.forget_sessions(v1::ForgetSessionsRequest { route, prefix, backend }).await;
    let reply = admin.answer(answer)?;
    out.answer(&Forgotten { forgotten: reply.forgotten })
}

impl Answer for SessionList {
    fn print(&self, out: &mut dyn Write, now_unix_ms: u64) -> io::Result<()> {
        let mut columns =
            Columns::new(&["ROUTE", "SESSION", "BACKEND", ">IN FLIGHT", ">REQUESTS", ">MOVES", "LAST USED", "CREATED"]);
        for session in &self.sessions {
            columns.row([
                session.route.clone(),
                session.fingerprint.clone(),
                session.backend.clone(),
                session.in_flight.to_string(),
                session.requests.to_string(),
                session.moves.to_string(),
                ago(session.last_used_unix_ms, now_unix_ms),
                ago(session.created_unix_ms, now_unix_ms),
            ]);
        }
        columns.print(out, "", "no sessions")
    }
}

impl Answer for SessionDetail {
    fn print(&self, out: &mut dyn Write, now_unix_ms: u64) -> io::Result<()> {
        let Self(session) = self;
        let mut pairs = vec![
            ("session", session.fingerprint.clone()),
            ("route", session.route.clone()),
            ("backend", session.backend.clone()),
            ("in flight", session.in_flight.to_string()),
            ("requests", session.requests.to_string()),
            ("moves", session.moves.to_string()),
            ("last used", ago(session.last_used_unix_ms, now_unix_ms)),
            ("created", ago(session.created_unix_ms, now_unix_ms)),
        ];
        pairs.extend(session.dp_rank.map(|rank| ("dp rank", rank.to_string())));
        print_pairs(out, &pairs)
    }
}

impl Answer for Forgotten {
    fn print(&self, out: &mut dyn Write, _now_unix_ms: u64) -> io::Result<()> {
        writeln!(out, "{} forgotten", count(self.forgotten, "session"))
    }
}
