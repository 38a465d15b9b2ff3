/* SPDX-License-Identifier: MIT */
/*
 * The scheduler under load: every goroutine that is started runs once and comes to its end, whatever it does on the way
 * and however many Ps there are. A lost wake-up is a hang, which the harness ends.
 */
#include "stress.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint64_t seed;

static void on_each_procs(weft_fn *fn)
{
    seed = check_seed();
    for (int i = 0; i < STRESS_PROCS_COUNT; i++)
        stress_run(STRESS_PROCS[i], seed, fn, NULL);
}

/* Out of line: a compiler keeps the address of errno across a switch. */
static __attribute__((noinline)) int get_errno(void)
{
    __asm__ volatile("");
    return errno;
}

static __attribute__((noinline)) void set_errno(int e)
{
    __asm__ volatile("");
    errno = e;
}

static void compute(uint32_t n)
{
    for (volatile uint32_t i = 0; i < n; i++)
        ;
}

/* ---- spawn storm ------------------------------------------------------------------------------------------------ */

enum { STORM = 30000, SPAWNERS = 8 };

static struct {
    _Atomic uint8_t ran[SPAWNERS][STORM];
    _Atomic uint32_t twice;
    weft_wg wg;
    int each;
} storm;

static void storm_leaf(void *arg)
{
    if (atomic_fetch_add((_Atomic uint8_t *)arg, 1) != 0)
        atomic_fetch_add(&storm.twice, 1);
    weft_wg_done(&storm.wg);
}

static void storm_leaf_of_copy(void *arg)
{
    uint32_t *at = arg;
    CHECK(((uintptr_t)arg & 15) == 0);
    storm_leaf((void *)&storm.ran[at[0]][at[1]]);
}

static int storm_spawn(uint32_t spawner, uint32_t i, uint32_t how)
{
    static const size_t sizes[] = {0, 1, 33000, 100000, 300000};
    uint32_t at[2] = {spawner, i};
    weft_attr attr = {.name = how & 64 ? "leaf" : NULL, .stack_size = sizes[how % 5]};
    switch (how % 16) {
    case 0:
        return weft_go_copy(storm_leaf_of_copy, at, sizeof at);
    case 1:
        return weft_go_with(&attr, storm_leaf, (void *)&storm.ran[spawner][i]);
    default:
        return weft_go(storm_leaf, (void *)&storm.ran[spawner][i]);
    }
}

static void storm_spawner(void *arg)
{
    uint32_t n = (uint32_t)(uintptr_t)arg;
    uint64_t rng = stress_stream(seed, n);
    for (int i = 0; i < storm.each; i++) {
        uint32_t how = check_random(&rng);
        CHECK_EQ(storm_spawn(n, (uint32_t)i, how >> 8), 0);
        if (how % 128 == 0)
            weft_yield();
    }
    weft_wg_done(&storm.wg);
}

static void storm_main(void *arg)
{
    (void)arg;
    memset(&storm, 0, sizeof storm);
    storm.each = stress_scaled(STORM);
    weft_wg_add(&storm.wg, SPAWNERS * (storm.each + 1));
    for (uintptr_t i = 0; i < SPAWNERS; i++)
        CHECK_EQ(weft_go(storm_spawner, (void *)i), 0);
    CHECK_EQ(weft_wg_wait(&storm.wg), 0);
    for (int n = 0; n < SPAWNERS; n++)
        for (int i = 0; i < storm.each; i++)
            CHECK_EQ(storm.ran[n][i], 1);
    CHECK_EQ(storm.twice, 0);
}

CASE(a_spawn_storm_runs_each_goroutine_once)
{
    on_each_procs(storm_main);
}

/* ---- yield storm ------------------------------------------------------------------------------------------------ */

static struct {
    weft_wg wg;
    _Atomic uint64_t yields, wanted;
} yields;

