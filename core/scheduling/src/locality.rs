//! Bitstream locality (S-2): the share of a pod's bitstreams that a node already has.

use crate::bitstream::BitstreamId;
use crate::requirement::Requirement;
use crate::signals::{AskedKind, BoardMix, BoardsLoad, Key};
use crate::staleness::Brief;
use crate::units::Millis;

/// The bitstreams that a pod uses, with precomputed keys, for lookups on many nodes.
#[derive(Debug, Clone)]
pub struct Wanted<'a> {
    asked: &'a Requirement,
    kind: AskedKind,
    /// Of each bitstream the key of the pod's identifier, and the keys of the library's.
    keys: Vec<(Key, Vec<Key>)>,
}

impl<'a> Wanted<'a> {
    /// The bitstreams of the requirement `asked`.
    #[must_use]
    pub fn by(asked: &'a Requirement) -> Self {
        let synonyms = |id: &BitstreamId| asked.synonyms_of(id).iter().map(Key::of).collect();
        let keys = asked.bitstreams.iter().map(|id| (Key::of(id), synonyms(id))).collect();
        Self { asked, kind: AskedKind::of(asked), keys }
    }

    /// The load of the boards of the requested kind on `node`, whose state has the age `age`.
    #[must_use]
    pub fn load_on(&self, node: &Brief, age: Millis) -> BoardsLoad {
        node.signals().load_on(&self.kind, age)
    }

    /// The share of the bitstreams that the node has in a slot or used within its window. 1 if the pod names none.
    ///
    /// A digest identifies one bitstream everywhere. A name identifies one bitstream only among boards of one kind and
    /// shell. So a name counts if it is in a slot of a board of the requested kind; recent use of it counts only if
    /// all boards of the node are of the requested kind.
    ///
    /// The digest of a variant counts as the name. A name counts as the digest only where the state has no digest
    /// beside it.
    #[must_use]
    pub fn share_on(&self, node: &Brief, age: Millis) -> f64 {
        let wanted = &self.asked.bitstreams;
        if wanted.is_empty() {
            return 1.0;
        }
        let signals = node.signals();
        let by_own = |key: Key| match (key, signals.board_mix()) {
            (Key::Digest(_), _) => signals.has(key, age),
            (Key::Name(_), BoardMix::Uniform | BoardMix::Alike) => {
                // Most nodes don't have it, which is found fastest.
                signals.may_have(key) && signals.all_are(&self.kind) && signals.has(key, age)
            }
            (Key::Name(_), BoardMix::Mixed | BoardMix::None) => signals.has_loaded(key, &self.kind),
        };
        let by_synonym = |key: &Key| match key {
            Key::Digest(_) => signals.has(*key, age),
            Key::Name(_) => signals.all_are(&self.kind) && signals.has_without_digest(*key, age),
        };
        let is_there = |(own, synonyms): &&(Key, Vec<Key>)| by_own(*own) || synonyms.iter().any(by_synonym);
        let present = self.keys.iter().filter(is_there).count();
        present as f64 / wanted.len() as f64
    }

