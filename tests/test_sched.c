/* SPDX-License-Identifier: MIT */
/* Processors: their number, that all of them are used, that idle ones cost nothing; quanta; pins. */
#include "runs.h"
#include "whitebox.h"
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>

static int thread_id(void)
{
    return (int)syscall(SYS_gettid);
}

static void compute(int64_t ns)
{
    for (int64_t end = weft_now() + ns; weft_now() < end;)
        ;
}

/* ---- the number of processors ----------------------------------------------------------------------------------- */

static void procs_main(void *arg)
{
    (void)arg;
    CHECK_EQ(weft_procs(0), 2);
    CHECK_EQ(weft_procs(-5), 2);
    CHECK_EQ(weft_procs(0), 2);
    CHECK_EQ(weft_procs(7), 2);
    CHECK_EQ(weft_procs(1), 7);
    CHECK_EQ(weft_procs(3), 1);
    CHECK_EQ(weft_procs(1 << 30), 3);
    int most = weft_procs(0);
    CHECK(most >= 64 && most < 1 << 30);
    CHECK_EQ(weft_procs(1), most);
    CHECK_EQ(weft_procs(0), 1);
}

CASE(setting_the_number_of_processors_returns_the_former_one)
{
    CHECK_EQ(run_on(2, procs_main, NULL), 0);
    CHECK(weft_procs(0) < 0);
}

static _Atomic bool over;
static _Atomic int running, most_running;

/* Counts how many of these run at the same time. */
static void overlap(void *arg)
{
    weft_wg *wg = arg;
    while (!over) {
        int n = ++running;
        for (int most = most_running; n > most && !atomic_compare_exchange_weak(&most_running, &most, n);)
            ;
        compute(50 * WEFT_USEC);
        running--;
        weft_yield();
    }
    weft_wg_done(wg);
}

/* How many run at once at the most, once those that must retire have made a runtime call: a thread that the kernel
 * holds up in the middle of its computation counts as running, so there may be several tries. */
static int overlap_on(int procs)
{
    weft_procs(procs);
    for (int i = 0; i < 100; i++) {
        sleep_in_region(20);
        most_running = 0;
        sleep_in_region(100);
        if (most_running <= procs && (procs == 1 || most_running > 1))
            break;
    }
    return most_running;
}

static void resize_main(void *arg)
{
    weft_wg wg = {0};
    (void)arg;
    over = false;
    running = 0;
    weft_wg_add(&wg, 20);
    for (int i = 0; i < 20; i++)
        CHECK_EQ(weft_go(overlap, &wg), 0);
    static const int numbers[] = {1, 4, 1, 8, 2};
    for (int i = 0; i < 5; i++) {
        int most = overlap_on(numbers[i]);
        CHECK(most <= numbers[i]);
        CHECK(most > 1 || numbers[i] == 1);
    }
    over = true;
    CHECK_EQ(weft_wg_wait(&wg), 0);
    CHECK_EQ(weft_procs(0), 2);
}

CASE(the_number_of_processors_changes_under_load)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, resize_main, NULL), 0);
}

static void spawn_and_join(void *arg)
{
    weft_wg wg = {0};
    for (int i = 0; i < 20; i++) {
        weft_wg_add(&wg, 20);
        for (int j = 0; j < 20; j++)
            CHECK_EQ(weft_go((weft_fn *)weft_wg_done, &wg), 0);
        CHECK_EQ(weft_wg_wait(&wg), 0);
        weft_yield();
    }
    weft_wg_done(arg);
}

static void flicker_main(void *arg)
{
    weft_wg wg = {0};
    (void)arg;
    for (int i = 0; i < scaled(300); i++) {
        weft_wg_add(&wg, 3);
        for (int j = 0; j < 3; j++)
            CHECK_EQ(weft_go(spawn_and_join, &wg), 0);
        for (int n = 8; n > 0; n--) {
            weft_procs(n);
            weft_yield();
        }
        weft_procs(i % 9 + 1);
        CHECK_EQ(weft_wg_wait(&wg), 0);
    }
    CHECK(others_have_ended());
}

CASE(nothing_is_lost_while_the_number_flickers)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, flicker_main, NULL), 0);
}

/* ---- all of them are used --------------------------------------------------------------------------------------- */

struct barrier {
    _Atomic int here, started;
    int all;
};

