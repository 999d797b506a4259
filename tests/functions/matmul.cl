/* C = A x B for n x n floats, row by row, in 16 x 16 tiles held in local memory (B-10).
 * n need not be a multiple of 16: what lies outside counts as 0. */
#define TILE 16

kernel __attribute__((reqd_work_group_size(TILE, TILE, 1)))
void matmul(global const float *a, global const float *b, global float *c, uint n)
{
    local float ta[TILE][TILE];
    local float tb[TILE][TILE];
    const uint lx = (uint)get_local_id(0);
    const uint ly = (uint)get_local_id(1);
    const uint column = (uint)get_global_id(0);
    const uint row = (uint)get_global_id(1);
    float sum = 0.0f;

    for (uint base = 0; base < n; base += TILE) {
        ta[ly][lx] = (row < n && base + lx < n) ? a[(size_t)row * n + base + lx] : 0.0f;
        tb[ly][lx] = (base + ly < n && column < n) ? b[(size_t)(base + ly) * n + column] : 0.0f;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint k = 0; k < TILE; k++)
            sum += ta[ly][k] * tb[k][lx];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (row < n && column < n)
        c[(size_t)row * n + column] = sum;
}
