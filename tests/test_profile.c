/* SPDX-License-Identifier: MIT */
/* The profile of the processor: who has used it is in it, in each format. */
#include "tracefile.h"

static char path[64];

/* What the dynamic linker knows has its name. */
void profiled_inner(int64_t ns);
void profiled_outer(void *arg);
void profiled_yields(void *arg);

static int64_t own_cpu(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return ts.tv_sec * WEFT_SEC + ts.tv_nsec;
}

static void burn(void)
{
    for (volatile int i = 0; i < 100000; i++)
        ;
}

static void yield_much(void)
{
    for (int i = 0; i < 1000; i++)
        weft_yield();
}

/* Processor time, which a crowded machine gives when it can. What is measured across two threads does not count. */
static inline __attribute__((always_inline)) void use_cpu(int64_t ns, void (*how)(void))
{
    for (int64_t used = 0, step; used<ns; used += step> 0 && step < 20 * WEFT_MSEC ? step : 0) {
        step = -own_cpu();
        how();
        step += own_cpu();
    }
}

__attribute__((noinline)) void profiled_inner(int64_t ns)
{
    use_cpu(ns, burn);
    __asm__ volatile(""); /* it is nobody's tail */
}

__attribute__((noinline)) void profiled_outer(void *arg)
{
    profiled_inner(150 * WEFT_MSEC);
    weft_wg_done(arg);
}

static void computes(void *arg)
{
    weft_wg wg = {0};
    weft_wg_add(&wg, 2);
    weft_go(profiled_outer, &wg);
    weft_go_with(&(weft_attr){.name = "a;name"}, profiled_outer, &wg);
    weft_wg_wait(&wg);
    (void)arg;
}

static bool cannot_be_shown(void)
{
    if (check_under_tsan() || check_under_emulator()) {
        skipped("signals come late here, or cannot be unwound from");
        return true;
    }
    return false;
}

static size_t read_file(const char *file, char *text, size_t size)
{
    FILE *f = fopen(file, "re");
    size_t n = f != NULL ? fread(text, 1, size - 1, f) : 0;
    if (f != NULL)
        fclose(f);
    text[n] = '\0';
    return n;
}

/* The samples of all lines, and of those that contain the words. */
static long samples_with(char *text, const char *words, long *all)
{
    long with = 0;
    *all = 0;
    for (char *save = NULL, *line = strtok_r(text, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save)) {
        const char *space = strrchr(line, ' ');
        CHECK(space != NULL);
        long n = space != NULL ? strtol(space, NULL, 10) : 0;
        CHECK(n > 0);
        *all += n;
        with += strstr(line, words) != NULL ? n : 0;
    }
    return with;
}

static void profiled_run(const char *end, int procs, weft_fn *fn)
{
    temporary(path, end);
    setenv("WEFT_PROFILE", path, 1);
    CHECK_EQ(run_on(procs, fn, NULL), 0);
    unsetenv("WEFT_PROFILE");
}

CASE(the_function_that_computes_has_most_samples)
{
    static char text[1 << 20];
    long all;
    if (cannot_be_shown())
        return;
    EACH_PROCS(p)
    {
        profiled_run(".folded", p, computes);
        read_file(path, text, sizeof text);
        CHECK(strstr(text, "a_name;profiled_outer;profiled_inner") != NULL);
        CHECK(strstr(text, "\nprofiled_outer;profiled_inner") != NULL || strncmp(text, "profiled_outer;", 15) == 0);
        long inner = samples_with(text, "profiled_outer;profiled_inner", &all);
        CHECK(inner >= 5 && 2 * inner > all);
        remove(path);
    }
}

/* 300 ms of processor time, a hundred samples a second; a tick of the kernel may be missed now and then. */
CASE(samples_are_as_many_as_the_time_says)
{
    static char text[1 << 20];
    long all;
    if (cannot_be_shown())
        return;
    profiled_run(".txt", 1, computes);
    read_file(path, text, sizeof text);
    samples_with(text, "", &all);
    CHECK(all >= 10 && all <= 200);
    remove(path);
}

/* ---- the switches of the runtime -------------------------------------------------------------------------------- */

void profiled_yields(void *arg)
{
    use_cpu(50 * WEFT_MSEC, yield_much);
    weft_wg_done(arg);
}

static void switches(void *arg)
{
    weft_wg wg = {0};
    weft_wg_add(&wg, 3);
    for (int i = 0; i < 3; i++)
        weft_go(profiled_yields, &wg);
    weft_wg_wait(&wg);
    (void)arg;
}

/* As often as the kernel can, in the middle of everything. */
static void is_sampled_often(void *arg)
{
    CHECK_EQ(weft_profile_start(path, 10000), 0);
    switches(arg);
    CHECK_EQ(weft_profile_stop(), 0);
}

CASE(who_is_met_in_the_runtime_is_counted_too)
{
    static char text[1 << 20];
    long all;
    EACH_PROCS(p)
    {
        temporary(path, ".folded");
        CHECK_EQ(run_on(p, is_sampled_often, NULL), 0);
        read_file(path, text, sizeof text);
        long yields = samples_with(text, "profiled_yields", &all);
        CHECK(check_under_tsan() || check_under_emulator() || (yields > 0 && yields <= all));
        remove(path);
    }
}

