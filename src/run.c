/* SPDX-License-Identifier: MIT */
/*
 * A run: from weft_run to the last thread joined and the last page given back.
 *
 * The end. Somebody calls w_stop (main returned, everything is asleep, or the last goroutine ended after weft_exit in
 * main): `stopping` is set, the gate of every M is closed, every sleeping M is woken. An M ends when it searches for
 * work or when its goroutine makes a runtime call. The monitor, which is the thread that called weft_run, waits for them.
 * An M that does not come within GRACE is in foreign code, blocked or computing: it is left behind with the slab that
 * holds its stack, and ends by itself, touching nothing shared, when its goroutine next calls the runtime. One that wants to
 * run but was not given a processor by the kernel meanwhile, on a crowded machine, gets more time.
 */
#include "file.h"
#include "netpoll.h"
#include "peek.h"
#include "timer.h"
#include "weft_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

static const int64_t GRACE = 100 * WEFT_MSEC;
static const int64_t LONG_GRACE = 10 * WEFT_SEC;
static const int64_t CHANCE = 20 * WEFT_MSEC; /* so much processor time is enough to come to a runtime call, */
static const size_t DEFAULT_STACK = 64 << 10;
static const size_t MAIN_STACK = 8 << 20; /* what the main thread of a process has */
static const int64_t DEFAULT_QUANTUM = 10 * WEFT_MSEC;
static const int64_t MIN_QUANTUM = 100 * WEFT_USEC;

enum { CHANCES = 3 }; /* had in so many pieces: a virtual processor's time goes on while its host runs others */
enum { ASLEEP = 2 };  /* looks in a row: once, it may wait for a page only */
static const int64_t LOOK_GAP = 10 * WEFT_MSEC; /* between them, whoever wakes us */
enum { STOP_BATCH = 64 };                       /* threads that are interrupted together */

static _Atomic bool claimed; /* a run is under way, from its first step to its last */

/* ---- the end ---------------------------------------------------------------------------------------------------- */

void w_stop_locked(int result)
{
    if (ld_relaxed(&w_sched.stopping))
        return;
    w_sched.result = result;
    w_sched.stopped_at = w_now();
    st_relaxed(&w_sched.stopping, true);
    w_fence_seq(); /* [ST-1] an M that opens its gate after this sees it */
    for (struct w_m *m = w_sched.all_ms; m != NULL; m = m->all_next) {
        st_relaxed(&m->gate, NULL);
        m->idle = false;
        m->cpu_seen = m->cpu_at_stop = w_thread_cpu(ld_relaxed(&m->tid));
        w_m_wake(m);
    }
    w_sched.idle_ms = NULL;
    w_sched.idle_m_count = 0;
    w_sched.keeper = NULL;
    w_monitor_wake();
}

void w_stop(int result)
{
    w_lock(&w_sched.lock, W_RANK_SCHED);
    w_stop_locked(result);
    w_unlock(&w_sched.lock, W_RANK_SCHED);
}

static bool all_have_ended(void)
{
    struct w_g_count c = w_count_gs();
    return c.spawned == c.ended;
}

/* A P has become idle. If it was the last, nobody is in a blocking call, nobody but the library's own waits for a descriptor, and no
 * timer is left, nothing will ever happen again. */
void w_check_dead_locked(void)
{
    if (w_sched.busy_ps > 0 || w_sched.retaken != 0 || ld_relaxed(&w_sched.globq.len) > 0 || w_ps_have_work())
        return;
    if (w_sched.main_exited && all_have_ended())
        w_stop_locked(0);
    else if (w_timers_next() == WEFT_NEVER && !w_poll_waited_for())
        w_stop_locked(-EDEADLK);
}

