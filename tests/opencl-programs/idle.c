/* A client that has done something and then does nothing: who pays for it? */
#include "program.h"
#include <dirent.h>

static const char USAGE[] = "usage: idle [--seconds N]\n"
                            "Launches a kernel, then sleeps N seconds (default 5) with everything open, and prints one line of\n"
                            "JSON: milliseconds of processor time that this process took while it slept, and that the other children\n"
                            "of its parent did, among which the device manager is that `fpga-device-manager exec` starts.\n";

static double processor_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Of all threads of a process. */
static double milliseconds_of(long process)
{
    char path[512];
    snprintf(path, sizeof path, "/proc/%ld/task", process);
    DIR *threads = opendir(path);
    double sum = 0;
    for (struct dirent *thread; threads != NULL && (thread = readdir(threads)) != NULL;) {
        snprintf(path, sizeof path, "/proc/%ld/task/%s/schedstat", process, thread->d_name);
        FILE *file = fopen(path, "r");
        double nanoseconds = 0;
        if (file != NULL && fscanf(file, "%lf", &nanoseconds) == 1)
            sum += nanoseconds / 1e6;
        if (file != NULL)
            fclose(file);
    }
    if (threads != NULL)
        closedir(threads);
    return sum;
}

static double siblings_ms(void)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)getppid(), (int)getppid());
    FILE *file = fopen(path, "r");
    double sum = 0;
    for (long child; file != NULL && fscanf(file, "%ld", &child) == 1;)
        if (child != (long)getpid())
            sum += milliseconds_of(child);
    if (file != NULL)
        fclose(file);
    return sum;
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
    double before = processor_ms(), others = siblings_ms();
    struct timespec left = { .tv_sec = (time_t)seconds };
    while (nanosleep(&left, &left) != 0)
        ;
    double own = processor_ms() - before;
    others = siblings_ms() - others;
    printf("{\"program\":\"idle\",\"device\":\"%s\",\"seconds\":%lu,\"own_ms\":%.3f,\"others_ms\":%.3f,\"processor_ms\":%.3f}\n",
           d.name, seconds, own, others, own + others);
    CHECK(clReleaseKernel, kernel);
    CHECK(clReleaseProgram, program);
    close_device(&d);
    return 0;
}
