/* Sub-devices, timers, built-in kernels, pipes, queues on the device, sub-groups and programs in an intermediate language,
 * as far as the device claims them. Prints what ran, and the failures. */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

static cl_platform_id platform;
static cl_device_id device;

static cl_program build(cl_context context, cl_device_id on, const char *source, const char *options) {
    cl_int error;
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &error);
    error = clBuildProgram(program, 1, &on, options, NULL, NULL);
    if (error) {
        char log[4096] = "";
        clGetProgramBuildInfo(program, on, CL_PROGRAM_BUILD_LOG, sizeof log, log, NULL);
        fprintf(stderr, "build: %d %s\n", error, log);
        failures++;
    }
    return program;
}

static cl_ulong number(cl_device_info param) {
    cl_ulong value = 0;
    size_t size = 0;
    clGetDeviceInfo(device, param, sizeof value, &value, &size);
    return size == 4 ? (cl_uint)value : value;
}

static const char fill[] = "kernel void fill(global int *out) { out[get_global_id(0)] = (int)get_global_id(0) * 3; }";

static void sub_devices(void) {
    cl_int error = 0;
    cl_device_partition_property kinds[16] = {0};
    size_t size = 0;
    clGetDeviceInfo(device, CL_DEVICE_PARTITION_PROPERTIES, sizeof kinds, kinds, &size);
    int equally = 0;
    for (size_t i = 0; i < size / sizeof *kinds; i++) equally |= kinds[i] == CL_DEVICE_PARTITION_EQUALLY;
    cl_device_partition_property ones[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};
    cl_device_partition_property unknown[] = {0x7777, 1, 0};
    cl_uint count = 0;
    CHECK(clCreateSubDevices(device, unknown, 0, NULL, &count) == CL_INVALID_VALUE);
    CHECK(clCreateSubDevices(device, NULL, 0, NULL, &count) == CL_INVALID_VALUE);
    if (!equally || number(CL_DEVICE_PARTITION_MAX_SUB_DEVICES) < 2) {
        CHECK(clCreateSubDevices(device, ones, 0, NULL, &count) != CL_SUCCESS);
        return;
    }
    error = clCreateSubDevices(device, ones, 0, NULL, &count);
    CHECK(error == CL_SUCCESS && count == number(CL_DEVICE_MAX_COMPUTE_UNITS));
    cl_device_id *parts = calloc(count, sizeof *parts), parent = NULL;
    CHECK(clCreateSubDevices(device, ones, count - 1, parts, NULL) == CL_INVALID_VALUE);
    error = clCreateSubDevices(device, ones, count, parts, &count);
    CHECK(error == CL_SUCCESS && parts[0] && parts[0] != parts[1]);
    cl_uint units = 0, references = 0;
    cl_platform_id of = NULL;
    cl_device_partition_property kind[4] = {0};
    error = clGetDeviceInfo(parts[0], CL_DEVICE_MAX_COMPUTE_UNITS, sizeof units, &units, NULL);
    CHECK(error == CL_SUCCESS && units == 1);
    error = clGetDeviceInfo(parts[0], CL_DEVICE_PARENT_DEVICE, sizeof parent, &parent, NULL);
    CHECK(error == CL_SUCCESS && parent == device);
    error = clGetDeviceInfo(parts[0], CL_DEVICE_PLATFORM, sizeof of, &of, NULL);
    CHECK(error == CL_SUCCESS && of == platform);
    error = clGetDeviceInfo(parts[0], CL_DEVICE_PARTITION_TYPE, sizeof kind, kind, NULL);
    CHECK(error == CL_SUCCESS && kind[0] == CL_DEVICE_PARTITION_EQUALLY && kind[1] == 1);
    CHECK(clRetainDevice(parts[0]) == CL_SUCCESS);
    error = clGetDeviceInfo(parts[0], CL_DEVICE_REFERENCE_COUNT, sizeof references, &references, NULL);
    CHECK(error == CL_SUCCESS && references == 2);
    CHECK(clReleaseDevice(parts[0]) == CL_SUCCESS);

    /* A context of all of them, one kernel on each. */
    cl_context context = clCreateContext(NULL, count, parts, NULL, NULL, &error);
    CHECK(error == CL_SUCCESS);
    cl_program program = build(context, parts[1], fill, "");
    cl_kernel kernel = clCreateKernel(program, "fill", &error);
    CHECK(error == CL_SUCCESS);
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, 64 * sizeof(int), NULL, &error);
    cl_command_queue queue = clCreateCommandQueueWithProperties(context, parts[1], NULL, &error);
    CHECK(error == CL_SUCCESS);
    CHECK(clCreateCommandQueueWithProperties(context, device, NULL, &error) == NULL && error == CL_INVALID_DEVICE);
    CHECK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer) == CL_SUCCESS);
    size_t global = 64;
    error = clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, NULL, 0, NULL, NULL);
    CHECK(error == CL_SUCCESS);
    int result[64] = {0};
    error = clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof result, result, 0, NULL, NULL);
    CHECK(error == CL_SUCCESS && result[63] == 189);
    clReleaseMemObject(buffer);
    clReleaseKernel(kernel);
    clReleaseProgram(program);
    clReleaseCommandQueue(queue);
    /* The context keeps its devices. */
    for (cl_uint i = 0; i < count; i++) CHECK(clReleaseDevice(parts[i]) == CL_SUCCESS);
    CHECK(clGetDeviceInfo(parts[0], CL_DEVICE_MAX_COMPUTE_UNITS, sizeof units, &units, NULL) == CL_SUCCESS);
    clReleaseContext(context);
    CHECK(clGetDeviceInfo(parts[0], CL_DEVICE_MAX_COMPUTE_UNITS, sizeof units, &units, NULL) == CL_INVALID_DEVICE);
    free(parts);
    printf("sub-devices ");
}