/* A look at one that is outside the runtime: has it had its chance to come to a runtime call since the run was stopped? */
static bool had_its_chance(struct w_m *m)
{
    int64_t cpu = w_thread_cpu(ld_relaxed(&m->tid));
    bool ran = cpu != m->cpu_seen;
    m->cpu_seen = cpu;
    m->looks_slept = w_thread_state(ld_relaxed(&m->tid)) == 'R' ? 0 : m->looks_slept + 1;
    if (ran && m->looks_ran < CHANCES)
        m->looks_ran++;
    return m->looks_slept >= ASLEEP || (m->looks_ran >= CHANCES && cpu - m->cpu_at_stop > CHANCE) ||
           w_now() > w_sched.stopped_at + LONG_GRACE;
}

/* M by M: those that are outside the runtime after the grace period are left behind. Their gates are closed; with the
 * P that they blocked on forgotten too, their way in leads through our lock, unless they are inside already. */
static uint32_t abandon_locked(void)
{
    uint32_t n = 0;
    struct w_m *next;
    for (struct w_m *m = w_sched.all_ms; m != NULL; m = m->all_next)
        st_relaxed(&m->blocked_p, NULL);
    w_membarrier(); /* where it is missing, the grace period since the gates were closed stands in for it */
    for (struct w_m *m = w_sched.all_ms; m != NULL; m = next) {
        next = m->all_next;
        if (ld_acquire(&m->in_runtime) ||
            ld_relaxed(&m->blocked_p) != NULL) /* [GT-1] its goroutine, as it left the runtime */
            continue; /* it is on its way out, or was inside when we took blocked_p away: the next time */
        if (!had_its_chance(m))
            continue;
        m->abandoned = true;
        w_trace_detach_locked(m);
        w_profile_detach_locked(m);
        m->keep = w_stack_keep(m->g->stack_class, m->g->stack_lo);
        W_SAN_ABANDON(m->g);
        pthread_detach(m->thread);
        if (m->all_prev != NULL)
            m->all_prev->all_next = next;
        else
            w_sched.all_ms = next;
        if (next != NULL)
            next->all_prev = m->all_prev;
        w_sched.m_count--;
        n++;
    }
    return n;
}

static uint32_t ms_left(bool abandon, uint32_t *abandoned)
{
    w_lock(&w_sched.lock, W_RANK_SCHED);
    if (abandon)
        *abandoned += abandon_locked();
    uint32_t n = w_sched.m_count;
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    return n;
}

/* Threads outside the runtime and outside blocking regions, from the skip-th on; how many. */
static uint32_t who_computes(pid_t *tids, uint32_t skip)
{
    uint32_t n = 0;
    w_lock(&w_sched.lock, W_RANK_SCHED);
    for (struct w_m *m = w_sched.all_ms; m != NULL && n < STOP_BATCH; m = m->all_next) {
        if (ld_relaxed(&m->in_runtime) || ld_relaxed(&m->blocked_p) != NULL)
            continue;
        if (skip > 0)
            skip--;
        else
            tids[n++] = ld_relaxed(&m->tid);
    }
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    return n;
}

/* Those who compute and call nothing would never notice. */
static void interrupt_ms(void)
{
    pid_t tids[STOP_BATCH];
    uint32_t n = STOP_BATCH;
    for (uint32_t done = 0; n == STOP_BATCH; done += n) {
        n = who_computes(tids, done);
        for (uint32_t i = 0; i < n; i++)
            w_interrupt(tids[i], NULL, W_IF_AWAKE);
    }
}

static void wait_for_ms(void)
{
    int64_t deadline = w_now() + GRACE;
    uint32_t abandoned = 0;
    for (;;) {
        uint32_t word = ld_relaxed(&w_sched.monitor_word);
        bool look = w_now() >= deadline;
        if (ms_left(look, &abandoned) == 0)
            break;
        if (look)
            deadline = w_now() + LOOK_GAP;
        interrupt_ms();
        w_futex_wait(&w_sched.monitor_word, word, WEFT_MSEC);
    }
    w_ms_join();
    if (abandoned > 0)
        w_say("the run has ended with %u goroutine(s) still in foreign code: their threads are left behind", abandoned);
}

static void finish(void)
{
    wait_for_ms();
    w_foreign_shut_out();
    if (w_sched.result == -EDEADLK)
        w_report_deadlock();
    else if (w_sched.debug.leaks)
        w_report_leaks();
}

