/* SPDX-License-Identifier: MIT */
/*
 * Goroutines: how they are made, started, ended and used again.
 *
 * A goroutine is started without a stack: weft_go fills two cache lines and puts them into a queue. The stack is bound
 * when it first runs, and it is the one that was left last, so a thousand goroutines that are started together and
 * end one after the other need one stack, which never leaves the cache. A goroutine that ends and is followed by a
 * fresh one does not even switch: the next one starts on the same stack, in the loop of w_g_main.
 *
 * Gs come from chunks that are mapped once and not unmapped before the run ends; free ones lie in a list of each P and,
 * in front of the chunks, in one for all; where there are several nodes, in one for each, and a G goes back to that of the
 * node which its memory came from. Whoever makes Gs promises them stacks first (stack.c, ST2).
 */
#include "park.h"
#include "scope.h"
#include <stdlib.h>
#include <string.h>

enum {
    CHUNK_BYTES = 64 << 10,
    CHUNK_GS = CHUNK_BYTES / sizeof(struct w_g) - 1,
    BATCH = 32,     /* Gs that move between a P and the pool at once */
    P_KEEPS = 1024, /* more than that in a P go to the pool: 128 KiB, what a second-level cache keeps */
    ID_BATCH = 64,
    SERVICE_STACK = 256 << 10, /* answers are made on it, with what the system's calls need */
    SMALL_COPY = 256,          /* an argument so small may stay at the top of a stack that others use after it */
};

struct chunk {
    struct chunk *next;
    uint32_t node; /* constant; found by the address of a G, for there a chunk lies at a multiple of its size */
    _Alignas(2 * W_CACHE_LINE) struct w_g g[CHUNK_GS];
};

/* The Gs whose memory lies on one node. All: the pool's lock. */
struct part {
    struct chunk *chunks; /* newest first */
    uint32_t used;        /* of the newest chunk */
    struct w_g *free;
};

static struct {
    struct w_lock lock;
    struct part part[W_MAX_NODES]; /* [0, w_sched.nodes) */
    uint64_t made;                 /* Gs in all parts; lock */
} pool;

static void lock(void)
{
    w_lock(&pool.lock, W_RANK_GPOOL);
}

static void unlock(void)
{
    w_unlock(&pool.lock, W_RANK_GPOOL);
}

/* ---- the pool --------------------------------------------------------------------------------------------------- */

void w_gs_init(void)
{
    for (uint32_t i = 0; i < w_sched.nodes; i++)
        pool.part[i] = (struct part){.used = CHUNK_GS};
    pool.made = 0;
}

uint64_t w_gs_made(void)
{
    lock();
    uint64_t n = pool.made;
    unlock();
    return n;
}

static void free_fields(struct w_g *g, void *arg)
{
    (void)arg;
    free((char *)g->name);
    if (g->flags & W_G_SCOPED)
        w_scope_discard(g);
    W_SAN_UNBIND(g);
}

void w_gs_free(void)
{
    struct chunk *next;
    w_gs_each(free_fields, NULL);
    for (uint32_t i = 0; i < w_sched.nodes; i++) {
        for (struct chunk *c = pool.part[i].chunks; c != NULL; c = next) {
            next = c->next;
            munmap(c, CHUNK_BYTES);
        }
        pool.part[i] = (struct part){.used = CHUNK_GS};
    }
}

/* Calls fn for every G that was ever handed out, dead ones too. */
void w_gs_each(void (*fn)(struct w_g *g, void *arg), void *arg)
{
    for (uint32_t node = 0; node < w_sched.nodes; node++) {
        lock();
        uint32_t used = pool.part[node].used;
        struct chunk *c = pool.part[node].chunks;
        unlock();
        for (; c != NULL; c = c->next, used = CHUNK_GS)
            for (uint32_t i = 0; i < used; i++)
                fn(&c->g[i], arg);
    }
}

static struct chunk *map_chunk(uint32_t node)
{
    struct chunk *c = w_sched.nodes == 1 ? w_map(CHUNK_BYTES) : w_map_aligned(CHUNK_BYTES, CHUNK_BYTES);
    if (c == NULL)
        return NULL;
    w_memory_on(node, c, CHUNK_BYTES);
    c->node = node;
    return c;
}

