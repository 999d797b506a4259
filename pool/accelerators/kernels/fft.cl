/* Fast Fourier transform of 1024 complex numbers (two floats each), one transform per work-group.
 *
 * Output k is the sum over n of input n times exp(-2 pi i k n / 1024), without a factor: Cooley and Tukey's algorithm with
 * radix 2, decimation in time. A stage makes transforms of twice the length out of pairs; the work-group does its
 * 512 butterflies, which share no number, and waits before the next stage. */

#define GROUP 256
#define POINTS 1024
#define STAGES 10

float2 product(float2 a, float2 b)
{
    return (float2)(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

/* The lowest STAGES bits of `index` in the other order. */
uint reversed(uint index)
{
    uint result = 0;
    for (uint bit = 0; bit < STAGES; bit++)
        result = (result << 1) | ((index >> bit) & 1);
    return result;
}

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void fft(global const float2 *restrict input, global float2 *restrict output, uint input_bytes)
{
    local float2 points[POINTS];
    const uint item = (uint)get_local_id(0);
    const size_t first = get_group_id(0) * POINTS;

    for (uint i = item; i < POINTS; i += GROUP)
        points[reversed(i)] = input[first + i];
    barrier(CLK_LOCAL_MEM_FENCE);

    for (uint stage = 0; stage < STAGES; stage++) {
        const uint half_length = 1u << stage;
        for (uint i = item; i < POINTS / 2; i += GROUP) {
            /* Butterfly k of its pair of transforms, which begins at 2 (i - k). */
            const uint k = i & (half_length - 1);
            const uint low = 2 * i - k;
            const uint high = low + half_length;
            const float angle = -(float)k / (float)half_length;
            const float2 turned = product((float2)(cospi(angle), sinpi(angle)), points[high]);
            points[high] = points[low] - turned;
            points[low] = points[low] + turned;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }

    for (uint i = item; i < POINTS; i += GROUP)
        output[first + i] = points[i];
}
