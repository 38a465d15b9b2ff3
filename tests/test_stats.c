/* SPDX-License-Identifier: MIT */
/* weft_stats: known programs, and what it says of them. */
#include "runs.h"
#include "whitebox.h"

enum { MANY = 64 };

static weft_stats_t stats(void)
{
    weft_stats_t s;
    memset(&s, 0xff, sizeof s);
    CHECK_EQ(weft_stats(&s), 0);
    return s;
}

static bool adds_up(const weft_stats_t *s)
{
    uint64_t kinds =
        s->threads_idle + s->threads_spinning + s->threads_running + s->threads_blocked + s->threads_pinned;
    return s->ended <= s->spawned && s->spawned == s->ended + s->alive && s->threads == kinds &&
           s->thread_wakes <= s->thread_sleeps && s->threads <= s->threads_made && s->procs_idle <= s->procs &&
           s->uptime_ns > 0;
}

/* Until fn says that it is so; false after half a minute. On a thread of its own: a goroutine's calls would be in the way. */
struct watch {
    bool (*fn)(const weft_stats_t *);
    bool seen;
};

static void *watch_stats(void *arg)
{
    struct watch *w = arg;
    for (int i = 0; i < 60000 && !w->seen; i++) {
        weft_stats_t s = stats();
        CHECK(adds_up(&s));
        w->seen = w->fn(&s);
        usleep(500);
    }
    return NULL;
}

static bool comes_true(bool (*fn)(const weft_stats_t *))
{
    struct watch w = {.fn = fn};
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, watch_stats, &w), 0);
    join_in_region(&thread, 1);
    return w.seen;
}

/* ---- goroutines ------------------------------------------------------------------------------------------------- */

static weft_wg wg;

static void leaf(void *arg)
{
    (void)arg;
    weft_yield();
    weft_wg_done(&wg);
}

static void branch(void *arg)
{
    CHECK_EQ(weft_go(leaf, arg), 0);
    weft_wg_done(&wg);
}

static void *start_from_outside(void *arg)
{
    int n = *(int *)arg;
    for (int i = 0; i < n; i++)
        CHECK_EQ(weft_go(leaf, NULL), 0);
    return NULL;
}

static void check_sums(const weft_stats_t *s, int outside)
{
    weft_proc_stats p[MANY];
    uint64_t spawned = 0, ended = 0;
    int n = weft_stats_procs(p, MANY);
    for (int i = 0; i < n; i++) {
        CHECK_EQ(p[i].id, i);
        spawned += p[i].spawned;
        ended += p[i].ended;
    }
    CHECK_EQ(spawned + (uint64_t)outside + 1, s->spawned);
    CHECK_EQ(ended, s->ended);
}

static void balance_main(void *arg)
{
    int n = scaled(3000), outside = scaled(200);
    pthread_t thread;
    weft_stats_t first = stats();
    CHECK_EQ(first.spawned, 1);
    CHECK_EQ(first.ended, 0);
    CHECK_EQ(first.alive, 1);
    CHECK_EQ(first.procs, *(int *)arg);
    weft_wg_add(&wg, 2 * n + outside);
    CHECK_EQ(pthread_create(&thread, NULL, start_from_outside, &outside), 0);
    for (int i = 0; i < n; i++)
        CHECK_EQ(weft_go(branch, NULL), 0);
    join_in_region(&thread, 1);
    CHECK_EQ(weft_wg_wait(&wg), 0);
    CHECK(others_have_ended());
    weft_stats_t s = stats();
    CHECK_EQ(s.spawned, 1 + 2 * n + outside);
    CHECK_EQ(s.ended, s.spawned - 1);
    CHECK_EQ(s.alive, 1);
    CHECK(s.switches >= s.spawned);
    CHECK(s.records >= 1 && s.stacks >= 1 && s.stack_mapped >= s.stack_used + s.stack_cached);
    CHECK(adds_up(&s));
    check_sums(&s, outside);
}

