/* SHA-256 (FIPS 180-4) of many messages of one size, one message per work-item (P-8). */

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

/* rotate() turns to the left. */
#define RIGHT(x, n) rotate((uint)(x), (uint)(32 - (n)))

/* Byte `at` of the padded message. */
uint padded(global const uchar *message, uint size, uint blocks, uint at)
{
    if (at < size)
        return message[at];
    if (at == size)
        return 0x80;
    const uint from_end = blocks * 64 - 1 - at;
    /* The last eight bytes hold the length in bits; sizes of 2^29 bytes and more are not accepted. */
    return from_end < 4 ? ((size << 3) >> (from_end * 8)) & 0xff : 0;
}

kernel void sha256(global const uchar *messages, global uchar *digests, uint size, uint count)
{
    const uint i = (uint)get_global_id(0);
    if (i >= count)
        return;
    global const uchar *message = messages + (size_t)i * size;
    const uint blocks = (size + 8) / 64 + 1;
    uint h[8] = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19 };

    for (uint block = 0; block < blocks; block++) {
        uint w[64];
        for (uint t = 0; t < 16; t++) {
            const uint at = block * 64 + t * 4;
            w[t] = padded(message, size, blocks, at) << 24 | padded(message, size, blocks, at + 1) << 16
                 | padded(message, size, blocks, at + 2) << 8 | padded(message, size, blocks, at + 3);
        }
        for (uint t = 16; t < 64; t++) {
            const uint s0 = RIGHT(w[t - 15], 7) ^ RIGHT(w[t - 15], 18) ^ (w[t - 15] >> 3);
            const uint s1 = RIGHT(w[t - 2], 17) ^ RIGHT(w[t - 2], 19) ^ (w[t - 2] >> 10);
            w[t] = w[t - 16] + s0 + w[t - 7] + s1;
        }
        uint a = h[0], b = h[1], c = h[2], d = h[3], e = h[4], f = h[5], g = h[6], last = h[7];
        for (uint t = 0; t < 64; t++) {
            const uint s1 = RIGHT(e, 6) ^ RIGHT(e, 11) ^ RIGHT(e, 25);
            const uint t1 = last + s1 + ((e & f) ^ (~e & g)) + K[t] + w[t];
            const uint s0 = RIGHT(a, 2) ^ RIGHT(a, 13) ^ RIGHT(a, 22);
            const uint t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
            last = g;
            g = f;
            f = e;
            e = d + t1;
            d = c;
            c = b;
            b = a;
            a = t1 + t2;
        }
        h[0] += a; h[1] += b; h[2] += c; h[3] += d;
        h[4] += e; h[5] += f; h[6] += g; h[7] += last;
    }
    for (uint t = 0; t < 32; t++)
        digests[(size_t)i * 32 + t] = (uchar)(h[t / 4] >> (24 - 8 * (t % 4)));
}
