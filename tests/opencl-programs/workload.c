/* What an application does all day: data in, kernel, result out, again and again. Sobel of a 1080p image, or a product of
 * 512 x 512 matrices. */
#include "program.h"

static const char USAGE[] =
    "usage: workload [--matmul] [--seconds N] [--start-at MS]\n"
    "Computes for N seconds (default 3) and prints one line of JSON: milliseconds of one computation, with its transfers,\n"
    "and how many were done per second.\n"
    "  --matmul       the product of two 512 x 512 matrices instead of Sobel's filter of a 1920 x 1080 image\n"
    "  --start-at MS  begin at this moment of CLOCK_MONOTONIC, warm until then: for several at once\n";

static const char SOURCE[] =
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

enum { WIDTH = 1920, HEIGHT = 1080, N = 512, MOST = 1 << 20 };

struct work {
    struct device d;
    cl_kernel kernel;
    bool matmul;
    /* One or two inputs, one output. */
    cl_mem in[2], out;
    size_t inputs, in_size, out_size, width, height, global[2];
    void *host_in[2], *host_out;
};

static struct work prepare(bool matmul)
{
    struct work w = { .d = open_device(0), .matmul = matmul };
    cl_program program = build(&w.d, SOURCE);
    w.kernel = kernel_of(program, matmul ? "matmul" : "sobel");
    CHECK(clReleaseProgram, program);
    w.inputs = matmul ? 2 : 1;
    w.in_size = w.out_size = matmul ? (size_t)N * N * sizeof(float) : (size_t)WIDTH * HEIGHT;
    w.width = matmul ? N : WIDTH;
    w.height = w.global[1] = matmul ? N : HEIGHT;
    /* A work item of the product makes 8 elements. */
    w.global[0] = matmul ? N / 8 : WIDTH;
    for (cl_uint i = 0; i < w.inputs; i++) {
        w.host_in[i] = malloc(w.in_size);
        EXPECT(w.host_in[i] != NULL, "out of memory");
        w.in[i] = buffer_of(&w.d, CL_MEM_READ_ONLY, w.in_size, NULL);
        set_buffer(w.kernel, i, w.in[i]);
        for (size_t at = 0; at < (matmul ? (size_t)N * N : w.in_size); at++) {
            if (matmul)
                ((float *)w.host_in[i])[at] = (float)((at * 7 + i) % 16);
            else
                ((unsigned char *)w.host_in[i])[at] = (unsigned char)(at * 2654435761u >> 13);
        }
    }
    w.host_out = malloc(w.out_size);
    EXPECT(w.host_out != NULL, "out of memory");
    w.out = buffer_of(&w.d, CL_MEM_WRITE_ONLY, w.out_size, NULL);
    set_buffer(w.kernel, (cl_uint)w.inputs, w.out);
    set_uint(w.kernel, (cl_uint)w.inputs + 1, matmul ? N : WIDTH);
    if (!matmul)
        set_uint(w.kernel, (cl_uint)w.inputs + 2, HEIGHT);
    return w;
}

static double compute(struct work *w)
{
    double start = now_us();
    for (size_t i = 0; i < w->inputs; i++)
        CHECK(clEnqueueWriteBuffer, w->d.queue, w->in[i], CL_FALSE, 0, w->in_size, w->host_in[i], 0, NULL, NULL);
    CHECK(clEnqueueNDRangeKernel, w->d.queue, w->kernel, 2, NULL, w->global, NULL, 0, NULL, NULL);
    CHECK(clEnqueueReadBuffer, w->d.queue, w->out, CL_TRUE, 0, w->out_size, w->host_out, 0, NULL, NULL);
    return (now_us() - start) / 1e3;
}

/* Some of the result, computed here. */
static void verify(const struct work *w)
{
    for (size_t probe = 0; probe < 1000; probe++) {
        size_t x = probe * 37 % w->width, y = probe * 101 % w->height;
        if (w->matmul) {
            const float *a = w->host_in[0], *b = w->host_in[1], *c = w->host_out;
            float sum = 0;
            for (size_t k = 0; k < N; k++)
                sum += a[y * N + k] * b[k * N + x];
            EXPECT(c[y * N + x] == sum, "element (%zu, %zu) is %f and should be %f", y, x, (double)c[y * N + x], (double)sum);
            continue;
        }
        const unsigned char *in = w->host_in[0], *out = w->host_out;
        int expected = 0;
        if (x > 0 && y > 0 && x < WIDTH - 1 && y < HEIGHT - 1) {
            const unsigned char *p = in + (y - 1) * WIDTH + x - 1, *q = p + WIDTH, *r = q + WIDTH;
            expected = abs(p[2] + 2 * q[2] + r[2] - p[0] - 2 * q[0] - r[0]) +
                       abs(r[0] + 2 * r[1] + r[2] - p[0] - 2 * p[1] - p[2]);
            if (expected > 255)
                expected = 255;
        }
        EXPECT(out[y * WIDTH + x] == expected, "pixel (%zu, %zu) is %d and should be %d", x, y, out[y * WIDTH + x], expected);
    }
}

int main(int argc, char **argv)
{
    unsigned long seconds = 3, start_at = 0;
    bool matmul = false;
    const struct option_spec options[] = {
        { "--matmul", NULL, &matmul },
        { "--seconds", &seconds, NULL },
        { "--start-at", &start_at, NULL },
    };
    OPTIONS(argc, argv, USAGE, options);
    if (seconds > 3600)
        usage(USAGE, EXIT_USAGE);

    struct work w = prepare(matmul);
    double *samples = calloc(MOST, sizeof *samples);
    EXPECT(samples != NULL, "out of memory");
    do
        compute(&w);
    while (now_us() < (double)start_at * 1e3);
    verify(&w);
    double start = now_us(), end = start + (double)seconds * 1e6;
    size_t count = 0;
    while (count < MOST && (count == 0 || now_us() < end))
        samples[count++] = compute(&w);
    double took = (now_us() - start) / 1e6;
    verify(&w);

    printf("{\"program\":\"workload\",\"work\":\"%s\",\"device\":\"%s\",\"samples\":%zu,\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"per_second\":%.2f}\n",
           matmul ? "matmul 512" : "sobel 1080p", w.d.name, count, percentile(samples, count, 50),
           percentile(samples, count, 99), (double)count / took);
    free(samples);
    for (size_t i = 0; i < w.inputs; i++) {
        CHECK(clReleaseMemObject, w.in[i]);
        free(w.host_in[i]);
    }
    CHECK(clReleaseMemObject, w.out);
    free(w.host_out);
    CHECK(clReleaseKernel, w.kernel);
    close_device(&w.d);
    return 0;
}
