/* SPDX-License-Identifier: MIT */
/*
 * M: the OS threads. An M runs goroutines while it holds a P, and sleeps on a futex while it does not.
 *
 * A sleeping M is in the list of idle Ms (newest first: its stack and cache are the warmest), or waits for the one
 * goroutine that is pinned to it. It is woken with a P in its hand (next_p): there is nothing to compete for when it
 * is awake. Ms are made when a P has work and no M sleeps; those that are idle beyond a few end after a while.
 *
 * The keeper is the idle M that sleeps only until the first timer is due, and then takes an idle P by itself. Every M that
 * goes idle looks whether a timer is due before the keeper wakes up, and then is the keeper itself; it is the last but
 * one of the idle ones to be woken for anything else. A timer that comes later belongs to a P that is held, whose M looks at it.
 *
 * The poller is the idle M that sleeps in the netpoller instead of on its futex, if this run polls at all. It is woken through
 * that, and is the last to be woken for anything else. It may be the keeper as well.
 *
 * Pinned: when a pinned goroutine parks, its M gives its P away and sleeps. Whoever finds the goroutine in a queue hands
 * over his own P to that M and sleeps in turn: two thread switches, as in Go.
 */
#include "frames.h"
#include "netpoll.h"
#include "timer.h"
#include "weft_internal.h"
#include <sched.h>
#include <stdlib.h>
#include <sys/prctl.h>

enum {
    STACK = 256 << 10, /* the M's own; goroutines do not run on it */
    KEEP_IDLE = 4,     /* idle Ms beyond the number of Ps that stay for good */
};
static const int64_t LINGER = 5 * WEFT_SEC; /* the others end after this */

/* ---- life of an M ----------------------------------------------------------------------------------------------- */

void w_m_acquire(struct w_m *m, struct w_p *p)
{
    m->p = m->last_p = p;
    if (unlikely(ld_relaxed(&w_sched.places) != NULL)) /* relaxed: a wish; w_m_settle looks again */
        w_m_settle(m, p);
    st_release(&p->m, m);             /* [PM-1] publishes the M to the monitor */
    st_relaxed(&m->preempt, W_GO_ON); /* what was asked for while it held another */
    st_relaxed(&m->gate, p);
    if (w_traced())
        w_trace_hold(m);
    w_fence_seq(); /* [ST-1] the gate is open before we look whether the run ends */
}

static void link_all_locked(struct w_m *m)
{
    m->all_next = w_sched.all_ms;
    if (m->all_next != NULL)
        m->all_next->all_prev = m;
    w_sched.all_ms = m;
    m->id = w_sched.m_serial++;
    w_sched.m_count++;
    if (w_traced())
        w_trace_attach_locked(m);
}

static void unlink_all_locked(struct w_m *m)
{
    w_trace_detach_locked(m);
    w_profile_detach_locked(m);
    if (m->all_prev != NULL)
        m->all_prev->all_next = m->all_next;
    else
        w_sched.all_ms = m->all_next;
    if (m->all_next != NULL)
        m->all_next->all_prev = m->all_prev;
    w_sched.m_count--;
}

static void free_m(struct w_m *m)
{
    if (m->alt_stack != NULL)
        munmap(m->alt_stack, W_ALT_STACK);
    if (m->rows != NULL)
        w_rows_free(m->rows);
    free(m);
}

/* Last steps of a thread that the ended run left behind: nobody else knows of it. */
static void end_abandoned(struct w_m *m)
{
    w_slab_release(m->keep);
    sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL);
    w_tls_m = NULL;
    free_m(m);
}

static void keep_count_locked(struct w_m *m)
{
    struct w_m_counters *all = &w_sched.ended_count;
    w_count_many(&all->sleeps, ld_relaxed(&m->count.sleeps));
    w_count_many(&all->wakes, ld_relaxed(&m->count.wakes));
    w_count_many(&all->spins, ld_relaxed(&m->count.spins));
    w_count_many(&all->asked, ld_relaxed(&m->count.asked));
}

