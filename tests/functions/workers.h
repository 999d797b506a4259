/* The processes of a function: WORKERS of them serve on one socket, each with an OpenCL session of its own. */
#ifndef FUNCTIONS_WORKERS_H
#define FUNCTIONS_WORKERS_H

/* Serves on the listener until a signal (returns 0) or until the device is lost (returns 1). Each process calls it once,
 * with what workers_main was called with. */
typedef int (*worker)(const char *name, int listener, const void *context);

/* Binds the function's address and serves in as many processes as WORKERS says; for main to return. */
int workers_main(const char *name, worker serve, const void *context);

#endif
