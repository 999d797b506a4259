/* Images that lie in buffers, binaries of programs with images, and markers in out-of-order queues.
 * Prints what ran, and the failures. The same results as on the runtime itself. */
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

static cl_device_id device;
static cl_context context;

static int has(const char *extension) {
    char all[8192] = "";
    clGetDeviceInfo(device, CL_DEVICE_EXTENSIONS, sizeof all, all, NULL);
    return strstr(all, extension) != NULL;
}

static const char source[] =
    "kernel void twice_1d(read_only image1d_buffer_t in, global uint *out) {\n"
    "    int i = get_global_id(0); out[i] = 2 * read_imageui(in, i).x; }\n"
    "kernel void sum_2d(read_only image2d_t in, sampler_t s, global uint *out) {\n"
    "    int x = get_global_id(0), y = get_global_id(1);\n"
    "    out[y * get_global_size(0) + x] = read_imageui(in, s, (int2)(x, y)).x + 1; }\n"
    "kernel void maybe(global uint *out, global uint *none) { out[0] = none ? 1 : 2; }\n"
    "kernel void slow(global uint *out, uint add) {\n"
    "    for (int i = 0; i < 100000; i++) out[0] = out[0] * 3 + 1; out[1] += add; }\n";

static cl_program program_of(int from_binary) {
    cl_int error;
    const char *text = source;
    cl_program program = clCreateProgramWithSource(context, 1, &text, NULL, &error);
    error = clBuildProgram(program, 1, &device, "", NULL, NULL);
    CHECK(error == CL_SUCCESS);
    if (!from_binary) return program;
    size_t size = 0;
    clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL);
    unsigned char *binary = malloc(size);
    clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL);
    clReleaseProgram(program);
    cl_int status = 1;
    program = clCreateProgramWithBinary(context, 1, &device, &size, (const unsigned char **)&binary, &status, &error);
    CHECK(error == CL_SUCCESS && status == CL_SUCCESS && size > 0);
    error = clBuildProgram(program, 1, &device, "", NULL, NULL);
    CHECK(error == CL_SUCCESS);
    free(binary);
    return program;
}

static void image_in_buffer(cl_command_queue queue, cl_program program) {
    enum { COUNT = 64 };
    cl_int error;
    cl_uint data[COUNT], result[COUNT] = {0};
    for (int i = 0; i < COUNT; i++) data[i] = 7 * i;
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof data, data, &error);
    cl_mem out = clCreateBuffer(context, CL_MEM_READ_WRITE, sizeof data, NULL, &error);
    cl_image_format format = {CL_R, CL_UNSIGNED_INT32};
    cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE1D_BUFFER, .image_width = COUNT, .buffer = buffer};
    cl_mem image = clCreateImage(context, CL_MEM_READ_ONLY, &format, &desc, NULL, &error);
    CHECK(error == CL_SUCCESS);
    cl_mem found = NULL;
    error = clGetImageInfo(image, CL_IMAGE_BUFFER, sizeof found, &found, NULL);
    CHECK(error == CL_SUCCESS && found == buffer);
    cl_kernel kernel = clCreateKernel(program, "twice_1d", &error);
    CHECK(error == CL_SUCCESS);
    /* The image shows what is written into the buffer after its making. */
    cl_uint last = 1000;
    clEnqueueWriteBuffer(queue, buffer, CL_FALSE, (COUNT - 1) * sizeof last, sizeof last, &last, 0, NULL, NULL);
    error = clSetKernelArg(kernel, 0, sizeof image, &image) | clSetKernelArg(kernel, 1, sizeof out, &out);
    CHECK(error == CL_SUCCESS);
    size_t global = COUNT;
    error = clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, NULL, 0, NULL, NULL);
    CHECK(error == CL_SUCCESS);
    error = clEnqueueReadBuffer(queue, out, CL_TRUE, 0, sizeof result, result, 0, NULL, NULL);
    CHECK(error == CL_SUCCESS && result[1] == 14 && result[COUNT - 1] == 2000);
    /* The image outlives the application's reference to its buffer. */
    clReleaseMemObject(buffer);
    cl_uint seen[COUNT] = {0};
    size_t origin[3] = {0}, region[3] = {COUNT, 1, 1};
    error = clEnqueueReadImage(queue, image, CL_TRUE, origin, region, 0, 0, seen, 0, NULL, NULL);
    CHECK(error == CL_SUCCESS && seen[2] == 14 && seen[COUNT - 1] == 1000);
    clReleaseMemObject(image);
    clReleaseMemObject(out);
    clReleaseKernel(kernel);
}

