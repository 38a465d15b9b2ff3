/* SPDX-License-Identifier: MIT */
/*
 * What the machine is made of, read from sysfs: which CPUs share a core, a last cache, a node; how far apart nodes are;
 * which kind of core is bigger. WEFT_SYSFS names a folder that stands in for /sys.
 *
 *      devices/system/cpu/online                          the CPUs, cut down to the affinity mask of the process
 *      devices/system/cpu/cpuN/topology/core_cpus_list    who shares its core; thread_siblings_list in older kernels
 *      devices/system/cpu/cpuN/cache/indexK/...           level, type, shared_cpu_list: the last level counts
 *      devices/system/cpu/cpuN/cpu_capacity               big and little cores; devices/cpu_atom/cpus on hybrid x86
 *      devices/system/node/online, nodeK/cpulist, nodeK/distance
 *
 * What is read of one CPU holds for all that it names, and these are not asked again: so groups never overlap, whatever the
 * files say, and a machine of 256 CPUs is read from 370 files, in 3 ms, and not from 5,000. What cannot be read is not there: without caches
 * a node is one cache, without nodes the machine is one, without CPUs nothing is known and all Ps are alike.
 *
 * The CPUs are sorted in the order in which Ps get them: whole cores before second threads, the biggest kind first, node
 * by node. Nodes are numbered from the one that the run began on, so that two programs with few Ps do not both sit on the
 * first. A set that is read anew while a run is up keeps the nodes that the run began with: memory belongs to them.
 */
#include "topology.h"
#include "sys_io.h"
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TEXT = 4096, /* what sysfs gives of a file */
    CACHES = 10, /* index0 to index9 */
    CAPACITY = 1024,
    ATOM = 512,
    NEAR = 10, /* the distance of a node to itself; FAR: to another one, if nobody says */
    FAR = 20,
};

struct reader {
    const char *root;
    char path[TEXT], text[TEXT + 1];
    struct w_cpus list;        /* what was parsed last */
    uint16_t core[W_MAX_CPUS]; /* as in struct w_cpu, one more; 0: not known yet */
    uint16_t cache[W_MAX_CPUS];
    uint16_t node[W_MAX_CPUS];      /* the index of its node */
    uint16_t column[W_MAX_NODES];   /* of a node in the files `distance` */
    uint32_t distance[W_MAX_NODES]; /* from one node */
};

/* ---- sets and files --------------------------------------------------------------------------------------------- */

enum { WORD = 8 * sizeof(unsigned long) };

static bool has(const struct w_cpus *s, uint32_t cpu)
{
    return s->bit[cpu / WORD] >> cpu % WORD & 1;
}

static void add(struct w_cpus *s, uint32_t cpu)
{
    s->bit[cpu / WORD] |= 1ul << cpu % WORD;
}

static uint32_t count(const struct w_cpus *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < W_MAX_CPUS; i++)
        n += has(s, i);
    return n;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* What is too large stays too large. */
static uint32_t number(const char **at)
{
    uint32_t n = 0;
    for (; is_digit(**at); ++*at)
        n = n < W_MAX_CPUS * 16 ? n * 10 + (uint32_t)(**at - '0') : n;
    return n;
}

/* "0-3,8,10-11". Ends at the first thing that is none of that. */
static void parse_list(const char *at, struct w_cpus *set)
{
    *set = (struct w_cpus){0};
    while (is_digit(*at)) {
        uint32_t first = number(&at), last = first;
        if (at[0] == '-' && is_digit(at[1])) {
            at++;
            last = number(&at);
        }
        for (uint32_t i = first; i <= last && i < W_MAX_CPUS; i++)
            add(set, i);
        at += *at == ',';
    }
}

static __attribute__((format(printf, 2, 3))) bool read_text(struct reader *r, const char *format, ...)
{
    int n = snprintf(r->path, sizeof r->path, "%s/devices/", r->root);
    if (n >= (int)sizeof r->path)
        return false;
    va_list args;
    va_start(args, format);
    int m = vsnprintf(r->path + n, sizeof r->path - (size_t)n, format, args);
    va_end(args);
    long fd = m < (int)sizeof r->path - n ? w_sys_open(r->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0) : -1;
    if (fd < 0)
        return false;
    long got = w_sys_read((int)fd, &(struct iovec){r->text, TEXT}, 1, -1);
    w_sys_close((int)fd);
    r->text[got > 0 ? got : 0] = '\0';
    return got > 0;
}

/* Those of our CPUs that a file of one of them names, itself among them. */
static void with_itself(struct reader *r, const struct w_topology *t, uint32_t cpu)
{
    parse_list(r->text, &r->list);
    for (uint32_t i = 0; i < W_MAX_CPUS / WORD; i++)
        r->list.bit[i] &= t->allowed.bit[i];
    add(&r->list, cpu);
}

static void set_group(const struct w_cpus *list, uint16_t *group, uint32_t cpu)
{
    for (uint32_t i = cpu; i < W_MAX_CPUS; i++)
        if (has(list, i) && group[i] == 0)
            group[i] = (uint16_t)(cpu + 1);
}

