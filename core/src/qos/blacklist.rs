//! Devices that fail to reconfigure again and again: they are no devices until somebody has looked.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

/// Failures in a row, by device.
#[derive(Debug, Clone)]
pub struct Blacklist<Device> {
    after: NonZeroU32,
    failures: BTreeMap<Device, u32>,
}

impl<Device: Ord + Clone> Blacklist<Device> {
    /// Devices are listed after that many failures in a row.
    #[must_use]
    pub fn new(after: NonZeroU32) -> Self {
        Self { after, failures: BTreeMap::new() }
    }

    /// A device could not be reconfigured. Whether it is listed now.
    pub fn failed(&mut self, device: Device) -> bool {
        let failures = self.failures.entry(device).or_insert(0);
        *failures = failures.saturating_add(1);
        *failures >= self.after.get()
    }

    /// A device was reconfigured: what was before does not count, unless it is listed.
    pub fn succeeded(&mut self, device: &Device) {
        if !self.holds(device) {
            self.failures.remove(device);
        }
    }

    /// Somebody has looked after it.
    pub fn forgive(&mut self, device: &Device) {
        self.failures.remove(device);
    }

    /// Whether a device is listed.
    #[must_use]
    pub fn holds(&self, device: &Device) -> bool {
        self.failures.get(device).is_some_and(|failures| *failures >= self.after.get())
    }

    /// How many of these devices can be given to jobs.
    #[must_use]
    pub fn usable<'a>(&self, devices: impl IntoIterator<Item = &'a Device>) -> usize
    where
        Device: 'a,
    {
        devices.into_iter().filter(|device| !self.holds(device)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_listed_after_failures_in_a_row_until_it_is_forgiven() {
        let mut list = Blacklist::new(NonZeroU32::new(2).unwrap());
        assert!(!list.failed("a"));
        list.succeeded(&"a");
        assert!(!list.failed("a"), "they were not in a row");
        assert!(list.failed("a"));
        list.succeeded(&"a");
        assert!(list.holds(&"a"), "one success is no proof");
        assert_eq!(list.usable(&["a", "b", "c"]), 2);
        list.forgive(&"a");
        assert_eq!(list.usable(&["a", "b", "c"]), 3);
    }
}
