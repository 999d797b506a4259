//! Turns the commands of a Flush into commands that can run: replaces ids by objects, checks ranges, and
//! takes snapshots of arguments.
//!
//! This happens in the order of the session, so that a later release or argument does not affect earlier
//! commands.

use super::{Body, Launch, Operation, Tracing, Waits, Watched};
use crate::arguments::resolve;
use crate::buffer::Buffer;
use crate::clock;
use crate::dependencies::{EventId, Fence, Item, QueueId, QueueOrder};
use crate::governor::Hold;
use crate::images::triple;
use crate::kinds;
use crate::objects::Objects;
use crate::queue::Queue;
use crate::rects;
use crate::task::Need;
use crate::transfers::{Source, TransferError, Transfers};
use fpga_protocol::segments::RangeError;
use fpga_protocol::v1;
use fpga_protocol::v1::command::Operation as Wire;
use fpga_vendor::Extent;
use fpga_vendor::SharedBytes;
use fpga_vendor::{ClError, ClResult};
use std::sync::Arc;

/// Most events in a wait list.
const MAX_WAIT: usize = 4096;
/// Longest fill pattern of the standard, in bytes.
const MAX_PATTERN: usize = 128;

/// The operation of a message. Its transfer and its arguments have been taken out even if the command fails:
/// the transfer is over, and the arguments count for later launches.
enum Asked {
    Launch(ClResult<Launch>),
    Write(v1::WriteBuffer, Source, Option<Hold>),
    Read(v1::ReadBuffer, Option<SharedBytes>),
    Copy(v1::CopyBuffer),
    Fill(v1::FillBuffer),
    WriteRect(v1::WriteBufferRect, Source, Option<Hold>),
    ReadRect(v1::ReadBufferRect, Option<SharedBytes>),
    CopyRect(v1::CopyBufferRect),
    WriteImage(v1::WriteImage, Source, Option<Hold>),
    ReadImage(v1::ReadImage, Option<SharedBytes>),
    CopyImage(v1::CopyImage),
    FillImage(v1::FillImage),
    ImageToBuffer(v1::CopyImageToBuffer),
    BufferToImage(v1::CopyBufferToImage),
    Marker(Waits),
    Barrier(Waits),
    Refused(ClError),
    Nothing,
}

/// Memory for the results of a message's reads, where these travel with the completions.
#[derive(Debug)]
pub enum Staging {
    /// As many bytes as [`staged_bytes`] returns for all reads of the message.
    Held(Hold),
    /// There is no memory: the reads fail.
    Refused,
}

impl Staging {
    fn take(&mut self, bytes: u64) -> ClResult<Hold> {
        match self {
            Self::Held(hold) => Ok(hold.split(bytes)),
            Self::Refused => Err(ClError::OUT_OF_RESOURCES),
        }
    }
}

/// Number of bytes that the command's completion will carry; 0 if the command will be refused anyway.
#[must_use]
pub fn staged_bytes(command: &v1::Command, objects: &Objects) -> u64 {
    match &command.operation {
        Some(Wire::ReadBuffer(read)) if read.into.is_none() && !read.memory_at_start => {
            let buffer = objects.buffer(read.buffer);
            buffer.and_then(|buffer| range(&buffer, read.offset, read.size)).map_or(0, |_| read.size)
        }
        Some(Wire::ReadBufferRect(read)) if read.into.is_none() => {
            let fits = |extent: &Extent| {
                let buffer = objects.buffer(read.buffer)?;
                rects::layout(read.layout.as_ref(), *extent, buffer.size)
            };
            let extent = rects::extent(&read.region);
            extent.and_then(|extent| fits(&extent).map(|_| extent.bytes() as u64)).unwrap_or(0)
        }
        Some(Wire::ReadImage(read)) if read.into.is_none() => {
            let image = objects.image(read.image);
            image.and_then(|image| image.region(read.region.as_ref())).map_or(0, |(_, size)| size as u64)
        }
        _ => 0,
    }
}

