/* See workers.h. */
#define _GNU_SOURCE
#include "workers.h"
#include "http.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_WORKERS = 64 };

/* Ends all workers, and returns 0 if none of them failed. */
static int end_workers(const pid_t *workers, int count, int status)
{
    for (int i = 0; i < count; i++)
        kill(workers[i], SIGTERM);
    int ended = 0;
    while (wait(&ended) > 0)
        if (!WIFEXITED(ended) || WEXITSTATUS(ended) != 0)
            status = 1;
    return status;
}

/* Serves in several processes, each with a session of its own, until a signal or until one of them ends. */
static int serve_in_workers(const char *name, int listener, worker serve, const void *context, int count)
{
    pid_t workers[MAX_WORKERS];
    pid_t parent = getpid();
    sigset_t awaited;
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGTERM);
    sigaddset(&awaited, SIGINT);
    for (int i = 0; i < count; i++) {
        workers[i] = fork();
        if (workers[i] == 0) {
            /* A worker never outlives its parent, however that ends. */
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            return getppid() == parent ? serve(name, listener, context) : 1;
        }
        if (workers[i] < 0) {
            perror(name);
            return end_workers(workers, i, 1);
        }
    }
    sigaddset(&awaited, SIGCHLD);
    sigprocmask(SIG_BLOCK, &awaited, NULL);
    int got = 0;
    /* A worker that ended before the signal was blocked is found by the first wait. */
    bool is_lost = waitpid(-1, NULL, WNOHANG) != 0;
    if (!is_lost)
        sigwait(&awaited, &got);
    return end_workers(workers, count, is_lost || got == SIGCHLD ? 1 : 0);
}

int workers_main(const char *name, worker serve, const void *context)
{
    const char *text = getenv("WORKERS");
    char *end = NULL;
    long workers = text != NULL && text[0] != '\0' ? strtol(text, &end, 10) : 1;
    if (workers < 1 || workers > MAX_WORKERS || (end != NULL && *end != '\0')) {
        fprintf(stderr, "%s: WORKERS=%s is no number from 1 to %d\n", name, text, MAX_WORKERS);
        return 1;
    }
    http_hold_signals();
    int listener = http_bind(name);
    if (listener < 0)
        return 1;
    int status = workers == 1 ? serve(name, listener, context)
                              : serve_in_workers(name, listener, serve, context, (int)workers);
    close(listener);
    return status;
}
