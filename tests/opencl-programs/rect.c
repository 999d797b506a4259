/* Blocking write and read of a 1920 x 1080 RGBA rectangle in the middle of a larger image, whose rows are longer than the
 * rectangle's on both sides. */
#include "program.h"

static const char USAGE[] =
    "usage: rect [--iterations N]\n"
    "Writes and reads the rectangle with clEnqueueWriteBufferRect and clEnqueueReadBufferRect, checks every byte of the\n"
    "buffer, and prints one line of JSON: microseconds of one write and one read (default 50 pairs).\n";

enum {
    PIXEL = 4,
    WIDTH = 1920 * PIXEL,
    HEIGHT = 1080,
    /* The buffer is an image of 2560 x 1440, host memory one of 2048 x 1080. */
    BUFFER_PITCH = 2560 * PIXEL,
    BUFFER_ROWS = 1440,
    HOST_PITCH = 2048 * PIXEL,
    LEFT = 320 * PIXEL,
    TOP = 180,
    WARM_UP = 4,
    UNTOUCHED = 0xa5,
};

static const size_t IN_BUFFER[] = { LEFT, TOP, 0 }, IN_HOST[] = { 0, 0, 0 }, REGION[] = { WIDTH, HEIGHT, 1 };

static double pair(struct device *d, cl_mem mem, const void *from, void *into)
{
    double start = now_us();
    CHECK(clEnqueueWriteBufferRect, d->queue, mem, CL_TRUE, IN_BUFFER, IN_HOST, REGION, BUFFER_PITCH, 0, HOST_PITCH, 0, from, 0,
          NULL, NULL);
    CHECK(clEnqueueReadBufferRect, d->queue, mem, CL_TRUE, IN_BUFFER, IN_HOST, REGION, BUFFER_PITCH, 0, HOST_PITCH, 0, into, 0,
          NULL, NULL);
    return now_us() - start;
}

static void verify_the_rest(struct device *d, cl_mem mem)
{
    size_t size = (size_t)BUFFER_PITCH * BUFFER_ROWS;
    unsigned char *all = malloc(size);
    EXPECT(all != NULL, "out of memory");
    CHECK(clEnqueueReadBuffer, d->queue, mem, CL_TRUE, 0, size, all, 0, NULL, NULL);
    for (size_t at = 0; at < size; at++) {
        size_t x = at % BUFFER_PITCH, y = at / BUFFER_PITCH;
        bool inside = x >= LEFT && x < LEFT + WIDTH && y >= TOP && y < TOP + HEIGHT;
        EXPECT(inside || all[at] == UNTOUCHED, "byte %zu outside the rectangle is %u", at, all[at]);
    }
    free(all);
}

int main(int argc, char **argv)
{
    unsigned long iterations = 50;
    const struct option_spec options[] = { { "--iterations", &iterations, NULL } };
    OPTIONS(argc, argv, USAGE, options);
    if (iterations > 100000)
        usage(USAGE, EXIT_USAGE);

    struct device d = open_device(0);
    cl_mem mem = buffer_of(&d, CL_MEM_READ_WRITE, (size_t)BUFFER_PITCH * BUFFER_ROWS, NULL);
    cl_uchar untouched = UNTOUCHED;
    CHECK(clEnqueueFillBuffer, d.queue, mem, &untouched, sizeof untouched, 0, (size_t)BUFFER_PITCH * BUFFER_ROWS, 0, NULL, NULL);
    CHECK(clFinish, d.queue);
    unsigned char *from = malloc((size_t)HOST_PITCH * HEIGHT), *into = calloc(HEIGHT, HOST_PITCH);
    double *samples = calloc(iterations, sizeof *samples);
    EXPECT(from != NULL && into != NULL && samples != NULL, "out of memory");
    for (unsigned long i = 0; i < WARM_UP + iterations; i++) {
        for (size_t at = 0; at < (size_t)HOST_PITCH * HEIGHT; at++)
            from[at] = (unsigned char)(at * 31 + i);
        double took = pair(&d, mem, from, into);
        for (size_t row = 0; row < HEIGHT; row++)
            EXPECT(memcmp(from + row * HOST_PITCH, into + row * HOST_PITCH, WIDTH) == 0,
                   "row %zu of pair %lu has other bytes than were written", row, i);
        if (i >= WARM_UP)
            samples[i - WARM_UP] = took;
    }
    verify_the_rest(&d, mem);
    printf("{\"program\":\"rect\",\"device\":\"%s\",\"samples\":%lu,\"p50_us\":%.2f,\"p99_us\":%.2f}\n", d.name, iterations,
           percentile(samples, iterations, 50), percentile(samples, iterations, 99));
    free(from);
    free(into);
    free(samples);
    CHECK(clReleaseMemObject, mem);
    close_device(&d);
    return 0;
}
