//! `kubectl fpga explain`: why a pod went where it did.
//!
//! The replica that kube-scheduler asked remembers the decision; which one that was, nobody else knows. So all are asked,
//! and the latest answer is shown.

use crate::answers::{Decided, Explanation, Filtered, Scored};
use crate::connection::{Cluster, ConnectArgs};
use crate::extender::{self, Answered};
use crate::nodes::{replicas, warn};
use crate::output::{Cell, Colours, Format, Style, Table, print, print_json, span};
use crate::problem::{Grant, Problem};
use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;

/// For `--help`.
pub const EXAMPLES: &str = "Examples:
  kubectl fpga explain default/sobel-7
  kubectl fpga explain sobel-7 -n default -o wide   # with the numbers behind each term
  kubectl fpga explain sobel-7 -o json              # what every replica says";

/// The most that kube-scheduler's default plugins give a node together.
pub const DEFAULT_PLUGINS: u64 = 1200;
/// The weight in the configuration that is shipped.
pub const SHIPPED_WEIGHT: u32 = 10;

const GET_POD: Grant = Grant { namespace: None, verbs: "get", resources: "pods" };

/// Which pod.
#[derive(Debug, clap::Args)]
pub struct ExplainArgs {
    /// The pod: NAMESPACE/NAME, or NAME with -n.
    #[arg(value_name = "POD", value_parser = pod)]
    pod: PodArg,
    /// How it is written.
    #[arg(short, long, env = "FPGA_OUTPUT", value_enum, default_value_t = Format::Table)]
    output: Format,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct PodArg {
    namespace: Option<String>,
    name: String,
}

/// What is known of a pod's placement.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Explained {
    namespace: String,
    pod: String,
    /// Where it is, as the API server says; nothing if it isn't placed or can't be asked.
    node: Option<String>,
    /// The latest decision, as the replica that made it tells it.
    #[serde(flatten)]
    told: Told,
    /// Replicas that know of an earlier decision, and when that was.
    others: BTreeMap<String, u64>,
}

#[derive(Debug, Serialize)]
struct Told {
    replica: String,
    explanation: Explanation,
}

impl ExplainArgs {
    /// Explains.
    ///
    /// # Errors
    /// What stood in the way, or that nobody remembers the pod.
    pub async fn run(&self, connect: &ConnectArgs) -> Result<ExitCode> {
        // With the extender's address given, a cluster makes the answer better but isn't needed.
        let cluster = connect.cluster().await;
        let configured = cluster.as_ref().ok().map(|cluster| cluster.namespace.clone());
        let namespace = self.pod.namespace.clone().or(connect.namespace.clone()).or(configured);
        let namespace = namespace.unwrap_or_else(|| "default".to_owned());
        let replicas = replicas(connect).await?;
        let path = format!("/explain/{namespace}/{}", self.pod.name);
        let answers = extender::ask_all::<Explanation>(&replicas, &path).await;
        let placed = match &cluster {
            Ok(cluster) => node_of(cluster, &namespace, &self.pod.name).await,
            Err(problem) => Err(problem.clone()),
        };
        let (told, others, silent) = latest(answers)?;
        let Some(told) = told else {
            warn(&silent);
            let where_it_is = match placed {
                Ok(Some(Some(node))) => format!("The pod runs on {node}. "),
                Ok(Some(None)) => {
                    "The pod waits; `kubectl describe pod` has kube-scheduler's words. ".to_owned()
                }
                Ok(None) => "There is no such pod. ".to_owned(),
                Err(_) => String::new(),
            };
            bail!(
                "no replica remembers a decision for pod {namespace}/{}. {where_it_is}Either it asks for nothing of an \
                 FPGA (label, annotation or resource of fpga-scheduling.io), or kube-scheduler doesn't ask the extender \
                 (`kubectl fpga doctor` finds out), or the decision is forgotten: each replica remembers the last 1,024 \
                 pods since it started",
                self.pod.name
            );
        };
        let node = placed.ok().flatten().flatten();
        let explained = Explained { namespace, pod: self.pod.name.clone(), node, told, others };
        match self.output {
            Format::Json => print_json(&explained)?,
            format => print(&explained.text(format == Format::Wide, Colours::of_stdout()))?,
        }
        warn(&silent);
        Ok(ExitCode::SUCCESS)
    }
}

