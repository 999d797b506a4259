/* cnn: scores of a picture by a convolutional network in the manner of AlexNet. In: u32 width, u32 side, u32 seed, then the
 * picture, 3 x side x side floats. Out: a float per class. Little-endian. With width 16 and side 227 the layers have the
 * sizes of AlexNet. Weights come from the seed; they stay on the device until a request has another network.
 *
 * Each layer is a launch of one of four kernels in one of four queues, and waits for the layer before it by an event. */
#include "function.h"
#include "workers.h"

#include <math.h>
#include <stdlib.h>

enum { HEAD = 12, MAX_WIDTH = 16, MIN_SIDE = 67, MAX_SIDE = 227, CLASSES = 1000, LAYERS = 13 };

enum kind { CONVOLVE, NORMALISE, POOL, DENSE, KINDS };
static const char *const KERNELS[KINDS] = { "convolve", "normalise", "pool", "dense" };

struct layer {
    enum kind kind;
    /* Output channels for each unit of width; 0: as many as the input has. */
    cl_uint channels;
    cl_uint size, stride, padding;
};

static const struct layer LAYER[LAYERS] = {
    { CONVOLVE, 6, 11, 4, 0 }, { NORMALISE, 0, 0, 0, 0 }, { POOL, 0, 3, 2, 0 },
    { CONVOLVE, 16, 5, 1, 2 }, { NORMALISE, 0, 0, 0, 0 }, { POOL, 0, 3, 2, 0 },
    { CONVOLVE, 24, 3, 1, 1 }, { CONVOLVE, 24, 3, 1, 1 }, { CONVOLVE, 16, 3, 1, 1 }, { POOL, 0, 3, 2, 0 },
    { DENSE, 256, 0, 0, 0 },   { DENSE, 256, 0, 0, 0 },   { DENSE, 0, 0, 0, 0 },
};

struct shape {
    cl_uint channels, side;
};

struct network {
    cl_uint width, side, seed;
};

struct cnn {
    struct ocl ocl;
    cl_kernel kernels[KINDS];
    /* The queue of ocl has the transfers. */
    cl_command_queue queues[KINDS];
    /* The network whose weights are on the device, and the shape of each layer's input; the last one is the output's. */
    struct network network;
    struct shape shapes[LAYERS + 1];
    struct ocl_buffer weights[LAYERS];
    struct ocl_buffer tensors[LAYERS + 1];
    cl_float scores[CLASSES];
};

static size_t values(struct shape shape)
{
    return (size_t)shape.channels * shape.side * shape.side;
}

static struct shape after(const struct layer *layer, struct shape in, cl_uint width, bool is_last)
{
    struct shape out = in;
    if (layer->kind == DENSE) {
        out.channels = is_last ? CLASSES : layer->channels * width;
        out.side = 1;
    } else if (layer->kind != NORMALISE) {
        out.channels = layer->channels > 0 ? layer->channels * width : in.channels;
        out.side = (in.side + 2 * layer->padding - layer->size) / layer->stride + 1;
    }
    return out;
}

/* Number of inputs of one output, 0 for a layer without weights. */
static size_t fan_in(const struct layer *layer, struct shape in)
{
    if (layer->kind == DENSE)
        return values(in);
    return layer->kind == CONVOLVE ? (size_t)in.channels * layer->size * layer->size : 0;
}

/* The next of the random numbers of SplitMix64, from -limit to limit. */
static cl_float random_float(uint64_t *state, cl_float limit)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    z ^= z >> 31;
    return -limit + 2.0f * limit * ((cl_float)(z >> 48) / 65536.0f);
}

