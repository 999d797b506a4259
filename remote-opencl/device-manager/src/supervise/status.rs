//! What the supervisor knows of its boards, for `/readyz` and `/metrics`.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// The state of a board's manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// The manager has been started and does not answer yet.
    Starting,
    /// The manager accepts sessions.
    Ready,
    /// The manager runs and takes no sessions, for this reason.
    Unready(String),
    /// No manager runs, for this reason; it is started after a pause.
    Down(String),
    /// The manager ends.
    Ending,
}

/// The state of one board's manager, as metrics and `/readyz` tell it.
#[derive(Debug, Clone)]
pub(super) struct BoardStatus {
    pub(super) state: State,
    /// Number of managers that ended without being told to.
    pub(super) restarts: u64,
    /// The manager's socket for metrics.
    pub(super) metrics: PathBuf,
}

/// The states of the managers of all boards; clones share one set of states.
#[derive(Debug, Clone, Default)]
pub(super) struct Statuses(Arc<Mutex<All>>);

#[derive(Debug, Default)]
struct All {
    boards: BTreeMap<String, BoardStatus>,
    /// The reason why the devices are not known; `None` if they are.
    undiscovered: Option<String>,
    /// Number of times that the devices could not be listed.
    discovery_failures: u64,
}

impl Statuses {
    /// Statuses before the first look for devices.
    pub(super) fn new() -> Self {
        let statuses = Self::default();
        statuses.0.lock().undiscovered = Some("the runtime has not listed its devices yet".to_owned());
        statuses
    }

    /// Adds a board whose manager serves its metrics on this socket.
    pub(super) fn add(&self, board: &str, metrics: PathBuf) {
        let status = BoardStatus { state: State::Starting, restarts: 0, metrics };
        self.0.lock().boards.insert(board.to_owned(), status);
    }

    /// Removes a board that has vanished.
    pub(super) fn remove(&self, board: &str) {
        self.0.lock().boards.remove(board);
    }

    /// Sets the state of a board; returns whether it has changed.
    pub(super) fn set(&self, board: &str, state: State) -> bool {
        let mut all = self.0.lock();
        let Some(status) = all.boards.get_mut(board) else { return false };
        let changed = status.state != state;
        status.state = state;
        changed
    }

    /// Counts a manager that has ended without being told to, and marks its board as down. Both change at once: no reader
    /// takes the state of the ended manager for that of the next one.
    pub(super) fn restarted(&self, board: &str, reason: &str) {
        if let Some(status) = self.0.lock().boards.get_mut(board) {
            status.restarts += 1;
            status.state = State::Down(reason.to_owned());
        }
    }

    /// The devices are known.
    pub(super) fn discovered(&self) {
        self.0.lock().undiscovered = None;
    }

    /// The devices can't be listed; returns whether the reason is new.
    pub(super) fn undiscovered(&self, reason: String) -> bool {
        let mut all = self.0.lock();
        all.discovery_failures += 1;
        let changed = all.undiscovered.as_ref() != Some(&reason);
        all.undiscovered = Some(reason);
        changed
    }

    pub(super) fn discovery_failures(&self) -> u64 {
        self.0.lock().discovery_failures
    }

    pub(super) fn boards(&self) -> BTreeMap<String, BoardStatus> {
        self.0.lock().boards.clone()
    }

    /// Whether there are boards and all of their managers accept sessions; and a line for each board, and for what is
    /// wrong besides.
    pub(super) fn readiness(&self) -> (bool, String) {
        let all = self.0.lock();
        let mut text = String::new();
        if let Some(reason) = &all.undiscovered {
            text += &format!("devices: {reason}\n");
        } else if all.boards.is_empty() {
            text += "devices: the runtime has none\n";
        }
        for (board, status) in &all.boards {
            text += &format!("{board}: {}\n", status.state);
        }
        let ready = all.boards.values().all(|status| status.state == State::Ready);
        (ready && !all.boards.is_empty(), text)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starting => f.write_str("starting"),
            Self::Ready => f.write_str("ready"),
            Self::Unready(reason) | Self::Down(reason) => f.write_str(reason),
            Self::Ending => f.write_str("ending"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_is_ready_when_there_are_boards_and_all_are_ready_and_else_says_why() {
        let statuses = Statuses::new();
        assert_eq!(
            statuses.readiness(),
            (false, "devices: the runtime has not listed its devices yet\n".into())
        );
        statuses.discovered();
        assert_eq!(statuses.readiness(), (false, "devices: the runtime has none\n".into()));
        statuses.add("pac-0", "/tmp/a".into());
        statuses.add("pac-1", "/tmp/b".into());
        assert!(statuses.set("pac-0", State::Ready) && !statuses.set("pac-0", State::Ready));
        statuses.set("pac-1", State::Down("signal: 9".into()));
        assert_eq!(statuses.readiness(), (false, "pac-0: ready\npac-1: signal: 9\n".into()));
        statuses.remove("pac-1");
        assert_eq!(statuses.readiness(), (true, "pac-0: ready\n".into()));
        assert!(statuses.undiscovered("no answer".into()) && !statuses.undiscovered("no answer".into()));
        assert_eq!(statuses.readiness(), (true, "devices: no answer\npac-0: ready\n".into()));
    }
}
