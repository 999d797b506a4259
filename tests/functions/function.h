/* What the functions with a single kernel have in common: one launch over one or two inputs and one output.
 * The kernel's arguments are the inputs, the output, then 32-bit numbers. */
#ifndef FUNCTIONS_FUNCTION_H
#define FUNCTIONS_FUNCTION_H

#include "http.h"
#include "ocl.h"

enum { MAX_INPUTS = 2, MAX_NUMBERS = 3 };

struct function {
    struct ocl ocl;
    cl_kernel kernel;
    struct ocl_buffer inputs[MAX_INPUTS];
    struct ocl_buffer output;
    /* Host memory of output.size bytes, kept between requests like the buffers. */
    uint8_t *result;
    size_t result_size;
};

/* One launch of the kernel. */
struct job {
    cl_uint input_count;
    const void *inputs[MAX_INPUTS];
    size_t input_sizes[MAX_INPUTS];
    size_t output_size;
    cl_uint number_count;
    cl_uint numbers[MAX_NUMBERS];
    cl_uint dimensions;
    size_t global[2];
    /* All 0: the runtime chooses. */
    size_t local[2];
    /* Put before the output in the reply's body. */
    const char *prefix;
    const char *content_type;
};

/* Opens the device, creates the kernel and serves; for main to return. */
int function_main(const char *name, http_handler handle);
/* The same, after each worker has served a first request by itself: a runtime does much only once. */
int function_main_after(const char *name, http_handler handle, const uint8_t *first, size_t length);
/* Runs the job and fills the reply with its output or with the error. */
void function_run(struct function *f, const struct job *job, struct reply *reply);

/* size rounded up to a multiple of group. */
size_t round_up(size_t size, size_t group);

#endif
