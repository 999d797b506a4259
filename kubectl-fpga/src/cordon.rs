//! `kubectl fpga cordon` and `kubectl fpga uncordon`: boards out of rotation, and back.
//!
//! The truth is an annotation of the node. The node's collector publishes it, and the command waits until it has.

use crate::connection::{Cluster, ConnectArgs};
use crate::problem::{Grant, Problem};
use anyhow::{Context as _, Result, bail};
use fpga_core::cordon::{CORDONED_BOARDS_ANNOTATION, Cordon, CordonReason, CordonedBoards};
use fpga_core::node_state::{ANNOTATION, NodeState, decode};
use fpga_core::units::WallTime;
use fpga_net::duration;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::runtime::wait::await_condition;
use kube::{Api, ResourceExt as _};
use serde_json::json;
use std::fmt;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

/// Examples in the output of `cordon --help`.
pub const CORDON_EXAMPLES: &str = "Examples:
  kubectl fpga cordon n1/dm0 --reason 'fan is loud, ticket 4711'
  kubectl fpga cordon n1/dm0 n1/dm1
  kubectl fpga boards                  # which boards are cordoned, and why";

/// Examples in the output of `uncordon --help`.
pub const UNCORDON_EXAMPLES: &str = "Examples:
  kubectl fpga uncordon n1/dm0
  kubectl fpga uncordon n1/dm0 n1/dm1";

/// Most tries to change a node that others change at the same time.
const MAX_TRIES: usize = 10;

/// A board of a node, as it is written on the command line: `NODE/BOARD`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoardPath {
    /// Name of the node.
    pub node: String,
    /// Id of the board.
    pub board: String,
}

/// The text names no board of a node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("write NODE/BOARD, for example n1/dm0; `kubectl fpga boards` lists them")]
pub struct InvalidBoardPath;

/// Arguments of `cordon`.
#[derive(Debug, clap::Args)]
pub struct CordonArgs {
    /// Boards to take out of rotation.
    #[arg(value_name = "NODE/BOARD", required = true)]
    boards: Vec<BoardPath>,
    /// Why, for everybody who looks: one line of at most 128 bytes. Without it a board that is cordoned keeps its reason.
    #[arg(long, env = "FPGA_CORDON_REASON", value_name = "TEXT")]
    reason: Option<CordonReason>,
    #[command(flatten)]
    publication: PublicationArgs,
}

/// Arguments of `uncordon`.
#[derive(Debug, clap::Args)]
pub struct UncordonArgs {
    /// Boards to put back into rotation.
    #[arg(value_name = "NODE/BOARD", required = true)]
    boards: Vec<BoardPath>,
    #[command(flatten)]
    publication: PublicationArgs,
}

/// How long a command waits for the collector.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct PublicationArgs {
    /// Longest time to wait until the node's collector has published the change.
    #[arg(long, env = "FPGA_PUBLICATION_TIMEOUT", value_name = "TIME", default_value = "30s",
        value_parser = duration::parse)]
    publication_timeout: Duration,
}

/// A change of a board's rotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The board goes out of rotation.
    Cordon(CordonReason),
    /// The board goes out of rotation. A board that is out of rotation keeps its reason.
    CordonUnlessCordoned(CordonReason),
    /// The board comes back.
    Uncordon,
}

/// Whether a command changed anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Changed,
    AsBefore,
}

