/* SPDX-License-Identifier: MIT */
/* Starting goroutines, what they get, the order in which they run, and that none of them starves. */
#include "runs.h"
#include <pthread.h>
#include <stdlib.h>

static void nothing(void *arg)
{
    (void)arg;
}

static void add_one(void *arg)
{
    ++*(_Atomic int *)arg;
}

/* ---- arguments -------------------------------------------------------------------------------------------------- */

static void go_main(void *arg)
{
    _Atomic int ran = 0;
    (void)arg;
    for (int i = 0; i < 1000; i++)
        CHECK_EQ(weft_go(add_one, &ran), 0);
    CHECK(reaches(&ran, 1000, 20));
    CHECK(others_have_ended());
    CHECK_EQ(weft_go(NULL, NULL), -EINVAL);
    CHECK_EQ(weft_go_copy(NULL, "x", 1), -EINVAL);
    CHECK_EQ(weft_go_with(&(weft_attr){0}, NULL, NULL), -EINVAL);
    CHECK_EQ(weft_count(), 1);
}

CASE(every_goroutine_that_is_started_runs_once)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, go_main, NULL), 0);
}

struct copied {
    weft_wg *wg;
    size_t size;
    uint8_t first;
    uint8_t rest[];
};

static void check_copy(void *arg)
{
    struct copied *c = arg;
    CHECK_EQ((uintptr_t)arg % 16, 0);
    weft_yield();
    for (size_t i = 0; i < c->size; i++) {
        if (c->rest[i] != (uint8_t)(c->first + i)) {
            check_fail(__FILE__, __LINE__, "byte %zu of %zu was not copied", i, c->size);
            break;
        }
        c->rest[i] = 0; /* it is ours */
    }
    volatile char more_stack[16 << 10];
    for (size_t i = 0; i < sizeof more_stack; i += 512)
        more_stack[i] = 1;
    weft_wg_done(c->wg);
}

static void copy_main(void *arg)
{
    static const size_t sizes[] = {0, 1, 7, 15, 16, 17, 100, 4095, 4096, 5000, 30000, 60000, 65536, 200000, 3000000};
    weft_wg wg = {0};
    (void)arg;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (int k = 0; k < 5; k++) {
            size_t n = sizes[i];
            struct copied *c = malloc(sizeof *c + n);
            *c = (struct copied){.wg = &wg, .size = n, .first = (uint8_t)(n + (size_t)k)};
            for (size_t j = 0; j < n; j++)
                c->rest[j] = (uint8_t)(c->first + j);
            weft_wg_add(&wg, 1);
            CHECK_EQ(weft_go_copy(check_copy, c, sizeof *c + n), 0);
            memset(c, 0xee, sizeof *c + n);
            free(c);
        }
    }
    CHECK_EQ(weft_wg_wait(&wg), 0);
}

CASE(a_copied_argument_is_the_goroutines_own_and_aligned)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, copy_main, NULL), 0);
}

static _Atomic int empty_copies;

static void count_empty(void *arg)
{
    (void)arg;
    empty_copies++;
}

static void empty_main(void *arg)
{
    (void)arg;
    empty_copies = 0;
    CHECK_EQ(weft_go_copy(count_empty, "", 0), 0);
    CHECK_EQ(weft_go_copy(count_empty, NULL, 0), 0);
    CHECK(reaches(&empty_copies, 2, 20));
    CHECK(others_have_ended());
    CHECK_EQ(weft_go_copy(count_empty, NULL, 1), -EINVAL);
    CHECK(weft_go_copy(count_empty, "", SIZE_MAX) < 0);
    CHECK(weft_go_copy(count_empty, "", SIZE_MAX / 2) < 0);
    CHECK_EQ(weft_count(), 1);
}

CASE(a_copy_of_nothing_is_fine_and_one_of_everything_is_refused)
{
    CHECK_EQ(run_on(2, empty_main, NULL), 0);
}

/* ---- attributes ------------------------------------------------------------------------------------------------- */

