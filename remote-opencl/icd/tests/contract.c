/* What the standard promises, call by call: error codes, queries, reference counts, callbacks, results.
 *
 * Runs over any OpenCL implementation, to check itself; what is STRICT is asked of ours alone, since others crash on it
 * or take liberties. Prints what is wrong, exits with 1 if anything is. */
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int failures;

#define WANT(condition) do { if (!(condition)) { \
    printf("line %d: not so: %s\n", __LINE__, #condition); failures++; } } while (0)
#define CODE(call, code) do { cl_int got_ = (call); if (got_ != (code)) { \
    printf("line %d: %d instead of %d: %s\n", __LINE__, got_, (int)(code), #call); failures++; } } while (0)
#define OK(call) CODE(call, CL_SUCCESS)
/* For calls that return an object and set `error`. */
#define FAILS(call, code) do { error = 1; void *object_ = (void *)(call); \
    if (object_ || error != (code)) { \
        printf("line %d: %d instead of %d: %s\n", __LINE__, error, (int)(code), #call); failures++; } } while (0)
#define MUST(value) do { if (!(value)) { \
    printf("line %d: %s failed: %d\n", __LINE__, #value, error); exit(1); } } while (0)

#define STRICT if (ours)

static int ours;
static cl_int error;
static cl_platform_id platform;
static cl_device_id device;
static cl_context context;
static cl_command_queue queue;
static void *const garbage = (void *)0x123456789aUL;

static const char *source =
    "kernel void scale(global int *data, int factor) { data[get_global_id(0)] *= factor; }\n"
    "kernel void sums(global int *out, local int *scratch) {\n"
    "    scratch[get_local_id(0)] = (int)get_global_id(0);\n"
    "    barrier(CLK_LOCAL_MEM_FENCE);\n"
    "    if (get_local_id(0) == 0) { int sum = 0;\n"
    "        for (uint i = 0; i < get_local_size(0); i++) sum += scratch[i];\n"
    "        out[get_group_id(0)] = sum; } }\n"
    "kernel void one(global int *out) { out[0] = 42; }\n";

/* Waits up to 10 s for a flag that a callback sets. */
static int becomes(volatile int *flag, int value) {
    for (int i = 0; i < 10000; i++) {
        if (__atomic_load_n(flag, __ATOMIC_SEQ_CST) == value) return 1;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    return 0;
}

static void check_platform_and_device(void) {
    char text[2048], small[2];
    size_t size = 0;
    cl_uint count = 0;
    CODE(clGetPlatformIDs(0, NULL, NULL), CL_INVALID_VALUE);
    OK(clGetPlatformIDs(1, &platform, &count));
    WANT(count >= 1);
    OK(clGetPlatformInfo(platform, CL_PLATFORM_NAME, 0, NULL, &size));
    OK(clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof text, text, NULL));
    WANT(size == strlen(text) + 1);
    CODE(clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof small, small, NULL), CL_INVALID_VALUE);
    CODE(clGetPlatformInfo(platform, 0x7777, sizeof text, text, NULL), CL_INVALID_VALUE);
    OK(clGetPlatformInfo(platform, CL_PLATFORM_VERSION, sizeof text, text, NULL));
    WANT(strncmp(text, "OpenCL ", 7) == 0);
    OK(clGetPlatformInfo(platform, CL_PLATFORM_EXTENSIONS, sizeof text, text, NULL));
    WANT(strstr(text, "cl_khr_icd"));
    OK(clGetPlatformInfo(platform, CL_PLATFORM_ICD_SUFFIX_KHR, sizeof text, text, NULL));
    ours = strcmp(text, "FPGA") == 0;
    OK(clUnloadPlatformCompiler(platform));

    CODE(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, &device, NULL), CL_INVALID_VALUE);
    CODE(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, NULL, NULL), CL_INVALID_VALUE);
    STRICT CODE(clGetDeviceIDs(platform, 0, 1, &device, NULL), CL_INVALID_DEVICE_TYPE);
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_DEFAULT, 1, &device, &count));
    WANT(count == 1);
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, &count));
    cl_device_type type;
    cl_platform_id its_platform;
    cl_bool available = CL_FALSE;
    cl_uint units = 0, references = 0;
    OK(clGetDeviceInfo(device, CL_DEVICE_TYPE, sizeof type, &type, &size));
    WANT(size == sizeof type);
    OK(clGetDeviceInfo(device, CL_DEVICE_PLATFORM, sizeof its_platform, &its_platform, NULL));
    WANT(its_platform == platform);
    OK(clGetDeviceInfo(device, CL_DEVICE_AVAILABLE, sizeof available, &available, NULL));
    WANT(available);
    OK(clGetDeviceInfo(device, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof units, &units, NULL));
    WANT(units >= 1);
    OK(clGetDeviceInfo(device, CL_DEVICE_REFERENCE_COUNT, sizeof references, &references, NULL));
    WANT(references == 1);
    OK(clRetainDevice(device));
    OK(clReleaseDevice(device));
    CODE(clGetDeviceInfo(device, 0x7777, sizeof text, text, NULL), CL_INVALID_VALUE);
    CODE(clGetDeviceInfo(device, CL_DEVICE_TYPE, 2, small, NULL), CL_INVALID_VALUE);
    for (cl_uint param = CL_DEVICE_TYPE; param <= CL_DEVICE_PRINTF_BUFFER_SIZE; param++) {
        if (clGetDeviceInfo(device, param, 0, NULL, &size) == CL_SUCCESS && size <= sizeof text)
            OK(clGetDeviceInfo(device, param, sizeof text, text, NULL));
    }
}