CASE(what_was_started_has_ended_or_is_alive)
{
    EACH_PROCS(p)
    CHECK_EQ(run_on(p, balance_main, &p), 0);
}

/* Trees of goroutines, started and ended on all Ps. */
static _Atomic bool over;

static void churn(void *arg)
{
    intptr_t depth = (intptr_t)arg;
    if (depth > 0 && !over) {
        weft_go(churn, (void *)(depth - 1));
        weft_go(churn, (void *)(depth - 1));
    }
}

static void keep_churning(void *arg)
{
    while (!over) {
        weft_go(churn, arg);
        weft_yield();
    }
    weft_wg_done(&wg);
}

static bool fell(const weft_stats_t *before, const weft_stats_t *s)
{
    return s->spawned < before->spawned || s->ended < before->ended || s->switches < before->switches ||
           s->parks < before->parks || s->steals_tried < before->steals_tried || s->stolen < before->stolen ||
           s->polls < before->polls || s->thread_sleeps < before->thread_sleeps ||
           s->thread_spins < before->thread_spins || s->preempts_asked < before->preempts_asked;
}

static void *take_many(void *arg)
{
    weft_stats_t before = stats();
    weft_proc_stats p[MANY];
    weft_thread_stats t[MANY];
    for (int i = 0; i < scaled(2000); i++) {
        weft_stats_t s = stats();
        if (!adds_up(&s) || fell(&before, &s))
            check_fail(__FILE__, __LINE__, "spawned %lu, ended %lu, alive %lu, or a counter fell",
                       (unsigned long)s.spawned, (unsigned long)s.ended, (unsigned long)s.alive);
        before = s;
        CHECK(weft_stats_procs(p, MANY) >= 1);
        CHECK(weft_stats_threads(t, MANY) >= 1);
    }
    return arg;
}

static void busy_main(void *arg)
{
    int procs = *(int *)arg;
    pthread_t thread;
    over = false;
    weft_wg_add(&wg, procs);
    for (int i = 0; i < procs; i++)
        CHECK_EQ(weft_go(keep_churning, (void *)4), 0);
    CHECK_EQ(pthread_create(&thread, NULL, take_many, NULL), 0);
    for (int i = 0; i < 20; i++) { /* Ps come and go, their counters stay */
        CHECK(weft_procs(1 + i % procs) > 0);
        weft_sleep(WEFT_MSEC);
    }
    take_many(NULL);
    join_in_region(&thread, 1);
    over = true;
    CHECK_EQ(weft_wg_wait(&wg), 0);
    CHECK(others_have_ended());
    weft_stats_t s = stats();
    CHECK_EQ(s.spawned, s.ended + 1);
}

CASE(figures_add_up_and_no_counter_falls_while_everything_runs)
{
    EACH_PROCS(p)
    CHECK_EQ(run_on(p, busy_main, &p), 0);
}

/* Each starts the next and ends: two are alive, and a third for a moment. */
static void chain(void *arg)
{
    if (!over)
        CHECK_EQ(weft_go(chain, arg), 0);
}

static void *count_again_and_again(void *arg)
{
    int64_t end = weft_now() + 300 * WEFT_MSEC;
    for (int i = 0; i < 1000 || weft_now() < end; i++) {
        int n = weft_count();
        weft_stats_t s = stats();
        if (n < 1 || (int64_t)s.alive < 1) /* more than there are may be seen: some end while we count */
            check_fail(__FILE__, __LINE__, "%d are alive, or %ld", n, (long)s.alive);
    }
    return arg;
}

static void chain_main(void *arg)
{
    pthread_t thread;
    (void)arg;
    over = false;
    CHECK_EQ(weft_go(chain, NULL), 0);
    CHECK_EQ(pthread_create(&thread, NULL, count_again_and_again, NULL), 0);
    join_in_region(&thread, 1);
    over = true;
    CHECK(others_have_ended());
}

CASE(an_end_is_never_seen_before_its_start)
{
    EACH_PROCS(p)
    CHECK_EQ(run_on(p, chain_main, NULL), 0);
}

