//! What the extender said of a node, and what that means some time later: it tells a node when the node changes, and the
//! reader counts the age.

use super::node_row::Told;
use fpga_core::node_labels::NodeLabels;
use fpga_core::signals::Signals;
use fpga_core::units::Millis;
use fpga_extender_api::{KnownState, NodeView};

/// The extender's view of a node. Times are in milliseconds since the epoch.
#[derive(Debug)]
pub struct Heard {
    view: NodeView,
    /// The signals of the view's state.
    signals: Option<Signals>,
    at_ms: u64,
}

impl Heard {
    /// A view that came at `now_ms`.
    #[must_use]
    pub fn new(view: NodeView, now_ms: u64) -> Self {
        let signals = view.known.as_ref().map(|known| Signals::of(&known.state));
        Self { view, signals, at_ms: now_ms }
    }

    /// The labels.
    #[must_use]
    pub fn labels(&self) -> &NodeLabels {
        &self.view.labels
    }

    /// The origin of the state, by its name.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.view.source
    }

    /// Why the node's annotation can't be read.
    #[must_use]
    pub fn problem(&self) -> Option<&str> {
        self.view.problem.as_deref()
    }

    /// `fresh`, `stale`, `absent` or `unreadable` at `now_ms`.
    #[must_use]
    pub fn freshness(&self, now_ms: u64) -> &str {
        match &self.view.known {
            Some(known)
                if self.view.freshness == "fresh"
                    && self.age(known, now_ms) > known.state.stale_after().0 =>
            {
                "stale"
            }
            _ => &self.view.freshness,
        }
    }

    /// The state with its age and its load at `now_ms`; `None` if the extender has no state.
    #[must_use]
    pub fn told(&self, now_ms: u64) -> Option<Told<'_>> {
        let (known, signals) = (self.view.known.as_ref()?, self.signals.as_ref()?);
        let age_ms = self.age(known, now_ms);
        let (then, now) = (signals.load_at(Millis(known.age_ms)), signals.load_at(Millis(age_ms)));
        // What has left the window since the extender counted.
        let (usage, reconfiguration) = (then.usage - now.usage, then.reconfiguration - now.reconfiguration);
        Some(Told {
            state: &known.state,
            age_ms,
            usage_ms: known.usage_ms.saturating_sub(usage.0),
            reconfiguration_ms: known.reconfiguration_ms.saturating_sub(reconfiguration.0),
        })
    }

    fn age(&self, known: &KnownState, now_ms: u64) -> u64 {
        known.age_ms.saturating_add(now_ms.saturating_sub(self.at_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_was_said_of_a_node_ages_as_it_would_at_the_extender() {
        let state = json!({
            "boot": 1, "seq": 1, "heartbeatMs": 10_000, "measuredAtMs": 1, "windowMs": 40_000, "usageMs": 6_000,
            "reconfigurationMs": 1_000,
            "window": {"bucketMs": 10_000, "usageMs": [0, 0, 2_000, 4_000], "reconfigurationMs": [0, 0, 0, 1_000]},
        });
        let view = json!({"name": "n", "freshness": "fresh", "source": "stream",
            "known": {"ageMs": 0, "usageMs": 6_000, "reconfigurationMs": 1_000, "state": state}});
        let heard = Heard::new(serde_json::from_value(view).unwrap(), 1_000_000);
        let at = |after_ms: u64| {
            let told = heard.told(1_000_000 + after_ms).unwrap();
            let freshness = heard.freshness(1_000_000 + after_ms);
            (told.age_ms, told.usage_ms, told.reconfiguration_ms, freshness)
        };
        assert_eq!(at(0), (0, 6_000, 1_000, "fresh"));
        assert_eq!(at(5_000), (5_000, 4_000, 500, "fresh"), "half of the oldest slice has left the window");
        assert_eq!(at(30_000), (30_000, 0, 0, "fresh"));
        assert_eq!(at(30_001), (30_001, 0, 0, "stale"), "three heartbeats have passed");
        assert_eq!(heard.freshness(0), "fresh", "a clock that was set back makes nothing older");
    }
}
