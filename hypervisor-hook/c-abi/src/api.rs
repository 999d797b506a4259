//! The C functions: checks of pointers and values, one call each.
//!
//! The callers' duties are those that the header states: each pointer is NULL or valid for what is read or written
//! through it, a handle comes from `fpga_hook_start` and was not given to `fpga_hook_stop`.

use crate::entry::{self, Failure, status};
use crate::handle::{FpgaHook, unsent};
use crate::hold::{Bitstream, FpgaHookHold};
use crate::text::{self, MAX_TEXT};
use fpga_core::bitstream::Digest;
use fpga_core::device::{DeviceStatus, Health, LoadedBitstream};
use std::ffi::{c_char, c_int};
use std::time::Duration;

const MAX_ENDPOINT: usize = 512;
const MAX_PATH: usize = 4096;
const MAX_DEVICE_ID: usize = 63;
const MAX_SLOTS: u32 = 4096;
/// As many loaded bitstreams as a collector takes of one device.
const MAX_LOADED: usize = 48;

/// What a device is, once and for all. Texts are UTF-8, at most 128 bytes; NULL stands for an empty one.
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
    /// How many slots it has, 1 to 4096. A board without partial reconfiguration has 1.
    pub slots: u32,
}

/// A bitstream: by name, by the SHA-256 of its bytes, or better by both.
#[repr(C)]
#[derive(Debug)]
pub struct FpgaHookBitstream {
    /// Accelerator name: at most 128 letters, digits, '.', '_', '-' and '/'; or NULL.
    pub name: *const c_char,
    /// 32 bytes, or NULL.
    pub sha256: *const u8,
}

/// What changes on a device.
#[repr(C)]
#[derive(Debug)]
pub struct FpgaHookStatus {
    /// What its slots hold now, loaded_count entries, each with its sha256; at most 48.
    pub loaded: *const FpgaHookBitstream,
    /// Entries of loaded.
    pub loaded_count: usize,
    /// Tasks that wait for a slot.
    pub queued: u32,
    /// 0 when the board does not answer, so that no pod should be placed for it.
    pub healthy: c_int,
}

/// What a hook has done so far.
#[repr(C)]
#[derive(Debug)]
pub struct FpgaHookStats {
    /// Events that wait to be acknowledged.
    pub queued: u64,
    /// Reports that found the queue full and went into a sum.
    pub merged: u64,
    /// Events acknowledged by the collector; a sum is one.
    pub sent: u64,
    /// Requests that failed and were tried again.
    pub retries: u64,
    /// Events that the collector refused for what they say.
    pub refused: u64,
    /// Progress of running tasks that was left out; their ends carry the whole time.
    pub progress_skipped: u64,
}

/// Starts reporting for a device to the collector at endpoint, "http://HOST:PORT" or "unix:/ABSOLUTE/PATH", which need
/// not be there yet. Gives a handle through hook. The device is taken for healthy and empty until
/// fpga_hook_device_status() says otherwise.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpga_hook_start(
    endpoint: *const c_char,
    device: *const FpgaHookDevice,
    hook: *mut *mut FpgaHook,
) -> c_int {
    // SAFETY: the same duties; NULL is allowed.
    unsafe { fpga_hook_start_with_token(endpoint, std::ptr::null(), device, hook) }
}

/// The same with the token that a collector asks for which listens on the network (its --token-file): the path of a file
/// with one line, read whenever it is shown, so that it may come late and change. Over a unix socket none is shown.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpga_hook_start_with_token(
    endpoint: *const c_char,
    token_file: *const c_char,
    device: *const FpgaHookDevice,
    hook: *mut *mut FpgaHook,
) -> c_int {
    status(|| {
        if hook.is_null() {
            return Err(Failure::invalid("hook is NULL"));
        }
        // SAFETY: not NULL, so writable: the caller's duty.
        unsafe { hook.write(std::ptr::null_mut()) };
        // SAFETY: a string or NULL: the caller's duty.
        let endpoint = unsafe { text::required(endpoint, "endpoint", MAX_ENDPOINT) }?;
        // SAFETY: as above.
        let token_file = unsafe { text::optional(token_file, "token_file", MAX_PATH) }?;
        let token_file = (!token_file.is_empty()).then(|| token_file.into());
        // SAFETY: NULL or readable: the caller's duty.
        let device = unsafe { device.as_ref() }.ok_or_else(|| Failure::invalid("device is NULL"))?;
        let started = Box::new(FpgaHook::start(endpoint, token_file, describe(device)?)?);
        // SAFETY: as above.
        unsafe { hook.write(Box::into_raw(started)) };
        Ok(())
    })
}

/// A task has got the slot and runs; its time counts from here. tenant may be NULL.
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
            return Err(Failure::invalid("hold is NULL"));
        }
        let (name, digest) = parts(bitstream)?;
        // What would be refused at the release is refused here.
        Bitstream::new(name, digest)?;
        // SAFETY: a string or NULL: the caller's duty.
        let tenant = unsafe { text::optional(tenant, "tenant", MAX_TEXT) }?;
        let filled = FpgaHookHold::new(hook.next_task(), hook.now(), slot, name, digest, tenant);
        // SAFETY: not NULL, so writable: the caller's duty.
        unsafe { hold.write(filled) };
        Ok(())
    })
}

