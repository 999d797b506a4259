/* Random programs in which commands take bytes from the same host memory as others give bytes to, and a model of what they
 * must leave there. The program compares every byte of its buffers and of its host memory with the model. */
#include "program.h"
#include "chance.h"

static const char USAGE[] =
    "usage: random_host_memory [--seed N] [--cases N] [--commands N] [--only N]\n"
    "Runs programs (default 10) of up to N commands (default 60) on two in-order and two out-of-order queues: writes, reads,\n"
    "rectangles, copies, fills, kernels, maps, unmaps and migrations over a few buffers and a few ranges of host memory.\n"
    "Commands that touch the same memory wait for each other, by events or by the order of their queue. User events hold them\n"
    "back while the program, or a callback, still writes to the memory that they will take. Prints a line for each program.\n"
    "--only N ends each program after its first N commands, to find the command at fault.\n";

static const char SOURCE[] = "kernel void blend(global uint *a, global const uint *b, uint by) {\n"
                             "    size_t i = get_global_id(0);\n"
                             "    a[i] = (a[i] ^ (b[i] << 3 | b[i] >> 29)) * 2654435761u + by;\n"
                             "}\n";

enum { BUFFERS = 5, BLOCKS = 3, OBJECTS = BUFFERS + BLOCKS, QUEUES = 4, MOST = 512, NONE = -1 };
/* The buffer whose memory is the program's own. */
enum { OWN = BUFFERS - 1 };

/* Bytes that fit into a command, that travel in chunks, that lie in a segment of their own, and that are read in place. */
static const size_t SIZES[OBJECTS] = { 256, 16384, 1 << 17, 3 << 18, 1 << 16, 1024, 1 << 16, 1 << 20 };

/* A buffer, or a block of host memory. The model has the bytes that it must have when all commands have ended. */
struct object {
    cl_mem buffer;
    unsigned char *host;
    unsigned char *model;
    /* The last command that touched it, and its queue. */
    cl_event last;
    int queue;
    /* Whether commands on it must wait for the user event. */
    bool held;
};

static struct running {
    struct device d;
    cl_command_queue queues[QUEUES];
    cl_kernel blend;
    struct object objects[OBJECTS];
    cl_event events[MOST];
    size_t count;
    cl_event user;
    /* The host memory that the program fills before it sets the user event: where, with what, and how much. */
    unsigned char *unfilled, *filling;
    size_t unfilled_size;
    /* Whether a callback fills the memory and sets the user event, instead of resolve(). */
    bool called_back;
    unsigned char scratch[1 << 20];
} r;

struct waits {
    cl_event list[4];
    cl_uint count;
    int queue;
};

static const cl_event *list_of(const struct waits *w)
{
    return w->count > 0 ? w->list : NULL;
}

static void *memory(size_t size)
{
    void *bytes = NULL;
    EXPECT(posix_memalign(&bytes, 4096, size) == 0, "out of memory");
    return bytes;
}

static void random_bytes(unsigned char *bytes, size_t size)
{
    uint64_t word = chance(1u << 30);
    for (size_t i = 0; i < size; i += sizeof word) {
        word = word * 6364136223846793005u + 1442695040888963407u;
        uint64_t mixed = word ^ word >> 29;
        memcpy(bytes + i, &mixed, size - i < sizeof mixed ? size - i : sizeof mixed);
    }
}

static bool in_order(int queue)
{
    return queue % 2 == 0;
}

/* Chooses a queue for a command on these objects, and the events that it has to wait for there. */
static struct waits order(const int *touched, size_t count)
{
    struct waits w = { .queue = (int)chance(QUEUES) };
    bool held = false;
    for (size_t i = 0; i < count; i++) {
        const struct object *o = &r.objects[touched[i]];
        held |= o->held;
        bool is_ordered = in_order(w.queue) && o->queue == w.queue && chance(3) != 0;
        if (o->last != NULL && !is_ordered)
            w.list[w.count++] = o->last;
    }
    if (r.user != NULL && (held || chance(4) == 0))
        w.list[w.count++] = r.user;
    return w;
}

