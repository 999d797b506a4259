//! Images: creation and queries. Commands on images are in [`super::transfer_image`].

use crate::cl;
use crate::entry::entry_points;
use crate::handle::{Handle, lookup};
use crate::info::Answer;
use crate::memory;
use crate::objects::{Context, MemObject, Memory};
use crate::platforms::Device;
use fpga_client as client;
use fpga_client::{ClError, HostSource, HostTarget, ImageFormat, ImageInitial, ImageShape};
use std::ffi::c_void;

/// `cl_mem_flags` that are allowed for an image.
const IMAGE_FLAGS: u64 = super::memory::STANDARD_FLAGS;

const INVALID_DESCRIPTOR: ClError = ClError(cl::CL_INVALID_IMAGE_DESCRIPTOR);

entry_points! {
    fn clCreateImage(
        context: cl::cl_context,
        flags: cl::cl_mem_flags,
        format: *const cl::cl_image_format,
        description: *const cl::cl_image_desc,
        host_ptr: *mut c_void,
    ) -> pointer {
        // SAFETY: the caller's format and description are NULL or complete, and host_ptr has the bytes that they
        // describe.
        unsafe { create(context, flags, format, description, host_ptr) }
    }

    fn clCreateImageWithProperties(
        context: cl::cl_context,
        properties: *const cl::cl_mem_properties,
        flags: cl::cl_mem_flags,
        format: *const cl::cl_image_format,
        description: *const cl::cl_image_desc,
        host_ptr: *mut c_void,
    ) -> pointer {
        // SAFETY: the caller's list ends with 0.
        if !unsafe { memory::pairs(properties) }.is_empty() {
            return Err(ClError(cl::CL_INVALID_PROPERTY));
        }
        // SAFETY: as for clCreateImage.
        let handle = unsafe { create(context, flags, format, description, host_ptr)? };
        if !properties.is_null() {
            lookup::<Memory>(handle)?.note_empty_properties();
        }
        Ok(handle)
    }

    fn clCreateImage2D(
        context: cl::cl_context,
        flags: cl::cl_mem_flags,
        format: *const cl::cl_image_format,
        width: usize,
        height: usize,
        row_pitch: usize,
        host_ptr: *mut c_void,
    ) -> pointer {
        let description = cl::cl_image_desc {
            image_type: cl::CL_MEM_OBJECT_IMAGE2D,
            image_width: width,
            image_height: height,
            image_row_pitch: row_pitch,
            ..NO_IMAGE
        };
        // SAFETY: the caller's format is NULL or complete, and host_ptr has the bytes that it and the sizes describe.
        unsafe { create(context, flags, format, &raw const description, host_ptr) }
    }

    fn clCreateImage3D(
        context: cl::cl_context,
        flags: cl::cl_mem_flags,
        format: *const cl::cl_image_format,
        width: usize,
        height: usize,
        depth: usize,
        row_pitch: usize,
        slice_pitch: usize,
        host_ptr: *mut c_void,
    ) -> pointer {
        let description = cl::cl_image_desc {
            image_type: cl::CL_MEM_OBJECT_IMAGE3D,
            image_width: width,
            image_height: height,
            image_depth: depth,
            image_row_pitch: row_pitch,
            image_slice_pitch: slice_pitch,
            ..NO_IMAGE
        };
        // SAFETY: as for clCreateImage2D.
        unsafe { create(context, flags, format, &raw const description, host_ptr) }
    }

    fn clGetSupportedImageFormats(
        context: cl::cl_context,
        flags: cl::cl_mem_flags,
        image_type: cl::cl_mem_object_type,
        capacity: cl::cl_uint,
        formats: *mut cl::cl_image_format,
        count: *mut cl::cl_uint,
    ) -> status {
        let context = lookup::<Context>(context)?;
        if capacity == 0 && !formats.is_null() {
            return Err(ClError(cl::CL_INVALID_VALUE));
        }
        let all = client::image::supported_formats(&context.client, flags, image_type)?;
        if !formats.is_null() {
            for (index, format) in all.iter().take(capacity as usize).enumerate() {
                let format = cl::cl_image_format {
                    image_channel_order: format.order,
                    image_channel_data_type: format.channel_type,
                };
                // SAFETY: `index` is less than `capacity`, for which the caller's list has room.
                unsafe { memory::write(formats.add(index), format) };
            }
        }
        // SAFETY: the caller's pointer is NULL or writable.
        unsafe { memory::write(count, memory::count(all.len())?) };
        Ok(())
    }

    fn clGetImageInfo(
        image: cl::cl_mem,
        param: cl::cl_image_info,
        room: usize,
        value: *mut c_void,
        size: *mut usize,
    ) -> status {
        let memory = lookup::<Memory>(image)?;
        let image = memory.image()?;
        let shape = image.shape();
        let (row_pitch, slice_pitch) = image.pitches();
        let kind = shape.kind;
        let has_height = ![
            cl::CL_MEM_OBJECT_IMAGE1D,
            cl::CL_MEM_OBJECT_IMAGE1D_BUFFER,
            cl::CL_MEM_OBJECT_IMAGE1D_ARRAY,
        ]
        .contains(&kind);
        let is_array = [cl::CL_MEM_OBJECT_IMAGE1D_ARRAY, cl::CL_MEM_OBJECT_IMAGE2D_ARRAY].contains(&kind);
        let where_it_is = |it: bool, number: usize| if it { number } else { 0 };
        // SAFETY: the caller's value has room for `room` bytes.
        let answer = unsafe { Answer::new(room, value, size) };
        match param {
            cl::CL_IMAGE_FORMAT => answer.values(&[image.format().order, image.format().channel_type]),
            cl::CL_IMAGE_ELEMENT_SIZE => answer.value(image.element_size()),
            cl::CL_IMAGE_ROW_PITCH => answer.value(row_pitch),
            cl::CL_IMAGE_SLICE_PITCH => answer.value(slice_pitch),
            cl::CL_IMAGE_WIDTH => answer.value(shape.width),
            cl::CL_IMAGE_HEIGHT => answer.value(where_it_is(has_height, shape.height)),
            cl::CL_IMAGE_DEPTH => answer.value(where_it_is(kind == cl::CL_MEM_OBJECT_IMAGE3D, shape.depth)),
            cl::CL_IMAGE_ARRAY_SIZE => answer.value(where_it_is(is_array, shape.array_size)),
            cl::CL_IMAGE_BUFFER => {
                let parent = memory.parent.as_ref();
                answer.value(parent.map_or(std::ptr::null_mut(), |parent| parent.as_ptr()))
            }
            cl::CL_IMAGE_NUM_MIP_LEVELS | cl::CL_IMAGE_NUM_SAMPLES => answer.value(0_u32),
            _ => Err(ClError(cl::CL_INVALID_VALUE)),
        }
    }
}

