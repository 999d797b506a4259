/* The hook as a runtime in C uses it. The first argument says what to do, the second is the collector's endpoint.
 * Ends with 0, or with 1 and a line on stderr. */
#include "fpga_hook.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EXPECT(condition)                                                                                 \
    do {                                                                                                  \
        if (!(condition)) {                                                                               \
            fprintf(stderr, "%s:%d: %s; last error: %s\n", __FILE__, __LINE__, #condition,                \
                    fpga_hook_last_error());                                                              \
            exit(1);                                                                                      \
        }                                                                                                 \
    } while (0)

static const uint8_t SHA256[32] = { 0xab, 0xcd, 1, 2, 3 };
static const struct fpga_hook_bitstream SOBEL = { .name = "sobel", .sha256 = SHA256 };
static const struct fpga_hook_bitstream MATMUL = { .name = "matmul", .sha256 = NULL };

static struct fpga_hook *start(const char *endpoint)
{
    const struct fpga_hook_device device = { .id = "board0", .vendor = "acme", .board = "a10", .slots = 2 };
    struct fpga_hook *hook = NULL;
    EXPECT(fpga_hook_start(endpoint, &device, &hook) == 0);
    EXPECT(hook != NULL);
    return hook;
}

static void sleep_ms(long ms)
{
    const struct timespec pause = { ms / 1000, ms % 1000 * 1000000 };
    nanosleep(&pause, NULL);
}

/* All that a runtime does, 100 ms of it by our clock and 250 ms by the device's, and 40 ms of reconfiguration. */
static void report(struct fpga_hook *hook)
{
    struct fpga_hook_hold hold;
    struct fpga_hook_stats stats;
    EXPECT(fpga_hook_reconfigured(hook, 0, &SOBEL, 40 * 1000000) == 0);
    EXPECT(fpga_hook_acquire(hook, 0, &SOBEL, "pod-1", &hold) == 0);
    sleep_ms(60);
    EXPECT(fpga_hook_progress(hook, &hold) == 0);
    sleep_ms(40);
    EXPECT(fpga_hook_release(hook, &hold) == 0);
    EXPECT(fpga_hook_release(hook, &hold) == -ENOENT);
    EXPECT(fpga_hook_task_ended(hook, 1, &MATMUL, NULL, 250 * 1000000) == 0);
    const struct fpga_hook_bitstream loaded[1] = { SOBEL };
    const struct fpga_hook_status status = { .loaded = loaded, .loaded_count = 1, .queued = 3, .healthy = 1 };
    EXPECT(fpga_hook_device_status(hook, &status) == 0);
    EXPECT(fpga_hook_flush(hook, 30000) == 0);
    EXPECT(fpga_hook_stats(hook, &stats) == 0);
    EXPECT(stats.queued == 0 && stats.merged == 0 && stats.refused == 0 && stats.sent == 4);
}

