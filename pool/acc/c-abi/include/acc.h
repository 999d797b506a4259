/* acc.h - runs accelerators on any board of a pool.
 *
 * A job needs no board: acc_open() waits until the pool gives it a slot of some board, acc_run() and acc_stream() send
 * its bytes there and bring the output back, acc_close() gives the slot up. A slot that is lost, or that others need,
 * is no error: the job waits for another one, and only what is not done is done again.
 *
 * The environment says where the pool is (FPGA_POOL, FPGA_POOL_TOKEN_FILE, FPGA_POOL_CA, FPGA_NODE_NAME),
 * or acc_configure().
 *
 * Functions return 0 or more, or a negative ACC_E_...; acc_last_error() then has the reason in words. They may be called
 * from any thread, but one job or group by one thread at a time; acc_cancel() and acc_status() are exceptions. A
 * timeout is in milliseconds: 0 does not wait, a negative one has no limit. None of the functions prints, or does
 * anything at exit. After fork() the handles of the parent are inert in the child: functions return
 * ACC_E_FORKED; the child may open jobs of its own.
 *
 * Made by cbindgen; a test compares it with the source. To make it anew:
 *   FPGA_UPDATE_HEADER=1 cargo test -p fpga-acc-c header
 */

#ifndef FPGA_ACC_H
#define FPGA_ACC_H

#include <stddef.h>
#include <stdint.h>

// The operation has not ended yet.
#define ACC_PENDING 1

// A pointer is NULL, or a value is not possible.
#define ACC_E_INVALID -1

// The input is longer than the job takes, or the output longer than its buffer.
#define ACC_E_SIZE -2

// The input ends within a block, and more follows; or the accelerator does not take an input of this length.
#define ACC_E_BLOCK -3

// An argument of the accelerator is missing or wrong.
#define ACC_E_ARGUMENT -4

// Nobody has said what this accelerator takes and gives.
#define ACC_E_ACCELERATOR -5

// The broker gives no slot: none fits, or a quota is used up.
#define ACC_E_REFUSED -6

// A slot was lost in the middle of a step that must not run twice.
#define ACC_E_LOST -7

// The accelerator failed several times in a row.
#define ACC_E_FAILED -8

// The time is over. What was waited for goes on, unless the function says otherwise.
#define ACC_E_TIMEOUT -9

// The job or the group was given up.
#define ACC_E_CANCELLED -10

// The whole workload is done; or the group has no action.
#define ACC_E_DONE -11

// The handle is the parent's.
#define ACC_E_FORKED -12

// A descriptor can't be read or written.
#define ACC_E_IO -13

// The configuration can't be used.
#define ACC_E_CONFIG -14

// The system has no threads, descriptors, or random numbers.
#define ACC_E_SYSTEM -15

// Another operation of the job is under way, or the pool is connected already.
#define ACC_E_BUSY -16

// A bug in the library.
#define ACC_E_BUG -17

// Size of a reason, in bytes, with the final NUL.
#define ACC_REASON_BYTES 256

// Where a job is.
enum acc_state {
  // The job has no slot; the reason says why.
  ACC_WAITING = 0,
  // The job takes a slot.
  ACC_ATTACHING = 1,
  // The job has a slot.
  ACC_RUNNING = 2,
  // The job has ended.
  ACC_ENDED = 3,
  // No slot came in time: the processor of this machine does the job (acc_open_or_else()).
  ACC_ON_PROCESSOR = 4,
};

// A group; made by acc_group_open(), freed by acc_group_close().
struct acc_group;

// A job; made by acc_open() and its like, freed by acc_close().
struct acc_job;

// Where the pool is. NULL stands for what the environment says.
struct acc_config {
  // Addresses of the brokers, HOST:PORT, several by commas.
  const char *brokers;
  // File of the token that proves to the broker who asks; read for each connection.
  const char *token_file;
  // File of the authorities (PEM) of brokers behind https://; read for each connection.
  const char *authorities;
  // Name of the node of this process.
  const char *node;
};

