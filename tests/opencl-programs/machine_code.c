/* A pod's program that means harm: its kernel is machine code, which makes any system call (x86-64, PoCL). Prints one line
 * for each attempt: what was tried, and what came of it. Results below 0 are negative error numbers. */
#include "program.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>

static const char USAGE[] =
    "usage: machine_code ATTEMPT...\n"
    "open:PATH        open a file or a folder\n"
    "read:PATH        open a file and read its first bytes\n"
    "processes        open environment, memory and root folder of each process but the kernel's own\n"
    "connect:IP:PORT  connect a TCP socket\n"
    "fork             make processes until that fails, or 1000\n"
    "private          take memory of the process and write to it until that fails, or 6 GiB\n"
    "shared           the same with memory that is shared\n"
    "buffers          make buffers of 64 MiB and write to them until that fails, or 6 GiB\n"
    "own:PATH         open a file or a folder in the program itself\n"
    "list:PATH        names in a folder, in the program itself\n"
    "endless          start a kernel that never ends, and wait for it\n"
    "At the end the program waits to be killed.\n";

static const char SOURCE[] =
    /* m[0] gets the result of the system call m[1]; the arguments in the mask m[2] are offsets into m. */
    "long call(long number, long a, long b, long c, long d, long e, long f) {\n"
    "    long result;\n"
    "    __asm__ volatile(\"mov %5, %%r10; mov %6, %%r8; mov %7, %%r9; syscall\" : \"=a\"(result)\n"
    "        : \"a\"(number), \"D\"(a), \"S\"(b), \"d\"(c), \"r\"(d), \"r\"(e), \"r\"(f)\n"
    "        : \"rcx\", \"r8\", \"r9\", \"r10\", \"r11\", \"memory\");\n"
    "    return result;\n"
    "}\n"
    "kernel void one(global long *m) {\n"
    "    long a[6];\n"
    "    for (int i = 0; i < 6; i++) a[i] = m[3 + i] + ((m[2] >> i & 1) ? (long)m : 0);\n"
    "    m[0] = call(m[1], a[0], a[1], a[2], a[3], a[4], a[5]);\n"
    "}\n"
    /* Takes memory with the flags m[1], 64 MiB at a time, at most m[2] times, writes to each page, and gives it back. */
    "kernel void take(global long *m) {\n"
    "    for (m[0] = 0; m[0] < m[2]; m[0]++) {\n"
    "        long at = call(9, 0, 64 << 20, 3, m[1], -1, 0);\n"
    "        if (at < 0 && at > -4096) { m[3] = at; break; }\n"
    "        m[16 + m[0]] = at;\n"
    "        for (long page = 0; page < 64 << 20; page += 4096) *(volatile char *)(at + page) = 1;\n"
    "    }\n"
    "    for (long i = 0; i < m[0]; i++) call(11, m[16 + i], 64 << 20, 0, 0, 0, 0);\n"
    "}\n"
    /* Makes processes that wait for signals, at most m[2]. */
    "kernel void fork_bomb(global long *m) {\n"
    "    for (m[0] = 0; m[0] < m[2]; m[0]++) {\n"
    "        long made;\n"
    "        __asm__ volatile(\"syscall; test %%rax, %%rax; jnz 2f; 1: mov $34, %%eax; syscall; jmp 1b; 2:\"\n"
    "            : \"=a\"(made) : \"a\"(57L) : \"rcx\", \"r11\", \"memory\", \"cc\");\n"
    "        if (made < 0) { m[3] = made; return; }\n"
    "    }\n"
    "}\n"
    "kernel void endless(global volatile long *m) { while (m[0] == 0) {} }\n";

/* Most pieces of 64 MiB that an attempt takes. */
enum { PIECES = 96 };
enum { WORDS = 1024, DATA = 128, BYTES = WORDS * 8 };

struct evil {
    struct device device;
    cl_program program;
    cl_mem memory;
};

