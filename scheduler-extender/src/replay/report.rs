//! The result of a replay, for people and for programs.

use fpga_core::decide::Ranking;
use fpga_core::matching::Rejection;
use fpga_core::record::{Decided, Recorded, RecordedAnswer, Verb};
use fpga_core::units::WallTime;
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};
use std::io::{self, Write};

/// Most differences that are shown one by one.
const MAX_SHOWN: usize = 20;
/// Most nodes that are named in one place.
const MAX_NAMED: usize = 4;

/// The result of a replay.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    decisions: usize,
    differences: usize,
    /// The first [`MAX_SHOWN`] differences.
    differing: Vec<Difference>,
    cut_off: bool,
    /// Decisions of recordings of version 1, which compared whole nodes; they are repeated that way.
    whole_nodes: usize,
    #[serde(skip)]
    seen: Pods,
    #[serde(skip)]
    pods: BTreeMap<PodKey, Change>,
}

/// Namespace, name and UID.
type PodKey = (String, String, String);

#[derive(Debug, Default)]
struct Pods {
    pods: HashSet<PodKey>,
    nodes: HashSet<String>,
    span: Option<(WallTime, WallTime)>,
}

/// A decision whose repetition has another result.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Difference {
    namespace: String,
    pod: String,
    verb: Verb,
    at_ms: WallTime,
    /// The nodes whose answers differ.
    nodes: Vec<NodeDifference>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeDifference {
    node: String,
    recorded: String,
    replayed: String,
}

/// The effect of other rules on the last decisions for a pod.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Change {
    at_ms: WallTime,
    /// Nodes that passed the filter and would be rejected.
    rejected: Vec<String>,
    /// Nodes that were rejected and would pass the filter.
    admitted: Vec<String>,
    then: Best,
    now: Best,
    verdict: Verdict,
}

/// The nodes with the greatest score in a decision.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
struct Best {
    score: u32,
    nodes: Vec<String>,
}

/// Whether a pod would have gone elsewhere, as far as the extender's scores decide.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    /// The best nodes are the same.
    #[default]
    Same,
    /// Some of the best nodes are the same: kube-scheduler chooses among equals at random.
    Maybe,
    /// No node is best in both decisions.
    Elsewhere,
}

impl Report {
    pub(super) fn decisions(&self) -> usize {
        self.decisions
    }

    pub(super) fn differences(&self) -> usize {
        self.differences
    }

    /// Notes that a file ends in the middle of a line.
    pub(super) fn cut_off(&mut self) {
        self.cut_off = true;
    }

    /// Adds a decision: as recorded, repeated by the recorded rules, and by the other rules if there are any.
    pub(super) fn add(&mut self, recorded: &Recorded<'_>, again: &Decided, otherwise: Option<&Decided>) {
        self.decisions += 1;
        self.whole_nodes += usize::from(recorded.ranking == Ranking::WholeNode);
        let asked = &recorded.asked;
        let key = (asked.namespace.clone(), asked.pod.clone(), asked.uid.clone());
        let (first, last) = self.seen.span.unwrap_or((asked.at, asked.at));
        self.seen.span = Some((first.min(asked.at), last.max(asked.at)));
        self.seen.nodes.extend(recorded.names.iter().cloned());
        let answer = again.answer();
        if answer != recorded.answer {
            self.differences += 1;
            if self.differing.len() < MAX_SHOWN {
                self.differing.push(Difference::between(recorded, &answer));
            }
        }
        if let Some(otherwise) = otherwise {
            self.pods.entry(key.clone()).or_default().take(recorded, &otherwise.answer());
        }
        self.seen.pods.insert(key);
    }

