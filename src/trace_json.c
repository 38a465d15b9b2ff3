/* SPDX-License-Identifier: MIT */
/*
 * From tapes to the trace event format of chrome://tracing, which ui.perfetto.dev opens as well: an array of objects, one a line, in
 * any order. The array may lack its end, so a file that was cut short is still one.
 *
 *      pid 1   "processors"   a track for each P: a slice for every run of a goroutine, with arrows from who woke it to its run;
 *                             instants: spawn, steal, preempted; counters
 *      pid 2   "threads"      a track for each M: slices for the P that it holds and for blocking calls; instants: P taken
 *
 * Events are read in the order of their times, across all tapes, up to the moment when the reading began; slices are written
 * when they end. A slice is made of one tape alone, so that an event which comes late spoils no more than an arrow. Who was made ready
 * is remembered in a table by its id until it runs: one of two that meet there loses its arrow, and the table needs no memory
 * that grows. Nothing here allocates, so the flight recorder may do all of it in a handler.
 */
#include "symbol.h"
#include "trace_text.h"
#include "weft_internal.h"
#include <string.h>

enum { WAKES = 1 << 15, SYMBOLS = 256, SYMBOL = 56 };
enum { PROCESSORS = 1, THREADS = 2, FIRST_THREAD = 10000 };

/* Who was made ready, and by whom. */
struct wake {
    uint64_t g;  /* 0: nobody */
    uint64_t by; /* 0: no goroutine */
    int64_t at;  /* ns */
    uint32_t p;  /* where */
    bool spawned;
};

struct symbol {
    const void *fn;
    char name[SYMBOL];
};

struct w_trace_out {
    enum w_reader reader;
    bool dying;                       /* no lock may be taken */
    uint64_t switches, runs;          /* of all Ps when it began; runs that were read since */
    uint64_t flows;                   /* arrows so far */
    uint64_t lost;                    /* events */
    uint64_t start, ticks, end_ticks; /* when it began; the present stretch, in which ns are in proportion to ticks */
    int64_t start_ns, ns, end_ns;
    uint64_t past_ticks; /* when the stretch before it began */
    int64_t past_ns;
    uint64_t known_ps[W_MAX_PROCS / 64];
    struct wake wake[WAKES];
    struct symbol symbol[SYMBOLS];
    struct w_text to;
};

/* ---- lines that others are made of ---------------------------------------------------------------------------------- */

static void metadata(struct w_trace_out *o, const char *what, uint32_t pid, uint64_t tid, const char *name, uint64_t n)
{
    begin_line(&o->to, "M", pid, tid, 0);
    named(&o->to, what);
    text(&o->to, ",\"args\":{\"name\":\"");
    text(&o->to, name);
    if (n != UINT64_MAX)
        number(&o->to, n);
    text(&o->to, "\"}");
    end_line(&o->to);
}

static uint64_t p_track(struct w_trace_out *o, uint32_t p)
{
    uint64_t bit = 1ull << p % 64;
    if (p < W_MAX_PROCS && !(o->known_ps[p / 64] & bit)) {
        o->known_ps[p / 64] |= bit;
        metadata(o, "thread_name", PROCESSORS, p + 1, "P ", p);
    }
    return p + 1;
}

static uint64_t m_track(const struct w_view *v)
{
    return FIRST_THREAD + v->m;
}

static void counter(struct w_trace_out *o, int64_t ns, const char *name, uint64_t n, const char *what, uint64_t value)
{
    begin_line(&o->to, "C", PROCESSORS, 1, ns);
    text(&o->to, ",\"name\":\"");
    text(&o->to, name);
    if (n != UINT64_MAX)
        number(&o->to, n);
    text(&o->to, "\",\"args\":{\"");
    text(&o->to, what);
    number_arg(&o->to, "\":", value);
    text(&o->to, "}");
    end_line(&o->to);
}

/* ---- names -------------------------------------------------------------------------------------------------------- */

