//! An explanation as text: the requirement, the rejected nodes, the terms in the final order, and how far other
//! plugins could outvote the extender.

use super::{Explained, Told};
use crate::output::{Cell, Colours, Style, Table, printable, span};
use fpga_extender_api::{Decided, Filtered, ScoreInfluence, Scored};
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeMap;
use std::fmt::Write as _;

impl Explained {
    /// The text for a terminal; `wide` adds the numbers behind each term.
    pub(super) fn text(&self, wide: bool, colours: Colours) -> String {
        let Told { replica, explanation } = &self.told;
        let mut out = String::new();
        let mut line = |text: String| {
            out.push_str(&text);
            out.push('\n');
        };
        line(colours.paint(&format!("Pod {}/{}", self.namespace, self.pod), Style::Bold));
        line(match &explanation.problem {
            Some(problem) => {
                colours.paint(&format!("  asks for what can't be understood: {problem}"), Style::Red)
            }
            None => format!("  asks for   {}", asks(&explanation.requirement)),
        });
        line(format!("  decided    {} by {replica}", date(explanation.at())));
        let node = self.placed.node.as_deref().unwrap_or("no node that is known");
        line(match &self.placed.boards {
            Some(boards) => format!("  is on      {node}, boards {boards}"),
            None => format!("  is on      {node}"),
        });
        if let Some(words) = &self.placed.waits {
            line(format!("  waits      {}", words.replace(char::is_control, " ")));
        }
        let reasons = self.placed.boards_reason.as_deref().unwrap_or_default();
        for reason in reasons.lines() {
            // Whoever may change the pod may have written it.
            line(format!("    {}", reason.replace(char::is_control, " ")));
        }
        for (replica, at) in &self.others {
            line(format!("  (before that {} by {replica})", date(*at)));
        }
        if let Some(filter) = &explanation.filter {
            line(filtered(filter));
        }
        match &explanation.prioritize {
            Some(scores) => {
                line(String::new());
                line(self.scores(scores, wide, colours).trim_end().to_owned());
                line(String::new());
                self.verdict(scores).into_iter().for_each(line);
            }
            None if explanation.problem.is_some() => {}
            None => line(
                "  No scores: one node was left after the filter, and kube-scheduler then asks for none."
                    .to_owned(),
            ),
        }
        out
    }

    /// A table of nodes by score, with every term.
    fn scores(&self, scores: &Decided<Scored>, wide: bool, colours: Colours) -> String {
        let weights: Vec<(&String, f64)> = {
            let all = self.told.explanation.rules.weights.iter().map(|(name, weight)| (name, *weight));
            all.filter(|(_, weight)| *weight > 0.0).collect()
        };
        let signals: Vec<String> =
            weights.iter().map(|(name, weight)| format!("{}×{weight}", name.to_uppercase())).collect();
        let mut headings = vec!["", "NODE", "SCORE"];
        headings.extend(signals.iter().map(String::as_str));
        headings.extend(["MEASURED", "EXPECTED", "AGE", "SOURCE", "NOTE"]);
        let mut table = Table::new(&headings);
        let mut rows: Vec<&Scored> = scores.nodes.iter().collect();
        rows.sort_by(|a, b| b.verdict.score.cmp(&a.verdict.score).then_with(|| a.node.cmp(&b.node)));
        let shown = if wide { rows.len() } else { rows.len().min(20) };
        for node in rows.iter().take(shown) {
            let is_here = self.placed.node.as_ref() == Some(&node.node);
            let mut row: Vec<Cell> = vec![
                if is_here { "→" } else { "" }.into(),
                Cell::new(&*node.node, if is_here { Style::Bold } else { Style::Plain }),
                node.verdict.score.to_string().into(),
            ];
            row.extend(weights.iter().map(|(name, _)| term(node, name)));
            let measured = node.verdict.measured.as_ref().map(|measured| {
                let mut text =
                    format!("{} used, {} reconf", span(measured.usage_ms), span(measured.reconfiguration_ms));
                if let Some(slots) = measured.slots {
                    // Writing to a String can't fail.
                    let _ = write!(text, " by {slots} slots");
                }
                if wide {
                    for (name, value) in &measured.others {
                        // Writing to a String can't fail.
                        let _ = write!(text, ", {name} {value}");
                    }
                }
                text
            });
            let expected = node
                .verdict
                .expected
                .as_ref()
                .map(|expected| format!("+{} of {:.1} pods", span(expected.usage_ms), expected.pods));
            let age = node.verdict.measured.as_ref().map(|measured| span(measured.age_ms));
            let mut notes = Vec::new();
            if node.verdict.freshness != "fresh" {
                notes.push(format!("state {}", node.verdict.freshness));
            }
            if node.verdict.capped == "yes" {
                notes.push("lowered below the best fresh node".to_owned());
            }
            row.extend(
                [measured, expected, age].map(|cell| Cell::from(cell.unwrap_or_else(|| "-".to_owned()))),
            );
            row.push(node.source.as_str().into());
            row.push(Cell::new(notes.join(", "), Style::Yellow));
            table.push(row);
        }
        let mut text = table.render(colours);
        if shown < rows.len() {
            // Writing to a String can't fail.
            let _ = writeln!(text, "… and {} more (-o wide)", rows.len() - shown);
        }
        text
    }