static void timers(int is_3, cl_context context) {
    cl_int error = 0;
    cl_ulong on_device = 0, on_host = 0, later = 0;
    if (!is_3) {
        CHECK(clGetDeviceAndHostTimer(device, &on_device, &on_host) == CL_INVALID_OPERATION);
        return;
    }
    CHECK(clGetDeviceAndHostTimer(device, NULL, &on_host) == CL_INVALID_VALUE);
    error = clGetDeviceAndHostTimer(device, &on_device, &on_host);
    CHECK(error == CL_SUCCESS && on_device && on_host);
    cl_queue_properties profiling[] = {CL_QUEUE_PROPERTIES, CL_QUEUE_PROFILING_ENABLE, 0};
    cl_command_queue queue = clCreateCommandQueueWithProperties(context, device, profiling, &error);
    cl_event event;
    clEnqueueMarkerWithWaitList(queue, 0, NULL, &event);
    clFinish(queue);
    cl_ulong queued = 0;
    error = clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_QUEUED, sizeof queued, &queued, NULL);
    CHECK(clGetHostTimer(device, &later) == CL_SUCCESS);
    /* The moments of commands are on this clock. */
    CHECK(error == CL_SUCCESS && on_device <= queued && queued <= later);
    clReleaseEvent(event);
    clReleaseCommandQueue(queue);
    printf("timers ");
}

static void built_in_kernels(cl_context context) {
    cl_int error;
    char names[4096] = "";
    clGetDeviceInfo(device, CL_DEVICE_BUILT_IN_KERNELS, sizeof names, names, NULL);
    CHECK(clCreateProgramWithBuiltInKernels(context, 1, &device, "no.such.kernel", &error) == NULL);
    CHECK(error == CL_INVALID_VALUE);
    CHECK(clCreateProgramWithBuiltInKernels(context, 1, &device, NULL, &error) == NULL && error == CL_INVALID_VALUE);
    if (!strstr(names, "pocl.add.i8")) return;
    cl_program program = clCreateProgramWithBuiltInKernels(context, 1, &device, "pocl.add.i8", &error);
    CHECK(error == CL_SUCCESS);
    char kernels[64] = "pocl.add.i8";
    error = clGetProgramInfo(program, CL_PROGRAM_KERNEL_NAMES, sizeof kernels, kernels, NULL);
    /* PoCL 3.1 lists such kernels, makes a program of them, and then has no executable for its processor. */
    int usable = error != CL_INVALID_PROGRAM_EXECUTABLE;
    CHECK(!usable || (error == CL_SUCCESS && strcmp(kernels, "pocl.add.i8") == 0));
    cl_kernel kernel = clCreateKernel(program, "pocl.add.i8", &error);
    CHECK(usable ? error == CL_SUCCESS : error == CL_INVALID_PROGRAM_EXECUTABLE);
    if (kernel) clReleaseKernel(kernel);
    clReleaseProgram(program);
    printf("built-in-kernels ");
}

