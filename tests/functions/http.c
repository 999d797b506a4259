/* See http.h. Everything that comes from the network is bounded: the head, the body, the time. */
#define _GNU_SOURCE
#include "http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_HEAD = 8192,
    /* Whole request, so that one slow sender cannot hold the function for ever. */
    REQUEST_MS = 30000,
    REPLY_MS = 30000,
    DRAIN_MS = 1000,
};

struct request {
    char head[MAX_HEAD + 1];
    /* Bytes of the body that came together with the head. */
    size_t early_offset;
    size_t early_length;
    char method[16];
    char path[256];
    /* Empty if the request has none. */
    char traceparent[128];
    char tracestate[513];
    size_t content_length;
    bool has_length;
    bool expects_continue;
};

static volatile sig_atomic_t stopping;
/* The process's own signal mask, which lets SIGTERM in. */
static sigset_t mask_while_waiting;

static void on_signal(int signal)
{
    (void)signal;
    stopping = 1;
}

double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

uint32_t get_u32(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

void reply_error(struct reply *reply, int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(reply->message, sizeof reply->message, format, args);
    va_end(args);
    reply->status = status;
    reply->content_type = "text/plain";
    reply->body = reply->message;
    reply->length = strlen(reply->message);
}

void reply_opencl_error(struct reply *reply, struct ocl *ocl)
{
    const char *call = ocl->failed_call != NULL ? ocl->failed_call : "OpenCL";
    reply->device_lost = ocl_lost(ocl);
    reply_error(reply, 500, "%s failed: %d%s\n", call, (int)ocl->failed_code,
                reply->device_lost ? " (the device is lost)" : "");
    fprintf(stderr, "%s", reply->message);
}

void reply_bytes(struct reply *reply, const char *content_type, const void *body, size_t length)
{
    reply->status = 200;
    reply->content_type = content_type;
    reply->body = body;
    reply->length = length;
}

/* Waits until the socket can be read or written; false at the deadline or on an error. */
static bool wait_for(int fd, short events, double deadline_us)
{
    for (;;) {
        double left = deadline_us - now_us();
        if (left <= 0)
            return false;
        struct pollfd p = { .fd = fd, .events = events };
        int n = poll(&p, 1, (int)(left / 1e3) + 1);
        if (n > 0)
            return true;
        if (n < 0 && errno != EINTR)
            return false;
    }
}

/* Bytes read, 0 at the end of the stream, -1 on an error or at the deadline. */
static ssize_t receive(int fd, void *into, size_t room, double deadline_us)
{
    for (;;) {
        if (!wait_for(fd, POLLIN, deadline_us))
            return -1;
        ssize_t n = recv(fd, into, room, MSG_DONTWAIT);
        if (n >= 0 || (errno != EINTR && errno != EAGAIN))
            return n;
    }
}

static bool send_all(int fd, const void *bytes, size_t length, double deadline_us)
{
    const char *at = bytes;
    while (length > 0) {
        if (!wait_for(fd, POLLOUT, deadline_us))
            return false;
        /* A client that went away must not end the process; its signal settings stay as they are. */
        ssize_t n = send(fd, at, length, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0) {
            if (errno == EINTR || errno == EAGAIN)
                continue;
            return false;
        }
        at += n;
        length -= (size_t)n;
    }
    return true;
}

static const char *reason(int status)
{
    switch (status) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 411: return "Length Required";
    case 413: return "Content Too Large";
    case 431: return "Request Header Fields Too Large";
    default: return "Internal Server Error";
    }
}

static void send_reply(int fd, const struct ocl *ocl, const struct reply *reply)
{
    double deadline = now_us() + REPLY_MS * 1e3;
    char head[1024];
    char times[160] = "";
    if (reply->has_times)
        snprintf(times, sizeof times, "X-OpenCL-Wait-Us: %.0f\r\nX-OpenCL-Kernel-Us: %.0f\r\n", reply->waited_us,
                 reply->kernel_us);
    int n = snprintf(head, sizeof head,
                     "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nX-OpenCL-Device: %s\r\n"
                     "X-OpenCL-Us: %.0f\r\n%sConnection: close\r\n\r\n",
                     reply->status, reason(reply->status), reply->content_type, reply->length, ocl->device_name,
                     reply->opencl_us, times);
    if (n > 0 && (size_t)n < sizeof head && send_all(fd, head, (size_t)n, deadline))
        send_all(fd, reply->body, reply->length, deadline);
}

