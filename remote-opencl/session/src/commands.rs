//! Commands as they run: an operation on objects, with everything that it needs.

mod resolve;

pub use resolve::{Staging, item, staged_bytes};

use crate::buffer::Buffer;
use crate::governor::Hold;
use crate::images::Image;
use crate::kernel::{Arguments, Kernel};
use crate::metrics::DataPath;
use crate::moments::Span;
use crate::queue::Queue;
use crate::task::Need;
use crate::transfers::Source;
use bytes::Bytes;
use fpga_board::dispatch::Kind;
use fpga_vendor::Region;
use fpga_vendor::SharedBytes;
use fpga_vendor::{ClError, ClResult, Extent, Layout};
use parking_lot::Mutex;
use std::sync::Arc;

/// A command to run. It is boxed where it is passed on, since it is large.
#[derive(Debug)]
pub struct Body {
    /// Queue of the command.
    pub queue: Arc<Queue>,
    /// The operation.
    pub operation: Operation,
    /// The slots that the command needs.
    pub need: Need,
    /// Kind of the kernel; `None` if the command runs no kernel.
    pub kind: Option<Kind>,
    /// The governor's hold for the command's data. A read may take it when it starts.
    pub hold: Option<Hold>,
    /// The governor's hold for the message, shared with the other commands of the message.
    pub message: Arc<Hold>,
    /// Time when the message arrived, in ns of the manager's monotonic clock.
    pub received_at: u64,
    /// Whether the client waits for the end of this very command.
    pub watched: Watched,
    /// Whether the command is part of a trace.
    pub tracing: Tracing,
    /// The modelled times of the command, on a modelled board.
    pub span: Option<Span>,
}

impl Body {
    /// Takes memory for the bytes of a read that took none when it arrived.
    ///
    /// # Errors
    /// `CL_OUT_OF_RESOURCES` if there is none.
    pub fn take_memory(&mut self) -> ClResult<()> {
        if let Operation::Read { size, into: None, .. } = self.operation
            && self.hold.is_none()
        {
            let more = self.message.more(size as u64).map_err(|_| ClError::OUT_OF_RESOURCES)?;
            self.hold = Some(more);
        }
        Ok(())
    }
}

/// Whether a client waits for the end of this very command, or may be told with a later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watched {
    /// The client is told when the command ends.
    Yes,
    /// The client may be told with a later command of the queue. It doesn't refer to the event again.
    No,
}

/// Whether the command is part of a trace, so that its times are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tracing {
    /// The command is part of a trace: its times are measured.
    On,
    /// The command is part of no trace.
    Off,
}

impl Body {
    /// Bytes of data that came with the command over the path `path`.
    #[must_use]
    pub fn received(&self, path: DataPath) -> u64 {
        let (source, size) = match &self.operation {
            Operation::Write { size, source, .. } => (source, *size as u64),
            Operation::WriteImage { source, .. } | Operation::WriteRect { source, .. } => {
                (source, source.len() as u64)
            }
            _ => return 0,
        };
        match (source, path) {
            (Source::Pieces(_) | Source::Later(_), DataPath::Messages)
            | (Source::Shared(_), DataPath::Shared) => size,
            _ => 0,
        }
    }

    /// Bytes of data that came with the command.
    #[must_use]
    pub fn taken_in(&self) -> u64 {
        self.received(DataPath::Messages).saturating_add(self.received(DataPath::Shared))
    }

    /// Bytes that the command leaves in shared memory. Bytes in messages are counted when they are sent.
    #[must_use]
    pub fn shared(&self) -> u64 {
        match &self.operation {
            Operation::Read { size, into: Some(_), .. }
            | Operation::ReadImage { size, into: Some(_), .. } => *size as u64,
            Operation::ReadRect { extent, into: Some(_), .. } => extent.bytes() as u64,
            _ => 0,
        }
    }
}

