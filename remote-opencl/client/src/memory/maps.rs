//! The mapped regions of a buffer: counts and access, without any memory.

use crate::cl;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MappedRegion {
    /// Offset of the region in the buffer, in bytes.
    pub(crate) offset: usize,
    /// Length of the region in bytes.
    pub(crate) size: usize,
    /// MapAccess that the application has.
    pub(crate) access: MapAccess,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MapAccess {
    /// The application reads the content and doesn't change it.
    Read,
    /// The application reads and may change the content.
    Write,
    /// The application overwrites the content without reading it.
    Overwrite,
}

impl MapAccess {
    /// The access of `cl_map_flags`; `None` for contradicting or unknown flags.
    pub(crate) fn of_flags(flags: u64) -> Option<Self> {
        let known = cl::MAP_READ | cl::MAP_WRITE | cl::MAP_WRITE_INVALIDATE_REGION;
        match flags {
            cl::MAP_WRITE_INVALIDATE_REGION => Some(Self::Overwrite),
            _ if flags & !known != 0 || flags & cl::MAP_WRITE_INVALIDATE_REGION != 0 => None,
            _ if flags & cl::MAP_WRITE != 0 => Some(Self::Write),
            _ => Some(Self::Read),
        }
    }

    /// Whether a map has to fetch the content.
    pub(crate) fn reads_back(self) -> bool {
        self != Self::Overwrite
    }

    /// Whether an unmap has to write the content back.
    pub(crate) fn writes_back(self) -> bool {
        self != Self::Read
    }
}

/// The mapped regions of one buffer.
#[derive(Debug, Default)]
pub(crate) struct MapTable(Vec<MappedRegion>);

impl MapTable {
    pub(crate) fn map(&mut self, region: MappedRegion) {
        self.0.push(region);
    }

    /// Removes a map that begins at `offset`: the last one for writing, else the last one. So the first unmap
    /// writes back what was written.
    pub(crate) fn unmap(&mut self, offset: usize) -> Option<MappedRegion> {
        let at_offset = |region: &MappedRegion| region.offset == offset;
        let index = self.0.iter().rposition(|region| at_offset(region) && region.access.writes_back());
        let index = index.or_else(|| self.0.iter().rposition(at_offset))?;
        Some(self.0.remove(index))
    }

    pub(crate) fn regions(&self) -> &[MappedRegion] {
        &self.0
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(offset: usize, size: usize, access: MapAccess) -> MappedRegion {
        MappedRegion { offset, size, access }
    }

    #[test]
    fn every_map_is_unmapped_once() {
        let mut table = MapTable::default();
        table.map(region(0, 10, MapAccess::Read));
        table.map(region(0, 20, MapAccess::Read));
        table.map(region(64, 10, MapAccess::Write));
        assert_eq!(table.count(), 3);
        assert!(table.unmap(1).is_none());
        assert_eq!(table.unmap(64), Some(region(64, 10, MapAccess::Write)));
        assert!(table.unmap(64).is_none());
        assert!(table.unmap(0).is_some() && table.unmap(0).is_some() && table.unmap(0).is_none());
        assert_eq!(table.count(), 0);
    }

    #[test]
    fn of_two_maps_at_one_address_the_written_one_ends_first() {
        let mut table = MapTable::default();
        table.map(region(0, 10, MapAccess::Write));
        table.map(region(0, 5, MapAccess::Read));
        assert_eq!(table.unmap(0), Some(region(0, 10, MapAccess::Write)));
    }

    #[test]
    fn flags_say_what_travels() {
        assert_eq!(MapAccess::of_flags(cl::MAP_READ | cl::MAP_WRITE), Some(MapAccess::Write));
        assert_eq!(MapAccess::of_flags(0), Some(MapAccess::Read));
        assert_eq!(MapAccess::of_flags(cl::MAP_WRITE_INVALIDATE_REGION), Some(MapAccess::Overwrite));
        assert_eq!(MapAccess::of_flags(cl::MAP_READ | cl::MAP_WRITE_INVALIDATE_REGION), None);
        assert_eq!(MapAccess::of_flags(1 << 9), None);
        assert!(!MapAccess::Overwrite.reads_back() && MapAccess::Overwrite.writes_back());
        assert!(MapAccess::Read.reads_back() && !MapAccess::Read.writes_back());
    }
}
