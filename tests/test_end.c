/* SPDX-License-Identifier: MIT */
/* The end of a run: what is discarded, what is left behind, deadlock, and weft_exit in main. */
#include "runs.h"
#include "whitebox.h"

static char text[64 << 10]; /* what a child said */

static void nothing(void *arg)
{
    (void)arg;
}

static void set_flag(void *arg)
{
    *(_Atomic int *)arg = 1;
}

static weft_wg never; /* nobody is done with it */

static void park_for_ever(void *arg)
{
    atomic_fetch_add((_Atomic int *)arg, 1);
    weft_wg_wait(&never);
    CHECK(!"somebody came back from a wait that never ends");
}

/* ---- what is left when main returns ----------------------------------------------------------------------------- */

static _Atomic int begun;

static void call_for_ever(void *arg)
{
    (void)arg;
    begun++;
    for (;;)
        weft_cancelled();
}

static void yield_for_ever(void *arg)
{
    (void)arg;
    begun++;
    for (;;)
        weft_yield();
}

static void spawn_for_ever(void *arg)
{
    (void)arg;
    begun++;
    for (;;) {
        if (weft_count() < 1000)
            weft_go(nothing, NULL);
        weft_yield();
    }
}

static void block_for_ever(void *arg)
{
    (void)arg;
    begun++;
    for (;;)
        sleep_in_region(2);
}

static void pin_for_ever(void *arg)
{
    weft_pin();
    park_for_ever(arg);
}

static void park_counted(void *arg)
{
    (void)arg;
    park_for_ever(&begun);
}

struct leftover {
    weft_fn *fn;
    int count;
    bool wait; /* until they have begun */
};

static void leave(void *arg)
{
    struct leftover *l = arg;
    begun = 0;
    never = (weft_wg){0};
    weft_wg_add(&never, 1);
    for (int i = 0; i < l->count; i++)
        CHECK_EQ(weft_go(l->fn, &begun), 0);
    if (l->wait)
        CHECK(reaches(&begun, l->count, 20));
}

static void leave_with(weft_fn *fn, int count)
{
    EACH_PROCS(p)
    {
        for (int wait = 0; wait <= 1; wait++) {
            int64_t start = weft_now();
            CHECK_EQ(run_on(p, leave, &(struct leftover){fn, count, wait}), 0);
            CHECK(weft_now() - start < 20 * WEFT_SEC);
        }
    }
}

static void leave_all_kinds(void)
{
    leave_with(park_counted, 100);
    leave_with(nothing, 0);
    leave_with(call_for_ever, 3);
    leave_with(yield_for_ever, 20);
    leave_with(spawn_for_ever, 3);
    leave_with(block_for_ever, 10);
    leave_with(pin_for_ever, 5);
}

CASE(what_is_left_when_main_returns_is_discarded_in_silence)
{
    CHECK(child_is_well(leave_all_kinds, text, sizeof text));
    if (text[0] != '\0')
        check_fail(__FILE__, __LINE__, "the ends of runs said: %s", text);
}

static void run_all_kinds(void *arg)
{
    (void)arg;
    begun = 0;
    never = (weft_wg){0};
    weft_wg_add(&never, 1);
    weft_fn *const fns[] = {park_counted, yield_for_ever, call_for_ever, block_for_ever};
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            CHECK_EQ(weft_go(fns[i], NULL), 0);
    CHECK(reaches(&begun, 16, 30));
}

CASE(all_kinds_at_once_are_discarded)
{
    for (int i = 0; i < scaled(20); i++)
        EACH_PROCS(p) CHECK_EQ(run_on(p, run_all_kinds, NULL), 0);
}

/* ---- goroutines in foreign code at the end ---------------------------------------------------------------------- */

enum { FOREIGN_MS = 2000 };
static _Atomic int gone_in, came_back, ran_on;

static void in_a_region(void *arg)
{
    (void)arg;
    weft_block_enter();
    gone_in++;
    usleep(FOREIGN_MS * 1000);
    came_back++;
    weft_block_leave();
    ran_on++;
}

