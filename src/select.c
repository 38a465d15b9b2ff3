/* SPDX-License-Identifier: MIT */
/*
 * Select: the first of several channel operations, or times, that can be had.
 *
 * First a guess without locks: of the cases that seem ready one is chosen at random and tried under its channel's lock.
 * If that fails, or none seems ready, all channels are locked, in the order of their addresses; what is ready now is
 * ready in one moment. If nothing is, a node goes into the queue of each channel, and the locks are opened when the goroutine is
 * off its stack.
 *
 * Whoever claims the wait at one channel takes the twins of the node, those of the same select at the same channel, out of
 * the queues too: a select that was served there does not touch that channel again, which may be gone. The others it
 * leaves by itself, one after the other.
 *
 * The one that opens the locks reads the waiter's frame meanwhile. The waiter may be claimed at a channel whose lock is open
 * already, but it cannot return before it has locked all others and stopped the timer: the frame stays until the last lock is
 * opened (WA4).
 *
 * Arrays for up to FEW cases are on the stack.
 */
#include "chan.h"
#include <alloca.h>
#include <stdlib.h>

enum { FEW = 64, MOST = 65536 };

struct selecting {
    struct w_wait wait;
    weft_case *cases;
    uint32_t n;
    uint32_t *order;        /* the cases with a channel, sorted by its address */
    uint32_t ordered;       /* how many */
    struct w_waiter *nodes; /* one for each of them, in that order */
    struct w_timer timer;   /* of the first WEFT_AT, if at_node.n >= 0 */
    struct w_waiter at_node;
};

/* ---- what is ready ---------------------------------------------------------------------------------------------- */

static bool is_channel_case(const weft_case *c)
{
    return c->chan != NULL && (c->op == WEFT_OP_SEND || c->op == WEFT_OP_RECV);
}

static bool ready(const weft_case *c, int64_t now)
{
    if (c->op == WEFT_OP_AT)
        return c->at <= now;
    if (!is_channel_case(c))
        return false;
    return c->op == WEFT_OP_SEND ? w_chan_can_send(c->chan) : w_chan_can_recv(c->chan);
}

/* Needed only if there is a WEFT_AT. */
static int64_t now_for(const weft_case *cases, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (cases[i].op == WEFT_OP_AT)
            return w_now();
    return 0;
}

static uint32_t random_below(const struct w_g *g, uint32_t n)
{
    uint64_t *rng = g->flags & W_G_FOREIGN ? w_foreign_rng() : &w_m()->p->rng;
    return n > 1 ? (uint32_t)((uint64_t)w_random(rng) * n >> 32) : 0;
}

/* One of those that seem ready, each as likely; -1: none. */
static int choose(const struct w_g *g, const weft_case *cases, uint32_t n)
{
    int64_t now = now_for(cases, n);
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++)
        count += ready(&cases[i], now);
    uint32_t skip = random_below(g, count);
    for (uint32_t i = 0; i < n && count > 0; i++)
        if (ready(&cases[i], now) && skip-- == 0)
            return (int)i;
    return -1;
}

/* Under its channel's lock. */
static int attempt_locked(weft_case *c, struct w_waiter **wake)
{
    *wake = NULL;
    if (c->op == WEFT_OP_AT)
        return 0;
    return c->op == WEFT_OP_SEND ? w_chan_send_locked(c->chan, c->value, wake)
                                 : w_chan_recv_locked(c->chan, c->value, wake);
}

static void wake_if(struct w_waiter *w)
{
    if (w != NULL)
        w_wake(w);
}

/* The index, or W_WOULD_WAIT negated: the guess was wrong. */
static int try_one(weft_case *cases, int i)
{
    struct w_waiter *wake;
    weft_case *c = &cases[i];
    if (c->op != WEFT_OP_AT)
        w_chan_lock(c->chan);
    int r = attempt_locked(c, &wake);
    if (c->op != WEFT_OP_AT)
        w_chan_unlock(c->chan);
    if (r == W_WOULD_WAIT)
        return -1;
    wake_if(wake);
    c->err = r;
    return i;
}

/* ---- all at once ------------------------------------------------------------------------------------------------ */

static weft_chan *chan_at(const struct selecting *s, uint32_t k)
{
    return s->cases[s->order[k]].chan;
}

static bool first_of_chan(const struct selecting *s, uint32_t k)
{
    return k == 0 || chan_at(s, k) != chan_at(s, k - 1);
}

