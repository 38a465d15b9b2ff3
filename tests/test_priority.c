/* SPDX-License-Identifier: MIT */
/* Priorities: who runs before whom, and that nobody waits for ever all the same. */
#include "bells.h"
#include "priorities.h"

/* ---- made ready by the one that runs ---------------------------------------------------------------------------- */

enum { SENDS = 100, FEW = 10 };

static struct {
    weft_chan *ch;
    weft_wg ended;
    _Atomic int before, after; /* what the receiver had got when the sender's call had returned */
} handed;

static void receive_all(void *arg)
{
    (void)arg;
    for (int i = 0; i < SENDS; i++) {
        CHECK_EQ(weft_recv(handed.ch, NULL), 0);
        handed.after++;
    }
    weft_wg_done(&handed.ended);
}

/* Counts how often the receiver was first. */
static void send_all(void *arg)
{
    handed.before = handed.after = 0;
    handed.ended = (weft_wg){0};
    handed.ch = weft_chan_new(sizeof(int), SENDS);
    weft_wg_add(&handed.ended, 1);
    CHECK_EQ(go_as(*(int *)arg, receive_all, NULL), 0);
    for (int i = 0; i < SENDS; i++) {
        weft_sleep(50 * WEFT_USEC); /* it waits again */
        int before = handed.after;
        CHECK_EQ(weft_send(handed.ch, &i), 0);
        handed.before += handed.after > before;
    }
    CHECK_EQ(weft_wg_wait(&handed.ended), 0);
    weft_chan_free(handed.ch);
}

/* Where others wait too, an urgent one gives way now and then: hence not every time, and the best of some tries. */
CASE(on_one_p_an_urgent_receiver_runs_before_the_senders_call_returns)
{
    int priority = WEFT_HIGH;
    for (int k = 0; k < 2; k++) {
        int most = 0;
        for (int i = 0; i < 3 && most < SENDS - FEW; i++) {
            CHECK_EQ(k == 0 ? run_long(1, send_all, &priority) : run_on(1, send_all, &priority), 0);
            most = handed.before > most ? handed.before : most;
        }
        CHECK(most >= SENDS - FEW);
    }
}

CASE(on_one_p_a_receiver_of_the_same_class_waits_for_its_turn)
{
    int priority = WEFT_NORMAL;
    CHECK_EQ(run_long(1, send_all, &priority), 0);
    CHECK(handed.before <= FEW);
}

/* What it makes ready is the same by a start. */
static void start_urgent_ones(void *arg)
{
    _Atomic int ran = 0;
    int first = 0;
    for (int i = 0; i < SENDS; i++) {
        CHECK_EQ(go_as(WEFT_HIGH, count, (void *)&ran), 0);
        first += ran == i + 1;
    }
    CHECK(reaches(&ran, SENDS, 20));
    *(int *)arg = first;
}

CASE(on_one_p_an_urgent_one_that_is_started_runs_before_the_call_returns)
{
    int first = 0;
    CHECK_EQ(run_long(1, start_urgent_ones, &first), 0);
    CHECK(first >= SENDS - FEW);
}

CASE(with_a_quantum_of_never_an_urgent_one_preempts_nobody)
{
    int priority = WEFT_HIGH, first = 0;
    CHECK_EQ(run_alone(send_all, &priority), 0);
    CHECK_EQ(handed.before, 0);
    CHECK_EQ(run_alone(start_urgent_ones, &first), 0);
    CHECK_EQ(first, 0);
}

/* Nor is one stopped that computes: the urgent one runs after it, unless its P is lost (its thread waits for a page, say). */
static void compute_beside_urgent(void *arg)
{
    _Atomic int ran = 0;
    pthread_t thread;
    set_up_bell();
    CHECK_EQ(go_as(WEFT_HIGH, wait_for_value, (void *)&ran), 0);
    CHECK(reaches(&alarm_bell.waiting, 1, 20));
    weft_yield();
    long lost = losses();
    CHECK_EQ(pthread_create(&thread, NULL, send_from_outside, arg), 0);
    while (ld_relaxed(&w_sched.globq.lens[W_LINE_HIGH]) == 0 && losses() == lost)
        spin_for(100);
    for (int64_t end = weft_now() + 20 * WEFT_MSEC; weft_now() < end;)
        weft_cancelled();
    CHECK(ran == 0 || losses() != lost);
    CHECK(reaches(&ran, 1, 20));
    join_in_region(&thread, 1);
    take_down_bell();
}

