//! The last answer of each replica: that it took a state, and the intervals that it demands. Replicas of the endpoint
//! picker demand no interval between writes of the annotation, which the extender needs as well. An answer holds for
//! [`ACKNOWLEDGED_FOR`], so that the restart of a replica does not make thousands of nodes write their annotations.

use fpga_core::pacing;
use fpga_core::units::Millis;
use fpga_node_stream::limits::ACKNOWLEDGED_FOR;
use fpga_node_stream::v1::Answer;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tonic::transport::Uri;

/// The last answer of each replica.
#[derive(Debug, Default)]
pub struct Acknowledged(Mutex<HashMap<Uri, Word>>);

#[derive(Debug, Clone, Copy)]
struct Word {
    at: Instant,
    /// `None` if the replica has no say in it.
    write_interval: Option<Millis>,
    update_interval: Millis,
}

impl Acknowledged {
    /// Records the answer of `replica`, which took a state at `at`.
    pub fn note(&self, replica: &Uri, answer: &Answer, at: Instant) {
        let word = Word {
            at,
            write_interval: (answer.write_interval_ms > 0)
                .then(|| pacing::believed_write_interval(Millis(answer.write_interval_ms))),
            update_interval: pacing::believed_update_interval(Millis(answer.update_interval_ms)),
        };
        let mut words = self.words();
        words.retain(|_, word| word.holds(at));
        words.insert(replica.clone(), word);
    }

    /// The interval between writes of the annotation: the longest that a replica demands; `None` if no replica
    /// that demands one has the node's state by stream.
    pub fn write_interval(&self, now: Instant) -> Option<Duration> {
        let words = self.words();
        let held = words.values().filter(|word| word.holds(now));
        held.filter_map(|word| word.write_interval).max().map(Duration::from)
    }

    /// The minimum interval between updates.
    pub fn update_interval(&self, now: Instant) -> Duration {
        let words = self.words();
        let held = words.values().filter(|word| word.holds(now));
        held.map(|word| word.update_interval).max().unwrap_or(pacing::MIN_UPDATE_INTERVAL).into()
    }

    fn words(&self) -> MutexGuard<'_, HashMap<Uri, Word>> {
        self.0.lock()
    }
}

impl Word {
    fn holds(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) <= ACKNOWLEDGED_FOR
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn told(write: u64, update: u64) -> Answer {
        Answer { write_interval_ms: write, update_interval_ms: update, ..Answer::default() }
    }

    #[test]
    fn the_longest_interval_of_those_who_still_speak_holds() {
        let acknowledged = Acknowledged::default();
        let (a, b): (Uri, Uri) = ("http://a:1".parse().unwrap(), "http://b:1".parse().unwrap());
        let begin = Instant::now();
        assert_eq!(acknowledged.write_interval(begin), None);
        assert_eq!(acknowledged.update_interval(begin), Duration::from_millis(450));
        acknowledged.note(&a, &told(250_000, 500), begin);
        let later = begin + Duration::from_secs(10);
        acknowledged.note(&b, &told(100_000, 450), later);
        assert_eq!(acknowledged.write_interval(later), Some(Duration::from_secs(250)));
        assert_eq!(acknowledged.update_interval(later), Duration::from_millis(500));
        let without_a = later + Duration::from_secs(6);
        assert_eq!(acknowledged.write_interval(without_a), Some(Duration::from_secs(100)));
        assert_eq!(acknowledged.write_interval(without_a + Duration::from_secs(10)), None);
    }

    #[test]
    fn a_replica_that_demands_no_interval_between_writes_leaves_the_annotation_as_it_is() {
        let acknowledged = Acknowledged::default();
        let now = Instant::now();
        acknowledged.note(&"http://picker:1".parse().unwrap(), &told(0, 700), now);
        assert_eq!(acknowledged.write_interval(now), None);
        assert_eq!(acknowledged.update_interval(now), Duration::from_millis(700));
        acknowledged.note(&"http://extender:1".parse().unwrap(), &told(70_000, 450), now);
        assert_eq!(acknowledged.write_interval(now), Some(Duration::from_secs(70)));
    }

    #[test]
    fn no_word_of_a_replica_silences_a_node_or_makes_it_rush() {
        let acknowledged = Acknowledged::default();
        let now = Instant::now();
        acknowledged.note(&"http://a:1".parse().unwrap(), &told(u64::MAX, 0), now);
        assert!(acknowledged.write_interval(now).unwrap() <= Duration::from_secs(3600));
        assert_eq!(acknowledged.update_interval(now), Duration::from_millis(450));
    }
}
