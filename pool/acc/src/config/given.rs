//! What a program says of the pool, and what the environment says.

use super::{AUTHORITIES_VARIABLE, BROKERS_VARIABLE, Config, NODE_VARIABLE, Scheme, TOKEN_FILE_VARIABLE};
use crate::error::Error;
use std::path::PathBuf;

/// What a program itself says of the pool; the environment says the rest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Given {
    /// Addresses of the brokers, as in [`BROKERS_VARIABLE`].
    pub brokers: Option<String>,
    /// File of the token, as in [`TOKEN_FILE_VARIABLE`].
    pub token_file: Option<PathBuf>,
    /// File of the authorities of brokers behind `https://`, as in [`AUTHORITIES_VARIABLE`].
    pub ca: Option<PathBuf>,
    /// Node of the process, as in [`NODE_VARIABLE`].
    pub node: Option<String>,
}

impl Given {
    /// The configuration.
    ///
    /// # Errors
    /// [`Error::Config`] if no broker is named, an address is none, or brokers have TLS and no authority is named.
    pub fn or_environment(self) -> Result<Config, Error> {
        let text = |variable| std::env::var(variable).ok().filter(|text: &String| !text.is_empty());
        let path = |variable| std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from);
        let brokers = self.brokers.or_else(|| text(BROKERS_VARIABLE)).unwrap_or_default();
        let config = Config::of(&brokers)?;
        let ca = self.ca.or_else(|| path(AUTHORITIES_VARIABLE));
        if ca.is_none()
            && let Some(broker) = config.brokers.iter().find(|broker| broker.scheme == Scheme::Https)
        {
            return Err(Error::Config(format!(
                "the broker {broker} has TLS: set {AUTHORITIES_VARIABLE} to the file of its authority (PEM)"
            )));
        }
        let token_file = self.token_file.or_else(|| path(TOKEN_FILE_VARIABLE));
        let node = self.node.or_else(|| text(NODE_VARIABLE)).unwrap_or_else(|| "localhost".to_owned());
        Ok(Config { token_file, ca, node: Some(node), ..config })
    }
}