/* ---- cores, caches, kinds --------------------------------------------------------------------------------------- */

static void read_core(struct reader *r, const struct w_topology *t, uint32_t cpu)
{
    if (!read_text(r, "system/cpu/cpu%u/topology/core_cpus_list", cpu) &&
        !read_text(r, "system/cpu/cpu%u/topology/thread_siblings_list", cpu))
        r->text[0] = '\0';
    with_itself(r, t, cpu);
    set_group(&r->list, r->core, cpu);
}

/* The level of a cache that holds data; 0: there is none of that number. */
static uint32_t cache_level(struct reader *r, uint32_t cpu, uint32_t index)
{
    if (!read_text(r, "system/cpu/cpu%u/cache/index%u/type", cpu, index) || r->text[0] == 'I')
        return 0;
    if (!read_text(r, "system/cpu/cpu%u/cache/index%u/level", cpu, index))
        return 0;
    const char *at = r->text;
    return number(&at);
}

static void read_cache(struct reader *r, const struct w_topology *t, uint32_t cpu)
{
    uint32_t last = 0, index = 0;
    for (uint32_t i = 0; i < CACHES; i++) {
        uint32_t level = cache_level(r, cpu, i);
        if (level > last) {
            last = level;
            index = i;
        }
    }
    if (last > 0 && read_text(r, "system/cpu/cpu%u/cache/index%u/shared_cpu_list", cpu, index)) {
        with_itself(r, t, cpu);
        set_group(&r->list, r->cache, cpu);
    } else {
        set_group(&t->allowed, r->cache, cpu); /* nothing tells it apart from the others of its node */
    }
}

/* Hybrid x86 has no cpu_capacity in many kernels, but a list of the smaller ones. */
static void read_capacities(struct reader *r, struct w_topology *t)
{
    bool hybrid = read_text(r, "cpu_atom/cpus");
    parse_list(hybrid ? r->text : "", &r->list);
    for (uint32_t i = 0; i < t->cpus; i++)
        t->cpu[i].capacity = has(&r->list, t->cpu[i].id) ? ATOM : CAPACITY;
    for (uint32_t i = 0; i < t->cpus && read_text(r, "system/cpu/cpu%u/cpu_capacity", t->cpu[i].id); i++) {
        const char *at = r->text;
        uint32_t n = number(&at);
        if (n > 0 && n <= CAPACITY)
            t->cpu[i].capacity = n;
    }
}

/* ---- nodes ------------------------------------------------------------------------------------------------------ */

/* The index of a node that has some of our CPUs. A run that is up keeps to those that it began with. */
static uint32_t index_of(struct w_topology *t, const struct w_topology *former, uint32_t os_node)
{
    uint32_t i = 0;
    while (i < t->nodes && t->os_node[i] != os_node)
        i++;
    if (i < t->nodes)
        return i;
    if (former != NULL || t->nodes == W_MAX_NODES)
        return 0;
    t->os_node[t->nodes] = (uint16_t)os_node;
    return t->nodes++;
}

static void read_node(struct reader *r, struct w_topology *t, const struct w_topology *former, uint32_t node,
                      uint32_t column)
{
    if (!read_text(r, "system/node/node%u/cpulist", node))
        return;
    parse_list(r->text, &r->list);
    for (uint32_t i = 0; i < t->cpus; i++) {
        uint32_t cpu = t->cpu[i].id;
        if (!has(&r->list, cpu))
            continue;
        r->node[cpu] = (uint16_t)index_of(t, former, node);
        r->column[r->node[cpu]] = (uint16_t)column;
    }
}

/* From the one that we are on, which becomes the first, round to the one before it. */
static void read_nodes(struct reader *r, struct w_topology *t, const struct w_topology *former)
{
    struct w_cpus online;
    uint32_t here = 0, first = 0, column = 0;
    if (former == NULL && !t->fake && W_RESULT(syscall(SYS_getcpu, NULL, &here, NULL)) == 0 && here < W_MAX_CPUS)
        first = here;
    parse_list(read_text(r, "system/node/online") ? r->text : "", &online);
    for (uint32_t i = 0; i < first; i++)
        column += has(&online, i);
    for (uint32_t i = 0, node = first; i < W_MAX_CPUS; i++, node = (node + 1) % W_MAX_CPUS) {
        if (node == 0)
            column = 0;
        if (has(&online, node))
            read_node(r, t, former, node, column++);
    }
    if (t->nodes == 0)
        t->nodes = 1;
}

/* "10 21 21": a number for each node that is online, whether it has CPUs or not. */
static void read_distances(struct reader *r, const struct w_topology *t, uint32_t node)
{
    uint32_t columns[W_MAX_NODES], n = 0;
    const char *at = read_text(r, "system/node/node%u/distance", t->os_node[node]) ? r->text : "";
    for (; n < W_MAX_NODES && is_digit(*at); n++) {
        columns[n] = number(&at);
        at += *at == ' ';
    }
    for (uint32_t i = 0; i < t->nodes; i++)
        r->distance[i] = i == node ? NEAR : r->column[i] < n ? columns[r->column[i]] : FAR;
}

