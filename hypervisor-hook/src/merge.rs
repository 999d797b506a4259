//! Merging of events when the queue is full: sums per bitstream, device and tenant. Pure.
//!
//! The number of keys is bounded as well, because tenants and bitstream names come from clients. Beyond the bound an
//! event first loses its tenant, then its bitstream; its time is kept in every case.

use fpga_core::bitstream::BitstreamId;
use fpga_core::event::{Event, Merged};
use std::collections::HashMap;

/// Maximum number of keys before tenants are dropped; with twice as many, bitstreams are dropped as well.
const MAX_KEYS: usize = 1024;

/// The events that found the queue full.
#[derive(Debug, Default)]
pub(crate) struct Overflow {
    sums: HashMap<Key, Event>,
    /// Final events of tasks whose progress was reported. They must arrive unmerged, to replace the progress.
    whole: Vec<Event>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    bitstream: Option<BitstreamId>,
    device: Option<String>,
    tenant: Option<String>,
}

impl Overflow {
    /// Keeps `event` unmerged.
    pub(crate) fn keep(&mut self, event: Event) {
        self.whole.push(event);
    }

    /// Adds `event` to the sum with the same key.
    pub(crate) fn merge(&mut self, event: Event) {
        let key = self.key_for(&event);
        match self.sums.get_mut(&key) {
            Some(sum) => fold(sum, &event),
            None => {
                self.sums.insert(key, first_of_a_sum(event));
            }
        }
    }

    /// All events and sums.
    pub(crate) fn into_events(self) -> impl Iterator<Item = Event> {
        self.whole.into_iter().chain(self.sums.into_values())
    }

    fn key_for(&self, event: &Event) -> Key {
        let mut key = Key {
            bitstream: Some(event.bitstream_identifier.clone()),
            device: event.device.clone(),
            tenant: event.tenant.clone(),
        };
        if self.sums.len() >= MAX_KEYS && !self.sums.contains_key(&key) {
            key.tenant = None;
        }
        if self.sums.len() >= 2 * MAX_KEYS && !self.sums.contains_key(&key) {
            // The sum of a whole device. A runtime has few devices and names them itself, so these are bounded.
            key.bitstream = None;
        }
        key
    }
}

/// A sum with only `event`. The sequence numbers are set when it is sent.
fn first_of_a_sum(mut event: Event) -> Event {
    let first_ms = event.timestamp_ms - event.duration_ms.max(event.reconfiguration_ms);
    event.merged = Some(Merged { first_seq: 0, count: 1, first_ms });
    event.task = None;
    event
}

fn fold(sum: &mut Event, event: &Event) {
    let first_ms = event.timestamp_ms - event.duration_ms.max(event.reconfiguration_ms);
    sum.timestamp_ms = sum.timestamp_ms.max(event.timestamp_ms);
    sum.duration_ms += event.duration_ms;
    sum.reconfiguration_ms += event.reconfiguration_ms;
    if sum.slot != event.slot {
        sum.slot = None;
    }
    if sum.tenant != event.tenant {
        sum.tenant = None;
    }
    if let Some(merged) = &mut sum.merged {
        merged.count = merged.count.saturating_add(1);
        merged.first_ms = merged.first_ms.min(first_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_core::units::{Millis, WallTime};

    fn mk_event(end: u64, duration: u64, bitstream: &str, tenant: &str) -> Event {
        Event {
            task: Some(end),
            device: Some("dm0".to_owned()),
            slot: Some(0),
            tenant: Some(tenant.to_owned()),
            ..Event::of_task(WallTime(end), Millis(duration), bitstream.parse().unwrap())
        }
    }

    #[test]
    fn a_sum_keeps_time_count_and_span() {
        let mut overflow = Overflow::default();
        overflow.merge(mk_event(100, 10, "sobel", "a"));
        overflow.merge(mk_event(80, 40, "sobel", "a"));
        overflow.merge(mk_event(90, 5, "mm", "a"));
        let mut events: Vec<_> = overflow.into_events().collect();
        events.sort_by_key(|event| event.timestamp_ms);
        assert_eq!(events.len(), 2);
        let sobel = &events[1];
        assert_eq!((sobel.timestamp_ms, sobel.duration_ms, sobel.task), (WallTime(100), Millis(50), None));
        assert_eq!(sobel.merged, Some(Merged { first_seq: 0, count: 2, first_ms: WallTime(40) }));
    }

    #[test]
    fn a_flood_of_tenants_and_names_is_bounded_and_loses_no_time() {
        let mut overflow = Overflow::default();
        for n in 0..10_000_u64 {
            overflow.merge(mk_event(n + 1, 1, &format!("b{}", n % 5000), &format!("t{n}")));
        }
        let events: Vec<_> = overflow.into_events().collect();
        assert!(events.len() <= 2 * MAX_KEYS + 1, "{}", events.len());
        assert_eq!(events.iter().map(|event| event.duration_ms.0).sum::<u64>(), 10_000);
        assert_eq!(events.iter().map(|event| u64::from(event.merged.unwrap().count)).sum::<u64>(), 10_000);
    }
}
