/* matmul: C = A x B for n x n floats. In: u32 n, A, B. Out: C. Little-endian, row by row. */
#include "function.h"

enum { TILE = 16, MAX_N = 2048 };

static void handle(void *state, const uint8_t *input, size_t length, struct reply *reply)
{
    uint32_t n = length >= 4 ? get_u32(input) : 0;
    if (n < 1 || n > MAX_N) {
        reply_error(reply, 400, "The input starts with n (u32, little-endian) from 1 to %d\n", MAX_N);
        return;
    }
    size_t size = (size_t)n * n * sizeof(cl_float);
    if (length != 4 + 2 * size) {
        reply_error(reply, 400, "For n = %u the input has 4 + 2 x %zu bytes, not %zu\n", (unsigned)n, size, length);
        return;
    }
    size_t side = round_up(n, TILE);
    struct job job = {
        .input_count = 2,
        .inputs = { input + 4, input + 4 + size },
        .input_sizes = { size, size },
        .output_size = size,
        .number_count = 1,
        .numbers = { n },
        .dimensions = 2,
        .global = { side, side },
        .local = { TILE, TILE },
        .content_type = "application/octet-stream",
    };
    function_run(state, &job, reply);
}

int main(void)
{
    return function_main("matmul", handle);
}
