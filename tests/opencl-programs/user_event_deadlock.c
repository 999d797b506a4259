/* A legal program that must end: [A, C waits for user event U], flush, wait for A, set U, finish. Whoever holds
 * back A until all of the flush can run hangs here. */
#include "program.h"

static const char USAGE[] = "usage: user_event_deadlock [--rounds N] [--strict]\n"
                            "Runs [A, C waits U], waits for A, then sets the user event U (default 100 times);\n"
                            "ends with 4 if it hangs. Checks also that a failed user event fails what waits for it.\n"
                            "  --strict  also that the status of such a command is negative (Intel's runtimes leave it)\n";

static const char SOURCE[] = "kernel void append(global uint *x, uint add) { x[0] = x[0] * 10 + add; }\n";

static cl_event launch(cl_command_queue queue, cl_kernel kernel, cl_uint digit, const cl_event *wait)
{
    size_t one = 1;
    cl_event event = NULL;
    set_uint(kernel, 1, digit);
    CHECK(clEnqueueNDRangeKernel, queue, kernel, 1, NULL, &one, &one, wait != NULL ? 1 : 0, wait, &event);
    return event;
}

static cl_int status_of(cl_event event)
{
    cl_int status = 0;
    CHECK(clGetEventInfo, event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL);
    return status;
}

static cl_event user_event(struct device *d)
{
    cl_int code = CL_SUCCESS;
    cl_event event = clCreateUserEvent(d->context, &code);
    check("clCreateUserEvent", code);
    return event;
}

int main(int argc, char **argv)
{
    unsigned long rounds = 100;
    bool strict = false;
    const struct option_spec options[] = { { "--rounds", &rounds, NULL }, { "--strict", NULL, &strict } };
    OPTIONS(argc, argv, USAGE, options);
    deadline(60);

    struct device d = open_device(0);
    cl_program program = build(&d, SOURCE);
    cl_kernel kernel = kernel_of(program, "append");
    cl_mem mem = buffer_of(&d, CL_MEM_READ_WRITE, sizeof(cl_uint), NULL);
    set_buffer(kernel, 0, mem);

    for (unsigned long i = 0; i < rounds; i++) {
        cl_uint value = 0;
        CHECK(clEnqueueWriteBuffer, d.queue, mem, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL);
        cl_event u = user_event(&d);
        cl_event a = launch(d.queue, kernel, 1, NULL);
        cl_event c = launch(d.queue, kernel, 2, &u);
        CHECK(clFlush, d.queue);
        CHECK(clWaitForEvents, 1, &a);
        EXPECT(status_of(c) > CL_COMPLETE, "round %lu ran a kernel before its user event", i);
        CHECK(clSetUserEventStatus, u, CL_COMPLETE);
        CHECK(clFinish, d.queue);
        EXPECT(status_of(c) == CL_COMPLETE, "round %lu finished an incomplete kernel", i);
        CHECK(clEnqueueReadBuffer, d.queue, mem, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL);
        EXPECT(value == 12, "round %lu ran in the order %u instead of 12", i, value);
        CHECK(clReleaseEvent, a);
        CHECK(clReleaseEvent, c);
        CHECK(clReleaseEvent, u);
    }

    cl_event u = user_event(&d);
    cl_event c = launch(d.queue, kernel, 9, &u);
    CHECK(clFlush, d.queue);
    CHECK(clSetUserEventStatus, u, -77);
    cl_int code = clWaitForEvents(1, &c);
    EXPECT(code == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, "waiting for a failed command gave %d", (int)code);
    cl_uint untouched = 0;
    CHECK(clEnqueueReadBuffer, d.queue, mem, CL_TRUE, 0, sizeof untouched, &untouched, 0, NULL, NULL);
    EXPECT(untouched == 12, "a command ran whose user event failed");
    EXPECT(!strict || status_of(c) < 0, "the status of a command whose user event failed is not negative");
    CHECK(clReleaseEvent, c);
    CHECK(clReleaseEvent, u);

    CHECK(clReleaseMemObject, mem);
    CHECK(clReleaseKernel, kernel);
    CHECK(clReleaseProgram, program);
    close_device(&d);
    printf("%lu rounds ended on %s\n", rounds, d.name);
    return 0;
}
