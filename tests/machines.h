/* SPDX-License-Identifier: MIT */
/* Machines as made-up trees that stand in for /sys, and a runtime that stands still on them: Ps without threads. */
#ifndef MACHINES_H
#define MACHINES_H

#include "runs.h"
#include "topology.h"
#include "trees.h"
#include "whitebox.h"
#include <limits.h>
#include <stdarg.h>

/* ---- machines --------------------------------------------------------------------------------------------------- */

struct machine {
    int nodes, caches, cores, threads; /* of the machine, of a node, of a cache, of a core */
};

static const struct machine SMT = {1, 1, 8, 2}, TWO_NODES = {2, 1, 8, 1}, FOUR_NODES = {4, 2, 8, 1};

static inline int cores_of(const struct machine *k)
{
    return k->nodes * k->caches * k->cores;
}

static inline int cpus_of(const struct machine *k)
{
    return cores_of(k) * k->threads;
}

static inline __attribute__((format(printf, 2, 3))) void put(const char *content, const char *format, ...)
{
    char path[PATH_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(path, sizeof path, format, args);
    va_end(args);
    put_file(path, content);
}

/* As Linux counts: first threads of all cores, then the second ones. The CPUs of cores [first, first + n). */
static inline const char *list(const struct machine *k, int first, int n)
{
    static char text[200];
    int at = 0;
    for (int t = 0; t < k->threads; t++) {
        int lo = t * cores_of(k) + first;
        at += snprintf(text + at, sizeof text - (size_t)at, "%s%d-%d", t > 0 ? "," : "", lo, lo + n - 1);
    }
    strcat(text, "\n");
    return text;
}

static inline void put_cpu(const struct machine *k, int cpu)
{
    int core = cpu % cores_of(k);
    put(list(k, core, 1), "/devices/system/cpu/cpu%d/topology/core_cpus_list", cpu);
    for (int i = 0; i <= 3; i += 3) { /* not 1 and 2: one that is missing does not end the search */
        put(i == 0 ? "Data\n" : "Unified\n", "/devices/system/cpu/cpu%d/cache/index%d/type", cpu, i);
        put(i == 0 ? "1\n" : "3\n", "/devices/system/cpu/cpu%d/cache/index%d/level", cpu, i);
        const char *shared = i == 0 ? list(k, core, 1) : list(k, core / k->cores * k->cores, k->cores);
        put(shared, "/devices/system/cpu/cpu%d/cache/index%d/shared_cpu_list", cpu, i);
    }
}

static inline void put_node(const struct machine *k, int node)
{
    int cores = k->caches * k->cores;
    char distances[200] = "";
    put(list(k, node * cores, cores), "/devices/system/node/node%d/cpulist", node);
    for (int i = 0; i < k->nodes; i++)
        strcat(distances, i == node ? "10 " : i / 2 == node / 2 ? "12 " : "32 ");
    put(distances, "/devices/system/node/node%d/distance", node);
}

static inline void build(const struct machine *k)
{
    char text[64];
    new_tree();
    snprintf(text, sizeof text, "0-%d\n", cpus_of(k) - 1);
    put(text, "/devices/system/cpu/online");
    snprintf(text, sizeof text, "0-%d\n", k->nodes - 1);
    put(text, "/devices/system/node/online");
    for (int i = 0; i < cpus_of(k); i++)
        put_cpu(k, i);
    for (int i = 0; i < k->nodes; i++)
        put_node(k, i);
    setenv("WEFT_SYSFS", root, 1);
}

static inline void drop(void)
{
    unsetenv("WEFT_SYSFS");
    drop_tree();
}

/* Four small ones with the lower numbers. */
static inline void build_mixed(void)
{
    build(&(struct machine){1, 1, 8, 1});
    for (int i = 0; i < 8; i++)
        put(i < 4 ? "400\n" : "1024\n", "/devices/system/cpu/cpu%d/cpu_capacity", i);
}

/* ---- a runtime that stands still -------------------------------------------------------------------------------- */

static inline const struct w_places *set_up(int procs)
{
    w_sched.idle_ps = NULL;
    w_sched.busy_ps = 0;
    w_sched.seed = 1;
    w_sched.procs = w_sched.p_count = w_sched.idle_p_count = 0;
    w_places_init();
    CHECK_EQ(w_stacks_init(64 << 10), 0);
    w_gs_init();
    CHECK_EQ(w_ps_init((uint32_t)procs), 0);
    return w_sched.places;
}

static inline void tear_down(void)
{
    w_gs_free();
    w_ps_free();
    w_stacks_free();
    w_places_free();
    w_sched.p_count = 0;
}

static inline const struct w_cpu *home(const struct w_places *s, int p)
{
    return w_seat(s, w_sched.ps[p])->cpu;
}

/* The distance at which b is in the rings of a; -1: in none. */
static inline int distance(const struct w_places *s, int a, int b)
{
    struct w_ring ring;
    for (uint32_t i = 0; w_ring(s, w_sched.ps[a], i, &ring); i++)
        for (uint32_t k = 0; k < w_ring_size(&ring); k++)
            if (w_ring_at(s, &ring, k) == (uint32_t)b)
                return i < W_OTHER_NODE ? (int)i : W_OTHER_NODE;
    return -1;
}

/* Each of the others is in one ring, once, and distances are the same from both sides. */
static inline bool rings_are_sound(const struct w_places *s, int procs)
{
    for (int p = 0; p < procs; p++) {
        int met[W_MAX_PROCS] = {0}, total = 0;
        struct w_ring ring;
        for (uint32_t i = 0; w_ring(s, w_sched.ps[p], i, &ring); i++)
            for (uint32_t k = 0; k < w_ring_size(&ring); k++, total++)
                met[w_ring_at(s, &ring, k)]++;
        for (int q = 0; q < procs; q++)
            if (met[q] != (q != p) || (q != p && distance(s, p, q) != (int)w_distance(s, w_sched.ps[q], w_sched.ps[p])))
                return false;
        if (total != procs - 1)
            return false;
    }
    return true;
}

#endif