static void attr_main(void *arg)
{
    _Atomic int ran = 0;
    (void)arg;
    CHECK_EQ(weft_go_with(NULL, add_one, &ran), 0);
    CHECK_EQ(weft_go_with(&(weft_attr){0}, add_one, &ran), 0);
    char name[] = "a name that goes away";
    CHECK_EQ(weft_go_with(&(weft_attr){.name = name}, add_one, &ran), 0);
    memset(name, 'x', sizeof name); /* it was copied */
    static const size_t sizes[] = {1, 4096, 32 << 10, 64 << 10, 100000, 1 << 20, 8 << 20, 64 << 20};
    for (size_t i = 0; i < 8; i++)
        CHECK_EQ(weft_go_with(&(weft_attr){.name = "n", .stack_size = sizes[i]}, add_one, &ran), 0);
    CHECK_EQ(weft_go_with(&(weft_attr){.priority = WEFT_LOW}, add_one, &ran), 0);
    CHECK_EQ(weft_go_with(&(weft_attr){.priority = WEFT_HIGH}, add_one, &ran), 0);
    CHECK(reaches(&ran, 13, 20));
    CHECK_EQ(weft_go_with(&(weft_attr){.priority = -2}, add_one, &ran), -EINVAL);
    CHECK_EQ(weft_go_with(&(weft_attr){.priority = 2}, add_one, &ran), -EINVAL);
    CHECK(weft_go_with(&(weft_attr){.stack_size = SIZE_MAX}, add_one, &ran) < 0);
    CHECK(weft_go_with(&(weft_attr){.stack_size = SIZE_MAX / 2 + 2}, add_one, &ran) < 0);
    for (int i = 0; i < 5; i++)
        weft_yield();
    CHECK_EQ(ran, 13);
}

CASE(attributes_are_obeyed_or_refused)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, attr_main, NULL), 0);
}

/* ---- ids and counts --------------------------------------------------------------------------------------------- */

enum { IDS = 5000 };
static _Atomic uint8_t id_seen[64 * IDS];
static _Atomic int id_count;

static void note_id(void *arg)
{
    uint64_t id = weft_id();
    (void)arg;
    CHECK(id > 0 && id < sizeof id_seen);
    CHECK_EQ(atomic_fetch_add(&id_seen[id % sizeof id_seen], 1), 0);
    weft_yield();
    CHECK_EQ(weft_id(), id);
    id_count++;
}

static void *start_some(void *arg)
{
    CHECK_EQ(weft_id(), 0);
    for (int i = 0; i < *(int *)arg; i++)
        CHECK_EQ(weft_go(note_id, NULL), 0);
    return NULL;
}

static void ids_main(void *arg)
{
    int n = *(int *)arg;
    uint64_t id = weft_id();
    id_seen[id] = 1;
    for (int i = 0; i < n; i++) {
        CHECK_EQ(weft_go(note_id, NULL), 0);
        if (i % 10 == 0)
            CHECK_EQ(weft_go_with(&(weft_attr){.stack_size = 1 << 20}, note_id, NULL), 0);
    }
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, start_some, &n), 0);
    weft_block_enter();
    pthread_join(thread, NULL);
    weft_block_leave();
    CHECK(reaches(&id_count, 2 * n + (n + 9) / 10, 60));
    CHECK_EQ(weft_id(), id);
}

CASE(ids_are_unique_and_zero_outside)
{
    EACH_PROCS(p)
    {
        int n = scaled(IDS);
        memset((void *)id_seen, 0, sizeof id_seen);
        id_count = 0;
        CHECK_EQ(weft_id(), 0);
        CHECK_EQ(run_on(p, ids_main, &n), 0);
        CHECK_EQ(weft_id(), 0);
    }
}

/* Signal handlers ask it through libweft_posix, wherever they are. The signal that preempts is kept away. */
static void id_main(void *arg)
{
    _Atomic int ran = 0;
    uint64_t id = weft_id();
    sigset_t urgent;
    (void)arg;
    sigemptyset(&urgent);
    sigaddset(&urgent, SIGURG);
    pthread_sigmask(SIG_BLOCK, &urgent, NULL);
    CHECK_EQ(weft_go(add_one, &ran), 0);
    for (int64_t end = weft_now() + 50 * WEFT_MSEC; weft_now() < end;)
        CHECK_EQ(weft_id(), id);
    CHECK_EQ(ran, 0);
    weft_block_enter();
    for (int64_t end = weft_now() + 20 * WEFT_SEC; ran == 0 && weft_now() < end;)
        CHECK_EQ(weft_id(), id);
    CHECK_EQ(ran, 1);
    CHECK_EQ(weft_id(), id);
    pthread_sigmask(SIG_UNBLOCK, &urgent, NULL);
    weft_block_leave();
    CHECK_EQ(weft_id(), id);
}