static void pipes(cl_context context, cl_command_queue queue) {
    static const char source[] =
        "kernel void put(write_only pipe int p) { int v = (int)get_global_id(0) + 5; write_pipe(p, &v); }\n"
        "kernel void get(read_only pipe int p, global int *sum) { int v; if (read_pipe(p, &v) == 0) atomic_add(sum, v); }";
    cl_int error;
    if (!number(CL_DEVICE_PIPE_SUPPORT)) {
        /* A device with host pipes has pipes between kernels, too. */
        char extensions[8192] = "";
        clGetDeviceInfo(device, CL_DEVICE_EXTENSIONS, sizeof extensions - 1, extensions, NULL);
        cl_mem pipe = clCreatePipe(context, 0, 4, 16, NULL, &error);
        CHECK(error == (strstr(extensions, "cl_intel_fpga_host_pipe") ? CL_SUCCESS : CL_INVALID_OPERATION));
        if (pipe) clReleaseMemObject(pipe);
        return;
    }
    CHECK(clCreatePipe(context, 0, 0, 16, NULL, &error) == NULL && error == CL_INVALID_PIPE_SIZE);
    CHECK(clCreatePipe(context, CL_MEM_READ_ONLY, 4, 16, NULL, &error) == NULL && error == CL_INVALID_VALUE);
    cl_mem pipe = clCreatePipe(context, CL_MEM_HOST_NO_ACCESS, 4, 16, NULL, &error);
    CHECK(error == CL_SUCCESS);
    cl_uint packets = 0;
    cl_mem_object_type type = 0;
    error = clGetPipeInfo(pipe, CL_PIPE_MAX_PACKETS, sizeof packets, &packets, NULL);
    CHECK(error == CL_SUCCESS && packets == 16);
    error = clGetMemObjectInfo(pipe, CL_MEM_TYPE, sizeof type, &type, NULL);
    CHECK(error == CL_SUCCESS && type == CL_MEM_OBJECT_PIPE);
    cl_program program = build(context, device, source, "-cl-std=CL3.0");
    cl_kernel put = clCreateKernel(program, "put", &error), get = clCreateKernel(program, "get", &error);
    int zero = 0, sum = 0;
    cl_mem out = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof sum, &zero, &error);
    CHECK(clGetPipeInfo(out, CL_PIPE_MAX_PACKETS, sizeof packets, &packets, NULL) == CL_INVALID_MEM_OBJECT);
    CHECK(clSetKernelArg(put, 0, sizeof out, &out) != CL_SUCCESS);
    error = clSetKernelArg(put, 0, sizeof pipe, &pipe) | clSetKernelArg(get, 0, sizeof pipe, &pipe);
    CHECK(error == CL_SUCCESS && clSetKernelArg(get, 1, sizeof out, &out) == CL_SUCCESS);
    size_t global = 8;
    error = clEnqueueNDRangeKernel(queue, put, 1, NULL, &global, NULL, 0, NULL, NULL);
    CHECK(error == CL_SUCCESS);
    error = clEnqueueNDRangeKernel(queue, get, 1, NULL, &global, NULL, 0, NULL, NULL);
    CHECK(error == CL_SUCCESS);
    CHECK(clEnqueueReadBuffer(queue, pipe, CL_TRUE, 0, 4, &sum, 0, NULL, NULL) == CL_INVALID_MEM_OBJECT);
    error = clEnqueueReadBuffer(queue, out, CL_TRUE, 0, sizeof sum, &sum, 0, NULL, NULL);
    CHECK(error == CL_SUCCESS && sum == 8 * 5 + 28);
    clReleaseMemObject(pipe);
    clReleaseMemObject(out);
    clReleaseKernel(put);
    clReleaseKernel(get);
    clReleaseProgram(program);
    printf("pipes ");
}

