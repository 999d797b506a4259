/* Profiling: queued <= submit <= start <= end for each command, and commands of an in-order queue in order. */
#include "program.h"

static const char USAGE[] = "usage: native_events\n"
                            "Runs a write, a kernel, a copy, a fill, a read and a marker with profiling; checks the times.\n";

struct stamps {
    cl_ulong queued, submit, start, end;
};

static cl_ulong stamp(cl_event event, cl_profiling_info what)
{
    cl_ulong value = 0;
    size_t size = 0;
    CHECK(clGetEventProfilingInfo, event, what, sizeof value, &value, &size);
    EXPECT(size == sizeof value, "a time has %zu bytes", size);
    return value;
}

static void info(cl_event event, cl_command_type type, cl_command_queue queue)
{
    cl_command_type got_type = 0;
    cl_command_queue got_queue = NULL;
    cl_int status = 1;
    CHECK(clGetEventInfo, event, CL_EVENT_COMMAND_TYPE, sizeof got_type, &got_type, NULL);
    CHECK(clGetEventInfo, event, CL_EVENT_COMMAND_QUEUE, sizeof got_queue, &got_queue, NULL);
    CHECK(clGetEventInfo, event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL);
    EXPECT(got_type == type, "command type is %#x instead of %#x", got_type, type);
    EXPECT(got_queue == queue, "the event names another queue");
    EXPECT(status == CL_COMPLETE, "status is %d after clFinish", (int)status);
}

int main(int argc, char **argv)
{
    NO_OPTIONS(argc, argv, USAGE);
    deadline(60);
    struct device d = open_device(CL_QUEUE_PROFILING_ENABLE);
    cl_program program = build(&d, "kernel void twice(global uint *x) { x[get_global_id(0)] *= 2; }\n");
    cl_kernel kernel = kernel_of(program, "twice");
    enum { N = 4096, COMMANDS = 6 };
    static cl_uint in[N], out[N];
    for (cl_uint i = 0; i < N; i++)
        in[i] = i;
    size_t size = sizeof in, global = N;
    cl_uint five = 5;
    cl_mem a = buffer_of(&d, CL_MEM_READ_WRITE, size, NULL);
    cl_mem b = buffer_of(&d, CL_MEM_READ_WRITE, size, NULL);
    set_buffer(kernel, 0, a);
    cl_event events[COMMANDS];
    const cl_command_type types[COMMANDS] = { CL_COMMAND_WRITE_BUFFER, CL_COMMAND_NDRANGE_KERNEL, CL_COMMAND_COPY_BUFFER,
                                              CL_COMMAND_FILL_BUFFER,  CL_COMMAND_READ_BUFFER,    CL_COMMAND_MARKER };
    CHECK(clEnqueueWriteBuffer, d.queue, a, CL_FALSE, 0, size, in, 0, NULL, &events[0]);
    CHECK(clEnqueueNDRangeKernel, d.queue, kernel, 1, NULL, &global, NULL, 0, NULL, &events[1]);
    CHECK(clEnqueueCopyBuffer, d.queue, a, b, 0, 0, size, 0, NULL, &events[2]);
    CHECK(clEnqueueFillBuffer, d.queue, b, &five, sizeof five, 0, 16, 0, NULL, &events[3]);
    CHECK(clEnqueueReadBuffer, d.queue, b, CL_FALSE, 0, size, out, 0, NULL, &events[4]);
    CHECK(clEnqueueMarkerWithWaitList, d.queue, 0, NULL, &events[5]);
    CHECK(clFinish, d.queue);

    struct stamps last = { 0, 0, 0, 0 };
    for (int i = 0; i < COMMANDS; i++) {
        struct stamps s = {
            stamp(events[i], CL_PROFILING_COMMAND_QUEUED),
            stamp(events[i], CL_PROFILING_COMMAND_SUBMIT),
            stamp(events[i], CL_PROFILING_COMMAND_START),
            stamp(events[i], CL_PROFILING_COMMAND_END),
        };
        /* Intel's runtimes say that a marker was queued at 0. */
        bool marker = types[i] == CL_COMMAND_MARKER;
        EXPECT((marker || s.queued > 0) && s.queued <= s.submit && s.submit <= s.start && s.start <= s.end,
               "command %d: queued %llu, submit %llu, start %llu, end %llu", i, (unsigned long long)s.queued,
               (unsigned long long)s.submit, (unsigned long long)s.start, (unsigned long long)s.end);
        EXPECT(marker || s.end - s.queued < 60ULL * 1000000000ULL, "command %d took more than a minute", i);
        EXPECT(marker || s.queued >= last.queued, "command %d was queued before the one before it", i);
        info(events[i], types[i], d.queue);
        last = s;
    }
    for (cl_uint i = 0; i < N; i++)
        EXPECT(out[i] == (i < 4 ? 5 : 2 * i), "out[%u] is %u", i, out[i]);

    /* Neither a user event nor a queue without the property has times. */
    cl_ulong value = 0;
    cl_int code = CL_SUCCESS;
    cl_event user = clCreateUserEvent(d.context, &code);
    check("clCreateUserEvent", code);
    code = clGetEventProfilingInfo(user, CL_PROFILING_COMMAND_END, sizeof value, &value, NULL);
    EXPECT(code == CL_PROFILING_INFO_NOT_AVAILABLE, "times of a user event gave %d", (int)code);
    CHECK(clSetUserEventStatus, user, CL_COMPLETE);
    CHECK(clReleaseEvent, user);
    for (int i = 0; i < COMMANDS; i++)
        CHECK(clReleaseEvent, events[i]);
    CHECK(clReleaseMemObject, a);
    CHECK(clReleaseMemObject, b);
    CHECK(clReleaseKernel, kernel);
    CHECK(clReleaseProgram, program);
    close_device(&d);
    printf("the times of %d commands are in order on %s\n", COMMANDS, d.name);
    return 0;
}
