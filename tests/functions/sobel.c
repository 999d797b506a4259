/* sobel: edges of a picture. In: a binary netpbm file, P5 (gray) or P6 (RGB), 8 bits per channel.
 * Out: P5 of the same size. */
#include "function.h"

#include <stdio.h>

enum { GROUP_W = 32, GROUP_H = 8, MAX_SIDE = 8192 };

struct picture {
    cl_uint channels, width, height;
    const uint8_t *pixels;
};

/* Reads one number of the header, with the white space and comments before it; 0 if there is none. */
static cl_uint header_number(const uint8_t **at, const uint8_t *end)
{
    const uint8_t *p = *at;
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\r' || *p == '\n' || *p == '#')) {
        if (*p == '#')
            while (p < end && *p != '\n')
                p++;
        else
            p++;
    }
    cl_uint value = 0;
    while (p < end && *p >= '0' && *p <= '9' && value <= 65535)
        value = value * 10 + (cl_uint)(*p++ - '0');
    *at = p;
    return value;
}

static bool parse(const uint8_t *input, size_t length, struct picture *picture, struct reply *reply)
{
    const uint8_t *at = input + 2;
    const uint8_t *end = input + length;
    if (length < 2 || input[0] != 'P' || (input[1] != '5' && input[1] != '6')) {
        reply_error(reply, 400, "The input is a binary netpbm picture (P5 or P6)\n");
        return false;
    }
    picture->channels = input[1] == '5' ? 1 : 3;
    picture->width = header_number(&at, end);
    picture->height = header_number(&at, end);
    cl_uint max = header_number(&at, end);
    if (picture->width < 1 || picture->width > MAX_SIDE || picture->height < 1 || picture->height > MAX_SIDE
        || max != 255) {
        reply_error(reply, 400, "The picture is 1 to %d pixels wide and high and its largest value is 255\n", MAX_SIDE);
        return false;
    }
    /* One white-space byte ends the header. */
    size_t left = at < end ? (size_t)(end - at) - 1 : 0;
    size_t size = (size_t)picture->width * picture->height * picture->channels;
    if (left != size) {
        reply_error(reply, 400, "The picture has %zu bytes of pixels, not %zu\n", left, size);
        return false;
    }
    picture->pixels = at + 1;
    return true;
}

static void handle(void *state, const uint8_t *input, size_t length, struct reply *reply)
{
    struct picture in;
    if (!parse(input, length, &in, reply))
        return;
    char header[40];
    snprintf(header, sizeof header, "P5\n%u %u\n255\n", (unsigned)in.width, (unsigned)in.height);
    size_t pixels = (size_t)in.width * in.height;
    struct job job = {
        .input_count = 1,
        .inputs = { in.pixels },
        .input_sizes = { pixels * in.channels },
        .output_size = pixels,
        .number_count = 3,
        .numbers = { in.width, in.height, in.channels },
        .dimensions = 2,
        .global = { round_up(in.width, GROUP_W), round_up(in.height, GROUP_H) },
        .local = { GROUP_W, GROUP_H },
        .prefix = header,
        .content_type = "image/x-portable-graymap",
    };
    function_run(state, &job, reply);
}

int main(void)
{
    return function_main("sobel", handle);
}
