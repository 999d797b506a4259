/* Map a large buffer, touch every page, unmap: what zero-copy is worth. */
#include "program.h"

static const char USAGE[] = "usage: map_touch [--mib N] [--iterations N]\n"
                            "Maps N MiB (default 64) for reading and writing, changes one byte of every page, unmaps;\n"
                            "checks that the changes stay; prints one line of JSON (microseconds, default 50 rounds).\n";

enum { PAGE = 4096 };

int main(int argc, char **argv)
{
    unsigned long mib = 64, iterations = 50;
    const struct option_spec options[] = { { "--mib", &mib, NULL }, { "--iterations", &iterations, NULL } };
    OPTIONS(argc, argv, USAGE, options);
    if (mib > 4096 || iterations > 100000)
        usage(USAGE, EXIT_USAGE);

    struct device d = open_device(0);
    size_t size = mib << 20;
    cl_mem mem = buffer_of(&d, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, size, NULL);
    cl_uchar zero = 0;
    CHECK(clEnqueueFillBuffer, d.queue, mem, &zero, sizeof zero, 0, size, 0, NULL, NULL);
    CHECK(clFinish, d.queue);
    double *samples = calloc(iterations, sizeof *samples);
    EXPECT(samples != NULL, "out of memory");
    double cold = 0;
    for (unsigned long i = 0; i <= iterations; i++) {
        double start = now_us();
        cl_int code = CL_SUCCESS;
        unsigned char *bytes = clEnqueueMapBuffer(d.queue, mem, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, size, 0, NULL,
                                                  NULL, &code);
        check("clEnqueueMapBuffer", code);
        unsigned char before = (unsigned char)i;
        for (size_t at = 0; at < size; at += PAGE) {
            EXPECT(bytes[at] == before, "round %lu found %u at %zu", i, bytes[at], at);
            bytes[at]++;
        }
        CHECK(clEnqueueUnmapMemObject, d.queue, mem, bytes, 0, NULL, NULL);
        CHECK(clFinish, d.queue);
        double took = now_us() - start;
        if (i == 0)
            cold = took;
        else
            samples[i - 1] = took;
    }
    printf("{\"program\":\"map_touch\",\"device\":\"%s\",\"mib\":%lu,\"samples\":%lu,\"cold_us\":%.1f,\"p50_us\":%.1f,\"p99_us\":%.1f}\n",
           d.name, mib, iterations, cold, percentile(samples, iterations, 50), percentile(samples, iterations, 99));
    free(samples);
    CHECK(clReleaseMemObject, mem);
    close_device(&d);
    return 0;
}
