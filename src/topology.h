/* SPDX-License-Identifier: MIT */
/* What the machine is made of (topology.c), and where the Ps are at home in it (places.c). */
#ifndef W_TOPOLOGY_H
#define W_TOPOLOGY_H

#include "weft_internal.h"

enum { W_MAX_CPUS = 8192 }; /* the kernel's numbers of CPUs lie below */

/* A set of CPUs, laid out as the kernel's masks are. */
struct w_cpus {
    unsigned long bit[W_MAX_CPUS / (8 * sizeof(unsigned long))];
};

struct w_cpu {
    uint16_t id;          /* the kernel's number */
    uint16_t core, cache; /* the first CPU of those that it shares its core, its last cache with */
    uint16_t sibling;     /* how many of its core come before it */
    uint16_t node;        /* of os_node */
    uint32_t capacity;    /* 1024: the biggest kind */
};

/* Constant once read. */
struct w_topology {
    struct w_topology *former; /* still looked at by those who look at older places; freed with this one */
    bool fake;                 /* a tree that was made up: no thread is bound, no memory placed */
    pid_t beginner;            /* the thread that the run began on, which is never bound: its mask is the process's */
    uint32_t nodes;
    uint16_t os_node[W_MAX_NODES];         /* the kernel's number of each, that of the first P first */
    uint8_t far[W_MAX_NODES][W_MAX_NODES]; /* of each node, the others: the nearest first */
    struct w_cpus online, allowed;         /* as they were when it was read */
    uint32_t cpus;
    struct w_cpu cpu[]; /* in the order in which Ps are at home on them */
};

/* former NULL: at the start of a run. Else the numbers of the nodes stay as they are there. NULL: no memory, or nothing to read. */
struct w_topology *w_topology_read(const struct w_topology *former);
bool w_topology_stale(const struct w_topology *t); /* CPUs have come or gone */
void w_topology_mask(const struct w_topology *t, uint32_t node, struct w_cpus *mask);

/* ---- places.c --------------------------------------------------------------------------------------------------- */

/* Distances: two Ps share a core, a cache, a node, or none of them. */
enum w_distance { W_SAME_CORE, W_SAME_CACHE, W_SAME_NODE, W_OTHER_NODE };

struct w_range {
    uint16_t lo, hi;
};

/* Where a P is at home. Seats are sorted, so that those who share something sit side by side. Constant. */
struct w_seat {
    uint16_t p; /* its number */
    const struct w_cpu *cpu;
    uint16_t core;           /* that of its CPU, or its own if there are more Ps than CPUs */
    struct w_range share[3]; /* the seats on its core, cache, node: enum w_distance */
};

struct w_places {
    struct w_places *former; /* thieves may still look at it; freed with this one */
    const struct w_topology *topology;
    uint32_t count;
    uint64_t idle[W_MAX_PROCS / 64];  /* by seat: its P is in the idle list; w_sched.lock */
    struct w_range node[W_MAX_NODES]; /* the seats on it */
    uint16_t seat_of[W_MAX_PROCS];    /* by the number of the P */
    struct w_seat seat[];
};

/* Seats at one distance: those from lo to hi without those from hole.lo to hole.hi. */
struct w_ring {
    struct w_range all, hole;
};

static inline const struct w_seat *w_seat(const struct w_places *s, const struct w_p *p)
{
    return &s->seat[s->seat_of[p->id]];
}

static inline uint32_t w_ring_size(const struct w_ring *r)
{
    return (uint32_t)(r->all.hi - r->all.lo - (r->hole.hi - r->hole.lo));
}

/* The P on the i-th seat of the ring. */
static inline uint32_t w_ring_at(const struct w_places *s, const struct w_ring *r, uint32_t i)
{
    uint32_t seat = r->all.lo + i;
    return s->seat[seat < r->hole.lo ? seat : seat + r->hole.hi - r->hole.lo].p;
}

enum w_distance w_distance(const struct w_places *s, const struct w_p *a, const struct w_p *b);
bool w_ring(const struct w_places *s, const struct w_p *p, uint32_t i, struct w_ring *ring);

#endif
