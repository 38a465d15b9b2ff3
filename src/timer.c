/* SPDX-License-Identifier: MIT */
/*
 * Timers: sleeps, deadlines, tickers.
 *
 * Each P has a heap of timers under a lock of its own, four children to a node. A heap entry is a time and a slot; the
 * slot knows the timer and the place of its entry. A timer is taken out of the heap when it is stopped: those that were
 * cancelled cost nothing later.
 *
 * Who fires them:
 *   T1  the M that holds the P, when it searches for work, and every so many picks (sched.c: FAIR_TURN)
 *   T2  an M that searches at other Ps
 *   T3  an idle M, the keeper, which sleeps until the first of all is due (m.c); so while all Ps are idle, nothing is late
 *       by more than it takes to wake a thread
 *   T4  the monitor, within a millisecond, if neither of these gets to it: a P is busy with one goroutine, or its M is
 *       blocked, and the keeper does not know of the timer, or there is none (sysmon.c)
 *
 * A timer that ends a wait (a sleep, a case of a select) lies on the waiter's stack. It is claimed under the heap's lock; if
 * somebody else has ended the wait, the waiter stops the timer, for which it needs that lock: so the frame is there. Such
 * a timer is started when the waiter is off its stack, and its ticket is opened under the same lock.
 *
 * A timer with a function (a scope's deadline, a ticker) is marked as running while the function is called, without the
 * lock; whoever stops it waits for that. Functions are never called while somebody parks: they take other locks.
 *
 * Invariants:
 *   TM1  slots[heap[i].slot].at == i, and slots[..].timer is that timer
 *   TM2  next == heap[0].when, or WEFT_NEVER: it is written under the lock
 *   TM3  len + promised <= room: a promised start needs no memory
 */
#include "netpoll.h"
#include "timer.h"
#include "waiter.h"
#include <stdlib.h>

enum {
    FIRST_ROOM = 16,
    BATCH = 128, /* fired at once, then run: what firing has touched is still in the cache */
    NO_SLOT = UINT32_MAX,
};

void w_timers_init(struct w_timers *ts)
{
    st_relaxed(&ts->next, WEFT_NEVER);
    ts->free_slot = NO_SLOT;
}

void w_timers_free(struct w_timers *ts)
{
    free(ts->heap);
    free(ts->slots);
}

/* ---- the heap --------------------------------------------------------------------------------------------------- */

static void put_at(struct w_timers *ts, uint32_t i, struct w_timer_at e)
{
    ts->heap[i] = e;
    ts->slots[e.slot].at = i;
}

static void sift_up(struct w_timers *ts, uint32_t i, struct w_timer_at e)
{
    while (i > 0 && ts->heap[(i - 1) / 4].when > e.when) {
        put_at(ts, i, ts->heap[(i - 1) / 4]);
        i = (i - 1) / 4;
    }
    put_at(ts, i, e);
}

static uint32_t least_child(const struct w_timers *ts, uint32_t i)
{
    uint32_t least = 4 * i + 1;
    for (uint32_t c = least + 1; c <= 4 * i + 4 && c < ts->len; c++)
        if (ts->heap[c].when < ts->heap[least].when)
            least = c;
    return least;
}

static void sift_down(struct w_timers *ts, uint32_t i, struct w_timer_at e)
{
    while (4 * i + 1 < ts->len) {
        uint32_t c = least_child(ts, i);
        if (ts->heap[c].when >= e.when)
            break;
        put_at(ts, i, ts->heap[c]);
        i = c;
    }
    put_at(ts, i, e);
}

static void publish_next(struct w_timers *ts)
{
    st_relaxed(&ts->next,
               ts->len > 0 ? ts->heap[0].when : WEFT_NEVER); /* relaxed: a hint; firing looks under the lock */
}

static void insert(struct w_timers *ts, struct w_timer *t)
{
    uint32_t slot = ts->free_slot;
    ts->free_slot = ts->slots[slot].at;
    ts->slots[slot].timer = t;
    t->slot = slot;
    t->queued = true;
    sift_up(ts, ts->len++, (struct w_timer_at){t->when, slot});
}

static void take_out(struct w_timers *ts, struct w_timer *t)
{
    uint32_t i = ts->slots[t->slot].at;
    struct w_timer_at last = ts->heap[--ts->len];
    ts->slots[t->slot] = (struct w_timer_slot){NULL, ts->free_slot};
    ts->free_slot = t->slot;
    t->queued = false;
    if (i == ts->len)
        return;
    if (i > 0 && ts->heap[(i - 1) / 4].when > last.when)
        sift_up(ts, i, last);
    else
        sift_down(ts, i, last);
}

