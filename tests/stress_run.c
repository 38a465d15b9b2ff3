/* SPDX-License-Identifier: MIT */
/*
 * Runs that end at any moment: main returns while hundreds of goroutines are in every state there is, or everybody goes to
 * sleep. Nothing of a run is seen after it, the next one starts afresh, and -EDEADLK is said if and only if it is true.
 */
#include "stress.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

static uint64_t seed;
static _Atomic uint32_t epoch; /* odd while a run is under way */

static void compute(uint32_t n)
{
    for (volatile uint32_t i = 0; i < n; i++)
        ;
}

/* Keeps off the terminal what a run says rightly; -1 gives stderr back. */
static int quiet(int former)
{
    fflush(stderr);
    if (former >= 0) {
        dup2(former, STDERR_FILENO);
        close(former);
        return -1;
    }
    former = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 100);
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(null, STDERR_FILENO);
    close(null);
    return former;
}

/* ---- main returns ----------------------------------------------------------------------------------------------- */

enum { LIFE_PARK, LIFE_YIELD, LIFE_BLOCK, LIFE_SPAWN, LIFE_PIN, LIFE_WAIT, LIFE_COMPUTE, LIFE_COUNT };

struct life {
    uint64_t rng;
    uint32_t epoch;
};

static weft_wg never; /* on which goroutines wait until the run ends */

static void still_the_same_run(const struct life *l)
{
    CHECK_EQ(atomic_load(&epoch), l->epoch);
}

static void leaf(void *arg)
{
    weft_yield();
    weft_wg_done(arg);
}

static void one_step(struct life *l, uint32_t kind)
{
    weft_wg wg = {0};
    switch (kind) {
    case LIFE_PARK:
        weft_wg_wait(&never);
        break;
    case LIFE_BLOCK:
        weft_block_enter();
        usleep(check_random(&l->rng) % 2000);
        weft_block_leave();
        break;
    case LIFE_PIN:
        weft_pin();
        weft_yield();
        weft_unpin();
        break;
    case LIFE_WAIT:
        weft_wg_add(&wg, 1);
        CHECK_EQ(weft_go(leaf, &wg), 0);
        weft_wg_wait(&wg);
        break;
    case LIFE_COMPUTE:
        compute(check_random(&l->rng) & 0xffff);
        break;
    default:
        weft_yield();
    }
}

static void live(void *arg)
{
    struct life l = *(struct life *)arg;
    uint32_t kind = check_random(&l.rng) % LIFE_COUNT;
    if (kind == LIFE_SPAWN && weft_count() < 2000) {
        struct life child = {stress_stream(l.rng, 1), l.epoch};
        CHECK_EQ(weft_go_copy(live, &child, sizeof child), 0);
    }
    for (;;) {
        still_the_same_run(&l);
        one_step(&l, check_random(&l.rng) % 4 == 0 ? check_random(&l.rng) % LIFE_COUNT : kind);
    }
}

static void short_main(void *arg)
{
    uint64_t rng = *(uint64_t *)arg;
    uint32_t n = check_random(&rng) % 400, e = atomic_load(&epoch);
    for (uint32_t i = 0; i < n; i++) {
        struct life l = {stress_stream(rng, i), e};
        weft_attr attr = {.stack_size = 40000};
        CHECK_EQ(i % 16 == 0 ? weft_go_with(&attr, leaf, &never) : weft_go_copy(live, &l, sizeof l), 0);
        if (i % 16 == 0)
            weft_wg_add(&never, 1);
    }
    switch (check_random(&rng) % 4) {
    case 0:
        compute(check_random(&rng) & 0xfffff);
        break;
    case 1:
        weft_block_enter();
        usleep(check_random(&rng) % 3000);
        weft_block_leave();
        break;
    case 2:
        for (uint32_t i = check_random(&rng) % 30; i > 0; i--)
            weft_yield();
        break;
    }
    if (check_random(&rng) % 4 == 0)
        weft_procs(1 + (int)(check_random(&rng) % 8));
}

static void one_short_run(int procs, uint64_t *rng)
{
    uint64_t stream = stress_stream(seed, check_random(rng));
    memset(&never, 0, sizeof never);
    weft_wg_add(&never, 1000000);
    atomic_fetch_add(&epoch, 1);
    stress_run(procs, seed, short_main, &stream);
    atomic_fetch_add(&epoch, 1);
}

