/* sha256: digests of many messages of one size. In: u32 size, u32 count (little-endian), the messages
 * one after another. Out: 32 bytes per message. */
#include "function.h"

enum { GROUP = 64, DIGEST = 32, HEAD = 8, MAX_SIZE = 1 << 20, MAX_COUNT = 1 << 20 };

static void handle(void *state, const uint8_t *input, size_t length, struct reply *reply)
{
    uint32_t size = length >= HEAD ? get_u32(input) : 0;
    uint32_t count = length >= HEAD ? get_u32(input + 4) : 0;
    if (size < 1 || size > MAX_SIZE || count < 1 || count > MAX_COUNT) {
        reply_error(reply, 400, "The input starts with size and count (u32, little-endian), each from 1 to %d\n",
                    MAX_SIZE);
        return;
    }
    size_t bytes = (size_t)size * count;
    if (length != HEAD + bytes) {
        reply_error(reply, 400, "For %u messages of %u bytes the input has %d + %zu bytes, not %zu\n", (unsigned)count,
                    (unsigned)size, HEAD, bytes, length);
        return;
    }
    struct job job = {
        .input_count = 1,
        .inputs = { input + HEAD },
        .input_sizes = { bytes },
        .output_size = (size_t)count * DIGEST,
        .number_count = 2,
        .numbers = { size, count },
        .dimensions = 1,
        .global = { round_up(count, GROUP) },
        .local = { GROUP },
        .content_type = "application/octet-stream",
    };
    function_run(state, &job, reply);
}

int main(void)
{
    return function_main("sha256", handle);
}
