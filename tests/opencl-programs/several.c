/* Several clients at once: so many workloads, begun together, and what they do per second in all. */
#include "program.h"
#include <sys/wait.h>

static const char USAGE[] =
    "usage: several [--clients N] [--seconds N] [--matmul]\n"
    "Runs N (default 8) of the program `workload` beside this one at the same time, for some seconds (default 5), and prints\n"
    "one line of JSON: what all of them did per second.\n";

enum { MOST = 64 };

int main(int argc, char **argv)
{
    unsigned long clients = 8, seconds = 5;
    bool matmul = false;
    const struct option_spec options[] = {
        { "--clients", &clients, NULL },
        { "--seconds", &seconds, NULL },
        { "--matmul", NULL, &matmul },
    };
    OPTIONS(argc, argv, USAGE, options);
    if (clients > MOST || seconds > 3600)
        usage(USAGE, EXIT_USAGE);

    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 16);
    EXPECT(length > 0, "this program's own path is unknown");
    path[length] = '\0';
    strcpy(strrchr(path, '/') + 1, "workload");

    /* All have opened the device and built their kernel by then. */
    char start_at[32], for_seconds[32];
    snprintf(start_at, sizeof start_at, "%.0f", now_us() / 1e3 + 1500.0 + 250.0 * (double)clients);
    snprintf(for_seconds, sizeof for_seconds, "%lu", seconds);
    FILE *outputs[MOST];
    pid_t children[MOST];
    for (unsigned long i = 0; i < clients; i++) {
        int ends[2];
        EXPECT(pipe(ends) == 0, "no pipe");
        children[i] = fork();
        EXPECT(children[i] >= 0, "no process");
        if (children[i] == 0) {
            dup2(ends[1], 1);
            close(ends[0]);
            close(ends[1]);
            execl(path, path, "--seconds", for_seconds, "--start-at", start_at, matmul ? "--matmul" : NULL, (char *)NULL);
            _exit(127);
        }
        close(ends[1]);
        outputs[i] = fdopen(ends[0], "r");
        EXPECT(outputs[i] != NULL, "out of memory");
    }
    double all = 0, least = 0;
    for (unsigned long i = 0; i < clients; i++) {
        char line[1024] = "";
        const char *got = fgets(line, sizeof line, outputs[i]);
        const char *field = got == NULL ? NULL : strstr(line, "\"per_second\":");
        int status = 0;
        EXPECT(waitpid(children[i], &status, 0) == children[i] && status == 0, "client %lu failed", i);
        EXPECT(field != NULL, "client %lu said nothing", i);
        double rate = strtod(field + strlen("\"per_second\":"), NULL);
        all += rate;
        least = i == 0 || rate < least ? rate : least;
        fclose(outputs[i]);
    }
    printf("{\"program\":\"several\",\"work\":\"%s\",\"clients\":%lu,\"per_second\":%.2f,\"least_per_second\":%.2f}\n",
           matmul ? "matmul 512" : "sobel 1080p", clients, all, least);
    return 0;
}
