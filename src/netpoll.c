/* SPDX-License-Identifier: MIT */
/*
 * The netpoller: who waits for which descriptor, and how word of its readiness comes from the kernel.
 *
 * A descriptor is registered with epoll when somebody first has to wait for it, once, edge-triggered, for the sides that are
 * waited for. Each side has a queue of those who wait for a turn, and counts its events: the epoch. A call tries first; when the
 * kernel says "not now" it comes here:
 *
 *      call:    epoch ── try ── EAGAIN ──> guard { still the same epoch? yes: queue, sleep; no: try again }
 *      event:                              guard { epoch + 1; wake the first }
 *
 * One is woken for an event; when its call is over, whatever came of it, it wakes the next (w_use_pass). Whoever watches
 * (weft_wait_fd) takes nothing away: all of them are woken, by the events of either side.
 *
 * Close behind our back. A descriptor that was closed with plain close() has lost its registration, and the next one with
 * that number would wait for ever. So the registration of a wait that has seen no event for ten milliseconds is doubted and
 * proved, once (EPOLL_CTL_MOD): it is made anew if it is gone. The proof also makes the kernel look at the descriptor again,
 * so it would mend any other misunderstanding about edges. Waits that last less, those of a busy server, cost nothing. (To
 * prove before each wait costs 230 ns, and all Ps meet in the kernel at the lock of the one epoll.)
 *
 * Who polls: an M that searches, before it steals; every P each 61st pick, if nobody has for a while; one idle M, which
 * sleeps in epoll_wait instead of on its futex (m.c); and the monitor, if nobody has for a millisecond (for ten, if that one
 * sleeps there and may be waiting for a core).
 *
 * Invariants, each side's under its guard:
 *   NP1  whoever waits there is of the present life, and has tried in the present epoch, or need not (NP3)
 *   NP2  after an event somebody who waits there has a turn, until one of them has tried in vain or nobody waits
 *   NP3  empty == epoch + 1: since a read that came to the end there was no event: what came after it has one that is not taken
 *        yet. Then a try is in vain, and left out (io.c). For TCP alone: elsewhere a short read may mean something else.
 *   NP4  a watcher that poll() told "not yet" has set `watched` before: whatever event comes after that finds it set
 */
#include "netpoll.h"
#include "file.h"
#include "sys_io.h"

enum {
    EVENTS = 128, /* taken at once */
    DOUBTS = 4096,
    DOUBTS_PER_MS = 64, /* looked at on the average: 64 take some 3 us */
    SETTLE = 4,
    INTERNAL = 1 << 30, /* in an event's data: not a number, but an internal descriptor */
};
static const int64_t PROVE_AFTER = 10 * WEFT_MSEC;

struct doubt {
    int fd;
    uint32_t epochs; /* when it was last looked at */
};

static struct {
    _Atomic int epfd;     /* -1: nobody had to wait in this run so far */
    int wake_fd;          /* an eventfd in epfd; constant once epfd is there */
    _Atomic int64_t last; /* when somebody last polled */
    _Atomic int foreign;  /* threads of others that wait for descriptors */
    _Atomic int services; /* likewise, goroutines of the library's own: these do not keep a run alive either */
    _Atomic bool asleep;  /* an M sleeps in it: what is ready wakes that one */
    struct w_lock setup;

    struct w_spin doubt_lock;
    _Atomic int64_t doubt_at;   /* when to look at them; written under doubt_lock */
    _Atomic int64_t settled_at; /* when an M last looked at them before it slept */
    struct doubt doubt[DOUBTS]; /* doubt_lock */
    _Atomic uint32_t doubts;    /* written under doubt_lock */
} poller = {.epfd = -1, .doubt_at = WEFT_NEVER};

/* ---- waking ----------------------------------------------------------------------------------------------------- */

/* The first, or all. */
static void wake_locked(struct w_waitq *q, bool all, int result, struct w_claimed *c)
{
    if (all) {
        w_waitq_take_all(q, result, c);
        return;
    }
    struct w_waiter *w = w_waitq_take(q);
    if (w != NULL)
        w_claimed_add(c, w, result);
}

static void wake(struct w_waitq *q, bool all, int result, struct w_claimed *c)
{
    w_spin_lock(&q->guard);
    wake_locked(q, all, result, c);
    w_spin_unlock(&q->guard);
}