/* The function's. */
static const char *name_of(struct w_trace_out *o, const void *fn)
{
    struct symbol *s = &o->symbol[(uintptr_t)fn / 16 % SYMBOLS];
    if (s->fn != fn || s->name[0] == '\0') {
        struct w_symbol symbol;
        s->fn = fn;
        if (o->dying)
            w_symbol_quick((uintptr_t)fn, &symbol);
        else
            w_symbol_linked((uintptr_t)fn, &symbol);
        w_symbol_text((uintptr_t)fn, &symbol, s->name, sizeof s->name);
    }
    return s->name;
}

/* Its own name, or its function's, and its id. */
static void name_goroutine(struct w_trace_out *o, const char *name, const void *fn, uint64_t id)
{
    text(&o->to, ",\"name\":\"");
    quoted(&o->to, name[0] != '\0' ? name : name_of(o, fn));
    number_arg(&o->to, " ", id);
    text(&o->to, "\"");
}

/* ---- times -------------------------------------------------------------------------------------------------------- */

/* ns since it began. An event of the stretch before may have been still being written when that was read: this one tells little of it. */
static int64_t ns_of(const struct w_trace_out *o, uint64_t ticks)
{
    bool late = (int64_t)(ticks - o->ticks) < 0 && o->ticks != o->past_ticks;
    double passed = (double)(int64_t)(ticks - o->ticks),
           length = late ? (double)(o->ticks - o->past_ticks) : (double)(o->end_ticks - o->ticks);
    double scale = length != 0 ? (double)(late ? o->ns - o->past_ns : o->end_ns - o->ns) / length : 1;
    return o->ns - o->start_ns + (int64_t)(passed * scale);
}

/* The same moment on both clocks. The kernel may take the core away between two looks: those that are nearest count. */
static void look_at_clocks(uint64_t *ticks, int64_t *ns)
{
    enum { TRIES = 10, NEAR = 500 };
    int64_t best = WEFT_NEVER;
    for (int i = 0; i < TRIES && best > NEAR; i++) {
        int64_t before = w_now();
        uint64_t now = w_ticks();
        int64_t apart = w_now() - before;
        if (apart >= best)
            continue;
        best = apart;
        *ticks = now;
        *ns = before + apart / 2;
    }
}

/* The next stretch, up to now. */
static void stretch(struct w_trace_out *o)
{
    o->past_ticks = o->ticks;
    o->past_ns = o->ns;
    o->ticks = o->end_ticks;
    o->ns = o->end_ns;
    look_at_clocks(&o->end_ticks, &o->end_ns);
}

/* ---- slices ------------------------------------------------------------------------------------------------------- */

static void slice(struct w_trace_out *o, uint32_t pid, uint64_t tid, int64_t from, int64_t to)
{
    begin_line(&o->to, "X", pid, tid, from);
    text(&o->to, ",\"dur\":");
    micros(&o->to, to > from ? to - from : 0);
}

static void end_run(struct w_trace_out *o, struct w_view *v, int64_t ns, const char *how, const char *why)
{
    if (v->run_since < 0)
        return;
    slice(o, PROCESSORS, p_track(o, v->p), v->run_since, ns);
    name_goroutine(o, v->name, v->fn, v->g);
    number_arg(&o->to, ",\"args\":{\"g\":", v->g);
    number_arg(&o->to, ",\"m\":", v->m);
    text(&o->to, ",\"end\":\"");
    text(&o->to, how);
    if (why[0] != '\0') {
        text(&o->to, "\",\"why\":\"");
        text(&o->to, why);
    }
    text(&o->to, "\"}");
    end_line(&o->to);
    v->run_since = -1;
}

static void end_hold(struct w_trace_out *o, struct w_view *v, int64_t ns)
{
    if (v->held_since < 0)
        return;
    slice(o, THREADS, m_track(v), v->held_since, ns);
    number_arg(&o->to, ",\"name\":\"P ", v->p);
    text(&o->to, "\"");
    end_line(&o->to);
    v->held_since = -1;
}

