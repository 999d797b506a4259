/* See function.h. */
#include "function.h"
#include "workers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t round_up(size_t size, size_t group)
{
    return (size + group - 1) / group * group;
}

static bool set_arguments(struct function *f, const struct job *job)
{
    cl_uint index = 0;
    for (cl_uint i = 0; i < job->input_count; i++)
        if (!OCL_TRY(&f->ocl, clSetKernelArg, f->kernel, index++, sizeof(cl_mem), &f->inputs[i].mem))
            return false;
    if (!OCL_TRY(&f->ocl, clSetKernelArg, f->kernel, index++, sizeof(cl_mem), &f->output.mem))
        return false;
    for (cl_uint i = 0; i < job->number_count; i++)
        if (!OCL_TRY(&f->ocl, clSetKernelArg, f->kernel, index++, sizeof(cl_uint), &job->numbers[i]))
            return false;
    return true;
}

/* When the kernel ran, on the device's clock. */
static bool read_times(struct ocl *o, cl_event ran, struct reply *reply)
{
    static const cl_profiling_info asked[] = { CL_PROFILING_COMMAND_SUBMIT, CL_PROFILING_COMMAND_START,
                                               CL_PROFILING_COMMAND_END };
    cl_ulong ns[3] = { 0 };
    for (int i = 0; i < 3; i++)
        if (!OCL_TRY(o, clGetEventProfilingInfo, ran, asked[i], sizeof ns[i], &ns[i], NULL))
            return false;
    reply->has_times = true;
    reply->waited_us = (double)(ns[1] - ns[0]) / 1e3;
    reply->kernel_us = (double)(ns[2] - ns[1]) / 1e3;
    return true;
}

static bool write_run_read(struct function *f, const struct job *job, uint8_t *result, struct reply *reply)
{
    struct ocl *o = &f->ocl;
    cl_event ran = NULL;
    for (cl_uint i = 0; i < job->input_count; i++)
        if (!OCL_TRY(o, clEnqueueWriteBuffer, o->queue, f->inputs[i].mem, CL_FALSE, 0, job->input_sizes[i],
                     job->inputs[i], 0, NULL, NULL))
            return false;
    const size_t *local = job->local[0] > 0 ? job->local : NULL;
    bool good = set_arguments(f, job)
        && OCL_TRY(o, clEnqueueNDRangeKernel, o->queue, f->kernel, job->dimensions, NULL, job->global, local, 0, NULL,
                   o->profiles ? &ran : NULL)
        && OCL_TRY(o, clEnqueueReadBuffer, o->queue, f->output.mem, CL_TRUE, 0, job->output_size, result, 0, NULL,
                   NULL)
        && (ran == NULL || read_times(o, ran, reply));
    if (ran != NULL)
        clReleaseEvent(ran);
    return good;
}

static bool make_buffers(struct function *f, const struct job *job)
{
    for (cl_uint i = 0; i < job->input_count; i++)
        if (!ocl_resize(&f->ocl, &f->inputs[i], job->input_sizes[i]))
            return false;
    return ocl_resize(&f->ocl, &f->output, job->output_size);
}

void function_run(struct function *f, const struct job *job, struct reply *reply)
{
    size_t prefix = job->prefix != NULL ? strlen(job->prefix) : 0;
    size_t size = prefix + job->output_size;
    if (f->result_size != size) {
        free(f->result);
        f->result = malloc(size);
        f->result_size = f->result != NULL ? size : 0;
    }
    if (f->result == NULL) {
        reply_error(reply, 500, "Out of memory\n");
        return;
    }
    if (prefix > 0)
        memcpy(f->result, job->prefix, prefix);
    bool ready = make_buffers(f, job);
    double start = now_us();
    if (!ready || !write_run_read(f, job, f->result + prefix, reply)) {
        /* The writes that were accepted still read from the request, which is freed next. */
        clFinish(f->ocl.queue);
        reply_opencl_error(reply, &f->ocl);
        return;
    }
    reply->opencl_us = now_us() - start;
    reply_bytes(reply, job->content_type, f->result, size);
}

/* What a function's processes serve. */
struct service {
    http_handler handle;
    /* Served before any other request; length 0: none. */
    const uint8_t *first;
    size_t first_length;
};

static bool serve_first(const char *name, const struct service *service, struct function *f)
{
    struct reply reply = { 0 };
    if (service->first_length > 0)
        service->handle(f, service->first, service->first_length, &reply);
    if (reply.status != 0 && reply.status != 200)
        fprintf(stderr, "%s: the first request failed: %s", name, reply.message);
    return reply.status == 0 || reply.status == 200;
}

static int serve(const char *name, int listener, const void *context)
{
    const struct service *service = context;
    struct function f = { 0 };
    for (int i = 0; i < MAX_INPUTS; i++)
        f.inputs[i].flags = CL_MEM_READ_ONLY;
    f.output.flags = CL_MEM_WRITE_ONLY;
    int status = 1;
    if (ocl_open(&f.ocl) && (f.kernel = ocl_kernel(&f.ocl, name)) != NULL && serve_first(name, service, &f))
        status = http_serve(name, listener, &f.ocl, service->handle, &f);
    for (int i = 0; i < MAX_INPUTS; i++)
        ocl_buffer_release(&f.inputs[i]);
    ocl_buffer_release(&f.output);
    if (f.kernel != NULL)
        clReleaseKernel(f.kernel);
    ocl_close(&f.ocl);
    free(f.result);
    return status;
}

int function_main(const char *name, http_handler handle)
{
    return function_main_after(name, handle, NULL, 0);
}

int function_main_after(const char *name, http_handler handle, const uint8_t *first, size_t length)
{
    const struct service service = { handle, first, length };
    return workers_main(name, serve, &service);
}
