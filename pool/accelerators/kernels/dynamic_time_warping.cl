/* Distance of series from a query by dynamic time warping (Sakoe and Chiba, without a band), one series per work-item.
 *
 * A warping path goes from the first pair of values to the last one, in steps of one in the series, in the query, or in both. The
 * distance is the least sum of absolute differences along a path.
 *
 * A block of the input is a series of 128 floats, its output one float.
 * arguments: the query, 128 floats. */

#define GROUP 16
#define LENGTH 128

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void dynamic_time_warping(global const float *restrict input, global float *restrict output, uint input_bytes,
                          global const float *restrict arguments)
{
    const uint i = (uint)get_global_id(0);
    if (i >= input_bytes / (LENGTH * sizeof(float)))
        return;
    global const float *series = input + (size_t)i * LENGTH;

    /* Cell (s, q) is the distance of the first s + 1 values from the first q + 1; a row of cells is kept. */
    float row[LENGTH];
    for (uint q = 0; q < LENGTH; q++)
        row[q] = INFINITY;
    for (uint s = 0; s < LENGTH; s++) {
        float left = INFINITY;
        float above_left = s == 0 ? 0.0f : INFINITY;
        for (uint q = 0; q < LENGTH; q++) {
            const float above = row[q];
            left = fabs(series[s] - arguments[q]) + fmin(fmin(left, above), above_left);
            row[q] = left;
            above_left = above;
        }
    }
    output[i] = row[LENGTH - 1];
}
