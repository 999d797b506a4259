//! The checks: pure functions of the facts.

pub mod admission;
pub mod certificates;
pub mod extender;
pub mod node_parts;
pub mod nodes;
pub mod scheduler;
pub mod streams;

use super::facts::{Facts, Looked};
use super::finding::Finding;

/// A check: the findings that follow from the facts.
pub type Check = fn(&Facts) -> Vec<Finding>;

/// All checks but [`rights`], in the order of the output.
pub const ALL: [Check; 26] = [
    scheduler::wired,
    scheduler::reach,
    scheduler::verbs,
    scheduler::weight,
    scheduler::tls,
    scheduler::dns,
    scheduler::cache_mode,
    scheduler::managed_resource,
    scheduler::scheduler_name,
    scheduler::timeout,
    scheduler::sampling,
    scheduler::batching,
    scheduler::leader,
    extender::replicas,
    extender::rules,
    extender::herd,
    extender::errors,
    certificates::certificates,
    streams::streams,
    nodes::states,
    nodes::collectors,
    nodes::clocks,
    node_parts::plugins,
    node_parts::managers,
    admission::policies,
    admission::pods,
];

/// Whether the service accounts have the rights that they need.
#[must_use]
pub fn rights(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "rights";
    let rights = match &facts.rights {
        Looked::Found(rights) => rights,
        Looked::Hidden(why) => {
            let mend = "Ask with the right to create subjectaccessreviews, or compare the roles of manifests/chart by hand.";
            return vec![Finding::unknown(CHECK, why, mend)];
        }
    };
    let missing = rights.iter().filter(|right| !right.allowed).map(|right| {
        Finding::problem(
            CHECK,
            format!("{} may not {} {}", right.who, right.verb, right.resource),
            right.needed_for,
            "helm upgrade brings the roles and bindings of the chart back (manifests/README.md).",
        )
    });
    Finding::or_ok(CHECK, missing.collect(), format!("all {} rights are granted", rights.len()))
}

/// The findings of all checks.
#[must_use]
pub fn run(facts: &Facts) -> Vec<Finding> {
    ALL.iter().copied().chain([rights as Check]).flat_map(|check| check(facts)).collect()
}

#[cfg(test)]
mod tests;
