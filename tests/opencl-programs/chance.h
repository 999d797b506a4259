/* The random numbers of the random programs: the same for the same seed on every machine. Included after program.h. */
#ifndef CHANCE_H
#define CHANCE_H

static uint64_t state;

static uint32_t chance(uint32_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 16) % below;
}

static void seed_chance(unsigned long seed)
{
    state = seed * 0x9E3779B97F4A7C15u | 1;
    for (size_t i = 0; i < 8; i++)
        chance(2);
}

#endif
