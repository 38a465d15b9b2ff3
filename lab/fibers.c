/* SPDX-License-Identifier: MIT */
/*
 * Goroutines on the library's stacks and switch, and semaphores for them. See fibers.h.
 *
 * The library starts a new goroutine in w_g_main; these programs are linked with --wrap=w_g_main, so that one of ours starts below
 * instead. Its Gs and stacks come in batches, through the cache that a struct w_p is.
 */
#include "fibers.h"
#include "switch.h"
#include <stdlib.h>
#include <string.h>

enum { STACK = 64 << 10 };

static __thread struct lab_m *this_m;

/* Out of line, and not to be thought of as a constant: after a switch the thread is another one. */
__attribute__((noinline)) struct lab_m *lab_m(void)
{
    __asm__ volatile("" ::: "memory");
    return this_m;
}

/* ---- begin and end ---------------------------------------------------------------------------------------------- */

int lab_fibers_begin(void)
{
    w_sched.nodes = 1;
    int r = w_stacks_init(STACK);
    w_gs_init();
    return r;
}

void lab_fibers_end(void)
{
    w_gs_free();
    w_stacks_free();
}

int lab_m_init(struct lab_m *m)
{
    m->cache = aligned_alloc(_Alignof(struct w_p), sizeof *m->cache);
    if (m->cache == NULL)
        return -ENOMEM;
    memset(m->cache, 0, sizeof *m->cache);
    int r = w_stacks_reserve(0, W_STACK_CACHE);
    if (r != 0)
        free(m->cache);
    return r;
}

void lab_m_enter(struct lab_m *m)
{
    this_m = m;
    W_SAN_THREAD(m);
}

void lab_m_done(struct lab_m *m)
{
    free(m->cache);
}

void lab_m_rest(struct lab_m *m)
{
    while (ld_acquire(&m->awake) == 0) /* pairs with lab_m_wake: what its caller did before */
        w_futex_wait(&m->awake, 0, -1);
}

void lab_m_wake(struct lab_m *m)
{
    st_release(&m->awake, 1);
    w_futex_wake(&m->awake, 1);
}

/* ---- switching -------------------------------------------------------------------------------------------------- */

/* The first deed of a context that was switched to: see to the one that was left. */
static void landed(struct lab_m *m)
{
    lab_after *after = m->after;
    if (m->g != NULL)
        W_SAN_ARRIVE(m->g);
    else
        W_SAN_ARRIVE(m);
    m->after = NULL;
    if (after != NULL)
        after(m, m->left, m->after_arg);
}

static void begin_run(struct lab_m *m, struct w_g *g)
{
    if (g->stack_lo == NULL && !w_g_bind(m->cache, g))
        w_fatal("lab: no memory for a stack");
    m->g = g;
}

void lab_resume(struct lab_m *m, struct w_g *g)
{
    begin_run(m, g);
    W_SAN_LEAVE(m, g, g->stack_lo, w_stack_size(g->stack_class), false);
    w_switch(&m->sp, g->sp);
    landed(m);
}

static void leave(struct lab_m *m, struct w_g *next, lab_after *after, void *arg, bool last)
{
    struct w_g *g = m->g;
    (void)last; /* said to sanitizers only */
    m->left = g;
    m->after = after;
    m->after_arg = arg;
    if (next != NULL) {
        begin_run(m, next);
        W_SAN_LEAVE(g, next, next->stack_lo, w_stack_size(next->stack_class), last);
        w_switch(&g->sp, next->sp);
    } else {
        m->g = NULL;
        W_SAN_LEAVE(g, m, m->own_lo, m->own_size, last);
        w_switch(&g->sp, m->sp);
    }
    landed(lab_m());
}

void lab_leave(struct lab_m *m, struct w_g *next, lab_after *after, void *arg)
{
    leave(m, next, after, arg, false);
}

static void after_turn(struct lab_m *m, struct w_g *left, void *arg)
{
    (void)m, (void)arg;
    lab_ready(left);
}

void lab_take_turns(void)
{
    struct lab_m *m = lab_m();
    struct w_g *next = lab_next(m);
    if (next != NULL)
        lab_leave(m, next, after_turn, NULL);
}

/* ---- goroutines ------------------------------------------------------------------------------------------------- */

struct w_g *lab_new(struct lab_m *m, lab_fn *fn, void *arg)
{
    struct w_g *g = w_g_new(m->cache);
    if (g != NULL) {
        g->fn = fn;
        g->arg = arg;
    }
    return g;
}

static void after_end(struct lab_m *m, struct w_g *left, void *arg)
{
    (void)arg;
    w_g_recycle(m->cache, left);
}

#ifdef W_SANITIZED
/* They follow a goroutine by its stack. */
static bool take_over(struct lab_m *m, struct w_g *next)
{
    (void)m, (void)next;
    return false;
}
#else
/* A new goroutine goes on with the stack of the one that ended, without a switch. */
static bool take_over(struct lab_m *m, struct w_g *next)
{
    if (next == NULL || next->stack_lo != NULL)
        return false;
    next->stack_lo = m->g->stack_lo;
    m->g->stack_lo = NULL;
    w_g_recycle(m->cache, m->g);
    m->g = next;
    return true;
}
#endif

/* Where the library's w_entry begins a goroutine. */
void __wrap_w_g_main(void) __attribute__((noreturn));
void __wrap_w_g_main(void)
{
    landed(lab_m());
    for (;;) {
        struct w_g *g = lab_m()->g;
        g->fn(g->arg);
        struct lab_m *m = lab_m();
        struct w_g *next = lab_next(m);
        if (!take_over(m, next))
            leave(m, next, after_end, NULL, true);
    }
}

int lab_go(lab_fn *fn, void *arg)
{
    struct w_g *g = lab_new(lab_m(), fn, arg);
    if (g == NULL)
        return -ENOMEM;
    lab_ready(g);
    return 0;
}

/* ---- semaphores ------------------------------------------------------------------------------------------------- */

void lab_sem_init(lab_sem *s, uint32_t permits)
{
    *s = (lab_sem){.fiber = {.permits = permits}};
}

static void after_wait(struct lab_m *m, struct w_g *left, void *arg)
{
    lab_sem *s = arg;
    (void)m, (void)left;
    w_spin_unlock(&s->fiber.guard);
}

void lab_acquire(lab_sem *s)
{
    w_spin_lock(&s->fiber.guard);
    if (s->fiber.permits > 0) {
        s->fiber.permits--;
        w_spin_unlock(&s->fiber.guard);
        return;
    }
    struct lab_m *m = lab_m();
    lab_put(&s->fiber.waiting, m->g);
    lab_leave(m, lab_next(m), after_wait, s);
}

/* A permit is handed over: whoever waits longest has it before it is awake. */
void lab_release(lab_sem *s)
{
    w_spin_lock(&s->fiber.guard);
    struct w_g *g = lab_take(&s->fiber.waiting);
    if (g == NULL)
        s->fiber.permits++;
    w_spin_unlock(&s->fiber.guard);
    if (g != NULL)
        lab_ready(g);
}
