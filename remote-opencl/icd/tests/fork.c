/* A child of fork() gets errors for what it inherited, opens a session of its own, and leaves its parent's alone.
 *
 * Releases nothing, neither in the child nor in the parent. Prints what is wrong, exits with 1 if anything is. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define CODE(call, code) do { cl_int got_ = (call); if (got_ != (code)) { \
    printf("pid %d line %d: %d instead of %d: %s\n", getpid(), __LINE__, got_, (int)(code), #call); \
    fflush(stdout); _exit(1); } } while (0)
#define OK(call) CODE(call, CL_SUCCESS)

struct session {
    cl_context context;
    cl_command_queue queue;
    cl_mem buffer;
};

static struct session open_session(cl_device_id device, int value) {
    struct session its;
    cl_int error;
    its.context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    OK(error);
    its.queue = clCreateCommandQueue(its.context, device, 0, &error);
    OK(error);
    its.buffer = clCreateBuffer(its.context, CL_MEM_READ_WRITE, sizeof value, NULL, &error);
    OK(error);
    OK(clEnqueueWriteBuffer(its.queue, its.buffer, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL));
    return its;
}

static void check_value(struct session its, int wanted) {
    int value = 0;
    OK(clEnqueueReadBuffer(its.queue, its.buffer, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL));
    CODE(value, wanted);
}

int main(void) {
    cl_platform_id platform;
    cl_device_id device;
    char name[256];
    OK(clGetPlatformIDs(1, &platform, NULL));
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    struct session parents = open_session(device, 11);
    for (int round = 0; round < 3; round++) {
        pid_t child = fork();
        if (child == 0) {
            int value;
            CODE(clFinish(parents.queue), CL_INVALID_COMMAND_QUEUE);
            CODE(clRetainContext(parents.context), CL_INVALID_CONTEXT);
            CODE(clReleaseMemObject(parents.buffer), CL_INVALID_MEM_OBJECT);
            CODE(clEnqueueReadBuffer(parents.queue, parents.buffer, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL),
                 CL_INVALID_COMMAND_QUEUE);
            OK(clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof name, name, NULL));
            OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
            struct session childs = open_session(device, 22 + round);
            check_value(childs, 22 + round);
            if (round == 1) exit(0);
            _exit(0);
        }
        int status = -1;
        check_value(parents, 11);
        CODE(waitpid(child, &status, 0), child);
        CODE(status, 0);
        check_value(parents, 11);
    }
    return 0;
}
