//! Images, and the host memory that maps of them point to.
//!
//! Pixels are the manager's; an image never lies in memory that is shared with it. Pitches are only those of the
//! application's memory.

use crate::buffer::{self, Buffer, InUse};
use crate::callbacks;
use crate::cl;
use crate::context::{Context, check_status};
use crate::error::{ClError, Result};
use crate::host_memory::{HostSource, HostTarget, Shadow};
use crate::maps::Access;
use crate::pitches::Pitches;
use crate::sync::lock;
use fpga_protocol::images::{element_size, extent, is_image, is_inside};
use fpga_protocol::v1::{self, call::Method, reply};
use std::fmt;
use std::sync::{Arc, Mutex};

/// What a pixel is (`cl_image_format`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageFormat {
    /// `cl_channel_order`.
    pub order: u32,
    /// `cl_channel_type`.
    pub channel_type: u32,
}

/// What an image is (`cl_image_desc`), as it was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the standard's names")]
pub struct ImageShape {
    pub kind: u32,
    pub width: usize,
    pub height: usize,
    pub depth: usize,
    pub array_size: usize,
    /// Of the host memory, or of the buffer that the image lies in.
    pub row_pitch: usize,
    /// Of the host memory.
    pub slice_pitch: usize,
}

/// A part of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the standard's names")]
pub struct ImageRegion {
    pub origin: [usize; 3],
    pub size: [usize; 3],
}

/// What a new image holds.
#[derive(Debug)]
pub enum ImageInitial {
    /// Zeroes.
    Nothing,
    /// `CL_MEM_COPY_HOST_PTR`: these bytes, [`host_bytes`] of them.
    Copy(HostSource),
    /// `CL_MEM_USE_HOST_PTR`: this memory, which is also where maps of the image point.
    Use(HostTarget),
    /// What this buffer holds: the image is another view of it.
    In(Arc<Buffer>),
}

/// An image.
pub struct Image {
    id: u64,
    context: Arc<Context>,
    flags: u64,
    format: ImageFormat,
    shape: ImageShape,
    element: usize,
    extent: [usize; 3],
    /// Of the host memory.
    pitches: Pitches,
    buffer: Option<Arc<Buffer>>,
    application: Option<HostTarget>,
    shadow: Mutex<Option<HostTarget>>,
    maps: Mutex<Vec<ImageMap>>,
    destructors: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
}

/// A mapped region.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ImageMap {
    pub(crate) address: usize,
    pub(crate) region: ImageRegion,
    pub(crate) access: Access,
}

/// Bytes of host memory that an image like that is made from.
///
/// # Errors
/// `CL_INVALID_IMAGE_FORMAT_DESCRIPTOR`, `CL_INVALID_IMAGE_DESCRIPTOR`.
pub fn host_bytes(format: ImageFormat, shape: &ImageShape) -> Result<usize> {
    Geometry::new(format, shape, shape.row_pitch, shape.slice_pitch).map(|geometry| geometry.pitches.span())
}

