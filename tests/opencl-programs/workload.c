/* What an application does all day: data in, kernel, result out, again and again. Sobel of a 1080p image, or a product of
 * 512 x 512 matrices. */
#include "program.h"
#include "work.h"
#include <poll.h>

static const char USAGE[] =
    "usage: workload [--matmul] [--seconds N] [--wait]\n"
    "Computes for N seconds (default 3) and prints one line of JSON: milliseconds of one computation, with its transfers,\n"
    "and how many were done per second.\n"
    "  --matmul  the product of two 512 x 512 matrices instead of Sobel's filter of a 1920 x 1080 image\n"
    "  --wait    after the first computation, print \"ready\" and compute unmeasured until standard input is at its end:\n"
    "            for several at once\n";

enum { WIDTH = 1920, HEIGHT = 1080, N = 512, MOST = 1 << 20 };

static bool input_is_at_its_end(void)
{
    struct pollfd input = { .fd = 0, .events = POLLIN };
    return poll(&input, 1, 0) != 0;
}

int main(int argc, char **argv)
{
    unsigned long seconds = 3;
    bool matmul = false, wait = false;
    const struct option_spec options[] = {
        { "--matmul", NULL, &matmul },
        { "--seconds", &seconds, NULL },
        { "--wait", NULL, &wait },
    };
    OPTIONS(argc, argv, USAGE, options);
    if (seconds > 3600)
        usage(USAGE, EXIT_USAGE);

    struct device d = open_device(0);
    cl_program program = build(&d, WORK_SOURCE);
    struct work w = matmul ? prepare(&d, program, true, N, N) : prepare(&d, program, false, WIDTH, HEIGHT);
    CHECK(clReleaseProgram, program);
    double *samples = calloc(MOST, sizeof *samples);
    EXPECT(samples != NULL, "out of memory");
    compute(&w);
    verify(&w);
    if (wait) {
        puts("ready");
        fflush(stdout);
    }
    while (wait && !input_is_at_its_end())
        compute(&w);
    double start = now_us(), end = start + (double)seconds * 1e6;
    size_t count = 0;
    while (count < MOST && (count == 0 || now_us() < end))
        samples[count++] = compute(&w) / 1e3;
    double took = (now_us() - start) / 1e6;
    verify(&w);

    printf("{\"program\":\"workload\",\"work\":\"%s\",\"device\":\"%s\",\"samples\":%zu,\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"per_second\":%.2f}\n",
           matmul ? "matmul 512" : "sobel 1080p", d.name, count, percentile(samples, count, 50),
           percentile(samples, count, 99), (double)count / took);
    free(samples);
    release(&w);
    close_device(&d);
    return 0;
}