static void image_2d(cl_command_queue queue, cl_program program, int in_buffer) {
    enum { WIDTH = 64, HEIGHT = 4 };
    cl_int error;
    cl_uint data[WIDTH * HEIGHT], result[WIDTH * HEIGHT] = {0};
    for (int i = 0; i < WIDTH * HEIGHT; i++) data[i] = i;
    cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = WIDTH, .image_height = HEIGHT};
    cl_mem buffer = NULL, image;
    if (in_buffer) {
        buffer = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof data, data, &error);
        desc.buffer = buffer;
        desc.image_row_pitch = WIDTH * 4;
        image = clCreateImage(context, CL_MEM_READ_ONLY, &format, &desc, NULL, &error);
    } else {
        image = clCreateImage(context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, &format, &desc, data, &error);
    }
    CHECK(error == CL_SUCCESS);
    cl_mem out = clCreateBuffer(context, CL_MEM_READ_WRITE, sizeof data, NULL, &error);
    cl_sampler sampler = clCreateSampler(context, CL_FALSE, CL_ADDRESS_CLAMP_TO_EDGE, CL_FILTER_NEAREST, &error);
    cl_kernel kernel = clCreateKernel(program, "sum_2d", &error);
    CHECK(error == CL_SUCCESS);
    error = clSetKernelArg(kernel, 0, sizeof image, &image) | clSetKernelArg(kernel, 1, sizeof sampler, &sampler) |
            clSetKernelArg(kernel, 2, sizeof out, &out);
    CHECK(error == CL_SUCCESS);
    /* Neither does a buffer go where an image is wanted, nor the other way round. */
    CHECK(clSetKernelArg(kernel, 0, sizeof out, &out) != CL_SUCCESS || clSetKernelArg(kernel, 0, sizeof image, &image) == CL_SUCCESS);
    clSetKernelArg(kernel, 0, sizeof image, &image);
    size_t global[2] = {WIDTH, HEIGHT};
    error = clEnqueueNDRangeKernel(queue, kernel, 2, NULL, global, NULL, 0, NULL, NULL);
    CHECK(error == CL_SUCCESS);
    error = clEnqueueReadBuffer(queue, out, CL_TRUE, 0, sizeof result, result, 0, NULL, NULL);
    CHECK(error == CL_SUCCESS && result[0] == 1 && result[200] == 201);
    clReleaseMemObject(image);
    if (buffer) clReleaseMemObject(buffer);
    clReleaseMemObject(out);
    clReleaseSampler(sampler);
    clReleaseKernel(kernel);
}

/* A NULL buffer may be given as a pointer to a NULL handle, also where nobody knows what the argument is. */
static void null_buffer(cl_command_queue queue, cl_program program) {
    cl_int error;
    cl_uint zero = 0, result = 0;
    cl_mem out = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof zero, &zero, &error), none = NULL;
    cl_kernel kernel = clCreateKernel(program, "maybe", &error);
    CHECK(error == CL_SUCCESS);
    error = clSetKernelArg(kernel, 0, sizeof out, &out) | clSetKernelArg(kernel, 1, sizeof none, &none);
    CHECK(error == CL_SUCCESS);
    size_t one = 1;
    error = clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL);
    CHECK(error == CL_SUCCESS);
    error = clEnqueueReadBuffer(queue, out, CL_TRUE, 0, sizeof result, &result, 0, NULL, NULL);
    CHECK(error == CL_SUCCESS && result == 2);
    clReleaseMemObject(out);
    clReleaseKernel(kernel);
}

