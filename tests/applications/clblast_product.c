/* CLBlast: products of matrices in single precision, and a dot product. */
#define CL_TARGET_OPENCL_VERSION 120
#include <clblast_c.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 200 };

static void check(int code, const char *what)
{
    if (code != 0) {
        fprintf(stderr, "%s: %d\n", what, code);
        exit(1);
    }
}

int main(void)
{
    cl_platform_id platform;
    cl_device_id device;
    cl_int error;
    static float a[N * N], b[N * N], c[N * N];
    for (int i = 0; i < N * N; i++) {
        a[i] = (float)(i * 37 % 101) / 101;
        b[i] = (float)(i * 53 % 97) / 97;
    }
    check(clGetPlatformIDs(1, &platform, NULL), "clGetPlatformIDs");
    check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "clGetDeviceIDs");
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    check(error, "clCreateContext");
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &error);
    check(error, "clCreateCommandQueue");
    cl_mem on_device[3];
    float *on_host[] = { a, b, c };
    for (int i = 0; i < 3; i++) {
        on_device[i] = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof a, on_host[i], &error);
        check(error, "clCreateBuffer");
    }
    cl_event event = NULL;
    check(CLBlastSgemm(CLBlastLayoutRowMajor, CLBlastTransposeNo, CLBlastTransposeYes, N, N, N, 1.5f, on_device[0], 0, N, on_device[1],
                       0, N, 0.5f, on_device[2], 0, N, &queue, &event), "CLBlastSgemm");
    check(clWaitForEvents(1, &event), "clWaitForEvents");
    check(clEnqueueReadBuffer(queue, on_device[2], CL_TRUE, 0, sizeof c, c, 0, NULL, NULL), "clEnqueueReadBuffer");
    for (int i = 0; i < N * N; i += 7777)
        printf("product %d: %a\n", i, (double)c[i]);
    check(CLBlastSdot(N * N, on_device[2], 0, on_device[0], 0, 1, on_device[1], 0, 1, &queue, NULL), "CLBlastSdot");
    check(clEnqueueReadBuffer(queue, on_device[2], CL_TRUE, 0, sizeof(float), c, 0, NULL, NULL), "clEnqueueReadBuffer");
    printf("dot: %a\n", (double)c[0]);
    return 0;
}
