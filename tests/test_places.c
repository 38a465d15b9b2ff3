/* SPDX-License-Identifier: MIT */
/* Near first: whom a thief steals from, who is woken, where threads keep to and memory goes back to, on made-up machines. */
#include "machines.h"
#include <sched.h>
#include <sys/resource.h>

/* ---- stealing and waking ---------------------------------------------------------------------------------------- */

static struct w_g dummies[W_MAX_PROCS];

/* Some have work: the thief goes to one of the nearest of them. */
static void steals_near_first(const struct machine *k, int procs, int rounds)
{
    uint64_t rng = check_seed();
    build(k);
    const struct w_places *s = set_up(procs);
    for (int round = 0; round < rounds; round++) {
        int thief = (int)(check_random(&rng) % (uint32_t)procs), nearest = INT_MAX;
        uint32_t one_in = 1 + check_random(&rng) % (uint32_t)procs;
        for (int p = 0; p < procs; p++)
            if (p != thief && check_random(&rng) % one_in == 0) {
                w_runq_put(&w_sched.ps[p]->runq, &dummies[p]);
                nearest = distance(s, thief, p) < nearest ? distance(s, thief, p) : nearest;
            }
        w_sched.ps[thief]->passes = 0;
        struct w_g *g = w_steal(w_sched.ps[thief]);
        CHECK((g == NULL) == (nearest == INT_MAX));
        if (g != NULL)
            CHECK_EQ(distance(s, thief, (int)(g - dummies)), nearest);
        for (int p = 0; p < procs; p++)
            w_runq_get(&w_sched.ps[p]->runq);
    }
    uint64_t stolen = 0, by_distance = 0;
    for (int p = 0; p < procs; p++) {
        stolen += w_sched.ps[p]->count.stolen;
        for (int d = 0; d < 4; d++)
            by_distance += w_sched.ps[p]->stolen_at[d];
    }
    CHECK_EQ(by_distance, stolen);
    CHECK(stolen > 0);
    tear_down();
    drop();
}

CASE(a_thief_asks_the_nearest_first)
{
    steals_near_first(&SMT, 16, scaled(2000));
    steals_near_first(&TWO_NODES, 16, scaled(2000));
    steals_near_first(&FOUR_NODES, 64, scaled(1000));
    steals_near_first(&TWO_NODES, 40, scaled(1000));
}

/* Of those as near none is asked more often than the others. */
CASE(victims_at_one_distance_are_chosen_at_random)
{
    int chosen[16] = {0}, rounds = 4000;
    build(&TWO_NODES);
    set_up(16);
    for (int round = 0; round < rounds; round++) {
        for (int p = 9; p < 16; p++)
            w_runq_put(&w_sched.ps[p]->runq, &dummies[p]);
        w_sched.ps[8]->passes = 0;
        struct w_g *g = w_steal(w_sched.ps[8]);
        if (g != NULL)
            chosen[g - dummies]++;
        for (int p = 9; p < 16; p++)
            w_runq_get(&w_sched.ps[p]->runq);
    }
    for (int p = 9; p < 16; p++)
        CHECK(chosen[p] > rounds / 14 && chosen[p] < rounds / 7 * 2);
    tear_down();
    drop();
}

/* Else work would not get from one node to another as long as there are crumbs. */
CASE(every_eighth_pass_begins_anywhere)
{
    int far = 0, passes = 8 * 200;
    build(&TWO_NODES);
    const struct w_places *s = set_up(16);
    for (int i = 0; i < passes; i++) {
        for (int p = 1; p < 16; p++)
            w_runq_put(&w_sched.ps[p]->runq, &dummies[p]);
        struct w_g *g = w_steal(w_sched.ps[0]);
        far += g != NULL && distance(s, 0, (int)(g - dummies)) == W_OTHER_NODE;
        for (int p = 1; p < 16; p++)
            w_runq_get(&w_sched.ps[p]->runq);
    }
    CHECK(far > passes / 8 / 4 && far <= passes / 8);
    tear_down();
    drop();
}

static int get_idle(const struct w_p *near)
{
    w_lock(&w_sched.lock, W_RANK_SCHED);
    struct w_p *p = w_p_get_idle_locked(near);
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    return p != NULL ? (int)p->id : -1;
}

