//! Calls about buffers and the segments that hold their memory.

use super::{Answered, CallError, Calls};
use crate::buffer::Buffer;
use crate::governor::Hold;
use crate::metrics::Storage;
use crate::objects::Object;
use crate::quotas::Resource;
use crate::segments::CreateError;
use crate::transfers::{TransferError, join};
use bytes::Bytes;
use fpga_protocol::memory_flags;
use fpga_protocol::segments::{PAGE_BYTES, check_storage};
use fpga_protocol::v1;
use fpga_vendor::SharedBytes;
use fpga_vendor::{ClError, ClResult};
use std::sync::Arc;

/// `CL_MEM_USE_HOST_PTR` and `CL_MEM_COPY_HOST_PTR`, which only the client handles.
pub(super) const HOST_POINTER_FLAGS: u64 = (1 << 3) | (1 << 5);

/// Initial contents of a memory object, if the client sent any, held until the vendor has copied them.
#[derive(Debug, Default)]
pub(super) struct Initial {
    bytes: Option<Bytes>,
    _hold: Option<Hold>,
}

impl Initial {
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        self.bytes.as_deref()
    }
}

impl Calls<'_> {
    pub(super) fn initial(&mut self, data: Option<v1::Data>) -> Result<ClResult<Initial>, CallError> {
        if data.is_none() {
            return Ok(Ok(Initial::default()));
        }
        match self.transfers.take(data) {
            Ok(data) => Ok(Ok(Initial { bytes: Some(join(data.pieces)), _hold: data.hold })),
            Err(TransferError::OverQuota) => Ok(Err(ClError::OUT_OF_RESOURCES)),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn create_buffer(&mut self, mut create: v1::CreateBuffer) -> Result<Answered, CallError> {
        let initial = match self.initial(create.initial.take())? {
            Ok(initial) => initial,
            Err(error) => return self.keep(create.buffer, Err(error)),
        };
        let storage = match &create.storage {
            Some(range) => {
                // Where no buffer can lie in shared memory, every storage is refused below.
                let alignment = self.inventory.storage_alignment().unwrap_or(PAGE_BYTES);
                check_storage(range, create.size, alignment).map_err(TransferError::from)?;
                Some(self.transfers.segments.slice(range).map_err(TransferError::from)?)
            }
            None => None,
        };
        let made = self.buffer(&create, initial.bytes(), storage);
        drop(initial);
        self.keep(create.buffer, made)
    }

    fn buffer(
        &self,
        create: &v1::CreateBuffer,
        initial: Option<&[u8]>,
        storage: Option<SharedBytes>,
    ) -> ClResult<Object> {
        let context = self.objects.context(create.context)?;
        if create.flags & HOST_POINTER_FLAGS != 0 {
            return Err(ClError::INVALID_VALUE);
        }
        let size = usize::try_from(create.size).map_err(|_| ClError::INVALID_BUFFER_SIZE)?;
        if size == 0 {
            return Err(ClError::INVALID_BUFFER_SIZE);
        }
        let flags = create.flags & (memory_flags::KERNEL_ACCESS | memory_flags::OF_VENDORS);
        let one = self.account.charge(Resource::Buffers, 1)?;
        if let Some(slice) = storage {
            if initial.is_some() || self.inventory.storage_alignment().is_none() {
                return Err(ClError::INVALID_VALUE);
            }
            // The segment's account has the memory already.
            let buffer = Buffer::in_segment(context, flags, slice)?.charged([Some(one), None]);
            self.config.metrics.buffer_created(Storage::Shared, create.size);
            return Ok(Object::Buffer(Arc::new(buffer)));
        }
        let memory = self.account.charge(Resource::Memory, create.size)?;
        let buffer = match initial {
            Some(bytes) if bytes.len() != size => return Err(ClError::INVALID_VALUE),
            Some(bytes) => Buffer::with_contents(context, flags, bytes)?,
            None => Buffer::new(context, flags, size)?,
        };
        let buffer = buffer.charged([Some(one), Some(memory)]);
        self.config.metrics.buffer_created(Storage::Vendor, create.size);
        Ok(Object::Buffer(Arc::new(buffer)))
    }

    pub(super) fn segment(&mut self, create: &v1::CreateSegment) -> Result<ClResult<()>, CallError> {
        let Some(side) = self.side else { return Ok(Err(ClError::INVALID_OPERATION)) };
        let Ok(charge) = self.account.charge(Resource::Memory, create.size) else {
            // The client continues without shared memory, and meets the limit again if it needs that much.
            return Ok(Err(ClError::OUT_OF_RESOURCES));
        };
        match self.transfers.segments.create(create.segment, create.size, Some(charge)) {
            Ok(fd) => Ok(side.pass(create.segment, &fd).map_err(|error| {
                self.transfers.segments.release(create.segment);
                tracing::warn!(%error, "A descriptor can't be passed");
                ClError::OUT_OF_RESOURCES
            })),
            Err(error @ (CreateError::Id(_) | CreateError::Size(_))) => Err(CallError::Segment(error)),
            Err(error) => {
                tracing::debug!(%error, "No segment");
                Ok(Err(ClError::OUT_OF_RESOURCES))
            }
        }
    }

    pub(super) fn sub_buffer(&self, create: &v1::CreateSubBuffer) -> ClResult<Object> {
        let parent = self.objects.buffer(create.parent)?;
        let convert = |number| usize::try_from(number).map_err(|_| ClError::INVALID_VALUE);
        let (origin, size) = (convert(create.origin)?, convert(create.size)?);
        if origin.checked_add(size).is_none_or(|end| end > parent.size) {
            return Err(ClError::INVALID_VALUE);
        }
        let one = self.account.charge(Resource::Buffers, 1)?;
        let region = Buffer::sub(&parent, create.flags & memory_flags::KERNEL_ACCESS, origin, size)?;
        Ok(Object::Buffer(Arc::new(region.charged([Some(one), None]))))
    }
}
