/* Prices of European options after Black and Scholes (the workload of Q-7), one option per work-item.
 * In: spot, strike, rate, volatility, years. Out: call, put. */

/* Cumulative normal distribution, Abramowitz and Stegun 26.2.17 (error below 1e-7). */
float normal(float x)
{
    const float k = 1.0f / (1.0f + 0.2316419f * fabs(x));
    const float poly = k * (0.319381530f + k * (-0.356563782f + k * (1.781477937f + k * (-1.821255978f + k * 1.330274429f))));
    const float tail = 0.3989422804f * exp(-0.5f * x * x) * poly;
    return x < 0.0f ? tail : 1.0f - tail;
}

kernel void blackscholes(global const float *options, global float *prices, uint count)
{
    const uint i = (uint)get_global_id(0);
    if (i >= count)
        return;
    global const float *o = options + (size_t)i * 5;
    const float spot = o[0];
    const float strike = o[1];
    const float rate = o[2];
    const float volatility = o[3];
    const float years = o[4];

    const float spread = volatility * sqrt(years);
    const float d1 = (log(spot / strike) + (rate + 0.5f * volatility * volatility) * years) / spread;
    const float d2 = d1 - spread;
    const float present = strike * exp(-rate * years);
    prices[(size_t)i * 2] = spot * normal(d1) - present * normal(d2);
    prices[(size_t)i * 2 + 1] = present * normal(-d2) - spot * normal(-d1);
}
