/* SPDX-License-Identifier: MIT */
/* The flight recorder: the last events, when somebody asks and when the program dies. */
#include "stuck.h"
#include "tracefile.h"

enum { SMALL = 64 << 10 };

static char path[64];

void last_of_all(void *arg); /* which the dynamic linker knows */
void last_of_all(void *arg)
{
    weft_wg_done(arg);
}

static void any(void *arg)
{
    weft_wg_done(arg);
}

static void run_one(weft_fn *fn)
{
    weft_wg wg = {0};
    weft_wg_add(&wg, 1);
    weft_go(fn, &wg);
    weft_wg_wait(&wg);
}

/* More than the recorder has room for, then one more. */
static void make_events(void)
{
    for (int i = 0; i < 20000; i++)
        run_one(any);
    run_one(last_of_all);
}

static bool mentions(const struct trace_file *t, const char *name)
{
    for (int i = 0; i < t->n; i++)
        if (t->event[i].ph == 'X' && strncmp(t->event[i].name, name, strlen(name)) == 0)
            return true;
    return false;
}

static void check_last(const char *file)
{
    struct trace_file t = read_trace(file);
    CHECK(t.complete);
    CHECK(mentions(&t, "last_of_all "));
    CHECK(count_events(&t, 'i', "spawn") < 20000);
    check_slices(&t);
    check_arrows(&t);
    free_trace(&t);
}

/* ---- on demand -------------------------------------------------------------------------------------------------- */

static void asks(void *arg)
{
    (void)arg;
    CHECK_EQ(weft_flight_dump(path), -ESRCH);
    CHECK_EQ(weft_flight_start(0), -EINVAL);
    CHECK_EQ(weft_flight_start(SMALL), 0);
    CHECK_EQ(weft_flight_start(SMALL), -EBUSY);
    make_events();
    CHECK_EQ(weft_flight_dump(NULL), -EINVAL);
    CHECK_EQ(weft_flight_dump("/nowhere/at/all"), -ENOENT);
    CHECK_EQ(weft_flight_dump("/dev/full"), -ENOSPC);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(weft_flight_dump(path), 0);
        check_last(path);
    }
}

CASE(the_last_events_are_written_on_demand)
{
    EACH_PROCS(p)
    {
        temporary(path, ".json");
        CHECK_EQ(run_on(p, asks, NULL), 0);
        CHECK_EQ(weft_flight_start(SMALL), -EPERM);
        CHECK_EQ(weft_flight_dump(path), -EPERM);
        remove(path);
    }
}

static void is_not_read(void *arg)
{
    const struct unread *u = arg;
    CHECK_EQ(weft_flight_start(SMALL), 0);
    make_events();
    CHECK_EQ(weft_flight_dump(u->path), -ETIMEDOUT);
}

CASE(a_pipe_that_nobody_reads_is_given_up)
{
    struct unread u = unread_pipe();
    CHECK_EQ(run_on(2, is_not_read, &u), 0);
    close_unread(&u);
}

static _Atomic int over;

static void goes_on(void *arg)
{
    for (int i = 0; !over; i++) {
        run_one(any);
        if (i % 1000 == 0)
            weft_sleep(WEFT_MSEC);
    }
    weft_wg_done(arg);
}

/* What is overwritten while it is read is left out. A trace may be made at the same time. */
static void asks_often(void *arg)
{
    char other[64];
    weft_wg wg = {0};
    (void)arg;
    temporary(other, ".json");
    over = 0;
    CHECK_EQ(weft_flight_start(SMALL), 0);
    weft_wg_add(&wg, 2);
    weft_go(goes_on, &wg);
    weft_go(goes_on, &wg);
    for (int i = 0; i < scaled(4); i++) {
        CHECK_EQ(weft_trace_start(other), 0);
        CHECK_EQ(weft_flight_dump(path), 0);
        CHECK_EQ(weft_trace_stop(), 0);
        for (int k = 0; k < 2; k++) {
            struct trace_file t = read_trace(k == 0 ? path : other);
            CHECK(t.complete && t.n > 0);
            check_slices(&t);
            check_arrows(&t);
            free_trace(&t);
        }
    }
    over = 1;
    weft_wg_wait(&wg);
    remove(other);
}

