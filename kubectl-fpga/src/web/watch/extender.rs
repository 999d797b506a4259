//! The nodes as the extender sees them, and its decisions, asked again and again.

use super::super::model::source::{Source, State};
use super::super::shared::Shared;
use super::RETRY;
use crate::connection::ConnectArgs;
use crate::part::Part;
use crate::problem::Problem;
use crate::replicas::{self, Replica};
use fpga_extender_api::{DecisionView, NodeView};
use std::sync::Arc;
use std::time::Duration;

/// Least time between two questions.
const PERIOD: Duration = Duration::from_millis(400);
/// The extender's answers take at most this many bytes a second, so that a large cluster is asked less often.
const BYTES_PER_SECOND: u64 = 4 << 20;

/// Asks until the future is dropped.
pub(super) async fn poll(connect: ConnectArgs, shared: Arc<Shared>) {
    let tell = |state: State| shared.change(|model, _| model.source(Source::Extender, &state));
    tell(State::Connecting);
    loop {
        let problem = match replicas::replicas(Part::Extender, &connect).await {
            Ok(replicas) => ask(&replicas, &shared).await,
            Err(problem) => problem,
        };
        tell(State::from(&problem));
        shared.change(|model, now_ms| model.deaf(now_ms));
        tokio::time::sleep(RETRY).await;
    }
}

/// Asks these replicas until none answers. All replicas hear the same of nodes, so one is asked for them; a decision is
/// known to the replica that made it.
async fn ask(replicas: &[Replica], shared: &Shared) -> Problem {
    loop {
        let (mut bytes, mut problem) = (None, None);
        for replica in replicas {
            match nodes(replica).await {
                Ok((views, length)) => {
                    shared.change(|model, now_ms| {
                        model.heard(views, now_ms);
                        model.source(Source::Extender, &State::live());
                    });
                    bytes = Some(length);
                    break;
                }
                Err(silent) => problem = problem.or(Some(silent)),
            }
        }
        let Some(bytes) = bytes else {
            // `replicas` is never empty, so that one of them did not answer.
            return problem.unwrap_or_else(|| Problem::Other {
                doing: "asking the extender".to_owned(),
                error: "it has no replica".to_owned(),
            });
        };
        let since = shared.change(|model, _| model.last_decision_ms());
        for told in
            replicas::ask_all::<Vec<DecisionView>>(replicas, &format!("/decisions?since={since}")).await
        {
            // An extender of an older version knows no such question.
            if let Ok(Some(decisions)) = told.answer {
                shared.change(|model, _| model.decided(decisions));
            }
        }
        tokio::time::sleep(pause(bytes)).await;
    }
}

async fn nodes(replica: &Replica) -> Result<(Vec<NodeView>, u64), Problem> {
    let text = replica.text("/nodes").await?.unwrap_or_else(|| "[]".to_owned());
    let views = serde_json::from_str(&text).map_err(|error| Problem::Answer {
        part: Part::Extender,
        replica: replica.name.clone(),
        error: error.to_string(),
    })?;
    Ok((views, text.len() as u64))
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