/* From P 21, which is busy: its cache, then its node, then node 0, which is the nearest to node 1, then the others. */
CASE(the_nearest_idle_p_is_woken)
{
    build(&FOUR_NODES);
    const struct w_places *s = set_up(64);
    int last = 0, taken = 0;
    CHECK_EQ(get_idle(w_sched.ps[21]), 16); /* the first of all that are as good */
    for (int p; (p = get_idle(w_sched.ps[21])) >= 0; taken++) {
        int d = p / 8 == 2 ? 0 : p / 16 == 1 ? 1 : p / 16 == 0 ? 2 : 3;
        CHECK(d >= last);
        last = d;
    }
    CHECK_EQ(taken, 63);
    CHECK(rings_are_sound(s, 64));
    tear_down();
    drop();
}

CASE(an_idle_core_is_woken_before_a_second_thread)
{
    build(&SMT);
    set_up(16);
    CHECK_EQ(get_idle(NULL), 0);
    bool used[8] = {true};
    for (int i = 1; i < 8; i++) {
        int p = get_idle(w_sched.ps[0]);
        CHECK(p >= 0 && !used[p % 8]);
        used[p % 8] = true;
    }
    for (int i = 8; i < 16; i++)
        CHECK(get_idle(w_sched.ps[0]) >= 0);
    CHECK_EQ(get_idle(w_sched.ps[0]), -1);
    tear_down();
    drop();
}

CASE(of_those_as_near_the_bigger_core_is_woken)
{
    build_mixed();
    set_up(8);
    for (int i = 0; i < 8; i++)
        CHECK_EQ(get_idle(w_sched.ps[7]) < 4, i < 4);
    tear_down();
    drop();
}

