/* SPDX-License-Identifier: MIT */
/* A run: how it begins, what it refuses, what it takes from the environment, and that nothing of it is left. */
#include "runs.h"
#include "whitebox.h"
#include <dirent.h>
#include <pthread.h>
#include <stdlib.h>

static char text[64 << 10]; /* what a child said */

static void nothing(void *arg)
{
    (void)arg;
}

static void set_flag(void *arg)
{
    *(_Atomic int *)arg = 1;
}

/* ---- beginning -------------------------------------------------------------------------------------------------- */

CASE(a_run_returns_zero_once_main_has_returned)
{
    EACH_PROCS(p)
    {
        _Atomic int ran = 0;
        CHECK_EQ(run_on(p, set_flag, &ran), 0);
        CHECK_EQ(ran, 1);
    }
    _Atomic int ran = 0;
    CHECK_EQ(weft_run(set_flag, &ran), 0);
    CHECK_EQ(ran, 1);
    CHECK_EQ(weft_run_with(NULL, nothing, NULL), 0);
}

static void *run_in_thread(void *arg)
{
    *(int *)arg = weft_run(nothing, NULL);
    return NULL;
}

static void run_inside(void *arg)
{
    (void)arg;
    CHECK_EQ(weft_run(nothing, NULL), -EBUSY);
    CHECK_EQ(weft_run_with(&(weft_config){.procs = 2}, nothing, NULL), -EBUSY);
    pthread_t thread;
    int result = 0;
    weft_block_enter();
    CHECK_EQ(pthread_create(&thread, NULL, run_in_thread, &result), 0);
    pthread_join(thread, NULL);
    weft_block_leave();
    CHECK_EQ(result, -EBUSY);
    weft_yield();
    CHECK_EQ(weft_count(), 1);
}

CASE(a_second_run_is_refused_while_one_is_up)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, run_inside, NULL), 0);
}

CASE(a_run_refuses_what_makes_no_sense)
{
    CHECK_EQ(weft_run(NULL, NULL), -EINVAL);
    CHECK_EQ(weft_run_with(&(weft_config){.procs = -1}, nothing, NULL), -EINVAL);
    CHECK_EQ(run_with_own_quantum(&(weft_config){.quantum = -1}, nothing, NULL), -EINVAL);
    CHECK_EQ(weft_run_with(&(weft_config){.stack_size = SIZE_MAX}, nothing, NULL), -EINVAL);
    CHECK_EQ(weft_run_with(&(weft_config){.stack_size = (size_t)1 << 60}, nothing, NULL), -EINVAL);
    CHECK_EQ(weft_run(nothing, NULL), 0);
}

static void read_config(void *arg)
{
    *(int *)arg = weft_procs(0);
}

CASE(the_number_of_processors_is_the_configured_one_or_what_the_process_may_use)
{
    int n = 0;
    CHECK_EQ(run_on(5, read_config, &n), 0);
    CHECK_EQ(n, 5);
    CHECK_EQ(weft_run(read_config, &n), 0);
    CHECK_EQ(n, w_usable_cpus(""));
}

/* ---- environment ------------------------------------------------------------------------------------------------ */

static int from_env(const char *name, const char *value, weft_config *c)
{
    char *quantum = without_quantum();
    *c = (weft_config){.procs = 7, .stack_size = 77, .quantum = 777, .seed = 7777};
    setenv(name, value, 1);
    int r = w_config_from_env(c);
    unsetenv(name);
    with_quantum(quantum);
    return r;
}

CASE(environment_variables_win_over_the_configuration)
{
    weft_config c;
    CHECK_EQ(from_env("WEFT_PROCS", "3", &c), 0);
    CHECK(c.procs == 3 && c.stack_size == 77 && c.quantum == 777 && c.seed == 7777);
    CHECK_EQ(from_env("WEFT_SEED", "18446744073709551615", &c), 0);
    CHECK(c.seed == UINT64_MAX && c.procs == 7);

    static const struct {
        const char *value;
        size_t size;
    } sizes[] = {{"65536", 65536}, {"64K", 65536}, {"64k", 65536}, {"2M", 2 << 20}, {"2m", 2 << 20}, {"1G", 1 << 30}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        CHECK_EQ(from_env("WEFT_STACK", sizes[i].value, &c), 0);
        CHECK_EQ(c.stack_size, sizes[i].size);
    }

    static const struct {
        const char *value;
        int64_t ns;
    } times[] = {{"5000000", 5000000},     {"300ns", 300},       {"250us", 250 * WEFT_USEC},
                 {"20ms", 20 * WEFT_MSEC}, {"2s", 2 * WEFT_SEC}, {"never", WEFT_NEVER}};
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        CHECK_EQ(from_env("WEFT_QUANTUM", times[i].value, &c), 0);
        CHECK_EQ(c.quantum, times[i].ns);
    }

    setenv("WEFT_PROCS", "3", 1);
    int n = 0;
    CHECK_EQ(run_on(5, read_config, &n), 0);
    unsetenv("WEFT_PROCS");
    CHECK_EQ(n, 3);
}

