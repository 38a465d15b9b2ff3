/* SPDX-License-Identifier: MIT */
/*
 * Where the Ps are at home, and hence who is near whom: whom a thief asks first, which idle P is woken, which CPUs a thread
 * keeps to, where memory lies.
 *
 * P number i is at home on the i-th CPU of the topology, from the beginning again if there are more Ps than CPUs. All Ps
 * have a seat in one row, sorted by node, cache and core, so that whoever shares something sits side by side:
 *
 *      seat   0  1  2  3  4  5  6  7 | 8  9 10 11 12 13 14 15
 *      core   ‾‾‾‾  ‾‾‾‾  ‾‾‾‾  ‾‾‾‾   ‾‾‾‾  ‾‾‾‾  ‾‾‾‾  ‾‾‾‾
 *      cache  ‾‾‾‾‾‾‾‾‾‾  ‾‾‾‾‾‾‾‾‾‾   ‾‾‾‾‾‾‾‾‾‾  ‾‾‾‾‾‾‾‾‾‾
 *      node   ‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾   ‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾
 *
 * The neighbours of a P at each distance, its rings, are then a span with a hole: its core without itself, its cache
 * without its core, its node without its cache, then the other nodes one by one. That takes 32 bytes a P, where a list of
 * victims for each would take 2 MiB for 1,024.
 *
 * w_sched.places is NULL if that makes no difference: one node, and every two Ps at the same distance and on cores of one
 * kind, as on most small machines. Then everything is done as if there were no topology.
 *
 * Places are made when the number of Ps grows, and when CPUs have come or gone since. They do not change once they are
 * published, but for `idle`; the ones before stay until the run ends, for thieves look at them without a lock.
 *
 * Threads are bound to nodes and not to cores: below that the kernel knows better who else needs a core, so a home is where
 * a P is most of the time. A thread whose mask is not the one that we gave it was bound by somebody else, and is left alone.
 */
#include "topology.h"
#include <sched.h>
#include <stdlib.h>
#include <string.h>

static struct w_topology *topology;    /* of this run, or NULL; procs_lock, and the beginning and end of a run */
static const struct w_topology *first; /* that the run began with: its nodes are those of all; constant */
static struct w_places *all;           /* of this run, newest first; likewise */

/* ---- seats ------------------------------------------------------------------------------------------------------ */

static bool shares(const struct w_seat *a, const struct w_seat *b, enum w_distance d)
{
    return a->cpu->node == b->cpu->node && (d >= W_SAME_NODE || a->cpu->cache == b->cpu->cache) &&
           (d >= W_SAME_CACHE || a->core == b->core);
}

static int by_seat(const void *a, const void *b)
{
    const struct w_seat *x = a, *y = b;
    if (x->cpu->node != y->cpu->node)
        return x->cpu->node - y->cpu->node;
    if (x->cpu->cache != y->cpu->cache)
        return x->cpu->cache - y->cpu->cache;
    return x->core != y->core ? x->core - y->core : x->p - y->p;
}

static void set_spans(struct w_places *s, enum w_distance d)
{
    for (uint32_t lo = 0, hi; lo < s->count; lo = hi) {
        for (hi = lo + 1; hi < s->count && shares(&s->seat[lo], &s->seat[hi], d);)
            hi++;
        for (uint32_t i = lo; i < hi; i++)
            s->seat[i].share[d] = (struct w_range){(uint16_t)lo, (uint16_t)hi};
        if (d == W_SAME_NODE)
            s->node[s->seat[lo].cpu->node] = s->seat[lo].share[d];
    }
}

static struct w_places *seat_all(const struct w_topology *t, uint32_t n)
{
    struct w_places *s = calloc(1, sizeof *s + n * sizeof s->seat[0]);
    if (s == NULL)
        return NULL;
    s->topology = t;
    s->count = n;
    for (uint32_t i = 0; i < n; i++) {
        const struct w_cpu *cpu = &t->cpu[i % t->cpus];
        s->seat[i] = (struct w_seat){.p = (uint16_t)i, .cpu = cpu, .core = n <= t->cpus ? cpu->core : (uint16_t)i};
    }
    qsort(s->seat, n, sizeof s->seat[0], by_seat);
    for (uint32_t i = 0; i < n; i++)
        s->seat_of[s->seat[i].p] = (uint16_t)i;
    for (enum w_distance d = W_SAME_CORE; d <= W_SAME_NODE; d++)
        set_spans(s, d);
    return s;
}

