//! `routerctl route options`: the catalogue, for people by group.

use std::io::{self, Write};

use router_policy::option::OptionDef;
use router_policy::option::catalogue::{CATALOGUE, Preset, find};

use crate::failure::{Failure, Outcome};
use crate::output::json::{Catalogue, CatalogueEntry};
use crate::output::table::{Columns, count, or_dash, print_wrapped};
use crate::output::{Answer, Out};

/// Arguments of `route options`.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct OptionsArgs {
    /// Only this option, by its name or its alias, with everything there is to say of it.
    name: Option<String>,
    /// Also list the options of fine tuning.
    #[arg(long)]
    all: bool,
}

/// Cells of the table are no wider and no higher; what is longer is cut.
const CELL_WIDTH: usize = 30;
const CELL_LINES: usize = 2;

/// Names that are offered for one that is not there.
const OFFERS: usize = 3;

/// Ends the name of an option of fine tuning in the table.
const FINE_TUNING: &str = "*";

/// Prints the catalogue, or one option of it.
pub(crate) fn run(args: &OptionsArgs, out: &mut Out<'_>) -> Outcome {
    let options: Vec<&OptionDef> = match &args.name {
        None => CATALOGUE.iter().collect(),
        Some(name) => vec![find(name).ok_or_else(|| Failure::usage(format!("{name}: {}", unknown(name))))?],
    };
    let options = options.into_iter().map(CatalogueEntry::from).collect();
    out.answer(&Catalogue { options, with_hidden: args.all, is_one: args.name.is_some() })
}

/// Says that an option does not exist, and which are near.
pub(crate) fn unknown(name: &str) -> String {
    let near = near(name);
    let offer = if near.is_empty() { String::new() } else { format!("; near it: {}", near.join(", ")) };
    format!("unknown option{offer}; `routerctl route options --all` lists all")
}

/// Names that were perhaps meant: those that hold the text, then those that few keystrokes make of it; of each the nearest
/// first.
fn near(name: &str) -> Vec<&'static str> {
    let name = name.to_ascii_lowercase().replace('-', "_");
    let allowed = (name.len() / 3).max(1);
    let holds = |known: &str| name.len() > 2 && known.contains(&name);
    let rank = |option: &OptionDef| {
        let names = [option.name, option.alias];
        let names = names.iter().filter(|known| !known.is_empty());
        let ranks = names.map(|known| (!holds(known), distance(&name, known)));
        ranks.min().filter(|(is_other, distance)| !is_other || *distance <= allowed)
    };
    let mut found: Vec<((bool, usize), &str)> =
        CATALOGUE.iter().filter_map(|option| Some((rank(option)?, option.name))).collect();
    // Stable: what is equally near stays in the catalogue's order.
    found.sort_by_key(|(rank, _)| *rank);
    found.into_iter().take(OFFERS).map(|(_, name)| name).collect()
}

/// How many characters must be put in, taken out or changed to make one text of the other.
fn distance(from: &str, to: &str) -> usize {
    let mut costs: Vec<usize> = (0..=to.len()).collect();
    for (row, a) in from.bytes().enumerate() {
        let mut diagonal = row;
        let mut left = row + 1;
        let mut next = vec![left];
        for (b, above) in to.bytes().zip(costs.iter().skip(1)) {
            left = (diagonal + usize::from(a != b)).min(above + 1).min(left + 1);
            diagonal = *above;
            next.push(left);
        }
        costs = next;
    }
    costs.last().copied().unwrap_or_default()
}

impl Answer for Catalogue {
    fn print(&self, out: &mut dyn Write, _now_unix_ms: u64) -> io::Result<()> {
        if self.is_one {
            return self.options.iter().try_for_each(|option| print_one(out, option));
        }
        let shown: Vec<&CatalogueEntry> =
            self.options.iter().filter(|option| self.with_hidden || !option.hidden).collect();
        let mut is_cut = false;
        for group in shown.chunk_by(|one, next| one.group == next.group) {
            is_cut |= print_group(out, group)?;
            writeln!(out)?;
        }
        let hidden = (self.options.len() - shown.len()) as u64;
        if hidden > 0 {
            writeln!(out, "{} for fine tuning: `routerctl route options --all`", count(hidden, "more option"))?;
        } else {
            writeln!(out, "{FINE_TUNING} for fine tuning: listed with `--all` only")?;
        }
        let whole = if is_cut { ", and what ends in `…` whole" } else { "" };
        writeln!(out, "`routerctl route options NAME` explains one{whole}")
    }
}

