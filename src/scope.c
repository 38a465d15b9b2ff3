/* SPDX-License-Identifier: MIT */
/*
 * Scopes: lifetimes, deadlines and cancellation in one.
 *
 *      opener ── weft_scope_open ───────────── weft_scope_close: waits for the members ──>
 *                     │ children: scopes that were opened inside this one, by its opener or by a member
 *                     └ members:  goroutines that were started in it
 *
 * A scope lies where its opener put it; the scopes of a program form a tree. Everybody who runs in a scope is its opener or a
 * member of it or of one inside it: ending a scope means to mark it and all below it as over, and to cut the waits of
 * their members and openers. That costs as much as there are of these, and nothing to those who do not wait: a scope that
 * is over stays so, and who begins a wait looks at it first.
 *
 * The tree is walked from the top with the locks on the way down held, so no scope on the way can be closed meanwhile: a
 * closed scope leaves its parent's list under the parent's lock. There is no recursion: parent and sibling links lead back.
 *
 * A deadline is a timer that cancels with -ETIMEDOUT; a scope whose parent's deadline is earlier needs none. It also counts
 * by the clock: who begins a wait, asks weft_cancelled or closes after the deadline finds the scope over, though the timer has not
 * fired yet.
 *
 * Invariants:
 *   SC1  err is set once, under the lock; if it is set, it is set in all scopes below: a new child takes it over under the
 *        parent's lock
 *   SC2  a member's G is alive while the member is in the list
 *   SC3  the last touch of a scope by an ending member, or by a canceller whose target it was not, is the opening of a lock
 */
#include "scope.h"
#include "peek.h"
#include "waiter.h"
#include <stdlib.h>
#include <string.h>

struct w_member {
    struct w_member *next, *prev; /* scope's lock */
    struct w_scope *scope;        /* constant */
    struct w_g *g;                /* constant once it is in the list */
    weft_fn *fn;                  /* constant */
    void *arg;                    /* constant */
    bool foreign;                 /* the scope is a foreign thread's; constant */
};

struct w_value {
    struct w_value *next; /* scope's lock */
    const void *key;      /* constant */
    void *value;          /* scope's lock */
};

static struct w_scope *inside(weft_scope *s)
{
    return (struct w_scope *)(void *)s;
}

static struct w_p *p_of(const struct w_g *g)
{
    return g->flags & W_G_FOREIGN ? NULL : w_m()->p;
}

static bool from_this_run(const struct w_scope *s)
{
    return s->run == ld_relaxed(&w_sched.run);
}

/* ---- ending ----------------------------------------------------------------------------------------------------- */

bool w_cut(struct w_g *g)
{
    uint64_t t = ld_relaxed(&g->ticket); /* relaxed: the swap decides; [SC-1] orders it against the scope's mark */
    return W_TICKET_STATE(t) == W_OPEN && cas_acq_rel(&g->ticket, &t, t - W_OPEN + W_CUT); /* [TK-1] */
}

static void cut_into(struct w_g **list, struct w_g *g)
{
    if (!w_cut(g))
        return;
    g->link = *list;
    *list = g;
}

/* false: it was over already, and so are all below it (SC1); or its last member has ended, and it is being closed. */
static bool mark_locked(struct w_scope *s, int err, struct w_g **cut)
{
    if (ld_relaxed(&s->err) != 0 || s->ended)
        return false;
    s->over_at = w_now();
    st_release(&s->err, err); /* [SC-2] over_at, and what the canceller did before */
    w_fence_seq();            /* [SC-1] */
    cut_into(cut, s->opener);
    for (struct w_member *m = s->members; m != NULL; m = m->next)
        cut_into(cut, m->g);
    return true;
}

/* Marks the tree below top. Who was cut comes back as a list by `link`. */
static struct w_g *mark_all(struct w_scope *top, int err)
{
    struct w_g *cut = NULL;
    struct w_scope *s = top;
    w_spin_lock(&s->lock);
    for (bool down = mark_locked(s, err, &cut);;) {
        struct w_scope *next = down ? s->children : NULL;
        while (next == NULL && s != top) { /* done with s: to its sibling, under the parent's lock, or up */
            struct w_scope *done = s;
            next = done->next;
            s = done->parent;
            w_spin_unlock(&done->lock);
        }
        if (next == NULL)
            break;
        s = next;
        w_spin_lock(&s->lock);
        down = mark_locked(s, err, &cut);
    }
    w_spin_unlock(&top->lock);
    return cut;
}