/// The task has released the slot: reports it with the time since it was acquired. A second release is refused with
/// -ENOENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpga_hook_release(hook: *const FpgaHook, hold: *mut FpgaHookHold) -> c_int {
    with(hook, |hook| {
        // SAFETY: NULL or readable and writable: the caller's duty.
        let hold = unsafe { hold.as_mut() }.ok_or_else(|| Failure::invalid("hold is NULL"))?;
        let held = hold.held()?;
        hold.end();
        hook.released(held);
        Ok(())
    })
}

/// The task still runs: reports its time so far, which its next progress or its release replaces. For tasks of many
/// seconds, about once a second.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpga_hook_progress(hook: *const FpgaHook, hold: *const FpgaHookHold) -> c_int {
    with(hook, |hook| {
        // SAFETY: NULL or readable: the caller's duty.
        let hold = unsafe { hold.as_ref() }.ok_or_else(|| Failure::invalid("hold is NULL"))?;
        hook.progress(hold.held()?);
        Ok(())
    })
}

/// A task has ended that held the slot for so long by a clock of yours, for example the device's. tenant may be NULL.
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

/// The slot has been loaded with the bitstream, which took so long. A task holds its slot while it is loaded for it:
/// acquire before.
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

/// What the device holds, how many tasks wait or its health has changed. The newest one wins, and is repeated to a
/// collector that comes back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpga_hook_device_status(
    hook: *const FpgaHook,
    status: *const FpgaHookStatus,
) -> c_int {
    with(hook, |hook| {
        // SAFETY: NULL or readable: the caller's duty.
        let status = unsafe { status.as_ref() }.ok_or_else(|| Failure::invalid("status is NULL"))?;
        if status.loaded_count > MAX_LOADED.min(hook.slots() as usize) {
            return Err(Failure::invalid("loaded_count is more than the device has slots, or than 48"));
        }
        if status.loaded.is_null() && status.loaded_count > 0 {
            return Err(Failure::invalid("loaded is NULL, and loaded_count is not 0"));
        }
        let mut loaded = Vec::with_capacity(status.loaded_count);
        for index in 0..status.loaded_count {
            // SAFETY: an array of so many entries: the caller's duty.
            let (name, digest) = parts(unsafe { status.loaded.add(index) })?;
            let digest = digest.ok_or_else(|| Failure::invalid("a loaded bitstream has no sha256"))?;
            loaded.push(LoadedBitstream { id: Bitstream::new(name, Some(digest))?.id, digest });
        }
        let health = if status.healthy == 0 { Health::Unhealthy } else { Health::Healthy };
        hook.status(loaded, status.queued, health);
        Ok(())
    })
}

/// Waits until the collector has acknowledged all that was reported before the call; -ETIMEDOUT if it does not in time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpga_hook_flush(hook: *const FpgaHook, timeout_ms: u64) -> c_int {
    with(hook, |hook| hook.reporter().flush(Duration::from_millis(timeout_ms)).map_err(unsent))
}

/// What the hook has done so far.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpga_hook_stats(hook: *const FpgaHook, stats: *mut FpgaHookStats) -> c_int {
    with(hook, |hook| {
        if stats.is_null() {
            return Err(Failure::invalid("stats is NULL"));
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

/// Says that the device is gone, waits at most so long for the collector to acknowledge everything (else -ETIMEDOUT),
/// and frees the handle in either case: no other call with it may be under way or follow. NULL is allowed. In a forked
/// child it does nothing but return -ECHILD.
///
/// A process may as well exit without it: what was not acknowledged is lost, and the collector takes the device for
/// unhealthy once it has not heard of it for a while.
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

/// What the last failure on this thread was, in words; empty before the first. The text stays until the thread's next
/// failure.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_hook_last_error() -> *const c_char {
    entry::last_error()
}

fn with(hook: *const FpgaHook, body: impl FnOnce(&FpgaHook) -> Result<(), Failure>) -> c_int {
    status(|| {
        // SAFETY: NULL or a live handle: the caller's duty.
        let hook = unsafe { hook.as_ref() }.ok_or_else(|| Failure::invalid("hook is NULL"))?;
        hook.check_process()?;
        body(hook)
    })
}

fn check_slot(hook: &FpgaHook, slot: u32) -> Result<(), Failure> {
    if slot < hook.slots() {
        return Ok(());
    }
    Err(Failure::invalid(format!("slot is {slot}, and the device has {} slots", hook.slots())))
}

fn parts<'a>(bitstream: *const FpgaHookBitstream) -> Result<(&'a str, Option<Digest>), Failure> {
    // SAFETY: NULL or readable: the caller's duty.
    let bitstream = unsafe { bitstream.as_ref() }.ok_or_else(|| Failure::invalid("bitstream is NULL"))?;
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
        return Err(Failure::invalid(
            "the device's id has a character that is no letter, digit, '.', '_' or '-'",
        ));
    }
    if device.slots == 0 || device.slots > MAX_SLOTS {
        return Err(Failure::invalid(format!("slots is {}; it must be 1 to {MAX_SLOTS}", device.slots)));
    }
    Ok(DeviceStatus {
        id: id.to_owned(),
        vendor: vendor.to_owned(),
        platform: platform.to_owned(),
        board: board.to_owned(),
        shell: shell.to_owned(),
        slots: device.slots,
        loaded: Vec::new(),
        queued: 0,
        health: Health::Healthy,
    })
}
