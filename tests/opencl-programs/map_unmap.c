/* Mapping: what the host writes through a map the kernel sees, and the other way round; regions, two maps at once,
 * write-invalidate, and the application's own memory (CL_MEM_USE_HOST_PTR). */
#include "program.h"
#include <sys/mman.h>

static const char USAGE[] = "usage: map_unmap\n"
                            "Checks mapped buffers of all kinds against a kernel and against reads.\n";

enum { N = 65536 };

static void *map(struct device *d, cl_mem mem, cl_map_flags flags, size_t offset, size_t size)
{
    cl_int code = CL_SUCCESS;
    void *at = clEnqueueMapBuffer(d->queue, mem, CL_TRUE, flags, offset, size, 0, NULL, NULL, &code);
    check("clEnqueueMapBuffer", code);
    EXPECT(at != NULL, "a map gave NULL");
    return at;
}

static void unmap(struct device *d, cl_mem mem, void *at)
{
    CHECK(clEnqueueUnmapMemObject, d->queue, mem, at, 0, NULL, NULL);
}

static void add(struct device *d, cl_kernel kernel, cl_mem mem, cl_uint value)
{
    size_t global = N;
    set_buffer(kernel, 0, mem);
    set_uint(kernel, 1, value);
    CHECK(clEnqueueNDRangeKernel, d->queue, kernel, 1, NULL, &global, NULL, 0, NULL, NULL);
}

/* An unmap is counted when it has run, by whichever thread of the runtime ran it: wait for the count, not for luck. */
static void expect_maps(cl_mem mem, const char *kind, cl_uint expected)
{
    const double deadline = now_us() + 10e6;
    cl_uint maps;
    do
        CHECK(clGetMemObjectInfo, mem, CL_MEM_MAP_COUNT, sizeof maps, &maps, NULL);
    while (maps != expected && now_us() < deadline);
    EXPECT(maps == expected, "%s: the map count is %u instead of %u", kind, maps, expected);
}

static void check_kind(struct device *d, cl_kernel kernel, const char *kind, cl_mem_flags flags, cl_uint *host)
{
    cl_mem mem = buffer_of(d, flags, N * sizeof(cl_uint), host);
    cl_uint *all = map(d, mem, CL_MAP_WRITE, 0, N * sizeof(cl_uint));
    EXPECT(host == NULL || all == host, "%s: the map is not the application's memory", kind);
    for (cl_uint i = 0; i < N; i++)
        all[i] = i;
    unmap(d, mem, all);
    add(d, kernel, mem, 1);

    /* A region in the middle, while another one is mapped for reading. */
    const size_t first = 1000, count = 500;
    cl_uint *low = map(d, mem, CL_MAP_READ, 0, 4000);
    cl_uint *region = map(d, mem, CL_MAP_READ | CL_MAP_WRITE, first * sizeof(cl_uint), count * sizeof(cl_uint));
    EXPECT(host == NULL || region == host + first, "%s: the region is at another place", kind);
    for (cl_uint i = 0; i < 1000; i++)
        EXPECT(low[i] == i + 1, "%s: low[%u] is %u", kind, i, low[i]);
    for (cl_uint i = 0; i < count; i++) {
        EXPECT(region[i] == first + i + 1, "%s: region[%u] is %u", kind, i, region[i]);
        region[i] = 7;
    }
    expect_maps(mem, kind, 2);
    unmap(d, mem, low);
    unmap(d, mem, region);
    add(d, kernel, mem, 1);

    cl_uint *result = malloc(N * sizeof *result);
    EXPECT(result != NULL, "out of memory");
    CHECK(clEnqueueReadBuffer, d->queue, mem, CL_TRUE, 0, N * sizeof *result, result, 0, NULL, NULL);
    for (cl_uint i = 0; i < N; i++) {
        cl_uint expected = i >= first && i < first + count ? 8 : i + 2;
        EXPECT(result[i] == expected, "%s: result[%u] is %u instead of %u", kind, i, result[i], expected);
    }

    /* The old content need not come back, the new one must arrive. */
    cl_uint *fresh = map(d, mem, CL_MAP_WRITE_INVALIDATE_REGION, 0, N * sizeof(cl_uint));
    for (cl_uint i = 0; i < N; i++)
        fresh[i] = 100;
    unmap(d, mem, fresh);
    add(d, kernel, mem, 5);
    cl_uint *last = map(d, mem, CL_MAP_READ, 0, N * sizeof(cl_uint));
    for (cl_uint i = 0; i < N; i++)
        EXPECT(last[i] == 105, "%s: last[%u] is %u instead of 105", kind, i, last[i]);
    unmap(d, mem, last);
    CHECK(clFinish, d->queue);
    expect_maps(mem, kind, 0);
    free(result);
    CHECK(clReleaseMemObject, mem);
}