static void yielder(void *arg)
{
    uint64_t rng = stress_stream(seed, (uintptr_t)arg), local[4], id = weft_id();
    uint32_t n = check_random(&rng) % 400;
    atomic_fetch_add(&yields.wanted, n);
    for (uint32_t i = 0; i < n; i++) {
        for (int k = 0; k < 4; k++)
            local[k] = id * 7 + i + (uint64_t)k;
        set_errno((int)id);
        weft_yield();
        CHECK_EQ(get_errno(), (int)id);
        for (int k = 0; k < 4; k++)
            CHECK_EQ(local[k], id * 7 + i + (uint64_t)k);
        atomic_fetch_add(&yields.yields, 1);
        if (check_random(&rng) % 64 == 0)
            compute(check_random(&rng) % 20000);
    }
    CHECK_EQ(weft_id(), id);
    weft_wg_done(&yields.wg);
}

static void yields_main(void *arg)
{
    (void)arg;
    int n = stress_scaled(1000);
    memset(&yields, 0, sizeof yields);
    weft_wg_add(&yields.wg, n);
    for (intptr_t i = 0; i < n; i++)
        CHECK_EQ(weft_go(yielder, (void *)i), 0);
    CHECK_EQ(weft_wg_wait(&yields.wg), 0);
    CHECK_EQ(yields.yields, yields.wanted);
}

CASE(a_yield_storm_brings_everybody_back)
{
    on_each_procs(yields_main);
}

/* ---- trees ------------------------------------------------------------------------------------------------------ */

struct node {
    uint64_t rng;
    int depth;
    uint32_t *size; /* where the number of nodes below and including this one goes */
    weft_wg *wg;    /* the parent's, on its stack */
};

static _Atomic uint32_t nodes_run;

static void node(void *arg)
{
    struct node self = *(struct node *)arg, child = self;
    uint32_t sizes[8] = {0}, n = self.depth > 0 ? check_random(&self.rng) % 6 : 0;
    weft_wg wg = {0};
    atomic_fetch_add(&nodes_run, 1);
    for (uint32_t i = 0; i < n; i++) {
        child = (struct node){stress_stream(self.rng, i), self.depth - 1, &sizes[i], &wg};
        weft_wg_add(&wg, 1);
        CHECK_EQ(weft_go_copy(node, &child, sizeof child), 0);
        if (check_random(&self.rng) % 8 == 0)
            weft_yield();
    }
    if (check_random(&self.rng) % 4 == 0)
        compute(check_random(&self.rng) % 1000);
    CHECK_EQ(weft_wg_wait(&wg), 0);
    uint32_t size = 1;
    for (uint32_t i = 0; i < n; i++)
        size += sizes[i];
    *self.size = size;
    weft_wg_done(self.wg);
}

static void trees_main(void *arg)
{
    (void)arg;
    uint32_t total = 0, sizes[64];
    int n = stress_scaled(64);
    weft_wg wg = {0};
    atomic_store(&nodes_run, 0);
    weft_wg_add(&wg, n);
    for (int i = 0; i < n; i++) {
        struct node root = {stress_stream(seed, (uint64_t)i), 7, &sizes[i], &wg};
        CHECK_EQ(weft_go_copy(node, &root, sizeof root), 0);
    }
    CHECK_EQ(weft_wg_wait(&wg), 0);
    for (int i = 0; i < n; i++)
        total += sizes[i];
    CHECK_EQ(total, nodes_run);
}

CASE(random_trees_are_walked_to_the_last_leaf)
{
    on_each_procs(trees_main);
}

/* ---- wait groups ------------------------------------------------------------------------------------------------ */

enum { ROUNDS = 400, CROWD = 50 };

/* Two that wake each other in turn: every wait group is used once, by one on each side. */
struct pair {
    weft_wg turn[2 * ROUNDS];
    weft_wg *ended;
    uint64_t rng[2];
    int rounds;
    int steps; /* guarded by the turns */
};

static void idle_a_little(uint64_t *rng)
{
    uint32_t r = check_random(rng);
    if (r % 8 == 0)
        weft_yield();
    else if (r % 8 == 1)
        compute(r >> 8 & 0xfff);
}

static void ping(void *arg)
{
    struct pair *p = arg;
    for (int i = 0; i < p->rounds; i++) {
        p->steps++;
        weft_wg_done(&p->turn[2 * i]);
        idle_a_little(&p->rng[0]);
        CHECK_EQ(weft_wg_wait(&p->turn[2 * i + 1]), 0);
    }
    weft_wg_done(p->ended);
}