/* Weights whose outputs are about as large as the inputs, and then the biases. */
static bool write_weights(struct cnn *c, int layer, uint64_t *state)
{
    size_t inputs = fan_in(&LAYER[layer], c->shapes[layer]);
    if (inputs == 0)
        return true;
    size_t outputs = c->shapes[layer + 1].channels;
    size_t count = inputs * outputs + outputs;
    cl_float *host = malloc(count * sizeof *host);
    if (host == NULL)
        return ocl_ok(&c->ocl, "malloc", CL_OUT_OF_HOST_MEMORY);
    cl_float limit = sqrtf(6.0f / (cl_float)inputs);
    for (size_t i = 0; i < count; i++)
        host[i] = random_float(state, i < inputs * outputs ? limit : 0.1f);
    bool good = ocl_resize(&c->ocl, &c->weights[layer], count * sizeof *host)
        && OCL_TRY(&c->ocl, clEnqueueWriteBuffer, c->ocl.queue, c->weights[layer].mem, CL_TRUE, 0, count * sizeof *host,
                   host, 0, NULL, NULL);
    free(host);
    return good;
}

/* Makes the device hold the weights and tensors of a network. */
static bool load(struct cnn *c, struct network network)
{
    if (c->network.width == network.width && c->network.side == network.side && c->network.seed == network.seed)
        return true;
    /* Until all are there, the device holds no network: no network has the width 0. */
    c->network.width = 0;
    c->shapes[0] = (struct shape){ 3, network.side };
    uint64_t state = network.seed;
    for (int i = 0; i < LAYERS; i++) {
        c->shapes[i + 1] = after(&LAYER[i], c->shapes[i], network.width, i + 1 == LAYERS);
        if (!write_weights(c, i, &state))
            return false;
    }
    for (int i = 0; i <= LAYERS; i++)
        if (!ocl_resize(&c->ocl, &c->tensors[i], values(c->shapes[i]) * sizeof(cl_float)))
            return false;
    c->network = network;
    return true;
}

static bool set_memory(struct cnn *c, cl_kernel kernel, cl_uint *index, const struct ocl_buffer *buffer)
{
    return OCL_TRY(&c->ocl, clSetKernelArg, kernel, (*index)++, sizeof(cl_mem), &buffer->mem);
}

static bool set_numbers(struct cnn *c, cl_kernel kernel, cl_uint index, const cl_uint *numbers, cl_uint count)
{
    for (cl_uint i = 0; i < count; i++)
        if (!OCL_TRY(&c->ocl, clSetKernelArg, kernel, index + i, sizeof(cl_uint), &numbers[i]))
            return false;
    return true;
}

static bool set_arguments(struct cnn *c, int layer)
{
    const struct layer *l = &LAYER[layer];
    struct shape in = c->shapes[layer];
    cl_kernel kernel = c->kernels[l->kind];
    cl_uint index = 0;
    if (!set_memory(c, kernel, &index, &c->tensors[layer])
        || ((l->kind == CONVOLVE || l->kind == DENSE) && !set_memory(c, kernel, &index, &c->weights[layer]))
        || !set_memory(c, kernel, &index, &c->tensors[layer + 1]))
        return false;
    switch (l->kind) {
    case CONVOLVE:
        return set_numbers(c, kernel, index, (cl_uint[]){ in.channels, in.side, l->size, l->stride, l->padding }, 5);
    case POOL:
        return set_numbers(c, kernel, index, (cl_uint[]){ in.side, l->size, l->stride }, 3);
    case DENSE:
        return set_numbers(c, kernel, index, (cl_uint[]){ (cl_uint)values(in), layer + 1 == LAYERS }, 2);
    default:
        return true;
    }
}

/* Launches the layer after the event, which becomes the layer's own. */
static bool launch(struct cnn *c, int layer, cl_event *event)
{
    enum kind kind = LAYER[layer].kind;
    struct shape out = c->shapes[layer + 1];
    size_t global[3] = { out.side, out.side, out.channels };
    cl_uint dimensions = 3;
    if (kind == NORMALISE) {
        global[0] = (size_t)out.side * out.side;
        global[1] = out.channels;
        dimensions = 2;
    } else if (kind == DENSE) {
        global[0] = out.channels;
        dimensions = 1;
    }
    cl_event before = *event, own = NULL;
    if (!set_arguments(c, layer)
        || !OCL_TRY(&c->ocl, clEnqueueNDRangeKernel, c->queues[kind], c->kernels[kind], dimensions, NULL, global, NULL, 1,
                    &before, &own))
        return false;
    *event = own;
    clReleaseEvent(before);
    /* Another queue may wait only for commands that were flushed. */
    bool is_last_of_queue = layer + 1 == LAYERS || LAYER[layer + 1].kind != kind;
    return !is_last_of_queue || OCL_TRY(&c->ocl, clFlush, c->queues[kind]);
}