    /// The share of the bitstreams that are in a slot of an answering board of the requested kind. Recent use alone
    /// does not count. 1 if the pod names none.
    #[must_use]
    pub fn loaded_share_on(&self, node: &Brief) -> f64 {
        if self.keys.is_empty() {
            return 1.0;
        }
        let is_loaded = |key: &Key| node.signals().has_loaded(*key, &self.kind);
        let is_digest = |key: &&Key| matches!(key, Key::Digest(_));
        let loaded = self
            .keys
            .iter()
            .filter(|(own, synonyms)| is_loaded(own) || synonyms.iter().filter(is_digest).any(is_loaded));
        loaded.count() as f64 / self.keys.len() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Health;
    use crate::fixtures::{mk_asked as asked, mk_bitstream, mk_device, mk_state};
    use crate::node_state::{DigestPrefix, NodeState, RecentBitstream};
    use crate::staleness::Received;
    use crate::units::MonotonicTime;

    fn locality(asked: &Requirement, state: &NodeState, age: Millis) -> f64 {
        Wanted::by(asked).share_on(&Received::new(state.clone(), MonotonicTime::START, Millis::ZERO), age)
    }

    fn near(is: f64, should: f64) -> bool {
        (is - should).abs() < 1e-12
    }

    #[test]
    fn locality_is_the_share_of_the_pods_bitstreams_that_the_node_has() {
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
    fn boards_of_two_vendors_are_of_two_kinds_even_without_board_and_shell() {
        let mut state = mk_state();
        state.devices = vec![mk_device("intel", "", ""), mk_device("xilinx", "", "")];
        state.bitstreams = vec![mk_bitstream("sobel", 0)];
        let intel = Requirement { vendor: Some("intel".into()), ..asked(&["sobel"]) };
        assert!(near(locality(&intel, &state, Millis::ZERO), 0.0));
    }

    #[test]
    fn the_loaded_share_counts_slots_of_the_asked_boards_and_no_recent_use() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        let mut state = mk_state();
        state.devices = vec![mk_device("intel", "a10", "1"), mk_device("intel", "s10", "1")];
        (state.devices[0].loaded, state.devices[1].loaded) = (vec![0], vec![1]);
        state.bitstreams = vec![mk_bitstream("sobel", 0), mk_bitstream("aes", 0), mk_bitstream("mm", 0)];
        state.bitstreams[0].digest = Some(DigestPrefix::from_bytes([0x0a; 16]));
        let loaded = |asked: &Requirement, state: &NodeState| {
            let received = Received::new(state.clone(), MonotonicTime::START, Millis::ZERO);
            Wanted::by(asked).loaded_share_on(&received)
        };
        for (names, share) in [
            ([].as_slice(), 1.0),
            (&["sobel"], 1.0),
            (&[&digest], 1.0),
            (&["sobel", "mm"], 0.5),
            (&["mm"], 0.0),
            (&["sobel", "aes", "mm", "fft"], 0.5),
        ] {
            assert!(near(loaded(&asked(names), &state), share), "{names:?}");
        }
        let on_a10 = Requirement { board: Some("a10".into()), ..asked(&["sobel", "aes"]) };
        assert!(near(loaded(&on_a10, &state), 0.5));
        state.devices[0].health = Health::Unhealthy;
        assert!(near(loaded(&on_a10, &state), 0.0));
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
    fn a_name_is_local_where_a_digest_of_a_variant_is_and_a_digest_where_a_name_without_digest_is() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        let prefix = Some(DigestPrefix::from_bytes([0x0a; 16]));
        let with = |asked: Requirement, id: &str, synonym: &str| Requirement {
            synonyms: [(id.parse().unwrap(), vec![synonym.parse().unwrap()])].into(),
            ..asked
        };
        let of_name = with(asked(&["sobel"]), "sobel", &digest);
        let of_digest = with(asked(&[&digest]), &digest, "sobel");
        let mut state = mk_state();
        state.devices = vec![mk_device("intel", "a10", "1")];
        state.devices[0].loaded = vec![0];
        let shares = |asked: &Requirement, state: &NodeState| {
            let received = Received::new(state.clone(), MonotonicTime::START, Millis::ZERO);
            (locality(asked, state, Millis::ZERO), Wanted::by(asked).loaded_share_on(&received))
        };
        let near = |(a, b): (f64, f64), should: f64| near(a, should) && near(b, should);
        state.bitstreams = vec![RecentBitstream { name: None, digest: prefix, last_used_ago: Millis::ZERO }];
        assert!(near(shares(&of_name, &state), 1.0) && near(shares(&asked(&["sobel"]), &state), 0.0));
        state.bitstreams = vec![mk_bitstream("sobel", 0)];
        assert!((locality(&of_digest, &state, Millis::ZERO) - 1.0).abs() < 1e-9);
        assert!(near(shares(&asked(&[&digest]), &state), 0.0));
        state.bitstreams[0].digest = Some(DigestPrefix::from_bytes([0x0b; 16]));
        assert!(near(shares(&of_digest, &state), 0.0), "the node's sobel is known to be another one");
    }

    #[test]
    fn a_bitstream_in_a_board_that_does_not_answer_does_not_count() {
        let mut state = mk_state();
        state.devices = vec![mk_device("intel", "a10", "1")];
        state.devices[0].loaded = vec![0];
        state.devices[0].health = Health::Unhealthy;
        state.bitstreams = vec![mk_bitstream("sobel", 0)];
        assert!(near(locality(&asked(&["sobel"]), &state, Millis::from_secs(301)), 0.0));
    }
}
