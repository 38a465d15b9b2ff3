/* SPDX-License-Identifier: MIT */
/*
 * Looking at goroutines that run: their threads are stopped by signal, each for as long as its stack is walked.
 *
 * A place is the meeting point of the one who looks and a thread. The signal (SIGURG, preempt.c) carries its address:
 *
 *      one who looks                                      the thread, in its handler
 *      tid = .. ; FREE -> ASKED ; sends                   ASKED -> COMES ; writes its registers ; HERE ; wakes the other; sleeps
 *      HERE: walks the stack ; FREE ; wakes the thread    not HERE any more: returns to what it was doing
 *      no answer: ASKED -> FREE, and it never will        after STAY: HERE -> FREE by itself, returns
 *
 * The handler only writes registers and waits: whatever it interrupted, in libc, in the dynamic linker, inside the runtime or where
 * preemption is off, is as it was. The thread may hold any lock meanwhile, the linker's too; should the walk need that one, the
 * thread has gone on after STAY, and the walk is thrown away if it was not done by then. The one who looks holds no lock of the runtime.
 *
 * A thread that sleeps in the kernel is not disturbed: a signal would make some calls fail (EINTR: usleep, poll). The kernel tells its
 * stack pointer and program counter (/proc/self/task/TID/syscall), before and after the walk: the same twice, it stood still.
 *
 * Invariants:
 *   LK1  a place is used by one who looks at a time (the turn to look, dump.c), and by the one thread whose number is in it
 *   LK2  registers are written between COMES and HERE, by the thread; read after HERE, by the one who looks
 */
#include "look.h"
#include "peek.h"
#include "preempt.h"
#include <stdlib.h>
#include <string.h>

enum { PLACES = 64 };
static const int64_t PATIENCE =
    100 * WEFT_MSEC;                         /* for an answer: on a crowded machine a thread waits as long for a core */
static const int64_t STAY = 300 * WEFT_MSEC; /* the longest that a thread is held */

enum { FREE, ASKED, COMES, HERE };

struct place {
    _Atomic uint32_t state; /* futex of the thread */
    _Atomic pid_t tid;
    struct w_regs regs;    /* LK2 */
    struct w_g *g, *other; /* that the thread ran, and had just left, or NULL; LK2 */
};

static struct place places[PLACES];
static _Atomic uint32_t news; /* futex: bumped by every thread that comes */

/* ---- in the thread that is looked at ---------------------------------------------------------------------------- */

static void meet(struct place *at, const ucontext_t *context)
{
    struct w_m *m = w_m();
    uint32_t s = ASKED;
    if (m == NULL || ld_relaxed(&at->tid) != ld_relaxed(&m->tid) || !cas_acquire(&at->state, &s, COMES)) /* [LO-1] */
        return;
    w_regs_of_context(&at->regs, context);
    at->g = m->g;
    at->other = m->after != NULL ? m->prev : NULL;
    st_release(&at->state, HERE); /* [LO-2] */
    add_relaxed(&news, 1);        /* relaxed: a futex */
    w_futex_wake(&news, 1);
    for (int64_t until = w_now() + STAY, left = STAY; left > 0; left = until - w_now()) {
        if (ld_acquire(&at->state) != HERE) /* [LO-1] */
            return;
        w_futex_wait(&at->state, HERE, left);
    }
    s = HERE;
    cas_release(&at->state, &s, FREE); /* [LO-2] */
}

bool w_looked_at(const siginfo_t *info, const ucontext_t *context)
{
    uintptr_t offset = (uintptr_t)info->si_value.sival_ptr - (uintptr_t)places;
    if (info->si_code != SI_QUEUE || offset >= sizeof places)
        return false;
    struct w_m *m = w_m();
    bool outside = m != NULL && !ld_relaxed(&m->in_runtime); /* relaxed: this thread's own */
    if (outside && !w_enter_quietly(m))
        return true; /* its run has left it behind */
    if (outside)
        st_release(&m->looked, ld_relaxed(&m->looked) + 1); /* [LO-3] after in_runtime */
    meet(&places[offset / sizeof places[0]],
         context); /* asleep, and yet not in a call that blocks: its P stays with it */
    if (outside)
        w_step_out(m);
    return true;
}

