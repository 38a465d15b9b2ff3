/* SPDX-License-Identifier: MIT */
/* Stacks: how far they reach, what happens beyond, what they cost, and the processor state that goes with them. */
#include "stuck.h"
#include "whitebox.h"
#include <fenv.h>
#include <math.h>
#include <netdb.h>
#include <pthread.h>
#include <regex.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>

static char text[64 << 10];

/* ---- how far a stack reaches ------------------------------------------------------------------------------------ */

/* Uses so many bytes of stack, in frames far smaller than a page (but not more of them than TSan can follow); returns something that depends on all of them. */
static __attribute__((noinline)) int dig(const char *top, size_t bytes)
{
    volatile char frame[1000];
    frame[0] = (char)bytes;
    if ((size_t)(top - (const char *)frame) >= bytes)
        return frame[0];
    return dig(top, bytes) + frame[0];
}

struct depth {
    size_t bytes;
    weft_wg *wg;
};

static void dig_deep(void *arg)
{
    struct depth *d = arg;
    char here = 0;
    for (int i = 0; i < 2; i++) {
        dig(&here, d->bytes);
        weft_yield();
    }
    weft_wg_done(d->wg);
}

/* All but two pages: the runtime, and a sanitizer's frames, need some room above and below. */
static size_t nearly(size_t size)
{
    return size - (check_scale() > 1 ? size / 4 : 8192);
}

static void depths_main(void *arg)
{
    static const size_t sizes[] = {64 << 10, 100 << 10, 256 << 10, 1 << 20, 8 << 20, 32 << 20};
    weft_wg wg = {0};
    (void)arg;
    for (int i = 0; i < 6; i++) {
        struct depth d = {nearly(sizes[i]), &wg};
        weft_wg_add(&wg, 3);
        for (int j = 0; j < 3; j++)
            CHECK_EQ(weft_go_with(&(weft_attr){.stack_size = sizes[i]}, dig_deep, &d), 0);
        CHECK_EQ(weft_wg_wait(&wg), 0);
    }
    struct depth plain = {nearly(64 << 10), &wg};
    weft_wg_add(&wg, 100);
    for (int j = 0; j < 100; j++)
        CHECK_EQ(weft_go(dig_deep, &plain), 0);
    CHECK_EQ(weft_wg_wait(&wg), 0);
}

CASE(a_goroutine_can_recurse_to_its_stack_size)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, depths_main, NULL), 0);
}

static void configured_main(void *arg)
{
    weft_wg wg = {0};
    struct depth d = {nearly(*(size_t *)arg), &wg};
    weft_wg_add(&wg, 20);
    for (int i = 0; i < 20; i++)
        CHECK_EQ(weft_go(dig_deep, &d), 0);
    CHECK_EQ(weft_wg_wait(&wg), 0);
    weft_wg_add(&wg, 1);
    dig_deep(&d); /* main as well */
    struct depth more = {nearly(16 << 20), &wg};
    weft_wg_add(&wg, 1);
    CHECK_EQ(weft_go_with(&(weft_attr){.stack_size = 16 << 20}, dig_deep, &more), 0); /* more than configured */
    CHECK_EQ(weft_wg_wait(&wg), 0);
}

CASE(the_configured_size_holds_for_all)
{
    static const size_t sizes[] = {64 << 10, 128 << 10, 200000, 1 << 20, 4 << 20};
    for (int i = 0; i < 5; i++) {
        size_t size = sizes[i];
        CHECK_EQ(weft_run_with(&(weft_config){.procs = 2, .stack_size = size}, configured_main, &size), 0);
    }
    size_t size = 512 << 10;
    setenv("WEFT_STACK", "512K", 1);
    CHECK_EQ(weft_run_with(&(weft_config){.procs = 2, .stack_size = 64 << 10}, configured_main, &size), 0);
    unsetenv("WEFT_STACK");
}

/* ---- overflow --------------------------------------------------------------------------------------------------- */

void entry_that_overflows(void *arg);
int dig_for_ever(int depth);

__attribute__((noinline)) int dig_for_ever(int depth)
{
    volatile char frame[3900]; /* TSan keeps no more than 65,536 calls; a guard page is larger */
    frame[0] = (char)depth;
    return depth < 0 ? 0 : dig_for_ever(depth + 1) + frame[0];
}

static int id_pipe[2];