/* Runs a kernel over these words and returns the error of OpenCL, if there is one. */
static cl_int run(struct evil *evil, const char *name, long *words)
{
    size_t once = 1;
    cl_int code = CL_SUCCESS;
    cl_kernel kernel = clCreateKernel(evil->program, name, &code);
    if (code != CL_SUCCESS)
        return code;
    code = clSetKernelArg(kernel, 0, sizeof evil->memory, &evil->memory);
    if (code == CL_SUCCESS)
        code = clEnqueueWriteBuffer(evil->device.queue, evil->memory, CL_FALSE, 0, BYTES, words, 0, NULL, NULL);
    if (code == CL_SUCCESS)
        code = clEnqueueNDRangeKernel(evil->device.queue, kernel, 1, NULL, &once, NULL, 0, NULL, NULL);
    if (code == CL_SUCCESS)
        code = clEnqueueReadBuffer(evil->device.queue, evil->memory, CL_TRUE, 0, BYTES, words, 0, NULL, NULL);
    clReleaseKernel(kernel);
    return code;
}

/* A system call from a kernel, with data that arguments in the mask point to. The data afterwards is behind the words. */
static long call(struct evil *evil, long *words, long number, long pointers, const long arguments[6], const void *data,
                 size_t length)
{
    memset(words, 0, BYTES);
    words[1] = number;
    words[2] = pointers;
    memcpy(words + 3, arguments, 6 * sizeof *arguments);
    memcpy((char *)words + DATA, data, length);
    cl_int code = run(evil, "one", words);
    if (code != CL_SUCCESS)
        wrong("a kernel failed: %d", (int)code);
    return words[0];
}

static long open_path(struct evil *evil, const char *path)
{
    long words[WORDS];
    return call(evil, words, SYS_openat, 2, (const long[6]){ AT_FDCWD, DATA, O_RDONLY, 0, 0, 0 }, path, strlen(path) + 1);
}

static void read_path(struct evil *evil, const char *path)
{
    long words[WORDS], fd = open_path(evil, path);
    if (fd < 0) {
        printf("read %s: %ld\n", path, fd);
        return;
    }
    long got = call(evil, words, SYS_read, 2, (const long[6]){ fd, DATA, 64, 0, 0, 0 }, "", 1);
    printf("read %s: %ld bytes\n", path, got);
}

/* The files of a process that its owner may open. */
static long open_files_of(struct evil *evil, const char *pid)
{
    static const char *const FILES[] = { "environ", "mem", "root/", "fd/0" };
    long opened = 0;
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++) {
        char path[320];
        snprintf(path, sizeof path, "/proc/%s/%s", pid, FILES[i]);
        opened += open_path(evil, path) >= 0;
    }
    return opened;
}

static void look_at_processes(struct evil *evil)
{
    struct entry {
        uint64_t inode, offset;
        uint16_t length;
        uint8_t type;
        char name[];
    };
    long words[WORDS], folder = open_path(evil, "/proc"), processes = 0, opened = 0, got;
    long self = call(evil, words, SYS_getpid, 0, (const long[6]){ 0 }, "", 1);
    while ((got = call(evil, words, SYS_getdents64, 2, (const long[6]){ folder, DATA, BYTES - DATA, 0, 0, 0 }, "", 1)) > 0) {
        char entries[BYTES];
        memcpy(entries, (char *)words + DATA, (size_t)got);
        for (long at = 0; at < got;) {
            struct entry entry;
            const char *name = entries + at + offsetof(struct entry, name);
            memcpy(&entry, entries + at, sizeof entry);
            at += entry.length;
            if (name[0] < '0' || name[0] > '9' || strtol(name, NULL, 10) == self)
                continue;
            processes++;
            opened += open_files_of(evil, name);
        }
    }
    printf("processes: %ld files of %ld opened\n", opened, processes);
}

static void connect_to(struct evil *evil, const char *address)
{
    char host[64];
    unsigned port;
    if (sscanf(address, "%63[^:]:%u", host, &port) != 2)
        usage(USAGE, EXIT_USAGE);
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    if (inet_pton(AF_INET, host, &to.sin_addr) != 1)
        usage(USAGE, EXIT_USAGE);
    long words[WORDS];
    long made = call(evil, words, SYS_socket, 0, (const long[6]){ AF_INET, SOCK_STREAM, 0, 0, 0, 0 }, "", 1);
    if (made >= 0)
        made = call(evil, words, SYS_connect, 2, (const long[6]){ made, DATA, sizeof to, 0, 0, 0 }, &to, sizeof to);
    printf("connect %s: %ld\n", address, made);
}