static void device_queues(cl_context context, cl_command_queue queue) {
    static const char source[] =
        "kernel void parent(global int *out, queue_t other) {\n"
        "    ndrange_t range = ndrange_1D(16);\n"
        "    enqueue_kernel(get_default_queue(), CLK_ENQUEUE_FLAGS_WAIT_KERNEL, range,\n"
        "                   ^{ out[get_global_id(0)] = (int)get_global_id(0) + 1; });\n"
        "    enqueue_kernel(other, CLK_ENQUEUE_FLAGS_WAIT_KERNEL, range,\n"
        "                   ^{ out[16 + get_global_id(0)] = (int)get_global_id(0) + 100; });\n"
        "}";
    cl_int error;
    cl_queue_properties list[] = {
        CL_QUEUE_PROPERTIES,
        CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | CL_QUEUE_ON_DEVICE | CL_QUEUE_ON_DEVICE_DEFAULT,
        0,
    };
    if (!number(CL_DEVICE_DEVICE_ENQUEUE_CAPABILITIES)) {
        CHECK(clCreateCommandQueueWithProperties(context, device, list, &error) == NULL);
        CHECK(error == CL_INVALID_QUEUE_PROPERTIES);
        return;
    }
    cl_command_queue standard = clCreateCommandQueueWithProperties(context, device, list, &error), found = NULL;
    CHECK(error == CL_SUCCESS);
    cl_command_queue again = clCreateCommandQueueWithProperties(context, device, list, &error);
    CHECK(error == CL_SUCCESS && again == standard);
    clReleaseCommandQueue(again);
    list[1] ^= CL_QUEUE_ON_DEVICE_DEFAULT;
    cl_command_queue other = clCreateCommandQueueWithProperties(context, device, list, &error);
    CHECK(error == CL_SUCCESS && other != standard);
    list[1] ^= CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;
    CHECK(clCreateCommandQueueWithProperties(context, device, list, &error) == NULL && error == CL_INVALID_VALUE);
    error = clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE_DEFAULT, sizeof found, &found, NULL);
    CHECK(error == CL_SUCCESS && found == standard);
    cl_uint size = 0;
    error = clGetCommandQueueInfo(standard, CL_QUEUE_SIZE, sizeof size, &size, NULL);
    CHECK(error == CL_SUCCESS && size == number(CL_DEVICE_QUEUE_ON_DEVICE_PREFERRED_SIZE));
    CHECK(clFinish(standard) == CL_INVALID_COMMAND_QUEUE);
    cl_program program = build(context, device, source, "-cl-std=CL3.0");
    cl_kernel kernel = clCreateKernel(program, "parent", &error);
    CHECK(error == CL_SUCCESS);
    int zeros[32] = {0}, result[32] = {0};
    cl_mem out = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof zeros, zeros, &error);
    CHECK(clSetKernelArg(kernel, 0, sizeof out, &out) == CL_SUCCESS);
    CHECK(clSetKernelArg(kernel, 1, sizeof queue, &queue) == CL_INVALID_DEVICE_QUEUE);
    CHECK(clSetKernelArg(kernel, 1, sizeof other, &other) == CL_SUCCESS);
    size_t one = 1;
    error = clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL);
    CHECK(error == CL_SUCCESS);
    error = clEnqueueReadBuffer(queue, out, CL_TRUE, 0, sizeof result, result, 0, NULL, NULL);
    CHECK(error == CL_SUCCESS && result[15] == 16 && result[31] == 115);
    if (number(CL_DEVICE_DEVICE_ENQUEUE_CAPABILITIES) & CL_DEVICE_QUEUE_REPLACEABLE_DEFAULT) {
        error = clSetDefaultDeviceCommandQueue(context, device, other);
        CHECK(error == CL_SUCCESS);
        clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE_DEFAULT, sizeof found, &found, NULL);
        CHECK(found == other);
        CHECK(clSetDefaultDeviceCommandQueue(context, device, queue) == CL_INVALID_COMMAND_QUEUE);
    }
    clReleaseMemObject(out);
    clReleaseKernel(kernel);
    clReleaseProgram(program);
    CHECK(clReleaseCommandQueue(other) == CL_SUCCESS && clReleaseCommandQueue(standard) == CL_SUCCESS);
    printf("device-queues ");
}

static void sub_groups(cl_context context) {
    cl_int error;
    cl_program program = build(context, device, fill, "");
    cl_kernel kernel = clCreateKernel(program, "fill", &error);
    size_t local[3] = {64, 1, 1}, answer = 0, size = 0;
    if (!number(CL_DEVICE_MAX_NUM_SUB_GROUPS)) {
        error = clGetKernelSubGroupInfo(kernel, device, CL_KERNEL_MAX_SUB_GROUP_SIZE_FOR_NDRANGE, sizeof local, local,
                                        sizeof answer, &answer, &size);
        CHECK(error == CL_INVALID_OPERATION);
    } else {
        error = clGetKernelSubGroupInfo(kernel, device, CL_KERNEL_MAX_SUB_GROUP_SIZE_FOR_NDRANGE, sizeof local, local,
                                        sizeof answer, &answer, &size);
        CHECK(error == CL_SUCCESS && size == sizeof answer && answer > 0 && answer <= 64);
        error = clGetKernelSubGroupInfo(kernel, device, CL_KERNEL_MAX_SUB_GROUP_SIZE_FOR_NDRANGE, 7, local,
                                        sizeof answer, &answer, &size);
        CHECK(error == CL_INVALID_VALUE);
        error = clGetKernelSubGroupInfo(kernel, device, 0x7777, 0, NULL, sizeof answer, &answer, &size);
        CHECK(error == CL_INVALID_VALUE);
        printf("sub-groups ");
    }
    clReleaseKernel(kernel);
    clReleaseProgram(program);
}

