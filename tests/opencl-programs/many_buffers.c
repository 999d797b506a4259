/* Many live buffers, released one by one: how long that takes per buffer must not depend on how many there are. */
#include "program.h"

static const char USAGE[] = "usage: many_buffers [--buffers N] [--kernels N]\n"
                            "Makes buffers and kernels, releases the buffers one by one, and prints how long that took.\n";

int main(int argc, char **argv)
{
    unsigned long buffers = 60000, kernels = 100;
    const struct option_spec specs[] = {{"--buffers", &buffers, NULL}, {"--kernels", &kernels, NULL}};
    OPTIONS(argc, argv, USAGE, specs);
    deadline(100);
    struct device d = open_device(0);
    cl_program program = build(&d, "kernel void add_one(global uint *x) { x[get_global_id(0)] += 1; }\n");
    cl_mem *mem = calloc(buffers, sizeof *mem);
    cl_kernel *kernel = calloc(kernels, sizeof *kernel);
    EXPECT(mem != NULL && kernel != NULL, "no memory");
    size_t one = 1;
    for (unsigned long i = 0; i < buffers; i++)
        mem[i] = buffer_of(&d, CL_MEM_READ_WRITE, sizeof(cl_uint), NULL);
    for (unsigned long i = 0; i < kernels; i++) {
        kernel[i] = kernel_of(program, "add_one");
        set_buffer(kernel[i], 0, mem[i % buffers]);
        CHECK(clEnqueueNDRangeKernel, d.queue, kernel[i], 1, NULL, &one, NULL, 0, NULL, NULL);
    }
    CHECK(clFinish, d.queue);
    double begin = now_us();
    for (unsigned long i = 0; i < buffers; i++)
        CHECK(clReleaseMemObject, mem[i]);
    double released = now_us();
    /* The releases come before this. */
    cl_mem last = buffer_of(&d, CL_MEM_READ_WRITE, sizeof(cl_uint), NULL);
    cl_uint value = 0;
    CHECK(clEnqueueReadBuffer, d.queue, last, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL);
    double done = now_us();
    printf("{\"device\":\"%s\",\"buffers\":%lu,\"release_ms\":%.1f,\"until_all_is_done_ms\":%.1f}\n", d.name, buffers,
           (released - begin) / 1e3, (done - begin) / 1e3);
    for (unsigned long i = 0; i < kernels; i++)
        CHECK(clReleaseKernel, kernel[i]);
    CHECK(clReleaseMemObject, last);
    CHECK(clReleaseProgram, program);
    close_device(&d);
    free(mem);
    free(kernel);
    return 0;
}
