/* A client that has done something and then does nothing: who pays for it? */
#include "program.h"
#include <dirent.h>

static const char USAGE[] =
    "usage: idle [--seconds N]\n"
    "Launches a kernel, then sleeps N seconds (default 5) with everything open, and prints one line of JSON: wake-ups and\n"
    "milliseconds of processor time of this process (own) while it slept, and of the other children of its parent (others),\n"
    "among which the device manager is that `fpga-device-manager exec` starts.\n"
    "A wake-up is a voluntary context switch of any thread; the one of the sleep itself is left out.\n";

struct cost {
    double wake_ups, processor_ms;
};

static double number_in(const char *path, const char *before)
{
    char line[256];
    double number = 0;
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, before, strlen(before)) == 0) {
            number = strtod(line + strlen(before), NULL);
            break;
        }
    if (file != NULL)
        fclose(file);
    return number;
}

/* Of this process, exactly: to read the files below takes time, too. */
static double own_processor_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Of all threads of a process since their start. */
static struct cost cost_of(long process)
{
    char path[512];
    snprintf(path, sizeof path, "/proc/%ld/task", process);
    DIR *threads = opendir(path);
    struct cost sum = { 0, 0 };
    for (struct dirent *thread; threads != NULL && (thread = readdir(threads)) != NULL;) {
        if (thread->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "/proc/%ld/task/%s/schedstat", process, thread->d_name);
        sum.processor_ms += number_in(path, "") / 1e6;
        snprintf(path, sizeof path, "/proc/%ld/task/%s/status", process, thread->d_name);
        sum.wake_ups += number_in(path, "voluntary_ctxt_switches:");
    }
    if (threads != NULL)
        closedir(threads);
    return sum;
}

static struct cost cost_of_others(void)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)getppid(), (int)getppid());
    FILE *file = fopen(path, "r");
    struct cost sum = { 0, 0 };
    for (long child; file != NULL && fscanf(file, "%ld", &child) == 1;) {
        if (child == (long)getpid())
            continue;
        struct cost cost = cost_of(child);
        sum.wake_ups += cost.wake_ups;
        sum.processor_ms += cost.processor_ms;
    }
    if (file != NULL)
        fclose(file);
    return sum;
}

static struct cost less(struct cost after, struct cost before)
{
    return (struct cost){ after.wake_ups - before.wake_ups, after.processor_ms - before.processor_ms };
}

int main(int argc, char **argv)
{
    unsigned long seconds = 5;
    const struct option_spec options[] = { { "--seconds", &seconds, NULL } };
    OPTIONS(argc, argv, USAGE, options);

    struct device d = open_device(0);
    cl_program program = build(&d, "kernel void nothing(void) {}\n");
    cl_kernel kernel = kernel_of(program, "nothing");
    size_t one = 1;
    for (int i = 0; i < 10; i++) {
        CHECK(clEnqueueNDRangeKernel, d.queue, kernel, 1, NULL, &one, &one, 0, NULL, NULL);
        CHECK(clFinish, d.queue);
    }
    /* What follows a launch, in the background. */
    usleep(300000);
    struct cost own = cost_of(getpid()), others = cost_of_others();
    own.processor_ms = own_processor_ms();
    struct timespec left = { .tv_sec = (time_t)seconds };
    while (nanosleep(&left, &left) != 0)
        ;
    double own_ms = own_processor_ms() - own.processor_ms;
    others = less(cost_of_others(), others);
    own = less(cost_of(getpid()), own);
    own.processor_ms = own_ms;
    own.wake_ups -= 1;
    printf("{\"program\":\"idle\",\"device\":\"%s\",\"seconds\":%lu,\"own_wake_ups\":%.0f,\"others_wake_ups\":%.0f,"
           "\"wake_ups\":%.0f,\"own_ms\":%.3f,\"others_ms\":%.3f,\"processor_ms\":%.3f}\n",
           d.name, seconds, own.wake_ups, others.wake_ups, own.wake_ups + others.wake_ups, own.processor_ms,
           others.processor_ms, own.processor_ms + others.processor_ms);
    CHECK(clReleaseKernel, kernel);
    CHECK(clReleaseProgram, program);
    close_device(&d);
    return 0;
}