static bool classify(struct cnn *c, const uint8_t *picture)
{
    struct ocl *o = &c->ocl;
    cl_event event = NULL;
    if (!OCL_TRY(o, clEnqueueWriteBuffer, o->queue, c->tensors[0].mem, CL_FALSE, 0, c->tensors[0].size, picture, 0, NULL,
                 &event))
        return false;
    bool good = OCL_TRY(o, clFlush, o->queue);
    for (int i = 0; good && i < LAYERS; i++)
        good = launch(c, i, &event);
    good = good
        && OCL_TRY(o, clEnqueueReadBuffer, o->queue, c->tensors[LAYERS].mem, CL_TRUE, 0, sizeof c->scores, c->scores, 1,
                   &event, NULL);
    clReleaseEvent(event);
    return good;
}

static void handle(void *state, const uint8_t *input, size_t length, struct reply *reply)
{
    struct cnn *c = state;
    struct network network = { 0 };
    if (length >= HEAD)
        network = (struct network){ get_u32(input), get_u32(input + 4), get_u32(input + 8) };
    if (network.width < 1 || network.width > MAX_WIDTH || network.side < MIN_SIDE || network.side > MAX_SIDE) {
        reply_error(reply, 400,
                    "The input starts with width, side and seed (u32, little-endian): width 1 to %d, side %d to %d\n",
                    MAX_WIDTH, MIN_SIDE, MAX_SIDE);
        return;
    }
    size_t size = (size_t)3 * network.side * network.side * sizeof(cl_float);
    if (length != HEAD + size) {
        reply_error(reply, 400, "For side %u the input has %d + %zu bytes, not %zu\n", (unsigned)network.side, HEAD, size,
                    length);
        return;
    }
    bool ready = load(c, network);
    double start = now_us();
    if (!ready || !classify(c, input + HEAD)) {
        /* The write that was accepted still reads from the request, which is freed next. */
        for (int i = 0; i < KINDS; i++)
            clFinish(c->queues[i]);
        clFinish(c->ocl.queue);
        reply_opencl_error(reply, &c->ocl);
        return;
    }
    reply->opencl_us = now_us() - start;
    reply_bytes(reply, "application/octet-stream", c->scores, sizeof c->scores);
}

static bool open_queues(struct cnn *c)
{
    if (!ocl_open(&c->ocl))
        return false;
    for (int i = 0; i < KINDS; i++) {
        cl_int code = CL_SUCCESS;
        c->queues[i] = clCreateCommandQueue(c->ocl.context, c->ocl.device, 0, &code);
        if (!ocl_ok(&c->ocl, "clCreateCommandQueue", code) || (c->kernels[i] = ocl_kernel(&c->ocl, KERNELS[i])) == NULL)
            return false;
    }
    return true;
}

static int serve(const char *name, int listener, const void *context)
{
    (void)context;
    struct cnn c = { 0 };
    int status = open_queues(&c) ? http_serve(name, listener, &c.ocl, handle, &c) : 1;
    for (int i = 0; i < LAYERS; i++)
        ocl_buffer_release(&c.weights[i]);
    for (int i = 0; i <= LAYERS; i++)
        ocl_buffer_release(&c.tensors[i]);
    for (int i = 0; i < KINDS; i++) {
        if (c.kernels[i] != NULL)
            clReleaseKernel(c.kernels[i]);
        if (c.queues[i] != NULL)
            clReleaseCommandQueue(c.queues[i]);
    }
    ocl_close(&c.ocl);
    return status;
}

int main(void)
{
    return workers_main("cnn", serve, NULL);
}
