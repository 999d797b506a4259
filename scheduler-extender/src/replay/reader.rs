//! Reads the lines of a file, each of bounded length.

use std::io::{self, BufRead, Read as _};

/// Longest line that is accepted, in bytes. A decision over 100,000 nodes has about 2 MB.
const MAX_LINE_BYTES: u64 = 64 << 20;

/// Reads a file line by line.
pub(super) struct Reader<R> {
    file: R,
    buffer: Vec<u8>,
    number: usize,
}

/// A line of the file.
pub(super) struct Line<'r> {
    /// Number of the line, from 1.
    pub(super) number: usize,
    /// Whether the line ends in a newline; the last line of a file that was cut off does not.
    pub(super) is_whole: bool,
    /// The text of the line.
    pub(super) text: &'r str,
}

impl<R: BufRead> Reader<R> {
    pub(super) fn new(file: R) -> Self {
        Self { file, buffer: Vec::new(), number: 0 }
    }

    /// The next line that is not empty.
    pub(super) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        loop {
            self.buffer.clear();
            let read = (&mut self.file).take(MAX_LINE_BYTES).read_until(b'\n', &mut self.buffer)?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            if read as u64 == MAX_LINE_BYTES && !self.buffer.ends_with(b"\n") {
                return Err(invalid(format!("line {} is too long", self.number)));
            }
            if !self.buffer.trim_ascii().is_empty() {
                break;
            }
        }
        let is_whole = self.buffer.ends_with(b"\n");
        // The end of a cut-off file may split a character.
        let text = match std::str::from_utf8(&self.buffer) {
            Ok(text) => text,
            Err(_) if !is_whole => "",
            Err(_) => return Err(invalid(format!("line {} is not UTF-8", self.number))),
        };
        Ok(Some(Line { number: self.number, is_whole, text }))
    }
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}
