/* Images of every kind: write and read with pitches, copy, fill, map, to and from buffers, in kernels with samplers;
 * and what is no image, which must give an error. */
#include "program.h"

static const char USAGE[] = "usage: images [--strict]\n"
                            "Writes, copies, fills, maps and computes on images of all kinds, and checks every byte.\n"
                            "--strict also gives garbage, over which some runtimes crash.\n";

static bool strict = false;

static const char SOURCE[] =
    "constant sampler_t near = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP_TO_EDGE | CLK_FILTER_NEAREST;\n"
    "kernel void invert(read_only image2d_t from, write_only image2d_t to) {\n"
    "    int2 at = (int2)(get_global_id(0), get_global_id(1));\n"
    "    write_imageui(to, at, 255u - read_imageui(from, near, at));\n"
    "}\n"
    "kernel void shifted(read_only image2d_t from, sampler_t how, global uint *to, int by) {\n"
    "    int2 at = (int2)(get_global_id(0), get_global_id(1));\n"
    "    to[at.y * get_global_size(0) + at.x] = read_imageui(from, how, at - (int2)(by, 0)).x;\n"
    "}\n";

enum { W = 37, H = 11, D = 5 };

struct shape {
    const char *name;
    cl_mem_object_type type;
    size_t extent[3];
};

static const struct shape SHAPES[] = {
    { "1D", CL_MEM_OBJECT_IMAGE1D, { W, 1, 1 } },
    { "1D array", CL_MEM_OBJECT_IMAGE1D_ARRAY, { W, H, 1 } },
    { "2D", CL_MEM_OBJECT_IMAGE2D, { W, H, 1 } },
    { "2D array", CL_MEM_OBJECT_IMAGE2D_ARRAY, { W, H, D } },
    { "3D", CL_MEM_OBJECT_IMAGE3D, { W, H, D } },
};

static const cl_image_format RGBA8 = { CL_RGBA, CL_UNSIGNED_INT8 };

static cl_image_desc desc_of(const struct shape *shape)
{
    cl_image_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.image_type = shape->type;
    desc.image_width = shape->extent[0];
    desc.image_height = shape->type == CL_MEM_OBJECT_IMAGE1D_ARRAY ? 0 : shape->extent[1];
    desc.image_depth = shape->type == CL_MEM_OBJECT_IMAGE3D ? shape->extent[2] : 0;
    desc.image_array_size = shape->type == CL_MEM_OBJECT_IMAGE1D_ARRAY   ? shape->extent[1]
                            : shape->type == CL_MEM_OBJECT_IMAGE2D_ARRAY ? shape->extent[2]
                                                                         : 0;
    return desc;
}

static cl_mem image_of(struct device *d, cl_mem_flags flags, const cl_image_desc *desc, void *host)
{
    cl_int code = CL_SUCCESS;
    cl_mem image = clCreateImage(d->context, flags, &RGBA8, desc, host, &code);
    check("clCreateImage", code);
    return image;
}

static cl_uint pixel(size_t x, size_t y, size_t z)
{
    return (cl_uint)(x * 2654435761u + y * 40503u + z * 977u);
}