void w_poll_end_waits(struct w_fd *d, int result)
{
    struct w_claimed c = {0};
    wake(&d->read.q, true, result, &c);
    wake(&d->write.q, true, result, &c);
    wake(&d->watchers, true, result, &c);
    w_wake_several(c.first);
}

void w_use_pass(struct w_use *u, enum w_side side)
{
    struct w_claimed c = {0};
    if (unlikely(u->d == NULL))
        return; /* it was closed, and everybody told */
    struct w_waitq *q = &w_fd_side(u->d, side)->q;
    if (likely(ld_relaxed(&q->head) ==
               NULL)) /* relaxed: who comes later sees the epoch of the event that we were woken for */
        return;
    wake(q, false, 0, &c);
    w_wake_several(c.first);
}

/* ---- registration ----------------------------------------------------------------------------------------------- */

static int make_epoll(void)
{
    long epfd = w_sys_epoll_create();
    if (epfd < 0)
        return (int)epfd;
    long wake_fd = w_sys_eventfd();
    long r = wake_fd < 0 ? wake_fd : w_sys_epoll_ctl((int)epfd, EPOLL_CTL_ADD, (int)wake_fd, EPOLLIN, INTERNAL);
    if (r < 0) {
        w_sys_close((int)epfd);
        if (wake_fd >= 0)
            w_sys_close((int)wake_fd);
        return (int)r;
    }
    poller.wake_fd = (int)wake_fd;
    st_relaxed(&poller.last, w_now());
    st_release(&poller.epfd, (int)epfd); /* [FD-3] wake_fd */
    return 0;
}

/* The first who has to wait makes it. If all Ms sleep on their futexes (a foreign thread waits), one goes to sleep in it. */
static int need_epoll(void)
{
    if (likely(ld_acquire(&poller.epfd) >= 0)) /* [FD-3] */
        return 0;
    w_lock(&poller.setup, W_RANK_POLLER);
    int r = ld_relaxed(&poller.epfd) >= 0 ? 0 : make_epoll();
    w_unlock(&poller.setup, W_RANK_POLLER);
    if (r == 0)
        w_wake_one();
    return r;
}

/* While there are descriptors left: a server that has used them all up must still be able to wait. If it cannot be made now,
 * whoever has to wait tries again. */
void w_poll_prepare(void)
{
    need_epoll();
}

static long control(int op, int fd, uint8_t sides, uint32_t life)
{
    uint32_t events = EPOLLET;
    if (sides & W_SIDE_BIT(W_SIDE_READ))
        events |= EPOLLIN | EPOLLRDHUP | EPOLLPRI;
    if (sides & W_SIDE_BIT(W_SIDE_WRITE))
        events |= EPOLLOUT;
    return w_sys_epoll_ctl(ld_relaxed(&poller.epfd), op, fd, events, (uint64_t)life << 32 | (uint32_t)fd);
}

/* Registers it, or asks for a side more. -EPERM: epoll does not take it. */
static long ask_for(struct w_use *u, uint8_t sides)
{
    struct w_fd *d = u->d;
    w_spin_lock(&d->asking);
    uint8_t asked = ld_relaxed(&d->asked), all = asked | sides;
    long r = asked != 0 ? control(EPOLL_CTL_MOD, u->fd, all, u->life) : -ENOENT;
    if (r == -ENOENT) {
        if (asked != 0)
            w_fd_mistaken(d);
        r = control(EPOLL_CTL_ADD, u->fd, all, u->life);
    }
    if (r == -EEXIST) /* the same open file has come back to this number */
        r = control(EPOLL_CTL_MOD, u->fd, all, u->life);
    if (r == 0)
        st_relaxed(&d->asked, all);
    w_spin_unlock(&d->asking);
    return r;
}

int w_poll_join(int fd)
{
    int r = need_epoll();
    if (r != 0)
        return r;
    return (int)w_sys_epoll_ctl(ld_relaxed(&poller.epfd), EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLET, INTERNAL);
}

void w_poll_dismiss(int fd)
{
    w_sys_epoll_ctl(ld_relaxed(&poller.epfd), EPOLL_CTL_DEL, fd, 0, 0);
}

/* ---- doubts ----------------------------------------------------------------------------------------------------- */

static uint32_t epochs(struct w_fd *d)
{
    return ld_relaxed(&d->read.epoch) + ld_relaxed(&d->write.epoch);
}

