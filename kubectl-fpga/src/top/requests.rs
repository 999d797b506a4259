//! `kubectl fpga top --by replica`: the replicas of functions with the most requests in flight.

use crate::output::{Cell, Style, Table};
use crate::problem::Problem;
use crate::replicas::{self, Answered, Replica};
use fpga_picker_api::FunctionView;
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// A replica of a function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    function: String,
    replica: SocketAddr,
    node: Option<String>,
    board: Option<String>,
    in_flight: usize,
    /// Requests that wait for a slot of the board; `None` if nothing fresh is known of it.
    waiting: Option<usize>,
}

/// The `count` replicas with the most requests in flight, and the problems of pickers that did not answer.
///
/// # Errors
/// If no picker answered: the problem of the first.
pub async fn look(pickers: &[Replica], count: usize) -> Result<(Vec<Line>, Vec<Problem>), Problem> {
    busiest(replicas::ask_all::<Vec<FunctionView>>(pickers, "/functions").await, count)
}

fn busiest(
    answers: Vec<Answered<Vec<FunctionView>>>,
    count: usize,
) -> Result<(Vec<Line>, Vec<Problem>), Problem> {
    let mut lines: BTreeMap<(String, SocketAddr), Line> = BTreeMap::new();
    let (mut silent, mut answered) = (Vec::new(), false);
    for Answered { answer, .. } in answers {
        let functions = match answer {
            Ok(functions) => functions.unwrap_or_default(),
            Err(problem) => {
                silent.push(problem);
                continue;
            }
        };
        answered = true;
        for function in functions {
            let name = format!("{}/{}", function.namespace, function.name);
            for replica in function.replicas {
                let waiting = replica.fresh.then_some(replica.waiting);
                let line = lines.entry((name.clone(), replica.address)).or_insert_with(|| Line {
                    function: name.clone(),
                    replica: replica.address,
                    node: replica.node,
                    board: replica.board,
                    in_flight: 0,
                    waiting,
                });
                // Each picker counts the requests that pass it.
                line.in_flight += replica.in_flight;
                line.waiting = line.waiting.max(waiting);
            }
        }
    }
    if let (false, Some(problem)) = (answered, silent.first()) {
        return Err(problem.clone());
    }
    let mut lines: Vec<Line> = lines.into_values().collect();
    lines.sort_by_key(|line| std::cmp::Reverse(line.in_flight));
    lines.truncate(count);
    Ok((lines, silent))
}

/// The lines as a table.
pub fn table(lines: &[Line]) -> Table {
    let mut table = Table::new(&["FUNCTION", "REPLICA", "NODE", "BOARD", "IN FLIGHT", "WAITING"]);
    for line in lines {
        table.push(vec![
            line.function.as_str().into(),
            line.replica.to_string().into(),
            line.node.as_deref().unwrap_or("?").into(),
            line.board.as_deref().unwrap_or("?").into(),
            line.in_flight.to_string().into(),
            line.waiting.map_or_else(|| Cell::new("?", Style::Yellow), |waiting| waiting.to_string().into()),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Colours;
    use serde_json::json;

    #[test]
    fn requests_in_flight_of_all_pickers_count_and_the_most_come_first() {
        let view = |in_flight: [usize; 2]| {
            let replica = |port: usize| {
                json!({"address": format!("10.0.0.1:{}", port + 1), "node": "n\u{1b}1", "board": null, "fresh": port == 0,
                    "inFlight": in_flight[port], "slots": 2, "idleWithBitstream": 0, "idle": 0, "waiting": 3})
            };
            let function = json!({"namespace": "d", "name": "f", "bitstream": null, "inFlight": 0, "perSecond": 0.0,
                "meanInFlight": 0.0, "recommendedReplicas": 1, "replicas": [replica(0), replica(1)]});
            let functions = serde_json::from_value(json!([function])).unwrap();
            Answered { replica: "p".into(), answer: Ok(Some(functions)) }
        };
        let (lines, silent) = busiest(vec![view([1, 4]), view([2, 0])], 9).unwrap();
        assert!(silent.is_empty());
        let text = table(&lines).render(Colours::Off);
        let rows: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(
            rows,
            [
                "d/f       10.0.0.1:2  n\u{fffd}1   ?      4          ?",
                "d/f       10.0.0.1:1  n\u{fffd}1   ?      3          3"
            ]
        );
        assert_eq!(busiest(vec![view([1, 4])], 1).unwrap().0.len(), 1);
    }
}
