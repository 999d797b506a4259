/* AES-256 in counter mode (FIPS 197, NIST SP 800-38A), one block of 16 bytes per work-item.
 *
 * Each work-item encrypts a counter, and combines the result with its block of the input. So blocks need nothing of each
 * other, and decryption is the same as encryption.
 *
 * arguments: 32 bytes key, 16 bytes counter block of the stream's first block.
 * state: the number of the stream's blocks before this chunk.
 *
 * A column of the cipher's state is a word whose lowest byte is row 0. */

#define GROUP 256
#define ROUNDS 14
#define KEY_WORDS 8

constant uchar SBOX[256] = {
    0x63, 0x7c, 0x77, 0x7b, 0xf2, 0x6b, 0x6f, 0xc5, 0x30, 0x01, 0x67, 0x2b, 0xfe, 0xd7, 0xab, 0x76,
    0xca, 0x82, 0xc9, 0x7d, 0xfa, 0x59, 0x47, 0xf0, 0xad, 0xd4, 0xa2, 0xaf, 0x9c, 0xa4, 0x72, 0xc0,
    0xb7, 0xfd, 0x93, 0x26, 0x36, 0x3f, 0xf7, 0xcc, 0x34, 0xa5, 0xe5, 0xf1, 0x71, 0xd8, 0x31, 0x15,
    0x04, 0xc7, 0x23, 0xc3, 0x18, 0x96, 0x05, 0x9a, 0x07, 0x12, 0x80, 0xe2, 0xeb, 0x27, 0xb2, 0x75,
    0x09, 0x83, 0x2c, 0x1a, 0x1b, 0x6e, 0x5a, 0xa0, 0x52, 0x3b, 0xd6, 0xb3, 0x29, 0xe3, 0x2f, 0x84,
    0x53, 0xd1, 0x00, 0xed, 0x20, 0xfc, 0xb1, 0x5b, 0x6a, 0xcb, 0xbe, 0x39, 0x4a, 0x4c, 0x58, 0xcf,
    0xd0, 0xef, 0xaa, 0xfb, 0x43, 0x4d, 0x33, 0x85, 0x45, 0xf9, 0x02, 0x7f, 0x50, 0x3c, 0x9f, 0xa8,
    0x51, 0xa3, 0x40, 0x8f, 0x92, 0x9d, 0x38, 0xf5, 0xbc, 0xb6, 0xda, 0x21, 0x10, 0xff, 0xf3, 0xd2,
    0xcd, 0x0c, 0x13, 0xec, 0x5f, 0x97, 0x44, 0x17, 0xc4, 0xa7, 0x7e, 0x3d, 0x64, 0x5d, 0x19, 0x73,
    0x60, 0x81, 0x4f, 0xdc, 0x22, 0x2a, 0x90, 0x88, 0x46, 0xee, 0xb8, 0x14, 0xde, 0x5e, 0x0b, 0xdb,
    0xe0, 0x32, 0x3a, 0x0a, 0x49, 0x06, 0x24, 0x5c, 0xc2, 0xd3, 0xac, 0x62, 0x91, 0x95, 0xe4, 0x79,
    0xe7, 0xc8, 0x37, 0x6d, 0x8d, 0xd5, 0x4e, 0xa9, 0x6c, 0x56, 0xf4, 0xea, 0x65, 0x7a, 0xae, 0x08,
    0xba, 0x78, 0x25, 0x2e, 0x1c, 0xa6, 0xb4, 0xc6, 0xe8, 0xdd, 0x74, 0x1f, 0x4b, 0xbd, 0x8b, 0x8a,
    0x70, 0x3e, 0xb5, 0x66, 0x48, 0x03, 0xf6, 0x0e, 0x61, 0x35, 0x57, 0xb9, 0x86, 0xc1, 0x1d, 0x9e,
    0xe1, 0xf8, 0x98, 0x11, 0x69, 0xd9, 0x8e, 0x94, 0x9b, 0x1e, 0x87, 0xe9, 0xce, 0x55, 0x28, 0xdf,
    0x8c, 0xa1, 0x89, 0x0d, 0xbf, 0xe6, 0x42, 0x68, 0x41, 0x99, 0x2d, 0x0f, 0xb0, 0x54, 0xbb, 0x16,
};

/* The word turned to the right by `bytes` bytes: row r gets what row r + bytes had. */
uint turn(uint word, uint bytes)
{
    return rotate(word, 32 - 8 * bytes);
}

