//! Commands as they run: an operation on objects, with all that it needs.

mod resolve;

pub use resolve::{Staging, item, staged_bytes};

use crate::arguments::{Arguments, Kernel};
use crate::dispatcher::Kind;
use crate::governor::Hold;
use crate::images::Image;
use crate::metrics::DataPath;
use crate::objects::{Buffer, Queue};
use crate::rects::{Extent, Layout};
use crate::segments::Slice;
use crate::task::Need;
use crate::transfers::Source;
use crate::vendor::Region;
use bytes::Bytes;
use std::sync::{Arc, Mutex};

/// What a command does, with all that it needs.
#[derive(Debug)]
pub struct Body {
    /// Where.
    pub queue: Arc<Queue>,
    /// What.
    pub operation: Operation,
    /// What it needs of the slots.
    pub need: Need,
    /// What it runs; nothing where it runs no kernel.
    pub kind: Option<Kind>,
    /// The bytes that it makes the manager hold: those of its data.
    pub hold: Option<Hold>,
    /// Those of its message, which it shares with the other commands of that.
    pub message: Arc<Hold>,
    /// When its message came, on the manager's clock.
    pub received_at: u64,
}

impl Body {
    /// How many bytes came with it by that path.
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
            (Source::Pieces(_), DataPath::Messages) | (Source::Shared(_), DataPath::Shared) => size,
            _ => 0,
        }
    }

    /// How many bytes it leaves in shared memory; those in messages are counted when they go.
    #[must_use]
    pub fn shared(&self) -> u64 {
        match &self.operation {
            Operation::Read { size, into: Some(_), .. }
            | Operation::ReadImage { size, into: Some(_), .. } => *size as u64,
            Operation::ReadRect { extent, into: Some(_), .. } => extent.bytes as u64,
            _ => 0,
        }
    }
}

/// An operation on objects.
#[derive(Debug)]
pub enum Operation {
    /// Runs a kernel.
    Launch(Box<Launch>),
    /// Writes.
    Write {
        /// To.
        buffer: Arc<Buffer>,
        /// From this byte on.
        offset: usize,
        /// The bytes.
        source: Source,
        /// How many these are.
        size: usize,
    },
    /// Reads.
    Read {
        /// From.
        buffer: Arc<Buffer>,
        /// From this byte on.
        offset: usize,
        /// How many.
        size: usize,
        /// Where to; nothing where they go with the completion.
        into: Option<Slice>,
    },
    /// Copies between buffers.
    Copy {
        /// From, and from which byte on.
        source: (Arc<Buffer>, usize),
        /// To.
        target: (Arc<Buffer>, usize),
        /// How many.
        size: usize,
    },
    /// Fills with a pattern.
    Fill {
        /// What.
        buffer: Arc<Buffer>,
        /// With.
        pattern: Bytes,
        /// From this byte on.
        offset: usize,
        /// How many.
        size: usize,
    },
    /// Writes a rectangle of bytes.
    WriteRect {
        /// To.
        buffer: Arc<Buffer>,
        /// Where.
        layout: Layout,
        /// How large it is.
        extent: Extent,
        /// The bytes, as many as it has.
        source: Source,
    },
    /// Reads a rectangle of bytes.
    ReadRect {
        /// From.
        buffer: Arc<Buffer>,
        /// Where.
        layout: Layout,
        /// How large it is.
        extent: Extent,
        /// Where to; nothing where they go with the completion.
        into: Option<Slice>,
    },
    /// Copies a rectangle of bytes.
    CopyRect {
        /// From.
        source: (Arc<Buffer>, Layout),
        /// To.
        target: (Arc<Buffer>, Layout),
        /// How large it is.
        extent: Extent,
    },
    /// Writes pixels.
    WriteImage {
        /// To.
        image: Arc<Image>,
        /// Where.
        region: Region,
        /// The bytes, as many as the region has.
        source: Source,
    },
    /// Reads pixels.
    ReadImage {
        /// From.
        image: Arc<Image>,
        /// Where.
        region: Region,
        /// How many bytes these are.
        size: usize,
        /// Where to; nothing where they go with the completion.
        into: Option<Slice>,
    },
    /// Copies between images.
    CopyImage {
        /// From.
        source: Arc<Image>,
        /// To.
        target: Arc<Image>,
        /// Of the source.
        region: Region,
        /// In the target.
        origin: [usize; 3],
    },
    /// Fills with a colour.
    FillImage {
        /// What.
        image: Arc<Image>,
        /// With.
        color: [u8; 16],
        /// Where.
        region: Region,
    },
    /// Copies pixels to a buffer.
    ImageToBuffer {
        /// From.
        image: Arc<Image>,
        /// Where.
        region: Region,
        /// To, from which byte on.
        buffer: (Arc<Buffer>, usize),
    },
    /// Copies pixels from a buffer.
    BufferToImage {
        /// From, from which byte on.
        buffer: (Arc<Buffer>, usize),
        /// To.
        image: Arc<Image>,
        /// Where.
        region: Region,
    },
    /// A marker.
    Marker(Waits),
    /// A barrier.
    Barrier(Waits),
}

impl Operation {
    /// What it does, in a word.
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

/// What a marker or a barrier waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// All before it in its queue.
    ForAll,
    /// The events of its wait list.
    ForEvents,
}

/// A kernel's launch.
#[derive(Debug)]
pub struct Launch {
    /// Which.
    pub kernel: Arc<Mutex<Kernel>>,
    /// With.
    pub arguments: Arc<Arguments>,
    /// Global offset.
    pub offset: Option<Vec<usize>>,
    /// Global size.
    pub global: Vec<usize>,
    /// Local size.
    pub local: Option<Vec<usize>>,
}
