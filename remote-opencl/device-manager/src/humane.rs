//! Durations and sizes in the notation of command lines: `10ms`, `5m`, `512MiB`.

use std::time::Duration;

/// The error for a text that is not a duration or size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotHumane {
    /// The text is not a duration.
    #[error("{0:?} is no duration; write a number and `us`, `ms`, `s`, `m` or `h`, for example `10ms`")]
    Duration(String),
    /// The text is not a size.
    #[error("{0:?} is no size; write a number and `KiB`, `MiB` or `GiB`, for example `512MiB`")]
    Size(String),
}

/// Reads a duration such as `10ms`; a plain `0` needs no unit.
///
/// # Errors
/// [`NotHumane::Duration`].
pub fn duration(text: &str) -> Result<Duration, NotHumane> {
    let units = [("us", 1), ("ms", 1000), ("s", 1_000_000), ("m", 60_000_000), ("h", 3_600_000_000)];
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    number_and_unit(text, &units)
        .map(Duration::from_micros)
        .ok_or_else(|| NotHumane::Duration(text.to_owned()))
}

/// Reads a size such as `512MiB`, in bytes.
///
/// # Errors
/// [`NotHumane::Size`].
pub fn size(text: &str) -> Result<u64, NotHumane> {
    let units = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
    number_and_unit(text, &units).ok_or_else(|| NotHumane::Size(text.to_owned()))
}

fn number_and_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let factor = units.iter().find(|(name, _)| *name == unit)?.1;
    number.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_are_read_as_people_write_them() {
        assert_eq!(duration("10ms"), Ok(Duration::from_millis(10)));
        assert_eq!(duration("250us"), Ok(Duration::from_micros(250)));
        assert_eq!(duration("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        assert_eq!(size("2GiB"), Ok(2 << 30));
    }

    #[test]
    fn what_has_no_unit_or_no_number_is_refused_with_an_example() {
        for text in ["", "10", "ms", "1.5s", "-1s", "10 ms", "99999999999999999999s", "9999999999999999h"] {
            assert!(duration(text).unwrap_err().to_string().contains("`10ms`"), "{text}");
        }
        for text in ["", "10", "10MB", "99999999999GiB"] {
            assert!(size(text).unwrap_err().to_string().contains("`512MiB`"), "{text}");
        }
    }
}
