/* Unified shared memory (cl_intel_unified_shared_memory). Checks results, and prints the code of each wrong call on a line.
 * Prints "absent" where the device has no such memory. */
#define CL_TARGET_OPENCL_VERSION 200
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include "program.h"
#include <CL/cl_ext.h>

static const char USAGE[] = "usage: usm\nUses every function of unified shared memory that the device has.\n";

static const char SOURCE[] =
    "kernel void add(global int *x, int by) { x[get_global_id(0)] += by; }\n"
    "kernel void follow(global ulong *list, int by) {\n"
    "    global int *x = (global int *)list[get_global_id(0)];\n"
    "    for (int i = 0; i < 16; i++) x[i] += by;\n"
    "}\n";

enum { COUNT = 5000, BYTES = COUNT * sizeof(int) };

#define FUNCTION(name) static name##INTEL_fn name
FUNCTION(clHostMemAlloc);
FUNCTION(clDeviceMemAlloc);
FUNCTION(clSharedMemAlloc);
FUNCTION(clMemFree);
FUNCTION(clMemBlockingFree);
FUNCTION(clGetMemAllocInfo);
FUNCTION(clSetKernelArgMemPointer);
FUNCTION(clEnqueueMemFill);
FUNCTION(clEnqueueMemcpy);
FUNCTION(clEnqueueMigrateMem);
FUNCTION(clEnqueueMemAdvise);
#define LOOK_UP(d, name)                                                                              \
    do {                                                                                              \
        void *address = clGetExtensionFunctionAddressForPlatform((d)->platform, #name "INTEL");        \
        EXPECT(address != NULL, "%s is missing", #name);                                              \
        memcpy(&name, &address, sizeof address);                                                      \
    } while (0)

static void say(const char *what, cl_int code)
{
    printf("%s: %d\n", what, (int)code);
}

static cl_ulong capabilities(struct device *d, cl_device_info param)
{
    cl_ulong value = 0;
    return clGetDeviceInfo(d->id, param, sizeof value, &value, NULL) == CL_SUCCESS ? value : 0;
}

static cl_kernel added(struct device *d, cl_program program, void *pointer, cl_int by)
{
    cl_kernel kernel = kernel_of(program, "add");
    check("clSetKernelArgMemPointerINTEL", clSetKernelArgMemPointer(kernel, 0, pointer));
    CHECK(clSetKernelArg, kernel, 1, sizeof by, &by);
    (void)d;
    return kernel;
}

static void launch(struct device *d, cl_kernel kernel, size_t count)
{
    CHECK(clEnqueueNDRangeKernel, d->queue, kernel, 1, NULL, &count, NULL, 0, NULL, NULL);
}

static void *allocated(void *pointer, cl_int code)
{
    check("allocation", code);
    EXPECT(pointer != NULL, "an allocation is NULL");
    return pointer;
}

static void *device_memory(struct device *d, size_t size)
{
    cl_int code = 1;
    void *pointer = clDeviceMemAlloc(d->context, d->id, NULL, size, 0, &code);
    return allocated(pointer, code);
}

/* Bytes go from plain memory over two allocations and kernels and back, without a wait in between. */
static void round_trip(struct device *d, cl_program program)
{
    static int in[COUNT], out[COUNT];
    char *one = device_memory(d, BYTES), *two = device_memory(d, BYTES);
    for (int i = 0; i < COUNT; i++)
        in[i] = i;
    check("memcpy", clEnqueueMemcpy(d->queue, CL_FALSE, one, in, BYTES, 0, NULL, NULL));
    cl_kernel kernel = added(d, program, one + 16 * sizeof(int), 1000);
    launch(d, kernel, COUNT - 16);
    check("memcpy", clEnqueueMemcpy(d->queue, CL_FALSE, two, one, BYTES, 0, NULL, NULL));
    const int pattern = 77;
    check("fill", clEnqueueMemFill(d->queue, two + 8, &pattern, sizeof pattern, 8, 0, NULL, NULL));
    cl_event event = NULL;
    check("memcpy", clEnqueueMemcpy(d->queue, CL_TRUE, out, two, BYTES, 0, NULL, &event));
    cl_command_type type = 0;
    CHECK(clGetEventInfo, event, CL_EVENT_COMMAND_TYPE, sizeof type, &type, NULL);
    EXPECT(type == CL_COMMAND_MEMCPY_INTEL, "the type of a memcpy is %x", type);
    CHECK(clReleaseEvent, event);
    for (int i = 0; i < COUNT; i++) {
        int expected = i == 2 || i == 3 ? pattern : i + (i < 16 ? 0 : 1000);
        EXPECT(out[i] == expected, "element %d is %d, not %d", i, out[i], expected);
    }
    /* Plain memory to plain memory, in order. */
    check("memcpy", clEnqueueMemcpy(d->queue, CL_TRUE, in, out, BYTES, 0, NULL, NULL));
    EXPECT(memcmp(in, out, BYTES) == 0, "a copy of plain memory differs");
    say("migrate", clEnqueueMigrateMem(d->queue, one, BYTES, 0, 0, NULL, NULL));
    say("advise", clEnqueueMemAdvise(d->queue, one, BYTES, 0, 0, NULL, NULL));
    CHECK(clReleaseKernel, kernel);
    check("free", clMemBlockingFree(d->context, one));
    check("free", clMemFree(d->context, two));
}

/* A copy that waits for a user event takes the bytes that are there then. */
static void late(struct device *d)
{
    int value = 1, out = 0;
    cl_int code = 0;
    int *memory = device_memory(d, sizeof value);
    cl_event user = clCreateUserEvent(d->context, &code);
    check("clCreateUserEvent", code);
    check("memcpy", clEnqueueMemcpy(d->queue, CL_FALSE, memory, &value, sizeof value, 1, &user, NULL));
    CHECK(clFlush, d->queue);
    value = 2;
    CHECK(clSetUserEventStatus, user, CL_COMPLETE);
    check("memcpy", clEnqueueMemcpy(d->queue, CL_TRUE, &out, memory, sizeof out, 0, NULL, NULL));
    EXPECT(out == 2, "a late copy took %d", out);
    CHECK(clReleaseEvent, user);
    check("free", clMemFree(d->context, memory));
}

/* The host sees what kernels write, and the other way round; buffers take and give bytes there in order. */
static void on_both_sides(struct device *d, cl_program program, int *memory)
{
    for (int i = 0; i < COUNT; i++)
        memory[i] = i;
    cl_kernel kernel = added(d, program, memory, 5);
    cl_mem buffer = buffer_of(d, CL_MEM_READ_WRITE, BYTES, NULL);
    launch(d, kernel, COUNT);
    CHECK(clEnqueueWriteBuffer, d->queue, buffer, CL_FALSE, 0, BYTES, memory, 0, NULL, NULL);
    launch(d, kernel, COUNT);
    CHECK(clFinish, d->queue);
    for (int i = 0; i < COUNT; i++)
        EXPECT(memory[i] == i + 10, "element %d is %d after two kernels", i, memory[i]);
    CHECK(clEnqueueReadBuffer, d->queue, buffer, CL_FALSE, 0, BYTES, memory, 0, NULL, NULL);
    launch(d, kernel, COUNT);
    CHECK(clFinish, d->queue);
    for (int i = 0; i < COUNT; i++)
        EXPECT(memory[i] == i + 10, "element %d is %d after the way over a buffer", i, memory[i]);
    CHECK(clReleaseMemObject, buffer);
    CHECK(clReleaseKernel, kernel);
}

/* A kernel follows addresses in an allocation to others. */
static void indirect(struct device *d, cl_program program)
{
    enum { PARTS = 40 };
    int *parts[PARTS], out[16];
    void *list = device_memory(d, sizeof parts);
    const int zero = 0, by = 3;
    for (int i = 0; i < PARTS; i++) {
        parts[i] = device_memory(d, sizeof out);
        check("fill", clEnqueueMemFill(d->queue, parts[i], &zero, sizeof zero, sizeof out, 0, NULL, NULL));
    }
    check("memcpy", clEnqueueMemcpy(d->queue, CL_FALSE, list, parts, sizeof parts, 0, NULL, NULL));
    cl_kernel kernel = kernel_of(program, "follow");
    const cl_bool yes = CL_TRUE;
    const size_t count = PARTS;
    CHECK(clSetKernelExecInfo, kernel, CL_KERNEL_EXEC_INFO_INDIRECT_DEVICE_ACCESS_INTEL, sizeof yes, &yes);
    check("pointer", clSetKernelArgMemPointer(kernel, 0, list));
    CHECK(clSetKernelArg, kernel, 1, sizeof by, &by);
    CHECK(clEnqueueNDRangeKernel, d->queue, kernel, 1, NULL, &count, NULL, 0, NULL, NULL);
    for (int i = 0; i < PARTS; i++) {
        check("memcpy", clEnqueueMemcpy(d->queue, CL_TRUE, out, parts[i], sizeof out, 0, NULL, NULL));
        EXPECT(out[0] == by && out[15] == by, "part %d is %d %d", i, out[0], out[15]);
        check("free", clMemBlockingFree(d->context, parts[i]));
    }
    check("free", clMemBlockingFree(d->context, list));
    CHECK(clReleaseKernel, kernel);
}

static void information(struct device *d)
{
    char *memory = device_memory(d, 1000);
    cl_unified_shared_memory_type_intel type = 0;
    void *base = NULL;
    size_t size = 0;
    cl_device_id device = NULL;
    check("type", clGetMemAllocInfo(d->context, memory + 10, CL_MEM_ALLOC_TYPE_INTEL, sizeof type, &type, NULL));
    check("base", clGetMemAllocInfo(d->context, memory + 10, CL_MEM_ALLOC_BASE_PTR_INTEL, sizeof base, &base, NULL));
    check("size", clGetMemAllocInfo(d->context, memory + 10, CL_MEM_ALLOC_SIZE_INTEL, sizeof size, &size, NULL));
    check("device", clGetMemAllocInfo(d->context, memory, CL_MEM_ALLOC_DEVICE_INTEL, sizeof device, &device, NULL));
    EXPECT(type == CL_MEM_TYPE_DEVICE_INTEL && base == memory && size == 1000 && device == d->id,
           "wrong information: %x %p %zu", type, base, size);
    check("type", clGetMemAllocInfo(d->context, &size, CL_MEM_ALLOC_TYPE_INTEL, sizeof type, &type, NULL));
    EXPECT(type == CL_MEM_TYPE_UNKNOWN_INTEL, "plain memory has type %x", type);
    check("free", clMemFree(d->context, memory));
}

static void wrong_calls(struct device *d, cl_program program)
{
    cl_int code = 0, value = 0;
    char *memory = device_memory(d, 64);
    cl_kernel kernel = kernel_of(program, "add");
    clDeviceMemAlloc(d->context, d->id, NULL, 0, 0, &code);
    say("no bytes", code);
    clDeviceMemAlloc(d->context, d->id, NULL, (size_t)1 << 62, 0, &code);
    say("too many bytes", code);
    clDeviceMemAlloc(d->context, d->id, NULL, 64, 3, &code);
    say("alignment 3", code);
    clDeviceMemAlloc(NULL, d->id, NULL, 64, 0, &code);
    say("no context", code);
    clDeviceMemAlloc(d->context, NULL, NULL, 64, 0, &code);
    say("no device", code);
    say("argument by value", clSetKernelArgMemPointer(kernel, 1, memory));
    say("no such argument", clSetKernelArgMemPointer(kernel, 9, memory));
    say("NULL argument", clSetKernelArgMemPointer(kernel, 0, NULL));
    say("copy to NULL", clEnqueueMemcpy(d->queue, CL_TRUE, NULL, &value, 4, 0, NULL, NULL));
    say("copy that overlaps", clEnqueueMemcpy(d->queue, CL_TRUE, memory, memory + 4, 8, 0, NULL, NULL));
    say("fill with three bytes", clEnqueueMemFill(d->queue, memory, "abc", 3, 6, 0, NULL, NULL));
    say("fill beside the pattern", clEnqueueMemFill(d->queue, memory + 1, "abcd", 4, 8, 0, NULL, NULL));
    say("free NULL", clMemFree(d->context, NULL));
    say("free", clMemFree(d->context, memory));
    CHECK(clReleaseKernel, kernel);
}

int main(int argc, char **argv)
{
    NO_OPTIONS(argc, argv, USAGE);
    deadline(100);
    struct device d = open_device(0);
    if (capabilities(&d, CL_DEVICE_DEVICE_MEM_CAPABILITIES_INTEL) == 0) {
        puts("absent");
        close_device(&d);
        return 0;
    }
    LOOK_UP(&d, clHostMemAlloc);
    LOOK_UP(&d, clDeviceMemAlloc);
    LOOK_UP(&d, clSharedMemAlloc);
    LOOK_UP(&d, clMemFree);
    LOOK_UP(&d, clMemBlockingFree);
    LOOK_UP(&d, clGetMemAllocInfo);
    LOOK_UP(&d, clSetKernelArgMemPointer);
    LOOK_UP(&d, clEnqueueMemFill);
    LOOK_UP(&d, clEnqueueMemcpy);
    LOOK_UP(&d, clEnqueueMigrateMem);
    LOOK_UP(&d, clEnqueueMemAdvise);
    cl_program program = build(&d, SOURCE);
    cl_int code = 0;
    round_trip(&d, program);
    late(&d);
    indirect(&d, program);
    information(&d);
    if (capabilities(&d, CL_DEVICE_HOST_MEM_CAPABILITIES_INTEL) != 0) {
        int *memory = allocated(clHostMemAlloc(d.context, NULL, BYTES, 0, &code), code);
        on_both_sides(&d, program, memory);
        check("free", clMemFree(d.context, memory));
    }
    if (capabilities(&d, CL_DEVICE_SINGLE_DEVICE_SHARED_MEM_CAPABILITIES_INTEL) != 0) {
        int *memory = allocated(clSharedMemAlloc(d.context, d.id, NULL, BYTES, 0, &code), code);
        on_both_sides(&d, program, memory);
        check("free", clMemBlockingFree(d.context, memory));
    }
    wrong_calls(&d, program);
    CHECK(clReleaseProgram, program);
    close_device(&d);
    return 0;
}
