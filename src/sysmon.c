/* SPDX-License-Identifier: MIT */
/*
 * The monitor: what nobody else can notice, because everybody else is busy or blocked.
 *
 * The thread that called weft_run is the monitor while the run lasts; it has nothing else to do. It
 *   - takes the P of a goroutine that stays in a blocking region while others wait, be it announced or not (block.c),
 *   - asks a goroutine that has used up its quantum to let others run, and makes each P age once a quantum,
 *   - wakes a thread for a lone goroutine whose P does not get to it (sched.c, W4),
 *   - sees to timers (timer.c, T4) and descriptors (netpoll.c) that nobody else gets to,
 *   - gives memory back, joins threads that ended, retries threads that could not be made.
 *
 * How often it looks: soon again (MIN_DELAY) while it has something to do or to watch, then twice as long each time, up
 *   to BUSY       while a P is busy: its thread may block without a word,
 *   to ATTENTIVE  while some P is idle and another is not (then W4 relies on it), or a P is busy and there are timers or
 *                 descriptors that are waited for,
 *   to MAX_DELAY  while all threads with a P sleep in the kernel, or one is wanted that could not be made,
 *   to TRIM_DELAY while all are idle, until all memory is given back; after that it sleeps until a P is taken.
 */
#include "netpoll.h"
#include "sys_io.h"
#include "timer.h"
#include "weft_internal.h"
#include <stdio.h>
#include <string.h>

static const int64_t MIN_DELAY = 50 * WEFT_USEC;
static const int64_t MAX_DELAY = 10 * WEFT_MSEC;
static const int64_t BUSY = 400 * WEFT_USEC; /* two such looks and a short one, and it is found: within a millisecond */
static const int64_t FOUND_LATELY = WEFT_SEC; /* where one has blocked so, others will: twice as often */
static const int64_t TRIM_DELAY = WEFT_SEC;
static const int64_t BLOCK_LIMIT = 20 * WEFT_USEC; /* a region that others wait for may keep its P that long */
static const int64_t NEGLECTED = 100 * WEFT_USEC;  /* a timer is, if it is so late and every P is busy */
static const int64_t NO_THREAD_LIMIT = 10 * WEFT_SEC;
enum { NO_DEFER = 256 };

struct look {
    int64_t now;
    bool watch;      /* something may need us very soon */
    bool busy;       /* a thread with a P runs, and may block without a word at any time */
    bool events;     /* timers, or descriptors that are waited for */
    bool unattended; /* descriptors are waited for, and no M sleeps in the poller */
};

void w_monitor_wake(void)
{
    add_relaxed(&w_sched.monitor_word, 1); /* relaxed: what it looks at is ordered by the locks and fences of its own */
    w_futex_wake(&w_sched.monitor_word, 1);
}

static bool others_wait(struct w_p *p)
{
    return w_p_work(p) > 0 || ld_relaxed(&w_sched.globq.len) > 0;
}

static void look_at_blocked(struct look *l, struct w_p *p, struct w_m *m)
{
    if (p->blocked_seen != m) {
        p->blocked_seen = m;
        p->blocked_at = l->now;
    }
    bool wanted = others_wait(p);
    if (l->now - p->blocked_at < (wanted ? BLOCK_LIMIT : MAX_DELAY)) {
        l->watch |= wanted;
        return;
    }
    p->blocked_seen = NULL;
    l->watch = true;
    w_p_retake(p, m);
}

/* By the kernel's number: pthread_create may not have returned yet, or the thread not have begun (0). */
int64_t w_thread_cpu(pid_t tid)
{
    enum { OF_A_THREAD = 6 };
    struct timespec ts = {0};
    if (tid != 0)
        clock_gettime((clockid_t)(~(unsigned)tid << 3 | OF_A_THREAD), &ts);
    return (int64_t)ts.tv_sec * WEFT_SEC + ts.tv_nsec;
}

char w_thread_state(pid_t tid)
{
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)tid);
    long fd = w_sys_open(path, O_RDONLY | O_CLOEXEC, 0);
    long n = fd >= 0 ? w_sys_read((int)fd, &(struct iovec){text, sizeof text - 1}, 1, -1) : 0;
    if (fd >= 0)
        w_sys_close((int)fd);
    text[n > 0 ? n : 0] = '\0';
    const char *end = strrchr(text, ')'); /* of its name */
    return end != NULL && end[1] == ' ' ? end[2] : '?';
}

