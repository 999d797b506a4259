//! The interface of an accelerator on the command line.

use anyhow::{Context as _, Result};
use fpga_accelerators::{Accelerator, Interface};
use std::convert::Infallible;
use std::path::PathBuf;
use std::str::FromStr;

/// Where an interface is said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InterfaceArg {
    /// By a shipped accelerator.
    Shipped(Accelerator),
    /// In a file.
    File(PathBuf),
}

impl InterfaceArg {
    /// The interface.
    ///
    /// # Errors
    /// The file can't be read, or has no interface.
    pub fn read(self) -> Result<Interface> {
        match self {
            Self::Shipped(accelerator) => Ok(accelerator.interface()),
            Self::File(path) => {
                let names = Accelerator::ALL.map(Accelerator::name).join(", ");
                let text = std::fs::read_to_string(&path).with_context(|| {
                    format!("{} is neither a file that can be read nor one of {names}", path.display())
                })?;
                serde_json::from_str(&text)
                    .with_context(|| format!("{} has no interface of an accelerator", path.display()))
            }
        }
    }
}

impl FromStr for InterfaceArg {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let shipped = Accelerator::ALL.into_iter().find(|accelerator| accelerator.name() == text);
        Ok(shipped.map_or_else(|| Self::File(text.into()), Self::Shipped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_that_of_a_shipped_accelerator_or_of_a_file() {
        let Ok(shipped) = "sha-256".parse::<InterfaceArg>();
        assert_eq!(shipped.read().unwrap(), Accelerator::Sha256.interface());

        let file = tempfile::NamedTempFile::new().unwrap();
        let read = |text: &str| {
            std::fs::write(file.path(), text).unwrap();
            InterfaceArg::File(file.path().to_owned()).read()
        };
        let text = serde_json::to_string(&Accelerator::Fft.interface()).unwrap();
        assert_eq!(read(&text).unwrap(), Accelerator::Fft.interface());
        let error = format!("{:#}", read(&text.replace("8192", "0")).unwrap_err());
        assert!(error.contains("blockBytes 0 is not possible; write 1 to 4000000"), "{error}");

        let Ok(missing) = "sha-255".parse::<InterfaceArg>();
        let error = missing.read().unwrap_err().to_string();
        assert!(
            error.contains("neither a file that can be read nor one of aes-256-ctr, sha-256,"),
            "{error}"
        );
    }
}