static void all_ways(struct device *d, const struct shape *shape)
{
    const size_t zero[3] = { 0, 0, 0 };
    const size_t *e = shape->extent;
    const size_t pixels = e[0] * e[1] * e[2];
    cl_uint *data = malloc(pixels * 4), *back = malloc(pixels * 4);
    EXPECT(data != NULL && back != NULL, "out of memory");
    for (size_t i = 0; i < pixels; i++)
        data[i] = pixel(i % e[0], i / e[0] % e[1], i / e[0] / e[1]);
    cl_image_desc desc = desc_of(shape);
    cl_mem one = image_of(d, CL_MEM_READ_WRITE, &desc, NULL);
    cl_mem two = image_of(d, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, &desc, data);

    /* A new image is written and read as a whole. */
    CHECK(clEnqueueWriteImage, d->queue, one, CL_FALSE, zero, e, 0, 0, data, 0, NULL, NULL);
    CHECK(clEnqueueReadImage, d->queue, one, CL_TRUE, zero, e, 0, 0, back, 0, NULL, NULL);
    EXPECT(memcmp(data, back, pixels * 4) == 0, "%s: written and read differ", shape->name);
    memset(back, 0, pixels * 4);
    CHECK(clEnqueueReadImage, d->queue, two, CL_TRUE, zero, e, 0, 0, back, 0, NULL, NULL);
    EXPECT(memcmp(data, back, pixels * 4) == 0, "%s: COPY_HOST_PTR is not what was given", shape->name);

    /* A part, with gaps between the rows and the slices of the host memory. */
    const size_t origin[3] = { 3, e[1] > 1, e[2] > 1 };
    const size_t region[3] = { e[0] - 5, e[1] > 1 ? e[1] - 2 : 1, e[2] > 1 ? e[2] - 1 : 1 };
    const size_t row = (region[0] + 3) * 4;
    const bool is_1d_array = shape->type == CL_MEM_OBJECT_IMAGE1D_ARRAY;
    const size_t slice = e[2] > 1 ? row * (region[1] + 1) : is_1d_array ? row : 0;
    const size_t span = (e[2] > 1 ? slice * region[2] : row * region[1]);
    unsigned char *gaps = malloc(span);
    EXPECT(gaps != NULL, "out of memory");
    memset(gaps, 0x5a, span);
    CHECK(clEnqueueReadImage, d->queue, one, CL_TRUE, origin, region, row, slice, gaps, 0, NULL, NULL);
    for (size_t z = 0; z < region[2]; z++)
        for (size_t y = 0; y < region[1]; y++)
            for (size_t x = 0; x < region[0]; x++) {
                cl_uint got;
                memcpy(&got, gaps + z * slice + y * row + x * 4, 4);
                EXPECT(got == pixel(x + origin[0], y + origin[1], z + origin[2]), "%s: (%zu, %zu, %zu) of a part is %08x",
                       shape->name, x, y, z, got);
            }
    EXPECT(region[1] < 2 || gaps[region[0] * 4] == 0x5a, "%s: a gap was written", shape->name);

    /* Filled, written with gaps, copied, and read back by a map. */
    const cl_uint color[4] = { 1, 2, 3, 4 };
    CHECK(clEnqueueFillImage, d->queue, two, color, zero, e, 0, NULL, NULL);
    CHECK(clEnqueueWriteImage, d->queue, two, CL_FALSE, origin, region, row, slice, gaps, 0, NULL, NULL);
    CHECK(clEnqueueCopyImage, d->queue, one, two, zero, zero, (size_t[3]){ 2, 1, 1 }, 0, NULL, NULL);
    cl_int code = CL_SUCCESS;
    size_t map_row = 0, map_slice = 0;
    unsigned char *map = clEnqueueMapImage(d->queue, two, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, zero, e, &map_row, &map_slice,
                                           0, NULL, NULL, &code);
    check("clEnqueueMapImage", code);
    for (size_t z = 0; z < e[2]; z++)
        for (size_t y = 0; y < e[1]; y++)
            for (size_t x = 0; x < e[0]; x++) {
                bool inside = x >= origin[0] && x < origin[0] + region[0] && y >= origin[1] && y < origin[1] + region[1] &&
                              z >= origin[2] && z < origin[2] + region[2];
                bool copied = x < 2 && y == 0 && z == 0;
                cl_uint want = inside || copied ? pixel(x, y, z) : 0x04030201u;
                size_t step = e[2] > 1 ? map_slice : 0;
                cl_uint *at = (cl_uint *)(void *)(map + z * step + y * (is_1d_array ? map_slice : map_row) + x * 4);
                EXPECT(*at == want, "%s: (%zu, %zu, %zu) is %08x instead of %08x", shape->name, x, y, z, *at, want);
                *at = ~want;
            }
    CHECK(clEnqueueUnmapMemObject, d->queue, two, map, 0, NULL, NULL);
    CHECK(clEnqueueReadImage, d->queue, two, CL_TRUE, zero, (size_t[3]){ 1, 1, 1 }, 0, 0, back, 0, NULL, NULL);
    EXPECT(back[0] == ~pixel(0, 0, 0), "%s: an unmap wrote nothing back", shape->name);

    /* Through a buffer. */
    cl_mem buffer = buffer_of(d, CL_MEM_READ_WRITE, pixels * 4 + 64, NULL);
    CHECK(clEnqueueCopyImageToBuffer, d->queue, one, buffer, zero, e, 64, 0, NULL, NULL);
    CHECK(clEnqueueCopyBufferToImage, d->queue, buffer, two, 64, zero, e, 0, NULL, NULL);
    CHECK(clEnqueueReadImage, d->queue, two, CL_TRUE, zero, e, 0, 0, back, 0, NULL, NULL);
    EXPECT(memcmp(data, back, pixels * 4) == 0, "%s: a buffer between changed it", shape->name);

    /* A region outside. */
    code = clEnqueueReadImage(d->queue, one, CL_TRUE, (size_t[3]){ 1, 0, 0 }, e, 0, 0, back, 0, NULL, NULL);
    EXPECT(code == CL_INVALID_VALUE, "%s: a region outside gives %d", shape->name, code);
    if (strict) {
        code = clEnqueueReadBuffer(d->queue, one, CL_TRUE, 0, 4, back, 0, NULL, NULL);
        EXPECT(code == CL_INVALID_MEM_OBJECT, "%s: an image read as a buffer gives %d", shape->name, code);
    }

    CHECK(clReleaseMemObject, buffer);
    CHECK(clReleaseMemObject, one);
    CHECK(clReleaseMemObject, two);
    free(gaps);
    free(data);
    free(back);
}

