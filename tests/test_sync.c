/* SPDX-License-Identifier: MIT */
/* Wait groups. */
#include "runs.h"
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

static _Atomic int arrived, passed;

static void done(void *arg)
{
    weft_wg_done(arg);
}

static void yield_and_done(void *arg)
{
    weft_yield();
    weft_wg_done(arg);
}

static void wait_and_pass(void *arg)
{
    arrived++;
    CHECK_EQ(weft_wg_wait(arg), 0);
    passed++;
}

/* ---- counting --------------------------------------------------------------------------------------------------- */

static void count_main(void *arg)
{
    weft_wg wg = {0};
    (void)arg;
    CHECK_EQ(weft_wg_wait(&wg), 0); /* all zero: nothing to wait for */
    weft_wg_add(&wg, 0);
    CHECK_EQ(weft_wg_wait(&wg), 0);
    weft_wg_add(&wg, 3);
    weft_wg_add(&wg, -2);
    weft_wg_done(&wg);
    CHECK_EQ(weft_wg_wait(&wg), 0);
    weft_wg_add(&wg, 1 << 30);
    weft_wg_add(&wg, -(1 << 30));
    CHECK_EQ(weft_wg_wait(&wg), 0);
    for (int round = 0; round < 100; round++) { /* used again and again */
        weft_wg_add(&wg, 20);
        for (int i = 0; i < 20; i++)
            CHECK_EQ(weft_go(i % 2 ? done : yield_and_done, &wg), 0);
        CHECK_EQ(weft_wg_wait(&wg), 0);
    }
}

CASE(a_wait_group_counts_and_may_be_used_again)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, count_main, NULL), 0);
}

static void early_main(void *arg)
{
    weft_wg wg = {0};
    (void)arg;
    passed = 0;
    arrived = 0;
    weft_wg_add(&wg, 2);
    for (int i = 0; i < 10; i++)
        CHECK_EQ(weft_go(wait_and_pass, &wg), 0);
    CHECK(reaches(&arrived, 10, 20));
    weft_wg_done(&wg);
    for (int i = 0; i < 50; i++)
        weft_yield();
    CHECK_EQ(passed, 0); /* one is still missing */
    weft_wg_add(&wg, -1);
    CHECK(reaches(&passed, 10, 20));
}

CASE(nobody_passes_before_the_count_is_zero)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, early_main, NULL), 0);
}

static void crowd_main(void *arg)
{
    weft_wg wg = {0};
    int n = scaled(20000);
    (void)arg;
    passed = 0;
    arrived = 0;
    weft_wg_add(&wg, 1);
    for (int i = 0; i < n; i++)
        CHECK_EQ(weft_go(wait_and_pass, &wg), 0);
    CHECK(reaches(&arrived, n, 60));
    CHECK_EQ(passed, 0);
    weft_wg_done(&wg);
    CHECK(reaches(&passed, n, 60));
    CHECK_EQ(weft_wg_wait(&wg), 0);
}

CASE(all_of_many_waiters_are_let_go)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, crowd_main, NULL), 0);
}

/* What was done before the count fell is seen by who waited for it. */
struct job {
    weft_wg wg;
    int result[8];
};

struct part {
    struct job *job;
    int at;
};

static void work(void *arg)
{
    struct part *p = arg;
    p->job->result[p->at] = p->at + 1;
    weft_wg_done(&p->job->wg);
}

static void publish_main(void *arg)
{
    (void)arg;
    for (int round = 0; round < scaled(2000); round++) {
        struct job job = {0};
        weft_wg_add(&job.wg, 8);
        for (int i = 0; i < 8; i++)
            CHECK_EQ(weft_go_copy(work, &(struct part){&job, i}, sizeof(struct part)), 0);
        CHECK_EQ(weft_wg_wait(&job.wg), 0);
        for (int i = 0; i < 8; i++)
            CHECK_EQ(job.result[i], i + 1);
    }
}

CASE(what_was_done_is_seen_after_the_wait)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, publish_main, NULL), 0);
}

/* ---- lifetime --------------------------------------------------------------------------------------------------- */

static void free_main(void *arg)
{
    (void)arg;
    for (int i = 0; i < scaled(20000); i++) {
        weft_wg *wg = calloc(1, sizeof *wg);
        weft_wg_add(wg, 2);
        CHECK_EQ(weft_go(done, wg), 0);
        CHECK_EQ(weft_go(done, wg), 0);
        if (i % 3 == 0)
            weft_yield();
        CHECK_EQ(weft_wg_wait(wg), 0);
        memset(wg, 0xa5, sizeof *wg); /* whoever touches it now stumbles */
        free(wg);
    }
}

CASE(a_wait_group_may_be_freed_once_the_wait_has_returned)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, free_main, NULL), 0);
}

