/* SPDX-License-Identifier: MIT */
/*
 * Stacks: address space in slabs, memory on demand, hot reuse, memory given back when it is not needed.
 *
 *   slab:  [guard|usable........][guard|usable........] ...     slot = guard + usable; pages appear when touched
 *                                ^lo                 ^top
 *
 * A stack is named by its lowest usable byte, `lo`. Sizes are powers of two, the classes. A class hands out
 *   1. recycled stacks, the most recently used first,
 *   2. fresh slots of its newest slab; these get their guards, and their first page, a batch at a time, which halves
 *      the price of the page fault (2.2 us alone).
 * Each P keeps a few free stacks of the default class in front of that, without a lock.
 *
 * The pool of recycled stacks is an array, in which the least recently used lie at the bottom:
 *
 *        0 ........ clean .................... count
 *        [ no memory ][ memory still there    ]   <- put and get here
 *
 * Invariants:
 *   ST1  in each part: clean <= low <= count <= slots <= capacity of the array, so a put never needs memory. `low` is the least
 *        count since the last trim: what lies below it was not needed, and w_stacks_trim gives its memory back.
 *   ST2  default class: slots of all parts >= promised. A goroutine is promised a stack when its G is made, a P when it is made is
 *        promised a full cache. Since nobody holds more than he was promised, w_stack_get cannot fail for them: that
 *        is what lets a goroutine start without a stack and bind one when it first runs.
 *
 * Where there are several nodes each class has a part for each: slabs whose memory lies there, and the stacks that were given
 * back to it, which are its own whoever gives them back. A P takes from the part of its node, and from another's only if
 * there is no address space left: a promise is one of the class. Slabs then begin at a multiple of 128 MiB, so that a table
 * tells the node of a stack. Rejected: a lock for each part (32 stacks move at once, and a promise would need all of them).
 *
 * A slot's stride is an odd number of pages for the default class (64 KiB + one guard page): the tops of many stacks
 * spread over the sets of the TLB; `colour` spreads them over the sets of the first-level cache.
 *
 * Rejected: one mapping per stack (17 us, and vm.max_map_count); trimming at each exit (4.6 us against 0.7 ns).
 */
#include "weft_internal.h"
#include <stdlib.h>
#include <string.h>

enum {
    MIN_SHIFT = 15, /* 32 KiB: a signal frame with all of AVX-512 and AMX takes 12 */
    MAX_SHIFT = 36,
    CLASSES = MAX_SHIFT - MIN_SHIFT + 1,
    SLAB_SLOTS = 1024,
    BATCH = 32, /* stacks that move between a P and a class at once */
    TRIM_BATCH = 512,
    GRANULE_SHIFT = 27, /* a default slab of 68 MiB fits; with 48 bits of address the table has 2 Mi entries */
    ADDRESS_BITS = 48,
};
static const size_t SLAB_BYTES = (size_t)72 << 20;

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

struct w_slab {
    struct w_slab *next;
    char *base;
    size_t bytes;
    char *fresh;              /* slots from here to the end were never used; class lock */
    uint32_t *watched;        /* numbers of the slots that valgrind was told of, up to `fresh`; NULL: it is not there */
    size_t slots;             /* constant */
    _Atomic uint32_t keepers; /* its class, and threads left behind that still stand on a stack in it */
};

/* The stacks of a class whose memory lies on one node. All: class lock. */
struct part {
    struct w_slab *slabs, *last; /* in the order in which they are opened */
    struct w_slab *open;         /* the first with fresh slots, or NULL */
    char **pool;
    size_t capacity, count, clean, low;
    size_t slots;
    size_t dropping; /* out of the pool while their memory is given back */
    uint32_t batch;  /* how many fresh slots to open at once: doubles while they are asked for */
};

struct class
{
    struct w_lock lock;
    size_t slots, promised;        /* of all parts; lock */
    struct part part[W_MAX_NODES]; /* [0, w_sched.nodes) */
};

