//! The C functions: each checks its pointers and values and makes one call.
//!
//! The callers' duties are those in the header: each pointer is NULL or valid for what is read or written through it;
//! a handle comes from `fpga_hook_start` and was not passed to `fpga_hook_stop`.

use crate::entry::{invalid, status};
use crate::handle::{FpgaHook, unsent};
use crate::hold::{Bitstream, FpgaHookHold};
use crate::text::{self, MAX_TEXT};
use fpga_core::bitstream::Digest;
use fpga_core::device::{DeviceStatus, Health, LoadedBitstream};
use fpga_foreign_process::c_boundary::{Failure, last_error};
use std::ffi::{c_char, c_int};
use std::time::Duration;

const MAX_ENDPOINT: usize = 512;
const MAX_PATH: usize = 4096;
const MAX_DEVICE_ID: usize = 63;
const MAX_SLOTS: u32 = 4096;
/// Maximum number of loaded bitstreams that a collector accepts for one device.
const MAX_LOADED: usize = 48;

/// The properties of a device that never change. Texts are UTF-8, at most 128 bytes; NULL stands for an empty one.
#[repr(C)]
#[derive(Debug)]
pub struct FpgaHookDevice {
    /// Id on its node, for example "dm0": at most 63 letters, digits, '.', '_' and '-'. Required.
    pub id: *const c_char,
    /// Vendor as in the node label fpga-scheduling.io/fpga-vendor, for example "intel". Required.
    pub vendor: *const c_char,
    /// Name of its OpenCL platform, if it has one.
    pub platform: *const c_char,
    /// Board as in the node label fpga-scheduling.io/board.
    pub board: *const c_char,
    /// Shell version as in the node label fpga-scheduling.io/shell-version.
    pub shell: *const c_char,
    /// Number of slots, 1 to 4096. A board without partial reconfiguration has 1.
    pub slots: u32,
}

/// A bitstream: by name, by the SHA-256 of its bytes, or, preferably, by both.
#[repr(C)]
#[derive(Debug)]
pub struct FpgaHookBitstream {
    /// Accelerator name: at most 128 letters, digits, '.', '_', '-' and '/'; or NULL.
    pub name: *const c_char,
    /// 32 bytes, or NULL.
    pub sha256: *const u8,
}

/// The properties of a device that change.
#[repr(C)]
#[derive(Debug)]
pub struct FpgaHookStatus {
    /// The bitstreams in its slots: loaded_count entries, at most 48, each with its sha256.
    pub loaded: *const FpgaHookBitstream,
    /// Number of entries of loaded.
    pub loaded_count: usize,
    /// Number of tasks that wait for a slot.
    pub queued: u32,
    /// 0 if the board does not answer, so that no pod should be placed for it.
    pub healthy: c_int,
}

/// Counters of a hook.
#[repr(C)]
#[derive(Debug)]
pub struct FpgaHookStats {
    /// Events that are not acknowledged yet.
    pub queued: u64,
    /// Reports that found the queue full and were merged into a sum.
    pub merged: u64,
    /// Events acknowledged by the collector; a sum counts as one.
    pub sent: u64,
    /// Requests that failed and were repeated.
    pub retries: u64,
    /// Events that the collector refused as invalid.
    pub refused: u64,
    /// Progress reports that were left out; the final reports carry the whole time.
    pub progress_skipped: u64,
}

/// Starts reporting for a device to the collector at endpoint, "http://HOST:PORT" or "unix:/ABSOLUTE/PATH", which may
/// start later. Stores a handle in *hook. The device counts as healthy and empty until fpga_hook_device_status() is
/// called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpga_hook_start(
    endpoint: *const c_char,
    device: *const FpgaHookDevice,
    hook: *mut *mut FpgaHook,
) -> c_int {
    // SAFETY: the caller has the same duties; NULL is allowed for the token file.
    unsafe { fpga_hook_start_with_token(endpoint, std::ptr::null(), device, hook) }
}

/// Like fpga_hook_start(), for a collector that listens on the network and requires a token (its --token-file).
/// token_file is the path of a file with one line, read at each use, so that it may appear later and change. Over a
/// unix socket no token is sent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpga_hook_start_with_token(
    endpoint: *const c_char,
    token_file: *const c_char,
    device: *const FpgaHookDevice,
    hook: *mut *mut FpgaHook,
) -> c_int {
    status(|| {
        if hook.is_null() {
            return Err(invalid("hook is NULL"));
        }
        // SAFETY: not NULL, so writable: the caller's duty.
        unsafe { hook.write(std::ptr::null_mut()) };
        // SAFETY: a string or NULL: the caller's duty.
        let endpoint = unsafe { text::required(endpoint, "endpoint", MAX_ENDPOINT) }?;
        // SAFETY: as above.
        let token_file = unsafe { text::optional(token_file, "token_file", MAX_PATH) }?;
        let token_file = (!token_file.is_empty()).then(|| token_file.into());
        // SAFETY: NULL or readable: the caller's duty.
        let device = unsafe { device.as_ref() }.ok_or_else(|| invalid("device is NULL"))?;
        let started = Box::new(FpgaHook::start(endpoint, token_file, describe(device)?)?);
        // SAFETY: as above.
        unsafe { hook.write(Box::into_raw(started)) };
        Ok(())
    })
}