CASE(with_a_quantum_of_never_one_that_computes_runs_on_beside_an_urgent_one)
{
    CHECK_EQ(run_alone(compute_beside_urgent, NULL), 0);
}

/* ---- order ------------------------------------------------------------------------------------------------------ */

enum { EACH = 4 };

static struct {
    weft_wg gate, ended;
    _Atomic int n;
    int priority[3 * EACH]; /* of those who ran, in that order */
    int number[3 * EACH];
} order;

struct runner {
    int priority, number;
    bool waits;
};

static void note_turn(void *arg)
{
    struct runner *r = arg;
    if (r->waits)
        CHECK_EQ(weft_wg_wait(&order.gate), 0);
    order.priority[order.n] = r->priority;
    order.number[order.n++] = r->number;
    weft_wg_done(&order.ended);
}

/* Of each class in turn, the lowest first. */
static void start_runners(struct runner *runners, bool wait)
{
    memset(&order, 0, sizeof order);
    weft_wg_add(&order.gate, 1);
    weft_wg_add(&order.ended, 3 * EACH);
    for (int i = 0; i < 3 * EACH; i++) {
        runners[i] = (struct runner){CLASSES[i % 3], i, wait};
        CHECK_EQ(go_as(CLASSES[i % 3], note_turn, &runners[i]), 0);
    }
}

/* Higher ones first; among those of the two classes that wait in line, the first to come. */
static bool in_order(bool within)
{
    bool good = true;
    for (int i = 1; i < 3 * EACH; i++) {
        bool same = order.priority[i] == order.priority[i - 1];
        good &= order.priority[i] <= order.priority[i - 1];
        good &= !(within && same && order.priority[i] != WEFT_NORMAL) || order.number[i] > order.number[i - 1];
    }
    return good;
}

static void start_in_any_order(void *arg)
{
    struct runner runners[3 * EACH];
    start_runners(runners, false);
    CHECK_EQ(weft_wg_wait(&order.ended), 0);
    *(int *)arg += in_order(true);
}

static void wake_in_any_order(void *arg)
{
    struct runner runners[3 * EACH];
    start_runners(runners, true);
    weft_sleep(5 * WEFT_MSEC); /* all come to wait, the low ones as well */
    weft_wg_done(&order.gate);
    CHECK_EQ(weft_wg_wait(&order.ended), 0);
    *(int *)arg += in_order(false); /* a wait group wakes the last one first */
}

/* Once in a while, if the machine holds us up for long enough, it is somebody else's turn. */
CASE(those_that_are_started_run_in_the_order_of_their_classes)
{
    int good = 0;
    for (int i = 0; i < 10; i++)
        CHECK_EQ(run_alone(start_in_any_order, &good), 0);
    CHECK(good >= 8);
}

CASE(those_that_are_woken_run_in_the_order_of_their_classes)
{
    int good = 0;
    for (int i = 0; i < 10; i++)
        CHECK_EQ(run_alone(wake_in_any_order, &good), 0);
    CHECK(good >= 8);
}

/* The same while one that may not be stopped holds the P, and a thread, time or a descriptor wakes them: first a normal one. */
static _Atomic int turns;

struct bell_pair {
    const struct wake *how;
    _Atomic int normal_turn, high_turn; /* when each of them ran */
    int *good;
};

static void note_when(_Atomic int *at)
{
    *at = ++turns;
}

static void normal_behind(void *arg)
{
    struct bell_pair *b = arg;
    _Atomic int ran = 0;
    b->how->waits((void *)&ran);
    note_when(&b->normal_turn);
}

static void high_behind(void *arg)
{
    struct bell_pair *b = arg;
    _Atomic int ran = 0;
    b->how->waits((void *)&ran);
    note_when(&b->high_turn);
}

static uint32_t ready_ones(void)
{
    return ld_relaxed(&w_sched.globq.lens[W_LINE_HIGH]) + ld_relaxed(&w_sched.globq.lens[W_LINE_RAN]);
}

static _Atomic bool both_rung;