CASE(main_returns_at_a_random_moment)
{
    uint64_t rng = seed = check_seed();
    for (int i = 0; i < stress_scaled(60); i++) {
        for (int k = 0; k < STRESS_PROCS_COUNT; k++)
            one_short_run(STRESS_PROCS[k], &rng);
        CHECK_EQ(check_threads_in_the_end(), 1);
    }
}

/* ---- the last one ends ------------------------------------------------------------------------------------------ */

static _Atomic uint32_t ended, started;

static void lives_on(void *arg)
{
    struct life l = *(struct life *)arg;
    for (uint32_t i = check_random(&l.rng) % 20; i > 0; i--) {
        uint32_t kind = check_random(&l.rng) % LIFE_COUNT;
        one_step(&l, kind == LIFE_PARK ? LIFE_WAIT : kind);
    }
    if (check_random(&l.rng) % 3 == 0 && atomic_load(&started) < 2000) {
        struct life child = {stress_stream(l.rng, 1), l.epoch};
        atomic_fetch_add(&started, 1);
        CHECK_EQ(weft_go_copy(lives_on, &child, sizeof child), 0);
    }
    atomic_fetch_add(&ended, 1);
    if (check_random(&l.rng) % 2 == 0)
        weft_exit();
}

static void exits(void *arg)
{
    uint64_t rng = *(uint64_t *)arg;
    for (uint32_t i = check_random(&rng) % 100; i > 0; i--) {
        struct life l = {stress_stream(rng, i), 0};
        atomic_fetch_add(&started, 1);
        CHECK_EQ(weft_go_copy(lives_on, &l, sizeof l), 0);
    }
    weft_exit();
}

CASE(the_run_ends_with_the_last_goroutine_after_exit_in_main)
{
    uint64_t rng = seed = check_seed();
    for (int i = 0; i < stress_scaled(20); i++) {
        for (int k = 0; k < STRESS_PROCS_COUNT; k++) {
            uint64_t stream = stress_stream(seed, check_random(&rng));
            atomic_store(&started, 0);
            atomic_store(&ended, 0);
            stress_run(STRESS_PROCS[k], seed, exits, &stream);
            CHECK_EQ(ended, started);
        }
    }
}

/* ---- deadlock, and what only looks like one ---------------------------------------------------------------------- */

static void falls_asleep(void *arg)
{
    struct life l = *(struct life *)arg;
    for (uint32_t i = check_random(&l.rng) % 10; i > 0; i--) {
        uint32_t kind = check_random(&l.rng) % LIFE_COUNT;
        one_step(&l, kind == LIFE_PARK ? LIFE_YIELD : kind);
    }
    if (check_random(&l.rng) % 8 == 0)
        weft_pin();
    weft_wg_wait(&never);
    CHECK(false);
}

static void all_fall_asleep(void *arg)
{
    uint64_t rng = *(uint64_t *)arg;
    for (uint32_t i = check_random(&rng) % 30; i > 0; i--) {
        struct life l = {stress_stream(rng, i), 0};
        CHECK_EQ(weft_go_copy(falls_asleep, &l, sizeof l), 0);
    }
    if (check_random(&rng) % 4 == 0)
        weft_exit();
    weft_wg_wait(&never);
}

CASE(a_deadlock_is_always_noticed)
{
    uint64_t rng = seed = check_seed();
    for (int i = 0; i < stress_scaled(40); i++) {
        for (int k = 0; k < STRESS_PROCS_COUNT; k++) {
            uint64_t stream = stress_stream(seed, check_random(&rng));
            weft_config c = {.procs = STRESS_PROCS[k], .seed = seed};
            memset(&never, 0, sizeof never);
            weft_wg_add(&never, 1);
            int former = quiet(-1), r = weft_run_with(&c, all_fall_asleep, &stream);
            quiet(former);
            bool alone = r == 0; /* main left, and there was nobody else */
            CHECK(r == -EDEADLK || alone);
        }
    }
}

/* A single one is awake at any time, or in a blocking region, and passes the token on. */
enum { RING = 12 };

