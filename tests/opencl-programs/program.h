/* What the small OpenCL programs share: opening the first device, checked calls, time and percentiles.
 * Header only, so that each program stays one file. Exit status: 0 right, 1 wrong result or failed call,
 * 2 wrong usage, 4 hung. */
#ifndef PROGRAM_H
#define PROGRAM_H

#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 120
#endif
#define _GNU_SOURCE
#include <CL/cl.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_WRONG = 1, EXIT_USAGE = 2, EXIT_HUNG = 4 };

#define UNUSED __attribute__((unused))

/* Calls a function that returns its code, and ends the program when that is an error. */
#define CHECK(fn, ...) check(#fn, fn(__VA_ARGS__))
/* Ends the program with a message when a condition does not hold. */
#define EXPECT(condition, ...) \
    do {                       \
        if (!(condition))      \
            wrong(__VA_ARGS__);\
    } while (0)

struct device {
    cl_platform_id platform;
    cl_device_id id;
    cl_context context;
    cl_command_queue queue;
    char name[256];
};

UNUSED __attribute__((noreturn, format(printf, 1, 2))) static void wrong(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(EXIT_WRONG);
}

UNUSED static void check(const char *call, cl_int code)
{
    if (code != CL_SUCCESS)
        wrong("%s failed: %d", call, (int)code);
}

/* Opens the first device of the first platform, with one queue. */
UNUSED static struct device open_device(cl_command_queue_properties properties)
{
    struct device d;
    cl_int code = CL_SUCCESS;
    cl_uint count = 0;
    memset(&d, 0, sizeof d);
    CHECK(clGetPlatformIDs, 1, &d.platform, &count);
    CHECK(clGetDeviceIDs, d.platform, CL_DEVICE_TYPE_ALL, 1, &d.id, NULL);
    CHECK(clGetDeviceInfo, d.id, CL_DEVICE_NAME, sizeof d.name - 1, d.name, NULL);
    /* The name is printed inside JSON. */
    for (char *c = d.name; *c != '\0'; c++)
        if (*c == '"' || *c == '\\' || *c < ' ')
            *c = '?';
    d.context = clCreateContext(NULL, 1, &d.id, NULL, NULL, &code);
    check("clCreateContext", code);
    d.queue = clCreateCommandQueue(d.context, d.id, properties, &code);
    check("clCreateCommandQueue", code);
    return d;
}

UNUSED static void close_device(struct device *d)
{
    CHECK(clReleaseCommandQueue, d->queue);
    CHECK(clReleaseContext, d->context);
}

UNUSED static cl_program build(struct device *d, const char *source)
{
    cl_int code = CL_SUCCESS;
    cl_program program = clCreateProgramWithSource(d->context, 1, &source, NULL, &code);
    check("clCreateProgramWithSource", code);
    code = clBuildProgram(program, 1, &d->id, "", NULL, NULL);
    if (code != CL_SUCCESS) {
        char log[4096] = "";
        clGetProgramBuildInfo(program, d->id, CL_PROGRAM_BUILD_LOG, sizeof log - 1, log, NULL);
        wrong("clBuildProgram failed: %d\n%s", (int)code, log);
    }
    return program;
}

UNUSED static cl_kernel kernel_of(cl_program program, const char *name)
{
    cl_int code = CL_SUCCESS;
    cl_kernel kernel = clCreateKernel(program, name, &code);
    check("clCreateKernel", code);
    return kernel;
}

UNUSED static cl_mem buffer_of(struct device *d, cl_mem_flags flags, size_t size, void *host)
{
    cl_int code = CL_SUCCESS;
    cl_mem mem = clCreateBuffer(d->context, flags, size, host, &code);
    check("clCreateBuffer", code);
    return mem;
}

UNUSED static void set_buffer(cl_kernel kernel, cl_uint index, cl_mem mem)
{
    CHECK(clSetKernelArg, kernel, index, sizeof mem, &mem);
}

UNUSED static void set_uint(cl_kernel kernel, cl_uint index, cl_uint value)
{
    CHECK(clSetKernelArg, kernel, index, sizeof value, &value);
}

UNUSED static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

UNUSED static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts the samples; percent is from 0 to 100. */
UNUSED static double percentile(double *samples, size_t count, double percent)
{
    qsort(samples, count, sizeof *samples, compare_doubles);
    size_t at = (size_t)((double)(count - 1) * percent / 100.0 + 0.5);
    return samples[at];
}

UNUSED static void on_deadline(int signal)
{
    (void)signal;
    static const char message[] = "hung: the deadline has passed\n";
    ssize_t ignored = write(2, message, sizeof message - 1);
    (void)ignored;
    _exit(EXIT_HUNG);
}

/* Ends the program with status 4 if it still runs after that many seconds. */
UNUSED static void deadline(unsigned seconds)
{
    signal(SIGALRM, on_deadline);
    alarm(seconds);
}

__attribute__((noreturn)) static void usage(const char *text, int status)
{
    fputs(text, status == 0 ? stdout : stderr);
    exit(status);
}

/* One option of a program: --name N, or --name alone when value is NULL. */
struct option_spec {
    const char *name;
    unsigned long *value;
    bool *flag;
};

/* Reads the options; --help prints the text, anything unknown or malformed prints it and ends with 2. */
UNUSED static void parse_options(int argc, char **argv, const char *text, const struct option_spec *specs, size_t count)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            usage(text, 0);
        const struct option_spec *spec = NULL;
        for (size_t s = 0; s < count; s++)
            if (strcmp(argv[i], specs[s].name) == 0)
                spec = &specs[s];
        if (spec == NULL)
            usage(text, EXIT_USAGE);
        if (spec->flag != NULL) {
            *spec->flag = true;
            continue;
        }
        const char *number = i + 1 < argc ? argv[++i] : "";
        char *end = NULL;
        errno = 0;
        unsigned long value = strtoul(number, &end, 10);
        if (errno != 0 || number[0] < '0' || number[0] > '9' || *end != '\0' || value == 0)
            usage(text, EXIT_USAGE);
        *spec->value = value;
    }
}

#define OPTIONS(argc, argv, text, specs) parse_options((argc), (argv), (text), (specs), sizeof(specs) / sizeof(*(specs)))
#define NO_OPTIONS(argc, argv, text) parse_options((argc), (argv), (text), NULL, 0)

#endif
