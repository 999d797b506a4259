//! `kubectl fpga route`: where the requests of a function went, and why.
//!
//! The requests of a function pass one of the endpoint picker's replicas at a time, and only that one remembers them. So
//! all replicas are asked, and those are shown that remember any.

use crate::connection::ConnectArgs;
use crate::nodes::warn;
use crate::output::{Cell, Colours, Format, Style, Table, print, print_json, printable, span};
use crate::part::Part;
use crate::problem::Problem;
use crate::replicas::{self, Answered};
use anyhow::{Result, bail};
use fpga_picker_api::{FunctionView, OutcomeView, PickView, PicksView, ReplicaView};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;

/// Examples in the output of `--help`.
pub const EXAMPLES: &str = "Examples:
  kubectl fpga route default/sobel
  kubectl fpga route sobel -n default --count 30
  kubectl fpga route default/sobel -o json --picker http://127.0.0.1:9471   # behind a forwarded port";

/// Arguments of `route`.
#[derive(Debug, clap::Args)]
pub struct RouteArgs {
    /// The function: NAMESPACE/NAME, or NAME with -n.
    #[arg(value_name = "FUNCTION", value_parser = function)]
    function: FunctionArg,
    /// Number of picks that are shown; a picker remembers the last 32.
    #[arg(long, env = "FPGA_ROUTE_COUNT", default_value_t = 10)]
    count: usize,
    /// Format of the output.
    #[arg(short, long, env = "FPGA_OUTPUT", value_enum, default_value_t = Format::Table)]
    output: Format,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FunctionArg {
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
}

impl RouteArgs {
    /// Prints the function and its last picks.
    ///
    /// # Errors
    /// No replica of the picker answers, or none knows the function.
    pub async fn run(&self, connect: &ConnectArgs) -> Result<ExitCode> {
        // With `--picker` no cluster is needed.
        let namespace = match self.function.namespace.clone().or(connect.namespace.clone()) {
            Some(namespace) => namespace,
            None => {
                connect.cluster().await.map_or_else(|_| "default".to_owned(), |cluster| cluster.namespace)
            }
        };
        let pickers = replicas::replicas(Part::Picker, connect).await?;
        let path = format!("/picks/{namespace}/{}", self.function.name);
        let (mut known, silent) = answers(replicas::ask_all::<PicksView>(&pickers, &path).await)?;
        if known.is_empty() {
            warn(&silent);
            bail!(
                "no picker knows the function {namespace}/{name}. A function is a Service with the label \
                 fpga-scheduling.io/function; `kubectl label service -n {namespace} {name} fpga-scheduling.io/function=` \
                 makes one known",
                name = self.function.name
            );
        }
        if known.values().any(|view| !view.picks.is_empty()) {
            known.retain(|_, view| !view.picks.is_empty());
        }
        known.values_mut().for_each(|view| view.picks.truncate(self.count));
        match self.output {
            Format::Json => print_json(&known)?,
            Format::Table | Format::Wide => {
                for (picker, view) in &known {
                    print(&text(picker, view, Colours::of_stdout()))?;
                }
            }
        }
        warn(&silent);
        Ok(ExitCode::SUCCESS)
    }
}

pub(crate) type Known = BTreeMap<String, PicksView>;

/// What each picker knows, and the problems of those that did not answer.
pub(crate) fn answers(answers: Vec<Answered<PicksView>>) -> Result<(Known, Vec<Problem>), Problem> {
    let (mut known, mut silent, mut answered) = (Known::new(), Vec::new(), false);
    for Answered { replica, answer } in answers {
        match answer {
            Ok(view) => {
                answered = true;
                known.extend(view.map(|view| (replica, view)));
            }
            Err(problem) => silent.push(problem),
        }
    }
    match (answered, silent.first()) {
        (false, Some(problem)) => Err(problem.clone()),
        _ => Ok((known, silent)),
    }
}

fn text(picker: &str, view: &PicksView, colours: Colours) -> String {
    let PicksView { function, picks } = view;
    let mut text = head(picker, function);
    let mut table =
        Table::new(&["REPLICA", "NODE", "BOARD", "IN FLIGHT", "IDLE SLOTS", "WITH BITSTREAM", "WAITING"]);
    for replica in &function.replicas {
        table.push(row(replica));
    }
    text.push_str(&match table.is_empty() {
        true => "No replica is ready.\n".to_owned(),
        false => table.render(colours),
    });
    text.push('\n');
    let mut table = Table::new(&["AGO", "TO", "NODE", "BOARD", "WHY", "THEN"]);
    picks.iter().for_each(|pick| table.push(pick_row(pick)));
    text.push_str(&match table.is_empty() {
        true => "No request yet.\n".to_owned(),
        false => table.render(colours),
    });
    text
}

fn head(picker: &str, function: &FunctionView) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        // Writing to a string can't fail.
        let _ = writeln!(text, "{name:<11}{}", printable(&value));
    };
    line("function", format!("{}/{}", function.namespace, function.name));
    line("bitstream", function.bitstream.clone().unwrap_or_else(|| "nobody says".to_owned()));
    line("picker", picker.to_owned());
    line(
        "demand",
        format!(
            "{:.2} requests/s, {:.2} in flight (means of the last minutes); {} in flight now",
            function.per_second, function.mean_in_flight, function.in_flight
        ),
    );
    line(
        "replicas",
        format!("{}; recommended by demand: {}", function.replicas.len(), function.recommended_replicas),
    );
    text.push('\n');
    text
}

