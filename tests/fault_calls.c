/* SPDX-License-Identifier: MIT */
/*
 * The n-th call into libc fails, for every n that a whole scenario has: alone, or with all that come after it. What
 * must come of it is a negative errno of some weft call, after which everything else goes on well; or nothing at all; or
 * one line on stderr and abort(). Never a hang, a crash or a wrong result, and nothing may leak.
 *
 * A child process per n: the exit status tells what came of it.
 */
#include "fault_shim.h"
#include "runs.h"
#include "trees.h"
#include "whitebox.h"
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

enum { WENT_WELL = 0, WENT_WRONG = 1, NOTHING_FAILED = 3, CHILD_SECONDS = 20 };

/* What the child is to do. */
static struct {
    int kinds;
    long first, last;
    weft_fn *fn;
    int procs;
} order;

/* What goes wrong in a child; the parent's own failures, which a child inherits, do not count there. */
static _Atomic int wrong;

#define EXPECT(cond)                                     \
    do {                                                 \
        if (!(cond)) {                                   \
            atomic_fetch_add(&wrong, 1);                 \
            check_fail(__FILE__, __LINE__, "%s", #cond); \
        }                                                \
    } while (0)
#define EXPECT_EQ(a, b) EXPECT((a) == (b))

/* ---- the scenario ----------------------------------------------------------------------------------------------- */

static struct {
    weft_wg wg;
    _Atomic int accepted, refused, ran;
    bool entered, pins;
} all;

static void leaf(void *arg)
{
    (void)arg;
    atomic_fetch_add(&all.ran, 1);
    weft_wg_done(&all.wg);
}

static void leaf_of_copy(void *arg)
{
    const unsigned char *bytes = arg;
    for (int i = 0; i < 16; i++)
        EXPECT_EQ(bytes[i], i);
    leaf(NULL);
}

static bool refusal(int r)
{
    return r == -ENOMEM || r == -EAGAIN;
}

/* The wait group counts the goroutine before it is started, and no more if it was not. */
static void account(int r)
{
    atomic_fetch_add(r == 0 ? &all.accepted : &all.refused, 1);
    EXPECT(r == 0 || refusal(r));
    if (r != 0)
        weft_wg_done(&all.wg);
}

static void sleeper(void *arg)
{
    uintptr_t how = (uintptr_t)arg;
    if (all.pins && how % 3 == 0)
        weft_pin();
    weft_yield();
    sleep_in_region(how % 2 == 0 ? 0 : 1);
    weft_wg_add(&all.wg, 1);
    account(weft_go(leaf, NULL));
    weft_yield();
    if (all.pins && how % 3 == 0)
        weft_unpin();
    leaf(NULL);
}

static int start(int i)
{
    static const size_t sizes[] = {0, 1, 40000, 70000, 300000, 5000000};
    unsigned char bytes[10000];
    weft_attr attr = {.name = i % 2 ? "named" : NULL, .stack_size = sizes[i / 8 % 6]};
    for (size_t k = 0; k < sizeof bytes; k++)
        bytes[k] = (unsigned char)k;
    switch (i % 8) {
    case 0:
        return weft_go_copy(leaf_of_copy, bytes, 16);
    case 1:
        return weft_go_copy(leaf_of_copy, bytes, sizeof bytes);
    case 2:
    case 3:
        return weft_go_with(&attr, leaf, NULL);
    case 4:
        return i < 80 ? weft_go(sleeper, (void *)(intptr_t)(i / 8)) : weft_go(leaf, NULL);
    default:
        return weft_go(leaf, NULL);
    }
}

static void change_procs(int n)
{
    int r = weft_procs(n);
    EXPECT((r >= 1 && r <= 5) || refusal(r));
}

static void scenario(void *arg)
{
    (void)arg;
    all.entered = true;
    for (int i = 0; i < 300; i++) {
        weft_wg_add(&all.wg, 1);
        account(start(i));
        if (i == 50)
            change_procs(5);
        if (i == 200)
            change_procs(1);
    }
    sleep_in_region(1);
    change_procs(3);
    EXPECT_EQ(weft_wg_wait(&all.wg), 0);
    EXPECT_EQ(all.ran, all.accepted);
}

/* ---- one child -------------------------------------------------------------------------------------------------- */

static int run_scenario(weft_fn *fn, int procs)
{
    memset(&all, 0, sizeof all);
    all.pins = order.last != LONG_MAX; /* who is pinned needs a second thread for the others */
    return run_on(procs, fn, NULL);
}

static void child(void)
{
    alarm(CHILD_SECONDS);
    run_scenario(order.fn, order.procs); /* what is allocated once, is */
    long blocks = fault_blocks(), mapped = fault_mapped();
    fault_arm(order.kinds, order.first, order.last);
    int r = run_scenario(order.fn, order.procs);
    fault_disarm();
    EXPECT(r == 0 ? all.entered : refusal(r) && !all.entered);
    EXPECT_EQ(fault_blocks(), blocks);
    EXPECT_EQ(fault_mapped(), mapped);
    long failed = fault_failed();
    EXPECT_EQ(run_scenario(order.fn, order.procs), 0);
    EXPECT_EQ(all.refused, 0);
    fflush(NULL);
    _exit(wrong > 0 ? WENT_WRONG : failed > 0 ? WENT_WELL : NOTHING_FAILED);
}

static bool clean_abort(int status, const char *text)
{
    const char *end = strchr(text, '\n');
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && strncmp(text, "weft: ", 6) == 0 && end != NULL &&
           end[1] == '\0';
}

/* false: nothing was left to fail. */
static bool nth_fails(int kinds, long first, long last)
{
    static char text[4000];
    order.kinds = kinds;
    order.first = first;
    order.last = last;
    int status = check_child(child, text, sizeof text);
    bool exited = WIFEXITED(status) && (WEXITSTATUS(status) == WENT_WELL || WEXITSTATUS(status) == NOTHING_FAILED);
    if (!exited && !clean_abort(status, text)) {
        check_fail(__FILE__, __LINE__, "kinds %d, calls %ld to %ld fail: status %#x", kinds, first, last,
                   (unsigned)status);
        fprintf(stderr, "# the child said:\n%s\n", text);
    }
    return !(WIFEXITED(status) && WEXITSTATUS(status) == NOTHING_FAILED);
}

static void each_call_in_turn(int kinds, bool alone)
{
    enum { MOST = 2000 };
    long n = 1;
    order.fn = scenario;
    order.procs = 2;
    for (; n < MOST && nth_fails(kinds, n, alone ? n : LONG_MAX); n += n < 40              ? 1
                                                                       : check_scale() > 1 ? n / 4
                                                                                           : 1 + n / 50)
        ;
    CHECK(n > 1 && n < MOST);
}

CASE(one_mmap_fails)
{
    each_call_in_turn(FAULT_MMAP, true);
}

CASE(every_mmap_fails_from_some_point_on)
{
    each_call_in_turn(FAULT_MMAP, false);
}

CASE(one_allocation_fails)
{
    each_call_in_turn(FAULT_MALLOC, true);
}

CASE(every_allocation_fails_from_some_point_on)
{
    each_call_in_turn(FAULT_MALLOC, false);
}

CASE(one_thread_cannot_be_made)
{
    each_call_in_turn(FAULT_THREAD, true);
}

CASE(no_thread_can_be_made_from_some_point_on)
{
    each_call_in_turn(FAULT_THREAD, false);
}

CASE(one_advice_or_protection_fails)
{
    each_call_in_turn(FAULT_ADVICE, true);
}

CASE(every_advice_and_protection_fails_from_some_point_on)
{
    each_call_in_turn(FAULT_ADVICE, false);
}

CASE(everything_fails_from_some_point_on)
{
    each_call_in_turn(FAULT_ALL, false);
}

/* Memory is mapped in other ways there, and one node may have what another one lacks. */
CASE(calls_fail_on_a_machine_with_two_nodes)
{
    new_tree();
    put_file("/devices/system/cpu/online", "0-1\n");
    put_file("/devices/system/node/online", "0-1\n");
    put_file("/devices/system/node/node0/cpulist", "0\n");
    put_file("/devices/system/node/node1/cpulist", "1\n");
    setenv("WEFT_SYSFS", root, 1);
    each_call_in_turn(FAULT_MMAP, false);
    each_call_in_turn(FAULT_MALLOC, true);
    unsetenv("WEFT_SYSFS");
    drop_tree();
}

/* ---- few threads ------------------------------------------------------------------------------------------------ */

/* ---- stacks without guards -------------------------------------------------------------------------------------- */

static void overruns(void *arg)
{
    (void)arg;
    *(volatile uint64_t *)(void *)w_m()->g->stack_lo = 1; /* as a frame too many would */
    weft_yield();
    weft_wg_wait(&(weft_wg){.state_ = 4});
}

static void starts_one_that_overruns(void *arg)
{
    (void)arg;
    weft_go(overruns, NULL);
    for (int i = 0; i < 100; i++)
        weft_yield();
}

static void run_without_guards(void)
{
    alarm(CHILD_SECONDS);
    fault_arm(FAULT_ADVICE, 1, LONG_MAX);
    run_on(1, starts_one_that_overruns, NULL);
}

CASE(an_overrun_without_a_guard_page_is_found_at_the_next_switch)
{
    static char text[8000];
    int status = check_child(run_without_guards, text, sizeof text);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    CHECK(strstr(text, "weft: stack overflow in goroutine ") != NULL && strstr(text, "weft_yield") != NULL);
}

static void blocks_often(void *arg)
{
    (void)arg;
    for (int i = 0; i < 5; i++) {
        sleep_in_region(2);
        weft_yield();
    }
    leaf(NULL);
}

static void many_block(void *arg)
{
    (void)arg;
    all.entered = true;
    for (int i = 0; i < 12; i++) {
        weft_wg_add(&all.wg, 2);
        account(weft_go(blocks_often, NULL));
        account(weft_go(leaf, NULL));
        if (i % 4 == 0)
            sleep_in_region(3);
    }
    EXPECT_EQ(weft_wg_wait(&all.wg), 0);
    EXPECT_EQ(all.ran, 24);
}

CASE(with_few_threads_blocking_work_is_still_done)
{
    order.fn = many_block;
    for (int threads = 1; threads <= 3; threads++)
        EACH_PROCS(p)
        {
            order.procs = p;
            nth_fails(FAULT_THREAD, threads + 1, LONG_MAX);
        }
}

/* The thread that is needed cannot be made for a while: what waits for it must not be forgotten. */
static int pipe_fds[2];

static void writes(void *arg)
{
    (void)arg;
    EXPECT_EQ(write(pipe_fds[1], "x", 1), 1);
    leaf(NULL);
}

/* The thread is kept by us, pinned or blocked, until the other one has run. */
static void waits_for_the_other(void *arg)
{
    char c;
    bool pinned = arg != NULL;
    weft_wg_add(&all.wg, 1);
    if (pinned)
        weft_pin();
    account(weft_go(writes, NULL));
    if (pinned)
        weft_yield();
    weft_block_enter();
    EXPECT_EQ(read(pipe_fds[0], &c, 1), 1);
    weft_block_leave();
    if (pinned)
        weft_unpin();
    leaf(NULL);
}

static void needs_a_second_thread(void *arg)
{
    (void)arg;
    all.entered = true;
    for (int i = 0; i < 12; i++) {
        weft_wg_add(&all.wg, 1);
        account(weft_go(waits_for_the_other, i % 2 ? &all : NULL));
        if (i % 3 == 0)
            EXPECT_EQ(weft_wg_wait(&all.wg), 0);
    }
    EXPECT_EQ(weft_wg_wait(&all.wg), 0);
    EXPECT_EQ(all.ran, 24);
}

CASE(a_thread_that_comes_late_finds_its_work)
{
    CHECK_EQ(pipe(pipe_fds), 0);
    order.fn = needs_a_second_thread;
    for (long first = 2; first <= 6; first++)
        EACH_PROCS(p)
        {
            order.procs = p;
            nth_fails(FAULT_THREAD, first, first + 3);
            nth_fails(FAULT_THREAD, first, first + 100);
        }
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}