/* Spins without a runtime call until all are here: so they run at the same time. */
static void meet(void *arg)
{
    struct barrier *b = arg;
    b->here++;
    for (int64_t end = weft_now() + 30 * WEFT_SEC; b->here < b->all && weft_now() < end;)
        ;
    CHECK_EQ(b->here, b->all);
}

static void meet_main(void *arg)
{
    struct barrier *b = arg;
    for (int i = 1; i < b->all; i++)
        CHECK_EQ(weft_go(meet, b), 0);
    meet(b);
}

CASE(goroutines_that_compute_use_all_processors)
{
    for (int i = 0; i < scaled(30); i++)
        for (int p = 1; p <= 8; p++)
            CHECK_EQ(run_on(p, meet_main, &(struct barrier){.all = p}), 0);
}

/* Each one starts the next and then computes: whoever is started lies alone behind one that never calls. */
static void meet_in_a_chain(void *arg)
{
    struct barrier *b = arg;
    if (++b->started < b->all)
        CHECK_EQ(weft_go(meet_in_a_chain, b), 0);
    meet(b);
}

CASE(a_lone_goroutine_behind_a_busy_one_is_run_by_another_processor)
{
    for (int i = 0; i < scaled(30); i++)
        for (int p = 2; p <= 8; p += 3)
            CHECK_EQ(run_on(p, meet_in_a_chain, &(struct barrier){.all = p}), 0);
}

/* The same for one that was woken, after the other processors had time to fall asleep. */
struct pair {
    weft_wg gate;
    struct barrier barrier;
};

static void wait_and_meet(void *arg)
{
    struct pair *pair = arg;
    CHECK_EQ(weft_wg_wait(&pair->gate), 0);
    meet(&pair->barrier);
}

static void wake_and_meet(void *arg)
{
    struct pair *pair = arg;
    weft_wg_add(&pair->gate, 1);
    CHECK_EQ(weft_go(wait_and_meet, pair), 0);
    sleep_in_region(20);
    weft_wg_done(&pair->gate);
    meet(&pair->barrier);
}

CASE(a_woken_goroutine_behind_a_busy_one_is_run_by_another_processor)
{
    for (int i = 0; i < scaled(20); i++)
        for (int p = 2; p <= 8; p += 6)
            CHECK_EQ(run_on(p, wake_and_meet, &(struct pair){.barrier.all = 2}), 0);
}

static void yield_a_few_times(void *arg)
{
    struct barrier *b = arg;
    for (int i = 0; i < 5; i++)
        weft_yield();
    b->here++;
}

/* One computes, the others share what is left. */
static void compute_beside(void *arg)
{
    struct barrier *b = arg;
    for (int i = 0; i < 50; i++)
        CHECK_EQ(weft_go(yield_a_few_times, b), 0);
    meet(b);
}

CASE(a_busy_goroutine_does_not_hold_up_those_queued_behind_it)
{
    for (int i = 0; i < scaled(20); i++)
        for (int p = 2; p <= 8; p += 6)
            CHECK_EQ(run_on(p, compute_beside, &(struct barrier){.all = 51}), 0);
}

/* A new processor finds the work that was there before it. */
static void grow_and_meet(void *arg)
{
    struct barrier *b = arg;
    CHECK_EQ(weft_go(meet, b), 0);
    CHECK_EQ(weft_procs(2), 1);
    meet(b);
}

CASE(an_added_processor_takes_waiting_work)
{
    for (int i = 0; i < scaled(50); i++)
        CHECK_EQ(run_on(1, grow_and_meet, &(struct barrier){.all = 2}), 0);
}

/* ---- idle ------------------------------------------------------------------------------------------------------- */

static int64_t idle_cost;
static const int64_t IDLE_LIMIT = WEFT_MSEC; /* in two seconds */

static void park(void *arg)
{
    weft_wg_wait(arg);
}

static void idle_main(void *arg)
{
    static weft_wg never;
    (void)arg;
    never = (weft_wg){0};
    weft_wg_add(&never, 1);
    for (int i = 0; i < 100; i++)
        CHECK_EQ(weft_go(park, &never), 0);
    for (int i = 0; i < 20; i++)
        weft_yield();
    weft_block_enter();
    usleep(3500 * 1000); /* memory is given back during the first seconds, or a little later where all is slow */
    idle_cost = INT64_MAX;
    for (int i = 0; i < (check_scale() > 1 ? 1 : 5) && idle_cost >= IDLE_LIMIT; i++) {
        int64_t before = check_cpu_ns();
        usleep(2000 * 1000);
        idle_cost = check_cpu_ns() - before;
    }
    weft_block_leave();
}