__attribute__((noinline)) void entry_that_overflows(void *arg)
{
    uint64_t id = weft_id();
    (void)arg;
    if (write(id_pipe[1], &id, sizeof id) == sizeof id)
        dig_for_ever(0);
    __asm__ volatile("");
}

static size_t overflow_size;
static const char *overflow_name;

static void overflow_main(void *arg)
{
    (void)arg;
    weft_yield();
    if (overflow_size == 0 && overflow_name == NULL)
        CHECK_EQ(weft_go(entry_that_overflows, NULL), 0);
    else
        CHECK_EQ(
            weft_go_with(&(weft_attr){.name = overflow_name, .stack_size = overflow_size}, entry_that_overflows, NULL),
            0);
    sleep_in_region(20000);
}

static void run_overflow(void)
{
    run_on(2, overflow_main, NULL);
}

static bool has_line_with(const char *a, const char *b, const char *c)
{
    for (char *line = text; *line != '\0';) {
        char *end = strchr(line, '\n');
        if (end != NULL)
            *end = '\0';
        bool found = strstr(line, a) != NULL && strstr(line, b) != NULL && strstr(line, c) != NULL;
        if (end != NULL)
            *end = '\n';
        if (found)
            return true;
        line = end != NULL ? end + 1 : line + strlen(line);
    }
    return false;
}

static int overflow_once(uint64_t *id)
{
    *id = 0;
    CHECK_EQ(pipe(id_pipe), 0);
    int status = check_child(run_overflow, text, sizeof text);
    CHECK_EQ(read(id_pipe[0], id, sizeof *id), sizeof *id);
    close(id_pipe[0]);
    close(id_pipe[1]);
    return status;
}

static void overflow(size_t size, const char *name, size_t limit)
{
    uint64_t id;
    if (check_under_tsan()) {
        printf("# skipped: TSan's own code, called before every access, may be what runs into the guard\n");
        return;
    }
    overflow_size = size;
    overflow_name = name;
    int status = overflow_once(&id);
    if (check_under_asan())
        CHECK(status != 0); /* the sanitizer's own handler has the last word */
    else
        CHECK(WIFSIGNALED(status) && (WTERMSIG(status) == SIGSEGV || WTERMSIG(status) == SIGBUS));
    char goroutine[40], bytes[40];
    snprintf(goroutine, sizeof goroutine, "goroutine %llu", (unsigned long long)id);
    snprintf(bytes, sizeof bytes, "%zu", limit);
    CHECK(strstr(text, "stack overflow") != NULL);
    CHECK(has_line_with(goroutine, "entry_that_overflows", bytes));
    if (name != NULL)
        CHECK(has_line_with(goroutine, name, ""));
    if (strstr(text, "dig_for_ever") == NULL)
        check_fail(__FILE__, __LINE__, "no backtrace: %s", text);
}

CASE(overflow_of_a_default_stack_is_named_and_kills)
{
    overflow(0, NULL, 64 << 10);
}

CASE(overflow_of_a_named_goroutine_is_named_and_kills)
{
    overflow(0, "the deep one", 64 << 10);
}

CASE(overflow_of_a_large_stack_is_named_and_kills)
{
    overflow(1 << 20, "large", 1 << 20);
    overflow(8 << 20, "larger", 8 << 20);
}

static void overflow_beside_a_loader_main(void *arg)
{
    weft_yield();
    hold_the_linkers_lock();
    overflow_main(arg);
}

static void run_overflow_beside_a_loader(void)
{
    run_on(2, overflow_beside_a_loader_main, NULL);
}

CASE(an_overflow_waits_for_nobody_who_loads_an_object)
{
    if (crashes_take_the_linkers_lock() || check_under_asan() || check_under_tsan()) {
        printf("# skipped: libc or the sanitizer takes the linker's lock\n");
        return;
    }
    overflow_size = 0;
    overflow_name = NULL;
    CHECK_EQ(pipe(id_pipe), 0);
    int status = check_child(run_overflow_beside_a_loader, text, sizeof text);
    close(id_pipe[0]);
    close(id_pipe[1]);
    CHECK(WIFSIGNALED(status) && (WTERMSIG(status) == SIGSEGV || WTERMSIG(status) == SIGBUS));
    CHECK(strstr(text, "dig_for_ever") != NULL);
}

/* ---- faults that are no overflows ------------------------------------------------------------------------------- */

static volatile int *volatile nowhere = NULL;

__attribute__((no_sanitize("undefined"))) static void touch_nothing(void *arg)
{
    (void)arg;
    *nowhere = 1;
}

