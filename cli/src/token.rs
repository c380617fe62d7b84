//! The token that the control plane's callers show: read here, in one place, for every role and every operator verb.

use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Where the token is. With neither there is none.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct TokenArgs {
    /// File with the token that the control plane asks of its callers; it must not be open to everybody
    #[arg(long, env = "ROUTER_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// A role of the router with the token that it asks for or shows.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Role<T: clap::Args> {
    #[command(flatten)]
    pub(crate) token: TokenArgs,
    #[command(flatten)]
    pub(crate) args: T,
}

impl TokenArgs {
    /// The file that the token is read from, if any.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        file_in_use(self.token_file.as_deref())
    }

    /// The token; `Err` says what is wrong without repeating anything of the file.
    pub(crate) fn read(&self) -> Result<Option<String>, String> {
        read(self.token_file.as_deref())
    }
}

impl<T: clap::Args> Role<T> {
    /// Checks a role's whole configuration with its token: all complaints at once.
    pub(crate) fn check<C>(&self, validate: impl Fn(&T, Option<&str>) -> Result<C, Vec<String>>) -> Result<C, Failure> {
        let checked = match self.token.read() {
            Ok(token) => validate(&self.args, token.as_deref()),
            Err(complaint) => {
                let mut complaints = validate(&self.args, None).err().unwrap_or_default();
                complaints.push(complaint);
                Err(complaints)
            }
        };
        checked.map_err(|complaints| Failure::complaints(&complaints))
    }
}

/// The token of a file (the one given, else `ROUTER_TOKEN_FILE`), else of `ROUTER_TOKEN`. There is no flag for the token
/// itself: other users could see it.
pub(crate) fn read(file: Option<&Path>) -> Result<Option<String>, String> {
    read_secret("--token-file", file_in_use(file).as_deref(), "ROUTER_TOKEN")
}

/// The secret of a file that `flag` names, else of an environment variable.
pub(crate) fn read_secret(flag: &str, file: Option<&Path>, variable: &str) -> Result<Option<String>, String> {
    let Some(path) = file else {
        let token = std::env::var(variable).unwrap_or_default();
        return Ok((!token.trim().is_empty()).then(|| token.trim().to_owned()));
    };
    let complain = |problem: &str| format!("{flag} {}: {problem}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| complain(&error.to_string()))?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;

        let mode = std::fs::metadata(path).map_err(|error| complain(&error.to_string()))?.permissions().mode();
        if mode & 0o007 != 0 {
            return Err(complain(&format!("open to everybody (mode {:03o}); chmod 600 it", mode & 0o777)));
        }
    }
    match text.trim() {
        "" => Err(complain("empty; expected the token alone in the file")),
        token => Ok(Some(token.to_owned())),
    }
}

fn file_in_use(given: Option<&Path>) -> Option<PathBuf> {
    let from_environment = || std::env::var_os("ROUTER_TOKEN_FILE").filter(|name| !name.is_empty()).map(PathBuf::from);
    given.map(Path::to_owned).or_else(from_environment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_wins_and_a_bad_one_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        assert!(read(Some(&path)).unwrap_err().starts_with("--token-file "));
        std::fs::write(&path, "secret-secret-secret\n").unwrap();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
            assert!(read(Some(&path)).unwrap_err().contains("chmod 600"));
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        assert_eq!(read(Some(&path)).unwrap().as_deref(), Some("secret-secret-secret"));
        std::fs::write(&path, " \n").unwrap();
        assert!(!read(Some(&path)).unwrap_err().contains("secret"));
    }
}
