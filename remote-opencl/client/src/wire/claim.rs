//! The claim of a container: a folder that the node plugin mounts and that [`CLAIM_VARIABLE`] names, with the addresses
//! of the managers (`managers`, one per line) and the token for them (`token`).

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// Environment variable with the path of the folder. What it says replaces what other variables say of managers and
/// token.
pub(crate) const CLAIM_VARIABLE: &str = "FPGA_CLAIM_DIR";

/// Greatest size of the list of managers in bytes.
const MAX_LIST_BYTES: u64 = 64 << 10;

/// The folder; `None` if this process is in no container with a claim.
fn folder() -> Option<PathBuf> {
    std::env::var_os(CLAIM_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// The addresses of the claim's managers, separated by commas; `None` without a claim.
///
/// # Errors
/// The file can't be read.
pub(crate) fn managers() -> Option<io::Result<String>> {
    folder().map(|folder| managers_in(&folder))
}

/// Path of the file with the claim's token; `None` without a claim.
pub(crate) fn token_file() -> Option<PathBuf> {
    folder().map(|folder| folder.join("token"))
}

fn managers_in(folder: &Path) -> io::Result<String> {
    let path = folder.join("managers");
    let mut text = String::new();
    std::fs::File::open(&path).and_then(|file| file.take(MAX_LIST_BYTES).read_to_string(&mut text)).map_err(
        |error| io::Error::new(error.kind(), format!("{CLAIM_VARIABLE}: {}: {error}", path.display())),
    )?;
    Ok(text.lines().collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::address::parse_list;

    #[test]
    fn the_managers_of_a_claim_are_a_list_of_addresses_and_a_missing_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = managers_in(folder.path()).unwrap_err().to_string();
        assert!(error.contains(CLAIM_VARIABLE) && error.contains("managers"), "{error}");
        std::fs::write(folder.path().join("managers"), "unix:/run/a/dm.sock\nunix:/run/b/dm.sock\n").unwrap();
        let list = managers_in(folder.path()).unwrap();
        assert_eq!(parse_list(&list).unwrap().len(), 2);
    }
}