static void markers(cl_program program) {
    cl_int error;
    cl_command_queue queue = clCreateCommandQueue(context, device, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &error);
    CHECK(error == CL_SUCCESS);
    enum { COUNT = 8 };
    cl_uint zeros[COUNT][2] = {{0}}, result[2];
    cl_mem buffers[COUNT];
    cl_event events[COUNT], some, all, gate = clCreateUserEvent(context, &error), behind, barrier;
    cl_kernel kernel = clCreateKernel(program, "slow", &error);
    for (cl_uint i = 0; i < COUNT; i++) {
        buffers[i] = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof zeros[i], zeros[i], &error);
        clSetKernelArg(kernel, 0, sizeof buffers[i], &buffers[i]);
        cl_uint add = i + 1;
        clSetKernelArg(kernel, 1, sizeof add, &add);
        size_t one = 1;
        error = clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, &events[i]);
        CHECK(error == CL_SUCCESS);
    }
    /* A marker with a list waits for that alone; a later user event holds back only what waits for it. */
    CHECK(clEnqueueMarkerWithWaitList(queue, 2, events, &some) == CL_SUCCESS);
    CHECK(clEnqueueMarkerWithWaitList(queue, 0, NULL, &all) == CL_SUCCESS);
    CHECK(clEnqueueMarkerWithWaitList(queue, 1, &gate, &behind) == CL_SUCCESS);
    CHECK(clWaitForEvents(1, &some) == CL_SUCCESS);
    cl_int status[3] = {9, 9, 9};
    for (int i = 0; i < 2; i++) {
        clGetEventInfo(events[i], CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status[i], &status[i], NULL);
        CHECK(status[i] == CL_COMPLETE);
    }
    CHECK(clWaitForEvents(1, &all) == CL_SUCCESS);
    for (int i = 0; i < COUNT; i++) {
        clGetEventInfo(events[i], CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status[0], &status[0], NULL);
        CHECK(status[0] == CL_COMPLETE);
    }
    clGetEventInfo(behind, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status[0], &status[0], NULL);
    CHECK(status[0] > CL_COMPLETE);
    CHECK(clEnqueueBarrierWithWaitList(queue, 0, NULL, &barrier) == CL_SUCCESS);
    cl_event read;
    error = clEnqueueReadBuffer(queue, buffers[3], CL_FALSE, 0, sizeof result, result, 0, NULL, &read);
    CHECK(error == CL_SUCCESS && clFlush(queue) == CL_SUCCESS);
    clGetEventInfo(read, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status[0], &status[0], NULL);
    CHECK(status[0] > CL_COMPLETE);
    CHECK(clSetUserEventStatus(gate, CL_COMPLETE) == CL_SUCCESS && clFinish(queue) == CL_SUCCESS);
    CHECK(result[1] == 4);
    cl_command_type type = 0;
    clGetEventInfo(barrier, CL_EVENT_COMMAND_TYPE, sizeof type, &type, NULL);
    CHECK(type == CL_COMMAND_BARRIER);
    for (int i = 0; i < COUNT; i++) {
        clReleaseEvent(events[i]);
        clReleaseMemObject(buffers[i]);
    }
    cl_event rest[] = {some, all, behind, gate, barrier, read};
    for (unsigned i = 0; i < sizeof rest / sizeof *rest; i++) clReleaseEvent(rest[i]);
    clReleaseKernel(kernel);
    clReleaseCommandQueue(queue);
    printf("markers ");
}

int main(void) {
    cl_platform_id platform;
    cl_int error = clGetPlatformIDs(1, &platform, NULL);
    CHECK(error == CL_SUCCESS);
    error = clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL);
    CHECK(error == CL_SUCCESS);
    context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &error);
    CHECK(error == CL_SUCCESS);
    cl_bool images = CL_FALSE;
    clGetDeviceInfo(device, CL_DEVICE_IMAGE_SUPPORT, sizeof images, &images, NULL);
    for (int from_binary = 0; from_binary < 2; from_binary++) {
        cl_program program = program_of(from_binary);
        if (images) {
            image_in_buffer(queue, program);
            image_2d(queue, program, 0);
            if (has("cl_khr_image2d_from_buffer")) image_2d(queue, program, 1);
            printf(from_binary ? "images-from-binary " : "images ");
        }
        null_buffer(queue, program);
        if (!from_binary) markers(program);
        clReleaseProgram(program);
    }
    clReleaseCommandQueue(queue);
    clReleaseContext(context);
    printf("%d failures\n", failures);
    return failures != 0;
}
