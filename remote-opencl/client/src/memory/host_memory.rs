//! Access to the application's raw memory: sources of writes, targets of reads, and shadows for maps. No other
//! module dereferences that memory.
//!
//! The caller of an unsafe constructor guarantees that the memory stays valid until the command's event has ended;
//! this crate accesses the memory only before that.
#![allow(unsafe_code)]

use bytes::{BufMut, Bytes};
use foldhash::quality::FixedState;
use fpga_foreign_process::spawn_with_signals_blocked;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::hash::BuildHasher as _;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Alignment of map shadows in bytes: a page, since some programs expect mapped pointers to be aligned to pages.
const PAGE: usize = 4096;

/// From this many bytes on, two threads copy.
const TWO_THREADS_FROM: usize = 8 << 20;

/// The bytes of a write.
#[derive(Debug)]
pub struct HostSource {
    source: Source,
    awaited: Awaited,
}

/// Whether the application waits for the command in the call that enqueues it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Awaited {
    /// The application waits, so the call may wait for other things too.
    Yes,
    /// The application does not wait, so the call must return without a round trip.
    #[default]
    No,
}

#[derive(Debug)]
enum Source {
    Owned(Bytes),
    Borrowed(Region),
}

/// The destination of a read; also the application's memory of a `CL_MEM_USE_HOST_PTR` buffer.
#[derive(Debug)]
pub struct HostTarget {
    region: Region,
    awaited: Awaited,
    writes: Writes,
}

/// Which bytes of a target are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Writes {
    #[default]
    All,
    /// Only pages that change, since the program may have memory there that can't be written.
    Changes,
}

/// An owner of memory. The memory stays valid as long as the owner lives.
pub(crate) trait MemoryOwner: std::fmt::Debug + Send + Sync {}

/// A range of memory, and its owner if the memory is not the application's.
#[derive(Debug, Clone)]
struct Region {
    address: *mut u8,
    len: usize,
    owner: Option<Arc<dyn MemoryOwner>>,
}

// SAFETY: a region is an address and a length. The contracts of the constructors make the bytes usable from any
// thread until the command's event has ended.
unsafe impl Send for Region {}
// SAFETY: as above; through a shared region bytes are only read, since writing takes a `&mut HostTarget`.
unsafe impl Sync for Region {}

impl HostSource {
    /// A source of bytes that this crate owns.
    pub fn owned(bytes: impl Into<Bytes>) -> Self {
        Self::of(Source::Owned(bytes.into()))
    }

    /// A source of `len` bytes at `address`. They are read until the command's event has ended; a small amount is
    /// copied at once.
    ///
    /// # Safety
    /// The bytes must stay readable until the event of the command that gets this source has completed or failed.
    pub unsafe fn borrowed(address: *const u8, len: usize) -> Self {
        Self::of(Source::Borrowed(Region { address: address.cast_mut(), len, owner: None }))
    }

    /// Calls `use_source` with a source that borrows `bytes`.
    pub(crate) fn with_slice<T>(bytes: &[u8], use_source: impl FnOnce(&Self) -> T) -> T {
        let (address, len) = (bytes.as_ptr().cast_mut(), bytes.len());
        // The source is dropped before the slice, and `use_source` must not keep a part of it.
        use_source(&Self::of(Source::Borrowed(Region { address, len, owner: None })))
    }

    fn of(source: Source) -> Self {
        Self { source, awaited: Awaited::No }
    }

    /// The source with the given [`Awaited`].
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

    /// Whether the source has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The program's memory in which the bytes lie; `None` for bytes that this crate owns.
    pub(crate) fn addresses(&self) -> Option<Range<usize>> {
        match &self.source {
            Source::Owned(_) => None,
            Source::Borrowed(region) => Some(region.addresses()),
        }
    }

    /// The part `offset..offset + len`, under the same contract; `None` if it exceeds the source.
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

    /// Copies all bytes to `to`.
    ///
    /// # Safety
    /// `to` must be valid for writes of [`Self::len`] bytes.
    pub(crate) unsafe fn copy_all_to(&self, to: *mut u8) {
        let (from, len) = match &self.source {
            Source::Owned(bytes) => (bytes.as_ptr(), bytes.len()),
            Source::Borrowed(region) => (region.address.cast_const(), region.len),
        };
        // SAFETY: the source bytes are owned, or the constructor's caller guaranteed that they are readable; this
        // function's caller guarantees that `to` is writable.
        unsafe { Copying { from, to, len }.run_in_two() };
    }

