/* bfs: distances from a node of a directed graph. In: u32 nodes, u32 edges, u32 source, nodes + 1 offsets, the targets of
 * all edges by node. Out: u32 per node, the number of edges of the shortest way; 0xffffffff without one. Little-endian. */
#include "function.h"
#include "workers.h"

#include <stdlib.h>

enum { GROUP = 64, HEAD = 12, MAX_NODES = 1 << 20, MAX_EDGES = 1 << 23 };
static const cl_uint UNREACHED = 0xffffffff;

/* The buffers, in the order of the kernels' arguments. */
enum buffer { OFFSETS, TARGETS, FRONTIER, NEXT, LEVELS, FOUND, BUFFERS };

struct bfs {
    struct ocl ocl;
    cl_kernel expand, advance;
    struct ocl_buffer buffers[BUFFERS];
    /* Host memory of MAX_NODES words. */
    cl_uint *levels;
};

struct graph {
    cl_uint nodes, edges, source;
    const uint8_t *offsets, *targets;
};

static cl_uint word(const uint8_t *words, cl_uint index)
{
    return get_u32(words + (size_t)index * sizeof(cl_uint));
}

static bool parse(const uint8_t *input, size_t length, struct graph *graph, struct reply *reply)
{
    graph->nodes = length >= HEAD ? get_u32(input) : 0;
    graph->edges = length >= HEAD ? get_u32(input + 4) : 0;
    if (graph->nodes < 1 || graph->nodes > MAX_NODES || graph->edges > MAX_EDGES) {
        reply_error(reply, 400,
                    "The input starts with nodes, edges and source (u32, little-endian): 1 to %d nodes, up to %d edges\n",
                    MAX_NODES, MAX_EDGES);
        return false;
    }
    size_t size = HEAD + ((size_t)graph->nodes + 1 + graph->edges) * sizeof(cl_uint);
    if (length != size) {
        reply_error(reply, 400, "For %u nodes and %u edges the input has %zu bytes, not %zu\n", (unsigned)graph->nodes,
                    (unsigned)graph->edges, size, length);
        return false;
    }
    graph->source = get_u32(input + 8);
    graph->offsets = input + HEAD;
    graph->targets = graph->offsets + ((size_t)graph->nodes + 1) * sizeof(cl_uint);
    bool good = graph->source < graph->nodes && word(graph->offsets, 0) == 0
        && word(graph->offsets, graph->nodes) == graph->edges;
    for (cl_uint node = 0; good && node < graph->nodes; node++)
        good = word(graph->offsets, node) <= word(graph->offsets, node + 1);
    for (cl_uint edge = 0; good && edge < graph->edges; edge++)
        good = word(graph->targets, edge) < graph->nodes;
    if (!good)
        reply_error(reply, 400, "Source and targets are nodes; offsets never fall, from 0 to the number of edges\n");
    return good;
}

static bool make_buffers(struct bfs *b, const struct graph *graph)
{
    size_t node_words = graph->nodes * sizeof(cl_uint);
    const size_t sizes[BUFFERS] = {
        [OFFSETS] = node_words + sizeof(cl_uint),
        /* A graph may have no edges, a buffer has at least a word. */
        [TARGETS] = (graph->edges > 0 ? graph->edges : 1) * sizeof(cl_uint),
        [FRONTIER] = node_words,
        [NEXT] = node_words,
        [LEVELS] = node_words,
        [FOUND] = sizeof(cl_uint),
    };
    for (int i = 0; i < BUFFERS; i++)
        if (!ocl_resize(&b->ocl, &b->buffers[i], sizes[i]))
            return false;
    return true;
}

static bool set_arguments(struct bfs *b, cl_kernel kernel, const enum buffer *buffers, cl_uint count)
{
    for (cl_uint i = 0; i < count; i++)
        if (!OCL_TRY(&b->ocl, clSetKernelArg, kernel, i, sizeof(cl_mem), &b->buffers[buffers[i]].mem))
            return false;
    return true;
}

static bool fill(struct bfs *b, enum buffer buffer, cl_uint value)
{
    return OCL_TRY(&b->ocl, clEnqueueFillBuffer, b->ocl.queue, b->buffers[buffer].mem, &value, sizeof value, 0,
                   b->buffers[buffer].size, 0, NULL, NULL);
}

static bool write_word(struct bfs *b, enum buffer buffer, cl_uint index, const cl_uint *value)
{
    return OCL_TRY(&b->ocl, clEnqueueWriteBuffer, b->ocl.queue, b->buffers[buffer].mem, CL_FALSE,
                   index * sizeof *value, sizeof *value, value, 0, NULL, NULL);
}