static struct w_g *make_locked(uint32_t node)
{
    struct part *t = &pool.part[node];
    if (t->used == CHUNK_GS) {
        struct chunk *c = map_chunk(node);
        if (c == NULL)
            return NULL;
        c->next = t->chunks;
        t->chunks = c;
        t->used = 0;
    }
    struct w_g *g = &t->chunks->g[t->used++];
    g->stack_class = (uint8_t)w_default_stack_class();
    pool.made++;
    return g;
}

static struct w_g *take_locked(uint32_t node)
{
    struct w_g *g = pool.part[node].free;
    if (g != NULL) {
        pool.part[node].free = g->link;
        return g;
    }
    return w_stacks_reserve(node, 1) == 0 ? make_locked(node) : NULL;
}

/* Up to n from the pool, linked; how many. */
static uint32_t take(uint32_t node, struct w_g **list, uint32_t n)
{
    uint32_t k = 0;
    lock();
    for (struct w_g *g; k < n && (g = take_locked(node)) != NULL; k++) {
        g->link = *list;
        *list = g;
    }
    unlock();
    return k;
}

static uint32_t home_of(const struct w_g *g)
{
    return ((const struct chunk *)((uintptr_t)g & ~(uintptr_t)(CHUNK_BYTES - 1)))->node;
}

static void give_home_locked(struct w_g *first, const struct w_g *last)
{
    for (struct w_g *g = first, *next;; g = next) {
        struct part *t = &pool.part[home_of(g)];
        next = g->link;
        g->link = t->free;
        t->free = g;
        if (g == last)
            break;
    }
}

static void give(struct w_g *first, struct w_g *last)
{
    lock();
    if (unlikely(w_sched.nodes > 1)) {
        give_home_locked(first, last);
    } else {
        last->link = pool.part[0].free;
        pool.part[0].free = first;
    }
    unlock();
}

static void flush(struct w_p *p, uint32_t n)
{
    struct w_g *first = p->free_gs, *last = first;
    for (uint32_t i = 1; i < n; i++)
        last = last->link;
    p->free_gs = last->link;
    p->free_g_count -= n;
    give(first, last);
}

void w_gs_flush(struct w_p *p)
{
    if (p->free_g_count > 0)
        flush(p, p->free_g_count);
}

static uint64_t new_id(struct w_p *p)
{
    if (p == NULL)
        return add_relaxed(&w_sched.next_id, 1); /* relaxed: only uniqueness counts */
    if (unlikely(p->id_next == p->id_end)) {
        p->id_next = add_relaxed(&w_sched.next_id, ID_BATCH);
        p->id_end = p->id_next + ID_BATCH;
    }
    return p->id_next++;
}

static __attribute__((noinline)) bool refill(struct w_p *p)
{
    p->free_g_count = take(w_p_node(p), &p->free_gs, BATCH);
    return p->free_g_count > 0;
}

struct w_g *w_g_new(struct w_p *p)
{
    struct w_g *g = NULL;
    if (p == NULL) {
        if (take(0, &g, 1) == 0)
            return NULL;
    } else {
        if (unlikely(p->free_gs == NULL) && !refill(p))
            return NULL;
        g = p->free_gs;
        p->free_gs = g->link;
        p->free_g_count--;
    }
    g->id = new_id(p);
    return g;
}

/* What only some goroutines have. */
static void drop_special(struct w_g *g)
{
    free((char *)g->name);
    g->name = NULL;
    if (g->stack_lo != NULL && g->stack_class != w_default_stack_class()) {
        w_stack_put(g->stack_class, g->stack_lo);
        g->stack_lo = NULL;
    }
    g->stack_class = (uint8_t)w_default_stack_class();
}

/* It has no stack any more, nor anything special. */
static inline void keep(struct w_p *p, struct w_g *g)
{
    g->flags = 0;
    g->link = p->free_gs;
    p->free_gs = g;
    if (unlikely(++p->free_g_count > P_KEEPS))
        flush(p, P_KEEPS / 2);
}