static volatile int destroyed_order;

static void CL_CALLBACK on_destroyed(cl_mem object, void *expected) {
    (void)object;
    int before = __atomic_fetch_add(&destroyed_order, 1, __ATOMIC_SEQ_CST);
    WANT(before == (int)(intptr_t)expected);
}

static void check_context_and_queue(void) {
    cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)platform, 0};
    cl_context_properties bad[] = {0x7777, 1, 0};
    cl_context_properties back[8];
    cl_device_id devices[4];
    cl_uint count = 0;
    size_t size = 0;
    FAILS(clCreateContext(NULL, 0, &device, NULL, NULL, &error), CL_INVALID_VALUE);
    FAILS(clCreateContext(NULL, 1, NULL, NULL, NULL, &error), CL_INVALID_VALUE);
    FAILS(clCreateContext(properties, 1, &device, NULL, &count, &error), CL_INVALID_VALUE);
    FAILS(clCreateContext(bad, 1, &device, NULL, NULL, &error), CL_INVALID_PROPERTY);
    MUST(context = clCreateContextFromType(properties, CL_DEVICE_TYPE_ALL, NULL, NULL, &error));
    OK(clReleaseContext(context));
    MUST(context = clCreateContext(properties, 1, &device, NULL, NULL, &error));
    OK(clGetContextInfo(context, CL_CONTEXT_NUM_DEVICES, sizeof count, &count, NULL));
    WANT(count == 1);
    OK(clGetContextInfo(context, CL_CONTEXT_DEVICES, sizeof devices, devices, &size));
    WANT(size == sizeof device && devices[0] == device);
    OK(clGetContextInfo(context, CL_CONTEXT_PROPERTIES, sizeof back, back, &size));
    WANT(size == sizeof properties && memcmp(back, properties, size) == 0);
    OK(clRetainContext(context));
    OK(clGetContextInfo(context, CL_CONTEXT_REFERENCE_COUNT, sizeof count, &count, NULL));
    WANT(count == 2);
    OK(clReleaseContext(context));
    cl_uint formats = 77;
    OK(clGetSupportedImageFormats(context, CL_MEM_READ_ONLY, CL_MEM_OBJECT_IMAGE2D, 0, NULL, &formats));

    STRICT FAILS(clCreateCommandQueue(context, garbage, 0, &error), CL_INVALID_DEVICE);
    FAILS(clCreateCommandQueue(context, device, (cl_command_queue_properties)1 << 40, &error), CL_INVALID_VALUE);
    cl_queue_properties list[] = {CL_QUEUE_PROPERTIES, CL_QUEUE_PROFILING_ENABLE, 0};
    cl_queue_properties bad_list[] = {0x7777, 1, 0};
    FAILS(clCreateCommandQueueWithProperties(context, device, bad_list, &error), CL_INVALID_VALUE);
    MUST(queue = clCreateCommandQueueWithProperties(context, device, list, &error));
    cl_command_queue_properties said = 0;
    cl_context its_context;
    cl_device_id its_device;
    OK(clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES, sizeof said, &said, NULL));
    WANT(said == CL_QUEUE_PROFILING_ENABLE);
    OK(clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof its_context, &its_context, NULL));
    WANT(its_context == context);
    OK(clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof its_device, &its_device, NULL));
    WANT(its_device == device);
    CODE(clGetCommandQueueInfo(queue, 0x7777, sizeof said, &said, NULL), CL_INVALID_VALUE);
    OK(clFlush(queue));
    OK(clFinish(queue));
}

