/* A client that means harm to the device manager and to its other clients: for `make soak`, whose other programs must see
 * nothing of it. It ends in whatever way it is ended. */
#include "program.h"
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

static const char USAGE[] = "usage: hostile --memory | --endless | --bytes | --includes | --calls | --threads\n"
                            "memory: buffers, written and never released, until there are no more. endless: a kernel that never ends, and\n"
                            "a client that goes at once. bytes: random bytes on the manager's socket. includes: builds with deep folders.\n"
                            "calls, threads: a kernel of machine code that makes system calls, or threads without end (x86-64, PoCL).\n";

static const char ENDLESS[] = "kernel void hostile(global volatile long *m) { while (m[0] == 0) {} }\n";
/* Packets on all descriptors, then calls that would reach other processes. */
static const char CALLS[] =
    "#define CALL(result, number, a, b, c) __asm__ volatile(\"syscall\" : \"=a\"(result) : \"a\"((long)(number)), \"D\"((long)(a)), \\\n"
    "    \"S\"((long)(b)), \"d\"((long)(c)) : \"rcx\", \"r11\", \"memory\")\n"
    "kernel void hostile(global long *m) {\n"
    "    long r, parent;\n"
    "    CALL(parent, 110, 0, 0, 0);\n"
    "    for (int number = 41; number < 60; number++) if (number < 44 || number > 48) CALL(r, number, 1, 1, 0);\n"
    "    CALL(r, 62, parent, 9, 0);\n"
    "    CALL(r, 101, 16, parent, 0);\n"
    "    CALL(r, 302, parent, 7, 0);\n"
    "    for (long fd = 3; fd < 64; fd++) CALL(r, 1, fd, m + 1, 48);\n"
    "    m[0] = r;\n"
    "}\n";
static const char THREADS[] =
    "kernel void hostile(global long *m) {\n"
    "    long last = 0;\n"
    "    for (int i = 0; i < 100000 && last >= 0; i++)\n"
    "        __asm__ volatile(\"xor %%esi, %%esi; xor %%edx, %%edx; xor %%r10d, %%r10d; xor %%r8d, %%r8d; mov $56, %%eax; syscall; \"\n"
    "                         \"test %%rax, %%rax; jnz 2f; 1: mov $34, %%eax; syscall; jmp 1b; 2:\"\n"
    "                         : \"=&a\"(last) : \"D\"(0x50F00L) : \"rcx\", \"rdx\", \"rsi\", \"r8\", \"r10\", \"r11\", \"memory\", \"cc\");\n"
    "    m[0] = last;\n"
    "}\n";

enum { MIB = 1 << 20, DEEP = 40 };

static void run(const char *source)
{
    struct device d = open_device(0);
    cl_kernel kernel = kernel_of(build(&d, source), "hostile");
    static long memory[512] = { 0, 0x7B22 };
    cl_mem buffer = buffer_of(&d, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof memory, memory);
    set_buffer(kernel, 0, buffer);
    size_t one = 1;
    CHECK(clEnqueueNDRangeKernel, d.queue, kernel, 1, NULL, &one, &one, 0, NULL, NULL);
    CHECK(clFlush, d.queue);
    if (source == ENDLESS) {
        /* Long enough for the kernel to start. */
        usleep(300000);
        _exit(0);
    }
    CHECK(clFinish, d.queue);
}

static void take_memory(void)
{
    struct device d = open_device(0);
    char *bytes = calloc(1, 16 * MIB);
    EXPECT(bytes != NULL, "no memory");
    for (int i = 0; i < 1024; i++) {
        cl_int code = CL_SUCCESS;
        cl_mem buffer = clCreateBuffer(d.context, CL_MEM_READ_WRITE, 16 * MIB, NULL, &code);
        if (code == CL_SUCCESS)
            code = clEnqueueWriteBuffer(d.queue, buffer, CL_FALSE, 0, 16 * MIB, bytes, 0, NULL, NULL);
        if (code != CL_SUCCESS)
            break;
    }
    clFinish(d.queue);
    _exit(0);
}

static void send_bytes(void)
{
    const char *address = getenv("FPGA_DEVICE_MANAGERS");
    EXPECT(address != NULL && strncmp(address, "unix:", 5) == 0, "no unix socket");
    struct sockaddr_un name = { .sun_family = AF_UNIX };
    snprintf(name.sun_path, sizeof name.sun_path, "%s", address + 5);
    srandom((unsigned)getpid());
    for (int i = 0; i < 50; i++) {
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&name, sizeof name) == 0) {
            static const char start[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
            unsigned char bytes[4096];
            for (size_t b = 0; b < sizeof bytes; b++)
                bytes[b] = (unsigned char)random();
            if (i % 2 == 0)
                send(fd, start, sizeof start - 1, MSG_NOSIGNAL);
            send(fd, bytes, sizeof bytes, MSG_NOSIGNAL);
        }
        close(fd);
    }
}

/* A folder in the temporary one, with a folder in it, and so on, and a header in each. */
static void include_deeply(void)
{
    struct device d = open_device(0);
    const char *temporary = getenv("TMPDIR");
    char folder[4096], path[4200], options[4200];
    int length = snprintf(folder, sizeof folder, "%s/hostile-%d", temporary != NULL ? temporary : "/tmp", (int)getpid());
    snprintf(options, sizeof options, "-I %s", folder);
    for (int i = 0; i < DEEP; i++) {
        mkdir(folder, 0700);
        snprintf(path, sizeof path, "%s/a.h", folder);
        FILE *file = fopen(path, "w");
        if (file != NULL)
            fprintf(file, "#include \"d/a.h\"\n"), fclose(file);
        length += snprintf(folder + length, sizeof folder - (size_t)length, "/d");
    }
    for (int i = 0; i < 20; i++) {
        const char *source = "#include \"a.h\"\nkernel void k(void) {}\n";
        cl_int code = CL_SUCCESS;
        cl_program program = clCreateProgramWithSource(d.context, 1, &source, NULL, &code);
        check("clCreateProgramWithSource", code);
        clBuildProgram(program, 1, &d.id, options, NULL, NULL);
    }
    for (; length > 2; length -= 2) {
        folder[length - 2] = '\0';
        snprintf(path, sizeof path, "%s/a.h", folder);
        if (unlink(path) != 0 || rmdir(folder) != 0)
            break;
    }
}

int main(int argc, char **argv)
{
    bool memory = false, endless = false, bytes = false, includes = false, calls = false, threads = false;
    const struct option_spec options[] = {
        { "--memory", NULL, &memory }, { "--endless", NULL, &endless },   { "--bytes", NULL, &bytes },
        { "--includes", NULL, &includes }, { "--calls", NULL, &calls }, { "--threads", NULL, &threads },
    };
    OPTIONS(argc, argv, USAGE, options);
    if (memory + endless + bytes + includes + calls + threads != 1)
        usage(USAGE, EXIT_USAGE);
    deadline(50);
    if (memory)
        take_memory();
    if (endless)
        run(ENDLESS);
    if (bytes)
        send_bytes();
    if (includes)
        include_deeply();
    if (calls)
        run(CALLS);
    if (threads)
        run(THREADS);
    return 0;
}