/* The P has not switched: does its thread run at all, if others wait? Two looks at its clock, then the kernel's word. */
static void look_at_still(struct look *l, struct w_p *p, struct w_m *m, bool switched)
{
    bool wanted = m != NULL && others_wait(p), inside = m != NULL && ld_relaxed(&m->in_runtime);
    l->busy |= wanted || switched || inside;
    if (switched || m == NULL || inside) {
        p->still_m = NULL;
        return;
    }
    int64_t cpu = w_thread_cpu(ld_relaxed(&m->tid)), before = p->still_m == m ? p->still_cpu : -1;
    p->still_m = m;
    p->still_cpu = cpu;
    l->busy |= cpu != before;
    if ((before >= 0 && cpu != before) || !wanted)
        return; /* it computes, or nobody minds */
    l->watch = true;
    char state = before >= 0 ? w_thread_state(ld_relaxed(&m->tid)) : 'R';
    if (state != 'R' && w_p_take(p, m)) { /* '?': no descriptor was left to ask with. Wrong, it does no harm */
        p->still_m = NULL;
        w_sched.found_at = l->now;
    }
}

static void ask_to_yield(struct w_m *m)
{
    st_relaxed(&m->preempt, true);
    st_relaxed(&m->gate, NULL); /* relaxed: its next runtime call or the one after will see it */
}

/* Work that nobody gets to while a P is idle: a lone goroutine whose P has not moved since our last look; or shared
 * work, for which look_around looks again. */
static void look_at_work(struct w_p *p, struct w_m *m, bool switched)
{
    struct w_g *lone = ld_relaxed(&p->slot);
    bool stuck = lone != NULL && lone == p->seen_slot && !switched;
    p->seen_slot = lone;
    if (ld_relaxed(&w_sched.idle_p_count) == 0)
        return;
    if (stuck && m != NULL && w_rescue(p, m))
        st_relaxed(&p->no_defer, NO_DEFER);
}

static void look_at_p(struct look *l, struct w_p *p)
{
    struct w_m *blocked = ld_relaxed(&p->blocked_by), *m = ld_acquire(&p->m); /* [PM-1] */
    if (blocked != NULL) {
        look_at_blocked(l, p, blocked);
        return;
    }
    p->blocked_seen = NULL;
    uint32_t tick = ld_relaxed(&p->tick);
    if (tick != p->seen_tick) {
        p->seen_tick = tick;
        p->seen_at = l->now;
    }
    uint64_t switches = ld_relaxed(&p->count.switches);
    bool switched = switches != p->seen_switches;
    p->seen_switches = switches;
    look_at_work(p, m, switched);
    look_at_still(l, p, m, switched);
    if (m == NULL)
        return;
    if (l->now - p->seen_at >= w_sched.quantum && w_sched.quantum != WEFT_NEVER && others_wait(p)) {
        p->seen_at = l->now;
        ask_to_yield(m);
    }
    if (l->now - p->aged_at >= (w_sched.quantum < MAX_DELAY ? w_sched.quantum : MAX_DELAY)) {
        p->aged_at = l->now;
        if (others_wait(p))
            atomic_fetch_or_explicit(&p->attn, W_ATTN_AGE, memory_order_relaxed);
    }
}

/* w_look_again tries to make the thread that is wanted. If nothing runs and it never succeeds, there is no way on. */
static void look_for_threads(int64_t now)
{
    w_lock(&w_sched.lock, W_RANK_SCHED);
    bool wanted = ld_relaxed(&w_sched.m_wanted) && w_sched.busy_ps == 0;
    bool stuck = wanted && (ld_relaxed(&w_sched.globq.len) > 0 || w_ps_have_work());
    if (wanted && !stuck)
        st_relaxed(&w_sched.m_wanted, false); /* other threads have done the work */
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    if (!stuck)
        w_sched.stuck_since = 0;
    else if (w_sched.stuck_since == 0)
        w_sched.stuck_since = now;
    else if (now - w_sched.stuck_since > NO_THREAD_LIMIT)
        w_fatal("no thread can be made to run the goroutines that are ready");
}

/* Timers of busy Ps that are due while all are busy: who is ready then takes its turn in the global queue. While we have it
 * in our hands we count as a busy P: else everything would seem to be asleep. */
static void run_timers(int64_t now)
{
    w_lock(&w_sched.lock, W_RANK_SCHED);
    bool none = w_sched.busy_ps == 0;
    w_sched.busy_ps += !none;
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    if (none)
        return;
    uint32_t n = ld_acquire(&w_sched.p_count); /* [PC-1] */
    for (uint32_t i = 0; i < n; i++)
        while (w_timers_run(w_sched.ps[i], NULL, now) > 0)
            ;
    w_lock(&w_sched.lock, W_RANK_SCHED);
    w_sched.busy_ps--;
    w_check_dead_locked();
    w_unlock(&w_sched.lock, W_RANK_SCHED);
}