static void pong(void *arg)
{
    struct pair *p = arg;
    for (int i = 0; i < p->rounds; i++) {
        CHECK_EQ(weft_wg_wait(&p->turn[2 * i]), 0);
        p->steps++;
        idle_a_little(&p->rng[1]);
        weft_wg_done(&p->turn[2 * i + 1]);
    }
    weft_wg_done(p->ended);
}

static struct pair *start_pair(weft_wg *ended, int i)
{
    struct pair *p = calloc(1, sizeof *p);
    p->rounds = stress_scaled(ROUNDS);
    p->ended = ended;
    for (int k = 0; k < 2 * p->rounds; k++)
        weft_wg_add(&p->turn[k], 1);
    for (int k = 0; k < 2; k++)
        p->rng[k] = stress_stream(seed, (uint64_t)(2 * i + k));
    weft_wg_add(ended, 2);
    CHECK_EQ(weft_go(ping, p), 0);
    CHECK_EQ(weft_go(pong, p), 0);
    return p;
}

static void pairs_main(void *arg)
{
    (void)arg;
    struct pair *pairs[40];
    int n = 40;
    weft_wg ended = {0};
    for (int i = 0; i < n; i++)
        pairs[i] = start_pair(&ended, i);
    CHECK_EQ(weft_wg_wait(&ended), 0);
    for (int i = 0; i < n; i++) {
        CHECK_EQ(pairs[i]->steps, 2 * pairs[i]->rounds);
        free(pairs[i]);
    }
}

CASE(pairs_that_wake_each_other_never_miss_a_turn)
{
    on_each_procs(pairs_main);
}

/* Many wait for one, who frees the wait group as soon as his own wait has returned. */
struct crowd {
    weft_wg gate, left;
    _Atomic int through;
};

static void one_of_a_crowd(void *arg)
{
    struct crowd *c = arg;
    CHECK_EQ(weft_wg_wait(&c->gate), 0);
    atomic_fetch_add(&c->through, 1);
    weft_wg_done(&c->left);
}

static void open_gate(void *arg)
{
    weft_wg_done(&((struct crowd *)arg)->gate);
}

static void crowds_main(void *arg)
{
    (void)arg;
    uint64_t rng = stress_stream(seed, 1);
    for (int i = 0; i < stress_scaled(400); i++) {
        struct crowd *c = calloc(1, sizeof *c);
        int n = (int)(check_random(&rng) % CROWD);
        uint32_t opener = check_random(&rng) % (CROWD + 1);
        weft_wg_add(&c->gate, 1);
        weft_wg_add(&c->left, n);
        for (int k = 0; k < n; k++) {
            if ((uint32_t)k == opener)
                CHECK_EQ(weft_go(open_gate, c), 0);
            CHECK_EQ(weft_go(one_of_a_crowd, c), 0);
        }
        idle_a_little(&rng);
        if (opener >= (uint32_t)n)
            open_gate(c);
        CHECK_EQ(weft_wg_wait(&c->left), 0);
        CHECK_EQ(c->through, n);
        memset(c, 0x5a, sizeof *c);
        free(c);
    }
}

CASE(a_crowd_passes_its_gate_which_is_freed_at_once)
{
    on_each_procs(crowds_main);
}

/* ---- everything at random --------------------------------------------------------------------------------------- */

enum { OWNERS = 1 << 22 };

static struct {
    weft_wg wg;
    _Atomic uint32_t owner[OWNERS]; /* of each OS thread: who is pinned to it */
    _Atomic uint64_t done, wanted;
    _Atomic bool over;
} mix;

/* Nobody else is pinned to this thread, and we stay on it. */
static void pinned_for_a_while(uint64_t *rng)
{
    uint32_t nobody = 0, me = (uint32_t)weft_id();
    weft_pin();
    pid_t tid = gettid();
    CHECK(atomic_compare_exchange_strong(&mix.owner[tid % OWNERS], &nobody, me));
    for (uint32_t i = check_random(rng) % 4; i > 0; i--) {
        weft_yield();
        CHECK_EQ(gettid(), tid);
        if (check_random(rng) % 4 == 0) {
            weft_block_enter();
            usleep(check_random(rng) % 100);
            weft_block_leave();
            CHECK_EQ(gettid(), tid);
        }
    }
    nobody = me;
    CHECK(atomic_compare_exchange_strong(&mix.owner[tid % OWNERS], &nobody, 0));
    weft_unpin();
}