/* Does somebody wait there, or may be about to? Who goes to sleep is counted out, and in the queue, under the guard. */
static bool waited_for_in(struct w_fd *d, struct w_waitq *q)
{
    w_spin_lock(&q->guard);
    bool waits = ld_relaxed(&q->head) != NULL || w_fd_in_use(d);
    w_spin_unlock(&q->guard);
    return waits;
}

static bool waited_for(struct w_fd *d)
{
    return waited_for_in(d, &d->read.q) || waited_for_in(d, &d->write.q) || waited_for_in(d, &d->watchers);
}

/* The caller is about to wait, and relies on a registration that was made earlier. */
static long doubt(struct w_use *u)
{
    w_fence_seq(); /* [NP-4] we are counted before we look */
    if (likely(ld_relaxed(&u->d->doubted)))
        return 0;
    w_spin_lock(&poller.doubt_lock);
    uint32_t n = ld_relaxed(&poller.doubts);
    bool listed = ld_relaxed(&u->d->doubted);
    if (!listed && n < DOUBTS) {
        poller.doubt[n] = (struct doubt){u->fd, epochs(u->d)};
        st_relaxed(&poller.doubts, n + 1);
        st_relaxed(&u->d->doubted, true);
        if (n == 0)
            st_relaxed(&poller.doubt_at, w_now() + PROVE_AFTER);
        listed = true;
    }
    w_spin_unlock(&poller.doubt_lock);
    if (w_m() == NULL)
        w_wake_one(); /* all Ms may be asleep for longer: the one that is woken knows until when, when it goes to sleep again */
    return listed ? 0 : ask_for(u, 0);
}

/* If the kernel has something to tell, it tells it now. */
static void prove(int fd)
{
    struct w_use u;
    if (w_use_try_begin(&u, fd) != 0)
        return; /* it is being closed */
    long r = ld_relaxed(&u.d->asked) != 0 ? ask_for(&u, 0) : 0;
    if (r != 0)
        w_poll_end_waits(u.d, 0); /* they try again, and see */
    w_use_end(&u);
}

/* Those that had events stay, unless all are wanted: their registration was there then. Nobody waits any more: no doubt. The
 * rest are due. */
static uint32_t sort_doubts_locked(struct doubt *due, uint32_t room, bool all)
{
    uint32_t n = 0, kept = 0;
    for (uint32_t i = 0; i < ld_relaxed(&poller.doubts); i++) {
        struct doubt *x = &poller.doubt[i];
        struct w_fd *d = w_fd_find(x->fd);
        st_relaxed(&d->doubted, false);
        w_fence_seq(); /* [NP-4] who does not see this is seen */
        bool waits = waited_for(d), still = x->epochs == epochs(d);
        if (waits && ((!still && !all) || n == room)) {
            poller.doubt[kept++] = (struct doubt){x->fd, epochs(d)};
            st_relaxed(&d->doubted, true);
        } else if (waits) {
            due[n++] = *x;
        }
    }
    st_relaxed(&poller.doubts, kept);
    return n;
}

static void look_at_doubts(bool all)
{
    struct doubt due[64];
    if (ld_relaxed(&poller.doubt_at) == WEFT_NEVER || (!all && w_now() < ld_relaxed(&poller.doubt_at)))
        return;
    w_spin_lock(&poller.doubt_lock);
    uint32_t n = sort_doubts_locked(due, sizeof due / sizeof *due, all);
    uint32_t left = ld_relaxed(&poller.doubts);
    st_relaxed(&poller.doubt_at, left > 0 ? w_now() + PROVE_AFTER + WEFT_MSEC * (left / DOUBTS_PER_MS) : WEFT_NEVER);
    w_spin_unlock(&poller.doubt_lock);
    for (uint32_t i = 0; i < n; i++)
        prove(due[i].fd);
}

/* A few: of many, most will have had an event by the time that we would be woken. Not again and again: a descriptor that the
 * kernel calls ready though the call says "not now" (a datagram for somebody whose queue is full) would keep us awake. */
void w_poll_settle(void)
{
    uint32_t n = ld_relaxed(&poller.doubts);
    if (n == 0 || n > SETTLE || w_now() - ld_relaxed(&poller.settled_at) < PROVE_AFTER)
        return;
    st_relaxed(&poller.settled_at, w_now()); /* relaxed: whoever else settles */
    look_at_doubts(true);
}

int64_t w_poll_doubt_at(void)
{
    return ld_relaxed(&poller.doubt_at);
}

/* ---- events ----------------------------------------------------------------------------------------------------- */

