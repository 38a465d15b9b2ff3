/* SPDX-License-Identifier: MIT */
/*
 * Statistics: adds up what was counted (stats.h), and looks at how things stand, while everything runs on.
 *
 * Order. A goroutine is counted as started before anybody can run it, and as ended by whoever ran it: so the start happens before
 * the end. We read the ends of all Ps first, each with acquire, and the starts afterwards: whoever is among the ends that we
 * read is among the starts that we read, and `ended` never exceeds `spawned`. Between the two the number of Ps is read again: a
 * P that was made meanwhile may have started one that ended on another.                                            [CN-1]
 * In the same way a thread's wakes never exceed its sleeps. Other figures promise nothing about each other, except those that are
 * read in one go under w_sched.lock.
 *
 * What is owned by another thread and not atomic (which goroutine an M runs, how many stacks a P keeps) is peeked at: one aligned
 * word, which the hardware does not tear, and which may be old. A G, an M or a P that such a word leads to is there: Gs and Ps
 * stay until the run ends, and Ms end under the lock that we hold. Rejected: atomic fields for them, which a switch would store
 * to in more instructions than it does now.
 */
#include "weft_internal.h"
#include <string.h>

/* ---- peeking ---------------------------------------------------------------------------------------------------- */

#define PEEK static __attribute__((noinline, no_sanitize("thread")))

PEEK uint32_t peek_32(const uint32_t *at)
{
    return *(const volatile uint32_t *)at;
}

PEEK uint64_t peek_64(const void *at)
{
    return *(const volatile uint64_t *)at;
}

/* To a G or a P. */
PEEK void *peek_pointer(const void *at)
{
    return *(void *const volatile *)at;
}

static int64_t id_of_running(const struct w_m *m)
{
    const struct w_g *g = peek_pointer(&m->g);
    return g != NULL ? (int64_t)peek_64(&g->id) : 0;
}

/* ---- goroutines ------------------------------------------------------------------------------------------------- */

struct w_g_count w_count_gs(void)
{
    struct w_g_count c = {0};
    uint32_t n = ld_acquire(&w_sched.p_count); /* [PC-1] */
    for (uint32_t i = 0; i < n; i++)
        c.ended += ld_acquire(&w_sched.ps[i]->count.ended); /* [CN-1] */
    n = ld_acquire(&w_sched.p_count);                       /* [PC-1] */
    for (uint32_t i = 0; i < n; i++)
        c.spawned += ld_relaxed(&w_sched.ps[i]->count.spawned);
    c.spawned += ld_relaxed(&w_sched.foreign_spawned);
    return c;
}

/* ---- processors ------------------------------------------------------------------------------------------------- */

/* A counter of a P, where it goes for that P, and where it is added to those of the others. */
struct counter {
    size_t from, to, sum;
};

#define COUNTER(from, name) \
    offsetof(struct w_counters, from), offsetof(weft_proc_stats, name), offsetof(weft_stats_t, name)

static const struct counter COUNTERS[] = {
    {COUNTER(switches, switches)},
    {COUNTER(parks, parks)},
    {COUNTER(overflows, overflows)},
    {COUNTER(steals, steals_tried)},
    {COUNTER(stolen, steals_done)},
    {COUNTER(taken, stolen)},
    {COUNTER(preempted, preempts_at_call)},
    {COUNTER(cut, preempts_by_signal)},
    {COUNTER(regions, regions)},
    {COUNTER(given, handoffs_given)},
    {COUNTER(retaken, handoffs_retaken)},
    {COUNTER(found, handoffs_found)},
    {COUNTER(pinned, handoffs_pinned)},
    {COUNTER(polls, polls)},
    {COUNTER(events, events)},
};
enum { COUNTER_COUNT = sizeof COUNTERS / sizeof *COUNTERS };

static uint64_t read_counter(const struct w_p *p, const struct counter *c)
{
    return ld_relaxed((_Atomic uint64_t *)(void *)((char *)&p->count + c->from)); /* relaxed: a number */
}

static uint64_t *field(void *stats, size_t offset)
{
    return (uint64_t *)(void *)((char *)stats + offset);
}

static int64_t state_of_p_locked(const struct w_p *p)
{
    if (p->status == W_P_RUNNING)
        return ld_relaxed(&p->blocked_by) != NULL ? WEFT_PROC_BLOCKED : WEFT_PROC_RUNNING;
    return p->status == W_P_IDLE ? WEFT_PROC_IDLE : WEFT_PROC_RETIRED;
}