static void retire_main(void *arg)
{
    (void)arg;
    weft_proc_stats p[MANY];
    weft_wg_add(&wg, 400);
    for (int i = 0; i < 400; i++)
        CHECK_EQ(weft_go(leaf, NULL), 0);
    CHECK_EQ(weft_wg_wait(&wg), 0);
    CHECK(others_have_ended());
    CHECK_EQ(weft_procs(1), 8);
    int dead = 0;
    for (int64_t end = weft_now() + 20 * WEFT_SEC; dead < 7 && weft_now() < end; weft_yield()) {
        CHECK_EQ(weft_stats_procs(p, MANY), 8);
        dead = 0;
        for (int i = 0; i < 8; i++)
            dead += p[i].state == WEFT_PROC_RETIRED;
    }
    CHECK_EQ(dead, 7);
    weft_stats_t s = stats();
    CHECK_EQ(s.procs, 1);
    CHECK_EQ(s.spawned, 401);
    CHECK_EQ(s.ended, 400);
    check_sums(&s, 0);
}

CASE(processors_that_are_no_more_are_listed_with_what_they_counted)
{
    CHECK_EQ(run_on(8, retire_main, NULL), 0);
}

/* ---- stealing and preemption ------------------------------------------------------------------------------------ */

static _Atomic int began;

/* Ends only if another one runs at the same time, on another P. */
static void need_company(void *arg)
{
    (void)arg;
    began++;
    while (began < 2)
        ;
    weft_wg_done(&wg);
}

static void steal_main(void *arg)
{
    int procs = *(int *)arg;
    began = procs > 1 ? 0 : 2;
    weft_wg_add(&wg, 100);
    for (int i = 0; i < 100; i++)
        CHECK_EQ(weft_go(need_company, NULL), 0);
    CHECK_EQ(weft_wg_wait(&wg), 0);
    weft_stats_t s = stats();
    CHECK(s.stolen >= s.steals_done && s.steals_tried >= s.steals_done);
    if (procs == 1)
        CHECK_EQ(s.steals_tried, 0);
    else
        CHECK(s.steals_done > 0 && s.thread_spins > 0);
}

CASE(steals_are_counted_where_there_is_somebody_to_steal_from)
{
    EACH_PROCS(p)
    CHECK_EQ(run_with_own_quantum(&(weft_config){.procs = p, .quantum = WEFT_NEVER}, steal_main, &p), 0);
}

static void compute(void *arg)
{
    volatile bool *calls = arg;
    while (!over) {
        for (volatile int i = 0; i < 500; i++)
            ;
        if (*calls)
            weft_cancelled();
    }
    weft_wg_done(&wg);
}

static bool stopped_by_signal(const weft_stats_t *s)
{
    return s->preempts_by_signal > 0 && s->preempts_asked > 0 && s->preempts_signalled > 0;
}

static bool stopped_at_call(const weft_stats_t *s)
{
    return s->preempts_at_call > 0 && s->preempts_asked > 0;
}

static void preempt_main(void *arg)
{
    static bool calls;
    calls = *(bool *)arg;
    over = false;
    weft_wg_add(&wg, 2);
    CHECK_EQ(weft_go(compute, &calls), 0);
    CHECK_EQ(weft_go(compute, &calls), 0);
    CHECK(comes_true(calls ? stopped_at_call : stopped_by_signal));
    over = true;
    CHECK_EQ(weft_wg_wait(&wg), 0);
}

/* As in tests/preempts.h: some sanitizers turn signals off. */
static bool signals_stop(void)
{
#ifdef __clang__
    return !check_under_tsan() && !check_under_asan();
#else
    return !check_under_tsan();
#endif
}

CASE(preemptions_are_counted_by_what_brought_them_about)
{
    bool calls = true;
    CHECK_EQ(run_with_own_quantum(&(weft_config){.procs = 1}, preempt_main, &calls), 0);
    calls = false;
    if (signals_stop())
        CHECK_EQ(run_with_own_quantum(&(weft_config){.procs = 1}, preempt_main, &calls), 0);
    else
        skipped("no preemption by signal in this build");
}