/* Two big cores and two small ones, two threads each. */
CASE(a_small_core_is_woken_before_the_second_thread_of_a_big_one)
{
    build(&(struct machine){1, 1, 4, 2});
    for (int i = 0; i < 8; i++)
        put(i % 4 < 2 ? "1024\n" : "400\n", "/devices/system/cpu/cpu%d/cpu_capacity", i);
    const struct w_places *s = set_up(8);
    for (int i = 0; i < 8; i++) {
        int p = get_idle(w_sched.ps[0]);
        CHECK(p >= 0 && home(s, p)->sibling == i / 4);
        CHECK(p >= 0 && home(s, p)->capacity == (i % 4 < 2 ? 1024u : 400u));
    }
    tear_down();
    drop();
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

enum { MANY = 3000 }; /* more than a P keeps */

static uintptr_t chunk_of(const struct w_g *g)
{
    return (uintptr_t)g >> 16;
}

static uintptr_t granule_of(const struct w_g *g)
{
    return (uintptr_t)g->stack_lo >> 27;
}

static bool among(uintptr_t x, const uintptr_t *of, int n)
{
    for (int i = 0; i < n; i++)
        if (of[i] == x)
            return true;
    return false;
}

static void take_many(struct w_p *p, struct w_g **gs)
{
    for (int i = 0; i < MANY; i++) {
        gs[i] = w_g_new(p);
        CHECK(gs[i] != NULL && w_g_bind(p, gs[i]));
    }
}

static void end_many(struct w_p *p, struct w_g **gs)
{
    for (int i = 0; i < MANY; i++)
        w_g_recycle(p, gs[i]);
    w_gs_flush(p);
    w_stack_cache_flush(p, 0);
}

CASE(goroutines_and_stacks_go_back_to_their_node)
{
    static struct w_g *near[MANY], *far[MANY];
    static uintptr_t chunks[MANY], granules[MANY];
    build(&TWO_NODES);
    set_up(16);
    struct w_p *a = w_sched.ps[0], *b = w_sched.ps[8];
    take_many(a, near);
    for (int i = 0; i < MANY; i++) {
        chunks[i] = chunk_of(near[i]);
        granules[i] = granule_of(near[i]);
    }
    take_many(b, far);
    for (int i = 0; i < MANY; i += 10)
        CHECK(!among(chunk_of(far[i]), chunks, MANY) && !among(granule_of(far[i]), granules, MANY));
    for (int round = 0; round < 3; round++) {
        end_many(b, near); /* on the other node each */
        end_many(a, far);
        w_stacks_trim();
        take_many(a, near);
        take_many(b, far);
        for (int i = 0; i < MANY; i += 10) {
            CHECK(among(chunk_of(near[i]), chunks, MANY) && among(granule_of(near[i]), granules, MANY));
            CHECK(!among(chunk_of(far[i]), chunks, MANY) && !among(granule_of(far[i]), granules, MANY));
        }
    }
    end_many(a, near);
    end_many(b, far);
    tear_down();
    drop();
}

/* All that was promised lies on one node, and there is no address space for more. */
static void promised_elsewhere(void)
{
    build(&TWO_NODES);
    set_up(16);
    uint32_t n = 0;
    CHECK_EQ(w_stacks_reserve(0, 2000), 0);
    CHECK_EQ(setrlimit(RLIMIT_AS, &(struct rlimit){0, 0}), 0);
    for (int node = 1; n < 2000 && w_stack_get(w_default_stack_class(), (uint32_t)node) != NULL; node ^= 1)
        n++;
    CHECK_EQ(n, 2000);
    drop();
}

CASE(a_promise_is_kept_with_memory_of_another_node)
{
    char text[4096];
    if (check_under_asan() || check_under_tsan() || check_under_emulator())
        skipped("the address space cannot be limited here");
    else
        CHECK(child_is_well(promised_elsewhere, text, sizeof text));
}

/* ---- threads ---------------------------------------------------------------------------------------------------- */

static _Atomic int strangers, nodes_seen;

static void looks_where_it_runs(void *arg)
{
    weft_wg *wg = arg;
    for (int i = 0; i < 20; i++) {
        struct w_m *m = w_enter();
        uint32_t node = w_p_node(m->p);
        strangers += m->bound != node + 1;
        nodes_seen |= 1 << node;
        w_leave();
        weft_yield();
    }
    weft_wg_done(wg);
}

static void fills_all_ps(void *arg)
{
    int n = *(int *)arg;
    weft_wg wg = {0};
    weft_wg_add(&wg, n);
    for (int i = 0; i < n; i++)
        weft_go(looks_where_it_runs, &wg);
    weft_wg_wait(&wg);
}

CASE(threads_keep_to_the_node_of_their_p)
{
    int n = scaled(20000);
    build(&TWO_NODES);
    strangers = nodes_seen = 0;
    CHECK_EQ(run_on(16, fills_all_ps, &n), 0);
    CHECK_EQ(strangers, 0);
    CHECK(nodes_seen & 1);
    drop();
}

static cpu_set_t mask_now(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CHECK_EQ(sched_getaffinity(0, sizeof set, &set), 0);
    return set;
}

/* A tree that was made up, but of CPUs that are there: it is taken at its word. */
static void bind_to_two(int first, int second)
{
    char text[64];
    cpu_set_t all = mask_now(), now;
    new_tree();
    snprintf(text, sizeof text, "%d,%d\n", first, second);
    put(text, "/devices/system/cpu/online");
    put("0-1\n", "/devices/system/node/online");
    snprintf(text, sizeof text, "%d\n", first);
    put(text, "/devices/system/node/node0/cpulist");
    snprintf(text, sizeof text, "%d\n", second);
    put(text, "/devices/system/node/node1/cpulist");
    setenv("WEFT_SYSFS", root, 1);
    const struct w_places *s = set_up(2);
    ((struct w_topology *)s->topology)->fake = false;
    static struct w_m m;
    for (int p = 0; p < 2; p++) {
        w_m_settle(&m, w_sched.ps[p]);
        now = mask_now();
        CHECK(CPU_COUNT(&now) == 1 && CPU_ISSET(p == 0 ? first : second, &now));
    }
    CHECK_EQ(sched_setaffinity(0, sizeof all, &all), 0); /* somebody else has his own ideas */
    w_m_settle(&m, w_sched.ps[0]);
    now = mask_now();
    CHECK(CPU_EQUAL(&now, &all));
    char *page = w_map(W_PAGE);
    w_memory_on(0, page, W_PAGE);
    w_memory_on(1, page, W_PAGE); /* which is not there */
    page[0] = 1;
    munmap(page, W_PAGE);
    tear_down();
    drop();
}

CASE(a_thread_is_bound_unless_somebody_else_has_bound_it)
{
    cpu_set_t all = mask_now();
    int cpu[2], n = 0;
    for (int i = 0; i < CPU_SETSIZE && n < 2; i++)
        if (CPU_ISSET(i, &all))
            cpu[n++] = i;
    if (n < 2 || check_under_emulator())
        skipped("there are no two CPUs to tell apart");
    else
        bind_to_two(cpu[0], cpu[1]);
}

static void compares_masks(void *arg)
{
    cpu_set_t now = mask_now(), *all = arg, both;
    CPU_AND(&both, &now, all);
    CHECK(CPU_EQUAL(&both, &now));
}

CASE(no_thread_leaves_the_mask_of_the_process)
{
    cpu_set_t all = mask_now(), one;
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &all))
            CPU_SET(i, &one);
    CHECK_EQ(run_on(2, compares_masks, &all), 0);
    CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    CHECK_EQ(run_on(2, compares_masks, &one), 0);
    CHECK_EQ(sched_setaffinity(0, sizeof all, &all), 0);
}
