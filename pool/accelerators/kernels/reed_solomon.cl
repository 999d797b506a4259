/* Reed-Solomon erasure code over GF(2^8), modulo x^8 + x^4 + x^3 + x^2 + 1: 4 shards from 10, 4 bytes of each shard per
 * work-item.
 *
 * A block of the input is 10 shards of 4096 bytes, a block of the output 4 shards. Byte n of an output shard is the sum of
 * the input shards' bytes n, each times a coefficient. With the coefficients of the code the output is the parity of the
 * data; with those of its inverse the same kernel makes lost shards out of 10 that are left.
 *
 * arguments: 4 rows of 10 coefficients. */

#define GROUP 256
#define SHARDS_IN 10
#define SHARDS_OUT 4
#define SHARD_WORDS 1024

/* Each byte of the word times 2. */
uint times_2(uint word)
{
    return ((word & 0x7f7f7f7f) << 1) ^ (((word >> 7) & 0x01010101) * 0x1d);
}

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void reed_solomon(global const uint *restrict input, global uint *restrict output, uint input_bytes,
                  global const uchar *restrict arguments)
{
    /* A block has 4 groups of work-items, so that no work-item is without a block. */
    const uint block = (uint)get_global_id(0) / SHARD_WORDS;
    const uint word = (uint)get_global_id(0) % SHARD_WORDS;
    uint sums[SHARDS_OUT] = { 0, 0, 0, 0 };
    for (uint shard = 0; shard < SHARDS_IN; shard++) {
        /* A coefficient is a sum of powers of 2, and so is the product: no multiplier, no table. */
        uint multiple = input[(block * SHARDS_IN + shard) * SHARD_WORDS + word];
        for (uint bit = 0; bit < 8; bit++) {
            for (uint row = 0; row < SHARDS_OUT; row++) {
                const uint coefficient = arguments[row * SHARDS_IN + shard];
                sums[row] ^= (coefficient >> bit) & 1 ? multiple : 0;
            }
            multiple = times_2(multiple);
        }
    }
    for (uint row = 0; row < SHARDS_OUT; row++)
        output[(block * SHARDS_OUT + row) * SHARD_WORDS + word] = sums[row];
}
