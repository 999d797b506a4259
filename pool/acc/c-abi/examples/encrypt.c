/* Encrypts the standard input with AES-256 on any board of the pool, and writes to the standard output.
 *
 *   cc encrypt.c $(pkg-config --cflags --libs fpga_acc) -o encrypt
 *   FPGA_POOL=HOST:PORT ./encrypt KEY_FILE <plain >secret
 *
 * KEY_FILE has 32 bytes. The counter begins at 0. */
#include <acc.h>
#include <stdio.h>

static int failed(const char *what) {
  fprintf(stderr, "%s: %s\n", what, acc_last_error());
  return 1;
}

int main(int argc, char **argv) {
  unsigned char key[32];
  const unsigned char counter[16] = {0};
  FILE *file = argc == 2 ? fopen(argv[1], "rb") : NULL;
  if (file == NULL || fread(key, 1, sizeof key, file) != sizeof key) {
    fprintf(stderr, "usage: %s KEY_FILE, with a key of 32 bytes\n", argv[0]);
    return 2;
  }
  fclose(file);
  const struct acc_argument arguments[] = {
      {"key", key, sizeof key},
      {"counter", counter, sizeof counter},
  };
  /* The pool orders jobs by their size; a stream may be of another length. */
  struct acc_job *job;
  if (acc_open("aes-256-ctr", 64000000, arguments, 2, 60000, &job) < 0) {
    return failed("no slot");
  }
  if (acc_stream_descriptors(job, 0, 1, -1) < 0) {
    failed("the stream");
    acc_close(job);
    return 1;
  }
  return acc_close(job) < 0 ? failed("the end") : 0;
}
