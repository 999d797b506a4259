/* What an application could notice of a layer: queue properties, profiling, reference counts, error codes. And what the
 * layer reports: a program of a binary. The first argument says what to do, the second is a file. Ends with 0, or with 1
 * and a line on stderr. */
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EXPECT(condition)                                                                                 \
    do {                                                                                                  \
        if (!(condition)) {                                                                               \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                               \
            exit(1);                                                                                      \
        }                                                                                                 \
    } while (0)
#define OK(call) EXPECT((call) == CL_SUCCESS)

static const char *SOURCE = "kernel void spin(global uint *x, uint loops) {\n"
                            "    uint s = x[0] | 1;\n"
                            "    for (uint i = 0; i < loops; i++) { s ^= s << 13; s ^= s >> 17; s ^= s << 5; }\n"
                            "    x[0] = s;\n"
                            "}\n";

static cl_platform_id platform;
static cl_device_id device;
static cl_context context;

static void open_device(void)
{
    cl_int code = -1;
    OK(clGetPlatformIDs(1, &platform, NULL));
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
    OK(code);
}

static cl_program build_source(void)
{
    cl_int code = -1;
    cl_program program = clCreateProgramWithSource(context, 1, &SOURCE, NULL, &code);
    OK(code);
    OK(clBuildProgram(program, 1, &device, "-DONE=1", NULL, NULL));
    return program;
}

/* The queue is one without profiling, as far as it says; `with` is what it was made with, and its list. */
static void check_queue(cl_command_queue queue, cl_command_queue_properties with, const cl_queue_properties *list,
                        size_t words)
{
    cl_command_queue_properties properties = 77;
    cl_queue_properties array[8];
    size_t size = 77;
    cl_uint references = 0;
    OK(clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES, sizeof properties, &properties, &size));
    EXPECT(properties == with && size == sizeof properties);
    EXPECT(clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES, 1, &properties, NULL) == CL_INVALID_VALUE);
    OK(clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES, 0, NULL, &size));
    OK(clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES_ARRAY, sizeof array, array, &size));
    EXPECT(size == words * sizeof *list && memcmp(array, list, size) == 0);
    OK(clGetCommandQueueInfo(queue, CL_QUEUE_REFERENCE_COUNT, sizeof references, &references, NULL));
    EXPECT(references == 1);

    cl_int code = -1;
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, 4096, NULL, &code);
    OK(code);
    char bytes[4096] = "";
    cl_event event = NULL;
    cl_ulong stamp = 0;
    OK(clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, sizeof bytes, bytes, 0, NULL, &event));
    OK(clWaitForEvents(1, &event));
    EXPECT(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof stamp, &stamp, NULL) ==
           CL_PROFILING_INFO_NOT_AVAILABLE);
    OK(clFinish(queue));
    /* PoCL holds on to a queue's last event, and to others for a moment. The alarm ends the wait. */
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof bytes, bytes, 0, NULL, NULL));
    do
        OK(clGetEventInfo(event, CL_EVENT_REFERENCE_COUNT, sizeof references, &references, NULL));
    while (references != 1);
    OK(clReleaseEvent(event));
    /* An error stays that error, and makes no event. */
    event = (cl_event)16;
    EXPECT(clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 5000, 1, bytes, 0, NULL, &event) == CL_INVALID_VALUE);
    EXPECT(event == (cl_event)16);
    EXPECT(clEnqueueReadBuffer(queue, NULL, CL_TRUE, 0, 1, bytes, 0, NULL, NULL) == CL_INVALID_MEM_OBJECT);
    void *mapped = clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_READ, 0, 4096, 0, NULL, NULL, &code);
    OK(code);
    OK(clEnqueueUnmapMemObject(queue, buffer, mapped, 0, NULL, NULL));
    EXPECT(clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_READ, 0, 5000, 0, NULL, NULL, &code) == NULL);
    EXPECT(code == CL_INVALID_VALUE);
    OK(clReleaseMemObject(buffer));
    OK(clReleaseCommandQueue(queue));
}

static void visible(void)
{
    cl_int code = -1;
    check_queue(clCreateCommandQueue(context, device, 0, &code), 0, NULL, 0);
    OK(code);
    code = -1;
    check_queue(clCreateCommandQueueWithProperties(context, device, NULL, &code), 0, NULL, 0);
    OK(code);
    const cl_queue_properties out_of_order[] = { CL_QUEUE_PROPERTIES, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, 0 };
    check_queue(clCreateCommandQueueWithProperties(context, device, out_of_order, NULL),
                CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, out_of_order, 3);
    /* Who asks for profiling gets it. */
    const cl_queue_properties profiling[] = { CL_QUEUE_PROPERTIES, CL_QUEUE_PROFILING_ENABLE, 0 };
    cl_command_queue queue = clCreateCommandQueueWithProperties(context, device, profiling, &code);
    OK(code);
    cl_command_queue_properties properties = 0;
    OK(clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES, sizeof properties, &properties, NULL));
    EXPECT(properties == CL_QUEUE_PROFILING_ENABLE);
    cl_event event = NULL;
    cl_ulong stamp = 0;
    OK(clEnqueueMarkerWithWaitList(queue, 0, NULL, &event));
    OK(clFinish(queue));
    OK(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof stamp, &stamp, NULL));
    OK(clReleaseEvent(event));
    OK(clReleaseCommandQueue(queue));
    /* Errors come as they are. */
    EXPECT(clCreateCommandQueue(NULL, device, 0, &code) == NULL && code == CL_INVALID_CONTEXT);
    EXPECT(clCreateCommandQueue(context, device, 1 << 20, &code) == NULL && code == CL_INVALID_VALUE);
    const cl_queue_properties odd[] = { CL_QUEUE_PROPERTIES, 1 << 20, 0 };
    EXPECT(clCreateCommandQueueWithProperties(context, device, odd, &code) == NULL && code == CL_INVALID_VALUE);
    OK(clReleaseContext(context));
}