static void note(const int *touched, size_t count, const struct waits *w, cl_event event)
{
    for (size_t i = 0; i < count; i++) {
        r.objects[touched[i]].last = event;
        r.objects[touched[i]].queue = w->queue;
    }
    r.events[r.count++] = event;
}

static void range(size_t size, size_t *at, size_t *count)
{
    *count = chance(3) == 0 ? size : 1 + chance((uint32_t)size);
    *at = chance((uint32_t)(size - *count + 1));
}

static void fill_and_set(void)
{
    if (r.unfilled != NULL)
        memcpy(r.unfilled, r.filling, r.unfilled_size);
    CHECK(clSetUserEventStatus, r.user, CL_COMPLETE);
}

static void CL_CALLBACK ended(cl_event event, cl_int status, void *data)
{
    (void)event, (void)data;
    EXPECT(status == CL_COMPLETE, "a command ended with %d", status);
    fill_and_set();
}

/* Leaves the user event to a callback, now and then: the one of an earlier command, which does not wait for the user event. */
static void leave_to_callback(void)
{
    cl_event earlier = r.objects[chance(OBJECTS)].last;
    if (earlier == NULL || chance(2) == 0)
        return;
    r.called_back = true;
    CHECK(clSetEventCallback, earlier, CL_COMPLETE, ended, NULL);
}

static void resolve(void)
{
    if (r.user == NULL)
        return;
    for (size_t i = 0; i < QUEUES; i++)
        if (r.called_back || chance(2) == 0)
            CHECK(clFlush, r.queues[i]);
    if (r.called_back)
        CHECK(clWaitForEvents, 1, &r.user);
    else
        fill_and_set();
    free(r.filling);
    r.unfilled = r.filling = NULL;
    r.called_back = false;
    /* Released at the end: the callback may still be in its call for the event. */
    r.events[r.count++] = r.user;
    r.user = NULL;
    for (size_t i = 0; i < OBJECTS; i++)
        r.objects[i].held = false;
}

static void await(const struct object *o)
{
    resolve();
    if (o->last != NULL)
        CHECK(clWaitForEvents, 1, &o->last);
}

/* Whether a command blocks. One that does can't wait for a user event that only this thread sets. */
static cl_bool blocks(void)
{
    if (chance(4) != 0)
        return CL_FALSE;
    resolve();
    return CL_TRUE;
}

static void same(const char *what, const unsigned char *is, const unsigned char *must, size_t size)
{
    if (memcmp(is, must, size) == 0)
        return;
    for (size_t i = 0; i < size; i++)
        EXPECT(is[i] == must[i], "%s: byte %zu of %zu is %02x and must be %02x", what, i, size, is[i], must[i]);
}

/* === commands === */

static void transfer(int buffer, int block, bool writes)
{
    struct object *o = &r.objects[buffer], *h = &r.objects[block];
    size_t at, n, from;
    range(SIZES[buffer] < SIZES[block] ? SIZES[buffer] : SIZES[block], &at, &n);
    from = chance((uint32_t)(SIZES[block] - n + 1));
    int touched[] = { buffer, block };
    cl_bool blocking = blocks();
    struct waits w = order(touched, 2);
    cl_event event;
    if (writes) {
        CHECK(clEnqueueWriteBuffer, r.queues[w.queue], o->buffer, blocking, at, n, h->host + from, w.count, list_of(&w),
              &event);
        memcpy(o->model + at, h->model + from, n);
    } else {
        CHECK(clEnqueueReadBuffer, r.queues[w.queue], o->buffer, blocking, at, n, h->host + from, w.count, list_of(&w),
              &event);
        memcpy(h->model + from, o->model + at, n);
    }
    note(touched, 2, &w, event);
}

