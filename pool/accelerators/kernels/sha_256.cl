/* SHA-256 (FIPS 180-4) of one stream, by one work-item: each block needs the hash of the blocks before it.
 *
 * state: words 0 and 1 are the bytes of the stream before this chunk, low word first; words 2 to 9 are the hash of its
 * blocks. Zero bytes mean that the stream begins, and that the hash is the initial one.
 *
 * Only the last chunk writes output, 32 bytes, and only its length may be other than a multiple of 64. */

#define BLOCK_BYTES 64

constant uint INITIAL_HASH[8] = {
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
};

constant uint K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

uint turn_right(uint word, uint bits)
{
    return rotate(word, 32 - bits);
}

/* Byte `at` of the last blocks of the stream: the chunk's bytes, then 0x80, then zeros, and in the last 8 of `padded_bytes` the
 * length of the stream in bits. */
uint padded_byte(global const uchar *input, uint input_bytes, uint padded_bytes, ulong stream_bits, uint at)
{
    if (at < input_bytes)
        return input[at];
    if (at == input_bytes)
        return 0x80;
    const uint from_end = padded_bytes - 1 - at;
    return from_end < 8 ? (uint)(stream_bits >> (8 * from_end)) & 0xff : 0;
}

/* Adds one block of 16 words to the hash. */
void compress(uint *hash, uint *words)
{
    uint a = hash[0], b = hash[1], c = hash[2], d = hash[3];
    uint e = hash[4], f = hash[5], g = hash[6], h = hash[7];
    for (uint t = 0; t < 64; t++) {
        /* Only the last 16 words of the schedule are needed: word t takes the place of word t - 16. */
        if (t >= 16) {
            const uint before_2 = words[(t - 2) % 16];
            const uint before_15 = words[(t - 15) % 16];
            const uint s1 = turn_right(before_2, 17) ^ turn_right(before_2, 19) ^ (before_2 >> 10);
            const uint s0 = turn_right(before_15, 7) ^ turn_right(before_15, 18) ^ (before_15 >> 3);
            words[t % 16] += s1 + words[(t - 7) % 16] + s0;
        }
        const uint e_sum = turn_right(e, 6) ^ turn_right(e, 11) ^ turn_right(e, 25);
        const uint choice = (e & f) ^ (~e & g);
        const uint t1 = h + e_sum + choice + K[t] + words[t % 16];
        const uint a_sum = turn_right(a, 2) ^ turn_right(a, 13) ^ turn_right(a, 22);
        const uint majority = (a & b) ^ (a & c) ^ (b & c);
        h = g;
        g = f;
        f = e;
        e = d + t1;
        d = c;
        c = b;
        b = a;
        a = t1 + a_sum + majority;
    }
    hash[0] += a; hash[1] += b; hash[2] += c; hash[3] += d;
    hash[4] += e; hash[5] += f; hash[6] += g; hash[7] += h;
}

kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void sha_256(global const uchar *restrict input, global uchar *restrict output, uint input_bytes,
             global const uint *restrict state, global uint *restrict next_state, uint is_last)
{
    const ulong bytes_before = ((ulong)state[1] << 32) | state[0];
    const ulong bytes = bytes_before + input_bytes;
    uint hash[8];
    for (uint i = 0; i < 8; i++)
        hash[i] = bytes_before == 0 ? INITIAL_HASH[i] : state[2 + i];

    /* The padding takes at least 9 bytes: 0x80 and the length. */
    const uint blocks = is_last ? (input_bytes + 8) / BLOCK_BYTES + 1 : input_bytes / BLOCK_BYTES;
    for (uint block = 0; block < blocks; block++) {
        const uint at = block * BLOCK_BYTES;
        uint words[16];
        if (at + BLOCK_BYTES <= input_bytes) {
            for (uint t = 0; t < 16; t++)
                words[t] = as_uint(vload4(t, input + at).wzyx);
        } else {
            for (uint t = 0; t < 16; t++) {
                words[t] = 0;
                for (uint b = 0; b < 4; b++)
                    words[t] = (words[t] << 8)
                             | padded_byte(input, input_bytes, blocks * BLOCK_BYTES, 8 * bytes, at + 4 * t + b);
            }
        }
        compress(hash, words);
    }

    next_state[0] = (uint)bytes;
    next_state[1] = (uint)(bytes >> 32);
    for (uint i = 0; i < 8; i++)
        next_state[2 + i] = hash[i];
    if (is_last)
        for (uint i = 0; i < 32; i++)
            output[i] = (uchar)(hash[i / 4] >> (24 - 8 * (i % 4)));
}
