/* Blocking write and read of a large buffer: cold (the first, with fresh memory on both sides) and warm. */
#include "program.h"

static const char USAGE[] = "usage: bandwidth [--mib N] [--iterations N]\n"
                            "Writes and reads N MiB (default 64) with blocking calls, checks every byte, and prints\n"
                            "one line of JSON: milliseconds of the first pair, median and 99th percentile of the others (default 10).\n";

struct times {
    double write_ms, read_ms;
};

static struct times pair(struct device *d, cl_mem mem, size_t size, const void *from, void *into)
{
    double start = now_us();
    CHECK(clEnqueueWriteBuffer, d->queue, mem, CL_TRUE, 0, size, from, 0, NULL, NULL);
    double middle = now_us();
    CHECK(clEnqueueReadBuffer, d->queue, mem, CL_TRUE, 0, size, into, 0, NULL, NULL);
    double end = now_us();
    return (struct times){ (middle - start) / 1e3, (end - middle) / 1e3 };
}

static void fill(uint64_t *words, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++)
        words[i] = (i + seed) * 0x9e3779b97f4a7c15u;
}

int main(int argc, char **argv)
{
    unsigned long mib = 64, iterations = 10;
    const struct option_spec options[] = { { "--mib", &mib, NULL }, { "--iterations", &iterations, NULL } };
    OPTIONS(argc, argv, USAGE, options);
    if (mib > 4096 || iterations > 100000)
        usage(USAGE, EXIT_USAGE);

    struct device d = open_device(0);
    size_t size = mib << 20;
    uint64_t *from = malloc(size), *into = malloc(size);
    double *both = calloc(iterations, sizeof(double)), *writes = calloc(iterations, sizeof(double)),
           *reads = calloc(iterations, sizeof(double));
    EXPECT(from != NULL && into != NULL && both != NULL && writes != NULL && reads != NULL, "out of memory");
    cl_mem mem = buffer_of(&d, CL_MEM_READ_WRITE, size, NULL);

    /* Round 0 is the cold one: the memory to read into has not been touched yet. */
    double cold = 0;
    for (unsigned long i = 0; i <= iterations; i++) {
        fill(from, size / sizeof *from, i);
        struct times t = pair(&d, mem, size, from, into);
        EXPECT(memcmp(from, into, size) == 0, "round %lu read other bytes than it wrote", i);
        if (i == 0) {
            cold = t.write_ms + t.read_ms;
            continue;
        }
        writes[i - 1] = t.write_ms;
        reads[i - 1] = t.read_ms;
        both[i - 1] = t.write_ms + t.read_ms;
    }
    printf("{\"program\":\"bandwidth\",\"device\":\"%s\",\"mib\":%lu,\"samples\":%lu,\"cold_ms\":%.3f,\"warm_ms\":%.3f,\"warm_p99_ms\":%.3f,"
           "\"warm_write_ms\":%.3f,\"warm_read_ms\":%.3f}\n",
           d.name, mib, iterations, cold, percentile(both, iterations, 50), percentile(both, iterations, 99), percentile(writes, iterations, 50),
           percentile(reads, iterations, 50));
    CHECK(clReleaseMemObject, mem);
    close_device(&d);
    free(from);
    free(into);
    free(both);
    free(writes);
    free(reads);
    return 0;
}