static void take_event(struct w_fd *d, struct w_fd_side *s, uint32_t life, bool all, struct w_claimed *c)
{
    w_spin_lock(&s->q.guard);
    if (w_fd_life(d) == life) {
        st_release(&s->epoch, ld_relaxed(&s->epoch) + 1); /* [NP-3] `shut` */
        wake_locked(&s->q, all, 0, c);
    }
    w_spin_unlock(&s->q.guard);
}

/* false: it was for ourselves. */
static bool take_events(const struct epoll_event *e, struct w_claimed *c)
{
    uint32_t fd = (uint32_t)e->data.u64, life = (uint32_t)(e->data.u64 >> 32), over = e->events & (EPOLLHUP | EPOLLERR);
    if (fd & INTERNAL)
        return false; /* it was to wake us, and it has */
    struct w_fd *d = w_fd_find((int)fd);
    if (e->events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR | EPOLLPRI))
        st_relaxed(&d->shut, true); /* relaxed: before the epoch */
    if (e->events & (EPOLLIN | EPOLLRDHUP | EPOLLPRI) || over)
        take_event(d, &d->read, life, over || e->events & EPOLLRDHUP, c);
    if (e->events & EPOLLOUT || over)
        take_event(d, &d->write, life, over != 0, c);
    if (unlikely(ld_acquire(&d->watched))) /* [NP-4] NP4 */
        wake(&d->watchers, true, 0, c);
    return true;
}

/* By whoever polls: an M with a P, or a thread that has none. */
static void count_poll(uint64_t events)
{
    struct w_m *m = w_m();
    struct w_p *p = m != NULL ? m->p : NULL;
    if (p != NULL) {
        w_count(&p->count.polls);
        w_count_many(&p->count.events, events);
    } else {
        add_relaxed(&w_sched.polls, 1);
        add_relaxed(&w_sched.events, events);
    }
}

static void harvest(int64_t ns, struct w_claimed *c)
{
    uint64_t told = 0;
    struct epoll_event events[EVENTS];
    long n = w_sys_epoll_wait(ld_relaxed(&poller.epfd), events, EVENTS, ns);
    st_relaxed(&poller.last, w_now());
    for (long i = 0; i < n; i++)
        told += take_events(&events[i], c);
    count_poll(told);
}

bool w_poll(void)
{
    struct w_claimed c = {0};
    if (!w_poll_used())
        return false;
    w_uring_submit();
    look_at_doubts(false);
    harvest(0, &c);
    uint32_t files = w_uring_complete(&c);
    struct w_m *m = w_m();
    if (files > 0 && m != NULL)
        m->p->ring_batch = files;
    w_wake_several(c.first);
    return c.first != NULL;
}

void w_poll_sleep(int64_t ns, struct w_claimed *c)
{
    w_uring_submit();
    bool some = w_uring_complete(c);
    st_relaxed(&poller.asleep, true); /* relaxed: a hint that keeps others from polling in vain */
    bool again = w_uring_pending() && (ns < 0 || ns > WEFT_MSEC); /* the kernel did not take them now */
    harvest(some ? 0 : again ? WEFT_MSEC : ns, c);
    st_relaxed(&poller.asleep, false);
    w_uring_complete(c);
}

/* Level-triggered: another who polls may see it first, and must leave it to the one who sleeps. */
void w_poll_interrupt(void)
{
    w_sys_eventfd_add(poller.wake_fd);
}

void w_poll_awake(void)
{
    w_sys_eventfd_clear(poller.wake_fd);
}

bool w_poll_unattended(void)
{
    return w_poll_used() && !ld_relaxed(&poller.asleep); /* relaxed: the monitor looks again */
}

bool w_poll_used(void)
{
    return ld_acquire(&poller.epfd) >= 0; /* [FD-3] */
}

bool w_poll_due(int64_t since)
{
    if (!w_poll_used())
        return false;
    int64_t now = w_now();
    bool asleep = ld_relaxed(&poller.asleep); /* its thread may be waiting for a core, on a crowded machine */
    bool unpolled = now - ld_relaxed(&poller.last) > (asleep ? 10 * W_ATTENTIVE : since);
    return unpolled || now >= ld_relaxed(&poller.doubt_at) || w_uring_pending();
}

/* ---- who waits -------------------------------------------------------------------------------------------------- */

