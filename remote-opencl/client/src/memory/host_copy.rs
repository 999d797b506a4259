//! The program's memory of a `CL_MEM_USE_HOST_PTR` object, and which blocks of it the program has changed since they were
//! equal to the object's content.
//!
//! A migration to the device takes only changed blocks. So it never overwrites what kernels have left in the object with
//! what the program had there before, and programs may migrate as often as they like.

use crate::base::sync::lock;
use crate::memory::host_memory::HostTarget;
use std::ops::Range;
use std::sync::Mutex;

/// Size of a block in bytes.
const BLOCK: usize = 4096;

/// The program's memory of an object.
#[derive(Debug)]
pub(crate) struct HostCopy {
    memory: HostTarget,
    /// Hash of each block when it was equal to the object's content.
    equal: Mutex<Vec<u64>>,
}

impl HostCopy {
    /// Memory that is equal to the object's content.
    pub(crate) fn new(memory: HostTarget) -> Self {
        let equal = blocks(0..memory.len()).map(|block| memory.hash(block)).collect();
        Self { memory, equal: Mutex::new(equal) }
    }

    /// The memory.
    pub(crate) fn memory(&self) -> &HostTarget {
        &self.memory
    }

    /// Notes that these addresses are equal to the object's content. Only whole blocks count.
    pub(crate) fn is_equal_at(&self, addresses: &Range<usize>) {
        let all = self.memory.addresses();
        let (start, end) = (addresses.start.max(all.start), addresses.end.min(all.end));
        let mut equal = lock(&self.equal);
        for block in blocks(0..self.memory.len()) {
            let is_inside = start <= all.start + block.start && all.start + block.end <= end;
            if let (true, Some(hash)) = (is_inside, equal.get_mut(block.start / BLOCK)) {
                *hash = self.memory.hash(block);
            }
        }
    }

    /// The changed parts of a range, in order; neighbouring blocks are one part.
    pub(crate) fn changed(&self, range: Range<usize>) -> Vec<Range<usize>> {
        let equal = lock(&self.equal);
        let mut changed: Vec<Range<usize>> = Vec::new();
        for block in blocks(0..self.memory.len()) {
            let part = block.start.max(range.start)..block.end.min(range.end);
            if part.is_empty() || equal.get(block.start / BLOCK) == Some(&self.memory.hash(block)) {
                continue;
            }
            match changed.last_mut() {
                Some(last) if last.end == part.start => last.end = part.end,
                _ => changed.push(part),
            }
        }
        changed
    }
}

fn blocks(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(BLOCK).map(move |start| start..end.min(start + BLOCK))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::host_memory::Shadow;

    #[test]
    fn only_blocks_that_have_changed_since_they_were_equal_are_changed() {
        let len = 3 * BLOCK + 10;
        let memory = Shadow::allocate(len).unwrap();
        let mut program = memory.part(0, len).unwrap();
        let at = memory.address();
        let mut set = |at: usize, value: u8| assert!(program.write(at, &[value]));
        let copy = HostCopy::new(memory);
        let changed = |range: Range<usize>| -> Vec<(usize, usize)> {
            copy.changed(range).into_iter().map(|part| (part.start, part.end)).collect()
        };
        assert!(changed(0..len).is_empty());
        set(BLOCK, 1);
        set(2 * BLOCK, 1);
        set(3 * BLOCK + 9, 1);
        assert_eq!(changed(0..len), [(BLOCK, len)]);
        assert_eq!(changed(BLOCK + 5..2 * BLOCK), [(BLOCK + 5, 2 * BLOCK)]);
        copy.is_equal_at(&(at + BLOCK..at + 2 * BLOCK));
        copy.is_equal_at(&(at + 2 * BLOCK + 1..at + 3 * BLOCK));
        assert_eq!(changed(0..len), [(2 * BLOCK, len)]);
        set(0, 2);
        copy.is_equal_at(&(at..at + len));
        assert!(changed(0..len).is_empty());
    }
}
