/* SPDX-License-Identifier: MIT */
/*
 * How soon the kernel lets a thread that computes hear of something, and what that costs it: a signal is all that there is. Two
 * threads compute, each kept on a CPU of its own, as two Ps would; what a goroutine of high priority would do is done by the handler.
 */
#include "../pending.h"
#include "bare.h"

#include <sched.h>

enum { COMPUTING = 2 };

static struct {
    size_t wanted;
    pthread_t threads[COMPUTING];
    _Atomic int cpus[COMPUTING]; /* that they keep to */
    _Atomic int64_t since;       /* what the handler waits for was at that time; 0: it has heard of it */
    int64_t times[SAMPLES];
    _Atomic size_t n;
    timer_t timer;
} fair;

static void note(int64_t ns)
{
    if (fair.n < fair.wanted)
        fair.times[fair.n++] = ns;
}

static bool enough(void)
{
    return fair.n >= fair.wanted || !hogs_go_on();
}

/* Of those that it may use, the one with that number, or the last. */
static int keep_on_cpu(int nth)
{
    int kept = 0;
    cpu_set_t usable, one;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof usable, &usable) != 0)
        die("sched_getaffinity", errno);
    for (int cpu = 0; cpu < CPU_SETSIZE && nth >= 0; cpu++)
        if (CPU_ISSET(cpu, &usable)) {
            kept = cpu;
            nth--;
        }
    CPU_SET(kept, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0)
        die("sched_setaffinity", errno);
    return kept;
}

static void *compute(void *nth)
{
    int i = (int)(intptr_t)nth;
    fair.cpus[i] = keep_on_cpu(i);
    be_a_hog();
    return NULL;
}

static void handle(void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    if (sigaction(TOLD, &action, NULL) != 0)
        die("sigaction", errno);
    fair.wanted = wanted_samples();
}

/* The first of them may begin with something else. */
static void start_computing(void (*handler)(int), void *(*first)(void *))
{
    handle(handler);
    limit_hogs();
    for (intptr_t i = 0; i < COMPUTING; i++)
        must("pthread_create", -pthread_create(&fair.threads[i], NULL, i == 0 ? first : compute, (void *)i));
}

static void end_computing(const struct workload *w)
{
    stop_hogs();
    for (int i = 0; i < COMPUTING; i++)
        must("pthread_join", -pthread_join(fair.threads[i], NULL));
    report_spread_us(w, fair.times, fair.n);
}

static void rest_a_period(void)
{
    nanosleep(&(struct timespec){.tv_nsec = PERIOD_NS}, NULL);
}

/* ---- preempt_high: a timer of the kernel's interrupts the first of them ------------------------------------------- */

static void set_timer(void)
{
    int64_t due = now_ns() + PERIOD_NS;
    fair.since = due;
    struct itimerspec at = {.it_value = {.tv_sec = due / 1000000000, .tv_nsec = due % 1000000000}};
    timer_settime(fair.timer, TIMER_ABSTIME, &at, NULL);
}

static void timer_rang(int signal)
{
    (void)signal;
    note(now_ns() - fair.since);
    if (!enough())
        set_timer();
}

/* It makes the timer, which names its thread. */
static void *compute_by_timer(void *nth)
{
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = TOLD};
    event._sigev_un._tid = gettid();
    if (timer_create(CLOCK_MONOTONIC, &event, &fair.timer) != 0)
        die("timer_create", errno);
    set_timer();
    return compute(nth);
}

void preempt(const struct workload *w)
{
    start_computing(timer_rang, compute_by_timer);
    while (!enough())
        nanosleep(&(struct timespec){.tv_nsec = 50 * PERIOD_NS}, NULL);
    end_computing(w);
}

/* ---- ready_high: a third thread interrupts the one on whose CPU it woke up, or the first ------------------------ */

static void was_told(int signal)
{
    (void)signal;
    int64_t since = fair.since;
    if (since != 0)
        note(now_ns() - since);
    fair.since = 0;
}

void ready(const struct workload *w)
{
    start_computing(was_told, compute);
    while (!enough()) {
        rest_a_period();
        if (fair.since != 0)
            continue; /* it has not heard yet */
        fair.since = now_ns();
        pthread_kill(fair.threads[fair.cpus[1] == sched_getcpu()], TOLD);
    }
    end_computing(w);
}

/* ---- preempt_cost: what one that looks at the clock all the time loses by a signal that does nothing ------------ */

static _Atomic bool interrupted;

static void does_nothing(int signal)
{
    (void)signal;
    interrupted = true;
}

static void *watch_clock(void *arg)
{
    int64_t before = now_ns(), last = 0; /* between the two looks before, if it was interrupted then or right after */
    while (!enough()) {
        burn(BURN_BETWEEN_LOOKS);
        int64_t now = now_ns(), took = now - before;
        if (last != 0)
            note(took > last ? took : last);
        last = atomic_exchange(&interrupted, false) ? took : 0;
        before = now;
    }
    return arg;
}

static void measure_watcher(const struct workload *w, void *(*watcher)(void *))
{
    pthread_t thread;
    handle(does_nothing);
    limit_hogs();
    must("pthread_create", -pthread_create(&thread, NULL, watcher, NULL));
    while (!enough()) {
        rest_a_period();
        pthread_kill(thread, TOLD);
    }
    must("pthread_join", -pthread_join(thread, NULL));
    report_spread_us(w, fair.times, fair.n);
}

void preempt_cost(const struct workload *w)
{
    measure_watcher(w, watch_clock);
}

/* ---- preempt_own: what a signal that does nothing costs its thread, from the moment when that lets it in ------------ */

static void *let_in_often(void *arg)
{
    while (!enough()) {
        keep_out_until_one_waits();
        int64_t before = now_ns();
        let_in(true);
        note(now_ns() - before);
    }
    return arg;
}

void preempt_own(const struct workload *w)
{
    measure_watcher(w, let_in_often);
}