    /// Appends `len` bytes from `offset` on, or `len` zeroes if the source doesn't have them all.
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
    /// A target of `len` bytes at `address`, which are written before the command's event completes.
    ///
    /// # Safety
    /// The bytes must stay writable, and nothing else may read or write them, until the event of the command that
    /// gets this target has completed or failed. For the host memory of a buffer this holds until the buffer is
    /// destroyed, except for accesses that the standard allows.
    pub unsafe fn borrowed(address: *mut u8, len: usize) -> Self {
        Self::of(Region { address, len, owner: None })
    }

    /// A target of `len` bytes at `address`, which stay valid as long as `owner` lives.
    ///
    /// # Safety
    /// The contract of [`Self::borrowed`] must hold as long as `owner` lives.
    pub(crate) unsafe fn owned_by(address: *mut u8, len: usize, owner: Arc<dyn MemoryOwner>) -> Self {
        Self::of(Region { address, len, owner: Some(owner) })
    }

    fn of(region: Region) -> Self {
        Self { region, awaited: Awaited::No, writes: Writes::All }
    }

    /// The target as one of which only pages that change are written.
    pub(crate) fn changes_only(self) -> Self {
        Self { writes: Writes::Changes, ..self }
    }

    /// The target with the given [`Awaited`].
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

    /// Whether the target has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn address(&self) -> usize {
        self.region.address as usize
    }

    pub(crate) fn addresses(&self) -> Range<usize> {
        self.region.addresses()
    }

    /// Copies `bytes` to `offset`. Returns false and writes nothing if they don't fit.
    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) -> bool {
        let fits = offset.checked_add(bytes.len()).is_some_and(|end| end <= self.region.len);
        if fits && self.writes == Writes::Changes {
            // SAFETY: as below, and writable or readable memory can be compared.
            unsafe { copy_changes(bytes.as_ptr(), self.region.address.add(offset), bytes.len()) };
        } else if fits {
            // SAFETY: the range lies in the target, which the constructor's caller guaranteed to be writable and
            // not used by others; `bytes` is memory of this crate and so doesn't overlap it.
            unsafe { self.region.address.add(offset).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        }
        fits
    }

    /// Overwrites all bytes with those at `from`.
    ///
    /// # Safety
    /// `from` must be valid for reads of [`Self::len`] bytes.
    pub(crate) unsafe fn copy_all_from(&mut self, from: *const u8) {
        if self.writes == Writes::Changes {
            // SAFETY: as below.
            return unsafe { copy_changes(from, self.region.address, self.region.len) };
        }
        // SAFETY: the constructor's caller guaranteed that the target is writable and not used by others; this
        // function's caller guarantees that `from` is readable.
        unsafe { Copying { from, to: self.region.address, len: self.region.len }.run_in_two() };
    }

    /// A hash of the bytes in this range, which must lie in the target.
    pub(crate) fn hash(&self, range: Range<usize>) -> u64 {
        // SAFETY: the constructor's caller guaranteed that the bytes are valid. If the program writes to them meanwhile,
        // the hash is that of either content or of none.
        let bytes = unsafe { self.region.bytes() };
        FixedState::default().hash_one(bytes.get(range))
    }

    /// A copy of the target's bytes.
    pub(crate) fn capture(&self) -> Bytes {
        // SAFETY: the constructor's caller guaranteed that the bytes are valid; writable memory is readable.
        Bytes::copy_from_slice(unsafe { self.region.bytes() })
    }

    /// The part `offset..offset + len` as a target; `None` if it exceeds the target.
    pub(crate) fn part(&self, offset: usize, len: usize) -> Option<Self> {
        self.region.part(offset, len).map(Self::of)
    }

    /// The part `offset..offset + len` as a source; `None` if it exceeds the target.
    pub(crate) fn part_as_source(&self, offset: usize, len: usize) -> Option<HostSource> {
        self.region.part(offset, len).map(|region| HostSource::of(Source::Borrowed(region)))
    }
}

/// Copies the pages that differ.
///
/// # Safety
/// `from` must be valid for reads of `len` bytes, and `to` for reads, and for writes where it differs.
unsafe fn copy_changes(from: *const u8, to: *mut u8, len: usize) {
    for offset in (0..len).step_by(PAGE) {
        let part = PAGE.min(len - offset);
        // SAFETY: the part lies in both, by the caller's guarantee.
        unsafe {
            let (from, to) = (from.add(offset), to.add(offset));
            if std::slice::from_raw_parts(from, part) != std::slice::from_raw_parts(to, part) {
                to.copy_from_nonoverlapping(from, part);
            }
        }
    }
}

/// Memory of this crate that a read fills.
#[derive(Debug)]
pub(crate) struct OwnedTarget(Region);