static bool write_graph(struct bfs *b, const struct graph *graph)
{
    static const cl_uint zero = 0, one = 1;
    struct ocl *o = &b->ocl;
    return OCL_TRY(o, clEnqueueWriteBuffer, o->queue, b->buffers[OFFSETS].mem, CL_FALSE, 0, b->buffers[OFFSETS].size,
                   graph->offsets, 0, NULL, NULL)
        && (graph->edges == 0
            || OCL_TRY(o, clEnqueueWriteBuffer, o->queue, b->buffers[TARGETS].mem, CL_FALSE, 0,
                       b->buffers[TARGETS].size, graph->targets, 0, NULL, NULL))
        && fill(b, FRONTIER, 0) && fill(b, NEXT, 0) && fill(b, LEVELS, UNREACHED)
        && write_word(b, FRONTIER, graph->source, &one) && write_word(b, LEVELS, graph->source, &zero);
}

/* Both kernels of one level, and whether the next level has a node. */
static bool run_level(struct bfs *b, cl_uint level, size_t global, cl_uint *found)
{
    static const size_t local = GROUP;
    struct ocl *o = &b->ocl;
    return fill(b, FOUND, 0)
        && OCL_TRY(o, clEnqueueNDRangeKernel, o->queue, b->expand, 1, NULL, &global, &local, 0, NULL, NULL)
        && OCL_TRY(o, clSetKernelArg, b->advance, 4, sizeof level, &level)
        && OCL_TRY(o, clEnqueueNDRangeKernel, o->queue, b->advance, 1, NULL, &global, &local, 0, NULL, NULL)
        && OCL_TRY(o, clEnqueueReadBuffer, o->queue, b->buffers[FOUND].mem, CL_TRUE, 0, sizeof *found, found, 0, NULL,
                   NULL);
}

static bool search(struct bfs *b, const struct graph *graph)
{
    static const enum buffer of_expand[] = { OFFSETS, TARGETS, FRONTIER, LEVELS, NEXT };
    static const enum buffer of_advance[] = { FRONTIER, NEXT, LEVELS, FOUND };
    struct ocl *o = &b->ocl;
    if (!set_arguments(b, b->expand, of_expand, 5)
        || !OCL_TRY(o, clSetKernelArg, b->expand, 5, sizeof graph->nodes, &graph->nodes)
        || !set_arguments(b, b->advance, of_advance, 4)
        || !OCL_TRY(o, clSetKernelArg, b->advance, 5, sizeof graph->nodes, &graph->nodes) || !write_graph(b, graph))
        return false;
    cl_uint found = 1;
    for (cl_uint level = 1; found && level < graph->nodes; level++)
        if (!run_level(b, level, round_up(graph->nodes, GROUP), &found))
            return false;
    return OCL_TRY(o, clEnqueueReadBuffer, o->queue, b->buffers[LEVELS].mem, CL_TRUE, 0, b->buffers[LEVELS].size,
                   b->levels, 0, NULL, NULL);
}

static void handle(void *state, const uint8_t *input, size_t length, struct reply *reply)
{
    struct bfs *b = state;
    struct graph graph;
    if (!parse(input, length, &graph, reply))
        return;
    bool ready = make_buffers(b, &graph);
    double start = now_us();
    if (!ready || !search(b, &graph)) {
        /* The writes that were accepted still read from the request, which is freed next. */
        clFinish(b->ocl.queue);
        reply_opencl_error(reply, &b->ocl);
        return;
    }
    reply->opencl_us = now_us() - start;
    reply_bytes(reply, "application/octet-stream", b->levels, b->buffers[LEVELS].size);
}

static int serve(const char *name, int listener, const void *context)
{
    (void)context;
    struct bfs b = { 0 };
    for (int i = 0; i < BUFFERS; i++)
        b.buffers[i].flags = CL_MEM_READ_WRITE;
    b.levels = malloc(MAX_NODES * sizeof *b.levels);
    int status = 1;
    if (b.levels != NULL && ocl_open(&b.ocl) && (b.expand = ocl_kernel(&b.ocl, "expand")) != NULL
        && (b.advance = ocl_kernel(&b.ocl, "advance")) != NULL)
        status = http_serve(name, listener, &b.ocl, handle, &b);
    for (int i = 0; i < BUFFERS; i++)
        ocl_buffer_release(&b.buffers[i]);
    if (b.expand != NULL)
        clReleaseKernel(b.expand);
    if (b.advance != NULL)
        clReleaseKernel(b.advance);
    ocl_close(&b.ocl);
    free(b.levels);
    return status;
}

int main(void)
{
    return workers_main("bfs", serve, NULL);
}