static void end_m(struct w_m *m)
{
    sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL);
    w_lock(&w_sched.lock, W_RANK_SCHED);
    bool abandoned = m->abandoned;
    if (!abandoned) {
        unlink_all_locked(m);
        keep_count_locked(m);
        m->link = w_sched.ended_ms;
        w_sched.ended_ms = m;
    }
    bool last = !abandoned && w_sched.m_count == 0; /* the next run may be setting it up already */
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    if (abandoned)
        end_abandoned(m);
    else if (last)
        w_monitor_wake();
}

/* Of libstdc++ or libc++, if the program has one of them. */
void *__cxa_get_globals(void) __attribute__((weak, visibility("default")));

/* A fault must reach our handler whatever the thread that made us had blocked: blocked, it kills without a word. So must the
 * signal that preempts. */
static void unblock_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGSEGV);
    sigaddset(&set, SIGBUS);
    sigaddset(&set, SIGURG);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

/* The mapping of a thread's stack has its thread-local storage in it, and what libc knows of the thread. */
static void find_own(struct w_m *m)
{
    pthread_attr_t attr;
    void *at = NULL;
    size_t size = 0;
    if (pthread_getattr_np(pthread_self(), &attr) != 0)
        return;
    pthread_attr_getstack(&attr, &at, &size);
    pthread_attr_destroy(&attr);
    m->own_at = (uintptr_t)at;
    w_compiler_barrier(); /* one by one: put together in a vector register, own_at stays there, and pins who is stopped (PR5) */
    m->own_end = (uintptr_t)at + size;
}

/* The monitor, which may have made this thread, is in more of a hurry than others (sysmon.c). */
static void calm_down(void)
{
    struct w_sched_attr attr;
    if (w_sched.slack > 0)
        prctl(PR_SET_TIMERSLACK, w_sched.slack, 0, 0, 0);
    if (w_sched_getattr(&attr) != 0 || attr.policy != SCHED_OTHER || attr.runtime != W_HURRY)
        return;
    attr.runtime = 0;
    w_sched_setattr(&attr);
}

static void *m_main(void *arg)
{
    struct w_m *m = arg;
    m->errno_at = w_errno_location();
    m->eh_at = __cxa_get_globals != NULL ? __cxa_get_globals() : NULL;
    m->cpu = w_cpu_note();
    st_relaxed(&m->tid, gettid());
    unblock_signals();
    calm_down();
    w_comm_of_m(m);
    W_SAN_THREAD(m);
    find_own(m);
    sigaltstack(&(stack_t){.ss_sp = m->alt_stack, .ss_size = W_ALT_STACK}, NULL);
    w_tls_m = m;
    w_profile_attach(m);
    w_m_acquire(m, m->next_p);
    struct w_g *g;
    while (!m->quit && (g = w_find(m)) != NULL) {
        if (g->flags & W_G_PINNED && g->pinned != m)
            w_m_start_pinned(m, g);
        else
            w_run(m, g);
    }
    end_m(m);
    return NULL;
}

static int make_thread(struct w_m *m)
{
    pthread_attr_t attr;
    int r = pthread_attr_init(&attr);
    if (r != 0)
        return -r;
    pthread_attr_setstacksize(&attr, STACK);
    r = pthread_create(&m->thread, &attr, m_main, m);
    if (r == EINVAL) /* large static TLS needs more than STACK */
        r = pthread_create(&m->thread, NULL, m_main, m);
    pthread_attr_destroy(&attr);
    return -r;
}