static const char *const bad[] = {
    "WEFT_PROCS=x",
    "WEFT_PROCS=-1",
    "WEFT_PROCS=2x",
    "WEFT_PROCS=1.5",
    "WEFT_PROCS=2K",
    "WEFT_PROCS=99999999999999999999",
    "WEFT_PROCS=2 ",
    "WEFT_STACK=K",
    "WEFT_STACK=64Q",
    "WEFT_STACK=-64K",
    "WEFT_STACK=64KK",
    "WEFT_STACK=18446744073709551615G",
    "WEFT_STACK=many",
    "WEFT_QUANTUM=10m",
    "WEFT_QUANTUM=-10ms",
    "WEFT_QUANTUM=Never",
    "WEFT_QUANTUM=ms",
    "WEFT_QUANTUM=99999999999999s",
    "WEFT_SEED=seed",
    "WEFT_SEED=-1",
    "WEFT_SEED= -1",
    "WEFT_SEED=1ms",
    "WEFT_SEED=99999999999999999999999",
};
enum { BAD = sizeof bad / sizeof bad[0] };

static void run_with_bad_environment(void)
{
    for (int i = 0; i < BAD; i++) {
        char name[32];
        size_t n = strcspn(bad[i], "=");
        memcpy(name, bad[i], n);
        name[n] = '\0';
        setenv(name, bad[i] + n + 1, 1);
        if (weft_run(nothing, NULL) != -EINVAL)
            check_fail(__FILE__, __LINE__, "%s is accepted", bad[i]);
        unsetenv(name);
    }
    CHECK_EQ(weft_run(nothing, NULL), 0);
}

CASE(environment_variables_that_make_no_sense_are_named_and_refused)
{
    CHECK(child_is_well(run_with_bad_environment, text, sizeof text));
    for (int i = 0; i < BAD; i++)
        if (strstr(text, bad[i]) == NULL)
            check_fail(__FILE__, __LINE__, "stderr does not name %s", bad[i]);
}

/* ---- order and seed --------------------------------------------------------------------------------------------- */

struct order {
    weft_wg wg;
    int at;
    int of[64];
};

static struct order order;

/* Few enough that a run takes far less than a quantum. */
static int noters(void)
{
    return check_scale() > 1 ? 4 : 20;
}

static void note_thrice(void *arg)
{
    for (int i = 0; i < 3; i++) {
        order.of[order.at++] = (int)(intptr_t)arg;
        weft_yield();
    }
    weft_wg_done(&order.wg);
}

static void note_all(void *arg)
{
    (void)arg;
    order = (struct order){0};
    weft_wg_add(&order.wg, noters());
    for (intptr_t i = 0; i < noters(); i++)
        weft_go(note_thrice, (void *)i);
    weft_wg_wait(&order.wg);
}

/* Time plays a part too: what waits for a whole quantum moves on. Hence the most frequent of many short runs. */
CASE(the_same_seed_gives_the_same_order_on_one_processor)
{
    enum { RUNS = 21 };
    static struct order seen[RUNS];
    int best = 0;
    for (int i = 0; i < RUNS; i++) {
        CHECK_EQ(run_with_own_quantum(&(weft_config){.procs = 1, .seed = 42, .quantum = WEFT_NEVER}, note_all, NULL),
                 0);
        CHECK_EQ(order.at, 3 * noters());
        seen[i] = order;
    }
    for (int i = 0; i < RUNS; i++) {
        int same = 0;
        for (int j = 0; j < RUNS; j++)
            same += memcmp(seen[i].of, seen[j].of, sizeof seen[i].of) == 0;
        best = same > best ? same : best;
    }
    CHECK(best > RUNS / 2);
}

/* ---- again and again -------------------------------------------------------------------------------------------- */

static int lines_of_maps(void)
{
    FILE *f = fopen("/proc/self/maps", "re");
    int n = 0;
    for (int c; f != NULL && (c = getc(f)) != EOF;)
        n += c == '\n';
    if (f != NULL)
        fclose(f);
    return n;
}

static int descriptors(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d != NULL && readdir(d) != NULL)
        n++;
    if (d != NULL)
        closedir(d);
    return n;
}

static weft_wg never; /* nobody is done with it */

