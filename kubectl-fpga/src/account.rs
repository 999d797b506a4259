//! The service account whose tokens say who reads.

use std::fmt;
use std::str::FromStr;

/// A service account. Text form: `NAMESPACE/NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// The text is not an [`Account`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("write NAMESPACE/NAME of a service account, for example kube-fpga/fpga-reader")]
pub struct InvalidAccount;

impl FromStr for Account {
    type Err = InvalidAccount;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err(InvalidAccount),
        }
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_a_namespace_and_a_name() {
        let account: Account = "team/reader".parse().unwrap();
        assert_eq!(account.to_string(), "team/reader");
        for text in ["", "reader", "/reader", "team/", "a/b/c"] {
            let error = text.parse::<Account>().unwrap_err().to_string();
            assert!(error.contains("kube-fpga/fpga-reader"), "{text}: {error}");
        }
    }
}