/* One after the other: two bytes that are seen together would wake one reader, who then wakes the other. */
static void *wake_twice(void *arg)
{
    const struct wake *how = arg;
    for (uint32_t i = 0; i < 2; i++) {
        how->wake();
        for (int k = 0; k < 10000 && ready_ones() <= i; k++)
            usleep(500);
    }
    both_rung = true;
    return NULL;
}

static void hold_the_p(void *arg)
{
    struct bell_pair *b = arg;
    pthread_t thread;
    set_up_bell();
    CHECK_EQ(weft_go(normal_behind, b), 0);
    CHECK(reaches(&alarm_bell.waiting, 1, 20));
    CHECK_EQ(go_as(WEFT_HIGH, high_behind, b), 0);
    CHECK(reaches(&alarm_bell.waiting, 2, 20));
    weft_yield();
    weft_preempt_off();
    both_rung = false;
    CHECK_EQ(pthread_create(&thread, NULL, wake_twice, (void *)b->how), 0);
    while (!both_rung)
        spin_for(100);
    bool both = ready_ones() == 2; /* or one was woken before all was ready for it */
    weft_preempt_on();
    while (b->normal_turn == 0 || b->high_turn == 0)
        weft_yield();
    join_in_region(&thread, 1);
    take_down_bell();
    *b->good += both && b->high_turn < b->normal_turn;
}

CASE(an_urgent_one_overtakes_a_normal_one_that_was_woken_before_it)
{
    for (int i = 0; i < WAKES_COUNT; i++) {
        int good = 0;
        for (int k = 0; k < 5; k++)
            CHECK_EQ(run_long(1, hold_the_p, &(struct bell_pair){.how = &WAKES[i], .good = &good}), 0);
        if (good < 3)
            check_fail(__FILE__, __LINE__, "woken by %s it was the first in %d of 5 runs", WAKES[i].name, good);
    }
}

/* A low one runs when nobody else is ready. */
enum { YIELDERS = 3, YIELDS = 1000 };
static const int64_t QUANTUM = 10 * WEFT_MSEC;
static _Atomic int yields, yields_before_low;

static void yield_often(void *arg)
{
    for (int i = 0; i < YIELDS; i++) {
        yields++;
        weft_yield();
    }
    weft_wg_done(arg);
}

static void note_yields(void *arg)
{
    yields_before_low = yields;
    weft_wg_done(arg);
}

struct trial {
    int runs, good;
};

/* A low one has a turn every eighth quantum, be there others: a run that lasts as long says nothing. */
static void low_behind_yielders(void *arg)
{
    struct trial *t = arg;
    weft_wg wg = {0};
    int64_t from = weft_now();
    yields = 0;
    weft_wg_add(&wg, YIELDERS + 1);
    CHECK_EQ(go_as(WEFT_LOW, note_yields, &wg), 0);
    for (int i = 0; i < YIELDERS; i++)
        CHECK_EQ(weft_go(yield_often, &wg), 0);
    CHECK_EQ(weft_wg_wait(&wg), 0);
    if (weft_now() - from > 7 * QUANTUM)
        return;
    t->runs++;
    t->good += yields_before_low == YIELDERS * YIELDS;
}

CASE(a_low_one_runs_when_nobody_else_is_ready)
{
    struct trial t = {0};
    for (int i = 0; i < 100 && t.runs < 10; i++)
        CHECK_EQ(run_with_own_quantum(&(weft_config){.procs = 1, .quantum = QUANTUM}, low_behind_yielders, &t), 0);
    CHECK_EQ(t.runs, 10);
    CHECK(t.good >= 8);
}

/* ---- nobody waits for ever -------------------------------------------------------------------------------------- */

static _Atomic int low_turns, normal_turns;

static void take_turns(void *arg)
{
    while (!over) {
        count(arg);
        weft_yield();
    }
}

static void yield_for_ever(void *arg)
{
    hogs.began++;
    while (!over)
        weft_yield();
    (void)arg;
}

struct crowd {
    int procs, priority;
    weft_fn *fn; /* NULL: hogs */
};

/* Those who crowd every P are of a class; a low one, and if they are urgent a normal one, must get turns: one in eight quanta of a
 * P, so that many do not take long. */
enum { TURNS = 20 };

