//! The states of slots.

use crate::wire::present;
use crate::{Malformed, lease, v1};
use fpga_pool_leases::messages::{Activity, SlotReport, SlotStatus};

impl TryFrom<v1::SlotStatus> for SlotStatus {
    type Error = Malformed;

    fn try_from(status: v1::SlotStatus) -> Result<Self, Malformed> {
        use v1::slot_status::State;
        Ok(match present(status.state, "SlotStatus.state")? {
            State::Free(v1::Free {}) => Self::Free,
            State::Reserved(lease) => Self::Reserved(lease.try_into()?),
            State::Held(held) => {
                let activity = match held.activity() {
                    v1::Activity::Unspecified => return Err(Malformed::Missing("Held.activity")),
                    v1::Activity::Busy => Activity::Busy,
                    v1::Activity::Idle => Activity::Idle,
                };
                Self::Held(present(held.lease, "Held.lease")?.try_into()?, activity)
            }
            State::Draining(lease) => Self::Draining(lease.try_into()?),
            State::Bad(v1::Bad {}) => Self::Bad,
        })
    }
}

impl From<SlotStatus> for v1::SlotStatus {
    fn from(status: SlotStatus) -> Self {
        use v1::slot_status::State;
        let state = match status {
            SlotStatus::Free => State::Free(v1::Free {}),
            SlotStatus::Reserved(lease) => State::Reserved(lease.into()),
            SlotStatus::Held(lease, activity) => {
                let activity = match activity {
                    Activity::Busy => v1::Activity::Busy,
                    Activity::Idle => v1::Activity::Idle,
                };
                State::Held(v1::Held { lease: Some(lease.into()), activity: activity.into() })
            }
            SlotStatus::Draining(lease) => State::Draining(lease.into()),
            SlotStatus::Bad => State::Bad(v1::Bad {}),
        };
        Self { state: Some(state) }
    }
}

impl TryFrom<v1::SlotReport> for SlotReport {
    type Error = Malformed;

    fn try_from(report: v1::SlotReport) -> Result<Self, Malformed> {
        let why = report.why().try_into()?;
        let v1::SlotReport { seq, slot, status, usage, .. } = report;
        Ok(Self {
            seq,
            slot: lease::slot(slot)?,
            status: present(status, "SlotReport.status")?.try_into()?,
            why,
            usage: usage.unwrap_or_default().into(),
        })
    }
}

impl From<SlotReport> for v1::SlotReport {
    fn from(report: SlotReport) -> Self {
        let SlotReport { seq, slot, status, why, usage } = report;
        Self {
            seq,
            slot: slot.0,
            status: Some(status.into()),
            why: v1::SlotCause::from(why).into(),
            usage: Some(usage.into()),
        }
    }
}
