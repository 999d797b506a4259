//! The node plugin's reports. They are kept in memory only: the plugin reports every second.
//!
//! Pods that are bound to a node whose plugin has just ended fail for good, until the kubelet has seen the end. So the
//! node's state tells that the plugin is late well before the kubelet does.

use fpga_core::node_state::{Heartbeat, PluginReport, PluginState};
use std::time::{Duration, Instant};

/// Time without a report after which the plugin is late: two reports are missing.
const LATE_AFTER: Duration = Duration::from_millis(2500);
/// Time without a report after which the plugin is forgotten: by then the kubelet offers nothing of its own accord, and
/// an operator may have removed the plugin in favour of wiring by hand.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);

/// The node plugin, as far as it has reported.
#[derive(Debug, Default)]
pub struct Plugin {
    last: Option<Reported>,
    told: Option<PluginState>,
}

#[derive(Debug)]
struct Reported {
    report: PluginReport,
    at: Instant,
}

impl Plugin {
    /// Takes a report.
    pub fn reports(&mut self, report: PluginReport, now: Instant) {
        self.last = Some(Reported { report, at: now });
    }

    /// The plugin in the node's state; `None` if it never reported or is forgotten.
    pub fn state(&self, now: Instant) -> Option<PluginState> {
        let Reported { report, at } = self.last.as_ref()?;
        let silent = now.saturating_duration_since(*at);
        let heartbeat = if silent > LATE_AFTER { Heartbeat::Late } else { Heartbeat::InTime };
        let report = report.clone();
        (silent <= FORGOTTEN_AFTER).then_some(PluginState { heartbeat, report })
    }

    /// Whether the state differs from that of the last call.
    pub fn has_changed(&mut self, now: Instant) -> bool {
        let state = self.state(now);
        let changed = state != self.told;
        self.told = state;
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_plugin_is_late_and_then_forgotten() {
        let (mut plugin, start) = (Plugin::default(), Instant::now());
        assert!(!plugin.has_changed(start), "boards may be wired by hand");
        plugin.reports(PluginReport::default(), start);
        assert!(plugin.has_changed(start));
        let heartbeat = |plugin: &Plugin, at| plugin.state(at).map(|state| state.heartbeat);
        assert_eq!(heartbeat(&plugin, start + LATE_AFTER), Some(Heartbeat::InTime));
        let late = start + LATE_AFTER + Duration::from_millis(1);
        assert_eq!(heartbeat(&plugin, late), Some(Heartbeat::Late));
        assert!(plugin.has_changed(late));
        assert!(!plugin.has_changed(late));
        plugin.reports(PluginReport::default(), late);
        assert_eq!(heartbeat(&plugin, late), Some(Heartbeat::InTime));
        assert_eq!(plugin.state(late + FORGOTTEN_AFTER + Duration::from_millis(1)), None);
    }
}