CASE(asking_for_the_id_lets_nobody_else_run)
{
    CHECK_EQ(weft_run_with(&(weft_config){.procs = 1, .quantum = WEFT_MSEC}, id_main, NULL), 0);
}

static void wait_for(void *arg)
{
    weft_wg_wait(arg);
}

static void count_main(void *arg)
{
    weft_wg gate = {0};
    (void)arg;
    weft_wg_add(&gate, 1);
    CHECK_EQ(weft_count(), 1);
    for (int i = 0; i < 300; i++)
        CHECK_EQ(weft_go(wait_for, &gate), 0);
    CHECK_EQ(weft_count(), 301);
    for (int i = 0; i < 10; i++)
        weft_yield();
    CHECK_EQ(weft_count(), 301);
    weft_wg_done(&gate);
    CHECK(others_have_ended());
}

CASE(the_count_is_of_those_alive)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, count_main, NULL), 0);
}

/* ---- exit ------------------------------------------------------------------------------------------------------- */

static int dig_and_exit(int depth)
{
    volatile char frame[300];
    frame[0] = (char)depth;
    if (depth < 0)
        return frame[0];
    if (depth == 0)
        weft_exit();
    return dig_and_exit(depth - 1) + frame[0];
}

static void exit_deep(void *arg)
{
    add_one(arg);
    dig_and_exit(100);
    CHECK(!"weft_exit returned");
}

static void exit_main(void *arg)
{
    _Atomic int ran = 0;
    int n = scaled(10000);
    (void)arg;
    for (int i = 0; i < n; i++) {
        CHECK_EQ(weft_go(exit_deep, &ran), 0);
        CHECK_EQ(weft_go(add_one, &ran), 0);
        if (i % 100 == 0)
            CHECK_EQ(weft_go_with(&(weft_attr){.name = "n", .stack_size = 256 << 10}, exit_deep, &ran), 0);
        if (i % 64 == 0)
            weft_yield();
    }
    CHECK(reaches(&ran, 2 * n + (n + 99) / 100, 60));
    CHECK(others_have_ended());
}

CASE(exit_ends_a_goroutine_from_any_depth)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, exit_main, NULL), 0);
}

/* ---- order, on one processor ------------------------------------------------------------------------------------ */

enum { MAX_ORDER = 256 };
static int order[MAX_ORDER], ordered;
static _Atomic int at_gate; /* so many are about to wait */

static void note(int who)
{
    if (ordered < MAX_ORDER)
        order[ordered++] = who;
}

static void note_arg(void *arg)
{
    note((int)(intptr_t)arg);
}

/* Order is promised for less than a quantum, and this machine may stop us at any time: so it is enough if one of many
 * tries shows it. A scheduler without that order never does. */
static bool some_run_is_in_order(weft_fn *fn, bool (*in_order)(void))
{
    for (int i = 0; i < 100; i++) {
        ordered = 0;
        at_gate = 0;
        CHECK_EQ(run_with_own_quantum(&(weft_config){.procs = 1, .quantum = WEFT_NEVER}, fn, NULL), 0);
        if (in_order())
            return true;
    }
    for (int i = 0; i < ordered; i++)
        fprintf(stderr, "%d%c", order[i], i + 1 == ordered ? '\n' : ' ');
    return false;
}

static void start_ten(void *arg)
{
    (void)arg;
    for (intptr_t i = 0; i < 10; i++)
        CHECK_EQ(weft_go(note_arg, (void *)i), 0);
    weft_yield();
    CHECK(others_have_ended());
}

static bool newest_first(void)
{
    for (int i = 0; i < ordered; i++)
        if (order[i] != 9 - i)
            return false;
    return ordered == 10;
}

static void yield_thrice(void *arg)
{
    for (int i = 0; i < 3; i++) {
        note_arg(arg);
        weft_yield();
    }
}

static weft_wg gate;

static void yield_thrice_after_gate(void *arg)
{
    at_gate++;
    weft_wg_wait(&gate);
    yield_thrice(arg);
}

