/* Reference counts: what the standard says that objects hold on to, released in awkward orders. */
#include "program.h"

static const char USAGE[] = "usage: retain_release\n"
                            "Retains and releases every kind of object, in orders that are legal but unusual.\n";

static void expect_count(const char *what, cl_uint got, cl_uint expected)
{
    EXPECT(got == expected, "the reference count of a %s is %u instead of %u", what, got, expected);
}

#define COUNT(what, getter, object, param, expected)                          \
    do {                                                                      \
        cl_uint count = 0;                                                    \
        CHECK(getter, object, param, sizeof count, &count, NULL);             \
        expect_count(what, count, expected);                                  \
    } while (0)

int main(int argc, char **argv)
{
    NO_OPTIONS(argc, argv, USAGE);
    deadline(60);
    struct device d = open_device(0);
    cl_program program = build(&d, "kernel void add_one(global uint *x) { x[0] += 1; }\n");
    cl_kernel kernel = kernel_of(program, "add_one");
    cl_mem mem = buffer_of(&d, CL_MEM_READ_WRITE, sizeof(cl_uint), NULL);
    cl_mem out = buffer_of(&d, CL_MEM_READ_WRITE, sizeof(cl_uint), NULL);

    CHECK(clRetainMemObject, mem);
    COUNT("buffer", clGetMemObjectInfo, mem, CL_MEM_REFERENCE_COUNT, 2);
    CHECK(clReleaseMemObject, mem);
    COUNT("buffer", clGetMemObjectInfo, mem, CL_MEM_REFERENCE_COUNT, 1);
    CHECK(clRetainKernel, kernel);
    COUNT("kernel", clGetKernelInfo, kernel, CL_KERNEL_REFERENCE_COUNT, 2);
    CHECK(clReleaseKernel, kernel);
    CHECK(clRetainCommandQueue, d.queue);
    COUNT("queue", clGetCommandQueueInfo, d.queue, CL_QUEUE_REFERENCE_COUNT, 2);
    CHECK(clReleaseCommandQueue, d.queue);

    /* Everything is released while the commands that use it may still wait; only the queue and the event stay. */
    cl_uint value = 41, result = 0;
    size_t one = 1;
    cl_event done = NULL;
    set_buffer(kernel, 0, mem);
    CHECK(clEnqueueWriteBuffer, d.queue, mem, CL_FALSE, 0, sizeof value, &value, 0, NULL, NULL);
    CHECK(clEnqueueNDRangeKernel, d.queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL);
    CHECK(clEnqueueCopyBuffer, d.queue, mem, out, 0, 0, sizeof value, 0, NULL, NULL);
    CHECK(clEnqueueReadBuffer, d.queue, out, CL_FALSE, 0, sizeof result, &result, 0, NULL, &done);
    CHECK(clReleaseMemObject, mem);
    CHECK(clReleaseMemObject, out);
    CHECK(clReleaseProgram, program);
    CHECK(clReleaseKernel, kernel);
    CHECK(clReleaseContext, d.context);
    CHECK(clRetainEvent, done);
    CHECK(clReleaseEvent, done);
    CHECK(clWaitForEvents, 1, &done);
    EXPECT(result == 42, "the released objects gave %u instead of 42", result);
    CHECK(clReleaseEvent, done);

    /* The queue still holds the context. */
    cl_context held = NULL;
    CHECK(clGetCommandQueueInfo, d.queue, CL_QUEUE_CONTEXT, sizeof held, &held, NULL);
    EXPECT(held == d.context, "the queue names another context");
    CHECK(clReleaseCommandQueue, d.queue);

    EXPECT(clReleaseMemObject(NULL) == CL_INVALID_MEM_OBJECT, "releasing no buffer is not CL_INVALID_MEM_OBJECT");
    EXPECT(clRetainKernel(NULL) == CL_INVALID_KERNEL, "retaining no kernel is not CL_INVALID_KERNEL");
    EXPECT(clReleaseEvent(NULL) == CL_INVALID_EVENT, "releasing no event is not CL_INVALID_EVENT");
    EXPECT(clReleaseContext(NULL) == CL_INVALID_CONTEXT, "releasing no context is not CL_INVALID_CONTEXT");
    EXPECT(clReleaseProgram(NULL) == CL_INVALID_PROGRAM, "releasing no program is not CL_INVALID_PROGRAM");
    EXPECT(clReleaseCommandQueue(NULL) == CL_INVALID_COMMAND_QUEUE, "releasing no queue is not CL_INVALID_COMMAND_QUEUE");

    /* Many short lives, without a release at the end of the last one: exit must cope. */
    for (int i = 0; i < 200; i++) {
        d = open_device(0);
        mem = buffer_of(&d, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof value, &value);
        if (i == 199)
            break;
        CHECK(clReleaseMemObject, mem);
        close_device(&d);
    }
    printf("all objects lived as long as they were used on %s\n", d.name);
    return 0;
}
