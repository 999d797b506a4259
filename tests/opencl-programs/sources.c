/* Sources that are unusual: none at all, and one of many megabytes, as code generators make them. */
#include "program.h"

static const char USAGE[] = "usage: sources\n"
                            "Builds an empty source and one of 9 MiB. Asks for devices as Java programs do.\n";

static const char KERNEL[] = "kernel void one(global uint *a) { a[0] = 1; }\n";

int main(int argc, char **argv)
{
    NO_OPTIONS(argc, argv, USAGE);
    deadline(100);
    struct device d = open_device(0);
    CHECK(clReleaseProgram, build(&d, ""));

    static char source[9 << 20];
    memset(source, ' ', sizeof source - 1);
    memcpy(source, KERNEL, sizeof KERNEL - 1);
    cl_program program = build(&d, source);
    CHECK(clReleaseKernel, kernel_of(program, "one"));
    CHECK(clReleaseProgram, program);

    /* Java has no unsigned integers: CL_DEVICE_TYPE_ALL arrives sign-extended. */
    cl_uint count = 0;
    CHECK(clGetDeviceIDs, d.platform, 0xffffffffffffffffu, 0, NULL, &count);
    EXPECT(count > 0, "no devices");
    close_device(&d);
    return 0;
}