static void intermediate_language(int is_3, cl_context context, cl_command_queue queue) {
    /* A SPIR-V module with an empty kernel `k`. */
    static const cl_uint il[] = {
        0x07230203, 0x00010000, 0, 5, 0,            /* header; ids below 5 */
        2 << 16 | 17, 4, 2 << 16 | 17, 6,           /* capabilities Addresses, Kernel */
        3 << 16 | 14, 2, 2,                         /* memory model Physical64, OpenCL */
        4 << 16 | 15, 6, 1, 'k',                    /* entry point 1 */
        2 << 16 | 19, 2, 3 << 16 | 33, 3, 2,        /* types: 2 void, 3 function */
        5 << 16 | 54, 2, 1, 0, 3, 2 << 16 | 248, 4, /* function 1, block 4 */
        1 << 16 | 253, 1 << 16 | 56,                /* return, end */
    };
    cl_int error;
    char version[256] = "";
    clGetDeviceInfo(device, CL_DEVICE_IL_VERSION, sizeof version, version, NULL);
    if (!version[0]) {
        CHECK(clCreateProgramWithIL(context, il, sizeof il, &error) == NULL && error == CL_INVALID_OPERATION);
        return;
    }
    CHECK(is_3);
    CHECK(clCreateProgramWithIL(context, NULL, 8, &error) == NULL && error == CL_INVALID_VALUE);
    CHECK(clCreateProgramWithIL(context, "nonsense", 8, &error) == NULL && error != CL_SUCCESS);
    cl_program program = clCreateProgramWithIL(context, il, sizeof il, &error);
    CHECK(error == CL_SUCCESS);
    cl_uint back[sizeof il / sizeof *il] = {0};
    error = clGetProgramInfo(program, CL_PROGRAM_IL, sizeof back, back, NULL);
    CHECK(error == CL_SUCCESS && memcmp(back, il, sizeof il) == 0);
    cl_uint nothing = 0;
    CHECK(clSetProgramSpecializationConstant(program, 1, 0, &nothing) == CL_INVALID_VALUE);
    CHECK(clSetProgramSpecializationConstant(program, 1, 4, NULL) == CL_INVALID_VALUE);
    error = clBuildProgram(program, 1, &device, "", NULL, NULL);
    CHECK(error == CL_SUCCESS);
    cl_kernel kernel = clCreateKernel(program, "k", &error);
    CHECK(error == CL_SUCCESS);
    size_t one = 1;
    error = clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL);
    CHECK(error == CL_SUCCESS && clFinish(queue) == CL_SUCCESS);
    clReleaseKernel(kernel);
    clReleaseProgram(program);
    const char *text = fill;
    program = clCreateProgramWithSource(context, 1, &text, NULL, &error);
    CHECK(clSetProgramSpecializationConstant(program, 1, 4, &nothing) == CL_INVALID_PROGRAM);
    clReleaseProgram(program);
    printf("il ");
}

int main(void) {
    cl_int error = clGetPlatformIDs(1, &platform, NULL);
    CHECK(error == CL_SUCCESS);
    error = clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL);
    CHECK(error == CL_SUCCESS);
    char version[256] = "";
    clGetDeviceInfo(device, CL_DEVICE_VERSION, sizeof version, version, NULL);
    int is_3 = strncmp(version, "OpenCL 3.", 9) == 0;
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    cl_command_queue queue = clCreateCommandQueueWithProperties(context, device, NULL, &error);
    CHECK(error == CL_SUCCESS);
    CHECK(clSVMAlloc(context, 0, 64, 0) == NULL);
    CHECK(clEnqueueSVMUnmap(queue, &error, 0, NULL, NULL) == CL_INVALID_OPERATION);
    sub_devices();
    timers(is_3, context);
    built_in_kernels(context);
    pipes(context, queue);
    device_queues(context, queue);
    sub_groups(context);
    intermediate_language(is_3, context, queue);
    clReleaseCommandQueue(queue);
    clReleaseContext(context);
    printf("%d failures\n", failures);
    return failures != 0;
}