CASE(it_is_read_while_everything_runs)
{
    EACH_PROCS(p)
    {
        temporary(path, ".json");
        CHECK_EQ(run_on(p, asks_often, NULL), 0);
        remove(path);
    }
}

/* ---- the end of a program --------------------------------------------------------------------------------------- */

static void waits_for_nobody(void *arg)
{
    weft_wg wg = {0};
    (void)arg;
    make_events();
    weft_wg_add(&wg, 1);
    weft_wg_wait(&wg);
}

static void dies_asleep(void)
{
    _exit(run_on(2, waits_for_nobody, NULL) == -EDEADLK ? 0 : 1);
}

static void aborts(void *arg)
{
    (void)arg;
    make_events();
    abort();
}

static void dies_by_abort(void)
{
    run_on(2, aborts, NULL);
}

static void divides(void *arg)
{
    (void)arg;
    make_events();
    raise(SIGFPE); /* aarch64 divides by nothing without a word */
}

static void dies_of_arithmetic(void)
{
    run_on(2, divides, NULL);
}

static void misuses(void *arg)
{
    (void)arg;
    make_events();
    weft_unpin();
}

static void dies_of_misuse(void)
{
    run_on(2, misuses, NULL);
}

static int *_Atomic nowhere;

static void faults(void *arg)
{
    (void)arg;
    make_events();
    if (check_under_asan())
        raise(SIGSEGV); /* it would see the store before the processor does */
    *nowhere = 1;
}

static void dies_of_a_fault(void)
{
    run_on(2, faults, NULL);
}

/* The child's last words name the file. */
static void check_child_leaves(check_fn *fn, int signal, const char *cause)
{
    char text[16384];
    temporary(path, ".json");
    setenv("WEFT_FLIGHT", "1", 1);
    setenv("WEFT_FLIGHT_FILE", path, 1);
    int status = check_child(fn, text, sizeof text);
    unsetenv("WEFT_FLIGHT");
    unsetenv("WEFT_FLIGHT_FILE");
    CHECK_EQ(WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status), signal);
    if (strstr(text, cause) == NULL || strstr(text, path) == NULL)
        check_fail(__FILE__, __LINE__, "expected \"%s\" and the file in: %s", cause, text);
    check_last(path);
    remove(path);
}

CASE(a_deadlock_leaves_them)
{
    check_child_leaves(dies_asleep, 0, "deadlock: the last events are in ");
}

CASE(an_abort_leaves_them)
{
    check_child_leaves(dies_by_abort, SIGABRT, "SIGABRT: the last events are in ");
}

CASE(so_does_a_fault_of_arithmetic)
{
    if (check_under_tsan() || check_under_asan())
        skipped("the sanitizer has the signal");
    else
        check_child_leaves(dies_of_arithmetic, SIGFPE, "SIGFPE: the last events are in ");
}

CASE(a_fatal_error_leaves_them)
{
    check_child_leaves(dies_of_misuse, SIGABRT, "SIGABRT: the last events are in ");
}

CASE(a_fault_leaves_them)
{
    if (check_under_tsan()) {
        skipped("ThreadSanitizer has the signal");
        return;
    }
    check_child_leaves(dies_of_a_fault, SIGSEGV, "SIGSEGV: the last events are in ");
}

static void aborts_beside_a_loader(void *arg)
{
    (void)arg;
    make_events();
    hold_the_linkers_lock();
    abort();
}

static void dies_beside_a_loader(void)
{
    run_on(2, aborts_beside_a_loader, NULL);
}

CASE(who_dies_waits_for_nobody_who_loads_an_object)
{
    if (crashes_take_the_linkers_lock() || check_under_tsan())
        skipped("libc or the sanitizer takes the linker's lock");
    else
        check_child_leaves(dies_beside_a_loader, SIGABRT, "SIGABRT: the last events are in ");
}

static void nothing(void *arg)
{
    (void)arg;
}

CASE(a_size_that_makes_no_sense_is_refused)
{
    setenv("WEFT_FLIGHT", "much", 1);
    CHECK_EQ(run_on(1, nothing, NULL), -EINVAL);
    unsetenv("WEFT_FLIGHT");
}
