/* SPDX-License-Identifier: MIT */
/* Who computes and calls nothing lets others run, and goes on later; but not where it said that it must not be stopped. */
#include "preempts.h"
#include <fcntl.h>

enum { HOGS = 16 };

/* ---- others run -------------------------------------------------------------------------------------------------- */

static struct {
    _Atomic long turns;
    _Atomic long moves; /* to other threads */
} hogs[HOGS];

static void hog(void *arg)
{
    int i = (int)(intptr_t)arg;
    forget_registers(); /* an address of the thread that lies about there would pin it */
    for (uintptr_t last = thread_mark(); !over; hogs[i].turns++) {
        uintptr_t now = thread_mark();
        if (now != last)
            hogs[i].moves++;
        last = now;
    }
}

static void hogs_start(int n)
{
    over = false;
    for (int i = 0; i < n; i++) {
        hogs[i].turns = hogs[i].moves = 0;
        CHECK_EQ(weft_go(hog, (void *)(intptr_t)i), 0);
    }
}

/* Each of them gets on, so many times. */
static void all_get_on(int n, int times)
{
    long before[HOGS];
    for (int t = 0; t < times; t++) {
        for (int i = 0; i < n; i++)
            before[i] = hogs[i].turns;
        for (int i = 0; i < n; i++)
            CHECK(comes_to(&hogs[i].turns, before[i] + 1));
    }
}

static void hogs_main(void *arg)
{
    int n = 2 * weft_procs(0);
    (void)arg;
    hogs_start(n);
    all_get_on(n, 5);
    CHECK(stops() > 0);
    end_all();
}

CASE(who_calls_nothing_lets_others_run_and_goes_on_later)
{
    if (never_stopped())
        return;
    EACH_PROCS(p) CHECK_EQ(run_on(p, hogs_main, NULL), 0);
}

static void moves_main(void *arg)
{
    int n = 2 * weft_procs(0);
    (void)arg;
    hogs_start(n);
    for (int i = 0; i < n; i++)
        CHECK(comes_to(&hogs[i].moves, 1));
    end_all();
}

CASE(who_was_stopped_goes_on_on_any_thread)
{
    if (never_stopped())
        return;
    CHECK_EQ(run_on(2, moves_main, NULL), 0);
    CHECK_EQ(run_on(8, moves_main, NULL), 0);
}

/* The main goroutine too. */
static void main_hogs(void *arg)
{
    beats_start();
    (void)arg;
    for (long before = beats; beats < before + 10;)
        ;
    end_all();
}

CASE(the_main_goroutine_is_stopped_like_any_other)
{
    if (never_stopped())
        return;
    CHECK_EQ(run_on(1, main_hogs, NULL), 0);
}

static void hog_pinned(void *arg)
{
    weft_pin();
    hog(arg);
    weft_unpin();
}

static void pinned_main(void *arg)
{
    int n = 2 * weft_procs(0);
    (void)arg;
    over = false;
    for (int i = 0; i < n; i++) {
        hogs[i].turns = hogs[i].moves = 0;
        CHECK_EQ(weft_go(i % 2 ? hog : hog_pinned, (void *)(intptr_t)i), 0);
    }
    all_get_on(n, 5);
    for (int i = 0; i < n; i += 2)
        CHECK_EQ(hogs[i].moves, 0);
    end_all();
}

CASE(a_pinned_one_is_stopped_and_goes_on_on_its_thread)
{
    if (never_stopped())
        return;
    EACH_PROCS(p) CHECK_EQ(run_on(p, pinned_main, NULL), 0);
}

/* ---- regions in which nobody is stopped --------------------------------------------------------------------------- */

struct moment {
    long beats, stops, losses;
};

static struct moment now(void)
{
    return (struct moment){beats, stops(), losses()};
}

/* Unless the P was lost: then it shows nothing. */
static __attribute__((noinline)) void nobody_else_ran(struct moment since)
{
    struct moment m = now();
    if (losses() != since.losses)
        return;
    CHECK_EQ(m.beats, since.beats);
    CHECK_EQ(m.stops, since.stops);
}

/* On one P: what others do while we are in the region shows. */
static void off_main(void *arg)
{
    (void)arg;
    beats_start();
    pest_start();
    for (int i = 0; i < 10; i++) {
        weft_preempt_off();
        struct moment before = now();
        outlast(5);
        nobody_else_ran(before);
        weft_preempt_off();
        outlast(5);
        weft_cancelled(); /* nor at a call */
        nobody_else_ran(before);
        weft_preempt_on();
        outlast(5);
        nobody_else_ran(before);
        bool waits = ld_relaxed(&w_sched.globq.len) > 0 ||
                     w_p_work(w_sched.ps[0]) > 0; /* not if it lost its P, and lacks a core */
        uint64_t switches = ld_relaxed(&w_sched.ps[0]->count.switches);
        weft_preempt_on(); /* it may be asked to let us run again before it has done anything */
        CHECK(ld_relaxed(&w_sched.ps[0]->count.switches) > switches || !waits || losses() != before.losses);
        long stopped = stops();
        while (stops() == stopped)
            ;
        weft_yield(); /* if the P was lost, we have one again */
    }
    pest_stop();
    end_all();
}

