//! The nodes as the extender sees them, and its decisions, asked again and again.

use super::super::model::source::{Source, State};
use super::super::shared::Shared;
use super::RETRY;
use crate::connection::ConnectArgs;
use crate::part::Part;
use crate::problem::Problem;
use crate::replicas::{self, Replica};
use fpga_extender_api::{DecisionView, NodeChanges};
use futures::future::join_all;
use std::sync::Arc;
use std::time::Duration;

/// Least time between two questions.
const PERIOD: Duration = Duration::from_millis(400);
/// The answers on nodes take at most this many bytes a second, so that a large cluster whose nodes all change is asked less
/// often.
const BYTES_PER_SECOND: u64 = 4 << 20;

/// Asks until the future is dropped.
pub(super) async fn poll(connect: ConnectArgs, shared: Arc<Shared>) {
    let tell = |state: State| shared.change(|model, _| model.source(Source::Extender, &state));
    tell(State::Connecting);
    loop {
        let problem = match replicas::replicas(Part::Extender, &connect).await {
            Ok(replicas) => {
                let decisions = join_all(replicas.iter().map(|replica| follow_decisions(replica, &shared)));
                tokio::select! {
                    problem = follow_nodes(&replicas, &shared) => problem,
                    // They end only if there is no replica.
                    _ = decisions => no_replica(),
                }
            }
            Err(problem) => problem,
        };
        tell(State::from(&problem));
        shared.change(|model, now_ms| model.deaf(now_ms));
        tokio::time::sleep(RETRY).await;
    }
}

/// Follows the nodes until no replica answers. All replicas hear the same of nodes, so one is asked for them, until it does
/// not answer.
async fn follow_nodes(replicas: &[Replica], shared: &Shared) -> Problem {
    // Number of replicas that have not answered since one did.
    let mut silent = 0;
    for replica in replicas.iter().cycle() {
        let mut version = String::new();
        let problem = loop {
            let (changes, bytes) = match changes(replica, &version).await {
                Ok(answer) => answer,
                Err(problem) => break problem,
            };
            silent = 0;
            version.clone_from(&changes.version);
            shared.change(|model, now_ms| {
                model.heard(changes, now_ms);
                model.source(Source::Extender, &State::live());
            });
            tokio::time::sleep(pause(bytes)).await;
        };
        silent += 1;
        if silent >= replicas.len() {
            return problem;
        }
    }
    no_replica()
}

/// What has changed of the nodes since a version, and the length of the answer in bytes.
async fn changes(replica: &Replica, version: &str) -> Result<(NodeChanges, u64), Problem> {
    let text = replica.text(&format!("/nodes?since={version}")).await?.unwrap_or_else(|| "[]".to_owned());
    // An extender of an older version tells all nodes, as an array.
    let changes = if text.starts_with('[') {
        let nodes = replica.parse(&text)?;
        NodeChanges { version: String::new(), is_whole: true, gone: Vec::new(), nodes }
    } else {
        replica.parse(&text)?
    };
    Ok((changes, text.len() as u64))
}

/// Follows the decisions of a replica, which alone knows them, for as long as the future is polled.
async fn follow_decisions(replica: &Replica, shared: &Shared) {
    let mut since = 0;
    loop {
        let told = replica.ask::<Vec<DecisionView>>(&format!("/decisions?since={since}")).await;
        // Whether the extender answers is seen at its nodes, and one of an older version knows no such question.
        if let Ok(Some(decisions)) = told {
            since = decisions.iter().map(|decision| decision.at_ms).max().unwrap_or(since);
            shared.change(|model, _| model.decided(decisions));
        }
        tokio::time::sleep(PERIOD).await;
    }
}

/// A list of replicas is never empty.
fn no_replica() -> Problem {
    Problem::Other { doing: "asking the extender".to_owned(), error: "it has no replica".to_owned() }
}

/// The pause after an answer of so many bytes.
fn pause(bytes: u64) -> Duration {
    PERIOD.max(Duration::from_millis(bytes.saturating_mul(1000) / BYTES_PER_SECOND))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_cluster_is_asked_less_often() {
        assert_eq!(pause(1000), PERIOD);
        assert_eq!(pause(10 * BYTES_PER_SECOND), Duration::from_secs(10));
    }
}
