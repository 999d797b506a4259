/* Launches that the device refuses, without an event: a runtime in the process says so in the enqueue call, a remote one in
 * the next finish, blocking call or wait of the queue. Nowhere may stale bytes come with CL_SUCCESS. */
#include "program.h"

static const char USAGE[] = "usage: hidden_failure\n"
                            "Launches what the device refuses, and checks that the program is told in time.\n";

enum { LARGE = 1 << 20, SMALL = 64 };

static const char SOURCE[] = "__attribute__((reqd_work_group_size(4, 2, 1)))\n"
                             "kernel void required(global uint *x) { x[get_global_id(0)] = 7; }\n"
                             "kernel void scratch(global uint *x, local uint *l) { l[0] = x[0]; x[0] = l[0] + 7; }\n";

struct refused {
    struct device device, other;
    cl_kernel required, scratch;
    cl_mem mem;
};

/* Both are refused by some runtimes only. */
static cl_int launch(struct refused *r)
{
    size_t global = 8, local = 4, one = 1;
    cl_int code = clEnqueueNDRangeKernel(r->device.queue, r->required, 1, NULL, &global, &local, 0, NULL, NULL);
    if (code == CL_SUCCESS)
        code = clEnqueueNDRangeKernel(r->device.queue, r->scratch, 1, NULL, &one, &one, 0, NULL, NULL);
    CHECK(clFlush, r->device.queue);
    /* Messages keep their order: when this has ended, the launch has been refused. */
    CHECK(clFinish, r->other.queue);
    return code;
}

static cl_int by_finish(struct refused *r)
{
    return clFinish(r->device.queue);
}

static cl_int by_read(struct refused *r)
{
    static char bytes[LARGE];
    size_t size = 0;
    CHECK(clGetMemObjectInfo, r->mem, CL_MEM_SIZE, sizeof size, &size, NULL);
    return clEnqueueReadBuffer(r->device.queue, r->mem, CL_TRUE, 0, size, bytes, 0, NULL, NULL);
}

static cl_int by_map(struct refused *r)
{
    cl_int code = CL_SUCCESS;
    void *mapped = clEnqueueMapBuffer(r->device.queue, r->mem, CL_TRUE, CL_MAP_READ, 0, SMALL, 0, NULL, NULL, &code);
    if (code == CL_SUCCESS)
        CHECK(clEnqueueUnmapMemObject, r->device.queue, r->mem, mapped, 0, NULL, NULL);
    return code;
}

static cl_int by_write(struct refused *r)
{
    char bytes[SMALL] = {0};
    return clEnqueueWriteBuffer(r->device.queue, r->mem, CL_TRUE, 0, sizeof bytes, bytes, 0, NULL, NULL);
}

static cl_int by_wait(struct refused *r)
{
    char bytes[SMALL];
    cl_event event = NULL;
    CHECK(clEnqueueReadBuffer, r->device.queue, r->mem, CL_FALSE, 0, sizeof bytes, bytes, 0, NULL, &event);
    cl_int code = clWaitForEvents(1, &event);
    CHECK(clReleaseEvent, event);
    return code;
}

int main(int argc, char **argv)
{
    NO_OPTIONS(argc, argv, USAGE);
    deadline(60);
    static const struct {
        const char *name;
        cl_int (*call)(struct refused *r);
    } ways[] = {{"clFinish", by_finish}, {"a blocking read", by_read},  {"a blocking map", by_map},
                {"a blocking write", by_write}, {"a wait for a later read", by_wait}};
    struct refused r;
    r.device = open_device(0);
    r.other = r.device;
    cl_int code = CL_SUCCESS;
    r.other.queue = clCreateCommandQueue(r.device.context, r.device.id, 0, &code);
    check("clCreateCommandQueue", code);
    cl_program program = build(&r.device, SOURCE);
    r.required = kernel_of(program, "required");
    r.scratch = kernel_of(program, "scratch");
    cl_ulong local = 0;
    CHECK(clGetDeviceInfo, r.device.id, CL_DEVICE_LOCAL_MEM_SIZE, sizeof local, &local, NULL);
    CHECK(clSetKernelArg, r.scratch, 1, (size_t)local + 4096, NULL);
    unsigned told_later = 0;
    for (size_t size = SMALL; size <= LARGE; size += LARGE - SMALL) {
        r.mem = buffer_of(&r.device, CL_MEM_READ_WRITE, size, NULL);
        set_buffer(r.required, 0, r.mem);
        set_buffer(r.scratch, 0, r.mem);
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            cl_int at_once = launch(&r), later = ways[i].call(&r);
            EXPECT(at_once == CL_SUCCESS || later == CL_SUCCESS, "%s tells it again: %d", ways[i].name, (int)later);
            EXPECT(at_once != CL_SUCCESS || later != CL_SUCCESS, "%s with %zu bytes tells nothing", ways[i].name, size);
            told_later += later != CL_SUCCESS;
            later = ways[i].call(&r);
            EXPECT(later == CL_SUCCESS, "%s tells it twice: %d", ways[i].name, (int)later);
        }
        CHECK(clReleaseMemObject, r.mem);
    }
    CHECK(clReleaseKernel, r.required);
    CHECK(clReleaseKernel, r.scratch);
    CHECK(clReleaseProgram, program);
    CHECK(clReleaseCommandQueue, r.other.queue);
    close_device(&r.device);
    printf("no failure is hidden on %s; %u were told after the enqueue call\n", r.device.name, told_later);
    return 0;
}
