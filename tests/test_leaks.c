/* SPDX-License-Identifier: MIT */
/* WEFT_DEBUG=leaks: who is still alive when the run ends is listed, and who goes on in a scope that is over is named as such. */
#include "runs.h"
#include <stdlib.h>

static char text[256 << 10]; /* what a child said */

/* ---- goroutines that are left ------------------------------------------------------------------------------------ */

static weft_chan *nobody_sends;
static weft_mutex nobody_unlocks;
static _Atomic int begun;

void frame_that_receives(void *arg);
void frame_that_locks(void *arg);
void frame_that_sleeps(void *arg);
void site_that_starts(void);

__attribute__((noinline)) void frame_that_receives(void *arg)
{
    (void)arg;
    begun++;
    weft_recv(nobody_sends, NULL);
    __asm__ volatile("");
}

__attribute__((noinline)) void frame_that_locks(void *arg)
{
    (void)arg;
    begun++;
    CHECK(weft_lock(&nobody_unlocks) != 0);
    __asm__ volatile("");
}

__attribute__((noinline)) void frame_that_sleeps(void *arg)
{
    (void)arg;
    begun++;
    weft_sleep(3600 * WEFT_SEC);
    __asm__ volatile("");
}

static void end_at_once(void *arg)
{
    (void)arg;
}

__attribute__((noinline)) void site_that_starts(void)
{
    CHECK_EQ(weft_go_with(&(weft_attr){.name = "receiver"}, frame_that_receives, NULL), 0);
    CHECK_EQ(weft_go_with(&(weft_attr){.name = "locker"}, frame_that_locks, NULL), 0);
    CHECK_EQ(weft_go(frame_that_sleeps, NULL), 0);
    CHECK_EQ(weft_go_with(&(weft_attr){.name = "no leak"}, end_at_once, NULL), 0);
    __asm__ volatile("");
}

static void leave_three(void *arg)
{
    (void)arg;
    begun = 0;
    nobody_sends = weft_chan_new(0, 0);
    nobody_unlocks = (weft_mutex){0};
    CHECK_EQ(weft_lock(&nobody_unlocks), 0);
    site_that_starts();
    CHECK(reaches(&begun, 3, 20));
    for (int i = 0; i < 100 || weft_count() > 4; i++)
        weft_yield();
}

/* On one processor that is not taken away, who has begun is waiting when main runs again. */
static void run_alone(weft_fn *fn, int expected)
{
    CHECK_EQ(run_with_own_quantum(&(weft_config){.procs = 1, .quantum = WEFT_NEVER}, fn, NULL), expected);
}

static void run_and_leave(void)
{
    setenv("WEFT_DEBUG", "leaks", 1);
    run_alone(leave_three, 0);
}

/* ---- reading the list ------------------------------------------------------------------------------------------- */

/* The next line that begins with a goroutine, or NULL. */
static const char *next_head(const char *at)
{
    while (at != NULL && strncmp(at, "goroutine ", 10) != 0)
        at = (at = strchr(at, '\n')) != NULL ? at + 1 : NULL;
    return at;
}

static int heads(void)
{
    int n = 0;
    for (const char *at = text; (at = next_head(at)) != NULL; at++)
        n++;
    return n;
}

/* What is said about the first goroutine about which the word is said, or nothing. */
static const char *part_with(const char *word)
{
    static char part[16 << 10];
    for (const char *at = next_head(text), *next; at != NULL; at = next) {
        next = next_head(at + 1);
        snprintf(part, sizeof part, "%.*s", next != NULL ? (int)(next - at) : (int)strlen(at), at);
        if (strstr(part, word) != NULL)
            return part;
    }
    return "";
}

static bool first_line_has(const char *part, const char *word)
{
    const char *at = strstr(part, word);
    return at != NULL && at < part + strcspn(part, "\n");
}

static bool tells(const char *name, const char *waits_in)
{
    const char *part = part_with(name);
    bool place = check_under_emulator() || strstr(part, waits_in) != NULL; /* it has no backtraces */
    return first_line_has(part, "waiting") && strstr(part, "site_that_starts") != NULL && place;
}

/* This machine may stop a thread at any place for long: one of a few tries has to show it all. */
static void some_child_says(check_fn *fn, bool (*all)(void))
{
    bool said = false;
    for (int i = 0; i < 5 && !said; i++) {
        CHECK(child_is_well(fn, text, sizeof text));
        said = all();
    }
    if (!said)
        check_fail(__FILE__, __LINE__, "the list says: %s", text);
}

/* ---- lists ------------------------------------------------------------------------------------------------------ */

static bool lists_three(void)
{
    return heads() == 3 && tells("\"receiver\"", "frame_that_receives") && tells("\"locker\"", "frame_that_locks") &&
           strstr(text, "frame_that_sleeps") != NULL && strstr(text, "no leak") == NULL &&
           strstr(text, "\"main\"") == NULL;
}

CASE(whoever_is_left_is_listed_with_its_start_and_its_wait)
{
    some_child_says(run_and_leave, lists_three);
}