static void blocked_for_a_while(uint64_t *rng)
{
    uint32_t r = check_random(rng);
    weft_block_enter();
    if (r % 4 == 0)
        weft_block_enter();
    if (r % 8 == 1)
        weft_yield(); /* ends the region silently */
    if (r % 2 == 0)
        usleep(r >> 8 & 0xff);
    if (r % 4 == 0)
        weft_block_leave();
    weft_block_leave();
}

static void child_of_mix(void *arg)
{
    weft_yield();
    weft_wg_done(arg);
}

static void wait_for_child(void)
{
    weft_wg wg = {0};
    weft_wg_add(&wg, 1);
    CHECK_EQ(weft_go(child_of_mix, &wg), 0);
    CHECK_EQ(weft_wg_wait(&wg), 0);
}

static void mixer(void *arg)
{
    uint64_t rng = stress_stream(seed, (uintptr_t)arg);
    uint32_t n = check_random(&rng) % 100;
    atomic_fetch_add(&mix.wanted, n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t r = check_random(&rng);
        switch (r % 16) {
        case 0:
            pinned_for_a_while(&rng);
            break;
        case 1:
        case 2:
            blocked_for_a_while(&rng);
            break;
        case 3:
        case 4:
            wait_for_child();
            break;
        case 5:
            compute(r >> 8 & 0xffff);
            break;
        default:
            weft_yield();
        }
        atomic_fetch_add(&mix.done, 1);
    }
    weft_wg_done(&mix.wg);
}

static void start_mix(int n)
{
    memset(&mix.wg, 0, sizeof mix.wg);
    atomic_store(&mix.done, 0);
    atomic_store(&mix.wanted, 0);
    atomic_store(&mix.over, false);
    weft_wg_add(&mix.wg, n);
    for (intptr_t i = 0; i < n; i++)
        CHECK_EQ(weft_go(mixer, (void *)i), 0);
}

static void end_mix(void)
{
    CHECK_EQ(weft_wg_wait(&mix.wg), 0);
    atomic_store(&mix.over, true);
    CHECK_EQ(mix.done, mix.wanted);
}

static void mix_main(void *arg)
{
    (void)arg;
    start_mix(stress_scaled(300));
    end_mix();
}

CASE(pins_and_blocking_regions_at_random)
{
    on_each_procs(mix_main);
}

/* ---- the number of Ps changes ----------------------------------------------------------------------------------- */

static void changer(void *arg)
{
    int former = weft_procs(0), wanted = former;
    uint64_t rng = stress_stream(seed, 77);
    for (int up = 1; !atomic_load(&mix.over); up = check_random(&rng) % 8 != 0 ? up : -up) {
        CHECK_EQ(weft_procs(wanted), former);
        former = wanted;
        wanted += wanted + up < 1 || wanted + up > 8 ? -up : up;
        for (uint32_t i = check_random(&rng) % 20; i > 0; i--)
            weft_yield();
        if (check_random(&rng) % 8 == 0)
            blocked_for_a_while(&rng);
    }
    weft_wg_done(arg);
}

static void changes_main(void *arg)
{
    weft_wg changed = {0};
    (void)arg;
    weft_wg_add(&changed, 1);
    start_mix(stress_scaled(300));
    CHECK_EQ(weft_go(changer, &changed), 0);
    end_mix();
    CHECK_EQ(weft_wg_wait(&changed), 0);
}

CASE(the_number_of_ps_changes_under_load)
{
    on_each_procs(changes_main);
}

/* From one to eight and back, over and over, while a fixed set of goroutines must all get on. */
static void trees_and_changes_main(void *arg)
{
    weft_wg changed = {0};
    weft_wg_add(&changed, 1);
    atomic_store(&mix.over, false);
    CHECK_EQ(weft_go(changer, &changed), 0);
    trees_main(arg);
    pairs_main(arg);
    atomic_store(&mix.over, true);
    CHECK_EQ(weft_wg_wait(&changed), 0);
}

CASE(trees_and_pairs_while_the_number_of_ps_changes)
{
    on_each_procs(trees_and_changes_main);
}
