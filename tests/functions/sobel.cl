/* Sobel edges of an 8-bit image with 1 (gray) or 3 (RGB) channels, in 32 x 8 work-groups (B-10).
 * Integers only, so that every device gives the same picture: |gx| + |gy|, at most 255. */
#define GROUP_W 32
#define GROUP_H 8
#define TILE_W (GROUP_W + 2)
#define TILE_H (GROUP_H + 2)

int gray_at(global const uchar *in, int x, int y, int width, int height, int channels)
{
    /* The border pixels go on outwards. */
    x = clamp(x, 0, width - 1);
    y = clamp(y, 0, height - 1);
    const size_t at = ((size_t)y * (size_t)width + (size_t)x) * (size_t)channels;
    if (channels == 1)
        return in[at];
    return (77 * in[at] + 150 * in[at + 1] + 29 * in[at + 2]) >> 8;
}

kernel __attribute__((reqd_work_group_size(GROUP_W, GROUP_H, 1)))
void sobel(global const uchar *in, global uchar *out, int width, int height, int channels)
{
    local int tile[TILE_H * TILE_W];
    const int lx = (int)get_local_id(0);
    const int ly = (int)get_local_id(1);
    const int left = (int)get_group_id(0) * GROUP_W - 1;
    const int top = (int)get_group_id(1) * GROUP_H - 1;

    for (int i = ly * GROUP_W + lx; i < TILE_W * TILE_H; i += GROUP_W * GROUP_H)
        tile[i] = gray_at(in, left + i % TILE_W, top + i / TILE_W, width, height, channels);
    barrier(CLK_LOCAL_MEM_FENCE);

    const int x = (int)get_global_id(0);
    const int y = (int)get_global_id(1);
    if (x < width && y < height) {
        local const int *a = &tile[ly * TILE_W + lx];
        local const int *b = a + TILE_W;
        local const int *c = b + TILE_W;
        const int gx = a[2] - a[0] + 2 * (b[2] - b[0]) + c[2] - c[0];
        const int gy = c[0] + 2 * c[1] + c[2] - a[0] - 2 * a[1] - a[2];
        out[(size_t)y * (size_t)width + (size_t)x] = (uchar)min((int)(abs(gx) + abs(gy)), 255);
    }
}
