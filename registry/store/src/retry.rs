//! What follows when a try to fetch a bitstream fails: without I/O and without a clock.

use std::time::Duration;

/// Number of successive tries without progress after which a download ends. Whoever asks again begins another one,
/// which goes on from what has come.
const TRIES_WITHOUT_PROGRESS: u32 = 6;
/// Number of new bytes with which a try is progress.
const PROGRESS_BYTES: u64 = 64 * 1024;
/// Pause after the first failure; each further one without progress doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(4);

/// Why a try failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It may be otherwise a moment later.
    Passing,
    /// The bytes came too slowly, or none came.
    Slow,
    /// All bytes are there and have another digest. They were read at once, or a part of them in an earlier try.
    OtherBytes(Read),
    /// It will not be otherwise.
    Final,
}

/// How the bytes of a file were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read {
    AtOnce,
    InParts,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Go on with what has come, after this time.
    Resume(Duration),
    /// Throw away what has come, and begin anew.
    Restart,
    /// End, and keep what has come.
    Pause,
    /// End, and throw away what has come.
    End,
}

/// The tries of a download.
#[derive(Debug, Default)]
pub(crate) struct Tries {
    without_progress: u32,
    restarted: bool,
}

impl Tries {
    /// What follows from the failure of a try that has read `new_bytes` bytes.
    pub(crate) fn after(&mut self, failure: Failure, new_bytes: u64) -> Next {
        match failure {
            // The source may have had other bytes in an earlier try, or the disk has lost some.
            Failure::OtherBytes(Read::InParts) if !self.restarted => {
                self.restarted = true;
                Next::Restart
            }
            Failure::OtherBytes(_) | Failure::Final => Next::End,
            Failure::Passing | Failure::Slow => {
                let is_progress = failure == Failure::Passing && new_bytes >= PROGRESS_BYTES;
                self.without_progress = if is_progress { 1 } else { self.without_progress + 1 };
                if self.without_progress >= TRIES_WITHOUT_PROGRESS {
                    return Next::Pause;
                }
                let pause = FIRST_PAUSE * 2_u32.saturating_pow(self.without_progress - 1);
                Next::Resume(pause.min(LONGEST_PAUSE))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_break_is_followed_by_tries_at_growing_pauses_which_begin_anew_after_progress() {
        let mut tries = Tries::default();
        let mut pauses = |bytes| match tries.after(Failure::Passing, bytes) {
            Next::Resume(pause) => pause.as_millis(),
            next => panic!("{next:?}"),
        };
        assert_eq!([0; 4].map(&mut pauses), [250, 500, 1000, 2000]);
        assert_eq!([PROGRESS_BYTES, 0, 1, 0, 0].map(&mut pauses), [250, 500, 1000, 2000, 4000]);
        assert_eq!(tries.after(Failure::Passing, 0), Next::Pause);
    }

    #[test]
    fn who_sends_slowly_or_a_byte_a_time_is_left_however_much_that_was() {
        for (failure, new_bytes) in [(Failure::Slow, 1 << 30), (Failure::Passing, 1)] {
            let mut tries = Tries::default();
            for _ in 1..TRIES_WITHOUT_PROGRESS {
                assert!(matches!(tries.after(failure, new_bytes), Next::Resume(_)));
            }
            assert_eq!(tries.after(failure, new_bytes), Next::Pause);
        }
    }

    #[test]
    fn other_bytes_are_tried_once_more_from_the_beginning_if_they_came_in_parts() {
        let mut tries = Tries::default();
        assert_eq!(tries.after(Failure::OtherBytes(Read::InParts), 9), Next::Restart);
        assert_eq!(tries.after(Failure::OtherBytes(Read::InParts), 9), Next::End);
        assert_eq!(Tries::default().after(Failure::OtherBytes(Read::AtOnce), 9), Next::End);
        assert_eq!(Tries::default().after(Failure::Final, 9), Next::End);
    }
}