static void in_kernels(struct device *d)
{
    const size_t zero[3] = { 0, 0, 0 };
    const struct shape *shape = &SHAPES[2];
    cl_image_desc desc = desc_of(shape);
    cl_uint data[H][W], back[H][W];
    for (size_t y = 0; y < H; y++)
        for (size_t x = 0; x < W; x++)
            data[y][x] = pixel(x, y, 0);
    cl_program program = build(d, SOURCE);
    cl_kernel invert = kernel_of(program, "invert"), shifted = kernel_of(program, "shifted");
    cl_mem from = image_of(d, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, &desc, data);
    cl_mem to = image_of(d, CL_MEM_WRITE_ONLY, &desc, NULL);
    set_buffer(invert, 0, from);
    set_buffer(invert, 1, to);
    const size_t global[2] = { W, H };
    CHECK(clEnqueueNDRangeKernel, d->queue, invert, 2, NULL, global, NULL, 0, NULL, NULL);
    CHECK(clEnqueueReadImage, d->queue, to, CL_TRUE, zero, shape->extent, 0, 0, back, 0, NULL, NULL);
    for (size_t y = 0; y < H; y++)
        for (size_t x = 0; x < W; x++)
            EXPECT(back[y][x] == ~data[y][x], "(%zu, %zu) is %08x inverted %08x", x, y, data[y][x], back[y][x]);

    cl_int code = CL_SUCCESS;
    cl_sampler edge = clCreateSampler(d->context, CL_FALSE, CL_ADDRESS_CLAMP_TO_EDGE, CL_FILTER_NEAREST, &code);
    check("clCreateSampler", code);
    cl_mem sums = buffer_of(d, CL_MEM_WRITE_ONLY, sizeof back, NULL);
    cl_int by = 2;
    set_buffer(shifted, 0, from);
    CHECK(clSetKernelArg, shifted, 1, sizeof edge, &edge);
    set_buffer(shifted, 2, sums);
    CHECK(clSetKernelArg, shifted, 3, sizeof by, &by);
    CHECK(clEnqueueNDRangeKernel, d->queue, shifted, 2, NULL, global, NULL, 0, NULL, NULL);
    CHECK(clEnqueueReadBuffer, d->queue, sums, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL);
    for (size_t y = 0; y < H; y++)
        for (size_t x = 0; x < W; x++) {
            cl_uint want = data[y][x < 2 ? 0 : x - 2] & 0xff;
            EXPECT(back[y][x] == want, "(%zu, %zu) shifted is %u instead of %u", x, y, back[y][x], want);
        }

    /* Nothing but an image or a sampler is taken for one. */
    if (strict) {
        cl_mem garbage = (cl_mem)(void *)data;
        EXPECT(clSetKernelArg(invert, 0, sizeof garbage, &garbage) != CL_SUCCESS, "garbage was taken for an image");
        EXPECT(clSetKernelArg(invert, 0, sizeof sums, &sums) != CL_SUCCESS, "a buffer was taken for an image");
        EXPECT(clSetKernelArg(shifted, 1, sizeof garbage, &garbage) != CL_SUCCESS, "garbage was taken for a sampler");
        EXPECT(clSetKernelArg(shifted, 2, sizeof from, &from) != CL_SUCCESS, "an image was taken for a buffer");
    }

    CHECK(clReleaseSampler, edge);
    CHECK(clReleaseMemObject, sums);
    CHECK(clReleaseMemObject, from);
    CHECK(clReleaseMemObject, to);
    CHECK(clReleaseKernel, invert);
    CHECK(clReleaseKernel, shifted);
    CHECK(clReleaseProgram, program);
}

