/* SPDX-License-Identifier: MIT */
/*
 * What belongs to a thread stays with it when goroutines are stopped on one and go on on another: thread-local storage whose address
 * somebody holds, the alternate stack, the signal mask. And how much stack it takes.
 */
#include "preempts.h"

/* ---- addresses in thread-local storage ---------------------------------------------------------------------------- */

static __thread long own_variable;
static _Atomic long held, moves;

static __attribute__((noinline)) pthread_t self(void)
{
    return pthread_self();
}

static __attribute__((noinline)) void *own_address(int which)
{
    __asm__ volatile(""); /* or the compiler takes the first answer for the second */
    return which == 0 ? (void *)&errno : which == 1 ? (void *)&own_variable : (void *)self();
}

/* In a register, or in memory only. */
static __attribute__((noinline)) bool hold_in_register(int which)
{
    void *at = own_address(which);
    uintptr_t before = thread_mark();
    bool same = true;
    for (long last = pest.rounds, n = 0; n < 4;) {
        same &= thread_mark() == before;
        n += pest.rounds != last;
        last = pest.rounds;
        __asm__ volatile("" : "+r"(at));
    }
    return same && at == own_address(which);
}

static __attribute__((noinline)) bool hold_on_stack(int which)
{
    void *volatile at = own_address(which);
    uintptr_t before = thread_mark();
    forget_registers();
    outlast(4);
    return thread_mark() == before && at == own_address(which);
}

static void hold_addresses(void *arg)
{
    (void)arg;
    for (int i = 0; !over; i++, held++) {
        bool same = i % 2 ? hold_in_register(i / 2 % 3) : hold_on_stack(i / 2 % 3);
        CHECK(same);
    }
}

static void addresses_main(void *arg)
{
    (void)arg;
    over = false;
    held = 0;
    pest_start();
    for (int i = 0; i < 2 * weft_procs(0); i++)
        CHECK_EQ(weft_go(hold_addresses, NULL), 0);
    CHECK(comes_to(&held, scaled(100)));
    over = true;
    CHECK(others_have_ended());
    pest_stop();
}

CASE(who_holds_an_address_of_its_thread_goes_on_there)
{
    if (never_stopped())
        return;
    EACH_PROCS(p) CHECK_EQ(run_on(p, addresses_main, NULL), 0);
}

/* ---- alternate stacks and masks ----------------------------------------------------------------------------------- */

static __thread bool known, masked; /* this thread has SIGUSR2 blocked; at first as the one that made it had */

static __attribute__((noinline)) void mask_here(bool mask)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    CHECK_EQ(pthread_sigmask(mask ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL), 0);
    masked = mask;
}

static __attribute__((noinline)) void all_is_at_home(void)
{
    stack_t now;
    sigset_t set;
    CHECK_EQ(sigaltstack(NULL, &now), 0);
    CHECK(now.ss_sp == w_m()->alt_stack && now.ss_flags == 0 && now.ss_size == W_ALT_STACK);
    CHECK_EQ(pthread_sigmask(SIG_BLOCK, NULL, &set), 0);
    if (!known)
        masked = sigismember(&set, SIGUSR2);
    known = true;
    CHECK_EQ(sigismember(&set, SIGUSR2), masked);
    CHECK_EQ(sigismember(&set, SIGURG), 0);
}

static _Atomic long looks;

static void look_at_thread(void *arg)
{
    uint64_t rng = (uint64_t)(uintptr_t)arg * 0x9E3779B97F4A7C15ull | 1;
    for (uintptr_t last = thread_mark(); !over; looks++) {
        weft_preempt_off();
        all_is_at_home();
        if (check_random(&rng) % 4 == 0)
            mask_here(check_random(&rng) % 2);
        weft_preempt_on();
        outlast(2);
        moves += last != thread_mark();
        last = thread_mark();
    }
}

static void threads_main(void *arg)
{
    (void)arg;
    over = false;
    looks = moves = 0;
    pest_start();
    for (intptr_t i = 1; i <= 2 * weft_procs(0); i++)
        CHECK_EQ(weft_go(look_at_thread, (void *)i), 0);
    CHECK(comes_to(&looks, scaled(500)));
    CHECK(weft_procs(0) == 1 || comes_to(&moves, 10));
    over = true;
    CHECK(others_have_ended());
    pest_stop();
}

