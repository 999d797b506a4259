//! Enqueues a command to the vendor's queue, behind the events that it waits for.

use crate::buffer::Buffer;
use crate::commands::{Body, Launch, Operation};
use crate::transfers::{LateData, Source, join};
use bytes::Bytes;
use fpga_protocol::limits::MAX_CHUNK_BYTES;
use fpga_vendor::{self as vendor, ClError, ClResult, Enqueued, Event, Rect};
use std::sync::Arc;

/// Enqueues the command behind `wait`, and adds the events that its buffers need to `wait`.
pub(super) fn enqueue(body: &Body, wait: &mut Vec<Arc<Event>>) -> ClResult<Enqueued> {
    let queue = &body.queue.vendor;
    match &body.operation {
        Operation::Launch(launch) => {
            for buffer in launch.arguments.buffers() {
                wait.extend(buffer.own_contents()?);
            }
            start_kernel(queue, launch, &references(wait))
        }
        Operation::Write { buffer, offset, source, size } => {
            whole_or_own(buffer, *offset, *size, wait, |wait| match source {
                Source::Pieces(pieces) => queue.write(&buffer.vendor, *offset, pieces.clone(), wait),
                Source::Shared(slice) => queue.write_shared(&buffer.vendor, *offset, slice.clone(), wait),
                Source::Later(late) => queue.write(&buffer.vendor, *offset, pieces_of(late)?, wait),
            })
        }
        Operation::Fill { buffer, pattern, offset, size } => {
            whole_or_own(buffer, *offset, *size, wait, |wait| {
                queue.fill(&buffer.vendor, pattern, *offset, *size, wait)
            })
        }
        Operation::Read { buffer, offset, into: Some(slice), .. } => {
            wait.extend(buffer.own_contents()?);
            queue.read_shared(&buffer.vendor, *offset, slice.clone(), &references(wait))
        }
        Operation::Read { buffer, offset, size, into: None } => {
            wait.extend(buffer.own_contents()?);
            queue.read(&buffer.vendor, *offset, *size, MAX_CHUNK_BYTES, &references(wait))
        }
        Operation::Copy { source, target, size } => {
            for (buffer, _) in [source, target] {
                wait.extend(buffer.own_contents()?);
            }
            let (from, to) = ((&source.0.vendor, source.1), (&target.0.vendor, target.1));
            queue.copy(from, to, *size, &references(wait))
        }
        Operation::WriteRect { buffer, layout, extent, source } => {
            wait.extend(buffer.own_contents()?);
            let rect = Rect { memory: &buffer.vendor, layout: *layout, extent: *extent };
            match source {
                Source::Pieces(pieces) => queue.write_rect(rect, join(pieces.clone()), &references(wait)),
                Source::Shared(slice) => queue.write_rect_shared(rect, slice.clone(), &references(wait)),
                Source::Later(late) => queue.write_rect(rect, join(pieces_of(late)?), &references(wait)),
            }
        }
        Operation::ReadRect { buffer, layout, extent, into } => {
            wait.extend(buffer.own_contents()?);
            let rect = Rect { memory: &buffer.vendor, layout: *layout, extent: *extent };
            match into {
                Some(slice) => queue.read_rect_shared(rect, slice.clone(), &references(wait)),
                None => queue.read_rect(rect, &references(wait)),
            }
        }
        Operation::CopyRect { source: (source, from), target: (target, to), extent } => {
            for buffer in [source, target] {
                wait.extend(buffer.own_contents()?);
            }
            let rect = Rect { memory: &source.vendor, layout: *from, extent: *extent };
            queue.copy_rect(rect, (&target.vendor, *to), &references(wait))
        }
        Operation::WriteImage { image, region, source } => {
            wait.extend(image.own_contents()?);
            let wait = references(wait);
            match source {
                Source::Pieces(pieces) => {
                    queue.write_image(&image.vendor, *region, join(pieces.clone()), &wait)
                }
                Source::Shared(slice) => {
                    queue.write_image_shared(&image.vendor, *region, slice.clone(), &wait)
                }
                Source::Later(late) => {
                    queue.write_image(&image.vendor, *region, join(pieces_of(late)?), &wait)
                }
            }
        }
        Operation::ReadImage { image, region, size, into } => {
            wait.extend(image.own_contents()?);
            let wait = references(wait);
            match into {
                Some(slice) => queue.read_image_shared(&image.vendor, *region, slice.clone(), &wait),
                None => queue.read_image(&image.vendor, *region, *size, &wait),
            }
        }
        Operation::CopyImage { source, target, region, origin } => {
            for image in [source, target] {
                wait.extend(image.own_contents()?);
            }
            queue.copy_image(&source.vendor, &target.vendor, *region, *origin, &references(wait))
        }
        Operation::FillImage { image, color, region } => {
            wait.extend(image.own_contents()?);
            queue.fill_image(&image.vendor, color, *region, &references(wait))
        }
        Operation::ImageToBuffer { image, region, buffer: (buffer, offset) } => {
            wait.extend(image.own_contents()?);
            wait.extend(buffer.own_contents()?);
            let wait = references(wait);
            queue.copy_image_to_buffer(&image.vendor, *region, (&buffer.vendor, *offset), &wait)
        }
        Operation::BufferToImage { buffer: (buffer, offset), image, region } => {
            wait.extend(image.own_contents()?);
            wait.extend(buffer.own_contents()?);
            let wait = references(wait);
            queue.copy_buffer_to_image((&buffer.vendor, *offset), &image.vendor, *region, &wait)
        }
        Operation::Marker(_) => queue.marker(&references(wait)),
        Operation::Barrier(_) => queue.barrier(&references(wait)),
    }
}

fn start_kernel(queue: &vendor::Queue, launch: &Launch, wait: &[&Event]) -> ClResult<Enqueued> {
    let mut kernel = launch.kernel.lock();
    kernel.apply(&launch.arguments)?;
    queue.launch(kernel.vendor(), launch.offset.as_deref(), &launch.global, launch.local.as_deref(), wait)
}

/// Enqueues a command that writes a range of a buffer. A command that overwrites the whole of a fresh buffer
/// makes zeroing unnecessary.
fn whole_or_own(
    buffer: &Arc<Buffer>,
    offset: usize,
    size: usize,
    wait: &mut Vec<Arc<Event>>,
    enqueue: impl FnOnce(&[&Event]) -> ClResult<Enqueued>,
) -> ClResult<Enqueued> {
    if buffer.is_first_and_whole(offset, size) {
        let enqueued = enqueue(&references(wait))?;
        // If a later piece was refused, the rest of the buffer still has its former contents.
        if enqueued.is_whole() {
            buffer.owned_by(enqueued.event());
        }
        return Ok(enqueued);
    }
    wait.extend(buffer.own_contents()?);
    enqueue(&references(wait))
}

/// The data of a command that came after it.
fn pieces_of(late: &LateData) -> ClResult<Vec<Bytes>> {
    late.pieces().map(<[Bytes]>::to_vec).ok_or(ClError::OUT_OF_RESOURCES)
}

fn references(events: &[Arc<Event>]) -> Vec<&Event> {
    events.iter().map(AsRef::as_ref).collect()
}