/* ---- the ones who look ------------------------------------------------------------------------------------------ */

static bool view_of(struct w_stack_view *view, const struct w_g *g)
{
    struct w_g copy;
    w_peek_words(&copy, g, sizeof copy);
    if (copy.stack_lo == NULL)
        return false;
    w_view_init(view, (uintptr_t)copy.stack_lo, (uintptr_t)w_stack_top(copy.stack_class, copy.stack_lo));
    return true;
}

/* Is it on this goroutine's stack? Then nothing below its stack pointer counts. */
static bool is_on(struct w_stack_view *view, const struct w_g *g, uintptr_t sp)
{
    if (g == NULL || !view_of(view, g) || sp < view->lo || sp > view->hi)
        return false;
    view->lo = sp & ~(uintptr_t)7;
    return true;
}

static uint64_t id_of(const struct w_g *g)
{
    struct w_g copy;
    w_peek_words(&copy, g, sizeof copy);
    return copy.id;
}

/* The thread is HERE. What was walked counts if it still is. */
static void walk(struct w_sight *s, struct place *at, struct w_rows *rows)
{
    struct w_stack_view view;
    uintptr_t sp = at->regs.r[W_REG_SP];
    struct w_g *g = is_on(&view, at->g, sp) ? at->g : is_on(&view, at->other, sp) ? at->other : NULL;
    if (g != NULL) {
        s->g = g;
        s->id = id_of(g);
        s->seen = w_frames(rows, &at->regs, &view, &s->trace) > 0 ? W_SEEN_STACK : W_SEEN_NO_STACK;
    } else {
        s->seen = at->g != NULL ? W_SEEN_NO_STACK : W_SEEN_NOTHING;
        s->trace = (struct w_trace){.pc = {at->regs.pc}, .exact = 1, .n = 1};
    }
    uint32_t here = HERE;
    if (!cas_acq_rel(&at->state, &here, FREE) && s->seen == W_SEEN_STACK) { /* [LO-1] [LO-2] */
        s->seen = W_SEEN_SILENT;
        s->trace.n = 0;
    }
    w_futex_wake(&at->state, 1);
}

/* No answer. If it comes just now, it is let go. */
static void withdraw(struct place *at)
{
    uint32_t s = ASKED;
    if (cas_acq_rel(&at->state, &s, FREE)) /* [LO-1] [LO-2] */
        return;
    for (uint32_t i = 0; ld_acquire(&at->state) == COMES; i++) /* [LO-2] */
        w_back_off(i);
    st_release(&at->state, FREE); /* [LO-1] */
    w_futex_wake(&at->state, 1);
}

/* false: it does not run. */
static bool ask(struct place *at, pid_t tid)
{
    st_relaxed(&at->tid, tid);
    st_release(&at->state, ASKED); /* [LO-1] its tid */
    if (w_send(tid, at))
        return true;
    withdraw(at);
    return false;
}

/* Those of one batch that have come since the last time; how many are still to come. */
static uint32_t meet_all(struct w_sight **asked, uint32_t n, struct w_rows *rows)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (asked[i] == NULL)
            continue;
        if (ld_acquire(&places[i].state) == HERE) { /* [LO-2] */
            walk(asked[i], &places[i], rows);
            asked[i] = NULL;
        } else {
            left++;
        }
    }
    return left;
}

/* ---- threads that sleep in the kernel, and those that do not --------------------------------------------------------------------------- */

struct call {
    uintptr_t sp, pc;
};

/* false: it runs, or nobody tells. */
static bool call_of(pid_t tid, struct call *call)
{
    char text[256];
    w_thread_text(tid, "syscall", text, sizeof text);
    char *pc = strrchr(text, ' ');
    if (pc == NULL)
        return false;
    *pc = '\0';
    const char *sp = strrchr(text, ' ');
    call->sp = sp != NULL ? strtoul(sp + 1, NULL, 16) : 0;
    call->pc = strtoul(pc + 1, NULL, 16);
    return call->sp != 0;
}