// An argument of an accelerator, such as "key". The library copies the value.
struct acc_argument {
  // Name of the argument.
  const char *name;
  // The value's bytes.
  const void *value;
  // Number of bytes.
  size_t bytes;
};

// A chunk of a job that a function of the program computes. All pointers are valid until the function returns.
struct acc_chunk {
  // The chunk's bytes of the input: whole blocks, but at the end of the input where the accelerator takes a shorter one.
  const void *input;
  // Number of bytes of input.
  size_t input_bytes;
  // The arguments, one after the other in the order of the accelerator's interface.
  const void *arguments;
  // Number of bytes of all arguments.
  size_t argument_bytes;
  // The state that the chunk before has left; zeros for the first chunk.
  const void *state;
  // Where the function writes the state for the next chunk.
  void *next_state;
  // Number of bytes of the state, and of the next one.
  size_t state_bytes;
  // Where the function writes the chunk's output.
  void *output;
  // Number of bytes of output.
  size_t output_bytes;
  // 1 if the input ends with this chunk.
  int is_last;
};

// Who does a job, or the rest of it, for which no slot comes in time.
struct acc_or_else {
  // Milliseconds for which the job waits for a slot before, for its first one and after each loss. If the broker gives no
  // slot, the job waits no longer.
  uint64_t after_ms;
  // Computes a chunk. Returns 0, or another number with which the job ends (ACC_E_FAILED). The library calls it on a
  // thread of its own, for one chunk after the other. NULL: the library's own code of the accelerators that are shipped.
  int (*compute)(const struct acc_chunk *chunk, void *data);
  // Handed to compute and release.
  void *data;
  // Called once, on any thread, when compute is not called any more, which may be after acc_close(), since a call that
  // has begun ends; also if the job can't be opened. NULL: nothing is to be done then.
  void (*release)(void *data);
};

// How far a job is.
struct acc_status {
  // Where the job is.
  enum acc_state state;
  // Number of slots that the job has had so far.
  uint32_t slots;
  // Bytes of the input that are done.
  uint64_t input_bytes;
  // Bytes of output that are there.
  uint64_t output_bytes;
  // Bytes of the input that the processor of this machine did; 0 unless no slot came in time.
  uint64_t processor_bytes;
  // Why the job waits, for people; empty if it does not.
  char reason[ACC_REASON_BYTES];
};

// What a group is to reach: a deadline, if actions is not 0, or else a throughput.
struct acc_goal {
  // Deadline: number of actions that are to be done; else 0.
  uint64_t actions;
  // Deadline: time for these actions, in milliseconds from the moment at which the broker first hears of the group.
  uint64_t within_ms;
  // Throughput: actions per hour.
  uint64_t actions_per_hour;
};

// An action that has ended.
struct acc_done {
  // What acc_group_submit() was given.
  uint64_t tag;
  // 0, or the ACC_E_... of the action; acc_last_error() then has the reason.
  int code;
  // The output; it stays valid until the next acc_group_next() of the group.
  const void *output;
  // Number of bytes of output.
  size_t bytes;
};