/* A new thread that begins with p in its hand. */
static int make_m(struct w_p *p, bool spinning)
{
    struct w_m *m = aligned_alloc(W_CACHE_LINE, sizeof *m);
    if (m == NULL)
        return -ENOMEM;
    *m = (struct w_m){.next_p = p, .spinning = spinning, .in_runtime = 1};
    m->alt_stack = w_map(W_ALT_STACK);
    m->rows = w_rows_new(W_ROWS_OF_M);
    if (m->alt_stack == NULL || m->rows == NULL) {
        free_m(m);
        return -ENOMEM;
    }
    w_lock(&w_sched.lock, W_RANK_SCHED);
    bool stopping = ld_relaxed(&w_sched.stopping);
    if (!stopping)
        link_all_locked(m);
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    if (stopping) {
        free_m(m);
        return 0;
    }
    int r = make_thread(m);
    if (r != 0) {
        w_lock(&w_sched.lock, W_RANK_SCHED);
        unlink_all_locked(m);
        w_sched.m_failed++;
        w_unlock(&w_sched.lock, W_RANK_SCHED);
        free_m(m);
        return r;
    }
    st_relaxed(&w_sched.m_wanted, false);
    return 0;
}

/* ---- sleeping and waking ---------------------------------------------------------------------------------------- */

/* Under w_sched.lock. */
void w_m_wake(struct w_m *m)
{
    st_release(&m->wake, 1); /* [MW-1] publishes next_p */
    if (m == w_sched.poller)
        w_poll_interrupt();
    else
        w_futex_wake(&m->wake, 1);
}

/* false: the time passed first. */
static bool sleep_m(struct w_m *m, int64_t ns)
{
    while (ld_acquire(&m->wake) == 0)                                                 /* [MW-1] */
        if (w_futex_wait(&m->wake, 0, ns) == -ETIMEDOUT && ld_acquire(&m->wake) == 0) /* [MW-1] */
            return false;
    st_relaxed(&m->wake, 0);
    return true;
}

static void take_next_p(struct w_m *m)
{
    struct w_p *p = m->next_p;
    m->next_p = NULL;
    w_count_after(&m->count.wakes);
    m->spinning = m->next_spinning;
    m->next_spinning = false;
    if (p != NULL)
        w_m_acquire(m, p);
}

/* The former one goes on sleeping until its time has come, and finds then that it is the keeper no more. */
static void become_keeper_locked(struct w_m *m)
{
    int64_t next = w_next_event();
    if (next >= ld_relaxed(&w_sched.keeper_until))
        return;
    w_sched.keeper = m;
    st_relaxed(&w_sched.keeper_until, next); /* relaxed: a hint for those who do not hold the lock */
}

static void no_keeper_locked(struct w_m *m)
{
    if (w_sched.keeper != m)
        return;
    w_sched.keeper = NULL;
    st_relaxed(&w_sched.keeper_until, WEFT_NEVER);
}

static bool push_idle(struct w_m *m)
{
    w_lock(&w_sched.lock, W_RANK_SCHED);
    bool stopping = ld_relaxed(&w_sched.stopping);
    if (!stopping) {
        m->link = w_sched.idle_ms;
        w_sched.idle_ms = m;
        m->idle = true;
        w_sched.idle_m_count++;
        become_keeper_locked(m);
    }
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    return !stopping;
}

static void remove_idle_locked(struct w_m *m)
{
    struct w_m **at = &w_sched.idle_ms;
    while (*at != m)
        at = &(*at)->link;
    *at = m->link;
    m->idle = false;
    w_sched.idle_m_count--;
    no_keeper_locked(m);
}

/* Whom to disturb first: nobody relies on it; the timers do; whoever waits for a descriptor does. */
static int duties(const struct w_m *m)
{
    return m == w_sched.poller ? 2 : m == w_sched.keeper ? 1 : 0;
}

/* And of those alike, one that keeps to that node. */
static uint32_t reluctance(const struct w_m *m, uint32_t node)
{
    uint32_t bound = ld_relaxed(&m->bound);
    return 2 * (uint32_t)duties(m) + (bound != 0 && bound != node + 1);
}

static struct w_m *pop_idle_locked(uint32_t node)
{
    struct w_m *m = w_sched.idle_ms;
    if (m == NULL)
        return NULL;
    for (struct w_m *at = m->link; at != NULL && reluctance(m, node) > 0; at = at->link)
        if (reluctance(at, node) < reluctance(m, node))
            m = at;
    remove_idle_locked(m);
    return m;
}