    /// Sentences about the extender's points, the other plugins' points, and the node that was chosen.
    fn verdict(&self, scores: &Decided<Scored>) -> Vec<String> {
        let rules = &self.told.explanation.rules;
        let influence = self.told.explanation.influence.unwrap_or_else(|| {
            // An extender that does not tell is taken to have the shipped weight.
            let weight = ScoreInfluence::SHIPPED_WEIGHT;
            ScoreInfluence::of(weight, rules.max_score, std::iter::empty())
        });
        let (weight, per_score) = (influence.scheduler_weight, influence.points_per_score);
        let (ours, theirs) = (influence.ours_at_most, influence.plugins_at_most);
        let mut lines = vec![format!(
            "In kube-scheduler's points one score is worth {per_score} (weight {weight}): ours count up to {ours}, its \
             default plugins up to {theirs}{}.",
            match theirs.saturating_sub(ours) {
                0 => " and can't outvote us alone".to_owned(),
                by => format!(", so that they can outvote us by {by}"),
            }
        )];
        let best = scores.nodes.iter().map(|node| node.verdict.score).max().unwrap_or_default();
        let best_nodes: Vec<&Scored> =
            scores.nodes.iter().filter(|node| node.verdict.score == best).collect();
        let next = scores.nodes.iter().map(|node| node.verdict.score).filter(|score| *score < best).max();
        lines.push(match (best_nodes.as_slice(), next) {
            (_, None) => "All nodes have the same score: kube-scheduler's own plugins decided.".to_owned(),
            ([one], Some(next)) => format!(
                "Our best is {}, {} points ahead of the next: plugins that differ by more decide instead.",
                one.node,
                u64::from(best - next) * per_score
            ),
            (several, Some(next)) => format!(
                "{} nodes are our best, {} points ahead of the next; among them kube-scheduler's own plugins decided.",
                several.len(),
                u64::from(best - next) * per_score
            ),
        });
        if let Some(here) = &self.placed.node {
            match scores.nodes.iter().find(|node| node.node == *here) {
                Some(node) if node.verdict.score == best => lines.push(format!("The pod is on {here}: one of our best.")),
                Some(node) => lines.push(format!(
                    "The pod is on {here}, {} points behind our best: kube-scheduler's plugins outvoted us by more than \
                     that. A greater `weight` in its configuration would change it.",
                    u64::from(best - node.verdict.score) * per_score
                )),
                None => lines.push(format!(
                    "The pod is on {here}, which was not among the candidates of this decision: it was placed by \
                     another one, by another scheduler, or by its node name."
                )),
            }
        }
        lines
    }
}

fn term(node: &Scored, signal: &str) -> Cell {
    let Some(term) = node.verdict.others.get(signal) else { return "-".into() };
    let value = term.get("value").and_then(serde_json::Value::as_f64).unwrap_or_default();
    match term.get("basis").and_then(serde_json::Value::as_str).unwrap_or_default() {
        "measured" | "" => format!("{value:.2}").into(),
        basis => Cell::new(format!("{value:.2} {basis}"), Style::Yellow),
    }
}

fn filtered(filter: &Decided<Filtered>) -> String {
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for node in &filter.nodes {
        if let Some(reason) = &node.rejection {
            reasons.entry(reason).or_default().push(&node.node);
        }
    }
    let passed = filter.nodes.iter().filter(|node| node.rejection.is_none()).count();
    let mut text = format!("  filter     {passed} of {} nodes passed", filter.nodes.len());
    for (reason, nodes) in reasons {
        let more = nodes.len().saturating_sub(5);
        let shown = nodes.iter().take(5).copied().collect::<Vec<_>>().join(", ");
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        // Writing to a String can't fail.
        let _ = write!(text, "\n             {reason}: {shown}{more}");
    }
    let cordons =
        filter.nodes.iter().flat_map(|node| node.cordons.iter().map(move |text| (&node.node, text)));
    for (node, cordon) in cordons.take(5) {
        // Writing to a String can't fail.
        let _ = write!(text, "\n             {node}: {}", printable(cordon));
    }
    text
}

fn asks(requirement: &serde_json::Value) -> String {
    let mut parts = Vec::new();
    for key in ["vendor", "board", "shell", "platform"] {
        if let Some(value) = requirement[key].as_str() {
            parts.push(format!("{key} {value}"));
        }
    }
    if let Some(boards) = requirement["boards"].as_u64() {
        parts.push(format!("{boards} boards"));
    }
    if let Some(per_mille) = requirement["max_utilization"].as_u64() {
        parts.push(format!("boards used for {} % at most", per_mille.div_ceil(10)));
    }
    if let Some(slots) = requirement["slots"].as_u64() {
        parts.push(format!("{slots} slots at least"));
    }
    for (key, what) in [("bitstreams", "bitstreams"), ("loaded", "loaded bitstreams")] {
        let names = requirement[key].as_array().into_iter().flatten();
        let names: Vec<&str> = names.filter_map(|name| name.as_str()).collect();
        if !names.is_empty() {
            parts.push(format!("{what} {}", names.join(", ")));
        }
    }
    parts.join(", ")
}

fn date(millis: u64) -> String {
    let date = i64::try_from(millis).ok().and_then(|millis| Timestamp::from_millisecond(millis).ok());
    date.map_or_else(|| millis.to_string(), |date| format!("{date:.3}"))
}