/// Makes a command of its message.
///
/// # Errors
/// [`TransferError`], if the client breaks the protocol. An error that has a code in the standard is an error
/// within the item.
pub fn item(
    command: v1::Command,
    objects: &Objects,
    transfers: &mut Transfers,
    staging: &mut Staging,
    message: &Arc<Hold>,
) -> Result<Item<Box<Body>>, TransferError> {
    let v1::Command { event, queue: queue_id, wait, operation, unwatched, trace: _ } = command;
    let watched = if unwatched { Watched::No } else { Watched::Yes };
    let waits = if wait.is_empty() { Waits::ForAll } else { Waits::ForEvents };
    let asked = match operation {
        Some(Wire::NdRange(range)) => Asked::Launch(launch(range, objects)),
        Some(Wire::WriteBuffer(mut write)) => match source(event, write.data.take(), transfers)? {
            Ok((source, hold)) => Asked::Write(write, source, hold),
            Err(refused) => Asked::Refused(refused),
        },
        Some(Wire::ReadBuffer(read)) => {
            let into = read.into.as_ref().map(|range| transfers.segments.slice(range)).transpose()?;
            if into.as_ref().is_some_and(|into| into.len() as u64 != read.size) {
                return Err(RangeError::Length.into());
            }
            Asked::Read(read, into)
        }
        Some(Wire::CopyBuffer(copy)) => Asked::Copy(copy),
        Some(Wire::FillBuffer(fill)) => Asked::Fill(fill),
        Some(Wire::WriteBufferRect(mut write)) => match source(event, write.data.take(), transfers)? {
            Ok((source, hold)) => Asked::WriteRect(write, source, hold),
            Err(refused) => Asked::Refused(refused),
        },
        Some(Wire::ReadBufferRect(read)) => {
            let into = read.into.as_ref().map(|range| transfers.segments.slice(range)).transpose()?;
            Asked::ReadRect(read, into)
        }
        Some(Wire::CopyBufferRect(copy)) => Asked::CopyRect(copy),
        Some(Wire::WriteImage(mut write)) => match source(event, write.data.take(), transfers)? {
            Ok((source, hold)) => Asked::WriteImage(write, source, hold),
            Err(refused) => Asked::Refused(refused),
        },
        Some(Wire::ReadImage(read)) => {
            let into = read.into.as_ref().map(|range| transfers.segments.slice(range)).transpose()?;
            Asked::ReadImage(read, into)
        }
        Some(Wire::CopyImage(copy)) => Asked::CopyImage(copy),
        Some(Wire::FillImage(fill)) => Asked::FillImage(fill),
        Some(Wire::CopyImageToBuffer(copy)) => Asked::ImageToBuffer(copy),
        Some(Wire::CopyBufferToImage(copy)) => Asked::BufferToImage(copy),
        Some(Wire::Marker(_)) => Asked::Marker(waits),
        Some(Wire::Barrier(_)) => Asked::Barrier(waits),
        None => Asked::Nothing,
    };
    let fence = match asked {
        Asked::Marker(_) => Fence::Marker,
        Asked::Barrier(_) => Fence::Barrier,
        _ => Fence::None,
    };
    let queue = objects.queue(queue_id);
    let order = queue.as_ref().map_or(QueueOrder::InOrder, |queue| queue.order);
    let (wait, body) = if wait.len() > MAX_WAIT {
        // The list is too long to keep until the command fails in its turn.
        (Vec::new(), Err(ClError::INVALID_VALUE))
    } else {
        (wait, queue.and_then(|queue| body((queue, watched), asked, objects, (staging, message))))
    };
    Ok(Item {
        event: EventId(event),
        queue: QueueId(queue_id),
        order,
        fence,
        wait: wait.into_iter().map(EventId).collect(),
        body: body.map_err(|error| error.0),
    })
}

/// The bytes of a write. A transfer that exceeds the quota fails only the command.
fn source(
    event: u64,
    data: Option<v1::Data>,
    transfers: &mut Transfers,
) -> Result<ClResult<(Source, Option<Hold>)>, TransferError> {
    match transfers.source(event, data) {
        Err(TransferError::OverQuota) => Ok(Err(ClError::OUT_OF_RESOURCES)),
        source => source.map(Ok),
    }
}

