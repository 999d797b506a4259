// The image `localhost/pause:1`: holds a pod's namespaces, and does nothing. It is the pod's first process, which has
// no default action for SIGTERM, and to which the kernel gives orphans.
#include <signal.h>
#include <unistd.h>

static void end(int signal) {
    (void)signal;
    _exit(0);
}

int main(void) {
    struct sigaction terminate = {.sa_handler = end};
    struct sigaction reap = {.sa_handler = SIG_IGN, .sa_flags = SA_NOCLDWAIT};
    if (sigaction(SIGTERM, &terminate, 0) || sigaction(SIGINT, &terminate, 0) || sigaction(SIGCHLD, &reap, 0)) return 1;
    for (;;) pause();
}