static void fault_main(void *arg)
{
    (void)arg;
    weft_go(touch_nothing, NULL);
    sleep_in_region(20000);
}

static void run_fault(void)
{
    signal(SIGSEGV, SIG_DFL);
    run_on(2, fault_main, NULL);
}

CASE(another_fault_kills_without_talk_of_stacks)
{
    int status = check_child(run_fault, text, sizeof text);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    CHECK(strstr(text, "overflow") == NULL);
}

static void on_fault_plain(int sig)
{
    _exit(sig == SIGSEGV ? 41 : 1);
}

static void on_fault_info(int sig, siginfo_t *info, void *context)
{
    _exit(sig == SIGSEGV && info->si_addr == NULL && context != NULL ? 42 : 1);
}

static void run_handled_plain(void)
{
    signal(SIGSEGV, on_fault_plain);
    run_on(2, fault_main, NULL);
}

static void run_handled_info(void)
{
    struct sigaction sa = {.sa_sigaction = on_fault_info, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &sa, NULL);
    run_on(2, fault_main, NULL);
}

CASE(the_programs_own_handler_gets_its_faults)
{
    int status = check_child(run_handled_plain, text, sizeof text);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 41);
    status = check_child(run_handled_info, text, sizeof text);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
    CHECK(strstr(text, "overflow") == NULL);
}

static void send_it(void *arg)
{
    (void)arg;
    raise(SIGSEGV);
}

static void run_sent(void)
{
    signal(SIGSEGV, SIG_DFL);
    run_on(2, send_it, NULL);
}

CASE(a_fault_that_somebody_sent_kills_too)
{
    int status = check_child(run_sent, text, sizeof text);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    CHECK(strstr(text, "overflow") == NULL);
}

