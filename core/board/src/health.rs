//! Whether a device is healthy, judged by signs that no single tenant can fake.
//!
//! A tenant's bitstream may be broken, and its kernels may fail. So a failed load counts against the device only if the
//! same bitstream was loaded before, and failed launches count only if those of several tenants fail in a row. With one
//! process per tenant, failed loads are reported by the tenants' processes, which may lie; such reports count only if
//! several tenants make them. The same holds for a tenant that is alone on the device: no pod is placed on an unhealthy
//! device, so a tenant that could make it unhealthy could keep the others away. The price is that a device whose loads
//! fail stays healthy as long as only one tenant loads it; that tenant sees its tasks fail. Probes are the device
//! manager's own and count at once. Every method takes the time as an argument.

use crate::dispatch::Tenant;
use fpga_core::bitstream::Digest;
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

/// Failed loads in a row, of bitstreams that were loaded before, that make the device unhealthy.
pub const MAX_FAILED_LOADS: u32 = 3;
/// Failed launches in a row, of more than one tenant, that make the device unhealthy.
pub const MAX_FAILED_LAUNCHES: u32 = 8;
/// Minimum time for which failed loads or launches keep a device unhealthy. After it, one more failure is enough.
pub const RETRY_AFTER: Duration = Duration::from_secs(30);

/// Maximum number of bitstreams remembered as loaded, and of tenants remembered for failures.
const MAX_REMEMBERED: usize = 1024;

/// Reason why a device is unhealthy or takes no new sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Bitstreams that could be loaded before can no longer be loaded.
    Loads,
    /// The kernels of several tenants fail.
    Launches,
    /// A probe failed.
    Probe,
    /// A probe has not ended within its deadline, and no kernel has ended in that time.
    Stuck,
    /// Commands of a client that has gone do not end.
    Abandoned,
    /// A killed process of a tenant has not ended: it waits in a driver, and may still use the device.
    Lingers,
    /// The device works, but its manager drains: it takes no new sessions and is about to end.
    Draining,
}

/// The health of a device, by the loads, launches and probes so far.
#[derive(Debug, Clone)]
pub struct DeviceHealth {
    /// Maximum duration of a probe.
    deadline: Duration,
    failed_loads: u32,
    /// The tenants whose processes reported failed loads since the last good load.
    load_failed_for: BTreeSet<Tenant>,
    loaded_before: BTreeSet<Digest>,
    failed_launches: u32,
    failed_for: BTreeSet<Tenant>,
    /// The fault by loads or launches, and when it began.
    fault: Option<(Fault, Duration)>,
    /// When the current probe began.
    probed_since: Option<Duration>,
    probe_failed: bool,
    /// When a kernel last ended well.
    progressed: Duration,
    abandoned: bool,
    /// Killed processes that have not ended.
    lingering: usize,
    draining: bool,
}

impl Fault {
    /// The name of the fault in metrics and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Loads => "loads",
            Self::Launches => "launches",
            Self::Probe => "probe",
            Self::Stuck => "stuck",
            Self::Abandoned => "abandoned",
            Self::Lingers => "lingers",
            Self::Draining => "draining",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Loads => "bitstreams that were loaded before can't be loaded",
            Self::Launches => "kernels of several tenants fail",
            Self::Probe => "the runtime fails",
            Self::Stuck => "the runtime does not answer",
            Self::Abandoned => "commands of a client that has gone do not end",
            Self::Lingers => "a tenant's process was killed and does not end",
            Self::Draining => "the device manager takes no new sessions and is about to end",
        })
    }
}

impl DeviceHealth {
    /// A healthy device whose probes may take up to `deadline`.
    #[must_use]
    pub fn new(deadline: Duration) -> Self {
        Self {
            deadline,
            failed_loads: 0,
            load_failed_for: BTreeSet::new(),
            loaded_before: BTreeSet::new(),
            failed_launches: 0,
            failed_for: BTreeSet::new(),
            fault: None,
            probed_since: None,
            probe_failed: false,
            progressed: Duration::ZERO,
            abandoned: false,
            lingering: 0,
            draining: false,
        }
    }

    /// Records that a bitstream was loaded.
    pub fn loaded(&mut self, bitstream: Digest) {
        self.failed_loads = 0;
        self.load_failed_for.clear();
        if self.loaded_before.len() >= MAX_REMEMBERED {
            self.loaded_before.clear();
        }
        self.loaded_before.insert(bitstream);
        self.recovered_from(Fault::Loads);
    }

