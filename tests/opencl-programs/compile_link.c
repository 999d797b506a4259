/* A program in two parts and a header, compiled and linked apart; failures with their logs; callbacks. */
#include "program.h"

static const char USAGE[] = "usage: compile_link [--strict]\n"
                            "Compiles two sources with a header, links them, runs the result and looks at what fails.\n"
                            "--strict also passes lists that aren't there, over which some runtimes crash.\n";

static const char HEADER[] = "int twice(int x);\n#define OFFSET 5\n";
static const char LIBRARY[] = "#include \"part.h\"\nint twice(int x) { return 2 * x; }\n";
static const char MAIN[] = "#include \"part.h\"\n"
                           "kernel void run(global int *a) { a[get_global_id(0)] = twice(a[get_global_id(0)]) + OFFSET; }\n";

static cl_program source_of(struct device *d, const char *source)
{
    cl_int code = CL_SUCCESS;
    cl_program program = clCreateProgramWithSource(d->context, 1, &source, NULL, &code);
    check("clCreateProgramWithSource", code);
    return program;
}

static void CL_CALLBACK note(cl_program program, void *data)
{
    (void)program;
    __atomic_store_n((int *)data, 1, __ATOMIC_RELEASE);
}

static cl_uint type_of(struct device *d, cl_program program)
{
    cl_program_binary_type type = 0;
    CHECK(clGetProgramBuildInfo, program, d->id, CL_PROGRAM_BINARY_TYPE, sizeof type, &type, NULL);
    return type;
}

int main(int argc, char **argv)
{
    bool strict = false;
    const struct option_spec options[] = { { "--strict", NULL, &strict } };
    OPTIONS(argc, argv, USAGE, options);
    deadline(120);
    struct device d = open_device(0);
    cl_bool available = CL_FALSE;
    CHECK(clGetDeviceInfo, d.id, CL_DEVICE_LINKER_AVAILABLE, sizeof available, &available, NULL);
    if (!available) {
        printf("%s has no linker\n", d.name);
        return 0;
    }
    cl_program header = source_of(&d, HEADER), library = source_of(&d, LIBRARY), program = source_of(&d, MAIN);
    const char *name = "part.h";
    CHECK(clCompileProgram, library, 1, &d.id, "", 1, &header, &name, NULL, NULL);
    int called = 0;
    CHECK(clCompileProgram, program, 0, NULL, NULL, 1, &header, &name, note, &called);
    while (!__atomic_load_n(&called, __ATOMIC_ACQUIRE))
        usleep(100);
    EXPECT(type_of(&d, program) == CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT, "compiled, it is of type %u", type_of(&d, program));

    cl_int code = CL_SUCCESS;
    cl_program parts[2] = { library, program };
    cl_program linked = clLinkProgram(d.context, 1, &d.id, "", 2, parts, NULL, NULL, &code);
    check("clLinkProgram", code);
    EXPECT(type_of(&d, linked) == CL_PROGRAM_BINARY_TYPE_EXECUTABLE, "linked, it is of type %u", type_of(&d, linked));
    cl_kernel kernel = kernel_of(linked, "run");
    cl_int data[8] = { 0, 1, 2, 3, 4, 5, 6, 7 };
    cl_mem buffer = buffer_of(&d, CL_MEM_COPY_HOST_PTR, sizeof data, data);
    set_buffer(kernel, 0, buffer);
    const size_t global = 8;
    CHECK(clEnqueueNDRangeKernel, d.queue, kernel, 1, NULL, &global, NULL, 0, NULL, NULL);
    CHECK(clEnqueueReadBuffer, d.queue, buffer, CL_TRUE, 0, sizeof data, data, 0, NULL, NULL);
    for (int i = 0; i < 8; i++)
        EXPECT(data[i] == 2 * i + 5, "data[%d] is %d", i, data[i]);

    /* In the background. */
    called = 0;
    cl_program later = clLinkProgram(d.context, 0, NULL, NULL, 2, parts, note, &called, &code);
    check("clLinkProgram", code);
    while (!__atomic_load_n(&called, __ATOMIC_ACQUIRE))
        usleep(100);
    CHECK(clReleaseKernel, kernel_of(later, "run"));

    /* What fails says so, and why. */
    cl_program broken = source_of(&d, "kernel void run( {");
    code = clCompileProgram(broken, 1, &d.id, "", 0, NULL, NULL, NULL, NULL);
    EXPECT(code == CL_COMPILE_PROGRAM_FAILURE, "a broken source compiles with %d", code);
    size_t log = 0;
    CHECK(clGetProgramBuildInfo, broken, d.id, CL_PROGRAM_BUILD_LOG, 0, NULL, &log);
    EXPECT(log > 1, "a failure has no log");
    if (strict) {
        code = clCompileProgram(program, 1, &d.id, "", 1, NULL, NULL, NULL, NULL);
        EXPECT(code == CL_INVALID_VALUE, "a header that isn't there gives %d", code);
        cl_program none = clLinkProgram(d.context, 1, &d.id, "", 0, NULL, NULL, NULL, &code);
        EXPECT(none == NULL && code == CL_INVALID_VALUE, "linking nothing gives %d", code);
    }

    CHECK(clReleaseMemObject, buffer);
    CHECK(clReleaseKernel, kernel);
    cl_program all[] = { header, library, program, linked, later, broken };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        CHECK(clReleaseProgram, all[i]);
    close_device(&d);
    printf("compiled and linked on %s\n", d.name);
    return 0;
}
