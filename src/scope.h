/* SPDX-License-Identifier: MIT */
/* Scopes as the rest of the runtime sees them; scope.c tells how they work. */
#ifndef W_SCOPE_H
#define W_SCOPE_H

#include "timer.h"
#include "weft_internal.h"

struct w_member;
struct w_value;

struct w_scope {
    struct w_scope *parent;                 /* that it lies in, or NULL; constant */
    struct w_scope *children, *prev, *next; /* those that lie in it; among those of the parent. The parent's lock */
    struct w_g *opener;                     /* constant */
    struct w_member *members;               /* its goroutines; lock */
    struct w_value *values;                 /* lock */
    struct w_waiter *closer;                /* the opener in weft_scope_close, waiting; lock */
    struct w_timer timer;                   /* of its deadline, if that is earlier than the parent's */
    int64_t deadline;                       /* the earlier of its own and the parent's; constant */
    int64_t over_at;                        /* when `err` was set; lock */
    _Atomic int err;                        /* 0, or why it is over; set once, under lock */
    struct w_spin lock;
    bool foreign; /* the opener is a foreign thread; constant */
    bool ended;   /* the last member has ended while it was being closed: nothing counts any more; lock */
    uint32_t run; /* that it was opened in; constant */
};
_Static_assert(sizeof(struct w_scope) <= sizeof(weft_scope), "the header keeps room for it");

/* 0, or what the waits in it return. */
static inline int w_scope_over(struct w_scope *s)
{
    int err = ld_acquire(&s->err); /* [SC-2] */
    return likely(err == 0) ? 0 : err == -ETIMEDOUT ? -ETIMEDOUT : -ECANCELED;
}

int w_wait_refused_slow(struct w_g *g);
int w_cut_error(struct w_g *g);                       /* of a goroutine whose wait was cut */
bool w_cut(struct w_g *g);                            /* if it is in a wait that can be cut; the caller then wakes it */
int w_member_join(struct w_member *m, struct w_g *g); /* its G is made; the error of a scope that is over */
void w_scope_left(struct w_g *g);                     /* it ends */
void w_scope_discard(struct w_g *g);                  /* it is discarded with its run */
int64_t w_goes_on_since(const struct w_g *g);
weft_fn *w_member_fn(const struct w_g *g); /* what it was started with, member or not */

#endif