const NO_IMAGE: cl::cl_image_desc = cl::cl_image_desc {
    image_type: 0,
    image_width: 0,
    image_height: 0,
    image_depth: 0,
    image_array_size: 0,
    image_row_pitch: 0,
    image_slice_pitch: 0,
    num_mip_levels: 0,
    num_samples: 0,
    buffer: std::ptr::null_mut(),
};

/// # Safety
/// `format` and `description` are NULL or complete; `host_ptr` is NULL or has the bytes that they describe, until
/// this returns, or with CL_MEM_USE_HOST_PTR until the image is destroyed.
unsafe fn create(
    context: cl::cl_context,
    flags: cl::cl_mem_flags,
    format: *const cl::cl_image_format,
    description: *const cl::cl_image_desc,
    host_ptr: *mut c_void,
) -> Result<*mut c_void, ClError> {
    let context = lookup::<Context>(context)?;
    super::memory::check_flags_among(flags, IMAGE_FLAGS)?;
    if format.is_null() {
        return Err(ClError(cl::CL_INVALID_IMAGE_FORMAT_DESCRIPTOR));
    }
    if description.is_null() {
        return Err(INVALID_DESCRIPTOR);
    }
    // SAFETY: the pointers are not NULL, so what they point to is complete by this function's contract.
    let (format, description) = unsafe { (format.read_unaligned(), description.read_unaligned()) };
    let format =
        ImageFormat { order: format.image_channel_order, channel_type: format.image_channel_data_type };
    let shape = ImageShape {
        kind: description.image_type,
        width: description.image_width,
        height: description.image_height,
        depth: description.image_depth,
        array_size: description.image_array_size,
        row_pitch: description.image_row_pitch,
        slice_pitch: description.image_slice_pitch,
    };
    if description.num_mip_levels != 0 || description.num_samples != 0 {
        return Err(INVALID_DESCRIPTOR);
    }
    let bytes = client::image::host_bytes(format, &shape)?;
    // CL_INVALID_OPERATION if there are no devices in context that support images.
    if !context.devices.iter().any(|device| device.number(cl::CL_DEVICE_IMAGE_SUPPORT) != 0) {
        return Err(ClError(cl::CL_INVALID_OPERATION));
    }
    // CL_INVALID_IMAGE_SIZE if image dimensions exceed the maximum of all devices in context.
    if !context.devices.iter().any(|device| fits(device, &shape)) {
        return Err(ClError(cl::CL_INVALID_IMAGE_SIZE));
    }
    let parent = parent_of(&context, &shape, description.buffer)?;
    // CL_INVALID_HOST_PTR if host_ptr is NULL and flags require it, or host_ptr is not NULL and flags don't.
    let wanted = flags & (cl::CL_MEM_USE_HOST_PTR | cl::CL_MEM_COPY_HOST_PTR) != 0;
    if wanted == host_ptr.is_null() || (wanted && parent.is_some()) {
        return Err(ClError(cl::CL_INVALID_HOST_PTR));
    }
    // Without host_ptr and buffer there is nothing that pitches could describe.
    if host_ptr.is_null() && parent.is_none() && (shape.row_pitch != 0 || shape.slice_pitch != 0) {
        return Err(INVALID_DESCRIPTOR);
    }
    let initial = match &parent {
        Some(parent) => ImageInitial::In(parent.buffer()?.clone()),
        None if flags & cl::CL_MEM_USE_HOST_PTR != 0 => {
            // SAFETY: the memory is valid by this function's contract; the standard forbids other accesses while
            // commands use the image.
            ImageInitial::Use(unsafe { HostTarget::borrowed(host_ptr.cast(), bytes) })
        }
        None if wanted => {
            // SAFETY: the memory is readable by this function's contract; `Image::new` reads it before it returns.
            ImageInitial::Copy(unsafe { HostSource::borrowed(host_ptr.cast_const().cast(), bytes) })
        }
        None => ImageInitial::Nothing,
    };
    let image = client::Image::new(&context.client, flags, format, shape, initial)?;
    Ok(Memory::of(MemObject::Image(image), context, parent).as_ptr())
}