static void check_buffers(void) {
    int host[64], back[64];
    for (int i = 0; i < 64; i++) host[i] = i * 3;
    FAILS(clCreateBuffer(context, CL_MEM_READ_WRITE, 0, NULL, &error), CL_INVALID_BUFFER_SIZE);
    FAILS(clCreateBuffer(context, CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY, 8, NULL, &error), CL_INVALID_VALUE);
    FAILS(clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, 8, NULL, &error), CL_INVALID_HOST_PTR);
    FAILS(clCreateBuffer(context, CL_MEM_READ_WRITE, 8, host, &error), CL_INVALID_HOST_PTR);
    FAILS(clCreateBuffer(context, CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR, 8, host, &error), CL_INVALID_VALUE);

    cl_mem buffer;
    MUST(buffer = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof host, host, &error));
    cl_mem_flags flags = 0;
    cl_mem_object_type type = 0;
    size_t size = 0;
    cl_uint count = 0;
    void *pointer = garbage;
    OK(clGetMemObjectInfo(buffer, CL_MEM_FLAGS, sizeof flags, &flags, NULL));
    WANT(flags == (CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR));
    OK(clGetMemObjectInfo(buffer, CL_MEM_TYPE, sizeof type, &type, NULL));
    WANT(type == CL_MEM_OBJECT_BUFFER);
    OK(clGetMemObjectInfo(buffer, CL_MEM_SIZE, sizeof size, &size, NULL));
    WANT(size == sizeof host);
    OK(clGetMemObjectInfo(buffer, CL_MEM_HOST_PTR, sizeof pointer, &pointer, NULL));
    WANT(pointer == NULL);

    memset(back, 0xff, sizeof back);
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
    WANT(memcmp(host, back, sizeof host) == 0);
    CODE(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 8, sizeof back, back, 0, NULL, NULL), CL_INVALID_VALUE);
    CODE(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 8, NULL, 0, NULL, NULL), CL_INVALID_VALUE);
    STRICT CODE(clEnqueueReadBuffer(queue, garbage, CL_TRUE, 0, 8, back, 0, NULL, NULL), CL_INVALID_MEM_OBJECT);
    CODE(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 8, back, 1, NULL, NULL), CL_INVALID_EVENT_WAIT_LIST);
    cl_event no_event = garbage;
    STRICT CODE(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 8, back, 1, &no_event, NULL), CL_INVALID_EVENT_WAIT_LIST);
    STRICT CODE(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 8, back, 0, &no_event, NULL), CL_INVALID_EVENT_WAIT_LIST);

    int pattern = 7;
    OK(clEnqueueFillBuffer(queue, buffer, &pattern, sizeof pattern, 0, 32 * sizeof(int), 0, NULL, NULL));
    CODE(clEnqueueFillBuffer(queue, buffer, &pattern, 3, 0, 12, 0, NULL, NULL), CL_INVALID_VALUE);
    CODE(clEnqueueFillBuffer(queue, buffer, &pattern, 4, 2, 16, 0, NULL, NULL), CL_INVALID_VALUE);
    CODE(clEnqueueCopyBuffer(queue, buffer, buffer, 0, 8, 64, 0, NULL, NULL), CL_MEM_COPY_OVERLAP);
    OK(clEnqueueCopyBuffer(queue, buffer, buffer, 0, 128, 128, 0, NULL, NULL));
    OK(clEnqueueMigrateMemObjects(queue, 1, &buffer, 0, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
    for (int i = 0; i < 64; i++) WANT(back[i] == 7);

    /* A rectangle of 3 rows with 2 numbers each, out of an 8 by 8 square. */
    int square[64], corner[6] = {0}, put[4] = {-1, -2, -3, -4};
    for (int i = 0; i < 64; i++) square[i] = i;
    size_t from[3] = {2 * sizeof(int), 1, 0}, zero[3] = {0, 0, 0}, region3[3] = {2 * sizeof(int), 3, 1};
    size_t region2[3] = {2 * sizeof(int), 2, 1}, none[3] = {0, 1, 1}, row = 8 * sizeof(int);
    OK(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, sizeof square, square, 0, NULL, NULL));
    OK(clEnqueueReadBufferRect(queue, buffer, CL_TRUE, from, zero, region3, row, 0, 0, 0, corner, 0, NULL, NULL));
    WANT(corner[0] == 10 && corner[1] == 11 && corner[2] == 18 && corner[5] == 27);
    OK(clEnqueueWriteBufferRect(queue, buffer, CL_FALSE, from, zero, region2, row, 0, 0, 0, put, 0, NULL, NULL));
    OK(clEnqueueCopyBufferRect(queue, buffer, buffer, from, zero, region2, row, 0, row, 0, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
    WANT(back[10] == -1 && back[11] == -2 && back[18] == -3 && back[19] == -4 && back[26] == 26);
    WANT(back[0] == -1 && back[1] == -2 && back[8] == -3 && back[9] == -4 && back[2] == 2);
    CODE(clEnqueueReadBufferRect(queue, buffer, CL_TRUE, from, zero, none, row, 0, 0, 0, corner, 0, NULL, NULL), CL_INVALID_VALUE);
    CODE(clEnqueueCopyBufferRect(queue, buffer, buffer, zero, zero, region2, row, 0, row, 0, 0, NULL, NULL), CL_MEM_COPY_OVERLAP);

    cl_uint align = 0;
    OK(clGetDeviceInfo(device, CL_DEVICE_MEM_BASE_ADDR_ALIGN, sizeof align, &align, NULL));
    cl_mem big, part;
    MUST(big = clCreateBuffer(context, CL_MEM_READ_WRITE, align, NULL, &error));
    cl_buffer_region region = {align / 8, align / 8}, outside = {align, align}, empty = {0, 0}, odd = {1, 4};
    FAILS(clCreateSubBuffer(big, 0, CL_BUFFER_CREATE_TYPE_REGION, &outside, &error), CL_INVALID_VALUE);
    FAILS(clCreateSubBuffer(big, 0, CL_BUFFER_CREATE_TYPE_REGION, &empty, &error), CL_INVALID_BUFFER_SIZE);
    FAILS(clCreateSubBuffer(big, 0, CL_BUFFER_CREATE_TYPE_REGION, NULL, &error), CL_INVALID_VALUE);
    FAILS(clCreateSubBuffer(big, 0, CL_BUFFER_CREATE_TYPE_REGION, &odd, &error), CL_MISALIGNED_SUB_BUFFER_OFFSET);
    MUST(part = clCreateSubBuffer(big, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &error));
    FAILS(clCreateSubBuffer(part, 0, CL_BUFFER_CREATE_TYPE_REGION, &empty, &error), CL_INVALID_MEM_OBJECT);
    cl_mem parent = NULL;
    OK(clGetMemObjectInfo(part, CL_MEM_ASSOCIATED_MEMOBJECT, sizeof parent, &parent, NULL));
    WANT(parent == big);
    OK(clGetMemObjectInfo(part, CL_MEM_OFFSET, sizeof size, &size, NULL));
    WANT(size == region.origin);
    OK(clEnqueueFillBuffer(queue, big, &pattern, 4, 0, align, 0, NULL, NULL));
    int other = 9, first = 0, middle = 0;
    OK(clEnqueueWriteBuffer(queue, part, CL_TRUE, 0, sizeof other, &other, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, big, CL_FALSE, 0, 4, &first, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, big, CL_TRUE, region.origin, 4, &middle, 0, NULL, NULL));
    WANT(first == 7 && middle == 9);
    OK(clReleaseMemObject(big));
    OK(clGetMemObjectInfo(part, CL_MEM_ASSOCIATED_MEMOBJECT, sizeof parent, &parent, NULL));
    OK(clGetMemObjectInfo(parent, CL_MEM_SIZE, sizeof size, &size, NULL));
    WANT(size == align);
    OK(clReleaseMemObject(part));

    cl_mem guarded;
    MUST(guarded = clCreateBuffer(context, CL_MEM_HOST_NO_ACCESS, 64, NULL, &error));
    CODE(clEnqueueReadBuffer(queue, guarded, CL_TRUE, 0, 8, back, 0, NULL, NULL), CL_INVALID_OPERATION);
    CODE(clEnqueueWriteBuffer(queue, guarded, CL_TRUE, 0, 8, back, 0, NULL, NULL), CL_INVALID_OPERATION);
    OK(clReleaseMemObject(guarded));

    CODE(clSetMemObjectDestructorCallback(buffer, NULL, NULL), CL_INVALID_VALUE);
    OK(clSetMemObjectDestructorCallback(buffer, on_destroyed, (void *)1));
    OK(clSetMemObjectDestructorCallback(buffer, on_destroyed, (void *)0));
    OK(clRetainMemObject(buffer));
    OK(clGetMemObjectInfo(buffer, CL_MEM_REFERENCE_COUNT, sizeof count, &count, NULL));
    WANT(count == 2);
    OK(clReleaseMemObject(buffer));
    WANT(destroyed_order == 0);
    OK(clFinish(queue));
    OK(clReleaseMemObject(buffer));
    WANT(becomes(&destroyed_order, 2));
}

static void check_maps(void) {
    static int host[1024];
    for (int i = 0; i < 1024; i++) host[i] = i;
    cl_mem buffer;
    MUST(buffer = clCreateBuffer(context, CL_MEM_USE_HOST_PTR, sizeof host, host, &error));
    void *pointer = NULL;
    OK(clGetMemObjectInfo(buffer, CL_MEM_HOST_PTR, sizeof pointer, &pointer, NULL));
    WANT(pointer == host);
    int *mapped;
    MUST(mapped = clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 4, 400, 0, NULL, NULL, &error));
    WANT(mapped == host + 1);
    WANT(mapped[0] == 1 && mapped[99] == 100);
    cl_uint count = 0;
    OK(clGetMemObjectInfo(buffer, CL_MEM_MAP_COUNT, sizeof count, &count, NULL));
    WANT(count == 1);
    mapped[0] = -5;
    OK(clEnqueueUnmapMemObject(queue, buffer, mapped, 0, NULL, NULL));
    OK(clFinish(queue));
    OK(clGetMemObjectInfo(buffer, CL_MEM_MAP_COUNT, sizeof count, &count, NULL));
    WANT(count == 0);
    int back = 0;
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 4, 4, &back, 0, NULL, NULL));
    WANT(back == -5);
    FAILS(clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_READ, 4090, 400, 0, NULL, NULL, &error), CL_INVALID_VALUE);
    STRICT FAILS(clEnqueueMapBuffer(queue, buffer, CL_TRUE, 1 << 9, 0, 400, 0, NULL, NULL, &error), CL_INVALID_VALUE);
    STRICT CODE(clEnqueueUnmapMemObject(queue, buffer, garbage, 0, NULL, NULL), CL_INVALID_VALUE);
    OK(clReleaseMemObject(buffer));

    MUST(buffer = clCreateBuffer(context, CL_MEM_ALLOC_HOST_PTR, 4096, NULL, &error));
    cl_event written = NULL;
    int *first = clEnqueueMapBuffer(queue, buffer, CL_FALSE, CL_MAP_WRITE_INVALIDATE_REGION, 0, 4096, 0, NULL, &written, &error);
    MUST(first);
    OK(clWaitForEvents(1, &written));
    OK(clReleaseEvent(written));
    for (int i = 0; i < 1024; i++) first[i] = i * i;
    OK(clEnqueueUnmapMemObject(queue, buffer, first, 0, NULL, NULL));
    int *again;
    MUST(again = clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_READ, 40, 40, 0, NULL, NULL, &error));
    WANT(again[0] == 100 && again[9] == 19 * 19);
    OK(clEnqueueUnmapMemObject(queue, buffer, again, 0, NULL, NULL));
    OK(clFinish(queue));
    OK(clReleaseMemObject(buffer));
}

