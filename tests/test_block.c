/* SPDX-License-Identifier: MIT */
/* Blocking regions: the processor goes on without the thread that blocks. */
#include "runs.h"
#include "whitebox.h"
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static void add_one(void *arg)
{
    ++*(_Atomic int *)arg;
}

/* ---- others run ------------------------------------------------------------------------------------------------- */

static _Atomic int beats;
static _Atomic bool over;

static void beat(void *arg)
{
    (void)arg;
    while (!over) {
        beats++;
        weft_yield();
    }
}

static void others_main(void *arg)
{
    (void)arg;
    over = false;
    CHECK_EQ(weft_go(beat, NULL), 0);
    CHECK_EQ(weft_go(beat, NULL), 0);
    for (int i = 0; i < 5; i++) {
        weft_block_enter();
        usleep(10000);
        int before = beats, after = before;
        for (int k = 0; k < 2000 && after == before; k++) { /* a crowded machine takes its time */
            usleep(10000);
            after = beats;
        }
        weft_block_leave();
        CHECK(after > before);
    }
    over = true;
}

CASE(others_run_while_one_blocks)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, others_main, NULL), 0);
}

/* A pipe between two that block: each must get a thread. */
static void write_later(void *arg)
{
    sleep_in_region(20);
    CHECK_EQ(write(*(int *)arg, "x", 1), 1);
}

static void pipe_main(void *arg)
{
    int fds[2];
    char c;
    (void)arg;
    CHECK_EQ(pipe(fds), 0);
    CHECK_EQ(weft_go(write_later, &fds[1]), 0);
    weft_block_enter();
    CHECK_EQ(read(fds[0], &c, 1), 1);
    weft_block_leave();
    CHECK(others_have_ended());
    close(fds[0]);
    close(fds[1]);
}

CASE(one_that_blocks_may_be_ended_by_another)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, pipe_main, NULL), 0);
}

/* Fresh ones that were queued behind the one that blocks, and those that it had woken. */
static void queued_main(void *arg)
{
    _Atomic int ran = 0;
    (void)arg;
    for (int i = 0; i < 300; i++)
        CHECK_EQ(weft_go(add_one, &ran), 0);
    weft_block_enter();
    for (int i = 0; i < 2000 && ran < 300; i++)
        usleep(10000);
    CHECK_EQ(ran, 300);
    weft_block_leave();
}

CASE(what_is_queued_behind_one_that_blocks_runs)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, queued_main, NULL), 0);
}

struct many {
    weft_wg wg;
    _Atomic int inside, most;
};

static void block_often(void *arg)
{
    struct many *m = arg;
    for (int i = 0; i < 20; i++) {
        weft_block_enter();
        int n = ++m->inside;
        for (int most = m->most; n > most && !atomic_compare_exchange_weak(&m->most, &most, n);)
            ;
        usleep(1000);
        m->inside--;
        weft_block_leave();
    }
    weft_wg_done(&m->wg);
}

static void many_main(void *arg)
{
    struct many m = {0};
    (void)arg;
    weft_wg_add(&m.wg, 64);
    for (int i = 0; i < 64; i++)
        CHECK_EQ(weft_go(block_often, &m), 0);
    CHECK_EQ(weft_wg_wait(&m.wg), 0);
    CHECK(m.most > 8); /* not one after the other */
}

CASE(many_may_block_at_once)
{
    for (int i = 0; i < 3; i++)
        EACH_PROCS(p) CHECK_EQ(run_on(p, many_main, NULL), 0);
}

static weft_wg gate;

static void block_together(void *arg)
{
    _Atomic int *inside = arg;
    weft_block_enter();
    ++*inside;
    for (int i = 0; i < 3000 && *inside < 100; i++)
        usleep(10000);
    CHECK(*inside >= 100);
    weft_block_leave();
    weft_wg_done(&gate);
}

static void together_main(void *arg)
{
    _Atomic int inside = 0;
    (void)arg;
    gate = (weft_wg){0};
    weft_wg_add(&gate, 100);
    for (int i = 0; i < 100; i++)
        CHECK_EQ(weft_go(block_together, &inside), 0);
    CHECK_EQ(weft_wg_wait(&gate), 0);
}

CASE(a_hundred_may_be_in_regions_at_the_same_time)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, together_main, NULL), 0);
}

/* ---- the region itself ------------------------------------------------------------------------------------------ */

static void nested_main(void *arg)
{
    _Atomic int ran = 0;
    (void)arg;
    weft_block_enter();
    weft_block_enter();
    weft_block_enter();
    usleep(2000);
    weft_block_leave();
    CHECK_EQ(weft_go(add_one, &ran), 0); /* a runtime call, while two are open */
    usleep(2000);
    weft_block_leave();
    weft_block_enter();
    weft_block_leave();
    for (int i = 0; i < 2000 && ran == 0; i++) /* still inside one */
        usleep(10000);
    CHECK_EQ(ran, 1);
    weft_block_leave();
    CHECK(weft_id() != 0);
    weft_yield();
}

