/* fpga_hook.h - tells the collector of this node what its FPGA boards do.
 *
 * All functions return 0, or a negative errno; fpga_hook_last_error() then has the reason in words. They may be called
 * from any thread. None of them prints, raises a signal, or does anything at exit. After fork() the handles of the
 * parent are inert in the child: functions return -ECHILD; the child may start a hook of its own.
 *
 * Made by cbindgen; a test compares it with the source. To make it anew:
 *   FPGA_UPDATE_HEADER=1 cargo test -p fpga-hook-c header
 */

#ifndef FPGA_HOOK_H
#define FPGA_HOOK_H

#include <stddef.h>
#include <stdint.h>

// Reports for one device; made by fpga_hook_start().
struct fpga_hook;

// The properties of a device that never change. Texts are UTF-8, at most 128 bytes; NULL stands for an empty one.
struct fpga_hook_device {
  // Id on its node, for example "dm0": at most 63 letters, digits, '.', '_' and '-'. Required.
  const char *id;
  // Vendor as in the node label fpga-scheduling.io/fpga-vendor, for example "intel". Required.
  const char *vendor;
  // Name of its OpenCL platform, if it has one.
  const char *platform;
  // Board as in the node label fpga-scheduling.io/board.
  const char *board;
  // Shell version as in the node label fpga-scheduling.io/shell-version.
  const char *shell;
  // Number of slots, 1 to 4096. A board without partial reconfiguration has 1.
  uint32_t slots;
};

// A bitstream: by name, by the SHA-256 of its bytes, or, preferably, by both.
struct fpga_hook_bitstream {
  // Accelerator name: at most 128 letters, digits, '.', '_', '-' and '/'; or NULL.
  const char *name;
  // 32 bytes, or NULL.
  const uint8_t *sha256;
};

// A slot that a task holds, in the caller's memory. fpga_hook_acquire() fills it and fpga_hook_release() ends it;
// its content is private. It may be dropped: a slot that is acquired but never released is never reported.
struct fpga_hook_hold {
  uint64_t private_words[40];
};

// The properties of a device that change.
struct fpga_hook_status {
  // The bitstreams in its slots: loaded_count entries, at most 48, each with its sha256.
  const struct fpga_hook_bitstream *loaded;
  // Number of entries of loaded.
  size_t loaded_count;
  // Number of tasks that wait for a slot.
  uint32_t queued;
  // 0 if the board does not answer, so that no pod should be placed for it.
  int healthy;
};

// Counters of a hook.
struct fpga_hook_stats {
  // Events that are not acknowledged yet.
  uint64_t queued;
  // Reports that found the queue full and were merged into a sum.
  uint64_t merged;
  // Events acknowledged by the collector; a sum counts as one.
  uint64_t sent;
  // Requests that failed and were repeated.
  uint64_t retries;
  // Events that the collector refused as invalid.
  uint64_t refused;
  // Progress reports that were left out; the final reports carry the whole time.
  uint64_t progress_skipped;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Starts reporting for a device to the collector at endpoint, "http://HOST:PORT" or "unix:/ABSOLUTE/PATH", which may
// start later. Stores a handle in *hook. The device counts as healthy and empty until fpga_hook_device_status() is
// called.
int fpga_hook_start(const char *endpoint,
                    const struct fpga_hook_device *device,
                    struct fpga_hook **hook);

// Like fpga_hook_start(), for a collector that listens on the network and requires a token (its --token-file).
// token_file is the path of a file with one line, read at each use, so that it may appear later and change. Over a
// unix socket no token is sent.
int fpga_hook_start_with_token(const char *endpoint,
                               const char *token_file,
                               const struct fpga_hook_device *device,
                               struct fpga_hook **hook);

// A task has got the slot and runs; its time counts from this call. tenant may be NULL.
int fpga_hook_acquire(const struct fpga_hook *hook,
                      uint32_t slot,
                      const struct fpga_hook_bitstream *bitstream,
                      const char *tenant,
                      struct fpga_hook_hold *hold);

// The task has released the slot: reports it with the time since fpga_hook_acquire(). A second release of the same
// hold returns -ENOENT.
int fpga_hook_release(const struct fpga_hook *hook,
                      struct fpga_hook_hold *hold);

// The task still runs: reports its time so far, which its next progress or its release replaces. Call it about once
// a second for tasks of many seconds.
int fpga_hook_progress(const struct fpga_hook *hook,
                       const struct fpga_hook_hold *hold);

// A task has ended that held the slot for duration_ns by the caller's clock, for example the device's. tenant may be
// NULL.
int fpga_hook_task_ended(const struct fpga_hook *hook,
                         uint32_t slot,
                         const struct fpga_hook_bitstream *bitstream,
                         const char *tenant,
                         uint64_t duration_ns);

// The slot has been loaded with the bitstream, which took duration_ns. A task that the slot is loaded for holds it
// meanwhile: call fpga_hook_acquire() before the load.
int fpga_hook_reconfigured(const struct fpga_hook *hook,
                           uint32_t slot,
                           const struct fpga_hook_bitstream *bitstream,
                           uint64_t duration_ns);

// The loaded bitstreams, the number of waiting tasks, or the health of the device has changed. The newest status
// replaces older ones, and is sent again to a collector that comes back.
int fpga_hook_device_status(const struct fpga_hook *hook,
                            const struct fpga_hook_status *status);

// Waits until the collector has acknowledged everything that was reported before the call; -ETIMEDOUT after
// timeout_ms.
int fpga_hook_flush(const struct fpga_hook *hook, uint64_t timeout_ms);

// Stores the hook's counters in *stats.
int fpga_hook_stats(const struct fpga_hook *hook, struct fpga_hook_stats *stats);

// Reports that the device is gone, waits up to timeout_ms until the collector has acknowledged everything (else
// -ETIMEDOUT), and frees the handle in either case: no other call with it may be running or follow. NULL is allowed.
// In a forked child it only returns -ECHILD.
//
// A process may also exit without this call. Unacknowledged reports are then lost, and the collector considers the
// device unhealthy after some time without a report.
int fpga_hook_stop(struct fpga_hook *hook,
                   uint64_t timeout_ms);

// The text of the last failure on this thread; empty before the first. It stays valid until the thread's next
// failure.
const char *fpga_hook_last_error(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FPGA_HOOK_H */
