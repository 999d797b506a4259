//! Durations in the form of command-line flags: `5m`, `250ms`, `1h30m`.

use std::time::Duration;

/// The text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no duration; write a number with a unit, for example `250ms`, `10s`, `5m` or `1h30m`")]
pub struct InvalidDuration(String);

/// Parses a duration such as `250ms`, `10s`, `5m` or `1h30m`.
///
/// # Errors
/// [`InvalidDuration`] if `text` is empty, has an unknown unit, or is too long a time.
pub fn parse(text: &str) -> Result<Duration, InvalidDuration> {
    let invalid = || InvalidDuration(text.to_owned());
    let mut rest = text.trim();
    let mut sum = Duration::ZERO;
    if rest.is_empty() {
        return Err(invalid());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(invalid)?;
        let number: u64 = rest[..digits].parse().map_err(|_| invalid())?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let millis = match &rest[..unit] {
            "ms" => Some(number),
            "s" => number.checked_mul(1_000),
            "m" => number.checked_mul(60_000),
            "h" => number.checked_mul(3_600_000),
            _ => None,
        };
        sum = sum.checked_add(Duration::from_millis(millis.ok_or_else(invalid)?)).ok_or_else(invalid)?;
        rest = &rest[unit..];
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, millis) in
            [("250ms", 250), ("10s", 10_000), ("5m", 300_000), ("1h30m", 5_400_000), ("0s", 0)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in
            ["", "5", "m", "-5s", "5 m", "1.5s", "99999999999999999999s", "18446744073709551615h", "5d"]
        {
            assert!(parse(text).unwrap_err().to_string().contains("write"), "{text}");
        }
    }
}
