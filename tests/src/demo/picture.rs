//! The live picture: for each node its usage, reconfiguration time and loaded bitstreams; for each pod the decision
//! with the scores of all nodes. Pure.

use super::invoker::Tally;
use super::snapshot::{Decision, Snapshot};
use crate::functions::Function;
use std::fmt::Write as _;
use std::time::Duration;

const BAR: u64 = 20;

/// Draws a snapshot.
pub(super) fn draw(snapshot: &Snapshot, window: Duration, tally: &Tally) -> String {
    let mut text = String::new();
    // Writing to a string can't fail.
    let _ = draw_into(&mut text, snapshot, window, tally);
    text
}

fn draw_into(out: &mut String, snapshot: &Snapshot, window: Duration, tally: &Tally) -> std::fmt::Result {
    let most = snapshot.nodes.iter().map(|node| node.usage_ms).max().unwrap_or(0).max(1);
    let title = format!("usage of the last {:.0} s", window.as_secs_f64());
    writeln!(
        out,
        "  {:<8} {title:<33} {:>9} {:>7} {:>6} {:>8}  bitstreams in slots",
        "node", "reconf.", "tasks", "loads", "clients"
    )?;
    for node in &snapshot.nodes {
        let filled = usize::try_from(node.usage_ms * BAR / most).unwrap_or(0);
        let bar = "█".repeat(filled) + &"·".repeat(usize::try_from(BAR).unwrap_or(0).saturating_sub(filled));
        let loaded = if node.loaded.is_empty() { "-".to_owned() } else { node.loaded.join(" ") };
        writeln!(
            out,
            "  {:<8} {bar} {:>9} ms {:>6} ms {:>7} {:>6} {:>8}  {loaded}{}",
            node.name,
            node.usage_ms,
            node.reconfiguration_ms,
            node.tasks,
            node.reconfigurations,
            node.sessions,
            if node.freshness == "fresh" { String::new() } else { format!(" ({})", node.freshness) },
        )?;
    }
    let short = |node: &str| node.rsplit('-').next().unwrap_or(node).to_owned();
    writeln!(
        out,
        "\n  pod                             on       score per node (locality/usage/reconfiguration)"
    )?;
    for pod in &snapshot.pods {
        let why = pod
            .decision
            .as_ref()
            .map_or_else(|| "not decided by the extender".to_owned(), |d| explain(d, &short));
        let state = if pod.phase == "Running" { String::new() } else { format!("  {}", pod.phase) };
        writeln!(out, "  {:<31} {:<8} {why}{state}", pod.name, pod.node)?;
    }
    let counts = tally.counts();
    write!(out, "\n  calls verified:")?;
    for function in Function::WITH_ONE_KERNEL {
        let verified = counts.verified.get(&function).map_or(0, Vec::len);
        write!(out, "  {function} {verified} (+{} under way)", tally.in_flight(function))?;
    }
    let scalings: Vec<&str> = counts.scalings.iter().rev().take(4).rev().map(String::as_str).collect();
    writeln!(out, "\n  failed: {}  latest scalings: {}", counts.failed, scalings.join(", "))
}

fn explain(decision: &Decision, short: &impl Fn(&str) -> String) -> String {
    if decision.scores.is_empty() {
        return "the only node that fits".to_owned();
    }
    let scores = decision.scores.iter().map(|score| {
        let mark = if score.node == decision.node { '*' } else { ' ' };
        let (l, u, r) = (score.locality, score.usage, score.reconfiguration);
        format!("{mark}{} {:>2} ({l:.1}/{u:.1}/{r:.1})", short(&score.node), score.score)
    });
    scores.collect::<Vec<_>>().join("  ")
}