/// Nothing if there is no such pod; inside, nothing if it has no node.
async fn node_of(cluster: &Cluster, namespace: &str, name: &str) -> Result<Option<Option<String>>, Problem> {
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), namespace);
    let pod = pods.get_opt(name).await;
    let pod = pod.map_err(|error| Problem::of_api(&error, &cluster.server, "can't get the pod", &GET_POD))?;
    Ok(pod.map(|pod| pod.spec.and_then(|spec| spec.node_name)))
}

type Latest = (Option<Told>, BTreeMap<String, u64>, Vec<Problem>);

/// The latest decision, when the other replicas made theirs, and why some said nothing.
fn latest(answers: Vec<Answered<Explanation>>) -> Result<Latest, Problem> {
    let (mut told, mut silent, mut answered) = (Vec::new(), Vec::new(), false);
    for Answered { replica, answer } in answers {
        match answer {
            Ok(explanation) => {
                answered = true;
                told.extend(explanation.map(|explanation| Told { replica, explanation }));
            }
            Err(problem) => silent.push(problem),
        }
    }
    if let (false, Some(problem)) = (answered, silent.first()) {
        return Err(problem.clone());
    }
    told.sort_by_key(|told| told.explanation.at());
    let last = told.pop();
    let others = told.into_iter().map(|told| (told.replica, told.explanation.at())).collect();
    Ok((last, others, silent))
}