static int grow(struct w_timers *ts)
{
    uint32_t room = ts->room > 0 ? 2 * ts->room : FIRST_ROOM;
    struct w_timer_at *heap = realloc(ts->heap, room * sizeof *heap);
    if (heap == NULL)
        return -ENOMEM;
    ts->heap = heap;
    struct w_timer_slot *slots = realloc(ts->slots, room * sizeof *slots);
    if (slots == NULL)
        return -ENOMEM;
    ts->slots = slots;
    for (uint32_t i = ts->room; i < room; i++)
        slots[i] = (struct w_timer_slot){NULL, i + 1 < room ? i + 1 : ts->free_slot};
    ts->free_slot = ts->room;
    ts->room = room;
    return 0;
}

static int promise(struct w_timers *ts)
{
    if (ts->len + ts->promised >= ts->room && grow(ts) != 0)
        return -ENOMEM;
    ts->promised++;
    return 0;
}

/* ---- starting and stopping -------------------------------------------------------------------------------------- */

void w_timers_lock(struct w_p *p)
{
    w_spin_lock(&p->timers.lock);
}

void w_timers_unlock(struct w_p *p)
{
    w_spin_unlock(&p->timers.lock);
}

int w_timers_reserve(struct w_p *p)
{
    w_timers_lock(p);
    int r = promise(&p->timers);
    w_timers_unlock(p);
    return r;
}

void w_timer_start_locked(struct w_p *p, struct w_timer *t)
{
    t->p = p;
    t->run = ld_relaxed(&w_sched.run);
    t->running = false;
    p->timers.promised--;
    insert(&p->timers, t);
    publish_next(&p->timers);
}

int w_timer_start(struct w_p *p, struct w_timer *t)
{
    struct w_p *home = p != NULL ? p : w_sched.ps[0];
    w_timers_lock(home);
    int r = promise(&home->timers);
    if (r == 0)
        w_timer_start_locked(home, t);
    w_timers_unlock(home);
    if (p == NULL)
        w_monitor_wake(); /* that P's M does not know of it */
    return r;
}

void w_timer_stop(struct w_timer *t)
{
    if (t->p == NULL || w_run_is_over(t->run))
        return; /* never started, or gone with its run */
    for (uint32_t i = 0;; i++) {
        w_timers_lock(t->p);
        bool running = t->running;
        if (!running && t->queued) {
            take_out(&t->p->timers, t);
            publish_next(&t->p->timers);
        }
        w_timers_unlock(t->p);
        if (!running)
            return;
        w_back_off(i);
    }
}

/* ---- firing ----------------------------------------------------------------------------------------------------- */

struct fired {
    struct w_g *first, **end;
    uint32_t n;
};

/* Ends the wait, if nobody else has. The G is collected: it is woken without the lock. */
static void end_wait(struct w_timer *t, struct fired *f)
{
    struct w_g *g = t->node->wait->g;
    if (!w_claim(t->node))
        return;
    *f->end = g;
    f->end = &g->link;
}

/* With the lock given back meanwhile. It keeps its room in the heap. */
static void call(struct w_p *p, struct w_timer *t)
{
    struct w_timers *ts = &p->timers;
    t->running = true;
    ts->promised++;
    publish_next(ts);
    w_timers_unlock(p);
    int64_t again = t->fn(t);
    w_timers_lock(p);
    t->running = false;
    ts->promised--;
    if (again != WEFT_NEVER) {
        t->when = again;
        insert(ts, t);
    }
}

static void fire_locked(struct w_p *p, int64_t now, struct fired *f)
{
    struct w_timers *ts = &p->timers;
    for (; f->n < BATCH && ts->len > 0 && ts->heap[0].when <= now; f->n++) {
        struct w_timer *t = ts->slots[ts->heap[0].slot].timer;
        take_out(ts, t);
        if (t->fn == NULL)
            end_wait(t, f);
        else
            call(p, t);
    }
    publish_next(ts);
}

uint32_t w_timers_run(struct w_p *p, struct w_p *to_p, int64_t now)
{
    struct fired f = {.end = &f.first};
    if (ld_relaxed(&p->timers.next) > now)
        return 0;
    w_timers_lock(p);
    fire_locked(p, now, &f);
    w_timers_unlock(p);
    *f.end = NULL;
    w_enqueue_all(to_p, f.first);
    return f.n;
}

int64_t w_timers_next(void)
{
    int64_t next = WEFT_NEVER;
    uint32_t n = ld_acquire(&w_sched.p_count); /* [PC-1] */
    for (uint32_t i = 0; i < n; i++) {
        int64_t at = ld_relaxed(&w_sched.ps[i]->timers.next);
        if (at < next)
            next = at;
    }
    return next;
}

