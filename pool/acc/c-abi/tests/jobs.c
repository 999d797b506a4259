/* Jobs and groups by the C library: each subcommand is a case; it prints nothing and returns 0 if all is as it should be.
 */
#include <acc.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition)                                                                                     \
  do {                                                                                                       \
    if (!(condition)) {                                                                                      \
      fprintf(stderr, "line %d: not so: %s; last error: %s\n", __LINE__, #condition, acc_last_error());       \
      exit(1);                                                                                               \
    }                                                                                                        \
  } while (0)

enum { LIMIT_MS = 60000 };

static const unsigned char KEY[32] = {1, 2, 3};
static const unsigned char COUNTER[16] = {4, 5, 6};
static const struct acc_argument AES[] = {{"key", KEY, sizeof KEY}, {"counter", COUNTER, sizeof COUNTER}};

static unsigned char *bytes(size_t count) {
  unsigned char *made = malloc(count);
  CHECK(made != NULL);
  uint32_t state = 7;
  for (size_t at = 0; at < count; at++) {
    state = state * 1664525 + 1013904223;
    made[at] = (unsigned char)(state >> 24);
  }
  return made;
}

static struct acc_job *open_aes(uint64_t workload) {
  struct acc_job *job;
  CHECK(acc_open("aes-256-ctr", workload, AES, 2, LIMIT_MS, &job) == 0);
  return job;
}

/* What was encrypted in pieces by runs is decrypted by a stream. */
static void runs_and_streams(void) {
  const size_t count = 9000005;
  unsigned char *plain = bytes(count), *secret = malloc(count), *again = malloc(count);
  struct acc_job *job = open_aes(count);
  for (size_t at = 0; at < count;) {
    void *input;
    const void *output;
    size_t room, came;
    CHECK(acc_input(job, &input, &room) == 0 && room == 4000000);
    size_t piece = count - at < room ? count - at : room;
    memcpy(input, plain + at, piece);
    CHECK(acc_run(job, piece, LIMIT_MS) == 0);
    CHECK(acc_output(job, &output, &came) == 0 && came == piece);
    memcpy(secret + at, output, came);
    at += piece;
  }
  CHECK(acc_run(job, 1, LIMIT_MS) == ACC_E_DONE);
  CHECK(acc_close(job) == 0);
  CHECK(memcmp(plain, secret, count) != 0);
  job = open_aes(count);
  CHECK(acc_stream(job, secret, count, again, count, LIMIT_MS) == 0);
  struct acc_status status;
  CHECK(acc_status(job, &status) == 0);
  CHECK(status.input_bytes == count && status.output_bytes == count && status.slots == 1);
  CHECK(acc_close(job) == 0);
  CHECK(memcmp(plain, again, count) == 0);
  free(plain);
  free(secret);
  free(again);
}

/* Everything without a call that waits, by the descriptor. */
static void poll_until_over(struct acc_job *job) {
  for (;;) {
    int code = acc_poll(job);
    if (code != ACC_PENDING) {
      CHECK(code == 0);
      return;
    }
    struct pollfd ready = {acc_descriptor(job), POLLIN, 0};
    CHECK(poll(&ready, 1, LIMIT_MS) == 1);
  }
}

static void polls(void) {
  struct acc_job *job;
  CHECK(acc_start_open("sha-256", 3, NULL, 0, &job) == 0);
  poll_until_over(job);
  void *input;
  const void *hash;
  size_t room, came;
  CHECK(acc_input(job, &input, &room) == 0 && room == 3);
  memcpy(input, "abc", 3);
  CHECK(acc_start_run(job, 3) == 0);
  poll_until_over(job);
  CHECK(acc_output(job, &hash, &came) == 0 && came == 32);
  CHECK(memcmp(hash, "\xba\x78\x16\xbf\x8f\x01\xcf\xea", 8) == 0);
  CHECK(acc_close(job) == 0);
}

static void misuse(void) {
  struct acc_job *job = (struct acc_job *)1;
  CHECK(acc_open(NULL, 1, NULL, 0, 0, &job) == ACC_E_INVALID && job == NULL);
  CHECK(acc_open("sha-256", 1, NULL, 0, 0, NULL) == ACC_E_INVALID);
  CHECK(acc_open("sha-256", 1, NULL, 3, 0, &job) == ACC_E_INVALID);
  CHECK(acc_open("sobel", 1, NULL, 0, LIMIT_MS, &job) == ACC_E_ACCELERATOR);
  CHECK(strstr(acc_last_error(), "sobel") != NULL);
  CHECK(acc_open("aes-256-ctr", 1, AES, 1, LIMIT_MS, &job) == ACC_E_ARGUMENT);
  CHECK(acc_wait(NULL, 0) == ACC_E_INVALID && acc_close(NULL) == 0 && acc_group_close(NULL, 0) == 0);
  job = open_aes(32);
  CHECK(acc_run(job, 33, LIMIT_MS) == ACC_E_SIZE);
  CHECK(acc_run(job, 17, LIMIT_MS) == ACC_E_BLOCK);
  CHECK(acc_output(job, NULL, NULL) == ACC_E_INVALID);
  CHECK(acc_run(job, 32, LIMIT_MS) == 0);
  CHECK(acc_close(job) == 0);
  job = open_aes(64);
  unsigned char few[8], input[64] = {0};
  CHECK(acc_stream(job, input, sizeof input, few, sizeof few, LIMIT_MS) == ACC_E_SIZE);
  CHECK(acc_close(job) == 0);
}

/* Two slots are had together, or not at all. */
static void together(void) {
  struct acc_job *jobs[3] = {NULL, NULL, NULL};
  CHECK(acc_open_many("sha-256", 3, NULL, 0, LIMIT_MS, jobs, 0) == ACC_E_INVALID);
  CHECK(acc_open_many("sha-256", 3, NULL, 0, LIMIT_MS, NULL, 2) == ACC_E_INVALID);
  CHECK(acc_open_many("sobel", 3, NULL, 0, LIMIT_MS, jobs, 2) == ACC_E_ACCELERATOR && jobs[0] == NULL);
  jobs[2] = (struct acc_job *)1;
  CHECK(acc_open_many("sha-256", 3, NULL, 0, 300, jobs, 3) == ACC_E_TIMEOUT && jobs[2] == NULL);
  CHECK(acc_open_many("sha-256", 3, NULL, 0, LIMIT_MS, jobs, 2) == 0);
  struct acc_job *others[2];
  CHECK(acc_start_open_many("sha-256", 3, NULL, 0, others, 2) == 0);
  CHECK(acc_close(jobs[0]) == 0);
  CHECK(acc_wait(others[0], 100) == ACC_E_TIMEOUT && acc_wait(others[1], 0) == ACC_E_TIMEOUT);
  CHECK(acc_close(jobs[1]) == 0);
  for (int at = 0; at < 2; at++) {
    void *input;
    const void *hash;
    size_t room, came;
    CHECK(acc_wait(others[at], LIMIT_MS) == 0 && acc_input(others[at], &input, &room) == 0);
    memcpy(input, "abc", 3);
    CHECK(acc_run(others[at], 3, LIMIT_MS) == 0 && acc_output(others[at], &hash, &came) == 0);
    CHECK(came == 32 && memcmp(hash, "\xba\x78\x16\xbf\x8f\x01\xcf\xea", 8) == 0);
    CHECK(acc_close(others[at]) == 0);
  }
}

static void *cancel_soon(void *job) {
  struct timespec soon = {0, 50000000};
  nanosleep(&soon, NULL);
  CHECK(acc_cancel(job) == 0);
  return NULL;
}

/* The only slot is held: another job waits, says why, and is given up by another thread. */
static void waits(void) {
  struct acc_job *holder = open_aes(16), *job;
  CHECK(acc_open("sha-256", 5, NULL, 0, 50, &job) == ACC_E_TIMEOUT && job == NULL);
  CHECK(acc_start_open("sha-256", 5, NULL, 0, &job) == 0);
  struct acc_status status;
  do {
    CHECK(acc_wait(job, 20) == ACC_E_TIMEOUT);
    CHECK(acc_status(job, &status) == 0 && status.state == ACC_WAITING);
  } while (strstr(status.reason, "slot") == NULL);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, cancel_soon, job) == 0);
  CHECK(acc_wait(job, -1) == ACC_E_CANCELLED);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(acc_run(job, 0, 0) == ACC_E_CANCELLED);
  CHECK(acc_close(job) == 0 && acc_close(holder) == 0);
}