/* ---- queues and memory ------------------------------------------------------------------------------------------ */

static int start_class(int priority, int n)
{
    int started = 0;
    weft_wg_add(&wg, n);
    for (int i = 0; i < n; i++)
        started += weft_go_with(&(weft_attr){.priority = priority}, leaf, NULL) == 0;
    return started;
}

static void queues_main(void *arg)
{
    (void)arg;
    weft_proc_stats p;
    weft_wg_add(&wg, 10);
    for (int i = 0; i < 10; i++)
        CHECK_EQ(weft_go(leaf, NULL), 0);
    weft_stats_t s = stats();
    CHECK_EQ(s.queue_local, 10);
    CHECK_EQ(weft_stats_procs(&p, 1), 1);
    CHECK_EQ(p.queue_slot + p.queue_fresh, 10);
    CHECK(p.queue_slot <= 1);
    CHECK_EQ(p.queue_ring, 0);
    CHECK_EQ(start_class(WEFT_LOW, 3), 3);
    CHECK_EQ(start_class(WEFT_HIGH, 2), 2);
    s = stats();
    CHECK_EQ(s.queue_low, 3);
    CHECK_EQ(s.queue_high, 2);
    CHECK_EQ(s.queue_local, 10);
    CHECK_EQ(s.overflows, 0);
    weft_wg_add(&wg, 2000);
    for (int i = 0; i < 2000; i++)
        CHECK_EQ(weft_go(leaf, NULL), 0);
    s = stats();
    CHECK_EQ(s.queue_local + s.queue_fresh, 2010);
    CHECK(s.overflows > 0 && s.queue_fresh > 0);
    CHECK_EQ(s.alive, 2016);
    CHECK_EQ(weft_wg_wait(&wg), 0);
    CHECK(others_have_ended());
    s = stats();
    CHECK_EQ(s.queue_local + s.queue_fresh + s.queue_high + s.queue_low + s.queue_ran + s.queue_heavy, 0);
    CHECK(s.parks > 0);
}

CASE(queue_lengths_are_those_of_the_program)
{
    CHECK_EQ(run_with_own_quantum(&(weft_config){.procs = 1, .quantum = WEFT_NEVER}, queues_main, NULL), 0);
}

static int ends[2];

static void sleeper(void *arg)
{
    weft_sleep((int64_t)(intptr_t)arg);
}

static void reader(void *arg)
{
    char c;
    (void)arg;
    CHECK_EQ(weft_read(ends[0], &c, 1), 1);
    weft_wg_done(&wg);
}

static bool five_sleep_and_one_reads(const weft_stats_t *s)
{
    return s->timers == 5 && s->io_waits == 1 && s->stacks == 7;
}

static bool nobody_reads(const weft_stats_t *s)
{
    return s->io_waits == 0 && s->events > 0 && s->polls > 0;
}

static void memory_main(void *arg)
{
    (void)arg;
    CHECK_EQ(pipe(ends), 0);
    for (int i = 0; i < 5; i++)
        CHECK_EQ(weft_go(sleeper, (void *)(intptr_t)(3600 * WEFT_SEC)), 0);
    weft_wg_add(&wg, 1);
    CHECK_EQ(weft_go(reader, NULL), 0);
    CHECK(comes_true(five_sleep_and_one_reads));
    weft_stats_t s = stats();
    CHECK(s.records >= 7);
    CHECK(s.stack_used >= 6 * (64 << 10) && s.stack_mapped >= s.stack_used + s.stack_cached);
    CHECK_EQ(weft_write(ends[1], "x", 1), 1);
    CHECK_EQ(weft_wg_wait(&wg), 0);
    CHECK(comes_true(nobody_reads));
    close(ends[0]);
    close(ends[1]);
}

CASE(timers_descriptors_and_stacks_are_counted)
{
    EACH_PROCS(p)
    CHECK_EQ(run_on(p, memory_main, NULL), 0);
}