/* Shell's sort: short, in place, and fast enough for 65,536. */
static void sort_by_address(struct selecting *s)
{
    uint32_t gap = 1;
    while (gap < s->ordered / 3)
        gap = 3 * gap + 1;
    for (; gap > 0; gap /= 3)
        for (uint32_t k = gap; k < s->ordered; k++) {
            uint32_t i = s->order[k], at = k;
            for (; at >= gap && (uintptr_t)chan_at(s, at - gap) > (uintptr_t)s->cases[i].chan; at -= gap)
                s->order[at] = s->order[at - gap];
            s->order[at] = i;
        }
}

static void set_order(struct selecting *s)
{
    s->ordered = 0;
    for (uint32_t i = 0; i < s->n; i++)
        if (is_channel_case(&s->cases[i]))
            s->order[s->ordered++] = i;
    sort_by_address(s);
}

static void lock_all(struct selecting *s)
{
    for (uint32_t k = 0; k < s->ordered; k++)
        if (first_of_chan(s, k))
            w_chan_lock(chan_at(s, k));
}

/* After the last one the frame may be gone. */
static void unlock_all(struct selecting *s)
{
    uint32_t n = s->ordered;
    for (uint32_t k = 0; k < n;) {
        weft_chan *ch = chan_at(s, k);
        for (k++; k < n && chan_at(s, k) == ch; k++)
            ;
        w_chan_unlock(ch);
    }
}

/* The index of the case that was done, or -1: none is ready. A case that only seemed ready no longer does. */
static int do_one_locked(const struct w_g *g, struct selecting *s, struct w_waiter **wake)
{
    int i;
    while ((i = choose(g, s->cases, s->n)) >= 0) {
        int r = attempt_locked(&s->cases[i], wake);
        if (r != W_WOULD_WAIT) {
            s->cases[i].err = r;
            return i;
        }
    }
    return -1;
}

/* ---- waiting ---------------------------------------------------------------------------------------------------- */

/* The earliest WEFT_AT; -1: there is none that ever comes. */
static int first_time(const struct selecting *s)
{
    int first = -1;
    for (uint32_t i = 0; i < s->n; i++) {
        const weft_case *c = &s->cases[i];
        if (c->op == WEFT_OP_AT && c->at != WEFT_NEVER && (first < 0 || c->at < s->cases[first].at))
            first = (int)i;
    }
    return first;
}

static struct w_waitq *queue_of(const weft_case *c)
{
    return c->op == WEFT_OP_SEND ? &c->chan->sendq : &c->chan->recvq;
}

/* Nodes of one channel are twins: they form a ring. */
static void enqueue_locked(struct selecting *s)
{
    for (uint32_t k = 0, first = 0; k < s->ordered; k++) {
        const weft_case *c = &s->cases[s->order[k]];
        if (first_of_chan(s, k))
            first = k;
        w_waiter_init(&s->nodes[k], &s->wait, c->value, s->order[k]);
        if (k > first) {
            s->nodes[k - 1].twin = &s->nodes[k];
            s->nodes[k].twin = &s->nodes[first];
        }
        w_waitq_put(queue_of(c), &s->nodes[k]);
    }
}

/* The heap's lock is the last to be opened: a wait that its timer has ended may have no channel to wait for. Of a foreign
 * thread m is NULL: it needs no timer. */
static void after_select(struct w_m *m, struct w_g *prev, void *arg)
{
    struct selecting *s = arg;
    struct w_g *g = s->wait.g;
    struct w_p *p = m != NULL && s->at_node.n >= 0 ? m->p : NULL;
    (void)prev;
    if (p != NULL) {
        w_timers_lock(p);
        w_timer_start_locked(p, &s->timer);
    }
    bool cut = w_wait_open(&s->wait);
    unlock_all(s);
    if (p != NULL)
        w_timers_unlock(p);
    if (cut)
        w_wake_g(g);
}

/* Takes the nodes out of the queues, but for the channel that ended the wait: there that was done. */
static void leave_queues(struct selecting *s)
{
    const struct w_waiter *won = s->wait.won;
    weft_chan *served = won != NULL && won != &s->at_node ? s->cases[won->n].chan : NULL;
    for (uint32_t k = 0; k < s->ordered;) {
        weft_chan *ch = chan_at(s, k);
        if (ch != served)
            w_chan_lock(ch);
        uint32_t end = k;
        for (; end < s->ordered && chan_at(s, end) == ch; end++)
            if (ch != served)
                w_waitq_remove(&s->nodes[end]);
        if (ch != served)
            w_chan_unlock(ch);
        k = end;
    }
}

