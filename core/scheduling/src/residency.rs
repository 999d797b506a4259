//! Whether a board has the bitstreams of a pod in its slots, by all identifiers that the library has for them.
//!
//! A state may have a bitstream by name, by digest, or by both. A pod that names an accelerator means each of its
//! variants, so the digest of any variant counts. A pod that gives a digest means exactly those bytes, so a name counts
//! only where the state has no digest beside it.

use crate::bitstream::BitstreamId;
use crate::node_state::{DeviceState, NodeState};
use crate::requirement::Requirement;
use crate::ternary::Ternary;

/// Whether a slot of `device` has the bitstream `id` of the requirement. `device` must belong to `state`.
#[must_use]
pub fn holds(asked: &Requirement, state: &NodeState, device: &DeviceState, id: &BitstreamId) -> Ternary {
    let synonyms = asked.synonyms_of(id).iter();
    let by_synonym = synonyms.map(|synonym| holds_synonym(state, device, synonym));
    state.holds(device, id).or(Ternary::any(by_synonym))
}

/// Whether `device`, which belongs to `state`, has all bitstreams of the pod, which names some.
#[must_use]
pub fn has_all(asked: &Requirement, state: &NodeState, device: &DeviceState) -> bool {
    !asked.bitstreams.is_empty() && asked.bitstreams.iter().all(|id| holds(asked, state, device, id).is_yes())
}

/// Whether a slot of `device` has a bitstream by another identifier than the pod's.
pub(crate) fn holds_synonym(state: &NodeState, device: &DeviceState, synonym: &BitstreamId) -> Ternary {
    match synonym {
        BitstreamId::Digest(_) => state.holds(device, synonym),
        BitstreamId::Name(_) => {
            let has_no_digest = |index: &&u32| {
                state.bitstreams.get(**index as usize).is_none_or(|bitstream| bitstream.digest.is_none())
            };
            let unidentified = device.loaded.iter().filter(has_no_digest);
            Ternary::any(unidentified.map(|index| state.is_at(*index, synonym)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bitstream::Digest;
    use crate::fixtures::{mk_asked, mk_bitstream, mk_board, mk_state};
    use crate::node_state::{DigestPrefix, RecentBitstream};

    #[test]
    fn a_name_is_there_by_the_digest_of_a_variant_and_a_digest_by_a_name_without_another_digest() {
        let (first, second) = (Digest::from_bytes([1; 32]), Digest::from_bytes([2; 32]));
        let by_digest = |digest: &Digest| RecentBitstream {
            name: None,
            digest: Some(digest.into()),
            ..mk_bitstream("", 0)
        };
        let mut state = mk_state();
        state.devices = vec![mk_board("a", &[0]), mk_board("b", &[1]), mk_board("c", &[2])];
        let other = RecentBitstream { digest: Some(DigestPrefix::from(&second)), ..mk_bitstream("sobel", 0) };
        state.bitstreams = vec![by_digest(&first), mk_bitstream("sobel", 0), other];
        let on = |asked: &Requirement| -> Vec<bool> {
            state.devices.iter().map(|device| has_all(asked, &state, device)).collect()
        };
        let (name, digest) = (mk_asked(&["sobel"]), mk_asked(&[&first.to_string()]));
        assert_eq!((on(&name), on(&digest)), (vec![false, true, true], vec![true, false, false]));
        let by_library = |asked: &Requirement, id: &str, synonym: &str| Requirement {
            synonyms: [(id.parse().unwrap(), vec![synonym.parse().unwrap()])].into(),
            ..asked.clone()
        };
        let name = by_library(&name, "sobel", &first.to_string());
        assert_eq!(on(&name), [true, true, true]);
        let digest = by_library(&digest, &first.to_string(), "sobel");
        assert_eq!(on(&digest), [true, true, false], "the third board's sobel is known to be another one");
        assert_eq!(on(&mk_asked(&[])), [false; 3], "a pod without bitstreams has none that could be there");
    }
}
