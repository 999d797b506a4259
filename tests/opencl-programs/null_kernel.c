/* What a kernel launch costs: enqueue + finish one by one, or many launches per flush (--pipelined). */
#include "program.h"

static const char USAGE[] =
    "usage: null_kernel [--iterations N] [--warmup N] [--pipelined [--batch N]]\n"
    "Launches a kernel that does nothing and prints one line of JSON.\n"
    "  --iterations N  launches to measure (default 2000)\n"
    "  --warmup N      launches before that (default 200)\n"
    "  --pipelined     N launches, then one flush, and one finish at the end of every 10 flushes:\n"
    "                  the time is that of one launch\n"
    "  --batch N       launches per flush (default 100)\n";

enum { FLUSHES = 10 };

static void launch(struct device *d, cl_kernel kernel)
{
    size_t one = 1;
    CHECK(clEnqueueNDRangeKernel, d->queue, kernel, 1, NULL, &one, &one, 0, NULL, NULL);
}

/* Microseconds of one launch. */
static double pipelined(struct device *d, cl_kernel kernel, unsigned long batch)
{
    double start = now_us();
    for (int flush = 0; flush < FLUSHES; flush++) {
        for (unsigned long i = 0; i < batch; i++)
            launch(d, kernel);
        CHECK(clFlush, d->queue);
    }
    CHECK(clFinish, d->queue);
    return (now_us() - start) / (double)(FLUSHES * batch);
}

static double one_by_one(struct device *d, cl_kernel kernel)
{
    double start = now_us();
    launch(d, kernel);
    CHECK(clFinish, d->queue);
    return now_us() - start;
}

int main(int argc, char **argv)
{
    unsigned long iterations = 2000, warmup = 200, batch = 100;
    bool in_batches = false;
    const struct option_spec options[] = {
        { "--iterations", &iterations, NULL },
        { "--warmup", &warmup, NULL },
        { "--batch", &batch, NULL },
        { "--pipelined", NULL, &in_batches },
    };
    OPTIONS(argc, argv, USAGE, options);
    if (iterations > 10000000 || batch > 100000)
        usage(USAGE, EXIT_USAGE);

    struct device d = open_device(0);
    cl_program program = build(&d, "kernel void nothing(void) {}\n");
    cl_kernel kernel = kernel_of(program, "nothing");
    for (unsigned long i = 0; i < warmup; i++)
        launch(&d, kernel);
    CHECK(clFinish, d.queue);

    size_t count = iterations;
    if (in_batches)
        count = (iterations + FLUSHES * batch - 1) / (FLUSHES * batch);
    double *samples = calloc(count, sizeof *samples);
    EXPECT(samples != NULL, "out of memory");
    for (size_t i = 0; i < count; i++)
        samples[i] = in_batches ? pipelined(&d, kernel, batch) : one_by_one(&d, kernel);

    printf("{\"program\":\"null_kernel\",\"mode\":\"%s\",\"device\":\"%s\",\"samples\":%zu,\"p50_us\":%.2f,\"p99_us\":%.2f}\n",
           in_batches ? "pipelined" : "finish", d.name, count, percentile(samples, count, 50),
           percentile(samples, count, 99));
    free(samples);
    CHECK(clReleaseKernel, kernel);
    CHECK(clReleaseProgram, program);
    close_device(&d);
    return 0;
}
