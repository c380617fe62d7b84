//! `routerctl status`.

use std::io::{self, Write};

use router_proto::v1;

use crate::client::Admin;
use crate::command::toggle::in_short;
use crate::failure::Outcome;
use crate::output::json::{FileView, StatusView};
use crate::output::table::{Columns, ago, count, print_backends, print_pairs, span};
use crate::output::{Answer, Out};

/// Arguments of `status`.
#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {}

/// Prints the whole state.
pub(crate) async fn run(_args: StatusArgs, admin: &mut Admin, out: &mut Out<'_>) -> Outcome {
    let answer = admin.rpc.get_status(v1::GetStatusRequest {}).await;
    let status = StatusView::from(admin.answer(answer)?);
    for file in &status.files {
        if let Some(problem) = &file.problem {
            out.note(&format!("warning: --{} {}: {problem}", file.flag, file.path));
        }
    }
    for route in &status.routes {
        for complaint in &route.complaints {
            out.note(&format!("warning: route {}: {complaint}", route.name));
        }
        for note in &route.notes {
            out.note(&format!("note: {note}"));
        }
    }
    out.answer(&status)
}

impl Answer for StatusView {
    fn print(&self, out: &mut dyn Write, now_unix_ms: u64) -> io::Result<()> {
        let database = match (&self.database_error, self.database_ok) {
            (_, true) => format!("{}, ok", self.database),
            (Some(error), false) => format!("{}, FAILING: {error}", self.database),
            (None, false) => format!("{}, FAILING", self.database),
        };
        let control_plane = format!("{}, up {}, epoch {}", self.version, span(self.uptime_ms), self.epoch);
        let snapshot = format!("version {}", self.snapshot_version);
        print_pairs(
            out,
            &[
                ("control plane", control_plane),
                ("database", database),
                ("snapshot", snapshot),
                ("keys", self.keys.to_string()),
            ],
        )?;
        writeln!(out)?;
        if !self.files.is_empty() {
            print_files(out, &self.files, now_unix_ms)?;
            writeln!(out)?;
        }
        let mut replicas = Columns::new(&["REPLICA", "LISTEN", "STATE", "VERSION", ">LEASES"]);
        for replica in &self.replicas {
            let state = if replica.connected {
                "connected".to_owned()
            } else {
                format!("gone for {}", span(replica.last_seen_ms))
            };
            replicas.row([
                replica.replica_id.clone(),
                replica.listen.clone(),
                state,
                replica.version.clone(),
                replica.leases.to_string(),
            ]);
        }
        replicas.print(out, "", "no replicas; start one with `routerctl dataplane`")?;
        if self.routes.is_empty() {
            return writeln!(out, "\nno routes; add one with `routerctl route add NAME --backend HOST:PORT`");
        }
        for route in &self.routes {
            let default = if route.is_default { " (default)" } else { "" };
            let sessions = count(route.sessions, "session");
            writeln!(out, "\nroute {}{default}: {sessions}, {} waiting", route.name, route.waiting)?;
            for complaint in &route.complaints {
                writeln!(out, "  complaint: {complaint}")?;
            }
            if !route.toggles.is_empty() {
                writeln!(out, "  toggled: {}", route.toggles.iter().map(in_short).collect::<Vec<_>>().join("; "))?;
            }
            for (what, counted) in
                [("refused by rules", route.payload.refused_by_rules()), ("body log", route.payload.body_log())]
            {
                if let Some(counted) = counted {
                    writeln!(out, "  {what}: {counted}")?;
                }
            }
            print_backends(out, "  ", &route.backends, false)?;
        }
        Ok(())
    }
}

fn print_files(out: &mut dyn Write, files: &[FileView], now_unix_ms: u64) -> io::Result<()> {
    let mut columns = Columns::new(&["FILE", "PATH", "LAST GOOD", "PROBLEM", "NOTE"]);
    for file in files {
        columns.row([
            file.flag.clone(),
            file.path.clone(),
            ago(file.good_unix_ms.unwrap_or(0), now_unix_ms),
            file.problem.clone().unwrap_or_default(),
            file.note.clone().unwrap_or_default(),
        ]);
    }
    columns.print(out, "", "no files")
}