static void open_for_ten(void *arg)
{
    (void)arg;
    gate = (weft_wg){0};
    weft_wg_add(&gate, 1);
    for (intptr_t i = 0; i < 10; i++)
        CHECK_EQ(weft_go(yield_thrice_after_gate, (void *)i), 0);
    CHECK(reaches(&at_gate, 10, 20));
    weft_wg_done(&gate);
    CHECK(others_have_ended());
}

/* Whoever ran first of them, all ran once before one runs again, and always in the same order. */
static bool round_robin(void)
{
    if (ordered != 30)
        return false;
    for (int i = 10; i < 30; i++)
        if (order[i] != order[i - 10])
            return false;
    return true;
}

CASE(fresh_goroutines_run_newest_first)
{
    CHECK(some_run_is_in_order(start_ten, newest_first));
}

CASE(yielding_goroutines_run_in_turn)
{
    CHECK(some_run_is_in_order(open_for_ten, round_robin));
}

struct woken {
    weft_wg wg;
    int who;
};

static void wait_then_note(void *arg)
{
    struct woken *w = arg;
    at_gate++;
    weft_wg_wait(&w->wg);
    note(w->who);
}

/* The last one that was woken may be handed the processor; the others run in the order in which they were woken. */
static void wake_ten(void *arg)
{
    struct woken w[10] = {0};
    (void)arg;
    for (int i = 0; i < 10; i++) {
        w[i].who = i;
        weft_wg_add(&w[i].wg, 1);
        CHECK_EQ(weft_go(wait_then_note, &w[i]), 0);
    }
    CHECK(reaches(&at_gate, 10, 20));
    for (int i = 0; i < 10; i++)
        weft_wg_done(&w[i].wg);
    CHECK(others_have_ended());
}

static bool woken_in_turn(void)
{
    bool handed_over = order[0] == 9;
    for (int i = handed_over; i < 10; i++)
        if (order[i] != i - handed_over)
            return false;
    return ordered == 10;
}

CASE(woken_goroutines_run_in_turn)
{
    CHECK(some_run_is_in_order(wake_ten, woken_in_turn));
}

/* ---- a tree of goroutines --------------------------------------------------------------------------------------- */

static _Atomic int leaves;
static _Atomic int64_t most_rss;

struct node {
    weft_wg *wg;
    int depth, width;
};

static void grow(void *arg)
{
    struct node *n = arg;
    if (n->depth == 0) {
        if (++leaves % 1000 == 0) {
            int64_t rss = check_rss();
            if (rss > most_rss)
                most_rss = rss;
        }
        weft_wg_done(n->wg);
        return;
    }
    weft_wg below = {0};
    struct node child = {&below, n->depth - 1, n->width};
    weft_wg_add(&below, n->width);
    for (int i = 0; i < n->width; i++)
        CHECK_EQ(weft_go(grow, &child), 0);
    CHECK_EQ(weft_wg_wait(&below), 0);
    weft_wg_done(n->wg);
}

static void tree_main(void *arg)
{
    weft_wg wg = {0};
    (void)arg;
    weft_wg_add(&wg, 1);
    leaves = 0;
    int64_t before = check_rss();
    most_rss = before;
    grow(&(struct node){&wg, check_scale() > 1 ? 3 : 5, 10});
    CHECK_EQ(weft_wg_wait(&wg), 0);
    CHECK_EQ(leaves, check_scale() > 1 ? 1000 : 100000);
    /* 100,000 stacks at once would be 400 MB and more; 11,111 nodes that all wait 45 MB. Goroutines without a stack
     * cost 128 bytes each. */
    if (check_scale() == 1 && most_rss - before > 16 << 20)
        check_fail(__FILE__, __LINE__, "a tree of 100,000 leaves took %lld bytes", (long long)(most_rss - before));
}

CASE(a_tree_of_goroutines_keeps_few_stacks_alive)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, tree_main, NULL), 0);
}

/* ---- nobody starves, on one processor --------------------------------------------------------------------------- */

static _Atomic bool storm_over;
static _Atomic int storms;

static void storm(void *arg)
{
    storms++;
    if (!storm_over)
        CHECK_EQ(weft_go(storm, arg), 0);
}

static void storm_of_two(void *arg)
{
    storms++;
    if (!storm_over && weft_count() < 5000)
        CHECK_EQ(weft_go(storm_of_two, arg), 0);
    if (!storm_over)
        CHECK_EQ(weft_go(storm_of_two, arg), 0);
}