static void end_block(struct w_trace_out *o, struct w_view *v, int64_t ns, const char *name)
{
    if (v->block_since < 0)
        return;
    slice(o, THREADS, m_track(v), v->block_since, ns);
    named(&o->to, name);
    text(&o->to, ",\"cat\":\"block\"");
    number_arg(&o->to, ",\"args\":{\"g\":", v->block_g);
    text(&o->to, "}");
    end_line(&o->to);
    v->block_since = -1;
}

static void hold(struct w_trace_out *o, struct w_view *v, uint32_t p, int64_t ns)
{
    if (v->held_since >= 0 && v->p == p)
        return;
    end_hold(o, v, ns);
    v->p = p;
    v->held_since = p != W_NO_P ? ns : -1;
}

static void instant(struct w_trace_out *o, uint32_t pid, uint64_t tid, int64_t ns, const char *name)
{
    begin_line(&o->to, "i", pid, tid, ns);
    named(&o->to, name);
    text(&o->to, ",\"s\":\"t\"");
}

/* ---- arrows ------------------------------------------------------------------------------------------------------- */

static struct wake *wake_of(struct w_trace_out *o, uint64_t g)
{
    return &o->wake[g % WAKES];
}

/* Only what happens in a slice can be where an arrow begins. */
static void remember(struct w_trace_out *o, const struct w_view *v, const struct w_step *e, int64_t ns)
{
    bool inside = v->run_since >= 0 && e->arg == v->g;
    *wake_of(o, e->g) = (struct wake){.g = e->g, .by = inside ? e->arg : 0, .at = ns, .p = v->p};
    wake_of(o, e->g)->spawned = e->kind == W_EVENT_SPAWN;
}

static void arrow_end(struct w_trace_out *o, const char *ph, const struct wake *w, uint32_t p, int64_t ns)
{
    begin_line(&o->to, ph, PROCESSORS, p_track(o, p), ns);
    named(&o->to, w->spawned ? "start" : "wake");
    text(&o->to, ",\"cat\":\"wake\"");
    number_arg(&o->to, ",\"id\":", o->flows);
}

static void arrow(struct w_trace_out *o, const struct w_view *v)
{
    struct wake *w = wake_of(o, v->g);
    if (w->g != v->g)
        return;
    if (w->by != 0) {
        o->flows++;
        arrow_end(o, "s", w, w->p, w->at);
        number_arg(&o->to, ",\"args\":{\"by\":", w->by);
        number_arg(&o->to, ",\"g\":", w->g);
        text(&o->to, "}");
        end_line(&o->to);
        arrow_end(o, "f", w, v->p, v->run_since);
        text(&o->to, ",\"bp\":\"e\"");
        end_line(&o->to);
    }
    w->g = 0;
}

/* ---- what each event means ---------------------------------------------------------------------------------------- */

static void forget_all(struct w_trace_out *o, struct w_view *v, int64_t ns, const char *how)
{
    end_run(o, v, ns, how, "");
    end_hold(o, v, ns);
    end_block(o, v, ns, "blocking call");
    v->p = W_NO_P;
}

static struct w_view *view_of_m(const struct w_trace_out *o, uint64_t m)
{
    for (struct w_tape *t = w_trace_tapes(); t != NULL; t = t->next) {
        struct w_view *v = &t->view[o->reader];
        if (v->m == m)
            return v;
    }
    return NULL;
}

/* The M has got a larger tape: what it was doing goes on. */
static void take_over(struct w_view *v, struct w_view *before)
{
    struct w_view state = *before;
    state.at = v->at;
    state.more = v->more;
    state.next = v->next;
    state.now = v->now;
    w_view_forget(before);
    *v = state;
}

