/* SPDX-License-Identifier: MIT */
/*
 * Channels.
 *
 *      senders wait ──> [ ring of cap values ] ──> receivers wait
 *
 * One lock guards ring and queues. A value takes the shortest way: from a sender straight into the variable of the receiver
 * that waits, else into the ring; a receiver takes from the ring, and moves the value of the first waiting sender up into
 * it, or, without a ring, takes it straight from that sender's variable. Who was waiting is woken after the lock was
 * given back: whoever is woken may free the channel at once.
 *
 * A goroutine that was woken goes into the slot of its waker's P: the two take turns on one P, and no thread is woken.
 */
#include "chan.h"
#include <stdlib.h>
#include <string.h>

/* ---- values ----------------------------------------------------------------------------------------------------- */

/* Most values are a word. */
static inline void copy(void *to, const void *from, size_t size)
{
    if (likely(size == sizeof(uint64_t)))
        memcpy(to, from, sizeof(uint64_t));
    else if (size > 0)
        memcpy(to, from, size);
}

static inline void *slot(weft_chan *ch, size_t i)
{
    if (i >= ch->cap)
        i -= ch->cap;
    return ch->ring + i * ch->elem;
}

static inline void push_locked(weft_chan *ch, const void *value)
{
    size_t n = ld_relaxed(&ch->count);
    copy(slot(ch, ch->first + n), value, ch->elem);
    st_relaxed(&ch->count, n + 1); /* relaxed: a guess without the lock */
}

static inline void pop_locked(weft_chan *ch, void *value)
{
    if (value != NULL)
        copy(value, slot(ch, ch->first), ch->elem);
    ch->first = ch->first + 1 == ch->cap ? 0 : ch->first + 1;
    st_relaxed(&ch->count, ld_relaxed(&ch->count) - 1);
}

/* ---- what can be done at once ----------------------------------------------------------------------------------- */

#ifdef W_DEBUG
static void check(weft_chan *ch)
{
    size_t n = ld_relaxed(&ch->count);
    if (n > ch->cap || (ch->cap > 0 && ch->first >= ch->cap))
        w_fatal("channel %p: CH1 or CH3 is broken", (void *)ch);
}
#else
static inline void check(weft_chan *ch)
{
    (void)ch;
}
#endif

/* A select that has several nodes here is done with this channel. */
static __attribute__((noinline)) void drop_twins(struct w_waiter *w)
{
    for (struct w_waiter *t = w->twin; t != w; t = t->twin)
        w_waitq_remove(t);
}

static inline struct w_waiter *take(struct w_waitq *q)
{
    struct w_waiter *w = w_waitq_take(q);
    if (w != NULL && unlikely(w->twin != NULL))
        drop_twins(w);
    return w;
}

static inline __attribute__((always_inline)) int send_locked(weft_chan *ch, const void *value, struct w_waiter **wake)
{
    struct w_waiter *w;
    check(ch);
    *wake = NULL;
    if (unlikely(ld_relaxed(&ch->closed)))
        return -EPIPE;
    if ((w = take(&ch->recvq)) != NULL) {
        if (w->value != NULL)
            copy(w->value, value, ch->elem);
        *wake = w;
        return 0;
    }
    if (ld_relaxed(&ch->count) == ch->cap)
        return W_WOULD_WAIT;
    push_locked(ch, value);
    return 0;
}

static inline __attribute__((always_inline)) int recv_locked(weft_chan *ch, void *value, struct w_waiter **wake)
{
    check(ch);
    *wake = NULL;
    if (ld_relaxed(&ch->count) > 0) {
        pop_locked(ch, value);
        if ((*wake = take(&ch->sendq)) != NULL)
            push_locked(ch, (*wake)->value);
        return 0;
    }
    if ((*wake = take(&ch->sendq)) != NULL) {
        if (value != NULL)
            copy(value, (*wake)->value, ch->elem);
        return 0;
    }
    if (likely(!ld_relaxed(&ch->closed)))
        return W_WOULD_WAIT;
    if (value != NULL)
        memset(value, 0, ch->elem);
    return -EPIPE;
}