fn body(
    (queue, watched): (Arc<Queue>, Watched),
    asked: Asked,
    objects: &Objects,
    (staging, message): (&mut Staging, &Arc<Hold>),
) -> ClResult<Box<Body>> {
    let check = |context: &Arc<_>| {
        if Arc::ptr_eq(context, &queue.context) { Ok(()) } else { Err(ClError::INVALID_CONTEXT) }
    };
    let buffer = |id| {
        let buffer = objects.buffer(id)?;
        check(&buffer.context).map(|()| buffer)
    };
    let image = |id| {
        let image = objects.image(id)?;
        check(&image.context).map(|()| image)
    };
    let mut need = Need::Nothing;
    let mut kind = None;
    let mut hold = None;
    let operation = match asked {
        Asked::Launch(launch) => {
            let launch = launch?;
            let (program, kernel) = {
                let kernel = launch.kernel.lock();
                (kernel.program.clone(), kernel.kind)
            };
            check(&program.context)?;
            need = program.need(queue.device.id);
            kind = Some(kinds::of_launch(kernel, &launch.global));
            Operation::Launch(Box::new(launch))
        }
        Asked::Write(write, source, held) => {
            let buffer = buffer(write.buffer)?;
            let size = source.len();
            let offset = range(&buffer, write.offset, size as u64)?.0;
            hold = held;
            Operation::Write { buffer, offset, source, size }
        }
        Asked::Read(read, into) => {
            let buffer = buffer(read.buffer)?;
            let (offset, size) = range(&buffer, read.offset, read.size)?;
            if into.is_none() && !read.memory_at_start {
                hold = Some(staging.take(read.size)?);
            }
            Operation::Read { buffer, offset, size, into }
        }
        Asked::Copy(copy) => {
            let (source, target) = (buffer(copy.source)?, buffer(copy.target)?);
            let (source_offset, size) = range(&source, copy.source_offset, copy.size)?;
            let (target_offset, _) = range(&target, copy.target_offset, copy.size)?;
            Operation::Copy { source: (source, source_offset), target: (target, target_offset), size }
        }
        Asked::Fill(fill) => {
            let buffer = buffer(fill.buffer)?;
            let (offset, size) = range(&buffer, fill.offset, fill.size)?;
            let length = fill.pattern.len();
            let fits = length.is_power_of_two() && length <= MAX_PATTERN;
            if !fits || !offset.is_multiple_of(length) || !size.is_multiple_of(length) {
                return Err(ClError::INVALID_VALUE);
            }
            Operation::Fill { buffer, pattern: fill.pattern, offset, size }
        }
        Asked::WriteRect(write, source, held) => {
            let (buffer, extent) = (buffer(write.buffer)?, rects::extent(&write.region)?);
            let layout = rects::layout(write.layout.as_ref(), extent, buffer.size)?;
            if source.len() != extent.bytes() {
                return Err(ClError::INVALID_VALUE);
            }
            hold = held;
            Operation::WriteRect { buffer, layout, extent, source }
        }
        Asked::ReadRect(read, into) => {
            let (buffer, extent) = (buffer(read.buffer)?, rects::extent(&read.region)?);
            let layout = rects::layout(read.layout.as_ref(), extent, buffer.size)?;
            if into.as_ref().is_some_and(|into| into.len() != extent.bytes()) {
                return Err(ClError::INVALID_VALUE);
            }
            if into.is_none() {
                hold = Some(staging.take(extent.bytes() as u64)?);
            }
            Operation::ReadRect { buffer, layout, extent, into }
        }
        Asked::CopyRect(copy) => {
            let extent = rects::extent(&copy.region)?;
            let (source, target) = (buffer(copy.source)?, buffer(copy.target)?);
            let from = rects::layout(copy.source_layout.as_ref(), extent, source.size)?;
            let to = rects::layout(copy.target_layout.as_ref(), extent, target.size)?;
            Operation::CopyRect { source: (source, from), target: (target, to), extent }
        }
        Asked::WriteImage(write, source, held) => {
            let image = image(write.image)?;
            let (region, size) = image.region(write.region.as_ref())?;
            if source.len() != size {
                return Err(ClError::INVALID_VALUE);
            }
            hold = held;
            Operation::WriteImage { image, region, source }
        }
        Asked::ReadImage(read, into) => {
            let image = image(read.image)?;
            let (region, size) = image.region(read.region.as_ref())?;
            if into.as_ref().is_some_and(|into| into.len() != size) {
                return Err(ClError::INVALID_VALUE);
            }
            if into.is_none() {
                hold = Some(staging.take(size as u64)?);
            }
            Operation::ReadImage { image, region, size, into }
        }
        Asked::CopyImage(copy) => {
            let (source, target) = (image(copy.source)?, image(copy.target)?);
            let region = source.region(copy.region.as_ref())?.0;
            Operation::CopyImage { source, target, region, origin: triple(&copy.target_origin)? }
        }
        Asked::FillImage(fill) => {
            let image = image(fill.image)?;
            let region = image.region(fill.region.as_ref())?.0;
            let color = fill.color.as_ref().try_into().map_err(|_| ClError::INVALID_VALUE)?;
            Operation::FillImage { image, color, region }
        }
        Asked::ImageToBuffer(copy) => {
            let (image, buffer) = (image(copy.image)?, buffer(copy.buffer)?);
            let (region, size) = image.region(copy.region.as_ref())?;
            let offset = range(&buffer, copy.offset, size as u64)?.0;
            Operation::ImageToBuffer { image, region, buffer: (buffer, offset) }
        }
        Asked::BufferToImage(copy) => {
            let (image, buffer) = (image(copy.image)?, buffer(copy.buffer)?);
            let (region, size) = image.region(copy.region.as_ref())?;
            let offset = range(&buffer, copy.offset, size as u64)?.0;
            Operation::BufferToImage { buffer: (buffer, offset), image, region }
        }
        Asked::Marker(waits) => Operation::Marker(waits),
        Asked::Barrier(waits) => Operation::Barrier(waits),
        Asked::Refused(error) => return Err(error),
        Asked::Nothing => return Err(ClError::INVALID_OPERATION),
    };
    let message = message.clone();
    let (received_at, tracing) = (clock::now_ns(), Tracing::Off);
    Ok(Box::new(Body {
        queue,
        operation,
        need,
        kind,
        hold,
        message,
        received_at,
        watched,
        tracing,
        span: None,
    }))
}

