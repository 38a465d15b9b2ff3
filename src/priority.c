/* SPDX-License-Identifier: MIT */
/*
 * Priorities: who is urgent, who makes way, who is lent a priority.
 *
 * Goroutines of high and of low priority wait in the global queue alone, each kind in a list of its own (globq.c): so no P
 * has an urgent one that another could run sooner, and no P runs a low one while there is anything else. When an urgent one
 * becomes ready and no P is free, the P that runs the least urgent goroutine is asked for: its M, if that is ours, sees to it
 * when this call ends; otherwise it is interrupted (preempt.c).
 *
 * Who holds a mutex that somebody more urgent waits for is lent that level (mutex.c finds out), and moved to the list where
 * it then belongs, until it has given back all mutexes for which it was lent one. In a P's ring it stays where it is: those
 * before it there are light.
 */
#include "park.h"
#include <sched.h>

/* ---- making way -------------------------------------------------------------------------------------------------- */

/* May what runs there be stopped for somebody urgent? One that was asked already makes way for another. */
static bool can_be_asked(const struct w_p *p, struct w_m *m, int64_t now)
{
    return m != NULL && ld_relaxed(&p->blocked_by) == NULL && ld_relaxed(&m->preempt) == W_GO_ON &&
           ld_relaxed(&p->owed_until) <= now;
}

static bool is_monitor(const struct w_m *self)
{
    return self == NULL && pthread_equal(pthread_self(), w_sched.monitor);
}

/* Is it m's thread that ran on this CPU before ours? Then it does not run now. */
static bool is_displaced(const struct w_m *m)
{
    return m->cpu != NULL && ld_relaxed(m->cpu) == (uint32_t)sched_getcpu(); /* relaxed: a hint */
}

/* Has this thread, which will sleep in a moment, displaced m's while that computed? Then a signal is heard as soon as we sleep, and cuts no
 * call short. A foreign thread knows less: what the monitor last read there. Who runs a goroutine may go on for long. */
static bool has_displaced(const struct w_p *p, const struct w_m *m, const struct w_m *self)
{
    if (self != NULL || ld_relaxed(&m->in_runtime) || !is_displaced(m))
        return false;
    if (!is_monitor(self))
        return w_computed_since_look(p, m);
    return w_computed(p) == W_TO_THE_LAST && ld_relaxed(&p->count.switches) == p->seen_switches;
}

/* One without a core hears nothing for a while, and may be about to leave a call, which would tell of the signal. But if it had ours until
 * now, for its clock has moved since the monitor looked, it does, for we sleep soon. */
static bool had_our_core(const struct w_p *p, const struct w_m *m)
{
    if (!is_displaced(m))
        return false;
    if (is_monitor(NULL))
        return p->gained > 0;
    return ld_relaxed(&p->read_m) == m && w_thread_cpu(ld_relaxed(&m->tid)) > ld_relaxed(&p->read_cpu);
}

enum w_when w_if_it_hears(const struct w_p *p, const struct w_m *m)
{
    return had_our_core(p, m) ? W_IF_AWAKE : W_IF_ON_CORE;
}

/* Of two that are no more urgent than each other, whose thread hears of it sooner? Ours does at once. To interrupt another CPU takes
 * longer than to let go on the one that we displaced, and a host may have taken that other one away for milliseconds. If we do not sleep
 * the monitor will ask another one. Where there are more Ps than cores, most threads have none and hear nothing for milliseconds. */
enum handiness { FAR, LIKELY, DISPLACED, OURS };

static enum handiness handiness(const struct w_p *p, const struct w_m *m, const struct w_m *self)
{
    if (m == self)
        return OURS;
    if (has_displaced(p, m, self))
        return DISPLACED;
    bool likely = is_monitor(self) ? w_computed(p) != W_HARDLY : self == NULL && w_thread_on_core(ld_relaxed(&m->tid));
    return likely ? LIKELY : FAR;
}

/* The P that runs the least urgent goroutine, the handiest among equals, and how handy; NULL: all are urgent, or have been asked. Under
 * the lock no M that holds a P can end. */
static struct w_p *least_urgent_locked(const struct w_m *self, int64_t now, enum handiness *handy)
{
    struct w_p *least = NULL;
    int8_t level = W_HIGH;
    uint32_t n = ld_acquire(&w_sched.p_count); /* [PC-1] */
    for (uint32_t i = 0; i < n; i++) {
        struct w_p *p = w_sched.ps[i];
        struct w_m *m = ld_acquire(&p->m); /* [PM-1] */
        int8_t runs = ld_relaxed(&p->level);
        bool enough = runs == level && *handy >= DISPLACED && m != self;
        if (runs > level || runs == W_HIGH || enough || !can_be_asked(p, m, now))
            continue;
        enum handiness there = handiness(p, m, self);
        if (runs < level || there > *handy) {
            least = p;
            level = runs;
            *handy = there;
        }
    }
    return least;
}

/* Asks its M; the thread to interrupt, or 0, and when. The monitor has no business with one that may be in a call; it looks again soon. */
static pid_t ask_locked(struct w_p *p, struct w_m *m, const struct w_m *self, int64_t now, enum handiness handy,
                        enum w_when *when)
{
    w_ask(m, W_LET_RUN);
    bool hears = m == self || ld_relaxed(&m->in_runtime);
    bool send = !hears && !(is_monitor(self) && w_computed(p) == W_HARDLY);
    st_relaxed(&p->asked_at, send ? now : 0);
    *when = handy == DISPLACED ? W_AT_ONCE : self == NULL ? w_if_it_hears(p, m) : W_IF_ON_CORE;
    return send ? ld_relaxed(&m->tid) : 0;
}