static void rectangle(int buffer, int block, bool writes)
{
    struct object *o = &r.objects[buffer], *h = &r.objects[block];
    size_t least = SIZES[buffer] < SIZES[block] ? SIZES[buffer] : SIZES[block];
    size_t width = 1 + chance(15), pitch = 16 + chance(16), host_pitch = 16 + chance(16);
    size_t rows = 1 + chance((uint32_t)(least / 32 - 1));
    const size_t origin[] = { 0, 0, 0 }, region[] = { width, rows, 1 };
    int touched[] = { buffer, block };
    cl_bool blocking = blocks();
    struct waits w = order(touched, 2);
    cl_event event;
    if (writes)
        CHECK(clEnqueueWriteBufferRect, r.queues[w.queue], o->buffer, blocking, origin, origin, region, pitch, 0, host_pitch,
              0, h->host, w.count, list_of(&w), &event);
    else
        CHECK(clEnqueueReadBufferRect, r.queues[w.queue], o->buffer, blocking, origin, origin, region, pitch, 0, host_pitch,
              0, h->host, w.count, list_of(&w), &event);
    for (size_t row = 0; row < rows; row++) {
        unsigned char *device = o->model + row * pitch, *host = h->model + row * host_pitch;
        memcpy(writes ? device : host, writes ? host : device, width);
    }
    note(touched, 2, &w, event);
}

static void copy(int a, int b)
{
    size_t least = SIZES[a] < SIZES[b] ? SIZES[a] : SIZES[b], n = 1 + chance((uint32_t)least);
    size_t from = chance((uint32_t)(SIZES[a] - n + 1)), to = chance((uint32_t)(SIZES[b] - n + 1));
    int touched[] = { a, b };
    struct waits w = order(touched, 2);
    cl_event event;
    CHECK(clEnqueueCopyBuffer, r.queues[w.queue], r.objects[a].buffer, r.objects[b].buffer, from, to, n, w.count, list_of(&w),
          &event);
    memcpy(r.objects[b].model + to, r.objects[a].model + from, n);
    note(touched, 2, &w, event);
}

static void fill(int buffer)
{
    cl_uint pattern = chance(1u << 30);
    size_t at, n;
    range(SIZES[buffer] / 4, &at, &n);
    struct waits w = order(&buffer, 1);
    cl_event event;
    CHECK(clEnqueueFillBuffer, r.queues[w.queue], r.objects[buffer].buffer, &pattern, 4, at * 4, n * 4, w.count, list_of(&w),
          &event);
    for (size_t i = at; i < at + n; i++)
        memcpy(r.objects[buffer].model + i * 4, &pattern, 4);
    note(&buffer, 1, &w, event);
}

static void launch(int a, int b)
{
    size_t global = (SIZES[a] < SIZES[b] ? SIZES[a] : SIZES[b]) / 4;
    cl_uint by = chance(1u << 30);
    int touched[] = { a, b };
    struct waits w = order(touched, 2);
    cl_event event;
    set_buffer(r.blend, 0, r.objects[a].buffer);
    set_buffer(r.blend, 1, r.objects[b].buffer);
    set_uint(r.blend, 2, by);
    CHECK(clEnqueueNDRangeKernel, r.queues[w.queue], r.blend, 1, NULL, &global, NULL, w.count, list_of(&w), &event);
    cl_uint *x = (cl_uint *)r.objects[a].model, *y = (cl_uint *)r.objects[b].model;
    for (size_t i = 0; i < global; i++)
        x[i] = (x[i] ^ (y[i] << 3 | y[i] >> 29)) * 2654435761u + by;
    note(touched, 2, &w, event);
}

static cl_event unmap(int buffer, void *mapped, struct waits *w)
{
    cl_event event;
    CHECK(clEnqueueUnmapMemObject, r.queues[w->queue], r.objects[buffer].buffer, mapped, w->count, list_of(w), &event);
    return event;
}

