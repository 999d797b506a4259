//! What this process shows a device manager to prove whose it is: a token, and a certificate where there is TLS.
//!
//! Both come from the environment, are read anew for each connection, so that they may be replaced while the program
//! runs, and are shown to nobody else.

use fpga_net::tls::ClientFiles;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// Names a file with the token.
pub const TOKEN_FILE_VARIABLE: &str = "FPGA_TOKEN_FILE";
/// Holds the token itself, where there is no file.
pub const TOKEN_VARIABLE: &str = "FPGA_TOKEN";
/// Names a file with the authorities of managers: with it managers at `tcp://` addresses are spoken to by TLS.
pub const CA_VARIABLE: &str = "FPGA_TLS_CA";
/// Names a file with the certificate of this client.
pub const CERTIFICATE_VARIABLE: &str = "FPGA_TLS_CERT";
/// Names a file with its private key.
pub const KEY_VARIABLE: &str = "FPGA_TLS_KEY";

/// Longest token; a manager takes none longer.
const MAX_TOKEN_BYTES: u64 = 16 << 10;

/// The token; empty where there is none.
///
/// # Errors
/// If the file that is named can't be read.
pub(crate) fn token() -> io::Result<String> {
    match std::env::var_os(TOKEN_FILE_VARIABLE).filter(|path| !path.is_empty()) {
        Some(path) => token_in(Path::new(&path)),
        None => Ok(std::env::var(TOKEN_VARIABLE).unwrap_or_default()),
    }
}

fn token_in(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let named = |error: io::Error| {
        io::Error::new(error.kind(), format!("{TOKEN_FILE_VARIABLE}={}: {error}", path.display()))
    };
    let file = std::fs::File::open(path).map_err(named)?;
    file.take(MAX_TOKEN_BYTES + 2).read_to_string(&mut text).map_err(named)?;
    Ok(text.trim().to_owned())
}

/// The files for TLS; nothing where it isn't wanted.
pub(crate) fn tls() -> Option<ClientFiles> {
    let path = |variable| std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from);
    let identity = path(CERTIFICATE_VARIABLE).zip(path(KEY_VARIABLE));
    path(CA_VARIABLE).map(|ca| ClientFiles { ca, identity })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_without_the_line_end_and_a_missing_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let error = token_in(&path).unwrap_err().to_string();
        assert!(
            error.contains(&path.display().to_string()) && error.contains(TOKEN_FILE_VARIABLE),
            "{error}"
        );
        std::fs::write(&path, "secret-secret-secret\n").unwrap();
        assert_eq!(token_in(&path).unwrap(), "secret-secret-secret");
    }
}