/* Gives back its stack, then itself. p NULL: it was never started. */
void w_g_recycle(struct w_p *p, struct w_g *g)
{
    W_SAN_UNBIND(g);
    if (unlikely(g->flags & W_G_SPECIAL))
        drop_special(g);
    g->flags = 0;
    if (g->stack_lo != NULL) {
        if (p == NULL) {
            w_stack_put(g->stack_class, g->stack_lo);
        } else {
            if (unlikely(p->stack_count == W_STACK_CACHE))
                w_stack_cache_flush(p, W_STACK_CACHE / 2);
            p->stack[p->stack_count++] = g->stack_lo;
        }
        g->stack_lo = NULL;
    }
    if (p == NULL)
        give(g, g);
    else
        keep(p, g);
}

/* ---- stacks ----------------------------------------------------------------------------------------------------- */

/* Without a guard page, the lowest word must stay zero. Writing it would touch a page, so it is only read if it is. */
static void set_canary(struct w_g *g)
{
    uint64_t *lowest = (uint64_t *)(void *)g->stack_lo;
    g->flags |= W_G_CANARY;
    w_watch_defined(lowest, sizeof *lowest);
    if (*lowest != 0)
        *lowest = 0;
}

/* What is left on it of others is no error of theirs, nor what is written there before it first runs. */
static void prepare(struct w_g *g)
{
    w_watch_fresh(g->stack_lo, w_stack_size(g->stack_class));
    if (w_stacks_unguarded())
        set_canary(g);
}

static void start_at(struct w_g *g, void *top)
{
    if (unlikely(w_stacks_watched()))
        prepare(g);
    W_SAN_BIND(g);
    g->sp = w_first_frame(top);
}

/* Starts it below room bytes that are set aside at the top of its stack; where they are. */
static void *start_below(struct w_g *g, size_t room)
{
    uintptr_t at = ((uintptr_t)w_stack_top(g->stack_class, g->stack_lo) - room) & ~(uintptr_t)15;
    start_at(g, (void *)at);
    return (void *)at;
}

/* A stack of its own size. */
static bool bind_special(struct w_p *p, struct w_g *g, int class)
{
    g->stack_lo = w_stack_get(class, w_p_node(p));
    g->stack_class = (uint8_t) class;
    g->flags |= W_G_SPECIAL;
    return g->stack_lo != NULL;
}

static bool bind_default(struct w_p *p, struct w_g *g)
{
    if (unlikely(p->stack_count == 0) && !w_stack_cache_refill(p))
        return false;
    g->stack_lo = p->stack[--p->stack_count];
    return true;
}

bool w_g_bind(struct w_p *p, struct w_g *g)
{
    if (!bind_default(p, g))
        return false;
    start_at(g, w_stack_top(g->stack_class, g->stack_lo));
    return true;
}

/* ---- starting --------------------------------------------------------------------------------------------------- */

static void fill(struct w_g *g, weft_fn *fn, void *arg, void *site)
{
    g->fn = fn;
    g->arg = arg;
    g->err = 0;
    g->started_at = site;
    st_relaxed(&g->level, W_NORMAL);
    w_set_state(g, W_RUNNABLE);
}

/* A child is of its parent's priority. parent: NULL for a foreign thread. */
static inline void inherit(struct w_g *g, const struct w_g *parent)
{
    if (unlikely(parent != NULL && parent->flags & W_G_CLASSED))
        w_set_class(g, parent->priority);
}

static inline __attribute__((always_inline)) void launch_told(struct w_p *p, struct w_g *g)
{
    w_probe_spawn(g);
    w_count(&p->count.spawned);
    w_enqueue_fresh(p, g);
}

static __attribute__((noinline)) void launch_traced(struct w_p *p, struct w_g *g)
{
    w_trace_spawn(g);
    launch_told(p, g);
}

/* Hands a filled goroutine to the scheduler. */
static inline __attribute__((always_inline)) void launch(struct w_p *p, struct w_g *g)
{
    if (w_traced())
        launch_traced(p, g);
    else
        launch_told(p, g);
}