static void end_scope(struct w_scope *s, int err)
{
    struct w_g *next;
    for (struct w_g *g = mark_all(s, err); g != NULL; g = next) {
        next = g->link;
        w_wake_g(g);
    }
}

static int64_t deadline_passed(struct w_timer *t)
{
    end_scope((struct w_scope *)(void *)((char *)t - offsetof(struct w_scope, timer)), -ETIMEDOUT);
    return WEFT_NEVER;
}

/* By the clock: the outermost whose time has come. */
static void look_at_clock(struct w_scope *s)
{
    if (likely(s->deadline == WEFT_NEVER) || ld_relaxed(&s->err) != 0 || !from_this_run(s))
        return;
    int64_t now = w_now();
    if (now < s->deadline)
        return;
    while (s->parent != NULL && s->parent->deadline <= now)
        s = s->parent;
    end_scope(s, -ETIMEDOUT);
}

/* ---- what waits ask --------------------------------------------------------------------------------------------- */

static int over(struct w_g *g)
{
    if (g->scope == NULL || g->shields > 0)
        return 0;
    look_at_clock(g->scope);
    return w_scope_over(g->scope);
}

int w_wait_refused_slow(struct w_g *g)
{
    if (g->flags & W_G_FOREIGN && !w_up())
        return -EPERM;
    return over(g);
}

/* If it was not the scope, it was the end of the run, which cuts foreign threads. */
int w_cut_error(struct w_g *g)
{
    int r = w_cuttable(g) ? w_scope_over(g->scope) : 0;
    return r != 0 ? r : -ECANCELED;
}

int weft_cancelled(void)
{
    struct w_g *g = w_call_begin();
    int r = over(g);
    w_call_end(g);
    return r;
}

void weft_shield(void)
{
    struct w_g *g = w_call_begin();
    g->shields++;
    g->flags |= W_G_SCOPED;
    w_call_end(g);
}

void weft_unshield(void)
{
    struct w_g *g = w_call_begin();
    if (g->shields == 0)
        w_fatal("weft_unshield without weft_shield");
    g->shields--;
    w_call_end(g);
}

/* ---- members ---------------------------------------------------------------------------------------------------- */

static void member_main(void *arg)
{
    struct w_member *self = arg;
    self->fn(self->arg);
}

/* For dumps, as the next: g is a copy, and what it tells of may be gone. */
weft_fn *w_member_fn(const struct w_g *g)
{
    struct w_member m;
    return g->flags & W_G_MEMBER && w_peek(&m, (uintptr_t)g->arg, sizeof m) ? m.fn : g->fn;
}

/* Its scope is over, for so long, and it goes on; -1: it does not. */
int64_t w_goes_on_since(const struct w_g *g)
{
    struct w_member m = {0};
    struct w_scope s;
    if (g->scope == NULL || !w_peek(&s, (uintptr_t)g->scope, sizeof s) || ld_relaxed(&s.err) == 0)
        return -1;
    if (g->flags & W_G_MEMBER && w_peek(&m, (uintptr_t)g->arg, sizeof m) && m.scope == g->scope && m.foreign)
        return -1;
    bool closing = ld_relaxed(&g->state) == W_WAITING && ld_relaxed(&g->reason) == W_REASON_SCOPE;
    return closing ? -1 : s.over_at;
}

/* The error of a scope that is over, and then it is not in the list. */
static int join_locked(struct w_scope *s, struct w_member *m)
{
    int err = ld_relaxed(&s->err);
    if (err != 0)
        return err;
    m->prev = NULL;
    m->next = s->members;
    if (m->next != NULL)
        m->next->prev = m;
    s->members = m;
    return 0;
}

/* Before it can run: its G is known, and nobody else knows of it yet. */
int w_member_join(struct w_member *m, struct w_g *g)
{
    struct w_scope *s = m->scope;
    m->g = g;
    w_spin_lock(&s->lock);
    int r = join_locked(s, m);
    w_spin_unlock(&s->lock);
    return r;
}

static int start(struct w_g *g, struct w_scope *s, weft_fn *fn, void *arg, void *site)
{
    look_at_clock(s);
    int r = ld_acquire(&s->err); /* [SC-2] */
    if (r != 0)
        return r;
    struct w_member *m = malloc(sizeof *m);
    if (m == NULL)
        return -ENOMEM;
    *m = (struct w_member){.scope = s, .fn = fn, .arg = arg, .foreign = s->foreign};
    r = w_g_start_member(p_of(g), s, member_main, m, site);
    if (r != 0)
        free(m);
    return r;
}

