/* The smallest real round trip: write 4 bytes, run a kernel on them, read 4 bytes. */
#include "program.h"

static const char USAGE[] = "usage: write_kernel_read [--iterations N] [--warmup N]\n"
                            "Writes 4 bytes, adds 1 by a kernel, reads and checks 4 bytes; prints one line of JSON.\n";

static cl_uint round_trip(struct device *d, cl_kernel kernel, cl_mem mem, cl_uint value)
{
    size_t one = 1;
    cl_uint result = 0;
    CHECK(clEnqueueWriteBuffer, d->queue, mem, CL_FALSE, 0, sizeof value, &value, 0, NULL, NULL);
    CHECK(clEnqueueNDRangeKernel, d->queue, kernel, 1, NULL, &one, &one, 0, NULL, NULL);
    CHECK(clEnqueueReadBuffer, d->queue, mem, CL_TRUE, 0, sizeof result, &result, 0, NULL, NULL);
    return result;
}

int main(int argc, char **argv)
{
    unsigned long iterations = 2000, warmup = 200;
    const struct option_spec options[] = { { "--iterations", &iterations, NULL }, { "--warmup", &warmup, NULL } };
    OPTIONS(argc, argv, USAGE, options);
    if (iterations > 10000000)
        usage(USAGE, EXIT_USAGE);

    struct device d = open_device(0);
    cl_program program = build(&d, "kernel void add_one(global uint *x) { x[0] += 1; }\n");
    cl_kernel kernel = kernel_of(program, "add_one");
    cl_mem mem = buffer_of(&d, CL_MEM_READ_WRITE, sizeof(cl_uint), NULL);
    set_buffer(kernel, 0, mem);
    double *samples = calloc(iterations, sizeof *samples);
    EXPECT(samples != NULL, "out of memory");
    for (unsigned long i = 0; i < warmup + iterations; i++) {
        cl_uint value = (cl_uint)(i * 7);
        double start = now_us();
        cl_uint result = round_trip(&d, kernel, mem, value);
        if (i >= warmup)
            samples[i - warmup] = now_us() - start;
        EXPECT(result == value + 1, "round trip %lu gave %u instead of %u", i, result, value + 1);
    }
    printf("{\"program\":\"write_kernel_read\",\"device\":\"%s\",\"samples\":%lu,\"p50_us\":%.2f,\"p99_us\":%.2f}\n", d.name,
           iterations, percentile(samples, iterations, 50), percentile(samples, iterations, 99));
    free(samples);
    CHECK(clReleaseMemObject, mem);
    CHECK(clReleaseKernel, kernel);
    CHECK(clReleaseProgram, program);
    close_device(&d);
    return 0;
}
