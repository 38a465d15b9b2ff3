/* SPDX-License-Identifier: MIT */
/*
 * The monitor: what nobody else can notice, because everybody else is busy or blocked.
 *
 * The thread that called weft_run is the monitor while the run lasts; it has nothing else to do. It
 *   - takes the P of a goroutine that stays in a blocking region while others wait, be it announced or not (block.c),
 *   - asks a goroutine that has used up its quantum to let others run, and makes each P age once a quantum,
 *   - wakes a thread for a lone goroutine whose P does not get to it (sched.c, W4),
 *   - sees to timers (timer.c, T4) and descriptors (netpoll.c) that nobody else gets to,
 *   - gives memory back, joins threads that ended, retries threads that could not be made,
 *   - prints a line now and then, if WEFT_DEBUG=schedtrace asks for it (stats_text.c).
 *
 * How often it looks: soon again (MIN_DELAY) while it has something to do or to watch, then twice as long each time, up
 *   to BUSY       while a P is busy and hardly switches: its thread may block without a word; while all do nothing but compute, for a
 *                 fourth of the time for which they have, up to CALM,
 *   to ATTENTIVE  while some P is idle and another is not (then W4 relies on it), or a P is busy, be it that all of them move
 *                 or that there are timers or descriptors that are waited for,
 *   to MAX_DELAY  while all threads with a P sleep in the kernel, or one is wanted that could not be made,
 *   to TRIM_DELAY while all are idle, until all memory is given back; after that it sleeps until a P is taken.
 */
#include "netpoll.h"
#include "sys_io.h"
#include "timer.h"
#include "weft_internal.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

static const int64_t MIN_DELAY = 50 * WEFT_USEC;
static const int64_t WAKE = 40 * WEFT_USEC;   /* the kernel's way from a thread that computes to us */
static const int64_t AWAKE = 100 * WEFT_USEC; /* of a processor's time without a nap: it computes */
static const int64_t MAX_DELAY = 10 * WEFT_MSEC;
static const int64_t BUSY =
    400 * WEFT_USEC; /* two such looks and a short one, and it is found: within a millisecond or two */
static const int64_t CALM = WEFT_MSEC; /* a look beside threads that compute costs 13 us: 3 % of a core, now 1 */
static const int64_t PAGE_LIMIT = 10 * WEFT_MSEC; /* who waits for a page that long may as well be in a call */
static const int64_t FOUND_LATELY = WEFT_SEC;     /* where one has blocked so, others will: twice as often */
static const int64_t TRIM_DELAY = WEFT_SEC;
static const int64_t BLOCK_LIMIT = 20 * WEFT_USEC; /* a region that others wait for may keep its P that long */
static const int64_t NEGLECTED = 100 * WEFT_USEC;  /* a timer is, if it is so late and every P is busy */
static const int64_t POLL = 200 * WEFT_USEC;       /* for descriptors, while no P switches */
static const int64_t LIGHT = WEFT_MSEC;            /* whoever runs that long while others wait has had its share */
static const int64_t RETRY = WEFT_MSEC;            /* who could not be stopped is tried again; for somebody urgent: */
static const int64_t URGENT_RETRY = 100 * WEFT_USEC, URGENT_LIMIT = 5 * WEFT_MSEC;
static const int64_t MARGIN = 5 * WEFT_USEC, MAX_LEAD = 40 * WEFT_USEC; /* before a timer of somebody urgent */
static const int64_t EVE = WEFT_MSEC;                                   /* likewise: no looks for nothing */
static const int64_t MAX_REST = 150 * WEFT_USEC;
static const int64_t NO_THREAD_LIMIT = 10 * WEFT_SEC;
enum { LOW_TURN = 8 }; /* every so many quanta, one of low priority */
enum { NO_DEFER = 256 };
enum {
    MOVING = 30,
    SOME = 8
}; /* switches in a millisecond: it sees to timers and descriptors every 2 ms (sched.c: FAIR_TURN) */