/// An operation on objects.
#[derive(Debug)]
pub enum Operation {
    /// Runs a kernel.
    Launch(Box<Launch>),
    /// Writes to a buffer.
    Write {
        /// Buffer to write to.
        buffer: Arc<Buffer>,
        /// Offset of the first byte.
        offset: usize,
        /// The bytes to write.
        source: Source,
        /// Number of bytes.
        size: usize,
    },
    /// Reads from a buffer.
    Read {
        /// Buffer to read from.
        buffer: Arc<Buffer>,
        /// Offset of the first byte.
        offset: usize,
        /// Number of bytes.
        size: usize,
        /// Where the bytes go; `None` if they travel with the completion.
        into: Option<SharedBytes>,
    },
    /// Copies between buffers.
    Copy {
        /// Source buffer, and offset of the first byte.
        source: (Arc<Buffer>, usize),
        /// Target buffer, and offset of the first byte.
        target: (Arc<Buffer>, usize),
        /// Number of bytes.
        size: usize,
    },
    /// Fills a buffer with a pattern.
    Fill {
        /// Buffer to fill.
        buffer: Arc<Buffer>,
        /// The pattern.
        pattern: Bytes,
        /// Offset of the first byte.
        offset: usize,
        /// Number of bytes.
        size: usize,
    },
    /// Writes a rectangle of bytes.
    WriteRect {
        /// Buffer to write to.
        buffer: Arc<Buffer>,
        /// Position of the rectangle in the buffer.
        layout: Layout,
        /// Size of the rectangle.
        extent: Extent,
        /// The bytes, as many as the rectangle has.
        source: Source,
    },
    /// Reads a rectangle of bytes.
    ReadRect {
        /// Buffer to read from.
        buffer: Arc<Buffer>,
        /// Position of the rectangle in the buffer.
        layout: Layout,
        /// Size of the rectangle.
        extent: Extent,
        /// Where the bytes go; `None` if they travel with the completion.
        into: Option<SharedBytes>,
    },
    /// Copies a rectangle of bytes.
    CopyRect {
        /// Source buffer, and position of the rectangle in it.
        source: (Arc<Buffer>, Layout),
        /// Target buffer, and position of the rectangle in it.
        target: (Arc<Buffer>, Layout),
        /// Size of the rectangle.
        extent: Extent,
    },
    /// Writes pixels to an image.
    WriteImage {
        /// Image to write to.
        image: Arc<Image>,
        /// Region to write.
        region: Region,
        /// The bytes, as many as the region has.
        source: Source,
    },
    /// Reads pixels from an image.
    ReadImage {
        /// Image to read from.
        image: Arc<Image>,
        /// Region to read.
        region: Region,
        /// Number of bytes of the region.
        size: usize,
        /// Where the bytes go; `None` if they travel with the completion.
        into: Option<SharedBytes>,
    },
    /// Copies between images.
    CopyImage {
        /// Source image.
        source: Arc<Image>,
        /// Target image.
        target: Arc<Image>,
        /// Region of the source image.
        region: Region,
        /// Origin of the region in the target image.
        origin: [usize; 3],
    },
    /// Fills an image with a colour.
    FillImage {
        /// Image to fill.
        image: Arc<Image>,
        /// The colour.
        color: [u8; 16],
        /// Region to fill.
        region: Region,
    },
    /// Copies pixels from an image to a buffer.
    ImageToBuffer {
        /// Source image.
        image: Arc<Image>,
        /// Region of the image.
        region: Region,
        /// Target buffer, and offset of the first byte.
        buffer: (Arc<Buffer>, usize),
    },
    /// Copies pixels from a buffer to an image.
    BufferToImage {
        /// Source buffer, and offset of the first byte.
        buffer: (Arc<Buffer>, usize),
        /// Target image.
        image: Arc<Image>,
        /// Region of the image.
        region: Region,
    },
    /// A marker.
    Marker(Waits),
    /// A barrier.
    Barrier(Waits),
}

impl Operation {
    /// Name of the operation.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Launch(_) => "kernel",
            Self::Write { .. } => "write",
            Self::Read { .. } => "read",
            Self::Copy { .. } => "copy",
            Self::Fill { .. } => "fill",
            Self::WriteRect { .. } => "write rectangle",
            Self::ReadRect { .. } => "read rectangle",
            Self::CopyRect { .. } => "copy rectangle",
            Self::WriteImage { .. } => "write image",
            Self::ReadImage { .. } => "read image",
            Self::CopyImage { .. } => "copy image",
            Self::FillImage { .. } => "fill image",
            Self::ImageToBuffer { .. } => "image to buffer",
            Self::BufferToImage { .. } => "buffer to image",
            Self::Marker(_) => "marker",
            Self::Barrier(_) => "barrier",
        }
    }
}

/// The commands that a marker or a barrier waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// All earlier commands of its queue.
    ForAll,
    /// The events of its wait list.
    ForEvents,
}

/// A kernel's launch.
#[derive(Debug)]
pub struct Launch {
    /// The kernel.
    pub kernel: Arc<Mutex<Kernel>>,
    /// The arguments, as they were when the launch was flushed.
    pub arguments: Arc<Arguments>,
    /// Global offset.
    pub offset: Option<Vec<usize>>,
    /// Global size.
    pub global: Vec<usize>,
    /// Local size.
    pub local: Option<Vec<usize>>,
}
