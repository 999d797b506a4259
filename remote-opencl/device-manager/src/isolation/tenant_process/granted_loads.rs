//! The loads that a process was granted. Its reports of other loads do not count.

use fpga_board::dispatch::{Grant, TaskId};
use fpga_board::slots::SlotLoad;
use std::time::Duration;

/// The granted loads of running tasks that the process has not reported yet: at most one for each slot.
#[derive(Debug, Default)]
pub(super) struct GrantedLoads(Vec<GrantedLoad>);

#[derive(Debug)]
struct GrantedLoad {
    task: TaskId,
    load: SlotLoad,
    /// When the process was told to start.
    since: Duration,
}

impl GrantedLoads {
    /// The process is told to start a task.
    pub(super) fn started(&mut self, grant: &Grant, now: Duration) {
        let loads = grant.load.iter().map(|load| GrantedLoad { task: grant.task, load: *load, since: now });
        self.0.extend(loads);
    }

    /// A task has ended. A process reports the loads of a task before that.
    pub(super) fn ended(&mut self, task: TaskId) {
        self.0.retain(|granted| granted.task != task);
    }

    /// Takes the report that a load took so long. Returns the time that counts, which is at most the time since the process
    /// was told to start; `None` if the load was not granted or was reported before.
    pub(super) fn reported(&mut self, load: SlotLoad, took: Duration, now: Duration) -> Option<Duration> {
        let at = self.0.iter().position(|granted| granted.load == load)?;
        let granted = self.0.swap_remove(at);
        Some(took.min(now.saturating_sub(granted.since)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_board::slots::{SessionId, SlotIndex};
    use fpga_core::bitstream::Digest;

    const HOURS: Duration = Duration::from_secs(7200);

    fn load(slot: u32, bitstream: u8) -> SlotLoad {
        SlotLoad { slot: SlotIndex(slot), bitstream: Digest::from_bytes([bitstream; 32]) }
    }

    fn grant(task: u64, load: Vec<SlotLoad>) -> Grant {
        let slots = load.iter().map(|load| load.slot).collect();
        Grant { session: SessionId(1), task: TaskId(task), slots, load }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_granted_load_counts_once_and_no_other_load_does() {
        let mut loads = GrantedLoads::default();
        assert_eq!(loads.reported(load(0, 1), at(1), at(5)), None, "nothing was granted");
        loads.started(&grant(1, vec![load(0, 1), load(1, 2)]), at(5));
        assert_eq!(loads.reported(load(0, 2), at(1), at(9)), None, "another bitstream");
        assert_eq!(loads.reported(load(2, 1), at(1), at(9)), None, "another slot");
        assert_eq!(loads.reported(load(0, 1), at(1), at(9)), Some(at(1)));
        assert_eq!(loads.reported(load(0, 1), at(1), at(9)), None, "it was reported");
        assert_eq!(loads.reported(load(1, 2), at(2), at(9)), Some(at(2)));
    }

    #[test]
    fn a_load_takes_at_most_the_time_since_its_grant_and_ends_before_its_task() {
        let mut loads = GrantedLoads::default();
        loads.started(&grant(1, vec![load(0, 1)]), at(5));
        assert_eq!(loads.reported(load(0, 1), HOURS, at(9)), Some(at(4)));
        loads.started(&grant(2, vec![load(0, 1)]), at(20));
        loads.started(&grant(3, vec![load(1, 2)]), at(21));
        loads.ended(TaskId(2));
        assert_eq!(loads.reported(load(0, 1), at(1), at(29)), None, "its task has ended");
        assert_eq!(loads.reported(load(1, 2), HOURS, at(29)), Some(at(8)));
    }
}