/* While a run is up and not about to end, the holder of a P has not ended. */
static void say_who_runs_locked(weft_proc_stats *s, struct w_p *p, int64_t now)
{
    struct w_m *m = ld_relaxed(&w_sched.stopping) ? NULL : ld_acquire(&p->m); /* [PM-1] */
    s->thread = -1;
    if (m == NULL)
        return;
    s->thread = m->id;
    s->goroutine = id_of_running(m);
    int64_t since = (int64_t)peek_64(&p->switched_at);
    if (s->goroutine != 0 && peek_64(&p->seen_switches) == ld_relaxed(&p->count.switches) && since != 0 && since < now)
        s->running_ns = now - since;
}

static void fill_proc_locked(weft_proc_stats *s, struct w_p *p, int64_t now)
{
    *s = (weft_proc_stats){.id = p->id, .state = state_of_p_locked(p)};
    say_who_runs_locked(s, p, now);
    s->ended = ld_relaxed(&p->count.ended);
    s->spawned = ld_relaxed(&p->count.spawned);
    for (int i = 0; i < COUNTER_COUNT; i++)
        *field(s, COUNTERS[i].to) = read_counter(p, &COUNTERS[i]);
    s->queue_slot = ld_relaxed(&p->slot) != NULL;
    s->queue_ring = w_runq_len(&p->runq);
    s->queue_fresh = w_fresh_len(&p->fresh);
    s->timers = peek_32(&p->timers.len);
    s->stacks_cached = peek_32(&p->stack_count);
}

static int list_procs(weft_proc_stats *procs, uint32_t room)
{
    int64_t now = w_now();
    uint32_t n = ld_acquire(&w_sched.p_count); /* [PC-1] */
    w_lock(&w_sched.lock, W_RANK_SCHED);
    for (uint32_t i = 0; i < n && i < room; i++)
        fill_proc_locked(&procs[i], w_sched.ps[i], now);
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    return (int)n;
}

/* ---- threads ---------------------------------------------------------------------------------------------------- */

static int64_t state_of_m_locked(const struct w_m *m)
{
    if (m->idle)
        return WEFT_THREAD_IDLE;
    if (ld_relaxed(&m->blocked_p) != NULL || m->lost)
        return WEFT_THREAD_BLOCKED;
    if (peek_pointer(&m->g) != NULL)
        return WEFT_THREAD_RUNNING;
    bool asleep = peek_pointer(&m->pinned_g) != NULL && peek_pointer(&m->p) == NULL;
    return asleep ? WEFT_THREAD_PINNED : WEFT_THREAD_SPINNING;
}

/* The P that it has; in a blocking region, if it was not taken yet. */
static int64_t proc_of_m(const struct w_m *m)
{
    const struct w_p *blocked = ld_relaxed(&m->blocked_p), *p = peek_pointer(&m->p);
    if (blocked != NULL)
        p = ld_relaxed(&blocked->blocked_by) == m ? blocked : NULL;
    return p != NULL ? (int64_t)p->id : -1;
}

static void fill_thread_locked(weft_thread_stats *s, const struct w_m *m)
{
    uint64_t wakes = ld_acquire(&m->count.wakes); /* [CN-1] before the sleeps that they came after */
    *s = (weft_thread_stats){
        .id = m->id,
        .tid = ld_relaxed(&m->tid),
        .state = state_of_m_locked(m),
        .proc = proc_of_m(m),
        .goroutine = id_of_running(m),
        .spins = ld_relaxed(&m->count.spins),
        .sleeps = ld_relaxed(&m->count.sleeps),
        .wakes = wakes,
        .preempts_asked = ld_relaxed(&m->count.asked),
    };
}

/* The clocks are read without the lock: that is a system call each. A thread that has ended meanwhile has used 0. */
static int list_threads(weft_thread_stats *threads, uint32_t room)
{
    uint32_t n = 0;
    w_lock(&w_sched.lock, W_RANK_SCHED);
    for (struct w_m *m = w_sched.all_ms; m != NULL; m = m->all_next, n++)
        if (n < room)
            fill_thread_locked(&threads[n], m);
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    for (uint32_t i = 0; i < n && i < room; i++)
        threads[i].cpu_ns = w_thread_cpu((pid_t)threads[i].tid);
    return (int)n;
}

/* ---- all together ----------------------------------------------------------------------------------------------- */

/* Wakes first: each comes after a sleep. */
static void add_counters(weft_stats_t *s, const struct w_m_counters *c)
{
    s->thread_wakes += ld_acquire(&c->wakes); /* [CN-1] */
    s->thread_sleeps += ld_relaxed(&c->sleeps);
    s->thread_spins += ld_relaxed(&c->spins);
    s->preempts_asked += ld_relaxed(&c->asked);
}