/* Likewise, on a foreign thread. */
static void launch_foreign(struct w_g *g)
{
    if (w_traced())
        w_trace_spawn(g);
    w_probe_spawn(g);
    add_relaxed(&w_sched.foreign_spawned, 1);
    w_enqueue_global(g, true);
}

static void launch_from(struct w_p *p, struct w_g *g)
{
    if (p != NULL)
        launch(p, g);
    else
        launch_foreign(g);
}

/* Likewise, but it counts for nobody. */
static void launch_service(struct w_p *p, struct w_g *g)
{
    if (w_traced())
        w_trace_spawn(g);
    if (p != NULL)
        w_enqueue_fresh(p, g);
    else
        w_enqueue_global(g, true);
}

struct spawn {
    weft_fn *fn;
    void *arg;
    const void *copy; /* or NULL */
    size_t size;
    const weft_attr *attr; /* or NULL */
    void *site;
    const struct w_g *parent; /* or NULL: a foreign thread */
    bool service;
};

static int class_for(const struct spawn *s)
{
    size_t asked = s->attr != NULL ? s->attr->stack_size : 0;
    size_t base = asked != 0 ? asked : w_stack_size(w_default_stack_class());
    if (s->size > SIZE_MAX / 4 || base > SIZE_MAX / 4)
        return -EINVAL;
    /* A small argument does not count: it takes less than the slack of a frame. */
    return w_stack_class(s->size <= W_PAGE ? base : base + s->size);
}

static int spawn_with(struct w_p *p, const struct spawn *s)
{
    int class = class_for(s);
    if (class < 0)
        return class;
    struct w_g *g = w_g_new(p);
    if (g == NULL)
        return -ENOMEM;
    bool special = s->attr != NULL || s->size > SMALL_COPY || p == NULL;
    if (special ? !bind_special(p, g, class) : !bind_default(p, g))
        goto no_memory;
    void *room = start_below(g, s->size);
    if (s->attr != NULL && s->attr->name != NULL && (g->name = strdup(s->attr->name)) == NULL)
        goto no_memory;
    w_comm_mark(g);
    if (s->copy != NULL)
        memcpy(room, s->copy, s->size);
    fill(g, s->fn, s->copy != NULL ? room : s->arg, s->site);
    if (unlikely(s->service)) {
        w_set_service(g);
        launch_service(p, g);
        return 0;
    }
    if (s->attr != NULL)
        w_set_class(g, s->attr->priority);
    else
        inherit(g, s->parent);
    launch_from(p, g);
    return 0;

no_memory:
    w_g_recycle(p, g);
    return -ENOMEM;
}

static int spawn(struct spawn *s)
{
    if (s->fn == NULL || (s->copy == NULL && s->size > 0))
        return -EINVAL;
    struct w_m *m = w_enter();
    if (m != NULL) {
        s->parent = m->g;
        int r = spawn_with(m->p, s);
        w_leave();
        return r;
    }
    int r = w_foreign_enter();
    if (r != 0)
        return r;
    r = spawn_with(NULL, s);
    w_foreign_leave();
    return r;
}

/* In a scope: member, which is the argument of fn, knows which. p NULL: from a foreign thread. */
int w_g_start_member(struct w_p *p, struct w_scope *scope, weft_fn *fn, struct w_member *member, void *site)
{
    struct w_g *g = w_g_new(p);
    if (g == NULL)
        return -ENOMEM;
    fill(g, fn, member, site);
    int r = w_member_join(member, g);
    if (r != 0) {
        w_set_state(g, W_DEAD);
        w_g_recycle(p, g);
        return r;
    }
    g->scope = scope;
    g->flags |= W_G_MEMBER | W_G_SCOPED;
    inherit(g, p != NULL ? w_m()->g : NULL);
    launch_from(p, g);
    return 0;
}

static __attribute__((noinline)) int go_foreign(weft_fn *fn, void *arg, void *site)
{
    int r = w_foreign_enter();
    if (r != 0)
        return r;
    struct w_g *g = w_g_new(NULL);
    if (g != NULL) {
        fill(g, fn, arg, site);
        launch_foreign(g);
    }
    w_foreign_leave();
    return g != NULL ? 0 : -ENOMEM;
}

