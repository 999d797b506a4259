//! The labels that the node gets from its device managers' reports, and when. Pure.
//!
//! A label holds one value, so there is no label for a property in which the devices of a node differ. Pods that ask
//! for it still find the node by its state. A new label is written at once. A missing one is removed only after a
//! while, so that the restart of a device manager removes no label.

use fpga_core::names::{BOARD_LABEL, SHELL_LABEL, VENDOR_LABEL};
use fpga_core::node_state::DeviceState;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};

/// The labels that the collector manages.
pub const KEYS: [&str; 3] = [VENDOR_LABEL, SHELL_LABEL, BOARD_LABEL];
/// Maximum length of a label's value in Kubernetes.
const MAX_VALUE: usize = 63;

/// Values of labels by key, one of [`KEYS`].
pub type Labels = BTreeMap<&'static str, String>;

/// The labels for what the devices report.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    pub labels: Labels,
    /// Properties that can't be labels, with the reasons.
    pub skipped: Vec<Skipped>,
}

/// A label that is not given although devices report a value for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Skipped {
    /// The devices report different values, or some report none.
    Differs(&'static str, Vec<String>),
    /// Kubernetes does not allow this value.
    Invalid(&'static str, String),
}

/// The labels that the node has, and since when each is missing from the reports.
#[derive(Debug)]
pub struct Memory {
    /// How long a label stays that the devices no longer report.
    removal_delay: Duration,
    has: Labels,
    missing: BTreeMap<&'static str, Instant>,
}

impl Wanted {
    /// The properties that `devices` share. Unhealthy devices count as well: a failing board is of the same kind.
    pub fn of(devices: &[DeviceState]) -> Self {
        let mut wanted = Self::default();
        for key in KEYS {
            let values: BTreeSet<_> = devices.iter().map(|device| fact(device, key)).collect();
            match values.iter().copied().collect::<Vec<_>>()[..] {
                [] | [""] => {}
                [value] if is_label_value(value) => {
                    wanted.labels.insert(key, value.to_owned());
                }
                [value] => wanted.skipped.push(Skipped::Invalid(key, value.to_owned())),
                ref several => {
                    let several = several.iter().map(|&value| value.to_owned()).collect();
                    wanted.skipped.push(Skipped::Differs(key, several));
                }
            }
        }
        wanted
    }
}

impl Memory {
    /// A memory for a node whose labels are not known yet.
    pub fn new(removal_delay: Duration) -> Self {
        Self { removal_delay, has: Labels::new(), missing: BTreeMap::new() }
    }

    /// Records the labels that the node has.
    pub fn has(&mut self, labels: Labels) {
        self.has = labels;
    }

    /// The labels to write for `wanted` at `now`; `None` if the node has them already.
    pub fn due(&mut self, wanted: &Labels, now: Instant) -> Option<Labels> {
        let mut due = wanted.clone();
        self.missing.retain(|key, _| !wanted.contains_key(key));
        for (key, value) in &self.has {
            if !wanted.contains_key(key) {
                let since = *self.missing.entry(key).or_insert(now);
                if now.saturating_duration_since(since) < self.removal_delay {
                    due.insert(key, value.clone());
                }
            }
        }
        (due != self.has).then_some(due)
    }
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Differs(key, values) => {
                write!(f, "{key}: a label holds one value, and the devices have {values:?}")
            }
            Self::Invalid(key, value) => write!(
                f,
                "{key}: {value:?} can't be a label's value; have the device manager report at most {MAX_VALUE} letters, digits, '-', '_' and '.', a letter or digit at both ends"
            ),
        }
    }
}

/// The value that `device` reports for the label `key`.
fn fact<'a>(device: &'a DeviceState, key: &str) -> &'a str {
    match key {
        VENDOR_LABEL => &device.vendor,
        SHELL_LABEL => &device.shell,
        _ => &device.board,
    }
}

/// Whether Kubernetes allows `value` as a label's value.
fn is_label_value(value: &str) -> bool {
    let at_ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = value.as_bytes();
    bytes.len() <= MAX_VALUE
        && at_ends(bytes.first())
        && at_ends(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_core::device::{Health, ReconfiguredPart};
    use fpga_core::units::Millis;

    fn device(vendor: &str, shell: &str, board: &str) -> DeviceState {
        DeviceState {
            id: String::new(),
            vendor: vendor.to_owned(),
            platform: String::new(),
            board: board.to_owned(),
            shell: shell.to_owned(),
            slots: 1,
            reconfigured_part: ReconfiguredPart::Slot,
            loaded: Vec::new(),
            usage: Millis::ZERO,
            reconfiguration: Millis::ZERO,
            queued: 0,
            health: Health::Unhealthy,
        }
    }

    #[test]
    fn a_label_has_the_value_that_all_devices_share_and_what_they_do_not_share_is_none() {
        let one = Wanted::of(&[device("intel", "1.2", "")]);
        let labels = Labels::from([(VENDOR_LABEL, "intel".to_owned()), (SHELL_LABEL, "1.2".to_owned())]);
        assert_eq!((one.labels, one.skipped), (labels, Vec::new()));

        let two = Wanted::of(&[device("intel", "1.2", "a10"), device("intel", "1.3", "")]);
        assert_eq!(two.labels, Labels::from([(VENDOR_LABEL, "intel".to_owned())]));
        let differs = |key, values: [&str; 2]| Skipped::Differs(key, values.map(str::to_owned).to_vec());
        assert_eq!(two.skipped, [differs(SHELL_LABEL, ["1.2", "1.3"]), differs(BOARD_LABEL, ["", "a10"])]);
        assert_eq!(Wanted::of(&[]), Wanted::default());
    }

    #[test]
    fn what_no_label_may_hold_is_skipped_and_the_rest_is_given() {
        let long = "a".repeat(64);
        for bad in ["Intel(R) FPGA", "a10-", "-a10", "µ", "a/b", &long] {
            let wanted = Wanted::of(&[device("intel", "", bad)]);
            assert_eq!(wanted.skipped, [Skipped::Invalid(BOARD_LABEL, bad.to_owned())]);
            assert_eq!(wanted.labels, Labels::from([(VENDOR_LABEL, "intel".to_owned())]));
            assert!(wanted.skipped[0].to_string().contains("letters, digits"));
        }
        for good in ["a", "A10_gx.pac-1", &long[1..]] {
            assert_eq!(Wanted::of(&[device("intel", "", good)]).labels[BOARD_LABEL], good);
        }
    }

    #[test]
    fn what_appears_is_written_at_once_and_what_is_missing_after_a_while() {
        let at = Instant::now();
        let mut memory = Memory::new(Duration::from_secs(45));
        let nothing = Labels::new();
        let intel = Labels::from([(VENDOR_LABEL, "intel".to_owned())]);
        let amd = Labels::from([(VENDOR_LABEL, "amd".to_owned())]);
        assert_eq!(memory.due(&nothing, at), None);
        assert_eq!(memory.due(&intel, at), Some(intel.clone()));
        memory.has(intel.clone());
        assert_eq!(memory.due(&intel, at), None);
        assert_eq!(memory.due(&amd, at), Some(amd));

        let after = |seconds| at + Duration::from_secs(seconds);
        assert_eq!(memory.due(&nothing, after(1)), None, "a device manager is restarted");
        assert_eq!(memory.due(&intel, after(40)), None, "it is back");
        assert_eq!(memory.due(&nothing, after(60)), None);
        assert_eq!(memory.due(&nothing, after(104)), None);
        assert_eq!(memory.due(&nothing, after(105)), Some(nothing));
    }
}