int weft_scope_go(weft_scope *scope, weft_fn *fn, void *arg)
{
    if (fn == NULL)
        return -EINVAL;
    struct w_g *g = w_call_begin();
    int r = g->flags & W_G_FOREIGN && !w_up() ? -EPERM : !from_this_run(inside(scope)) ? -ECANCELED : 0;
    if (r == 0)
        r = start(g, inside(scope), fn, arg, __builtin_return_address(0));
    w_call_end(g);
    return r;
}

/* The scope may be gone as soon as its lock is open. */
static void leave(struct w_member *m)
{
    struct w_scope *s = m->scope;
    w_spin_lock(&s->lock);
    if (m->prev != NULL)
        m->prev->next = m->next;
    else
        s->members = m->next;
    if (m->next != NULL)
        m->next->prev = m->prev;
    struct w_waiter *closer = s->members == NULL ? s->closer : NULL;
    bool wake = closer != NULL && w_claim(closer);
    s->ended = wake;
    if (wake && s->deadline != WEFT_NEVER && ld_relaxed(&s->err) == 0 && w_now() >= s->deadline)
        st_release(&s->err, -ETIMEDOUT); /* [SC-2] passed before the last one ended; the timer is late */
    w_spin_unlock(&s->lock);
    if (wake)
        w_wake(closer);
    free(m);
}

/* A goroutine ends that has to do with scopes. */
void w_scope_left(struct w_g *g)
{
    struct w_member *m = g->flags & W_G_MEMBER ? g->arg : NULL;
    if (g->scope != (m != NULL ? m->scope : NULL))
        w_fatal("goroutine %lu has ended without closing a scope that it opened", g->id);
    g->scope = NULL;
    g->shields = 0;
    g->flags &= (uint16_t)~W_G_MEMBER;
    w_compiler_barrier(); /* who looks at g in a handler (profile.c) does not ask a member that is gone */
    if (m != NULL)
        leave(m);
}

/* ---- opening and closing ---------------------------------------------------------------------------------------- */

static void link_to_parent(struct w_scope *s)
{
    struct w_scope *parent = s->parent;
    w_spin_lock(&parent->lock);
    if (!from_this_run(parent))
        parent->children = NULL; /* a foreign thread's; the others were discarded with their run */
    s->next = parent->children;
    if (s->next != NULL)
        s->next->prev = s;
    parent->children = s;
    s->over_at = parent->over_at;
    st_relaxed(&s->err, ld_relaxed(&parent->err)); /* SC1 */
    w_spin_unlock(&parent->lock);
}

static void unlink_from_parent(struct w_scope *s)
{
    struct w_scope *parent = s->parent;
    w_spin_lock(&parent->lock);
    if (!from_this_run(s))
        parent->children = NULL; /* the others were discarded with the run */
    else if (s->prev != NULL)
        s->prev->next = s->next;
    else
        parent->children = s->next;
    if (s->next != NULL && from_this_run(s))
        s->next->prev = s->prev;
    w_spin_unlock(&parent->lock);
}

static int open_scope(struct w_g *g, struct w_scope *s, int64_t deadline)
{
    struct w_scope *parent = g->scope;
    int64_t limit = parent != NULL ? parent->deadline : WEFT_NEVER;
    *s = (struct w_scope){.parent = parent, .opener = g, .run = ld_relaxed(&w_sched.run)};
    s->foreign = g->flags & W_G_FOREIGN;
    s->deadline = deadline < limit ? deadline : limit;
    s->timer = (struct w_timer){.when = deadline, .fn = deadline_passed};
    if (parent != NULL)
        link_to_parent(s);
    if (deadline < limit && deadline > w_now() && w_timer_start(p_of(g), &s->timer) != 0) {
        if (parent != NULL)
            unlink_from_parent(s);
        return -ENOMEM;
    }
    g->scope = s;
    g->flags |= W_G_SCOPED;
    look_at_clock(s);
    return 0;
}

int weft_scope_open(weft_scope *scope, int64_t deadline)
{
    struct w_g *g = w_call_begin();
    int r = g->flags & W_G_FOREIGN && !w_up() ? -EPERM : open_scope(g, inside(scope), deadline);
    w_call_end(g);
    return r;
}

struct closing {
    struct w_wait wait;
    struct w_waiter node;
};

