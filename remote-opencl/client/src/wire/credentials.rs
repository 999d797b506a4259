//! The credentials that this process shows to a device manager: a token, and with TLS a certificate.
//!
//! Both come from the environment. They are read again for each connection, so that they can be replaced while the
//! program runs, and are shown to managers only.

use crate::wire::claim;
use fpga_net::tls::ClientFiles;
use fpga_net::token_file;
use fpga_protocol::limits::MAX_TOKEN_BYTES;
use std::io;
use std::path::{Path, PathBuf};

/// Environment variable with the path of a file that contains the token.
pub(crate) const TOKEN_FILE_VARIABLE: &str = "FPGA_TOKEN_FILE";
/// Environment variable with the token itself; used if there is no file.
pub(crate) const TOKEN_VARIABLE: &str = "FPGA_TOKEN";
/// Environment variable with the path of the certificates of managers' authorities. If it is set, connections to
/// `tcp://` addresses use TLS.
pub(crate) const CA_VARIABLE: &str = "FPGA_TLS_CA";
/// Environment variable with the path of this client's certificate.
pub(crate) const CERTIFICATE_VARIABLE: &str = "FPGA_TLS_CERT";
/// Environment variable with the path of the certificate's private key.
pub(crate) const KEY_VARIABLE: &str = "FPGA_TLS_KEY";

/// The token of the container's claim, or of the environment; empty if there is none.
///
/// # Errors
/// The token's file can't be read.
pub(crate) fn token() -> io::Result<String> {
    let named = || std::env::var_os(TOKEN_FILE_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
    match claim::token_file().or_else(named) {
        Some(path) => token_in(&path),
        None => Ok(std::env::var(TOKEN_VARIABLE).unwrap_or_default()),
    }
}

fn token_in(path: &Path) -> io::Result<String> {
    token_file::read_text(path, MAX_TOKEN_BYTES)
        .map_err(|error| io::Error::new(error.kind(), format!("the token file {}: {error}", path.display())))
}

/// The files for TLS; `None` if TLS isn't configured.
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
        assert!(error.contains(&format!("the token file {}", path.display())), "{error}");
        std::fs::write(&path, "secret-secret-secret\n").unwrap();
        assert_eq!(token_in(&path).unwrap(), "secret-secret-secret");
    }
}
