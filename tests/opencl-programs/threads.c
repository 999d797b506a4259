/* Several threads of one program, which share a context, queues and buffers, as the standard allows: everything but
 * clSetKernelArg on one kernel is thread-safe. Under a race detector: what it finds then is the library's. */
#include "program.h"

#include <pthread.h>

static const char USAGE[] = "usage: threads [--threads N] [--rounds N] [--race]\n"
                            "N threads (default 4) run N rounds (default 20) of commands each, together.\n"
                            "  --race  one thread also changes memory that a write still reads, against the standard:\n"
                            "          a race detector that says nothing of that sees nothing\n";

enum { MOST_THREADS = 64, WORDS = 1 << 16 };

static const char SOURCE[] =
    "kernel void add(global uint *x, global const uint *shared, uint value)\n"
    "{ size_t i = get_global_id(0); x[i] = x[i] + shared[i % 64] + value; }\n";

static struct device device;
static cl_command_queue queues[2];
static cl_program program;
static cl_mem common;
static unsigned long rounds = 20;
static pthread_barrier_t together;
/* What each thread has enqueued last, for its neighbour to wait for. */
static cl_event last[MOST_THREADS];

struct worker {
    pthread_t thread;
    cl_uint number;
    cl_uint threads;
    pthread_mutex_t lock;
    pthread_cond_t called;
    unsigned long calls;
};

static void CL_CALLBACK on_complete(cl_event event, cl_int status, void *data)
{
    struct worker *worker = data;
    (void)event;
    EXPECT(status == CL_COMPLETE, "a callback got %d", (int)status);
    pthread_mutex_lock(&worker->lock);
    worker->calls++;
    pthread_cond_signal(&worker->called);
    pthread_mutex_unlock(&worker->lock);
}

/* One round: a kernel that waits for the neighbour's of the round before, bytes in and out in three ways. */
static void one_round(struct worker *worker, cl_kernel kernel, cl_mem mem, cl_uint *expected, cl_event before)
{
    cl_command_queue queue = queues[worker->number % 2];
    size_t size = WORDS;
    size_t bytes = WORDS * sizeof(cl_uint);
    cl_int code = CL_SUCCESS;
    cl_event ran = NULL;
    cl_event read = NULL;
    set_uint(kernel, 2, worker->number);
    CHECK(clEnqueueNDRangeKernel, queue, kernel, 1, NULL, &size, NULL, before != NULL, before != NULL ? &before : NULL, &ran);
    CHECK(clSetEventCallback, ran, CL_COMPLETE, on_complete, worker);
    *expected += 1 + worker->number;

    cl_uint *found = malloc(bytes);
    CHECK(clEnqueueReadBuffer, queue, mem, CL_FALSE, 0, bytes, found, 1, &ran, &read);
    CHECK(clFlush, queue);
    CHECK(clWaitForEvents, 1, &read);
    EXPECT(found[0] == *expected && found[WORDS - 1] == *expected, "thread %u read %u and %u instead of %u",
           worker->number, found[0], found[WORDS - 1], *expected);
    free(found);

    cl_uint *mapped = clEnqueueMapBuffer(queue, mem, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, bytes, 0, NULL, NULL, &code);
    check("clEnqueueMapBuffer", code);
    for (size_t i = 0; i < WORDS; i++)
        mapped[i] += 1;
    *expected += 1;
    CHECK(clEnqueueUnmapMemObject, queue, mem, mapped, 0, NULL, NULL);

    cl_ulong queued = 0;
    cl_int status = 0;
    CHECK(clGetEventInfo, ran, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL);
    CHECK(clGetEventProfilingInfo, ran, CL_PROFILING_COMMAND_END, sizeof queued, &queued, NULL);
    EXPECT(status == CL_COMPLETE, "a kernel that was waited for is %d", (int)status);
    CHECK(clReleaseEvent, read);
    last[worker->number] = ran;
}