static bool first_is_urgent(struct w_p *p, int64_t when)
{
    struct w_timers *ts = &p->timers;
    w_timers_lock(p);
    bool it = ts->len > 0 && ts->heap[0].when == when;
    struct w_timer *t = it ? ts->slots[ts->heap[0].slot].timer : NULL;
    bool urgent = it && t->fn == NULL && ld_relaxed(&t->node->wait->g->level) == W_HIGH;
    w_timers_unlock(p);
    return urgent;
}

bool w_timer_is_urgent(int64_t when)
{
    uint32_t n = ld_acquire(&w_sched.p_count); /* [PC-1] */
    for (uint32_t i = 0; i < n; i++)
        if (ld_relaxed(&w_sched.ps[i]->timers.next) == when && first_is_urgent(w_sched.ps[i], when))
            return true;
    return false;
}

int64_t w_next_event(void)
{
    int64_t timer = w_timers_next(), doubt = w_poll_doubt_at();
    return timer < doubt ? timer : doubt;
}

/* ---- sleeping --------------------------------------------------------------------------------------------------- */

/* Who sleeps for ever is asleep all the same, and not in a deadlock: it has a timer. */
static int64_t time_after(int64_t now, int64_t ns)
{
    return ns >= WEFT_NEVER - now ? WEFT_NEVER - 1 : now + ns;
}

struct nap {
    struct w_wait wait;
    struct w_waiter node;
    struct w_timer timer;
};

static void after_sleep(struct w_m *m, struct w_g *prev, void *arg)
{
    struct nap *nap = arg;
    struct w_g *g = nap->wait.g;
    (void)prev;
    if (m == NULL) { /* a foreign thread, which looks at the clock itself */
        if (w_wait_open(&nap->wait))
            w_wake_g(g);
        return;
    }
    struct w_p *p = m->p;
    w_timers_lock(p);
    w_timer_start_locked(p, &nap->timer);
    bool cut = w_wait_open(&nap->wait);
    w_timers_unlock(p);
    if (cut)
        w_wake_g(g);
}

static int sleep_g(struct w_g *g, int64_t ns)
{
    struct nap nap;
    int r = w_wait_refused(g);
    if (r == 0 && !(g->flags & W_G_FOREIGN))
        r = w_timers_reserve(w_m()->p);
    if (r != 0)
        return r;
    w_wait_init(&nap.wait, g, W_ONE);
    w_waiter_init(&nap.node, &nap.wait, NULL, 0);
    nap.timer = (struct w_timer){.when = time_after(w_now(), ns), .node = &nap.node};
    w_wait_sleep(&nap.wait, after_sleep, &nap, W_REASON_SLEEP, &nap.timer, &nap.timer);
    r = w_wait_cut(&nap.wait);
    if (r != 0)
        w_timer_stop(&nap.timer);
    return r;
}

int weft_sleep(int64_t ns)
{
    if (ns <= 0) {
        weft_yield();
        return 0;
    }
    struct w_g *g = w_call_begin();
    int r = sleep_g(g, ns);
    w_call_end(g);
    return r;
}

/* ---- tickers ---------------------------------------------------------------------------------------------------- */

struct weft_ticker {
    struct w_timer timer;
    int64_t period;
    weft_chan *chan;
};

/* A tick that nobody took is still there: this one is dropped. Ticks that were missed altogether are too. */
static int64_t tick(struct w_timer *timer)
{
    weft_ticker *t = (weft_ticker *)(void *)timer;
    int64_t now = w_now(), late = now - timer->when;
    w_chan_offer(t->chan, &now);
    return time_after(timer->when, late / t->period * t->period + t->period);
}

weft_ticker *weft_ticker_new(int64_t period)
{
    weft_ticker *t = period > 0 ? calloc(1, sizeof *t) : NULL;
    if (t == NULL)
        return NULL;
    t->period = period;
    t->timer = (struct w_timer){.when = time_after(w_now(), period), .fn = tick};
    t->chan = weft_chan_new(sizeof(int64_t), 1);
    struct w_g *g = w_call_begin();
    bool started = t->chan != NULL && w_up() && w_timer_start(g->flags & W_G_FOREIGN ? NULL : w_m()->p, &t->timer) == 0;
    w_call_end(g);
    if (started)
        return t;
    weft_chan_free(t->chan);
    free(t);
    return NULL;
}

weft_chan *weft_ticker_chan(weft_ticker *t)
{
    return t->chan;
}

void weft_ticker_free(weft_ticker *t)
{
    if (t == NULL)
        return;
    struct w_g *g = w_call_begin();
    w_timer_stop(&t->timer);
    w_call_end(g);
    weft_chan_free(t->chan);
    free(t);
}
