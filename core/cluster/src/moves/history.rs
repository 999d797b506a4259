//! The moves of the past as they bound further ones: those of a workload, and those of the hour.

use super::{HOUR, Held, MovePolicy, PastMove, Progress};
use fpga_core::units::WallTime;
use std::collections::{BTreeMap, BTreeSet};

/// The moves of the hour, by namespace.
#[derive(Debug)]
pub(super) struct Hour<'a> {
    left: usize,
    had: BTreeMap<&'a str, usize>,
}

impl<'a> Hour<'a> {
    pub(super) fn of(past: &'a [PastMove], policy: &MovePolicy, now: WallTime) -> Self {
        let mut hour = Self { left: policy.per_hour, had: BTreeMap::new() };
        past.iter().filter(|past| now - past.at < HOUR).for_each(|past| hour.spend(&past.namespace));
        hour
    }

    pub(super) fn spend(&mut self, namespace: &'a str) {
        self.left = self.left.saturating_sub(1);
        *self.had.entry(namespace).or_default() += 1;
    }

    pub(super) fn has_left(&self, namespace: &str, namespaces: &BTreeSet<&str>) -> Result<(), Held> {
        let had = self.had.get(namespace).copied().unwrap_or_default();
        let is_alone = namespaces.iter().all(|other| *other == namespace);
        match self.left {
            0 => Err(Held::HourSpent),
            left if had >= left && !is_alone => Err(Held::NamespaceHourSpent),
            _ => Ok(()),
        }
    }
}

/// Whether the workload has recovered from its last move.
pub(super) fn rested(last: Option<LastMove>, policy: &MovePolicy, now: WallTime) -> Result<(), Held> {
    let Some(last) = last else { return Ok(()) };
    if last.is_underway {
        return Err(Held::MoveUnderway);
    }
    let rested = now - last.at;
    if rested < policy.cool_down { Err(Held::CoolingDown(policy.cool_down - rested)) } else { Ok(()) }
}

/// The moves of a workload: the latest, and whether any has not ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct LastMove {
    at: WallTime,
    is_underway: bool,
}

pub(super) fn last_moves(past: &[PastMove]) -> BTreeMap<&str, LastMove> {
    let mut last: BTreeMap<&str, LastMove> = BTreeMap::new();
    for past in past {
        let of_workload = last.entry(&past.workload).or_insert(LastMove { at: past.at, is_underway: false });
        of_workload.at = of_workload.at.max(past.at);
        of_workload.is_underway |= past.progress == Progress::Underway;
    }
    last
}
