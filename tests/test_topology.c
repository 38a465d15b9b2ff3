/* SPDX-License-Identifier: MIT */
/* What is read from sysfs, and where the Ps are at home in it: on made-up machines, on machines that change, on nonsense. */
#include "machines.h"

/* ---- homes ------------------------------------------------------------------------------------------------------ */

CASE(whole_cores_come_before_second_threads)
{
    build(&SMT);
    const struct w_places *s = set_up(16);
    for (int p = 0; p < 16; p++)
        CHECK_EQ(home(s, p)->core, p % 8);
    CHECK_EQ(distance(s, 0, 8), W_SAME_CORE);
    CHECK_EQ(distance(s, 0, 1), W_SAME_CACHE);
    CHECK(rings_are_sound(s, 16));
    tear_down();
    CHECK(set_up(8) == NULL); /* eight whole cores: all are as near */
    tear_down();
    drop();
}

CASE(nodes_are_filled_one_after_the_other)
{
    build(&TWO_NODES);
    const struct w_places *s = set_up(16);
    for (int p = 0; p < 16; p++)
        CHECK_EQ(home(s, p)->node, p / 8);
    CHECK_EQ(distance(s, 0, 7), W_SAME_CACHE);
    CHECK_EQ(distance(s, 7, 8), W_OTHER_NODE);
    CHECK(rings_are_sound(s, 16));
    tear_down();
    drop();
}

CASE(caches_lie_between_cores_and_nodes)
{
    build(&FOUR_NODES);
    const struct w_places *s = set_up(64);
    for (int p = 0; p < 64; p++)
        for (int q = 0; q < 64; q++)
            if (p != q)
                CHECK_EQ(distance(s, p, q), p / 8 == q / 8     ? W_SAME_CACHE
                                            : p / 16 == q / 16 ? W_SAME_NODE
                                                               : W_OTHER_NODE);
    CHECK(rings_are_sound(s, 64));
    tear_down();
    drop();
}

/* Node 0 is nearer to node 1, and 2 to 3, than to the others. */
CASE(other_nodes_come_in_the_order_of_their_distance)
{
    build(&FOUR_NODES);
    put("0-1,3,5-6\n", "/devices/system/node/online"); /* one without CPUs, which has a column all the same */
    put("32-47\n", "/devices/system/node/node5/cpulist");
    put("48-63\n", "/devices/system/node/node6/cpulist");
    put("\n", "/devices/system/node/node3/cpulist");
    put("10 12 99 32 32\n", "/devices/system/node/node0/distance");
    put("12 10 99 32 32\n", "/devices/system/node/node1/distance");
    put("32 32 99 10 12\n", "/devices/system/node/node5/distance");
    put("32 32 99 12 10\n", "/devices/system/node/node6/distance");
    const struct w_places *s = set_up(64);
    static const int nearest[] = {1, 0, 3, 2};
    for (int node = 0; node < 4; node++) {
        struct w_ring ring;
        CHECK(w_ring(s, w_sched.ps[node * 16], W_OTHER_NODE, &ring));
        CHECK_EQ(w_ring_size(&ring), 16);
        CHECK_EQ(w_ring_at(s, &ring, 0) / 16, nearest[node]);
    }
    tear_down();
    drop();
}

CASE(bigger_cores_come_first)
{
    build_mixed();
    const struct w_places *s = set_up(8);
    for (int p = 0; p < 8; p++) {
        CHECK_EQ(home(s, p)->id, (p + 4) % 8);
        CHECK_EQ(home(s, p)->capacity, p < 4 ? 1024 : 400);
    }
    tear_down();
    CHECK(set_up(4) == NULL); /* four big ones are alike */
    tear_down();
    drop();
    build(&(struct machine){1, 1, 8, 1}); /* an x86 that tells it in its own way */
    put("0-5\n", "/devices/cpu_atom/cpus");
    CHECK_EQ(home(set_up(8), 0)->id, 6);
    tear_down();
    drop();
}

CASE(more_ps_than_cpus_share_nodes_and_no_cores)
{
    build(&TWO_NODES);
    const struct w_places *s = set_up(40);
    for (int p = 0; p < 40; p++)
        CHECK_EQ(home(s, p)->node, p % 16 / 8);
    CHECK_EQ(distance(s, 0, 16), W_SAME_CACHE);
    CHECK(rings_are_sound(s, 40));
    tear_down();
    drop();
    build(&(struct machine){1, 1, 2, 1});
    CHECK(set_up(8) == NULL);
    tear_down();
    drop();
}

CASE(cpus_that_are_offline_are_nobodys_home)
{
    build(&FOUR_NODES);
    put("1-2,20,40-43,63\n", "/devices/system/cpu/online");
    const struct w_places *s = set_up(8);
    static const int ids[] = {1, 2, 20, 40, 41, 42, 43, 63};
    for (int p = 0; p < 8; p++)
        CHECK_EQ(home(s, p)->id, ids[p]);
    CHECK_EQ(w_sched.nodes, 4);
    CHECK_EQ(distance(s, 3, 6), W_SAME_CACHE);
    CHECK(rings_are_sound(s, 8));
    tear_down();
    drop();
}

/* ---- what changes, and what makes no sense ---------------------------------------------------------------------- */

static void yields(void *wg)
{
    for (int i = 0; i < 20; i++)
        weft_yield();
    weft_wg_done(wg);
}