fn launch(range: v1::NdRange, objects: &Objects) -> ClResult<Launch> {
    let v1::NdRange { kernel, args, offset, global, local } = range;
    let kernel = objects.kernel(kernel)?;
    let arguments = {
        let mut kernel = kernel.lock();
        let context = kernel.program.context.clone();
        let changes = args.into_iter().map(|arg| (arg.index, resolve(arg.value, objects, &context)));
        kernel.set(changes)?
    };
    let dimensions = global.len();
    if !(1..=3).contains(&dimensions) {
        return Err(ClError::INVALID_WORK_DIMENSION);
    }
    // The sizes stay in the memory in which they were decoded.
    let sizes = |sizes: Vec<u64>| -> ClResult<Vec<usize>> {
        if sizes.len() != dimensions {
            return Err(ClError::INVALID_VALUE);
        }
        sizes.into_iter().map(|size| usize::try_from(size).map_err(|_| ClError::INVALID_VALUE)).collect()
    };
    let optional = |of: Vec<u64>| if of.is_empty() { Ok(None) } else { sizes(of).map(Some) };
    Ok(Launch {
        offset: optional(offset)?,
        local: optional(local)?,
        global: sizes(global)?,
        kernel,
        arguments,
    })
}

/// Checks that the buffer has these bytes, and that there is at least one.
fn range(buffer: &Buffer, offset: u64, size: u64) -> ClResult<(usize, usize)> {
    let end = offset.checked_add(size).filter(|end| size > 0 && *end <= buffer.size as u64);
    let convert = |number| usize::try_from(number).map_err(|_| ClError::INVALID_VALUE);
    end.ok_or(ClError::INVALID_VALUE)?;
    Ok((convert(offset)?, convert(size)?))
}
