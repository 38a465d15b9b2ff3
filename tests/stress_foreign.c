/* SPDX-License-Identifier: MIT */
/*
 * Threads that are not the runtime's: they start goroutines, wait for them, let them go, change the number of Ps, all at
 * once, and while runs come and go.
 */
#include "stress.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

enum { THREADS = 4 };

static uint64_t seed;

/* The threads run while the main goroutine sits in a blocking region: it is what keeps the run from being a deadlock. */
static void with_threads(void *(*fn)(void *))
{
    pthread_t t[THREADS];
    for (intptr_t i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&t[i], NULL, fn, (void *)i), 0);
    weft_block_enter();
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    weft_block_leave();
}

static void on_each_procs(weft_fn *fn)
{
    seed = check_seed();
    for (int i = 0; i < STRESS_PROCS_COUNT; i++)
        stress_run(STRESS_PROCS[i], seed, fn, NULL);
}

/* ---- they spawn and wait ---------------------------------------------------------------------------------------- */

static _Atomic uint64_t leaves;

static void leaf(void *arg)
{
    atomic_fetch_add(&leaves, 1);
    weft_wg_done(arg);
}

static void leaf_of_copy(void *arg)
{
    weft_yield();
    leaf(*(void **)arg);
}

static void branch(void *arg)
{
    weft_wg_add(arg, 2);
    CHECK_EQ(weft_go(leaf, arg), 0);
    CHECK_EQ(weft_go(leaf, arg), 0);
    leaf(arg);
}

static uint32_t spawn_some(weft_wg *wg, uint64_t *rng)
{
    static const size_t sizes[] = {0, 1, 50000, 200000};
    uint32_t n = check_random(rng) % 50, nodes = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t r = check_random(rng);
        weft_attr attr = {.name = "foreign", .stack_size = sizes[r >> 8 & 3]};
        weft_wg_add(wg, 1);
        int e = r % 4 == 0   ? weft_go_copy(leaf_of_copy, &wg, sizeof wg)
                : r % 4 == 1 ? weft_go_with(&attr, leaf, wg)
                : r % 4 == 2 ? weft_go(leaf, wg)
                             : weft_go(branch, wg);
        CHECK_EQ(e, 0);
        nodes += r % 4 == 3 ? 3 : 1;
    }
    return nodes;
}

static void *spawns_and_waits(void *arg)
{
    uint64_t rng = stress_stream(seed, (uintptr_t)arg), nodes = 0;
    CHECK_EQ(weft_id(), 0);
    for (int i = 0; i < stress_scaled(600); i++) {
        weft_wg wg = {0};
        nodes += spawn_some(&wg, &rng);
        if (check_random(&rng) % 4 == 0)
            weft_yield();
        CHECK_EQ(weft_wg_wait(&wg), 0);
        memset(&wg, 0x5a, sizeof wg);
        CHECK(weft_count() >= 1);
    }
    atomic_fetch_sub(&leaves, nodes);
    return NULL;
}

static void spawns_main(void *arg)
{
    (void)arg;
    atomic_store(&leaves, 0);
    with_threads(spawns_and_waits);
    CHECK_EQ(leaves, 0);
}

CASE(threads_start_goroutines_and_wait_for_them)
{
    on_each_procs(spawns_main);
}

/* ---- goroutines and threads wait for each other ------------------------------------------------------------------ */

enum { ROUNDS = 1000 };

struct duet {
    weft_wg turn[2 * ROUNDS];
    int rounds, steps;
    uint64_t rng;
};
static struct duet duets[THREADS];

static void answers(void *arg)
{
    struct duet *d = arg;
    for (int i = 0; i < d->rounds; i++) {
        CHECK_EQ(weft_wg_wait(&d->turn[2 * i]), 0);
        d->steps++;
        if (check_random(&d->rng) % 4 == 0)
            weft_yield();
        weft_wg_done(&d->turn[2 * i + 1]);
    }
}

static void *asks(void *arg)
{
    struct duet *d = &duets[(uintptr_t)arg];
    CHECK_EQ(weft_go(answers, d), 0);
    for (int i = 0; i < d->rounds; i++) {
        d->steps++;
        weft_wg_done(&d->turn[2 * i]);
        CHECK_EQ(weft_wg_wait(&d->turn[2 * i + 1]), 0);
    }
    return NULL;
}

static void duets_main(void *arg)
{
    (void)arg;
    memset(duets, 0, sizeof duets);
    for (int i = 0; i < THREADS; i++) {
        duets[i].rounds = stress_scaled(ROUNDS);
        duets[i].rng = stress_stream(seed, (uint64_t)i);
        for (int k = 0; k < 2 * duets[i].rounds; k++)
            weft_wg_add(&duets[i].turn[k], 1);
    }
    with_threads(asks);
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(duets[i].steps, 2 * duets[i].rounds);
}

