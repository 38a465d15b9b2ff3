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
 *   ST1  clean <= low <= count <= slots <= capacity of the array, so a put never needs memory. `low` is the least
 *        count since the last trim: what lies below it was not needed, and w_stacks_trim gives its memory back.
 *   ST2  default class: slots >= promised. A goroutine is promised a stack when its G is made, a P when it is made is
 *        promised a full cache. Since nobody holds more than he was promised, w_stack_get cannot fail for them: that
 *        is what lets a goroutine start without a stack and bind one when it first runs.
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
    _Atomic uint32_t keepers; /* its class, and threads left behind that still stand on a stack in it */
};

struct class
{
    struct w_lock lock;
    struct w_slab *slabs, *last; /* in the order in which they are opened */
    struct w_slab *open;         /* the first with fresh slots, or NULL */
    char **pool;
    size_t capacity, count, clean, low;
    size_t slots, promised;
    uint32_t batch; /* how many fresh slots to open at once: doubles while they are asked for */
};

static struct class classes[CLASSES];
static int default_class;      /* constant while a runtime is up */
static _Atomic bool unguarded; /* some stack has no guard page; set under a class lock, read loosely */

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

void *w_stack_top(int class, char *lo)
{
    size_t colour = ((uintptr_t)lo / W_PAGE & 7) * 2 * W_CACHE_LINE;
    return lo + w_stack_size(class) - colour;
}

/* ---- slabs ------------------------------------------------------------------------------------------------------ */

static bool grow_pool(struct class *c, size_t slots)
{
    if (slots <= c->capacity)
        return true;
    size_t capacity = slots * 2;
    char **pool = realloc(c->pool, capacity * sizeof *pool);
    if (pool == NULL)
        return false;
    c->pool = pool;
    c->capacity = capacity;
    return true;
}

/* More address space. */
static int add_slab_locked(int class)
{
    struct class *c = &classes[class];
    size_t n = SLAB_BYTES / stride(class);
    n = n < 1 ? 1 : n > SLAB_SLOTS ? SLAB_SLOTS : n;
    struct w_slab *slab = calloc(1, sizeof *slab);
    if (slab == NULL || !grow_pool(c, c->slots + n))
        goto no_memory;
    slab->bytes = n * stride(class);
    slab->base = w_map(slab->bytes);
    if (slab->base == NULL)
        goto no_memory;
    w_madvise(slab->base, slab->bytes, MADV_NOHUGEPAGE); /* else each stack would cost 64 KiB or more */
    slab->fresh = slab->base;
    st_relaxed(&slab->keepers, 1);
    if (c->last != NULL)
        c->last->next = slab;
    else
        c->slabs = slab;
    c->last = slab;
    if (c->open == NULL)
        c->open = slab;
    c->slots += n;
    return 0;

no_memory:
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

static size_t take_fresh_locked(int class, char **out, size_t n)
{
    struct w_slab *slab = classes[class].open;
    char *guards[BATCH], *end = slab->base + slab->bytes;
    size_t k = 0;
    for (; k < n && slab->fresh < end; k++, slab->fresh += stride(class)) {
        guards[k] = slab->fresh;
        out[k] = slab->fresh + w_stack_guard_size(class);
    }
    if (slab->fresh == end)
        classes[class].open = slab->next;
    if (w_guard_install(guards, k, w_stack_guard_size(class)) == W_GUARD_NONE)
        st_relaxed(&unguarded, true);
    return k;
}

static size_t take_pooled_locked(struct class *c, char **out, size_t n)
{
    size_t k = n < c->count ? n : c->count;
    for (size_t i = 0; i < k; i++)
        out[i] = c->pool[--c->count];
    if (c->count < c->low)
        c->low = c->count;
    if (c->clean > c->count)
        c->clean = c->count;
    return k;
}

/* Up to n stacks into out, the hottest last; at least one unless there is no memory. */
static size_t take(int class, char **out, size_t n)
{
    struct class *c = &classes[class];
    lock(c);
    size_t k = take_pooled_locked(c, out, n);
    if (k > 0) {
        unlock(c);
        return k;
    }
    if (c->open == NULL && add_slab_locked(class) != 0) {
        unlock(c);
        return 0;
    }
    c->batch = c->batch < 1 ? 1 : c->batch * 2 > BATCH ? BATCH : c->batch * 2;
    k = take_fresh_locked(class, out, c->batch < n ? c->batch : n);
    unlock(c);
    populate(class, out, k);
    return k;
}

static void put(int class, char *const *stacks, size_t n)
{
    struct class *c = &classes[class];
    lock(c);
    memcpy(c->pool + c->count, stacks, n * sizeof *stacks);
    c->count += n;
    W_ASSERT(c->count <= c->slots); /* ST1 */
    unlock(c);
}

/* ---- the classes' interface ------------------------------------------------------------------------------------- */

int w_stacks_init(size_t size)
{
    default_class = w_stack_class(size);
    if (default_class < 0)
        return default_class;
    w_guard_init();
    st_relaxed(&unguarded, false);
    return 0;
}

void w_stacks_free(void)
{
    for (int i = 0; i < CLASSES; i++) {
        struct class *c = &classes[i];
        struct w_slab *next;
        for (struct w_slab *slab = c->slabs; slab != NULL; slab = next) {
            next = slab->next;
            w_slab_release(slab);
        }
        free(c->pool);
        *c = (struct class){0};
    }
}

/* Its class keeps a slab too, until w_stacks_free: whoever is the last gives it back. */
struct w_slab *w_stack_keep(int class, char *lo)
{
    lock(&classes[class]);
    struct w_slab *slab = classes[class].slabs;
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
        munmap(slab->base, slab->bytes);
        free(slab);
    }
}

