/* A program whose threads have small stacks, as those of Java programs with -Xss256k: the first call and all others fit. */
#include "program.h"
#include <pthread.h>

static const char USAGE[] = "usage: small_stack [--kib N]\n"
                            "Uses the device in a thread with a stack of N KiB (default 256).\n";

static const char SOURCE[] = "kernel void twice(global uint *a) { a[get_global_id(0)] *= 2; }\n";

static void *use(void *unused)
{
    enum { COUNT = 1 << 16 };
    static cl_uint numbers[COUNT];
    struct device d = open_device(0);
    cl_kernel kernel = kernel_of(build(&d, SOURCE), "twice");
    for (cl_uint i = 0; i < COUNT; i++)
        numbers[i] = i;
    cl_mem buffer = buffer_of(&d, CL_MEM_COPY_HOST_PTR, sizeof numbers, numbers);
    set_buffer(kernel, 0, buffer);
    const size_t global = COUNT;
    CHECK(clEnqueueNDRangeKernel, d.queue, kernel, 1, NULL, &global, NULL, 0, NULL, NULL);
    CHECK(clEnqueueReadBuffer, d.queue, buffer, CL_TRUE, 0, sizeof numbers, numbers, 0, NULL, NULL);
    for (cl_uint i = 0; i < COUNT; i++)
        EXPECT(numbers[i] == 2 * i, "number %u is %u", i, numbers[i]);
    close_device(&d);
    return unused;
}

int main(int argc, char **argv)
{
    unsigned long kib = 256;
    const struct option_spec options[] = { { "--kib", &kib, NULL } };
    OPTIONS(argc, argv, USAGE, options);
    pthread_attr_t small;
    pthread_t thread;
    EXPECT(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, kib << 10) == 0, "no such stack");
    EXPECT(pthread_create(&thread, &small, use, NULL) == 0, "no thread");
    EXPECT(pthread_join(thread, NULL) == 0, "no end");
    return 0;
}