static struct class classes[CLASSES];

/* The node of a stack by the granule of its address, if there are several. Written before the first stack of a granule is
 * handed out, read by whoever has one. The pages that are not needed are never there. */
static uint8_t node_at[(size_t)1 << (ADDRESS_BITS - GRANULE_SHIFT)];
static int default_class;      /* constant while a runtime is up */
static bool on_valgrind;       /* likewise */
static _Atomic bool unguarded; /* some stack has no guard page; set under a class lock, read loosely */
static _Atomic bool watched;   /* that, or valgrind watches them; likewise */

static void lock(struct class *c)
{
    w_lock(&c->lock, W_RANK_STACKS);
}

static void unlock(struct class *c)
{
    w_unlock(&c->lock, W_RANK_STACKS);
}

size_t w_stack_size(int class)
{
    return (size_t)1 << (class + MIN_SHIFT);
}

/* A sixteenth, at most 64 KiB: one page for the default class. */
size_t w_stack_guard_size(int class)
{
    size_t g = w_stack_size(class) / 16;
    return g < W_PAGE ? W_PAGE : g > 64 << 10 ? 64 << 10 : g;
}

static size_t stride(int class)
{
    return w_stack_size(class) + w_stack_guard_size(class);
}

int w_stack_class(size_t size)
{
    int class = 0;
    while (class < CLASSES && w_stack_size(class) < size)
        class ++;
    return class < CLASSES ? class : -EINVAL;
}

int w_default_stack_class(void)
{
    return default_class;
}

bool w_stacks_unguarded(void)
{
    return ld_relaxed(&unguarded);
}

/* Is there anything to be done before a goroutine is put on one? */
bool w_stacks_watched(void)
{
    return ld_relaxed(&watched);
}

void *w_stack_top(int class, char *lo)
{
    size_t colour = ((uintptr_t)lo / W_PAGE & 7) * 2 * W_CACHE_LINE;
    return lo + w_stack_size(class) - colour;
}

/* ---- slabs ------------------------------------------------------------------------------------------------------ */

static bool grow_pool(struct part *t, size_t slots)
{
    if (slots <= t->capacity)
        return true;
    size_t capacity = slots * 2;
    char **pool = realloc(t->pool, capacity * sizeof *pool);
    if (pool == NULL)
        return false;
    t->pool = pool;
    t->capacity = capacity;
    return true;
}

static uint32_t home_of(const char *lo)
{
    return w_sched.nodes == 1 ? 0 : node_at[(uintptr_t)lo >> GRANULE_SHIFT];
}

/* Address space whose memory will lie on that node, and that the table knows. */
static char *map_on(uint32_t node, size_t bytes)
{
    size_t granule = (size_t)1 << GRANULE_SHIFT;
    if (w_sched.nodes == 1)
        return w_map(bytes);
    char *base = w_map_aligned(bytes, granule);
    if (base == NULL)
        return NULL;
    for (char *at = base; at < base + bytes; at += granule)
        node_at[(uintptr_t)at >> GRANULE_SHIFT] = (uint8_t)node;
    w_memory_on(node, base, bytes);
    return base;
}

/* More address space. */
static int add_slab_locked(int class, uint32_t node)
{
    struct class *c = &classes[class];
    struct part *t = &c->part[node];
    size_t n = SLAB_BYTES / stride(class);
    n = n < 1 ? 1 : n > SLAB_SLOTS ? SLAB_SLOTS : n;
    struct w_slab *slab = calloc(1, sizeof *slab);
    if (slab == NULL || !grow_pool(t, t->slots + n))
        goto no_memory;
    if (on_valgrind && (slab->watched = calloc(n, sizeof *slab->watched)) == NULL)
        goto no_memory;
    slab->bytes = n * stride(class);
    slab->base = map_on(node, slab->bytes);
    if (slab->base == NULL)
        goto no_memory;
    slab->slots = n;
    w_madvise(slab->base, slab->bytes, MADV_NOHUGEPAGE); /* else each stack would cost 64 KiB or more */
    slab->fresh = slab->base;
    st_relaxed(&slab->keepers, 1);
    if (t->last != NULL)
        t->last->next = slab;
    else
        t->slabs = slab;
    t->last = slab;
    if (t->open == NULL)
        t->open = slab;
    t->slots += n;
    c->slots += n;
    return 0;

no_memory:
    if (slab != NULL)
        free(slab->watched);
    free(slab);
    return -ENOMEM;
}

