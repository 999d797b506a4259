/* See function.h. */
#define _GNU_SOURCE
#include "function.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_WORKERS = 64 };

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

static int serve(const char *name, int listener, http_handler handler)
{
    struct function f = { 0 };
    for (int i = 0; i < MAX_INPUTS; i++)
        f.inputs[i].flags = CL_MEM_READ_ONLY;
    f.output.flags = CL_MEM_WRITE_ONLY;
    int status = 1;
    if (ocl_open(&f.ocl) && (f.kernel = ocl_kernel(&f.ocl, name)) != NULL)
        status = http_serve(name, listener, &f.ocl, handler, &f);
    for (int i = 0; i < MAX_INPUTS; i++)
        ocl_buffer_release(&f.inputs[i]);
    ocl_buffer_release(&f.output);
    if (f.kernel != NULL)
        clReleaseKernel(f.kernel);
    ocl_close(&f.ocl);
    free(f.result);
    return status;
}

/* Ends all workers, and returns 0 if none of them failed. */
static int end_workers(const pid_t *workers, int count, int status)
{
    for (int i = 0; i < count; i++)
        kill(workers[i], SIGTERM);
    int ended = 0;
    while (wait(&ended) > 0)
        if (!WIFEXITED(ended) || WEXITSTATUS(ended) != 0)
            status = 1;
    return status;
}

/* Serves in several processes, each with a session of its own, until a signal or until one of them ends. */
static int serve_in_workers(const char *name, int listener, http_handler handler, int count)
{
    pid_t workers[MAX_WORKERS];
    pid_t parent = getpid();
    sigset_t awaited;
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGTERM);
    sigaddset(&awaited, SIGINT);
    for (int i = 0; i < count; i++) {
        workers[i] = fork();
        if (workers[i] == 0) {
            /* A worker never outlives its parent, however that ends. */
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            return getppid() == parent ? serve(name, listener, handler) : 1;
        }
        if (workers[i] < 0) {
            perror(name);
            return end_workers(workers, i, 1);
        }
    }
    sigaddset(&awaited, SIGCHLD);
    sigprocmask(SIG_BLOCK, &awaited, NULL);
    int got = 0;
    /* A worker that ended before the signal was blocked is found by the first wait. */
    bool is_lost = waitpid(-1, NULL, WNOHANG) != 0;
    if (!is_lost)
        sigwait(&awaited, &got);
    return end_workers(workers, count, is_lost || got == SIGCHLD ? 1 : 0);
}

int function_main(const char *name, http_handler handler)
{
    const char *text = getenv("WORKERS");
    char *end = NULL;
    long workers = text != NULL && text[0] != '\0' ? strtol(text, &end, 10) : 1;
    if (workers < 1 || workers > MAX_WORKERS || (end != NULL && *end != '\0')) {
        fprintf(stderr, "%s: WORKERS=%s is no number from 1 to %d\n", name, text, MAX_WORKERS);
        return 1;
    }
    http_hold_signals();
    int listener = http_bind(name);
    if (listener < 0)
        return 1;
    int status = workers == 1 ? serve(name, listener, handler)
                              : serve_in_workers(name, listener, handler, (int)workers);
    close(listener);
    return status;
}
