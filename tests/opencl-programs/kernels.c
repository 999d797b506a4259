/* Kernels of about 0.1 to 1 ms back to back: products of 64 x 64, 128 x 128 and 256 x 256 matrices, and Sobel's filter of a
 * 512 x 512 image. */
#include "program.h"
#include "work.h"

static const char USAGE[] =
    "usage: kernels [--milliseconds N]\n"
    "Runs each of four kernels for N milliseconds (default 300) in two ways and prints one line of JSON, microseconds:\n"
    "  NAME_p50_us, NAME_p99_us                write the inputs, launch, blocking read of the result\n"
    "  NAME_launch_p50_us, NAME_launch_p99_us  launch and clFinish\n";

enum { MOST = 1 << 20 };

struct kind {
    const char *name;
    bool matmul;
    size_t size;
};

static const struct kind KINDS[] = {
    { "product_64", true, 64 },
    { "product_128", true, 128 },
    { "product_256", true, 256 },
    { "sobel_512", false, 512 },
};

static void measure(struct work *w, double (*once)(struct work *), double for_us, double *samples, const char *name)
{
    /* Warm for a tenth of the time, and at least once. */
    double start = now_us();
    do
        once(w);
    while (now_us() - start < for_us / 10);
    size_t count = 0;
    start = now_us();
    do
        samples[count++] = once(w);
    while (count < MOST && now_us() - start < for_us);
    verify(w);
    printf(",\"%s_p50_us\":%.2f,\"%s_p99_us\":%.2f", name, percentile(samples, count, 50), name,
           percentile(samples, count, 99));
}

int main(int argc, char **argv)
{
    unsigned long milliseconds = 300;
    const struct option_spec options[] = { { "--milliseconds", &milliseconds, NULL } };
    OPTIONS(argc, argv, USAGE, options);
    if (milliseconds > 600000)
        usage(USAGE, EXIT_USAGE);

    struct device d = open_device(0);
    cl_program program = build(&d, WORK_SOURCE);
    double *samples = calloc(MOST, sizeof *samples);
    EXPECT(samples != NULL, "out of memory");
    printf("{\"program\":\"kernels\",\"device\":\"%s\"", d.name);
    for (size_t k = 0; k < sizeof KINDS / sizeof *KINDS; k++) {
        char name[64];
        struct work w = prepare(&d, program, KINDS[k].matmul, KINDS[k].size, KINDS[k].size);
        measure(&w, compute, (double)milliseconds * 1e3, samples, KINDS[k].name);
        snprintf(name, sizeof name, "%s_launch", KINDS[k].name);
        measure(&w, launch_and_finish, (double)milliseconds * 1e3, samples, name);
        release(&w);
    }
    puts("}");
    free(samples);
    CHECK(clReleaseProgram, program);
    close_device(&d);
    return 0;
}
