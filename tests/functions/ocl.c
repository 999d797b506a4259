/* See ocl.h. */
#include "ocl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PLATFORMS = 16 };
/* A bitstream of a large board is some 100 MiB; more than this is a mistake in the path. */
static const long MAX_BITSTREAM = 512L << 20;

static void complain(const char *call, cl_int code)
{
    fprintf(stderr, "%s failed: %d\n", call, (int)code);
}

static bool pick_platform(struct ocl *o)
{
    cl_platform_id found[MAX_PLATFORMS];
    cl_uint count = 0;
    cl_int code = clGetPlatformIDs(MAX_PLATFORMS, found, &count);
    if (code != CL_SUCCESS || count == 0) {
        fprintf(stderr, "clGetPlatformIDs found no platform: %d\n", (int)code);
        return false;
    }
    if (count > MAX_PLATFORMS)
        count = MAX_PLATFORMS;
    const char *wanted = getenv("OCL_PLATFORM");
    for (cl_uint i = 0; i < count; i++) {
        char name[256] = "";
        if (wanted != NULL && wanted[0] != '\0') {
            code = clGetPlatformInfo(found[i], CL_PLATFORM_NAME, sizeof name - 1, name, NULL);
            if (code != CL_SUCCESS || strstr(name, wanted) == NULL)
                continue;
        }
        o->platform = found[i];
        return true;
    }
    fprintf(stderr, "None of the %u OpenCL platforms has '%s' in its name (OCL_PLATFORM)\n", (unsigned)count, wanted);
    return false;
}

static unsigned char *read_file(const char *path, size_t *length)
{
    unsigned char *bytes = NULL;
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        return NULL;
    }
    long size = -1;
    if (fseek(file, 0, SEEK_END) == 0)
        size = ftell(file);
    if (size <= 0 || size > MAX_BITSTREAM || fseek(file, 0, SEEK_SET) != 0) {
        fprintf(stderr, "%s: not a regular file of 1 byte to 512 MiB\n", path);
    } else {
        bytes = malloc((size_t)size);
        if (bytes == NULL || fread(bytes, 1, (size_t)size, file) != (size_t)size) {
            fprintf(stderr, "%s: cannot read %ld bytes\n", path, size);
            free(bytes);
            bytes = NULL;
        } else {
            *length = (size_t)size;
        }
    }
    fclose(file);
    return bytes;
}

static void print_build_log(struct ocl *o)
{
    char log[4096] = "";
    if (clGetProgramBuildInfo(o->program, o->device, CL_PROGRAM_BUILD_LOG, sizeof log - 1, log, NULL) == CL_SUCCESS
        && log[0] != '\0')
        fprintf(stderr, "%s\n", log);
}

static bool load_bitstream(struct ocl *o)
{
    const char *path = getenv("BITSTREAM");
    if (path == NULL || path[0] == '\0') {
        fprintf(stderr, "BITSTREAM is not set: name the file with the kernels' binary for this device\n");
        return false;
    }
    size_t length = 0;
    unsigned char *bytes = read_file(path, &length);
    if (bytes == NULL)
        return false;
    cl_int code = CL_SUCCESS;
    cl_int binary_status = CL_SUCCESS;
    const unsigned char *binary = bytes;
    o->program = clCreateProgramWithBinary(o->context, 1, &o->device, &length, &binary, &binary_status, &code);
    free(bytes);
    if (code != CL_SUCCESS) {
        complain("clCreateProgramWithBinary", code);
        fprintf(stderr, "%s: the device said %d to the binary\n", path, (int)binary_status);
        return false;
    }
    code = clBuildProgram(o->program, 1, &o->device, "", NULL, NULL);
    if (code != CL_SUCCESS) {
        complain("clBuildProgram", code);
        print_build_log(o);
        return false;
    }
    return true;
}

