/* SPDX-License-Identifier: MIT */
/*
 * What all goroutines do, found out while they do it. Nobody is stopped but those who run (look.c), each for as long as a walk along its
 * stack takes.
 *
 * The memory of Gs is there as long as the run is; what is in them may be changing. A G is copied; its stack is walked from the stack
 * pointer in the copy, through copies again (frames.c, which cannot be led astray to anything but a wrong answer); then the G is copied once
 * more. If it is the same goroutine in the same state with the same stack pointer, in the same wait, nobody ran it meanwhile, and all that was
 * read belongs together. If not, once more from the start, a few times: one that never stands still is listed without a backtrace.
 *
 *      WAITING, RUNNABLE, PREEMPTED     parked: from the saved context
 *      RUNNING, BLOCKED                 what look.c saw of its thread
 *
 *   CN1  whoever sets WAITING or RUNNABLE is still on the goroutine's stack, and has yet to save its context: so a context counts only if
 *        it leads into the runtime's own code, where all switches are
 *   CN2  names are freed with the state DEAD, so a name that was copied before a second look at a living G was its own
 *
 * Rejected: stopping the world. A million stacks take a second, and a program that is looked at every second would stand still; and
 * who holds the world's gate may be what is to be found out. Rejected: claiming a goroutine, so that it is not resumed: every switch would
 * look for the claim.
 *
 * Groups are found by a hash over what they have in common. There is room for so many; goroutines that fit in none are counted.
 */
#include "census.h"
#include "peek.h"
#include "preempt.h"
#include "scope.h"
#include <stdlib.h>
#include <string.h>

enum { INDEX = 2 * W_MAX_GROUPS, TRIES = 4 };

/* What is known of one goroutine. */
struct facts {
    struct w_g g; /* as it was */
    struct w_one one;
    struct w_trace trace;
    const struct w_sight *sight;
    bool moved;
};

static void include(struct w_span_ns *span, int64_t ns)
{
    ns = ns > 0 ? ns : 0;
    if (span->lo > span->hi)
        *span = (struct w_span_ns){ns, ns};
    span->lo = ns < span->lo ? ns : span->lo;
    span->hi = ns > span->hi ? ns : span->hi;
}

/* ---- one goroutine ---------------------------------------------------------------------------------------------- */

static enum w_state state_of(const struct w_g *copy)
{
    return ld_relaxed(&((struct w_g *)copy)->state);
}

static bool is_parked(enum w_state s)
{
    return s == W_WAITING || s == W_RUNNABLE || s == W_PREEMPTED;
}

static bool is_alive(const struct w_g *copy)
{
    return state_of(copy) != W_IDLE && state_of(copy) != W_DEAD && copy->fn != NULL && !(copy->flags & W_G_SERVICE);
}

/* Page by page: it may end just before what is not there. */
static void copy_name(struct w_one *one, const char *name)
{
    uintptr_t at = (uintptr_t)name;
    size_t first = W_PAGE - at % W_PAGE, size = sizeof one->name - 1;
    memset(one->name, 0, sizeof one->name);
    if (name == NULL || !w_peek(one->name, at, first < size ? first : size))
        return;
    if (first < size && memchr(one->name, '\0', first) == NULL)
        w_peek(one->name + first, at + first, size - first);
}

static bool walk_parked(struct w_census *c, struct facts *f)
{
    struct w_stack_view view;
    struct w_regs regs;
    uintptr_t sp = (uintptr_t)f->g.sp, lo = (uintptr_t)f->g.stack_lo;
    f->trace.n = 0;
    if (f->g.stack_lo == NULL)
        return true; /* it never ran */
    w_view_init(&view, lo, (uintptr_t)w_stack_top(f->g.stack_class, f->g.stack_lo));
    if (sp < view.lo || sp >= view.hi)
        return false;
    view.lo = sp;
    if (!w_regs_of_parked(&regs, sp, &view) || !(w_code_is_ours(regs.pc) || w_code_is_entry(regs.pc))) /* CN1 */
        return false;
    w_frames(c->rows, &regs, &view, &f->trace);
    return true;
}

