/* Random valid programs of commands on two queues; what they leave in memory and in their events is printed, so that two
 * OpenCL libraries can be compared. */
#include "program.h"
#include "chance.h"

static const char USAGE[] = "usage: random_program [--seed N] [--cases N] [--commands N]\n"
                            "Runs programs (default 10) of up to N commands (default 60): writes, reads, copies, fills, kernels,\n"
                            "maps, markers, barriers, user events, waits. Commands that touch the same buffer wait for each other,\n"
                            "so the result is the same everywhere. Prints a line with checksums for each program.\n";

static const char SOURCE[] =
    "kernel void blend(global uint *a, global const uint *b, uint by) {\n"
    "    size_t i = get_global_id(0);\n"
    "    a[i] = (a[i] ^ (b[i] << 3 | b[i] >> 29)) * 2654435761u + by;\n"
    "}\n"
    "kernel void prefix(global uint *a, local uint *parts, uint by) {\n"
    "    size_t l = get_local_id(0), g = get_group_id(0) * get_local_size(0);\n"
    "    parts[l] = a[g + l];\n"
    "    barrier(CLK_LOCAL_MEM_FENCE);\n"
    "    uint s = by;\n"
    "    for (size_t i = 0; i <= l; i++) s += parts[i];\n"
    "    a[g + l] = s;\n"
    "}\n";

enum { BUFFERS = 4, QUEUES = 2, MOST = 512, LOCAL = 16 };

/* Numbers that fit into a command, that travel in a chunk, and that lie in a segment of their own. */
static const size_t COUNTS[BUFFERS] = { 64, 4096, 1 << 15, 3 << 16 };

static uint64_t checksum(const void *bytes, size_t size, uint64_t sum)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i < size; i++)
        sum = (sum ^ at[i]) * 1099511628211u;
    return sum;
}

struct running {
    struct device d;
    cl_command_queue queues[QUEUES];
    cl_kernel mix, sum;
    cl_mem buffers[BUFFERS];
    /* What touched a buffer last. */
    cl_event last[BUFFERS];
    cl_event events[MOST];
    size_t count;
    /* Results of reads, and data of writes, until the end. */
    void *blocks[MOST];
    size_t sizes[MOST];
    bool is_result[MOST];
    size_t block_count;
    cl_event user;
};

static void *block(struct running *r, size_t size, bool is_result)
{
    void *memory = calloc(1, size);
    EXPECT(memory != NULL, "out of memory");
    r->blocks[r->block_count] = memory;
    r->is_result[r->block_count] = is_result;
    r->sizes[r->block_count++] = size;
    return memory;
}

/* The wait list of a command that touches these buffers, and now and then of another event. */
static cl_uint waits(struct running *r, const size_t *touched, size_t count, cl_event *list)
{
    cl_uint length = 0;
    for (size_t i = 0; i < count; i++)
        if (r->last[touched[i]] != NULL)
            list[length++] = r->last[touched[i]];
    if (r->count > 0 && chance(4) == 0)
        list[length++] = r->events[chance((uint32_t)r->count)];
    if (r->user != NULL && chance(3) == 0)
        list[length++] = r->user;
    return length;
}

static void note(struct running *r, const size_t *touched, size_t count, cl_event event)
{
    for (size_t i = 0; i < count; i++)
        r->last[touched[i]] = event;
    r->events[r->count++] = event;
}

/* An int at a random place of a buffer on, and how many of them. */
static void range(size_t buffer, size_t *at, size_t *count)
{
    size_t all = COUNTS[buffer];
    *count = chance(3) == 0 ? all : 1 + chance((uint32_t)all);
    *at = chance((uint32_t)(all - *count + 1));
}

static void resolve(struct running *r)
{
    if (r->user == NULL)
        return;
    CHECK(clSetUserEventStatus, r->user, CL_COMPLETE);
    CHECK(clReleaseEvent, r->user);
    r->user = NULL;
}

static void is_complete(cl_event event)
{
    cl_int status = 1;
    CHECK(clGetEventInfo, event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL);
    EXPECT(status == CL_COMPLETE, "a command that was waited for has status %d", status);
}