static void in_a_nested_region(void *arg)
{
    (void)arg;
    weft_block_enter();
    weft_block_enter();
    gone_in++;
    usleep(FOREIGN_MS * 1000);
    came_back++;
    weft_block_leave();
    ran_on++;
    weft_block_leave();
}

static _Atomic pid_t sleepers[3]; /* 0: there is none */

static void sleep_plainly(void)
{
    sleepers[gone_in++] = gettid();
    usleep(FOREIGN_MS * 1000);
}

static void in_plain_sleep(void *arg)
{
    (void)arg;
    sleep_plainly();
    came_back++;
    weft_yield();
    ran_on++;
}

static void in_plain_sleep_at_its_end(void *arg)
{
    (void)arg;
    sleep_plainly();
    came_back++;
}

static void in_plain_sleep_before_exit(void *arg)
{
    (void)arg;
    sleep_plainly();
    came_back++;
    weft_exit();
}

/* Its own goroutine is gone by then. */
static void in_plain_sleep_before_a_region(void *arg)
{
    (void)arg;
    sleep_plainly();
    weft_preempt_off();
    weft_preempt_on();
    came_back++;
    weft_yield();
    ran_on++;
}

static void computing(void *arg)
{
    (void)arg;
    weft_preempt_off();
    gone_in++;
    for (int64_t end = weft_now() + FOREIGN_MS * WEFT_MSEC; weft_now() < end;)
        ;
    came_back++;
    weft_go(nothing, NULL);
    ran_on++;
}

struct foreign_case {
    weft_fn *fn;
    int count;
    int settle_ms; /* main stays so long before it returns */
};

static struct foreign_case foreign_case;

static void start_foreign(void *arg)
{
    (void)arg;
    for (int i = 0; i < foreign_case.count; i++)
        CHECK_EQ(weft_go(foreign_case.fn, NULL), 0);
    for (int64_t end = weft_now() + 20 * WEFT_SEC; gone_in < foreign_case.count && weft_now() < end;)
        sleep_in_region(1);
    CHECK_EQ(gone_in, foreign_case.count);
    for (int i = 0; i < foreign_case.count;
         i++) /* one that is still on its way would be stopped there, and discarded */
        while (sleepers[i] != 0 && w_thread_state(sleepers[i]) == 'R')
            sleep_in_region(1);
    if (foreign_case.settle_ms > 0)
        sleep_in_region(foreign_case.settle_ms);
}

static void work(void *arg)
{
    weft_wg *wg = arg;
    weft_yield();
    weft_wg_done(wg);
}

/* Ordinary life of another run, while the threads that were left behind come back. */
static void live_on(void *arg)
{
    weft_wg wg = {0};
    int64_t end = weft_now() + *(int *)arg * WEFT_MSEC;
    while (weft_now() < end) {
        weft_wg_add(&wg, 50);
        for (int i = 0; i < 50; i++)
            CHECK_EQ(weft_go(work, &wg), 0);
        CHECK_EQ(weft_wg_wait(&wg), 0);
        sleep_in_region(1);
    }
    CHECK(others_have_ended());
}

static void end_while_in_foreign_code(int procs)
{
    gone_in = came_back = ran_on = 0;
    memset((void *)sleepers, 0, sizeof sleepers);
    CHECK_EQ(run_on(procs, start_foreign, NULL), 0);
    int64_t ended = weft_now();
    CHECK_EQ(came_back, 0); /* so it was quick */
    int ms = FOREIGN_MS + 500;
    CHECK_EQ(run_on(1, live_on, &ms), 0); /* fewer processors: what the first run gave back is not all used again */
    while (weft_now() - ended < (FOREIGN_MS + 700) * WEFT_MSEC)
        usleep(10000);
    CHECK_EQ(came_back, foreign_case.count);
    CHECK_EQ(ran_on, 0);
    ms = 50;
    CHECK_EQ(run_on(procs, live_on, &ms), 0);
    CHECK_EQ(check_threads_in_the_end(), 1);
}

static void end_on_one(void)
{
    end_while_in_foreign_code(1);
}

static void end_on_eight(void)
{
    end_while_in_foreign_code(8);
}