static void *work(void *data)
{
    struct worker *worker = data;
    cl_uint expected = 7;
    cl_uint *start = malloc(WORDS * sizeof *start);
    for (size_t i = 0; i < WORDS; i++)
        start[i] = expected;
    /* Every second buffer is for host pointers. */
    cl_mem_flags flags = worker->number % 2 == 0 ? CL_MEM_ALLOC_HOST_PTR : 0;
    cl_mem mem = buffer_of(&device, flags | CL_MEM_COPY_HOST_PTR, WORDS * sizeof *start, start);
    free(start);
    cl_kernel kernel = kernel_of(program, "add");
    set_buffer(kernel, 0, mem);
    set_buffer(kernel, 1, common);
    for (unsigned long round = 0; round < rounds; round++) {
        pthread_barrier_wait(&together);
        cl_event before = last[(worker->number + 1) % worker->threads];
        if (before != NULL)
            CHECK(clRetainEvent, before);
        pthread_barrier_wait(&together);
        if (last[worker->number] != NULL)
            CHECK(clReleaseEvent, last[worker->number]);
        one_round(worker, kernel, mem, &expected, before);
        if (before != NULL)
            CHECK(clReleaseEvent, before);
        /* A life of its own in each round, beside those of the other threads. */
        cl_mem other = buffer_of(&device, CL_MEM_READ_WRITE, 4096u << (round % 8), NULL);
        CHECK(clRetainContext, device.context);
        CHECK(clReleaseContext, device.context);
        CHECK(clReleaseMemObject, other);
        if (round % 4 == worker->number % 4)
            CHECK(clFinish, queues[0]);
    }
    pthread_mutex_lock(&worker->lock);
    while (worker->calls < rounds)
        pthread_cond_wait(&worker->called, &worker->lock);
    pthread_mutex_unlock(&worker->lock);
    CHECK(clReleaseEvent, last[worker->number]);
    CHECK(clReleaseKernel, kernel);
    CHECK(clReleaseMemObject, mem);
    return NULL;
}

static void *change(void *bytes)
{
    memset(bytes, 2, 1 << 20);
    return NULL;
}

/* Changes what a write still reads, before it is waited for. */
static void race(void)
{
    static char bytes[1 << 20];
    pthread_t changer;
    cl_mem mem = buffer_of(&device, CL_MEM_READ_WRITE, sizeof bytes, NULL);
    pthread_create(&changer, NULL, change, bytes);
    CHECK(clEnqueueWriteBuffer, queues[0], mem, CL_TRUE, 0, sizeof bytes, bytes, 0, NULL, NULL);
    pthread_join(changer, NULL);
    CHECK(clReleaseMemObject, mem);
}

int main(int argc, char **argv)
{
    unsigned long threads = 4;
    bool racing = false;
    const struct option_spec options[] = { { "--threads", &threads, NULL }, { "--rounds", &rounds, NULL }, { "--race", NULL, &racing } };
    OPTIONS(argc, argv, USAGE, options);
    if (threads > MOST_THREADS)
        usage(USAGE, EXIT_USAGE);
    deadline(120);

    device = open_device(CL_QUEUE_PROFILING_ENABLE);
    cl_int code = CL_SUCCESS;
    queues[0] = device.queue;
    queues[1] = clCreateCommandQueue(device.context, device.id, CL_QUEUE_PROFILING_ENABLE, &code);
    check("clCreateCommandQueue", code);
    program = build(&device, SOURCE);
    cl_uint ones[64];
    for (size_t i = 0; i < 64; i++)
        ones[i] = 1;
    common = buffer_of(&device, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, sizeof ones, ones);
    if (racing)
        race();

    static struct worker workers[MOST_THREADS];
    pthread_barrier_init(&together, NULL, (unsigned)threads);
    for (cl_uint i = 0; i < threads; i++) {
        workers[i].number = i;
        workers[i].threads = (cl_uint)threads;
        pthread_mutex_init(&workers[i].lock, NULL);
        pthread_cond_init(&workers[i].called, NULL);
        EXPECT(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0, "no thread");
    }
    for (cl_uint i = 0; i < threads; i++)
        pthread_join(workers[i].thread, NULL);

    CHECK(clReleaseMemObject, common);
    CHECK(clReleaseProgram, program);
    CHECK(clReleaseCommandQueue, queues[1]);
    close_device(&device);
    printf("%lu threads ran %lu rounds each on %s\n", threads, rounds, device.name);
    return 0;
}
