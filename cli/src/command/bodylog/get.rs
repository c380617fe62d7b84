//! `routerctl bodylog get`: one full record with its bodies. It is read out of the collector's files: the HTTP port gives
//! none.

use std::fmt::Write as _;
use std::path::PathBuf;

use router_dataplane::bodylog::collector::find::find_record;

use crate::failure::{Failure, Outcome};
use crate::output::{Format, Out, write_yaml};

/// Arguments of `bodylog get`.
#[derive(Debug, clap::Args)]
pub(crate) struct GetArgs {
    /// The request's id: `x-request-id` of its answer, REQUEST in `query`. Of several records the newest is printed
    #[arg(value_name = "REQUEST_ID", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    request_id: String,
    /// The collector's folder, on its machine
    #[arg(long, env = "BODYLOG_DIR", default_value = "bodylog", value_name = "FOLDER")]
    dir: PathBuf,
}

/// Finds and prints.
pub(crate) fn run(args: &GetArgs, out: &mut Out<'_>) -> Outcome {
    let found = find_record(&args.dir, &args.request_id).map_err(|error| Failure::failed(format!("--dir: {error}")))?;
    let Some(line) = found else {
        let missing = format!("no record of request {:?} in {}", args.request_id, args.dir.display());
        return Err(
            Failure::failed(missing).hint("records arrive up to a minute late; only what was captured is there")
        );
    };
    match out.format {
        Format::Yaml => {
            let record: serde_json::Value = serde_json::from_str(&line)
                .map_err(|error| Failure::failed(format!("the record can't be read: {error}")))?;
            write_yaml(out.stdout, &record)?;
        }
        // As it lies in the file, so that numbers keep their digits.
        Format::Table | Format::Json => writeln!(out.stdout, "{}", shown(&line))?,
    }
    Ok(out.stdout.flush()?)
}

/// JSON that a terminal shows and does not obey: the control characters that JSON may hold as they are become escapes.
fn shown(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for character in json.chars() {
        if character.is_control() {
            // Writing to a String can't fail.
            let _ = write!(shown, "\\u{:04x}", u32::from(character));
        } else {
            shown.push(character);
        }
    }
    shown
}