/// The buffer in which the image lies, if any.
fn parent_of(
    context: &Handle<Context>,
    shape: &ImageShape,
    handle: cl::cl_mem,
) -> Result<Option<Handle<Memory>>, ClError> {
    let is_buffer_image = shape.kind == cl::CL_MEM_OBJECT_IMAGE1D_BUFFER;
    if handle.is_null() {
        return if is_buffer_image { Err(INVALID_DESCRIPTOR) } else { Ok(None) };
    }
    let parent = lookup::<Memory>(handle)?;
    let suits = (is_buffer_image || shape.kind == cl::CL_MEM_OBJECT_IMAGE2D)
        && parent.buffer().is_ok()
        && parent.context.as_ptr() == context.as_ptr();
    if suits { Ok(Some(parent)) } else { Err(INVALID_DESCRIPTOR) }
}

fn fits(device: &Device, shape: &ImageShape) -> bool {
    let within = |size: usize, param| size as u64 <= device.number(param);
    let ImageShape { kind, width, height, depth, array_size, .. } = *shape;
    match kind {
        cl::CL_MEM_OBJECT_IMAGE1D => within(width, cl::CL_DEVICE_IMAGE2D_MAX_WIDTH),
        cl::CL_MEM_OBJECT_IMAGE1D_BUFFER => within(width, cl::CL_DEVICE_IMAGE_MAX_BUFFER_SIZE),
        cl::CL_MEM_OBJECT_IMAGE1D_ARRAY => {
            within(width, cl::CL_DEVICE_IMAGE2D_MAX_WIDTH)
                && within(array_size, cl::CL_DEVICE_IMAGE_MAX_ARRAY_SIZE)
        }
        cl::CL_MEM_OBJECT_IMAGE3D => {
            within(width, cl::CL_DEVICE_IMAGE3D_MAX_WIDTH)
                && within(height, cl::CL_DEVICE_IMAGE3D_MAX_HEIGHT)
                && within(depth, cl::CL_DEVICE_IMAGE3D_MAX_DEPTH)
        }
        _ => {
            within(width, cl::CL_DEVICE_IMAGE2D_MAX_WIDTH)
                && within(height, cl::CL_DEVICE_IMAGE2D_MAX_HEIGHT)
                && (kind != cl::CL_MEM_OBJECT_IMAGE2D_ARRAY
                    || within(array_size, cl::CL_DEVICE_IMAGE_MAX_ARRAY_SIZE))
        }
    }
}