static volatile int built;

static void CL_CALLBACK on_built(cl_program program, void *user_data) {
    cl_build_status status = CL_BUILD_NONE;
    OK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_STATUS, sizeof status, &status, NULL));
    WANT(status == CL_BUILD_SUCCESS);
    WANT(user_data == (void *)11);
    __atomic_store_n(&built, 1, __ATOMIC_SEQ_CST);
}

static cl_program check_programs(void) {
    char text[4096];
    size_t size = 0;
    const char *broken = "kernel void k(global int *x) { x[0] = undeclared_thing; }";
    cl_program program;
    FAILS(clCreateProgramWithSource(context, 0, &broken, NULL, &error), CL_INVALID_VALUE);
    const char *missing = NULL;
    FAILS(clCreateProgramWithSource(context, 1, &missing, NULL, &error), CL_INVALID_VALUE);
    MUST(program = clCreateProgramWithSource(context, 1, &broken, NULL, &error));
    CODE(clBuildProgram(program, 1, &device, "", NULL, NULL), CL_BUILD_PROGRAM_FAILURE);
    cl_build_status status = 0;
    OK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_STATUS, sizeof status, &status, NULL));
    WANT(status == CL_BUILD_ERROR);
    OK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, NULL, &size));
    WANT(size > 1);
    FAILS(clCreateKernel(program, "k", &error), CL_INVALID_PROGRAM_EXECUTABLE);
    OK(clReleaseProgram(program));

    /* In two strings, the first with a length, the second up to its NUL. */
    const char *strings[] = {source, source + 40};
    size_t lengths[] = {40, 0};
    MUST(program = clCreateProgramWithSource(context, 2, strings, lengths, &error));
    char *whole = malloc(strlen(source) + 1);
    OK(clGetProgramInfo(program, CL_PROGRAM_SOURCE, strlen(source) + 1, whole, &size));
    WANT(size == strlen(source) + 1 && strcmp(whole, source) == 0);
    free(whole);
    OK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_STATUS, sizeof status, &status, NULL));
    WANT(status == CL_BUILD_NONE);
    CODE(clGetProgramInfo(program, CL_PROGRAM_NUM_KERNELS, sizeof size, &size, NULL), CL_INVALID_PROGRAM_EXECUTABLE);
    CODE(clBuildProgram(program, 1, NULL, NULL, NULL, NULL), CL_INVALID_VALUE);
    CODE(clBuildProgram(program, 0, &device, NULL, NULL, NULL), CL_INVALID_VALUE);
    CODE(clBuildProgram(program, 0, NULL, NULL, NULL, (void *)1), CL_INVALID_VALUE);
    cl_device_id wrong = garbage;
    STRICT CODE(clBuildProgram(program, 1, &wrong, NULL, NULL, NULL), CL_INVALID_DEVICE);
    OK(clBuildProgram(program, 0, NULL, "-DX=1", on_built, (void *)11));
    WANT(becomes(&built, 1));
    OK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_OPTIONS, sizeof text, text, NULL));
    WANT(strcmp(text, "-DX=1") == 0);
    OK(clGetProgramInfo(program, CL_PROGRAM_NUM_KERNELS, sizeof size, &size, NULL));
    WANT(size == 3);
    OK(clGetProgramInfo(program, CL_PROGRAM_KERNEL_NAMES, sizeof text, text, NULL));
    WANT(strstr(text, "scale") && strstr(text, "sums") && strstr(text, "one"));

    size_t length = 0;
    OK(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof length, &length, NULL));
    WANT(length > 0);
    unsigned char *binary = malloc(length);
    OK(clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binary, &binary, &size));
    WANT(size == sizeof binary);
    cl_int binary_status = 1;
    cl_program from_binary;
    const unsigned char *binaries[] = {binary};
    MUST(from_binary = clCreateProgramWithBinary(context, 1, &device, &length, binaries, &binary_status, &error));
    WANT(binary_status == CL_SUCCESS);
    OK(clBuildProgram(from_binary, 0, NULL, NULL, NULL, NULL));
    cl_kernel kernel;
    MUST(kernel = clCreateKernel(from_binary, "one", &error));
    cl_mem out;
    MUST(out = clCreateBuffer(context, CL_MEM_READ_WRITE, 64, NULL, &error));
    OK(clSetKernelArg(kernel, 0, sizeof out, &out));
    OK(clEnqueueTask(queue, kernel, 0, NULL, NULL));
    int answer = 0;
    OK(clEnqueueReadBuffer(queue, out, CL_TRUE, 0, sizeof answer, &answer, 0, NULL, NULL));
    WANT(answer == 42);
    OK(clReleaseMemObject(out));
    OK(clReleaseKernel(kernel));
    OK(clReleaseProgram(from_binary));
    binaries[0] = NULL;
    FAILS(clCreateProgramWithBinary(context, 1, &device, &length, binaries, &binary_status, &error), CL_INVALID_VALUE);
    WANT(binary_status == CL_INVALID_VALUE);
    size_t nothing = 0;
    binaries[0] = binary;
    binary_status = CL_SUCCESS;
    FAILS(clCreateProgramWithBinary(context, 1, &device, &nothing, binaries, &binary_status, &error), CL_INVALID_VALUE);
    WANT(binary_status == CL_INVALID_VALUE);
    memset(binary, 0x5a, length);
    binaries[0] = binary;
    FAILS(clCreateProgramWithBinary(context, 1, &device, &length, binaries, &binary_status, &error), CL_INVALID_BINARY);
    WANT(binary_status == CL_INVALID_BINARY);
    free(binary);
    return program;
}

