/* SPDX-License-Identifier: MIT */
/*
 * The netpoller: who waits for which descriptor, and how word of its readiness comes from the kernel.
 *
 * A descriptor is registered with epoll when somebody first has to wait for it, once, edge-triggered, for reading and
 * writing. Each side has a queue of waiters and a flag. A call tries first; when the kernel says "not now" it comes here:
 *
 *      call:    try ── EAGAIN ──> register, once ──> guard { ready? yes: ready = 0, try again; no: queue, sleep }
 *      event:                                        guard { somebody waits? yes: wake one; no: ready = 1 }
 *
 * One waiter is woken for an event; when it is done, and did not come to the end, it wakes the next (w_use_pass).
 *
 * Close behind our back. A descriptor that was closed with plain close() has lost its registration, and the next one with
 * that number would wait for ever. So the registration of a wait that has seen no event for a millisecond is doubted and
 * proved, once (EPOLL_CTL_MOD): it is made anew if it is gone. The proof also makes the kernel look at the descriptor again,
 * so it would mend any other misunderstanding about edges. Waits that last less, those of a busy server, cost nothing. (To
 * prove before each wait costs 230 ns, and all Ps meet in the kernel at the lock of the one epoll.)
 *
 * Who polls: an M that searches, before it steals; every P each 61st pick, if nobody has for a while; one idle M, which
 * sleeps in epoll_wait instead of on its futex (m.c); and the monitor, if nobody has for a millisecond.
 *
 * Numbers are reused. `use` counts the calls that are under way with a number and has the number's life: weft_close_fd begins
 * the next life, wakes the waiters of the old one, and waits until the calls are out before the kernel may give the number
 * to somebody else. Events carry the life that they are about.
 *
 * Invariants, each side's under its guard:
 *   NP1  ready implies that nobody waits there
 *   NP2  whoever waits there is of the present life; the kernel was asked to tell before it looked at `ready`
 *   NP3  empty == epoch + 1: since a read that came to the end there was no event: what came after it has one that is not taken
 *        yet. Then a try is in vain, and left out (io.c). For TCP alone: elsewhere a short read may mean something else.
 */
#include "netpoll.h"
#include "file.h"
#include "sys_io.h"

#define CLOSING    ((uint64_t)1 << 31)
#define LIFE(word) ((uint32_t)((word) >> 32))

#define SIDE_BIT(side) ((uint8_t)(1 << (side)))

enum {
    CHUNK = 256,      /* numbers whose entries are mapped at once: 32 KiB of address space */
    CHUNKS = 1 << 12, /* 2^20 numbers, the kernel's own default limit */
    EVENTS = 128,     /* taken at once */
    YIELDS = 16,
    DOUBTS = 1024,
    SETTLE = 4,
    INTERNAL = 1 << 30, /* in an event's data: not a number, but an internal descriptor */
};

static const int64_t PROVE_AFTER = WEFT_MSEC;

struct doubt {
    int fd;
    uint32_t epochs; /* when it was last looked at */
};

static struct {
    _Atomic(struct w_fd *) chunk[CHUNKS];
    _Atomic int epfd;     /* -1: nobody had to wait in this run so far */
    int wake_fd;          /* an eventfd in epfd; constant once epfd is there */
    _Atomic int64_t last; /* when somebody last polled */
    _Atomic bool asleep;  /* an M sleeps in it: what is ready wakes that one */
    struct w_lock setup;

    struct w_spin doubt_lock;
    _Atomic int64_t doubt_at;   /* when to look at them; written under doubt_lock */
    struct doubt doubt[DOUBTS]; /* doubt_lock */
    _Atomic uint32_t doubts;    /* written under doubt_lock */
} poller = {.epfd = -1, .doubt_at = WEFT_NEVER};

/* ---- the table -------------------------------------------------------------------------------------------------- */

static struct w_fd *find(int fd)
{
    if (fd < 0 || fd >= CHUNK * CHUNKS)
        return NULL;
    struct w_fd *chunk = ld_acquire(&poller.chunk[fd / CHUNK]); /* [FD-1] zeroed pages */
    return chunk != NULL ? &chunk[fd % CHUNK] : NULL;
}