static bool is_unchanged(const struct w_g *a, const struct w_g *b)
{
    return a->id == b->id && state_of(a) == state_of(b) && a->sp == b->sp && a->since == b->since &&
           a->stack_lo == b->stack_lo &&
           ld_relaxed(&((struct w_g *)a)->ticket) == ld_relaxed(&((struct w_g *)b)->ticket);
}

/* false: nobody is there. */
static bool look_at(struct w_census *c, struct w_g *g, struct facts *f)
{
    struct w_g again;
    bool well = false;
    for (int i = 0; i < TRIES && !well; i++) {
        w_peek_words(&f->g, g, sizeof f->g);
        if (!is_alive(&f->g))
            return false;
        f->one.id = f->g.id;
        copy_name(&f->one, f->g.name);
        well = !is_parked(state_of(&f->g)) || walk_parked(c, f);
        w_peek_words(&again, g, sizeof again);
        well &= is_unchanged(&f->g, &again);
    }
    f->moved = !well;
    f->sight = NULL;
    if (!well)
        f->trace.n = 0;
    if (!well && (!is_alive(&again) || again.id != f->g.id))
        return false; /* another one by now: it is younger than the dump, or is seen elsewhere */
    if (!is_parked(state_of(&f->g))) {
        f->sight = w_sight_of(&c->sights, g, f->g.id);
        f->trace.n = 0;
        if (f->sight != NULL && f->sight->seen == W_SEEN_STACK)
            f->trace = f->sight->trace;
    }
    return true;
}

/* ---- groups ----------------------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t h, uint64_t value)
{
    h = (h ^ value) * 0x9E3779B97F4A7C15ull;
    return h ^ h >> 29;
}

static bool is_lent(const struct w_g *g)
{
    int own = g->flags & W_G_CLASSED ? g->priority : WEFT_NORMAL;
    return g->loans > 0 && ld_relaxed(&((struct w_g *)g)->level) > w_level_of(own);
}

/* Where in the runtime makes no difference: a call may wait in several places. */
static uintptr_t place_of(uintptr_t pc)
{
    return w_code_is_ours(pc) ? 0 : pc;
}

static void describe(struct w_group *like, const struct facts *f)
{
    const struct w_g *g = &f->g;
    like->state = state_of(g);
    like->reason = like->state == W_WAITING ? (enum w_reason)ld_relaxed(&((struct w_g *)g)->reason) : W_REASON_NONE;
    if (like->reason >= W_REASON_COUNT)
        like->reason = W_REASON_NONE;
    like->priority = g->flags & W_G_CLASSED ? g->priority : WEFT_NORMAL;
    like->lent = is_lent(g);
    like->moved = f->moved;
    like->entry = w_member_fn(g);
    like->started_at = g->started_at;
    like->seen = f->sight != NULL ? f->sight->seen : W_SEEN_NOTHING;
    like->trace = f->trace;
    like->tid = f->sight != NULL ? f->sight->tid : 0;
    uint64_t h = mix(mix(like->state, like->reason), (uint64_t)(like->priority + 8 * like->lent + 16 * like->moved));
    h = mix(mix(mix(h, (uintptr_t)like->entry), (uintptr_t)like->started_at), like->seen);
    for (uint32_t i = 0; i < f->trace.n; i++)
        h = mix(h, place_of(f->trace.pc[i]));
    like->hash = h;
}

static bool same_trace(const struct w_trace *a, const struct w_trace *b)
{
    uint32_t i = 0;
    while (i < a->n && i < b->n && place_of(a->pc[i]) == place_of(b->pc[i]))
        i++;
    return i == a->n && i == b->n;
}

static bool is_like(const struct w_group *a, const struct w_group *b)
{
    return a->hash == b->hash && a->state == b->state && a->reason == b->reason && a->priority == b->priority &&
           a->lent == b->lent && a->moved == b->moved && a->entry == b->entry && a->started_at == b->started_at &&
           a->seen == b->seen && (a->state != W_RUNNING || a->tid == b->tid) && same_trace(&a->trace, &b->trace);
}

