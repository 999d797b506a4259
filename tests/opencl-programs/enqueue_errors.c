/* The codes of wrong and of empty enqueue calls: one line each, to be compared between runtimes. */
#include "program.h"

static const char USAGE[] = "usage: enqueue_errors\n"
                            "Makes enqueue calls that are wrong or empty, and prints the code of each.\n";

static const char SOURCE[] =
    "kernel void plain(global uint *x) { x[get_global_id(0)] += 1; }\n"
    "__attribute__((reqd_work_group_size(4, 2, 1)))\n"
    "kernel void required(global uint *x) { x[get_global_id(0)] += 1; }\n"
    "kernel void scratch(global uint *x, local uint *l) {\n"
    "    l[get_local_id(0)] = x[get_global_id(0)];\n"
    "    barrier(CLK_LOCAL_MEM_FENCE);\n"
    "    x[get_global_id(0)] = l[get_local_id(0)];\n"
    "}\n"
    "kernel void own(global uint *x) {\n"
    "    local uint l[64];\n"
    "    l[get_local_id(0)] = x[get_global_id(0)];\n"
    "    barrier(CLK_LOCAL_MEM_FENCE);\n"
    "    x[get_global_id(0)] = l[get_local_id(0)];\n"
    "}\n";

enum { BYTES = 4096 };

static void say(const char *what, cl_int code)
{
    printf("%s: %d\n", what, (int)code);
}

/* NULL where the device's compiler does not know the options. */
static cl_program build_with(struct device *d, const char *options)
{
    const char *source = SOURCE;
    cl_int code = CL_SUCCESS;
    cl_program program = clCreateProgramWithSource(d->context, 1, &source, NULL, &code);
    check("clCreateProgramWithSource", code);
    if (clBuildProgram(program, 1, &d->id, options, NULL, NULL) != CL_SUCCESS) {
        CHECK(clReleaseProgram, program);
        return NULL;
    }
    return program;
}

/* The code of the enqueue, or of the finish behind it: what only the device can know, a remote runtime says there. */
static cl_int launch(struct device *d, cl_kernel kernel, cl_uint dimensions, const size_t *global, const size_t *local)
{
    cl_int code = clEnqueueNDRangeKernel(d->queue, kernel, dimensions, NULL, global, local, 0, NULL, NULL);
    cl_int finish = clFinish(d->queue);
    CHECK(clFinish, d->queue);
    return code != CL_SUCCESS ? code : finish;
}

static void launches(struct device *d, cl_mem mem, const char *name, const char *options)
{
    cl_program program = build_with(d, options);
    printf("[%s] %s\n", name, program != NULL ? "built" : "not built");
    if (program == NULL)
        return;
    cl_kernel plain = kernel_of(program, "plain"), required = kernel_of(program, "required");
    size_t even[3] = {8, 2, 1}, odd[3] = {10, 2, 1}, zero[3] = {0, 2, 1}, huge[3] = {(size_t)1 << 40, 1, 1};
    size_t of_4[3] = {4, 2, 1}, of_2[3] = {2, 2, 1}, of_3[3] = {3, 1, 1}, of_0[3] = {0, 1, 1}, of_8[3] = {8, 1, 1};
    say("arguments not set", launch(d, plain, 1, even, NULL));
    set_buffer(plain, 0, mem);
    set_buffer(required, 0, mem);
    say("no dimension", launch(d, plain, 0, even, NULL));
    say("four dimensions", launch(d, plain, 4, even, NULL));
    say("right", launch(d, plain, 1, even, NULL));
    say("local size 0", launch(d, plain, 1, even, of_0));
    say("local size too large", launch(d, plain, 1, huge, huge));
    say("global size no multiple", launch(d, plain, 1, odd, of_3));
    say("global size smaller than local", launch(d, plain, 1, of_3, of_8));
    say("required size, none given", launch(d, required, 2, even, NULL));
    say("required size, none given, no multiple", launch(d, required, 2, odd, NULL));
    say("required size given", launch(d, required, 2, even, of_4));
    say("required size, another given", launch(d, required, 2, even, of_2));
    say("required size, a dimension fewer", launch(d, required, 1, even, of_4));
    say("a size of zero", launch(d, plain, 1, zero, NULL));
    say("a size of zero in two dimensions", launch(d, plain, 2, zero, NULL));
    say("a size of zero with a local size", launch(d, plain, 1, zero, of_4));
    say("no global size", launch(d, plain, 1, NULL, NULL));
    say("no global size with a local size", launch(d, plain, 1, NULL, of_4));
    CHECK(clReleaseKernel, plain);
    CHECK(clReleaseKernel, required);
    CHECK(clReleaseProgram, program);
}

