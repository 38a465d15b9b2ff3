/* SPDX-License-Identifier: MIT */
/* Scopes of foreign threads, which may outlive the run that they were opened in, and those who ran in them. */
#include "runs.h"
#include <pthread.h>
#include <stdlib.h>

static _Atomic int step;

static void await(int n)
{
    while (step < n)
        usleep(100);
}

static void await_parked(void *arg)
{
    (void)arg;
    CHECK(reaches(&step, 1, 60));
    step = 2;
    CHECK_EQ(weft_sleep(WEFT_MSEC), 0);
}

static void open_scope(weft_scope *s, int64_t deadline)
{
    int r;
    while ((r = weft_scope_open(s, deadline)) == -EPERM) /* the run has not begun */
        usleep(100);
    CHECK_EQ(r, 0);
}

static void never_ends(void *arg)
{
    weft_recv(NULL, arg);
}

/* Runs main_fn beside a foreign thread, `runs` times; the thread lives through all of them. */
static void run_beside(void *(*thread_fn)(void *), weft_fn *main_fn, int runs)
{
    pthread_t thread;
    step = 0;
    CHECK_EQ(pthread_create(&thread, NULL, thread_fn, NULL), 0);
    for (int i = 0; i < runs; i++)
        CHECK_EQ(run_on(2, main_fn, NULL), 0);
    step = 10;
    pthread_join(thread, NULL);
}

/* ---- the deadline passes after the run --------------------------------------------------------------------------- */

static void *close_after_the_run(void *arg)
{
    weft_scope s;
    int64_t deadline = weft_now() + 100 * WEFT_MSEC;
    open_scope(&s, deadline);
    int r = weft_scope_go(&s, never_ends, NULL);
    CHECK(r == 0 || r == -ETIMEDOUT);
    step = 1;
    await(10);
    while (weft_now() <= deadline)
        usleep(1000);
    r = weft_scope_close(&s);
    CHECK(r == -ECANCELED || r == -ETIMEDOUT);
    return arg;
}

CASE(a_scope_may_be_closed_after_its_run_and_its_deadline)
{
    run_beside(close_after_the_run, await_parked, 1);
}

/* ---- the memory of the scope goes before the run has ended -------------------------------------------------------- */

static void *free_the_scope(void *arg)
{
    weft_scope *s = malloc(sizeof *s);
    open_scope(s, WEFT_NEVER);
    CHECK_EQ(weft_scope_go(s, never_ends, NULL), 0);
    step = 1;
    CHECK_EQ(weft_scope_close(s), -ECANCELED);
    memset(s, 0xff, sizeof *s);
    free(s);
    return arg;
}

CASE(who_is_discarded_does_not_look_at_a_scope_that_its_opener_has_left)
{
    for (int i = 0; i < scaled(20); i++)
        run_beside(free_the_scope, await_parked, 1);
}

static void run_with_leaks(void)
{
    setenv("WEFT_DEBUG", "leaks", 1);
    run_beside(free_the_scope, await_parked, 1);
}

CASE(nor_does_the_list_of_leaks)
{
    char text[8192];
    CHECK(child_is_well(run_with_leaks, text, sizeof text));
    CHECK(strstr(text, "leaks: 1 goroutine") != NULL);
}

/* ---- inner scopes ------------------------------------------------------------------------------------------------ */

static void opens_and_stays(void *arg)
{
    weft_scope inner;
    CHECK_EQ(weft_scope_open(&inner, WEFT_NEVER), 0);
    step = 1;
    weft_recv(NULL, arg);
    weft_scope_close(&inner);
}

static void *open_inside_in_the_next_run(void *arg)
{
    weft_scope outer, inner;
    open_scope(&outer, WEFT_NEVER);
    CHECK_EQ(weft_scope_go(&outer, opens_and_stays, NULL), 0);
    await(3);
    CHECK_EQ(weft_scope_open(&inner, WEFT_NEVER), 0);
    CHECK_EQ(weft_scope_go(&outer, never_ends, NULL), -ECANCELED);
    CHECK_EQ(weft_scope_close(&inner), 0);
    CHECK_EQ(weft_scope_close(&outer), -ECANCELED);
    step = 4;
    return arg;
}

static void first_then_second(void *arg)
{
    (void)arg;
    if (step < 2) {
        await_parked(NULL);
        return;
    }
    step = 3;
    CHECK(reaches(&step, 4, 60));
}

CASE(a_scope_opened_inside_one_of_an_earlier_run_knows_nothing_of_that_run)
{
    run_beside(open_inside_in_the_next_run, first_then_second, 2);
}
