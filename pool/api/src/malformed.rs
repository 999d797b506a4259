//! The error of a message that breaks the protocol.

/// The reason why a message from the wire is none of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A field or a variant is missing, or has a number that this version does not know.
    #[error("{0} is missing or unknown")]
    Missing(&'static str),
    /// A field of bytes has another length.
    #[error("{field} has {length} bytes instead of {expected}")]
    Length {
        /// The field.
        field: &'static str,
        /// Number of bytes in the field.
        length: usize,
        /// The length that it must have.
        expected: usize,
    },
    /// A text or a list is too long.
    #[error("{field} has a length of {length}, and {most} is the most")]
    TooLong {
        /// The field.
        field: &'static str,
        /// Bytes of the text, or elements of the list.
        length: usize,
        /// The maximum.
        most: usize,
    },
    /// A name is empty, or has a character other than `A-Za-z0-9._-/:@`.
    #[error("{0} is no name")]
    Name(&'static str),
    /// A number is out of its range.
    #[error("{0} is out of range")]
    Range(&'static str),
    /// The stream does not begin with a Hello, or has a second one.
    #[error("a Hello comes first, and only then")]
    Hello,
}
