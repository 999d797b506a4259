/* Loads the library, reports, unloads it with the handle still there, and goes on: its thread must not fall into a
 * hole. Arguments: the library and the collector's endpoint. */
#include "fpga_hook.h"

#include <dlfcn.h>
#include <stdio.h>
#include <time.h>

int main(int argc, char **argv)
{
    for (int round = 0; argc == 3 && round < 3; round++) {
        void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        if (library == NULL) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        int (*start)(const char *, const struct fpga_hook_device *, struct fpga_hook **);
        *(void **)&start = dlsym(library, "fpga_hook_start");
        const struct fpga_hook_device device = { .id = "board0", .vendor = "acme", .slots = 1 };
        struct fpga_hook *hook = NULL;
        if (start == NULL || start(argv[2], &device, &hook) != 0 || dlclose(library) != 0)
            return 1;
        const struct timespec pause = { 0, 300000000 };
        nanosleep(&pause, NULL);
    }
    return argc == 3 ? 0 : 2;
}
