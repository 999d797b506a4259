/* Blocking write and read of small and middling buffers, while nothing else is in the queue. */
#include "program.h"

static const char USAGE[] =
    "usage: transfers [--large] [--iterations N]\n"
    "Writes and reads buffers of several sizes with blocking calls, checks every byte, and prints one line of JSON:\n"
    "bytes_SIZE_p50_us and bytes_SIZE_p99_us, microseconds of one write and one read.\n"
    "  --large         64 KiB, 1 MiB and 4 MiB instead of 64 B, 1 KiB, 4 KiB, 16 KiB and 32 KiB\n"
    "  --iterations N  pairs of each size (default 1000), as far as they are 256 MiB at most, and 32 pairs at least\n";

enum { LEAST = 32, WARM_UP = 16, LARGEST = 4 << 20 };

static const size_t SMALL[] = { 64, 1 << 10, 4 << 10, 16 << 10, 32 << 10 };
static const size_t LARGE[] = { 64 << 10, 1 << 20, LARGEST };
static const size_t MOST_BYTES = 256 << 20;

static double pair(struct device *d, cl_mem mem, size_t size, const void *from, void *into)
{
    double start = now_us();
    CHECK(clEnqueueWriteBuffer, d->queue, mem, CL_TRUE, 0, size, from, 0, NULL, NULL);
    CHECK(clEnqueueReadBuffer, d->queue, mem, CL_TRUE, 0, size, into, 0, NULL, NULL);
    return now_us() - start;
}

static void measure(struct device *d, size_t size, unsigned long iterations, uint64_t *from, void *into)
{
    size_t most = MOST_BYTES / size, count = iterations < most ? iterations : most;
    if (count < LEAST)
        count = LEAST;
    double *samples = calloc(count, sizeof *samples);
    EXPECT(samples != NULL, "out of memory");
    cl_mem mem = buffer_of(d, CL_MEM_READ_WRITE, size, NULL);
    for (size_t i = 0; i < WARM_UP + count; i++) {
        for (size_t at = 0; at < size / sizeof *from; at++)
            from[at] = (at + i) * 0x9e3779b97f4a7c15u;
        double took = pair(d, mem, size, from, into);
        EXPECT(memcmp(from, into, size) == 0, "pair %zu of %zu bytes read other bytes than it wrote", i, size);
        if (i >= WARM_UP)
            samples[i - WARM_UP] = took;
    }
    printf(",\"bytes_%zu_p50_us\":%.2f,\"bytes_%zu_p99_us\":%.2f", size, percentile(samples, count, 50), size,
           percentile(samples, count, 99));
    CHECK(clReleaseMemObject, mem);
    free(samples);
}

int main(int argc, char **argv)
{
    unsigned long iterations = 1000;
    bool large = false;
    const struct option_spec options[] = { { "--large", NULL, &large }, { "--iterations", &iterations, NULL } };
    OPTIONS(argc, argv, USAGE, options);

    const size_t *sizes = large ? LARGE : SMALL;
    size_t count = large ? sizeof LARGE / sizeof *LARGE : sizeof SMALL / sizeof *SMALL;
    struct device d = open_device(0);
    uint64_t *from = malloc(LARGEST), *into = malloc(LARGEST);
    EXPECT(from != NULL && into != NULL, "out of memory");
    printf("{\"program\":\"transfers\",\"device\":\"%s\"", d.name);
    for (size_t i = 0; i < count; i++)
        measure(&d, sizes[i], iterations, from, into);
    puts("}");
    free(from);
    free(into);
    close_device(&d);
    return 0;
}
