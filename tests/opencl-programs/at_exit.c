/* Blocking calls in exit handlers and destructors: what they read is there when they return, since the caller frees it. */
#include "program.h"

static const char USAGE[] = "usage: at_exit\n"
                            "Reads buffers in an exit handler and in a destructor.\n";

enum { BYTES = 16 << 20 };

static struct device device;
static cl_mem mem;
static bool is_open;

static void read_all(const char *where, size_t size)
{
    unsigned char *bytes = malloc(size);
    EXPECT(bytes != NULL, "no memory");
    memset(bytes, 0, size);
    cl_uint pattern = 0xA5A5A5A5;
    /* The buffer is in use, so that the read has to wait for the device. */
    cl_int code = clEnqueueFillBuffer(device.queue, mem, &pattern, sizeof pattern, 0, BYTES, 0, NULL, NULL);
    if (code == CL_SUCCESS)
        code = clEnqueueReadBuffer(device.queue, mem, CL_TRUE, 0, size, bytes, 0, NULL, NULL);
    size_t wrong_bytes = 0;
    for (size_t i = 0; i < size; i++)
        wrong_bytes += bytes[i] != 0xA5;
    free(bytes);
    if (code != CL_SUCCESS || wrong_bytes != 0) {
        fprintf(stderr, "%s, %zu bytes: code %d, %zu bytes are wrong\n", where, size, (int)code, wrong_bytes);
        _exit(EXIT_WRONG);
    }
}

static void in_exit_handler(void)
{
    read_all("in an exit handler", BYTES);
    read_all("in an exit handler", 64);
}

__attribute__((destructor)) static void in_destructor(void)
{
    if (!is_open)
        return;
    read_all("in a destructor", 64);
    read_all("in a destructor", BYTES);
}

int main(int argc, char **argv)
{
    NO_OPTIONS(argc, argv, USAGE);
    deadline(60);
    device = open_device(0);
    mem = buffer_of(&device, CL_MEM_READ_WRITE, BYTES, NULL);
    CHECK(clFinish, device.queue);
    is_open = true;
    EXPECT(atexit(in_exit_handler) == 0, "no exit handler");
    printf("reading at exit on %s\n", device.name);
    return 0;
}