/* The least urgent one; false: there is nobody. *hears: it will hear of it at once, as far as we know. */
static bool ask_one(const struct w_m *self, bool *hears)
{
    enum handiness handy = FAR;
    enum w_when when = W_IF_ON_CORE;
    pid_t tid = 0;
    int64_t now = w_now();
    w_lock(&w_sched.lock, W_RANK_SCHED);
    struct w_p *p = ld_relaxed(&w_sched.stopping) ? NULL : least_urgent_locked(self, now, &handy);
    struct w_m *m =
        p != NULL ? ld_acquire(&p->m) : NULL; /* [PM-1] it may have gone into a region, and given its P away */
    if (m != NULL)
        tid = ask_locked(p, m, self, now, handy, &when);
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    *hears = tid == 0 || w_interrupt(tid, is_monitor(self) ? p : NULL, when);
    if (!*hears)
        st_relaxed(&p->asked_at, 0);
    return m != NULL;
}

/* Who sleeps in a call does not hear, and who waits for a core does not soon: then another one. If that does not either the monitor, which
 * knows more of them, looks at once. */
bool w_make_way(void)
{
    const struct w_m *self = w_m();
    bool hears;
    if (w_sched.quantum == WEFT_NEVER || !ask_one(self, &hears))
        return false;
    if (!hears && !is_monitor(self) && (!ask_one(self, &hears) || !hears))
        w_monitor_wake();
    return true;
}

void w_urgent_ready(void)
{
    if (ld_relaxed(&w_sched.idle_p_count) == 0 && ld_relaxed(&w_sched.spinning) == 0)
        w_make_way(); /* relaxed: hints; the monitor looks again */
}

/* ---- a goroutine's own ------------------------------------------------------------------------------------------- */

static void use_priorities(void)
{
    __atomic_store_n(&weft_owners_, 1, __ATOMIC_RELAXED); /* relaxed: a mutex whose owner is not known lends nothing */
}

void w_set_class(struct w_g *g, int priority)
{
    if (priority == WEFT_NORMAL)
        return;
    use_priorities();
    g->priority = (int8_t)priority;
    g->flags |= W_G_CLASSED;
    st_relaxed(&g->level, w_level_of(priority)); /* relaxed: nobody knows it yet */
}

/* High, but it takes no mutex of the program's: these need not know their owners for its sake. */
void w_set_service(struct w_g *g)
{
    g->priority = WEFT_HIGH;
    g->flags |= W_G_CLASSED | W_G_SERVICE;
    st_relaxed(&g->level, W_HIGH); /* relaxed: nobody knows it yet */
}

/* What it was lent ends with it: the next one to use the G begins with its own level. */
void w_forget_class(struct w_g *g)
{
    w_lock(&w_sched.lock, W_RANK_SCHED);
    g->priority = WEFT_NORMAL;
    g->loans = 0;
    w_unlock(&w_sched.lock, W_RANK_SCHED);
}

/* Under the lock; if g is the one that runs here, its P is told. */
static void set_level_locked(struct w_g *g, int8_t level)
{
    struct w_m *m = w_m();
    st_relaxed(&g->level, level); /* relaxed: who puts it into a list holds the lock too */
    if (m != NULL && m->g == g && m->p != NULL)
        w_p_runs(m->p, level);
}

int weft_set_priority(int priority)
{
    if (priority < WEFT_LOW || priority > WEFT_HIGH)
        return -EINVAL;
    struct w_m *m = w_enter();
    if (m == NULL)
        return -EPERM;
    struct w_g *g = m->g;
    use_priorities();
    w_lock(&w_sched.lock, W_RANK_SCHED);
    int8_t level = w_level_of(priority), lent = g->loans > 0 ? ld_relaxed(&g->level) : level;
    g->priority = (int8_t)priority;
    g->flags |= W_G_CLASSED;
    set_level_locked(g, lent > level ? lent : level);
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    if (priority != WEFT_HIGH)
        w_ask(m, W_LET_RUN); /* somebody may have a better right now */
    w_leave();
    return 0;
}

int weft_get_priority(void)
{
    struct w_m *m = w_enter();
    if (m == NULL)
        return WEFT_NORMAL;
    int priority = m->g->priority;
    w_leave();
    return priority;
}

/* ---- lending ----------------------------------------------------------------------------------------------------- */

/* To where its new level puts it, if it waits in the global queue. */
static void move_locked(struct w_g *g, int8_t from, int8_t to)
{
    if (from == W_LOW || from == W_HEAVY) /* normal ones do not stay there, high ones have no better place */
        w_globq_move_locked(g, from == W_LOW ? W_LINE_LOW : W_LINE_HEAVY, to == W_HIGH ? W_LINE_HIGH : W_LINE_RAN);
}

/* first: for that mutex, nobody has lent it anything yet. It counts even if it has as much already: it may give that back before. So does
 * what an urgent one lends another one, which may become less urgent meanwhile. */
bool w_lend(struct w_g *g, int8_t level, bool first)
{
    w_lock(&w_sched.lock, W_RANK_SCHED);
    int8_t now = ld_relaxed(&g->level), own = w_level_of(g->priority);
    bool lends = (level > own || level == W_HIGH) && g->loans < UINT8_MAX;
    if (lends)
        g->loans = (uint8_t)(g->loans + first);
    if (level > now && (lends || level <= own)) {
        set_level_locked(g, level);
        move_locked(g, now, level);
    }
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    return lends;
}

/* The mutex for which it was lent something is given back. */
void w_repay(struct w_g *g)
{
    w_lock(&w_sched.lock, W_RANK_SCHED);
    int8_t own = w_level_of(g->priority);
    if (g->loans > 0 && --g->loans == 0 && ld_relaxed(&g->level) > own)
        set_level_locked(g, own);
    w_unlock(&w_sched.lock, W_RANK_SCHED);
}