int weft_go(weft_fn *fn, void *arg)
{
    if (unlikely(fn == NULL))
        return -EINVAL;
    void *site = __builtin_return_address(0);
    struct w_m *m = w_enter();
    if (unlikely(m == NULL))
        return go_foreign(fn, arg, site);
    struct w_p *p = m->p;
    struct w_g *g = w_g_new(p);
    if (likely(g != NULL)) {
        fill(g, fn, arg, site);
        inherit(g, m->g);
        launch(p, g);
    }
    w_leave_on(m);
    return g != NULL ? 0 : -ENOMEM;
}

int weft_go_copy(weft_fn *fn, const void *arg, size_t size)
{
    return spawn(&(struct spawn){.fn = fn, .copy = arg, .size = size, .site = __builtin_return_address(0)});
}

int weft_go_with(const weft_attr *attr, weft_fn *fn, void *arg)
{
    if (attr != NULL && (attr->priority < WEFT_LOW || attr->priority > WEFT_HIGH))
        return -EINVAL;
    return spawn(&(struct spawn){.fn = fn, .arg = arg, .attr = attr, .site = __builtin_return_address(0)});
}

int w_go_service(const char *name, weft_fn *fn, void *arg)
{
    weft_attr attr = {.name = name, .stack_size = SERVICE_STACK, .priority = WEFT_HIGH};
    return spawn(
        &(struct spawn){.fn = fn, .arg = arg, .attr = &attr, .service = true, .site = __builtin_return_address(0)});
}

/* The first goroutine of a run, made before there is an M. */
int w_g_start_main(weft_fn *fn, void *arg, size_t stack_size)
{
    struct w_g *g = w_g_new(NULL);
    if (g == NULL)
        return -ENOMEM;
    g->flags = W_G_MAIN;
    if (!bind_special(NULL, g, w_stack_class(stack_size)) || (g->name = strdup("main")) == NULL) {
        w_g_recycle(NULL, g);
        return -ENOMEM;
    }
    w_comm_mark(g);
    start_below(g, 0);
    fill(g, fn, arg, NULL);
    w_probe_spawn(g);
    add_relaxed(&w_sched.foreign_spawned, 1);
    w_globq_put(g, true);
    return 0;
}

/* ---- running and ending ----------------------------------------------------------------------------------------- */

static void after_end(struct w_m *m, struct w_g *prev, void *arg)
{
    (void)arg;
    w_g_recycle(m->p, prev);
}

static void main_ends(struct w_m *m, bool by_exit)
{
    if (!by_exit) {
        if (m->g->flags & W_G_SCOPED)
            w_scope_left(m->g);
        w_set_state(m->g, W_DEAD);
        w_stop(0);
        w_quit(m);
    }
    w_lock(&w_sched.lock, W_RANK_SCHED);
    w_sched.main_exited = true;
    w_unlock(&w_sched.lock, W_RANK_SCHED);
}

/* It ended pinned, in a blocking region or where it is not preempted: as if it had left all. In a scope: that is told. */
static __attribute__((noinline)) void end_special(struct w_m *m, struct w_g *g, bool by_exit)
{
    if (g->flags & W_G_MAIN)
        main_ends(m, by_exit);
    if (!(g->flags & W_G_SERVICE))
        w_count_after(&m->p->count.ended);
    if (g->flags & W_G_SCOPED)
        w_scope_left(g);
    if (g->flags & W_G_PINNED)
        m->pinned_g = NULL;
    if (g->flags & W_G_CLASSED || ld_relaxed(&g->level) != W_NORMAL) /* it may have been lent one */
        w_forget_class(g);
    g->pinned = NULL;
    g->pins = g->blocks = g->steady = 0;
    g->flags &= (uint16_t) ~(W_G_REGIONS | W_G_MEMBER);
}

