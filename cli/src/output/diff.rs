//! Changes of route documents, in the manner of diff(1): `-` before, `+` after.

use std::io::{self, Write};

use super::Answer;
use super::json::{ChangeView, Changes};
use super::table::count;

impl Answer for Changes {
    fn print(&self, out: &mut dyn Write, _now_unix_ms: u64) -> io::Result<()> {
        if self.changes.is_empty() {
            return writeln!(out, "no change");
        }
        for change in &self.changes {
            print_change(out, change)?;
        }
        let routes = count(self.changes.len() as u64, "route");
        writeln!(out, "{routes} {}", if self.is_applied { "changed" } else { "would change" })
    }
}

/// One route's changes.
pub(crate) fn print_change(out: &mut dyn Write, change: &ChangeView) -> io::Result<()> {
    writeln!(out, "route {}: {}", change.route, change.action)?;
    for field in &change.fields {
        match (&field.before, &field.after) {
            (Some(before), Some(after)) => {
                writeln!(out, "  - {}: {before}", field.field)?;
                writeln!(out, "  + {}: {after}", field.field)?;
            }
            (Some(before), None) => writeln!(out, "  - {}: {before}", field.field)?,
            (None, after) => writeln!(out, "  + {}: {}", field.field, after.as_deref().unwrap_or_default())?,
        }
    }
    Ok(())
}
