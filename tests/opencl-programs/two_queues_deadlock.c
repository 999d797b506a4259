/* A legal program that must end: queue 1 holds [A, C waits for B], queue 2 holds [B waits for A], both are
 * flushed. Whoever runs all of a flush before the next flush hangs here. */
#include "program.h"

static const char USAGE[] = "usage: two_queues_deadlock [--rounds N]\n"
                            "Runs [A, C waits B] and [B waits A] on two queues (default 100 times); ends with 4 if it hangs.\n";

static const char SOURCE[] = "kernel void append(global uint *x, uint add) { x[0] = x[0] * 10 + add; }\n";

static cl_event launch(cl_command_queue queue, cl_kernel kernel, cl_uint digit, const cl_event *wait)
{
    size_t one = 1;
    cl_event event = NULL;
    set_uint(kernel, 1, digit);
    CHECK(clEnqueueNDRangeKernel, queue, kernel, 1, NULL, &one, &one, wait != NULL ? 1 : 0, wait, &event);
    return event;
}

int main(int argc, char **argv)
{
    unsigned long rounds = 100;
    const struct option_spec options[] = { { "--rounds", &rounds, NULL } };
    OPTIONS(argc, argv, USAGE, options);
    deadline(60);

    struct device d = open_device(0);
    cl_int code = CL_SUCCESS;
    cl_command_queue second = clCreateCommandQueue(d.context, d.id, 0, &code);
    check("clCreateCommandQueue", code);
    cl_program program = build(&d, SOURCE);
    cl_kernel kernel = kernel_of(program, "append");
    cl_mem mem = buffer_of(&d, CL_MEM_READ_WRITE, sizeof(cl_uint), NULL);
    set_buffer(kernel, 0, mem);

    for (unsigned long i = 0; i < rounds; i++) {
        cl_uint value = 0;
        CHECK(clEnqueueWriteBuffer, d.queue, mem, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL);
        cl_event a = launch(d.queue, kernel, 1, NULL);
        cl_event b = launch(second, kernel, 2, &a);
        cl_event c = launch(d.queue, kernel, 3, &b);
        CHECK(clFlush, d.queue);
        CHECK(clFlush, second);
        CHECK(clWaitForEvents, 1, &c);
        CHECK(clFinish, second);
        CHECK(clEnqueueReadBuffer, d.queue, mem, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL);
        EXPECT(value == 123, "round %lu ran in the order %u instead of 123", i, value);
        CHECK(clReleaseEvent, a);
        CHECK(clReleaseEvent, b);
        CHECK(clReleaseEvent, c);
    }
    CHECK(clReleaseMemObject, mem);
    CHECK(clReleaseKernel, kernel);
    CHECK(clReleaseProgram, program);
    CHECK(clReleaseCommandQueue, second);
    close_device(&d);
    printf("%lu rounds ended on %s\n", rounds, d.name);
    return 0;
}
