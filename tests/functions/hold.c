/* hold: keeps the board busy for a time that a modelled board has for each work-item. In: u32 items
 * (little-endian). Out: u32 items, u32 number of the bitstream. */
#include "function.h"

enum { INPUT = 4, OUTPUT = 8, MAX_ITEMS = 1 << 24 };

static void handle(void *state, const uint8_t *input, size_t length, struct reply *reply)
{
    uint32_t items = length == INPUT ? get_u32(input) : 0;
    if (items < 1 || items > MAX_ITEMS) {
        reply_error(reply, 400, "The input is the number of work-items (u32, little-endian), from 1 to %d\n", MAX_ITEMS);
        return;
    }
    struct job job = {
        .output_size = OUTPUT,
        .dimensions = 1,
        .global = { items },
        .local = { 1 },
        .content_type = "application/octet-stream",
    };
    function_run(state, &job, reply);
}

int main(void)
{
    static const uint8_t one_item[INPUT] = { 1 };
    return function_main_after("hold", handle, one_item, sizeof one_item);
}