CASE(regions_nest)
{
    for (int i = 0; i < 20; i++)
        EACH_PROCS(p) CHECK_EQ(run_on(p, nested_main, NULL), 0);
}

static void done(void *arg)
{
    weft_wg_done(arg);
}

static void calls_main(void *arg)
{
    weft_wg wg = {0};
    _Atomic int ran = 0;
    (void)arg;
    for (int i = 0; i < scaled(500); i++) {
        uint64_t id = weft_id();
        weft_block_enter();
        CHECK_EQ(weft_id(), id);
        CHECK(weft_count() >= 1);
        weft_wg_add(&wg, 2);
        CHECK_EQ(weft_go(done, &wg), 0);
        CHECK_EQ(weft_go(add_one, &ran), 0);
        weft_yield();
        CHECK_EQ(weft_go(done, &wg), 0);
        CHECK_EQ(weft_wg_wait(&wg), 0); /* it parks inside the region */
        weft_pin();
        weft_yield();
        weft_unpin();
        CHECK(weft_procs(0) > 0);
        weft_block_leave();
        CHECK_EQ(weft_id(), id);
        if (i % 7 == 0)
            weft_yield();
    }
    CHECK(reaches(&ran, scaled(500), 20));
}

CASE(runtime_calls_are_fine_inside_a_region)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, calls_main, NULL), 0);
}

static void exit_inside(void *arg)
{
    add_one(arg);
    weft_block_enter();
    weft_block_enter();
    weft_exit();
}

static void return_inside(void *arg)
{
    add_one(arg);
    weft_block_enter();
}

static void leave_open_main(void *arg)
{
    _Atomic int ran = 0;
    int n = scaled(300);
    (void)arg;
    for (int i = 0; i < n; i++) {
        CHECK_EQ(weft_go(exit_inside, &ran), 0);
        CHECK_EQ(weft_go(return_inside, &ran), 0);
        CHECK_EQ(weft_go(add_one, &ran), 0);
        weft_yield();
    }
    CHECK(reaches(&ran, 3 * n, 20));
    CHECK(others_have_ended());
}

CASE(a_goroutine_may_end_inside_a_region)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, leave_open_main, NULL), 0);
}

static void leave_alone(void *arg)
{
    (void)arg;
    weft_block_enter();
    weft_block_leave();
    weft_block_leave();
}

static void run_leave_alone(void)
{
    run_on(1, leave_alone, NULL);
}

CASE(leave_without_enter_aborts_with_one_line)
{
    char text[4096];
    int status = check_child(run_leave_alone, text, sizeof text);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    CHECK(strstr(text, "weft_block_leave") != NULL);
    char *newline = strchr(text, '\n');
    CHECK(newline != NULL && newline[1] == '\0');
}

/* ---- threads ---------------------------------------------------------------------------------------------------- */

/* A region that ends at once keeps its thread and its processor, and needs no other thread. */
static void short_main(void *arg)
{
    int n = scaled(200000), moved = 0;
    long tid = syscall(SYS_gettid);
    (void)arg;
    for (int i = 0; i < n; i++) {
        weft_block_enter();
        weft_block_leave();
        long now = syscall(SYS_gettid);
        moved += now != tid;
        tid = now;
    }
    CHECK(moved <= n / 100 + 10);
    CHECK(check_threads() < 8);
}

CASE(short_regions_keep_their_processor)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, short_main, NULL), 0);
}

static int threads_at_most, threads_in_the_end;

static void linger_main(void *arg)
{
    together_main(arg);
    threads_at_most = check_threads();
    weft_block_enter();
    for (int i = 0; i < 1500 && check_threads() > 20; i++)
        usleep(10000);
    threads_in_the_end = check_threads();
    weft_block_leave();
}

CASE(idle_threads_beyond_a_few_end_after_a_while)
{
    CHECK_EQ(run_on(2, linger_main, NULL), 0);
    CHECK(threads_at_most >= 100);
    if (threads_in_the_end > 20)
        check_fail(__FILE__, __LINE__, "%d threads are still there", threads_in_the_end);
}

/* The same threads serve again and again. */
static void reuse_main(void *arg)
{
    int most = 0;
    (void)arg;
    for (int i = 0; i < scaled(100); i++) {
        struct many m = {0};
        weft_wg_add(&m.wg, 4);
        for (int j = 0; j < 4; j++)
            CHECK_EQ(weft_go(block_often, &m), 0);
        CHECK_EQ(weft_wg_wait(&m.wg), 0);
        most = check_threads() > most ? check_threads() : most;
    }
    CHECK(most < 24);
}

CASE(threads_are_used_again)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, reuse_main, NULL), 0);
}