/* The others by their distance; of those alike each node begins with another one. */
static void sort_far(struct reader *r, struct w_topology *t, uint32_t node)
{
    read_distances(r, t, node);
    for (uint32_t k = 1; k < t->nodes; k++) {
        uint32_t other = (node + k) % t->nodes, at = k - 1;
        for (; at > 0 && r->distance[t->far[node][at - 1]] > r->distance[other]; at--)
            t->far[node][at] = t->far[node][at - 1];
        t->far[node][at] = (uint8_t)other;
    }
}

/* ---- all together ----------------------------------------------------------------------------------------------- */

static bool read_online(struct reader *r, struct w_topology *t)
{
    if (!read_text(r, "system/cpu/online") && !read_text(r, "system/cpu/present"))
        return false;
    parse_list(r->text, &t->online);
    t->allowed = t->online;
    if (t->fake)
        return true;
    struct w_cpus *mask = &r->list;
    *mask = (struct w_cpus){0};
    long n = W_RESULT(syscall(SYS_sched_getaffinity, t->beginner, sizeof *mask, mask));
    for (uint32_t i = 0; n > 0 && i < W_MAX_CPUS / WORD; i++)
        t->allowed.bit[i] &= mask->bit[i];
    return true;
}

static void set_siblings(struct w_topology *t)
{
    for (uint32_t i = 1; i < t->cpus; i++)
        for (uint32_t j = i; j-- > 0 && t->cpu[i].core != t->cpu[i].id;)
            if (t->cpu[j].core == t->cpu[i].core) {
                t->cpu[i].sibling = (uint16_t)(t->cpu[j].sibling + 1);
                break;
            }
}

static int by_turn(const void *a, const void *b)
{
    const struct w_cpu *x = a, *y = b;
    if (x->sibling != y->sibling)
        return x->sibling - y->sibling;
    if (x->capacity != y->capacity)
        return x->capacity < y->capacity ? 1 : -1;
    return x->node != y->node ? x->node - y->node : x->cache != y->cache ? x->cache - y->cache : x->id - y->id;
}

static void read_cpus(struct reader *r, struct w_topology *t, const struct w_topology *former)
{
    for (uint32_t id = 0; id < W_MAX_CPUS; id++)
        if (has(&t->allowed, id))
            t->cpu[t->cpus++].id = (uint16_t)id;
    read_nodes(r, t, former);
    for (uint32_t i = 0; i < t->cpus; i++) {
        struct w_cpu *c = &t->cpu[i];
        if (r->core[c->id] == 0)
            read_core(r, t, c->id);
        if (r->cache[c->id] == 0)
            read_cache(r, t, c->id);
        c->core = (uint16_t)(r->core[c->id] - 1);
        c->cache = (uint16_t)(r->cache[c->id] - 1);
        c->node = r->node[c->id];
    }
    read_capacities(r, t);
    for (uint32_t i = 0; t->nodes > 1 && i < t->nodes; i++)
        sort_far(r, t, i);
    set_siblings(t);
    qsort(t->cpu, t->cpus, sizeof t->cpu[0], by_turn);
}

static struct reader *open_tree(struct w_topology *t, const struct w_topology *former)
{
    t->beginner = former != NULL ? former->beginner : (pid_t)W_RESULT(syscall(SYS_gettid));
    struct reader *r = calloc(1, sizeof *r);
    if (r == NULL)
        return NULL;
    r->root = getenv("WEFT_SYSFS");
    t->fake = r->root != NULL && *r->root != '\0';
    if (!t->fake)
        r->root = "/sys";
    return r;
}

struct w_topology *w_topology_read(const struct w_topology *former)
{
    struct w_topology *t = NULL, first = {0};
    struct reader *r = open_tree(&first, former);
    uint32_t n = r != NULL && read_online(r, &first) ? count(&first.allowed) : 0;
    if (n > 0 && (t = malloc(sizeof *t + n * sizeof t->cpu[0])) != NULL) {
        *t = first;
        memset(t->cpu, 0, n * sizeof t->cpu[0]);
        if (former != NULL) {
            t->nodes = former->nodes;
            memcpy(t->os_node, former->os_node, sizeof t->os_node);
        }
        read_cpus(r, t, former);
    }
    free(r);
    return t;
}

bool w_topology_stale(const struct w_topology *t)
{
    struct w_topology now = {0};
    struct reader *r = open_tree(&now, t);
    bool stale = r != NULL && read_online(r, &now) &&
                 (memcmp(&now.online, &t->online, sizeof now.online) != 0 ||
                  memcmp(&now.allowed, &t->allowed, sizeof now.allowed) != 0);
    free(r);
    return stale;
}

void w_topology_mask(const struct w_topology *t, uint32_t node, struct w_cpus *mask)
{
    *mask = (struct w_cpus){0};
    for (uint32_t i = 0; i < t->cpus; i++)
        if (t->cpu[i].node == node)
            add(mask, t->cpu[i].id);
}
