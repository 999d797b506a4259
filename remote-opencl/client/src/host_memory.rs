//! The only place where the application's raw memory is touched: sources of writes, targets of reads, map shadows.
//!
//! Whoever makes a source or target promises (unsafe constructors) that the memory is there until the command's event
//! has ended. This crate keeps its part: it touches the memory only before that.
#![allow(unsafe_code)]

use crate::signals::spawn_with_signals_blocked;
use bytes::{BufMut, Bytes};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Alignment of map shadows: a page, as programs that look at mapped pointers expect.
const PAGE: usize = 4096;

/// From here on two threads copy.
const TWO_THREADS_FROM: usize = 8 << 20;

/// Where the bytes of a write come from.
#[derive(Debug)]
pub struct HostSource {
    source: Source,
    awaited: Awaited,
}

/// Whether the application waits for the command in the call that enqueues it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Awaited {
    /// The call may wait for something else, too.
    Yes,
    /// The call returns without a round trip.
    #[default]
    No,
}

#[derive(Debug)]
enum Source {
    Owned(Bytes),
    Borrowed(Region),
}

/// Where the bytes of a read go; also the application's memory behind a `CL_MEM_USE_HOST_PTR` buffer.
#[derive(Debug)]
pub struct HostTarget {
    region: Region,
    awaited: Awaited,
}

/// What keeps memory where it is.
pub(crate) trait Keep: std::fmt::Debug + Send + Sync {}

/// Memory, and what keeps it there where that is ours to keep.
#[derive(Debug, Clone)]
struct Region {
    address: *mut u8,
    len: usize,
    keep: Option<Arc<dyn Keep>>,
}

// SAFETY: a region is an address and a length. The contracts of the constructors make the bytes behind it usable from
// any thread until the command's event has ended.
unsafe impl Send for Region {}
// SAFETY: as above; a shared region is only read through (sources), or written by the one thread that drives (targets).
unsafe impl Sync for Region {}

impl HostSource {
    /// Bytes that this crate owns.
    pub fn owned(bytes: impl Into<Bytes>) -> Self {
        Self::of(Source::Owned(bytes.into()))
    }

    /// `len` bytes at `address`, read until the command's event has ended (small ones are captured at once).
    ///
    /// # Safety
    /// The bytes must stay readable until the event of the command that gets this source has completed or failed.
    pub unsafe fn borrowed(address: *const u8, len: usize) -> Self {
        Self::of(Source::Borrowed(Region { address: address.cast_mut(), len, keep: None }))
    }

    /// Lends a slice to `use_source` as a source.
    pub(crate) fn with_slice<T>(bytes: &[u8], use_source: impl FnOnce(&Self) -> T) -> T {
        let (address, len) = (bytes.as_ptr().cast_mut(), bytes.len());
        // It can't be kept: it is neither cloned nor taken apart by reference, and ends before the slice.
        use_source(&Self::of(Source::Borrowed(Region { address, len, keep: None })))
    }

    fn of(source: Source) -> Self {
        Self { source, awaited: Awaited::No }
    }

    /// The same bytes of a command that the application waits for, or not.
    #[must_use]
    pub fn awaited(self, awaited: Awaited) -> Self {
        Self { awaited, ..self }
    }