int w_chan_send_locked(weft_chan *ch, const void *value, struct w_waiter **wake)
{
    return send_locked(ch, value, wake);
}

int w_chan_recv_locked(weft_chan *ch, void *value, struct w_waiter **wake)
{
    return recv_locked(ch, value, wake);
}

/* ---- waiting ---------------------------------------------------------------------------------------------------- */

struct waiting {
    struct w_wait wait;
    struct w_waiter node;
    weft_chan *ch;
};

static void after_wait(struct w_m *m, struct w_g *prev, void *arg)
{
    struct waiting *self = arg;
    struct w_g *g = self->wait.g;
    weft_chan *ch = self->ch;
    (void)m, (void)prev;
    bool cut = w_wait_open(&self->wait);
    w_chan_unlock(ch);
    if (unlikely(cut))
        w_wake_g(g);
}

/* Nobody else can end it: the lock needs no more than to be opened. */
static void after_plain_wait(struct w_m *m, struct w_g *prev, void *arg)
{
    weft_chan *ch = arg;
    (void)prev;
    w_bias_unlock(&ch->lock, m->p);
}

/* The wait was cut: out of the queue. */
static __attribute__((noinline)) int take_back(weft_chan *ch, struct waiting *self)
{
    w_chan_lock(ch);
    w_waitq_remove(&self->node);
    w_chan_unlock(ch);
    return w_cut_error(self->wait.g);
}

/* With the lock held; returns with it open. */
static inline __attribute__((always_inline)) int wait_locked(weft_chan *ch, struct w_waitq *q, struct w_g *g,
                                                             void *value, enum w_reason reason)
{
    struct waiting self;
    int r = w_wait_refused(g);
    if (unlikely(r != 0)) {
        w_chan_unlock(ch);
        return r;
    }
    self.ch = ch;
    w_wait_init(&self.wait, g, W_ONE);
    w_waiter_init(&self.node, &self.wait, value, 0);
    w_waitq_put(q, &self.node);
    bool plain = self.wait.ticket == 0;
    w_wait_sleep(&self.wait, plain ? after_plain_wait : after_wait, plain ? (void *)ch : &self, reason, ch, NULL);
    if (unlikely(self.wait.won == NULL))
        return take_back(ch, &self);
    return self.wait.result;
}

struct forever {
    struct w_wait wait;
    struct w_spin guard; /* nobody else's: for WA4 alone */
};

static void after_forever(struct w_m *m, struct w_g *prev, void *arg)
{
    struct forever *self = arg;
    struct w_g *g = self->wait.g;
    (void)m, (void)prev;
    bool cut = w_wait_open(&self->wait);
    w_spin_unlock(&self->guard);
    if (cut)
        w_wake_g(g);
}

/* For nothing: only the scope can end it. */
int w_wait_forever(struct w_g *g, enum w_reason reason)
{
    struct forever self = {.guard = {0}};
    int r = w_wait_refused(g);
    if (r != 0)
        return r;
    w_wait_init(&self.wait, g, W_SEVERAL);
    w_spin_lock(&self.guard);
    w_wait_sleep(&self.wait, after_forever, &self, reason, NULL, NULL);
    w_spin_lock(&self.guard);
    return w_cut_error(g);
}

static __attribute__((noinline)) int never_ready(bool wait)
{
    if (!wait)
        return -EAGAIN;
    struct w_g *g = w_call_begin();
    int r = w_wait_forever(g, W_REASON_NIL);
    w_call_end(g);
    return r;
}

/* ---- the calls -------------------------------------------------------------------------------------------------- */

static inline void wake_if(struct w_waiter *w)
{
    if (w != NULL)
        w_wake(w);
}

static inline __attribute__((always_inline)) int send(weft_chan *ch, const void *value, bool wait)
{
    struct w_waiter *wake;
    if (unlikely(ch == NULL))
        return never_ready(wait);
    if (unlikely(value == NULL && ch->elem > 0))
        return -EINVAL;
    struct w_g *g = w_call_begin();
    struct w_p *p = w_my_p();
    w_bias_lock(&ch->lock, p);
    int r = send_locked(ch, value, &wake);
    if (r == W_WOULD_WAIT && wait) {
        r = wait_locked(ch, &ch->sendq, g, (void *)value, W_REASON_SEND);
    } else {
        w_bias_unlock(&ch->lock, p);
        wake_if(wake);
    }
    w_call_end(g);
    return r == W_WOULD_WAIT ? -EAGAIN : r;
}