/* ---- threads ---------------------------------------------------------------------------------------------------- */

static bool one_blocks(const weft_stats_t *s)
{
    return s->threads_blocked >= 1;
}

static void regions_main(void *arg)
{
    (void)arg;
    for (int i = 0; i < 10; i++) {
        weft_block_enter();
        weft_block_leave();
    }
    CHECK_EQ(stats().regions, 10);
    CHECK(comes_true(one_blocks)); /* it is ourselves, while we wait for the thread that watches */
    CHECK_EQ(stats().regions, 11);
}

CASE(blocking_regions_are_counted)
{
    EACH_PROCS(p)
    CHECK_EQ(run_on(p, regions_main, NULL), 0);
}

static void yield_on(void *arg)
{
    (void)arg;
    while (!over)
        weft_yield();
    weft_wg_done(&wg);
}

static bool was_retaken(const weft_stats_t *s)
{
    return s->handoffs_retaken + s->handoffs_given > 0;
}

static void handoff_main(void *arg)
{
    bool found = false;
    (void)arg;
    over = false;
    weft_wg_add(&wg, 1);
    CHECK_EQ(weft_go(yield_on, NULL), 0);
    CHECK(comes_true(was_retaken)); /* while we are in the region the other one runs on our P */
    for (int i = 0; i < 1000 && !found && w_sched.hiding; i++) {
        usleep(10000); /* without a word */
        found = stats().handoffs_found > 0;
    }
    CHECK(found || !w_sched.hiding); /* where there is no membarrier, or TSan does not know it, nobody is found */
    over = true;
    CHECK_EQ(weft_wg_wait(&wg), 0);
}

CASE(processors_that_change_hands_are_counted)
{
    CHECK_EQ(run_on(1, handoff_main, NULL), 0);
}

static weft_chan *gate;

static void wait_pinned(void *arg)
{
    (void)arg;
    weft_pin();
    CHECK_EQ(weft_recv(gate, NULL), -EPIPE);
    weft_unpin();
    weft_wg_done(&wg);
}

static bool one_sleeps_pinned(const weft_stats_t *s)
{
    return s->threads_pinned == 1 && s->handoffs_pinned > 0;
}

static void pinned_main(void *arg)
{
    (void)arg;
    gate = weft_chan_new(0, 0);
    weft_wg_add(&wg, 1);
    CHECK_EQ(weft_go(wait_pinned, NULL), 0);
    CHECK(comes_true(one_sleeps_pinned));
    CHECK_EQ(weft_close(gate), 0);
    CHECK_EQ(weft_wg_wait(&wg), 0);
    CHECK_EQ(stats().threads_pinned, 0);
    weft_chan_free(gate);
}

CASE(a_thread_that_sleeps_for_a_pinned_goroutine_is_told_from_idle_ones)
{
    EACH_PROCS(p)
    CHECK_EQ(run_on(p, pinned_main, NULL), 0);
}

static void sleepy_main(void *arg)
{
    weft_stats_t s = stats();
    (void)arg;
    for (int i = 0; i < 100 && (s.thread_sleeps == 0 || s.thread_wakes == 0); i++) {
        weft_sleep(5 * WEFT_MSEC);
        s = stats();
    }
    CHECK(s.thread_sleeps > 0 && s.thread_wakes > 0);
}

CASE(sleeps_and_wakes_of_threads_are_counted)
{
    EACH_PROCS(p)
    CHECK_EQ(run_on(p, sleepy_main, NULL), 0);
}

static bool is_thread_of_ours(pid_t tid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d", (int)tid);
    return tid > 0 && access(path, F_OK) == 0;
}