/* true: there are timers. An M that is woken here finds what is due, or becomes the keeper. */
static bool look_at_timers(struct look *l)
{
    int64_t next = w_next_event(), keeper = ld_relaxed(&w_sched.keeper_until);
    if (ld_relaxed(&w_sched.idle_p_count) == 0) {
        if (next <= l->now - NEGLECTED)
            run_timers(l->now);
    } else if (next <= l->now || next < keeper) {
        bool busy = next > l->now && ld_relaxed(&w_sched.idle_p_count) < ld_relaxed(&w_sched.procs);
        if (!busy) /* a timer to come of a busy P is that P's own business */
            w_wake_one();
    }
    return next != WEFT_NEVER;
}

/* While an M sleeps in the poller little is due. An M that is woken here and finds nothing goes to sleep there. */
static void look_at_descriptors(struct look *l)
{
    if (!w_poll_wanted())
        return;
    l->events = true;
    l->unattended = w_poll_unattended();
    if (!w_poll_due(W_ATTENTIVE))
        return;
    w_poll();
    if (l->unattended && ld_relaxed(&w_sched.idle_p_count) > 0)
        w_wake_one();
}

static void look_around(struct look *l)
{
    uint32_t n = ld_acquire(&w_sched.p_count); /* [PC-1] */
    for (uint32_t i = 0; i < n; i++)
        look_at_p(l, w_sched.ps[i]);
    w_look_again();
    l->events = look_at_timers(l);
    look_at_descriptors(l);
    look_for_threads(l->now);
    w_ms_join();
}

/* All Ps idle: nothing but memory to see to. Whoever takes a P wakes us. */
static bool all_idle(void)
{
    w_lock(&w_sched.lock, W_RANK_SCHED);
    bool idle = w_sched.busy_ps == 0;
    st_relaxed(&w_sched.monitor_asleep, idle);
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    return idle;
}

/* The stacks that an idle P keeps hot are not needed now; nobody holds the P while it is in the list. */
static void flush_idle_ps(void)
{
    w_lock(&w_sched.lock, W_RANK_SCHED);
    for (struct w_p *p = w_sched.idle_ps; p != NULL; p = p->link)
        w_stack_cache_flush(p, 0);
    w_unlock(&w_sched.lock, W_RANK_SCHED);
}

static int64_t at_most(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The longest that we may sleep now. Attention is withdrawn one look before it ends: who still relied on it is seen. */
static int64_t longest(bool idle, bool memory_left, const struct look *l)
{
    bool before = ld_relaxed(&w_sched.attentive);
    bool now = !idle && w_sched.hiding && ld_relaxed(&w_sched.idle_p_count) > 0;
    bool often = now || before || (l->events && !idle) || l->unattended;
    st_relaxed(&w_sched.attentive, now);
    st_relaxed(&w_sched.timely, often);
    if (l->busy && !idle)
        return l->now - w_sched.found_at < FOUND_LATELY ? BUSY / 2 : BUSY;
    if (often)
        return W_ATTENTIVE;
    if (!idle || ld_relaxed(&w_sched.m_wanted))
        return at_most(MAX_DELAY, w_sched.quantum);
    return memory_left ? TRIM_DELAY : -1;
}

/* All threads with a P sleep, and nobody waited: who comes now from elsewhere wakes us. */
static int64_t doze(int64_t delay)
{
    st_relaxed(&w_sched.drowsy, true);
    w_fence_seq(); /* [MN-1] */
    return ld_relaxed(&w_sched.globq.len) > 0 ? MIN_DELAY : delay;
}

void w_monitor(void)
{
    int64_t delay = MIN_DELAY, trimmed_at = w_now();
    bool memory_left = true;
    while (!ld_relaxed(&w_sched.stopping)) {
        uint32_t word = ld_relaxed(&w_sched.monitor_word);
        struct look l = {.now = w_now()};
        st_relaxed(&w_sched.coarse_now, l.now);
        look_around(&l);
        if (l.now - trimmed_at >= TRIM_DELAY) {
            flush_idle_ps();
            memory_left = w_stacks_trim();
            trimmed_at = l.now;
        }
        bool idle = all_idle();
        memory_left |= !idle;
        int64_t limit = longest(idle, memory_left || l.now - trimmed_at >= TRIM_DELAY, &l);
        delay = l.watch ? MIN_DELAY : limit < 0 ? -1 : at_most(delay * 2, limit);
        if (!idle && delay > BUSY)
            delay = doze(delay);
        if (!ld_relaxed(&w_sched.stopping))
            w_futex_wait(&w_sched.monitor_word, word, delay);
        st_relaxed(&w_sched.monitor_asleep, false);
        st_relaxed(&w_sched.drowsy, false);
        if (delay < 0)
            delay = MIN_DELAY, memory_left = true;
    }
}
