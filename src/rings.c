/* SPDX-License-Identifier: MIT */
/*
 * Rings of locks: a goroutine waits for a lock whose holder waits for a lock, and so on, back to the first. None of them goes on, ever.
 *
 * Whoever takes a mutex, or an rwmutex as its writer, leaves an address on its own stack in it; a call under way of weft_once_do
 * knows its goroutine. From that the holder is found when somebody wants to know: the goroutine whose stack, in the part that is in use, the
 * address lies on. (To leave the goroutine's own address there would cost each lock the way to it; this is two stores.) So there are two
 * walks over all goroutines:
 *      1  which locks are waited for, and which address each has            ──> struct lock
 *      2  on whose stack that lies, and what that one waits for itself      ──> lock.holder, lock.next
 * and the rings are those of lock ──> next. A lock that a thread holds, or nobody, or readers, has no holder here, and is in no ring.
 *
 * Goroutines may be running meanwhile. What was found is looked at once more when all of it is known: every waiter of the ring still in
 * the same wait, every lock still held by the same one. Then all of it held at one moment, and what holds in a ring, stays.
 */
#include "rings.h"
#include "peek.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LOCKS = 4096, INDEX = 2 * LOCKS, NONE = 0 };

struct lock {
    const void *at;
    enum w_reason reason;
    uintptr_t held; /* an address on the holder's stack, or its G */
    struct w_g *holder;
    uint64_t id;      /* of the holder */
    const void *next; /* the lock that it waits for, or NULL */
    uint32_t mark;    /* the walk that came here */
};

struct rings {
    struct lock lock[LOCKS];
    uint32_t index[INDEX];     /* by address: number of the lock and 1 */
    struct lock *order[LOCKS]; /* by `held` */
    uint32_t n;
};

static bool is_about_lock(enum w_reason reason)
{
    return reason == W_REASON_MUTEX || reason == W_REASON_READ_LOCK || reason == W_REASON_WRITE_LOCK ||
           reason == W_REASON_ONCE;
}

/* The lock that a copy of a G waits for; NULL: none. */
static const void *waits_for(struct w_g *copy, enum w_reason *reason)
{
    *reason = (enum w_reason)ld_relaxed(&copy->reason);
    return ld_relaxed(&copy->state) == W_WAITING && is_about_lock(*reason) ? ld_relaxed(&copy->waits_on) : NULL;
}

/* 0: nobody that we know. The lock may be gone. */
static uintptr_t held_by(const void *at, enum w_reason reason)
{
    weft_mutex mu;
    weft_rwmutex rw;
    weft_once once;
    if (reason == W_REASON_MUTEX)
        return w_peek(&mu, (uintptr_t)at, sizeof mu) && mu.state_ & 255 ? (uintptr_t)mu.holder_ : 0;
    if (reason == W_REASON_ONCE)
        return w_peek(&once, (uintptr_t)at, sizeof once) && once.state_ == 1 ? (uintptr_t)once.by_ : 0;
    return w_peek(&rw, (uintptr_t)at, sizeof rw) && rw.writer_ ? (uintptr_t)rw.holder_ : 0;
}

static struct lock *find(struct rings *r, const void *at, bool add)
{
    uint32_t i = (uint32_t)(((uintptr_t)at * 0x9E3779B97F4A7C15ull) >> 32) % INDEX;
    for (; r->index[i] != NONE; i = (i + 1) % INDEX)
        if (r->lock[r->index[i] - 1].at == at)
            return &r->lock[r->index[i] - 1];
    if (!add || r->n == LOCKS)
        return NULL;
    r->index[i] = ++r->n;
    r->lock[r->n - 1].at = at;
    return &r->lock[r->n - 1];
}

/* ---- the two walks ---------------------------------------------------------------------------------------------- */

static void note_lock(struct w_g *g, void *arg)
{
    struct w_g copy;
    enum w_reason reason;
    w_peek_words(&copy, g, sizeof copy);
    const void *at = waits_for(&copy, &reason);
    struct lock *l = at != NULL ? find(arg, at, true) : NULL;
    if (l == NULL || l->reason != W_REASON_NONE)
        return;
    l->reason = reason;
    l->held = held_by(at, reason);
}