    pub(crate) fn is_awaited(&self) -> Awaited {
        self.awaited
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        match &self.source {
            Source::Owned(bytes) => bytes.len(),
            Source::Borrowed(region) => region.len,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The part `offset..offset + len`, with the same promise; `None` where there is no such part.
    pub(crate) fn part(&self, offset: usize, len: usize) -> Option<Self> {
        match &self.source {
            Source::Owned(bytes) => {
                let end = offset.checked_add(len).filter(|end| *end <= bytes.len())?;
                Some(Self::of(Source::Owned(bytes.slice(offset..end))))
            }
            Source::Borrowed(region) => {
                region.part(offset, len).map(|region| Self::of(Source::Borrowed(region)))
            }
        }
    }

    /// A copy of all bytes.
    pub(crate) fn capture(&self) -> Bytes {
        match &self.source {
            Source::Owned(bytes) => bytes.clone(),
            // SAFETY: the constructor's caller promised that the bytes are readable.
            Source::Borrowed(region) => Bytes::copy_from_slice(unsafe { region.bytes() }),
        }
    }

    /// Copies all bytes.
    ///
    /// # Safety
    /// `to` must be valid for writes of [`Self::len`] bytes.
    pub(crate) unsafe fn copy_all_to(&self, to: *mut u8) {
        let (from, len) = match &self.source {
            Source::Owned(bytes) => (bytes.as_ptr(), bytes.len()),
            Source::Borrowed(region) => (region.address.cast_const(), region.len),
        };
        // SAFETY: the bytes are ours, or the constructor's caller promised that they are readable; the rest is this
        // function's caller's promise.
        unsafe { Copying { from, to, len }.run_in_two() };
    }

    /// Appends `len` bytes from `offset` on; zeroes where the source has no such bytes.
    pub(crate) fn copy_to(&self, offset: usize, len: usize, out: &mut impl BufMut) {
        let all = match &self.source {
            Source::Owned(bytes) => bytes.as_ref(),
            // SAFETY: the constructor's caller promised that the bytes are readable.
            Source::Borrowed(region) => unsafe { region.bytes() },
        };
        match offset.checked_add(len).and_then(|end| all.get(offset..end)) {
            Some(part) => out.put_slice(part),
            None => out.put_bytes(0, len),
        }
    }
}

impl HostTarget {
    /// `len` bytes at `address`, written before the command's event completes.
    ///
    /// # Safety
    /// The bytes must stay writable, and nobody else may read or write them, until the event of the command that gets
    /// this target has completed or failed. For a buffer's host memory: until the buffer is destroyed, and nobody may
    /// access them except as the standard allows.
    pub unsafe fn borrowed(address: *mut u8, len: usize) -> Self {
        Self::of(Region { address, len, keep: None })
    }

    /// `len` bytes at `address` that are there as long as `keep` is.
    ///
    /// # Safety
    /// As [`Self::borrowed`], for as long as `keep` lives.
    pub(crate) unsafe fn kept(address: *mut u8, len: usize, keep: Arc<dyn Keep>) -> Self {
        Self::of(Region { address, len, keep: Some(keep) })
    }

    fn of(region: Region) -> Self {
        Self { region, awaited: Awaited::No }
    }

    /// The same memory for a command that the application waits for, or not.
    #[must_use]
    pub fn awaited(self, awaited: Awaited) -> Self {
        Self { awaited, ..self }
    }

    pub(crate) fn is_awaited(&self) -> Awaited {
        self.awaited
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.region.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Address of the first byte.
    pub(crate) fn address(&self) -> usize {
        self.region.address as usize
    }

    /// Copies `bytes` to `offset`; false, and nothing is written, where they don't fit.
    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) -> bool {
        let fits = offset.checked_add(bytes.len()).is_some_and(|end| end <= self.region.len);
        if fits {
            // SAFETY: the range lies in the target, which the constructor's caller promised to be writable and nobody
            // else's; `bytes` is memory of ours and so doesn't overlap it.
            unsafe { self.region.address.add(offset).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        }
        fits
    }

    /// Overwrites all bytes.
    ///
    /// # Safety
    /// `from` must be valid for reads of [`Self::len`] bytes.
    pub(crate) unsafe fn copy_all_from(&mut self, from: *const u8) {
        // SAFETY: the constructor's caller promised that the target is writable and nobody else's; the rest is this
        // function's caller's promise.
        unsafe { Copying { from, to: self.region.address, len: self.region.len }.run_in_two() };
    }

    /// A copy of its bytes.
    pub(crate) fn capture(&self) -> Bytes {
        // SAFETY: the constructor's caller promised that the bytes are there; writable memory is readable.
        Bytes::copy_from_slice(unsafe { self.region.bytes() })
    }

    /// The part `offset..offset + len` as a target; `None` where there is no such part.
    pub(crate) fn part(&self, offset: usize, len: usize) -> Option<Self> {
        self.region.part(offset, len).map(Self::of)
    }

    /// The part `offset..offset + len` as a source; `None` where there is no such part.
    pub(crate) fn part_as_source(&self, offset: usize, len: usize) -> Option<HostSource> {
        self.region.part(offset, len).map(|region| HostSource::of(Source::Borrowed(region)))
    }
}

impl Region {
    /// # Safety
    /// The memory must be readable, and not change while the slice is used.
    unsafe fn bytes(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: the caller's promise; a region of more than 0 bytes has a valid address by its constructors.
        unsafe { std::slice::from_raw_parts(self.address, self.len) }
    }

    fn part(&self, offset: usize, len: usize) -> Option<Self> {
        let end = offset.checked_add(len)?;
        let address = self.address.wrapping_add(offset);
        (end <= self.len).then(|| Self { address, len, keep: self.keep.clone() })
    }
}

/// A copy to make.
#[derive(Debug, Clone, Copy)]
struct Copying {
    from: *const u8,
    to: *mut u8,
    len: usize,
}

// SAFETY: two addresses and a length; whoever runs it promises that they are good on any thread.
unsafe impl Send for Copying {}

impl Copying {
    /// # Safety
    /// `from` is valid for reads and `to` for writes of `len` bytes until this returns; where they overlap and two
    /// threads copy, what is copied is undefined, and so it is natively.
    unsafe fn run(self) {
        // SAFETY: the caller's promise.
        unsafe { self.to.copy_from(self.from, self.len) };
    }

    /// As [`Self::run`], with a second thread where that is worth it: one alone doesn't use all of the memory's
    /// bandwidth.
    ///
    /// # Safety
    /// As [`Self::run`].
    unsafe fn run_in_two(self) {
        if self.len < TWO_THREADS_FROM {
            // SAFETY: the caller's promise.
            return unsafe { self.run() };
        }
        let half = self.len / 2 / PAGE * PAGE;
        let first = Self { len: half, ..self };
        let second =
            Self { from: self.from.wrapping_add(half), to: self.to.wrapping_add(half), len: self.len - half };
        // SAFETY: a part of what the caller promised; the thread is waited for below.
        let helper = spawn_with_signals_blocked("fpga-copy", move || unsafe { { second }.run() });
        // SAFETY: the other part.
        unsafe { first.run() };
        // A thread that couldn't be started, or didn't end well, has copied nothing that matters.
        if helper.map(JoinHandle::join).is_ok_and(|joined| joined.is_ok()) {
            return;
        }
        // SAFETY: the part that the thread should have copied.
        unsafe { second.run() };
    }
}

/// Page-aligned memory that maps of a buffer point to, zeroed.
#[derive(Debug)]
pub(crate) struct Shadow {
    address: NonNull<u8>,
    layout: Layout,
}

// SAFETY: plain memory; who may access which bytes when is a matter of the commands that use it, as for any region.
unsafe impl Send for Shadow {}
// SAFETY: as above.
unsafe impl Sync for Shadow {}

impl Shadow {
    /// `len` bytes; `None` for 0 or without memory.
    pub(crate) fn allocate(len: usize) -> Option<HostTarget> {
        let layout = Layout::from_size_align(len, PAGE).ok().filter(|layout| layout.size() > 0)?;
        // SAFETY: the layout's size isn't 0.
        let address = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let shadow = Arc::new(Self { address, layout });
        Some(HostTarget::of(Region { address: address.as_ptr(), len, keep: Some(shadow) }))
    }
}

impl Keep for Shadow {}

impl Drop for Shadow {
    fn drop(&mut self) {
        // SAFETY: allocated in `allocate` with this layout, and every region of it kept this alive.
        unsafe { dealloc(self.address.as_ptr(), self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_refuses_what_does_not_fit() {
        let mut shadow = Shadow::allocate(10).unwrap();
        assert!(shadow.write(4, b"abcdef"));
        assert!(!shadow.write(5, b"abcdef"));
        assert!(!shadow.write(usize::MAX, b"ab"));
        assert_eq!(&shadow.capture()[..], b"\0\0\0\0abcdef");
    }

    #[test]
    fn parts_of_a_shadow_are_the_same_memory_andkeep_it() {
        let shadow = Shadow::allocate(8192).unwrap();
        assert_eq!(shadow.address() % PAGE, 0);
        let mut part = shadow.part(100, 8).unwrap();
        let source = shadow.part_as_source(100, 8).unwrap();
        assert_eq!(part.address(), shadow.address() + 100);
        drop(shadow);
        assert!(part.write(0, b"12345678"));
        assert_eq!(&source.capture()[..], b"12345678");
        assert!(part.part(1, 8).is_none());
    }

    #[test]
    fn a_source_sends_zeroes_for_bytes_that_it_does_not_have() {
        let mut out = Vec::new();
        HostSource::owned(vec![1, 2, 3]).copy_to(2, 2, &mut out);
        assert_eq!(out, [0, 0]);
    }
}
