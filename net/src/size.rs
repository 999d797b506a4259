//! Sizes in the notation of command-line flags: `512MiB`.

/// The text is not a size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no size; write a number and `KiB`, `MiB` or `GiB`, for example `512MiB`")]
pub struct InvalidSize(String);

/// Parses a size such as `512MiB`, in bytes.
///
/// # Errors
/// [`InvalidSize`] if `text` has no number, no known unit, or is 16 EiB or more.
pub fn parse(text: &str) -> Result<u64, InvalidSize> {
    let invalid = || InvalidSize(text.to_owned());
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(invalid)?;
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit {
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err(invalid()),
    };
    number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor)).ok_or_else(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        assert_eq!(parse("2GiB"), Ok(2 << 30));
        assert_eq!(parse("64KiB"), Ok(64 << 10));
    }

    #[test]
    fn what_has_no_unit_or_no_number_is_refused_with_an_example() {
        for text in ["", "10", "MiB", "10MB", "99999999999GiB"] {
            assert!(parse(text).unwrap_err().to_string().contains("`512MiB`"), "{text}");
        }
    }
}