static void command(struct running *r)
{
    const size_t u = sizeof(cl_uint);
    cl_command_queue queue = r->queues[chance(QUEUES)];
    size_t touched[2] = { chance(BUFFERS), chance(BUFFERS) };
    size_t a = touched[0], at, n;
    cl_event list[8], event = NULL;
    range(a, &at, &n);
    uint32_t choice = chance(100);
    if (choice < 15) {
        cl_uint *data = block(r, n * u, false);
        for (size_t i = 0; i < n; i++)
            data[i] = (cl_uint)(i * 7 + choice + r->count);
        /* A blocking one may wait for a user event that only this thread sets. */
        cl_bool blocking = chance(3) == 0;
        if (blocking)
            resolve(r);
        cl_uint w = waits(r, touched, 1, list);
        CHECK(clEnqueueWriteBuffer, queue, r->buffers[a], blocking, at * u, n * u, data, w, w ? list : NULL, &event);
        note(r, touched, 1, event);
        if (blocking)
            is_complete(event);
    } else if (choice < 30) {
        void *data = block(r, n * u, true);
        cl_bool blocking = chance(3) == 0;
        if (blocking)
            resolve(r);
        cl_uint w = waits(r, touched, 1, list);
        CHECK(clEnqueueReadBuffer, queue, r->buffers[a], blocking, at * u, n * u, data, w, w ? list : NULL, &event);
        note(r, touched, 1, event);
        if (blocking)
            is_complete(event);
    } else if (choice < 38) {
        cl_uint pattern[4] = { choice, 0x01020304u, (cl_uint)r->count, 0xfffefdfcu };
        cl_uint w = waits(r, touched, 1, list);
        size_t p = COUNTS[a] % 4 == 0 && at % 4 == 0 && n % 4 == 0 ? 16 : u;
        CHECK(clEnqueueFillBuffer, queue, r->buffers[a], pattern, p, at * u, n * u, w, w ? list : NULL, &event);
        note(r, touched, 1, event);
    } else if (choice < 48 && touched[0] != touched[1]) {
        size_t b = touched[1];
        n = 1 + chance((uint32_t)(COUNTS[a] < COUNTS[b] ? COUNTS[a] : COUNTS[b]));
        size_t from = chance((uint32_t)(COUNTS[a] - n + 1)), to = chance((uint32_t)(COUNTS[b] - n + 1));
        cl_uint w = waits(r, touched, 2, list);
        CHECK(clEnqueueCopyBuffer, queue, r->buffers[a], r->buffers[b], from * u, to * u, n * u, w, w ? list : NULL,
              &event);
        note(r, touched, 2, event);
    } else if (choice < 62 && touched[0] != touched[1]) {
        size_t b = touched[1], global = COUNTS[a] < COUNTS[b] ? COUNTS[a] : COUNTS[b];
        set_buffer(r->mix, 0, r->buffers[a]);
        set_buffer(r->mix, 1, r->buffers[b]);
        set_uint(r->mix, 2, choice + (cl_uint)r->count);
        cl_uint w = waits(r, touched, 2, list);
        CHECK(clEnqueueNDRangeKernel, queue, r->mix, 1, NULL, &global, NULL, w, w ? list : NULL, &event);
        note(r, touched, 2, event);
    } else if (choice < 70) {
        size_t global = COUNTS[a], local = LOCAL;
        set_buffer(r->sum, 0, r->buffers[a]);
        CHECK(clSetKernelArg, r->sum, 1, LOCAL * u, NULL);
        set_uint(r->sum, 2, (cl_uint)r->count);
        cl_uint w = waits(r, touched, 1, list);
        CHECK(clEnqueueNDRangeKernel, queue, r->sum, 1, NULL, &global, &local, w, w ? list : NULL, &event);
        note(r, touched, 1, event);
    } else if (choice < 80) {
        cl_int error;
        resolve(r);
        cl_uint w = waits(r, touched, 1, list);
        cl_map_flags flags = chance(2) == 0 ? CL_MAP_READ | CL_MAP_WRITE : CL_MAP_WRITE;
        cl_uint *mapped =
            clEnqueueMapBuffer(queue, r->buffers[a], CL_TRUE, flags, at * u, n * u, w, w ? list : NULL, &event, &error);
        check("clEnqueueMapBuffer", error);
        is_complete(event);
        note(r, touched, 1, event);
        for (size_t i = 0; i < n; i += 1 + chance(5))
            mapped[i] = (flags & CL_MAP_READ ? mapped[i] : 5) * 3 + (cl_uint)i;
        CHECK(clEnqueueUnmapMemObject, queue, r->buffers[a], mapped, 0, NULL, &event);
        note(r, touched, 1, event);
    } else if (choice < 84) {
        cl_uint w = waits(r, touched, 0, list);
        CHECK(clEnqueueMarkerWithWaitList, queue, w, w ? list : NULL, &event);
        note(r, touched, 0, event);
    } else if (choice < 88) {
        cl_uint w = waits(r, touched, 0, list);
        CHECK(clEnqueueBarrierWithWaitList, queue, w, w ? list : NULL, &event);
        note(r, touched, 0, event);
    } else if (choice < 92) {
        cl_int error;
        resolve(r);
        r->user = clCreateUserEvent(r->d.context, &error);
        check("clCreateUserEvent", error);
    } else if (choice < 95 && r->count > 0) {
        resolve(r);
        cl_event one = r->events[chance((uint32_t)r->count)];
        CHECK(clWaitForEvents, 1, &one);
        is_complete(one);
    } else if (choice < 97) {
        resolve(r);
        CHECK(clFinish, queue);
    } else {
        CHECK(clFlush, queue);
    }
}