CASE(alternate_stacks_and_signal_masks_stay_with_their_threads)
{
    if (never_stopped())
        return;
    EACH_PROCS(p) CHECK_EQ(run_on(p, threads_main, NULL), 0);
}

/* ---- overflow ------------------------------------------------------------------------------------------------------ */

static __attribute__((noinline)) int descend(int n)
{
    volatile char frame[512];
    frame[0] = (char)n;
    return n == 0 ? 0 : descend(n + 1) + frame[0];
}

static void move_and_overflow(void *arg)
{
    uintptr_t here = thread_mark();
    (void)arg;
    forget_registers();
    while (thread_mark() == here)
        ;
    CHECK_EQ(descend(1), 1);
}

static void compute_for_ever(void *arg)
{
    (void)arg;
    while (!over)
        ;
}

static void overflow_main(void *arg)
{
    (void)arg;
    over = false;
    for (int i = 0; i < 4; i++)
        CHECK_EQ(weft_go(compute_for_ever, NULL), 0);
    CHECK_EQ(weft_go_with(&(weft_attr){.name = "deep"}, move_and_overflow, NULL), 0);
    for (;;)
        weft_yield();
}

static void run_overflow(void)
{
    run_on(2, overflow_main, NULL);
}

CASE(an_overflow_on_another_thread_than_the_first_is_reported)
{
    static char text[64 << 10];
    if (never_stopped())
        return;
    int status = check_child(run_overflow, text, sizeof text);
    CHECK(WIFSIGNALED(status) && (WTERMSIG(status) == SIGSEGV || WTERMSIG(status) == SIGBUS));
    if (strstr(text, "stack overflow in goroutine") == NULL || strstr(text, "\"deep\"") == NULL)
        check_fail(__FILE__, __LINE__, "the child ended with %#x and said: %s", (unsigned)status, text);
}

/* ---- room --------------------------------------------------------------------------------------------------------- */

enum { NEAR = 9 << 10, EVEN_NEARER = 1500 }; /* less than a frame and what the runtime needs; less than a frame */

static __attribute__((noinline)) void compute_here(bool stopped)
{
    long before = beats;
    if (stopped)
        while (beats == before)
            ;
    outlast(8);
    CHECK(stopped || nobody_ran_since(before));
}

/* As deep as there is so much left. */
static __attribute__((noinline, no_sanitize("address", "undefined"))) void compute_near_the_end(size_t left)
{
    size_t room = (uintptr_t)__builtin_frame_address(0) - (uintptr_t)w_m()->g->stack_lo;
    volatile char space[room - left];
    space[0] = 1;
    compute_here(false);
    space[1] = space[0];
}

static void room_main(void *arg)
{
    static const size_t LEFT[] = {NEAR, EVEN_NEARER};
    (void)arg;
    beats_start();
    pest_start();
    for (int i = 0; i < 6; i++) {
        compute_near_the_end(LEFT[i % 2]);
        compute_here(true);
    }
    pest_stop();
    end_all();
}

CASE(who_has_little_stack_left_is_not_stopped)
{
    if (never_stopped())
        return;
    CHECK_EQ(weft_run_with(&(weft_config){.procs = 1, .stack_size = 256 << 10}, room_main, NULL), 0);
}

/* ---- locks of threads --------------------------------------------------------------------------------------------- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long under_mutex; /* mutex */
static _Atomic int finished;

/* Who is stopped holds it; the others block their threads one by one, until there are more threads than processors. */
static void hold_mutex(void *arg)
{
    (void)arg;
    for (int i = 0; i < 5; i++) {
        pthread_mutex_lock(&mutex);
        long before = under_mutex;
        for (volatile int n = 0; n < 50000 / check_scale(); n++)
            ;
        under_mutex = before + 1;
        pthread_mutex_unlock(&mutex);
    }
    finished++;
}

static void mutex_main(void *arg)
{
    int n = *(int *)arg;
    finished = 0;
    under_mutex = 0;
    for (int i = 0; i < n; i++)
        CHECK_EQ(weft_go(hold_mutex, NULL), 0);
    CHECK(reaches(&finished, n, 60));
    CHECK_EQ(under_mutex, 5l * n);
}

CASE(a_mutex_of_threads_may_be_held_by_one_that_is_stopped)
{
    EACH_PROCS(p)
    for (int n = 8; n <= 32; n *= 4)
        CHECK_EQ(weft_run_with(&(weft_config){.procs = p, .quantum = 200 * WEFT_USEC}, mutex_main, &n), 0);
}
