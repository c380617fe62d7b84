//! `routerctl route explain`: what would become of a request now. The session id is used for this answer only.

use std::io::{self, Read, Write};

use clap::Args;
use router_policy::ids::RouteName;
use router_proto::v1;

use crate::client::Admin;
use crate::command::session::fingerprint_start;
use crate::failure::{Failure, Outcome};
use crate::output::json::Explanation;
use crate::output::table::{Columns, count, or_dash};
use crate::output::{Answer, Out};

/// Longest session id, in characters (rulings §2).
const ID_MAX_CHARS: usize = 256;
/// As many bytes are read for one, and its line end.
const ID_MAX_BYTES: u64 = 4 * 256 + 2;

/// Arguments of `route explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The route.
    name: RouteName,
    /// The request's session id as the client sends it; `-` reads it from standard input, so that it is in no history.
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Or the start of the session's fingerprint, for instance `X-Routed-Session` of an answer.
    #[arg(long, value_name = "HEX", value_parser = fingerprint_start, conflicts_with = "session")]
    fingerprint: Option<String>,
    /// The model that it asks for.
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// The number of its turn in the session.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000_000))]
    turn: Option<u32>,
    /// Tokens that must fit, output included, as in `x-model-context-window`.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    context_tokens: Option<u64>,
}

/// Asks and prints.
pub(super) async fn run(args: ExplainArgs, admin: &mut Admin, out: &mut Out<'_>) -> Outcome {
    let request = args.request(&mut io::stdin().lock())?;
    let answer = admin.rpc.explain(request).await;
    out.answer(&Explanation::from(admin.answer(answer)?))
}

impl ExplainArgs {
    fn request(self, stdin: &mut dyn Read) -> Result<v1::ExplainRequest, Failure> {
        let session_id = match self.session.as_deref() {
            None => String::new(),
            Some("-") => checked(&read_line(stdin)?, "standard input")?,
            Some(id) => checked(id, "--session")?,
        };
        Ok(v1::ExplainRequest {
            route: self.name.to_string(),
            session_id,
            fingerprint: self.fingerprint.unwrap_or_default(),
            model: self.model.unwrap_or_default(),
            turn: self.turn.unwrap_or(0),
            context_tokens: self.context_tokens.unwrap_or(0),
        })
    }
}

/// The first line; the rest is left.
fn read_line(stdin: &mut dyn Read) -> Result<String, Failure> {
    let mut text = String::new();
    let mut line = io::BufReader::new(stdin.take(ID_MAX_BYTES));
    io::BufRead::read_line(&mut line, &mut text)
        .map_err(|error| Failure::failed(format!("standard input: {error}")))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// An id that a request could carry. It is not repeated in the complaint.
fn checked(id: &str, source: &str) -> Result<String, Failure> {
    let length = id.chars().count();
    if id.trim().is_empty() || length > ID_MAX_CHARS {
        return Err(Failure::usage(format!(
            "{source}: a session id of 1 to {ID_MAX_CHARS} characters expected, not only blanks; got {length}"
        )));
    }
    Ok(id.to_owned())
}

impl Answer for Explanation {
    fn print(&self, out: &mut dyn Write, _now_unix_ms: u64) -> io::Result<()> {
        writeln!(out, "{}", self.outcome)?;
        if let Some(session) = &self.session {
            writeln!(out, "session: {session}")?;
        }
        if self.rules > 0 {
            let rules = count(self.rules.into(), "reject rule");
            writeln!(out, "before that, its body must pass {rules}: try it with `routerctl rules test`")?;
        }
        writeln!(out)?;
        let mut gates = Columns::new(&["GATE", "STOPS IT", "WHY"]);
        let asked = self.gates_asked();
        for (index, gate) in self.gates.iter().enumerate() {
            let stops = if index < asked { yes_no(gate.trips) } else { "not asked".to_owned() };
            gates.row([gate.name.clone(), stops, gate.why.clone()]);
        }
        gates.print(out, "", "no gate was asked")?;
        writeln!(out)?;
        let mut candidates = Columns::new(&["BACKEND", "NAME", ">TIER", ">LOAD", "CANDIDATE", "WHY NOT"]);
        for one in &self.candidates {
            candidates.row([
                one.address.clone(),
                or_dash(one.name.as_deref()),
                if one.priority.is_null() { "-".to_owned() } else { one.priority.to_string() },
                format!("{}/{}", one.in_flight, one.limit),
                yes_no(one.is_candidate),
                one.why_not.clone().unwrap_or_default(),
            ]);
        }
        candidates.print(out, "", "no backends")
    }
}

impl Explanation {
    /// How many gates the request meets: up to the one that refuses it.
    fn gates_asked(&self) -> usize {
        // Before it waits, all are asked: nobody waits for a slow pool.
        if self.waits {
            return self.gates.len();
        }
        // By name first: a pool that is full and slow is refused by its speed, after the gate that trips first.
        let refuses = self.gates.iter().position(|gate| Some(&gate.name) == self.refused_by.as_ref());
        let stops = refuses.or_else(|| self.gates.iter().position(|gate| gate.trips));
        stops.map_or(self.gates.len(), |index| index + 1)
    }
}

fn yes_no(holds: bool) -> String {
    if holds { "yes" } else { "no" }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(session: &str) -> ExplainArgs {
        ExplainArgs {
            name: RouteName::new("chat").unwrap(),
            session: Some(session.to_owned()),
            fingerprint: None,
            model: None,
            turn: None,
            context_tokens: None,
        }
    }

    #[test]
    fn a_session_id_comes_from_the_line_or_from_standard_input() {
        let id = |session: &str, mut stdin: &[u8]| args(session).request(&mut stdin).map(|request| request.session_id);
        assert_eq!(id("alice", b"not read").unwrap(), "alice");
        assert_eq!(id("-", b"alice\nmore\n").unwrap(), "alice");
        assert_eq!(id("-", b" with blanks \r\n").unwrap(), " with blanks ");
        assert_eq!(id("-", "ü".repeat(256).as_bytes()).unwrap().chars().count(), 256);
        for (session, stdin) in [("-", ""), ("-", "\n"), ("", ""), ("  ", ""), ("-", &*"x".repeat(5000))] {
            let failure = id(session, stdin.as_bytes()).unwrap_err();
            assert_eq!(failure.kind.code(), 64);
            assert!(!failure.message.contains("xx"), "{failure:?}");
        }
    }
}
