/* SPDX-License-Identifier: MIT */
/* Nobody is stopped in libc, nor in what libc or a signal has called; who has come back from there is. */
#include "preempts.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <search.h>
#include <setjmp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>

/* ---- in libc ------------------------------------------------------------------------------------------------------ */

static uint64_t seed;
static _Atomic int number;

static void fill(unsigned char *at, size_t n, unsigned char with)
{
    for (size_t i = 0; i < n; i++)
        at[i] = (unsigned char)(with + i);
}

static bool is_filled(const unsigned char *at, size_t n, unsigned char with)
{
    for (size_t i = 0; i < n; i++)
        if (at[i] != (unsigned char)(with + i))
            return false;
    return true;
}

static void allocate(void *arg)
{
    enum { SLOTS = 40 };
    struct {
        unsigned char *at, with;
        size_t n;
    } slot[SLOTS] = {0};
    uint64_t rng = (seed ^ (uint64_t)number++ * 0x9E3779B97F4A7C15ull) | 1;
    for (int i = 0; i < scaled(20000); i++) {
        int s = (int)(check_random(&rng) % SLOTS);
        if (slot[s].at != NULL)
            CHECK(is_filled(slot[s].at, slot[s].n, slot[s].with));
        if (check_random(&rng) % 3 == 0) {
            free(slot[s].at);
            slot[s].n = check_random(&rng) % (check_random(&rng) % 16 ? 300 : 5000) + 1;
            slot[s].at = malloc(slot[s].n);
        } else {
            slot[s].n = check_random(&rng) % 600 + 1;
            slot[s].at = realloc(slot[s].at, slot[s].n);
        }
        slot[s].with = (unsigned char)i;
        fill(slot[s].at, slot[s].n, slot[s].with);
    }
    for (int s = 0; s < SLOTS; s++)
        free(slot[s].at);
    weft_wg_done(arg);
}

static void print_numbers(void *arg)
{
    char text[128], expected[128];
    snprintf(expected, sizeof expected, "%d %s %.6f %lx", 42, "word", 1234.5678, 0xabcdefl);
    for (int i = 0; i < scaled(3000); i++) {
        double x = 0;
        snprintf(text, sizeof text, "%d %s %.6f %lx", 42, "word", 1234.5678, 0xabcdefl);
        CHECK(strcmp(text, expected) == 0);
        CHECK(sscanf(text, "%*d %*s %lf", &x) == 1 && x == 1234.5678);
    }
    weft_wg_done(arg);
}

static void libc_main(void *arg)
{
    weft_wg wg = {0};
    (void)arg;
    pest_start();
    for (int i = 0; i < 8; i++) {
        weft_wg_add(&wg, 2);
        CHECK_EQ(weft_go(allocate, &wg), 0);
        CHECK_EQ(weft_go(print_numbers, &wg), 0);
    }
    CHECK_EQ(weft_wg_wait(&wg), 0);
    pest_stop();
}

CASE(malloc_and_printf_are_not_stopped_in_their_middle)
{
    seed = check_seed();
    EACH_PROCS(p) CHECK_EQ(run_on(p, libc_main, NULL), 0);
}

/* ---- in what libc has called -------------------------------------------------------------------------------------- */

static struct {
    int entries;
    long beats; /* at the first */
} calls;

/* All on one P: if others run between the first entry and the last one's end, it was stopped. */
static int called_back(int result)
{
    if (calls.entries++ == 0)
        calls.beats = beats;
    CHECK(nobody_ran_since(calls.beats));
    outlast(4);
    CHECK(nobody_ran_since(calls.beats));
    return result;
}

static int compare(const void *a, const void *b)
{
    return called_back(*(const int *)a - *(const int *)b);
}

static void use_callbacks(int way)
{
    int numbers[8] = {5, 3, 8, 1, 9, 2, 7, 4}, key = 7;
    calls.entries = 0;
    if (way == 0) {
        qsort(numbers, 8, sizeof numbers[0], compare);
        for (int i = 1; i < 8; i++)
            CHECK(numbers[i - 1] < numbers[i]);
    } else if (way == 1) {
        void *(*volatile search)(const void *, const void *, size_t, size_t, int (*)(const void *, const void *)) =
            bsearch; /* and not what the header has in its place */
        int sorted[8] = {1, 2, 3, 4, 5, 7, 8, 9};
        CHECK(search(&key, sorted, 8, sizeof sorted[0], compare) == &sorted[5]);
    } else {
        void *root = NULL;
        CHECK(tsearch(&numbers[0], &root, compare) != NULL);
        calls.entries = 0;
        CHECK(tsearch(&numbers[1], &root, compare) != NULL);
        CHECK(calls.entries > 0);
        calls.entries = 0;
        CHECK(tdelete(&numbers[1], &root, compare) != NULL);
        CHECK(calls.entries > 0);
        calls.entries = 0;
        CHECK(tdelete(&numbers[0], &root, compare) != NULL);
    }
    CHECK(calls.entries > 0);
}

