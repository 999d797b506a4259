/* Kernels print with printf. Their text is on the standard output when the host knows that they have ended: the lines of kernels and
 * host alternate. */
#include "program.h"

static const char USAGE[] = "usage: prints\n"
                            "Launches kernels that print, and prints between them.\n";

enum { ROUNDS = 4, TOGETHER = 3, LONG_LINES = 3000 };

static const char *source = "kernel void say(uint n) { printf(\"kernel %u\\n\", n); }\n"
                            "kernel void say_much(uint lines) {\n"
                            "    for (uint n = 0; n < lines; n++) printf(\"a long line of a kernel, %u\\n\", n);\n"
                            "}\n";

static void host_says(const char *what, unsigned n)
{
    printf("%s %u\n", what, n);
    fflush(stdout);
}

static void launch(struct device *d, cl_kernel kernel, cl_uint n)
{
    set_uint(kernel, 0, n);
    size_t one = 1;
    CHECK(clEnqueueNDRangeKernel, d->queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL);
}

int main(int argc, char **argv)
{
    NO_OPTIONS(argc, argv, USAGE);
    deadline(100);
    struct device d = open_device(0);
    cl_program program = build(&d, source);
    cl_kernel say = kernel_of(program, "say");
    cl_kernel say_much = kernel_of(program, "say_much");
    cl_mem buffer = buffer_of(&d, CL_MEM_READ_WRITE, 4, NULL);
    cl_uint n = 0;
    for (int round = 0; round < ROUNDS; round++, n++) {
        launch(&d, say, n);
        CHECK(clFinish, d.queue);
        host_says("finished", n);
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < TOGETHER; i++, n++)
            launch(&d, say, n);
        cl_uint word = 0;
        CHECK(clEnqueueReadBuffer, d.queue, buffer, CL_TRUE, 0, sizeof word, &word, 0, NULL, NULL);
        host_says("read after", n);
    }
    /* More than a pipe holds. */
    launch(&d, say_much, LONG_LINES);
    CHECK(clFinish, d.queue);
    host_says("finished", n);
    CHECK(clReleaseMemObject, buffer);
    CHECK(clReleaseKernel, say);
    CHECK(clReleaseKernel, say_much);
    CHECK(clReleaseProgram, program);
    close_device(&d);
    return 0;
}
