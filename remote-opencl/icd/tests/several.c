/* Every platform is used at once: a kernel on each, no object of one on another. Prints the number of platforms. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OK(call)                                                  \
    do {                                                          \
        cl_int code_ = (call);                                    \
        if (code_ != CL_SUCCESS) {                                \
            printf("line %d: %s: %d\n", __LINE__, #call, code_);  \
            exit(1);                                              \
        }                                                         \
    } while (0)
#define WANT(condition)                                           \
    do {                                                          \
        if (!(condition)) {                                       \
            printf("line %d: not %s\n", __LINE__, #condition);    \
            exit(1);                                              \
        }                                                         \
    } while (0)

enum { MAX = 8, N = 256 };

static const char *source = "kernel void add(global int *a, int by) { a[get_global_id(0)] += by; }";

int main(void) {
    cl_platform_id platforms[MAX];
    cl_device_id devices[MAX];
    cl_context contexts[MAX];
    cl_command_queue queues[MAX];
    cl_mem buffers[MAX];
    cl_event events[MAX];
    cl_uint count = 0;
    cl_int error;
    OK(clGetPlatformIDs(MAX, platforms, &count));
    WANT(count <= MAX);
    for (cl_uint i = 0; i < count; i++) {
        int zeros[N] = {0};
        int by = (int)i + 7;
        size_t global = N;
        char suffix[16] = "";
        OK(clGetPlatformInfo(platforms[i], 0x0920, sizeof suffix, suffix, NULL));
        WANT(strcmp(suffix, "FPGA") == 0);
        OK(clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, 1, &devices[i], NULL));
        contexts[i] = clCreateContext(NULL, 1, &devices[i], NULL, NULL, &error);
        OK(error);
        queues[i] = clCreateCommandQueue(contexts[i], devices[i], 0, &error);
        OK(error);
        cl_program program = clCreateProgramWithSource(contexts[i], 1, &source, NULL, &error);
        OK(error);
        OK(clBuildProgram(program, 0, NULL, "", NULL, NULL));
        cl_kernel kernel = clCreateKernel(program, "add", &error);
        OK(error);
        buffers[i] = clCreateBuffer(contexts[i], CL_MEM_COPY_HOST_PTR, sizeof zeros, zeros, &error);
        OK(error);
        OK(clSetKernelArg(kernel, 0, sizeof buffers[i], &buffers[i]));
        OK(clSetKernelArg(kernel, 1, sizeof by, &by));
        OK(clEnqueueNDRangeKernel(queues[i], kernel, 1, NULL, &global, NULL, 0, NULL, &events[i]));
        OK(clFlush(queues[i]));
        OK(clReleaseKernel(kernel));
        OK(clReleaseProgram(program));
    }
    for (cl_uint i = 0; i < count; i++) {
        int back[N];
        OK(clEnqueueReadBuffer(queues[i], buffers[i], CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
        for (int at = 0; at < N; at++) WANT(back[at] == (int)i + 7);
        cl_uint other = (i + 1) % count;
        if (other == i) continue;
        cl_device_id both[2] = {devices[i], devices[other]};
        WANT(clCreateContext(NULL, 2, both, NULL, NULL, &error) == NULL && error == CL_INVALID_DEVICE);
        error = clEnqueueReadBuffer(queues[i], buffers[other], CL_TRUE, 0, 4, back, 0, NULL, NULL);
        WANT(error == CL_INVALID_CONTEXT);
        error = clEnqueueReadBuffer(queues[i], buffers[i], CL_TRUE, 0, 4, back, 1, &events[other], NULL);
        WANT(error == CL_INVALID_CONTEXT);
    }
    for (cl_uint i = 0; i < count; i++) {
        OK(clReleaseEvent(events[i]));
        OK(clReleaseMemObject(buffers[i]));
        OK(clReleaseCommandQueue(queues[i]));
        OK(clReleaseContext(contexts[i]));
    }
    printf("%u\n", count);
    return 0;
}
