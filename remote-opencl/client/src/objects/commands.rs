//! The commands that queues take: they are checked, and then enqueued in the session or executed at once.

mod images;
mod initial;
mod late;
mod mapping;
mod migrate;
mod parts;
mod payload;
mod rects;
mod transfers;
mod usm;

pub use mapping::Mapped;
pub use migrate::Migration;
pub use usm::MemoryHint;

use crate::cl;
use crate::error::{ClError, Result};
use crate::memory::host_memory::{HostSource, HostTarget};
use crate::memory::rect::Layout;
use crate::objects::buffer::{Buffer, InUse};
use crate::objects::context::Context;
use crate::objects::event::{Appended, Event, Uses};
use crate::objects::kernel::{Held, Kernel};
use crate::objects::nd_range;
use crate::objects::queue::Queue;
use crate::session::Sent;
use fpga_protocol::v1::{self, command};
use std::sync::Arc;

/// A command.
#[derive(Debug)]
#[expect(missing_docs, reason = "fields are the parameters of the C call that the variant names")]
pub enum Operation<'a> {
    /// `clEnqueueNDRangeKernel`; `offset` and `local` may be empty (NULL). `CL_COMMAND_NDRANGE_KERNEL`.
    NdRange { kernel: &'a Arc<Kernel>, offset: &'a [usize], global: &'a [usize], local: &'a [usize] },
    /// `clEnqueueTask`. `CL_COMMAND_TASK`.
    Task { kernel: &'a Arc<Kernel> },
    /// `clEnqueueWriteBuffer`.
    Write { buffer: &'a Arc<Buffer>, offset: usize, data: HostSource },
    /// `clEnqueueReadBuffer` of as many bytes as `target` has.
    Read { buffer: &'a Arc<Buffer>, offset: usize, target: HostTarget },
    /// `clEnqueueCopyBuffer`.
    Copy {
        source: &'a Arc<Buffer>,
        target: &'a Arc<Buffer>,
        source_offset: usize,
        target_offset: usize,
        size: usize,
    },
    /// `clEnqueueWriteBufferRect`; `data` begins at the rectangle's first byte.
    WriteRect { buffer: &'a Arc<Buffer>, layout: Layout, host: Layout, region: [usize; 3], data: HostSource },
    /// `clEnqueueReadBufferRect`; `target` begins at the rectangle's first byte.
    ReadRect { buffer: &'a Arc<Buffer>, layout: Layout, host: Layout, region: [usize; 3], target: HostTarget },
    /// `clEnqueueCopyBufferRect`.
    CopyRect { source: (&'a Arc<Buffer>, Layout), target: (&'a Arc<Buffer>, Layout), region: [usize; 3] },
    /// `clEnqueueFillBuffer`.
    Fill { buffer: &'a Arc<Buffer>, pattern: &'a [u8], offset: usize, size: usize },
    /// `clEnqueueMarkerWithWaitList`.
    Marker,
    /// `clEnqueueBarrierWithWaitList`.
    Barrier,
}

impl Queue {
    /// Enqueues a command without waiting for it. A blocking call is this and then [`Event::wait_for_status`].
    ///
    /// # Errors
    /// The codes of the C call; `CL_INVALID_CONTEXT` also for a wait list of another context.
    pub fn enqueue(self: &Arc<Self>, operation: Operation<'_>, wait: &[Arc<Event>]) -> Result<Arc<Event>> {
        let list = wait;
        let wait = self.checked_wait_list(list)?;
        match operation {
            Operation::WriteRect { buffer, layout, host, region, data } => {
                self.check_rect(buffer, layout, region)?;
                buffer.check_host_access(cl::MEM_HOST_READ_ONLY)?;
                self.write_rect(buffer, [layout, host], region, data, (wait, list))
            }
            Operation::ReadRect { buffer, layout, host, region, target } => {
                self.check_rect(buffer, layout, region)?;
                buffer.check_host_access(cl::MEM_HOST_WRITE_ONLY)?;
                self.read_rect(buffer, [layout, host], region, target, (wait, list))
            }
            Operation::CopyRect { source, target, region } => {
                self.check_rect(source.0, source.1, region)?;
                self.check_rect(target.0, target.1, region)?;
                self.copy_rect(source, target, region, (wait, list))
            }
            Operation::NdRange { kernel, offset, global, local } => {
                self.check_context(kernel.program().context())?;
                nd_range::check(kernel, self.device(), offset, global, local)?;
                if global.contains(&0) {
                    // Nothing runs, but the command keeps its place in the order.
                    return self.nothing(cl::COMMAND_NDRANGE_KERNEL, Uses::default(), wait);
                }
                self.launch(cl::COMMAND_NDRANGE_KERNEL, kernel, [offset, global, local], wait)
            }
            Operation::Task { kernel } => {
                self.check_context(kernel.program().context())?;
                self.launch(cl::COMMAND_TASK, kernel, [&[], &[1], &[1]], wait)
            }
            Operation::Write { buffer, offset, data } => {
                self.check_region(buffer, offset, data.len())?;
                buffer.check_host_access(cl::MEM_HOST_READ_ONLY)?;
                let kind = cl::COMMAND_WRITE_BUFFER;
                match self.place_of_host_memory(data.addresses()) {
                    Some((source, at)) => self.copy(kind, (&source, at), (buffer, offset), data.len(), wait),
                    None => self.write(kind, buffer, offset, data, wait),
                }
            }
            Operation::Read { buffer, offset, target } => {
                self.check_region(buffer, offset, target.len())?;
                buffer.check_host_access(cl::MEM_HOST_WRITE_ONLY)?;
                let kind = cl::COMMAND_READ_BUFFER;
                match self.place_of_host_memory(Some(target.addresses())) {
                    Some((to, at)) => self.copy(kind, (buffer, offset), (&to, at), target.len(), wait),
                    None => self.read(kind, buffer, offset, target, wait),
                }
            }
            Operation::Copy { source, target, source_offset, target_offset, size } => {
                self.check_region(source, source_offset, size)?;
                self.check_region(target, target_offset, size)?;
                if overlap((source, source_offset), (target, target_offset), size) {
                    return Err(ClError::MEM_COPY_OVERLAP);
                }
                let (source, target) = ((source, source_offset), (target, target_offset));
                self.copy(cl::COMMAND_COPY_BUFFER, source, target, size, wait)
            }
            Operation::Fill { buffer, pattern, offset, size } => {
                self.check_region(buffer, offset, size)?;
                let width = pattern.len();
                let valid = width.is_power_of_two() && width <= 128;
                if !valid || !offset.is_multiple_of(width) || !size.is_multiple_of(width) {
                    return Err(ClError::INVALID_VALUE);
                }
                self.fill(cl::COMMAND_FILL_BUFFER, buffer, pattern, offset..offset + size, wait)
            }
            Operation::Marker => self.submit_marker(cl::COMMAND_MARKER, Uses::default(), wait),
            Operation::Barrier => {
                let operation = command::Operation::Barrier(v1::Barrier {});
                let event = self.submit(cl::COMMAND_BARRIER, operation, Uses::default(), wait)?;
                self.progress().set_barrier(event.id());
                Ok(event)
            }
        }
    }

    // === checks ===

    /// Ids of the events in a wait list that haven't completed. Failed events stay in the list, so that the command
    /// fails too.
    fn checked_wait_list(&self, wait: &[Arc<Event>]) -> Result<Vec<u64>> {
        self.session().check(ClError::OUT_OF_RESOURCES)?;
        for event in wait {
            self.check_context(event.context())?;
        }
        let open = wait.iter().filter(|event| event.now() != cl::COMPLETE);
        Ok(open.map(|event| event.id()).collect())
    }

    fn check_context(&self, context: &Arc<Context>) -> Result<()> {
        if Arc::ptr_eq(context, self.context()) { Ok(()) } else { Err(ClError::INVALID_CONTEXT) }
    }

    fn check_region(&self, buffer: &Buffer, offset: usize, size: usize) -> Result<()> {
        self.check_context(buffer.context())?;
        let fits = offset.checked_add(size).is_some_and(|end| end <= buffer.size());
        if size > 0 && fits { Ok(()) } else { Err(ClError::INVALID_VALUE) }
    }

    fn check_rect(&self, buffer: &Buffer, layout: Layout, region: [usize; 3]) -> Result<()> {
        self.check_context(buffer.context())?;
        if layout.end(region)? <= buffer.size() { Ok(()) } else { Err(ClError::INVALID_VALUE) }
    }

    // === commands ===

    fn launch(
        self: &Arc<Self>,
        command_type: u32,
        kernel: &Arc<Kernel>,
        [offset, global, local]: [&[usize]; 3],
        wait: Vec<u64>,
    ) -> Result<Arc<Event>> {
        let widen = |sizes: &[usize]| sizes.iter().map(|size| *size as u64).collect();
        let (event, sent) = kernel.launch(|args, Held { buffers, images, others }| {
            let operation = command::Operation::NdRange(v1::NdRange {
                kernel: kernel.id(),
                args,
                offset: widen(offset),
                global: widen(global),
                local: widen(local),
            });
            let in_images = images.iter().filter_map(|image| image.use_of_buffer());
            let buffers = buffers.iter().map(InUse::new).chain(in_images).collect();
            let kernel = Some(Arc::clone(kernel));
            let uses = Uses { buffers, images, others, kernel, ..Uses::default() };
            self.append(self.session().new_id(), command_type, operation, uses, wait)
        })?;
        self.after(sent);
        Ok(event)
    }

    fn submit_marker(self: &Arc<Self>, command_type: u32, uses: Uses, wait: Vec<u64>) -> Result<Arc<Event>> {
        self.submit(command_type, command::Operation::Marker(v1::Marker {}), uses, wait)
    }

    fn submit(
        self: &Arc<Self>,
        command_type: u32,
        operation: command::Operation,
        uses: Uses,
        wait: Vec<u64>,
    ) -> Result<Arc<Event>> {
        let id = self.session().new_id();
        let (event, sent) = self.append(id, command_type, operation, uses, wait)?;
        self.after(sent);
        Ok(event)
    }

    fn append(
        self: &Arc<Self>,
        id: u64,
        command_type: u32,
        operation: command::Operation,
        uses: Uses,
        wait: Vec<u64>,
    ) -> Result<(Arc<Event>, Sent)> {
        let event = Event::of_command(self, id, command_type, uses);
        let sent = self.append_event(&event, operation, wait)?;
        Ok((event, sent))
    }

    /// Appends a command whose event was made before.
    fn append_event(
        self: &Arc<Self>,
        event: &Arc<Event>,
        operation: command::Operation,
        wait: Vec<u64>,
    ) -> Result<Sent> {
        let id = event.id();
        let (session, order) = (self.session(), self.session().host_order());
        let Appended { upload, access, gives } = event.appended();
        event.note_uses();
        order.begin(id, self.id(), (&wait, self.waits_for(&wait)), gives);
        let command = v1::Command {
            event: id,
            queue: self.id(),
            wait,
            operation: Some(operation),
            ..v1::Command::default()
        };
        self.progress().begin(id);
        let pending = Arc::<Event>::clone(event);
        session.enqueue(command, pending, upload, |command| access.order(session, command)).inspect_err(
            |_| {
                order.ended(id);
                self.progress().ended(id);
            },
        )
    }

    /// Sends at once what [`Self::append`] put into the outbox without a flush point.
    fn after(&self, sent: Sent) {
        if sent == Sent::Yes {
            self.session().push_out_and_wait_for_room();
        }
    }
}

/// Whether two regions of `size` bytes overlap in one buffer, or in sub-buffers of one buffer.
fn overlap(a: (&Buffer, usize), b: (&Buffer, usize), size: usize) -> bool {
    let place = |(buffer, offset): (&Buffer, usize)| {
        let (root, origin) = buffer.root();
        (root, origin + offset)
    };
    let ((root_a, a), (root_b, b)) = (place(a), place(b));
    root_a == root_b && a.abs_diff(b) < size
}