static cl_ulong local_size(cl_kernel kernel, cl_device_id device)
{
    cl_ulong bytes = 0;
    CHECK(clGetKernelWorkGroupInfo, kernel, device, CL_KERNEL_LOCAL_MEM_SIZE, sizeof bytes, &bytes, NULL);
    return bytes;
}

/* The same program from its binary, of whose arguments runtimes say nothing. */
static cl_program from_binary(struct device *d, cl_program built)
{
    size_t size = 0;
    cl_int code = CL_SUCCESS;
    CHECK(clGetProgramInfo, built, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL);
    unsigned char *binary = malloc(size);
    EXPECT(binary != NULL, "no memory");
    CHECK(clGetProgramInfo, built, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL);
    cl_program program =
        clCreateProgramWithBinary(d->context, 1, &d->id, &size, (const unsigned char **)&binary, NULL, &code);
    check("clCreateProgramWithBinary", code);
    free(binary);
    CHECK(clBuildProgram, program, 1, &d->id, "", NULL, NULL);
    CHECK(clReleaseProgram, built);
    return program;
}

/* Prints how much the answer grows, since runtimes differ in what they add themselves. */
static void local_memory(struct device *d, cl_mem mem, cl_program program)
{
    cl_kernel scratch = kernel_of(program, "scratch"), own = kernel_of(program, "own");
    cl_ulong all = 0, none = local_size(scratch, d->id);
    printf("local memory before arguments are set: %llu\n", (unsigned long long)none);
    CHECK(clSetKernelArg, scratch, 1, 8, NULL);
    printf("local memory with an argument of 8: %+lld\n", (long long)(local_size(scratch, d->id) - none));
    printf("own local memory: %s\n", local_size(own, d->id) >= none + 256 ? "counted" : "not counted");
    CHECK(clSetKernelArg, scratch, 1, 256, NULL);
    printf("local memory with an argument of 256: %+lld\n", (long long)(local_size(scratch, d->id) - none));
    CHECK(clSetKernelArg, scratch, 1, 1024, NULL);
    printf("local memory with an argument of 1024: %+lld\n", (long long)(local_size(scratch, d->id) - none));
    CHECK(clGetDeviceInfo, d->id, CL_DEVICE_LOCAL_MEM_SIZE, sizeof all, &all, NULL);
    set_buffer(scratch, 0, mem);
    size_t global = 4;
    say("launch with 1024 bytes of local memory", launch(d, scratch, 1, &global, NULL));
    say("argument of more local memory than there is", clSetKernelArg(scratch, 1, (size_t)all + 4096, NULL));
    say("launch with more local memory than there is", launch(d, scratch, 1, &global, NULL));
    CHECK(clReleaseKernel, scratch);
    CHECK(clReleaseKernel, own);
    CHECK(clReleaseProgram, program);
}