    /// Records that a bitstream could not be loaded. `told_by` is the tenant whose process reported it; `None` if the
    /// device manager tried itself.
    pub fn load_failed(&mut self, bitstream: Digest, told_by: Option<&Tenant>, now: Duration) {
        if !self.loaded_before.contains(&bitstream) {
            return;
        }
        self.failed_loads = self.failed_loads.saturating_add(1);
        if let Some(tenant) = told_by
            && self.load_failed_for.len() < MAX_REMEMBERED
        {
            self.load_failed_for.insert(tenant.clone());
        }
        let believed = told_by.is_none() || self.load_failed_for.len() > 1;
        if self.failed_loads >= MAX_FAILED_LOADS && believed {
            self.fault = Some((Fault::Loads, now));
        }
    }

    /// Records that a kernel was launched.
    pub fn launched(&mut self) {
        self.failed_launches = 0;
        self.failed_for.clear();
        self.recovered_from(Fault::Launches);
    }

    /// Records that a tenant's kernel could not be launched or failed, with an error for which OpenCL does not blame
    /// the program.
    pub fn launch_failed(&mut self, tenant: &Tenant, now: Duration) {
        self.failed_launches = self.failed_launches.saturating_add(1);
        if self.failed_for.len() < MAX_REMEMBERED {
            self.failed_for.insert(tenant.clone());
        }
        if self.failed_launches >= MAX_FAILED_LAUNCHES && self.failed_for.len() > 1 {
            self.fault = Some((Fault::Launches, now));
        }
    }

    /// Records that a probe has begun.
    pub fn probe_begun(&mut self, now: Duration) {
        self.probed_since = Some(now);
    }

    /// Records that the probe has ended.
    pub fn probe_ended(&mut self, succeeded: bool) {
        self.probed_since = None;
        self.probe_failed = !succeeded;
    }

    /// Records that a kernel ended well: the runtime works, and a waiting probe may only be queued behind other
    /// kernels.
    pub fn progressed(&mut self, at: Duration) {
        self.progressed = self.progressed.max(at);
    }

    /// Records that commands of a client that has gone do not end. Only a new process makes the device healthy again.
    pub fn abandoned(&mut self) {
        self.abandoned = true;
    }

    /// Records that a killed process does not end.
    pub fn process_lingers(&mut self) {
        self.lingering += 1;
    }

    /// Records that a process for which [`Self::process_lingers`] was called has ended.
    pub fn lingering_process_ended(&mut self) {
        self.lingering = self.lingering.saturating_sub(1);
    }

    /// Records that the device's manager takes no new sessions from now on.
    pub fn draining(&mut self) {
        self.draining = true;
    }

    /// The reason why no session is to be placed here now: a fault of the device, or else [`Fault::Draining`].
    pub fn fault(&mut self, now: Duration) -> Option<Fault> {
        self.fault_of_device(now).or(self.draining.then_some(Fault::Draining))
    }

    fn fault_of_device(&mut self, now: Duration) -> Option<Fault> {
        if self.abandoned {
            return Some(Fault::Abandoned);
        }
        if self.lingering > 0 {
            return Some(Fault::Lingers);
        }
        let waits_since = self.probed_since.map(|since| since.max(self.progressed));
        if waits_since.is_some_and(|since| now.saturating_sub(since) >= self.deadline) {
            return Some(Fault::Stuck);
        }
        if self.probe_failed {
            return Some(Fault::Probe);
        }
        if let Some((fault, since)) = self.fault {
            if now.saturating_sub(since) < RETRY_AFTER {
                return Some(fault);
            }
            // The next session placed here shows whether the device still fails.
            self.fault = None;
            match fault {
                Fault::Loads => self.failed_loads = MAX_FAILED_LOADS - 1,
                _ => self.failed_launches = MAX_FAILED_LAUNCHES - 1,
            }
        }
        None
    }