static void run(struct running *r, unsigned long seed, size_t commands)
{
    const size_t u = sizeof(cl_uint);
    seed_chance(seed);
    for (size_t i = 0; i < BUFFERS; i++) {
        const cl_mem_flags flags[] = { 0, CL_MEM_ALLOC_HOST_PTR, CL_MEM_COPY_HOST_PTR };
        cl_mem_flags chosen = flags[chance(3)];
        cl_int error;
        cl_uint *initial = calloc(COUNTS[i], u);
        EXPECT(initial != NULL, "out of memory");
        for (size_t k = 0; k < COUNTS[i]; k++)
            initial[k] = (cl_uint)(k * i);
        r->buffers[i] = clCreateBuffer(r->d.context, CL_MEM_READ_WRITE | chosen, COUNTS[i] * u,
                                       chosen == CL_MEM_COPY_HOST_PTR ? initial : NULL, &error);
        check("clCreateBuffer", error);
        /* The standard does not say what a new buffer holds. */
        if (chosen != CL_MEM_COPY_HOST_PTR)
            CHECK(clEnqueueWriteBuffer, r->queues[0], r->buffers[i], CL_TRUE, 0, COUNTS[i] * u, initial, 0, NULL, NULL);
        free(initial);
        r->last[i] = NULL;
    }
    r->count = r->block_count = 0;
    r->user = NULL;
    for (size_t i = 0; i < commands; i++)
        command(r);
    resolve(r);
    for (size_t i = 0; i < QUEUES; i++)
        CHECK(clFlush, r->queues[i]);
    for (size_t i = 0; i < QUEUES; i++)
        CHECK(clFinish, r->queues[i]);

    const uint64_t basis = 14695981039346656037u;
    uint64_t reads = basis, memory = basis, states = basis;
    for (size_t i = 0; i < r->block_count; i++) {
        if (r->is_result[i])
            reads = checksum(r->blocks[i], r->sizes[i], reads);
        free(r->blocks[i]);
    }
    for (size_t i = 0; i < BUFFERS; i++) {
        void *all = malloc(COUNTS[i] * u);
        EXPECT(all != NULL, "out of memory");
        CHECK(clEnqueueReadBuffer, r->queues[1], r->buffers[i], CL_TRUE, 0, COUNTS[i] * u, all, 0, NULL, NULL);
        memory = checksum(all, COUNTS[i] * u, memory);
        free(all);
        CHECK(clReleaseMemObject, r->buffers[i]);
    }
    for (size_t i = 0; i < r->count; i++) {
        cl_int status = 1;
        cl_command_type type = 0;
        CHECK(clGetEventInfo, r->events[i], CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL);
        CHECK(clGetEventInfo, r->events[i], CL_EVENT_COMMAND_TYPE, sizeof type, &type, NULL);
        states = checksum(&status, sizeof status, checksum(&type, sizeof type, states));
        CHECK(clReleaseEvent, r->events[i]);
    }
    printf("%lu: %zu events %016llx, reads %016llx, memory %016llx\n", seed, r->count, (unsigned long long)states,
           (unsigned long long)reads, (unsigned long long)memory);
}

int main(int argc, char **argv)
{
    unsigned long seed = 1, cases = 10, commands = 60;
    const struct option_spec options[] = { { "--seed", &seed, NULL }, { "--cases", &cases, NULL },
                                           { "--commands", &commands, NULL } };
    OPTIONS(argc, argv, USAGE, options);
    /* A map is two commands. */
    if (commands > MOST / 2)
        usage(USAGE, EXIT_USAGE);

    deadline(60 + (unsigned)cases);
    static struct running r;
    r.d = open_device(0);
    r.queues[0] = r.d.queue;
    cl_int error;
    r.queues[1] =
        clCreateCommandQueue(r.d.context, r.d.id, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &error);
    if (error == CL_INVALID_QUEUE_PROPERTIES)
        r.queues[1] = clCreateCommandQueue(r.d.context, r.d.id, 0, &error);
    check("clCreateCommandQueue", error);
    cl_program program = build(&r.d, SOURCE);
    r.mix = kernel_of(program, "blend");
    r.sum = kernel_of(program, "prefix");
    for (unsigned long i = 0; i < cases; i++)
        run(&r, seed + i, 1 + (size_t)((seed + i) * 37 % commands));
    CHECK(clReleaseKernel, r.mix);
    CHECK(clReleaseKernel, r.sum);
    CHECK(clReleaseProgram, program);
    CHECK(clReleaseCommandQueue, r.queues[1]);
    close_device(&r.d);
    return 0;
}
