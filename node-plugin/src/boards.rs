//! The boards of the node: a folder each below `managers/`, made by the board's manager, and what the collector says of
//! them.

use crate::collector;
use crate::layout::Layout;
use fpga_core::device::Health;
use fpga_core::node_state::{DeviceState, NodeState};
use fpga_hook::Endpoint;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tracing::{info, warn};

/// Pause between two looks.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Longest time that a manager may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Longest name of a board: names of instances have at most 63 bytes.
const MAX_NAME_BYTES: usize = 48;

/// The boards as they were at the last look.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Boards {
    /// Boards that have a folder.
    pub(crate) known: BTreeSet<String>,
    /// Boards whose managers accept connections and that the collector doesn't know to be unhealthy, in rotation or not:
    /// a board out of rotation keeps its containers. Its state keeps new ones away.
    pub(crate) healthy: BTreeSet<String>,
    /// The collector's state of the known boards; `None` before the first one.
    pub(crate) state: Option<NodeState>,
}

/// Looks at the boards for ever. Tells the first look, and each one after it that has found something else.
pub(crate) async fn watch(layout: Layout, collector: Endpoint, boards: watch::Sender<Boards>) {
    let mut said = None;
    let mut is_first_look = true;
    loop {
        let state = collector::state(&collector).await;
        let problem = state.as_ref().err().map(ToString::to_string);
        if said != problem {
            match &problem {
                Some(error) => warn!(%error, "The state of the boards is unknown; the last one counts"),
                None => info!("The collector tells the state of the boards"),
            }
            said = problem;
        }
        let (known, accepting) = accepting(&layout).await;
        for board in &known {
            if let Err(error) = layout.make_tokens_folder(board) {
                warn!(%error, board, "The folder of a board's tokens can't be made");
            }
        }
        boards.send_if_modified(|boards| {
            let state = state.ok().or_else(|| boards.state.clone());
            let new = Boards::new(known, accepting, state);
            let changed = std::mem::take(&mut is_first_look) || *boards != new;
            *boards = new;
            changed
        });
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

impl Boards {
    fn new(known: BTreeSet<String>, accepting: BTreeSet<String>, state: Option<NodeState>) -> Self {
        let sick = state.iter().flat_map(|state| {
            let is_sick = |device: &&DeviceState| state.reported_health(device) == Health::Unhealthy;
            state.devices.iter().filter(is_sick).map(|device| device.id.as_str())
        });
        let sick: BTreeSet<&str> = sick.collect();
        let healthy: BTreeSet<String> =
            accepting.into_iter().filter(|board| !sick.contains(board.as_str())).collect();
        let state = state.map(|mut state| {
            // The collector repeats what this plugin has reported; the plugin itself knows better.
            state.plugin = None;
            state.devices.retain(|device| known.contains(&device.id));
            for device in state.devices.iter_mut().filter(|device| !healthy.contains(&device.id)) {
                device.health = Health::Unhealthy;
                state.cordons.remove(&device.id);
            }
            state
        });
        Self { known, healthy, state }
    }

    /// The vendor of each board whose state is known.
    pub(crate) fn vendors(&self) -> BTreeMap<&str, &str> {
        let devices = self.state.iter().flat_map(|state| &state.devices);
        devices.map(|device| (device.id.as_str(), device.vendor.as_str())).collect()
    }
}

/// The boards with a folder, and those of them whose manager accepts connections.
async fn accepting(layout: &Layout) -> (BTreeSet<String>, BTreeSet<String>) {
    let folders = std::fs::read_dir(layout.managers()).into_iter().flatten().flatten();
    let names = folders.filter_map(|folder| folder.file_name().into_string().ok());
    let known: BTreeSet<String> = names.filter(|name| is_board(name)).collect();
    let mut accepting = BTreeSet::new();
    for board in &known {
        let connecting = UnixStream::connect(layout.socket(board));
        if let Ok(Ok(_)) = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
            accepting.insert(board.clone());
        }
    }
    (known, accepting)
}

/// Whether a folder's name can be the name of a board.
fn is_board(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    name.len() <= MAX_NAME_BYTES && !name.starts_with('.') && name.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_core::cordon::CordonedBoards;
    use fpga_core::fixtures::{mk_board, mk_state};

    #[test]
    fn a_board_out_of_rotation_is_healthy_as_long_as_it_answers_and_takes_no_new_containers() {
        let mut state = NodeState { devices: vec![mk_board("a", &[]), mk_board("b", &[])], ..mk_state() };
        state.cordon(&CordonedBoards::parse(r#"{"a":{"sinceMs":5},"b":{"sinceMs":5}}"#).unwrap());
        let both: BTreeSet<String> = ["a".to_owned(), "b".to_owned()].into();
        let boards = Boards::new(both, ["a".to_owned()].into(), Some(state));
        assert_eq!(boards.healthy, ["a".to_owned()].into(), "the manager of b accepts no connection");
        let mut state = boards.state.unwrap();
        assert!(state.devices.iter().all(|device| device.health == Health::Unhealthy));
        state.uncordon("a");
        state.uncordon("b");
        let healths: Vec<Health> = state.devices.iter().map(|device| device.health).collect();
        assert_eq!(healths, [Health::Healthy, Health::Unhealthy]);
    }

    #[test]
    fn names_of_boards_are_plain() {
        assert!(is_board("dm0") && is_board("pac-a10_0"));
        assert!(!is_board(".dm0") && !is_board("a b") && !is_board(&"x".repeat(49)));
    }
}
