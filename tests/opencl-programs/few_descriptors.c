/* What a program sees that has few file descriptors left, or closes all of them as a daemon does: errors, and nothing on stderr. */
#include "program.h"
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

static const char USAGE[] = "usage: few_descriptors [--close]\n"
                            "Uses the device in processes that may open few descriptors; with --close in one that closes all after\n"
                            "the start.\n";

/* Writes a buffer and reads it. Returns the first error, or CL_SUCCESS if the bytes are right. */
static cl_int use(cl_context context, cl_command_queue queue)
{
    cl_int code;
    cl_int in = 7, out = 0;
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, sizeof in, NULL, &code);
    if (code != CL_SUCCESS)
        return code;
    code = clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, sizeof in, &in, 0, NULL, NULL);
    if (code == CL_SUCCESS)
        code = clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof out, &out, 0, NULL, NULL);
    EXPECT(code != CL_SUCCESS || in == out, "a read gave %d", out);
    clReleaseMemObject(buffer);
    return code;
}

static void with_limit(rlim_t limit)
{
    const struct rlimit limits = { limit, limit };
    EXPECT(setrlimit(RLIMIT_NOFILE, &limits) == 0, "setrlimit failed");
    cl_platform_id platform;
    cl_device_id device;
    cl_int code;
    if (clGetPlatformIDs(1, &platform, NULL) != CL_SUCCESS ||
        clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL) != CL_SUCCESS)
        return;
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
    if (code != CL_SUCCESS)
        return;
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &code);
    if (code == CL_SUCCESS)
        use(context, queue);
}

static void as_a_daemon(rlim_t unused)
{
    (void)unused;
    struct device d = open_device(0);
    EXPECT(use(d.context, d.queue) == CL_SUCCESS, "the device does not work");
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
    use(d.context, d.queue);
}

/* Runs a part in a process whose stderr must stay empty. */
static void quietly(const char *what, void (*part)(rlim_t), rlim_t limit)
{
    int ends[2];
    EXPECT(pipe(ends) == 0, "no pipe");
    pid_t child = fork();
    EXPECT(child >= 0, "no process");
    if (child == 0) {
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
        deadline(30);
        part(limit);
        _exit(0);
    }
    close(ends[1]);
    char text[2000];
    size_t length = 0;
    ssize_t got;
    while (length < sizeof text - 1 && (got = read(ends[0], text + length, sizeof text - 1 - length)) > 0)
        length += (size_t)got;
    text[length] = '\0';
    close(ends[0]);
    int status;
    EXPECT(waitpid(child, &status, 0) == child, "no status");
    EXPECT(status == 0, "%s %lu: status %x: %s", what, (unsigned long)limit, (unsigned)status, text);
    EXPECT(length == 0, "%s %lu said: %s", what, (unsigned long)limit, text);
}

int main(int argc, char **argv)
{
    bool closes = false;
    const struct option_spec options[] = { { "--close", NULL, &closes } };
    OPTIONS(argc, argv, USAGE, options);
    if (closes)
        quietly("closed", as_a_daemon, 0);
    for (rlim_t limit = 4; !closes && limit < 40; limit++)
        quietly("limit", with_limit, limit);
    return 0;
}