/* A goroutine that runs only when the others leave it a turn ends the storm; a limit far beyond any bound does else. */
static _Atomic int64_t storm_limit;

static void end_storm(void *arg)
{
    (void)arg;
    storm_over = true;
}

static void yield_and_end_storm(void *arg)
{
    for (int i = 0; i < 20; i++)
        weft_yield();
    end_storm(arg);
}

static void block_and_end_storm(void *arg)
{
    for (int i = 0; i < 5; i++)
        sleep_in_region(1);
    end_storm(arg);
}

struct starving {
    weft_fn *storm, *victim;
};

static void *watch_storm(void *arg)
{
    _Atomic bool *late = arg;
    while (!storm_over) {
        if (weft_now() > storm_limit) {
            *late = true;
            storm_over = true;
        }
        usleep(1000);
    }
    return NULL;
}

static void starve_main(void *arg)
{
    struct starving *s = arg;
    CHECK_EQ(weft_go(s->victim, NULL), 0);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(weft_go(nothing, NULL), 0);
    CHECK_EQ(weft_go(s->storm, NULL), 0);
    weft_exit();
}

static void starve(weft_fn *storm_fn, weft_fn *victim, int64_t quantum)
{
    pthread_t watcher;
    _Atomic bool late = false;
    storm_over = false;
    storms = 0;
    storm_limit = weft_now() + 20 * WEFT_SEC;
    CHECK_EQ(pthread_create(&watcher, NULL, watch_storm, &late), 0);
    struct starving s = {storm_fn, victim};
    CHECK_EQ(weft_run_with(&(weft_config){.procs = 1, .quantum = quantum}, starve_main, &s), 0);
    storm_over = true;
    pthread_join(watcher, NULL);
    if (late)
        check_fail(__FILE__, __LINE__, "it has not run for 20 s, while %d others have", (int)storms);
}

static void starve_all_kinds(weft_fn *storm_fn)
{
    static const int64_t quanta[] = {0, WEFT_MSEC, WEFT_NEVER};
    weft_fn *const victims[] = {end_storm, yield_and_end_storm, block_and_end_storm};
    for (int q = 0; q < 3; q++)
        for (int v = 0; v < 3; v++)
            starve(storm_fn, victims[v], quanta[q]);
}

CASE(a_storm_of_fresh_goroutines_starves_nobody)
{
    starve_all_kinds(storm);
}

CASE(a_storm_of_many_fresh_goroutines_starves_nobody)
{
    starve_all_kinds(storm_of_two);
}

static void yield_storm(void *arg)
{
    (void)arg;
    while (!storm_over) {
        storms++;
        weft_yield();
    }
}

static void many_yield_storms(void *arg)
{
    for (int i = 0; i < 300; i++)
        CHECK_EQ(weft_go(yield_storm, NULL), 0);
    yield_storm(arg);
}

CASE(a_storm_of_yields_starves_nobody)
{
    starve_all_kinds(yield_storm);
    starve_all_kinds(many_yield_storms);
}

/* Two that hand the processor to each other, for ever: each wakes the other and then waits. */
struct table {
    weft_wg ball[2];
};

static struct table table;

static void play(int me)
{
    for (bool over = false; !over;) {
        weft_wg_wait(&table.ball[me]);
        weft_wg_add(&table.ball[me], 1);
        over = storm_over;
        storms++;
        weft_wg_done(&table.ball[!me]);
    }
}

static void play_one(void *arg)
{
    (void)arg;
    play(1);
}

static void ping_pong(void *arg)
{
    (void)arg;
    table = (struct table){0};
    weft_wg_add(&table.ball[1], 1);
    CHECK_EQ(weft_go(play_one, NULL), 0);
    play(0);
}

CASE(a_pair_that_hands_over_to_each_other_starves_nobody)
{
    starve_all_kinds(ping_pong);
}

static void ping_pong_and_yields(void *arg)
{
    CHECK_EQ(weft_go(yield_storm, NULL), 0);
    CHECK_EQ(weft_go(storm, NULL), 0);
    ping_pong(arg);
}

CASE(all_storms_together_starve_nobody)
{
    starve_all_kinds(ping_pong_and_yields);
}