static struct w_fd *find_or_make(int fd)
{
    struct w_fd *d = find(fd);
    if (likely(d != NULL) || fd < 0 || fd >= CHUNK * CHUNKS)
        return d;
    struct w_fd *chunk = w_map(CHUNK * sizeof *chunk), *none = NULL;
    if (chunk == NULL)
        return NULL;
    if (!cas_acq_rel(&poller.chunk[fd / CHUNK], &none, chunk)) /* [FD-1] */
        munmap(chunk, CHUNK * sizeof *chunk);
    return find(fd);
}

static struct w_fd_side *side_of(struct w_fd *d, enum w_side side)
{
    return side == W_SIDE_READ ? &d->read : &d->write;
}

/* ---- uses ------------------------------------------------------------------------------------------------------- */

/* Counts a call in, if the number is in the life that the use is of, or in whichever it is. */
static int count_in(struct w_use *u, bool any_life)
{
    uint64_t word = add_acq_rel(&u->d->use, 1); /* [FD-2] after what weft_close_fd did to the entry */
    if (unlikely(word & CLOSING) || (!any_life && LIFE(word) != u->life)) {
        w_use_end(u);
        u->d = NULL;
        return -EBADF;
    }
    u->life = LIFE(word);
    return 0;
}

int w_use_begin(struct w_use *u, int fd)
{
    u->fd = fd;
    u->d = NULL;
    if (unlikely(fd < 0))
        return -EBADF;
    if (unlikely(fd >= CHUNK * CHUNKS))
        return w_sys_flags(fd) < 0 ? -EBADF : -EMFILE;
    if (unlikely(w_m() == NULL) && !w_up())
        return -EPERM;
    u->d = find_or_make(fd);
    return likely(u->d != NULL) ? count_in(u, true) : -ENOMEM;
}

void w_use_end(struct w_use *u)
{
    if (u->d != NULL)
        add_acq_rel(&u->d->use, (uint64_t)-1); /* [FD-2] the call is over before the number is closed */
}

int w_use_resume(struct w_use *u)
{
    return count_in(u, false);
}

/* ---- waking ----------------------------------------------------------------------------------------------------- */

/* Wakes those at the front who watch, and the first who waits for its turn, or all. false: nobody was there. */
static bool wake_locked(struct w_fd_side *s, bool all, int result, struct w_claimed *c)
{
    struct w_waiter *w;
    bool any = false;
    while ((w = w_waitq_take(&s->q)) != NULL) {
        bool turn = w->n == W_WANT_TURN;
        w_claimed_add(c, w, result);
        any = true;
        if (turn && !all)
            break;
    }
    return any;
}