/* Is every two's distance d, and are they all of a kind? */
static bool all_at(const struct w_places *s, enum w_distance d)
{
    for (uint32_t i = 0; i < s->count; i++) {
        const struct w_seat *seat = &s->seat[i];
        struct w_range inner = d > W_SAME_CORE ? seat->share[d - 1] : (struct w_range){0, 1};
        if (seat->share[d].hi - seat->share[d].lo != (int)s->count || inner.hi - inner.lo != 1 ||
            seat->cpu->capacity != s->seat[0].cpu->capacity)
            return false;
    }
    return true;
}

static bool makes_a_difference(const struct w_places *s)
{
    return s->topology->nodes > 1 || !(all_at(s, W_SAME_CORE) || all_at(s, W_SAME_CACHE) || all_at(s, W_SAME_NODE));
}

enum w_distance w_distance(const struct w_places *s, const struct w_p *a, const struct w_p *b)
{
    enum w_distance d = W_SAME_CORE;
    while (d < W_OTHER_NODE && !shares(w_seat(s, a), w_seat(s, b), d))
        d++;
    return d;
}

/* The i-th ring of p, the nearest first, of which each P but p itself is in one. false: there are no more. */
bool w_ring(const struct w_places *s, const struct w_p *p, uint32_t i, struct w_ring *ring)
{
    const struct w_seat *seat = w_seat(s, p);
    uint16_t at = s->seat_of[p->id];
    uint32_t node = seat->cpu->node;
    if (i >= W_OTHER_NODE) {
        if (i - W_OTHER_NODE + 1 >= s->topology->nodes)
            return false;
        *ring = (struct w_ring){.all = s->node[s->topology->far[node][i - W_OTHER_NODE]]};
    } else {
        *ring = (struct w_ring){seat->share[i],
                                i == W_SAME_CORE ? (struct w_range){at, (uint16_t)(at + 1)} : seat->share[i - 1]};
    }
    return true;
}

uint32_t w_p_node_slow(const struct w_places *s, const struct w_p *p)
{
    return w_seat(s, p)->cpu->node;
}

/* ---- the idle ones ---------------------------------------------------------------------------------------------- */

/* Whenever p gets into the list of idle Ps, or out of it. */
void w_places_idle_locked(const struct w_p *p, bool idle)
{
    struct w_places *s = ld_relaxed(&w_sched.places); /* relaxed: written under the lock that we hold */
    if (s == NULL || p->id >= s->count)
        return;
    uint64_t bit = (uint64_t)1 << s->seat_of[p->id] % 64, *word = &s->idle[s->seat_of[p->id] / 64];
    *word = idle ? *word | bit : *word & ~bit;
}

static bool idle_at(const struct w_places *s, uint32_t seat)
{
    return s->idle[seat / 64] >> seat % 64 & 1;
}

static bool core_idles(const struct w_places *s, const struct w_seat *seat)
{
    for (uint32_t i = seat->share[W_SAME_CORE].lo; i < seat->share[W_SAME_CORE].hi; i++)
        if (!idle_at(s, i))
            return false;
    return true;
}

/* A second thread of a core takes from the first what it gets: any whole core is better. Then the bigger one. */
static uint32_t worth(const struct w_places *s, const struct w_seat *seat)
{
    enum { WHOLE = 4096 }; /* more than any capacity */
    return seat->cpu->capacity + (core_idles(s, seat) ? WHOLE : 0);
}

static const struct w_seat *best_idle(const struct w_places *s, struct w_range span)
{
    const struct w_seat *best = NULL;
    for (uint32_t i = span.lo; i < span.hi; i++) {
        if (s->idle[i / 64] >> i % 64 == 0) {
            i |= 63; /* none in the rest of this word */
            continue;
        }
        if (idle_at(s, i) && (best == NULL || worth(s, &s->seat[i]) > worth(s, best)))
            best = &s->seat[i];
    }
    return best;
}

/* The one for work that p has, or any: of those that share its cache, its node, and then of the nearest node, one that nobody uses
 * a thread of, and the biggest of these. NULL: none idles. */
struct w_p *w_nearest_idle_locked(const struct w_places *s, const struct w_p *p)
{
    const struct w_seat *home = &s->seat[p != NULL && p->id < s->count ? s->seat_of[p->id] : s->seat_of[0]];
    const struct w_seat *best = best_idle(s, home->share[W_SAME_CACHE]);
    if (best == NULL)
        best = best_idle(s, home->share[W_SAME_NODE]);
    for (uint32_t i = 0; best == NULL && i + 1 < s->topology->nodes; i++)
        best = best_idle(s, s->node[s->topology->far[home->cpu->node][i]]);
    return best != NULL ? w_sched.ps[best->p] : NULL;
}

