//! Reads the session gateway's files (gateway.md §6, §9) once; their formats are [`router_policy::gateway_file`]. A
//! complaint names its flag, its file and the field, and repeats nothing of a key store.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use router_policy::gateway_file::control_file::{self, Content};
use router_policy::gateway_file::key_store::{self, Record};

/// Reads a key store, private to its owner.
pub(super) fn key_store(path: &Path) -> Result<Vec<Record>, Vec<String>> {
    let bytes = read(path, key_store::MAX_BYTES, true).map_err(|problem| vec![problem]);
    bytes.and_then(|bytes| key_store::parse(&bytes)).map_err(|problems| named("--key-store", path, problems))
}

/// Reads a control file.
pub(super) fn control_file(path: &Path) -> Result<Content, Vec<String>> {
    let bytes = read(path, control_file::MAX_BYTES, false).map_err(|problem| vec![problem]);
    bytes.and_then(|bytes| Content::parse(&bytes)).map_err(|problems| named("--control-file", path, problems))
}

fn named(flag: &str, path: &Path, problems: Vec<String>) -> Vec<String> {
    problems.into_iter().map(|problem| format!("{flag} {}: {problem}", path.display())).collect()
}

fn read(path: &Path, max: u64, is_private: bool) -> Result<Vec<u8>, String> {
    let io = |error: std::io::Error| error.to_string();
    let file = File::open(path).map_err(io)?;
    let mode = file.metadata().map_err(io)?.mode() & 0o777;
    if is_private && mode & 0o077 != 0 {
        return Err(format!("open to other users (mode {mode:03o}); chmod 600 it"));
    }
    let mut bytes = Vec::new();
    let length = file.take(max + 1).read_to_end(&mut bytes).map_err(io)?;
    if length as u64 > max {
        return Err(format!("larger than {max} bytes"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_store_is_private_and_every_complaint_names_its_flag() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys.json");
        let missing = key_store(&path).err().unwrap();
        assert!(missing[0].starts_with(&format!("--key-store {}: No such file", path.display())), "{missing:?}");
        std::fs::write(&path, "{\"version\": 1,\n \"records\": [}").unwrap();
        let mode = |mode| std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        mode(0o640);
        assert!(key_store(&path).err().unwrap()[0].ends_with("open to other users (mode 640); chmod 600 it"));
        mode(0o600);
        let text = key_store(&path).err().unwrap();
        assert_eq!(text, [format!("--key-store {}: not JSON: line 2, column 14", path.display())]);
        assert!(control_file(&path).unwrap_err()[0].starts_with("--control-file "));
        std::fs::write(&path, " ".repeat(1 << 20) + "{}").unwrap();
        assert!(control_file(&path).unwrap_err()[0].ends_with("larger than 1048576 bytes"));
    }
}
