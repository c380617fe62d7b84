//! The one place where an error becomes a gRPC status.

use tonic::{Code, Status};

use crate::error::AdminError;

/// A status travels in a header, percent-encoded, and clients bound those. In bytes.
const TEXT_MAX: usize = 4000;

impl From<AdminError> for Status {
    fn from(error: AdminError) -> Self {
        let code = match &error {
            AdminError::Invalid(_) | AdminError::Argument { .. } => Code::InvalidArgument,
            AdminError::NotFound { .. } | AdminError::NothingSelected { .. } => Code::NotFound,
            AdminError::Exists { .. } => Code::AlreadyExists,
            AdminError::Precondition(_) => Code::FailedPrecondition,
            AdminError::Store(store) if store.is_transient() => Code::Unavailable,
            AdminError::Store(_) | AdminError::Unfinished => Code::Internal,
        };
        Status::new(code, shortened(&error.to_string()))
    }
}

/// As many whole lines as may travel, and how many there are more.
fn shortened(text: &str) -> String {
    if text.len() <= TEXT_MAX {
        return text.to_owned();
    }
    let mut length = 0;
    let fits = |line: &&str| {
        length += line.len() + 1;
        length <= TEXT_MAX
    };
    let lines: Vec<&str> = text.lines().take_while(fits).collect();
    let more = text.lines().count() - lines.len();
    if lines.is_empty() {
        // One line alone is too long: its start is better than nothing.
        return text.chars().take(TEXT_MAX / 4).chain("…".chars()).collect();
    }
    format!("{}\n... and {more} more complaints", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn very_many_complaints_are_cut_at_a_line() {
        let one = "options.x: is wrong; allowed: something else";
        assert_eq!(shortened(one), one);
        let many = vec![one; 1000].join("\n");
        let told = shortened(&many);
        assert!(told.len() < TEXT_MAX + 40, "{}", told.len());
        let (lines, last) = told.rsplit_once('\n').unwrap();
        assert!(lines.lines().all(|line| line == one));
        assert_eq!(last, format!("... and {} more complaints", 1000 - lines.lines().count()));
        assert!(shortened(&"é".repeat(5000)).ends_with("é…"), "one line alone");
    }
}
