/* Prints what clGetPlatformIDs says: its error code and the number of platforms. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>

int main(void) {
    cl_uint count = 0;
    cl_int error = clGetPlatformIDs(0, NULL, &count);
    printf("%d %u\n", error, count);
    return 0;
}