/* ---- formats ---------------------------------------------------------------------------------------------------- */

static bool contains(const char *data, size_t n, const char *text)
{
    return memmem(data, n, text, strlen(text)) != NULL;
}

CASE(pprof_has_names_and_labels)
{
    static char text[1 << 20];
    if (cannot_be_shown())
        return;
    profiled_run(".pb", 2, computes);
    size_t n = read_file(path, text, sizeof text);
    CHECK(n > 0 && text[0] == (1 << 3 | 2)); /* a sample type */
    CHECK(contains(text, n, "profiled_inner") && contains(text, n, "goroutine") && contains(text, n, "a;name"));
    CHECK(contains(text, n, "nanoseconds"));
    remove(path);
    profiled_run(".pb.gz", 2, computes);
    n = read_file(path, text, sizeof text);
    CHECK(n > 18 && (unsigned char)text[0] == 0x1f && (unsigned char)text[1] == 0x8b);
    CHECK(contains(text, n, "profiled_inner"));
    remove(path);
}

/* ---- starting and stopping -------------------------------------------------------------------------------------- */

static void starts_and_stops(void *arg)
{
    (void)arg;
    CHECK_EQ(weft_profile_stop(), -ESRCH);
    CHECK_EQ(weft_profile_start(NULL, 0), -EINVAL);
    CHECK_EQ(weft_profile_start("/tmp/profile", 0), -EINVAL);
    CHECK_EQ(weft_profile_start(path, -1), -EINVAL);
    CHECK_EQ(weft_profile_start(path, 1000000), -EINVAL);
    CHECK_EQ(weft_profile_start("/nowhere/at/all.txt", 0), -ENOENT);
    CHECK_EQ(weft_profile_start(path, 1), 0);
    CHECK_EQ(weft_profile_start(path, 0), -EBUSY);
    CHECK_EQ(weft_profile_stop(), 0);
    CHECK_EQ(weft_profile_stop(), -ESRCH);
    CHECK_EQ(weft_profile_start(path, 0), 0); /* the end of the run stops it */
}

static void nothing(void *arg)
{
    (void)arg;
}

CASE(a_profile_is_started_once_and_stopped_once)
{
    temporary(path, ".folded");
    EACH_PROCS(p)
    {
        CHECK_EQ(run_on(p, starts_and_stops, NULL), 0);
        CHECK_EQ(weft_profile_start(path, 0), -EPERM);
        CHECK_EQ(weft_profile_stop(), -EPERM);
    }
    setenv("WEFT_PROFILE", "/tmp/profile", 1);
    CHECK_EQ(run_on(1, nothing, NULL), -EINVAL);
    unsetenv("WEFT_PROFILE");
    remove(path);
}

static void is_not_read(void *arg)
{
    const struct unread *u = arg;
    CHECK_EQ(weft_profile_start(u->path, 0), 0);
    use_cpu(50 * WEFT_MSEC, burn);
    fill(u);
    CHECK_EQ(weft_profile_stop(), -ETIMEDOUT);
    CHECK_EQ(weft_profile_start(u->path, 0), 0); /* the end of the run stops it */
    use_cpu(50 * WEFT_MSEC, burn);
}

CASE(a_pipe_that_nobody_reads_is_given_up)
{
    struct unread u = unread_pipe();
    if (!cannot_be_shown())
        CHECK_EQ(run_on(2, is_not_read, &u), 0);
    close_unread(&u);
}

/* ---- while everything runs -------------------------------------------------------------------------------------- */

static _Atomic int over;

static void works(void *arg)
{
    while (!over) {
        sleep_in_region(0);
        weft_yield();
    }
    weft_wg_done(arg);
}

static void comes_and_goes(void *arg)
{
    weft_wg wg = {0};
    (void)arg;
    over = 0;
    weft_wg_add(&wg, 8);
    for (int i = 0; i < 8; i++)
        weft_go(works, &wg);
    for (int i = 0; i < scaled(30); i++) {
        CHECK_EQ(weft_profile_start(path, 10000), 0);
        weft_sleep(i % 3 * WEFT_MSEC);
        CHECK_EQ(weft_profile_stop(), 0);
    }
    over = 1;
    weft_wg_wait(&wg);
}

CASE(profiles_come_and_go_while_everything_runs)
{
    EACH_PROCS(p)
    {
        temporary(path, ".pb.gz");
        CHECK_EQ(run_on(p, comes_and_goes, NULL), 0);
        remove(path);
    }
}

/* Names from debug information need more stack than a goroutine has. */
static void profiles_itself(void *arg)
{
    CHECK_EQ(weft_profile_start(path, 0), 0);
    use_cpu(100 * WEFT_MSEC, yield_much);
    CHECK_EQ(weft_profile_stop(), 0);
    weft_wg_done(arg);
}

static void starts_one_that_profiles(void *arg)
{
    weft_wg wg = {0};
    (void)arg;
    weft_wg_add(&wg, 1);
    CHECK_EQ(weft_go(profiles_itself, &wg), 0);
    CHECK_EQ(weft_wg_wait(&wg), 0);
}

CASE(any_goroutine_may_stop_it)
{
    temporary(path, ".folded");
    EACH_PROCS(p) CHECK_EQ(run_on(p, starts_one_that_profiles, NULL), 0);
    remove(path);
}
