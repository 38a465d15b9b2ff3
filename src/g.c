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
 * in front of the chunks, in one for all. Whoever makes Gs promises them stacks first (stack.c, ST2).
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
    SMALL_COPY = 256, /* an argument so small may stay at the top of a stack that others use after it */
};

struct chunk {
    struct chunk *next;
    _Alignas(2 * W_CACHE_LINE) struct w_g g[CHUNK_GS];
};

static struct {
    struct w_lock lock;
    struct chunk *chunks; /* lock; newest first */
    uint32_t used;        /* of the newest chunk; lock */
    struct w_g *free;     /* lock */
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
    pool.used = CHUNK_GS;
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
    w_gs_each(free_fields, NULL);
    struct chunk *next;
    for (struct chunk *c = pool.chunks; c != NULL; c = next) {
        next = c->next;
        munmap(c, CHUNK_BYTES);
    }
    pool.chunks = NULL;
    pool.free = NULL;
}

/* Calls fn for every G that was ever handed out, dead ones too. */
void w_gs_each(void (*fn)(struct w_g *g, void *arg), void *arg)
{
    lock();
    uint32_t used = pool.used;
    struct chunk *c = pool.chunks;
    unlock();
    for (; c != NULL; c = c->next, used = CHUNK_GS)
        for (uint32_t i = 0; i < used; i++)
            fn(&c->g[i], arg);
}

static struct w_g *make_locked(void)
{
    if (pool.used == CHUNK_GS) {
        struct chunk *c = w_map(CHUNK_BYTES);
        if (c == NULL)
            return NULL;
        c->next = pool.chunks;
        pool.chunks = c;
        pool.used = 0;
    }
    return &pool.chunks->g[pool.used++];
}

static struct w_g *take_locked(void)
{
    struct w_g *g = pool.free;
    if (g != NULL) {
        pool.free = g->link;
        return g;
    }
    return w_stacks_reserve(1) == 0 ? make_locked() : NULL;
}

/* Up to n from the pool, linked; how many. */
static uint32_t take(struct w_g **list, uint32_t n)
{
    uint32_t k = 0;
    lock();
    for (struct w_g *g; k < n && (g = take_locked()) != NULL; k++) {
        g->link = *list;
        *list = g;
    }
    unlock();
    return k;
}