static void add_threads(weft_stats_t *s)
{
    uint64_t kinds[WEFT_THREAD_PINNED + 1] = {0};
    w_lock(&w_sched.lock, W_RANK_SCHED);
    add_counters(s, &w_sched.ended_count);
    for (struct w_m *m = w_sched.all_ms; m != NULL; m = m->all_next) {
        add_counters(s, &m->count);
        kinds[state_of_m_locked(m)]++;
        s->threads++;
    }
    s->threads_made = w_sched.m_serial - w_sched.m_failed;
    s->procs = ld_relaxed(&w_sched.procs);
    s->procs_idle = ld_relaxed(&w_sched.idle_p_count);
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    s->threads_idle = kinds[WEFT_THREAD_IDLE];
    s->threads_spinning = kinds[WEFT_THREAD_SPINNING];
    s->threads_running = kinds[WEFT_THREAD_RUNNING];
    s->threads_blocked = kinds[WEFT_THREAD_BLOCKED];
    s->threads_pinned = kinds[WEFT_THREAD_PINNED];
}

/* How many free stacks the Ps keep. */
static uint64_t add_procs(weft_stats_t *s)
{
    uint64_t stacks = 0;
    uint32_t io_waits = 0;
    uint32_t n = ld_acquire(&w_sched.p_count); /* [PC-1] */
    for (uint32_t i = 0; i < n; i++) {
        struct w_p *p = w_sched.ps[i];
        for (int c = 0; c < COUNTER_COUNT; c++)
            *field(s, COUNTERS[c].sum) += read_counter(p, &COUNTERS[c]);
        s->queue_local += w_p_work(p);
        s->timers += peek_32(&p->timers.len);
        io_waits += ld_relaxed(&p->io_waits); /* one of them may be negative */
        stacks += peek_32(&p->stack_count);
    }
    s->io_waits = (int32_t)io_waits > 0 ? io_waits : 0;
    s->polls += ld_relaxed(&w_sched.polls);
    s->events += ld_relaxed(&w_sched.events);
    return stacks;
}

static void add_queues(weft_stats_t *s)
{
    s->queue_high = ld_relaxed(&w_sched.globq.lens[W_LINE_HIGH]);
    s->queue_ran = ld_relaxed(&w_sched.globq.lens[W_LINE_RAN]);
    s->queue_fresh = ld_relaxed(&w_sched.globq.lens[W_LINE_FRESH]);
    s->queue_heavy = ld_relaxed(&w_sched.globq.lens[W_LINE_HEAVY]);
    s->queue_low = ld_relaxed(&w_sched.globq.lens[W_LINE_LOW]);
}

/* Those that Ps keep were counted at another moment than those that are out. */
static void add_stacks(weft_stats_t *s, uint64_t kept)
{
    struct w_stack_use use = w_stacks_use();
    uint64_t bytes = kept * w_stack_size(w_default_stack_class());
    s->stacks = use.out > kept ? use.out - kept : 0;
    s->stack_used = use.out_bytes > bytes ? use.out_bytes - bytes : 0;
    s->stack_cached = use.free_bytes + bytes;
    s->stack_mapped = use.mapped;
}

void w_stats_gather(weft_stats_t *s)
{
    int64_t now = w_now();
    struct w_g_count gs = w_count_gs();
    *s = (weft_stats_t){.time_ns = now, .uptime_ns = now - w_sched.began_at};
    s->spawned = gs.spawned;
    s->ended = gs.ended;
    s->alive = gs.spawned - gs.ended;
    s->preempts_signalled = ld_relaxed(&w_sched.signals);
    s->records = w_gs_made();
    uint64_t kept = add_procs(s);
    add_threads(s);
    add_queues(s);
    add_stacks(s, kept);
}

/* ---- the calls -------------------------------------------------------------------------------------------------- */

static int begin(void)
{
    return w_enter() != NULL ? 0 : w_foreign_enter();
}

static void end(void)
{
    if (w_m() != NULL)
        w_leave();
    else
        w_foreign_leave();
}

int weft_stats(weft_stats_t *stats)
{
    if (stats == NULL)
        return -EINVAL;
    int r = begin();
    if (r != 0)
        return r;
    w_stats_gather(stats);
    end();
    return 0;
}

int weft_stats_procs(weft_proc_stats *procs, int n)
{
    if (n < 0 || (procs == NULL && n > 0))
        return -EINVAL;
    int r = begin();
    if (r != 0)
        return r;
    r = list_procs(procs, (uint32_t)n);
    end();
    return r;
}

int weft_stats_threads(weft_thread_stats *threads, int n)
{
    if (n < 0 || (threads == NULL && n > 0))
        return -EINVAL;
    int r = begin();
    if (r != 0)
        return r;
    r = list_threads(threads, (uint32_t)n);
    end();
    return r;
}
