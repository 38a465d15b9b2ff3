/* SPDX-License-Identifier: MIT */
/* Somebody of high priority becomes ready while every P computes: one of them makes way. */
#include "bells.h"
#include "priorities.h"

/* ---- an urgent one beside hogs ---------------------------------------------------------------------------------- */

struct beside {
    const struct wake *how;
    int procs, hogs, priority;
};

static void woken_beside_hogs(void *arg)
{
    const struct beside *b = arg;
    begin_scene();
    set_up_bell();
    CHECK_EQ(go_as(b->priority, b->how->waits, (void *)&alarm_bell.ran), 0);
    CHECK(reaches(&alarm_bell.waiting, 1, 20));
    start_hogs(2 * b->procs, b->hogs);
    into_region_beside_hogs();
    b->how->wake();
    if (!comes_to(&alarm_bell.ran, 1))
        check_fail(__FILE__, __LINE__, "on %d P(s) one that is woken by %s never runs", b->procs, b->how->name);
    end_scene();
    take_down_bell();
}

CASE(an_urgent_one_that_is_woken_runs_beside_hogs_on_every_p)
{
    EACH_PROCS(p)
    for (int i = 0; i < WAKES_COUNT; i++)
        CHECK_EQ(run_long(p, woken_beside_hogs, &(struct beside){&WAKES[i], p, WEFT_NORMAL, WEFT_HIGH}), 0);
}

CASE(an_urgent_one_that_is_woken_runs_beside_low_hogs_on_every_p)
{
    EACH_PROCS(p)
    for (int i = 0; i < WAKES_COUNT; i++)
        CHECK_EQ(run_long(p, woken_beside_hogs, &(struct beside){&WAKES[i], p, WEFT_LOW, WEFT_HIGH}), 0);
}

CASE(a_normal_one_that_is_woken_runs_beside_low_hogs_on_every_p)
{
    EACH_PROCS(p)
    for (int i = 0; i < WAKES_COUNT; i++)
        CHECK_EQ(run_long(p, woken_beside_hogs, &(struct beside){&WAKES[i], p, WEFT_LOW, WEFT_NORMAL}), 0);
}

/* Hardly ever where they can be stopped: most signals meet them in libc. */
static void hog_in_libc(void *arg)
{
    static char room[1 << 20];
    hogs.began++;
    while (!over) {
        memset(room, 1, sizeof room);
        compute_a_little();
    }
    (void)arg;
}

static void woken_beside_libc(void *arg)
{
    const struct beside *b = arg;
    begin_scene();
    set_up_bell();
    CHECK_EQ(go_as(WEFT_HIGH, b->how->waits, (void *)&alarm_bell.ran), 0);
    CHECK(reaches(&alarm_bell.waiting, 1, 20));
    for (int i = 0; i < 2 * b->procs; i++)
        CHECK_EQ(go_as(WEFT_NORMAL, hog_in_libc, NULL), 0);
    into_region_beside_hogs();
    b->how->wake();
    CHECK(comes_to(&alarm_bell.ran, 1));
    end_scene();
    take_down_bell();
}

CASE(an_urgent_one_waits_for_hogs_that_are_in_libc_no_longer_than_they_are)
{
    EACH_PROCS(p)
    for (int i = 0; i < WAKES_COUNT; i++)
        CHECK_EQ(run_long(p, woken_beside_libc, &(struct beside){.how = &WAKES[i], .procs = p}), 0);
}

static bool nobody_is_stopped(void)
{
    if (!signals_stop())
        skipped("this sanitizer turns asynchronous preemption off");
    return !signals_stop();
}

