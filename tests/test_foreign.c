/* SPDX-License-Identifier: MIT */
/* Calls from threads that the library did not make. */
#include "wait_kinds.h"
#include <stdlib.h>

static void nothing(void *arg)
{
    (void)arg;
}

static void add_one(void *arg)
{
    ++*(_Atomic int *)arg;
}

/* ---- no runtime ------------------------------------------------------------------------------------------------- */

CASE(without_a_runtime_calls_give_an_error)
{
    CHECK(weft_go(nothing, NULL) < 0);
    CHECK(weft_go_copy(nothing, "x", 1) < 0);
    CHECK(weft_go_with(&(weft_attr){.name = "n"}, nothing, NULL) < 0);
    CHECK(weft_procs(0) < 0);
    CHECK(weft_procs(4) < 0);
    CHECK(weft_count() <= 0);
    CHECK_EQ(weft_id(), 0);
    CHECK_EQ(run_on(2, nothing, NULL), 0);
    CHECK(weft_go(nothing, NULL) < 0);
    CHECK(weft_procs(0) < 0);
    CHECK(weft_count() <= 0);
}

static void exit_outside(void)
{
    weft_exit();
}

CASE(exit_outside_a_goroutine_aborts_with_a_line)
{
    char text[4096];
    int status = check_child(exit_outside, text, sizeof text);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    CHECK(strstr(text, "weft_exit") != NULL);
}

/* ---- starting goroutines ---------------------------------------------------------------------------------------- */

enum { THREADS = 4 };

struct copied {
    _Atomic int *ran;
    char bytes[100];
};

static void add_copied(void *arg)
{
    struct copied *c = arg;
    CHECK_EQ((uintptr_t)arg % 16, 0);
    CHECK_EQ(c->bytes[99], 9);
    add_one(c->ran);
}

static void *start_many(void *arg)
{
    CHECK_EQ(weft_id(), 0);
    for (int i = 0; i < scaled(2000); i++) {
        struct copied c = {.ran = arg, .bytes[99] = 9};
        CHECK_EQ(weft_go(add_one, arg), 0);
        CHECK_EQ(weft_go_copy(add_copied, &c, sizeof c), 0);
        CHECK_EQ(weft_go_with(&(weft_attr){.name = "foreign", .stack_size = 128 << 10}, add_one, arg), 0);
        CHECK(weft_count() >= 1);
        CHECK(weft_procs(0) >= 1);
        weft_yield();
        weft_pin();
        weft_block_enter();
        weft_block_leave();
        weft_unpin();
    }
    return NULL;
}

static void start_main(void *arg)
{
    _Atomic int ran = 0;
    pthread_t threads[THREADS];
    (void)arg;
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, start_many, &ran), 0);
    join_in_region(threads, THREADS);
    CHECK(reaches(&ran, THREADS * 3 * scaled(2000), 60));
    CHECK(others_have_ended());
}

CASE(foreign_threads_start_goroutines)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, start_main, NULL), 0);
}

/* Everything sleeps; the thread's goroutine must get a processor all the same. */
static void *start_one_by_one(void *arg)
{
    _Atomic int *ran = arg;
    for (int i = 1; i <= 20; i++) {
        usleep(i % 4 == 0 ? 20000 : 1000);
        CHECK_EQ(weft_go(add_one, (void *)ran), 0);
        for (int j = 0; j < 2000 && *ran < i; j++)
            usleep(1000);
        CHECK_EQ(*ran, i);
    }
    return NULL;
}

static void idle_main(void *arg)
{
    _Atomic int ran = 0;
    pthread_t thread;
    (void)arg;
    CHECK_EQ(pthread_create(&thread, NULL, start_one_by_one, &ran), 0);
    join_in_region(&thread, 1);
}

CASE(a_foreign_start_wakes_an_idle_runtime)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, idle_main, NULL), 0);
}

static void *change_procs(void *arg)
{
    (void)arg;
    for (int i = 0; i < scaled(500); i++) {
        CHECK(weft_procs(i % 8 + 1) > 0);
        CHECK_EQ(weft_go(nothing, NULL), 0);
    }
    CHECK(weft_procs(3) > 0);
    return NULL;
}

