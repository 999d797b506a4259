/* Calls entry points of the library directly with null, garbage and foreign handles, and checks the standard's codes.
 * Usage: garbage LIBRARY */
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <dlfcn.h>
#include <stdio.h>

static int failures;

static void check(const char *what, cl_int got, cl_int wanted) {
    if (got != wanted) {
        printf("%s: %d instead of %d\n", what, got, wanted);
        failures++;
    }
}

typedef void *(*look_up)(const char *);
#define FUNCTION(name) __typeof__(&name) our_##name = (__typeof__(&name))find(#name); \
    if (!our_##name) { printf(#name " is missing\n"); return 1; }

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        printf("%s\n", dlerror());
        return 1;
    }
    look_up find = (look_up)dlsym(library, "clGetExtensionFunctionAddress");
    if (!find || !find("clIcdGetPlatformIDsKHR") || find("clNoSuchFunction") || find(NULL)) {
        printf("the look-up is wrong\n");
        return 1;
    }
    FUNCTION(clGetPlatformInfo)
    FUNCTION(clGetDeviceIDs)
    FUNCTION(clGetDeviceInfo)
    FUNCTION(clCreateContext)
    FUNCTION(clRetainContext)
    FUNCTION(clCreateCommandQueue)
    FUNCTION(clFinish)
    FUNCTION(clCreateBuffer)
    FUNCTION(clReleaseMemObject)
    FUNCTION(clCreateProgramWithSource)
    FUNCTION(clBuildProgram)
    FUNCTION(clCreateKernel)
    FUNCTION(clSetKernelArg)
    FUNCTION(clEnqueueReadBuffer)
    FUNCTION(clEnqueueMapBuffer)
    FUNCTION(clEnqueueNDRangeKernel)
    FUNCTION(clWaitForEvents)
    FUNCTION(clSetUserEventStatus)
    FUNCTION(clCreateImage)
    FUNCTION(clGetImageInfo)
    FUNCTION(clGetSupportedImageFormats)
    FUNCTION(clCreateSampler)
    FUNCTION(clCreateSamplerWithProperties)
    FUNCTION(clReleaseSampler)
    FUNCTION(clGetSamplerInfo)
    FUNCTION(clEnqueueReadImage)
    FUNCTION(clEnqueueCopyImageToBuffer)
    FUNCTION(clEnqueueMapImage)
    FUNCTION(clEnqueueFillImage)
    FUNCTION(clEnqueueUnmapMemObject)
    FUNCTION(clCompileProgram)
    FUNCTION(clLinkProgram)
    FUNCTION(clGetPipeInfo)

    /* Null, unmapped, misaligned, and memory that is no object. */
    static char memory[256] __attribute__((aligned(16)));
    void *handles[] = {NULL, (void *)0x10, (void *)0xdeadbeefdeadbeefUL, memory, memory + 1, argv};
    for (unsigned i = 0; i < sizeof handles / sizeof *handles; i++) {
        void *handle = handles[i];
        char value[64];
        size_t size = 8;
        cl_int error = 0;
        cl_uint count = 0;
        const char *source = "";
        cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)handle, 0};

        check("clGetPlatformInfo", our_clGetPlatformInfo(handle, CL_PLATFORM_NAME, 64, value, &size), CL_INVALID_PLATFORM);
        check("clGetDeviceIDs", our_clGetDeviceIDs(handle, CL_DEVICE_TYPE_ALL, 0, NULL, &count), CL_INVALID_PLATFORM);
        check("clGetDeviceInfo", our_clGetDeviceInfo(handle, CL_DEVICE_NAME, 64, value, &size), CL_INVALID_DEVICE);
        our_clCreateContext(NULL, 1, (cl_device_id *)&handle, NULL, NULL, &error);
        check("clCreateContext", error, CL_INVALID_DEVICE);
        our_clCreateContext(properties, 1, (cl_device_id *)&handle, NULL, NULL, &error);
        check("clCreateContext with a platform", error, CL_INVALID_PLATFORM);
        our_clCreateContext(NULL, 0, NULL, NULL, NULL, &error);
        check("clCreateContext without devices", error, CL_INVALID_VALUE);
        check("clRetainContext", our_clRetainContext(handle), CL_INVALID_CONTEXT);
        our_clCreateCommandQueue(handle, handle, 0, &error);
        check("clCreateCommandQueue", error, CL_INVALID_CONTEXT);
        check("clFinish", our_clFinish(handle), CL_INVALID_COMMAND_QUEUE);
        our_clCreateBuffer(handle, CL_MEM_READ_WRITE, 64, NULL, &error);
        check("clCreateBuffer", error, CL_INVALID_CONTEXT);
        if (our_clCreateBuffer(handle, CL_MEM_READ_WRITE, 64, NULL, NULL)) failures++;
        check("clReleaseMemObject", our_clReleaseMemObject(handle), CL_INVALID_MEM_OBJECT);
        our_clCreateProgramWithSource(handle, 1, &source, NULL, &error);
        check("clCreateProgramWithSource", error, CL_INVALID_CONTEXT);
        check("clBuildProgram", our_clBuildProgram(handle, 0, NULL, NULL, NULL, NULL), CL_INVALID_PROGRAM);
        our_clCreateKernel(handle, "k", &error);
        check("clCreateKernel", error, CL_INVALID_PROGRAM);
        check("clSetKernelArg", our_clSetKernelArg(handle, 0, 8, value), CL_INVALID_KERNEL);
        check("clEnqueueReadBuffer", our_clEnqueueReadBuffer(handle, handle, CL_TRUE, 0, 8, value, 0, NULL, NULL),
              CL_INVALID_COMMAND_QUEUE);
        our_clEnqueueMapBuffer(handle, handle, CL_TRUE, CL_MAP_READ, 0, 8, 0, NULL, NULL, &error);
        check("clEnqueueMapBuffer", error, CL_INVALID_COMMAND_QUEUE);
        check("clEnqueueNDRangeKernel",
              our_clEnqueueNDRangeKernel(handle, handle, 1, NULL, &size, NULL, 0, NULL, NULL), CL_INVALID_COMMAND_QUEUE);
        check("clWaitForEvents", our_clWaitForEvents(1, (cl_event *)&handle), CL_INVALID_EVENT);
        check("clWaitForEvents without events", our_clWaitForEvents(0, NULL), CL_INVALID_VALUE);
        const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
        const cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 4, .image_height = 4};
        const size_t three[3] = {1, 1, 1};
        our_clCreateImage(handle, 0, &format, &desc, NULL, &error);
        check("clCreateImage", error, CL_INVALID_CONTEXT);
        check("clGetImageInfo", our_clGetImageInfo(handle, CL_IMAGE_WIDTH, 64, value, &size), CL_INVALID_MEM_OBJECT);
        check("clGetSupportedImageFormats",
              our_clGetSupportedImageFormats(handle, 0, CL_MEM_OBJECT_IMAGE2D, 0, NULL, &count), CL_INVALID_CONTEXT);
        our_clCreateSampler(handle, CL_FALSE, CL_ADDRESS_NONE, CL_FILTER_NEAREST, &error);
        check("clCreateSampler", error, CL_INVALID_CONTEXT);
        our_clCreateSamplerWithProperties(handle, NULL, &error);
        check("clCreateSamplerWithProperties", error, CL_INVALID_CONTEXT);
        check("clReleaseSampler", our_clReleaseSampler(handle), CL_INVALID_SAMPLER);
        check("clGetSamplerInfo", our_clGetSamplerInfo(handle, CL_SAMPLER_CONTEXT, 64, value, &size), CL_INVALID_SAMPLER);
        check("clEnqueueReadImage",
              our_clEnqueueReadImage(handle, handle, CL_TRUE, three, three, 0, 0, value, 0, NULL, NULL),
              CL_INVALID_COMMAND_QUEUE);
        check("clEnqueueCopyImageToBuffer",
              our_clEnqueueCopyImageToBuffer(handle, handle, handle, three, three, 0, 0, NULL, NULL),
              CL_INVALID_COMMAND_QUEUE);
        our_clEnqueueMapImage(handle, handle, CL_TRUE, CL_MAP_READ, three, three, &size, &size, 0, NULL, NULL, &error);
        check("clEnqueueMapImage", error, CL_INVALID_COMMAND_QUEUE);
        check("clEnqueueFillImage", our_clEnqueueFillImage(handle, handle, value, three, three, 0, NULL, NULL),
              CL_INVALID_COMMAND_QUEUE);
        check("clEnqueueUnmapMemObject", our_clEnqueueUnmapMemObject(handle, handle, value, 0, NULL, NULL),
              CL_INVALID_COMMAND_QUEUE);
        check("clCompileProgram", our_clCompileProgram(handle, 0, NULL, NULL, 0, NULL, NULL, NULL, NULL),
              CL_INVALID_PROGRAM);
        our_clLinkProgram(handle, 0, NULL, NULL, 1, (cl_program *)&handle, NULL, NULL, &error);
        check("clLinkProgram", error, CL_INVALID_CONTEXT);
        check("clGetPipeInfo", our_clGetPipeInfo(handle, CL_PIPE_MAX_PACKETS, 64, value, &size), CL_INVALID_MEM_OBJECT);
        check("clSetUserEventStatus", our_clSetUserEventStatus(handle, CL_COMPLETE), CL_INVALID_EVENT);
    }
    return failures != 0;
}
