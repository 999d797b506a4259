/* The HTTP side that all functions share, in the manner of OpenFaaS: POST / carries the input and gets
 * the output, GET /healthz, /_/health or /_/ready says that the function is there. A process serves one
 * request at a time, one per connection: it has one device queue, so a second request would only wait
 * behind the first. */
#ifndef FUNCTIONS_HTTP_H
#define FUNCTIONS_HTTP_H

#include "ocl.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* More than the largest input of any function (two 2048 x 2048 matrices). */
enum { HTTP_MAX_BODY = 64 << 20 };

struct reply {
    int status;
    const char *content_type;
    /* The output; belongs to the function and stays valid until its next request. */
    const void *body;
    size_t length;
    /* Body of a reply that is not 200. */
    char message[512];
    /* Microseconds from the first enqueue to the end of the last read. */
    double opencl_us;
    /* With OCL_PROFILE=1: microseconds from submitting the kernel to its start, and that it ran. A device manager
     * loads the bitstream before the start, if it has to. */
    bool has_times;
    double waited_us;
    double kernel_us;
    /* The device is gone: send this reply, then end with exit status 1. */
    bool device_lost;
};

typedef void (*http_handler)(void *state, const uint8_t *input, size_t length, struct reply *reply);

/* Lets SIGTERM and SIGINT in only while http_serve waits for a request, so that one in progress is
 * answered. To be called before the first OpenCL call: threads that a runtime starts inherit the mask,
 * so that the signal always reaches the thread that waits. */
void http_hold_signals(void);

/* A socket for ${POD_IP:-127.0.0.1}:${PORT:-8080}, which nobody can connect to yet; -1 (with a line on
 * stderr) when the address cannot be had. Several processes may serve on one socket. */
int http_bind(const char *name);
/* Serves on the socket until SIGTERM or SIGINT (returns 0) or until the device is lost (returns 1). */
int http_serve(const char *name, int listener, struct ocl *ocl, http_handler handler, void *state);

/* Answers with an error status and a line of text. */
void reply_error(struct reply *reply, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Answers 500 with the OpenCL call that failed and its code; finds out whether the device is lost. */
void reply_opencl_error(struct reply *reply, struct ocl *ocl);
void reply_bytes(struct reply *reply, const char *content_type, const void *body, size_t length);

/* Little-endian, from any alignment. */
uint32_t get_u32(const uint8_t *bytes);
double now_us(void);

#endif