/* Puts first pages in place in one call. Where the kernel cannot, the page faults do it one by one. */
static void populate(int class, char *const *stacks, size_t n)
{
    struct iovec iov[BATCH];
    for (size_t i = 0; i < n; i++)
        iov[i] = (struct iovec){stacks[i] + w_stack_size(class) - W_PAGE, W_PAGE};
    w_madvise_vec(iov, n, MADV_POPULATE_WRITE);
}

/* Tells valgrind of a slot that nobody has used yet: else it takes a switch for a huge frame. */
static void watch_locked(struct w_slab *slab, char *lo, int class)
{
    if (slab->watched != NULL)
        slab->watched[(size_t)(lo - slab->base) / stride(class)] = w_watch_stack(lo, w_stack_size(class));
}

static void unwatch(struct w_slab *slab)
{
    size_t used = (size_t)(slab->fresh - slab->base) / (slab->bytes / slab->slots);
    for (size_t i = 0; slab->watched != NULL && i < used; i++)
        w_watch_forget(slab->watched[i]);
    free(slab->watched);
}

static size_t take_fresh_locked(int class, struct part *t, char **out, size_t n)
{
    struct w_slab *slab = t->open;
    char *guards[BATCH], *end = slab->base + slab->bytes;
    size_t k = 0;
    for (; k < n && slab->fresh < end; k++, slab->fresh += stride(class)) {
        guards[k] = slab->fresh;
        out[k] = slab->fresh + w_stack_guard_size(class);
        watch_locked(slab, out[k], class);
    }
    if (slab->fresh == end)
        t->open = slab->next;
    if (w_guard_install(guards, k, w_stack_guard_size(class)) == W_GUARD_NONE) {
        st_relaxed(&unguarded, true);
        st_relaxed(&watched, true);
    }
    return k;
}

static size_t take_pooled_locked(struct part *t, char **out, size_t n)
{
    size_t k = n < t->count ? n : t->count;
    for (size_t i = 0; i < k; i++)
        out[i] = t->pool[--t->count];
    if (t->count < t->low)
        t->low = t->count;
    if (t->clean > t->count)
        t->clean = t->count;
    return k;
}

/* There is no address space left: one that was promised is on another node (ST2). */
static size_t take_elsewhere_locked(int class, char **out, size_t n)
{
    size_t k = 0;
    for (uint32_t i = 0; k == 0 && i < w_sched.nodes; i++) {
        struct part *t = &classes[class].part[i];
        k = take_pooled_locked(t, out, n);
        if (k == 0 && t->open != NULL)
            k = take_fresh_locked(class, t, out, 1);
    }
    return k;
}

/* Up to n stacks into out, the hottest last; at least one unless there is no memory. */
static size_t take(int class, uint32_t node, char **out, size_t n)
{
    struct class *c = &classes[class];
    struct part *t = &c->part[node];
    lock(c);
    size_t k = take_pooled_locked(t, out, n);
    if (k == 0 && t->open == NULL && add_slab_locked(class, node) != 0)
        k = take_elsewhere_locked(class, out, n);
    if (k > 0 || t->open == NULL) {
        unlock(c);
        return k;
    }
    t->batch = t->batch < 1 ? 1 : t->batch * 2 > BATCH ? BATCH : t->batch * 2;
    k = take_fresh_locked(class, t, out, t->batch < n ? t->batch : n);
    unlock(c);
    populate(class, out, k);
    return k;
}