/* The least urgent of those that run, and so the first to be asked, but no signal reaches its thread. */
static void be_deaf(void *arg)
{
    sigset_t urgent, before;
    sigemptyset(&urgent);
    sigaddset(&urgent, SIGURG);
    CHECK_EQ(pthread_sigmask(SIG_BLOCK, &urgent, &before), 0);
    hogs.began++;
    while (!over)
        ;
    CHECK_EQ(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
    (void)arg;
}

static void woken_beside_deaf(void *arg)
{
    const struct wake *how = arg;
    begin_scene();
    set_up_bell();
    CHECK_EQ(go_as(WEFT_HIGH, how->waits, (void *)&alarm_bell.ran), 0);
    CHECK(reaches(&alarm_bell.waiting, 1, 20));
    CHECK_EQ(go_as(WEFT_LOW, be_deaf, NULL), 0);
    CHECK(reaches(&hogs.began, 1, 20));
    start_hogs(1, WEFT_NORMAL);
    into_region_beside_hogs();
    how->wake();
    if (!comes_to(&alarm_bell.ran, 1))
        check_fail(__FILE__, __LINE__, "one that is woken by %s never runs", how->name);
    end_scene();
    take_down_bell();
}

CASE(an_urgent_one_runs_though_the_first_that_was_asked_for_it_does_not_hear)
{
    if (nobody_is_stopped())
        return;
    for (int i = 0; i < WAKES_COUNT; i++)
        CHECK_EQ(run_long(2, woken_beside_deaf, (void *)&WAKES[i]), 0);
}

/* Whenever somebody looks at its thread, that has just run, and has just slept. */
static void nap_all_the_time(void *arg)
{
    (void)arg;
    hogs.began++;
    while (!over) {
        spin_for(10000);
        usleep(1);
    }
}

static void woken_beside_naps(void *arg)
{
    begin_scene();
    set_up_bell();
    CHECK_EQ(go_as(WEFT_HIGH, wait_for_time, (void *)&alarm_bell.ran), 0);
    CHECK(reaches(&alarm_bell.waiting, 1, 20));
    CHECK_EQ(go_as(WEFT_NORMAL, nap_all_the_time, NULL), 0);
    into_region_beside_hogs();
    CHECK(comes_to(&alarm_bell.ran, 1));
    end_scene();
    take_down_bell();
    (void)arg;
}

CASE(an_urgent_one_runs_though_the_others_seem_never_to_compute)
{
    if (nobody_is_stopped())
        return;
    CHECK_EQ(run_long(1, woken_beside_naps, NULL), 0);
}

/* One that comes now and then, each time after the others have had many turns, runs before the ones that wait. */
enum { VISITS = 20, TURNS_BETWEEN = 65 }; /* more than sched.c's FAIR_TURN */

static struct {
    _Atomic int visits, seen; /* seen: the turns of the others when it last came */
    int late;
} visit;

static void visit_now(void)
{
    visit.seen = hogs.turns;
    visit.visits++;
}

static void visit_now_and_then(void *arg)
{
    int value;
    while (weft_recv(arg, &value) == 0)
        visit_now();
}

/* The same, but it waits in a blocking region. */
static void return_now_and_then(void *arg)
{
    (void)arg;
    for (int value = 0; value >= 0;) {
        weft_block_enter();
        CHECK_EQ(read(alarm_bell.fd[0], &value, sizeof value), sizeof value);
        weft_block_leave();
        visit_now();
    }
}

/* How it is rung for, and how it is told to end. */
struct visitor {
    weft_fn *fn, *others;
    void (*ring)(int value);
    void (*dismiss)(void);
};

static void ring_by_channel(int value)
{
    CHECK_EQ(weft_send(alarm_bell.ch, &value), 0);
}

static void close_channel(void)
{
    CHECK_EQ(weft_close(alarm_bell.ch), 0);
}

static void ring_by_pipe(int value)
{
    CHECK_EQ(write(alarm_bell.fd[1], &value, sizeof value), sizeof value);
}

static void ring_the_last_time(void)
{
    ring_by_pipe(-1);
}

static void *ring_now_and_then(void *arg)
{
    const struct visitor *v = arg;
    for (int i = 0; i < VISITS && !over; i++) {
        int from = hogs.turns;
        for (int k = 0; k < 2000 && hogs.turns < from + TURNS_BETWEEN; k++)
            usleep(500);
        v->ring(i);
        int rung = hogs.turns; /* a turn that began before is nobody's fault */
        for (int k = 0; k < 20000 && visit.visits <= i; k++)
            usleep(500);
        visit.late += visit.seen > rung;
    }
    return NULL;
}

/* Computes for a while, many times as long as it takes to ring, and waits often enough to stay a light one. */
static void yield_now_and_then(void *arg)
{
    hogs.began++;
    for (int i = 1; !over; i++) {
        hogs.turns++;
        spin_for(200000);
        if (i % 4 != 0)
            weft_yield();
        else
            weft_sleep(10 * WEFT_USEC);
    }
    (void)arg;
}

/* The same with an address of its thread's: where it is stopped, that thread waits for it, and the P goes elsewhere with whoever is next. */
static void yield_with_errno_now_and_then(void *arg)
{
    int *volatile at = &errno;
    yield_now_and_then(arg);
    CHECK(at != NULL);
}

static void visits_main(void *arg)
{
    const struct visitor *v = arg;
    pthread_t thread;
    begin_scene();
    set_up_bell();
    memset(&visit, 0, sizeof visit);
    CHECK_EQ(go_as(WEFT_HIGH, v->fn, alarm_bell.ch), 0);
    for (int i = 0; i < 4; i++)
        CHECK_EQ(go_as(WEFT_NORMAL, v->others, &hogs.hog[i]), 0);
    into_region_beside_hogs();
    CHECK_EQ(pthread_create(&thread, NULL, ring_now_and_then, arg), 0);
    pthread_join(thread, NULL);
    CHECK(comes_to(&visit.visits, VISITS));
    over = true;
    v->dismiss();
    end_scene();
    take_down_bell();
}

/* On a crowded machine it may be late now and then: the best of some tries counts. */
static void visits_are_on_time(struct visitor v)
{
    int least = VISITS;
    for (int i = 0; i < 6 && least > VISITS / 5; i++) {
        CHECK_EQ(run_with_own_quantum(&(weft_config){.procs = 1, .quantum = WEFT_MSEC}, visits_main, &v), 0);
        least = visit.late < least ? visit.late : least;
    }
    if (least > VISITS / 5)
        check_fail(__FILE__, __LINE__, "it was late %d times of %d", least, VISITS);
}

CASE(an_urgent_one_that_comes_now_and_then_runs_before_the_hogs_that_wait)
{
    visits_are_on_time((struct visitor){visit_now_and_then, be_a_hog, ring_by_channel, close_channel});
}

CASE(an_urgent_one_that_comes_now_and_then_runs_before_the_yielding_ones_that_wait)
{
    visits_are_on_time((struct visitor){visit_now_and_then, yield_now_and_then, ring_by_channel, close_channel});
}

CASE(an_urgent_one_that_comes_now_and_then_runs_before_those_that_keep_to_their_threads)
{
    visits_are_on_time(
        (struct visitor){visit_now_and_then, yield_with_errno_now_and_then, ring_by_channel, close_channel});
}

CASE(an_urgent_one_that_comes_back_from_a_blocking_call_runs_before_the_hogs_that_wait)
{
    visits_are_on_time((struct visitor){return_now_and_then, be_a_hog, ring_by_pipe, ring_the_last_time});
}

/* ---- from one thread to another ----------------------------------------------------------------------------------- */

static _Atomic long ticks;
static long ticks_then;
static int visits;

static void tick(void *arg)
{
    (void)arg;
    for (; !over; ticks++)
        weft_yield();
}

static void note_ticks(void *ch)
{
    for (; weft_recv(ch, NULL) == 0; visits++)
        ticks_then = ticks;
}

/* Each time the urgent one is picked here and runs on another thread; now and then it would have been the turn of others. */
static void send_from_a_pinned_one(void *arg)
{
    weft_chan *ch = weft_chan_new(0, 0);
    (void)arg;
    over = false;
    visits = 0;
    for (int i = 0; i < 3; i++)
        CHECK_EQ(weft_go(tick, NULL), 0);
    CHECK_EQ(go_as(WEFT_HIGH, note_ticks, ch), 0);
    weft_yield();
    weft_pin();
    for (int i = 0; i < 1000; i++) {
        for (int k = 0; k < i % 7; k++) /* so that it is each time another turn */
            weft_yield();
        long before = ticks;
        CHECK_EQ(weft_send(ch, NULL), 0);
        weft_yield();
        CHECK_EQ(visits, i + 1);
        CHECK(ticks_then == before || w_m()->lost);
    }
    weft_unpin();
    over = true;
    CHECK_EQ(weft_close(ch), 0);
    CHECK(others_have_ended());
    weft_chan_free(ch);
}

CASE(an_urgent_one_that_is_left_to_another_thread_is_still_the_first)
{
    CHECK_EQ(run_alone(send_from_a_pinned_one, NULL), 0);
}
