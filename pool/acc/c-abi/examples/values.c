/* Hashes many inputs as a group of actions with a deadline, on as many slots as that takes.
 *
 *   cc values.c $(pkg-config --cflags --libs fpga_acc) -o values
 *   FPGA_POOL=HOST:PORT ./values */
#include <acc.h>
#include <stdio.h>
#include <string.h>

enum { ACTIONS = 200, BYTES = 100000 };

int main(void) {
  static unsigned char input[BYTES];
  /* 200 actions within a minute, on at most 4 slots. */
  const struct acc_goal goal = {ACTIONS, 60000, 0};
  struct acc_group *group;
  if (acc_group_open("sha-256", NULL, 0, &goal, 0, 4, &group) < 0) {
    fprintf(stderr, "no group: %s\n", acc_last_error());
    return 1;
  }
  for (unsigned action = 0; action < ACTIONS; action++) {
    memset(input, (int)action, sizeof input);
    if (acc_group_submit(group, action, input, sizeof input, -1) < 0) {
      fprintf(stderr, "action %u: %s\n", action, acc_last_error());
      return 1;
    }
  }
  struct acc_done done;
  while (acc_group_next(group, &done, -1) == 0) {
    if (done.code < 0) {
      fprintf(stderr, "action %llu: %s\n", (unsigned long long)done.tag, acc_last_error());
      return 1;
    }
    const unsigned char *hash = done.output;
    printf("%llu %02x%02x%02x%02x\n", (unsigned long long)done.tag, hash[0], hash[1], hash[2], hash[3]);
  }
  struct acc_statistics reached;
  acc_group_statistics(group, &reached);
  fprintf(stderr, "%llu actions on up to 4 slots took %llu ms of 60000\n", (unsigned long long)reached.done,
          (unsigned long long)reached.forecast_ms);
  return acc_group_close(group, -1) < 0;
}