/* How many of the first ones are at home where the first is. */
static size_t of_one_home(char *const *stacks, size_t n)
{
    size_t k = 1;
    if (w_sched.nodes == 1)
        return n;
    while (k < n && home_of(stacks[k]) == home_of(stacks[0]))
        k++;
    return k;
}

static void put(int class, char *const *stacks, size_t n)
{
    struct class *c = &classes[class];
    lock(c);
    for (size_t k; n > 0; stacks += k, n -= k) {
        struct part *t = &c->part[home_of(stacks[0])];
        k = of_one_home(stacks, n);
        memcpy(t->pool + t->count, stacks, k * sizeof *stacks);
        t->count += k;
        W_ASSERT(t->count <= t->slots); /* ST1 */
    }
    unlock(c);
}

/* ---- the classes' interface ------------------------------------------------------------------------------------- */

int w_stacks_init(size_t size)
{
    default_class = w_stack_class(size);
    if (default_class < 0)
        return default_class;
    w_guard_init();
    on_valgrind = w_on_valgrind();
    st_relaxed(&unguarded, false);
    st_relaxed(&watched, on_valgrind);
    return 0;
}

static void free_part(struct part *t)
{
    struct w_slab *next;
    for (struct w_slab *slab = t->slabs; slab != NULL; slab = next) {
        next = slab->next;
        w_slab_release(slab);
    }
    free(t->pool);
    *t = (struct part){0};
}

void w_stacks_free(void)
{
    for (int i = 0; i < CLASSES; i++) {
        for (uint32_t node = 0; node < w_sched.nodes; node++)
            free_part(&classes[i].part[node]);
        classes[i].slots = classes[i].promised = 0;
    }
}

/* Its class keeps a slab too, until w_stacks_free: whoever is the last gives it back. */
struct w_slab *w_stack_keep(int class, char *lo)
{
    lock(&classes[class]);
    struct w_slab *slab = classes[class].part[home_of(lo)].slabs;
    while (slab != NULL && (lo < slab->base || lo >= slab->base + slab->bytes))
        slab = slab->next;
    unlock(&classes[class]);
    W_ASSERT(slab != NULL);
    add_relaxed(&slab->keepers, 1); /* relaxed: its class still keeps it */
    return slab;
}

void w_slab_release(struct w_slab *slab)
{
    if (add_acq_rel(&slab->keepers, -1u) == 1) { /* [SL-1] the other keepers have left their stacks [SL-1] */
        W_SAN_UNMAP(slab->base, slab->bytes);
        unwatch(slab);
        munmap(slab->base, slab->bytes);
        free(slab);
    }
}

int w_stacks_reserve(uint32_t node, uint32_t more)
{
    struct class *c = &classes[default_class];
    int r = 0;
    lock(c);
    while (r == 0 && c->slots < c->promised + more)
        r = add_slab_locked(default_class, node);
    if (r == 0)
        c->promised += more;
    unlock(c);
    return r;
}

char *w_stack_get(int class, uint32_t node)
{
    char *lo;
    return take(class, node, &lo, 1) == 1 ? lo : NULL;
}

void w_stack_put(int class, char *lo)
{
    put(class, &lo, 1);
}

bool w_stack_cache_refill(struct w_p *p)
{
    p->stack_count = (uint32_t)take(default_class, w_p_node(p), p->stack, BATCH);
    return p->stack_count > 0;
}

/* The coldest go: those at the bottom of the cache. */
void w_stack_cache_flush(struct w_p *p, uint32_t keep)
{
    if (p->stack_count <= keep)
        return;
    uint32_t n = p->stack_count - keep;
    put(default_class, p->stack, n);
    memmove(p->stack, p->stack + n, keep * sizeof *p->stack);
    p->stack_count = keep;
}