/* May n go on where g ends, on the same stack? */
static bool can_follow(const struct w_g *g, const struct w_g *n)
{
#ifdef W_SANITIZED
    (void)g, (void)n;
    return false; /* each goroutine is a thread of its own to a sanitizer */
#else
    return n->stack_lo == NULL && !(n->flags & W_G_PINNED) && !(g->flags & (W_G_SPECIAL | W_G_CANARY));
#endif
}

/* Ends the running goroutine. Returns if a fresh one took over its stack, from the top. */
static void end(struct w_m *m, bool by_exit)
{
    struct w_g *g = m->g;
    struct w_p *p = m->p;
    if (likely(!(g->flags & (W_G_REGIONS | W_G_MAIN)) && ld_relaxed(&g->level) == W_NORMAL))
        w_count_after(&p->count.ended);
    else
        end_special(m, g, by_exit);
    w_set_state(g, W_DEAD);
    w_probe_end(g);
    struct w_g *n = w_pick(p);
    if (n == NULL || !can_follow(g, n)) {
        w_switch_from(m, n, after_end, NULL);
        __builtin_unreachable();
    }
    n->stack_lo = g->stack_lo;
    g->stack_lo = NULL;
    if (w_traced())
        w_trace_switch(m, g, n);
    keep(p, g);
    w_begin_run(m, n);
    w_set_errno(m, 0);
    w_fp_reset();
}

void w_g_main(void)
{
    w_landed(w_m());
    for (;;) {
        struct w_m *m = w_m();
        struct w_g *g = m->g;
        w_leave_on(m);
        g->fn(g->arg);
        end(w_enter(), false);
    }
}

void weft_exit(void)
{
    struct w_m *m = w_enter();
    if (m == NULL)
        w_fatal("weft_exit outside a goroutine");
    if (unlikely(w_carries_eh(m)))
        w_swap_eh(m, (struct w_eh){0}); /* it leaves a handler for good */
    end(m, true);
    w_restart(w_stack_top(m->g->stack_class, m->g->stack_lo));
}

/* The way in that others take may lead to another goroutine. A signal handler may ask, through libweft_posix, in the middle of
 * libc: this does not switch, nor end a region. In the middle of the runtime a handler is in no goroutine. */
uint64_t weft_id(void)
{
    struct w_m *m = w_m();
    if (m == NULL || ld_relaxed(&m->in_runtime) || !w_enter_quietly(m)) /* relaxed: this thread's own */
        return 0;
    uint64_t id = m->g->id;
    w_step_out(m);
    return id;
}

static int count_alive(void)
{
    struct w_g_count c = w_count_gs();
    return (int)(c.spawned - c.ended);
}

int weft_count(void)
{
    if (w_enter() != NULL) {
        int n = count_alive();
        w_leave();
        return n;
    }
    if (w_foreign_enter() != 0)
        return 0;
    int n = count_alive();
    w_foreign_leave();
    return n;
}

/* ---- names for dumps -------------------------------------------------------------------------------------------- */

const char *w_state_name(enum w_state s)
{
    static const char *const names[] = {"idle",      "runnable", "running", "waiting", "in a blocking call",
                                        "preempted", "dead"};
    return names[s];
}

const char *w_reason_name(enum w_reason r)
{
    static const char *const names[W_REASON_COUNT] = {
        [W_REASON_NONE] = "",
        [W_REASON_WAIT_GROUP] = "wait group",
        [W_REASON_SEND] = "send to channel",
        [W_REASON_RECV] = "receive from channel",
        [W_REASON_SELECT] = "select",
        [W_REASON_NIL] = "no channel",
        [W_REASON_SLEEP] = "sleep",
        [W_REASON_MUTEX] = "mutex",
        [W_REASON_READ_LOCK] = "read lock",
        [W_REASON_WRITE_LOCK] = "write lock",
        [W_REASON_COND] = "condition",
        [W_REASON_ONCE] = "once",
        [W_REASON_SEMAPHORE] = "semaphore",
        [W_REASON_SCOPE] = "goroutines of scope",
        [W_REASON_READ] = "read from descriptor",
        [W_REASON_WRITE] = "write to descriptor",
        [W_REASON_FILE] = "file descriptor",
    };
    return names[r];
}