CASE(between_off_and_on_nobody_is_stopped_and_right_at_the_last_on_others_run)
{
    if (never_stopped())
        return;
    CHECK_EQ(run_on(1, off_main, NULL), 0);
}

static void *from_outside(void *arg)
{
    weft_preempt_off();
    weft_preempt_on();
    weft_preempt_on();
    return arg;
}

static void outside_main(void *arg)
{
    pthread_t thread;
    (void)arg;
    CHECK_EQ(pthread_create(&thread, NULL, from_outside, NULL), 0);
    join_in_region(&thread, 1);
}

CASE(on_other_threads_the_region_means_nothing)
{
    from_outside(NULL);
    CHECK_EQ(run_on(1, outside_main, NULL), 0);
}

static void on_alone(void *arg)
{
    (void)arg;
    weft_preempt_off();
    weft_preempt_on();
    weft_preempt_on();
}

static void run_on_alone(void)
{
    run_on(1, on_alone, NULL);
}

CASE(on_without_off_aborts_with_a_line)
{
    aborts_with_one_line(run_on_alone, "weft_preempt_on without weft_preempt_off");
}

/* It ends inside the region: the next that has its G is not in one. */
static void end_inside(void *arg)
{
    (void)arg;
    weft_preempt_off();
}

static void end_inside_main(void *arg)
{
    (void)arg;
    for (int i = 0; i < 10; i++) {
        CHECK_EQ(weft_go(end_inside, NULL), 0);
        CHECK(others_have_ended());
    }
    hogs_start(2);
    all_get_on(2, 3);
    end_all();
}

CASE(the_region_of_one_that_ended_is_over)
{
    if (never_stopped())
        return;
    CHECK_EQ(run_on(1, end_inside_main, NULL), 0);
}

static __attribute__((noinline)) bool still_in_region(void)
{
    return ld_relaxed(&w_m()->blocked_p) != NULL;
}

static void blocking_main(void *arg)
{
    (void)arg;
    beats_start();
    pest.only = -1;
    pest_start();
    for (int i = 0; i < 20; i++) {
        weft_block_enter();
        pest.only = gettid();
        outlast(5);
        CHECK(still_in_region());
        weft_block_leave();
    }
    pest_stop();
    pest.only = 0;
    end_all();
}

CASE(in_a_blocking_region_nobody_is_stopped)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, blocking_main, NULL), 0);
}

static void never_main(void *arg)
{
    (void)arg;
    beats_start();
    long before = beats;
    pest_start();
    outlast(300);
    CHECK(nobody_ran_since(before));
    CHECK_EQ(stops(), 0);
    pest_stop();
    end_all();
}

CASE(with_a_quantum_of_never_nobody_is_stopped)
{
    CHECK_EQ(run_with_own_quantum(&(weft_config){.procs = 1, .quantum = WEFT_NEVER}, never_main, NULL), 0);
}

/* ---- inside the runtime ------------------------------------------------------------------------------------------- */

struct work {
    weft_chan *ch;
    weft_mutex mu;
    long under_lock; /* mu */
    _Atomic long sum;
    weft_wg wg;
    int each;
};

static void add_one(void *arg)
{
    ((struct work *)arg)->sum++;
    weft_wg_done(&((struct work *)arg)->wg);
}

static void send_some(void *arg)
{
    struct work *w = arg;
    for (int i = 0; i < w->each; i++) {
        CHECK_EQ(weft_send(w->ch, &i), 0);
        CHECK_EQ(weft_lock(&w->mu), 0);
        w->under_lock++;
        weft_unlock(&w->mu);
        weft_wg_add(&w->wg, 1);
        CHECK_EQ(weft_go(add_one, w), 0);
    }
    weft_wg_done(&w->wg);
}

static void receive_some(void *arg)
{
    struct work *w = arg;
    int v;
    for (int i = 0; i < w->each; i++) {
        CHECK_EQ(weft_recv(w->ch, &v), 0);
        w->sum++;
    }
    weft_wg_done(&w->wg);
}

static void work_main(void *arg)
{
    enum { PAIRS = 8 };
    struct work w = {.ch = weft_chan_new(sizeof(int), 2), .each = scaled(3000)};
    (void)arg;
    over = false;
    CHECK_EQ(weft_go(hog, NULL), 0);
    pest_start();
    weft_wg_add(&w.wg, 2 * PAIRS);
    for (int i = 0; i < PAIRS; i++) {
        CHECK_EQ(weft_go(send_some, &w), 0);
        CHECK_EQ(weft_go(receive_some, &w), 0);
    }
    CHECK_EQ(weft_wg_wait(&w.wg), 0);
    CHECK_EQ(w.sum, 2l * PAIRS * w.each);
    CHECK_EQ(w.under_lock, (long)PAIRS * w.each);
    pest_stop();
    end_all();
    weft_chan_free(w.ch);
}