CASE(threads_and_goroutines_wake_each_other)
{
    on_each_procs(duets_main);
}

/* ---- they change the number of Ps -------------------------------------------------------------------------------- */

static _Atomic bool over;

static void *changes_procs(void *arg)
{
    uint64_t rng = stress_stream(seed, (uintptr_t)arg + 100);
    while (!atomic_load(&over)) {
        int former = weft_procs(1 + (int)(check_random(&rng) % 8));
        CHECK(former >= 1 && former <= 64);
        usleep(check_random(&rng) % 200);
    }
    return NULL;
}

static void *spawns_or_changes(void *arg)
{
    if ((uintptr_t)arg == 0)
        return changes_procs(arg);
    spawns_and_waits(arg);
    atomic_store(&over, true);
    return NULL;
}

static void changes_main(void *arg)
{
    (void)arg;
    atomic_store(&leaves, 0);
    atomic_store(&over, false);
    with_threads(spawns_or_changes);
    CHECK_EQ(leaves, 0);
}

CASE(threads_change_the_number_of_ps_under_load)
{
    on_each_procs(changes_main);
}

/* ---- runs come and go -------------------------------------------------------------------------------------------- */

static _Atomic uint64_t begun, accepted;
static weft_wg shared; /* never at zero: it has no waiters */

static void counts(void *arg)
{
    (void)arg;
    atomic_fetch_add(&begun, 1);
}

static void *knocks(void *arg)
{
    uint64_t rng = stress_stream(seed, (uintptr_t)arg);
    while (!atomic_load(&over)) {
        uint32_t r = check_random(&rng);
        weft_attr attr = {.name = "knocks", .stack_size = r >> 8 & 0x3ffff};
        int e = r % 4 == 0 ? weft_go_with(&attr, counts, NULL) : weft_go(counts, NULL);
        CHECK(e == 0 || e == -EPERM);
        atomic_fetch_add(&accepted, e == 0);
        weft_wg_add(&shared, 2);
        weft_wg_done(&shared);
        weft_wg_done(&shared);
        CHECK(weft_count() >= 0);
        if (r % 16 == 0) {
            int former = weft_procs(1 + (int)(r >> 8 & 7));
            CHECK(former == -EPERM || former >= 1);
        }
        if (r % 8 == 1)
            usleep(r >> 8 & 0x7f);
    }
    return NULL;
}

static void opens_briefly(void *arg)
{
    uint64_t rng = *(uint64_t *)arg;
    for (uint32_t i = check_random(&rng) % 50; i > 0; i--) {
        atomic_fetch_add(&accepted, 1);
        CHECK_EQ(weft_go(counts, NULL), 0);
    }
    for (uint32_t i = check_random(&rng) % 20; i > 0; i--)
        weft_yield();
}

CASE(threads_meet_runs_that_come_and_go)
{
    pthread_t t[THREADS];
    uint64_t rng = seed = check_seed();
    atomic_store(&over, false);
    atomic_store(&begun, 0);
    atomic_store(&accepted, 0);
    memset(&shared, 0, sizeof shared);
    weft_wg_add(&shared, 1);
    for (intptr_t i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&t[i], NULL, knocks, (void *)i), 0);
    for (int i = 0; i < stress_scaled(1500); i++) {
        uint64_t stream = stress_stream(seed, check_random(&rng));
        stress_run(STRESS_PROCS[i % STRESS_PROCS_COUNT], seed, opens_briefly, &stream);
    }
    atomic_store(&over, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    CHECK(begun > 0 && begun <= accepted);
}

/* ---- at the very beginning --------------------------------------------------------------------------------------- */

static _Atomic int ended; /* runs */

/* One goroutine a run, as soon as there is a runtime: perhaps before the main one. */
static void *is_first(void *arg)
{
    while (!atomic_load(&over)) {
        int runs = atomic_load(&ended);
        if (weft_go(counts, NULL) != 0)
            continue;
        atomic_fetch_add(&accepted, 1);
        while (atomic_load(&ended) == runs && !atomic_load(&over))
            sched_yield();
    }
    return arg;
}

static void yields_once(void *arg)
{
    (void)arg;
    weft_yield();
}

CASE(a_thread_starts_a_goroutine_before_the_run_does)
{
    pthread_t t;
    seed = check_seed();
    atomic_store(&over, false);
    atomic_store(&begun, 0);
    atomic_store(&accepted, 0);
    CHECK_EQ(pthread_create(&t, NULL, is_first, NULL), 0);
    for (int i = 0; i < stress_scaled(8000); i++) {
        stress_run(i % 4 == 0 ? 2 : 1, seed, yields_once, NULL);
        atomic_fetch_add(&ended, 1);
    }
    atomic_store(&over, true);
    pthread_join(t, NULL);
    CHECK(begun <= accepted);
}