fn row(replica: &ReplicaView) -> Vec<Cell> {
    let known = |figure: usize| match replica.fresh {
        true => Cell::from(figure.to_string()),
        false => Cell::new("?", Style::Yellow),
    };
    let idle = match replica.fresh {
        true => Cell::from(format!("{} of {}", replica.idle, replica.slots)),
        false => Cell::new("?", Style::Yellow),
    };
    vec![
        replica.address.to_string().into(),
        replica.node.as_deref().unwrap_or("?").into(),
        boards(replica),
        replica.in_flight.to_string().into(),
        idle,
        known(replica.idle_with_bitstream),
        known(replica.waiting),
    ]
}

/// The boards of a replica, and why some are out of rotation.
fn boards(replica: &ReplicaView) -> Cell {
    let mut text = replica.board.clone().unwrap_or_else(|| "?".to_owned());
    for (board, reason) in &replica.cordons {
        let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        // Writing to a string can't fail.
        let _ = write!(text, "; {board} is cordoned{reason}");
    }
    let style = if replica.cordons.is_empty() { Style::Plain } else { Style::Yellow };
    Cell::new(text, style)
}

fn pick_row(pick: &PickView) -> Vec<Cell> {
    let ago = Cell::from(span(pick.ago_ms));
    match &pick.outcome {
        OutcomeView::Refused { refused } => {
            let why = format!("refused: {}", refused.replace('_', " "));
            vec![ago, "-".into(), "-".into(), "-".into(), Cell::new(why, Style::Red), "".into()]
        }
        OutcomeView::Picked { basis, endpoints, node, board, in_flight, waiting } => {
            let candidates = pick.candidates;
            let why = match basis.as_str() {
                "resident" => Cell::new("an idle slot has the bitstream", Style::Green),
                "load" => {
                    Cell::from(format!("no idle slot of {candidates} has the bitstream: this one is loaded"))
                }
                "queue" => Cell::new(
                    format!("all slots of {candidates} are busy: the shortest queue, {waiting} wait"),
                    Style::Yellow,
                ),
                "in_flight" => Cell::new(
                    format!(
                        "nothing fresh is known of its board: fewest in flight of {candidates}, {in_flight}"
                    ),
                    Style::Yellow,
                ),
                "cordoned" => Cell::new(
                    format!("its board is cordoned, and no other replica of {candidates} has an idle slot"),
                    Style::Yellow,
                ),
                other => Cell::from(other),
            };
            let then = endpoints.iter().skip(1).map(ToString::to_string).collect::<Vec<_>>().join(",");
            vec![
                ago,
                endpoints.first().map_or_else(|| "-".to_owned(), ToString::to_string).into(),
                node.as_deref().unwrap_or("?").into(),
                board.as_deref().unwrap_or("?").into(),
                why,
                then.into(),
            ]
        }
    }
}

