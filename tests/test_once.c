/* SPDX-License-Identifier: MIT */
/* What is done once. */
#include "locks.h"

struct first {
    weft_once once;
    weft_sem go_on;
    _Atomic int calls, returned;
    _Atomic bool complete;
    _Atomic(struct w_g *) who;
};

static void take_a_while(void *arg)
{
    struct first *f = arg;
    CHECK_EQ(++f->calls, 1);
    for (int i = 0; i < 5; i++)
        weft_yield();
    CHECK_EQ(weft_sleep(WEFT_USEC), 0);
    f->complete = true;
}

static void do_it(void *arg)
{
    struct first *f = arg;
    weft_once_do(&f->once, take_a_while, f);
    CHECK(f->complete);
    f->returned++;
}

static void *do_it_in_thread(void *arg)
{
    do_it(arg);
    return NULL;
}

static void once_main(void *arg)
{
    (void)arg;
    for (int i = 0; i < scaled(100); i++) {
        struct first f = {0};
        for (int j = 0; j < 10; j++)
            CHECK_EQ(weft_go(do_it, &f), 0);
        if (i % 2 == 0)
            do_it(&f);
        CHECK(reaches(&f.returned, 10 + (i % 2 == 0), 20));
        CHECK_EQ(f.calls, 1);
        do_it(&f);
        CHECK(others_have_ended());
    }
}

CASE(nobody_returns_before_it_was_done_once)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, once_main, NULL), 0);
}

static void once_threads_main(void *arg)
{
    (void)arg;
    for (int i = 0; i < scaled(50); i++) {
        struct first f = {0};
        pthread_t threads[3];
        for (int j = 0; j < 3; j++) {
            CHECK_EQ(pthread_create(&threads[j], NULL, do_it_in_thread, &f), 0);
            CHECK_EQ(weft_go(do_it, &f), 0);
        }
        join_in_region(threads, 3);
        CHECK(reaches(&f.returned, 6, 20));
        CHECK_EQ(f.calls, 1);
        CHECK(others_have_ended());
    }
}

CASE(threads_and_goroutines_do_it_once)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, once_threads_main, NULL), 0);
}

static void wait_to_go_on(void *arg)
{
    struct first *f = arg;
    f->calls++;
    CHECK_EQ(weft_sem_acquire(&f->go_on, 1), 0);
    f->complete = true;
}

static void do_it_slowly(void *arg)
{
    struct first *f = arg;
    weft_once_do(&f->once, wait_to_go_on, f);
    f->returned++;
}

static void do_it_in_a_scope_that_is_over(void *arg)
{
    struct first *f = arg;
    weft_scope s;
    CHECK_EQ(weft_scope_open(&s, WEFT_NEVER), 0);
    weft_scope_cancel(&s, -ECANCELED);
    says_who(&f->who);
    do_it_slowly(f);
    CHECK(f->complete);
    CHECK_EQ(weft_scope_close(&s), -ECANCELED);
}

static void *do_it_in_a_scope_of_a_thread(void *arg)
{
    do_it_in_a_scope_that_is_over(arg);
    return NULL;
}

static void once_cut_main(void *arg)
{
    struct first f = {0};
    pthread_t thread;
    (void)arg;
    CHECK_EQ(weft_go(do_it_slowly, &f), 0);
    CHECK(reaches(&f.calls, 1, 20));
    CHECK_EQ(weft_go(do_it_in_a_scope_that_is_over, &f), 0);
    CHECK(is_asleep(&f.who));
    CHECK_EQ(pthread_create(&thread, NULL, do_it_in_a_scope_of_a_thread, &f), 0);
    let_others_run();
    CHECK_EQ(f.returned, 0);
    weft_sem_release(&f.go_on, 1);
    CHECK(reaches(&f.returned, 3, 20));
    CHECK_EQ(f.calls, 1);
    join_in_region(&thread, 1);
    CHECK(others_have_ended());
}

CASE(doing_it_once_is_never_cut)
{
    for (int i = 0; i < scaled(20); i++)
        EACH_PROCS(p) CHECK_EQ(run_on(p, once_cut_main, NULL), 0);
}

CASE(it_is_done_once_without_a_runtime)
{
    struct counted c = {0};
    do_once(&c);
    do_once(&c);
    CHECK_EQ(c.ran, 1);
}

static weft_once again;

static void do_it_again(void *arg)
{
    weft_once_do(&again, do_it_again, arg);
}

static void recursion_in_thread(void)
{
    do_it_again(NULL);
}

static void recursion_in_goroutine(void)
{
    run_on(2, do_it_again, NULL);
}

CASE(doing_it_from_inside_itself_aborts)
{
    aborts_with_one_line(recursion_in_thread, "weft_once_do");
    aborts_with_one_line(recursion_in_goroutine, "weft_once_do");
}

static weft_once unfinished;

static void end_inside(void *arg)
{
    (void)arg;
    weft_exit();
}

static void do_and_exit(void *arg)
{
    (void)arg;
    weft_once_do(&unfinished, end_inside, NULL);
}

static void unfinished_main(void *arg)
{
    (void)arg;
    CHECK_EQ(weft_go(do_and_exit, NULL), 0);
    CHECK(others_have_ended());
    weft_once_do(&unfinished, end_inside, NULL); /* waits for what never returns */
    CHECK(false);
}

static void unfinished_child(void)
{
    CHECK_EQ(run_on(2, unfinished_main, NULL), -EDEADLK);
}

CASE(who_waits_for_one_that_ended_inside_waits_for_ever)
{
    char text[4096];
    CHECK(child_is_well(unfinished_child, text, sizeof text));
    CHECK(strstr(text, "deadlock") != NULL);
}
