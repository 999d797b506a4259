//! The answer to `/nodes`, written in pieces.

use crate::app::App;
use crate::clock::Moment;
use crate::index::{Changes, Node};
use crate::response::json;
use crate::verbs::Refusal;
use axum::body::Body;
use axum::extract::{Query, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use fpga_core::node_labels::NodeLabels;
use fpga_core::node_state::NodeState;
use fpga_core::staleness::Knowledge;
use fpga_extender_api::{KnownState, NodeChanges, NodeView};
use serde::Deserialize;
use std::sync::Arc;

/// Which nodes are asked for.
#[derive(Debug, Deserialize)]
pub struct Asked {
    since: Option<String>,
}

/// All nodes as a decision made now would see them, as a JSON array in pieces. With `?since=VERSION` only what has changed
/// since: an object with `nodes`, the names of those that have `gone`, the `version` for the next question, and `isWhole`
/// if `nodes` are all nodes, as they are without a known VERSION. A node changes when a state or its labels arrive; the
/// reader counts its age. The index is locked only while the nodes are listed, and one piece of the answer is in memory at
/// a time.
pub async fn known_nodes(
    State(app): State<Arc<App>>,
    Query(asked): Query<Asked>,
    request: Request,
) -> Response {
    let at = app.clock.read();
    let version = asked.since.as_ref().and_then(|version| version.parse().ok());
    let mut changes = app.index.since(version);
    changes.nodes.sort_by(|(one, _), (other, _)| one.cmp(other));
    let bytes = (changes.nodes.len() + changes.gone.len()) * NODE_BYTES + PIECE_BYTES;
    let Ok(charge) = app.reading_budget.take(request.extensions(), bytes).await else {
        return Refusal::Busy.into_response();
    };
    let (begin, end) = match asked.since {
        None => (Ok(b"[".to_vec()), b"]".as_slice()),
        Some(_) => (begin(&changes), b"]}".as_slice()),
    };
    let nodes = changes.nodes.into_iter();
    let pieces = Pieces { nodes, at, next: Some(begin), end };
    charge.answer(json(StatusCode::OK, Body::from_stream(futures::stream::iter(pieces))), bytes)
}

/// The text of changes up to their first node.
fn begin(changes: &Changes) -> serde_json::Result<Vec<u8>> {
    let begin: NodeChanges<&str> = NodeChanges {
        version: &changes.version.to_string(),
        is_whole: changes.is_whole,
        gone: changes.gone.iter().map(|name| &**name).collect(),
        nodes: Vec::new(),
    };
    let mut text = serde_json::to_vec(&begin)?;
    // The nodes are the last field, so that the text ends with `[]}`.
    text.truncate(text.len() - 2);
    Ok(text)
}

/// Memory for each node that is still to be written, its name included.
const NODE_BYTES: usize = 128;

/// The answer as an iterator of pieces.
struct Pieces {
    nodes: std::vec::IntoIter<(Box<str>, Arc<Node>)>,
    at: Moment,
    /// The start of the next piece; `None` after the last one.
    next: Option<serde_json::Result<Vec<u8>>>,
    /// What follows the last node.
    end: &'static [u8],
}

/// Least size of a piece but the last.
const PIECE_BYTES: usize = 32 * 1024;

impl Iterator for Pieces {
    type Item = serde_json::Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut piece = match self.next.take()? {
            Ok(begin) => begin,
            Err(error) => return Some(Err(error)),
        };
        for index in 0.. {
            let Some((name, node)) = self.nodes.next() else {
                // The last node was in this piece, or there was none at all.
                piece.extend_from_slice(self.end);
                return Some(Ok(piece));
            };
            if index > 0 {
                piece.push(b',');
            }
            if let Err(error) = serde_json::to_writer(&mut piece, &view(&name, &node, self.at)) {
                return Some(Err(error));
            }
            if piece.len() >= PIECE_BYTES && self.nodes.len() > 0 {
                break;
            }
        }
        self.next = Some(Ok(vec![b',']));
        Some(Ok(piece))
    }
}

/// A node as a decision made at `at` would see it.
fn view<'a>(name: &'a str, node: &'a Node, at: Moment) -> NodeView<&'a str, &'a NodeLabels, &'a NodeState> {
    let known = match &node.facts.knowledge {
        Knowledge::Known(received) => {
            let (state, age) = (received.state(), received.age(at.now));
            let load = received.signals().load_at(age);
            Some(KnownState {
                age_ms: age.0,
                version: Some(state.version()),
                usage_ms: load.usage.0,
                reconfiguration_ms: load.reconfiguration.0,
                state,
            })
        }
        Knowledge::Absent | Knowledge::Unreadable => None,
    };
    NodeView {
        name,
        labels: &node.facts.labels,
        freshness: node.facts.knowledge.freshness(at.now).name(),
        source: node.source.name(),
        problem: node.problem.as_ref().map(ToString::to_string),
        known,
    }
}
