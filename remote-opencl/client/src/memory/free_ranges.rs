//! The free ranges of a segment, in units of a page or less. A range is taken from the smallest free range that is
//! long enough, and neighbouring free ranges join. No memory is touched here, and the time of each step grows only
//! logarithmically with the number of ranges.

use std::collections::{BTreeMap, BTreeSet};

/// The free ranges of one segment.
#[derive(Debug)]
pub(crate) struct FreeRanges {
    /// Lengths of the free ranges by offset. No two of them touch.
    by_offset: BTreeMap<usize, usize>,
    /// The same ranges, as pairs of length and offset.
    by_length: BTreeSet<(usize, usize)>,
    len: usize,
    /// Offsets and lengths are multiples of this many bytes.
    unit: usize,
    /// No byte from this offset on was ever taken, so all of them are zero.
    touched: usize,
}

/// A range that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TakenRange {
    pub(crate) offset: usize,
    /// Number of bytes, from the first on, that may hold data of an earlier owner. The other bytes are zero.
    pub(crate) used_before: usize,
}

impl FreeRanges {
    /// The ranges of an untouched segment of `len` bytes, which is a multiple of `unit`.
    pub(crate) fn new(len: usize, unit: usize) -> Self {
        let mut free = Self { by_offset: BTreeMap::new(), by_length: BTreeSet::new(), len, unit, touched: 0 };
        free.insert(0, len);
        free
    }

    /// Takes `len` bytes from the smallest range that has them.
    pub(crate) fn take(&mut self, len: usize) -> Option<TakenRange> {
        let whole = len.checked_next_multiple_of(self.unit).filter(|whole| *whole > 0)?;
        let (found, offset) = self.by_length.range((whole, 0)..).next().copied()?;
        self.remove(offset);
        if found > whole {
            self.insert(offset + whole, found - whole);
        }
        let used_before = self.touched.saturating_sub(offset).min(len);
        self.touched = self.touched.max(offset + whole);
        Some(TakenRange { offset, used_before })
    }

    /// Whether the whole segment is free.
    pub(crate) fn is_whole(&self) -> bool {
        self.by_offset.get(&0) == Some(&self.len)
    }

    /// Frees a range that [`Self::take`] returned for `len` bytes.
    pub(crate) fn give_back(&mut self, offset: usize, len: usize) {
        let (mut begin, mut end) = (offset, offset + len.next_multiple_of(self.unit));
        if let Some((before, found)) = self.by_offset.range(..begin).next_back().map(|(a, b)| (*a, *b))
            && before + found == begin
        {
            self.remove(before);
            begin = before;
        }
        if let Some(found) = self.remove(end) {
            end += found;
        }
        self.insert(begin, end - begin);
    }

    fn insert(&mut self, offset: usize, found: usize) {
        self.by_offset.insert(offset, found);
        self.by_length.insert((found, offset));
    }

    fn remove(&mut self, offset: usize) -> Option<usize> {
        let found = self.by_offset.remove(&offset)?;
        self.by_length.remove(&(found, offset));
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: usize = 4096;

    #[test]
    fn what_was_never_taken_is_zero_still() {
        let mut free = FreeRanges::new(3 * PAGE, PAGE);
        assert_eq!(free.take(PAGE), Some(TakenRange { offset: 0, used_before: 0 }));
        free.give_back(0, PAGE);
        assert_eq!(free.take(3 * PAGE), Some(TakenRange { offset: 0, used_before: PAGE }));
    }

    #[test]
    fn neighbours_join_whichever_comes_back_first() {
        let mut free = FreeRanges::new(3 * PAGE, PAGE);
        let taken: Vec<_> = (0..3).map(|_| free.take(1).unwrap().offset).collect();
        assert_eq!(taken, [0, PAGE, 2 * PAGE]);
        assert_eq!(free.take(1), None);
        for offset in [0, 2 * PAGE, PAGE] {
            free.give_back(offset, 1);
        }
        assert!(free.is_whole());
        assert_eq!(free.take(3 * PAGE), Some(TakenRange { offset: 0, used_before: 3 * PAGE }));
        assert!(!free.is_whole());
        assert_eq!(free.take(0), None);
    }

    proptest! {
        #[test]
        fn ranges_that_are_taken_never_overlap_and_all_comes_back(
            unit in prop::sample::select(vec![128, PAGE]),
            steps in prop::collection::vec((any::<bool>(), 1_usize..5 * PAGE), 1..100),
        ) {
            let whole = 16 * PAGE;
            let mut free = FreeRanges::new(whole, unit);
            let mut taken: Vec<(usize, usize)> = Vec::new();
            let mut dirty = vec![false; whole];
            for (take, len) in steps {
                if take {
                    let Some(TakenRange { offset, used_before }) = free.take(len) else { continue };
                    let touched = dirty.iter().rposition(|dirty| *dirty).map_or(0, |last| last + 1);
                    prop_assert!(used_before >= touched.saturating_sub(offset).min(len));
                    dirty[offset..offset + len].fill(true);
                    prop_assert!(offset % unit == 0 && offset + len <= whole);
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
            prop_assert!(free.is_whole());
        }
    }
}