/* ---- threads and memory of a node ------------------------------------------------------------------------------- */

static bool get_mask(pid_t thread, struct w_cpus *mask)
{
    *mask = (struct w_cpus){0};
    return W_RESULT(syscall(SYS_sched_getaffinity, thread, sizeof *mask, mask)) > 0;
}

/* Is it what we left it at? A thread that we have not bound yet has whatever its maker had. CPUs that have gone since are in nobody's
 * mask, so not in that of the thread that the run began on either. */
static bool mask_is_ours(const struct w_m *m)
{
    struct w_cpus ours, now, all;
    uint32_t bound = ld_relaxed(&m->bound);
    if (bound == 0)
        return true;
    w_topology_mask(m->bound_in, bound - 1, &ours);
    if (!get_mask(0, &now))
        return false;
    if (memcmp(&ours, &now, sizeof now) == 0)
        return true;
    if (!get_mask(m->bound_in->beginner, &all))
        return false;
    for (size_t i = 0; i < sizeof ours.bit / sizeof ours.bit[0]; i++)
        ours.bit[i] &= all.bit[i];
    return memcmp(&ours, &now, sizeof now) == 0;
}

/* m, on its own thread, has got p: it keeps to the node of p. Where the kernel will not have it, it runs where it is. */
void w_m_settle(struct w_m *m, const struct w_p *p)
{
    const struct w_places *s = ld_acquire(&w_sched.places); /* [TP-1] */
    if (s == NULL || (ld_relaxed(&m->bound) == w_p_node_slow(s, p) + 1 && m->bound_in == s->topology))
        return;
    const struct w_topology *t = s->topology;
    uint32_t node = w_p_node_slow(s, p);
    struct w_cpus mask;
    if (t->nodes > 1 && !t->fake && m->pinned_g == NULL && mask_is_ours(m)) {
        w_topology_mask(t, node, &mask);
        W_RESULT(syscall(SYS_sched_setaffinity, 0, sizeof mask, &mask));
    }
    st_relaxed(&m->bound, node + 1);
    m->bound_in = t;
}

/* Fresh pages that are touched later come from that node, whoever touches them. A wish: where it fails they are anywhere. */
void w_memory_on(uint32_t node, void *at, size_t size)
{
    enum { PREFERRED = 1, OS_NODES = 1024, BITS = 8 * sizeof(unsigned long) };
    unsigned long mask[OS_NODES / BITS] = {0};
    if (w_sched.nodes == 1 || first->fake || first->os_node[node] >= OS_NODES)
        return;
    mask[first->os_node[node] / BITS] = 1ul << first->os_node[node] % BITS;
    W_RESULT(syscall(SYS_mbind, at, size, PREFERRED, mask, (unsigned long)OS_NODES, 0));
}

/* ---- when they are made ----------------------------------------------------------------------------------------- */

/* Before anything else of the run. */
void w_places_init(void)
{
    first = topology = w_topology_read(NULL);
    w_sched.nodes = topology != NULL ? topology->nodes : 1;
    st_relaxed(&w_sched.places, NULL);
}

static void read_again(void)
{
    if (!w_topology_stale(topology))
        return;
    struct w_topology *t = w_topology_read(topology);
    if (t == NULL)
        return;
    t->former = topology;
    topology = t;
}

static void publish(struct w_places *s)
{
    w_lock(&w_sched.lock, W_RANK_SCHED);
    st_release(&w_sched.places, s); /* [TP-1] the places, and the Ps in them */
    for (uint32_t i = 0; s != NULL && i < s->count; i++)
        w_places_idle_locked(w_sched.ps[i], w_sched.ps[i]->status == W_P_IDLE);
    w_unlock(&w_sched.lock, W_RANK_SCHED);
}

/* Under procs_lock: there are n Ps now, of which those that are new do not run yet. */
int w_places_update(uint32_t n)
{
    if (topology == NULL)
        return 0;
    if (all != NULL)
        read_again();
    if (all != NULL && all->count == n && all->topology == topology)
        return 0;
    struct w_places *s = seat_all(topology, n);
    if (s == NULL)
        return -ENOMEM;
    s->former = all;
    all = s;
    publish(makes_a_difference(s) ? s : NULL);
    return 0;
}

void w_places_free(void)
{
    for (struct w_places *former; all != NULL; all = former) {
        former = all->former;
        free(all);
    }
    for (struct w_topology *former; topology != NULL; topology = former) {
        former = topology->former;
        free(topology);
    }
    st_relaxed(&w_sched.places, NULL);
}
