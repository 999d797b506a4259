/* The kernels of a convolutional network. A tensor is channels x side x side floats, channel by channel, row by row. A plane
 * is the number of a channel, a word that is a keyword of FPGA compilers. */

/* One output per work-item. Weights are out x in x size x size, then a bias per output channel. Outside the input is 0. */
kernel void convolve(global const float *in, global const float *weights, global float *out, uint in_channels,
                     uint in_side, uint size, uint stride, uint padding)
{
    const uint x = (uint)get_global_id(0), y = (uint)get_global_id(1), plane = (uint)get_global_id(2);
    const uint side = (uint)get_global_size(0), channels = (uint)get_global_size(2);
    const uint weights_of_channel = in_channels * size * size;
    global const float *own = weights + (size_t)plane * weights_of_channel;
    float sum = weights[(size_t)channels * weights_of_channel + plane];
    for (uint c = 0; c < in_channels; c++)
        for (uint i = 0; i < size; i++)
            for (uint j = 0; j < size; j++) {
                /* Left of and above the input the difference wraps, and is no index either. */
                const uint row = y * stride + i - padding, column = x * stride + j - padding;
                if (row < in_side && column < in_side)
                    sum += own[(c * size + i) * size + j] * in[((size_t)c * in_side + row) * in_side + column];
            }
    out[((size_t)plane * side + y) * side + x] = fmax(sum, 0.0f);
}

/* Local response normalisation over five channels, with the constants of AlexNet. */
kernel void normalise(global const float *in, global float *out)
{
    const uint at = (uint)get_global_id(0), plane = (uint)get_global_id(1);
    const uint pixels = (uint)get_global_size(0), channels = (uint)get_global_size(1);
    const uint first = plane < 2 ? 0 : plane - 2;
    const uint last = min(plane + 2, channels - 1);
    float squares = 0.0f;
    for (uint c = first; c <= last; c++) {
        const float value = in[(size_t)c * pixels + at];
        squares += value * value;
    }
    out[(size_t)plane * pixels + at] = in[(size_t)plane * pixels + at] * pow(2.0f + 1e-4f * squares, -0.75f);
}

/* The largest of size x size inputs. */
kernel void pool(global const float *in, global float *out, uint in_side, uint size, uint stride)
{
    const uint x = (uint)get_global_id(0), y = (uint)get_global_id(1), plane = (uint)get_global_id(2);
    const uint side = (uint)get_global_size(0);
    float most = -INFINITY;
    for (uint i = 0; i < size; i++)
        for (uint j = 0; j < size; j++)
            most = fmax(most, in[((size_t)plane * in_side + y * stride + i) * in_side + x * stride + j]);
    out[((size_t)plane * side + y) * side + x] = most;
}

/* A fully connected layer. Weights are outputs x inputs, then a bias per output. The last layer keeps negative sums. */
kernel void dense(global const float *in, global const float *weights, global float *out, uint inputs, uint is_last)
{
    const uint output = (uint)get_global_id(0);
    const uint outputs = (uint)get_global_size(0);
    float sum = weights[(size_t)outputs * inputs + output];
    for (uint i = 0; i < inputs; i++)
        sum += weights[(size_t)output * inputs + i] * in[i];
    out[output] = is_last ? sum : fmax(sum, 0.0f);
}