static void check_one_line(void)
{
    const char *newline = strchr(text, '\n');
    if (newline == NULL || newline == text || newline[1] != '\0')
        check_fail(__FILE__, __LINE__, "expected one line on stderr, got: %s", text);
}

static void foreign(weft_fn *fn, int settle_ms)
{
    foreign_case = (struct foreign_case){fn, 1, settle_ms};
    check_fn *const runs[] = {end_on_one, end_on_eight};
    for (int i = 0; i < 2; i++, foreign_case.count = 3) {
        CHECK(child_is_well(runs[i], text, sizeof text));
        check_one_line();
    }
}

CASE(a_run_leaves_behind_who_has_just_entered_a_blocking_region)
{
    foreign(in_a_region, 0);
}

CASE(a_run_leaves_behind_who_is_long_in_a_blocking_region)
{
    foreign(in_a_region, 100);
}

CASE(a_run_leaves_behind_who_is_in_a_nested_blocking_region)
{
    foreign(in_a_nested_region, 0);
}

/* With one processor main does not get to run before such a goroutine is back: it needs as many as there are. */
static void foreign_outside_regions(weft_fn *fn)
{
    foreign_case = (struct foreign_case){fn, 3, 0};
    CHECK(child_is_well(end_on_eight, text, sizeof text));
    check_one_line();
}

CASE(a_run_leaves_behind_who_is_in_a_foreign_call)
{
    foreign_outside_regions(in_plain_sleep);
}

CASE(a_run_leaves_behind_who_returns_after_a_foreign_call)
{
    foreign_outside_regions(in_plain_sleep_at_its_end);
}

CASE(a_run_leaves_behind_who_exits_after_a_foreign_call)
{
    foreign_outside_regions(in_plain_sleep_before_exit);
}

CASE(a_run_leaves_behind_who_then_asks_not_to_be_stopped)
{
    foreign_outside_regions(in_plain_sleep_before_a_region);
}

CASE(a_run_leaves_behind_who_only_computes_and_may_not_be_stopped)
{
    foreign_outside_regions(computing);
}

/* ---- deadlock --------------------------------------------------------------------------------------------------- */

void entry_of_the_stuck(void *arg);
void frame_of_the_stuck(weft_wg *wg);

__attribute__((noinline)) void frame_of_the_stuck(weft_wg *wg)
{
    weft_wg_wait(wg);
    __asm__ volatile("");
}

__attribute__((noinline)) void entry_of_the_stuck(void *arg)
{
    frame_of_the_stuck(arg);
    __asm__ volatile("");
}

static int ids_fd[2];

static void stuck(void *arg)
{
    (void)arg;
    never = (weft_wg){0};
    weft_wg_add(&never, 1);
    uint64_t id = weft_id();
    CHECK_EQ(write(ids_fd[1], &id, sizeof id), sizeof id);
    frame_of_the_stuck(&never);
}

static void get_stuck(void *arg)
{
    never = (weft_wg){0};
    weft_wg_add(&never, 1);
    uint64_t id = weft_id();
    CHECK_EQ(write(ids_fd[1], &id, sizeof id), sizeof id);
    CHECK_EQ(weft_go_with(&(weft_attr){.name = "alpha"}, entry_of_the_stuck, &never), 0);
    CHECK_EQ(weft_go_with(&(weft_attr){.name = "beta"}, entry_of_the_stuck, &never), 0);
    CHECK_EQ(weft_go(entry_of_the_stuck, &never), 0);
    weft_pin();
    if (arg != NULL)
        weft_exit();
    weft_wg_wait(&never);
}

static int deadlock_procs;
static bool deadlock_after_exit;

static void deadlock(void)
{
    CHECK_EQ(run_on(deadlock_procs, get_stuck, deadlock_after_exit ? &never : NULL), -EDEADLK);
    CHECK_EQ(run_on(deadlock_procs, nothing, NULL), 0);
}

static const char *after(const char *at, const char *what)
{
    return at != NULL && (at = strstr(at, what)) != NULL ? at + strlen(what) : NULL;
}

static int occurrences(const char *in, const char *what)
{
    int n = 0;
    while ((in = after(in, what)) != NULL)
        n++;
    return n;
}