/* Nothing that can be told from right use does harm. */
static void misuse(const char *endpoint)
{
    struct fpga_hook *hook = NULL;
    struct fpga_hook_device device = { .id = "board0", .vendor = "acme", .slots = 2 };
    struct fpga_hook_hold hold;
    EXPECT(fpga_hook_last_error()[0] == '\0');
    EXPECT(fpga_hook_start(NULL, &device, &hook) == -EINVAL);
    EXPECT(fpga_hook_start("nonsense", &device, &hook) == -EINVAL);
    EXPECT(strstr(fpga_hook_last_error(), "http://HOST:PORT") != NULL);
    EXPECT(fpga_hook_start(endpoint, NULL, &hook) == -EINVAL);
    EXPECT(fpga_hook_start(endpoint, &device, NULL) == -EINVAL);
    device.slots = 0;
    EXPECT(fpga_hook_start(endpoint, &device, &hook) == -EINVAL);
    device.slots = 2;
    device.id = "no/slashes";
    EXPECT(fpga_hook_start(endpoint, &device, &hook) == -EINVAL);
    EXPECT(hook == NULL);

    hook = start(endpoint);
    const struct fpga_hook_bitstream none = { NULL, NULL }, odd = { "so bel", NULL };
    char endless[200];
    memset(endless, 'x', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    const struct fpga_hook_bitstream too_long = { endless, NULL };
    EXPECT(fpga_hook_acquire(NULL, 0, &SOBEL, NULL, &hold) == -EINVAL);
    EXPECT(fpga_hook_acquire(hook, 2, &SOBEL, NULL, &hold) == -EINVAL);
    EXPECT(fpga_hook_acquire(hook, 0, NULL, NULL, &hold) == -EINVAL);
    EXPECT(fpga_hook_acquire(hook, 0, &none, NULL, &hold) == -EINVAL);
    EXPECT(fpga_hook_acquire(hook, 0, &odd, NULL, &hold) == -EINVAL);
    EXPECT(fpga_hook_acquire(hook, 0, &too_long, NULL, &hold) == -ENAMETOOLONG);
    EXPECT(fpga_hook_acquire(hook, 0, &SOBEL, "\xff", &hold) == -EINVAL);
    EXPECT(fpga_hook_acquire(hook, 0, &SOBEL, NULL, NULL) == -EINVAL);
    memset(&hold, 0x5a, sizeof hold);
    EXPECT(fpga_hook_release(hook, &hold) == -ENOENT);
    EXPECT(fpga_hook_progress(hook, &hold) == -ENOENT);
    EXPECT(fpga_hook_release(hook, NULL) == -EINVAL);
    const struct fpga_hook_status lies = { .loaded = NULL, .loaded_count = 1, .healthy = 1 };
    EXPECT(fpga_hook_device_status(hook, &lies) == -EINVAL);
    EXPECT(fpga_hook_device_status(hook, NULL) == -EINVAL);
    EXPECT(fpga_hook_stats(hook, NULL) == -EINVAL);
    EXPECT(fpga_hook_flush(NULL, 0) == -EINVAL);
    EXPECT(fpga_hook_stop(NULL, 0) == 0);
    EXPECT(fpga_hook_stop(hook, 30000) == 0);
}

/* The child can't use the parent's handle, not even to harm it, and can have its own. */
static void in_a_fork(const char *endpoint)
{
    struct fpga_hook *hook = start(endpoint);
    struct fpga_hook_hold hold;
    EXPECT(fpga_hook_acquire(hook, 0, &SOBEL, NULL, &hold) == 0);
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        EXPECT(fpga_hook_release(hook, &hold) == -ECHILD);
        EXPECT(fpga_hook_flush(hook, 30000) == -ECHILD);
        EXPECT(fpga_hook_stop(hook, 30000) == -ECHILD);
        struct fpga_hook *own = start(endpoint);
        EXPECT(fpga_hook_task_ended(own, 0, &MATMUL, NULL, 100 * 1000000) == 0);
        EXPECT(fpga_hook_stop(own, 30000) == 0);
        exit(0);
    }
    int status = -1;
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    report(hook);
    EXPECT(fpga_hook_stop(hook, 30000) == 0);
}

int main(int argc, char **argv)
{
    EXPECT(argc == 3);
    alarm(120);
    if (strcmp(argv[1], "report") == 0) {
        /* And is then gone without a word. */
        report(start(argv[2]));
    } else if (strcmp(argv[1], "token") == 0) {
        /* The collector asks for one: without, nothing gets through; with it, everything. */
        struct fpga_hook *hook = start(argv[2]);
        EXPECT(fpga_hook_task_ended(hook, 1, &MATMUL, NULL, 250 * 1000000) == 0);
        EXPECT(fpga_hook_flush(hook, 200) == -ETIMEDOUT);
        EXPECT(fpga_hook_stop(hook, 0) == -ETIMEDOUT);
        const struct fpga_hook_device device = { .id = "board0", .vendor = "acme", .board = "a10", .slots = 2 };
        EXPECT(fpga_hook_start_with_token(argv[2], getenv("TOKEN_FILE"), &device, &hook) == 0);
        report(hook);
    } else if (strcmp(argv[1], "misuse") == 0) {
        misuse(argv[2]);
    } else if (strcmp(argv[1], "fork") == 0) {
        in_a_fork(argv[2]);
    } else if (strcmp(argv[1], "nobody") == 0) {
        struct fpga_hook *hook = start(argv[2]);
        EXPECT(fpga_hook_task_ended(hook, 0, &MATMUL, NULL, 1) == 0);
        EXPECT(fpga_hook_flush(hook, 50) == -ETIMEDOUT);
        EXPECT(fpga_hook_stop(hook, 50) == -ETIMEDOUT);
    } else {
        return 2;
    }
    return 0;
}
