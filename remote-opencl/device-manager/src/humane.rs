//! Durations and sizes in the notation of command lines, which all services share: `10ms`, `5m`, `512MiB`.

use fpga_net::duration::InvalidDuration;
use fpga_net::size::InvalidSize;
use std::time::Duration;

/// The error for a text that is not a duration or size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotHumane {
    /// The text is not a duration.
    #[error(transparent)]
    Duration(#[from] InvalidDuration),
    /// The text is not a size.
    #[error(transparent)]
    Size(#[from] InvalidSize),
}

/// Reads a duration such as `10ms`; a plain `0` needs no unit.
///
/// # Errors
/// [`NotHumane::Duration`].
pub fn duration(text: &str) -> Result<Duration, NotHumane> {
    Ok(fpga_net::duration::parse(text)?)
}

/// Reads a size such as `512MiB`, in bytes.
///
/// # Errors
/// [`NotHumane::Size`].
pub fn size(text: &str) -> Result<u64, NotHumane> {
    Ok(fpga_net::size::parse(text)?)
}
