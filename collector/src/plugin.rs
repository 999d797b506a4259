//! The node plugin's part of the node's state. Of the reports only one fact is on disk, that there is a plugin: the plugin
//! reports every second.
//!
//! Pods that are bound to a node whose plugin has just ended fail for good, until the kubelet has seen the end. So the
//! node's state tells that the plugin is late well before the kubelet does, and a collector that has just started takes
//! a plugin that it knew before for late until the plugin reports: the plugin may have ended with the collector.

use fpga_core::node_state::{Heartbeat, PluginReport, PluginState};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Time without a report after which the plugin is late: two reports are missing.
const LATE_AFTER: Duration = Duration::from_millis(2500);
/// Time without a report after which the plugin is forgotten: by then the kubelet offers nothing of its own accord, and
/// an operator may have removed the plugin in favour of wiring by hand.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);

/// Whether the node has a plugin, as far as the collector knows. On disk, so that a restart does not forget it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    /// No plugin has reported, or it is forgotten: boards may be wired by hand.
    #[default]
    Unknown,
    /// A plugin has reported.
    Known,
}

/// The node plugin, as far as this process knows.
#[derive(Debug, Default)]
pub struct Plugin {
    known: Option<Known>,
    told: Option<PluginState>,
}

#[derive(Debug)]
struct Known {
    /// The last report; empty before the first one.
    report: PluginReport,
    last_word: LastWord,
    at: Instant,
}

/// What was last heard of the plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastWord {
    /// The plugin reported.
    Report,
    /// The plugin said that it ends, or an earlier process of the collector knew it.
    Absence,
}

impl Plugin {
    /// Takes a report.
    pub fn reports(&mut self, report: PluginReport, now: Instant) {
        self.known = Some(Known { report, last_word: LastWord::Report, at: now });
    }

    /// Takes the plugin's word that it ends: the plugin is late at once.
    pub fn leaves(&mut self, now: Instant) {
        let report = self.known.take().map(|known| known.report).unwrap_or_default();
        self.known = Some(Known { report, last_word: LastWord::Absence, at: now });
    }

    /// Takes the plugin for late until it reports, unless this process has heard of the plugin already.
    pub fn expect(&mut self, now: Instant) {
        if self.known.is_none() {
            self.leaves(now);
        }
    }

    /// Whether the plugin is known; it is not if it never reported or is forgotten.
    pub fn presence(&self, now: Instant) -> Presence {
        if self.remembered(now).is_some() { Presence::Known } else { Presence::Unknown }
    }

    /// The plugin in the node's state; `None` if it is not known.
    pub fn state(&self, now: Instant) -> Option<PluginState> {
        let Known { report, last_word, at } = self.remembered(now)?;
        let is_late = *last_word == LastWord::Absence || now.saturating_duration_since(*at) > LATE_AFTER;
        Some(PluginState { heartbeat: Heartbeat::from(is_late), report: report.clone() })
    }

    /// Whether the state differs from that of the last call.
    pub fn has_changed(&mut self, now: Instant) -> bool {
        let state = self.state(now);
        let changed = state != self.told;
        self.told = state;
        changed
    }

    fn remembered(&self, now: Instant) -> Option<&Known> {
        self.known.as_ref().filter(|known| now.saturating_duration_since(known.at) <= FORGOTTEN_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heartbeat(plugin: &Plugin, at: Instant) -> Option<Heartbeat> {
        plugin.state(at).map(|state| state.heartbeat)
    }

    #[test]
    fn a_silent_plugin_is_late_and_then_forgotten() {
        let (mut plugin, start) = (Plugin::default(), Instant::now());
        assert!(!plugin.has_changed(start), "boards may be wired by hand");
        plugin.reports(PluginReport::default(), start);
        assert!(plugin.has_changed(start));
        assert_eq!(heartbeat(&plugin, start + LATE_AFTER), Some(Heartbeat::InTime));
        let late = start + LATE_AFTER + Duration::from_millis(1);
        assert_eq!(heartbeat(&plugin, late), Some(Heartbeat::Late));
        assert!(plugin.has_changed(late));
        assert!(!plugin.has_changed(late));
        plugin.reports(PluginReport::default(), late);
        assert_eq!(heartbeat(&plugin, late), Some(Heartbeat::InTime));
        let forgotten = late + FORGOTTEN_AFTER + Duration::from_millis(1);
        assert_eq!(plugin.state(forgotten), None);
        assert_eq!(plugin.presence(forgotten), Presence::Unknown);
    }

    #[test]
    fn a_plugin_that_leaves_or_was_known_before_is_late_until_it_reports() {
        let (mut plugin, start) = (Plugin::default(), Instant::now());
        plugin.expect(start);
        assert_eq!(plugin.presence(start), Presence::Known);
        assert_eq!(heartbeat(&plugin, start), Some(Heartbeat::Late));
        plugin.reports(PluginReport::default(), start);
        assert_eq!(heartbeat(&plugin, start), Some(Heartbeat::InTime));
        plugin.expect(start);
        assert_eq!(heartbeat(&plugin, start), Some(Heartbeat::InTime), "its own word is newer");
        plugin.leaves(start);
        assert_eq!(heartbeat(&plugin, start), Some(Heartbeat::Late));
        assert_eq!(plugin.state(start + FORGOTTEN_AFTER + Duration::from_millis(1)), None);
    }
}