static void procs_main(void *arg)
{
    pthread_t thread;
    (void)arg;
    CHECK_EQ(pthread_create(&thread, NULL, change_procs, NULL), 0);
    join_in_region(&thread, 1);
    CHECK_EQ(weft_procs(0), 3);
    CHECK(others_have_ended());
}

CASE(a_foreign_thread_changes_the_number_of_processors)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, procs_main, NULL), 0);
}

/* ---- waiting ---------------------------------------------------------------------------------------------------- */

static void yield_and_done(void *arg)
{
    for (int i = 0; i < 10; i++)
        weft_yield();
    weft_wg_done(arg);
}

static void *start_and_wait(void *arg)
{
    (void)arg;
    for (int i = 0; i < scaled(500); i++) {
        weft_wg *wg = calloc(1, sizeof *wg);
        weft_wg_add(wg, 5);
        for (int j = 0; j < 5; j++)
            CHECK_EQ(weft_go(yield_and_done, wg), 0);
        CHECK_EQ(weft_wg_wait(wg), 0);
        memset(wg, 0xa5, sizeof *wg);
        free(wg);
    }
    return NULL;
}

static void wait_main(void *arg)
{
    pthread_t threads[THREADS];
    (void)arg;
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, start_and_wait, NULL), 0);
    join_in_region(threads, THREADS);
}

CASE(a_foreign_thread_waits_for_goroutines)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, wait_main, NULL), 0);
}

/* Goroutines and threads wait for the same; the one that ends the wait is a thread. */
struct mixed {
    weft_wg gate, all;
    _Atomic int waiting;
};

static void wait_mixed(void *arg)
{
    struct mixed *m = arg;
    m->waiting++;
    CHECK_EQ(weft_wg_wait(&m->gate), 0);
    weft_wg_done(&m->all);
}

static void *wait_in_thread(void *arg)
{
    wait_mixed(arg);
    return NULL;
}

static void *open_gate(void *arg)
{
    struct mixed *m = arg;
    while (m->waiting < 8)
        usleep(1000);
    usleep(5000);
    weft_wg_done(&m->gate);
    CHECK_EQ(weft_wg_wait(&m->all), 0);
    return NULL;
}

static void mixed_main(void *arg)
{
    struct mixed m = {0};
    pthread_t threads[5];
    (void)arg;
    weft_wg_add(&m.gate, 1);
    weft_wg_add(&m.all, 8);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(pthread_create(&threads[i], NULL, wait_in_thread, &m), 0);
        CHECK_EQ(weft_go(wait_mixed, &m), 0);
    }
    CHECK_EQ(pthread_create(&threads[4], NULL, open_gate, &m), 0);
    join_in_region(threads, 5);
    CHECK_EQ(weft_wg_wait(&m.all), 0);
}

CASE(goroutines_and_threads_wait_side_by_side)
{
    for (int i = 0; i < scaled(20); i++)
        EACH_PROCS(p) CHECK_EQ(run_on(p, mixed_main, NULL), 0);
}

/* ---- while runs begin and end ----------------------------------------------------------------------------------- */

static _Atomic bool over;
static _Atomic int started, refused;
static _Atomic int sink;

static void *hammer(void *arg)
{
    (void)arg;
    for (unsigned i = 0; !over; i++) {
        int r = i % 5 == 4   ? weft_go_with(&(weft_attr){.name = "hammer"}, add_one, &sink)
                : i % 5 == 3 ? weft_go_copy(nothing, "abc", 4)
                             : weft_go(add_one, &sink);
        if (r == 0)
            started++;
        else if (r < 0)
            refused++;
        if (i % 16 == 0)
            weft_procs(i / 16 % 4 + 1);
        weft_count();
        if (i % 8 == 0)
            usleep(20);
    }
    return NULL;
}

static void short_main(void *arg)
{
    int n = *(int *)arg;
    for (int i = 0; i < n % 5; i++)
        weft_go(nothing, NULL);
    if (n % 4 == 0)
        sleep_in_region(1);
    if (n % 3 == 0)
        weft_yield();
}

static weft_wg outlives;

static void waits_for_what_outlives(void *arg)
{
    (void)arg;
    weft_wg_wait(&outlives);
}