int w_stacks_reserve(uint32_t more)
{
    struct class *c = &classes[default_class];
    int r = 0;
    lock(c);
    while (r == 0 && c->slots < c->promised + more)
        r = add_slab_locked(default_class);
    if (r == 0)
        c->promised += more;
    unlock(c);
    return r;
}

char *w_stack_get(int class)
{
    char *lo;
    return take(class, &lo, 1) == 1 ? lo : NULL;
}

void w_stack_put(int class, char *lo)
{
    put(class, &lo, 1);
}

bool w_stack_cache_refill(struct w_p *p)
{
    p->stack_count = (uint32_t)take(default_class, p->stack, BATCH);
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
static bool trim_batch(int class)
{
    struct class *c = &classes[class];
    char *batch[TRIM_BATCH];
    lock(c);
    size_t n = c->low - c->clean;
    if (n > TRIM_BATCH)
        n = TRIM_BATCH;
    if (n == 0) {
        unlock(c);
        return false;
    }
    memcpy(batch, c->pool + c->clean, n * sizeof *batch);
    memmove(c->pool + c->clean, c->pool + c->clean + n, (c->count - c->clean - n) * sizeof *c->pool);
    c->count -= n;
    c->low -= n;
    unlock(c);
    drop(class, batch, n);
    lock(c);
    memmove(c->pool + c->clean + n, c->pool + c->clean, (c->count - c->clean) * sizeof *c->pool);
    memcpy(c->pool + c->clean, batch, n * sizeof *batch);
    c->clean += n;
    c->low += n;
    c->count += n;
    unlock(c);
    return true;
}

/* One pass gives back what lay unused since the pass before. A class whose memory is all given back costs a look. */
bool w_stacks_trim(void)
{
    bool more = false;
    for (int i = 0; i < CLASSES; i++) {
        struct class *c = &classes[i];
        while (trim_batch(i))
            ;
        lock(c);
        c->low = c->count;
        more |= c->low > c->clean;
        unlock(c);
    }
    return more;
}