static void check_dump(void)
{
    CHECK_EQ(pipe(ids_fd), 0);
    CHECK(child_is_well(deadlock, text, sizeof text));
    uint64_t main_id = 0;
    CHECK_EQ(read(ids_fd[0], &main_id, sizeof main_id), sizeof main_id);
    close(ids_fd[0]);
    close(ids_fd[1]);
    char head[80];
    snprintf(head, sizeof head, "goroutine %llu \"main\"", (unsigned long long)main_id);
    CHECK((strstr(text, head) != NULL) == !deadlock_after_exit);
    int stuck_ones = deadlock_after_exit ? 3 : 4;
    CHECK_EQ(occurrences(text, "\"alpha\""), 1);
    CHECK_EQ(occurrences(text, "\"beta\""), 1);
    CHECK_EQ(occurrences(text, "goroutine "), stuck_ones + occurrences(text, "every goroutine "));
    CHECK_EQ(occurrences(text, "waiting"), stuck_ones);
    CHECK_EQ(occurrences(text, "wait group"), stuck_ones);
    CHECK(occurrences(text, "entry_of_the_stuck") >= 3);
    CHECK(strstr(after(text, "\"alpha\"") != NULL ? after(text, "\"alpha\"") : "", "0x") != NULL);
    if (check_under_emulator())
        return;
    if (occurrences(text, "frame_of_the_stuck") != 3)
        check_fail(__FILE__, __LINE__, "the dump does not show where they wait: %s", text);
}

CASE(a_deadlock_ends_the_run_with_a_dump_of_every_goroutine)
{
    deadlock_after_exit = false;
    for (deadlock_procs = 1; deadlock_procs <= 8; deadlock_procs *= 2)
        check_dump();
}

CASE(a_deadlock_after_main_has_exited_is_one_too)
{
    deadlock_after_exit = true;
    for (deadlock_procs = 1; deadlock_procs <= 8; deadlock_procs *= 2)
        check_dump();
}

static void stuck_after_a_region(void *arg)
{
    sleep_in_region(30);
    weft_yield();
    stuck(arg);
}

static void deadlock_late(void)
{
    CHECK_EQ(pipe(ids_fd), 0);
    EACH_PROCS(p) CHECK_EQ(run_on(p, stuck_after_a_region, NULL), -EDEADLK);
}

CASE(a_goroutine_in_a_blocking_region_is_not_asleep)
{
    CHECK(child_is_well(deadlock_late, text, sizeof text));
}

/* ---- weft_exit in main ------------------------------------------------------------------------------------------ */

static _Atomic int finished;

static void finish_later(void *arg)
{
    (void)arg;
    for (int i = 0; i < 10; i++)
        weft_yield();
    sleep_in_region(5);
    weft_yield();
    finished++;
}

static void start_and_exit(void *arg)
{
    for (int i = 0; i < *(int *)arg; i++)
        CHECK_EQ(weft_go(finish_later, NULL), 0);
    weft_exit();
}

CASE(after_exit_in_main_the_others_run_on_to_their_end)
{
    static const int counts[] = {0, 1, 20};
    for (int i = 0; i < 3; i++) {
        EACH_PROCS(p)
        {
            int n = counts[i];
            finished = 0;
            CHECK_EQ(run_on(p, start_and_exit, &n), 0);
            CHECK_EQ(finished, n);
        }
    }
}

static int recurse_and_exit(int depth)
{
    volatile char frame[200];
    frame[0] = (char)depth;
    if (depth < 0)
        return frame[0];
    if (depth == 0)
        weft_exit();
    return recurse_and_exit(depth - 1) + frame[0];
}

static void exit_from_depth(void *arg)
{
    CHECK_EQ(weft_go(set_flag, arg), 0);
    recurse_and_exit(50);
}

CASE(exit_in_main_may_come_from_deep_inside)
{
    for (int i = 0; i < scaled(200); i++) {
        EACH_PROCS(p)
        {
            _Atomic int flag = 0;
            CHECK_EQ(run_on(p, exit_from_depth, &flag), 0);
            CHECK_EQ(flag, 1);
        }
    }
}
