/* The first program of every OpenCL course: c = a + b from source, over one in-order queue. */
#include "program.h"

static const char USAGE[] = "usage: vector_add [--size N]\n"
                            "Adds two vectors of N numbers (default 1048576) and checks every sum.\n";

static const char SOURCE[] = "kernel void add(global const int *a, global const int *b, global int *c, uint n) {\n"
                             "    uint i = get_global_id(0);\n"
                             "    if (i < n) c[i] = a[i] + b[i];\n"
                             "}\n";

int main(int argc, char **argv)
{
    unsigned long n = 1 << 20;
    const struct option_spec options[] = { { "--size", &n, NULL } };
    OPTIONS(argc, argv, USAGE, options);
    if (n > 1UL << 28)
        usage(USAGE, EXIT_USAGE);

    struct device d = open_device(0);
    cl_program program = build(&d, SOURCE);
    cl_kernel kernel = kernel_of(program, "add");
    size_t size = n * sizeof(cl_int);
    cl_int *a = malloc(size), *b = malloc(size), *c = malloc(size);
    EXPECT(a != NULL && b != NULL && c != NULL, "out of memory");
    for (size_t i = 0; i < n; i++) {
        a[i] = (cl_int)i;
        b[i] = (cl_int)(3 * i % 1000);
    }
    memset(c, 0xff, size);
    cl_mem ma = buffer_of(&d, CL_MEM_READ_ONLY, size, NULL);
    cl_mem mb = buffer_of(&d, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, size, b);
    cl_mem mc = buffer_of(&d, CL_MEM_WRITE_ONLY, size, NULL);
    size_t global = (n + 63) / 64 * 64;
    set_buffer(kernel, 0, ma);
    set_buffer(kernel, 1, mb);
    set_buffer(kernel, 2, mc);
    set_uint(kernel, 3, (cl_uint)n);
    CHECK(clEnqueueWriteBuffer, d.queue, ma, CL_FALSE, 0, size, a, 0, NULL, NULL);
    CHECK(clEnqueueNDRangeKernel, d.queue, kernel, 1, NULL, &global, NULL, 0, NULL, NULL);
    CHECK(clEnqueueReadBuffer, d.queue, mc, CL_FALSE, 0, size, c, 0, NULL, NULL);
    CHECK(clFinish, d.queue);
    for (size_t i = 0; i < n; i++)
        EXPECT(c[i] == a[i] + b[i], "c[%zu] is %d instead of %d", i, c[i], a[i] + b[i]);

    CHECK(clReleaseMemObject, ma);
    CHECK(clReleaseMemObject, mb);
    CHECK(clReleaseMemObject, mc);
    CHECK(clReleaseKernel, kernel);
    CHECK(clReleaseProgram, program);
    close_device(&d);
    printf("%lu sums are right on %s\n", n, d.name);
    free(a);
    free(b);
    free(c);
    return 0;
}