CASE(an_idle_runtime_uses_no_cpu)
{
    EACH_PROCS(p)
    {
        CHECK_EQ(run_on(p, idle_main, NULL), 0);
        if (check_under_tsan() || check_under_asan() || check_under_emulator())
            skipped("sanitizers and emulators have threads of their own");
        else if (idle_cost >= IDLE_LIMIT)
            check_fail(__FILE__, __LINE__, "2 s of idling on %d Ps cost %lld ns", p, (long long)idle_cost);
        if (check_scale() > 1)
            break;
    }
}

/* ---- quanta ----------------------------------------------------------------------------------------------------- */

static void set_flag(void *arg)
{
    *(_Atomic int *)arg = 1;
}

static void call_until(void *arg)
{
    _Atomic int *flag = arg;
    CHECK_EQ(weft_go(set_flag, flag), 0);
    for (int64_t end = weft_now() + 20 * WEFT_SEC; !*flag && weft_now() < end;)
        weft_cancelled();
    CHECK_EQ(*flag, 1);
}

CASE(a_goroutine_that_makes_runtime_calls_lets_others_run_after_its_quantum)
{
    static const int64_t quanta[] = {0, 200 * WEFT_USEC, 50 * WEFT_MSEC};
    for (int i = 0; i < 3; i++) {
        _Atomic int flag = 0;
        CHECK_EQ(run_with_own_quantum(&(weft_config){.procs = 1, .quantum = quanta[i]}, call_until, &flag), 0);
    }
}

static void call_for_a_while(void *arg)
{
    _Atomic int *flag = arg;
    CHECK_EQ(weft_go(set_flag, flag), 0);
    for (int64_t end = weft_now() + 100 * WEFT_MSEC; weft_now() < end;)
        weft_cancelled();
    CHECK_EQ(*flag, 0);
}

CASE(with_a_quantum_of_never_nobody_is_preempted)
{
    _Atomic int flag = 0;
    CHECK_EQ(run_with_own_quantum(&(weft_config){.procs = 1, .quantum = WEFT_NEVER}, call_for_a_while, &flag), 0);
}

/* Several that never yield share one processor: nobody gets far ahead. */
enum { SHARERS = 4 };
static _Atomic int64_t shares[SHARERS];

static void share(void *arg)
{
    _Atomic int64_t *mine = arg;
    while (!over) {
        compute(10 * WEFT_USEC);
        weft_cancelled();
        ++*mine;
    }
}

static void sharing_main(void *arg)
{
    (void)arg;
    over = false;
    memset((void *)shares, 0, sizeof shares);
    for (int i = 0; i < SHARERS; i++)
        CHECK_EQ(weft_go(share, (void *)&shares[i]), 0);
    sleep_in_region(600);
    over = true;
    for (int i = 0; i < SHARERS; i++)
        CHECK(shares[i] > 0);
}

static _Atomic int preempted_seen;

static void look_for_preempted(struct w_g *g, void *arg)
{
    (void)arg;
    if (atomic_load(&g->state) == W_PREEMPTED)
        preempted_seen++;
}

static void preempted_main(void *arg)
{
    (void)arg;
    over = false;
    preempted_seen = 0;
    for (int i = 0; i < SHARERS; i++)
        CHECK_EQ(weft_go(share, (void *)&shares[i]), 0);
    for (int i = 0; i < 200 && preempted_seen == 0; i++) {
        sleep_in_region(10);
        w_gs_each(look_for_preempted, NULL);
    }
    over = true;
    CHECK(preempted_seen > 0);
}

CASE(one_that_was_preempted_is_seen_as_such)
{
    CHECK_EQ(run_on(1, preempted_main, NULL), 0);
}

CASE(those_that_never_yield_share_one_processor)
{
    CHECK_EQ(run_on(1, sharing_main, NULL), 0);
}

/* ---- pins ------------------------------------------------------------------------------------------------------- */

static _Atomic int pinned_threads[64]; /* threads that are pinned to */
static _Atomic int pins, intruders;

static bool is_pinned_thread(int tid)
{
    for (int i = 0; i < 64; i++)
        if (pinned_threads[i] == tid)
            return true;
    return false;
}