// How far a group is, and whether it will reach its goal.
struct acc_statistics {
  // Milliseconds since the broker first heard of the group.
  uint64_t elapsed_ms;
  // Actions that wait for a slot.
  uint64_t waiting;
  // Actions that were sent to a slot and have not ended.
  uint64_t under_way;
  // Actions whose output is there.
  uint64_t done;
  // Actions that ended with an error, or were given up.
  uint64_t failed;
  // How often an action was sent again.
  uint64_t repeated;
  // Slots that were lost without being asked.
  uint64_t lost_slots;
  // Bytes of the input of actions that are done.
  uint64_t input_bytes;
  // Bytes of their output.
  uint64_t output_bytes;
  // Slots that the group has.
  uint32_t slots;
  // 1 if there is a forecast; else the next three are 0.
  int has_forecast;
  // 1 if the group reaches its goal by the forecast.
  int reaches_goal;
  // Deadline: milliseconds from the group's start after which its actions are done.
  uint64_t forecast_ms;
  // Throughput: actions per hour if actions always wait.
  uint64_t forecast_actions_per_hour;
  // Why the group has no more slots, for people.
  char reason[ACC_REASON_BYTES];
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Says where the pool is, in place of the environment, before the first job or group of the process.
int acc_configure(const struct acc_config *config);

// Opens a job over workload_bytes of input (P-1) and waits until it has a slot; stores a handle in *job. After the
// timeout the job is given up and *job is NULL.
int acc_open(const char *accelerator,
             uint64_t workload_bytes,
             const struct acc_argument *arguments,
             size_t argument_count,
             int64_t timeout_ms,
             struct acc_job **job);

// Like acc_open(), with a fallback: if the job waits for a slot for longer than or_else says, the processor of this machine
// does it, or the rest of it, and the job counts as open. or_else may be NULL.
int acc_open_or_else(const char *accelerator,
                     uint64_t workload_bytes,
                     const struct acc_argument *arguments,
                     size_t argument_count,
                     const struct acc_or_else *or_else,
                     int64_t timeout_ms,
                     struct acc_job **job);

// Opens a job and does not wait: the job has a slot when acc_wait() or acc_poll() return 0.
int acc_start_open(const char *accelerator,
                   uint64_t workload_bytes,
                   const struct acc_argument *arguments,
                   size_t argument_count,
                   struct acc_job **job);

// Like acc_start_open(), with the fallback of acc_open_or_else().
int acc_start_open_or_else(const char *accelerator,
                           uint64_t workload_bytes,
                           const struct acc_argument *arguments,
                           size_t argument_count,
                           const struct acc_or_else *or_else,
                           struct acc_job **job);

// Stores where the program writes the job's input, and how many bytes there is room for, in *buffer and *bytes. The
// buffer is the same for all runs of the job.
int acc_input(const struct acc_job *job,
              void **buffer,
              size_t *bytes);

// Runs the first bytes of the job's input buffer through the accelerator, as the next piece of the job's input. The
// piece that completes the workload is the last one. ACC_E_SIZE if there are more bytes than the buffer takes, or than
// are left of the workload; ACC_E_BLOCK if a piece before the last one ends within a block. These change nothing. After
// the timeout the run goes on: acc_wait() waits for its end.
int acc_run(const struct acc_job *job,
            size_t bytes,
            int64_t timeout_ms);

// Like acc_run(), and does not wait. The input buffer may be filled again at once.
int acc_start_run(const struct acc_job *job, size_t bytes);

// Stores the output of the last run, and its number of bytes, in *output and *bytes. The output stays valid until the
// next operation of the job begins.
int acc_output(const struct acc_job *job,
               const void **output,
               size_t *bytes);

// Waits for the end of the job's operation and returns what it ended with; 0 if there is none. ACC_E_TIMEOUT: it goes
// on.
int acc_wait(const struct acc_job *job,
             int64_t timeout_ms);

// Lets the job's operation go on without waiting: ACC_PENDING, or what the operation ended with. Call it when
// acc_descriptor() is readable.
int acc_poll(const struct acc_job *job);

// A descriptor for poll() that is readable when acc_poll() is to be called. It is the library's: read nothing from it,
// and do not close it.
int acc_descriptor(const struct acc_job *job);

// Stores in *status how far the job is, and why it waits. Any thread may call it at any time.
int acc_status(const struct acc_job *job, struct acc_status *status);

// Gives the job up and returns at once: its operation ends with ACC_E_CANCELLED, also for a thread that waits for it. A
// step that has started on the board ends unseen. Any thread may call it. The handle is still to be closed.
int acc_cancel(const struct acc_job *job);

// Gives the job's slot up and frees the handle: no other call with it may be running or follow. An operation that is
// under way is given up. NULL is allowed. In a forked child it only returns ACC_E_FORKED.
int acc_close(struct acc_job *job);

// The text of the last failure on this thread; empty before the first. It stays valid until the thread's next
// failure.
const char *acc_last_error(void);

// Opens job_count jobs with one accelerator, each over workload_bytes of input, and waits until all have slots: they get
// them at the same time, or none does (P-1). Stores their handles in jobs[0], jobs[1] and so on. Nothing is held for them
// while they wait. From then on they are jobs as all others. ACC_E_INVALID for no job, and for more than 256. After the
// timeout all jobs are given up, and after any error all handles are NULL.
int acc_open_many(const char *accelerator,
                  uint64_t workload_bytes,
                  const struct acc_argument *arguments,
                  size_t argument_count,
                  int64_t timeout_ms,
                  struct acc_job **jobs,
                  uint32_t job_count);

// Like acc_open_many(), and does not wait: each job has a slot when acc_wait() or acc_poll() return 0 for it. If one of
// them is given up or refused before that, all are.
int acc_start_open_many(const char *accelerator,
                        uint64_t workload_bytes,
                        const struct acc_argument *arguments,
                        size_t argument_count,
                        struct acc_job **jobs,
                        uint32_t job_count);

// Runs all of the input, of any length, in pieces of at most 4 MB of which several are under way (P-6), and writes what
// comes out of it to output, in order. acc_status() says how many bytes that are. ACC_E_SIZE if output_bytes is too
// small: the job is over then. After the timeout the stream goes on whenever acc_wait() or acc_poll() are called, and
// uses both buffers until one of them returns another value than ACC_E_TIMEOUT or ACC_PENDING, or acc_close() has
// returned.
int acc_stream(const struct acc_job *job,
               const void *input,
               size_t input_bytes,
               void *output,
               size_t output_bytes,
               int64_t timeout_ms);

// Like acc_stream(), and does not wait.
int acc_start_stream(const struct acc_job *job,
                     const void *input,
                     size_t input_bytes,
                     void *output,
                     size_t output_bytes);

// Stores in *bytes how many bytes of output a stream of so many bytes of input has.
int acc_output_size(const struct acc_job *job, uint64_t input_bytes, uint64_t *bytes);

// Runs what one descriptor yields, until its end, and writes the output to another one. The call returns when all is
// written; a read or a write that blocks is not broken off by the timeout or by acc_cancel(). As for write(), a pipe that
// nobody reads raises SIGPIPE, unless the program ignores it.
int acc_stream_descriptors(const struct acc_job *job,
                           int input,
                           int output,
                           int64_t timeout_ms);

// Opens a group of least to most slots and stores a handle in *group. The call does not wait: a group that the
// pool refuses says so by its actions.
int acc_group_open(const char *accelerator,
                   const struct acc_argument *arguments,
                   size_t argument_count,
                   const struct acc_goal *goal,
                   uint32_t least,
                   uint32_t most,
                   struct acc_group **group);

// Puts an action into the group's queue: bytes of input, which the library copies, and a tag by which
// acc_group_next() names the action. Waits while the group has more than 256 MiB of input; after the timeout the action
// is not in the queue.
int acc_group_submit(const struct acc_group *group,
                     uint64_t tag,
                     const void *input,
                     size_t bytes,
                     int64_t timeout_ms);

// Waits for an action that has ended, in whatever order, and stores it in *done. ACC_E_DONE if all actions that were
// submitted have been stored. One thread at a time.
int acc_group_next(const struct acc_group *group,
                   struct acc_done *done,
                   int64_t timeout_ms);

// A descriptor for poll() that is readable when acc_group_next() may have an action. It is the library's: read nothing
// from it, and do not close it.
int acc_group_descriptor(const struct acc_group *group);

// Stores in *statistics how far the group is, and what it will reach. Any thread may call it at any time.
int acc_group_statistics(const struct acc_group *group, struct acc_statistics *statistics);

// Waits until all actions that were submitted before have ended, whether with output or with an error.
int acc_group_wait(const struct acc_group *group, int64_t timeout_ms);

// Waits until all actions have ended, gives the slots up, and frees the handle: no other call with it may be running or
// follow. After the timeout the group is given up, and the handle is freed as well. NULL is allowed. In a forked child
// it only returns ACC_E_FORKED.
int acc_group_close(struct acc_group *group,
                    int64_t timeout_ms);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FPGA_ACC_H */
