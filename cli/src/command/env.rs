//! `routerctl env init`: the `.env` of the compose file, with secrets made here. An existing one is never touched: a
//! database keeps the password that it was made with.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use rand::Rng as _;

use crate::failure::{Failure, Outcome};

/// What to do with the environment file.
#[derive(Debug, Subcommand)]
pub(crate) enum EnvVerb {
    /// Write the file from its example, with a new random secret for each empty value. Never overwrites.
    Init(InitArgs),
}

/// Arguments of `env init`.
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// The example: lines of `NAME=VALUE`. What has a value, comments and blank lines are copied.
    #[arg(long, default_value = ".env.example", value_name = "FILE")]
    example: PathBuf,
    /// The file to write, readable by its owner alone.
    #[arg(long, default_value = ".env", value_name = "FILE")]
    file: PathBuf,
}

impl EnvVerb {
    /// Carries it out. Nothing printed holds a secret.
    pub(crate) fn run(&self) -> Outcome {
        let Self::Init(args) = self;
        let filled = init(args)?;
        let made = if filled.is_empty() { "no value was empty".to_owned() } else { filled.join(", ") };
        writeln!(io::stdout().lock(), "wrote {}; new secrets: {made}", args.file.display())?;
        Ok(())
    }
}

/// Returns the names of the values that were made.
fn init(args: &InitArgs) -> Result<Vec<String>, Failure> {
    let failed =
        |path: &Path, problem: &dyn std::fmt::Display| Failure::failed(format!("{}: {problem}", path.display()));
    let example = std::fs::read_to_string(&args.example).map_err(|error| failed(&args.example, &error))?;
    let (text, filled) = fill(&example, new_secret);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    let mut file = options.open(&args.file).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            failed(&args.file, &"exists already and is left as it is; remove it first to make a new one")
        }
        _ => failed(&args.file, &error),
    })?;
    if let Err(error) = file.write_all(text.as_bytes()).and_then(|()| file.sync_all()) {
        // Half a file would be in the way of the next try.
        drop(std::fs::remove_file(&args.file));
        return Err(failed(&args.file, &error));
    }
    Ok(filled)
}

/// The example with a secret after each `NAME=` that has nothing after it, and those names.
fn fill(example: &str, mut secret: impl FnMut() -> String) -> (String, Vec<String>) {
    let (mut text, mut filled) = (String::new(), Vec::new());
    for line in example.lines() {
        text.push_str(line);
        if let Some(name) = empty_value(line) {
            text.truncate(text.trim_end().len());
            text.push_str(&secret());
            filled.push(name.to_owned());
        }
        text.push('\n');
    }
    (text, filled)
}

/// The name in a line of `NAME=` alone.
fn empty_value(line: &str) -> Option<&str> {
    let name = line.trim_end().strip_suffix('=')?;
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (!name.is_empty() && name.bytes().all(is_name)).then_some(name)
}

/// 32 random bytes in hexadecimal: nothing that a shell, a URL or a compose file would read as more than text.
fn new_secret() -> String {
    let mut bytes = [0_u8; 32];
    rand::rng().fill_bytes(&mut bytes);
    bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(folder: &Path) -> InitArgs {
        InitArgs { example: folder.join(".env.example"), file: folder.join(".env") }
    }

    #[test]
    fn only_empty_values_are_filled() {
        let example = "# Comment=\n\nONE=\nPORT=8080\nTWO= \n= \nA B=\nLAST=";
        let mut count = 0;
        let (text, filled) = fill(example, || {
            count += 1;
            format!("secret{count}")
        });
        assert_eq!(text, "# Comment=\n\nONE=secret1\nPORT=8080\nTWO=secret2\n= \nA B=\nLAST=secret3\n");
        assert_eq!(filled, ["ONE", "TWO", "LAST"]);
    }

    #[test]
    fn the_example_of_this_repository_gets_different_secrets_in_a_private_file() {
        let folder = tempfile::tempdir().unwrap();
        let args = args(folder.path());
        std::fs::write(&args.example, include_str!("../../../.env.example")).unwrap();
        assert_eq!(init(&args).unwrap(), ["POSTGRES_PASSWORD", "ROUTER_TOKEN"]);
        let text = std::fs::read_to_string(&args.file).unwrap();
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned();
        let (password, token) = (value("POSTGRES_PASSWORD="), value("ROUTER_TOKEN="));
        assert_ne!(password, token);
        for secret in [password, token] {
            assert!(secret.len() == 64 && secret.bytes().all(|byte| byte.is_ascii_hexdigit()), "{secret}");
        }
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            assert_eq!(std::fs::metadata(&args.file).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn an_existing_file_is_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let args = args(folder.path());
        std::fs::write(&args.example, "TOKEN=\n").unwrap();
        std::fs::write(&args.file, "TOKEN=old\n").unwrap();
        let failure = init(&args).unwrap_err();
        assert!(failure.message.contains("exists already"), "{failure:?}");
        assert_eq!(std::fs::read_to_string(&args.file).unwrap(), "TOKEN=old\n");
        // With nothing there, the same call writes.
        std::fs::remove_file(&args.file).unwrap();
        assert_eq!(init(&args).unwrap(), ["TOKEN"]);
    }

    #[test]
    fn a_missing_example_is_named_and_nothing_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let args = args(folder.path());
        assert!(init(&args).unwrap_err().message.contains(".env.example: "));
        assert!(!args.file.exists());
    }
}