/* The four bytes, each from the row of its own argument, through the S-box. */
uint substitute(uint row_0, uint row_1, uint row_2, uint row_3)
{
    return (uint)SBOX[row_0 & 0xff] | ((uint)SBOX[(row_1 >> 8) & 0xff] << 8)
         | ((uint)SBOX[(row_2 >> 16) & 0xff] << 16) | ((uint)SBOX[row_3 >> 24] << 24);
}

/* SubBytes and ShiftRows: row r of a column comes from the column r further on. */
uint4 substitute_and_shift(uint4 s)
{
    return (uint4)(substitute(s.x, s.y, s.z, s.w), substitute(s.y, s.z, s.w, s.x),
                   substitute(s.z, s.w, s.x, s.y), substitute(s.w, s.x, s.y, s.z));
}

/* Each byte of the words times 2 in GF(2^8), modulo x^8 + x^4 + x^3 + x + 1. */
uint4 times_2(uint4 words)
{
    return ((words & 0x7f7f7f7f) << 1) ^ (((words >> 7) & 0x01010101) * 0x1b);
}

/* MixColumns: row r becomes 2 a[r] + 3 a[r + 1] + a[r + 2] + a[r + 3]. */
uint4 mix_columns(uint4 s)
{
    const uint4 doubled = times_2(s);
    return doubled ^ rotate(s ^ doubled, (uint4)(24)) ^ rotate(s, (uint4)(16)) ^ rotate(s, (uint4)(8));
}

/* The words of all round keys, 4 a round. */
void expand_key(global const uchar *key, local uint *words)
{
    uint round_constant = 1;
    for (uint i = 0; i < 4 * (ROUNDS + 1); i++) {
        if (i < KEY_WORDS) {
            words[i] = (uint)key[4 * i] | ((uint)key[4 * i + 1] << 8) | ((uint)key[4 * i + 2] << 16)
                     | ((uint)key[4 * i + 3] << 24);
            continue;
        }
        uint word = words[i - 1];
        if (i % KEY_WORDS == 0) {
            word = turn(word, 1);
            word = substitute(word, word, word, word) ^ round_constant;
            /* 0x40 at most: AES-256 uses seven constants. */
            round_constant <<= 1;
        } else if (i % KEY_WORDS == 4) {
            word = substitute(word, word, word, word);
        }
        words[i] = words[i - KEY_WORDS] ^ word;
    }
}

/* 8 bytes as a number, the highest byte first. */
ulong big_endian(global const uchar *bytes)
{
    ulong number = 0;
    for (uint i = 0; i < 8; i++)
        number = (number << 8) | bytes[i];
    return number;
}

/* The word with its bytes in the other order. */
uint swap(uint word)
{
    return as_uint(as_uchar4(word).wzyx);
}

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void aes_256_ctr(global const uchar *restrict input, global uchar *restrict output, uint input_bytes,
                 global const ulong *restrict state, global ulong *restrict next_state, uint is_last,
                 global const uchar *restrict arguments)
{
    /* One work-item expands the key for its group. */
    local uint round_keys[4 * (ROUNDS + 1)];
    if (get_local_id(0) == 0)
        expand_key(arguments, round_keys);
    barrier(CLK_LOCAL_MEM_FENCE);

    const uint blocks = (input_bytes + 15) / 16;
    const uint i = (uint)get_global_id(0);
    if (i == 0)
        next_state[0] = state[0] + blocks;
    if (i >= blocks)
        return;

    /* The counter block is one number of 128 bits, the highest byte first. */
    const ulong blocks_before = state[0] + i;
    const ulong low = big_endian(arguments + 40) + blocks_before;
    const ulong high = big_endian(arguments + 32) + (low < blocks_before ? 1 : 0);
    uint4 s = (uint4)(swap((uint)(high >> 32)), swap((uint)high), swap((uint)(low >> 32)), swap((uint)low));

    s ^= vload4(0, round_keys);
    for (uint round = 1; round < ROUNDS; round++)
        s = mix_columns(substitute_and_shift(s)) ^ vload4(round, round_keys);
    s = substitute_and_shift(s) ^ vload4(ROUNDS, round_keys);

    const uint at = 16 * i;
    if (at + 16 <= input_bytes) {
        vstore4(vload4(i, (global const uint *)input) ^ s, i, (global uint *)output);
    } else {
        /* The last block of the stream may be shorter. */
        const uint key_stream[4] = { s.x, s.y, s.z, s.w };
        for (uint b = 0; b < 16; b++)
            if (at + b < input_bytes)
                output[at + b] = input[at + b] ^ (uchar)(key_stream[b / 4] >> (8 * (b % 4)));
    }
}
