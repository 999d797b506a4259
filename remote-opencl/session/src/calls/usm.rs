//! Calls about unified shared memory.

use super::{Answered, CallError, Calls};
use crate::quotas::Resource;
use crate::segments::CreateError;
use fpga_protocol::v1;
use fpga_protocol::v1::reply::Result as Answer;
use fpga_vendor::ClError;

impl Calls<'_> {
    /// Makes a segment at an address that both sides use, and passes its descriptor if the client maps it.
    pub(super) fn placed_segment(&mut self, create: &v1::CreatePlacedSegment) -> Result<Answered, CallError> {
        let side = if create.mapped { self.side } else { None };
        if self.inventory.usm_alignment().is_none() || create.mapped && side.is_none() {
            return Ok((Err(ClError::INVALID_OPERATION), None));
        }
        let Ok(charge) = self.account.charge(Resource::Memory, create.size) else {
            return Ok((Err(ClError::MEM_OBJECT_ALLOCATION_FAILURE), None));
        };
        let segments = &mut self.transfers.segments;
        let (address, fd) = match segments.create_placed(create.segment, create.size, Some(charge)) {
            Ok(created) => created,
            Err(error @ (CreateError::Id(_) | CreateError::Size(_))) => {
                return Err(CallError::Segment(error));
            }
            Err(error) => {
                tracing::debug!(%error, "No memory for unified shared memory");
                return Ok((Err(ClError::MEM_OBJECT_ALLOCATION_FAILURE), None));
            }
        };
        if let Some(Err(error)) = side.map(|side| side.pass(create.segment, &fd)) {
            segments.release(create.segment);
            tracing::warn!(%error, "A descriptor can't be passed");
            return Ok((Err(ClError::OUT_OF_RESOURCES), None));
        }
        Ok((Ok(()), Some(Answer::PlacedSegment(v1::PlacedSegment { address }))))
    }
}