/* ---- memory that goes with the run ------------------------------------------------------------------------------ */

/* What a goroutine has on the heap while it waits: it may be discarded. */
struct piece {
    struct piece *prev, *next;
    max_align_t memory[];
};

static struct {
    struct w_spin lock;
    struct piece *first; /* lock */
} pieces;

void *w_run_alloc(size_t size)
{
    struct piece *p = malloc(sizeof *p + size);
    if (p == NULL)
        return NULL;
    w_spin_lock(&pieces.lock);
    p->prev = NULL;
    p->next = pieces.first;
    if (p->next != NULL)
        p->next->prev = p;
    pieces.first = p;
    w_spin_unlock(&pieces.lock);
    return p->memory;
}

void w_run_free(void *memory)
{
    struct piece *p = (struct piece *)(void *)((char *)memory - offsetof(struct piece, memory));
    w_spin_lock(&pieces.lock);
    if (p->prev != NULL)
        p->prev->next = p->next;
    else
        pieces.first = p->next;
    if (p->next != NULL)
        p->next->prev = p->prev;
    w_spin_unlock(&pieces.lock);
    free(p);
}

static void free_pieces(void)
{
    while (pieces.first != NULL)
        w_run_free(pieces.first->memory);
}

/* ---- the beginning ---------------------------------------------------------------------------------------------- */

static uint64_t any_seed(void)
{
    uint64_t x = (uint64_t)w_now() * 0x9E3779B97F4A7C15ull ^ (uint64_t)getpid() << 32;
    return x != 0 ? x : 1;
}

static int settle(weft_config *c)
{
    int r = w_config_from_env(c);
    if (r == 0)
        r = w_web_settle();
    if (r != 0)
        return r;
    if (c->procs < 0 || c->procs > W_MAX_PROCS || c->quantum < 0 || w_stack_class(c->stack_size) < 0)
        return -EINVAL;
    if (c->procs == 0)
        c->procs = w_usable_cpus("");
    if (c->quantum == 0)
        c->quantum = DEFAULT_QUANTUM;
    if (c->quantum < MIN_QUANTUM)
        c->quantum = MIN_QUANTUM;
    if (c->seed == 0)
        c->seed = any_seed();
    return 0;
}

/* All but the locks and the count of foreign calls, which others may be touching. */
static void reset(const weft_config *c, const struct w_debug *debug)
{
    w_sched.debug = *debug;
    w_sched.began_at = w_now();
    w_sched.globq = (struct w_globq){0};
    w_sched.idle_ps = NULL;
    w_sched.idle_ms = w_sched.all_ms = w_sched.ended_ms = NULL;
    w_sched.m_count = w_sched.idle_m_count = w_sched.m_serial = w_sched.m_failed = w_sched.busy_ps = 0;
    w_sched.retaken = 0;
    w_sched.keeper = w_sched.poller = NULL;
    st_relaxed(&w_sched.keeper_until, WEFT_NEVER);
    w_sched.main_exited = false;
    w_sched.result = 0;
    st_relaxed(&w_sched.procs, 0);
    st_relaxed(&w_sched.p_count, 0);
    st_relaxed(&w_sched.idle_p_count, 0);
    st_relaxed(&w_sched.spinning, 0);
    st_relaxed(&w_sched.soon, 0);
    st_relaxed(&w_sched.attentive, false);
    st_relaxed(&w_sched.timely, false);
    st_relaxed(&w_sched.m_wanted, false);
    st_relaxed(&w_sched.monitor_asleep, false);
    st_relaxed(&w_sched.drowsy, false);
    w_sched.stuck_since = 0;
    w_sched.found_at = 0;
    w_sched.stirred_at = w_now();
    w_sched.oversleeps = 0;
    st_relaxed(&w_sched.coarse_now, w_now());
    st_relaxed(&w_sched.last_return, w_now());
    st_relaxed(&w_sched.return_gap, WEFT_MSEC);
    st_relaxed(&w_sched.next_id, 1);
    st_relaxed(&w_sched.foreign_spawned, 0);
    st_relaxed(&w_sched.polls, 0);
    st_relaxed(&w_sched.events, 0);
    st_relaxed(&w_sched.signals, 0);
    w_sched.ended_count = (struct w_m_counters){0};
#ifdef W_TSAN
    w_sched.hiding = false; /* it knows nothing of membarrier, and would report every rescue as a race */
#else
    w_sched.hiding = w_membarrier_register() == 0 && !debug->fifo;
#endif
    __atomic_store_n(&weft_owners_, 0, __ATOMIC_RELAXED); /* relaxed: no goroutine is there yet */
    w_sched.quantum = c->quantum;
    w_sched.seed = c->seed;
    w_lock(&w_sched.lock, W_RANK_SCHED); /* a thread that an earlier run left behind may be looking */
    st_relaxed(&w_sched.stopping, false);
    w_unlock(&w_sched.lock, W_RANK_SCHED);
}

