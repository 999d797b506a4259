/* Breadth-first search by levels. Two launches a level: `expand` marks the neighbours of the frontier that have no level
 * yet, and `advance` makes them the next frontier. */
#define UNREACHED 0xffffffffu

/* The edges of node i lead to targets[offsets[i]] .. targets[offsets[i + 1] - 1]. */
kernel void expand(global const uint *offsets, global const uint *targets, global const uint *frontier,
                   global const uint *levels, global uint *next, uint nodes)
{
    const uint node = (uint)get_global_id(0);
    if (node >= nodes || !frontier[node])
        return;
    for (uint edge = offsets[node]; edge < offsets[node + 1]; edge++) {
        const uint target = targets[edge];
        /* Several work-items may write this word: all write the same value. */
        if (levels[target] == UNREACHED)
            next[target] = 1;
    }
}

/* Sets *found if the new frontier has a node. */
kernel void advance(global uint *frontier, global uint *next, global uint *levels, global uint *found, uint level,
                    uint nodes)
{
    const uint node = (uint)get_global_id(0);
    if (node >= nodes)
        return;
    frontier[node] = next[node];
    if (next[node]) {
        next[node] = 0;
        levels[node] = level;
        *found = 1;
    }
}
