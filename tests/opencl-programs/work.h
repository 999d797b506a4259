/* Two kernels with their data: Sobel's filter of a grey image, and the product of two square matrices. The programs
 * `workload` and `kernels` share them. Include program.h first. */
#ifndef WORK_H
#define WORK_H

static const char WORK_SOURCE[] =
    "kernel void sobel(global const uchar *in, global uchar *out, uint width, uint height) {\n"
    "    uint x = get_global_id(0), y = get_global_id(1);\n"
    "    if (x == 0 || y == 0 || x == width - 1 || y == height - 1) { out[y * width + x] = 0; return; }\n"
    "    global const uchar *p = in + (y - 1) * width + x - 1;\n"
    "    int a = p[0], b = p[1], c = p[2], d = p[width], f = p[width + 2];\n"
    "    int g = p[2 * width], h = p[2 * width + 1], i = p[2 * width + 2];\n"
    "    int dx = c + 2 * f + i - a - 2 * d - g, dy = g + 2 * h + i - a - 2 * b - c;\n"
    "    out[y * width + x] = (uchar)min(255, (int)(abs(dx) + abs(dy)));\n"
    "}\n"
    "kernel void matmul(global const float *a, global const float *b, global float *c, uint n) {\n"
    "    uint column = get_global_id(0), row = get_global_id(1);\n"
    "    float8 sum = 0;\n"
    "    for (uint k = 0; k < n; k++) sum += a[row * n + k] * vload8(column, b + k * n);\n"
    "    vstore8(sum, column, c + row * n);\n"
    "}\n";

struct work {
    struct device *d;
    cl_kernel kernel;
    /* The product of matrices of width x width; otherwise Sobel's filter. */
    bool matmul;
    /* One or two inputs, one output. */
    cl_mem in[2], out;
    size_t inputs, in_size, out_size, width, height, global[2];
    void *host_in[2], *host_out;
};

/* `program` is built of WORK_SOURCE. For a product, width and height are equal and a multiple of 8. */
UNUSED static struct work prepare(struct device *d, cl_program program, bool matmul, size_t width, size_t height)
{
    struct work w = { .d = d, .matmul = matmul, .width = width, .height = height };
    w.kernel = kernel_of(program, matmul ? "matmul" : "sobel");
    w.inputs = matmul ? 2 : 1;
    w.in_size = w.out_size = width * height * (matmul ? sizeof(float) : 1);
    /* A work item of the product makes 8 elements. */
    w.global[0] = matmul ? width / 8 : width;
    w.global[1] = height;
    for (cl_uint i = 0; i < w.inputs; i++) {
        w.host_in[i] = malloc(w.in_size);
        EXPECT(w.host_in[i] != NULL, "out of memory");
        w.in[i] = buffer_of(d, CL_MEM_READ_ONLY, w.in_size, NULL);
        set_buffer(w.kernel, i, w.in[i]);
        for (size_t at = 0; at < width * height; at++) {
            if (matmul)
                ((float *)w.host_in[i])[at] = (float)((at * 7 + i) % 16);
            else
                ((unsigned char *)w.host_in[i])[at] = (unsigned char)(at * 2654435761u >> 13);
        }
    }
    w.host_out = malloc(w.out_size);
    EXPECT(w.host_out != NULL, "out of memory");
    w.out = buffer_of(d, CL_MEM_WRITE_ONLY, w.out_size, NULL);
    set_buffer(w.kernel, (cl_uint)w.inputs, w.out);
    set_uint(w.kernel, (cl_uint)w.inputs + 1, (cl_uint)width);
    if (!matmul)
        set_uint(w.kernel, (cl_uint)w.inputs + 2, (cl_uint)height);
    return w;
}

/* Data in, kernel, result out. Returns its microseconds. */
UNUSED static double compute(struct work *w)
{
    double start = now_us();
    for (size_t i = 0; i < w->inputs; i++)
        CHECK(clEnqueueWriteBuffer, w->d->queue, w->in[i], CL_FALSE, 0, w->in_size, w->host_in[i], 0, NULL, NULL);
    CHECK(clEnqueueNDRangeKernel, w->d->queue, w->kernel, 2, NULL, w->global, NULL, 0, NULL, NULL);
    CHECK(clEnqueueReadBuffer, w->d->queue, w->out, CL_TRUE, 0, w->out_size, w->host_out, 0, NULL, NULL);
    return now_us() - start;
}

/* The kernel alone, and clFinish. Returns its microseconds. */
UNUSED static double launch_and_finish(struct work *w)
{
    double start = now_us();
    CHECK(clEnqueueNDRangeKernel, w->d->queue, w->kernel, 2, NULL, w->global, NULL, 0, NULL, NULL);
    CHECK(clFinish, w->d->queue);
    return now_us() - start;
}

/* Reads the result, and compares some of it with what this function computes. */
UNUSED static void verify(const struct work *w)
{
    CHECK(clEnqueueReadBuffer, w->d->queue, w->out, CL_TRUE, 0, w->out_size, w->host_out, 0, NULL, NULL);
    for (size_t probe = 0; probe < 1000; probe++) {
        size_t x = probe * 37 % w->width, y = probe * 101 % w->height;
        if (w->matmul) {
            const float *a = w->host_in[0], *b = w->host_in[1], *c = w->host_out;
            float sum = 0;
            for (size_t k = 0; k < w->width; k++)
                sum += a[y * w->width + k] * b[k * w->width + x];
            EXPECT(c[y * w->width + x] == sum, "element (%zu, %zu) is %f and should be %f", y, x,
                   (double)c[y * w->width + x], (double)sum);
            continue;
        }
        const unsigned char *in = w->host_in[0], *out = w->host_out;
        int expected = 0;
        if (x > 0 && y > 0 && x < w->width - 1 && y < w->height - 1) {
            const unsigned char *p = in + (y - 1) * w->width + x - 1, *q = p + w->width, *r = q + w->width;
            expected = abs(p[2] + 2 * q[2] + r[2] - p[0] - 2 * q[0] - r[0]) +
                       abs(r[0] + 2 * r[1] + r[2] - p[0] - 2 * p[1] - p[2]);
            if (expected > 255)
                expected = 255;
        }
        EXPECT(out[y * w->width + x] == expected, "pixel (%zu, %zu) is %d and should be %d", x, y,
               out[y * w->width + x], expected);
    }
}

UNUSED static void release(struct work *w)
{
    for (size_t i = 0; i < w->inputs; i++) {
        CHECK(clReleaseMemObject, w->in[i]);
        free(w->host_in[i]);
    }
    CHECK(clReleaseMemObject, w->out);
    free(w->host_out);
    CHECK(clReleaseKernel, w->kernel);
}

#endif