static void new_m(struct w_trace_out *o, struct w_view *v, uint32_t m, int64_t ns)
{
    struct w_view *before = m != W_NO_M ? view_of_m(o, m) : NULL;
    forget_all(o, v, ns, "stop");
    if (before != NULL && !v->cut) {
        take_over(v, before);
        return;
    }
    if (before != NULL) {
        forget_all(o, before, ns_of(o, before->now), "lost");
        w_view_forget(before);
    }
    v->m = m;
    if (m != W_NO_M)
        metadata(o, "thread_name", THREADS, m_track(v), "M ", m);
    else
        metadata(o, "thread_name", THREADS, m_track(v), "others", UINT64_MAX);
}

static void lost(struct w_trace_out *o, struct w_view *v, int64_t ns, uint64_t n)
{
    o->lost += n;
    forget_all(o, v, v->now != 0 ? ns_of(o, v->now) : ns, "lost");
    v->first = false;
    counter(o, ns, "lost events", UINT64_MAX, "in all", o->lost);
}

/* A nanosecond after the one before, so that the arrow to it leads to it alone. */
static void run(struct w_trace_out *o, struct w_view *v, const struct w_step *e, int64_t ns)
{
    o->runs += e->kind == W_EVENT_RUN;
    if (v->run_since >= 0 && v->g == e->g)
        return;
    end_run(o, v, ns, "stop", "");
    hold(o, v, e->p, ns);
    if (e->kind == W_EVENT_RUN || v->g != e->g)
        v->name[0] = '\0';
    v->g = e->g;
    v->fn = (const void *)(uintptr_t)e->arg;
    v->run_since = ns + 1;
    arrow(o, v);
}

/* It ran when the trace began, if this is the first that is known of its M. */
static void leave(struct w_trace_out *o, struct w_view *v, const struct w_step *e, int64_t ns)
{
    static const char *const ends[] = {
        [W_IDLE] = "stop",     [W_RUNNABLE] = "yield",      [W_RUNNING] = "stop", [W_WAITING] = "wait",
        [W_BLOCKED] = "block", [W_PREEMPTED] = "preempted", [W_DEAD] = "end"};
    uint32_t state = e->detail & 0xff, reason = e->detail >> 8;
    if (v->first && v->run_since < 0 && e->p != W_NO_P) {
        hold(o, v, e->p, 0);
        v->g = e->g;
        v->fn = (const void *)(uintptr_t)e->arg;
        v->name[0] = '\0';
        v->run_since = 0;
    }
    if (v->g != e->g)
        return;
    if (state == W_PREEMPTED && v->run_since >= 0) {
        instant(o, PROCESSORS, p_track(o, v->p), ns, "preempted");
        number_arg(&o->to, ",\"args\":{\"g\":", e->g);
        text(&o->to, "}");
        end_line(&o->to);
    }
    end_run(o, v, ns, ends[state], w_reason_name(reason));
}

static void made_ready(struct w_trace_out *o, struct w_view *v, const struct w_step *e, int64_t ns)
{
    if (ns < v->run_since)
        ns = v->run_since; /* which is a nanosecond late */
    remember(o, v, e, ns);
    if (e->kind != W_EVENT_SPAWN)
        return;
    bool on_p = v->p != W_NO_P;
    instant(o, on_p ? PROCESSORS : THREADS, on_p ? p_track(o, v->p) : m_track(v), ns, "spawn");
    number_arg(&o->to, ",\"args\":{\"g\":", e->g);
    number_arg(&o->to, ",\"by\":", e->arg);
    text(&o->to, "}");
    end_line(&o->to);
}

static void stolen(struct w_trace_out *o, const struct w_step *e, int64_t ns)
{
    instant(o, PROCESSORS, p_track(o, e->p), ns, "steal");
    number_arg(&o->to, ",\"args\":{\"g\":", e->g);
    number_arg(&o->to, ",\"from\":", e->detail);
    text(&o->to, "}");
    end_line(&o->to);
}