/* How long it may sleep; and whether in the netpoller. */
static int64_t time_to_sleep(struct w_m *m, bool *polls)
{
    w_lock(&w_sched.lock, W_RANK_SCHED);
    if (w_sched.poller == NULL && m->idle && w_poll_used())
        w_sched.poller = m;
    *polls = w_sched.poller == m;
    int64_t until = w_sched.keeper == m ? ld_relaxed(&w_sched.keeper_until) : WEFT_NEVER;
    bool superfluous = !*polls && w_sched.idle_m_count > KEEP_IDLE + ld_relaxed(&w_sched.procs);
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    if (until == WEFT_NEVER)
        return superfluous ? LINGER : -1;
    int64_t left = until - w_now();
    return left > 0 ? left : 0;
}

/* Out of the list with an idle P, as one that looks for work; NULL: there is none. */
static struct w_p *take_idle_p_locked(struct w_m *m)
{
    struct w_p *p = ld_relaxed(&w_sched.stopping) ? NULL : w_p_get_idle_locked(m->last_p);
    if (p == NULL)
        return NULL;
    remove_idle_locked(m);
    w_count_after(&m->count.wakes);
    m->spinning = true;
    add_seq(&w_sched.spinning, 1); /* [WK-1] with the P, under the lock (W3) */
    return p;
}

/* Sleeps in the netpoller. true: it was woken, or has found something and a P to run it. */
static bool sleep_in_poller(struct w_m *m, int64_t ns)
{
    struct w_claimed ready = {0};
    struct w_p *p = NULL;
    w_poll_sleep(ns, &ready);
    w_lock(&w_sched.lock, W_RANK_SCHED);
    bool woken = ld_acquire(&m->wake) != 0; /* [MW-1] */
    if (woken)
        w_poll_awake(); /* before another can be the poller, and be woken: its word would be lost */
    w_sched.poller = NULL;
    if (!woken && ready.first != NULL)
        p = take_idle_p_locked(m);
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    if (woken) {
        st_relaxed(&m->wake, 0);
        take_next_p(m);
    } else if (p != NULL) {
        w_m_acquire(m, p);
    }
    w_wake_several(ready.first);
    return woken || p != NULL;
}

/* The keeper's time has come: with an idle P, as one that looks for work. false: somebody has just picked it. */
static bool keep_time(struct w_m *m)
{
    w_lock(&w_sched.lock, W_RANK_SCHED);
    bool keeper = w_sched.keeper == m;
    struct w_p *p = keeper ? take_idle_p_locked(m) : NULL;
    if (keeper && p == NULL)
        no_keeper_locked(m); /* all Ps are busy, and see to their timers */
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    if (p != NULL)
        w_m_acquire(m, p);
    return p != NULL;
}

/* It slept long enough: out of the list, unless somebody has just picked it, or it is needed as a reserve. */
static bool leave_idle(struct w_m *m)
{
    bool left = false;
    w_lock(&w_sched.lock, W_RANK_SCHED);
    if (m->idle && w_sched.keeper != m && w_sched.idle_m_count > KEEP_IDLE + ld_relaxed(&w_sched.procs)) {
        remove_idle_locked(m);
        left = true;
    }
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    return left;
}

/* Returns with a P; without one if this thread must end. */
void w_m_stop(struct w_m *m)
{
    bool polls;
    int64_t ns;
    if (w_traced())
        w_trace_idle(m);
    w_poll_settle();
    if (!push_idle(m))
        return;
    w_count(&m->count.sleeps);
    do {
        ns = time_to_sleep(m, &polls);
        if (polls && sleep_in_poller(m, ns))
            return;
        if (!polls && sleep_m(m, ns)) {
            take_next_p(m);
            return;
        }
    } while (!keep_time(m) && (polls || ns != LINGER || !leave_idle(m)));
}

