/* SPDX-License-Identifier: MIT */
/* SIGQUIT: everybody is dumped, whatever the program is doing, and it ends. */
#include "dumps.h"
#include "whitebox.h"
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

static weft_chan *ch;
static _Atomic int begun, over;
static int procs;

/* Functions that a dump is to name have names for others. */
void receives(void *arg);
void hogs(void *arg);

void receives(void *arg)
{
    (void)arg;
    begun++;
    weft_recv(ch, NULL);
    __asm__ volatile("");
}

__attribute__((noinline)) void hogs(void *arg)
{
    begun++;
    for (volatile long i = 0; !over; i++)
        ;
    (void)arg;
}

static void set_up(void)
{
    begun = over = 0;
    CHECK((ch = weft_chan_new(0, 0)) != NULL);
}

static void start(const char *name, weft_fn *fn)
{
    CHECK_EQ(weft_go_with(&(weft_attr){.name = name}, fn, NULL), 0);
}

static void dump_to_nobody(void *arg)
{
    (void)arg;
    CHECK(weft_dump(-1) < 0);
}

/* ---- it is dumped ------------------------------------------------------------------------------------------------- */

static void *quits(void *arg)
{
    (void)arg;
    usleep(100000);
    kill(getpid(), SIGQUIT);
    return NULL;
}

static void hogs_everywhere(void *arg)
{
    pthread_t thread;
    (void)arg;
    set_up();
    for (int i = 0; i < procs; i++)
        start("a hog", hogs);
    CHECK_EQ(pthread_create(&thread, NULL, quits, NULL), 0);
    hogs(NULL);
}

static void everybody_sleeps(void *arg)
{
    pthread_t thread;
    (void)arg;
    set_up();
    start("a receiver", receives);
    CHECK_EQ(pthread_create(&thread, NULL, quits, NULL), 0);
    weft_sleep(3600 * WEFT_SEC);
}

static weft_fn *quitter;

static void run_quitter(void)
{
    run_on(procs, quitter, NULL);
    _exit(0);
}

static void is_dumped(weft_fn *fn, const char *what)
{
    for (procs = 1; procs <= 8; procs = procs == 2 ? 8 : procs * 2) {
        quitter = fn;
        int status = check_child(run_quitter, text, sizeof text);
        CHECK(WIFEXITED(status));
        CHECK_EQ(WEXITSTATUS(status), 2);
        CHECK(says(text, "SIGQUIT"));
        CHECK(says(text, what));
        CHECK(says(text, "\"main\" ["));
        if (procs == 8)
            break;
    }
}

CASE(sigquit_dumps_a_program_that_computes_and_ends_it)
{
    if (check_under_tsan()) { /* for ever, in a thread that computes */
        skipped("ThreadSanitizer delays signals");
        return;
    }
    is_dumped(hogs_everywhere, " hogs+0x");
}

CASE(sigquit_dumps_a_program_that_sleeps_and_ends_it)
{
    is_dumped(everybody_sleeps, "waiting: receive from channel");
}

/* Somebody has the scheduler's lock, and keeps it: the monitor waits for it in vain. */
static void *quits_with_lock(void *arg)
{
    w_lock(&w_sched.lock, W_RANK_SCHED);
    return quits(arg);
}

static void nobody_can_do_anything(void *arg)
{
    pthread_t thread;
    (void)arg;
    set_up();
    start("a receiver", receives);
    CHECK(reaches(&begun, 1, 20));
    CHECK_EQ(pthread_create(&thread, NULL, quits_with_lock, NULL), 0);
    hogs(NULL);
}

CASE(sigquit_dumps_when_the_monitor_is_stuck_too)
{
    if (check_under_tsan()) {
        skipped("ThreadSanitizer delays signals");
        return;
    }
    procs = 2;
    quitter = nobody_can_do_anything;
    int status = check_child(run_quitter, text, sizeof text);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 2);
    CHECK(says(text, "the monitor does not answer"));
    CHECK(says(entry_with("\"a receiver\""), " receives+0x"));
}

/* ---- whose signal it is ------------------------------------------------------------------------------------------- */

static void own_handler(int sig)
{
    (void)sig;
    over = 1;
}

static void sends_itself_quit(void *arg)
{
    (void)arg;
    over = 0;
    kill(getpid(), SIGQUIT);
    for (int i = 0; i < 1000 && !over; i++)
        weft_sleep(WEFT_MSEC);
    CHECK(over);
}

CASE(a_program_with_a_handler_of_its_own_keeps_it)
{
    struct sigaction former, sa = {.sa_handler = own_handler};
    sigaction(SIGQUIT, &sa, &former);
    CHECK_EQ(run_on(2, sends_itself_quit, NULL), 0);
    sigaction(SIGQUIT, &former, NULL);
}

CASE(the_signal_is_as_before_when_the_run_has_ended)
{
    struct sigaction now;
    CHECK_EQ(run_on(1, dump_to_nobody, NULL), 0);
    CHECK_EQ(sigaction(SIGQUIT, NULL, &now), 0);
    CHECK(now.sa_handler == SIG_DFL);
}