static void block(struct w_trace_out *o, struct w_view *v, const struct w_step *e, int64_t ns)
{
    end_run(o, v, ns, "block", "");
    end_hold(o, v, ns);
    v->block_since = ns;
    v->block_g = e->g;
}

static void unblock(struct w_trace_out *o, struct w_view *v, const struct w_step *e, int64_t ns)
{
    end_block(o, v, ns, "blocking call");
    if (e->p != W_NO_P)
        run(o, v, e, ns);
}

/* Its P was taken at the time that the event tells, which the monitor's own event may have told already. */
static void found(struct w_trace_out *o, struct w_view *v, const struct w_step *e, int64_t ns)
{
    int64_t taken = ns_of(o, e->arg);
    end_run(o, v, taken, "block", "");
    end_hold(o, v, taken);
    if (v->block_since < 0)
        v->block_since = taken;
    v->block_g = e->g;
    end_block(o, v, ns, "blocking call, found");
}

static void taken(struct w_trace_out *o, const struct w_step *e, int64_t ns)
{
    struct w_view *v = view_of_m(o, e->g);
    instant(o, THREADS, FIRST_THREAD + e->g, ns, e->kind == W_EVENT_TAKEN ? "P taken, found" : "P taken");
    number_arg(&o->to, ",\"args\":{\"p\":", e->p);
    text(&o->to, "}");
    end_line(&o->to);
    if (e->kind == W_EVENT_RETAKEN || v == NULL || v->run_since < 0 || v->run_since > ns || v->g != e->arg)
        return;
    end_run(o, v, ns, "block", "");
    end_hold(o, v, ns);
    v->block_since = ns;
    v->block_g = e->arg;
}

static void more_name(struct w_view *v, const struct w_step *e)
{
    const uint64_t text[] = {e->text, e->g, e->arg};
    size_t used = strlen(v->name), n = strnlen((const char *)text, sizeof text);
    if (used + n >= sizeof v->name)
        return;
    memcpy(v->name + used, text, n);
    v->name[used + n] = '\0';
}

/* What tells nothing of what the M did before. */
static bool act_beside(struct w_trace_out *o, struct w_view *v, const struct w_step *e, int64_t ns)
{
    switch (e->kind) {
    case W_EVENT_NAME:
        more_name(v, e);
        return true;
    case W_EVENT_SPAWN:
    case W_EVENT_READY:
        made_ready(o, v, e, ns);
        return true;
    case W_EVENT_STEAL:
        stolen(o, e, ns);
        return true;
    case W_EVENT_TAKEN:
    case W_EVENT_RETAKEN:
        taken(o, e, ns);
        return true;
    default:
        return false;
    }
}

static void act(struct w_trace_out *o, struct w_view *v, const struct w_step *e, int64_t ns)
{
    if (e->m != v->m)
        new_m(o, v, e->m, ns);
    if (act_beside(o, v, e, ns))
        return;
    if (e->kind == W_EVENT_RUN)
        run(o, v, e, ns);
    else if (e->kind == W_EVENT_LEAVE)
        leave(o, v, e, ns);
    else if (e->kind == W_EVENT_BLOCK)
        block(o, v, e, ns);
    else if (e->kind == W_EVENT_UNBLOCK)
        unblock(o, v, e, ns);
    else if (e->kind == W_EVENT_FOUND)
        found(o, v, e, ns);
    else
        hold(o, v, e->kind == W_EVENT_HOLD ? e->p : W_NO_P, ns);
    v->first = false;
}

/* ---- reading tapes ------------------------------------------------------------------------------------------------ */

static struct w_step copy_of(const struct w_tape *t, uint64_t at, uint64_t now)
{
    const struct w_event *e = &t->event[at & t->mask];
    uint64_t what = ld_relaxed(&e->what), time = ld_relaxed(&e->time);
    struct w_step s = {.time = time, .g = ld_relaxed(&e->g), .arg = ld_relaxed(&e->arg), .kind = what & 0xff};
    s.p = what >> 8 & 0xffff;
    s.detail = what >> 24 & 0xffff;
    s.m = (uint32_t)(what >> 40);
    if (s.kind == W_EVENT_NAME) {
        s.text = time;
        s.time = now;
    }
    return s;
}

