/* Value of a portfolio of European options in each of many scenarios, by the formula of Black and Scholes; one scenario per
 * work-item. The value at risk is a quantile of these values (Q-7).
 *
 * A block of the input is a scenario of 4 floats: spot price, what is added to each volatility, rate per year, years that have
 * passed. Its output is one float, the value of the portfolio.
 * arguments: 64 options of 5 floats: strike, years, volatility, number of calls, number of puts. */

#define GROUP 64
#define OPTIONS 64
#define SCENARIO_FLOATS 4
#define OPTION_FLOATS 5

/* Time and volatility that an option has at least; without them the formula divides by zero. */
#define LEAST_YEARS 1e-4f
#define LEAST_VOLATILITY 1e-3f

/* Cumulative normal distribution, Abramowitz and Stegun 26.2.17 (error below 7.5e-8). */
float normal(float x)
{
    const float k = 1.0f / (1.0f + 0.2316419f * fabs(x));
    const float poly = k * (0.319381530f + k * (-0.356563782f
                     + k * (1.781477937f + k * (-1.821255978f + k * 1.330274429f))));
    const float tail = 0.3989422804f * exp(-0.5f * x * x) * poly;
    return x < 0.0f ? tail : 1.0f - tail;
}

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void value_at_risk(global const float *restrict input, global float *restrict output, uint input_bytes,
                   global const float *restrict arguments)
{
    const uint i = (uint)get_global_id(0);
    if (i >= input_bytes / (SCENARIO_FLOATS * sizeof(float)))
        return;
    global const float *scenario = input + (size_t)i * SCENARIO_FLOATS;
    const float spot = scenario[0];
    const float volatility_shift = scenario[1];
    const float rate = scenario[2];
    const float years_passed = scenario[3];

    float value = 0.0f;
    for (uint option = 0; option < OPTIONS; option++) {
        global const float *terms = arguments + option * OPTION_FLOATS;
        const float strike = terms[0];
        const float years = fmax(terms[1] - years_passed, LEAST_YEARS);
        const float volatility = fmax(terms[2] + volatility_shift, LEAST_VOLATILITY);
        const float calls = terms[3];
        const float puts = terms[4];

        const float spread = volatility * sqrt(years);
        const float d1 = (log(spot / strike) + (rate + 0.5f * volatility * volatility) * years) / spread;
        const float d2 = d1 - spread;
        const float present = strike * exp(-rate * years);
        const float call = spot * normal(d1) - present * normal(d2);
        const float put = present * normal(-d2) - spot * normal(-d1);
        /* The strike of an unused place is zero, and its prices are no numbers. */
        value += calls != 0.0f ? calls * call : 0.0f;
        value += puts != 0.0f ? puts * put : 0.0f;
    }
    output[i] = value;
}