CASE(nothing_is_lost_when_signals_come_at_any_moment)
{
    if (never_stopped())
        return;
    EACH_PROCS(p) CHECK_EQ(run_on(p, work_main, NULL), 0);
}

/* ---- the end of a run --------------------------------------------------------------------------------------------- */

static void hog_for_ever(void *arg)
{
    for (_Atomic long *n = arg;;)
        ++*n;
}

static void leave_hogs_main(void *arg)
{
    int n = 2 * weft_procs(0);
    (void)arg;
    for (int i = 0; i < n; i++) {
        hogs[i].turns = 0;
        CHECK_EQ(weft_go(hog_for_ever, (void *)&hogs[i].turns), 0);
    }
    all_get_on(n, 1);
}

static void leave_hogs(void)
{
    for (int i = 0; i < 5; i++)
        EACH_PROCS(p) CHECK_EQ(run_on(p, leave_hogs_main, NULL), 0);
    CHECK_EQ(check_threads_in_the_end(), 1);
}

CASE(a_run_ends_while_hogs_compute_and_no_thread_stays)
{
    static char text[16 << 10];
    if (never_stopped())
        return;
    CHECK(child_is_well(leave_hogs, text, sizeof text));
    CHECK_EQ(text[0], '\0');
}

/* More threads that are blocked without a word than are looked at in one go, before and behind those who compute. */
enum { BLOCKED = 150, FEW_HOGS = 4 };
static int never_written[2];

static void block_for_ever(void *arg)
{
    char byte;
    atomic_fetch_add((_Atomic int *)arg, 1);
    CHECK_EQ(read(never_written[0], &byte, 1), 0);
}

/* On a thread that was there before those who block. */
static void hog_in_its_place(void *arg)
{
    weft_pin();
    hog_for_ever(arg);
}

static void leave_blocked_main(void *arg)
{
    static _Atomic int blocked;
    (void)arg;
    blocked = 0;
    for (int i = 0; i < FEW_HOGS / 2; i++)
        CHECK_EQ(weft_go(hog_in_its_place, (void *)&hogs[i].turns), 0);
    all_get_on(FEW_HOGS / 2, 1);
    for (int i = 0; i < BLOCKED; i++)
        CHECK_EQ(weft_go(block_for_ever, (void *)&blocked), 0);
    for (int64_t end = weft_now() + 60 * WEFT_SEC; blocked < BLOCKED && weft_now() < end;)
        weft_sleep(WEFT_MSEC);
    for (int i = FEW_HOGS / 2; i < FEW_HOGS; i++)
        CHECK_EQ(weft_go(hog_for_ever, (void *)&hogs[i].turns), 0);
    all_get_on(FEW_HOGS, 1);
}

static void leave_blocked(void)
{
    long before[FEW_HOGS];
    CHECK_EQ(pipe2(never_written, O_CLOEXEC), 0);
    CHECK_EQ(run_on(4, leave_blocked_main, NULL), 0);
    for (int i = 0; i < FEW_HOGS; i++)
        before[i] = hogs[i].turns;
    usleep(20000);
    for (int i = 0; i < FEW_HOGS; i++)
        CHECK_EQ(hogs[i].turns, before[i]);
    close(never_written[1]);
    CHECK_EQ(check_threads_in_the_end(), 1);
}

CASE(hogs_are_stopped_in_the_end_however_many_threads_are_blocked)
{
    static char text[64 << 10];
    if (!never_stopped())
        CHECK(child_is_well(leave_blocked, text, sizeof text));
}

/* ---- what is shown ------------------------------------------------------------------------------------------------ */

void frame_that_computes(_Atomic long *n);
void entry_of_computing(void *arg);

__attribute__((noinline)) void frame_that_computes(_Atomic long *n)
{
    while (++*n != -1)
        ;
}

__attribute__((noinline)) void entry_of_computing(void *arg)
{
    frame_that_computes(arg);
    __asm__ volatile("");
}

/* Main runs on the only P, so the other one is stopped. */
static void shown_main(void *arg)
{
    (void)arg;
    hogs[0].turns = 0;
    CHECK_EQ(weft_go(entry_of_computing, (void *)&hogs[0].turns), 0);
    all_get_on(1, 3);
}

static void run_shown(void)
{
    setenv("WEFT_DEBUG", "leaks", 1);
    CHECK_EQ(run_on(1, shown_main, NULL), 0);
}

CASE(the_backtrace_of_one_that_was_stopped_shows_where)
{
    static char text[64 << 10];
    if (never_stopped())
        return;
    CHECK(child_is_well(run_shown, text, sizeof text));
    const char *at = strstr(text, "[preempted"), *trace = at != NULL ? strstr(at, "#0") : NULL;
    if (check_under_emulator()) {
        skipped("an emulator has no backtraces");
        return;
    }
    if (trace == NULL || strstr(trace, "frame_that_computes") == NULL || strstr(trace, "entry_of_computing") == NULL)
        check_fail(__FILE__, __LINE__, "the list says: %s", text);
}