static __attribute__((noinline)) void compute_until_others_run(void)
{
    for (long before = beats; beats == before;)
        ;
}

static void callbacks_main(void *arg)
{
    (void)arg;
    beats_start();
    pest_start();
    for (int i = 0; i < 9; i++) {
        use_callbacks(i % 3);
        compute_until_others_run(); /* what libc has left on the stack hinders nobody */
    }
    pest_stop();
    end_all();
}

CASE(a_callback_of_libc_is_not_stopped)
{
    if (never_stopped())
        return;
    CHECK_EQ(run_on(1, callbacks_main, NULL), 0);
}

/* Its return address into libc is signed, where there is such a thing. */
#if defined(__aarch64__)
__attribute__((target("branch-protection=pac-ret")))
#endif
static int
compare_signed(const void *a, const void *b)
{
    int result = called_back(*(const int *)a - *(const int *)b);
    __asm__ volatile("" : "+r"(result)); /* that was no jump */
    return result;
}

/* Before anybody has left a plain address of libc on this stack. */
static void find(void *arg)
{
    int numbers[8] = {5, 3, 8, 1, 9, 2, 7, 4}, key = 4;
    size_t n = 8;
    calls.entries = 0;
    CHECK(lfind(&key, numbers, &n, sizeof numbers[0], compare_signed) == &numbers[7]);
    CHECK_EQ(calls.entries, 8);
    weft_wg_done(arg);
}

static void signed_main(void *arg)
{
    weft_wg wg = {0};
    (void)arg;
    beats_start();
    pest_start();
    weft_wg_add(&wg, 1);
    CHECK_EQ(weft_go_with(&(weft_attr){.stack_size = 1 << 20}, find, &wg), 0);
    CHECK_EQ(weft_wg_wait(&wg), 0);
    pest_stop();
    end_all();
}

CASE(nor_is_one_whose_return_address_is_signed)
{
    if (never_stopped())
        return;
    CHECK_EQ(run_on(1, signed_main, NULL), 0);
}

/* ---- words that look like it -------------------------------------------------------------------------------------- */

/* Frames of libc, which has returned, lie under an array that nobody has filled; so do addresses that somebody keeps. */
static __attribute__((noinline)) void leave_words(void)
{
    char text[256];
    snprintf(text, sizeof text, "%f %s %d", 3.25, "x", getpid());
    CHECK_EQ(text[0], '3');
}

static __attribute__((noinline)) void compute_on_words(bool plant)
{
    volatile uintptr_t words[600];
    for (int i = 0; plant && i < 600; i += 100)
        words[i] = (uintptr_t)&qsort + 16;
    words[1] = 0;
    compute_until_others_run();
    CHECK_EQ(words[1], 0);
}

static void words_main(void *arg)
{
    (void)arg;
    beats_start();
    for (int i = 0; i < 10; i++) {
        leave_words();
        compute_on_words(i % 2);
    }
    end_all();
}

CASE(words_on_the_stack_that_look_like_calls_of_libc_hinder_nobody)
{
    if (never_stopped())
        return;
    CHECK_EQ(run_on(1, words_main, NULL), 0);
}

/* ---- in a handler ------------------------------------------------------------------------------------------------- */

static _Atomic int handled;

/* In the middle of the runtime there is nothing to see: the pest may wait for a lock that is held there. */
static void on_other_signal(int sig)
{
    struct w_m *m = w_m();
    long before = beats;
    (void)sig;
    if (m == NULL || ld_relaxed(&m->in_runtime))
        return;
    outlast(5);
    CHECK(nobody_ran_since(before));
    handled++;
}

/* Handlers that were not set with SA_ONSTACK are on the goroutine's stack. */
static void handlers_main(void *arg)
{
    struct sigaction sa = {.sa_handler = on_other_signal}, former;
    (void)arg;
    CHECK_EQ(sigaction(SIGUSR1, &sa, &former), 0);
    beats_start();
    pest_start();
    for (int i = 0; i < 10; i++) {
        int before = handled;
        CHECK_EQ(raise(SIGUSR1), 0);
        CHECK_EQ(handled, before + 1);
        compute_until_others_run();
    }
    pest_stop();
    end_all();
    CHECK_EQ(sigaction(SIGUSR1, &former, NULL), 0);
}