static atomic_int released;

static void release(void *data) {
  (void)data;
  released++;
}

static int invert(const struct acc_chunk *chunk, void *data) {
  const unsigned char *input = chunk->input;
  unsigned char *output = chunk->output;
  CHECK(chunk->argument_bytes == 48 && chunk->state_bytes == 8 && chunk->output_bytes == chunk->input_bytes);
  for (size_t at = 0; at < chunk->input_bytes; at++) {
    output[at] = (unsigned char)~input[at];
  }
  *(int *)data += 1;
  return chunk->is_last ? 0 : 7;
}

/* The only slot is held: the processor does the job, by the library's code and by a function of the program. */
static void falls_back(void) {
  const size_t count = 5000005;
  unsigned char *plain = bytes(count), *secret = malloc(count), *again = malloc(count);
  struct acc_job *holder = open_aes(16), *job;
  const struct acc_or_else own_code = {50, NULL, NULL, release};
  CHECK(acc_open_or_else("aes-256-ctr", count, AES, 2, &own_code, LIMIT_MS, &job) == 0);
  struct acc_status status;
  CHECK(acc_status(job, &status) == 0 && status.state == ACC_ON_PROCESSOR);
  CHECK(acc_stream(job, plain, count, secret, count, LIMIT_MS) == 0);
  CHECK(acc_status(job, &status) == 0 && status.processor_bytes == count && status.slots == 0);
  CHECK(acc_close(job) == 0 && acc_close(holder) == 0);
  CHECK(memcmp(plain, secret, count) != 0);
  job = open_aes(count);
  CHECK(acc_stream(job, secret, count, again, count, LIMIT_MS) == 0);
  CHECK(acc_status(job, &status) == 0 && status.processor_bytes == 0 && status.slots == 1);
  CHECK(memcmp(plain, again, count) == 0);

  int calls = 0;
  const struct acc_or_else function = {0, invert, &calls, release};
  struct acc_job *other;
  CHECK(acc_start_open_or_else("aes-256-ctr", 20, AES, 2, &function, &other) == 0);
  CHECK(acc_wait(other, LIMIT_MS) == 0);
  CHECK(acc_stream(other, plain, 20, again, 20, LIMIT_MS) == 0 && calls == 1);
  CHECK(again[0] == (unsigned char)~plain[0] && again[19] == (unsigned char)~plain[19]);
  CHECK(acc_close(other) == 0);
  CHECK(acc_open_or_else("aes-256-ctr", count, AES, 2, &function, LIMIT_MS, &other) == 0);
  CHECK(acc_stream(other, plain, count, again, count, LIMIT_MS) == ACC_E_FAILED);
  CHECK(strstr(acc_last_error(), "returned 7") != NULL);
  CHECK(acc_close(other) == 0);
  CHECK(acc_open_or_else(NULL, 1, NULL, 0, &function, 0, &other) == ACC_E_INVALID);
  CHECK(acc_open_or_else("own", 1, NULL, 0, &own_code, 0, &other) == ACC_E_INVALID);
  CHECK(acc_close(job) == 0);
  /* The library's own code and what was invalid included; a thread may still end. */
  struct timespec soon = {0, 1000000};
  for (int waited = 0; released < 5; waited++) {
    CHECK(waited < LIMIT_MS);
    nanosleep(&soon, NULL);
  }
  free(plain);
  free(secret);
  free(again);
}