/// A task has got the slot and runs; its time counts from this call. tenant may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpga_hook_acquire(
    hook: *const FpgaHook,
    slot: u32,
    bitstream: *const FpgaHookBitstream,
    tenant: *const c_char,
    hold: *mut FpgaHookHold,
) -> c_int {
    with(hook, |hook| {
        check_slot(hook, slot)?;
        if hold.is_null() {
            return Err(invalid("hold is NULL"));
        }
        let (name, digest) = parts(bitstream)?;
        // Refuse here what would be refused at the release.
        Bitstream::new(name, digest)?;
        // SAFETY: a string or NULL: the caller's duty.
        let tenant = unsafe { text::optional(tenant, "tenant", MAX_TEXT) }?;
        let filled = FpgaHookHold::new(hook.next_task(), hook.now(), slot, name, digest, tenant);
        // SAFETY: not NULL, so writable: the caller's duty.
        unsafe { hold.write(filled) };
        Ok(())
    })
}

/// The task has released the slot: reports it with the time since fpga_hook_acquire(). A second release of the same
/// hold returns -ENOENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpga_hook_release(hook: *const FpgaHook, hold: *mut FpgaHookHold) -> c_int {
    with(hook, |hook| {
        // SAFETY: NULL or readable and writable: the caller's duty.
        let hold = unsafe { hold.as_mut() }.ok_or_else(|| invalid("hold is NULL"))?;
        let held = hold.held()?;
        hold.end();
        hook.released(held);
        Ok(())
    })
}

/// The task still runs: reports its time so far, which its next progress or its release replaces. Call it about once
/// a second for tasks of many seconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpga_hook_progress(hook: *const FpgaHook, hold: *const FpgaHookHold) -> c_int {
    with(hook, |hook| {
        // SAFETY: NULL or readable: the caller's duty.
        let hold = unsafe { hold.as_ref() }.ok_or_else(|| invalid("hold is NULL"))?;
        hook.progress(hold.held()?);
        Ok(())
    })
}

/// A task has ended that held the slot for duration_ns by the caller's clock, for example the device's. tenant may be
/// NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpga_hook_task_ended(
    hook: *const FpgaHook,
    slot: u32,
    bitstream: *const FpgaHookBitstream,
    tenant: *const c_char,
    duration_ns: u64,
) -> c_int {
    with(hook, |hook| {
        check_slot(hook, slot)?;
        let (name, digest) = parts(bitstream)?;
        // SAFETY: a string or NULL: the caller's duty.
        let tenant = unsafe { text::optional(tenant, "tenant", MAX_TEXT) }?;
        let took = Duration::from_nanos(duration_ns);
        hook.task_ended(slot, Bitstream::new(name, digest)?, tenant.to_owned(), took);
        Ok(())
    })
}

/// The slot has been loaded with the bitstream, which took duration_ns. A task that the slot is loaded for holds it
/// meanwhile: call fpga_hook_acquire() before the load.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpga_hook_reconfigured(
    hook: *const FpgaHook,
    slot: u32,
    bitstream: *const FpgaHookBitstream,
    duration_ns: u64,
) -> c_int {
    with(hook, |hook| {
        check_slot(hook, slot)?;
        let (name, digest) = parts(bitstream)?;
        hook.reconfigured(slot, Bitstream::new(name, digest)?, Duration::from_nanos(duration_ns));
        Ok(())
    })
}

/// The loaded bitstreams, the number of waiting tasks, or the health of the device has changed. The newest status
/// replaces older ones, and is sent again to a collector that comes back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpga_hook_device_status(
    hook: *const FpgaHook,
    status: *const FpgaHookStatus,
) -> c_int {
    with(hook, |hook| {
        // SAFETY: NULL or readable: the caller's duty.
        let status = unsafe { status.as_ref() }.ok_or_else(|| invalid("status is NULL"))?;
        if status.loaded_count > MAX_LOADED.min(hook.slots() as usize) {
            return Err(invalid("loaded_count is more than the device has slots, or than 48"));
        }
        if status.loaded.is_null() && status.loaded_count > 0 {
            return Err(invalid("loaded is NULL, and loaded_count is not 0"));
        }
        let mut loaded = Vec::with_capacity(status.loaded_count);
        for index in 0..status.loaded_count {
            // SAFETY: `loaded` is an array of `loaded_count` entries: the caller's duty.
            let (name, digest) = parts(unsafe { status.loaded.add(index) })?;
            let digest = digest.ok_or_else(|| invalid("a loaded bitstream has no sha256"))?;
            loaded.push(LoadedBitstream { id: Bitstream::new(name, Some(digest))?.id, digest });
        }
        let health = if status.healthy == 0 { Health::Unhealthy } else { Health::Healthy };
        hook.status(loaded, status.queued, health);
        Ok(())
    })
}

