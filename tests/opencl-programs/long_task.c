/* Keeps the device busy, to be killed in the middle of a task. */
#include "program.h"

static const char USAGE[] = "usage: long_task [--seconds N] [--kernel-ms N]\n"
                            "Runs kernels of about N ms (default 200) for N seconds (default 10). Prints \"running\" when the\n"
                            "first one has been flushed, and \"done\" with their number at the end.\n";

static const char SOURCE[] = "kernel void spin(global uint *x, uint loops) {\n"
                             "    uint s = x[0] | 1;\n"
                             "    for (uint i = 0; i < loops; i++) { s ^= s << 13; s ^= s >> 17; s ^= s << 5; }\n"
                             "    x[0] = s;\n"
                             "}\n";

static void launch(struct device *d, cl_kernel kernel, cl_uint loops)
{
    size_t one = 1;
    set_uint(kernel, 1, loops);
    CHECK(clEnqueueNDRangeKernel, d->queue, kernel, 1, NULL, &one, &one, 0, NULL, NULL);
}

int main(int argc, char **argv)
{
    unsigned long seconds = 10, kernel_ms = 200;
    const struct option_spec options[] = { { "--seconds", &seconds, NULL }, { "--kernel-ms", &kernel_ms, NULL } };
    OPTIONS(argc, argv, USAGE, options);
    if (kernel_ms > 10000)
        usage(USAGE, EXIT_USAGE);

    struct device d = open_device(0);
    cl_program program = build(&d, SOURCE);
    cl_kernel kernel = kernel_of(program, "spin");
    cl_mem mem = buffer_of(&d, CL_MEM_READ_WRITE, sizeof(cl_uint), NULL);
    cl_uint value = 1;
    CHECK(clEnqueueWriteBuffer, d.queue, mem, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL);
    set_buffer(kernel, 0, mem);

    /* How many loops one millisecond is; the first launch, which may compile or configure, does not count. */
    const cl_uint trial = 2000000;
    launch(&d, kernel, trial);
    CHECK(clFinish, d.queue);
    double start = now_us();
    launch(&d, kernel, trial);
    CHECK(clFinish, d.queue);
    double loops = trial / (now_us() - start) * 1e3 * (double)kernel_ms;
    if (loops > 4e9)
        loops = 4e9;

    unsigned long count = 0;
    start = now_us();
    while (now_us() - start < (double)seconds * 1e6) {
        launch(&d, kernel, (cl_uint)loops);
        CHECK(clFlush, d.queue);
        if (count++ == 0) {
            puts("running");
            fflush(stdout);
        }
        CHECK(clFinish, d.queue);
    }
    CHECK(clEnqueueReadBuffer, d.queue, mem, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL);
    EXPECT(value != 0, "the kernels gave 0");
    printf("done: %lu kernels on %s\n", count, d.name);
    CHECK(clReleaseMemObject, mem);
    CHECK(clReleaseKernel, kernel);
    CHECK(clReleaseProgram, program);
    close_device(&d);
    return 0;
}
