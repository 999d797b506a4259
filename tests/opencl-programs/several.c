/* Several clients at once: so many workloads, begun together, and what they do per second in all. */
#include "program.h"
#include <fcntl.h>
#include <sys/wait.h>

static const char USAGE[] =
    "usage: several [--clients N] [--seconds N] [--matmul]\n"
    "Runs the program `workload` beside this one, first once and then N times at the same time (default 8), each for some\n"
    "seconds (default 2), and prints one line of JSON: what one did per second, what N did in all, and the second as a\n"
    "percentage of the first.\n";

enum { MOST = 64 };

struct client {
    pid_t process;
    /* The client begins when this end is closed. */
    int begin;
    FILE *output;
};

struct rates {
    double all, least;
};

static struct client start(const char *path, const char *seconds, bool matmul)
{
    struct client c;
    int input[2], output[2];
    /* No client inherits an end of another client's pipes. */
    EXPECT(pipe2(input, O_CLOEXEC) == 0 && pipe2(output, O_CLOEXEC) == 0, "no pipe");
    c.process = fork();
    EXPECT(c.process >= 0, "no process");
    if (c.process == 0) {
        dup2(input[0], 0);
        dup2(output[1], 1);
        execl(path, path, "--wait", "--seconds", seconds, matmul ? "--matmul" : NULL, (char *)NULL);
        _exit(127);
    }
    close(input[0]);
    close(output[1]);
    c.begin = input[1];
    c.output = fdopen(output[0], "r");
    EXPECT(c.output != NULL, "out of memory");
    return c;
}

static double rate_of(struct client *c)
{
    char line[1024] = "";
    const char *got = fgets(line, sizeof line, c->output);
    const char *field = got == NULL ? NULL : strstr(line, "\"per_second\":");
    int status = 0;
    EXPECT(waitpid(c->process, &status, 0) == c->process && status == 0, "a client failed");
    EXPECT(field != NULL, "a client said nothing");
    fclose(c->output);
    return strtod(field + strlen("\"per_second\":"), NULL);
}

static struct rates run(const char *path, unsigned long clients, const char *seconds, bool matmul)
{
    struct client all[MOST];
    char line[64];
    for (unsigned long i = 0; i < clients; i++)
        all[i] = start(path, seconds, matmul);
    for (unsigned long i = 0; i < clients; i++)
        EXPECT(fgets(line, sizeof line, all[i].output) != NULL && strcmp(line, "ready\n") == 0, "a client did not start");
    for (unsigned long i = 0; i < clients; i++)
        close(all[i].begin);
    struct rates sum = { 0, 0 };
    for (unsigned long i = 0; i < clients; i++) {
        double rate = rate_of(&all[i]);
        sum.all += rate;
        sum.least = i == 0 || rate < sum.least ? rate : sum.least;
    }
    return sum;
}

int main(int argc, char **argv)
{
    unsigned long clients = 8, seconds = 2;
    bool matmul = false;
    const struct option_spec options[] = {
        { "--clients", &clients, NULL },
        { "--seconds", &seconds, NULL },
        { "--matmul", NULL, &matmul },
    };
    OPTIONS(argc, argv, USAGE, options);
    if (clients > MOST || seconds > 3600)
        usage(USAGE, EXIT_USAGE);

    char path[4096], for_seconds[32];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 16);
    EXPECT(length > 0, "this program's own path is unknown");
    path[length] = '\0';
    strcpy(strrchr(path, '/') + 1, "workload");
    snprintf(for_seconds, sizeof for_seconds, "%lu", seconds);

    struct rates one = run(path, 1, for_seconds, matmul), all = run(path, clients, for_seconds, matmul);
    printf("{\"program\":\"several\",\"work\":\"%s\",\"clients\":%lu,\"one_per_second\":%.2f,\"per_second\":%.2f,"
           "\"least_per_second\":%.2f,\"share_percent\":%.2f}\n",
           matmul ? "matmul 512" : "sobel 1080p", clients, one.all, all.all, all.least, 100 * all.all / one.all);
    return 0;
}