/* With all locks held; returns with them open. */
static int wait_locked(struct w_g *g, struct selecting *s)
{
    int at = first_time(s);
    int r = w_wait_refused(g);
    if (r == 0 && at >= 0 && !(g->flags & W_G_FOREIGN))
        r = w_timers_reserve(w_m()->p);
    if (r != 0) {
        unlock_all(s);
        return r;
    }
    w_wait_init(&s->wait, g, W_SEVERAL);
    w_waiter_init(&s->at_node, &s->wait, NULL, at);
    s->timer = (struct w_timer){.when = at >= 0 ? s->cases[at].at : WEFT_NEVER, .node = &s->at_node};
    enqueue_locked(s);
    w_wait_sleep(&s->wait, after_select, s, W_REASON_SELECT, s->ordered > 0 ? chan_at(s, 0) : NULL,
                 at >= 0 ? &s->timer : NULL);
    leave_queues(s);
    if (s->wait.won == NULL || s->wait.won != &s->at_node)
        w_timer_stop(&s->timer);
    if (s->wait.won == NULL)
        return w_cut_error(g);
    int i = (int)s->wait.won->n;
    s->cases[i].err = s->wait.result;
    return i;
}

/* ---- the calls -------------------------------------------------------------------------------------------------- */

static int select_locked(struct w_g *g, struct selecting *s, bool wait)
{
    struct w_waiter *wake = NULL;
    set_order(s);
    lock_all(s);
    int i = do_one_locked(g, s, &wake);
    if (i < 0 && wait && s->ordered == 0 && first_time(s) < 0)
        return w_wait_forever(g, W_REASON_SELECT);
    if (i < 0 && wait)
        return wait_locked(g, s);
    unlock_all(s);
    wake_if(wake);
    return i >= 0 ? i : -EAGAIN;
}

static size_t bytes_for(uint32_t n)
{
    return n * (sizeof(struct w_waiter) + sizeof(uint32_t));
}

static int select_in(struct w_g *g, weft_case *cases, uint32_t n, bool wait, void *memory)
{
    struct selecting s = {.cases = cases, .n = n, .nodes = memory};
    s.order = (uint32_t *)(void *)(s.nodes + n);
    return select_locked(g, &s, wait);
}

static __attribute__((noinline)) int select_few(struct w_g *g, weft_case *cases, uint32_t n, bool wait)
{
    return select_in(g, cases, n, wait, alloca(bytes_for(n)));
}

static __attribute__((noinline)) int select_many(struct w_g *g, weft_case *cases, uint32_t n, bool wait)
{
    bool foreign = g->flags & W_G_FOREIGN; /* never discarded, and perhaps outside a run */
    void *memory = foreign ? malloc(bytes_for(n)) : w_run_alloc(bytes_for(n));
    if (memory == NULL)
        return -ENOMEM;
    int r = select_in(g, cases, n, wait, memory);
    (foreign ? free : w_run_free)(memory);
    return r;
}

static bool sends_nothing(const weft_case *c)
{
    return c->op == WEFT_OP_SEND && c->chan != NULL && c->value == NULL && c->chan->elem > 0;
}

static int select_any(struct w_g *g, weft_case *cases, uint32_t n, bool wait)
{
    for (uint32_t i = 0; i < n; i++)
        if (sends_nothing(&cases[i]))
            return -EINVAL;
    int i = choose(g, cases, n);
    if (i >= 0 && (i = try_one(cases, i)) >= 0)
        return i;
    return n <= FEW ? select_few(g, cases, n, wait) : select_many(g, cases, n, wait);
}

static int select_(weft_case *cases, int n, bool wait)
{
    if (n < 0 || n > MOST || (n > 0 && cases == NULL))
        return -EINVAL;
    struct w_g *g = w_call_begin();
    int r = select_any(g, cases, (uint32_t)n, wait);
    w_call_end(g);
    return r;
}

int weft_select(weft_case *cases, int n)
{
    return select_(cases, n, true);
}

int weft_try_select(weft_case *cases, int n)
{
    return select_(cases, n, false);
}