static void roam(void *arg)
{
    (void)arg;
    while (!over) {
        if (is_pinned_thread(thread_id()))
            intruders++;
        weft_yield();
    }
}

static void ring(void *arg)
{
    weft_wg_done(arg);
}

static void stay(void *arg)
{
    weft_wg *done = arg;
    weft_pin();
    weft_pin();
    int tid = thread_id(), slot = pins++;
    for (int round = 0; round < 2; round++) {
        pinned_threads[slot] = tid;
        for (int i = 0; i < scaled(60); i++) {
            weft_yield();
            CHECK_EQ(thread_id(), tid);
            weft_wg wg = {0};
            weft_wg_add(&wg, 1);
            CHECK_EQ(weft_go(ring, &wg), 0);
            CHECK_EQ(weft_wg_wait(&wg), 0);
            CHECK_EQ(thread_id(), tid);
            if (i % 10 == 0)
                sleep_in_region(1);
            CHECK_EQ(thread_id(), tid);
            weft_cancelled();
        }
        if (round == 0)
            weft_unpin(); /* still pinned once */
    }
    pinned_threads[slot] = 0;
    weft_unpin();
    weft_yield();
    weft_wg_done(done);
}

static void pin_main(void *arg)
{
    weft_wg done = {0};
    (void)arg;
    over = false;
    pins = 0;
    intruders = 0;
    memset((void *)pinned_threads, 0, sizeof pinned_threads);
    weft_wg_add(&done, 6);
    for (int i = 0; i < 10; i++)
        CHECK_EQ(weft_go(roam, NULL), 0);
    for (int i = 0; i < 6; i++)
        CHECK_EQ(weft_go(stay, &done), 0);
    CHECK_EQ(weft_wg_wait(&done), 0);
    over = true;
    CHECK_EQ(intruders, 0);
}

CASE(a_pinned_goroutine_keeps_its_thread_and_has_it_alone)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, pin_main, NULL), 0);
}

static void pin_and_end(void *arg)
{
    weft_pin();
    weft_pin();
    weft_yield();
    weft_wg_done(arg);
}

static void pin_and_exit(void *arg)
{
    weft_pin();
    weft_wg_done(arg);
    weft_exit();
}

static void many_pins_main(void *arg)
{
    weft_wg wg = {0};
    (void)arg;
    for (int i = 0; i < scaled(200); i++) {
        weft_wg_add(&wg, 4);
        CHECK_EQ(weft_go(pin_and_end, &wg), 0);
        CHECK_EQ(weft_go(pin_and_exit, &wg), 0);
        CHECK_EQ(weft_go(pin_and_end, &wg), 0);
        CHECK_EQ(weft_go(ring, &wg), 0);
        CHECK_EQ(weft_wg_wait(&wg), 0);
    }
    CHECK(check_threads() < 60);
}

CASE(the_end_of_a_pinned_goroutine_frees_its_thread)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, many_pins_main, NULL), 0);
}

static void yield_pinned(void *arg)
{
    _Atomic int flag = 0;
    weft_pin();
    int tid = thread_id();
    CHECK_EQ(weft_go(set_flag, &flag), 0);
    if (!reaches(&flag, 1, 5))
        check_fail(__FILE__, __LINE__, "on %d P(s) a pinned goroutine that yields starves another", *(int *)arg);
    CHECK_EQ(thread_id(), tid);
}

CASE(a_pinned_goroutine_that_yields_lets_others_run)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, yield_pinned, &p), 0);
}

static void yield_while_resizing(void *arg)
{
    (void)arg;
    weft_pin();
    int tid = thread_id();
    for (int n = 8; n > 0; n--) {
        weft_procs(n);
        weft_yield();
        CHECK_EQ(thread_id(), tid);
    }
}

CASE(main_may_be_pinned_while_processors_come_and_go)
{
    for (int i = 0; i < scaled(50); i++)
        EACH_PROCS(p) CHECK_EQ(run_on(p, yield_while_resizing, NULL), 0);
}

static void unpin_alone(void *arg)
{
    (void)arg;
    weft_unpin();
}

static void run_unpin_alone(void)
{
    run_on(1, unpin_alone, NULL);
}

CASE(unpin_without_pin_aborts_with_a_line)
{
    char text[4096];
    int status = check_child(run_unpin_alone, text, sizeof text);
    CHECK(status != 0);
    CHECK(strstr(text, "unpin") != NULL);
}
