/* SPDX-License-Identifier: MIT */
/* A channel, for those who wait on several (select.c) and those who send without waiting (timer.c). */
#ifndef W_CHAN_H
#define W_CHAN_H

#include "bias.h"
#include "waiter.h"

/*
 * Invariants, under the lock (w_chan_valid):
 *   CH1  count <= cap
 *   CH2  receivers wait only if count == 0 and no sender waits; senders only if count == cap; nobody if it is closed
 *        (waits that were ended otherwise may still be in the queues)
 *   CH3  values are in the ring from `first` on, count of them
 */
struct weft_chan {
    struct w_bias lock;
    _Atomic bool closed;         /* written under lock; once */
    size_t elem, cap;            /* constant */
    _Atomic size_t count;        /* values in the ring; written under lock */
    size_t first;                /* index of the oldest; lock */
    struct w_waitq recvq, sendq; /* lock */
    _Alignas(16) char ring[];    /* lock */
};

static inline struct w_p *w_my_p(void)
{
    struct w_m *m = w_m();
    return likely(m != NULL) ? m->p : NULL;
}

static inline void w_chan_lock(weft_chan *ch)
{
    w_bias_lock(&ch->lock, w_my_p());
}

/* The last touch of the channel. */
static inline void w_chan_unlock(weft_chan *ch)
{
    w_bias_unlock(&ch->lock, w_my_p());
}

enum { W_WOULD_WAIT = 1 };

/* Each does it if it can be done at once: 0 or -EPIPE, and *wake is who must be woken when the lock is open; else
 * W_WOULD_WAIT. */
int w_chan_send_locked(weft_chan *ch, const void *value, struct w_waiter **wake);
int w_chan_recv_locked(weft_chan *ch, void *value, struct w_waiter **wake);

/* Could it be done at once? Without the lock a guess that was right at some moment during the call. */
static inline bool w_chan_can_send(weft_chan *ch)
{
    return ld_relaxed(&ch->count) < ch->cap || ld_relaxed(&ch->recvq.head) != NULL || ld_relaxed(&ch->closed);
}

static inline bool w_chan_can_recv(weft_chan *ch)
{
    return ld_relaxed(&ch->count) > 0 || ld_relaxed(&ch->sendq.head) != NULL || ld_relaxed(&ch->closed);
}

#endif
