//! The newest status of every device, and which of them the collector has not confirmed.

use crate::queue::lock;
use fpga_core::device::{DeviceStatus, Rotation};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// The statuses, shared by the callers and the background thread.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    entries: Mutex<BTreeMap<String, Entry>>,
}

#[derive(Debug)]
struct Entry {
    wanted: Wanted,
    /// Incremented by every change.
    version: u64,
    /// The version that the collector has confirmed.
    confirmed: Option<u64>,
    /// The collector's last answer.
    rotation: Rotation,
}

/// The newest report about a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wanted {
    Status(Box<DeviceStatus>),
    /// The device is gone for good.
    Gone,
}

/// A report that the collector has not confirmed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unconfirmed {
    pub(crate) id: String,
    pub(crate) wanted: Wanted,
    version: u64,
}

impl Devices {
    /// Records a status or the departure of a device.
    pub(crate) fn set(&self, id: &str, wanted: Wanted) {
        let mut entries = lock(&self.entries);
        match entries.get_mut(id) {
            Some(entry) if entry.wanted == wanted => {}
            Some(entry) => {
                entry.wanted = wanted;
                entry.version += 1;
            }
            None => {
                entries.insert(
                    id.to_owned(),
                    Entry { wanted, version: 1, confirmed: None, rotation: Rotation::In },
                );
            }
        }
    }

    /// The reports that the collector has not confirmed.
    pub(crate) fn unconfirmed(&self) -> Vec<Unconfirmed> {
        let entries = lock(&self.entries);
        let waiting = entries.iter().filter(|(_, entry)| entry.confirmed != Some(entry.version));
        waiting
            .map(|(id, entry)| Unconfirmed {
                id: id.clone(),
                wanted: entry.wanted.clone(),
                version: entry.version,
            })
            .collect()
    }

    /// Records that the collector has `told`.
    pub(crate) fn confirm(&self, told: &Unconfirmed) {
        let mut entries = lock(&self.entries);
        let Some(entry) = entries.get_mut(&told.id) else { return };
        entry.confirmed = Some(told.version);
        if told.wanted == Wanted::Gone && entry.version == told.version {
            entries.remove(&told.id);
        }
    }

    /// Records the collector's answer to a status.
    pub(crate) fn answered(&self, id: &str, rotation: Rotation) {
        if let Some(entry) = lock(&self.entries).get_mut(id) {
            entry.rotation = rotation;
        }
    }

    /// The collector's last answer; [`Rotation::In`] before the first one.
    pub(crate) fn rotation(&self, id: &str) -> Rotation {
        lock(&self.entries).get(id).map(|entry| entry.rotation).unwrap_or_default()
    }

    /// Marks all reports as unconfirmed: the collector may be another process now.
    pub(crate) fn confirm_none(&self) {
        for entry in lock(&self.entries).values_mut() {
            entry.confirmed = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_status(queued: u32) -> Wanted {
        Wanted::Status(Box::new(DeviceStatus { queued, ..DeviceStatus::new("dm0", "intel", 4) }))
    }

    #[test]
    fn only_the_newest_status_is_told_and_only_until_it_is_confirmed() {
        let devices = Devices::default();
        devices.set("dm0", mk_status(1));
        let old = devices.unconfirmed();
        devices.set("dm0", mk_status(2));
        devices.confirm(&old[0]);
        let new = devices.unconfirmed();
        assert_eq!((new.len(), &new[0].wanted), (1, &mk_status(2)));
        devices.confirm(&new[0]);
        devices.set("dm0", mk_status(2));
        assert!(devices.unconfirmed().is_empty(), "the same is no news");
        devices.confirm_none();
        assert_eq!(devices.unconfirmed().len(), 1);
    }

    #[test]
    fn a_device_is_in_rotation_until_the_collector_says_otherwise() {
        let devices = Devices::default();
        devices.answered("dm0", Rotation::Out);
        assert_eq!(devices.rotation("dm0"), Rotation::In, "nothing was told of it");
        devices.set("dm0", mk_status(1));
        assert_eq!(devices.rotation("dm0"), Rotation::In);
        devices.answered("dm0", Rotation::Out);
        devices.set("dm0", mk_status(2));
        assert_eq!(devices.rotation("dm0"), Rotation::Out);
        devices.answered("dm0", Rotation::In);
        assert_eq!(devices.rotation("dm0"), Rotation::In);
    }

    #[test]
    fn a_device_that_left_is_told_once_and_forgotten() {
        let devices = Devices::default();
        devices.set("dm0", mk_status(1));
        devices.set("dm0", Wanted::Gone);
        devices.confirm(&devices.unconfirmed()[0]);
        devices.confirm_none();
        assert!(devices.unconfirmed().is_empty());
    }
}