static void end_waits(struct w_fd *d, int result)
{
    struct w_claimed c = {0};
    for (int i = W_SIDE_READ; i <= W_SIDE_WRITE; i++) {
        struct w_fd_side *s = side_of(d, i);
        w_spin_lock(&s->q.guard);
        wake_locked(s, true, result, &c);
        st_relaxed(&s->ready, false);
        st_relaxed(&s->empty, 0);
        w_spin_unlock(&s->q.guard);
    }
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

static long control(int op, int fd, uint8_t sides, uint32_t life)
{
    uint32_t events = EPOLLET;
    if (sides & SIDE_BIT(W_SIDE_READ))
        events |= EPOLLIN | EPOLLRDHUP | EPOLLPRI;
    if (sides & SIDE_BIT(W_SIDE_WRITE))
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
    if (r == -ENOENT)
        r = control(EPOLL_CTL_ADD, u->fd, all, u->life);
    if (r == -EEXIST) /* the same open file has come back to this number */
        r = control(EPOLL_CTL_MOD, u->fd, all, u->life);
    if (r == 0)
        st_relaxed(&d->asked, all);
    w_spin_unlock(&d->asking);
    return r;
}

int w_poll_watch(int fd)
{
    int r = need_epoll();
    if (r != 0)
        return r;
    return (int)w_sys_epoll_ctl(ld_relaxed(&poller.epfd), EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLET, INTERNAL);
}

/* ---- doubts ----------------------------------------------------------------------------------------------------- */

static uint32_t epochs(struct w_fd *d)
{
    return ld_relaxed(&d->read.epoch) + ld_relaxed(&d->write.epoch);
}

static bool waited_for(struct w_fd *d)
{
    return ld_relaxed(&d->read.q.head) != NULL || ld_relaxed(&d->write.q.head) != NULL;
}

/* The caller is about to wait, and relies on a registration that was made earlier. */
static long doubt(struct w_use *u)
{
    if (likely(ld_relaxed(&u->d->doubted)))
        return 0;
    w_spin_lock(&poller.doubt_lock);
    uint32_t n = ld_relaxed(&poller.doubts);
    if (!ld_relaxed(&u->d->doubted) && n < DOUBTS) {
        poller.doubt[n] = (struct doubt){u->fd, epochs(u->d)};
        st_relaxed(&poller.doubts, n + 1);
        st_relaxed(&u->d->doubted, true);
        if (n == 0)
            st_relaxed(&poller.doubt_at, w_now() + PROVE_AFTER);
    }
    bool listed = ld_relaxed(&u->d->doubted);
    w_spin_unlock(&poller.doubt_lock);
    return listed ? 0 : ask_for(u, 0);
}

/* If the kernel has something to tell, it tells it now. */
static void prove(int fd)
{
    struct w_use u;
    if (w_use_begin(&u, fd) != 0)
        return; /* it is being closed */
    long r = ld_relaxed(&u.d->asked) != 0 ? ask_for(&u, 0) : 0;
    if (r != 0)
        end_waits(u.d, r == -EBADF ? -EBADF : 0); /* 0: they try again, and see */
    w_use_end(&u);
}

/* Those that had events stay, unless all are wanted: their registration was there then. Nobody waits any more: no doubt. The
 * rest are due. */
static uint32_t sort_doubts_locked(struct doubt *due, uint32_t room, bool all)
{
    uint32_t n = 0, kept = 0;
    for (uint32_t i = 0; i < ld_relaxed(&poller.doubts); i++) {
        struct doubt *x = &poller.doubt[i];
        struct w_fd *d = find(x->fd);
        bool waits = waited_for(d), still = x->epochs == epochs(d);
        if (waits && ((!still && !all) || n == room)) {
            poller.doubt[kept++] = (struct doubt){x->fd, still ? x->epochs : epochs(d)};
            continue;
        }
        st_relaxed(&d->doubted, false);
        if (waits)
            due[n++] = *x;
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
    st_relaxed(&poller.doubt_at, ld_relaxed(&poller.doubts) > 0 ? w_now() + PROVE_AFTER : WEFT_NEVER);
    w_spin_unlock(&poller.doubt_lock);
    for (uint32_t i = 0; i < n; i++)
        prove(due[i].fd);
}

/* A few: of many, most will have had an event by the time that we would be woken. */
void w_poll_settle(void)
{
    if (ld_relaxed(&poller.doubts) <= SETTLE)
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
    if (LIFE(ld_relaxed(&d->use)) == life) { /* relaxed: whoever begins a life comes to this guard afterwards */
        st_release(&s->epoch, ld_relaxed(&s->epoch) + 1); /* [NP-3] `shut` */
        if (!wake_locked(s, all, 0, c))
            st_relaxed(&s->ready, true);
    }
    w_spin_unlock(&s->q.guard);
}

static void take_events(const struct epoll_event *e, struct w_claimed *c)
{
    uint32_t fd = (uint32_t)e->data.u64, life = LIFE(e->data.u64), over = e->events & (EPOLLHUP | EPOLLERR);
    if (fd & INTERNAL)
        return; /* it was to wake us, and it has */
    struct w_fd *d = find((int)fd);
    if (e->events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR | EPOLLPRI))
        st_relaxed(&d->shut, true); /* relaxed: before the epoch changes, under the guard */
    if (e->events & EPOLLOUT || over)
        take_event(d, &d->write, life, over != 0, c);
    bool both =
        ld_relaxed(&d->both) > 0; /* relaxed: raised before the guard of the write side, where we have just been */
    if (e->events & (EPOLLIN | EPOLLRDHUP | EPOLLPRI) || over || both)
        take_event(d, &d->read, life, over || e->events & EPOLLRDHUP, c);
}

/* How many events there were. */
static long harvest(int64_t ns, struct w_claimed *c)
{
    struct epoll_event events[EVENTS];
    long n = w_sys_epoll_wait(ld_relaxed(&poller.epfd), events, EVENTS, ns);
    st_relaxed(&poller.last, w_now());
    for (long i = 0; i < n; i++)
        take_events(&events[i], c);
    return n;
}

uint32_t w_poll(void)
{
    struct w_claimed c = {0};
    if (!w_poll_used())
        return 0;
    w_uring_submit();
    look_at_doubts(false);
    harvest(0, &c);
    w_uring_complete(&c);
    w_wake_several(c.first);
    return c.first != NULL;
}

void w_poll_sleep(int64_t ns, struct w_claimed *c)
{
    w_uring_submit();
    bool some = w_uring_complete(c);
    st_relaxed(&poller.asleep, true); /* relaxed: a hint that keeps others from polling in vain */
    harvest(some ? 0 : ns, c);
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
    return w_poll_used() && !ld_relaxed(&poller.asleep) && w_now() - ld_relaxed(&poller.last) > since;
}

/* ---- who waits -------------------------------------------------------------------------------------------------- */

void w_poll_count(int change)
{
    struct w_m *m = w_m();
    if (m != NULL)
        st_relaxed(&m->p->io_waits, ld_relaxed(&m->p->io_waits) + change); /* relaxed: the holder's own */
}

bool w_poll_waited_for(void)
{
    int32_t sum = 0;
    uint32_t n = ld_acquire(&w_sched.p_count); /* [PC-1] */
    for (uint32_t i = 0; i < n; i++)
        sum += ld_relaxed(&w_sched.ps[i]->io_waits);
    return sum > 0;
}

/* ---- waiting ---------------------------------------------------------------------------------------------------- */

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
static int sleep_locked(struct w_use *u, struct w_g *g, struct w_fd_side *s, enum w_want want)
{
    enum w_reason reason = s == &u->d->read ? W_REASON_READ : W_REASON_WRITE;
    bool cut;
    w_poll_count(1);
    w_use_end(u);
    int r = w_wait_in(&s->q, g, want, W_ONE, reason, (const void *)(intptr_t)u->fd, &cut);
    if (cut)
        w_spin_unlock(&s->q.guard);
    w_poll_count(-1);
    int again = w_use_resume(u);
    return r != 0 ? r : again;
}

static int wait_told(struct w_use *u, struct w_g *g, struct w_fd_side *s, enum w_want want)
{
    w_spin_lock(&s->q.guard);
    bool same = LIFE(ld_relaxed(&u->d->use)) == u->life; /* relaxed: as in take_event */
    if (!same || ld_relaxed(&s->ready)) {
        st_relaxed(&s->ready, false);
        w_spin_unlock(&s->q.guard);
        return same ? 0 : -EBADF;
    }
    return sleep_locked(u, g, s, want);
}

static bool take_ready(struct w_fd_side *s)
{
    w_spin_lock(&s->q.guard);
    bool ready = ld_relaxed(&s->ready);
    st_relaxed(&s->ready, false);
    w_spin_unlock(&s->q.guard);
    return ready;
}

/* In the read side's queue for both: an event of the write side either finds `both` raised, or has left `ready` there. */
static int wait_for_both(struct w_use *u, struct w_g *g)
{
    struct w_fd *d = u->d;
    add_relaxed(&d->both, 1);
    int r = take_ready(&d->write) ? 0 : wait_told(u, g, &d->read, W_WANT_BOTH);
    add_relaxed(&d->both, (uint32_t)-1);
    return r;
}

int w_use_wait(struct w_use *u, struct w_g *g, enum w_side side, enum w_want want)
{
    bool both = want == W_WANT_BOTH;
    int r = w_wait_refused(g);
    if (r == 0)
        r = ask_to_tell(u, both ? SIDE_BIT(W_SIDE_READ) | SIDE_BIT(W_SIDE_WRITE) : SIDE_BIT(side));
    if (r != 0)
        return r;
    return both ? wait_for_both(u, g) : wait_told(u, g, side_of(u->d, side), want);
}

void w_use_pass(struct w_use *u, enum w_side side)
{
    if (unlikely(u->d == NULL))
        return; /* it was closed, and everybody told */
    struct w_fd_side *s = side_of(u->d, side);
    struct w_claimed c = {0};
    if (likely(ld_relaxed(&s->q.head) == NULL)) /* relaxed: who comes later tries before it waits */
        return;
    w_spin_lock(&s->q.guard);
    wake_locked(s, false, 0, &c);
    w_spin_unlock(&s->q.guard);
    w_wake_several(c.first);
}

/* ---- the ends of lives ------------------------------------------------------------------------------------------ */

/* What was known belongs to the life that has ended. */
static void forget(struct w_fd *d)
{
    end_waits(d, -EBADF);
    st_relaxed(&d->hint, W_HINT_NONE);
    st_relaxed(&d->asked, 0);
    st_relaxed(&d->shut, false);
}

/* false: somebody else is closing it. */
static bool next_life(struct w_fd *d, uint64_t closing)
{
    uint64_t word = ld_relaxed(&d->use);
    do {
        if (word & CLOSING)
            return false;
    } while (!cas_acq_rel(&d->use, &word, (word + ((uint64_t)1 << 32)) | closing)); /* [FD-2] */
    return true;
}

/* NULL: nothing, or no run is up, and a foreign thread asks. */
static struct w_fd *find_known(int fd)
{
    return w_m() != NULL || w_up() ? find(fd) : NULL;
}

void w_fd_fresh(int fd)
{
    struct w_fd *d = find_known(fd);
    if (d != NULL && next_life(d, 0))
        forget(d);
}

static bool calls_under_way(struct w_fd *d)
{
    return (ld_acquire(&d->use) & (CLOSING - 1)) != 0; /* [FD-2] */
}

/* They wait for nothing, except for a file; but their goroutines may have to wait for a P. */
static void wait_for_calls(struct w_fd *d, bool foreign)
{
    for (uint32_t i = 0; calls_under_way(d); i++) {
        if (foreign) {
            w_back_off(i);
        } else if (i < YIELDS) {
            w_leave();
            weft_yield();
            w_enter();
        } else {
            w_leave();
            weft_shield();
            weft_sleep(100 * WEFT_USEC);
            weft_unshield();
            w_enter();
        }
    }
}

/* The number is free for new calls just before the kernel gives it away: whoever gets it must not find it closing. */
static int close_known(struct w_fd *d, int fd, bool foreign)
{
    if (!next_life(d, CLOSING))
        return -EBADF;
    end_waits(d, -EBADF);
    wait_for_calls(d, foreign);
    if (ld_relaxed(&d->asked) != 0)
        w_sys_epoll_ctl(ld_relaxed(&poller.epfd), EPOLL_CTL_DEL, fd, 0, 0);
    forget(d);
    atomic_fetch_and_explicit(&d->use, ~CLOSING, memory_order_release); /* [FD-2] */
    return (int)w_sys_close(fd);
}

int weft_close_fd(int fd)
{
    struct w_g *g = w_call_begin();
    struct w_fd *d = find_known(fd);
    int r = d != NULL ? close_known(d, fd, g->flags & W_G_FOREIGN) : (int)w_sys_close(fd);
    w_call_end(g);
    return r;
}

/* ---- begin and end of a run ------------------------------------------------------------------------------------- */

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
    for (uint32_t i = 0; i < CHUNKS; i++) {
        struct w_fd *chunk = ld_relaxed(&poller.chunk[i]);
        if (chunk != NULL)
            munmap(chunk, CHUNK * sizeof *chunk);
        st_relaxed(&poller.chunk[i], NULL);
    }
}