/* Runs a kernel that repeats something until it fails. */
static void repeat(struct evil *evil, const char *what, const char *kernel, long flags, long most)
{
    long words[WORDS] = { 0, flags, most };
    cl_int code = run(evil, kernel, words);
    if (code == CL_SUCCESS)
        printf("%s: %ld, then %ld\n", what, words[0], words[3]);
    else
        printf("%s: OpenCL error %d\n", what, (int)code);
}

static void make_buffers(struct evil *evil)
{
    static char zeros[1 << 20];
    cl_int code = CL_SUCCESS;
    long made = 0;
    for (; made < PIECES && code == CL_SUCCESS; made++) {
        cl_mem buffer = clCreateBuffer(evil->device.context, CL_MEM_READ_WRITE, 64 << 20, NULL, &code);
        for (size_t at = 0; at < 64 << 20 && code == CL_SUCCESS; at += sizeof zeros)
            code = clEnqueueWriteBuffer(evil->device.queue, buffer, CL_TRUE, at, sizeof zeros, zeros, 0, NULL, NULL);
    }
    printf("buffers: %ld, then OpenCL error %d\n", made, (int)code);
}

/* Waits for a kernel that never ends: until the manager ends it. */
static void run_endless(struct evil *evil)
{
    long words[WORDS] = { 0 };
    printf("endless: runs\n");
    fflush(stdout);
    cl_int code = run(evil, "endless", words);
    printf("endless: OpenCL error %d\n", (int)code);
}

static void list_folder(const char *path)
{
    DIR *folder = opendir(path);
    printf("list %s:", path);
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;)
        if (entry->d_name[0] != '.')
            printf(" %s", entry->d_name);
    printf("%s\n", folder == NULL ? " nothing" : "");
}

static void open_own(const char *path)
{
    int fd = open(path, O_RDONLY);
    printf("own %s: %d\n", path, fd < 0 ? -errno : fd);
}

static void attempt(struct evil *evil, const char *what)
{
    if (strncmp(what, "open:", 5) == 0)
        printf("open %s: %ld\n", what + 5, open_path(evil, what + 5));
    else if (strncmp(what, "read:", 5) == 0)
        read_path(evil, what + 5);
    else if (strncmp(what, "connect:", 8) == 0)
        connect_to(evil, what + 8);
    else if (strncmp(what, "own:", 4) == 0)
        open_own(what + 4);
    else if (strncmp(what, "list:", 5) == 0)
        list_folder(what + 5);
    else if (strcmp(what, "processes") == 0)
        look_at_processes(evil);
    else if (strcmp(what, "fork") == 0)
        repeat(evil, "fork", "fork_bomb", 0, 1000);
    else if (strcmp(what, "private") == 0)
        repeat(evil, "private", "take", MAP_PRIVATE | MAP_ANONYMOUS, PIECES);
    else if (strcmp(what, "shared") == 0)
        repeat(evil, "shared", "take", MAP_SHARED | MAP_ANONYMOUS, PIECES);
    else if (strcmp(what, "buffers") == 0)
        make_buffers(evil);
    else if (strcmp(what, "endless") == 0)
        run_endless(evil);
    else
        usage(USAGE, EXIT_USAGE);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    if (argc < 2 || strcmp(argv[1], "--help") == 0)
        usage(USAGE, argc < 2 ? EXIT_USAGE : 0);
    struct evil evil;
    evil.device = open_device(0);
    evil.program = build(&evil.device, SOURCE);
    evil.memory = buffer_of(&evil.device, CL_MEM_READ_WRITE, BYTES, NULL);
    for (int i = 1; i < argc; i++)
        attempt(&evil, argv[i]);
    printf("all attempts are over\n");
    fflush(stdout);
    pause();
    return 0;
}