/* The last of several waiters to come back frees it. */
struct shared {
    weft_wg wg;
    _Atomic int users;
    weft_wg *all;
};

static void wait_and_drop(void *arg)
{
    struct shared *s = arg;
    weft_wg *all = s->all;
    CHECK_EQ(weft_wg_wait(&s->wg), 0);
    if (--s->users == 0) {
        memset((void *)s, 0xa5, sizeof *s);
        free(s);
    }
    weft_wg_done(all);
}

static void drop_main(void *arg)
{
    weft_wg all = {0};
    (void)arg;
    for (int i = 0; i < scaled(5000); i++) {
        struct shared *s = calloc(1, sizeof *s);
        s->users = 4;
        s->all = &all;
        weft_wg_add(&s->wg, 1);
        weft_wg_add(&all, 5);
        for (int j = 0; j < 4; j++)
            CHECK_EQ(weft_go(wait_and_drop, s), 0);
        if (i % 2 == 0)
            weft_yield();
        weft_wg_add(&s->wg, 0);
        CHECK_EQ(weft_go(done, &all), 0);
        weft_wg_done(&s->wg);
        CHECK_EQ(weft_wg_wait(&all), 0);
    }
}

CASE(the_last_of_several_waiters_may_free_it)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, drop_main, NULL), 0);
}

/* ---- foreign threads -------------------------------------------------------------------------------------------- */

static void *add_and_done(void *arg)
{
    for (int i = 0; i < scaled(20000); i++) {
        weft_wg_add(arg, 1);
        weft_wg_done(arg);
    }
    weft_wg_done(arg);
    return NULL;
}

static void foreign_main(void *arg)
{
    pthread_t threads[4];
    weft_wg wg = {0};
    (void)arg;
    weft_wg_add(&wg, 4 + 4);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(pthread_create(&threads[i], NULL, add_and_done, &wg), 0);
        CHECK_EQ(weft_go(yield_and_done, &wg), 0);
    }
    weft_block_enter(); /* foreign threads do not keep a run alive */
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    weft_block_leave();
    CHECK_EQ(weft_wg_wait(&wg), 0);
}

CASE(foreign_threads_may_count_too)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, foreign_main, NULL), 0);
}

/* A foreign thread waits and another counts down while the run ends: the wait is cut, or let go, and nothing hangs. */
struct ending {
    weft_wg wg;
    _Atomic bool go;
    pthread_t waiter, counter;
};

static void *wait_to_the_end(void *arg)
{
    struct ending *e = arg;
    int r = weft_wg_wait(&e->wg);
    CHECK(r == 0 || r == -ECANCELED || r == -EPERM);
    return NULL;
}

static void *count_at_the_end(void *arg)
{
    struct ending *e = arg;
    while (!e->go)
        ;
    weft_wg_done(&e->wg);
    return NULL;
}

static void ending_main(void *arg)
{
    struct ending *e = arg;
    weft_wg_add(&e->wg, 1);
    CHECK_EQ(pthread_create(&e->waiter, NULL, wait_to_the_end, e), 0);
    CHECK_EQ(pthread_create(&e->counter, NULL, count_at_the_end, e), 0);
    sleep_in_region(2);
    e->go = true;
}

CASE(a_count_and_a_wait_of_foreign_threads_meet_the_end_of_the_run)
{
    for (int i = 0; i < scaled(100); i++) {
        struct ending e = {.go = false};
        CHECK_EQ(run_on(2, ending_main, &e), 0);
        pthread_join(e.waiter, NULL);
        pthread_join(e.counter, NULL);
        CHECK_EQ(weft_wg_wait(&e.wg), 0);
    }
}

/* ---- misuse ----------------------------------------------------------------------------------------------------- */

static void go_below_zero(void *arg)
{
    weft_wg wg = {0};
    (void)arg;
    weft_wg_add(&wg, 1);
    weft_wg_done(&wg);
    weft_wg_done(&wg);
}

static void add_negative(void *arg)
{
    weft_wg wg = {0};
    (void)arg;
    weft_wg_add(&wg, 2);
    weft_wg_add(&wg, -3);
}

static void run_below_zero(void)
{
    run_on(1, go_below_zero, NULL);
}

static void run_negative(void)
{
    run_on(2, add_negative, NULL);
}

CASE(a_negative_count_aborts_with_one_line)
{
    check_fn *const children[] = {run_below_zero, run_negative};
    for (int i = 0; i < 2; i++) {
        char text[4096];
        int status = check_child(children[i], text, sizeof text);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
        CHECK(strstr(text, "negative") != NULL && strstr(text, "wait group") != NULL);
        char *newline = strchr(text, '\n');
        CHECK(newline != NULL && newline[1] == '\0');
    }
}
