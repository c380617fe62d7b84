//! Finds `routerctl`, building it first, so that no suite ever runs a stale one.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, bail};

/// The product binary, built once per test process in the profile that the tests were built in.
///
/// The build selects the whole workspace, so that dependencies have the features they have in `cargo test --workspace` and
/// nothing is compiled twice. `ROUTER_TEST_BINARY` names a binary to use as it is (to test a release).
///
/// # Errors
/// The build's own output, when it fails.
pub fn routerctl() -> anyhow::Result<PathBuf> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    BUILT.get_or_init(|| build().map_err(|error| format!("{error:#}"))).clone().map_err(anyhow::Error::msg)
}

fn build() -> anyhow::Result<PathBuf> {
    if let Some(given) = std::env::var_os("ROUTER_TEST_BINARY") {
        return Ok(PathBuf::from(given));
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--workspace", "--locked", "--quiet", "--bin", "routerctl", "--test", "sdk"]);
    cargo.args(["--message-format", "json-render-diagnostics"]);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    cargo.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    // What cargo sets for the test that runs now would make the build scripts of the inner build look changed.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("CARGO_") && name != "CARGO_HOME" && name != "CARGO_TARGET_DIR" || name == "LD_LIBRARY_PATH"
        {
            cargo.env_remove(name);
        }
    }
    let output = cargo.output().context("run cargo to build routerctl")?;
    if !output.status.success() {
        bail!("build routerctl: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let executable = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message.pointer("/target/name").is_some_and(|name| name == "routerctl"))
        .filter(|message| message.pointer("/profile/test").is_some_and(|is_test| is_test == false))
        .find_map(|message| message.get("executable")?.as_str().map(PathBuf::from));
    executable.context("cargo named no executable of routerctl")
}
