//! How long a stream lasts after its peer has proved who it is: the rule of all our long streams.

use std::time::Duration;

/// Maximum duration of a stream. Its peer then opens another one, and shows its token and certificate again. So a
/// token that was revoked, or a pod that was deleted, is believed for an hour at most.
pub const PROVED_FOR: Duration = Duration::from_secs(3600);
/// Number of parts into which the ends of streams are spread.
const PARTS: u32 = 64;

/// Duration of the stream with this number: three quarters of [`PROVED_FOR`] or more. Streams that began together, as
/// after the start of a service, end at different times, so that their tokens are not all checked at the same time.
#[must_use]
pub fn duration(stream: u64) -> Duration {
    let part = u32::try_from(stream % u64::from(PARTS)).unwrap_or(0);
    PROVED_FOR - PROVED_FOR / 4 * part / PARTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_that_began_together_end_at_different_times_within_an_hour() {
        let durations: std::collections::BTreeSet<Duration> = (100..164).map(duration).collect();
        assert_eq!(durations.len(), 64);
        assert!(durations.iter().all(|lasts| (PROVED_FOR / 4 * 3..=PROVED_FOR).contains(lasts)));
        assert_eq!((duration(0), duration(u64::MAX) < PROVED_FOR), (PROVED_FOR, true));
    }
}