static void run_twice(void)
{
    setenv("WEFT_DEBUG", "leaks", 1);
    run_alone(end_at_once, 0);
    run_alone(leave_three, 0);
    run_alone(end_at_once, 0);
}

CASE(a_run_lists_its_own_only)
{
    some_child_says(run_twice, lists_three);
}

static void exit_main(void *arg)
{
    (void)arg;
    CHECK_EQ(weft_go(end_at_once, NULL), 0);
    weft_exit();
}

static void sleep_briefly(void *arg)
{
    (void)arg;
    CHECK_EQ(weft_sleep(10 * WEFT_USEC), 0);
}

static void scope_main(void *arg)
{
    weft_scope s;
    (void)arg;
    CHECK_EQ(weft_scope_open(&s, WEFT_NEVER), 0);
    for (int i = 0; i < 10; i++)
        CHECK_EQ(weft_scope_go(&s, i % 2 ? sleep_briefly : end_at_once, NULL), 0);
    CHECK_EQ(weft_scope_close(&s), 0);
}

static void ended_main(void *arg)
{
    for (int i = 0; i < 10; i++)
        CHECK_EQ(weft_go(sleep_briefly, arg), 0);
    CHECK(others_have_ended());
}

static void run_without_leaks(void)
{
    setenv("WEFT_DEBUG", "leaks", 1);
    for (int i = 0; i < scaled(50); i++) {
        EACH_PROCS(p)
        {
            CHECK_EQ(run_on(p, end_at_once, NULL), 0);
            CHECK_EQ(run_on(p, exit_main, NULL), 0);
            CHECK_EQ(run_on(p, scope_main, NULL), 0); /* whoever was closed upon has ended */
            CHECK_EQ(run_on(p, ended_main, NULL), 0);
        }
    }
}

/* What is said once in a process, whatever is asked for, is said before the child begins. */
static void let_it_speak(void)
{
    setenv("WEFT_DEBUG", "leaks", 1);
    CHECK_EQ(run_on(1, end_at_once, NULL), 0);
    unsetenv("WEFT_DEBUG");
}

CASE(nothing_is_listed_when_nobody_is_left)
{
    let_it_speak();
    CHECK(child_is_well(run_without_leaks, text, sizeof text));
    if (text[0] != '\0')
        check_fail(__FILE__, __LINE__, "the ends of runs said: %s", text);
}

static void run_unasked(void)
{
    unsetenv("WEFT_DEBUG");
    run_alone(leave_three, 0);
    setenv("WEFT_DEBUG", "", 1);
    run_alone(leave_three, 0);
}

CASE(nothing_is_listed_unless_asked)
{
    CHECK(child_is_well(run_unasked, text, sizeof text));
    if (text[0] != '\0')
        check_fail(__FILE__, __LINE__, "the ends of runs said: %s", text);
}

/* ---- who ignores the end of its scope --------------------------------------------------------------------------- */

void frame_that_ignores(void *arg);

__attribute__((noinline)) void frame_that_ignores(void *arg)
{
    weft_shield();
    frame_that_receives(arg);
    weft_unshield();
}

static void open_and_cancel(void *arg)
{
    weft_scope s;
    (void)arg;
    CHECK_EQ(weft_scope_open(&s, WEFT_NEVER), 0);
    CHECK_EQ(weft_scope_go(&s, frame_that_ignores, NULL), 0);
    while (begun < 2)
        weft_yield();
    weft_scope_cancel(&s, -ECANCELED);
    weft_scope_close(&s);
    CHECK(!"the scope was closed");
}

/* One in a scope that is over waits all the same; one in no scope waits too. */
static void leave_stubborn(void *arg)
{
    (void)arg;
    begun = 0;
    nobody_sends = weft_chan_new(0, 0);
    CHECK_EQ(weft_go_with(&(weft_attr){.name = "innocent"}, frame_that_receives, NULL), 0);
    CHECK_EQ(weft_go_with(&(weft_attr){.name = "opener"}, open_and_cancel, NULL), 0);
    CHECK(reaches(&begun, 2, 20));
    for (int i = 0; i < 100; i++)
        weft_yield();
}

static void leave_stubborn_and_wait(void *arg)
{
    leave_stubborn(arg);
    weft_recv(nobody_sends, NULL);
}

static bool names_the_stubborn(void)
{
    return first_line_has(part_with("frame_that_ignores"), "cancelled") && part_with("\"innocent\"")[0] != '\0' &&
           !first_line_has(part_with("\"innocent\""), "cancelled");
}

static void run_and_leave_stubborn(void)
{
    setenv("WEFT_DEBUG", "leaks", 1);
    run_alone(leave_stubborn, 0);
}

static void run_into_deadlock(void)
{
    unsetenv("WEFT_DEBUG");
    run_alone(leave_stubborn_and_wait, -EDEADLK);
}

CASE(the_list_names_who_goes_on_though_cancelled)
{
    some_child_says(run_and_leave_stubborn, names_the_stubborn);
}

CASE(the_dump_of_a_deadlock_names_who_goes_on_though_cancelled)
{
    some_child_says(run_into_deadlock, names_the_stubborn);
}