/* false: it does not sleep. */
static bool look_asleep(struct w_sight *s, struct w_rows *rows)
{
    struct call call, again;
    struct w_stack_view view;
    struct w_regs regs = {.known = (uint32_t)1 << W_REG_SP};
    if (!call_of(s->tid, &call))
        return false;
    regs.pc = call.pc;
    regs.r[W_REG_SP] = call.sp;
    s->seen = W_SEEN_NO_STACK;
    if (!is_on(&view, s->g, call.sp))
        return true;
    w_frames(rows, &regs, &view, &s->trace);
    if (!call_of(s->tid, &again) || again.sp != call.sp || again.pc != call.pc)
        return false;
    s->seen = W_SEEN_STACK;
    return true;
}

/* Those that run. One that has fallen asleep since it was last looked at is asked after again. */
static void look_at_batch(struct w_sight **asked, uint32_t n, struct w_rows *rows)
{
    for (uint32_t i = 0; i < n; i++)
        if (!ask(&places[i], asked[i]->tid) && look_asleep(asked[i], rows))
            asked[i] = NULL;
    for (int64_t until = w_now() + PATIENCE, left = PATIENCE; left > 0; left = until - w_now()) {
        uint32_t word = ld_relaxed(&news);
        if (meet_all(asked, n, rows) == 0)
            return;
        w_futex_wait(&news, word, left);
    }
    meet_all(asked, n, rows);
    for (uint32_t i = 0; i < n; i++) {
        if (asked[i] == NULL)
            continue;
        withdraw(&places[i]);
        if (!look_asleep(asked[i], rows))
            asked[i]->seen = W_SEEN_SILENT;
    }
}

/* ---- all Ms ----------------------------------------------------------------------------------------------------- */

/* Who is in a blocking region has its P only as long as nobody takes it. As in list_locked, others write to what this reads. */
static __attribute__((no_sanitize("thread"))) int32_t p_of(struct w_m *m)
{
    struct w_p *p = *(struct w_p *volatile *)&m->p, *blocked = ld_relaxed(&m->blocked_p);
    if (p == NULL && blocked != NULL && ld_relaxed(&blocked->blocked_by) == m)
        p = blocked;
    return p != NULL ? (int32_t)p->id : -1;
}

/* Others may be changing what is read here; Ms and Ps are there while the lock is held. */
static __attribute__((no_sanitize("thread"))) void list_locked(struct w_sights *s)
{
    for (struct w_m *m = w_sched.all_ms; m != NULL && s->n < s->room; m = m->all_next) {
        struct w_g *g = *(struct w_g *const volatile *)&m->g;
        pid_t tid = ld_relaxed(&m->tid);
        if (g == NULL || tid == 0 || tid == gettid())
            continue;
        s->sight[s->n++] = (struct w_sight){.g = g, .id = id_of(g), .tid = tid, .m = m->id, .p = p_of(m)};
    }
}

static void look_at_running(struct w_sights *s, struct w_rows *rows)
{
    struct w_sight *asked[PLACES];
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->sight[i].seen == W_SEEN_SILENT)
            asked[n++] = &s->sight[i];
        if (n == PLACES || (i + 1 == s->n && n > 0)) {
            look_at_batch(asked, n, rows);
            n = 0;
        }
    }
}

int w_look_at_ms(struct w_sights *s, struct w_rows *rows)
{
    w_lock(&w_sched.lock, W_RANK_SCHED);
    uint32_t room = w_sched.m_count + 8;
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    *s = (struct w_sights){.sight = w_map(room * sizeof *s->sight), .room = room};
    if (s->sight == NULL)
        return -ENOMEM;
    w_lock(&w_sched.lock, W_RANK_SCHED);
    list_locked(s);
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    for (uint32_t i = 0; i < s->n; i++)
        if (!look_asleep(&s->sight[i], rows))
            s->sight[i].seen = W_SEEN_SILENT;
    look_at_running(s, rows);
    return 0;
}

void w_sights_free(struct w_sights *s)
{
    if (s->sight != NULL)
        munmap(s->sight, s->room * sizeof *s->sight);
}

const struct w_sight *w_sight_of(const struct w_sights *s, const struct w_g *g, uint64_t id)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->sight[i].g == g && s->sight[i].id == id && s->sight[i].seen != W_SEEN_NOTHING)
            return &s->sight[i];
    return NULL;
}
