/* SPDX-License-Identifier: MIT */
/*
 * Foreign threads: OS threads of the process that are no Ms, and call the runtime all the same.
 *
 * Such a thread has a G that stands for it: with the scope that it runs in and the ticket of its wait. It never runs; where a
 * goroutine parks, the thread sleeps on a futex beside it.
 *
 * A call is counted in w_sched.foreign while it lasts. The number of the run tells whether a runtime is up; it is changed
 * first, then the count is waited for:                                                                 [FT-1]
 *      foreign:  foreign++ ; up?              end of the run:  up = 0 ; foreign == 0?
 * What need not wait works without a runtime as well, so such calls are counted too, and find the queues of the last run
 * empty (waiter.h).
 *
 * A sleeping thread would never be woken once the run has ended: it is in a list, and is cut. One that comes to the list
 * after that sees under the list's lock that the run has ended, and cuts itself.
 */
#include "waiter.h"

struct foreign {
    struct w_g g;
    _Atomic uint32_t woken; /* futex */
    uint64_t rng;
    struct foreign *prev, *next; /* sleepers.lock */
};

static __thread struct foreign self;

static struct {
    struct w_spin lock;
    struct foreign *first; /* lock */
} sleepers;

struct w_g *w_foreign_begin(void)
{
    add_seq(&w_sched.foreign, 1); /* [FT-1] */
    if (self.g.flags == 0)
        self.g.flags = W_G_FOREIGN;
    return &self.g;
}

int w_foreign_enter(void)
{
    w_foreign_begin();
    if (w_up())
        return 0;
    w_foreign_leave();
    return -EPERM;
}

void w_foreign_leave(void)
{
    sub_seq(&w_sched.foreign, 1); /* [FT-1] what we did is done before the runtime ends */
}

uint64_t *w_foreign_rng(void)
{
    if (self.rng == 0)
        self.rng = (uint64_t)w_now() * 0x9E3779B97F4A7C15ull ^ (uintptr_t)&self;
    return &self.rng;
}

/* ---- sleeping --------------------------------------------------------------------------------------------------- */

static void enlist(struct foreign *f)
{
    f->prev = NULL;
    f->next = sleepers.first;
    if (f->next != NULL)
        f->next->prev = f;
    sleepers.first = f;
}

static void unlist(struct foreign *f)
{
    if (f->prev != NULL)
        f->prev->next = f->next;
    else
        sleepers.first = f->next;
    if (f->next != NULL)
        f->next->prev = f->prev;
}

/* The end of a run cuts what is shielded from scopes too. */
static bool cut_at_end(struct foreign *f)
{
    uint64_t t = ld_relaxed(&f->g.ticket), state = W_TICKET_STATE(t);
    return (state == W_OPEN || state == W_SHIELDED) && cas_acq_rel(&f->g.ticket, &t, t - state + W_CUT); /* [TK-1] */
}

/* Until woken, or until its time has come and nobody else has ended the wait meanwhile. */
static void sleep_until(struct foreign *f, const struct w_timer *timer)
{
    while (ld_acquire(&f->woken) == 0) { /* [WT-1] what the waker did before */
        int64_t left = timer != NULL ? timer->when - w_now() : -1;
        if (timer != NULL && left <= 0) {
            if (w_claim(timer->node))
                return;
            timer = NULL; /* somebody is about to wake us */
            continue;
        }
        w_futex_wait(&f->woken, 0, left);
    }
}

void w_foreign_sleep(struct w_wait *wait, w_after *after, void *arg, const struct w_timer *timer)
{
    struct foreign *f = (struct foreign *)(void *)wait->g;
    st_relaxed(&f->woken, 0);
    after(NULL, wait->g, arg);
    w_spin_lock(&sleepers.lock);
    enlist(f);
    bool cut = !w_up() && cut_at_end(f);
    w_spin_unlock(&sleepers.lock);
    if (!cut)
        sleep_until(f, timer);
    w_spin_lock(&sleepers.lock);
    unlist(f);
    w_spin_unlock(&sleepers.lock);
}

void w_foreign_wake(struct w_g *g)
{
    struct foreign *f = (struct foreign *)(void *)g;
    st_release(&f->woken, 1); /* [WT-1]; the thread may be gone from here on: the address alone is used */
    w_futex_wake(&f->woken, 1);
}

/* Linked by `link`, foreign threads among goroutines. */
void w_wake_several(struct w_g *first)
{
    struct w_g *ours = NULL, **end = &ours, *next;
    for (struct w_g *g = first; g != NULL; g = next) {
        next = g->link;
        if (g->flags & W_G_FOREIGN) {
            w_foreign_wake(g);
        } else {
            *end = g;
            end = &g->link;
        }
    }
    *end = NULL;
    struct w_m *m = w_m();
    w_enqueue_all(m != NULL ? m->p : NULL, ours);
}

/* ---- begin and end of a run ------------------------------------------------------------------------------------- */

void w_foreign_let_in(void)
{
    add_seq(&w_sched.run, 1); /* [FT-1] */
}

static void cut_sleepers(void)
{
    w_spin_lock(&sleepers.lock);
    for (struct foreign *f = sleepers.first; f != NULL; f = f->next)
        if (cut_at_end(f))
            w_foreign_wake(&f->g); /* it comes to our lock before it is gone */
    w_spin_unlock(&sleepers.lock);
}

void w_foreign_shut_out(void)
{
    add_seq(&w_sched.run, 1); /* [FT-1] */
    cut_sleepers();
    while (ld_seq(&w_sched.foreign) != 0) /* [FT-1] */
        sched_yield();
}
