/* See function.h. */
#include "function.h"

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

static bool write_run_read(struct function *f, const struct job *job, uint8_t *result)
{
    struct ocl *o = &f->ocl;
    for (cl_uint i = 0; i < job->input_count; i++)
        if (!OCL_TRY(o, clEnqueueWriteBuffer, o->queue, f->inputs[i].mem, CL_FALSE, 0, job->input_sizes[i],
                     job->inputs[i], 0, NULL, NULL))
            return false;
    const size_t *local = job->local[0] > 0 ? job->local : NULL;
    return set_arguments(f, job)
        && OCL_TRY(o, clEnqueueNDRangeKernel, o->queue, f->kernel, job->dimensions, NULL, job->global, local, 0, NULL,
                   NULL)
        && OCL_TRY(o, clEnqueueReadBuffer, o->queue, f->output.mem, CL_TRUE, 0, job->output_size, result, 0, NULL,
                   NULL);
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
    if (!ready || !write_run_read(f, job, f->result + prefix)) {
        /* The writes that were accepted still read from the request, which is freed next. */
        clFinish(f->ocl.queue);
        reply_opencl_error(reply, &f->ocl);
        return;
    }
    reply->opencl_us = now_us() - start;
    reply_bytes(reply, job->content_type, f->result, size);
}

int function_main(const char *name, http_handler handler)
{
    struct function f = { 0 };
    for (int i = 0; i < MAX_INPUTS; i++)
        f.inputs[i].flags = CL_MEM_READ_ONLY;
    f.output.flags = CL_MEM_WRITE_ONLY;
    int status = 1;
    http_hold_signals();
    if (ocl_open(&f.ocl) && (f.kernel = ocl_kernel(&f.ocl, name)) != NULL)
        status = http_serve(name, &f.ocl, handler, &f);
    for (int i = 0; i < MAX_INPUTS; i++)
        ocl_buffer_release(&f.inputs[i]);
    ocl_buffer_release(&f.output);
    if (f.kernel != NULL)
        clReleaseKernel(f.kernel);
    ocl_close(&f.ocl);
    free(f.result);
    return status;
}
