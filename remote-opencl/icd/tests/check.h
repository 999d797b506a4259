/* What the checking programs share: the count of failures, and a check that says which failed. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>

static int failures;

/* Where it is used, `error` is the last code. */
#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "line %d: %s (last error %d)\n", __LINE__, #condition, error); \
            failures++; \
        } \
    } while (0)

#endif