static void check_kernels(cl_program program) {
    char text[256];
    cl_uint count = 0;
    cl_kernel kernel, all[8];
    FAILS(clCreateKernel(program, NULL, &error), CL_INVALID_VALUE);
    FAILS(clCreateKernel(program, "nothing", &error), CL_INVALID_KERNEL_NAME);
    OK(clCreateKernelsInProgram(program, 0, NULL, &count));
    WANT(count == 3);
    CODE(clCreateKernelsInProgram(program, 1, all, NULL), CL_INVALID_VALUE);
    OK(clCreateKernelsInProgram(program, 8, all, &count));
    CODE(clBuildProgram(program, 0, NULL, NULL, NULL, NULL), CL_INVALID_OPERATION);
    for (cl_uint i = 0; i < count; i++) OK(clReleaseKernel(all[i]));
    MUST(kernel = clCreateKernel(program, "scale", &error));
    OK(clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, sizeof text, text, NULL));
    WANT(strcmp(text, "scale") == 0);
    OK(clGetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof count, &count, NULL));
    WANT(count == 2);
    size_t group = 0, wanted[3] = {9, 9, 9};
    OK(clGetKernelWorkGroupInfo(kernel, device, CL_KERNEL_WORK_GROUP_SIZE, sizeof group, &group, NULL));
    WANT(group >= 1);
    OK(clGetKernelWorkGroupInfo(kernel, NULL, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof wanted, wanted, NULL));
    WANT(wanted[0] == 0);

    int host[64];
    for (int i = 0; i < 64; i++) host[i] = i;
    cl_mem data;
    MUST(data = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof host, host, &error));
    int factor = 3;
    size_t global = 64, local = 16;
    CODE(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, NULL, 0, NULL, NULL), CL_INVALID_KERNEL_ARGS);
    CODE(clSetKernelArg(kernel, 5, sizeof data, &data), CL_INVALID_ARG_INDEX);
    CODE(clSetKernelArg(kernel, 0, 3, &data), CL_INVALID_ARG_SIZE);
    CODE(clSetKernelArg(kernel, 1, 2, &factor), CL_INVALID_ARG_SIZE);
    OK(clSetKernelArg(kernel, 0, sizeof data, &data));
    OK(clSetKernelArg(kernel, 1, sizeof factor, &factor));
    CODE(clEnqueueNDRangeKernel(queue, kernel, 0, NULL, &global, NULL, 0, NULL, NULL), CL_INVALID_WORK_DIMENSION);
    CODE(clEnqueueNDRangeKernel(queue, kernel, 4, NULL, &global, NULL, 0, NULL, NULL), CL_INVALID_WORK_DIMENSION);
    size_t odd = 7, huge = (size_t)1 << 40;
    CODE(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, &odd, 0, NULL, NULL), CL_INVALID_WORK_GROUP_SIZE);
    WANT(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &huge, &huge, 0, NULL, NULL) < 0);
    STRICT CODE(clEnqueueNDRangeKernel(queue, garbage, 1, NULL, &global, NULL, 0, NULL, NULL), CL_INVALID_KERNEL);

    cl_event event = NULL;
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, &local, 0, NULL, &event));
    /* Arguments are taken when the command is enqueued. */
    factor = 100;
    OK(clSetKernelArg(kernel, 1, sizeof factor, &factor));
    OK(clWaitForEvents(1, &event));
    int back[64];
    OK(clEnqueueReadBuffer(queue, data, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
    int wrong = 0;
    for (int i = 0; i < 64; i++) wrong += back[i] != i * 3;
    WANT(wrong == 0);

    cl_ulong queued = 0, submitted = 0, started = 0, ended = 0;
    OK(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_QUEUED, sizeof queued, &queued, NULL));
    OK(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_SUBMIT, sizeof submitted, &submitted, NULL));
    OK(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, sizeof started, &started, NULL));
    OK(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof ended, &ended, NULL));
    WANT(queued <= submitted && submitted <= started && started <= ended);
    cl_int status = 1;
    cl_command_type type = 0;
    cl_command_queue its_queue = NULL;
    OK(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
    WANT(status == CL_COMPLETE);
    OK(clGetEventInfo(event, CL_EVENT_COMMAND_TYPE, sizeof type, &type, NULL));
    WANT(type == CL_COMMAND_NDRANGE_KERNEL);
    OK(clGetEventInfo(event, CL_EVENT_COMMAND_QUEUE, sizeof its_queue, &its_queue, NULL));
    WANT(its_queue == queue);
    OK(clReleaseEvent(event));
    STRICT CODE(clReleaseEvent(event), CL_INVALID_EVENT);
    OK(clReleaseKernel(kernel));

    /* Local memory, and an offset. */
    MUST(kernel = clCreateKernel(program, "sums", &error));
    OK(clSetKernelArg(kernel, 0, sizeof data, &data));
    CODE(clSetKernelArg(kernel, 1, 0, NULL), CL_INVALID_ARG_SIZE);
    OK(clSetKernelArg(kernel, 1, local * sizeof(int), NULL));
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, &local, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, data, CL_TRUE, 0, 16, back, 0, NULL, NULL));
    WANT(back[0] == 120 && back[3] == 120 + 3 * 16 * 16);
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(data));
}

