//! Checks of who of several kube-schedulers places pods.

use super::ours;
use crate::doctor::facts::{Facts, Looked};
use crate::doctor::finding::Finding;

/// Whether exactly one kube-scheduler places FPGA pods.
#[must_use]
pub fn leader(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "leader";
    let mut findings = Vec::new();
    if ours(facts).is_some_and(|(config, _)| config.leader_election.leader_elect == Some(false)) {
        findings.push(Finding::warning(
            CHECK,
            "leaderElect is false",
            "Where several kube-schedulers run, each places pods as if it were alone: two may fill one board at the same time.",
            "Set leaderElection.leaderElect: true.",
        ));
    }
    match &facts.lease {
        Looked::Hidden(why) => {
            findings.push(Finding::unknown(CHECK, why, "Grant `get leases` in the extender's namespace."));
        }
        Looked::Found(Some(lease)) => {
            let silent_s = facts.now - lease.renewed;
            let why = "FPGA pods stay Pending.";
            let mend = "Why does no kube-scheduler lead? It ends while its extender is not ready: kubectl -n kube-fpga describe \
                        pods -l app.kubernetes.io/name=fpga-scheduler-extender, and the logs of both containers.";
            match &lease.holder {
                None => findings.push(Finding::problem(CHECK, "our own scheduler has no leader", why, mend)),
                Some(holder) if silent_s > 2 * lease.duration_s => {
                    let what =
                        format!("{holder} leads our own scheduler, and has been silent for {silent_s} s");
                    findings.push(Finding::problem(CHECK, what, why, mend));
                }
                Some(_) => {}
            }
        }
        Looked::Found(None) => {}
    }
    Finding::or_ok(CHECK, findings, "one kube-scheduler at a time places FPGA pods")
}