static inline __attribute__((always_inline)) int recv(weft_chan *ch, void *value, bool wait)
{
    struct w_waiter *wake;
    if (unlikely(ch == NULL))
        return never_ready(wait);
    struct w_g *g = w_call_begin();
    struct w_p *p = w_my_p();
    w_bias_lock(&ch->lock, p);
    int r = recv_locked(ch, value, &wake);
    if (r == W_WOULD_WAIT && wait) {
        r = wait_locked(ch, &ch->recvq, g, value, W_REASON_RECV);
    } else {
        w_bias_unlock(&ch->lock, p);
        wake_if(wake);
    }
    w_call_end(g);
    return r == W_WOULD_WAIT ? -EAGAIN : r;
}

int weft_send(weft_chan *ch, const void *value)
{
    return send(ch, value, true);
}

int weft_try_send(weft_chan *ch, const void *value)
{
    return send(ch, value, false);
}

int weft_recv(weft_chan *ch, void *value)
{
    return recv(ch, value, true);
}

int weft_try_recv(weft_chan *ch, void *value)
{
    return recv(ch, value, false);
}

/* The claimed ones' variables are zeroed here: when they run the channel, which knows the size, may be gone. */
static void close_locked(weft_chan *ch, struct w_claimed *c)
{
    struct w_waiter *w;
    while ((w = w_waitq_take(&ch->recvq)) != NULL) {
        if (w->value != NULL)
            memset(w->value, 0, ch->elem);
        w_claimed_add(c, w, -EPIPE);
    }
    w_waitq_take_all(&ch->sendq, -EPIPE, c);
    st_relaxed(&ch->closed, true); /* relaxed: under the lock */
}

int weft_close(weft_chan *ch)
{
    if (ch == NULL)
        return -EINVAL;
    struct w_claimed c = {0};
    struct w_g *g = w_call_begin();
    w_chan_lock(ch);
    bool closed = ld_relaxed(&ch->closed);
    if (!closed)
        close_locked(ch, &c);
    w_chan_unlock(ch);
    w_wake_all(&c);
    w_call_end(g);
    return closed ? -EPIPE : 0;
}

/* Sends if nobody must wait for it; from inside the runtime. */
void w_chan_offer(weft_chan *ch, const void *value)
{
    struct w_waiter *wake;
    w_chan_lock(ch);
    send_locked(ch, value, &wake);
    w_chan_unlock(ch);
    wake_if(wake);
}

size_t weft_len(const weft_chan *ch)
{
    return ch != NULL ? ld_relaxed(&ch->count) : 0;
}

size_t weft_cap(const weft_chan *ch)
{
    return ch != NULL ? ch->cap : 0;
}

/* ---- life ------------------------------------------------------------------------------------------------------- */

weft_chan *weft_chan_new(size_t elem_size, size_t capacity)
{
    size_t size;
    if (__builtin_mul_overflow(elem_size, capacity, &size) || size > PTRDIFF_MAX - sizeof(weft_chan))
        return NULL;
    weft_chan *ch = malloc(sizeof *ch + size);
    if (ch == NULL)
        return NULL;
    memset(ch, 0, sizeof *ch);
    ch->elem = elem_size;
    ch->cap = capacity;
    w_bias_init(&ch->lock, w_my_p());
    return ch;
}

static bool waited_for(struct w_waitq *q)
{
    return w_waitq_first(q) != NULL;
}

void weft_chan_free(weft_chan *ch)
{
    if (ch == NULL)
        return;
    struct w_g *g = w_call_begin();
    w_chan_lock(ch); /* whoever used it last may still be opening it */
    if (waited_for(&ch->recvq) || waited_for(&ch->sendq))
        w_fatal("weft_chan_free of a channel that somebody waits on");
    w_chan_unlock(ch);
    w_call_end(g);
    free(ch);
}
