/* The OpenCL side that all functions share: one device, one in-order queue, one program made from a
 * binary ("bitstream"), and calls whose first failure is remembered by name and code.
 * Plain OpenCL 1.2 against the system's headers and loader; which OpenCL answers is not known here. */
#ifndef FUNCTIONS_OCL_H
#define FUNCTIONS_OCL_H

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdbool.h>
#include <stddef.h>

struct ocl {
    cl_platform_id platform;
    cl_device_id device;
    cl_context context;
    cl_command_queue queue;
    cl_program program;
    /* Says which trace the commands of a request are a part of; NULL where the OpenCL has no such function. */
    cl_int (*set_trace)(const char *traceparent, const char *tracestate);
    /* Whether the queue measures when commands ran: OCL_PROFILE=1. */
    bool profiles;
    char device_name[256];
    /* The first call that failed since ocl_begin, NULL while all is well. */
    const char *failed_call;
    cl_int failed_code;
};

/* A device buffer that is kept as long as the wanted size stays the same. */
struct ocl_buffer {
    cl_mem mem;
    size_t size;
    cl_mem_flags flags;
};

/* Calls an OpenCL function that returns its error code; true when it succeeded. */
#define OCL_TRY(o, fn, ...) ocl_ok((o), #fn, fn(__VA_ARGS__))

/* Opens the first device of the first platform (or of the first whose name contains $OCL_PLATFORM) and
 * loads the program from the file that $BITSTREAM names. Says on stderr why it failed. */
bool ocl_open(struct ocl *o);
void ocl_close(struct ocl *o);

/* The kernel of that name, NULL (with a line on stderr) when the program has none. */
cl_kernel ocl_kernel(struct ocl *o, const char *name);

/* What is enqueued from now on is part of this trace (W3C Trace Context); traceparent NULL: of none. */
void ocl_trace(struct ocl *o, const char *traceparent, const char *tracestate);
/* Forgets an earlier failure. */
void ocl_begin(struct ocl *o);
/* Remembers the first failure; true when code is CL_SUCCESS. */
bool ocl_ok(struct ocl *o, const char *call, cl_int code);
/* Makes the buffer hold exactly size bytes (size > 0). */
bool ocl_resize(struct ocl *o, struct ocl_buffer *buffer, size_t size);
void ocl_buffer_release(struct ocl_buffer *buffer);
/* Whether the device no longer does anything at all: asked after a failure. */
bool ocl_lost(struct ocl *o);

#endif