/* Enough for all Ps. */
static void works(void)
{
    weft_wg wg = {0};
    int n = scaled(2000);
    weft_wg_add(&wg, n);
    for (int i = 0; i < n; i++)
        weft_go(yields, &wg);
    weft_wg_wait(&wg);
}

static void changes_cpus(void *arg)
{
    (void)arg;
    static const char *const online[] = {"0-7\n", "0-15\n", "8-15\n", "3\n", "0,9\n", "0-15\n"};
    for (size_t i = 0; i < sizeof online / sizeof online[0]; i++) {
        put(online[i], "/devices/system/cpu/online");
        CHECK(weft_procs(i % 2 == 0 ? 5 : 20) > 0);
        works();
        CHECK_EQ(w_sched.nodes, 2); /* memory belongs to them until the run ends */
    }
    put("16-17\n", "/devices/system/cpu/online"); /* of a node that was not there */
    put("1-2\n", "/devices/system/node/online");
    put("16-17\n", "/devices/system/node/node2/cpulist");
    CHECK(weft_procs(16) > 0);
    works();
    CHECK_EQ(w_sched.nodes, 2);
    put("", "/devices/system/cpu/online");
    CHECK(weft_procs(3) > 0);
    works();
}

CASE(cpus_may_come_and_go)
{
    build(&TWO_NODES);
    CHECK_EQ(run_on(16, changes_cpus, NULL), 0);
    drop();
}

static void grows(void *arg)
{
    (void)arg;
    for (int n = 2; n <= 64; n += 1 + n / 8) {
        CHECK(weft_procs(n) > 0);
        works();
        CHECK(rings_are_sound(w_sched.places, n));
    }
    for (int n = 64; n > 1; n = n * 2 / 3) {
        CHECK(weft_procs(n) > 0);
        works();
    }
}

CASE(the_number_of_ps_may_change)
{
    build(&FOUR_NODES);
    CHECK_EQ(run_on(2, grows, NULL), 0);
    drop();
}

static void checks_rings(void *arg)
{
    int procs = *(int *)arg;
    works();
    if (w_sched.places != NULL)
        CHECK(rings_are_sound(w_sched.places, procs));
}

static void expect_sound(int procs)
{
    CHECK_EQ(run_on(procs, checks_rings, &procs), 0);
}

CASE(garbage_does_no_harm)
{
    static const char *const files[] = {"cpu/online",
                                        "cpu/cpu3/topology/core_cpus_list",
                                        "cpu/cpu3/cache/index3/level",
                                        "cpu/cpu3/cache/index3/type",
                                        "cpu/cpu3/cache/index3/shared_cpu_list",
                                        "cpu/cpu3/cpu_capacity",
                                        "node/online",
                                        "node/node1/cpulist",
                                        "node/node1/distance"};
    static const char *const garbage[] = {
        "",    "\n",         "x",      "-1",         "99999999999999999999", "0-4294967295",
        "5-2", "1,,2,-,3-x", "0-8191", "8192,0,-0-", "\xff\xfe\xfd",         "0x3"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        build(&TWO_NODES);
        for (size_t k = 0; k < sizeof garbage / sizeof garbage[0]; k++) {
            put(garbage[k], "/devices/system/%s", files[i]);
            set_up(12);
            if (w_sched.places != NULL)
                CHECK(rings_are_sound(w_sched.places, 12));
            tear_down();
        }
        char path[200];
        snprintf(path, sizeof path, "%s/devices/system/%s", root, files[i]);
        remove(path);
        expect_sound(12);
        mkdir(path, 0755); /* a folder where a file should be */
        expect_sound(12);
        drop();
    }
}

/* Every CPU names others as its siblings, in a ring; caches and nodes overlap. */
CASE(nonsense_does_no_harm)
{
    build(&TWO_NODES);
    char text[64];
    for (int i = 0; i < 16; i++) {
        snprintf(text, sizeof text, "%d,%d\n", (i + 1) % 16, (i + 5) % 16);
        put(text, "/devices/system/cpu/cpu%d/topology/core_cpus_list", i);
        snprintf(text, sizeof text, "%d-%d\n", i / 3, i);
        put(text, "/devices/system/cpu/cpu%d/cache/index3/shared_cpu_list", i);
    }
    put("0-15\n", "/devices/system/node/node0/cpulist");
    put("4-11\n", "/devices/system/node/node1/cpulist");
    put("99 1 1 1 1\n", "/devices/system/node/node0/distance");
    expect_sound(16);
    expect_sound(40);
    drop();
}

CASE(without_a_tree_all_ps_are_alike)
{
    new_tree();
    setenv("WEFT_SYSFS", root, 1);
    CHECK(set_up(16) == NULL);
    CHECK_EQ(w_sched.nodes, 1);
    tear_down();
    expect_sound(16);
    setenv("WEFT_SYSFS", "/nowhere/at/all", 1);
    expect_sound(16);
    drop();
}

CASE(many_nodes_are_folded)
{
    build(&(struct machine){40, 1, 2, 1});
    const struct w_places *s = set_up(80);
    CHECK_EQ(w_sched.nodes, W_MAX_NODES);
    CHECK(rings_are_sound(s, 80));
    tear_down();
    expect_sound(80);
    drop();
}
