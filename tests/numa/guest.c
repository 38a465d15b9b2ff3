/* SPDX-License-Identifier: MIT */
/*
 * What Weft makes of a machine that has several nodes, on one: run.py boots it. Its nodes are 0, with CPUs 0 and 1; 1, with
 * CPUs 2 and 3; and 2, which has memory alone.
 */
#include "../machines.h"
#include <fcntl.h>
#include <sched.h>

enum { CPUS = 4, LAST = 3, BOTH = 1 << 0 | 1 << 1, MPOL_NODE_OF_ADDRESS = 1 | 2 };

/* ---- the machine ------------------------------------------------------------------------------------------------ */

static int os_node(const struct w_places *s, uint32_t node)
{
    return s->topology->os_node[node];
}

static cpu_set_t cpus_of_node(int node)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(2 * node, &set);
    CPU_SET(2 * node + 1, &set);
    return set;
}

static cpu_set_t mask_now(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CHECK_EQ(sched_getaffinity(0, sizeof set, &set), 0);
    return set;
}

/* Where the page of an address lies. */
static int memory_node(const void *at)
{
    int node = -1;
    CHECK_EQ(syscall(SYS_get_mempolicy, &node, NULL, 0ul, at, MPOL_NODE_OF_ADDRESS), 0);
    return node;
}

static int running_node(void)
{
    unsigned cpu = 0, node = 0;
    CHECK_EQ(getcpu(&cpu, &node), 0);
    return (int)node;
}