    fn recovered_from(&mut self, fault: Fault) {
        if self.fault.is_some_and(|(is, _)| is == fault) {
            self.fault = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(60);

    fn digest(n: u8) -> Digest {
        Digest::from_bytes([n; 32])
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn loads_of_what_was_loaded_before_that_fail_in_a_row_make_a_device_unhealthy_until_one_succeeds() {
        let mut health = DeviceHealth::new(DEADLINE);
        for _ in 0..100 {
            health.load_failed(digest(9), None, at(0));
        }
        assert_eq!(health.fault(at(0)), None, "a tenant's broken bitstream is no fault of the device");
        health.loaded(digest(1));
        for _ in 1..MAX_FAILED_LOADS {
            health.load_failed(digest(1), None, at(1));
        }
        health.loaded(digest(2));
        health.load_failed(digest(1), None, at(2));
        assert_eq!(health.fault(at(2)), None, "not in a row");
        for _ in 1..MAX_FAILED_LOADS {
            health.load_failed(digest(2), None, at(3));
        }
        assert_eq!(health.fault(at(3)), Some(Fault::Loads));
        health.loaded(digest(2));
        assert_eq!(health.fault(at(3)), None);
    }

    #[test]
    fn loads_of_which_tenants_processes_tell_count_when_several_tenants_do() {
        let mut health = DeviceHealth::new(DEADLINE);
        let (a, b) = (Tenant::new("a"), Tenant::new("b"));
        health.loaded(digest(1));
        for _ in 0..100 {
            health.load_failed(digest(1), Some(&a), at(0));
        }
        assert_eq!(health.fault(at(0)), None, "one process may lie");
        health.load_failed(digest(1), Some(&b), at(1));
        assert_eq!(health.fault(at(1)), Some(Fault::Loads));
        health.loaded(digest(1));
        for _ in 0..MAX_FAILED_LOADS {
            health.load_failed(digest(1), Some(&a), at(2));
        }
        assert_eq!(health.fault(at(2)), None, "a new row, and one tenant's again");
    }

    #[test]
    fn after_a_while_a_device_is_tried_again_and_one_more_failure_is_enough() {
        let mut health = DeviceHealth::new(DEADLINE);
        health.loaded(digest(1));
        for _ in 0..MAX_FAILED_LOADS {
            health.load_failed(digest(1), None, at(10));
        }
        assert_eq!(health.fault(at(10) + RETRY_AFTER - at(1)), Some(Fault::Loads));
        assert_eq!(health.fault(at(10) + RETRY_AFTER), None);
        health.load_failed(digest(1), None, at(50));
        assert_eq!(health.fault(at(50)), Some(Fault::Loads));
    }

    #[test]
    fn one_tenants_failing_kernels_are_its_own_affair_and_several_tenants_are_the_devices() {
        let mut health = DeviceHealth::new(DEADLINE);
        let (a, b) = (Tenant::new("a"), Tenant::new("b"));
        for _ in 0..100 {
            health.launch_failed(&a, at(0));
        }
        assert_eq!(health.fault(at(0)), None);
        health.launch_failed(&b, at(1));
        assert_eq!(health.fault(at(1)), Some(Fault::Launches));
        health.launched();
        assert_eq!(health.fault(at(1)), None);
        health.launch_failed(&a, at(2));
        health.launch_failed(&b, at(2));
        assert_eq!(health.fault(at(2)), None, "not so many in a row");
    }

    #[test]
    fn a_probe_that_waits_while_kernels_end_tells_of_a_busy_device_and_not_of_a_stuck_one() {
        let mut health = DeviceHealth::new(DEADLINE);
        health.probe_begun(at(10));
        for seconds in (30..300).step_by(50) {
            health.progressed(at(seconds));
            assert_eq!(health.fault(at(seconds + 49)), None);
        }
        // The last kernel ended at 280 s.
        assert_eq!(health.fault(at(339)), None);
        assert_eq!(health.fault(at(340)), Some(Fault::Stuck));
        health.progressed(at(341));
        assert_eq!(health.fault(at(341)), None);
    }

    #[test]
    fn a_probe_that_does_not_end_in_time_tells_of_a_stuck_runtime_until_it_ends() {
        let mut health = DeviceHealth::new(DEADLINE);
        health.probe_begun(at(10));
        assert_eq!(health.fault(at(69)), None);
        assert_eq!(health.fault(at(70)), Some(Fault::Stuck));
        health.probe_ended(true);
        assert_eq!(health.fault(at(71)), None);
        health.probe_begun(at(72));
        health.probe_ended(false);
        assert_eq!(health.fault(at(73)), Some(Fault::Probe));
        health.probe_begun(at(74));
        assert_eq!(health.fault(at(75)), Some(Fault::Probe), "until one succeeds");
        health.probe_ended(true);
        assert_eq!(health.fault(at(76)), None);
    }

    #[test]
    fn a_drain_is_a_reason_where_the_device_has_none_itself() {
        let mut health = DeviceHealth::new(DEADLINE);
        health.draining();
        assert_eq!(health.fault(at(1)), Some(Fault::Draining));
        health.probe_begun(at(10));
        assert_eq!(health.fault(at(70)), Some(Fault::Stuck), "liveness looks for it");
        health.probe_ended(true);
        assert_eq!(health.fault(at(71)), Some(Fault::Draining));
    }

    #[test]
    fn an_abandoned_device_recovers_by_nothing() {
        let mut health = DeviceHealth::new(DEADLINE);
        health.abandoned();
        health.loaded(digest(1));
        health.launched();
        health.probe_ended(true);
        assert_eq!(health.fault(at(1000)), Some(Fault::Abandoned));
    }
}