static void run_overflow_with_all_blocked(void)
{
    sigset_t all;
    sigfillset(&all);
    sigdelset(&all, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    run_on(2, overflow_main, NULL);
}

CASE(overflow_is_named_although_the_caller_blocks_every_signal)
{
    if (check_under_tsan())
        return;
    overflow_size = 0;
    overflow_name = "blocked";
    CHECK_EQ(pipe(id_pipe), 0);
    check_child(run_overflow_with_all_blocked, text, sizeof text);
    close(id_pipe[0]);
    close(id_pipe[1]);
    CHECK(strstr(text, "stack overflow") != NULL);
}

static void nothing(void *arg)
{
    (void)arg;
}

static void check_handlers_restored(void)
{
    struct sigaction now;
    signal(SIGSEGV, on_fault_plain);
    signal(SIGBUS, SIG_DFL);
    CHECK_EQ(run_on(2, nothing, NULL), 0);
    CHECK_EQ(sigaction(SIGSEGV, NULL, &now), 0);
    CHECK(now.sa_handler == on_fault_plain);
    CHECK_EQ(sigaction(SIGBUS, NULL, &now), 0);
    CHECK(now.sa_handler == SIG_DFL);
}

CASE(a_run_puts_the_former_handlers_back)
{
    CHECK(child_is_well(check_handlers_restored, text, sizeof text));
}

/* ---- libc on a default stack ------------------------------------------------------------------------------------ */

static int compare_ints(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static void use_libc(void *arg)
{
    char buffer[512];
    snprintf(buffer, sizeof buffer, "%.40f %Lg %a %.30Le %s", 1.0 / 3, 1e4000L, 0.1, 1e-4000L, "text");
    CHECK(strstr(buffer, "0.3333333") != NULL);
    CHECK(strtod("1.7976931348623157e308", NULL) > 1e308);
    CHECK(strtold("0.1", NULL) > 0.09L);

    static const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    CHECK_EQ(getaddrinfo("127.0.0.1", "80", &hints, &found), 0);
    freeaddrinfo(found);
    weft_block_enter();
    if (getaddrinfo("localhost", NULL, NULL, &found) == 0)
        freeaddrinfo(found);
    weft_block_leave();

    regex_t regex;
    CHECK_EQ(regcomp(&regex, "^(a|b)*(foo|ba+r)[0-9]{2,5}(x(y(z)))$", REG_EXTENDED), 0);
    CHECK_EQ(regexec(&regex, "ababbaaar123xyz", 0, NULL, 0), 0);
    regfree(&regex);

    int numbers[200];
    for (int i = 0; i < 200; i++)
        numbers[i] = i * 7919 % 200;
    qsort(numbers, 200, sizeof numbers[0], compare_ints);
    CHECK(numbers[0] == 0 && numbers[199] == 199);

    time_t now = 1700000000;
    struct tm tm;
    CHECK(localtime_r(&now, &tm) != NULL);
    CHECK(strftime(buffer, sizeof buffer, "%c %Z", &tm) > 0);
    char *copy = strdup(buffer);
    free(copy);
    fprintf((FILE *)arg, "%s %d %g\n", buffer, numbers[3], sin(1.0));
}

struct libc {
    weft_wg wg;
    FILE *sink;
};

static void use_libc_and_done(void *arg)
{
    struct libc *l = arg;
    use_libc(l->sink);
    weft_wg_done(&l->wg);
}

static void libc_main(void *arg)
{
    struct libc l = {.sink = arg};
    for (int i = 0; i < 20; i++) {
        weft_wg_add(&l.wg, 1);
        CHECK_EQ(weft_go(use_libc_and_done, &l), 0);
    }
    CHECK_EQ(weft_wg_wait(&l.wg), 0);
}

CASE(the_default_stack_is_large_enough_for_libc)
{
    FILE *sink = fopen("/dev/null", "we");
    EACH_PROCS(p) CHECK_EQ(run_on(p, libc_main, sink), 0);
    fclose(sink);
}

/* ---- memory given back ------------------------------------------------------------------------------------------ */

static _Atomic int parked;

static void park(void *arg)
{
    parked++;
    weft_wg_wait(arg);
}

static int64_t rss_before, rss_spike, rss_after;

static void spike_main(void *arg)
{
    weft_wg gate = {0};
    int n = *(int *)arg;
    weft_wg_add(&gate, 1);
    parked = 0;
    rss_before = check_rss();
    for (int i = 0; i < n; i++)
        CHECK_EQ(weft_go(park, &gate), 0);
    CHECK(reaches(&parked, n, 100));
    rss_spike = check_rss();
    weft_wg_done(&gate);
    CHECK(others_have_ended());
    weft_block_enter();
    for (int i = 0; i < 100; i++) {
        usleep(100000);
        rss_after = check_rss();
        if (rss_after - rss_before <= (rss_spike - rss_before) / 10)
            break;
    }
    weft_block_leave();
    dig_deep(&(struct depth){100, (weft_wg_add(&gate, 1), &gate)});
    parked = 0;
    weft_wg_add(&gate, 1);
    for (int i = 0; i < 1000; i++) /* what was given back serves again */
        CHECK_EQ(weft_go(park, &gate), 0);
    CHECK(reaches(&parked, 1000, 100));
    weft_wg_done(&gate);
    CHECK(others_have_ended());
}

CASE(a_spike_of_goroutines_gives_its_memory_back_when_idle)
{
    int n = check_under_tsan() ? 4000 : 200000 / check_scale();
    for (int p = 1; p <= 2; p++) {
        CHECK_EQ(run_on(p, spike_main, &n), 0);
        if (check_scale() > 1)
            continue;
        CHECK(rss_spike - rss_before > (int64_t)n * 3000); /* else nothing was measured */
        if (rss_after - rss_before > (rss_spike - rss_before) / 10)
            check_fail(__FILE__, __LINE__, "on %d P(s), of %lld KiB %lld are still there", p,
                       (long long)(rss_spike - rss_before) / 1024, (long long)(rss_after - rss_before) / 1024);
    }
}

enum { DEEP = 3 << 20 };

static void go_deep(void *arg)
{
    volatile char frame[DEEP];
    for (int i = 0; i < DEEP; i += 4096)
        frame[i] = 1;
    parked += frame[0];
    weft_wg_wait(arg);
}

static void deep_main(void *arg)
{
    weft_wg gate = {0};
    (void)arg;
    weft_wg_add(&gate, 1);
    parked = 0;
    rss_before = check_rss();
    for (int i = 0; i < 60; i++) /* fewer than a P keeps at hand */
        CHECK_EQ(weft_go(go_deep, &gate), 0);
    CHECK(reaches(&parked, 60, 100));
    rss_spike = check_rss();
    weft_wg_done(&gate);
    CHECK(others_have_ended());
    weft_block_enter();
    for (int i = 0; i < 100; i++) {
        usleep(100000);
        rss_after = check_rss();
        if (rss_after - rss_before <= (rss_spike - rss_before) / 10)
            break;
    }
    weft_block_leave();
}

CASE(deep_stacks_that_processors_keep_at_hand_are_given_back_too)
{
    CHECK_EQ(weft_run_with(&(weft_config){.procs = 2, .stack_size = 4 << 20}, deep_main, NULL), 0);
    if (check_scale() > 1)
        return;
    CHECK(rss_spike - rss_before > 60 * (int64_t)DEEP / 2); /* else nothing was measured */
    CHECK(rss_after - rss_before <= (rss_spike - rss_before) / 10);
}

/* ---- the processor's state -------------------------------------------------------------------------------------- */

static volatile double one = 1, three = 3;

/* The rounding mode if all units have the same, else -1: fegetround reads one of them, a division uses the other. */
static int mode_in_use(void)
{
    int mode = fegetround();
    volatile double third = one / three; /* volatile: the divisions stay between the calls */
    fesetround(FE_UPWARD);
    volatile double third_up = one / three;
    fesetround(mode);
    bool up = third == third_up;
    return up == (mode == FE_UPWARD) ? mode : -1;
}

static void round_own_way(void *arg)
{
    static const int modes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    static _Atomic int next;
    int mode = modes[next++ % 4];
    CHECK_EQ(mode_in_use(), FE_TONEAREST); /* the default, whoever started us or ran here before */
    fesetround(mode);
    for (int i = 0; i < 20; i++) {
        weft_yield();
        CHECK_EQ(mode_in_use(), mode);
        if (i % 8 == 0)
            sleep_in_region(1);
        CHECK_EQ(mode_in_use(), mode);
    }
    weft_wg_done(arg); /* and it ends with that mode */
}

static void check_default_mode(void *arg)
{
    CHECK_EQ(mode_in_use(), FE_TONEAREST);
    fesetround(FE_UPWARD);
    weft_wg_done(arg);
}

static void modes_main(void *arg)
{
    weft_wg wg = {0};
    (void)arg;
    fesetround(FE_DOWNWARD);
    weft_wg_add(&wg, 140);
    for (int i = 0; i < 40; i++)
        CHECK_EQ(weft_go(round_own_way, &wg), 0);
    for (int i = 0; i < 90; i++)
        CHECK_EQ(weft_go(check_default_mode, &wg), 0);
    for (int i = 0; i < 10; i++)
        CHECK_EQ(weft_go_with(&(weft_attr){.stack_size = 256 << 10}, check_default_mode, &wg), 0);
    CHECK_EQ(weft_wg_wait(&wg), 0);
    CHECK_EQ(mode_in_use(), FE_DOWNWARD);
}

CASE(rounding_modes_are_a_goroutines_own)
{
    if (check_under_emulator())
        skipped("an emulator need not round");
    else
        EACH_PROCS(p) CHECK_EQ(run_on(p, modes_main, NULL), 0);
    CHECK_EQ(fegetround(), FE_TONEAREST);
}

/* Aligned as the compiler believes: it uses aligned moves of 16 bytes on such a local. */
static __attribute__((noinline)) bool is_aligned(void)
{
    volatile _Alignas(16) char local[64];
    local[0] = 1;
    uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
    return (uintptr_t)local % 16 == 0 && frame % 16 == 0;
}

static void check_alignment(void *arg)
{
    CHECK(is_aligned());
    CHECK_EQ((uintptr_t)__builtin_frame_address(0) % 16, 0);
    weft_yield();
    CHECK(is_aligned());
    weft_wg_done(arg);
}

static void check_alignment_of_copy(void *arg)
{
    check_alignment(*(weft_wg **)arg);
    weft_exit();
}

static void alignment_main(void *arg)
{
    weft_wg wg = {0}, *at = &wg;
    char bytes[100] = {0};
    (void)arg;
    CHECK(is_aligned());
    memcpy(bytes, &at, sizeof at);
    for (size_t i = 0; i < 60; i++) {
        weft_wg_add(&wg, 3);
        CHECK_EQ(weft_go(check_alignment, &wg), 0);
        CHECK_EQ(weft_go_copy(check_alignment_of_copy, bytes, sizeof at + i % 40), 0);
        CHECK_EQ(weft_go_with(&(weft_attr){.stack_size = 70000 + 1001 * i}, check_alignment, &wg), 0);
    }
    CHECK_EQ(weft_wg_wait(&wg), 0);
}

CASE(stacks_are_aligned_as_the_abi_wants)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, alignment_main, NULL), 0);
}
