/* Outlives its device manager: gets an error and no hang when that dies, and makes a new context, of the same device,
 * once it is back. Prints "ready", goes on when a line comes in. Exits with 1 if anything is wrong. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define CODE(call, code) do { cl_int got_ = (call); if (got_ != (code)) { \
    printf("line %d: %d instead of %d: %s\n", __LINE__, got_, (int)(code), #call); exit(1); } } while (0)
#define OK(call) CODE(call, CL_SUCCESS)

static cl_device_id device;

/* 0, or the first error. */
static cl_int round_trip(void) {
    cl_int error;
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    if (error) return error;
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &error);
    OK(error);
    int written = 7, read = 0;
    cl_mem buffer = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof written, &written, &error);
    OK(error);
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof read, &read, 0, NULL, NULL));
    CODE(read, written);
    OK(clReleaseMemObject(buffer));
    OK(clReleaseCommandQueue(queue));
    OK(clReleaseContext(context));
    return CL_SUCCESS;
}

int main(void) {
    cl_platform_id platform;
    cl_int error;
    cl_bool available = CL_FALSE;
    char line[16];
    OK(clGetPlatformIDs(1, &platform, NULL));
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    OK(round_trip());
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    OK(error);
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &error);
    OK(error);
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, 64, NULL, &error);
    OK(error);
    OK(clFinish(queue));
    printf("ready\n");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 1;

    /* A write to an idle buffer needs no manager, a command does. */
    int value = 1;
    cl_int enqueued = clEnqueueFillBuffer(queue, buffer, &value, sizeof value, 0, sizeof value, 0, NULL, NULL);
    if (!enqueued && !clFinish(queue)) {
        printf("a command for a dead manager succeeded\n");
        return 1;
    }
    OK(clReleaseMemObject(buffer));
    OK(clReleaseCommandQueue(queue));
    OK(clReleaseContext(context));

    /* A dead manager is asked again after some seconds. */
    for (int i = 0; i < 600 && (error = round_trip()) != CL_SUCCESS; i++)
        nanosleep(&(struct timespec){0, 100000000}, NULL);
    OK(error);
    OK(clGetDeviceInfo(device, CL_DEVICE_AVAILABLE, sizeof available, &available, NULL));
    CODE(available, CL_TRUE);
    return 0;
}