static void park_for_ever(void *arg)
{
    atomic_fetch_add((_Atomic int *)arg, 1);
    weft_wg_wait(&never);
    CHECK(!"somebody came back from a wait that never ends");
}

static void block_shortly(void *arg)
{
    (void)arg;
    sleep_in_region(1);
}

static void a_bit_of_everything(void *arg)
{
    _Atomic int parked = 0;
    (void)arg;
    never = (weft_wg){0};
    weft_wg_add(&never, 1);
    for (int i = 0; i < 20; i++)
        CHECK_EQ(weft_go(park_for_ever, &parked), 0);
    weft_go_with(&(weft_attr){.name = "with a name", .stack_size = 256 << 10}, park_for_ever, &parked);
    weft_go(block_shortly, NULL);
    CHECK(reaches(&parked, 21, 20));
    for (int i = 0; i < 100; i++)
        CHECK_EQ(weft_go(nothing, NULL), 0);
}

CASE(a_thousand_runs_in_a_row_leave_nothing_behind)
{
    int runs = scaled(1000);
    for (int i = 0; i < runs / 4 + 1; i++)
        CHECK_EQ(run_on(i % 3 + 1, a_bit_of_everything, NULL), 0);
    int threads = check_threads(), fds = descriptors(), maps = lines_of_maps();
    int64_t rss = check_rss();
    for (int i = 0; i < runs; i++)
        CHECK_EQ(run_on(i % 3 + 1, a_bit_of_everything, NULL), 0);
    CHECK(descriptors() <= fds);
    if (check_under_emulator() || check_under_tsan() || check_under_asan())
        return;
    for (int i = 0; i < 100 && check_threads() > threads; i++)
        usleep(10000);
    CHECK(check_threads() <= threads);
    if (lines_of_maps() > maps + runs / 50)
        check_fail(__FILE__, __LINE__, "mappings grew from %d to %d", maps, lines_of_maps());
    if (check_rss() > rss + runs * 2048)
        check_fail(__FILE__, __LINE__, "memory grew from %lld to %lld", (long long)rss, (long long)check_rss());
}

/* ---- errno ------------------------------------------------------------------------------------------------------ */

/* Out of line: a compiler may keep the address of errno across a call, and the thread changes. */
static __attribute__((noinline)) void set_errno(int e)
{
    errno = e;
    __asm__ volatile("");
}

static __attribute__((noinline)) int get_errno(void)
{
    __asm__ volatile("");
    return errno;
}

static void keep_errno(void *arg)
{
    int mine = (int)weft_id() + 1000;
    if (get_errno() != 0)
        check_fail(__FILE__, __LINE__, "a new goroutine has errno %d", get_errno());
    set_errno(mine);
    for (int i = 0; i < 50; i++) {
        weft_yield();
        if (get_errno() != mine)
            check_fail(__FILE__, __LINE__, "errno is %d after a yield, expected %d", get_errno(), mine);
        set_errno(++mine);
    }
    weft_wg_done(arg);
}

static void keep_errno_parked(void *arg)
{
    weft_wg *wgs = arg;
    set_errno(77);
    weft_wg_wait(&wgs[1]);
    CHECK_EQ(get_errno(), 77);
    weft_wg_done(&wgs[0]);
}

static void keep_errno_blocked(void *arg)
{
    for (int i = 0; i < 20; i++) {
        int mine = 2000 + (int)weft_id() + i;
        weft_block_enter();
        usleep(500);
        set_errno(mine); /* the result of a system call */
        weft_block_leave();
        if (get_errno() != mine)
            check_fail(__FILE__, __LINE__, "errno is %d after a region, expected %d", get_errno(), mine);
    }
    weft_wg_done(arg);
}

static void errno_main(void *arg)
{
    weft_wg wgs[2] = {0};
    (void)arg;
    set_errno(99);
    weft_wg_add(&wgs[0], 60);
    weft_wg_add(&wgs[1], 1);
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(weft_go(keep_errno, &wgs[0]), 0);
        CHECK_EQ(weft_go(keep_errno_parked, wgs), 0);
        CHECK_EQ(weft_go(keep_errno_blocked, &wgs[0]), 0);
    }
    set_errno(99);
    for (int i = 0; i < 20; i++)
        weft_yield();
    CHECK_EQ(get_errno(), 99);
    weft_wg_done(&wgs[1]);
    set_errno(98);
    weft_wg_wait(&wgs[0]);
    CHECK_EQ(get_errno(), 98);
}

CASE(errno_is_a_goroutines_own)
{
    for (int i = 0; i < scaled(40); i++)
        EACH_PROCS(p) CHECK_EQ(run_on(p, errno_main, NULL), 0);
}
