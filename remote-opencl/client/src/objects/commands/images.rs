//! Commands on images. Pixels travel without gaps; a map is a read into the image's host memory, and an unmap a
//! write from it.

use super::Mapped;
use crate::cl;
use crate::error::{ClError, Result};
use crate::memory::host_bytes::HostBytes;
use crate::memory::host_memory::{HostSource, HostTarget};
use crate::memory::maps::MapAccess;
use crate::memory::pitches::Pitches;
use crate::objects::buffer::{Buffer, InUse};
use crate::objects::event::{Event, Uses};
use crate::objects::image::{Image, ImageMap, ImageRegion};
use crate::objects::queue::Queue;
use fpga_protocol::v1::{self, command};
use std::sync::Arc;

impl ImageRegion {
    fn message(&self) -> v1::ImageRegion {
        let wide = |numbers: [usize; 3]| numbers.map(|number| number as u64).to_vec();
        v1::ImageRegion { origin: wide(self.origin), size: wide(self.size) }
    }
}

/// The uses of a command on images.
fn uses_of(images: &[&Arc<Image>]) -> Uses {
    Uses {
        images: images.iter().map(|image| Arc::clone(image)).collect(),
        buffers: images.iter().filter_map(|image| image.use_of_buffer()).collect(),
        ..Uses::default()
    }
}

impl Queue {
    /// `clEnqueueWriteImage` from a source of [`Image::host_bytes`].
    ///
    /// # Errors
    /// The codes of the C call.
    pub fn write_image(
        self: &Arc<Self>,
        image: &Arc<Image>,
        region: ImageRegion,
        (row_pitch, slice_pitch): (usize, usize),
        data: HostSource,
        wait: &[Arc<Event>],
    ) -> Result<Arc<Event>> {
        let wait = self.checked_wait_list(wait)?;
        self.check_context(image.context())?;
        let pitches = image.pitches_of(&region, row_pitch, slice_pitch)?;
        image.check_host_access(cl::MEM_HOST_READ_ONLY)?;
        self.write_pixels(cl::COMMAND_WRITE_IMAGE, image, region, (data, pitches), wait)
    }

    /// `clEnqueueReadImage` to a target of [`Image::host_bytes`].
    ///
    /// # Errors
    /// The codes of the C call.
    pub fn read_image(
        self: &Arc<Self>,
        image: &Arc<Image>,
        region: ImageRegion,
        (row_pitch, slice_pitch): (usize, usize),
        target: HostTarget,
        wait: &[Arc<Event>],
    ) -> Result<Arc<Event>> {
        let wait = self.checked_wait_list(wait)?;
        self.check_context(image.context())?;
        let pitches = image.pitches_of(&region, row_pitch, slice_pitch)?;
        image.check_host_access(cl::MEM_HOST_WRITE_ONLY)?;
        self.read_pixels(cl::COMMAND_READ_IMAGE, image, region, (target, pitches), wait)
    }

    /// `clEnqueueCopyImage`.
    ///
    /// # Errors
    /// The codes of the C call.
    pub fn copy_image(
        self: &Arc<Self>,
        source: &Arc<Image>,
        target: &Arc<Image>,
        region: ImageRegion,
        target_origin: [usize; 3],
        wait: &[Arc<Event>],
    ) -> Result<Arc<Event>> {
        let wait = self.checked_wait_list(wait)?;
        self.check_context(source.context())?;
        self.check_context(target.context())?;
        if source.format() != target.format() {
            return Err(ClError::IMAGE_FORMAT_MISMATCH);
        }
        source.check_region(&region)?;
        target.check_region(&ImageRegion { origin: target_origin, size: region.size })?;
        let apart = (0..3).any(|axis| region.origin[axis].abs_diff(target_origin[axis]) >= region.size[axis]);
        if Arc::ptr_eq(source, target) && !apart {
            return Err(ClError::MEM_COPY_OVERLAP);
        }
        let operation = command::Operation::CopyImage(v1::CopyImage {
            source: source.id(),
            target: target.id(),
            region: Some(region.message()),
            target_origin: target_origin.map(|number| number as u64).to_vec(),
        });
        self.submit(cl::COMMAND_COPY_IMAGE, operation, uses_of(&[source, target]), wait)
    }

    /// `clEnqueueFillImage`; the colour is four floats or integers, depending on the format.
    ///
    /// # Errors
    /// The codes of the C call.
    pub fn fill_image(
        self: &Arc<Self>,
        image: &Arc<Image>,
        color: [u8; 16],
        region: ImageRegion,
        wait: &[Arc<Event>],
    ) -> Result<Arc<Event>> {
        let wait = self.checked_wait_list(wait)?;
        self.check_context(image.context())?;
        image.check_region(&region)?;
        let operation = command::Operation::FillImage(v1::FillImage {
            image: image.id(),
            color: color.to_vec().into(),
            region: Some(region.message()),
        });
        self.submit(cl::COMMAND_FILL_IMAGE, operation, uses_of(&[image]), wait)
    }