static int by_held(const void *a, const void *b)
{
    const struct lock *x = *(struct lock *const *)a, *y = *(struct lock *const *)b;
    return (x->held > y->held) - (x->held < y->held);
}

static void order_locks(struct rings *r)
{
    for (uint32_t i = 0; i < r->n; i++)
        r->order[i] = &r->lock[i];
    qsort(r->order, r->n, sizeof r->order[0], by_held);
}

/* Those that are held from an address in [lo, hi) are held by g, which waits for `next`. */
static void note_between(struct rings *r, uintptr_t lo, uintptr_t hi, struct w_g *g, uint64_t id, const void *next)
{
    uint32_t from = 0, to = r->n;
    while (from < to) {
        uint32_t mid = (from + to) / 2;
        if (r->order[mid]->held < lo)
            from = mid + 1;
        else
            to = mid;
    }
    for (; from < r->n && r->order[from]->held < hi; from++) {
        struct lock *l = r->order[from];
        l->holder = g;
        l->id = id;
        l->next = next;
    }
}

/* Only one that waits for a lock itself can be in a ring. */
static void note_holder(struct w_g *g, void *arg)
{
    struct w_g copy;
    enum w_reason reason;
    w_peek_words(&copy, g, sizeof copy);
    const void *at = waits_for(&copy, &reason);
    if (at == NULL || copy.stack_lo == NULL)
        return;
    note_between(arg, (uintptr_t)g, (uintptr_t)(g + 1), g, copy.id, at);
    uintptr_t sp = (uintptr_t)copy.sp, lo = (uintptr_t)copy.stack_lo;
    note_between(arg, sp > lo ? sp : lo, (uintptr_t)w_stack_top(copy.stack_class, copy.stack_lo), g, copy.id, at);
}

/* ---- the rings -------------------------------------------------------------------------------------------------- */

static struct lock *next_of(struct rings *r, const struct lock *l)
{
    return l->holder != NULL ? find(r, l->next, false) : NULL;
}

/* Does what is known of it still hold? */
static bool is_so(const struct lock *l)
{
    struct w_g copy;
    enum w_reason reason;
    w_peek_words(&copy, l->holder, sizeof copy);
    return copy.id == l->id && waits_for(&copy, &reason) == l->next && held_by(l->at, l->reason) == l->held;
}

static void print_ring(struct w_out *out, struct rings *r, struct lock *first)
{
    struct lock *l = first;
    do {
        if (!is_so(l))
            return;
        l = next_of(r, l);
    } while (l != first);
    w_out_say(out, "these wait for each other's locks, and none of them can ever go on:\n");
    do {
        struct lock *next = next_of(r, l);
        w_out_say(out, "    goroutine %" PRIu64 " waits for %s %p, which ", l->id, w_reason_name(next->reason),
                  next->at);
        if (next->id == l->id)
            w_out_say(out, "it holds itself\n");
        else
            w_out_say(out, "goroutine %" PRIu64 " holds\n", next->id);
        l = next;
    } while (l != first);
    w_out_say(out, "\n");
}

/* From each lock along its holders: the first that this walk has met before is where a ring begins. */
static void follow(struct w_out *out, struct rings *r)
{
    for (uint32_t walk = 1; walk <= r->n; walk++) {
        struct lock *l = &r->lock[walk - 1];
        while (l != NULL && l->mark == 0) {
            l->mark = walk;
            l = next_of(r, l);
        }
        if (l != NULL && l->mark == walk)
            print_ring(out, r, l);
    }
}

void w_rings_print(struct w_out *out)
{
    struct rings *r = w_map(sizeof *r);
    if (r == NULL)
        return;
    w_gs_each(note_lock, r);
    order_locks(r);
    if (r->n > 0)
        w_gs_each(note_holder, r);
    follow(out, r);
    munmap(r, sizeof *r);
}