/* ---- what there is ---------------------------------------------------------------------------------------------- */

/* Never used: the rest of the open slab, and the slabs after it. */
static size_t fresh_slots_locked(int class, const struct part *t)
{
    size_t n = 0;
    for (const struct w_slab *slab = t->open; slab != NULL; slab = slab->next)
        n += (size_t)(slab->base + slab->bytes - slab->fresh) / stride(class);
    return n;
}

static void add_use(int class, struct w_stack_use *use)
{
    struct class *c = &classes[class];
    size_t out = 0, kept = 0;
    lock(c);
    for (uint32_t node = 0; c->slots > 0 && node < w_sched.nodes; node++) {
        const struct part *t = &c->part[node];
        out += t->slots - t->count - t->dropping - fresh_slots_locked(class, t);
        kept += t->count - t->clean;
    }
    use->mapped += c->slots * stride(class);
    unlock(c);
    use->out += out;
    use->out_bytes += out * w_stack_size(class);
    use->free += kept;
    use->free_bytes += kept * w_stack_size(class);
}

struct w_stack_use w_stacks_use(void)
{
    struct w_stack_use use = {0};
    for (int i = 0; i < CLASSES; i++)
        add_use(i, &use);
    return use;
}

/* ---- giving memory back ----------------------------------------------------------------------------------------- */

static int by_address(const void *a, const void *b)
{
    const char *x = *(char *const *)a, *y = *(char *const *)b;
    return (x > y) - (x < y);
}

/* Drops the memory of these stacks, neighbours in one call. Guards survive it. */
static void drop(int class, char **stacks, size_t n)
{
    qsort(stacks, n, sizeof *stacks, by_address);
    for (size_t i = 0, j; i < n; i = j) {
        for (j = i + 1; j < n && stacks[j] == stacks[j - 1] + stride(class); j++)
            ;
        w_madvise(stacks[i], (size_t)(stacks[j - 1] - stacks[i]) + w_stack_size(class), MADV_DONTNEED);
    }
}

/* Takes a batch of stacks that were not needed out of the pool, drops their memory unlocked, and puts them back as
 * clean ones. Others may take stacks meanwhile; ST1 is kept by moving the topmost into the gap. */
static bool trim_batch(int class, struct part *t)
{
    struct class *c = &classes[class];
    char *batch[TRIM_BATCH];
    lock(c);
    size_t n = t->low - t->clean;
    if (n > TRIM_BATCH)
        n = TRIM_BATCH;
    if (n == 0) {
        unlock(c);
        return false;
    }
    memcpy(batch, t->pool + t->clean, n * sizeof *batch);
    memmove(t->pool + t->clean, t->pool + t->clean + n, (t->count - t->clean - n) * sizeof *t->pool);
    t->count -= n;
    t->low -= n;
    t->dropping = n;
    unlock(c);
    drop(class, batch, n);
    lock(c);
    memmove(t->pool + t->clean + n, t->pool + t->clean, (t->count - t->clean) * sizeof *t->pool);
    memcpy(t->pool + t->clean, batch, n * sizeof *batch);
    t->clean += n;
    t->low += n;
    t->count += n;
    t->dropping = 0;
    unlock(c);
    return true;
}

static bool trim(int class, struct part *t)
{
    while (trim_batch(class, t))
        ;
    lock(&classes[class]);
    t->low = t->count;
    bool more = t->low > t->clean;
    unlock(&classes[class]);
    return more;
}

/* One pass gives back what lay unused since the pass before. A class whose memory is all given back costs a look. */
bool w_stacks_trim(void)
{
    bool more = false;
    for (int i = 0; i < CLASSES; i++)
        for (uint32_t node = 0; node < w_sched.nodes; node++)
            more |= trim(i, &classes[i].part[node]);
    return more;
}
