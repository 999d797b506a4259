/* clSetEventCallback: each callback comes exactly once, with the right event, status and user data, also when
 * the status has been reached before the call, and with the error of a command that failed. */
#include "program.h"

#include <pthread.h>

static const char USAGE[] = "usage: callback_status [--strict]\n"
                            "Registers event callbacks for a kernel and for user events, and checks what they get.\n"
                            "  --strict  also the callback of an event that failed, which PoCL 3.1 never calls\n";

struct call {
    cl_event event;
    cl_int status;
    int count;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void CL_CALLBACK on_status(cl_event event, cl_int status, void *data)
{
    struct call *call = data;
    pthread_mutex_lock(&lock);
    call->event = event;
    call->status = status;
    call->count++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

/* The program's deadline ends a wait that nobody ends. */
static struct call wait_for(const char *what, struct call *call)
{
    fprintf(stderr, "waiting for the callback of %s\n", what);
    pthread_mutex_lock(&lock);
    while (call->count == 0)
        pthread_cond_wait(&changed, &lock);
    struct call copy = *call;
    pthread_mutex_unlock(&lock);
    return copy;
}

static void expect_call(const char *what, struct call *call, cl_event event, cl_int status)
{
    struct call got = wait_for(what, call);
    EXPECT(got.event == event, "%s: the callback got another event", what);
    EXPECT(got.status == status, "%s: the callback got status %d instead of %d", what, (int)got.status, (int)status);
    EXPECT(got.count == 1, "%s: the callback came %d times", what, got.count);
}

int main(int argc, char **argv)
{
    bool strict = false;
    const struct option_spec options[] = { { "--strict", NULL, &strict } };
    OPTIONS(argc, argv, USAGE, options);
    deadline(60);
    struct device d = open_device(0);
    cl_program program = build(&d, "kernel void add_one(global uint *x) { x[0] += 1; }\n");
    cl_kernel kernel = kernel_of(program, "add_one");
    cl_mem mem = buffer_of(&d, CL_MEM_READ_WRITE, sizeof(cl_uint), NULL);
    cl_uint value = 1;
    size_t one = 1;
    cl_int code = CL_SUCCESS;
    set_buffer(kernel, 0, mem);

    /* The kernel waits for a user event, so that the callbacks are registered before it runs. */
    cl_event gate = clCreateUserEvent(d.context, &code);
    check("clCreateUserEvent", code);
    cl_event ran = NULL;
    struct call running = { 0 }, complete = { 0 }, gate_call = { 0 }, late = { 0 }, failed = { 0 };
    CHECK(clEnqueueWriteBuffer, d.queue, mem, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL);
    CHECK(clEnqueueNDRangeKernel, d.queue, kernel, 1, NULL, &one, NULL, 1, &gate, &ran);
    CHECK(clSetEventCallback, ran, CL_RUNNING, on_status, &running);
    CHECK(clSetEventCallback, ran, CL_COMPLETE, on_status, &complete);
    CHECK(clSetEventCallback, gate, CL_COMPLETE, on_status, &gate_call);
    CHECK(clFlush, d.queue);
    EXPECT(complete.count == 0, "a callback came before its command could run");
    CHECK(clSetUserEventStatus, gate, CL_COMPLETE);
    expect_call("the user event", &gate_call, gate, CL_COMPLETE);
    expect_call("a kernel that completed", &complete, ran, CL_COMPLETE);
    EXPECT(wait_for("a running kernel", &running).status <= CL_RUNNING, "the callback for running got %d", (int)running.status);
    CHECK(clFinish, d.queue);
    CHECK(clSetEventCallback, ran, CL_COMPLETE, on_status, &late);
    expect_call("a callback that came late", &late, ran, CL_COMPLETE);

    cl_event broken = clCreateUserEvent(d.context, &code);
    check("clCreateUserEvent", code);
    if (strict)
        CHECK(clSetEventCallback, broken, CL_COMPLETE, on_status, &failed);
    CHECK(clSetUserEventStatus, broken, -5);
    if (strict)
        expect_call("an event that failed", &failed, broken, -5);
    code = clSetUserEventStatus(broken, CL_COMPLETE);
    EXPECT(code == CL_INVALID_OPERATION, "setting a user event twice gave %d", (int)code);
    code = clSetEventCallback(ran, CL_COMPLETE, NULL, NULL);
    EXPECT(code == CL_INVALID_VALUE, "a missing callback gave %d", (int)code);

    CHECK(clReleaseEvent, gate);
    CHECK(clReleaseEvent, ran);
    CHECK(clReleaseEvent, broken);
    CHECK(clReleaseMemObject, mem);
    CHECK(clReleaseKernel, kernel);
    CHECK(clReleaseProgram, program);
    close_device(&d);
    printf("all callbacks came once on %s\n", d.name);
    return 0;
}
