/* Host pipes (cl_intel_fpga_host_pipe): packets go to a kernel and come back while it runs. Checks them, and prints the code of each
 * call that can fail on a line. Prints "absent" where the device has no such pipes. */
#define CL_TARGET_OPENCL_VERSION 200
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include "program.h"

static const char USAGE[] = "usage: host_pipes\nSends packets through a kernel by host pipes.\n";

static const char *SOURCE =
    "#pragma OPENCL EXTENSION cl_intel_fpga_host_pipe : enable\n"
    "#define HOST __attribute__((intel_host_accessible))\n"
    "kernel void pass(read_only pipe uint4 HOST in, write_only pipe uint4 HOST out, uint packets) {\n"
    "    for (uint n = 0; n < packets; n++) {\n"
    "        uint4 packet;\n"
    "        while (read_pipe(in, &packet) != 0);\n"
    "        packet.y = packet.x * 3;\n"
    "        while (write_pipe(out, &packet) != 0);\n"
    "    }\n"
    "}\n";

enum { CAPACITY = 16, PACKETS = 500, FULL = -1111, EMPTY = -1112 };

struct packet {
    cl_uint x, y, z, w;
};

typedef cl_int(CL_API_CALL *read_fn)(cl_mem, void *);
typedef cl_int(CL_API_CALL *write_fn)(cl_mem, const void *);
typedef void *(CL_API_CALL *map_fn)(cl_mem, cl_map_flags, size_t, size_t *, cl_int *);
typedef cl_int(CL_API_CALL *unmap_fn)(cl_mem, void *, size_t, size_t *);
static read_fn read_packet;
static write_fn write_packet;
static map_fn map_pipe;
static unmap_fn unmap_pipe;

static void look_up(struct device *d, const char *name, void *function)
{
    void *address = clGetExtensionFunctionAddressForPlatform(d->platform, name);
    EXPECT(address != NULL, "%s is missing", name);
    memcpy(function, &address, sizeof address);
}

static void say(const char *what, cl_int code)
{
    printf("%s: %d\n", what, (int)code);
}

static cl_mem pipe_of(struct device *d, const char *what, cl_mem_flags flags, cl_uint size)
{
    cl_int code = CL_SUCCESS;
    cl_mem pipe = clCreatePipe(d->context, flags, size, CAPACITY, NULL, &code);
    EXPECT((pipe == NULL) == (code != CL_SUCCESS), "%s: %p with %d", what, (void *)pipe, (int)code);
    say(what, code);
    return pipe;
}

static struct packet packet(cl_uint n)
{
    return (struct packet){n, 0, ~n, n << 8};
}

static void is_passed(struct packet p, cl_uint n)
{
    EXPECT(p.x == n && p.y == 3 * n && p.z == ~n && p.w == n << 8, "packet %u is %u %u %u %u", n, p.x, p.y, p.z, p.w);
}

/* Writes packets until there is no room. */
static cl_uint fill(cl_mem in)
{
    for (cl_uint n = 0;; n++) {
        struct packet p = packet(n);
        cl_int code = write_packet(in, &p);
        if (code == FULL)
            return n;
        check("write", code);
    }
}

static void launch(struct device *d, cl_kernel kernel, cl_mem in, cl_mem out, cl_uint packets)
{
    size_t one = 1;
    set_buffer(kernel, 0, in);
    set_buffer(kernel, 1, out);
    set_uint(kernel, 2, packets);
    CHECK(clEnqueueNDRangeKernel, d->queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL);
    CHECK(clFlush, d->queue);
}

/* Writes and reads while the kernel runs. The first packets are in the pipe. */
static void pass(cl_mem in, cl_mem out, cl_uint written)
{
    for (cl_uint got = 0; got < PACKETS;) {
        struct packet p = packet(written);
        cl_int code = written < PACKETS ? write_packet(in, &p) : FULL;
        EXPECT(code == CL_SUCCESS || code == FULL, "write: %d", (int)code);
        written += code == CL_SUCCESS;
        code = read_packet(out, &p);
        EXPECT(code == CL_SUCCESS || code == EMPTY, "read: %d", (int)code);
        if (code == CL_SUCCESS)
            is_passed(p, got++);
    }
}

/* The same by maps. A map of an empty pipe waits for ever on Intel's emulator, so packets are read one by one. */
static void pass_maps(struct device *d, cl_kernel kernel, cl_mem in, cl_mem out)
{
    launch(d, kernel, in, out, PACKETS);
    for (cl_uint got = 0, written = 0; got < PACKETS;) {
        size_t size = 0, unmapped = 0, wanted = (PACKETS - written) * sizeof(struct packet);
        cl_int code = CL_SUCCESS;
        struct packet *room = wanted == 0 ? NULL : map_pipe(in, 0, wanted, &size, &code);
        if (room != NULL) {
            EXPECT(size % sizeof *room == 0 && size <= wanted, "%zu of %zu bytes are mapped", size, wanted);
            for (size_t n = 0; n < size / sizeof *room; n++)
                room[n] = packet(written++);
            CHECK(unmap_pipe, in, room, size, &unmapped);
            EXPECT(unmapped == size, "%zu of %zu bytes are unmapped", unmapped, size);
        } else {
            EXPECT(wanted == 0 || code == CL_OUT_OF_RESOURCES, "map: %d", (int)code);
        }
        for (struct packet p; (code = read_packet(out, &p)) == CL_SUCCESS;)
            is_passed(p, got++);
        EXPECT(code == EMPTY, "read: %d", (int)code);
    }
    CHECK(clFinish, d->queue);
}