/// Waits until the collector has acknowledged everything that was reported before the call; -ETIMEDOUT after
/// timeout_ms.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpga_hook_flush(hook: *const FpgaHook, timeout_ms: u64) -> c_int {
    with(hook, |hook| hook.reporter().flush(Duration::from_millis(timeout_ms)).map_err(unsent))
}

/// Stores the hook's counters in *stats.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpga_hook_stats(hook: *const FpgaHook, stats: *mut FpgaHookStats) -> c_int {
    with(hook, |hook| {
        if stats.is_null() {
            return Err(invalid("stats is NULL"));
        }
        let now = hook.reporter().stats();
        let filled = FpgaHookStats {
            queued: now.queued as u64,
            merged: now.merged,
            sent: now.sent,
            retries: now.retries,
            refused: now.refused,
            progress_skipped: now.progress_skipped,
        };
        // SAFETY: not NULL, so writable: the caller's duty.
        unsafe { stats.write(filled) };
        Ok(())
    })
}

/// Reports that the device is gone, waits up to timeout_ms until the collector has acknowledged everything (else
/// -ETIMEDOUT), and frees the handle in either case: no other call with it may be running or follow. NULL is allowed.
/// In a forked child it only returns -ECHILD.
///
/// A process may also exit without this call. Unacknowledged reports are then lost, and the collector considers the
/// device unhealthy after some time without a report.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpga_hook_stop(hook: *mut FpgaHook, timeout_ms: u64) -> c_int {
    status(|| {
        // SAFETY: NULL or a handle: the caller's duty.
        let Some(known) = (unsafe { hook.as_ref() }) else { return Ok(()) };
        known.check_process()?;
        // SAFETY: made by Box::into_raw in fpga_hook_start, and given back once: the caller's duty.
        let owned = unsafe { Box::from_raw(hook) };
        owned.stop(Duration::from_millis(timeout_ms))
    })
}

/// The text of the last failure on this thread; empty before the first. It stays valid until the thread's next
/// failure.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_hook_last_error() -> *const c_char {
    last_error()
}

fn with(hook: *const FpgaHook, body: impl FnOnce(&FpgaHook) -> Result<(), Failure>) -> c_int {
    status(|| {
        // SAFETY: NULL or a live handle: the caller's duty.
        let hook = unsafe { hook.as_ref() }.ok_or_else(|| invalid("hook is NULL"))?;
        hook.check_process()?;
        body(hook)
    })
}

fn check_slot(hook: &FpgaHook, slot: u32) -> Result<(), Failure> {
    if slot < hook.slots() {
        return Ok(());
    }
    Err(invalid(format!("slot is {slot}, and the device has {} slots", hook.slots())))
}

fn parts<'a>(bitstream: *const FpgaHookBitstream) -> Result<(&'a str, Option<Digest>), Failure> {
    // SAFETY: NULL or readable: the caller's duty.
    let bitstream = unsafe { bitstream.as_ref() }.ok_or_else(|| invalid("bitstream is NULL"))?;
    // SAFETY: a string or NULL: the caller's duty.
    let name = unsafe { text::optional(bitstream.name, "the bitstream's name", MAX_TEXT) }?;
    // SAFETY: NULL or 32 readable bytes: the caller's duty.
    let digest = unsafe { bitstream.sha256.cast::<[u8; 32]>().as_ref() };
    Ok((name, digest.map(|bytes| Digest::from_bytes(*bytes))))
}

fn describe(device: &FpgaHookDevice) -> Result<DeviceStatus, Failure> {
    // SAFETY: strings or NULL: the caller's duty.
    let (id, vendor, platform, board, shell) = unsafe {
        (
            text::required(device.id, "the device's id", MAX_DEVICE_ID)?,
            text::required(device.vendor, "the device's vendor", MAX_TEXT)?,
            text::optional(device.platform, "the device's platform", MAX_TEXT)?,
            text::optional(device.board, "the device's board", MAX_TEXT)?,
            text::optional(device.shell, "the device's shell", MAX_TEXT)?,
        )
    };
    if !id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)) {
        return Err(invalid("the device's id has a character that is no letter, digit, '.', '_' or '-'"));
    }
    if device.slots == 0 || device.slots > MAX_SLOTS {
        return Err(invalid(format!("slots is {}; it must be 1 to {MAX_SLOTS}", device.slots)));
    }
    Ok(DeviceStatus {
        platform: platform.to_owned(),
        board: board.to_owned(),
        shell: shell.to_owned(),
        ..DeviceStatus::new(id, vendor, device.slots)
    })
}