/* A map that does not block holds its content when its event is complete. */
static void check_non_blocking(struct device *d, cl_kernel kernel)
{
    cl_mem mem = buffer_of(d, CL_MEM_READ_WRITE, N * sizeof(cl_uint), NULL);
    cl_uint zero = 0;
    CHECK(clEnqueueFillBuffer, d->queue, mem, &zero, sizeof zero, 0, N * sizeof zero, 0, NULL, NULL);
    add(d, kernel, mem, 3);
    cl_event ready = NULL;
    cl_int code = CL_SUCCESS;
    cl_uint *at = clEnqueueMapBuffer(d->queue, mem, CL_FALSE, CL_MAP_READ, 0, N * sizeof(cl_uint), 0, NULL, &ready, &code);
    check("clEnqueueMapBuffer", code);
    CHECK(clWaitForEvents, 1, &ready);
    for (cl_uint i = 0; i < N; i++)
        EXPECT(at[i] == 3, "not blocking: at[%u] is %u instead of 3", i, at[i]);
    unmap(d, mem, at);
    CHECK(clFinish, d->queue);
    code = clEnqueueUnmapMemObject(d->queue, mem, &zero, 0, NULL, NULL);
    EXPECT(code == CL_INVALID_VALUE, "unmapping what was never mapped gave %d", (int)code);
    CHECK(clReleaseEvent, ready);
    CHECK(clReleaseMemObject, mem);
}

/* Memory that the program can't write either, such as a file's, may be a buffer's, and be mapped for reading. */
static void check_read_only_memory(struct device *d)
{
    const size_t size = N * sizeof(cl_uint);
    cl_uint *own = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(own != MAP_FAILED, "out of memory");
    for (cl_uint i = 0; i < N; i++)
        own[i] = i;
    EXPECT(mprotect(own, size, PROT_READ) == 0, "mprotect failed");
    cl_mem mem = buffer_of(d, CL_MEM_READ_ONLY | CL_MEM_USE_HOST_PTR, size, own);
    cl_uint *at = map(d, mem, CL_MAP_READ, 0, size);
    EXPECT(at == own && at[N - 1] == N - 1, "the map is not the program's memory");
    unmap(d, mem, at);
    CHECK(clEnqueueMigrateMemObjects, d->queue, 1, &mem, CL_MIGRATE_MEM_OBJECT_HOST, 0, NULL, NULL);
    CHECK(clFinish, d->queue);
    CHECK(clReleaseMemObject, mem);
    munmap(own, size);
}

int main(int argc, char **argv)
{
    NO_OPTIONS(argc, argv, USAGE);
    deadline(60);
    struct device d = open_device(0);
    cl_program program = build(&d, "kernel void add(global uint *x, uint value) { x[get_global_id(0)] += value; }\n");
    cl_kernel kernel = kernel_of(program, "add");
    cl_uint *own = aligned_alloc(4096, N * sizeof *own);
    EXPECT(own != NULL, "out of memory");
    memset(own, 0, N * sizeof *own);
    check_kind(&d, kernel, "plain", CL_MEM_READ_WRITE, NULL);
    check_kind(&d, kernel, "alloc host pointer", CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, NULL);
    check_kind(&d, kernel, "use host pointer", CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, own);
    check_non_blocking(&d, kernel);
    check_read_only_memory(&d);
    CHECK(clReleaseKernel, kernel);
    CHECK(clReleaseProgram, program);
    close_device(&d);
    free(own);
    printf("all maps hold the right bytes on %s\n", d.name);
    return 0;
}
