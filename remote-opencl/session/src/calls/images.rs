//! Calls about images.

use super::memory::HOST_POINTER_FLAGS;
use super::{Answered, CallError, Calls};
use crate::images::Image;
use crate::objects::Object;
use crate::quotas::Resource;
use fpga_protocol::v1::reply::Result as Answer;
use fpga_protocol::{memory_flags, v1};
use fpga_vendor::{ClError, ClResult, Format, image_formats};
use std::sync::Arc;

impl Calls<'_> {
    pub(super) fn create_image(&mut self, mut create: v1::CreateImage) -> Result<Answered, CallError> {
        let initial = self.initial(create.initial.take())?;
        let made = initial.and_then(|initial| self.image(&create, initial.bytes()));
        self.keep(create.image, made)
    }

    fn image(&self, create: &v1::CreateImage, initial: Option<&[u8]>) -> ClResult<Object> {
        let context = self.objects.context(create.context)?;
        if create.flags & HOST_POINTER_FLAGS != 0 {
            return Err(ClError::INVALID_VALUE);
        }
        let buffer = match create.shape.map_or(0, |shape| shape.buffer) {
            0 => None,
            id => Some(self.objects.buffer(id)?),
        };
        if buffer.as_ref().is_some_and(|buffer| !Arc::ptr_eq(&buffer.context, &context)) {
            return Err(ClError::INVALID_CONTEXT);
        }
        let one = self.account.charge(Resource::Buffers, 1)?;
        let bytes = if buffer.is_some() { 0 } else { Image::bytes(create)? };
        let memory = self.account.charge(Resource::Memory, bytes)?;
        let image = Image::new(context, create.flags & memory_flags::KERNEL_ACCESS, create, buffer, initial)?;
        let image = image.charged([one, memory]);
        Ok(Object::Image(Arc::new(image)))
    }

    pub(super) fn image_formats(&self, get: &v1::GetImageFormats) -> Answered {
        let context = self.objects.context(get.context);
        match context.and_then(|context| image_formats(&context.vendor, get.flags, get.r#type)) {
            Ok(formats) => {
                let format = |it: Format| v1::ImageFormat { order: it.order, r#type: it.channel_type };
                let formats = formats.into_iter().map(format).collect();
                (Ok(()), Some(Answer::ImageFormats(v1::ImageFormats { formats })))
            }
            Err(error) => (Err(error), None),
        }
    }
}