static void other_context(struct device *d, cl_mem mem)
{
    struct device other = open_device(0);
    cl_program program = build(&other, SOURCE);
    cl_kernel kernel = kernel_of(program, "plain");
    cl_mem theirs = buffer_of(&other, CL_MEM_READ_WRITE, BYTES, NULL);
    cl_int code = CL_SUCCESS;
    cl_event event = clCreateUserEvent(other.context, &code);
    check("clCreateUserEvent", code);
    CHECK(clSetUserEventStatus, event, CL_COMPLETE);
    set_buffer(kernel, 0, theirs);
    size_t one = 1;
    char byte = 0;
    say("kernel of another context", launch(d, kernel, 1, &one, NULL));
    say("read from another context", clEnqueueReadBuffer(d->queue, theirs, CL_TRUE, 0, 1, &byte, 0, NULL, NULL));
    say("copy from another context", clEnqueueCopyBuffer(d->queue, theirs, mem, 0, 0, 1, 0, NULL, NULL));
    say("event of another context", clEnqueueReadBuffer(d->queue, mem, CL_TRUE, 0, 1, &byte, 1, &event, NULL));
    CHECK(clReleaseEvent, event);
    CHECK(clReleaseKernel, kernel);
    CHECK(clReleaseProgram, program);
    CHECK(clReleaseMemObject, theirs);
    close_device(&other);
}

static void transfers(struct device *d, cl_mem mem)
{
    static char bytes[BYTES];
    cl_command_queue q = d->queue;
    cl_mem none = buffer_of(d, CL_MEM_HOST_NO_ACCESS, BYTES, NULL);
    cl_mem for_reads = buffer_of(d, CL_MEM_HOST_READ_ONLY, BYTES, NULL);
    cl_mem for_writes = buffer_of(d, CL_MEM_HOST_WRITE_ONLY, BYTES, NULL);
    cl_event event = NULL;
    say("read beyond the end", clEnqueueReadBuffer(q, mem, CL_TRUE, BYTES - 1, 2, bytes, 0, NULL, NULL));
    say("read to NULL", clEnqueueReadBuffer(q, mem, CL_TRUE, 0, 1, NULL, 0, NULL, NULL));
    say("read what the host may not", clEnqueueReadBuffer(q, none, CL_TRUE, 0, 1, bytes, 0, NULL, NULL));
    say("read what the host may only write", clEnqueueReadBuffer(q, for_writes, CL_TRUE, 0, 1, bytes, 0, NULL, NULL));
    say("read with a list without events", clEnqueueReadBuffer(q, mem, CL_TRUE, 0, 1, bytes, 0, &event, NULL));
    say("read with events without a list", clEnqueueReadBuffer(q, mem, CL_TRUE, 0, 1, bytes, 1, NULL, NULL));
    say("write beyond the end", clEnqueueWriteBuffer(q, mem, CL_TRUE, BYTES, 1, bytes, 0, NULL, NULL));
    say("write from NULL", clEnqueueWriteBuffer(q, mem, CL_TRUE, 0, 1, NULL, 0, NULL, NULL));
    say("write what the host may only read", clEnqueueWriteBuffer(q, for_reads, CL_TRUE, 0, 1, bytes, 0, NULL, NULL));
    say("copy beyond the end", clEnqueueCopyBuffer(q, mem, none, 1, 0, BYTES, 0, NULL, NULL));
    say("copy onto itself", clEnqueueCopyBuffer(q, mem, mem, 0, 8, 16, 0, NULL, NULL));
    say("copy beside itself", clEnqueueCopyBuffer(q, mem, mem, 0, 16, 16, 0, NULL, NULL));
    say("fill with three bytes", clEnqueueFillBuffer(q, mem, bytes, 3, 0, 9, 0, NULL, NULL));
    say("fill with 256 bytes", clEnqueueFillBuffer(q, mem, bytes, 256, 0, 256, 0, NULL, NULL));
    say("fill from an odd offset", clEnqueueFillBuffer(q, mem, bytes, 4, 2, 8, 0, NULL, NULL));
    say("fill an odd size", clEnqueueFillBuffer(q, mem, bytes, 4, 0, 6, 0, NULL, NULL));
    say("fill with NULL", clEnqueueFillBuffer(q, mem, NULL, 4, 0, 8, 0, NULL, NULL));
    say("fill beyond the end", clEnqueueFillBuffer(q, mem, bytes, 4, BYTES - 4, 8, 0, NULL, NULL));
    say("migrate nothing", clEnqueueMigrateMemObjects(q, 0, NULL, 0, 0, NULL, NULL));
    cl_int code = CL_SUCCESS;
    clEnqueueMapBuffer(q, mem, CL_TRUE, CL_MAP_READ, 1, BYTES, 0, NULL, NULL, &code);
    say("map beyond the end", code);
    clEnqueueMapBuffer(q, for_writes, CL_TRUE, CL_MAP_READ, 0, 1, 0, NULL, NULL, &code);
    say("map what the host may only write", code);
    say("unmap what is not mapped", clEnqueueUnmapMemObject(q, mem, bytes, 0, NULL, NULL));
    CHECK(clReleaseMemObject, none);
    CHECK(clReleaseMemObject, for_reads);
    CHECK(clReleaseMemObject, for_writes);
}