/* The next one on the tape, if there is one (T1). One that is overwritten, and a good many that soon will be, are lost. */
static void peek(struct w_trace_out *o, struct w_tape *t, struct w_view *v)
{
    for (;;) {
        uint64_t head = ld_acquire(&t->head), room = t->mask + 1; /* [TR-2] */
        v->more = v->at < head;
        if (!v->more)
            return;
        v->next = copy_of(t, v->at, v->now);
        w_fence_acquire(); /* [TR-1] */
        head = ld_relaxed(&t->head);
        if (likely(head - v->at < room))
            return;
        uint64_t skipped = head - room + room / 16 - v->at;
        if (o->reader == W_READER_TRACE || v->now != 0) /* the recorder has lost nothing that it began with */
            lost(o, v, v->now != 0 ? ns_of(o, v->now) : 0, skipped);
        v->first = false;
        v->cut = true;
        v->at += skipped;
    }
}

/* The tape whose next event is the oldest, up to `cut`; *then: when another one has its turn. */
static struct w_tape *oldest(const struct w_trace_out *o, uint64_t cut, uint64_t *then)
{
    struct w_tape *first = NULL;
    uint64_t at = cut;
    *then = cut;
    for (struct w_tape *t = w_trace_tapes(); t != NULL; t = t->next) {
        const struct w_view *v = &t->view[o->reader];
        if (!v->more || v->next.time > *then)
            continue;
        if (v->next.time > at || (first != NULL && v->next.time == at)) {
            *then = v->next.time;
            continue;
        }
        *then = at;
        at = v->next.time;
        first = t;
    }
    return first;
}

static void step(struct w_trace_out *o, struct w_tape *t, struct w_view *v)
{
    struct w_step e = v->next;
    if (e.time >= o->start) /* T4 */
        act(o, v, &e, ns_of(o, e.time));
    v->now = e.time;
    v->at++;
    peek(o, t, v);
}

static void read_tapes(struct w_trace_out *o, uint64_t cut)
{
    uint64_t then;
    for (struct w_tape *t = w_trace_tapes(); t != NULL; t = t->next)
        if (!t->view[o->reader].more)
            peek(o, t, &t->view[o->reader]);
    for (struct w_tape *t; (t = oldest(o, cut, &then)) != NULL;) {
        struct w_view *v = &t->view[o->reader];
        while (v->more && v->next.time <= then)
            step(o, t, v);
    }
}

/* ---- counters ----------------------------------------------------------------------------------------------------- */

/* Of a trace only: a program that crashes has other things to say. */
static void count_all(struct w_trace_out *o, int64_t ns)
{
    uint64_t spawned = ld_relaxed(&w_sched.foreign_spawned), ended = 0;
    uint32_t n = ld_acquire(&w_sched.p_count); /* [PC-1] */
    for (uint32_t i = 0; i < n; i++) {
        struct w_p *p = w_sched.ps[i];
        ended += ld_relaxed(&p->count.ended);
        spawned += ld_relaxed(&p->count.spawned);
        counter(o, ns, "queue of P ", i, "ready", w_p_work(p));
    }
    counter(o, ns, "global queue", UINT64_MAX, "ready", ld_relaxed(&w_sched.globq.len));
    counter(o, ns, "goroutines", UINT64_MAX, "alive", spawned > ended ? spawned - ended : 0);
    w_lock(&w_sched.lock, W_RANK_SCHED);
    uint32_t threads = w_sched.m_count;
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    counter(o, ns, "threads", UINT64_MAX, "alive", threads);
}