/// The formats that the context's devices have for images of this kind (`clGetSupportedImageFormats`).
///
/// # Errors
/// The runtime's.
pub fn supported_formats(context: &Arc<Context>, flags: u64, kind: u32) -> Result<Vec<ImageFormat>> {
    if !is_image(kind) {
        return Err(ClError::INVALID_VALUE);
    }
    let get = v1::GetImageFormats { context: context.id(), flags, r#type: kind };
    let reply = context.session().call(Method::GetImageFormats(get))?;
    check_status(reply.status)?;
    let Some(reply::Result::ImageFormats(result)) = reply.result else { return Ok(Vec::new()) };
    let format = |it: v1::ImageFormat| ImageFormat { order: it.order, channel_type: it.r#type };
    Ok(result.formats.into_iter().map(format).collect())
}

struct Geometry {
    element: usize,
    extent: [usize; 3],
    pitches: Pitches,
}

impl Geometry {
    fn new(format: ImageFormat, shape: &ImageShape, row_pitch: usize, slice_pitch: usize) -> Result<Self> {
        let element = element_size(format.order, format.channel_type)
            .ok_or(ClError::INVALID_IMAGE_FORMAT_DESCRIPTOR)?;
        let invalid = ClError::INVALID_IMAGE_DESCRIPTOR;
        let ImageShape { kind, width, height, depth, array_size, .. } = *shape;
        let extent = extent(kind, width, height, depth, array_size).ok_or(
            // No image at all, or one without pixels.
            if is_image(kind) { ClError::INVALID_IMAGE_SIZE } else { invalid },
        )?;
        let pitches = Pitches::new(kind, element, extent, row_pitch, slice_pitch).map_err(|_| invalid)?;
        if !row_pitch.is_multiple_of(element) || (row_pitch != 0 && !slice_pitch.is_multiple_of(row_pitch)) {
            return Err(invalid);
        }
        Ok(Self { element, extent, pitches })
    }
}

impl Image {
    /// An image; `flags` are `cl_mem_flags`.
    ///
    /// # Errors
    /// The codes of `clCreateImage`, the runtime's among them.
    pub fn new(
        context: &Arc<Context>,
        flags: u64,
        format: ImageFormat,
        shape: ImageShape,
        initial: ImageInitial,
    ) -> Result<Arc<Self>> {
        let in_buffer = matches!(initial, ImageInitial::In(_));
        // The pitches of an image in a buffer are the buffer's.
        let (row_pitch, slice_pitch) = if in_buffer { (0, 0) } else { (shape.row_pitch, shape.slice_pitch) };
        let Geometry { element, extent, pitches } = Geometry::new(format, &shape, row_pitch, slice_pitch)?;
        let flags = match &initial {
            ImageInitial::In(buffer) => buffer::inherited_flags(buffer.flags(), flags)?,
            _ => buffer::checked_flags(flags)?,
        };
        let session = context.session();
        session.check(ClError::DEVICE_NOT_AVAILABLE)?;
        let (content, application, buffer) = match initial {
            ImageInitial::Nothing => (None, None, None),
            ImageInitial::Copy(source) if source.len() == pitches.span() => {
                (Some(pitches.pack(&source)), None, None)
            }
            ImageInitial::Use(memory) if memory.len() == pitches.span() => {
                let source = memory.part_as_source(0, memory.len()).ok_or(ClError::INVALID_HOST_PTR)?;
                (Some(pitches.pack(&source)), Some(memory), None)
            }
            ImageInitial::Copy(_) | ImageInitial::Use(_) => return Err(ClError::INVALID_HOST_PTR),
            ImageInitial::In(buffer) => (None, None, Some(buffer)),
        };
        let id = session.new_id();
        let data = content.map(|content| session.data(content));
        let image = Arc::new(Self {
            id,
            context: Arc::clone(context),
            flags,
            format,
            shape,
            element,
            extent,
            pitches,
            buffer,
            application,
            shadow: Mutex::default(),
            maps: Mutex::default(),
            destructors: Mutex::default(),
        });
        let reply = session.call(Method::CreateImage(v1::CreateImage {
            image: id,
            context: context.id(),
            flags: flags & buffer::KERNEL_ACCESS,
            format: Some(v1::ImageFormat { order: format.order, r#type: format.channel_type }),
            shape: Some(v1::ImageShape {
                r#type: shape.kind,
                width: shape.width as u64,
                height: shape.height as u64,
                depth: shape.depth as u64,
                array_size: shape.array_size as u64,
                buffer: image.buffer.as_ref().map_or(0, |buffer| buffer.id()),
                row_pitch: if in_buffer { shape.row_pitch as u64 } else { 0 },
            }),
            initial: data,
        }))?;
        check_status(reply.status)?;
        session.prepare_shared_memory(image.pitches.bytes());
        Ok(image)
    }

    /// Its context.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Its `cl_mem_flags`.
    pub fn flags(&self) -> u64 {
        self.flags
    }

    /// What its pixels are.
    pub fn format(&self) -> ImageFormat {
        self.format
    }

    /// What it is.
    pub fn shape(&self) -> &ImageShape {
        &self.shape
    }

    /// `CL_IMAGE_ELEMENT_SIZE`.
    pub fn element_size(&self) -> usize {
        self.element
    }

    /// `CL_IMAGE_ROW_PITCH` and `CL_IMAGE_SLICE_PITCH`.
    pub fn pitches(&self) -> (usize, usize) {
        match (&self.buffer, self.shape.row_pitch) {
            (Some(_), pitch) if pitch != 0 => (pitch, 0),
            _ => self.pitches.told(self.shape.kind),
        }
    }

    /// `CL_MEM_SIZE`: its bytes, with the gaps that its pitches make.
    pub fn size(&self) -> usize {
        self.pitches.whole()
    }

    /// The buffer that it lies in.
    pub fn buffer(&self) -> Option<&Arc<Buffer>> {
        self.buffer.as_ref()
    }

    /// `CL_MEM_HOST_PTR`, or 0.
    pub fn host_address(&self) -> usize {
        self.application.as_ref().map_or(0, HostTarget::address)
    }

    /// `CL_MEM_MAP_COUNT`.
    pub fn map_count(&self) -> usize {
        lock(&self.maps).len()
    }

    /// Bytes of host memory that a region with these pitches takes (0: without gaps).
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` for a region that the image doesn't have, or pitches that it doesn't fit into.
    pub fn host_bytes(&self, region: &ImageRegion, row_pitch: usize, slice_pitch: usize) -> Result<usize> {
        self.pitches_of(region, row_pitch, slice_pitch).map(|pitches| pitches.span())
    }

    /// As [`Buffer::on_destroyed`].
    pub fn on_destroyed(&self, callback: impl FnOnce() + Send + 'static) {
        lock(&self.destructors).push(Box::new(callback));
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn pitches_of(
        &self,
        region: &ImageRegion,
        row_pitch: usize,
        slice_pitch: usize,
    ) -> Result<Pitches> {
        self.check_region(region)?;
        Pitches::new(self.shape.kind, self.element, region.size, row_pitch, slice_pitch)
    }

    pub(crate) fn check_region(&self, region: &ImageRegion) -> Result<()> {
        if is_inside(self.extent, region.origin, region.size) { Ok(()) } else { Err(ClError::INVALID_VALUE) }
    }

    /// Bytes of a region without gaps.
    pub(crate) fn bytes_of(&self, region: &ImageRegion) -> usize {
        region.size.iter().product::<usize>() * self.element
    }

    /// Where a map of a region points to, how the region lies there, and the pitches that the application is told.
    pub(crate) fn host_memory(&self, region: &ImageRegion) -> Result<(HostTarget, Pitches, (usize, usize))> {
        self.check_region(region)?;
        let part = self.pitches.part(self.element, region.size);
        let offset = self.pitches.offset(self.element, region.origin);
        let memory = match &self.application {
            Some(memory) => memory.part(offset, part.span()),
            None => {
                let mut shadow = lock(&self.shadow);
                if shadow.is_none() {
                    *shadow = Shadow::allocate(self.pitches.span());
                }
                shadow.as_ref().ok_or(ClError::MAP_FAILURE)?.part(offset, part.span())
            }
        };
        Ok((memory.ok_or(ClError::INVALID_VALUE)?, part, self.pitches.told(self.shape.kind)))
    }

    pub(crate) fn mapped(&self, map: ImageMap) {
        lock(&self.maps).push(map);
    }

    /// Ends a map at this address, one that writes first.
    pub(crate) fn unmapped(&self, address: usize) -> Option<ImageMap> {
        let mut maps = lock(&self.maps);
        let at = |map: &ImageMap| map.address == address;
        let index = maps.iter().rposition(|map| at(map) && map.access.writes_back());
        let index = index.or_else(|| maps.iter().rposition(at))?;
        Some(maps.remove(index))
    }

    pub(crate) fn check_host_access(&self, forbidden_by: u64) -> Result<()> {
        match self.flags & (forbidden_by | cl::MEM_HOST_NO_ACCESS) {
            0 => Ok(()),
            _ => Err(ClError::INVALID_OPERATION),
        }
    }

    /// The use of the buffer that it lies in.
    pub(crate) fn use_of_buffer(&self) -> Option<InUse> {
        self.buffer.as_ref().map(InUse::new)
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let session = self.context.session();
        if !session.is_own() {
            return;
        }
        session.release(self.id);
        let destructors = std::mem::take(&mut *lock(&self.destructors));
        if !destructors.is_empty() {
            // Without a callback thread nobody can be told.
            let _ = callbacks::run(move || destructors.into_iter().rev().for_each(|callback| callback()));
        }
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image").field("id", &self.id).field("shape", &self.shape).finish_non_exhaustive()
    }
}
