/* SPDX-License-Identifier: MIT */
/* A mutex with and without contention; many timers at once. */
#include "weft_bench.h"

/* ---- mutex: w->size goroutines count under one lock ------------------------------------------------------------- */

enum { LOCKS = 2000000 };

static struct {
    int goroutines;
    weft_mutex mu;
    int64_t count; /* mu */
    weft_wg done;
} counter;

static void count_locked(void *arg)
{
    (void)arg;
    int n = LOCKS / counter.goroutines;
    for (int i = 0; i < n; i++) {
        must("weft_lock", weft_lock(&counter.mu));
        counter.count++;
        weft_unlock(&counter.mu);
    }
    weft_wg_done(&counter.done);
}

static void mutex_pass(void)
{
    counter.count = 0;
    weft_wg_add(&counter.done, counter.goroutines);
    for (int i = 0; i < counter.goroutines; i++)
        go(count_locked, NULL);
    wait_for(&counter.done);
    expect("the count under the lock", counter.count, LOCKS);
}

void mutex(const struct workload *w)
{
    counter.goroutines = w->size;
    report(w, per_op(mutex_pass, LOCKS), "ns");
}

/* ---- timers: w->size goroutines sleep for random times; how late do they wake? ---------------------------------- */

enum { LONGEST_SLEEP = 200 * 1000 * 1000, TIMER_ROUNDS = 3 };

static weft_wg woken;

struct sleeper {
    int64_t want;
    int64_t *late;
};

static void sleep_one(void *arg)
{
    struct sleeper *s = arg;
    int64_t begin = weft_now();
    must("weft_sleep", weft_sleep(s->want));
    *s->late = weft_now() - begin - s->want;
    weft_wg_done(&woken);
}

/* late[i] gets how much longer than wanted goroutine i slept. */
static void sleep_all(int64_t *late, int n)
{
    weft_wg_add(&woken, n);
    for (int i = 0; i < n; i++) {
        struct sleeper s = {.want = random() % LONGEST_SLEEP, .late = &late[i]};
        go_copy(sleep_one, &s, sizeof s);
    }
    wait_for(&woken);
}

void timers(const struct workload *w)
{
    int n = scaled(w->size);
    size_t samples = (size_t)TIMER_ROUNDS * (size_t)n;
    int64_t *late = calloc(samples, sizeof *late);
    if (late == NULL)
        die("calloc", ENOMEM);
    if (!tiny())
        sleep_all(late, n); /* warm-up */
    double before = cpu_ms();
    for (int i = 0; i < TIMER_ROUNDS; i++)
        sleep_all(late + (size_t)i * (size_t)n, n);
    double used = cpu_ms() - before;

    report_spread_us(w, late, samples);
    report_part(w, "cpu", used / TIMER_ROUNDS, "ms");
    free(late);
}
