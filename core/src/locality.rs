//! Bitstream locality (S-2): which share of the bitstreams that a pod will use its node has already.

use crate::bitstream::BitstreamId;
use crate::device::Health;
use crate::matching::is_kind;
use crate::node_state::NodeState;
use crate::requirement::Requirement;
use crate::signals::{Boards, Key};
use crate::staleness::Received;
use crate::units::Millis;

/// The bitstreams that a pod will use, ready to be looked for on many nodes.
#[derive(Debug, Clone)]
pub struct Wanted<'a> {
    asked: &'a Requirement,
    keys: Vec<Key>,
}

impl<'a> Wanted<'a> {
    /// Those of `asked`.
    #[must_use]
    pub fn by(asked: &'a Requirement) -> Self {
        Self { asked, keys: asked.bitstreams.iter().map(Key::of).collect() }
    }

    /// The share of them that the node has: in a slot, or used within its window. 1 if none is asked.
    ///
    /// A digest means the same everywhere. A name means the same on one board and shell only: it counts in the slot of
    /// a board of the asked kind, and as recently used where all boards of the node are of one kind, and the asked one.
    #[must_use]
    pub fn share_on(&self, node: &Received, age: Millis) -> f64 {
        let wanted = &self.asked.bitstreams;
        if wanted.is_empty() {
            return 1.0;
        }
        let (state, signals) = (node.state(), node.signals());
        let is_there = |(id, key): &(&BitstreamId, &Key)| match (id, signals.boards()) {
            (BitstreamId::Digest(_), _) => signals.has(**key, age),
            (BitstreamId::Name(_), Boards::Alike) => {
                signals.has(**key, age)
                    && state.devices.first().is_some_and(|device| is_kind(self.asked, device))
            }
            (BitstreamId::Name(name), Boards::Mixed) => self.is_in_slot(name, state),
        };
        let present = wanted.iter().zip(&self.keys).filter(is_there).count();
        present as f64 / wanted.len() as f64
    }

    /// Whether a board of the asked kind that answers has `name` in a slot. Where boards differ, this alone says to
    /// which of them a name belongs.
    fn is_in_slot(&self, name: &str, state: &NodeState) -> bool {
        let boards = state.devices.iter();
        let mut usable =
            boards.filter(|device| device.health == Health::Healthy && is_kind(self.asked, device));
        usable.any(|device| {
            device.loaded.iter().any(|index| {
                let bitstream = state.bitstreams.get(*index as usize);
                bitstream.is_some_and(|bitstream| bitstream.name.as_deref() == Some(name))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{mk_bitstream, mk_device, mk_state};
    use crate::node_state::{DigestPrefix, RecentBitstream};

    fn asked(bitstreams: &[&str]) -> Requirement {
        let bitstreams = bitstreams.iter().map(|text| text.parse().unwrap()).collect();
        Requirement { vendor: None, board: None, shell: None, slots: 1, bitstreams }
    }

    fn locality(asked: &Requirement, state: &NodeState, age: Millis) -> f64 {
        Wanted::by(asked).share_on(&Received::new(state.clone(), Millis::ZERO, Millis::ZERO), age)
    }

    fn near(is: f64, should: f64) -> bool {
        (is - should).abs() < 1e-12
    }

    #[test]
    fn it_is_the_share_of_the_pods_bitstreams_that_are_there() {
        let mut state = mk_state();
        state.devices = vec![mk_device("intel", "a10", "1")];
        state.bitstreams = vec![mk_bitstream("sobel", 1_000), mk_bitstream("mm", 2_000)];
        assert!(near(locality(&asked(&["sobel", "aes", "mm", "fft"]), &state, Millis::ZERO), 0.5));
        assert!(near(locality(&asked(&["aes"]), &state, Millis::ZERO), 0.0));
        assert!(near(locality(&asked(&[]), &state, Millis::ZERO), 1.0));
    }

    #[test]
    fn a_bitstream_stays_in_its_slot_but_is_recent_only_for_a_window() {
        let mut state = mk_state();
        state.devices = vec![mk_device("intel", "a10", "1")];
        state.devices[0].loaded = vec![0];
        state.bitstreams = vec![mk_bitstream("sobel", 0), mk_bitstream("mm", 0)];
        assert!(near(locality(&asked(&["sobel", "mm"]), &state, Millis::from_secs(300)), 1.0));
        assert!(near(locality(&asked(&["sobel", "mm"]), &state, Millis::from_secs(301)), 0.5));
    }

    #[test]
    fn a_name_counts_on_the_asked_board_and_shell_only() {
        let mut state = mk_state();
        state.devices = vec![mk_device("intel", "a10", "1"), mk_device("intel", "s10", "1")];
        state.devices[1].loaded = vec![0];
        state.bitstreams = vec![mk_bitstream("sobel", 0), mk_bitstream("mm", 0)];
        let on = |board: &str, name| Requirement { board: Some(board.into()), ..asked(&[name]) };
        assert!(near(locality(&on("s10", "sobel"), &state, Millis::ZERO), 1.0));
        assert!(near(locality(&on("a10", "sobel"), &state, Millis::ZERO), 0.0));
        assert!(
            near(locality(&on("s10", "mm"), &state, Millis::ZERO), 0.0),
            "it may have run on the other board"
        );
    }

    #[test]
    fn boards_of_two_vendors_are_of_two_kinds_however_little_is_known_of_them() {
        let mut state = mk_state();
        state.devices = vec![mk_device("intel", "", ""), mk_device("xilinx", "", "")];
        state.bitstreams = vec![mk_bitstream("sobel", 0)];
        let intel = Requirement { vendor: Some("intel".into()), ..asked(&["sobel"]) };
        assert!(near(locality(&intel, &state, Millis::ZERO), 0.0));
    }

    #[test]
    fn a_digest_counts_wherever_it_is() {
        let text = format!("sha256:{}", "0a".repeat(32));
        let mut state = mk_state();
        state.devices = vec![mk_device("intel", "a10", "1"), mk_device("intel", "s10", "1")];
        state.bitstreams = vec![RecentBitstream {
            name: None,
            digest: Some(DigestPrefix::from_bytes([0x0a; 16])),
            last_used_ago: Millis::ZERO,
        }];
        assert!(near(locality(&asked(&[&text]), &state, Millis::ZERO), 1.0));
    }

    #[test]
    fn what_is_in_a_board_that_does_not_answer_is_not_there() {
        let mut state = mk_state();
        state.devices = vec![mk_device("intel", "a10", "1")];
        state.devices[0].loaded = vec![0];
        state.devices[0].health = Health::Unhealthy;
        state.bitstreams = vec![mk_bitstream("sobel", 0)];
        assert!(near(locality(&asked(&["sobel"]), &state, Millis::from_secs(301)), 0.0));
    }
}
