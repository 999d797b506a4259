/* Works until an OpenCL call fails, to see what a program gets when its device goes away: an error, with
 * default signal handling, and neither a hang nor a signal. */
#include "program.h"


static const char USAGE[] = "usage: error_exit [--seconds N]\n"
                            "Writes, runs a kernel and reads in a loop. When a call fails: prints its code, exits with 3.\n"
                            "When none fails within N seconds (default 60): exits with 0. Prints \"running\" after the\n"
                            "first round.\n";

enum { EXIT_OPENCL_ERROR = 3, HANG_SECONDS = 30 };

static void stop_on_error(const char *call, cl_int code)
{
    if (code == CL_SUCCESS)
        return;
    printf("%s failed: %d\n", call, (int)code);
    fflush(stdout);
    exit(EXIT_OPENCL_ERROR);
}

#define TRY(fn, ...) stop_on_error(#fn, fn(__VA_ARGS__))

int main(int argc, char **argv)
{
    unsigned long seconds = 60;
    const struct option_spec options[] = { { "--seconds", &seconds, NULL } };
    OPTIONS(argc, argv, USAGE, options);

    struct device d = open_device(0);
    cl_program program = build(&d, "kernel void add_one(global uint *x) { x[0] += 1; }\n");
    cl_kernel kernel = kernel_of(program, "add_one");
    cl_mem mem = buffer_of(&d, CL_MEM_READ_WRITE, sizeof(cl_uint), NULL);
    set_buffer(kernel, 0, mem);
    double start = now_us();
    for (unsigned long i = 0; now_us() - start < (double)seconds * 1e6; i++) {
        /* No round takes that long, whatever happens to the device. */
        deadline(HANG_SECONDS);
        size_t one = 1;
        cl_uint value = (cl_uint)i, result = 0;
        TRY(clEnqueueWriteBuffer, d.queue, mem, CL_FALSE, 0, sizeof value, &value, 0, NULL, NULL);
        TRY(clEnqueueNDRangeKernel, d.queue, kernel, 1, NULL, &one, &one, 0, NULL, NULL);
        TRY(clEnqueueReadBuffer, d.queue, mem, CL_TRUE, 0, sizeof result, &result, 0, NULL, NULL);
        EXPECT(result == value + 1, "round %lu gave %u instead of %u", i, result, value + 1);
        if (i == 0) {
            puts("running");
            fflush(stdout);
        }
    }
    alarm(0);
    printf("no error within %lu s on %s\n", seconds, d.name);
    return 0;
}
