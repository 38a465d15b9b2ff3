/* SPDX-License-Identifier: MIT */
/*
 * SIGQUIT (Ctrl-\): a dump on stderr, and the end of the process with status 2, as in Go.
 *
 * The handler interrupts anything, so it only asks: the monitor, which no goroutine can keep from running, dumps. Should the monitor
 * be stuck itself, a timer that the handler has started says so: it sends SIGQUIT once a second. The first tick that finds the monitor not
 * at it dumps right there in the handler, as far as that can be done without locks of ours: no lines, and nothing of those who run. If nothing
 * ends, the process does, after some ticks more.
 *
 *      NOTHING ──signal──> ASKED ──monitor──> SERVED ──> the end
 *                            └────tick──────> ALONE ──> the end
 *
 * Only if the program leaves the signal to its default action when the run begins.
 */
#include "dump.h"
#include <string.h>

enum { NOTHING, ASKED, SERVED, ALONE };
enum { STATUS = 2, PATIENCE = 5, LONG_PATIENCE = 60 }; /* ticks */

static struct {
    _Atomic uint32_t asked;
    _Atomic uint32_t ticks;
    bool ours; /* constant while a run is up */
} state;

static void start_ticking(void)
{
    struct sigevent event;
    int timer;
    memset(&event, 0, sizeof event);
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGQUIT;
    event.sigev_value.sival_ptr = &state;
    struct {
        struct timespec period, first;
    } second = {{.tv_sec = 1}, {.tv_sec = 1}};
    if (W_RESULT(syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &timer)) == 0)
        W_RESULT(syscall(SYS_timer_settime, timer, 0, &second, NULL));
}

static void end_process(void)
{
    syscall(SYS_exit_group, STATUS);
}

static void on_tick(void)
{
    uint32_t s = ASKED, ticks = add_relaxed(&state.ticks, 1);
    if (cas_acquire(&state.asked, &s, ALONE)) { /* [SQ-1] */
        w_say("SIGQUIT: the monitor does not answer; without lines, and without those who run:");
        w_dump_here(STDERR_FILENO, true);
        end_process();
    }
    if (ticks >= (s == SERVED ? LONG_PATIENCE : PATIENCE)) {
        w_say("SIGQUIT: the dump does not come to an end");
        end_process();
    }
}

static void on_quit(int sig, siginfo_t *info, void *context)
{
    uint32_t s = NOTHING;
    (void)sig, (void)context;
    if (info->si_code == SI_TIMER && info->si_value.sival_ptr == &state) {
        on_tick();
    } else if (cas_release(&state.asked, &s, ASKED)) { /* [SQ-1] */
        start_ticking();
        w_monitor_wake();
    }
}

void w_sigquit_serve(void)
{
    uint32_t s = ASKED;
    if (likely(ld_relaxed(&state.asked) == NOTHING) || !cas_acquire(&state.asked, &s, SERVED)) /* [SQ-1] */
        return;
    w_say("SIGQUIT: what every goroutine does:");
    w_dump_here(STDERR_FILENO, false);
    end_process();
}

void w_sigquit_init(void)
{
    struct sigaction now, sa = {.sa_sigaction = on_quit, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
    sigemptyset(&sa.sa_mask);
    state.ours = sigaction(SIGQUIT, NULL, &now) == 0 && !(now.sa_flags & SA_SIGINFO) && now.sa_handler == SIG_DFL &&
                 sigaction(SIGQUIT, &sa, NULL) == 0;
}

/* Unless the program has put its own in place meanwhile. */
void w_sigquit_done(void)
{
    struct sigaction now;
    w_sigquit_serve();
    if (state.ours && sigaction(SIGQUIT, NULL, &now) == 0 && now.sa_flags & SA_SIGINFO && now.sa_sigaction == on_quit)
        sigaction(SIGQUIT, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
    state.ours = false;
}