struct look {
    int64_t now;     /* when it began, or since then */
    bool watch;      /* something may need us very soon */
    bool busy;       /* a thread with a P runs, and may block without a word at any time */
    bool events;     /* timers, or descriptors that are waited for */
    bool unattended; /* descriptors are waited for, and no M sleeps in the poller */
    int64_t since;   /* the look before */
    bool moving;     /* some P has switched so often since then that it sees to timers and descriptors */
    bool dwelling;   /* some P has not, though a thread has it */
    bool stirred;    /* some goroutine has left its thread by itself since then, or a thread sleeps: others will */
    bool eve;        /* somebody's of high priority will be woken by us, and soon */
    int64_t again;   /* how long until somebody's time is up */
};

void w_monitor_wake(void)
{
    add_relaxed(&w_sched.monitor_word, 1); /* relaxed: what it looks at is ordered by the locks and fences of its own */
    w_futex_wake(&w_sched.monitor_word, 1);
}

static int64_t at_most(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t at_least(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static bool others_wait(struct w_p *p)
{
    return w_p_work(p) > 0 || ld_relaxed(&w_sched.globq.len) > 0;
}

static void look_at_blocked(struct look *l, struct w_p *p, struct w_m *m)
{
    if (p->blocked_seen != m) {
        p->blocked_seen = m;
        p->blocked_at = l->now;
    }
    bool wanted = others_wait(p);
    if (l->now - p->blocked_at < (wanted ? BLOCK_LIMIT : MAX_DELAY)) {
        l->watch |= wanted;
        return;
    }
    p->blocked_seen = NULL;
    l->watch = true;
    w_p_retake(p, m);
}

/* Its clock was read at this look and at the one before. That one may have kept it from its CPU, or not, and so did waking us up; if it
 * was short, what is left counts. */
enum w_computed w_computed(const struct w_p *p)
{
    int64_t slept = w_sched.slept, looked = w_sched.looked_for, lost = slept - p->gained,
            wake = at_most(WAKE, slept / 4);
    if (p->gained < 0 || slept < MIN_DELAY / 2)
        return W_HARDLY;
    if (looked <= wake && lost <= wake)
        return W_TO_THE_LAST;
    return looked <= slept / 2 && lost <= wake + slept / 8 ? W_MOSTLY : W_HARDLY;
}

/* Of words that may not belong together: then too much seems to be gained, or too little. What the look itself took from it, and whoever
 * asks, is lost. A look that was just now tells nothing; the one before does. */
bool w_computed_since_look(const struct w_p *p, const struct w_m *m)
{
    if (ld_relaxed(&p->read_m) != m)
        return false;
    int64_t now = w_now(), at = ld_relaxed(&p->read_at), before = ld_relaxed(&p->read_cpu);
    if (now - at < MIN_DELAY) {
        at = ld_relaxed(&p->past_at);
        before = ld_relaxed(&p->past_cpu);
    }
    int64_t gained = w_thread_cpu(ld_relaxed(&m->tid)) - before, passed = now - at;
    return at != 0 && passed >= MIN_DELAY && gained <= passed && passed - gained <= at_most(WAKE, passed / 4);
}

/* Has the thread done nothing but compute while we slept and p did not switch? Then it will most likely go on, and a signal meets it in no
 * call that would return early. Its clock tells, if it has had a core. On a crowded machine how often it has slept does, if that stays the
 * same while it computes: for long enough, for one that has only just woken up is about to sleep again as likely as not. */
static bool computes(struct w_p *p, struct w_m *m)
{
    if (p->gained < 0)
        return false;
    if (w_computed(p) != W_HARDLY)
        return true;
    pid_t tid = ld_relaxed(&m->tid);
    int64_t cpu = w_thread_cpu(tid);
    if (p->naps >= 0 && cpu - p->naps_cpu < AWAKE)
        return false; /* whatever they are now: it has not had as much since */
    long naps = w_thread_naps(tid);
    bool awake = naps >= 0 && naps == p->naps && cpu - p->naps_cpu >= AWAKE;
    /* Once more only after as long: without a core it has not got our signal yet. */
    if (awake || naps != p->naps) {
        p->naps = naps;
        p->naps_cpu = w_thread_cpu(tid);
    }
    return awake;
}

/* It is another one than at the last look: what is known of its thread does not count. */
static void forget_thread(struct w_p *p)
{
    p->still_m = NULL;
    p->gained = p->naps = p->wants_cpu = -1;
}

/* Likewise, and its clock was not read at this one. */
static void forget_clock(struct w_p *p)
{
    st_relaxed(&p->read_m, NULL); /* relaxed: whoever else reads these takes them for hints */
    forget_thread(p);
}

/* The kernel's word, between two looks at its clock: it was so all the time. Who waits for a core has to get one before it can sleep, and
 * its clock moves then; all the same it is asked now and then. */
static bool sleeps(struct w_p *p, pid_t tid, int64_t cpu, int64_t now)
{
    if (cpu == p->wants_cpu && now - p->wants_at < MAX_DELAY)
        return false;
    char state = w_thread_state(tid);
    if (state == 'R') {
        p->wants_cpu = cpu;
        p->wants_at = now;
        return false;
    }
    bool long_since = now - p->still_since >= PAGE_LIMIT; /* also where no descriptor was left to ask with */
    return (long_since || w_thread_in_call(tid, state)) && w_thread_cpu(tid) == cpu;
}

/* Its clock has moved since the look before, but less than it would have if it only computed, and not because it has no core. */
static bool has_stopped(const struct w_p *p, pid_t tid)
{
    char state = w_computed(p) == W_HARDLY ? w_thread_state(tid) : 'R';
    return state == 'S' || state == 'D';
}

/* For how long nobody has done anything but compute: then looks are rare. Somebody urgent may need us at any time. */
static int64_t calm_for(int64_t now)
{
    return w_uses_priorities() ? 0 : now - w_sched.stirred_at;
}

static bool is_calm(int64_t now)
{
    return calm_for(now) > 4 * BUSY;
}

/* Nobody has left the P: does its thread run at all, if others wait? Where looks are rare, the first one that finds it stopped is
 * followed by another one soon. */
static void look_at_still(struct look *l, struct w_p *p, struct w_m *m, bool left)
{
    uint32_t looked = m != NULL ? ld_acquire(&m->looked) : 0; /* [LO-3] before in_runtime */
    bool wanted = m != NULL && others_wait(p), inside = m != NULL && ld_relaxed(&m->in_runtime);
    l->busy |= wanted || left || inside;
    if (m == NULL || inside || (left && !w_uses_priorities())) {
        forget_clock(p);
        return;
    }
    pid_t tid = ld_relaxed(&m->tid);
    int64_t cpu = w_thread_cpu(tid), last = ld_relaxed(&p->read_cpu);
    int64_t before = p->still_m == m ? last : -1;
    bool same = ld_relaxed(&p->read_m) == m && !left;
    p->gained = cpu - last;
    st_relaxed(&p->past_cpu, last);
    st_relaxed(&p->past_at, same ? ld_relaxed(&p->read_at) : 0);
    st_relaxed(&p->read_m, m);
    st_relaxed(&p->read_cpu, cpu);
    st_relaxed(&p->read_at, w_now());
    if (!same)
        forget_thread(p);
    if (left)
        return;
    p->still_m = m;
    if (cpu != before)
        p->still_since = l->now;
    l->busy |= cpu != before;
    if (before < 0 || !wanted)
        return; /* it is not known yet, or nobody minds */
    bool moved = cpu != before;
    bool asleep = moved ? is_calm(l->now) && has_stopped(p, tid) : sleeps(p, tid, cpu, l->now);
    l->stirred |= asleep;
    l->watch |= asleep;
    if (ld_acquire(&m->looked) != looked) /* [LO-3] */
        return;                           /* it may have slept for that only */
    if (asleep && !moved && w_p_take(p, m)) {
        p->still_m = NULL;
        w_sched.found_at = l->now;
    }
}

/* Work that nobody gets to while a P is idle: a lone goroutine whose P has not moved since our last look; or shared
 * work, for which look_around looks again. */
static void look_at_work(struct look *l, struct w_p *p, struct w_m *m, bool switched)
{
    struct w_g *lone = ld_relaxed(&p->slot);
    bool stuck = lone != NULL && lone == p->seen_slot && !switched;
    l->stirred |= lone != p->seen_slot;
    p->seen_slot = lone;
    if (ld_relaxed(&w_sched.idle_p_count) == 0)
        return;
    if (stuck && m != NULL && w_rescue(p, m))
        st_relaxed(&p->no_defer, NO_DEFER);
}

static uint32_t in_line(enum w_line line)
{
    return ld_relaxed(&w_sched.globq.lens[line]);
}

/* Those of normal priority who have not used much: in p's queues, or for all. */
static bool light_wait(struct w_p *p)
{
    return w_p_work(p) > 0 || in_line(W_LINE_RAN) > 0 || in_line(W_LINE_FRESH) > 0;
}

/* What the M of p is to be asked for now; *again: when to look, if for nothing yet. The one that runs has been at it for
 * `alone`, with those that it handed over to for `slice`. */
static enum w_request due(struct w_p *p, int64_t alone, int64_t slice, int64_t *again)
{
    int8_t level = ld_relaxed(&p->level);
    int64_t quantum = w_sched.quantum, light = at_most(LIGHT, quantum);
    bool others = light_wait(p), heavy = in_line(W_LINE_HEAVY) > 0;
    *again = WEFT_NEVER;
    if (level == W_LOW && (others || heavy))
        return W_LET_RUN;
    if (level < W_HIGH && others) {
        if (alone >= light)
            return W_HEAVY_NOW;
        *again = light - alone;
    }
    if (others || heavy || in_line(W_LINE_HIGH) > 0 || in_line(W_LINE_LOW) > 0) {
        if (slice >= quantum)
            return W_HEAVY_NOW;
        *again = at_most(*again, quantum - slice);
    }
    return W_GO_ON;
}

/* Has it been asked to let somebody of high priority run? */
static bool urgent_there(struct w_p *p, struct w_m *m)
{
    return in_line(W_LINE_HIGH) > 0 && ld_relaxed(&p->level) != W_HIGH && ld_relaxed(&m->preempt) != W_GO_ON;
}

/* While all do nothing but compute, one look sees to all slices that end within the shortest one; they begin together from then on. */
static int64_t together(const struct look *l, int64_t left)
{
    return is_calm(l->now) ? at_least(left, at_most(CALM, w_sched.quantum)) : left;
}

/* Asks, and interrupts who is outside the runtime. One that does not hear is interrupted again: soon if it is urgent, for it may just
 * have been where it cannot be stopped. */
static void ask(struct look *l, struct w_p *p, struct w_m *m, enum w_request request, bool urgent)
{
    int64_t retry = urgent ? URGENT_RETRY : RETRY, left = ld_relaxed(&p->asked_at) + retry - l->now;
    if (left > MIN_DELAY / 2) {
        l->again = at_most(l->again, together(l, left));
        return;
    }
    if (urgent && p->urged_at == 0)
        p->urged_at = l->now;
    bool outside = !ld_relaxed(&m->in_runtime), sure = outside && computes(p, m);
    bool long_ago =
        outside && urgent && l->now - p->urged_at >= URGENT_LIMIT; /* then it is enough that it runs just now */
    if (ld_relaxed(&p->count.switches) != p->seen_switches) {      /* meanwhile: it is not about who runs there now */
        l->again = at_most(l->again, MIN_DELAY);
        return;
    }
    w_ask(m, request);
    bool sent = (sure || long_ago) && w_interrupt(ld_relaxed(&m->tid), p, sure ? W_IF_AWAKE : w_if_it_hears(p, m));
    if (sent)
        st_relaxed(&p->asked_at, l->now);
    l->again = at_most(l->again, sent ? retry : urgent ? MIN_DELAY : 2 * MIN_DELAY);
}

/* Lets others run there, if they have a better right. */
static void look_at_slice(struct look *l, struct w_p *p)
{
    struct w_m *m = ld_acquire(&p->m); /* [PM-1] */
    if (m == NULL || ld_relaxed(&p->blocked_by) != NULL)
        return;
    int64_t again, owed = ld_relaxed(&p->owed_until) - l->now;
    bool urgent = urgent_there(p, m);
    if (!urgent)
        p->urged_at = 0;
    if (owed > 0 && in_line(W_LINE_HIGH) > 0)
        l->again = at_most(l->again, owed);
    enum w_request request = due(p, l->now - p->switched_at, l->now - p->seen_at, &again);
    if (urgent && request == W_GO_ON)
        request = W_LET_RUN;
    if (request == W_GO_ON || owed > 0)
        l->again = at_most(l->again, request == W_GO_ON ? together(l, again) : owed);
    else
        ask(l, p, m, request, urgent);
}

/* It was asked for somebody urgent, and does not hear: it is in a call, or the host has taken away the CPU that it is on. */
static bool is_deaf(const struct w_p *p, int64_t now)
{
    int64_t at = ld_relaxed(&p->asked_at);
    if (at == 0)
        at = p->urged_at;
    return at != 0 && now - at >= URGENT_RETRY - MIN_DELAY / 2;
}

/* Those of high priority for whom nobody was asked, or one who does not hear. */
static void look_at_urgent(int64_t now, uint32_t n)
{
    uint32_t urgent = in_line(W_LINE_HIGH), asked = 0;
    for (uint32_t i = 0; i < n && urgent > 0; i++) {
        struct w_m *m = ld_acquire(&w_sched.ps[i]->m); /* [PM-1] */
        bool may_hear = m != NULL && ld_relaxed(&w_sched.ps[i]->level) != W_HIGH && !is_deaf(w_sched.ps[i], now);
        asked += may_hear && ld_relaxed(&m->preempt) != W_GO_ON;
    }
    while (asked < urgent && w_make_way())
        asked++;
}

static void look_at_slices(struct look *l, uint32_t n)
{
    look_at_urgent(l->now, n);
    for (uint32_t i = 0; i < n; i++)
        look_at_slice(l, w_sched.ps[i]);
}

/* What has happened on p since the look before. */
struct progress {
    bool switched;
    bool left; /* a goroutine left it by itself, or went into a region: not only by our signals did others come */
};

static struct progress look_at_switches(struct look *l, struct w_p *p)
{
    uint64_t switches = ld_relaxed(&p->count.switches);
    uint64_t own = switches - ld_relaxed(&p->count.cut) + ld_relaxed(&p->count.regions);
    int64_t moved = (int64_t)(switches - p->seen_switches), asked_at = ld_relaxed(&p->asked_at);
    struct progress progress = {.switched = moved != 0, .left = own != p->seen_own};
    bool cut =
        moved == 1 && !progress.left && asked_at != 0; /* it began when our signal came, not before the last look */
    int64_t began = cut ? at_least(asked_at, l->now - l->since) : l->now;
    uint32_t tick = ld_relaxed(&p->tick);
    if (tick != p->seen_tick) {
        p->seen_tick = tick;
        p->seen_at = began;
    }
    if (progress.switched) {
        p->switched_at = began;
        p->naps = -1;
        p->urged_at = 0;
        st_relaxed(&p->asked_at, 0);
    }
    p->seen_switches = switches;
    p->seen_own = own;
    l->stirred |= progress.left;
    if (ld_relaxed(&p->m) != NULL) {
        bool moves = moved >= SOME && moved * WEFT_MSEC >= MOVING * l->since;
        l->moving |= moves;
        l->dwelling |= !moves;
    }
    return progress;
}

static void look_at_p(struct look *l, struct w_p *p)
{
    struct w_m *blocked = ld_relaxed(&p->blocked_by), *m = ld_acquire(&p->m); /* [PM-1] */
    if (blocked != NULL) {
        look_at_blocked(l, p, blocked);
        forget_clock(p);
        l->stirred = true;
        return;
    }
    p->blocked_seen = NULL;
    struct progress progress = look_at_switches(l, p);
    look_at_work(l, p, m, progress.switched);
    look_at_still(l, p, m, progress.left);
    if (l->now - p->aged_at >= at_most(w_sched.quantum, MAX_DELAY)) {
        p->aged_at = l->now;
        bool low =
            ++p->ages % LOW_TURN == 0; /* time counts, not how often it took notice: it may be given little of that */
        if (others_wait(p))
            atomic_fetch_or_explicit(&p->attn, low ? W_ATTN_AGE | W_ATTN_LOW : W_ATTN_AGE, memory_order_relaxed);
    }
}

/* w_look_again tries to make the thread that is wanted. If nothing runs and it never succeeds, there is no way on. */
static void look_for_threads(int64_t now)
{
    w_lock(&w_sched.lock, W_RANK_SCHED);
    bool wanted = ld_relaxed(&w_sched.m_wanted) && w_sched.busy_ps == 0;
    bool stuck = wanted && (ld_relaxed(&w_sched.globq.len) > 0 || w_ps_have_work());
    if (wanted && !stuck)
        st_relaxed(&w_sched.m_wanted, false); /* other threads have done the work */
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    if (!stuck)
        w_sched.stuck_since = 0;
    else if (w_sched.stuck_since == 0)
        w_sched.stuck_since = now;
    else if (now - w_sched.stuck_since > NO_THREAD_LIMIT)
        w_fatal("no thread can be made to run the goroutines that are ready");
}

/* Timers of busy Ps that are due while all are busy: who is ready then takes its turn in the global queue. While we have it
 * in our hands we count as a busy P: else everything would seem to be asleep. */
static void run_timers(int64_t now)
{
    w_lock(&w_sched.lock, W_RANK_SCHED);
    bool none = w_sched.busy_ps == 0;
    w_sched.busy_ps += !none;
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    if (none)
        return;
    uint32_t n = ld_acquire(&w_sched.p_count); /* [PC-1] */
    for (uint32_t i = 0; i < n; i++)
        while (w_timers_run(w_sched.ps[i], NULL, now) > 0)
            ;
    w_lock(&w_sched.lock, W_RANK_SCHED);
    w_sched.busy_ps--;
    w_check_dead_locked();
    w_unlock(&w_sched.lock, W_RANK_SCHED);
}

/* No P sees to the timer that is due next, or not soon enough. If it is somebody's of high priority we wake up before it, by as much as
 * we have lately overslept, and look at the clock until it is due: 30 us each time, where the wake-up of a thread would make it late by
 * as much. */
static void await_timer(struct look *l, int64_t next, bool urgent)
{
    int64_t left = next - l->now, lead = urgent ? at_most(w_sched.oversleeps + MARGIN, MAX_LEAD) : 0;
    if (urgent && left <= lead)
        while (l->now < next)
            l->now = w_now();
    if (l->now < next)
        l->again = at_most(l->again, at_least(next - l->now - lead, 0));
    l->eve = urgent && l->now < next && left <= EVE;
}

/* true: there are timers. An M that is woken here finds what is due, or becomes the keeper. */
static bool look_at_timers(struct look *l)
{
    int64_t next = w_next_event(), keeper = ld_relaxed(&w_sched.keeper_until);
    if (ld_relaxed(&w_sched.idle_p_count) == 0) {
        bool urgent = next != WEFT_NEVER && w_timer_is_urgent(next), ours = urgent || !l->moving;
        if (ours && next != WEFT_NEVER)
            await_timer(l, next, urgent);
        else if (next != WEFT_NEVER) /* a P will see to it; if it does not, we do */
            l->again = at_most(l->again, at_least(next - l->now + NEGLECTED, BUSY));
        if (next <= l->now - (ours ? 0 : NEGLECTED))
            run_timers(l->now);
    } else if (next <= l->now || next < keeper) {
        bool busy = next > l->now && ld_relaxed(&w_sched.idle_p_count) < ld_relaxed(&w_sched.procs);
        if (!busy) /* a timer to come of a busy P is that P's own business */
            w_wake_one();
    }
    return next != WEFT_NEVER;
}

/* While an M sleeps in the poller little is due. An M that is woken here and finds nothing goes to sleep there. */
static void look_at_descriptors(struct look *l)
{
    if (!w_poll_wanted())
        return;
    l->events = true;
    l->unattended = w_poll_unattended();
    if (!l->moving)
        l->again = at_most(l->again, POLL); /* nobody else will */
    if (!w_poll_due(l->moving ? W_ATTENTIVE : POLL))
        return;
    w_poll();
    if (l->unattended && ld_relaxed(&w_sched.idle_p_count) > 0)
        w_wake_one();
}

static void look_around(struct look *l)
{
    uint32_t n = ld_acquire(&w_sched.p_count); /* [PC-1] */
    for (uint32_t i = 0; i < n; i++)
        look_at_p(l, w_sched.ps[i]);
    w_look_again();
    l->events = look_at_timers(l);
    look_at_descriptors(l);
    if (w_sched.quantum != WEFT_NEVER)
        look_at_slices(l, n); /* last: timers and descriptors may have made somebody ready */
    look_for_threads(l->now);
    w_ms_join();
}

/* All Ps idle: nothing but memory to see to. Whoever takes a P wakes us. */
static bool all_idle(void)
{
    w_lock(&w_sched.lock, W_RANK_SCHED);
    bool idle = w_sched.busy_ps == 0;
    st_relaxed(&w_sched.monitor_asleep, idle);
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    return idle;
}

/* The stacks that an idle P keeps hot are not needed now; nobody holds the P while it is in the list. */
static void flush_idle_ps(void)
{
    w_lock(&w_sched.lock, W_RANK_SCHED);
    for (struct w_p *p = w_sched.idle_ps; p != NULL; p = p->link)
        w_stack_cache_flush(p, 0);
    w_unlock(&w_sched.lock, W_RANK_SCHED);
}

/* So long a thread may be asleep without a word before we look. */
static int64_t unseen_for(int64_t now)
{
    return now - w_sched.found_at < FOUND_LATELY ? BUSY / 2 : at_least(BUSY, at_most(calm_for(now) / 4, CALM));
}

/* The longest that we may sleep now. Attention is withdrawn one look before it ends: who still relied on it is seen. */
static int64_t longest(bool idle, bool memory_left, const struct look *l)
{
    bool before = ld_relaxed(&w_sched.attentive);
    bool now = !idle && w_sched.hiding && ld_relaxed(&w_sched.idle_p_count) > 0;
    bool often = now || before || (l->events && !idle) || l->unattended;
    st_relaxed(&w_sched.attentive, now);
    st_relaxed(&w_sched.timely, often);
    if (l->busy && !idle)
        return at_most(l->dwelling ? unseen_for(l->now) : W_ATTENTIVE, w_sched.quantum);
    if (often)
        return W_ATTENTIVE;
    if (!idle || ld_relaxed(&w_sched.m_wanted))
        return at_most(MAX_DELAY, w_sched.quantum);
    return memory_left ? TRIM_DELAY : -1;
}

/* All threads with a P sleep, and nobody waited: who comes now from elsewhere wakes us. */
static int64_t doze(int64_t delay)
{
    st_relaxed(&w_sched.drowsy, true);
    w_fence_seq(); /* [MN-1] */
    return ld_relaxed(&w_sched.globq.len) > 0 ? MIN_DELAY : delay;
}

/* The kernel lets a thread that wakes up go before one that computes only if it has slept for longer than it ran before; otherwise it
 * waits for the next tick, up to 4 ms. So we rest for twice as long as this look took, if that is in proportion; and before a timer
 * that counts (look.eve) we look at nothing for nothing. */
static int64_t rest(int64_t began)
{
    return at_most(2 * (w_now() - began), MAX_REST);
}

/* How late the kernel lets us go on: a moving mean, of what is not out of all proportion. */
static void sleep_for(uint32_t word, int64_t ns)
{
    int64_t before = w_now();
    w_sched.looked_for = before - w_sched.looked_at;
    long r = w_futex_wait(&w_sched.monitor_word, word, ns);
    w_sched.slept = w_now() - before;
    if (r != -ETIMEDOUT)
        return;
    int64_t late = at_most(w_sched.slept - ns, MAX_LEAD);
    w_sched.oversleeps += (late - w_sched.oversleeps) / 8;
}

/* No longer than until the next line of WEFT_DEBUG=schedtrace is due. ns < 0: for ever. */
static int64_t until_line(int64_t ns, int64_t left)
{
    return left == WEFT_NEVER || (ns >= 0 && ns < left) ? ns : at_least(left, WEFT_USEC);
}

static void monitor(void)
{
    int64_t delay = MIN_DELAY, trimmed_at = w_now();
    bool memory_left = true;
    w_sched.looked_at = trimmed_at;
    while (!ld_relaxed(&w_sched.stopping)) {
        uint32_t word = ld_relaxed(&w_sched.monitor_word);
        int64_t began = w_now();
        struct look l = {.now = began, .since = began - w_sched.looked_at, .again = WEFT_NEVER};
        w_sched.looked_at = began;
        st_relaxed(&w_sched.coarse_now, began);
        w_sigquit_serve();
        look_around(&l);
        if (l.now - trimmed_at >= TRIM_DELAY) {
            flush_idle_ps();
            memory_left = w_stacks_trim();
            trimmed_at = l.now;
        }
        bool idle = all_idle();
        memory_left |= !idle;
        if (l.stirred || idle) {
            l.watch |= l.stirred && is_calm(l.now); /* whoever came may not compute */
            w_sched.stirred_at = l.now;
        }
        int64_t limit = longest(idle, memory_left || l.now - trimmed_at >= TRIM_DELAY, &l);
        delay = l.watch ? MIN_DELAY : limit < 0 ? -1 : at_most(delay * 2, limit);
        if (!idle && !l.busy && delay > BUSY)
            delay = doze(delay);
        int64_t until = l.eve && !l.watch ? l.again : at_most(delay, l.again);
        int64_t ns = until_line(idle ? delay : at_least(rest(began), until), w_schedtrace(l.now));
        if (!ld_relaxed(&w_sched.stopping))
            sleep_for(word, ns);
        st_relaxed(&w_sched.monitor_asleep, false);
        st_relaxed(&w_sched.drowsy, false);
        if (delay < 0)
            delay = MIN_DELAY, memory_left = true;
    }
}

/* The kernel lets a thread oversleep by 50 us unless it is told that this one is in a hurry; and one that wakes up beside threads that
 * compute waits for the end of their time slices (3 ms), if its own is not shorter. */
void w_monitor(void)
{
    struct w_sched_attr before, hurry;
    bool known = w_sched_getattr(&before) == 0 && before.policy == SCHED_OTHER;
    hurry = before;
    hurry.runtime = W_HURRY;
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    if (known)
        w_sched_setattr(&hurry);
    monitor();
    if (known)
        w_sched_setattr(&before);
    if (w_sched.slack > 0)
        prctl(PR_SET_TIMERSLACK, w_sched.slack, 0, 0, 0);
}