static void what_is_none(struct device *d)
{
    cl_int code = CL_SUCCESS;
    cl_image_desc desc = desc_of(&SHAPES[2]);
    const cl_image_format nonsense = { 17, 4 };
    clCreateImage(d->context, 0, &nonsense, &desc, NULL, &code);
    EXPECT(code == CL_INVALID_IMAGE_FORMAT_DESCRIPTOR, "a format of nothing gives %d", code);
    clCreateImage(d->context, 0, NULL, &desc, NULL, &code);
    EXPECT(code == CL_INVALID_IMAGE_FORMAT_DESCRIPTOR, "no format gives %d", code);
    clCreateImage(d->context, 0, &RGBA8, NULL, NULL, &code);
    EXPECT(code == CL_INVALID_IMAGE_DESCRIPTOR, "no descriptor gives %d", code);
    desc.image_width = (size_t)1 << 40;
    clCreateImage(d->context, 0, &RGBA8, &desc, NULL, &code);
    EXPECT(code == CL_INVALID_IMAGE_SIZE, "a width of 2^40 gives %d", code);
}

int main(int argc, char **argv)
{
    const struct option_spec options[] = { { "--strict", NULL, &strict } };
    OPTIONS(argc, argv, USAGE, options);
    deadline(120);
    struct device d = open_device(0);
    cl_bool supported = CL_FALSE;
    CHECK(clGetDeviceInfo, d.id, CL_DEVICE_IMAGE_SUPPORT, sizeof supported, &supported, NULL);
    if (!supported) {
        printf("%s has no images\n", d.name);
        return 0;
    }
    cl_uint formats = 0;
    CHECK(clGetSupportedImageFormats, d.context, CL_MEM_READ_WRITE, CL_MEM_OBJECT_IMAGE2D, 0, NULL, &formats);
    EXPECT(formats > 0, "no formats");
    for (size_t i = 0; i < sizeof SHAPES / sizeof *SHAPES; i++)
        all_ways(&d, &SHAPES[i]);
    in_kernels(&d);
    if (strict)
        what_is_none(&d);
    close_device(&d);
    printf("images of 5 kinds, %u formats, are right on %s\n", formats, d.name);
    return 0;
}