    pub(super) fn write_json(&self, out: &mut impl Write, what_if: bool) -> io::Result<()> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Row<'r> {
            namespace: &'r str,
            pod: &'r str,
            uid: &'r str,
            #[serde(flatten)]
            change: &'r Change,
        }
        let rows =
            self.pods.iter().map(|((namespace, pod, uid), change)| Row { namespace, pod, uid, change });
        let mut value = serde_json::to_value(self)?;
        value["pods"] = self.seen.pods.len().into();
        value["nodes"] = self.seen.nodes.len().into();
        if what_if {
            value["whatIf"] = serde_json::to_value(rows.collect::<Vec<_>>())?;
        }
        serde_json::to_writer_pretty(&mut *out, &value)?;
        writeln!(out)
    }

    pub(super) fn write_table(&self, out: &mut impl Write, what_if: bool) -> io::Result<()> {
        for difference in &self.differing {
            let Difference { namespace, pod, verb, at_ms, nodes } = difference;
            writeln!(out, "{namespace}/{pod} {verb} at {}:", date(*at_ms))?;
            for NodeDifference { node, recorded, replayed } in nodes.iter().take(MAX_SHOWN) {
                writeln!(out, "  - {node}: {recorded}\n  + {node}: {replayed}")?;
            }
            if let Some(more) = nodes.len().checked_sub(MAX_SHOWN).filter(|more| *more > 0) {
                writeln!(out, "  and {more} nodes more")?;
            }
        }
        if what_if {
            self.write_changes(out)?;
        }
        let (pods, nodes) = (self.seen.pods.len(), self.seen.nodes.len());
        let seconds = self.seen.span.map_or(0, |(first, last)| (last - first).0 / 1000);
        let same = self.decisions - self.differences;
        writeln!(
            out,
            "{} decisions for {pods} pods on {nodes} nodes over {seconds} s: {same} came out as recorded, {} otherwise.",
            self.decisions, self.differences
        )?;
        if self.whole_nodes > 0 {
            writeln!(
                out,
                "{} of them were recorded when whole nodes were compared, not their slots, and were made again so.",
                self.whole_nodes
            )?;
        }
        if self.cut_off {
            writeln!(out, "The recording ends in the middle of a line, which was left out.")?;
        }
        Ok(())
    }

    fn write_changes(&self, out: &mut impl Write) -> io::Result<()> {
        let mut rows = vec![["POD", "AT", "THEN BEST", "NOW BEST", "FILTER", "GOES"].map(str::to_owned)];
        for ((namespace, pod, _), change) in &self.pods {
            if change.is_none() {
                continue;
            }
            rows.push([
                format!("{namespace}/{pod}"),
                date(change.at_ms),
                change.then.text(),
                change.now.text(),
                change.filter_text(),
                change.verdict.text().to_owned(),
            ]);
        }
        if rows.len() > 1 {
            write_rows(out, &rows)?;
        }
        let count = |verdict| self.pods.values().filter(|change| change.verdict == verdict).count();
        writeln!(
            out,
            "Of {} pods, by our scores {} would have gone elsewhere and {} might have; each in the situation that it met.",
            self.pods.len(),
            count(Verdict::Elsewhere),
            count(Verdict::Maybe)
        )
    }
}

impl Difference {
    fn between(recorded: &Recorded<'_>, answer: &RecordedAnswer) -> Self {
        let (then, now) =
            (texts(&recorded.answer, recorded.names.len()), texts(answer, recorded.names.len()));
        let differing = recorded.names.iter().zip(then.into_iter().zip(now));
        let nodes = differing
            .filter(|(_, (then, now))| then != now)
            .map(|(node, (recorded, replayed))| NodeDifference { node: node.clone(), recorded, replayed });
        let asked = &recorded.asked;
        Self {
            namespace: asked.namespace.clone(),
            pod: asked.pod.clone(),
            verb: asked.verb,
            at_ms: asked.at,
            nodes: nodes.collect(),
        }
    }
}