/* Closes after the client has read: closing with unread input would reset the connection and lose the reply. */
static void linger_and_close(int fd)
{
    char waste[4096];
    double deadline = now_us() + DRAIN_MS * 1e3;
    shutdown(fd, SHUT_WR);
    while (receive(fd, waste, sizeof waste, deadline) > 0)
        ;
    close(fd);
}

/* Finds the value of a header line that starts at `line`, or NULL. */
static const char *header_value(const char *line, const char *name)
{
    size_t length = strlen(name);
    if (strncasecmp(line, name, length) != 0 || line[length] != ':')
        return NULL;
    line += length + 1;
    return line + strspn(line, " \t");
}

/* Copies a value that is there and fits; one that does not fit is left out. */
static void copy_value(char *into, size_t room, const char *value)
{
    if (value != NULL && strlen(value) < room)
        strcpy(into, value);
}

static bool parse_length(const char *text, size_t *length)
{
    size_t value = 0;
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 12 || text[digits + strspn(text + digits, " \t")] != '\0')
        return false;
    for (size_t i = 0; i < digits; i++)
        value = value * 10 + (size_t)(text[i] - '0');
    *length = value;
    return true;
}

/* The head lies in request->head, ended by NUL in place of its empty line. */
static bool parse_head(struct request *request, struct reply *reply)
{
    char *rest = NULL;
    char *line = strtok_r(request->head, "\r\n", &rest);
    if (line == NULL || sscanf(line, "%15[A-Z] %255[^ ] HTTP/1.", request->method, request->path) != 2
        || strstr(line, " HTTP/1.") == NULL) {
        reply_error(reply, 400, "Not an HTTP/1 request line\n");
        return false;
    }
    while ((line = strtok_r(NULL, "\r\n", &rest)) != NULL) {
        const char *value = header_value(line, "Content-Length");
        if (value != NULL) {
            size_t length = 0;
            if (!parse_length(value, &length) || (request->has_length && length != request->content_length)) {
                reply_error(reply, 400, "Content-Length is not a number\n");
                return false;
            }
            request->content_length = length;
            request->has_length = true;
        }
        copy_value(request->traceparent, sizeof request->traceparent, header_value(line, "traceparent"));
        copy_value(request->tracestate, sizeof request->tracestate, header_value(line, "tracestate"));
        value = header_value(line, "Expect");
        if (value != NULL && strcasecmp(value, "100-continue") == 0)
            request->expects_continue = true;
        if (header_value(line, "Transfer-Encoding") != NULL) {
            reply_error(reply, 411, "Send a Content-Length, not a Transfer-Encoding\n");
            return false;
        }
    }
    return true;
}

/* False: either reply holds an error, or (status 0) nobody is there to answer. */
static bool read_head(int fd, struct request *request, struct reply *reply, double deadline_us)
{
    size_t have = 0;
    for (;;) {
        ssize_t n = receive(fd, request->head + have, MAX_HEAD - have, deadline_us);
        if (n <= 0)
            return false;
        have += (size_t)n;
        request->head[have] = '\0';
        char *end = memmem(request->head, have, "\r\n\r\n", 4);
        if (end != NULL) {
            request->early_offset = (size_t)(end - request->head) + 4;
            request->early_length = have - request->early_offset;
            *end = '\0';
            return parse_head(request, reply);
        }
        if (have == MAX_HEAD) {
            reply_error(reply, 431, "The request's head is longer than %d bytes\n", MAX_HEAD);
            return false;
        }
    }
}

/* The body in fresh memory (never NULL on success); on failure as in read_head. */
static uint8_t *read_body(int fd, const struct request *request, struct reply *reply, double deadline_us)
{
    if (!request->has_length) {
        reply_error(reply, 411, "Send a Content-Length\n");
        return NULL;
    }
    if (request->content_length > HTTP_MAX_BODY) {
        reply_error(reply, 413, "The body is larger than %d bytes\n", HTTP_MAX_BODY);
        return NULL;
    }
    uint8_t *body = malloc(request->content_length + 1);
    if (body == NULL) {
        reply_error(reply, 500, "Out of memory\n");
        return NULL;
    }
    size_t have = request->early_length < request->content_length ? request->early_length : request->content_length;
    memcpy(body, request->head + request->early_offset, have);
    if (request->expects_continue && have < request->content_length) {
        static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
        if (!send_all(fd, go_on, sizeof go_on - 1, deadline_us)) {
            free(body);
            return NULL;
        }
    }
    while (have < request->content_length) {
        ssize_t n = receive(fd, body + have, request->content_length - have, deadline_us);
        if (n <= 0) {
            free(body);
            return NULL;
        }
        have += (size_t)n;
    }
    return body;
}

