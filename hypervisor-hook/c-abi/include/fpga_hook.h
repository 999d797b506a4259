/* fpga_hook.h - tells the collector of this node what its FPGA boards do.
 *
 * All functions return 0, or a negative errno; fpga_hook_last_error() then has the reason in words. They may be called
 * from any thread. None of them prints, raises a signal, or does anything at exit. After fork() the handles of the
 * parent are inert in the child: functions return -ECHILD; the child may start a hook of its own.
 *
 * Made by cbindgen; a test compares it with the source. To make it anew:
 *   FPGA_UPDATE_HEADER=1 cargo test -p fpga-hook-c --test header
 */

#ifndef FPGA_HOOK_H
#define FPGA_HOOK_H

#include <stddef.h>
#include <stdint.h>

// Reports for one device; made by fpga_hook_start().
struct fpga_hook;

// What a device is, once and for all. Texts are UTF-8, at most 128 bytes; NULL stands for an empty one.
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
  // How many slots it has, 1 to 4096. A board without partial reconfiguration has 1.
  uint32_t slots;
};

// A bitstream: by name, by the SHA-256 of its bytes, or better by both.
struct fpga_hook_bitstream {
  // Accelerator name: at most 128 letters, digits, '.', '_', '-' and '/'; or NULL.
  const char *name;
  // 32 bytes, or NULL.
  const uint8_t *sha256;
};

// A slot that a task holds. It is the caller's memory, filled by fpga_hook_acquire() and ended by fpga_hook_release();
// its content is private. It may be forgotten: an acquired slot that is never released is never reported.
struct fpga_hook_hold {
  uint64_t private_words[40];
};

// What changes on a device.
struct fpga_hook_status {
  // What its slots hold now, loaded_count entries, each with its sha256; at most 48.
  const struct fpga_hook_bitstream *loaded;
  // Entries of loaded.
  size_t loaded_count;
  // Tasks that wait for a slot.
  uint32_t queued;
  // 0 when the board does not answer, so that no pod should be placed for it.
  int healthy;
};

// What a hook has done so far.
struct fpga_hook_stats {
  // Events that wait to be acknowledged.
  uint64_t queued;
  // Reports that found the queue full and went into a sum.
  uint64_t merged;
  // Events acknowledged by the collector; a sum is one.
  uint64_t sent;
  // Requests that failed and were tried again.
  uint64_t retries;
  // Events that the collector refused for what they say.
  uint64_t refused;
  // Progress of running tasks that was left out; their ends carry the whole time.
  uint64_t progress_skipped;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Starts reporting for a device to the collector at endpoint, "http://HOST:PORT" or "unix:/ABSOLUTE/PATH", which need
// not be there yet. Gives a handle through hook. The device is taken for healthy and empty until
// fpga_hook_device_status() says otherwise.
int fpga_hook_start(const char *endpoint,
                    const struct fpga_hook_device *device,
                    struct fpga_hook **hook);

// The same with the token that a collector asks for which listens on the network (its --token-file): the path of a file
// with one line, read whenever it is shown, so that it may come late and change. Over a unix socket none is shown.
int fpga_hook_start_with_token(const char *endpoint,
                               const char *token_file,
                               const struct fpga_hook_device *device,
                               struct fpga_hook **hook);

// A task has got the slot and runs; its time counts from here. tenant may be NULL.
int fpga_hook_acquire(const struct fpga_hook *hook,
                      uint32_t slot,
                      const struct fpga_hook_bitstream *bitstream,
                      const char *tenant,
                      struct fpga_hook_hold *hold);

// The task has released the slot: reports it with the time since it was acquired. A second release is refused with
// -ENOENT.
int fpga_hook_release(const struct fpga_hook *hook,
                      struct fpga_hook_hold *hold);

// The task still runs: reports its time so far, which its next progress or its release replaces. For tasks of many
// seconds, about once a second.
int fpga_hook_progress(const struct fpga_hook *hook,
                       const struct fpga_hook_hold *hold);

// A task has ended that held the slot for so long by a clock of yours, for example the device's. tenant may be NULL.
int fpga_hook_task_ended(const struct fpga_hook *hook,
                         uint32_t slot,
                         const struct fpga_hook_bitstream *bitstream,
                         const char *tenant,
                         uint64_t duration_ns);

// The slot has been loaded with the bitstream, which took so long. A task holds its slot while it is loaded for it:
// acquire before.
int fpga_hook_reconfigured(const struct fpga_hook *hook,
                           uint32_t slot,
                           const struct fpga_hook_bitstream *bitstream,
                           uint64_t duration_ns);

// What the device holds, how many tasks wait or its health has changed. The newest one wins, and is repeated to a
// collector that comes back.
int fpga_hook_device_status(const struct fpga_hook *hook,
                            const struct fpga_hook_status *status);

// Waits until the collector has acknowledged all that was reported before the call; -ETIMEDOUT if it does not in time.
int fpga_hook_flush(const struct fpga_hook *hook,
                    uint64_t timeout_ms);

// What the hook has done so far.
int fpga_hook_stats(const struct fpga_hook *hook, struct fpga_hook_stats *stats);

// Says that the device is gone, waits at most so long for the collector to acknowledge everything (else -ETIMEDOUT),
// and frees the handle in either case: no other call with it may be under way or follow. NULL is allowed. In a forked
// child it does nothing but return -ECHILD.
//
// A process may as well exit without it: what was not acknowledged is lost, and the collector takes the device for
// unhealthy once it has not heard of it for a while.
int fpga_hook_stop(struct fpga_hook *hook,
                   uint64_t timeout_ms);

// What the last failure on this thread was, in words; empty before the first. The text stays until the thread's next
// failure.
const char *fpga_hook_last_error(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FPGA_HOOK_H */
