//! Durations in the notation of command-line flags: `250us`, `10ms`, `5m`, `1h30m`.

use std::time::Duration;

/// The text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no duration; write a number and `us`, `ms`, `s`, `m` or `h`, for example `10ms`, `5m` or `1h30m`"
)]
pub struct InvalidDuration(String);

/// Parses a duration such as `250us`, `10ms`, `5m` or `1h30m`; a plain `0` needs no unit.
///
/// # Errors
/// [`InvalidDuration`] if `text` is empty, has an unknown unit, or is too long a time.
pub fn parse(text: &str) -> Result<Duration, InvalidDuration> {
    let invalid = || InvalidDuration(text.to_owned());
    let mut rest = text.trim();
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    let mut sum = Duration::ZERO;
    if rest.is_empty() {
        return Err(invalid());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(invalid)?;
        let number: u64 = rest[..digits].parse().map_err(|_| invalid())?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let part = match &rest[..unit] {
            "us" => Some(Duration::from_micros(number)),
            "ms" => Some(Duration::from_millis(number)),
            "s" => Some(Duration::from_secs(number)),
            "m" => number.checked_mul(60).map(Duration::from_secs),
            "h" => number.checked_mul(3_600).map(Duration::from_secs),
            _ => None,
        };
        sum = sum.checked_add(part.ok_or_else(invalid)?).ok_or_else(invalid)?;
        rest = &rest[unit..];
    }
    // Longer times have more milliseconds than 64 bits can count.
    if u64::try_from(sum.as_millis()).is_ok() { Ok(sum) } else { Err(invalid()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, micros) in [
            ("250us", 250),
            ("250ms", 250_000),
            ("10s", 10_000_000),
            ("5m", 300_000_000),
            ("1h30m", 5_400_000_000),
            ("1s500us", 1_000_500),
            ("0s", 0),
            ("0", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_micros(micros)), "{text}");
        }
    }

    #[test]
    fn what_has_no_unit_or_no_number_is_refused_with_an_example() {
        for text in [
            "",
            "5",
            "10",
            "m",
            "ms",
            "-5s",
            "5 m",
            "10 ms",
            "1.5s",
            "99999999999999999999s",
            "9999999999999999h",
            "18446744073709551615h",
            "5d",
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains("write") && error.contains("`10ms`"), "{text}");
        }
    }
}
