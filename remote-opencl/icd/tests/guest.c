/* A library in somebody else's process: signals are handled as before, its threads take none, and a forked child has no copy
 * of its sockets and memory.
 *
 * Uses the device with everything that has threads: a callback, a build in the background, a large buffer. Prints what is
 * wrong, exits with 1 if anything is. */
#define _GNU_SOURCE
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define OK(call) do { cl_int got_ = (call); if (got_) { \
    printf("line %d: %d: %s\n", __LINE__, got_, #call); exit(1); } } while (0)

enum { SIGNALS = 65, LARGE = 4 << 20 };

static volatile int called;
static pid_t process;

static void CL_CALLBACK on_event(cl_event event, cl_int status, void *user_data) {
    (void)event; (void)status; (void)user_data;
    __atomic_fetch_add(&called, 1, __ATOMIC_SEQ_CST);
}

static void CL_CALLBACK on_built(cl_program program, void *user_data) {
    (void)program; (void)user_data;
    __atomic_fetch_add(&called, 1, __ATOMIC_SEQ_CST);
}

static void handlers(struct sigaction *all) {
    memset(all, 0, SIGNALS * sizeof *all);
    for (int number = 1; number < SIGNALS; number++) sigaction(number, NULL, &all[number]);
}

/* Whether the other end of a socket is another process's: a runtime's own pair is no session. */
static int leads_out(int fd) {
    struct ucred peer = {0};
    socklen_t length = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.pid != process;
}

/* Descriptors of shared memory and of sockets to others; lists them if they are to be told. */
static int descriptors(int told) {
    char path[300], target[300];
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *entry; (entry = readdir(folder));) {
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        ssize_t length = readlink(path, target, sizeof target - 1);
        if (length < 0) continue;
        target[length] = 0;
        int is_socket = strncmp(target, "socket:", 7) == 0 && leads_out(atoi(entry->d_name));
        if (!is_socket && strncmp(target, "/memfd:", 7)) continue;
        if (told) printf("%s is %s\n", path, target);
        count++;
    }
    closedir(folder);
    return count;
}

/* Threads but for this one; those that would take a signal are wrong. */
static int threads(int *wrong) {
    /* KILL, STOP and the two of the C library can't be blocked. */
    unsigned long long all = ~0ULL & ~(1ULL << (SIGKILL - 1)) & ~(1ULL << (SIGSTOP - 1)) & ~(3ULL << 31);
    char path[300], line[300];
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (entry->d_name[0] == '.' || atoi(entry->d_name) == getpid()) continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
        FILE *file = fopen(path, "r");
        if (!file) continue;
        char name[100] = "";
        unsigned long long blocked = 0;
        while (fgets(line, sizeof line, file)) {
            sscanf(line, "Name: %99s", name);
            sscanf(line, "SigBlk: %llx", &blocked);
        }
        fclose(file);
        count++;
        if ((blocked & all) != all) {
            printf("the thread %s takes signals: it blocks %llx\n", name, blocked);
            ++*wrong;
        }
    }
    closedir(folder);
    return count;
}

int main(void) {
    struct sigaction before[SIGNALS], after[SIGNALS];
    process = getpid();
    int wrong = 0, without = descriptors(0);
    handlers(before);
    cl_platform_id platform;
    cl_device_id device;
    cl_int error;
    OK(clGetPlatformIDs(1, &platform, NULL));
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    OK(error);
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &error);
    OK(error);
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, LARGE, NULL, &error);
    OK(error);
    const char *source = "kernel void k(global int *a) { a[0] = 1; }";
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &error);
    OK(error);
    OK(clBuildProgram(program, 0, NULL, "", on_built, NULL));
    cl_event event;
    char *bytes = calloc(1, LARGE);
    OK(clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, LARGE, bytes, 0, NULL, &event));
    OK(clSetEventCallback(event, CL_COMPLETE, on_event, NULL));
    int seen = 0, with = 0;
    /* Also the threads that are there for a while only. */
    for (int i = 0; i < 10000 && __atomic_load_n(&called, __ATOMIC_SEQ_CST) < 2; i++) {
        int now = threads(&wrong);
        if (now > seen) seen = now;
        usleep(1000);
    }
    OK(clFinish(queue));
    seen += threads(&wrong);
    with = descriptors(0);
    handlers(after);
    for (int number = 1; number < SIGNALS; number++) {
        /* What else there is of the structure nobody fills. */
        if (before[number].sa_handler != after[number].sa_handler || before[number].sa_flags != after[number].sa_flags) {
            printf("signal %d is handled otherwise\n", number);
            wrong++;
        }
    }
    if (called != 2 || seen == 0 || with == without) {
        printf("nothing was tried: %d calls back, %d threads, %d descriptors more\n", called, seen, with - without);
        wrong++;
    }
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int copies = descriptors(0) - without;
        if (copies) printf("a child has %d copies of %d\n", copies, with - without), descriptors(1);
        fflush(stdout);
        _exit(copies != 0);
    }
    int status = -1;
    if (waitpid(child, &status, 0) != child || status) wrong++;
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, LARGE, bytes, 0, NULL, NULL));
    return wrong != 0;
}
