/* SPDX-License-Identifier: MIT */
/* Timers as their users see them; timer.c tells how they are kept and who runs them. */
#ifndef W_TIMER_H
#define W_TIMER_H

#include "weft_internal.h"

struct w_waiter;
struct w_timer;

/* Called without a lock, on an M's own stack or by the monitor. Returns when the timer is to fire again, or WEFT_NEVER. */
typedef int64_t w_timer_fn(struct w_timer *t);

struct w_timer {
    int64_t when;
    w_timer_fn *fn;        /* constant; NULL: it ends the wait of `node` */
    struct w_waiter *node; /* constant */
    struct w_p *p;         /* in whose heap it is or was; constant once started */
    uint32_t slot;         /* in that; the heap's lock */
    uint32_t run;          /* that it was started in; constant once started */
    bool queued, running;  /* in the heap; its function is being called. The heap's lock */
};

void w_timers_init(struct w_timers *ts);
void w_timers_free(struct w_timers *ts);

/* Room for one more, so that a start cannot fail; -ENOMEM. The P's holder, who then starts one before he lets go of it. */
int w_timers_reserve(struct w_p *p);

void w_timers_lock(struct w_p *p);
void w_timers_unlock(struct w_p *p);
void w_timer_start_locked(struct w_p *p, struct w_timer *t); /* when, fn, node are set */

/* From anywhere, p NULL: of a foreign thread. -ENOMEM. */
int w_timer_start(struct w_p *p, struct w_timer *t);

/* It does not fire any more when this returns, and is the caller's again. */
void w_timer_stop(struct w_timer *t);

/* Fires what is due in p's heap; to_p gets the goroutines that become ready, NULL: the global queue. How many fired. */
uint32_t w_timers_run(struct w_p *p, struct w_p *to_p, int64_t now);

/* When the first of all is due. */
int64_t w_timers_next(void);

/* Likewise, or when w_poll has something to look at. */
int64_t w_next_event(void);

/* Does one that is due then, the first of its P, end the wait of somebody of high priority? */
bool w_timer_is_urgent(int64_t when);

#endif