void w_poll_count(int change)
{
    struct w_m *m = w_m();
    if (m == NULL)
        add_relaxed(&poller.foreign, change);
    else if (unlikely(m->g->flags & W_G_SERVICE))
        add_relaxed(&poller.services, change);
    else
        st_relaxed(&m->p->io_waits, ld_relaxed(&m->p->io_waits) + (uint32_t)change); /* relaxed: the holder's own */
}

bool w_poll_waited_for(void)
{
    uint32_t sum = 0;
    uint32_t n = ld_acquire(&w_sched.p_count); /* [PC-1] */
    for (uint32_t i = 0; i < n; i++)
        sum += ld_relaxed(&w_sched.ps[i]->io_waits);
    return (int32_t)sum > 0;
}

bool w_poll_wanted(void)
{
    return w_poll_used() &&
           (ld_relaxed(&poller.foreign) > 0 || ld_relaxed(&poller.services) > 0 || w_poll_waited_for());
}

/* ---- waiting ---------------------------------------------------------------------------------------------------- */

struct w_epochs w_use_epochs(const struct w_use *u)
{
    return (struct w_epochs){{ld_acquire(&u->d->read.epoch), ld_acquire(&u->d->write.epoch)}}; /* [NP-3] */
}

/* Makes sure that the kernel will tell of these sides. 1: epoll does not take it. */
static int ask_to_tell(struct w_use *u, uint8_t sides)
{
    long r;
    if (likely((ld_relaxed(&u->d->asked) & sides) == sides)) { /* relaxed: whoever set it has asked already */
        r = doubt(u);
    } else {
        r = need_epoll();
        if (r == 0)
            r = ask_for(u, sides);
    }
    return r == -EPERM ? 1 : (int)r;
}

/* In the queue from here on, and no longer under way: the number may be closed. */
static int sleep_locked(struct w_use *u, struct w_g *g, struct w_waitq *q, enum w_reason reason)
{
    bool cut;
    w_poll_count(1);
    w_use_end(u);
    int r = w_wait_in(q, g, 0, W_ONE, reason, (const void *)(intptr_t)u->fd, &cut);
    if (cut)
        w_spin_unlock(&q->guard);
    w_poll_count(-1);
    int again = w_use_resume(u);
    return r != 0 ? r : again;
}

/* Unless something has happened since: then 0, or -EBADF. */
static int wait_unless(struct w_use *u, struct w_g *g, struct w_waitq *q, enum w_reason reason, uint8_t sides,
                       const struct w_epochs *before)
{
    w_spin_lock(&q->guard);
    struct w_epochs now = w_use_epochs(u);
    bool same = (!(sides & W_SIDE_BIT(W_SIDE_READ)) || now.side[W_SIDE_READ] == before->side[W_SIDE_READ]) &&
                (!(sides & W_SIDE_BIT(W_SIDE_WRITE)) || now.side[W_SIDE_WRITE] == before->side[W_SIDE_WRITE]);
    bool current = w_use_current(u);
    if (likely(same && current))
        return sleep_locked(u, g, q, reason);
    w_spin_unlock(&q->guard);
    return current ? 0 : -EBADF;
}

int w_use_wait(struct w_use *u, struct w_g *g, enum w_side side, const struct w_epochs *before)
{
    int r = w_wait_refused(g);
    if (r == 0)
        r = ask_to_tell(u, W_SIDE_BIT(side));
    if (r != 0)
        return r;
    enum w_reason reason = side == W_SIDE_READ ? W_REASON_READ : W_REASON_WRITE;
    return wait_unless(u, g, &w_fd_side(u->d, side)->q, reason, W_SIDE_BIT(side), before);
}

int w_use_watch(struct w_use *u, struct w_g *g, uint8_t sides, const struct w_epochs *before)
{
    int r = w_wait_refused(g);
    if (r == 0)
        r = ask_to_tell(u, sides);
    if (r != 0)
        return r;
    enum w_reason reason = sides & W_SIDE_BIT(W_SIDE_READ) ? W_REASON_READ : W_REASON_WRITE;
    return wait_unless(u, g, &u->d->watchers, reason, sides, before);
}

/* ---- the end of a run ------------------------------------------------------------------------------------------- */

void w_poll_done(void)
{
    int epfd = ld_relaxed(&poller.epfd);
    if (epfd >= 0) {
        w_sys_close(epfd);
        w_sys_close(poller.wake_fd);
    }
    st_relaxed(&poller.epfd, -1);
    st_relaxed(&poller.doubt_at, WEFT_NEVER);
    st_relaxed(&poller.doubts, 0);
    st_relaxed(&poller.services, 0);
}