static uint64_t all_switches(void)
{
    uint64_t sum = 0;
    uint32_t n = ld_acquire(&w_sched.p_count); /* [PC-1] */
    for (uint32_t i = 0; i < n; i++)
        sum += ld_relaxed(&w_sched.ps[i]->count.switches);
    return sum;
}

/* ---- the whole ---------------------------------------------------------------------------------------------------- */

static void process_name(struct w_trace_out *o, uint32_t pid, const char *name)
{
    metadata(o, "process_name", pid, 0, name, UINT64_MAX);
    begin_line(&o->to, "M", pid, 0, 0);
    named(&o->to, "process_sort_index");
    number_arg(&o->to, ",\"args\":{\"sort_index\":", pid);
    text(&o->to, "}");
    end_line(&o->to);
}

void w_trace_into(struct w_trace_out *o, int fd, bool (*hurried)(void), bool dying)
{
    o->dying = dying;
    o->to.fd = fd;
    o->to.hurried = hurried;
    o->to.used = 0;
    o->to.error = 0;
    o->lost = 0;
    o->end_ticks = o->start;
    o->end_ns = o->start_ns;
    memset(o->known_ps, 0, sizeof o->known_ps);
    memset(o->wake, 0, sizeof o->wake);
    text(&o->to, "[\n");
    process_name(o, PROCESSORS, "processors");
    process_name(o, THREADS, "threads");
    flush(&o->to);
}

struct w_trace_out *w_trace_open(enum w_reader reader)
{
    struct w_trace_out *o = w_map(sizeof *o);
    if (o == NULL)
        return NULL;
    o->reader = reader;
    o->switches = all_switches();
    look_at_clocks(&o->start, &o->start_ns);
    o->past_ticks = o->ticks = o->end_ticks = o->start;
    o->past_ns = o->ns = o->end_ns = o->start_ns;
    return o;
}

/* Each switch is two events, the end of a run and the begin of the next: those of the runs that are not here are lost. */
static void count_lost(struct w_trace_out *o)
{
    uint64_t switches = all_switches() - o->switches;
    if (switches > o->runs && 2 * (switches - o->runs) > o->lost)
        o->lost = 2 * (switches - o->runs);
}

/* What was going on then has ended at some time, nobody knows when. */
void w_trace_gap(struct w_trace_out *o)
{
    for (struct w_tape *t = w_trace_tapes(); t != NULL; t = t->next) {
        struct w_view *v = &t->view[o->reader];
        forget_all(o, v, v->now != 0 ? ns_of(o, v->now) : 0, "lost");
        v->first = false;
    }
    count_lost(o);
    counter(o, o->end_ns - o->start_ns, "lost events", UINT64_MAX, "in all", o->lost);
    o->start = w_ticks();
}

static void finish(struct w_trace_out *o)
{
    int64_t now = o->end_ns - o->start_ns;
    for (struct w_tape *t = w_trace_tapes(); t != NULL; t = t->next)
        forget_all(o, &t->view[o->reader], now, "stop");
    if (o->reader == W_READER_TRACE)
        count_lost(o);
    if (o->lost > 0)
        counter(o, now, "lost events", UINT64_MAX, "in all", o->lost);
    begin_line(&o->to, "i", PROCESSORS, 1, now);
    named(&o->to, "end of the trace");
    number_arg(&o->to, ",\"s\":\"g\",\"args\":{\"lost\":", o->lost);
    text(&o->to, "}}\n]\n");
}

void w_trace_drain(struct w_trace_out *o, bool last)
{
    stretch(o);
    read_tapes(o, o->end_ticks);
    if (o->reader == W_READER_TRACE)
        count_all(o, o->end_ns - o->start_ns);
    if (last)
        finish(o);
    flush(&o->to);
}

int w_trace_error(const struct w_trace_out *o)
{
    return o->to.error;
}

void w_trace_close(struct w_trace_out *o)
{
    munmap(o, sizeof *o);
}