static void turns_beside_crowd(void *arg)
{
    const struct crowd *c = arg;
    begin_scene();
    low_turns = normal_turns = 0;
    CHECK_EQ(go_as(WEFT_LOW, take_turns, (void *)&low_turns), 0);
    if (c->priority == WEFT_HIGH)
        CHECK_EQ(go_as(WEFT_NORMAL, take_turns, (void *)&normal_turns), 0);
    for (int i = 0; i < 2 * c->procs; i++)
        CHECK_EQ(go_as(c->priority, c->fn != NULL ? c->fn : be_a_hog, &hogs.hog[i]), 0);
    into_region_beside_hogs();
    CHECK(comes_to(&hogs.began, c->procs));
    int low = low_turns, normal = normal_turns;
    if (!comes_to(&low_turns, low + TURNS))
        check_fail(__FILE__, __LINE__, "a low one gets no turns on %d P(s)", c->procs);
    if (c->priority == WEFT_HIGH && !comes_to(&normal_turns, normal + TURNS))
        check_fail(__FILE__, __LINE__, "a normal one gets no turns on %d P(s)", c->procs);
    end_scene();
}

/* It is quanta that are counted: short ones pass sooner. */
static int run_short(int procs, weft_fn *fn, void *arg)
{
    return run_with_own_quantum(&(weft_config){.procs = procs, .quantum = WEFT_MSEC}, fn, arg);
}

CASE(a_low_one_gets_turns_beside_normal_hogs_on_every_p)
{
    EACH_PROCS(p) CHECK_EQ(run_short(p, turns_beside_crowd, &(struct crowd){p, WEFT_NORMAL, NULL}), 0);
}

CASE(a_low_one_gets_turns_beside_yield_loops_on_every_p)
{
    EACH_PROCS(p) CHECK_EQ(run_short(p, turns_beside_crowd, &(struct crowd){p, WEFT_NORMAL, yield_for_ever}), 0);
}

CASE(normal_and_low_ones_get_turns_beside_urgent_hogs_on_every_p)
{
    EACH_PROCS(p) CHECK_EQ(run_short(p, turns_beside_crowd, &(struct crowd){p, WEFT_HIGH, NULL}), 0);
}

static __thread int of_this_thread;

/* It holds an address of its thread when it is stopped, and goes on there. */
static void be_a_hog_of_a_thread(void *arg)
{
    int *volatile at = &of_this_thread;
    be_a_hog(arg);
    CHECK(at != NULL);
}

CASE(normal_and_low_ones_get_turns_beside_urgent_hogs_that_keep_to_their_threads_on_every_p)
{
    EACH_PROCS(p) CHECK_EQ(run_short(p, turns_beside_crowd, &(struct crowd){p, WEFT_HIGH, be_a_hog_of_a_thread}), 0);
}

static void yield_on_its_thread_for_ever(void *arg)
{
    weft_pin();
    yield_for_ever(arg);
}

CASE(normal_and_low_ones_get_turns_beside_urgent_yield_loops_that_keep_to_their_threads_on_every_p)
{
    EACH_PROCS(p)
    CHECK_EQ(run_short(p, turns_beside_crowd, &(struct crowd){p, WEFT_HIGH, yield_on_its_thread_for_ever}), 0);
}

CASE(normal_and_low_ones_get_turns_beside_urgent_yield_loops_on_every_p)
{
    EACH_PROCS(p) CHECK_EQ(run_short(p, turns_beside_crowd, &(struct crowd){p, WEFT_HIGH, yield_for_ever}), 0);
}

/* Urgent ones that wake each other: somebody urgent is ready all the time. */
static weft_chan *balls[MAX_HOGS];

static void play(void *arg)
{
    struct hog *h = arg;
    int at = (int)(h - hogs.hog), v = 0;
    hogs.began++;
    while (!over && weft_recv(balls[at], &v) == 0)
        weft_send(balls[at ^ 1], &v);
}

