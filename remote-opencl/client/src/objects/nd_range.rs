//! The checks of `clEnqueueNDRangeKernel` that need no device.

use crate::error::{ClError, Result};
use crate::objects::kernel::Kernel;
use crate::objects::platform::Device;

/// Returns the errors that the standard requires at enqueue, so that the program gets them in the same call as from
/// a native runtime.
pub(crate) fn check(
    kernel: &Kernel,
    device: &std::sync::Arc<Device>,
    offset: &[usize],
    global: &[usize],
    local: &[usize],
) -> Result<()> {
    let dimensions = global.len();
    if !(1..=3).contains(&dimensions) {
        return Err(ClError::INVALID_WORK_DIMENSION);
    }
    if global.contains(&0) && !device.may_have_empty_ranges() {
        return Err(ClError::INVALID_GLOBAL_WORK_SIZE);
    }
    if !offset.is_empty() && offset.len() != dimensions {
        return Err(ClError::INVALID_GLOBAL_OFFSET);
    }
    if offset.iter().zip(global).any(|(offset, size)| offset.checked_add(*size).is_none()) {
        return Err(ClError::INVALID_GLOBAL_OFFSET);
    }
    let work_group = kernel.work_group_info(device).ok_or(ClError::INVALID_PROGRAM_EXECUTABLE)?;
    let compiled = work_group.compile_work_group_size;
    let local = local.iter().map(|size| *size as u64);
    if local.len() == 0 {
        // Since OpenCL 2.0 the size defaults to the compiled one. All known runtimes still refuse that, but only
        // later.
        let refused = compiled != [0; 3] && device.is_of_version_1();
        return if refused { Err(ClError::INVALID_WORK_GROUP_SIZE) } else { Ok(()) };
    }
    if local.len() != dimensions || local.clone().any(|size| size == 0) {
        return Err(ClError::INVALID_WORK_GROUP_SIZE);
    }
    let items = local.clone().try_fold(1u64, u64::checked_mul);
    let allowed = |items| items <= work_group.work_group_size || work_group.work_group_size == 0;
    let as_compiled =
        compiled == [0; 3] || local.clone().zip(compiled).all(|(size, compiled)| size == compiled);
    if !items.is_some_and(allowed) || !as_compiled {
        return Err(ClError::INVALID_WORK_GROUP_SIZE);
    }
    let limits = device.max_work_item_sizes();
    if local.clone().zip(limits).any(|(size, limit)| size > limit) {
        return Err(ClError::INVALID_WORK_ITEM_SIZE);
    }
    let uneven = global.iter().zip(local).any(|(global, local)| !(*global as u64).is_multiple_of(local));
    if uneven && (device.refuses_partial_groups() || !kernel.program().may_have_partial_groups(device)) {
        return Err(ClError::INVALID_WORK_GROUP_SIZE);
    }
    Ok(())
}