/* A new one for it, if need be; NULL: there is no room. */
static struct w_group *group_for(struct w_census *c, const struct facts *f)
{
    struct w_group *last = &c->group[c->n]; /* there is room for one more than are used */
    describe(last, f);
    uint32_t at = (uint32_t)(last->hash % INDEX);
    for (; c->index[at] != 0; at = (at + 1) % INDEX)
        if (is_like(&c->group[c->index[at] - 1], last))
            return &c->group[c->index[at] - 1];
    if (c->n == W_MAX_GROUPS)
        return NULL;
    c->index[at] = ++c->n;
    last->count = 0;
    last->since = last->left = last->over = (struct w_span_ns){1, 0};
    last->object = ld_relaxed(&((struct facts *)f)->g.waits_on);
    last->many_objects = false;
    last->same_name = true;
    last->m = f->sight != NULL ? f->sight->m : 0;
    last->p = f->sight != NULL ? f->sight->p : -1;
    return last;
}

static void join(struct w_group *group, const struct w_census *c, struct facts *f)
{
    struct w_timer timer;
    const void *object = ld_relaxed(&f->g.waits_on);
    int64_t over = f->g.flags & W_G_SCOPED ? w_goes_on_since(&f->g) : -1;
    group->many_objects |= object != group->object;
    group->same_name &= group->count == 0 || strcmp(group->one[0].name, f->one.name) == 0;
    if (group->count < W_NAMED)
        group->one[group->count] = f->one;
    group->count++;
    if (group->state == W_WAITING || group->state == W_BLOCKED)
        include(&group->since, c->now - f->g.since);
    if (group->reason == W_REASON_SLEEP && w_peek(&timer, (uintptr_t)object, sizeof timer))
        include(&group->left, timer.when - c->now);
    if (over >= 0)
        include(&group->over, c->now - over);
}

static void count_in(struct w_g *g, void *arg)
{
    struct w_census *c = arg;
    struct facts f;
    if (!look_at(c, g, &f))
        return;
    struct w_group *group = group_for(c, &f);
    c->count++;
    if (group != NULL)
        join(group, c, &f);
    else
        c->others++;
}

/* Who runs comes first, then by number, then by age. */
static int by_weight(const void *a, const void *b)
{
    static const uint8_t RANK[] = {
        [W_RUNNING] = 0, [W_BLOCKED] = 1, [W_PREEMPTED] = 2, [W_RUNNABLE] = 3, [W_WAITING] = 4};
    const struct w_group *x = a, *y = b;
    if (RANK[x->state] != RANK[y->state])
        return RANK[x->state] < RANK[y->state] ? -1 : 1;
    if (x->count != y->count)
        return x->count > y->count ? -1 : 1;
    return (x->one[0].id > y->one[0].id) - (x->one[0].id < y->one[0].id);
}

/* ---- all of them ------------------------------------------------------------------------------------------------ */

static const size_t GROUP_BYTES = (W_MAX_GROUPS + 1) * sizeof(struct w_group);
static const size_t INDEX_BYTES = INDEX * sizeof(uint32_t);

int w_census_take(struct w_census *c, bool look)
{
    *c =
        (struct w_census){.group = w_map(GROUP_BYTES), .index = w_map(INDEX_BYTES), .rows = w_rows_new(W_ROWS_OF_DUMP)};
    int r = c->group != NULL && c->index != NULL && c->rows != NULL ? 0 : -ENOMEM;
    if (r == 0 && look)
        r = w_look_at_ms(&c->sights, c->rows);
    if (r != 0) {
        w_census_free(c);
        return r;
    }
    c->now = w_now();
    w_gs_each(count_in, c);
    if (look)
        qsort(c->group, c->n, sizeof *c->group, by_weight);
    return 0;
}

void w_census_free(struct w_census *c)
{
    w_sights_free(&c->sights);
    if (c->rows != NULL)
        w_rows_free(c->rows);
    if (c->index != NULL)
        munmap(c->index, INDEX_BYTES);
    if (c->group != NULL)
        munmap(c->group, GROUP_BYTES);
}