CASE(a_handler_of_another_signal_is_not_stopped)
{
    if (never_stopped())
        return;
    CHECK_EQ(run_on(1, handlers_main, NULL), 0);
}

static void block_timer(int how)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGVTALRM);
    CHECK_EQ(pthread_sigmask(how, &set, NULL), 0);
}

/* The same by a timer, which hits the middle of what computes. No other thread takes it. */
static void timer_main(void *arg)
{
    struct sigaction sa = {.sa_handler = on_other_signal, .sa_flags = SA_RESTART}, former;
    struct itimerval often = {{0, 2000}, {0, 2000}}, never = {{0, 0}, {0, 0}};
    (void)arg;
    handled = 0;
    weft_pin();
    CHECK_EQ(sigaction(SIGVTALRM, &sa, &former), 0);
    beats_start();
    pest_start();
    block_timer(SIG_UNBLOCK);
    CHECK_EQ(setitimer(ITIMER_VIRTUAL, &often, NULL), 0);
    while (handled < 10)
        compute_until_others_run();
    CHECK_EQ(setitimer(ITIMER_VIRTUAL, &never, NULL), 0);
    pest_stop();
    end_all();
    CHECK_EQ(sigaction(SIGVTALRM, &former, NULL), 0);
}

static void run_timer(void)
{
    block_timer(SIG_BLOCK);
    CHECK_EQ(run_on(1, timer_main, NULL), 0);
}

CASE(nor_is_one_that_a_timer_has_called)
{
    static char text[4096];
    if (never_stopped())
        return;
    CHECK(child_is_well(run_timer, text, sizeof text));
}

/* ---- jumps -------------------------------------------------------------------------------------------------------- */

static __attribute__((noinline)) void jump_from(jmp_buf *to, int depth, int value)
{
    volatile int n = depth;
    if (n > 0)
        jump_from(to, depth - 1, value);
    outlast(n == 0);
    if (n == 0)
        longjmp(*to, value);
}

static void jump_about(void *arg)
{
    for (volatile int i = 1; i <= scaled(40); i++) {
        jmp_buf here;
        volatile int sum = 0;
        int value = setjmp(here);
        sum += value;
        outlast(1);
        if (value < 3)
            jump_from(&here, i % 20, value + 1);
        CHECK_EQ(sum, 0 + 1 + 2 + 3);
    }
    weft_wg_done(arg);
}

static void jumps_main(void *arg)
{
    weft_wg wg = {0};
    (void)arg;
    pest_start();
    weft_wg_add(&wg, 8);
    for (int i = 0; i < 8; i++)
        CHECK_EQ(weft_go(jump_about, &wg), 0);
    CHECK_EQ(weft_wg_wait(&wg), 0);
    CHECK(stops() > 0);
    pest_stop();
}

CASE(who_jumps_over_its_own_frames_may_be_stopped)
{
    if (never_stopped())
        return;
    EACH_PROCS(p) CHECK_EQ(run_on(p, jumps_main, NULL), 0);
}

/* ---- code without unwind tables, as in some ciphers --------------------------------------------------------------- */

#if defined(__x86_64__)

/* outlast, of pest.rounds. */
void outlast_without_tables(_Atomic long *rounds, int n);
__asm__(".text\n"
        "outlast_without_tables:\n\t"
        "movq (%rdi), %rax\n"
        "1:\tmovq (%rdi), %rcx\n\t"
        "cmpq %rax, %rcx\n\t"
        "je 1b\n\t"
        "movq %rcx, %rax\n\t"
        "decl %esi\n\t"
        "jnz 1b\n\t"
        "ret\n");

static bool forbid(unsigned call)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof code / sizeof code[0], code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

/* A word of libc's on the stack has it walked through. */
static void no_tables_main(void *arg)
{
    void *volatile word = (void *)getpid;
    (void)arg;
    beats_start();
    pest_start();
    for (int i = 0; i < 20; i++) {
        long before = beats;
        outlast_without_tables(&pest.rounds, 5);
        CHECK(nobody_ran_since(before));
        CHECK(word != NULL);
        weft_yield();
    }
    pest_stop();
    end_all();
}

static void run_without_tables(void)
{
    if (!forbid(SYS_process_vm_readv))
        skipped("calls cannot be forbidden here");
    CHECK_EQ(run_on(1, no_tables_main, NULL), 0);
}

CASE(code_without_tables_is_left_alone_and_no_call_is_made_to_find_out)
{
    static char text[4096];
    if (!never_stopped())
        CHECK(child_is_well(run_without_tables, text, sizeof text));
}

#endif