static struct {
    weft_wg turn[RING][2]; /* of each, for even and odd rounds */
    weft_wg over;
    int rounds, passed;
} ring;

static void member(void *arg)
{
    uintptr_t me = (uintptr_t)arg, next = (me + 1) % RING;
    uint64_t rng = stress_stream(seed, me);
    for (int i = 0; i < ring.rounds; i++) {
        CHECK_EQ(weft_wg_wait(&ring.turn[me][i % 2]), 0);
        weft_wg_add(&ring.turn[me][i % 2], 1); /* for the round after the next; nobody touches it before */
        ring.passed++;
        uint32_t r = check_random(&rng);
        if (r % 4 == 0) {
            weft_block_enter();
            usleep(r % 64 == 0 ? 12000 : r >> 8 & 0xff);
            weft_block_leave();
        } else if (r % 4 == 1) {
            weft_pin();
            weft_yield();
            weft_unpin();
        }
        weft_wg_done(&ring.turn[next][next == 0 ? (i + 1) % 2 : i % 2]);
    }
    weft_wg_done(&ring.over);
}

static void ring_main(void *arg)
{
    (void)arg;
    memset(&ring, 0, sizeof ring);
    ring.rounds = stress_scaled(60);
    weft_wg_add(&ring.over, RING);
    for (uintptr_t i = 0; i < RING; i++) {
        weft_wg_add(&ring.turn[i][0], 1);
        weft_wg_add(&ring.turn[i][1], 1);
    }
    for (uintptr_t i = 0; i < RING; i++)
        CHECK_EQ(weft_go((weft_fn *)member, (void *)i), 0);
    weft_wg_done(&ring.turn[0][0]);
    CHECK_EQ(weft_wg_wait(&ring.over), 0);
    CHECK_EQ(ring.passed, ring.rounds * RING);
}

CASE(one_that_is_awake_is_no_deadlock)
{
    seed = check_seed();
    for (int k = 0; k < STRESS_PROCS_COUNT; k++)
        stress_run(STRESS_PROCS[k], seed, ring_main, NULL);
}

/* ---- threads that are left behind ------------------------------------------------------------------------------- */

struct absence {
    uint32_t epoch, us;
};

static void stays_away(void *arg)
{
    struct absence a = *(struct absence *)arg;
    weft_block_enter();
    usleep(a.us);
    weft_block_leave();
    CHECK_EQ(atomic_load(&epoch), a.epoch);
}

static void computes_on(void *arg)
{
    struct absence a = *(struct absence *)arg;
    int64_t until = weft_now() + a.us * WEFT_USEC;
    while (weft_now() < until)
        ;
    weft_yield();
    CHECK_EQ(atomic_load(&epoch), a.epoch);
}

static void leaves_some_behind(void *arg)
{
    uint64_t rng = *(uint64_t *)arg;
    weft_attr big = {.name = "big", .stack_size = 200000};
    for (int i = 0; i < 6; i++) {
        static struct absence absences[6];
        struct absence *a = &absences[i]; /* until about when the run stops waiting for it, or a little longer */
        *a = (struct absence){atomic_load(&epoch), 90000 + check_random(&rng) % 40000};
        int r = i % 3 == 0   ? weft_go_with(&big, stays_away, a)
                : i % 3 == 1 ? weft_go_copy(stays_away, a, sizeof *a)
                             : weft_go_copy(computes_on, a, sizeof *a);
        CHECK_EQ(r, 0);
    }
    weft_block_enter();
    usleep(check_random(&rng) % 3000);
    weft_block_leave();
}

CASE(threads_left_behind_do_no_harm_to_the_runs_after)
{
    uint64_t rng = seed = check_seed();
    int former = quiet(-1);
    for (int i = 0; i < 8; i++) {
        uint64_t stream = stress_stream(seed, check_random(&rng));
        atomic_fetch_add(&epoch, 1);
        stress_run(STRESS_PROCS[i % STRESS_PROCS_COUNT], seed, leaves_some_behind, &stream);
        atomic_fetch_add(&epoch, 1);
        for (int k = 0; k < 3; k++)
            one_short_run(STRESS_PROCS[(i + k) % STRESS_PROCS_COUNT], &rng);
    }
    quiet(former);
    CHECK_EQ(check_threads_in_the_end(), 1);
}
