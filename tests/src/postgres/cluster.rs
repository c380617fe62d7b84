//! A private cluster: a folder, a port, and the server that runs on them.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use tempfile::TempDir;

use super::server::Server;
use super::{PostgresError, Result, io_error, program, run};

/// The database's superuser; not an account of the machine.
const DATABASE_USER: &str = "router";
/// Accounts to run as when the tests run as root, which Postgres refuses.
const UNPRIVILEGED: [&str; 2] = ["postgres", "nobody"];
/// A free port may be taken before the server has it.
const PORT_ATTEMPTS: usize = 3;

/// An account of the machine.
#[derive(Clone, Copy)]
struct Account {
    user: u32,
    group: u32,
}

pub(super) struct Cluster {
    // Dropped before the folder: the server writes there.
    server: Mutex<Server>,
    port: u16,
    account: Option<Account>,
    folder: TempDir,
}

impl Cluster {
    pub(super) fn start() -> Result<Self> {
        let folder =
            tempfile::Builder::new().prefix("router-postgres-").tempdir().map_err(io_error("make a folder"))?;
        let account = give_away(folder.path())?;
        let mut initdb = as_account(account.as_ref(), "initdb")?;
        initdb.args(["--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync", "--username", DATABASE_USER]);
        initdb.arg("--pgdata").arg(folder.path().join("data")).current_dir(folder.path());
        run(&mut initdb)?;

        let mut attempts = 0;
        loop {
            attempts += 1;
            let port = free_port()?;
            let command = || server_command(account.as_ref(), folder.path(), port);
            match Server::start(command, folder.path(), &url(port, "postgres")) {
                Ok(server) => return Ok(Self { server: Mutex::new(server), port, account, folder }),
                Err(_) if attempts < PORT_ATTEMPTS => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) fn url(&self, database: &str) -> String {
        url(self.port, database)
    }

    pub(super) fn stop(&self) -> Result<()> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).stop("INT")
    }

    pub(super) fn kill9(&self) -> Result<()> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).stop("KILL")
    }

    pub(super) fn restart(&self) -> Result<()> {
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        server.stop("INT")?;
        let command = || server_command(self.account.as_ref(), self.folder.path(), self.port);
        *server = Server::start(command, self.folder.path(), &self.url("postgres"))?;
        Ok(())
    }
}

fn url(port: u16, database: &str) -> String {
    format!("postgres://{DATABASE_USER}@127.0.0.1:{port}/{database}")
}

fn free_port() -> Result<u16> {
    let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    Ok(address.map_err(io_error("find a free port"))?.port())
}

/// Gives the folder to the account that the server will run as; `None` when that is ours.
fn give_away(folder: &Path) -> Result<Option<Account>> {
    let is_root = folder.metadata().map_err(io_error("look at the new folder"))?.uid() == 0;
    if !is_root {
        return Ok(None);
    }
    let accounts = std::fs::read_to_string("/etc/passwd").map_err(io_error("read /etc/passwd"))?;
    let found = UNPRIVILEGED.into_iter().find_map(|name| account(&accounts, name));
    let account = found.ok_or_else(|| PostgresError::Io {
        what: "find an account for the server".into(),
        source: io::Error::new(io::ErrorKind::NotFound, "neither postgres nor nobody is in /etc/passwd"),
    })?;
    chown(folder, Some(account.user), Some(account.group)).map_err(io_error("give the folder away"))?;
    Ok(Some(account))
}

fn account(passwd: &str, name: &str) -> Option<Account> {
    let line = passwd.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut ids = line.split(':').skip(2).map(|id| id.parse().ok());
    Some(Account { user: ids.next()??, group: ids.next()?? })
}

/// A Postgres program, as the account and ended by the kernel with the thread that starts it.
fn as_account(account: Option<&Account>, name: &'static str) -> Result<Command> {
    let binary = program(name)?;
    let Ok(setpriv) = program("setpriv") else {
        return match account {
            Some(_) => Err(PostgresError::NoBinaries { program: "setpriv" }),
            None => Ok(Command::new(binary)),
        };
    };
    let mut command = Command::new(setpriv);
    if let Some(Account { user, group }) = account {
        command.arg(format!("--reuid={user}")).arg(format!("--regid={group}")).arg("--clear-groups");
    }
    command.args(["--pdeathsig", "KILL", "--"]).arg(binary);
    Ok(command)
}

fn server_command(account: Option<&Account>, folder: &Path, port: u16) -> Result<Command> {
    let mut command = as_account(account, "postgres")?;
    command.arg("-D").arg(folder.join("data")).arg("-p").arg(port.to_string()).current_dir(folder);
    for setting in [
        "listen_addresses=127.0.0.1",
        "unix_socket_directories=",
        "fsync=off",
        "full_page_writes=off",
        "max_connections=200",
        "autovacuum=off",
    ] {
        command.args(["-c", setting]);
    }
    Ok(command)
}