static void after_close(struct w_m *m, struct w_g *prev, void *arg)
{
    struct w_scope *s = arg;
    (void)m, (void)prev;
    w_wait_open(s->closer->wait); /* never cut by a scope */
    w_spin_unlock(&s->lock);
}

/* 0: the last member has ended. -ECANCELED: of a foreign thread, they were discarded with the run. */
static int wait_for_members(struct w_g *g, struct w_scope *s)
{
    struct closing self;
    w_spin_lock(&s->lock);
    if (s->members == NULL || !from_this_run(s)) {
        int r = s->members == NULL ? 0 : -ECANCELED;
        w_spin_unlock(&s->lock);
        look_at_clock(s);
        return r;
    }
    w_wait_init(&self.wait, g, W_NO_CUT);
    w_waiter_init(&self.node, &self.wait, NULL, 0);
    s->closer = &self.node;
    w_wait_sleep(&self.wait, after_close, s, W_REASON_SCOPE, s, NULL);
    return self.wait.won != NULL ? 0 : -ECANCELED;
}

static void free_values(struct w_scope *s)
{
    struct w_value *next;
    for (struct w_value *v = s->values; v != NULL; v = next) {
        next = v->next;
        free(v);
    }
    s->values = NULL;
}

static int close_scope(struct w_g *g, struct w_scope *s)
{
    if (g->scope != s)
        w_fatal("weft_scope_close of a scope that is not the caller's innermost");
    if (s->opener != g)
        w_fatal("weft_scope_close by another than its opener");
    int lost = wait_for_members(g, s);
    w_timer_stop(&s->timer);
    if (s->parent != NULL)
        unlink_from_parent(s);
    free_values(s);
    g->scope = s->parent;
    int err = ld_acquire(&s->err); /* [SC-2] */
    return err != 0 ? err : lost;
}

int weft_scope_close(weft_scope *scope)
{
    struct w_g *g = w_call_begin();
    int r = close_scope(g, inside(scope));
    w_call_end(g);
    return r;
}

void weft_scope_cancel(weft_scope *scope, int err)
{
    if (err >= 0)
        w_fatal("weft_scope_cancel with an error that is not negative: %d", err);
    struct w_g *g = w_call_begin();
    if (from_this_run(inside(scope)))
        end_scope(inside(scope), err);
    w_call_end(g);
}

/* ---- values ----------------------------------------------------------------------------------------------------- */

static struct w_value *find_locked(struct w_scope *s, const void *key)
{
    struct w_value *v = s->values;
    while (v != NULL && v->key != key)
        v = v->next;
    return v;
}

static int set(struct w_scope *s, const void *key, void *value)
{
    struct w_value *fresh = malloc(sizeof *fresh);
    if (fresh == NULL)
        return -ENOMEM;
    w_spin_lock(&s->lock);
    struct w_value *v = find_locked(s, key);
    if (v != NULL) {
        v->value = value;
    } else {
        *fresh = (struct w_value){s->values, key, value};
        s->values = fresh;
    }
    w_spin_unlock(&s->lock);
    if (v != NULL)
        free(fresh);
    return 0;
}

int weft_scope_set(weft_scope *scope, const void *key, void *value)
{
    if (key == NULL)
        return -EINVAL;
    struct w_g *g = w_call_begin();
    int r = set(inside(scope), key, value);
    w_call_end(g);
    return r;
}

void *weft_local_get(const void *key)
{
    struct w_g *g = w_call_begin();
    void *value = NULL;
    for (struct w_scope *s = g->scope; s != NULL && value == NULL; s = s->parent) {
        w_spin_lock(&s->lock);
        struct w_value *v = find_locked(s, key);
        value = v != NULL ? v->value : NULL;
        w_spin_unlock(&s->lock);
    }
    w_call_end(g);
    return value;
}

/* ---- the end of a run ------------------------------------------------------------------------------------------- */

/* The scope that it was started in. Its opener may have left that one meanwhile, if it is a foreign thread, and only then. */
static struct w_scope *home(const struct w_g *g)
{
    return g->flags & W_G_MEMBER ? ((struct w_member *)g->arg)->scope : NULL;
}

/* g is discarded: what it had on the heap goes with it. */
void w_scope_discard(struct w_g *g)
{
    for (struct w_scope *s = g->scope; s != home(g); s = s->parent)
        free_values(s);
    if (g->flags & W_G_MEMBER)
        free(g->arg);
}
