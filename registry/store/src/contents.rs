//! What the store has, and which of it goes when something else needs the room: without I/O and without a clock.

use fpga_core::bitstream::Digest;
use std::collections::BTreeMap;

/// The files of a store, with the room that downloads have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    files: BTreeMap<Item, Kept>,
    /// Bytes that running downloads may write.
    reserved: u64,
    /// Number of uses so far.
    uses: u64,
}

/// A file of a store.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Item {
    /// A whole bitstream.
    Whole(Digest),
    /// What has come of one, by the key of what was wanted; no download writes it now.
    Partial(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kept {
    bytes: u64,
    /// Number of the last use. A smaller one was earlier.
    last_use: u64,
}

/// A bitstream has no room in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the node's store of bitstreams is full: {wanted} bytes are wanted, and of {limit} bytes {in_use} are on boards, in use by pods, or being fetched; end pods on this node, or raise --bitstream-store-size"
)]
pub struct Full {
    /// Number of bytes that are wanted.
    pub wanted: u64,
    /// Number of bytes that the store may have.
    pub limit: u64,
    /// Number of bytes that can't go.
    pub in_use: u64,
}

impl Contents {
    /// Contents of these files, the least recently used one first.
    pub(crate) fn of(files: impl IntoIterator<Item = (Item, u64)>) -> Self {
        let mut contents = Self::default();
        for (item, bytes) in files {
            contents.add(item, bytes);
        }
        contents
    }

    /// A file is there, and is in use now.
    pub(crate) fn add(&mut self, item: Item, bytes: u64) {
        self.uses += 1;
        self.files.insert(item, Kept { bytes, last_use: self.uses });
    }

    /// A file is used.
    pub(crate) fn touch(&mut self, item: &Item) {
        self.uses += 1;
        if let Some(kept) = self.files.get_mut(item) {
            kept.last_use = self.uses;
        }
    }

    /// A file is gone.
    pub(crate) fn remove(&mut self, item: &Item) {
        self.files.remove(item);
    }

    pub(crate) fn has(&self, item: &Item) -> bool {
        self.files.contains_key(item)
    }

    /// Takes room for a download of `bytes` bytes.
    pub(crate) fn reserve(&mut self, bytes: u64) {
        self.reserved = self.reserved.saturating_add(bytes);
    }

    /// Gives back the room of a download.
    pub(crate) fn release(&mut self, bytes: u64) {
        self.reserved = self.reserved.saturating_sub(bytes);
    }

    /// The files that must go so that `bytes` bytes have room within `limit`: what came of broken downloads first, then
    /// whole files, each the least recently used one first.
    ///
    /// # Errors
    /// [`Full`], if there is no room although all files went that are not in use.
    pub(crate) fn make_room(
        &self,
        bytes: u64,
        limit: u64,
        in_use: impl Fn(&Digest) -> bool,
    ) -> Result<Vec<Item>, Full> {
        let stays = |item: &Item| matches!(item, Item::Whole(digest) if in_use(digest));
        let mut may_go: Vec<_> = self.files.iter().filter(|(item, _)| !stays(item)).collect();
        may_go.sort_by_key(|(item, kept)| (matches!(item, Item::Whole(_)), kept.last_use));
        let mut taken = self.bytes().saturating_add(self.reserved).saturating_add(bytes);
        let mut going = Vec::new();
        for (item, kept) in may_go {
            if taken <= limit {
                break;
            }
            taken = taken.saturating_sub(kept.bytes);
            going.push(item.clone());
        }
        if taken > limit {
            return Err(Full { wanted: bytes, limit, in_use: taken.saturating_sub(bytes) });
        }
        Ok(going)
    }

    /// Bytes of all files.
    pub(crate) fn bytes(&self) -> u64 {
        self.files.values().fold(0, |sum, kept| sum.saturating_add(kept.bytes))
    }

    /// Number of whole files.
    pub(crate) fn whole(&self) -> usize {
        self.files.keys().filter(|item| matches!(item, Item::Whole(_))).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn digest(byte: u8) -> Digest {
        Digest::from_bytes([byte; 32])
    }

    fn whole(byte: u8) -> Item {
        Item::Whole(digest(byte))
    }

    #[test]
    fn the_least_recently_used_goes_and_what_is_in_use_stays() {
        let mut contents = Contents::of([(whole(1), 40), (whole(2), 30), (whole(3), 20)]);
        assert_eq!(contents.make_room(10, 100, |_| false), Ok(vec![]));
        assert_eq!(contents.make_room(11, 100, |_| false), Ok(vec![whole(1)]));
        contents.touch(&whole(1));
        assert_eq!(contents.make_room(11, 100, |_| false), Ok(vec![whole(2)]));
        assert_eq!(contents.make_room(11, 100, |used| *used == digest(2)), Ok(vec![whole(3)]));
        assert_eq!(contents.make_room(100, 100, |_| false), Ok(vec![whole(2), whole(3), whole(1)]));
    }

    #[test]
    fn what_came_of_a_broken_download_goes_before_whole_files() {
        let partial = Item::Partial("a".to_owned());
        let contents = Contents::of([(whole(1), 40), (partial.clone(), 30)]);
        assert_eq!(contents.make_room(60, 100, |_| false), Ok(vec![partial]));
    }

    #[test]
    fn a_store_that_is_full_says_what_keeps_the_room() {
        let mut contents = Contents::of([(whole(1), 40), (whole(2), 30)]);
        let full = |wanted, in_use| Err(Full { wanted, limit: 100, in_use });
        assert_eq!(contents.make_room(61, 100, |used| *used == digest(1)), full(61, 40));
        assert_eq!(contents.make_room(101, 100, |_| false), full(101, 0));
        contents.reserve(50);
        assert_eq!(contents.make_room(51, 100, |_| false), full(51, 50));
        contents.release(50);
        assert_eq!(contents.make_room(51, 100, |_| false), Ok(vec![whole(1)]));
        let text = contents.make_room(101, 100, |_| false).unwrap_err().to_string();
        assert!(text.contains("101 bytes are wanted") && text.contains("--bitstream-store-size"), "{text}");
    }

    proptest! {
        #[test]
        fn room_is_made_within_the_limit_by_files_that_are_not_in_use_and_by_no_more_than_needed(
            files in prop::collection::vec((0_u8..20, 1_u64..50), 0..12),
            in_use in prop::collection::btree_set(0_u8..20, 0..6),
            reserved in 0_u64..60, wanted in 1_u64..120, limit in 50_u64..200,
        ) {
            let mut contents = Contents::of(files.into_iter().map(|(byte, bytes)| (whole(byte), bytes)));
            contents.reserve(reserved);
            let in_use: BTreeSet<Digest> = in_use.into_iter().map(digest).collect();
            let before = contents.clone();
            match contents.make_room(wanted, limit, |digest| in_use.contains(digest)) {
                Ok(going) => {
                    let fits = |contents: &Contents| contents.bytes() + reserved + wanted <= limit;
                    for item in &going {
                        prop_assert!(!fits(&contents), "no file goes in vain");
                        prop_assert!(!matches!(item, Item::Whole(digest) if in_use.contains(digest)));
                        contents.remove(item);
                    }
                    prop_assert!(fits(&contents));
                }
                Err(full) => {
                    prop_assert!(full.in_use + wanted > limit);
                    prop_assert_eq!(contents, before);
                }
            }
        }
    }
}