static void give(struct w_g *first, struct w_g *last)
{
    lock();
    last->link = pool.free;
    pool.free = first;
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

struct w_g *w_g_new(struct w_p *p)
{
    struct w_g *g = NULL;
    if (p == NULL) {
        if (take(&g, 1) == 0)
            return NULL;
    } else {
        if (unlikely(p->free_gs == NULL) && (p->free_g_count = take(&p->free_gs, BATCH)) == 0)
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
    if (p == NULL) {
        give(g, g);
        return;
    }
    g->link = p->free_gs;
    p->free_gs = g;
    if (unlikely(++p->free_g_count > P_KEEPS))
        flush(p, P_KEEPS / 2);
}

/* ---- stacks ----------------------------------------------------------------------------------------------------- */

/* Without a guard page, the lowest word must stay zero. Writing it would touch a page, so it is only read if it is. */
static void set_canary(struct w_g *g)
{
    uint64_t *lowest = (uint64_t *)(void *)g->stack_lo;
    g->flags |= W_G_CANARY;
    if (*lowest != 0)
        *lowest = 0;
}

static void start_at(struct w_g *g, void *top)
{
    if (unlikely(w_stacks_unguarded()))
        set_canary(g);
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
static bool bind_special(struct w_g *g, int class)
{
    g->stack_lo = w_stack_get(class);
    g->stack_class = (uint8_t) class;
    g->flags |= W_G_SPECIAL;
    return g->stack_lo != NULL;
}

static bool bind_default(struct w_p *p, struct w_g *g)
{
    if (unlikely(p->stack_count == 0) && !w_stack_cache_refill(p))
        return false;
    g->stack_lo = p->stack[--p->stack_count];
    g->stack_class = (uint8_t)w_default_stack_class();
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
    w_set_state(g, W_RUNNABLE);
}

/* Hands a filled goroutine to the scheduler. p NULL: from a foreign thread. */
static void launch(struct w_p *p, struct w_g *g)
{
    if (p != NULL) {
        w_count(&p->count.spawned);
        w_enqueue(p, g, W_FRESH);
    } else {
        add_relaxed(&w_sched.foreign_spawned, 1);
        w_enqueue_global(g, true);
    }
}

struct spawn {
    weft_fn *fn;
    void *arg;
    const void *copy; /* or NULL */
    size_t size;
    const weft_attr *attr; /* or NULL */
    void *site;
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
    if (special ? !bind_special(g, class) : !bind_default(p, g))
        goto no_memory;
    void *room = start_below(g, s->size);
    if (s->attr != NULL && s->attr->name != NULL && (g->name = strdup(s->attr->name)) == NULL)
        goto no_memory;
    if (s->copy != NULL)
        memcpy(room, s->copy, s->size);
    fill(g, s->fn, s->copy != NULL ? room : s->arg, s->site);
    launch(p, g);
    return 0;

no_memory:
    w_g_recycle(p, g);
    return -ENOMEM;
}

static int spawn(const struct spawn *s)
{
    if (s->fn == NULL || (s->copy == NULL && s->size > 0))
        return -EINVAL;
    struct w_m *m = w_enter();
    if (m != NULL) {
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
    launch(p, g);
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
        launch(NULL, g);
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
        launch(p, g);
    }
    w_leave();
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

/* The first goroutine of a run, made before there is an M. */
int w_g_start_main(weft_fn *fn, void *arg, size_t stack_size)
{
    struct w_g *g = w_g_new(NULL);
    if (g == NULL)
        return -ENOMEM;
    g->flags = W_G_MAIN;
    if (!bind_special(g, w_stack_class(stack_size)) || (g->name = strdup("main")) == NULL) {
        w_g_recycle(NULL, g);
        return -ENOMEM;
    }
    start_below(g, 0);
    fill(g, fn, arg, NULL);
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

/* It ended pinned or in a blocking region: as if it had left both. In a scope: that is told. */
static void forget_regions(struct w_m *m, struct w_g *g)
{
    if (g->flags & W_G_SCOPED)
        w_scope_left(g);
    if (g->flags & W_G_PINNED)
        m->pinned_g = NULL;
    g->pinned = NULL;
    g->pins = g->blocks = 0;
    g->flags &= (uint8_t) ~(W_G_PINNED | W_G_BLOCKING | W_G_MEMBER | W_G_SCOPED);
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
static void end(struct w_m *m)
{
    struct w_g *g = m->g;
    struct w_p *p = m->p;
    w_count(&p->count.ended);
    if (unlikely(g->flags & (W_G_PINNED | W_G_BLOCKING | W_G_SCOPED)))
        forget_regions(m, g);
    w_set_state(g, W_DEAD);
    struct w_g *n = w_pick(p);
    if (n == NULL || !can_follow(g, n)) {
        w_switch_from(m, n, after_end, NULL);
        __builtin_unreachable();
    }
    n->stack_lo = g->stack_lo;
    n->stack_class = g->stack_class;
    g->stack_lo = NULL;
    w_g_recycle(p, g);
    w_count(&p->count.switches);
    w_set_state(n, W_RUNNING);
    m->g = n;
    *m->errno_at = 0;
    w_fp_reset();
}

static void main_ends(struct w_m *m, bool by_exit)
{
    if (likely(!(m->g->flags & W_G_MAIN)))
        return;
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

void w_g_main(void)
{
    w_landed(w_m());
    for (;;) {
        struct w_m *m = w_m();
        struct w_g *g = m->g;
        if (m->eh_at != NULL)
            *m->eh_at = (struct w_eh){0};
        w_leave();
        g->fn(g->arg);
        m = w_enter();
        main_ends(m, false);
        end(m);
    }
}

void weft_exit(void)
{
    struct w_m *m = w_enter();
    if (m == NULL)
        w_fatal("weft_exit outside a goroutine");
    main_ends(m, true);
    end(m);
    w_restart(w_stack_top(m->g->stack_class, m->g->stack_lo));
}

/* The way in that others take may lead to another goroutine. A signal handler may ask, through libweft_posix, in the middle of
 * libc: this does not switch, nor end a region. In the middle of the runtime a handler is in no goroutine. */
uint64_t weft_id(void)
{
    struct w_m *m = w_m();
    if (m == NULL || ld_relaxed(&m->in_runtime)) /* relaxed: this thread's own */
        return 0;
    st_relaxed(&m->in_runtime, 1); /* relaxed: as in w_enter. From here on nobody abandons it, so its G is there */
    w_compiler_barrier();
    bool abandoned = false;
    if (unlikely((uintptr_t)ld_relaxed(&m->gate) <= (uintptr_t)W_GATE_REGION)) {
        w_lock(&w_sched.lock, W_RANK_SCHED);
        abandoned = m->abandoned;
        w_unlock(&w_sched.lock, W_RANK_SCHED);
    }
    uint64_t id = abandoned ? 0 : m->g->id;
    w_leave();
    return id;
}

/* Ends are read before starts, so a goroutine that starts and ends meanwhile never makes the number too small. */
static int count_alive(void)
{
    uint64_t ended = 0, spawned = 0;
    uint32_t n = ld_acquire(&w_sched.p_count); /* [PC-1] the Ps below it are there */
    for (uint32_t i = 0; i < n; i++)
        ended += ld_relaxed(&w_sched.ps[i]->count.ended);
    for (uint32_t i = 0; i < n; i++)
        spawned += ld_relaxed(&w_sched.ps[i]->count.spawned);
    return (int)(spawned + ld_relaxed(&w_sched.foreign_spawned) - ended);
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