impl Explained {
    fn text(&self, wide: bool, colours: Colours) -> String {
        let Told { replica, explanation } = &self.told;
        let mut out = String::new();
        let mut line = |text: String| {
            out.push_str(&text);
            out.push('\n');
        };
        line(colours.paint(&format!("Pod {}/{}", self.namespace, self.pod), Style::Bold));
        line(format!("  asks for   {}", asks(&explanation.requirement)));
        line(format!("  decided    {} by {replica}", date(explanation.at())));
        line(format!("  is on      {}", self.node.as_deref().unwrap_or("no node that is known")));
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
            None => line(
                "  No scores: one node was left after the filter, and kube-scheduler then asks for none."
                    .to_owned(),
            ),
        }
        out
    }

    /// The final order with every term.
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
        rows.sort_by(|a, b| b.score.cmp(&a.score).then_with(|| a.node.cmp(&b.node)));
        let shown = if wide { rows.len() } else { rows.len().min(20) };
        for node in rows.iter().take(shown) {
            let is_here = self.node.as_ref() == Some(&node.node);
            let mut row: Vec<Cell> = vec![
                if is_here { "→" } else { "" }.into(),
                Cell::new(&*node.node, if is_here { Style::Bold } else { Style::Plain }),
                node.score.to_string().into(),
            ];
            row.extend(weights.iter().map(|(name, _)| term(node, name)));
            let measured = node.measured.as_ref().map(|measured| {
                let mut text =
                    format!("{} used, {} reconf", span(measured.usage_ms), span(measured.reconfiguration_ms));
                if wide {
                    for (name, value) in &measured.others {
                        // Writing to a String can't fail.
                        let _ = write!(text, ", {name} {value}");
                    }
                }
                text
            });
            let expected = node
                .expected
                .as_ref()
                .map(|expected| format!("+{} of {:.1} pods", span(expected.usage_ms), expected.pods));
            let age = node.measured.as_ref().map(|measured| span(measured.age_ms));
            let mut notes = Vec::new();
            if node.freshness != "fresh" {
                notes.push(format!("state {}", node.freshness));
            }
            if node.capped == "yes" {
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

    /// Who decided, and who could have.
    fn verdict(&self, scores: &Decided<Scored>) -> Vec<String> {
        let rules = &self.told.explanation.rules;
        let votes = self.told.explanation.votes.as_ref();
        let weight = votes.map_or(SHIPPED_WEIGHT, |votes| votes.scheduler_weight);
        let per_score = votes.map_or(u64::from(weight) * 10, |votes| votes.points_per_score);
        let ours = votes.map_or(per_score * u64::from(rules.max_score), |votes| votes.ours_at_most);
        let theirs = votes.map_or(DEFAULT_PLUGINS, |votes| votes.plugins_at_most);
        let mut lines = vec![format!(
            "In kube-scheduler's points one score is worth {per_score} (weight {weight}): ours count up to {ours}, its \
             default plugins up to {theirs}{}.",
            match theirs.saturating_sub(ours) {
                0 => " and can't outvote us alone".to_owned(),
                by => format!(", so that they can outvote us by {by}"),
            }
        )];
        let best = scores.nodes.iter().map(|node| node.score).max().unwrap_or_default();
        let best_nodes: Vec<&Scored> = scores.nodes.iter().filter(|node| node.score == best).collect();
        let next = scores.nodes.iter().map(|node| node.score).filter(|score| *score < best).max();
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
        if let Some(here) = &self.node {
            match scores.nodes.iter().find(|node| node.node == *here) {
                Some(node) if node.score == best => lines.push(format!("The pod is on {here}: one of our best.")),
                Some(node) => lines.push(format!(
                    "The pod is on {here}, {} points behind our best: kube-scheduler's plugins outvoted us by more than \
                     that. A greater `weight` in its configuration would change it.",
                    u64::from(best - node.score) * per_score
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
    let Some(term) = node.others.get(signal) else { return "-".into() };
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
    text
}

fn asks(requirement: &serde_json::Value) -> String {
    let mut parts = Vec::new();
    for key in ["vendor", "board", "shell"] {
        if let Some(value) = requirement[key].as_str() {
            parts.push(format!("{key} {value}"));
        }
    }
    if let Some(slots) = requirement["slots"].as_u64() {
        parts.push(format!("{slots} slots at least"));
    }
    let bitstreams: Vec<&str> =
        requirement["bitstreams"].as_array().into_iter().flatten().filter_map(|name| name.as_str()).collect();
    if !bitstreams.is_empty() {
        parts.push(format!("bitstreams {}", bitstreams.join(", ")));
    }
    parts.join(", ")
}

fn date(millis: u64) -> String {
    let date = i64::try_from(millis).ok().and_then(|millis| Timestamp::from_millisecond(millis).ok());
    date.map_or_else(|| millis.to_string(), |date| format!("{date:.3}"))
}

fn pod(text: &str) -> Result<PodArg, String> {
    let (namespace, name) = match text.split_once('/') {
        Some(("pod" | "pods", name)) => (None, name),
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, text),
    };
    let plain = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphanumeric())
            && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.'))
    };
    if plain(name) && namespace.is_none_or(plain) {
        Ok(PodArg { namespace: namespace.map(str::to_owned), name: name.to_owned() })
    } else {
        Err("write NAMESPACE/NAME, or NAME with -n NAMESPACE".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn explanation(at: u64, scores: &[(&str, u32)]) -> Explanation {
        let nodes = scores.iter().map(|(node, score)| {
            json!({
                "node": node, "source": "stream", "score": score, "freshness": "fresh", "capped": "no", "mean": 0.5,
                "locality": {"value": 1.0, "basis": "measured"}, "usage": {"value": 0.25, "basis": "measured"},
                "queue": {"value": 0.0, "basis": "unweighted"},
                "measured": {"usageMs": 9000, "reconfigurationMs": 12, "ageMs": 300, "freeSlots": 2},
                "expected": {"usageMs": 4000, "pods": 1.5},
            })
        });
        let nodes: Vec<_> = nodes.collect();
        serde_json::from_value(json!({
            "rules": {"weights": {"locality": 1.0, "usage": 2.0, "queue": 0.0}, "max_score": 10, "stale": {}, "anti_herd": "on"},
            "namespace": "d", "name": "p", "uid": "u",
            "requirement": {"vendor": "intel", "board": null, "slots": 1, "bitstreams": ["sobel"]},
            "filter": {"atMs": at - 1, "nodes": [
                {"node": "n9", "source": "none", "rejection": "board"}, {"node": "n1", "source": "stream", "rejection": null}]},
            "prioritize": {"atMs": at, "nodes": nodes},
        }))
        .unwrap()
    }

    fn text(node: Option<&str>, scores: &[(&str, u32)]) -> String {
        let told = Told { replica: "r1".into(), explanation: explanation(1_760_000_000_000, scores) };
        let (namespace, pod, others) = ("d".into(), "p".into(), BTreeMap::new());
        Explained { namespace, pod, node: node.map(str::to_owned), told, others }.text(false, Colours::Off)
    }

    #[test]
    fn every_term_is_shown_in_the_final_order_and_who_could_outvote_us() {
        let text = text(Some("n1"), &[("n2", 3), ("n1", 9)]);
        for part in [
            "asks for   vendor intel, 1 slots at least, bitstreams sobel",
            "decided    2025-10-09T08:53:20.000Z by r1",
            "1 of 2 nodes passed",
            "board: n9",
            "LOCALITY×1  USAGE×2",
            "→  n1    9      1.00        0.25     9s used, 12ms reconf  +4s of 1.5 pods  300ms  stream",
            "one score is worth 100 (weight 10): ours count up to 1000, its default plugins up to 1200, so that they can outvote us by 200",
            "Our best is n1, 600 points ahead of the next",
            "The pod is on n1: one of our best.",
        ] {
            assert!(text.contains(part), "{text}\nhas no {part}");
        }
        assert!(!text.contains("QUEUE"), "a signal without weight is left out");
        assert!(text.find("n1    9") < text.find("n2    3"));
    }

    #[test]
    fn a_pod_that_is_elsewhere_is_told_how_far_behind_it_is() {
        assert!(text(Some("n2"), &[("n2", 3), ("n1", 9)]).contains("600 points behind our best"));
        assert!(text(Some("n7"), &[("n2", 3), ("n1", 9)]).contains("not among the candidates"));
        assert!(text(None, &[("n2", 9), ("n1", 9)]).contains("All nodes have the same score"));
        assert!(
            text(None, &[("n2", 9), ("n1", 9), ("n3", 8)]).contains("2 nodes are our best, 100 points ahead")
        );
    }

    #[test]
    fn the_latest_of_all_replicas_is_told() {
        let said = |replica: &str, answer| Answered { replica: replica.to_owned(), answer };
        let silent = || Problem::Silent { replica: "c".into(), error: "x".into() };
        let answers = vec![
            said("a", Ok(Some(explanation(5, &[])))),
            said("b", Ok(Some(explanation(9, &[])))),
            said("c", Err(silent())),
            said("d", Ok(None)),
        ];
        let (told, others, problems) = latest(answers).unwrap();
        assert_eq!((told.unwrap().replica.as_str(), others["a"], problems.len()), ("b", 5, 1));
        assert!(latest(vec![said("c", Err(silent()))]).is_err());
        assert!(latest(vec![said("d", Ok(None)), said("c", Err(silent()))]).unwrap().0.is_none());
    }

    #[test]
    fn a_pod_is_named_in_the_ways_that_kubectl_knows() {
        let arg = |namespace: Option<&str>, name: &str| {
            Ok(PodArg { namespace: namespace.map(str::to_owned), name: name.to_owned() })
        };
        assert_eq!(pod("a/b"), arg(Some("a"), "b"));
        assert_eq!(pod("b"), arg(None, "b"));
        assert_eq!(pod("pod/b"), arg(None, "b"));
        for bad in ["", "a/", "/b", "a/b/c", "a b", "../x"] {
            assert!(pod(bad).is_err(), "{bad}");
        }
    }
}