static volatile int called;

static void CL_CALLBACK on_event(cl_event event, cl_int status, void *user_data) {
    (void)event;
    WANT(status == CL_COMPLETE);
    __atomic_fetch_add(&called, (int)(intptr_t)user_data, __ATOMIC_SEQ_CST);
}

static void CL_CALLBACK on_failed(cl_event event, cl_int status, void *user_data) {
    (void)event;
    (void)user_data;
    WANT(status < 0);
    __atomic_fetch_add(&called, 1000, __ATOMIC_SEQ_CST);
}

static void check_events(void) {
    cl_event user, marker = NULL, barrier = NULL;
    cl_int status = 0;
    cl_uint count = 0;
    MUST(user = clCreateUserEvent(context, &error));
    OK(clGetEventInfo(user, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
    WANT(status == CL_SUBMITTED);
    OK(clEnqueueMarkerWithWaitList(queue, 1, &user, &marker));
    OK(clEnqueueBarrierWithWaitList(queue, 0, NULL, &barrier));
    OK(clFlush(queue));
    CODE(clSetEventCallback(marker, CL_COMPLETE, NULL, NULL), CL_INVALID_VALUE);
    CODE(clSetEventCallback(marker, 77, on_event, NULL), CL_INVALID_VALUE);
    OK(clSetEventCallback(marker, CL_COMPLETE, on_event, (void *)1));
    OK(clSetEventCallback(user, CL_COMPLETE, on_event, (void *)10));
    OK(clGetEventInfo(marker, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
    WANT(status > CL_COMPLETE);
    CODE(clSetUserEventStatus(user, 5), CL_INVALID_VALUE);
    CODE(clSetUserEventStatus(marker, CL_COMPLETE), CL_INVALID_EVENT);
    OK(clSetUserEventStatus(user, CL_COMPLETE));
    CODE(clSetUserEventStatus(user, CL_COMPLETE), CL_INVALID_OPERATION);
    cl_event both[] = {marker, barrier};
    OK(clWaitForEvents(2, both));
    WANT(becomes(&called, 11));
    cl_ulong time;
    CODE(clGetEventProfilingInfo(user, CL_PROFILING_COMMAND_START, sizeof time, &time, NULL), CL_PROFILING_INFO_NOT_AVAILABLE);
    OK(clRetainEvent(marker));
    OK(clGetEventInfo(marker, CL_EVENT_REFERENCE_COUNT, sizeof count, &count, NULL));
    WANT(count >= 2);
    OK(clReleaseEvent(marker));
    OK(clReleaseEvent(marker));
    OK(clReleaseEvent(barrier));
    OK(clReleaseEvent(user));

    /* The 1.x forms. */
    cl_event old = NULL;
    OK(clEnqueueMarker(queue, &old));
    CODE(clEnqueueMarker(queue, NULL), CL_INVALID_VALUE);
    STRICT OK(clEnqueueWaitForEvents(queue, 1, &old));
    OK(clEnqueueBarrier(queue));
    OK(clFinish(queue));
    OK(clReleaseEvent(old));

    /* A failed user event ends what waits for it. */
    cl_command_queue other;
    MUST(other = clCreateCommandQueue(context, device, 0, &error));
    MUST(user = clCreateUserEvent(context, &error));
    OK(clEnqueueMarkerWithWaitList(other, 1, &user, &marker));
    OK(clFlush(other));
    OK(clSetEventCallback(marker, CL_COMPLETE, on_failed, NULL));
    OK(clSetUserEventStatus(user, -77));
    CODE(clWaitForEvents(1, &marker), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    OK(clGetEventInfo(marker, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
    WANT(status < 0);
    STRICT WANT(becomes(&called, 1011));
    OK(clReleaseEvent(marker));
    OK(clReleaseEvent(user));
    OK(clReleaseCommandQueue(other));
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    check_platform_and_device();
    check_context_and_queue();
    check_buffers();
    check_maps();
    cl_program program = check_programs();
    check_kernels(program);
    check_events();
    OK(clReleaseProgram(program));
    OK(clReleaseCommandQueue(queue));
    OK(clReleaseContext(context));
    STRICT CODE(clReleaseContext(context), CL_INVALID_CONTEXT);
    printf("%d failures\n", failures);
    return failures != 0;
}
