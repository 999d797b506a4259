//! The workloads that were moved off a node a moment ago (S-11): their pods had better go elsewhere for a while, or a
//! move would bring nothing.
//!
//! The registry writes them into an annotation of the node, [`MovedOffAnnotation`], before it evicts a pod. Decisions
//! read [`MovedOff`], whose moments are those of the reader's own clock.

use crate::node_state::of_any_version;
use crate::units::{Millis, Moment, MonotonicTime, WallTime};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// Node annotation, written by the registry: the workloads that are placed elsewhere for a while.
pub const MOVED_OFF_ANNOTATION: &str = "fpga-scheduling.io/moved-off";
/// Maximum number of controllers in an annotation.
pub const MAX_MOVED_OFF: usize = 16;
/// Longest time that a controller is kept off a node, whatever the annotation says.
pub const MAX_MOVED_OFF_TIME: Millis = Millis::from_secs(3_600);
/// Maximum length of an annotation, in bytes.
const MAX_BYTES: usize = 8_192;

/// The keys of any version.
fn controllers<'de, D, V>(deserializer: D) -> Result<BTreeMap<String, V>, D::Error>
where
    D: Deserializer<'de>,
    V: Deserialize<'de>,
{
    let found = BTreeMap::<String, V>::deserialize(deserializer)?;
    Ok(found.into_iter().map(|(controller, until)| (of_any_version(controller), until)).collect())
}

/// The controllers of an annotation, as [`controller`](crate::node_state::controller) names them, each with the moment
/// until which its pods are kept off. Text form: a JSON object of milliseconds since the Unix epoch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MovedOffAnnotation(#[serde(deserialize_with = "controllers")] BTreeMap<String, WallTime>);

/// The controllers whose pods are kept off a node, each with the moment until which they are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MovedOff(#[serde(deserialize_with = "controllers")] BTreeMap<String, MonotonicTime>);

/// The annotation has [`MAX_MOVED_OFF`] other controllers already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{MAX_MOVED_OFF} workloads are kept off the node already")]
pub struct TooManyMovedOff;

impl MovedOffAnnotation {
    /// The annotation with this text. A text that can't be understood, or is too long, keeps nobody off.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        if text.len() > MAX_BYTES {
            return Self::default();
        }
        let parsed: Self = serde_json::from_str(text).unwrap_or_default();
        if parsed.0.len() > MAX_MOVED_OFF { Self::default() } else { parsed }
    }

    /// The annotation with one more controller, and without those whose time is over.
    ///
    /// # Errors
    /// [`TooManyMovedOff`]
    pub fn with(self, controller: String, until: WallTime, now: WallTime) -> Result<Self, TooManyMovedOff> {
        let mut left = self.without_ended(now);
        left.0.insert(controller, until);
        if left.0.len() > MAX_MOVED_OFF { Err(TooManyMovedOff) } else { Ok(left) }
    }

    /// The annotation without this controller.
    #[must_use]
    pub fn without(mut self, controller: &str) -> Self {
        self.0.remove(controller);
        self
    }

    /// The annotation without those controllers whose time is over.
    #[must_use]
    pub fn without_ended(mut self, now: WallTime) -> Self {
        self.0.retain(|_, until| *until > now && *until - now <= MAX_MOVED_OFF_TIME);
        self
    }

    /// Whether it has no controller.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Its text; `None` if it has no controller.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        if self.is_empty() { None } else { serde_json::to_string(self).ok() }
    }

    /// What it means at the moment `at` for decisions.
    #[must_use]
    pub fn at(&self, at: Moment) -> MovedOff {
        let left = self.0.iter().filter(|(_, until)| **until > at.wall);
        let left = left.map(|(controller, until)| {
            (controller.clone(), at.now + (*until - at.wall).min(MAX_MOVED_OFF_TIME))
        });
        MovedOff(left.collect())
    }
}

impl MovedOff {
    /// Whether nobody is kept off.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the pods of this [`controller`](crate::node_state::controller) are kept off.
    #[must_use]
    pub fn has(&self, controller: &str, now: MonotonicTime) -> bool {
        self.0.get(controller).is_some_and(|until| now < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: WallTime = WallTime(1_000_000);

    fn moment(wall: WallTime) -> Moment {
        Moment { now: MonotonicTime(50), wall }
    }

    #[test]
    fn a_controller_is_kept_off_until_its_time_is_over() {
        let written = MovedOffAnnotation::default().with("rs".into(), NOW + Millis(100), NOW).unwrap();
        let text = written.text().unwrap();
        assert_eq!(text, r#"{"rs":1000100}"#);
        let read = MovedOffAnnotation::parse(&text).at(moment(NOW));
        assert!(read.has("rs", MonotonicTime(149)) && !read.has("rs", MonotonicTime(150)));
        assert!(!read.has("other", MonotonicTime(50)));
        assert!(MovedOffAnnotation::parse(&text).at(moment(NOW + Millis(100))).is_empty());
        assert_eq!(written.clone().without("other"), written);
        assert!(written.clone().without("rs").is_empty());
        assert_eq!(written.without_ended(NOW + Millis(100)).text(), None);
    }

    #[test]
    fn an_annotation_of_version_0_1_keeps_the_same_controllers_off_and_is_written_without_their_names() {
        let read = MovedOffAnnotation::parse(r#"{"shop/rs":1000100}"#);
        let controller = crate::node_state::controller("shop", "rs");
        assert!(read.at(moment(NOW)).has(&controller, MonotonicTime(50)));
        assert_eq!(read.text().unwrap(), format!(r#"{{"{controller}":1000100}}"#));
        assert!(read.without(&controller).is_empty());
    }

    #[test]
    fn no_annotation_keeps_anybody_off_for_good_and_garbage_keeps_off_nobody() {
        let for_good = MovedOffAnnotation::parse(r#"{"rs":18446744073709551615}"#);
        let read = for_good.at(moment(NOW));
        let end = MonotonicTime(50) + MAX_MOVED_OFF_TIME;
        assert!(read.has("rs", end - Millis(1)) && !read.has("rs", end));
        assert!(for_good.without_ended(NOW).is_empty());
        let many: Vec<String> = (0..=MAX_MOVED_OFF).map(|i| format!(r#""a/{i}":2000000"#)).collect();
        let many = format!("{{{}}}", many.join(","));
        for text in ["", "7", "[]", r#"{"a":"b"}"#, r#"{"a":-1}"#, &many, &" ".repeat(MAX_BYTES + 1)] {
            assert!(MovedOffAnnotation::parse(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn no_more_controllers_are_written_than_are_read() {
        let full = (0..MAX_MOVED_OFF).fold(MovedOffAnnotation::default(), |all, i| {
            all.with(format!("{i}"), NOW + Millis(1), NOW).unwrap()
        });
        assert_eq!(MovedOffAnnotation::parse(&full.text().unwrap()), full);
        assert_eq!(full.clone().with("x".into(), NOW + Millis(9), NOW), Err(TooManyMovedOff));
        assert!(full.with("x".into(), NOW + Millis(9), NOW + Millis(1)).is_ok(), "the others' time is over");
    }
}