int w_m_start(struct w_p *p, bool spinning)
{
    w_lock(&w_sched.lock, W_RANK_SCHED);
    bool stopping = ld_relaxed(&w_sched.stopping);
    struct w_m *m = stopping ? NULL : pop_idle_locked(w_p_node(p));
    if (m != NULL) {
        m->next_p = p;
        m->next_spinning = spinning;
        w_m_wake(m); /* under the lock: once the run ends under it, it may be joined and freed */
    }
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    if (m != NULL || stopping)
        return 0;
    int r = make_m(p, spinning);
    if (r == 0)
        return 0;
    w_expose(p); /* its queues may hold work: the monitor tries again, and thieves look at idle Ps too */
    w_lock(&w_sched.lock, W_RANK_SCHED);
    w_p_idle_locked(p);
    if (spinning)
        sub_seq(&w_sched.spinning, 1); /* [WK-1] */
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    if (!atomic_exchange_explicit(&w_sched.m_wanted, true, memory_order_relaxed)) /* relaxed: a request */
        w_monitor_wake();
    return r;
}

/* Waits for the threads that have ended. */
void w_ms_join(void)
{
    w_lock(&w_sched.lock, W_RANK_SCHED);
    struct w_m *m = w_sched.ended_ms, *next;
    w_sched.ended_ms = NULL;
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    for (; m != NULL; m = next) {
        next = m->link;
        pthread_join(m->thread, NULL);
        free_m(m);
    }
}

/* ---- pinned goroutines ------------------------------------------------------------------------------------------ */

/* The goroutine that is pinned here cannot run now: this M sleeps until it can. Its P, if it still has one, goes to
 * another M, with the goroutine that was picked to run next, if one was. */
void w_m_stop_pinned(struct w_m *m, struct w_g *picked)
{
    struct w_p *p = m->p;
    if (ld_relaxed(&w_sched.stopping))
        return;
    m->p = NULL;
    st_relaxed(&m->gate, NULL);
    if (w_traced())
        w_trace_idle(m);
    if (p != NULL) {
        if (picked != NULL)
            w_place_first(p, picked);
        w_count(&p->count.pinned);
        st_relaxed(&p->m, NULL);
        w_p_release(p);
    }
    w_count(&m->count.sleeps);
    sleep_m(m, -1);
    take_next_p(m);
    m->picked = m->p != NULL ? m->pinned_g : NULL;
}

/* g runs on another M only: that one gets our P, and we sleep. */
void w_m_start_pinned(struct w_m *m, struct w_g *g)
{
    struct w_m *other = g->pinned;
    struct w_p *p = m->p;
    m->p = NULL;
    w_count(&p->count.pinned);
    st_relaxed(&m->gate, NULL);
    st_relaxed(&p->m, NULL);
    if (w_traced())
        w_trace_idle(m);
    w_lock(&w_sched.lock, W_RANK_SCHED);
    if (!ld_relaxed(&w_sched.stopping)) {
        other->next_p = p;
        w_m_wake(other); /* under the lock, as in w_m_start */
    }
    w_unlock(&w_sched.lock, W_RANK_SCHED);
}

/* The running goroutine, inside the runtime. */
void w_pin(struct w_m *m)
{
    struct w_g *g = m->g;
    if (++g->pins == 0)
        w_fatal("weft_pin more than 65535 times in goroutine %lu", g->id);
    g->flags |= W_G_PINNED;
    g->pinned = m;
    m->pinned_g = g;
}

void w_unpin(struct w_m *m)
{
    struct w_g *g = m->g;
    if (g->pins == 0)
        w_fatal("weft_unpin without weft_pin in goroutine %lu", g->id);
    if (--g->pins > 0)
        return;
    g->flags &= (uint16_t)~W_G_PINNED;
    g->pinned = NULL;
    m->pinned_g = NULL;
}

void weft_pin(void)
{
    struct w_m *m = w_enter();
    if (m == NULL)
        return;
    w_pin(m);
    w_leave();
}

void weft_unpin(void)
{
    struct w_m *m = w_enter();
    if (m == NULL)
        return;
    w_unpin(m);
    w_leave();
}
