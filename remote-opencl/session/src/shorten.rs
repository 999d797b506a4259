//! Texts of unknown length in messages of bounded length.

/// The text if it has at most `max_bytes`. Otherwise its beginning, about as long, and a note of how much was left
/// out.
#[must_use]
pub fn shorten(mut text: String, max_bytes: usize) -> String {
    if text.len() > max_bytes {
        let end = (0..=max_bytes).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        let left_out = text.len() - end;
        text.truncate(end);
        text.push_str(&format!(" [{left_out} more bytes were left out]"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_keeps_its_beginning_and_tells_how_much_was_left_out() {
        assert_eq!(shorten("short".to_owned(), 5), "short");
        assert_eq!(shorten("longer".to_owned(), 4), "long [2 more bytes were left out]");
        assert_eq!(shorten("a\u{20ac}b".to_owned(), 2), "a [4 more bytes were left out]");
    }
}