static void wrong_calls(struct device *d, cl_mem in, cl_mem out)
{
    struct packet p = packet(0);
    size_t size = 7, unmapped = 0;
    cl_int code = CL_SUCCESS;
    cl_mem other = buffer_of(d, CL_MEM_READ_WRITE, 64, NULL);
    pipe_of(d, "both ends", CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_WRITE_ONLY, sizeof p);
    cl_mem between = pipe_of(d, "between kernels", 0, sizeof p);
    say("read of a pipe between kernels", read_packet(between, &p));
    CHECK(clReleaseMemObject, between);
    say("read of an empty pipe", read_packet(out, &p));
    say("read of the other end", read_packet(in, &p));
    say("write to the other end", write_packet(out, &p));
    say("read of a buffer", read_packet(other, &p));
    say("write to a buffer", write_packet(other, &p));
    say("read to NULL", read_packet(out, NULL));
    say("write of NULL", write_packet(in, NULL));
    EXPECT(map_pipe(in, 0, sizeof p - 1, &size, &code) == NULL, "a map without a packet");
    say("map of less than a packet", code);
    EXPECT(map_pipe(in, CL_MAP_READ, sizeof p, &size, &code) == NULL, "a map with flags");
    say("map with flags", code);
    EXPECT(map_pipe(in, 0, sizeof p, NULL, &code) == NULL, "a map without a size");
    say("map without a size", code);
    say("unmap of what is not mapped", unmap_pipe(in, &p, sizeof p, &unmapped));
    say("packets that fit", (cl_int)fill(in));
    CHECK(clReleaseMemObject, other);
}

/* Half of a map, and then the rest. */
static void unmap_in_parts(cl_mem in)
{
    size_t size = 0, unmapped = 0;
    cl_int code = CL_SUCCESS;
    struct packet *room = map_pipe(in, 0, 2 * sizeof *room, &size, &code);
    EXPECT(room != NULL && size == 2 * sizeof *room, "a map of two packets: %d, %zu bytes", (int)code, size);
    room[0] = packet(0);
    room[1] = packet(1);
    CHECK(unmap_pipe, in, room, sizeof *room, &unmapped);
    CHECK(unmap_pipe, in, room, sizeof *room, &unmapped);
}

int main(int argc, char **argv)
{
    NO_OPTIONS(argc, argv, USAGE);
    deadline(100);
    struct device d = open_device(0);
    char extensions[8192] = "";
    CHECK(clGetDeviceInfo, d.id, CL_DEVICE_EXTENSIONS, sizeof extensions - 1, extensions, NULL);
    if (strstr(extensions, "cl_intel_fpga_host_pipe") == NULL) {
        puts("absent");
        return 0;
    }
    look_up(&d, "clReadPipeIntelFPGA", &read_packet);
    look_up(&d, "clWritePipeIntelFPGA", &write_packet);
    look_up(&d, "clMapHostPipeIntelFPGA", &map_pipe);
    look_up(&d, "clUnmapHostPipeIntelFPGA", &unmap_pipe);
    cl_int code = CL_SUCCESS;
    cl_program program = clCreateProgramWithSource(d.context, 1, &SOURCE, NULL, &code);
    check("clCreateProgramWithSource", code);
    CHECK(clBuildProgram, program, 1, &d.id, "-cl-std=CL2.0", NULL, NULL);
    cl_kernel kernel = kernel_of(program, "pass");
    cl_mem in = pipe_of(&d, "pipe to the kernel", CL_MEM_HOST_WRITE_ONLY, sizeof(struct packet));
    cl_mem out = pipe_of(&d, "pipe from the kernel", CL_MEM_HOST_READ_ONLY, sizeof(struct packet));

    wrong_calls(&d, in, out);
    launch(&d, kernel, in, out, PACKETS);
    pass(in, out, CAPACITY);
    CHECK(clFinish, d.queue);
    unmap_in_parts(in);
    launch(&d, kernel, in, out, 2);
    CHECK(clFinish, d.queue);
    for (cl_uint n = 0; n < 2; n++) {
        struct packet p;
        CHECK(read_packet, out, &p);
        is_passed(p, n);
    }
    pass_maps(&d, kernel, in, out);

    CHECK(clReleaseMemObject, in);
    CHECK(clReleaseMemObject, out);
    CHECK(clReleaseKernel, kernel);
    CHECK(clReleaseProgram, program);
    close_device(&d);
    puts("passed");
    return 0;
}