/* The P is taken before foreign threads are let in: one of them could make an M with it otherwise. If the thread cannot
 * be made, such an M with another P will do. */
static int start_first_m(void)
{
    uint32_t abandoned = 0;
    w_lock(&w_sched.lock, W_RANK_SCHED);
    struct w_p *p = w_p_get_idle_locked(NULL);
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    w_foreign_let_in();
    int r = w_m_start(p, false);
    if (r == 0)
        return 0;
    w_foreign_shut_out();
    if (ms_left(false, &abandoned) == 0)
        return r;
    w_foreign_let_in();
    return 0;
}

static int run(const weft_config *c, const struct w_debug *debug, weft_fn *fn, void *arg)
{
    bool own_size = c->stack_size != 0;
    reset(c, debug);
    w_places_init();
    int r = w_stacks_init(own_size ? c->stack_size : DEFAULT_STACK);
    if (r != 0)
        goto free_places;
    w_gs_init();
    w_peek_begin();
    w_net_init();
    if ((r = w_ps_init((uint32_t)c->procs)) != 0)
        goto free_all;
    if ((r = w_overflow_init()) != 0)
        goto free_all;
    if ((r = w_preempt_init()) != 0)
        goto restore_handlers;
    if ((r = w_trace_begin()) != 0 || (r = w_profile_begin()) != 0)
        goto restore_handlers;
    if ((r = w_g_start_main(fn, arg, own_size ? c->stack_size : MAIN_STACK)) != 0)
        goto restore_handlers;
    w_sched.monitor = pthread_self();
    w_sched.slack = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
    if ((r = start_first_m()) != 0)
        goto restore_handlers;
    w_sigquit_init();
    w_web_begin();
    w_comm_monitor(w_monitor);
    finish();
    w_web_end();
    w_sigquit_done();
    r = w_sched.result;

restore_handlers:
    w_preempt_done();
    w_overflow_done();
free_all:
    w_profile_end();
    w_trace_end();
    w_uring_done();
    w_poll_done();
    w_fds_done();
    free_pieces();
    w_gs_free();
    w_ps_free();
    w_stacks_free();
free_places:
    w_places_free();
    return r;
}

int weft_run_with(const weft_config *config, weft_fn *fn, void *arg)
{
    if (fn == NULL)
        return -EINVAL;
    weft_config c = config != NULL ? *config : (weft_config){0};
    struct w_debug debug;
    int r = settle(&c);
    if (r == 0)
        r = w_debug_from_env(&debug);
    if (r != 0)
        return r;
    bool none = false;
    if (!cas_acquire(&claimed, &none, true)) /* [RN-1] the run before has given everything back */
        return -EBUSY;
    r = run(&c, &debug, fn, arg);
    st_release(&claimed, false); /* [RN-1] */
    return r;
}

int weft_run(weft_fn *fn, void *arg)
{
    return weft_run_with(NULL, fn, arg);
}

int64_t weft_now(void)
{
    return w_now();
}
