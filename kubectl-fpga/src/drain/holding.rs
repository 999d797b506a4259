//! Which pods of a node have the board that is drained.
//!
//! The node plugin writes the boards of a container into the pod's annotations when it has given them, also if the container then waits
//! for its bitstreams. A pod without the annotation has no board, or the write is under way.

use fpga_core::matching::{Rejection, matching_boards};
use fpga_core::node_state::NodeState;
use fpga_core::units::{Millis, WallTime};
use fpga_registry_api::FpgaPod;

/// Time after which a node plugin gives no container a board that was cordoned, with the difference of two clocks: that of the person
/// who cordoned the board, and that of the API server.
const CORDON_HOLDS_AFTER: Millis = Millis::from_secs(30);

/// Whether a pod has the board.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holding {
    /// It has the board, or it can't start before the board is back in rotation.
    Yes,
    /// It has not said so yet.
    Maybe,
    /// It has other boards, and gets no further one.
    No,
}

impl Holding {
    /// Whether a pod of the node that was made then has the board.
    pub(super) fn of(
        pod: &FpgaPod,
        created: Option<WallTime>,
        board: &str,
        state: Option<&NodeState>,
    ) -> Self {
        if !pod.boards.is_empty() {
            return if pod.boards.iter().any(|of_pod| of_pod == board) { Self::Yes } else { Self::No };
        }
        let Some(state) = state.filter(|state| state.plugin.is_some()) else { return Self::No };
        let cordoned = state.cordons.get(board).map(|cordoned| cordoned.cordon.since);
        if let (Some(cordoned), Some(created)) = (cordoned, created)
            && created > cordoned + CORDON_HOLDS_AFTER
        {
            return Self::No;
        }
        let mut asked = pod.requirement.clone();
        // They hold only until the pod is placed.
        (asked.max_utilization, asked.loaded) = (None, Vec::new());
        let mut in_rotation = state.clone();
        for cordoned in state.cordons.keys() {
            in_rotation.uncordon(cordoned);
        }
        let is_board =
            |number: &usize| in_rotation.devices.get(*number).is_some_and(|device| device.id == board);
        if matching_boards(&asked, &in_rotation).is_ok_and(|boards| !boards.iter().any(is_board)) {
            return Self::No;
        }
        match matching_boards(&asked, state) {
            Err(Rejection::Cordoned) => Self::Yes,
            Ok(_) | Err(_) => Self::Maybe,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_core::cordon::{Cordon, CordonReason, CordonedBoards};
    use fpga_core::device::Health;
    use fpga_core::fixtures::{mk_board, mk_plugin, mk_state};
    use fpga_core::node_state::DeviceState;
    use fpga_core::node_terms::PodTerms;
    use fpga_core::requirement::Requirement;
    use std::collections::BTreeMap;

    const CORDONED_AT: WallTime = WallTime(1_000_000);

    fn pod(vendor: &str, boards: &[&str]) -> FpgaPod {
        FpgaPod {
            namespace: "shop".into(),
            name: "pod".into(),
            uid: "uid".into(),
            labels: BTreeMap::new(),
            node: Some("n1".into()),
            terms: PodTerms::default(),
            controller: None,
            requirement: Requirement { vendor: Some(vendor.into()), ..Requirement::default() },
            boards: boards.iter().map(|board| (*board).to_owned()).collect(),
            is_ready: false,
            is_ending: false,
            new_before_old: false,
        }
    }

    /// A node with two boards of Intel's and one of AMD's, of which these are cordoned.
    fn node(cordoned: &[&str]) -> NodeState {
        let amd = DeviceState { vendor: "amd".into(), ..mk_board("a", &[]) };
        let devices = vec![mk_board("i", &[]), mk_board("j", &[]), amd];
        let plugin = Some(mk_plugin(&[("i", 0, 16), ("j", 0, 16), ("a", 0, 16)]));
        let mut state = NodeState { devices, plugin, ..mk_state() };
        let mut cordons = CordonedBoards::default();
        for board in cordoned {
            let cordon = Cordon { reason: CordonReason::default(), since: CORDONED_AT };
            cordons = cordons.with(board, cordon).unwrap();
        }
        state.cordon(&cordons);
        state
    }

    fn holding(pod: &FpgaPod, after_the_cordon: u64, cordoned: &[&str]) -> Holding {
        let created = WallTime(CORDONED_AT.0 - 1_000_000 + after_the_cordon);
        Holding::of(pod, Some(created), "i", Some(&node(cordoned)))
    }

    const BEFORE: u64 = 0;
    const LATER: u64 = 2_000_000;

    #[test]
    fn a_pod_that_says_its_boards_has_these() {
        assert_eq!(holding(&pod("intel", &["j", "i"]), BEFORE, &["i"]), Holding::Yes);
        assert_eq!(holding(&pod("intel", &["j"]), BEFORE, &["i"]), Holding::No);
    }

    #[test]
    fn a_pod_that_says_nothing_may_have_the_board_if_it_could_have_got_it() {
        assert_eq!(holding(&pod("intel", &[]), BEFORE, &["i"]), Holding::Maybe);
        assert_eq!(holding(&pod("intel", &[]), BEFORE, &[]), Holding::Maybe, "a dry run");
        assert_eq!(holding(&pod("amd", &[]), BEFORE, &["i"]), Holding::No, "no board of its vendor");
        assert_eq!(holding(&pod("intel", &[]), LATER, &["i"]), Holding::No, "it came after the cordon");
        assert_eq!(Holding::of(&pod("intel", &[]), None, "i", None), Holding::No, "no plugin gives boards");
    }

    #[test]
    fn a_pod_that_has_the_board_or_can_not_start_here_holds_it() {
        assert_eq!(holding(&pod("intel", &[]), BEFORE, &["i", "j"]), Holding::Yes);
        assert_eq!(holding(&pod("amd", &[]), BEFORE, &["i", "a"]), Holding::No);
        let mut broken = node(&["i"]);
        broken.devices[1].health = Health::Unhealthy;
        let created = Some(WallTime(0));
        assert_eq!(Holding::of(&pod("intel", &[]), created, "i", Some(&broken)), Holding::Yes);
    }
}
