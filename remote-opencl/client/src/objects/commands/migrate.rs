//! Migrations: they bring the program's memory of `CL_MEM_USE_HOST_PTR` objects, and the memory of live maps, up to date
//! with the device, or the device with it. Other contents have one place only, so nothing moves.

use crate::cl;
use crate::error::{ClError, Result};
use crate::memory::maps::MappedRegion;
use crate::objects::buffer::{Buffer, InUse};
use crate::objects::event::{Event, Uses};
use crate::objects::image::Image;
use crate::objects::queue::Queue;
use std::ops::Range;
use std::sync::Arc;

/// What a migration is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Migration {
    /// The device gets what the program has written.
    ToDevice,
    /// The program gets what the device has (`CL_MIGRATE_MEM_OBJECT_HOST`).
    ToHost,
    /// The contents don't matter (`CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED`).
    Undefined,
}

impl Queue {
    /// `clEnqueueMigrateMemObjects`.
    ///
    /// # Errors
    /// The codes of the C call.
    pub fn migrate(
        self: &Arc<Self>,
        buffers: &[Arc<Buffer>],
        images: &[Arc<Image>],
        migration: Migration,
        wait: &[Arc<Event>],
    ) -> Result<Arc<Event>> {
        let wait = self.checked_wait_list(wait)?;
        let mut events = Vec::new();
        for buffer in buffers {
            self.check_context(buffer.context())?;
            for range in self.to_migrate(buffer, migration, &wait) {
                let memory = buffer.host_memory(range.start, range.len())?;
                events.push(if migration == Migration::ToHost {
                    self.read(cl::COMMAND_MIGRATE_MEM_OBJECTS, buffer, range.start, memory, wait.clone())?
                } else {
                    let source = memory.part_as_source(0, range.len()).ok_or(ClError::INVALID_VALUE)?;
                    self.write(cl::COMMAND_MIGRATE_MEM_OBJECTS, buffer, range.start, source, wait.clone())?
                });
            }
        }
        for image in images {
            self.check_context(image.context())?;
            events.extend(self.migrate_image(image, migration, &wait)?);
        }
        match events.as_slice() {
            [] => {
                let buffers = buffers.iter().map(InUse::new).collect();
                let uses = Uses { buffers, images: images.to_vec(), ..Uses::default() };
                self.nothing(cl::COMMAND_MIGRATE_MEM_OBJECTS, uses, wait)
            }
            [only] => Ok(Arc::clone(only)),
            [.., last] if self.is_in_order() => Ok(Arc::clone(last)),
            several => {
                let ids = several.iter().map(|event| event.id()).collect();
                self.submit_marker(cl::COMMAND_MIGRATE_MEM_OBJECTS, Uses::default(), ids)
            }
        }
    }

    /// The ranges of a buffer that have to move.
    fn to_migrate(&self, buffer: &Arc<Buffer>, migration: Migration, wait: &[u64]) -> Vec<Range<usize>> {
        if migration == Migration::Undefined || buffer.is_mapped_in_place() {
            return Vec::new();
        }
        let Some(copy) = buffer.host_copy() else {
            let maps = buffer.live_maps();
            let moves = |map: &MappedRegion| migration == Migration::ToHost || map.access.writes_back();
            return maps.into_iter().filter(moves).map(|map| map.offset..map.offset + map.size).collect();
        };
        let order = self.session().host_order();
        // The program may still write before it sets a user event, so all is taken, and late.
        let is_held = order.is_held(wait, self.waits_for(wait));
        if migration == Migration::ToHost || is_held {
            return std::iter::once(0..buffer.size()).collect();
        }
        let (copy, origin) = copy;
        let base = copy.memory().address();
        let changed = copy.changed(origin..origin + buffer.size()).into_iter();
        // Where results of the device have not arrived, the program can't have written.
        let is_written =
            |part: &Range<usize>| order.givers_to(&(base + part.start..base + part.end)).is_empty();
        changed.filter(is_written).map(|part| part.start - origin..part.end - origin).collect()
    }

    fn migrate_image(
        self: &Arc<Self>,
        image: &Arc<Image>,
        migration: Migration,
        wait: &[u64],
    ) -> Result<Option<Arc<Event>>> {
        if migration == Migration::Undefined || image.host_address() == 0 {
            return Ok(None);
        }
        let region = image.whole();
        let (memory, pitches, _) = image.host_memory(&region)?;
        let (kind, wait) = (cl::COMMAND_MIGRATE_MEM_OBJECTS, wait.to_vec());
        if migration == Migration::ToHost {
            return self.read_pixels(kind, image, region, (memory, pitches), wait).map(Some);
        }
        let source = memory.part_as_source(0, memory.len()).ok_or(ClError::INVALID_VALUE)?;
        self.write_pixels(kind, image, region, (source, pitches), wait).map(Some)
    }
}
