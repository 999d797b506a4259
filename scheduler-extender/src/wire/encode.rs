//! How answers are written.

use super::reply::Writer;

/// An answer that writes itself as JSON. Answers with thousands of names are written by hand: a name that needed no
/// unescaping when it was read needs no escaping.
pub trait Encode {
    /// Appends the answer to `out`.
    ///
    /// # Errors
    /// None so far; the signature is serde_json's.
    fn encode(&self, out: &mut Writer<'_>) -> Result<(), serde_json::Error>;
}
