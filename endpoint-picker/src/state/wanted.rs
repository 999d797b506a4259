//! The bitstreams that functions ask for. States that have a bitstream by name and by digest are read by them, so they
//! are kept as functions change, and not collected for each state.

use crate::function::BitstreamKey;
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// The bitstreams that functions ask for, each with the number of its functions.
#[derive(Debug, Default)]
pub(super) struct Wanted(HashMap<BitstreamKey, usize, RandomState>);

impl Wanted {
    /// Whether a function asks for this bitstream.
    pub fn contains(&self, bitstream: BitstreamKey) -> bool {
        self.0.contains_key(&bitstream)
    }

    /// A function that asked for `before` asks for `after` from now on.
    pub fn replace(&mut self, before: Option<BitstreamKey>, after: Option<BitstreamKey>) {
        if let Some(after) = after {
            *self.0.entry(after).or_default() += 1;
        }
        let Some(before) = before else { return };
        if let Some(functions) = self.0.get_mut(&before) {
            *functions -= 1;
            if *functions == 0 {
                self.0.remove(&before);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_core::bitstream::BitstreamId;

    #[test]
    fn a_bitstream_is_wanted_until_its_last_function_is_gone() {
        let [a, b] = ["a", "b"].map(|name| Some(BitstreamKey::of(&BitstreamId::Name(name.to_owned()))));
        let mut wanted = Wanted::default();
        for (before, after) in [(None, a), (None, a), (a, b), (b, b), (None, None)] {
            wanted.replace(before, after);
        }
        assert!(wanted.contains(a.unwrap()) && wanted.contains(b.unwrap()));
        wanted.replace(a, None);
        wanted.replace(b, None);
        assert!(wanted.0.is_empty());
    }
}