static void leaves_waiters(void *arg)
{
    (void)arg;
    for (int i = 0; i < 10; i++)
        CHECK_EQ(weft_go(waits_for_what_outlives, NULL), 0);
    for (int i = 0; i < 100; i++)
        weft_yield();
    sleep_in_region(20);
}

/* Those who waited are gone with their stacks: the last done does not look for them. */
CASE(a_count_may_come_to_zero_after_the_run)
{
    outlives = (weft_wg){0};
    weft_wg_add(&outlives, 2);
    CHECK_EQ(run_on(2, leaves_waiters, NULL), 0);
    weft_wg_done(&outlives);
    weft_wg_done(&outlives);
    CHECK_EQ(weft_wg_wait(&outlives), 0);
}

CASE(foreign_calls_while_runs_begin_and_end)
{
    pthread_t threads[3];
    over = false;
    started = 0;
    refused = 0;
    for (int i = 0; i < 3; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, hammer, NULL), 0);
    for (int i = 0; i < scaled(1500); i++)
        CHECK_EQ(run_on(i % 3 == 0 ? 1 : i % 3 == 1 ? 2 : 8, short_main, &i), 0);
    over = true;
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    CHECK(started > 0 && refused > 0);
}

/* ---- waiting when the run ends ---------------------------------------------------------------------------------- */

static void *wait_for_the_end(void *arg)
{
    trial_wait(arg);
    return NULL;
}

struct ending {
    const struct kind *kind;
    struct trial t;
    pthread_t thread;
    uint64_t rng;
};

static void end_under_a_wait(void *arg)
{
    struct ending *e = arg;
    trial_begin(&e->t, e->kind);
    CHECK_EQ(pthread_create(&e->thread, NULL, wait_for_the_end, &e->t), 0);
    CHECK(reaches(&e->t.begun, 1, 60));
    a_moment(&e->rng);
    CHECK_EQ(weft_sleep(WEFT_MSEC), 0);
}

/* A wait that begins when the run has ended already is refused. */
static int end_once(const struct kind *kind, int procs, uint64_t rng)
{
    struct ending e = {.kind = kind, .rng = rng};
    CHECK_EQ(run_on(procs, end_under_a_wait, &e), 0);
    pthread_join(e.thread, NULL);
    CHECK(e.t.result == -ECANCELED || e.t.result == -EPERM);
    trial_free(&e.t);
    return e.t.result;
}

CASE(whatever_a_foreign_thread_waits_for_ends_with_the_run)
{
    uint64_t rng = check_seed();
    EACH_PROCS(p) for (int k = 0; k < KIND_COUNT; k++)
    {
        int r = 0;
        for (int i = 0; i < 50 && r != -ECANCELED; i++)
            r = end_once(&KINDS[k], p, check_random(&rng) | 1);
        CHECK_EQ(r, -ECANCELED);
    }
}

static _Atomic int closing;

static void outlast_the_run(void *arg)
{
    weft_recv(NULL, arg);
}

static void *close_at_the_end(void *arg)
{
    weft_scope outer, s;
    CHECK_EQ(weft_scope_open(&outer, weft_now() + 3600 * WEFT_SEC), 0);
    CHECK_EQ(weft_scope_open(&s, WEFT_NEVER), 0);
    CHECK_EQ(weft_scope_go(&s, outlast_the_run, NULL), 0);
    CHECK_EQ(weft_scope_set(&s, &closing, &s), 0);
    closing++;
    CHECK(weft_scope_close(&s) <= 0);
    CHECK(weft_scope_close(&outer) <= 0);
    return arg;
}

static void end_under_a_scope(void *arg)
{
    pthread_t *threads = arg;
    closing = 0;
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, close_at_the_end, NULL), 0);
    CHECK(reaches(&closing, THREADS, 60));
    CHECK_EQ(weft_sleep(WEFT_MSEC), 0);
}

CASE(a_foreign_thread_comes_back_from_close_when_the_run_ends)
{
    for (int i = 0; i < scaled(20); i++)
        EACH_PROCS(p)
        {
            pthread_t threads[THREADS];
            CHECK_EQ(run_on(p, end_under_a_scope, threads), 0);
            for (int k = 0; k < THREADS; k++)
                pthread_join(threads[k], NULL);
        }
}