impl Change {
    /// A later decision for the pod replaces an earlier one.
    fn take(&mut self, recorded: &Recorded<'_>, now: &RecordedAnswer) {
        let names = |places: &[usize]| {
            places.iter().filter_map(|place| recorded.names.get(*place).cloned()).collect::<Vec<_>>()
        };
        match (&recorded.answer, now) {
            (RecordedAnswer::Scores(then), RecordedAnswer::Scores(now)) => {
                let best = |scores: &[u32]| {
                    let score = scores.iter().copied().max().unwrap_or_default();
                    let places: Vec<usize> =
                        (0..scores.len()).filter(|place| scores[*place] == score).collect();
                    Best { score, nodes: names(&places) }
                };
                (self.then, self.now) = (best(then), best(now));
                self.verdict = Verdict::of(&self.then.nodes, &self.now.nodes);
                self.at_ms = recorded.asked.at;
            }
            (RecordedAnswer::Rejected(then), RecordedAnswer::Rejected(now))
                if recorded.asked.verb == Verb::Filter =>
            {
                let rejected = |answer: &BTreeMap<Rejection, Vec<u32>>| {
                    answer.values().flatten().copied().collect::<HashSet<u32>>()
                };
                let (then, now) = (rejected(then), rejected(now));
                let only_in = |one: &HashSet<u32>, other: &HashSet<u32>| {
                    let mut places: Vec<usize> = one.difference(other).map(|place| *place as usize).collect();
                    places.sort_unstable();
                    names(&places)
                };
                *self = Self {
                    at_ms: recorded.asked.at,
                    rejected: only_in(&now, &then),
                    admitted: only_in(&then, &now),
                    ..Self::default()
                };
            }
            _ => {}
        }
    }

    fn is_none(&self) -> bool {
        self.verdict == Verdict::Same && self.rejected.is_empty() && self.admitted.is_empty()
    }

    fn filter_text(&self) -> String {
        let parts = [("+", &self.admitted), ("-", &self.rejected)];
        let parts = parts.iter().filter(|(_, nodes)| !nodes.is_empty());
        let parts: Vec<String> = parts.map(|(sign, nodes)| format!("{sign}{}", named(nodes))).collect();
        if parts.is_empty() { "same".to_owned() } else { parts.join(" ") }
    }
}

impl Best {
    fn text(&self) -> String {
        if self.nodes.is_empty() {
            "-".to_owned()
        } else {
            format!("{} ({})", named(&self.nodes), self.score)
        }
    }
}

impl Verdict {
    fn of(then: &[String], now: &[String]) -> Self {
        let before: HashSet<&String> = then.iter().collect();
        let after: HashSet<&String> = now.iter().collect();
        if before == after {
            Self::Same
        } else if before.is_disjoint(&after) {
            Self::Elsewhere
        } else {
            Self::Maybe
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Maybe => "maybe elsewhere",
            Self::Elsewhere => "elsewhere",
        }
    }
}

/// The answer for each candidate, as text.
fn texts(answer: &RecordedAnswer, count: usize) -> Vec<String> {
    match answer {
        RecordedAnswer::Scores(scores) => scores.iter().map(|score| format!("score {score}")).collect(),
        RecordedAnswer::Rejected(rejected) => {
            let mut texts = vec!["passes".to_owned(); count];
            for (reason, places) in rejected {
                for place in places {
                    if let Some(text) = texts.get_mut(*place as usize) {
                        *text = format!("rejected: {reason}");
                    }
                }
            }
            texts
        }
    }
}

fn named(nodes: &[String]) -> String {
    let shown = nodes.iter().take(MAX_NAMED).map(String::as_str).collect::<Vec<_>>().join(",");
    match nodes.len().saturating_sub(MAX_NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn date(at: WallTime) -> String {
    let millis = i64::try_from(at.0).ok().and_then(|millis| Timestamp::from_millisecond(millis).ok());
    millis.map_or_else(|| format!("{} ms", at.0), |date| format!("{date:.3}"))
}

/// Writes a table whose columns are as wide as their widest cell.
fn write_rows<const N: usize>(out: &mut impl Write, rows: &[[String; N]]) -> io::Result<()> {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    for row in rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}