static void groups(void) {
  enum { ACTIONS = 20, BYTES = 50000 };
  unsigned char *input = bytes(BYTES);
  const struct acc_goal goal = {0, 0, 3600000};
  struct acc_group *group;
  CHECK(acc_group_open("sha-256", NULL, 0, &goal, 2, 1, &group) == ACC_E_INVALID && group == NULL);
  CHECK(acc_group_open("sha-256", NULL, 0, &goal, 0, 1, &group) == 0);
  struct acc_done done;
  CHECK(acc_group_next(group, &done, 0) == ACC_E_DONE);
  for (uint64_t tag = 0; tag < ACTIONS; tag++) {
    CHECK(acc_group_submit(group, tag, input, BYTES, LIMIT_MS) == 0);
  }
  unsigned char seen[ACTIONS] = {0};
  for (int action = 0; action < ACTIONS; action++) {
    struct pollfd ready = {acc_group_descriptor(group), POLLIN, 0};
    int code;
    while ((code = acc_group_next(group, &done, 0)) == ACC_E_TIMEOUT) {
      CHECK(poll(&ready, 1, LIMIT_MS) == 1);
    }
    CHECK(code == 0 && done.code == 0 && done.bytes == 32 && done.tag < ACTIONS && !seen[done.tag]++);
  }
  CHECK(acc_group_wait(group, LIMIT_MS) == 0);
  struct acc_statistics statistics;
  CHECK(acc_group_statistics(group, &statistics) == 0);
  CHECK(statistics.done == ACTIONS && statistics.failed == 0 && statistics.slots == 1);
  CHECK(acc_group_close(group, LIMIT_MS) == 0);
  free(input);
}

/* A child has none of its parent's jobs, and opens its own. */
static void forks(void) {
  struct acc_job *job = open_aes(16);
  pid_t child = fork();
  if (child == 0) {
    CHECK(acc_run(job, 0, 0) == ACC_E_FORKED && acc_close(job) == ACC_E_FORKED);
    struct acc_job *own;
    CHECK(acc_start_open("sha-256", 3, NULL, 0, &own) == 0);
    CHECK(acc_wait(own, 20) == ACC_E_TIMEOUT);
    CHECK(acc_close(own) == 0);
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(acc_run(job, 16, LIMIT_MS) == 0 && acc_close(job) == 0);
}

static void nobody(void) {
  struct acc_job *job;
  const struct acc_config config = {"127.0.0.1:1", NULL, NULL, NULL};
  CHECK(acc_configure(&config) == 0);
  CHECK(acc_open("sha-256", 1, NULL, 0, 300, &job) == ACC_E_TIMEOUT);
  CHECK(strstr(acc_last_error(), "no broker") != NULL);
  CHECK(acc_configure(&config) == ACC_E_BUSY);
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*run)(void);
  } cases[] = {{"runs", runs_and_streams}, {"polls", polls}, {"misuse", misuse}, {"waits", waits},
               {"falls", falls_back},      {"groups", groups}, {"forks", forks}, {"nobody", nobody},
               {"together", together}};
  CHECK(argc == 2);
  for (size_t at = 0; at < sizeof cases / sizeof *cases; at++) {
    if (strcmp(argv[1], cases[at].name) == 0) {
      cases[at].run();
      return 0;
    }
  }
  return 2;
}