impl CordonArgs {
    /// Takes the boards out of rotation.
    ///
    /// # Errors
    /// A board does not exist, the user may not change its node, or its collector does not publish the change.
    pub async fn run(self, connect: &ConnectArgs) -> Result<ExitCode> {
        let cluster = self.publication.cluster(connect).await?;
        let change = Change::cordon(self.reason);
        for board in &self.boards {
            self.publication.apply(&cluster, board, change.clone()).await?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl UncordonArgs {
    /// Puts the boards back into rotation.
    ///
    /// # Errors
    /// As for [`CordonArgs::run`].
    pub async fn run(self, connect: &ConnectArgs) -> Result<ExitCode> {
        let cluster = self.publication.cluster(connect).await?;
        for board in &self.boards {
            self.publication.apply(&cluster, board, Change::Uncordon).await?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl PublicationArgs {
    /// Connects to the cluster, for as long a watch as the collector may take.
    ///
    /// # Errors
    /// As for [`ConnectArgs::cluster`].
    pub async fn cluster(self, connect: &ConnectArgs) -> Result<Cluster, Problem> {
        connect.watched_cluster(self.publication_timeout).await
    }

    /// Makes the change, says so, and waits until the node's collector has published it.
    ///
    /// # Errors
    /// As for [`CordonArgs::run`].
    pub async fn apply(self, cluster: &Cluster, board: &BoardPath, change: Change) -> Result<()> {
        let is_cordoned = change != Change::Uncordon;
        let outcome = write(cluster, board, change).await?;
        let done = if is_cordoned { "cordoned" } else { "uncordoned" };
        match outcome {
            Outcome::Changed => println!("{board} {done}"),
            Outcome::AsBefore => println!("{board} already {done}"),
        }
        let nodes: Api<Node> = Api::all(cluster.client.clone());
        let BoardPath { node, board: id } = board;
        let is_published = |node: Option<&Node>| {
            let state = node.and_then(|node| state(node.annotations().get(ANNOTATION)?));
            // A board that has left is in no state.
            state.is_none_or(|state| {
                let is_known = state.devices.iter().any(|device| device.id == *id);
                !is_known || state.cordons.contains_key(id) == is_cordoned
            })
        };
        let published = await_condition(nodes, node, is_published);
        match tokio::time::timeout(self.publication_timeout, published).await {
            Ok(published) => published.map(drop).with_context(|| format!("watching the node {node}")),
            Err(_) => bail!(
                "the annotation of node {node} is written, and its collector has not published it within {:?}: pods may \
                 be placed as before.\nDoes a collector of this version run there? `kubectl fpga doctor` tells",
                self.publication_timeout
            ),
        }
    }
}

/// Writes the change into the node's annotation, unless somebody else changes the node at the same time; then it is tried
/// again.
async fn write(cluster: &Cluster, board: &BoardPath, change: Change) -> Result<Outcome> {
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let problem = |error: &kube::Error, doing: String| {
        let grant = Grant { namespace: None, verbs: "get,list,watch,patch", resources: "nodes" };
        Problem::of_api(error, &cluster.server, &doing, &grant)
    };
    for _ in 0..MAX_TRIES {
        let found = nodes.get_metadata_opt(&board.node).await;
        let found = found.map_err(|error| problem(&error, format!("reading the node {}", board.node)))?;
        let found = found.with_context(|| format!("there is no node {}", board.node))?;
        let Some(text) = change.text(board, &found)? else { return Ok(Outcome::AsBefore) };
        let patch = json!({"metadata": {
            "resourceVersion": found.metadata.resource_version,
            "annotations": {(CORDONED_BOARDS_ANNOTATION): text},
        }});
        match nodes.patch_metadata(&board.node, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => return Ok(Outcome::Changed),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(problem(&error, format!("changing the node {}", board.node)).into()),
        }
    }
    bail!("node {} was changed by others in each of {MAX_TRIES} tries; try again", board.node)
}

impl Change {
    /// Takes a board out of rotation for this reason. Without a reason, a board that is out of rotation keeps its own.
    fn cordon(reason: Option<CordonReason>) -> Self {
        reason.map_or_else(|| Self::CordonUnlessCordoned(CordonReason::default()), Self::Cordon)
    }

    /// The text of the annotation after the change, which is null for no text; `None` if nothing changes.
    fn text(&self, path: &BoardPath, node: &PartialObjectMeta<Node>) -> Result<Option<Option<String>>> {
        let BoardPath { node: name, board } = path;
        let annotation = |key| node.annotations().get(key);
        let before = annotation(CORDONED_BOARDS_ANNOTATION).map(|text| CordonedBoards::parse(text));
        let before = before.transpose().with_context(|| {
            format!(
                "the annotation {CORDONED_BOARDS_ANNOTATION} of node {name} can't be read; \
                 `kubectl annotate node {name} {CORDONED_BOARDS_ANNOTATION}-` removes it"
            )
        })?;
        let before = before.unwrap_or_default();
        let known = before.get(board);
        let reason = match (self, known) {
            (Self::Uncordon, None) | (Self::CordonUnlessCordoned(_), Some(_)) => return Ok(None),
            (Self::Cordon(reason), Some(known)) if known.reason == *reason => return Ok(None),
            (Self::Uncordon, Some(_)) => return Ok(Some(before.without(board).text())),
            (Self::Cordon(reason) | Self::CordonUnlessCordoned(reason), _) => reason.clone(),
        };
        has_board(annotation(ANNOTATION).and_then(|text| state(text)).as_ref(), path)?;
        let since = WallTime::of(SystemTime::now());
        let after = before.with(board, Cordon { reason, since });
        let after = after.with_context(|| format!("the boards of node {name} can't all be cordoned"))?;
        Ok(Some(after.text()))
    }
}

/// Whether the node's state has the board.
fn has_board(state: Option<&NodeState>, BoardPath { node, board }: &BoardPath) -> Result<()> {
    let boards = state.iter().flat_map(|state| &state.devices).map(|device| device.id.as_str());
    let boards: Vec<&str> = boards.collect();
    if boards.is_empty() {
        bail!("node {node} has no board: its collector reports none. See `kubectl fpga doctor`");
    }
    if !boards.contains(&board.as_str()) {
        bail!("node {node} has no board {board}; it has {}", boards.join(", "));
    }
    Ok(())
}

/// The state that the node's collector publishes; `None` if there is none that can be read.
///
/// # Errors
/// The API server does not answer, or the user may not read the node.
pub async fn node_state(cluster: &Cluster, node: &str) -> Result<Option<NodeState>, Problem> {
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let found = nodes.get_metadata_opt(node).await.map_err(|error| {
        let grant = Grant { namespace: None, verbs: "get", resources: "nodes" };
        Problem::of_api(&error, &cluster.server, &format!("reading the node {node}"), &grant)
    })?;
    Ok(found.and_then(|node| state(node.annotations().get(ANNOTATION)?)))
}

fn state(text: &str) -> Option<NodeState> {
    decode(text).ok()
}

impl FromStr for BoardPath {
    type Err = InvalidBoardPath;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((node, board)) if !node.is_empty() && !board.is_empty() && !board.contains('/') => {
                Ok(Self { node: node.to_owned(), board: board.to_owned() })
            }
            _ => Err(InvalidBoardPath),
        }
    }
}

impl fmt::Display for BoardPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.node, self.board)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(cordons: Option<&str>) -> PartialObjectMeta<Node> {
        let state = json!({
            "v": 1, "boot": 1, "seq": 1, "heartbeatMs": 60_000, "measuredAtMs": 5, "windowMs": 100, "usageMs": 0,
            "reconfigurationMs": 0, "window": {"bucketMs": 10_000},
            "devices": [{"id": "dm0", "slots": 4, "healthy": true}, {"id": "dm1", "slots": 4, "healthy": true}],
        });
        let annotations = json!({ANNOTATION: state.to_string(), CORDONED_BOARDS_ANNOTATION: cordons});
        let mut node = json!({"metadata": {"name": "n1", "annotations": annotations}});
        if cordons.is_none() {
            node["metadata"]["annotations"].as_object_mut().unwrap().remove(CORDONED_BOARDS_ANNOTATION);
        }
        serde_json::from_value(node).unwrap()
    }

    fn path(text: &str) -> BoardPath {
        text.parse().unwrap()
    }

    fn after(change: &Change, board: &str, cordons: Option<&str>) -> Option<Option<CordonedBoards>> {
        let text = change.text(&path(board), &node(cordons)).unwrap()?;
        Some(text.map(|text| CordonedBoards::parse(&text).unwrap()))
    }

    #[test]
    fn a_board_is_cordoned_once_and_the_last_uncordon_removes_the_annotation() {
        const FAN: &str = r#"{"dm0":{"reason":"fan","sinceMs":5}}"#;
        let cordon = |reason: &str| Change::Cordon(reason.parse().unwrap());
        let unless = Change::CordonUnlessCordoned("drained".parse().unwrap());
        let reason = |boards: Option<Option<CordonedBoards>>, board: &str| {
            boards.flatten().and_then(|boards| Some(String::from(boards.get(board)?.reason.clone())))
        };
        assert_eq!(reason(after(&cordon("fan"), "n1/dm0", None), "dm0").as_deref(), Some("fan"));
        assert_eq!(after(&cordon("fan"), "n1/dm0", Some(FAN)), None);
        let both = after(&cordon("hot"), "n1/dm1", Some(FAN));
        assert_eq!(reason(both.clone(), "dm0").as_deref(), Some("fan"), "another board keeps its cordon");
        assert_eq!(reason(both, "dm1").as_deref(), Some("hot"));
        assert_eq!(reason(after(&cordon("hot"), "n1/dm0", Some(FAN)), "dm0").as_deref(), Some("hot"));
        assert_eq!(after(&unless, "n1/dm0", Some(FAN)), None);
        assert_eq!(after(&Change::cordon(None), "n1/dm0", Some(FAN)), None, "the board keeps its reason");
        assert_eq!(reason(after(&unless, "n1/dm0", None), "dm0").as_deref(), Some("drained"));
        assert_eq!(after(&Change::Uncordon, "n1/dm0", Some(FAN)), Some(None));
        assert_eq!(after(&Change::Uncordon, "n1/dm0", None), None);
        let gone = r#"{"gone":{"sinceMs":5}}"#;
        assert_eq!(after(&Change::Uncordon, "n1/gone", Some(gone)), Some(None), "a board that has left");
    }

    #[test]
    fn what_can_not_be_done_says_what_to_write() {
        let cordon = Change::Cordon(CordonReason::default());
        let problem = |board: &str, node: &PartialObjectMeta<Node>| {
            format!("{:#}", cordon.text(&path(board), node).unwrap_err())
        };
        assert_eq!(problem("n1/dm7", &node(None)), "node n1 has no board dm7; it has dm0, dm1");
        let unreadable = problem("n1/dm0", &node(Some("dm0")));
        assert!(
            unreadable.contains("kubectl annotate node n1 fpga-scheduling.io/cordoned-boards-"),
            "{unreadable}"
        );
        let mut bare = node(None);
        bare.metadata.annotations = None;
        assert!(problem("n1/dm0", &bare).contains("kubectl fpga doctor"));
        for text in ["n1", "/dm0", "n1/", "n1/dm0/x", ""] {
            assert_eq!(text.parse::<BoardPath>(), Err(InvalidBoardPath), "{text}");
        }
        assert!(InvalidBoardPath.to_string().contains("n1/dm0"));
    }
}