/* Pinned, so that it is the same one while we look. */
static void find_ourselves(void)
{
    weft_thread_stats t[MANY];
    weft_proc_stats p[MANY];
    int n = weft_stats_threads(t, MANY), procs = weft_stats_procs(p, MANY), found = 0;
    CHECK(n >= 1 && n <= MANY);
    for (int i = 0; i < n; i++) {
        CHECK(t[i].wakes <= t[i].sleeps);
        if (t[i].goroutine != (int64_t)weft_id())
            continue;
        found++;
        CHECK_EQ(t[i].tid, gettid());
        CHECK_EQ(t[i].state, WEFT_THREAD_RUNNING);
        CHECK(t[i].cpu_ns > 0 || check_under_emulator());
        CHECK(t[i].proc >= 0 && t[i].proc < procs);
        CHECK_EQ(p[t[i].proc].state, WEFT_PROC_RUNNING);
        CHECK_EQ(p[t[i].proc].thread, t[i].id);
        CHECK_EQ(p[t[i].proc].goroutine, (int64_t)weft_id());
        CHECK(p[t[i].proc].running_ns >= 0);
    }
    CHECK_EQ(found, 1);
}

static bool all_but_one_idle(const weft_stats_t *s)
{
    return s->threads_idle + 1 == s->threads && s->threads_blocked == 1;
}

static void threads_main(void *arg)
{
    weft_thread_stats t[MANY];
    (void)arg;
    weft_wg_add(&wg, 200);
    for (int i = 0; i < 200; i++)
        CHECK_EQ(weft_go(leaf, NULL), 0);
    CHECK_EQ(weft_wg_wait(&wg), 0);
    weft_pin();
    weft_preempt_off();
    find_ourselves();
    weft_preempt_on();
    weft_unpin();
    CHECK(comes_true(all_but_one_idle));
    int n = weft_stats_threads(t, MANY);
    for (int i = 0; i < n; i++)
        CHECK(is_thread_of_ours((pid_t)t[i].tid));
    CHECK(weft_stats_threads(NULL, 0) >= 1);
}

CASE(threads_are_listed_with_what_they_run)
{
    EACH_PROCS(p)
    CHECK_EQ(run_on(p, threads_main, NULL), 0);
}

static void compute_until_over(void *arg)
{
    (void)arg;
    weft_preempt_off();
    for (int64_t end = weft_now() + 40 * WEFT_SEC; !over && weft_now() < end;)
        ;
    weft_preempt_on();
    weft_wg_done(&wg);
}

static bool runs_for_long(const weft_stats_t *s)
{
    weft_proc_stats p;
    (void)s;
    over = weft_stats_procs(&p, 1) == 1 && p.goroutine > 1 && p.running_ns > 20 * WEFT_MSEC;
    return over; /* there is one P: we get it when that one has ended */
}

static void long_main(void *arg)
{
    (void)arg;
    over = false;
    weft_wg_add(&wg, 1);
    CHECK_EQ(weft_go(compute_until_over, NULL), 0);
    CHECK(comes_true(runs_for_long));
    CHECK_EQ(weft_wg_wait(&wg), 0);
}

CASE(who_runs_for_long_is_seen_to)
{
    CHECK_EQ(run_on(1, long_main, NULL), 0);
}

/* ---- errors ----------------------------------------------------------------------------------------------------- */

static void refuse_main(void *arg)
{
    weft_proc_stats p[2];
    (void)arg;
    CHECK_EQ(weft_stats(NULL), -EINVAL);
    CHECK_EQ(weft_stats_procs(NULL, 1), -EINVAL);
    CHECK_EQ(weft_stats_procs(p, -1), -EINVAL);
    CHECK_EQ(weft_stats_threads(NULL, 1), -EINVAL);
    memset(p, 0x55, sizeof p);
    CHECK_EQ(weft_stats_procs(p, 1), 2);
    CHECK_EQ(p[1].id, 0x5555555555555555);
}

CASE(calls_that_make_no_sense_are_refused)
{
    weft_stats_t s;
    CHECK_EQ(weft_stats(&s), -EPERM);
    CHECK_EQ(weft_stats_procs(NULL, 0), -EPERM);
    CHECK_EQ(weft_stats_threads(NULL, 0), -EPERM);
    CHECK_EQ(weft_stats_json(1), -EPERM);
    CHECK_EQ(run_on(2, refuse_main, NULL), 0);
}