impl OwnedTarget {
    /// Memory of `len` bytes; `None` if `len` is 0 or there is no memory.
    pub(crate) fn allocate(len: usize) -> Option<Self> {
        Shadow::allocate(len).map(|target| Self(target.region))
    }

    /// The memory as the target of a read.
    pub(crate) fn target(&self) -> HostTarget {
        HostTarget::of(self.0.clone())
    }

    /// The bytes of the memory.
    ///
    /// # Safety
    /// The event of the command that got [`Self::target`] must have completed or failed.
    pub(crate) unsafe fn into_bytes(self) -> Bytes {
        Bytes::from_owner(Filled(self.0))
    }
}

/// Memory that nobody writes any more.
struct Filled(Region);

impl AsRef<[u8]> for Filled {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the region's owner keeps the memory, and nobody writes there, as `into_bytes` demands.
        unsafe { self.0.bytes() }
    }
}

impl Region {
    fn addresses(&self) -> Range<usize> {
        let start = self.address as usize;
        start..start.saturating_add(self.len)
    }

    /// # Safety
    /// The memory must be readable, and not change while the slice is used.
    unsafe fn bytes(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: the caller upholds this function's contract; a region of more than 0 bytes has a valid address by
        // the contracts of its constructors.
        unsafe { std::slice::from_raw_parts(self.address, self.len) }
    }

    fn part(&self, offset: usize, len: usize) -> Option<Self> {
        let end = offset.checked_add(len)?;
        let address = self.address.wrapping_add(offset);
        (end <= self.len).then(|| Self { address, len, owner: self.owner.clone() })
    }
}

/// A copy of `len` bytes, to be executed by one or two threads.
#[derive(Debug, Clone, Copy)]
struct Copying {
    from: *const u8,
    to: *mut u8,
    len: usize,
}

// SAFETY: the value is two addresses and a length. The caller of `run` guarantees that they are valid on the thread
// that runs it.
unsafe impl Send for Copying {}

impl Copying {
    /// # Safety
    /// `from` must be valid for reads and `to` for writes of `len` bytes until this returns. If the two overlap and
    /// two threads copy, the resulting bytes are unspecified, as they are with a native runtime.
    unsafe fn run(self) {
        // SAFETY: the caller upholds this function's contract.
        unsafe { self.to.copy_from(self.from, self.len) };
    }

    /// Like [`Self::run`], but a second thread copies one half of a large amount, since one thread alone doesn't
    /// use all of the memory's bandwidth.
    ///
    /// # Safety
    /// The contract is that of [`Self::run`].
    unsafe fn run_in_two(self) {
        if self.len < TWO_THREADS_FROM {
            // SAFETY: the caller upholds this function's contract, which is that of `run`.
            return unsafe { self.run() };
        }
        let half = self.len / 2 / PAGE * PAGE;
        let first = Self { len: half, ..self };
        let second =
            Self { from: self.from.wrapping_add(half), to: self.to.wrapping_add(half), len: self.len - half };
        // SAFETY: the second half of the bytes that the caller guaranteed. The thread is joined before this
        // function returns.
        let helper = spawn_with_signals_blocked("fpga-copy", move || unsafe { { second }.run() });
        // SAFETY: the first half of the bytes that the caller guaranteed.
        unsafe { first.run() };
        // If the thread couldn't be started or panicked, its half is copied below.
        if helper.map(JoinHandle::join).is_ok_and(|joined| joined.is_ok()) {
            return;
        }
        // SAFETY: the half that the helper thread should have copied. That thread doesn't run any more.
        unsafe { second.run() };
    }
}

/// Zeroed, page-aligned memory to which maps of a buffer or image point.
#[derive(Debug)]
pub(crate) struct Shadow {
    address: NonNull<u8>,
    layout: Layout,
}

// SAFETY: plain memory. The commands that use it determine which thread accesses which bytes, as for any region.
unsafe impl Send for Shadow {}
// SAFETY: as above.
unsafe impl Sync for Shadow {}

impl Shadow {
    /// A shadow of `len` bytes; `None` if `len` is 0 or there is no memory.
    pub(crate) fn allocate(len: usize) -> Option<HostTarget> {
        let layout = Layout::from_size_align(len, PAGE).ok().filter(|layout| layout.size() > 0)?;
        // SAFETY: the layout's size isn't 0.
        let address = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let shadow = Arc::new(Self { address, layout });
        Some(HostTarget::of(Region { address: address.as_ptr(), len, owner: Some(shadow) }))
    }
}

impl MemoryOwner for Shadow {}

impl Drop for Shadow {
    fn drop(&mut self) {
        // SAFETY: allocated in `allocate` with this layout, and every region of the memory keeps this value alive.
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
    fn parts_of_a_shadow_are_the_same_memory_and_keep_it() {
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