static void rectangles(struct device *d, cl_mem mem)
{
    static char bytes[BYTES];
    cl_command_queue q = d->queue;
    size_t at[3] = {0, 0, 0}, near[3] = {2, 2, 0}, region[3] = {4, 4, 1}, empty[3] = {4, 0, 1}, large[3] = {64, 65, 1};
#define READ_RECT(region, row, slice, to)                                                                          \
    clEnqueueReadBufferRect(q, mem, CL_TRUE, at, at, region, row, slice, row, slice, to, 0, NULL, NULL)
#define COPY_RECT(from, to, row) clEnqueueCopyBufferRect(q, mem, mem, from, to, region, row, 0, row, 0, 0, NULL, NULL)
    say("rectangle", READ_RECT(region, 64, 0, bytes));
    say("rectangle without rows", READ_RECT(empty, 64, 0, bytes));
    say("rectangle beyond the end", READ_RECT(large, 64, 0, bytes));
    say("rectangle with short rows", READ_RECT(region, 3, 0, bytes));
    say("rectangle with short slices", READ_RECT(region, 64, 65, bytes));
    say("rectangle to NULL", READ_RECT(region, 64, 0, NULL));
    say("rectangle onto itself", COPY_RECT(at, near, 64));
}

/* Flags of vendors: each runtime knows its own. */
static void flags(struct device *d)
{
    for (int bit = 10; bit < 64; bit++) {
        cl_int code;
        cl_mem mem = clCreateBuffer(d->context, CL_MEM_READ_WRITE | (cl_mem_flags)1 << bit, BYTES, NULL, &code);
        printf("buffer with flag %d: %d\n", bit, (int)code);
        if (mem != NULL)
            CHECK(clReleaseMemObject, mem);
    }
}

int main(int argc, char **argv)
{
    NO_OPTIONS(argc, argv, USAGE);
    deadline(60);
    struct device d = open_device(0);
    cl_mem mem = buffer_of(&d, CL_MEM_READ_WRITE, BYTES, NULL);
    launches(&d, mem, "1.2", "-cl-std=CL1.2");
    launches(&d, mem, "3.0", "-cl-std=CL3.0");
    launches(&d, mem, "uniform", "-cl-std=CL3.0 -cl-uniform-work-group-size");
    cl_program program = build_with(&d, "");
    EXPECT(program != NULL, "the program is not built");
    CHECK(clRetainProgram, program);
    local_memory(&d, mem, program);
    puts("[binary]");
    local_memory(&d, mem, from_binary(&d, program));
    other_context(&d, mem);
    transfers(&d, mem);
    rectangles(&d, mem);
    flags(&d);
    CHECK(clReleaseMemObject, mem);
    close_device(&d);
    return 0;
}