    /// `clEnqueueCopyImageToBuffer`.
    ///
    /// # Errors
    /// The codes of the C call.
    pub fn copy_image_to_buffer(
        self: &Arc<Self>,
        image: &Arc<Image>,
        region: ImageRegion,
        buffer: &Arc<Buffer>,
        offset: usize,
        wait: &[Arc<Event>],
    ) -> Result<Arc<Event>> {
        let wait = self.checked_wait_list(wait)?;
        let uses = self.between(image, &region, buffer, offset)?;
        let operation = command::Operation::CopyImageToBuffer(v1::CopyImageToBuffer {
            image: image.id(),
            region: Some(region.message()),
            buffer: buffer.id(),
            offset: offset as u64,
        });
        self.submit(cl::COMMAND_COPY_IMAGE_TO_BUFFER, operation, uses, wait)
    }

    /// `clEnqueueCopyBufferToImage`.
    ///
    /// # Errors
    /// The codes of the C call.
    pub fn copy_buffer_to_image(
        self: &Arc<Self>,
        buffer: &Arc<Buffer>,
        offset: usize,
        image: &Arc<Image>,
        region: ImageRegion,
        wait: &[Arc<Event>],
    ) -> Result<Arc<Event>> {
        let wait = self.checked_wait_list(wait)?;
        let uses = self.between(image, &region, buffer, offset)?;
        let operation = command::Operation::CopyBufferToImage(v1::CopyBufferToImage {
            buffer: buffer.id(),
            offset: offset as u64,
            image: image.id(),
            region: Some(region.message()),
        });
        self.submit(cl::COMMAND_COPY_BUFFER_TO_IMAGE, operation, uses, wait)
    }

    /// Checks a copy between an image and a buffer. Returns the uses of the command.
    fn between(
        &self,
        image: &Arc<Image>,
        region: &ImageRegion,
        buffer: &Arc<Buffer>,
        offset: usize,
    ) -> Result<Uses> {
        self.check_context(image.context())?;
        image.check_region(region)?;
        self.check_region(buffer, offset, image.bytes_of(region))?;
        let mut uses = uses_of(&[image]);
        uses.buffers.push(InUse::new(buffer));
        Ok(uses)
    }

    /// `clEnqueueMapImage`; also returns the row and the slice pitch. Fetches the content unless the map overwrites
    /// it.
    ///
    /// # Errors
    /// The codes of the C call.
    pub fn map_image(
        self: &Arc<Self>,
        image: &Arc<Image>,
        flags: u64,
        region: ImageRegion,
        wait: &[Arc<Event>],
    ) -> Result<(Mapped, (usize, usize))> {
        let wait = self.checked_wait_list(wait)?;
        self.check_context(image.context())?;
        let access = MapAccess::of_flags(flags).ok_or(ClError::INVALID_VALUE)?;
        if flags & cl::MAP_READ != 0 {
            image.check_host_access(cl::MEM_HOST_WRITE_ONLY)?;
        }
        if access.writes_back() {
            image.check_host_access(cl::MEM_HOST_READ_ONLY)?;
        }
        let (memory, pitches, reported) = image.host_memory(&region)?;
        let address = memory.address();
        let event = if access.reads_back() {
            self.read_pixels(cl::COMMAND_MAP_IMAGE, image, region, (memory, pitches), wait)?
        } else {
            self.nothing(cl::COMMAND_MAP_IMAGE, uses_of(&[image]), wait)?
        };
        image.mapped(ImageMap { address, region, access });
        Ok((Mapped { event, address }, reported))
    }

    /// `clEnqueueUnmapMemObject` of an address that [`Self::map_image`] returned.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` for an address that isn't mapped.
    pub fn unmap_image(
        self: &Arc<Self>,
        image: &Arc<Image>,
        address: usize,
        wait: &[Arc<Event>],
    ) -> Result<Arc<Event>> {
        let wait = self.checked_wait_list(wait)?;
        self.check_context(image.context())?;
        let map = image.unmapped(address).ok_or(ClError::INVALID_VALUE)?;
        let unmap = || {
            if !map.access.writes_back() {
                return self.nothing(cl::COMMAND_UNMAP_MEM_OBJECT, uses_of(&[image]), wait);
            }
            let (memory, pitches, _) = image.host_memory(&map.region)?;
            let source = memory.part_as_source(0, memory.len()).ok_or(ClError::INVALID_VALUE)?;
            self.write_pixels(cl::COMMAND_UNMAP_MEM_OBJECT, image, map.region, (source, pitches), wait)
        };
        unmap().inspect_err(|_| image.mapped(map))
    }

    pub(super) fn write_pixels(
        self: &Arc<Self>,
        command_type: u32,
        image: &Arc<Image>,
        region: ImageRegion,
        (source, pitches): (HostSource, Pitches),
        wait: Vec<u64>,
    ) -> Result<Arc<Event>> {
        let data = HostBytes::with_pitches(source, pitches);
        self.send(command_type, data, uses_of(&[image]), wait, |data| {
            command::Operation::WriteImage(v1::WriteImage {
                image: image.id(),
                region: Some(region.message()),
                data: Some(data),
            })
        })
    }

    pub(super) fn read_pixels(
        self: &Arc<Self>,
        command_type: u32,
        image: &Arc<Image>,
        region: ImageRegion,
        target: (HostTarget, Pitches),
        wait: Vec<u64>,
    ) -> Result<Arc<Event>> {
        self.fetch_rows(command_type, target, uses_of(&[image]), wait, |into| {
            command::Operation::ReadImage(v1::ReadImage {
                image: image.id(),
                region: Some(region.message()),
                into,
            })
        })
    }
}
