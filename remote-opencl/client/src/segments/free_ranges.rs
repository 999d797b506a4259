//! Which pages of a segment are free: first fit, neighbours join. No memory is touched here.

use fpga_protocol::segments::PAGE_BYTES;
use std::collections::BTreeMap;

/// A page, as a size in memory.
#[expect(clippy::cast_possible_truncation, reason = "4096")]
const PAGE: usize = PAGE_BYTES as usize;

/// The free ranges of one segment: where each begins, and how long it is. None touches another.
#[derive(Debug)]
pub(super) struct FreeRanges(BTreeMap<usize, usize>);

impl FreeRanges {
    /// All of a segment of `len` bytes, whole pages.
    pub(super) fn new(len: usize) -> Self {
        Self(BTreeMap::from([(0, len)]))
    }

    /// Takes the first range that has `len` bytes.
    pub(super) fn take(&mut self, len: usize) -> Option<usize> {
        let pages = len.checked_next_multiple_of(PAGE).filter(|pages| *pages > 0)?;
        let (offset, found) = self.0.iter().find(|(_, found)| **found >= pages).map(|(a, b)| (*a, *b))?;
        self.0.remove(&offset);
        if found > pages {
            self.0.insert(offset + pages, found - pages);
        }
        Some(offset)
    }

    /// What [`Self::take`] gave for `len` bytes is free again.
    pub(super) fn give_back(&mut self, offset: usize, len: usize) {
        let (mut begin, mut end) = (offset, offset + len.next_multiple_of(PAGE));
        if let Some((before, found)) = self.0.range(..begin).next_back().map(|(a, b)| (*a, *b))
            && before + found == begin
        {
            self.0.remove(&before);
            begin = before;
        }
        if let Some(found) = self.0.remove(&end) {
            end += found;
        }
        self.0.insert(begin, end - begin);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn neighbours_join_whichever_comes_back_first() {
        let mut free = FreeRanges::new(3 * PAGE);
        let taken: Vec<_> = (0..3).map(|_| free.take(1).unwrap()).collect();
        assert_eq!(taken, [0, PAGE, 2 * PAGE]);
        assert_eq!(free.take(1), None);
        for offset in [0, 2 * PAGE, PAGE] {
            free.give_back(offset, 1);
        }
        assert_eq!(free.take(3 * PAGE), Some(0));
        assert_eq!(free.take(0), None);
    }

    proptest! {
        #[test]
        fn ranges_that_are_taken_never_overlap_and_all_comes_back(
            steps in prop::collection::vec((any::<bool>(), 1_usize..5 * PAGE), 1..100),
        ) {
            let whole = 16 * PAGE;
            let mut free = FreeRanges::new(whole);
            let mut taken: Vec<(usize, usize)> = Vec::new();
            for (take, len) in steps {
                if take {
                    let Some(offset) = free.take(len) else { continue };
                    prop_assert!(offset % PAGE == 0 && offset + len <= whole);
                    for (other, its) in &taken {
                        prop_assert!(offset + len <= *other || other + its <= offset);
                    }
                    taken.push((offset, len));
                } else if !taken.is_empty() {
                    let (offset, its) = taken.swap_remove(len % taken.len());
                    free.give_back(offset, its);
                }
            }
            for (offset, len) in taken {
                free.give_back(offset, len);
            }
            prop_assert_eq!(free.take(whole), Some(0));
        }
    }
}