bool ocl_open(struct ocl *o)
{
    memset(o, 0, sizeof *o);
    if (!pick_platform(o))
        return false;
    cl_int code = clGetDeviceIDs(o->platform, CL_DEVICE_TYPE_ALL, 1, &o->device, NULL);
    if (code != CL_SUCCESS) {
        complain("clGetDeviceIDs", code);
        return false;
    }
    code = clGetDeviceInfo(o->device, CL_DEVICE_NAME, sizeof o->device_name - 1, o->device_name, NULL);
    if (code != CL_SUCCESS) {
        complain("clGetDeviceInfo", code);
        return false;
    }
    o->context = clCreateContext(NULL, 1, &o->device, NULL, NULL, &code);
    if (code != CL_SUCCESS) {
        complain("clCreateContext", code);
        return false;
    }
    /* An OpenCL that knows nothing of traces has no function of that name. */
    *(void **)&o->set_trace = clGetExtensionFunctionAddressForPlatform(o->platform, "clSetTraceContextFPGA");
    const char *profile = getenv("OCL_PROFILE");
    o->profiles = profile != NULL && strcmp(profile, "1") == 0;
    o->queue = clCreateCommandQueue(o->context, o->device, o->profiles ? CL_QUEUE_PROFILING_ENABLE : 0, &code);
    if (code != CL_SUCCESS) {
        complain("clCreateCommandQueue", code);
        return false;
    }
    return load_bitstream(o);
}

void ocl_trace(struct ocl *o, const char *traceparent, const char *tracestate)
{
    if (o->set_trace != NULL)
        o->set_trace(traceparent, tracestate);
}

void ocl_close(struct ocl *o)
{
    if (o->program != NULL)
        clReleaseProgram(o->program);
    if (o->queue != NULL)
        clReleaseCommandQueue(o->queue);
    if (o->context != NULL)
        clReleaseContext(o->context);
}

cl_kernel ocl_kernel(struct ocl *o, const char *name)
{
    cl_int code = CL_SUCCESS;
    cl_kernel kernel = clCreateKernel(o->program, name, &code);
    if (code != CL_SUCCESS) {
        fprintf(stderr, "clCreateKernel(\"%s\") failed: %d\n", name, (int)code);
        return NULL;
    }
    return kernel;
}

void ocl_begin(struct ocl *o)
{
    o->failed_call = NULL;
    o->failed_code = CL_SUCCESS;
}

bool ocl_ok(struct ocl *o, const char *call, cl_int code)
{
    if (code != CL_SUCCESS && o->failed_call == NULL) {
        o->failed_call = call;
        o->failed_code = code;
    }
    return code == CL_SUCCESS;
}

bool ocl_resize(struct ocl *o, struct ocl_buffer *buffer, size_t size)
{
    if (buffer->mem != NULL && buffer->size == size)
        return true;
    ocl_buffer_release(buffer);
    cl_int code = CL_SUCCESS;
    cl_mem mem = clCreateBuffer(o->context, buffer->flags, size, NULL, &code);
    if (!ocl_ok(o, "clCreateBuffer", code))
        return false;
    buffer->mem = mem;
    buffer->size = size;
    return true;
}

void ocl_buffer_release(struct ocl_buffer *buffer)
{
    if (buffer->mem != NULL)
        clReleaseMemObject(buffer->mem);
    buffer->mem = NULL;
    buffer->size = 0;
}

bool ocl_lost(struct ocl *o)
{
    /* Codes differ between runtimes, so the device is asked to do the smallest piece of real work. */
    cl_int code = CL_SUCCESS;
    cl_uint probe = 1;
    cl_mem mem = clCreateBuffer(o->context, CL_MEM_READ_WRITE, sizeof probe, NULL, &code);
    if (code != CL_SUCCESS)
        return true;
    code = clEnqueueWriteBuffer(o->queue, mem, CL_TRUE, 0, sizeof probe, &probe, 0, NULL, NULL);
    clReleaseMemObject(mem);
    return code != CL_SUCCESS;
}