pub(crate) fn function(text: &str) -> Result<FunctionArg, String> {
    let (namespace, name) = match text.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, text),
    };
    let plain = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphanumeric())
            && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    if plain(name) && namespace.is_none_or(plain) {
        Ok(FunctionArg { namespace: namespace.map(str::to_owned), name: name.to_owned() })
    } else {
        Err("write NAMESPACE/NAME of a function, or NAME with -n NAMESPACE".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn view(picks: &serde_json::Value) -> PicksView {
        let replica = |port: u16, fresh: bool| {
            json!({"address": format!("10.0.0.1:{port}"), "node": "n1", "board": "dm0", "fresh": fresh, "inFlight": 1,
                "slots": 2, "idleWithBitstream": 1, "idle": 1, "waiting": 0})
        };
        let mut cordoned = replica(3, true);
        cordoned["cordons"] = json!({"dm0": "fan\u{1b}[2J"});
        serde_json::from_value(json!({
            "function": {"namespace": "default", "name": "sobel", "bitstream": "so\u{1b}[2Jbel", "inFlight": 2,
                "perSecond": 1.5, "meanInFlight": 0.75, "recommendedReplicas": 3,
                "replicas": [replica(1, true), replica(2, false), cordoned]},
            "picks": picks,
        }))
        .unwrap()
    }

    #[test]
    fn each_reason_is_told_and_names_do_not_steer_the_terminal() {
        let picked = |basis: &str| {
            json!({"agoMs": 1500, "candidates": 4, "basis": basis, "endpoints": ["10.0.0.1:1", "10.0.0.1:2"],
                "node": "n\u{1b}]0;x\u{7}", "board": null, "inFlight": 5, "waiting": 7})
        };
        let refused = json!({"agoMs": 10, "candidates": 0, "refused": "too_many_waiting"});
        let picks = ["resident", "load", "queue", "in_flight", "cordoned"].map(picked);
        let picks = json!([&picks[..], &[refused]].concat());
        let text = text("p\u{1b}1", &view(&picks), Colours::Off);
        for part in [
            "demand     1.50 requests/s, 0.75 in flight",
            "replicas   3; recommended by demand: 3",
            "10.0.0.1:1  n1    dm0 ",
            "1          1 of 2      1               0",
            "10.0.0.1:2  n1    dm0 ",
            "1          ?           ?               ?",
            "an idle slot has the bitstream",
            "no idle slot of 4 has the bitstream",
            "all slots of 4 are busy: the shortest queue, 7 wait",
            "fewest in flight of 4, 5",
            "its board is cordoned, and no other replica of 4 has an idle slot",
            "dm0; dm0 is cordoned: fan",
            "refused: too many waiting",
        ] {
            assert!(text.contains(part), "{text}\nhas no {part}");
        }
        assert!(!text.contains(['\u{1b}', '\u{7}']), "{text:?}");
    }

    #[test]
    fn a_function_is_a_namespace_and_a_name() {
        assert_eq!(function("d/f").unwrap(), FunctionArg { namespace: Some("d".into()), name: "f".into() });
        assert_eq!(function("f").unwrap(), FunctionArg { namespace: None, name: "f".into() });
        for text in ["", "/f", "d/", "d/../nodes", "a b", "d/f?x"] {
            assert!(function(text).unwrap_err().contains("NAMESPACE/NAME"), "{text}");
        }
    }
}
