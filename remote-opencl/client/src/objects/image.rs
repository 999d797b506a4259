//! Images, and the host memory to which maps of them point.
//!
//! Pixels lie at the manager; an image never lies in memory that is shared with the manager. Pitches describe only
//! the application's memory.

use crate::base::sync::lock;
use crate::cl;
use crate::error::{ClError, Result};
use crate::memory::host_memory::{HostSource, HostTarget, Shadow};
use crate::memory::maps::MapAccess;
use crate::memory::pitches::Pitches;
use crate::objects::buffer::{self, Buffer, InUse};
use crate::objects::context::Context;
use crate::session::callbacks;
use crate::session::check_status;
use fpga_protocol::images::{element_size, extent, is_image, is_inside};
use fpga_protocol::memory_flags::KERNEL_ACCESS;
use fpga_protocol::v1::{self, call::Method, reply};
use std::fmt;
use std::sync::{Arc, Mutex};

/// Format of a pixel (`cl_image_format`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageFormat {
    /// `cl_channel_order`.
    pub order: u32,
    /// `cl_channel_type`.
    pub channel_type: u32,
}

/// Type and dimensions of an image (`cl_image_desc`), as the application gave them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the standard's names")]
pub struct ImageShape {
    pub kind: u32,
    pub width: usize,
    pub height: usize,
    pub depth: usize,
    pub array_size: usize,
    /// Pitch of the host memory, or of the buffer in which the image lies.
    pub row_pitch: usize,
    /// Pitch of the host memory.
    pub slice_pitch: usize,
}

/// A part of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the standard's names")]
pub struct ImageRegion {
    pub origin: [usize; 3],
    pub size: [usize; 3],
}

/// Initial content of an image.
#[derive(Debug)]
pub enum ImageInitial {
    /// Zeroes.
    Nothing,
    /// `CL_MEM_COPY_HOST_PTR`: a copy of these bytes, which are [`host_bytes`] long.
    Copy(HostSource),
    /// `CL_MEM_USE_HOST_PTR`: the content of this memory, to which maps of the image also point.
    Use(HostTarget),
    /// The content of this buffer, of which the image is a view.
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
    /// Pitches of the host memory.
    pitches: Pitches,
    buffer: Option<Arc<Buffer>>,
    application: Option<HostTarget>,
    shadow: Mutex<Option<HostTarget>>,
    maps: Mutex<Vec<ImageMap>>,
    destructors: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct ImageMap {
    pub(crate) address: usize,
    pub(crate) region: ImageRegion,
    pub(crate) access: MapAccess,
}

/// Size in bytes of the host memory from which such an image is made.
///
/// # Errors
/// `CL_INVALID_IMAGE_FORMAT_DESCRIPTOR` for an unknown format, `CL_INVALID_IMAGE_SIZE` for a dimension of 0,
/// `CL_INVALID_IMAGE_DESCRIPTOR` for another type than an image's or pitches that don't fit.
pub fn host_bytes(format: ImageFormat, shape: &ImageShape) -> Result<usize> {
    Geometry::new(format, shape, shape.row_pitch, shape.slice_pitch).map(|geometry| geometry.pitches.span())
}

/// The formats that the context's devices support for images of this kind (`clGetSupportedImageFormats`).
///
/// # Errors
/// `CL_INVALID_VALUE` if `kind` is not an image, `CL_DEVICE_NOT_AVAILABLE` if the manager is gone, and the errors
/// of the manager's runtime.
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
            // The type is not an image, or the image has no pixels.
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
    /// An image; `flags` are `cl_mem_flags`. Waits for the manager's reply.
    ///
    /// # Errors
    /// The codes of `clCreateImage`, including those of the manager's runtime.
    pub fn new(
        context: &Arc<Context>,
        flags: u64,
        format: ImageFormat,
        shape: ImageShape,
        initial: ImageInitial,
    ) -> Result<Arc<Self>> {
        let in_buffer = matches!(initial, ImageInitial::In(_));
        // An image in a buffer uses the buffer's pitches.
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
            flags: flags & KERNEL_ACCESS,
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

    /// The context of the image.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The `cl_mem_flags` of the image.
    pub fn flags(&self) -> u64 {
        self.flags
    }

    /// Format of the pixels.
    pub fn format(&self) -> ImageFormat {
        self.format
    }

    /// Type and dimensions of the image.
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
            _ => self.pitches.reported(self.shape.kind),
        }
    }

    /// `CL_MEM_SIZE`: size in bytes, including the gaps of the pitches.
    pub fn size(&self) -> usize {
        self.pitches.whole()
    }

    /// The buffer in which the image lies, if any.
    pub fn buffer(&self) -> Option<&Arc<Buffer>> {
        self.buffer.as_ref()
    }

    /// `CL_MEM_HOST_PTR`: the address that the application gave with `CL_MEM_USE_HOST_PTR`, else 0.
    pub fn host_address(&self) -> usize {
        self.application.as_ref().map_or(0, HostTarget::address)
    }

    /// `CL_MEM_MAP_COUNT`.
    pub fn map_count(&self) -> usize {
        lock(&self.maps).len()
    }

    /// Size in bytes of the host memory of a region with these pitches; a pitch of 0 means no gaps.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` for a region outside the image, or pitches that are too small for it.
    pub fn host_bytes(&self, region: &ImageRegion, row_pitch: usize, slice_pitch: usize) -> Result<usize> {
        self.pitches_of(region, row_pitch, slice_pitch).map(|pitches| pitches.span())
    }

    /// Registers a destructor callback, like [`Buffer::on_destroyed`].
    pub fn on_destroyed(&self, callback: impl FnOnce() + Send + 'static) {
        lock(&self.destructors).push(Box::new(callback));
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The whole image.
    pub(crate) fn whole(&self) -> ImageRegion {
        ImageRegion { origin: [0; 3], size: self.extent }
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

    /// Number of bytes of a region without gaps.
    pub(crate) fn bytes_of(&self, region: &ImageRegion) -> usize {
        region.size.iter().product::<usize>() * self.element
    }

    /// The host memory of a region, to which maps of the region point; the region's layout there; and the pitches
    /// that the application gets.
    pub(crate) fn host_memory(&self, region: &ImageRegion) -> Result<(HostTarget, Pitches, (usize, usize))> {
        self.check_region(region)?;
        let part = self.pitches.part(self.element, region.size);
        let offset = self.pitches.offset(self.element, region.origin);
        let memory = match &self.application {
            Some(memory) => memory.part(offset, part.span()).map(HostTarget::changes_only),
            None => {
                let mut shadow = lock(&self.shadow);
                if shadow.is_none() {
                    *shadow = Shadow::allocate(self.pitches.span());
                }
                shadow.as_ref().ok_or(ClError::MAP_FAILURE)?.part(offset, part.span())
            }
        };
        Ok((memory.ok_or(ClError::INVALID_VALUE)?, part, self.pitches.reported(self.shape.kind)))
    }

    pub(crate) fn mapped(&self, map: ImageMap) {
        lock(&self.maps).push(map);
    }

    /// Removes a map at this address. A map for writing is removed before others.
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

    /// A use of the buffer in which the image lies.
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
            // If there is no callback thread, the callbacks are lost.
            let _ = callbacks::run(move || destructors.into_iter().rev().for_each(|callback| callback()));
        }
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image").field("id", &self.id).field("shape", &self.shape).finish_non_exhaustive()
    }
}
