/* SPDX-License-Identifier: MIT */
/*
 * Goroutines of which it is known where they are when all_set is called: run.py asks gdb about them, there or, with the argument
 * `dies`, in the core file that is left. With `crowd` that is never called, and more of them compute than there are Ps. Lines that it
 * looks for end with a comment that names them. Two Ps: one is kept by `steady`, so that the others take turns on the other one, and one of them
 * that computes has been stopped by a signal whenever main goes on.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <weft.h>

static weft_chan *numbers;
static weft_mutex held;
static weft_wg never;
static int pipe_ends[2];
static volatile int stays, dies, crowd;
static atomic_int there, steadily, computed;

/* With the argument `stays` until it is killed: a debugger that runs a program stops threads now and then, and Weft takes those for
 * blocked ones; one that comes later finds everything in its place. */
__attribute__((noinline)) static void all_set(int n)
{
    if (stays) {
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
        puts("all set");
        fflush(stdout);
    }
    while (stays)
        __asm__ volatile("" : : "r"(n) : "memory"); /* all_set */
}

__attribute__((noinline)) static int take_number(int wanted)
{
    int got = 0;
    weft_recv(numbers, &got); /* receiver */
    return got + wanted;
}

static void receiver(void *arg)
{
    int local_to_receiver = 4711;
    atomic_fetch_add(&there, 1);
    take_number(local_to_receiver + (arg != NULL));
}

static void sleeper(void *arg)
{
    (void)arg;
    atomic_fetch_add(&there, 1);
    weft_sleep(3600 * WEFT_SEC); /* sleeper */
}

static void locker(void *arg)
{
    (void)arg;
    atomic_fetch_add(&there, 1);
    weft_lock(&held); /* locker */
}

static void waiter(void *arg)
{
    (void)arg;
    atomic_fetch_add(&there, 1);
    weft_wg_wait(&never);
}

static void blocked(void *arg)
{
    char c;
    (void)arg;
    weft_block_enter();
    atomic_fetch_add(&there, 1);
    if (read(pipe_ends[0], &c, 1) != 1) /* blocked */
        abort();
    weft_block_leave();
}

static void steady(void *arg)
{
    (void)arg;
    weft_preempt_off();
    atomic_store(&steadily, 1);
    while (atomic_load(&steadily))
        ; /* steady */
}

static void computing(void *arg)
{
    (void)arg;
    for (;;)
        atomic_fetch_add(&computed, 1); /* computing */
}

static void fresh(void *arg)
{
    (void)arg;
}

static void start(const char *name, int priority, weft_fn *fn)
{
    weft_attr attr = {.name = name, .priority = priority};
    if (weft_go_with(&attr, fn, NULL) != 0)
        abort();
}

static void in_scope(void)
{
    weft_scope s;
    if (weft_scope_open(&s, WEFT_NEVER) != 0 || weft_scope_go(&s, receiver, &s) != 0)
        abort();
    while (atomic_load(&there) < 9 || atomic_load(&computed) == 0)
        weft_yield();
    for (int i = 0; crowd || i < 100; i++)
        weft_yield();
    weft_go(fresh, NULL);
    weft_preempt_off();
    all_set(9); /* main */
    if (dies)
        abort();
    _exit(0);
}

static void start_all(void *arg)
{
    (void)arg;
    weft_lock(&held);
    weft_wg_add(&never, 1);
    start("steady", WEFT_NORMAL, steady);
    while (!atomic_load(&steadily))
        weft_yield();
    start("numbers", WEFT_HIGH, receiver);
    start("sleeper", WEFT_LOW, sleeper);
    start(NULL, WEFT_NORMAL, locker);
    start("blocked", WEFT_NORMAL, blocked);
    for (int i = 0; i < 4; i++)
        weft_go(waiter, NULL);
    for (int i = 0; i < (crowd ? 4 : 1); i++)
        start("computing", WEFT_NORMAL, computing);
    in_scope();
}

int main(int argc, char **argv)
{
    weft_config config = {.procs = 2};
    stays = argc > 1 && strcmp(argv[1], "stays") == 0;
    dies = argc > 1 && strcmp(argv[1], "dies") == 0;
    crowd = argc > 1 && strcmp(argv[1], "crowd") == 0;
    numbers = weft_chan_new(sizeof(int), 0);
    return numbers == NULL || pipe(pipe_ends) != 0 || weft_run_with(&config, start_all, NULL) != 0;
}
