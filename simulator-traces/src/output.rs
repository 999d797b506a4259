//! Standard output.

use std::io::{self, ErrorKind, Write as _};

/// Writes to standard output. A closed pipe is not an error: the reader, such as `head`, has enough.
///
/// # Errors
/// Standard output can't be written to.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}