/* Maps a part of a buffer, and fills the part: itself, by a read of another buffer, or before it sets a user event. */
static void map(int buffer, int other)
{
    struct object *o = &r.objects[buffer];
    size_t at, n;
    range(SIZES[buffer] < SIZES[other] ? SIZES[buffer] : SIZES[other], &at, &n);
    await(o);
    cl_map_flags flags = (const cl_map_flags[]){ CL_MAP_READ | CL_MAP_WRITE, CL_MAP_WRITE, CL_MAP_READ }[chance(3)];
    struct waits w = order(&buffer, 1);
    cl_int error;
    cl_event event;
    cl_bool blocking = chance(2) == 0;
    unsigned char *mapped = clEnqueueMapBuffer(r.queues[w.queue], o->buffer, blocking, flags, at, n, w.count, list_of(&w),
                                               &event, &error);
    check("clEnqueueMapBuffer", error);
    note(&buffer, 1, &w, event);
    if (!blocking)
        await(o);
    if (flags & CL_MAP_READ)
        same("mapped memory", mapped, o->model + at, n);
    if (flags == CL_MAP_READ) {
        w = order(&buffer, 1);
        note(&buffer, 1, &w, unmap(buffer, mapped, &w));
        return;
    }
    /* A map for writing alone shows what the buffer has, or not. */
    random_bytes(mapped, n);
    memcpy(o->model + at, mapped, n);
    uint32_t way = chance(3);
    if (way == 1 && other != buffer) {
        int touched[] = { buffer, other };
        w = order(touched, 2);
        CHECK(clEnqueueReadBuffer, r.queues[w.queue], r.objects[other].buffer, CL_FALSE, 0, n, mapped, w.count, list_of(&w),
              &event);
        memcpy(o->model + at, r.objects[other].model, n);
        note(touched, 2, &w, event);
    }
    if (way == 2) {
        cl_int code;
        r.user = clCreateUserEvent(r.d.context, &code);
        check("clCreateUserEvent", code);
        r.unfilled = mapped;
        r.unfilled_size = n;
        r.filling = memory(n);
        random_bytes(r.filling, n);
        memcpy(o->model + at, r.filling, n);
        o->held = true;
        leave_to_callback();
    }
    w = order(&buffer, 1);
    note(&buffer, 1, &w, unmap(buffer, mapped, &w));
}

/* The idiom of Vitis: the program writes to its own memory and migrates it, and reads its memory after it was migrated back. */
static void migrate(void)
{
    int buffer = OWN;
    struct object *o = &r.objects[buffer];
    cl_event event;
    await(o);
    bool writes = chance(2) == 0;
    if (writes) {
        struct waits back = order(&buffer, 1);
        CHECK(clEnqueueMigrateMemObjects, r.queues[back.queue], 1, &o->buffer, CL_MIGRATE_MEM_OBJECT_HOST, back.count,
              list_of(&back), &event);
        note(&buffer, 1, &back, event);
        await(o);
        size_t at, n;
        range(SIZES[buffer], &at, &n);
        random_bytes(o->host + at, n);
        memcpy(o->model + at, o->host + at, n);
    }
    struct waits w = order(&buffer, 1);
    CHECK(clEnqueueMigrateMemObjects, r.queues[w.queue], 1, &o->buffer, writes ? 0 : CL_MIGRATE_MEM_OBJECT_HOST, w.count,
          list_of(&w), &event);
    note(&buffer, 1, &w, event);
    if (!writes) {
        await(o);
        same("migrated memory", o->host, o->model, SIZES[buffer]);
    }
}

/* A user event, and now and then a block of host memory that is filled before it is set. */
static void hold(void)
{
    cl_int error;
    resolve();
    int block = BUFFERS + (int)chance(BLOCKS);
    struct object *h = &r.objects[block];
    await(h);
    r.user = clCreateUserEvent(r.d.context, &error);
    check("clCreateUserEvent", error);
    if (chance(4) != 0) {
        r.unfilled = h->host;
        r.unfilled_size = SIZES[block];
        r.filling = memory(SIZES[block]);
        random_bytes(r.filling, SIZES[block]);
        memcpy(h->model, r.filling, SIZES[block]);
        h->held = true;
    }
    leave_to_callback();
}

static void command(void)
{
    int a = (int)chance(BUFFERS), b = (int)chance(BUFFERS), block = BUFFERS + (int)chance(BLOCKS);
    uint32_t choice = chance(100);
    if (choice < 40)
        transfer(a, block, choice < 20);
    else if (choice < 52)
        rectangle(a, block, choice < 46);
    else if (choice < 58 && a != b)
        copy(a, b);
    else if (choice < 62)
        fill(a);
    else if (choice < 70 && a != b)
        launch(a, b);
    else if (choice < 78)
        map(a, b);
    else if (choice < 82)
        migrate();
    else if (choice < 92)
        hold();
    else if (choice < 94)
        resolve();
    else if (choice < 96) {
        resolve();
        CHECK(clFinish, r.queues[chance(QUEUES)]);
    } else
        CHECK(clFlush, r.queues[chance(QUEUES)]);
}