/// A heading and a table with a description below each row. Whether a cell was cut.
fn print_group(out: &mut dyn Write, group: &[&CatalogueEntry]) -> io::Result<bool> {
    if let Some(first) = group.first() {
        writeln!(out, "[{}]", first.group)?;
    }
    // A preset has a column where it differs from the default.
    let differs = |preset: &&str| group.iter().any(|option| option.preset_defaults.contains_key(*preset));
    let presets: Vec<&str> = Preset::NAMES.into_iter().filter(|preset| differs(preset)).collect();
    let preset_headings: Vec<String> = presets.iter().map(|preset| preset.to_ascii_uppercase()).collect();
    let mut headings = vec!["NAME", "UNIT", "DEFAULT"];
    headings.extend(preset_headings.iter().map(String::as_str));
    headings.push("ALLOWED");
    let mut columns = Columns::new(&headings);
    let mut is_cut = false;
    let mut fit = |text: &str| {
        let (cell, cut) = fitted(text);
        is_cut |= cut;
        cell
    };
    for option in group {
        let mark = if option.hidden { FINE_TUNING } else { "" };
        let mut cells = vec![format!("{}{mark}", option.name), or_dash(option.unit), fit(option.default)];
        // Empty where it is the default.
        cells.extend(
            presets.iter().map(|preset| option.preset_defaults.get(preset).map_or_else(String::new, |text| fit(text))),
        );
        cells.push(fit(&option.allowed));
        columns.row(cells);
    }
    let notes: Vec<&str> = group.iter().map(|option| option.description).collect();
    columns.print_with_notes(out, &notes)?;
    Ok(is_cut)
}

/// A text in lines that a cell can hold, broken after blanks and commas; whether its end is missing.
fn fitted(text: &str) -> (String, bool) {
    let spaced = text.replace(',', ", ");
    let mut lines: Vec<String> = Vec::new();
    for word in spaced.split_ascii_whitespace() {
        let cut = word.chars().count() > CELL_WIDTH;
        let word: String = word.chars().take(CELL_WIDTH).collect();
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= CELL_WIDTH => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
        let is_full = lines.len() > CELL_LINES;
        if is_full || cut {
            lines.truncate(CELL_LINES);
            if let Some(line) = lines.last_mut() {
                line.push('…');
            }
            return (lines.join("\n"), true);
        }
    }
    (lines.join("\n"), false)
}

/// Everything about one option.
fn print_one(out: &mut dyn Write, option: &CatalogueEntry) -> io::Result<()> {
    let hidden = if option.hidden { ", for fine tuning" } else { "" };
    writeln!(out, "{} ({}, {}{hidden})", option.name, option.group, option.kind)?;
    print_wrapped(out, "    ", option.description)?;
    if let Some(unit) = option.unit {
        print_wrapped(out, "    ", &format!("unit: {unit}"))?;
    }
    print_wrapped(out, "    ", &format!("default: {}", option.default.replace(',', ", ")))?;
    for (preset, value) in &option.preset_defaults {
        let value = value.replace(',', ", ");
        print_wrapped(out, "    ", &format!("default under preset {preset}: {value}"))?;
    }
    print_wrapped(out, "    ", &format!("allowed: {}", option.allowed))?;
    match option.alias {
        Some(alias) => print_wrapped(out, "    ", &format!("also called: {alias}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_perhaps_meant_is_offered() {
        for (name, offered) in [
            ("ttft_limt_ms", "ttft_limit_ms"),
            ("max-waitng", "max_waiting"),
            ("waiting", "max_waiting"),
            ("default_mex", "max_concurrency"),
            ("Affinity", "affinity"),
        ] {
            assert!(near(name).contains(&offered), "{name}: {:?}", near(name));
        }
        // At most three, the nearest first.
        assert_eq!(near("session"), ["max_sessions", "session_prio", "session_sources"]);
        assert_eq!(near("limit"), ["ttft_limit_ms", "tps_limit_tps", "rt_limit_factor"]);
        assert!(near("no_such_thing_at_all").is_empty(), "{:?}", near("no_such_thing_at_all"));
        assert!(near("xy").is_empty());
        assert_eq!(unknown("zzz"), "unknown option; `routerctl route options --all` lists all");
    }

    #[test]
    fn distances_count_keystrokes() {
        for (a, b, expected) in
            [("", "", 0), ("", "ab", 2), ("ab", "", 2), ("abc", "abc", 0), ("abc", "axc", 1), ("kitten", "sitting", 3)]
        {
            assert_eq!(distance(a, b), expected, "{a} {b}");
        }
    }

    #[test]
    fn long_cells_are_broken_and_cut() {
        assert_eq!(fitted("1..=100000"), ("1..=100000".to_owned(), false));
        assert_eq!(fitted("connect,502,503"), ("connect, 502, 503".to_owned(), false));
        let (cell, is_cut) = fitted("1s..=8760h or none (units ms, s, m, h, d)");
        assert_eq!((cell.as_str(), is_cut), ("1s..=8760h or none (units ms,\ns, m, h, d)", false));
        let (cell, is_cut) = fitted("header.x-deepseek-harness-session-id");
        assert_eq!((cell.as_str(), is_cut), ("header.x-deepseek-harness-sess…", true));
        let (cell, is_cut) = fitted(&"twelve chars ".repeat(9));
        assert_eq!((cell.lines().count(), is_cut, cell.ends_with('…')), (CELL_LINES, true, true), "{cell}");
    }

    #[test]
    fn every_group_s_options_stand_together() {
        let groups: Vec<&str> = CATALOGUE.chunk_by(|a, b| a.group == b.group).map(|group| group[0].group).collect();
        let mut once = groups.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), groups.len(), "{groups:?}");
    }
}
