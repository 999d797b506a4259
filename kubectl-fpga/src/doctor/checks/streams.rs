//! Checks that all collectors stream, and tells why some don't: identity, tokens, certificates, or the network.

use crate::doctor::facts::Facts;
use crate::doctor::finding::{Finding, named};
use std::collections::BTreeMap;

/// Reasons of refused streams that persist until somebody acts: the label in the extender's metric, what happened,
/// and what to do.
const REASONS: [(&str, &str, &str); 6] = [
    (
        "token",
        "for want of a valid token",
        "With service accounts: Kubernetes 1.32 or newer, --stream-service-account as the collectors run, and a projected token \
         for the audience fpga-scheduler-extender. With a shared token: the same file on both sides.",
    ),
    (
        "other_node",
        "for a token or certificate of another node",
        "A collector's --node-name must be the node that its pod runs on (fieldRef spec.nodeName), or a DNS name in its \
         certificate. If both are right, somebody speaks for nodes that are not his.",
    ),
    (
        "not_ready",
        "while the extender could not check them",
        "May the extender create tokenreviews, does it reach the API server, can it read its own token file? Its log says which.",
    ),
    (
        "unknown_node",
        "for a node that the API server doesn't know",
        "Give the collector the node's name as `kubectl get nodes` has it.",
    ),
    (
        "other_uid",
        "for a node object that is gone",
        "The node was made anew: a collector notices by itself within a minute. If it stays so, restart it.",
    ),
    (
        "introduction",
        "that did not say who speaks",
        "Bring collectors and extender to the same version; another program may talk to the port.",
    ),
];

/// Whether all collectors stream to every replica.
#[must_use]
pub fn streams(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "streams";
    let replicas = facts.known_replicas();
    // For each node with a fresh state, whether every replica has it by stream.
    let mut by_stream: BTreeMap<&str, bool> = BTreeMap::new();
    for view in replicas.iter().filter_map(|replica| replica.nodes.found()).flatten() {
        if view.freshness == "fresh" {
            *by_stream.entry(&view.name).or_insert(true) &= view.source == "stream";
        }
    }
    if by_stream.is_empty() {
        return Vec::new();
    }
    let mut refused: BTreeMap<&str, f64> = BTreeMap::new();
    for (reason, count) in replicas
        .iter()
        .filter_map(|replica| replica.metrics.found())
        .flat_map(|metrics| &metrics.refused_streams)
    {
        *refused.entry(reason).or_default() += count;
    }
    let told: Vec<_> = REASONS
        .into_iter()
        .filter_map(|(reason, what, mend)| Some((*refused.get(reason)?, what, mend)))
        .collect();
    let silent: Vec<&str> =
        by_stream.iter().filter(|(_, streams)| !**streams).map(|(name, _)| *name).collect();
    let refusals =
        told.iter().map(|(count, what, _)| format!("{count} {what}")).collect::<Vec<_>>().join(", ");
    if silent.is_empty() && told.is_empty() {
        return vec![Finding::ok(
            CHECK,
            format!("all {} collectors stream to every replica", by_stream.len()),
        )];
    }
    if silent.is_empty() {
        let why = "All collectors stream now. It counts from the start of a replica, and matters if it still rises.";
        return vec![Finding::note(CHECK, format!("streams were refused: {refusals}"), why)];
    }
    if silent.len() == by_stream.len() && told.is_empty() {
        let why = "States come by annotation, 10 to 15 s late. manifests/README.md: Streams, certificate and identity.";
        return vec![Finding::note(CHECK, "no collector streams to all replicas", why)];
    }
    let mends: Vec<&str> = told.iter().map(|(_, _, mend)| *mend).collect();
    let (because, mend) = if told.is_empty() {
        let mend = "The collector's log says why: is --extenders the headless Service, its --stream-ca the authority of the \
                    extender's certificate, and does a network policy let it through?";
        (String::new(), mend.to_owned())
    } else {
        (format!(" Refused since the start: {refusals}."), mends.join(" "))
    };
    vec![Finding::warning(
        CHECK,
        format!("nodes whose state does not come by stream to every replica: {}", named(&silent)),
        format!("It comes by annotation, 10 to 15 s late.{because}"),
        mend,
    )]
}
