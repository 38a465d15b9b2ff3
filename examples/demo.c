/* SPDX-License-Identifier: MIT */
/*
 * What Weft does, in a few seconds; `make demo` runs it.
 *
 *   1. A million goroutines are started, each adds its number, and the sum is checked.
 *   2. A million goroutines sleep at once; what one costs in memory.
 *   3. A hundred goroutines block in the kernel at the same time, and a counting one is not disturbed.
 *   4. A deadlock is found and explained.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weft.h>

enum { MILLION = 1000000, BLOCKERS = 100 };

static weft_wg done, gate;
static atomic_llong sum;
static atomic_bool stop;
static long long counted;

static double ms_since(int64_t start)
{
    return (double)(weft_now() - start) / WEFT_MSEC;
}

static long status_kib(const char *key)
{
    char line[256];
    long value = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, key, strlen(key)) == 0)
            value = atol(line + strlen(key) + 1);
    if (f != NULL)
        fclose(f);
    return value;
}

static void must(int result, const char *what)
{
    if (result >= 0)
        return;
    fprintf(stderr, "%s: %s\n", what, strerror(-result));
    exit(1);
}

static void add_number(void *arg)
{
    atomic_fetch_add(&sum, (long long)(intptr_t)arg);
    weft_wg_done(&done);
}

static void sum_a_million(void)
{
    int64_t start = weft_now();
    weft_wg_add(&done, MILLION);
    for (intptr_t i = 0; i < MILLION; i++)
        must(weft_go(add_number, (void *)i), "weft_go");
    weft_wg_wait(&done);
    double ms = ms_since(start);
    printf("1. a million goroutines started and ended in %.0f ms, %.0f ns each; their sum is %s\n", ms,
           ms * WEFT_MSEC / MILLION, atomic_load(&sum) == (long long)MILLION * (MILLION - 1) / 2 ? "right" : "WRONG");
}

static void sleep_at_gate(void *arg)
{
    (void)arg;
    weft_wg_done(&done);
    weft_wg_wait(&gate);
}

static void park_a_million(void)
{
    long before = status_kib("VmRSS") + status_kib("VmPTE");
    int64_t start = weft_now();
    weft_wg_add(&gate, 1);
    weft_wg_add(&done, MILLION);
    for (int i = 0; i < MILLION; i++)
        must(weft_go(sleep_at_gate, NULL), "weft_go");
    weft_wg_wait(&done);
    long each = (status_kib("VmRSS") + status_kib("VmPTE") - before) * 1024 / MILLION;
    printf("2. a million goroutines asleep at once after %.0f ms: %ld bytes each", ms_since(start), each);
    start = weft_now();
    weft_wg_done(&gate);
    while (weft_count() > 1)
        weft_yield();
    printf("; woken and gone after %.0f ms\n", ms_since(start));
}

static void block(void *arg)
{
    (void)arg;
    weft_block_enter();
    usleep(200000);
    weft_block_leave();
    weft_wg_done(&done);
}

static void count(void *arg)
{
    (void)arg;
    for (; !atomic_load(&stop); counted++)
        weft_yield();
    weft_wg_done(&done);
}

static void block_a_hundred(void)
{
    int64_t start = weft_now();
    weft_wg_add(&done, BLOCKERS);
    for (int i = 0; i < BLOCKERS; i++)
        must(weft_go(block, NULL), "weft_go");
    must(weft_go(count, NULL), "weft_go");
    weft_wg_wait(&done);
    double ms = ms_since(start);
    weft_wg_add(&done, 1);
    atomic_store(&stop, true);
    weft_wg_wait(&done);
    printf("3. %d goroutines blocked 200 ms each in the kernel, all together in %.0f ms; another one ran %lld times\n",
           BLOCKERS, ms, counted);
}

static void tour(void *arg)
{
    (void)arg;
    printf("Weft on %d logical processors\n", weft_procs(0));
    sum_a_million();
    park_a_million();
    block_a_hundred();
}

static void wait_for_ever(void *arg)
{
    weft_wg_wait(arg);
}

static void deadlock(void *arg)
{
    (void)arg;
    static weft_wg never;
    weft_wg_add(&never, 1);
    must(weft_go_with(&(weft_attr){.name = "forgotten"}, wait_for_ever, &never), "weft_go_with");
    weft_wg_wait(&never);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    must(weft_run(tour, NULL), "weft_run");
    printf("4. two goroutines wait for what nobody will do; weft_run says so:\n");
    int r = weft_run(deadlock, NULL);
    printf("   weft_run returned %d (%s)\n", r, strerror(-r));
    printf("Next: README.md, examples/hello.c, docs/limits.md; `make test`, `make bench`.\n");
    return 0;
}