/* === programs === */

static void begin(unsigned long seed)
{
    seed_chance(seed);
    r.count = 0;
    for (int i = 0; i < OBJECTS; i++) {
        struct object *o = &r.objects[i];
        *o = (struct object){ .host = memory(SIZES[i]), .model = memory(SIZES[i]), .queue = NONE };
        random_bytes(o->host, SIZES[i]);
        memcpy(o->model, o->host, SIZES[i]);
        if (i >= BUFFERS)
            continue;
        cl_mem_flags flags = i == OWN ? CL_MEM_USE_HOST_PTR : CL_MEM_COPY_HOST_PTR;
        if (i != OWN && chance(3) == 0)
            flags |= CL_MEM_ALLOC_HOST_PTR;
        o->buffer = buffer_of(&r.d, CL_MEM_READ_WRITE | flags, SIZES[i], o->host);
    }
}

static void end(unsigned long seed, size_t commands)
{
    resolve();
    for (size_t i = 0; i < QUEUES; i++)
        CHECK(clFlush, r.queues[i]);
    for (size_t i = 0; i < QUEUES; i++)
        CHECK(clFinish, r.queues[i]);
    for (int i = 0; i < OBJECTS; i++) {
        struct object *o = &r.objects[i];
        char what[64];
        if (i < BUFFERS) {
            snprintf(what, sizeof what, "program %lu, %zu commands, buffer %d", seed, commands, i);
            CHECK(clEnqueueReadBuffer, r.queues[1], o->buffer, CL_TRUE, 0, SIZES[i], r.scratch, 0, NULL, NULL);
            same(what, r.scratch, o->model, SIZES[i]);
            CHECK(clReleaseMemObject, o->buffer);
        } else {
            snprintf(what, sizeof what, "program %lu, %zu commands, host memory %d", seed, commands, i - BUFFERS);
            same(what, o->host, o->model, SIZES[i]);
        }
        free(o->host);
        free(o->model);
    }
    for (size_t i = 0; i < r.count; i++)
        CHECK(clReleaseEvent, r.events[i]);
    printf("%lu: %zu commands\n", seed, r.count);
}

/* A runtime may have no out-of-order queues. */
static cl_command_queue another_queue(bool ordered)
{
    cl_int error;
    cl_command_queue queue = clCreateCommandQueue(r.d.context, r.d.id, ordered ? 0 : CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE,
                                                  &error);
    if (error == CL_INVALID_QUEUE_PROPERTIES)
        queue = clCreateCommandQueue(r.d.context, r.d.id, 0, &error);
    check("clCreateCommandQueue", error);
    return queue;
}

int main(int argc, char **argv)
{
    unsigned long seed = 1, cases = 10, commands = 60, only = MOST;
    const struct option_spec options[] = {
        { "--seed", &seed, NULL }, { "--cases", &cases, NULL }, { "--commands", &commands, NULL }, { "--only", &only, NULL }
    };
    OPTIONS(argc, argv, USAGE, options);
    /* A map is up to three commands and a user event. */
    if (commands > MOST / 4)
        usage(USAGE, EXIT_USAGE);

    deadline(60 + (unsigned)cases);
    r.d = open_device(0);
    r.queues[0] = r.d.queue;
    for (int i = 1; i < QUEUES; i++)
        r.queues[i] = another_queue(in_order(i));
    cl_program program = build(&r.d, SOURCE);
    r.blend = kernel_of(program, "blend");
    for (unsigned long i = 0; i < cases; i++) {
        begin(seed + i);
        size_t most = 1 + (size_t)((seed + i) * 37 % commands), done = 0;
        for (; done < most && done < only; done++)
            command();
        end(seed + i, done);
    }
    CHECK(clReleaseKernel, r.blend);
    CHECK(clReleaseProgram, program);
    for (int i = 1; i < QUEUES; i++)
        CHECK(clReleaseCommandQueue, r.queues[i]);
    close_device(&r.d);
    return 0;
}