static void switch_cpu(const char *on)
{
    int fd = open("/sys/devices/system/cpu/cpu3/online", O_WRONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    CHECK_EQ(write(fd, on, 1), 1);
    close(fd);
}

/* ---- at rest ---------------------------------------------------------------------------------------------------- */

CASE(there_are_two_nodes_with_two_cpus_each)
{
    const struct w_places *s = set_up(CPUS);
    CHECK(s != NULL);
    CHECK_EQ(s->topology->nodes, 2);
    CHECK_EQ(s->topology->cpus, CPUS);
    CHECK_EQ(os_node(s, 0) + os_node(s, 1), 1); /* 0 and 1, in any order */
    for (int p = 0; p < CPUS; p++) {
        CHECK_EQ(home(s, p)->node, p / 2);
        CHECK_EQ(home(s, p)->id, 2 * os_node(s, home(s, p)->node) + p % 2);
        for (int q = 0; q < CPUS; q++)
            if (p != q)
                CHECK_EQ(distance(s, p, q) == W_OTHER_NODE, p / 2 != q / 2);
    }
    CHECK(rings_are_sound(s, CPUS));
    tear_down();
}

/* Whoever touches it first: here that is a thread on the other node. */
static void memory_of(const struct w_places *s, int p)
{
    enum { MANY = 100 };
    struct w_g *gs[MANY];
    int node = os_node(s, home(s, p)->node);
    cpu_set_t all = mask_now(), far = cpus_of_node(1 - node);
    CHECK_EQ(sched_setaffinity(0, sizeof far, &far), 0);
    CHECK_EQ(running_node(), 1 - node);
    for (int i = 0; i < MANY; i++) {
        gs[i] = w_g_new(w_sched.ps[p]);
        CHECK(gs[i] != NULL && w_g_bind(w_sched.ps[p], gs[i]));
        char *end = gs[i]->stack_lo + w_stack_size(gs[i]->stack_class);
        end[-1] = end[-3 * W_PAGE] = 1;
        CHECK_EQ(memory_node(gs[i]), node);
        CHECK_EQ(memory_node(end - 1), node);
        CHECK_EQ(memory_node(end - 3 * W_PAGE), node);
    }
    for (int i = 0; i < MANY; i++)
        w_g_recycle(w_sched.ps[p], gs[i]);
    CHECK_EQ(sched_setaffinity(0, sizeof all, &all), 0);
}

CASE(goroutines_and_stacks_lie_on_the_node_of_their_p)
{
    const struct w_places *s = set_up(CPUS);
    for (int p = 0; p < CPUS; p++)
        memory_of(s, p);
    tear_down();
}

CASE(a_thief_steals_from_its_own_node_first)
{
    static struct w_g dummies[CPUS];
    const struct w_places *s = set_up(CPUS);
    for (int thief = 0; thief < CPUS; thief++) {
        struct w_p *p = w_sched.ps[thief];
        for (int i = 0; i < CPUS; i++)
            if (i != thief)
                w_runq_put(&w_sched.ps[i]->runq, &dummies[i]);
        for (int i = 1; i < CPUS; i++) {
            p->passes = 0;
            struct w_g *g = w_steal(p);
            CHECK(g != NULL);
            CHECK_EQ(distance(s, thief, (int)(g - dummies)) == W_OTHER_NODE, i > 1);
        }
        CHECK_EQ(p->stolen_at[W_OTHER_NODE], 2);
        CHECK_EQ(p->count.stolen, 3);
    }
    tear_down();
}

/* A thread of a node that has lost a CPU still goes along with its P. */
CASE(a_thread_changes_its_node_although_a_cpu_is_gone)
{
    static struct w_m m;
    cpu_set_t all = mask_now();
    const struct w_places *s = set_up(CPUS);
    int near = os_node(s, 0) == 1 ? 0 : LAST, far = LAST - near; /* Ps whose home is on node 1, on node 0 */
    w_m_settle(&m, w_sched.ps[near]);
    CHECK_EQ(running_node(), 1);
    switch_cpu("0");
    w_m_settle(&m, w_sched.ps[far]);
    CHECK_EQ(running_node(), 0);
    w_m_settle(&m, w_sched.ps[near]);
    CHECK_EQ(running_node(), 1);
    switch_cpu("1");
    w_m_settle(&m, w_sched.ps[far]);
    CHECK_EQ(running_node(), 0);
    CHECK_EQ(sched_setaffinity(0, sizeof all, &all), 0);
    tear_down();
}

/* ---- runs ------------------------------------------------------------------------------------------------------- */

static _Atomic int threads_astray, stacks_astray, nodes_seen, at_work;
static _Atomic bool enough;

static void burn(void)
{
    for (volatile int i = 0; i < 5000; i = i + 1)
        ;
}

/* The node of the P that it runs on; its thread keeps to the CPUs of it. */
static int look_at_thread(void)
{
    struct w_m *m = w_enter();
    int node = os_node(w_sched.places, w_p_node(m->p));
    cpu_set_t now = mask_now(), own = cpus_of_node(node);
    threads_astray += !CPU_EQUAL(&now, &own) || running_node() != node;
    w_leave();
    nodes_seen |= 1 << node;
    return node;
}

enum { MANY = 200 };

/* None ends before all have begun, so no stack has been anybody else's, and each is of the P that it first ran on. */
static void looks_around(void *arg)
{
    struct w_m *m = w_enter();
    stacks_astray += memory_node(__builtin_frame_address(0)) != os_node(w_sched.places, w_p_node(m->p));
    w_leave();
    at_work++;
    while (!enough) {
        look_at_thread();
        burn();
        weft_yield();
    }
    weft_wg_done(arg);
}

static void fills_the_machine(void *arg)
{
    weft_wg wg = {0};
    (void)arg;
    weft_wg_add(&wg, MANY);
    for (int i = 0; i < MANY; i++)
        weft_go(looks_around, &wg);
    CHECK(reaches(&at_work, MANY, 20));
    for (int64_t end = weft_now() + 20 * WEFT_SEC; nodes_seen != BOTH && weft_now() < end;)
        weft_yield();
    enough = true;
    weft_wg_wait(&wg);
}

CASE(threads_and_stacks_of_a_run_keep_to_their_nodes)
{
    cpu_set_t before = mask_now();
    CHECK_EQ(weft_run_with(&(weft_config){.procs = CPUS, .quantum = WEFT_NEVER}, fills_the_machine, NULL), 0);
    CHECK_EQ(threads_astray, 0);
    CHECK(stacks_astray <= MANY / 20); /* one whose P is taken before it looks is elsewhere when it does */
    CHECK_EQ(nodes_seen, BOTH);
    cpu_set_t after = mask_now();
    CHECK(CPU_EQUAL(&before, &after));
}

enum { SENDERS = 10000 };

struct sum {
    weft_chan *ch;
    _Atomic long next;
    long total;
};

static void sends_its_number(void *arg)
{
    struct sum *sum = arg;
    long n = ++sum->next;
    CHECK_EQ(weft_send(sum->ch, &n), 0);
}

static void receives_all(struct sum *sum)
{
    long n;
    for (int i = 0; i < SENDERS; i++) {
        CHECK_EQ(weft_recv(sum->ch, &n), 0);
        sum->total += n;
    }
}

static void adds_up(struct sum *sum)
{
    for (int i = 0; i < SENDERS; i++)
        weft_go(sends_its_number, sum);
    receives_all(sum);
    CHECK_EQ(sum->total, (long)SENDERS * (SENDERS + 1) / 2);
}

static void adds_up_and_counts(void *arg)
{
    uint64_t stolen = 0, by_distance = 0;
    (void)arg;
    struct sum sum = {.ch = weft_chan_new(sizeof(long), 16)};
    adds_up(&sum);
    CHECK(others_have_ended());
    weft_procs(1); /* who is left steals from nobody */
    for (int p = 0; p < CPUS; p++) {
        stolen += w_sched.ps[p]->count.stolen;
        for (int d = W_SAME_CORE; d <= W_OTHER_NODE; d++)
            by_distance += w_sched.ps[p]->stolen_at[d];
    }
    CHECK(by_distance > 0 && by_distance <= stolen);
    weft_chan_free(sum.ch);
}

CASE(ten_thousand_goroutines_add_up)
{
    CHECK_EQ(run_on(CPUS, adds_up_and_counts, NULL), 0);
}

/* ---- a CPU that goes and comes ---------------------------------------------------------------------------------- */

static void computes_and_sends(void *arg)
{
    burn();
    sends_its_number(arg);
}

static void switch_in_region(const char *on)
{
    weft_block_enter();
    switch_cpu(on);
    weft_block_leave();
}

static uint32_t cpus_known(void)
{
    return w_sched.places->topology->cpus;
}

static void loses_a_cpu(void *arg)
{
    (void)arg;
    struct sum sum = {.ch = weft_chan_new(sizeof(long), 16)};
    for (int i = 0; i < SENDERS; i++)
        weft_go(computes_and_sends, &sum);
    switch_in_region("0");
    CHECK_EQ(cpus_known(), CPUS); /* nobody has looked */
    CHECK_EQ(weft_procs(CPUS - 1), CPUS);
    CHECK_EQ(cpus_known(), CPUS - 1);
    for (int i = 0; i < 100; i++)
        weft_yield();
    switch_in_region("1");
    CHECK_EQ(weft_procs(CPUS), CPUS - 1);
    CHECK_EQ(cpus_known(), CPUS);
    receives_all(&sum);
    CHECK_EQ(sum.total, (long)SENDERS * (SENDERS + 1) / 2);
    CHECK(others_have_ended());
    weft_chan_free(sum.ch);
}

CASE(a_cpu_goes_and_comes_during_a_run_and_nothing_is_lost)
{
    CHECK_EQ(run_on(CPUS, loses_a_cpu, NULL), 0);
}