/* Writes the binary of the kernel to a file. */
static void write_binary(const char *path)
{
    cl_program program = build_source();
    size_t size = 0;
    OK(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL));
    unsigned char *bytes = malloc(size);
    OK(clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof bytes, &bytes, NULL));
    FILE *file = fopen(path, "wb");
    EXPECT(file != NULL && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Loads the binary, and keeps the device busy for some 300 ms. Prints the milliseconds. */
static void run_binary(const char *path)
{
    static unsigned char bytes[1 << 24];
    FILE *file = fopen(path, "rb");
    EXPECT(file != NULL);
    size_t size = fread(bytes, 1, sizeof bytes, file);
    const unsigned char *binary = bytes;
    cl_int code = -1, status = -1;
    cl_program program = clCreateProgramWithBinary(context, 1, &device, &size, &binary, &status, &code);
    OK(code);
    OK(status);
    OK(clBuildProgram(program, 1, &device, NULL, NULL, NULL));
    cl_kernel kernel = clCreateKernel(program, "spin", &code);
    OK(code);
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &code);
    OK(code);
    cl_uint loops = 10000000;
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof loops, &loops, &code);
    OK(code);
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    OK(clSetKernelArg(kernel, 1, sizeof loops, &loops));
    size_t one = 1;
    /* The first launch may compile, which is none of the device's time. */
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, &one, 0, NULL, NULL));
    OK(clFinish(queue));
    double begin = now_s();
    do {
        OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, &one, 0, NULL, NULL));
        OK(clFinish(queue));
    } while (now_s() - begin < 0.3);
    printf("%d\n", (int)((now_s() - begin) * 1000));
    fflush(stdout);
    /* What isn't given back is given back by the exit; the last context's release tells the layer to make haste. */
    OK(clReleaseContext(context));
}

/* A child that uses OpenCL for itself, after a parent that only looked, and one whose parent has everything open. */
static void in_a_fork(const char *path)
{
    OK(clGetPlatformIDs(1, &platform, NULL));
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        open_device();
        run_binary(path);
        exit(0);
    }
    int status = -1;
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    open_device();
    cl_int code = -1;
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &code);
    OK(code);
    OK(clFinish(queue));
    child = fork();
    EXPECT(child >= 0);
    if (child == 0)
        exit(0);
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    /* The exit finds everything in use. */
    build_source();
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, 1 << 20, NULL, &code);
    OK(code);
    cl_uint zero = 0;
    for (int i = 0; i < 100; i++)
        OK(clEnqueueFillBuffer(queue, buffer, &zero, sizeof zero, 0, 1 << 20, 0, NULL, NULL));
    OK(clFlush(queue));
}

/* Queues, kernels and events of its own come and go, some asked for, some waited for, some forgotten. */
static void *worker(void *argument)
{
    cl_program program = argument;
    for (int round = 0; round < 10; round++) {
        cl_int code = -1;
        cl_command_queue queue = clCreateCommandQueue(context, device, 0, &code);
        OK(code);
        cl_kernel kernel = clCreateKernel(program, "spin", &code);
        OK(code);
        cl_uint value = 1;
        cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof value, &value, &code);
        OK(code);
        OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
        OK(clSetKernelArg(kernel, 1, sizeof value, &value));
        const size_t one = 1;
        cl_event last = NULL;
        for (int i = 0; i < 200; i++) {
            cl_event event = NULL;
            OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, &one, last != NULL, last != NULL ? &last : NULL,
                                      i % 3 == 0 ? NULL : &event));
            if (last != NULL)
                OK(clReleaseEvent(last));
            last = event;
            if (i % 50 == 0)
                OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL));
        }
        if (last != NULL)
            OK(clReleaseEvent(last));
        OK(clReleaseKernel(kernel));
        OK(clReleaseMemObject(buffer));
        if (round % 2 == 0)
            OK(clFinish(queue));
        OK(clReleaseCommandQueue(queue));
    }
    return NULL;
}

static void threads(void)
{
    enum { THREADS = 4 };
    pthread_t ids[THREADS];
    cl_program program = build_source();
    for (int i = 0; i < THREADS; i++)
        EXPECT(pthread_create(&ids[i], NULL, worker, program) == 0);
    for (int i = 0; i < THREADS; i++)
        EXPECT(pthread_join(ids[i], NULL) == 0);
    OK(clReleaseProgram(program));
    OK(clReleaseContext(context));
}

int main(int argc, char **argv)
{
    EXPECT(argc == 3);
    alarm(60);
    if (strcmp(argv[1], "fork") == 0) {
        in_a_fork(argv[2]);
        return 0;
    }
    open_device();
    if (strcmp(argv[1], "visible") == 0)
        visible();
    else if (strcmp(argv[1], "threads") == 0)
        threads();
    else if (strcmp(argv[1], "write-binary") == 0)
        write_binary(argv[2]);
    else if (strcmp(argv[1], "run-binary") == 0)
        run_binary(argv[2]);
    else
        return 2;
    return 0;
}