/* The second and the third are those that OpenFaaS asks functions at. */
static bool is_probe(const char *path)
{
    return strcmp(path, "/healthz") == 0 || strcmp(path, "/_/health") == 0 || strcmp(path, "/_/ready") == 0;
}

static void answer(int fd, struct ocl *ocl, http_handler handler, void *state, struct request *request,
                   struct reply *reply)
{
    double deadline = now_us() + REQUEST_MS * 1e3;
    if (!read_head(fd, request, reply, deadline))
        return;
    bool get = strcmp(request->method, "GET") == 0;
    if (get && is_probe(request->path)) {
        reply_bytes(reply, "text/plain", "ok\n", 3);
    } else if (strcmp(request->path, "/") != 0) {
        reply_error(reply, 404, "POST / or GET /healthz\n");
    } else if (strcmp(request->method, "POST") != 0) {
        reply_error(reply, 405, "POST the input to /\n");
    } else {
        uint8_t *body = read_body(fd, request, reply, deadline);
        if (body == NULL)
            return;
        ocl_begin(ocl);
        ocl_trace(ocl, request->traceparent[0] != '\0' ? request->traceparent : NULL, request->tracestate);
        handler(state, body, request->content_length, reply);
        free(body);
    }
}

int http_bind(const char *name)
{
    const char *address = getenv("POD_IP");
    const char *port_text = getenv("PORT");
    if (address == NULL || address[0] == '\0')
        address = "127.0.0.1";
    if (port_text == NULL || port_text[0] == '\0')
        port_text = "8080";
    char *end = NULL;
    unsigned long port = strtoul(port_text, &end, 10);
    struct sockaddr_in at = { .sin_family = AF_INET };
    if (*end != '\0' || port > 65535 || inet_pton(AF_INET, address, &at.sin_addr) != 1) {
        fprintf(stderr, "%s: cannot listen on '%s:%s': POD_IP is an IPv4 address, PORT a number up to 65535\n", name,
                address, port_text);
        return -1;
    }
    at.sin_port = htons((uint16_t)port);
    int yes = 1;
    /* Where several processes wait for a connection, one gets it, and the others must not wait in accept. */
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0
        || bind(fd, (struct sockaddr *)&at, sizeof at) != 0) {
        fprintf(stderr, "%s: cannot listen on %s:%s: %s\n", name, address, port_text, strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    return fd;
}

void http_hold_signals(void)
{
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigprocmask(SIG_BLOCK, &ends, &mask_while_waiting);
    struct sigaction act = { .sa_handler = on_signal };
    sigaction(SIGTERM, &act, NULL);
    sigaction(SIGINT, &act, NULL);
}

static bool listen_on(const char *name, int listener)
{
    struct sockaddr_in at;
    socklen_t size = sizeof at;
    if (listen(listener, 128) != 0 || getsockname(listener, (struct sockaddr *)&at, &size) != 0) {
        fprintf(stderr, "%s: cannot listen: %s\n", name, strerror(errno));
        return false;
    }
    char address[INET_ADDRSTRLEN] = "";
    inet_ntop(AF_INET, &at.sin_addr, address, sizeof address);
    /* The port that was given when PORT is 0. */
    fprintf(stderr, "%s: listening on %s:%u\n", name, address, (unsigned)ntohs(at.sin_port));
    return true;
}

int http_serve(const char *name, int listener, struct ocl *ocl, http_handler handler, void *state)
{
    /* The device's name goes into a header. */
    for (char *c = ocl->device_name; *c != '\0'; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
    if (!listen_on(name, listener))
        return 1;
    int status = 0;
    struct request *request = malloc(sizeof *request);
    if (request == NULL)
        return 1;
    while (!stopping && status == 0) {
        struct pollfd p = { .fd = listener, .events = POLLIN };
        if (ppoll(&p, 1, NULL, &mask_while_waiting) < 0)
            continue;
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            continue;
        struct reply reply = { 0 };
        memset(request, 0, sizeof *request);
        answer(fd, ocl, handler, state, request, &reply);
        if (reply.status != 0)
            send_reply(fd, ocl, &reply);
        if (reply.status == 0 || reply.status == 200)
            close(fd);
        else
            linger_and_close(fd);
        if (reply.device_lost) {
            fprintf(stderr, "%s: the device is lost\n", name);
            status = 1;
        }
    }
    free(request);
    return status;
}