static void play_beside(void *arg)
{
    const struct crowd *c = arg;
    int n = 2 * c->procs;
    begin_scene();
    low_turns = normal_turns = 0;
    for (int i = 0; i < n; i++)
        balls[i] = weft_chan_new(sizeof(int), 2);
    CHECK_EQ(go_as(WEFT_LOW, take_turns, (void *)&low_turns), 0);
    CHECK_EQ(go_as(WEFT_NORMAL, take_turns, (void *)&normal_turns), 0);
    for (int i = 0; i < n; i++) {
        CHECK_EQ(weft_go(play, &hogs.hog[i]), 0);
        CHECK_EQ(weft_send(balls[i], &i), 0);
    }
    weft_block_enter();
    CHECK(comes_to(&hogs.began, n));
    int low = low_turns, normal = normal_turns;
    CHECK(comes_to(&low_turns, low + 3));
    CHECK(comes_to(&normal_turns, normal + 3));
    over = true;
    for (int i = 0; i < n; i++)
        weft_close(balls[i]);
    end_scene();
    for (int i = 0; i < n; i++)
        weft_chan_free(balls[i]);
}

CASE(normal_and_low_ones_get_turns_beside_urgent_ones_that_wake_each_other)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, play_beside, &(struct crowd){.procs = p}), 0);
}

/* ---- as many turns as are due -------------------------------------------------------------------------------------- */

enum { TIMES = 100, MEANWHILE = 10 };

static weft_chan *there, *back;

static void answer(void *arg)
{
    (void)arg;
    while (weft_recv(there, NULL) == 0)
        weft_send(back, NULL);
}

static void pass(void)
{
    weft_send(there, NULL);
    weft_recv(back, NULL);
}

static void end_one(void *wg)
{
    weft_wg_done(wg);
}

static void start_one(void)
{
    weft_wg ended = {0};
    weft_wg_add(&ended, 1);
    CHECK_EQ(weft_go(end_one, &ended), 0);
    weft_wg_wait(&ended);
}

/* What urgent ones do who leave their only P to urgent ones alone; in turn. */
struct ways {
    void (*even)(void), (*odd)(void);
};

/* Each time that low ones have their turn (when the monitor says so; here we do) somebody of the rest runs, however urgent ones leave their P. */
static void turns_are_had(void *arg)
{
    const struct ways *ways = arg;
    int missed = 0;
    begin_scene();
    low_turns = normal_turns = 0;
    there = weft_chan_new(0, 0);
    back = weft_chan_new(0, 0);
    CHECK_EQ(go_as(WEFT_LOW, take_turns, (void *)&low_turns), 0);
    CHECK_EQ(go_as(WEFT_NORMAL, take_turns, (void *)&normal_turns), 0);
    CHECK_EQ(go_as(WEFT_HIGH, answer, NULL), 0);
    CHECK_EQ(weft_set_priority(WEFT_HIGH), 0);
    pass();
    for (int i = 0; i < TIMES; i++) {
        int before = low_turns + normal_turns;
        atomic_fetch_or(&w_sched.ps[0]->attn, W_ATTN_AGE | W_ATTN_LOW);
        for (int k = 0; k < MEANWHILE; k++)
            (i % 2 == 0 ? ways->even : ways->odd)();
        missed += low_turns + normal_turns == before;
    }
    CHECK(missed <= 1); /* the first time the rest may have run until now */
    CHECK(low_turns >= TIMES / 4);
    CHECK(normal_turns >= TIMES / 4);
    over = true;
    weft_close(there);
    CHECK_EQ(weft_set_priority(WEFT_LOW), 0); /* all others end first */
    weft_chan_free(there);
    weft_chan_free(back);
}

CASE(each_turn_of_the_rest_is_had_beside_urgent_ones_that_yield)
{
    CHECK_EQ(run_alone(turns_are_had, &(struct ways){weft_yield, weft_yield}), 0);
}

CASE(each_turn_of_the_rest_is_had_beside_urgent_ones_that_wake_each_other)
{
    CHECK_EQ(run_alone(turns_are_had, &(struct ways){pass, pass}), 0);
}

CASE(each_turn_of_the_rest_is_had_beside_urgent_ones_that_start_others)
{
    CHECK_EQ(run_alone(turns_are_had, &(struct ways){start_one, start_one}), 0);
}

CASE(each_turn_of_the_rest_is_had_beside_urgent_ones_that_do_now_this_and_now_that)
{
    CHECK_EQ(run_alone(turns_are_had, &(struct ways){pass, weft_yield}), 0);
    CHECK_EQ(run_alone(turns_are_had, &(struct ways){weft_yield, start_one}), 0);
}
