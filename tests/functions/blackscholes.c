/* blackscholes: prices of European options. In: u32 count, then per option five floats: spot, strike,
 * rate, volatility, years. Out: per option two floats: call, put. Little-endian. */
#include "function.h"

enum { GROUP = 64, IN_FLOATS = 5, OUT_FLOATS = 2, MAX_OPTIONS = 1 << 21 };

static void handle(void *state, const uint8_t *input, size_t length, struct reply *reply)
{
    uint32_t count = length >= 4 ? get_u32(input) : 0;
    if (count < 1 || count > MAX_OPTIONS) {
        reply_error(reply, 400, "The input starts with a count (u32, little-endian) from 1 to %d\n", MAX_OPTIONS);
        return;
    }
    size_t size = (size_t)count * IN_FLOATS * sizeof(cl_float);
    if (length != 4 + size) {
        reply_error(reply, 400, "For %u options the input has 4 + %zu bytes, not %zu\n", (unsigned)count, size, length);
        return;
    }
    struct job job = {
        .input_count = 1,
        .inputs = { input + 4 },
        .input_sizes = { size },
        .output_size = (size_t)count * OUT_FLOATS * sizeof(cl_float),
        .number_count = 1,
        .numbers = { count },
        .dimensions = 1,
        .global = { round_up(count, GROUP) },
        .local = { GROUP },
        .content_type = "application/octet-stream",
    };
    function_run(state, &job, reply);
}

int main(void)
{
    return function_main("blackscholes", handle);
}
