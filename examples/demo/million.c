/* SPDX-License-Identifier: MIT */
/* A million goroutines: started, each with something to do, and ended; then as many as memory allows asleep at once. */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "demo.h"

enum { MILLION = 1000000, THREADS = 10000, BATCH = 100, PARKED_THREADS = 1000, BYTES_EACH = 5000 };

static weft_wg done, gate;
static atomic_llong sum;
static long goroutines, each;
static sem_t wakes;

/* A line of a file in /proc, in KiB. */
static long kib(const char *file, const char *key)
{
    char line[256];
    long value = 0;
    FILE *f = fopen(file, "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, key, strlen(key)) == 0)
            value = atol(line + strlen(key) + 1);
    if (f != NULL)
        fclose(f);
    return value;
}

static long resident(void)
{
    return kib("/proc/self/status", "VmRSS") + kib("/proc/self/status", "VmPTE");
}

static void add(void *number)
{
    atomic_fetch_add(&sum, (long long)(intptr_t)number);
    weft_wg_done(&done);
}

static void start_and_sum(void *arg)
{
    (void)arg;
    weft_wg_add(&done, (int)goroutines);
    for (intptr_t i = 0; i < goroutines; i++)
        must(weft_go(add, (void *)i), "weft_go");
    weft_wg_wait(&done);
}

static void sleep_at_gate(void *arg)
{
    (void)arg;
    weft_wg_done(&done);
    weft_wg_wait(&gate);
}

static void park(void *arg)
{
    long before = resident();
    (void)arg;
    weft_wg_add(&gate, 1);
    weft_wg_add(&done, (int)goroutines);
    for (long i = 0; i < goroutines; i++)
        must(weft_go(sleep_at_gate, NULL), "weft_go");
    weft_wg_wait(&done);
    each = (resident() - before) * 1024 / goroutines;
    weft_wg_done(&gate);
}

/* A quarter of what the machine can spare, at the most. */
static long how_many_fit(void)
{
    long fit = kib("/proc/meminfo", "MemAvailable") / 4 * 1024 / BYTES_EACH;
    return fit < goroutines ? fit : goroutines;
}

static void *add_one(void *arg)
{
    atomic_fetch_add((atomic_llong *)arg, 1);
    return NULL;
}

static void *sleep_at_semaphore(void *before)
{
    static atomic_int asleep;
    if (atomic_fetch_add(&asleep, 1) == PARKED_THREADS - 1) {
        each = (resident() - *(long *)before) * 1024 / PARKED_THREADS;
        for (int i = 0; i < PARKED_THREADS; i++)
            sem_post(&wakes);
    }
    sem_wait(&wakes);
    return NULL;
}

static void with_threads(void)
{
    atomic_llong ran = 0;
    int count = quick ? THREADS / 10 : THREADS, had = 0;
    double began = seconds_now();
    for (int i = 0; i < count / BATCH; i++)
        had += run_threads(BATCH, add_one, &ran);
    double took = seconds_now() - began;
    show_row("pthreads", "%d in %.0f ms, %d at a time: %.1f us each; a million would take %.0f s (extrapolated)", had,
             took * 1e3, BATCH, took * 1e6 / had, took / had * MILLION);
    if (quick)
        return;
    long before = resident();
    sem_init(&wakes, 0, 0);
    each = 0;
    if (run_threads(PARKED_THREADS, sleep_at_semaphore, &before) == PARKED_THREADS)
        show_row("pthreads", "%d asleep at once: %ld bytes each, and 16 KiB each in the kernel", PARKED_THREADS, each);
}

void step_million(void)
{
    show_step(1, "A million goroutines",
              "Each adds its number to a sum. A goroutine is as cheap as a few function calls.");
    goroutines = quick ? MILLION / 10 : MILLION;
    double began = seconds_now();
    run_weft(start_and_sum, NULL);
    double took = seconds_now() - began;
    show_row("weft", "%ld started and ended in %.0f ms: %.0f ns each; their sum is %s", goroutines, took * 1e3,
             took * 1e9 / (double)goroutines,
             atomic_load(&sum) == (long long)goroutines * (goroutines - 1) / 2 ? "right" : "WRONG");
    goroutines = how_many_fit();
    if (goroutines > 0) {
        run_weft(park, NULL);
        show_row("weft", "%ld asleep at once: %ld bytes each", goroutines, each);
    }
    with_threads();
}
