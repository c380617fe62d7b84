//! Files beside the database that operators and older tools speak through (gateway.md §6, §9): the key store, the control
//! file and the backend state.
//!
//! What they say is parsed and printed by pure functions, here and in `router_policy::gateway_file`; [`crate::fleet`] acts on
//! it. They are private paths: none may overlap another ([`private_paths`]).

pub mod atomic_write;
pub mod backend_state;
pub mod bounded_read;
pub mod control_file;
pub mod file_access;
pub mod health;
pub mod key_store;
pub mod private_paths;

use std::path::PathBuf;

use router_policy::ids::RouteName;

use key_store::FileKey;
use private_paths::Guarded;

/// The files in use, checked.
#[derive(Clone, Default)]
pub struct FileConfig {
    /// Followed for client keys.
    pub key_store: Option<KeyStoreFile>,
    /// Followed and written: which backends are admitted.
    pub control_file: Option<RouteFile>,
    /// Written: how the backends are.
    pub backend_state: Option<RouteFile>,
    /// Everything that is read or written; none may become another.
    pub guarded: Vec<Guarded>,
}

/// The key store, with what it held when the configuration was checked.
#[derive(Clone)]
pub struct KeyStoreFile {
    /// Where it is.
    pub path: PathBuf,
    /// Its active keys.
    pub keys: Vec<FileKey>,
}

/// A file that speaks of one route.
#[derive(Clone)]
pub struct RouteFile {
    /// Where it is.
    pub path: PathBuf,
    /// The route.
    pub route: RouteName,
}
