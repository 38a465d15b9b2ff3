/* SPDX-License-Identifier: MIT */
/*
 * Execution traces: the tapes that the scheduler's hooks write (trace.h), and the thread that makes a file of them while the
 * program runs (trace_json.c has the format).
 *
 *      OFF ──start──> STARTING ──> ON ──stop, end of the run──> STOPPING ──the writer has written all──> DONE ──> OFF
 *
 * The writer wakes up every PERIOD, reads what is on the tapes, and sleeps. To turn an event into text takes several times as long
 * as the event itself took, so a program that does nothing but switch would lose much of its processor to it: the writer
 * takes no more than one part of SHARE of a core, whatever comes. When a tape is full meanwhile all stop writing, so that the
 * program pays nothing more, until the writer has been there; how much was lost is counted, and said in the trace. A tape of TAPE events lasts for 20 ms at 800,000 events a second.
 *
 * Times are the processor's counter where that runs at a constant rate, which takes about half the time of a look at the
 * clock; the writer looks at both, and converts.
 */
#include "scope.h"
#include "sys_io.h"
#include "weft_internal.h"
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

enum { TAPE = 16 << 10, SHARE = 25, STACK = 256 << 10 };
static const int64_t PERIOD = 10 * WEFT_MSEC;
static const int64_t LONGEST = WEFT_SEC;

enum status { OFF, STARTING, ON, STOPPING, DONE };

_Alignas(W_CACHE_LINE) _Atomic uint32_t w_tracing;

static struct {
    _Alignas(W_CACHE_LINE) _Atomic(struct w_tape *) tapes; /* all, the newest first; atomic: handlers read it */
    struct w_tape *spares;                                 /* w_sched.lock */
    size_t room;                                           /* events for a new tape; w_sched.lock */
    struct w_tape *outside;                                /* of threads that are no Ms; spin */
    struct w_spin spin;
    bool counter; /* times are the processor's; constant while a run is up */

    _Atomic uint32_t status; /* futex; enum status: who moves it on owns what is below */
    struct w_trace_out *out;
    int fd;
    _Atomic int error; /* of the trace before */
    pthread_t writer;
} trace;

/* ---- times -------------------------------------------------------------------------------------------------------- */

/* Does the counter run at a constant rate, in all states of the processor? */
static bool counter_is_steady(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d = 0;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) && d & 1 << 8;
#else
    return true;
#endif
}

uint64_t w_ticks(void)
{
    if (unlikely(!trace.counter))
        return (uint64_t)w_now();
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#endif
}

/* ---- writing events ----------------------------------------------------------------------------------------------- */

/* m: NULL for a thread that is none. */
static uint64_t describe(enum w_event_kind kind, const struct w_m *m, const struct w_p *p, uint64_t detail)
{
    uint64_t of_p = p != NULL ? p->id : W_NO_P, of_m = m != NULL ? m->id % W_NO_M : W_NO_M;
    return kind | of_p << 8 | detail << 24 | of_m << 40;
}

static void put_one(struct w_tape *t, uint64_t time, uint64_t g, uint64_t what, uint64_t arg)
{
    uint64_t at = ld_relaxed(&t->head);
    struct w_event *e = &t->event[at & t->mask];
    w_fence_release(); /* [TR-1] head is as it was before the event is overwritten that lay here */
    st_relaxed(&e->time, time);
    st_relaxed(&e->g, g);
    st_relaxed(&e->what, what);
    st_relaxed(&e->arg, arg);
    st_release(&t->head, at + 1); /* [TR-2] */
}

/* false: there is no room, and from now on nobody writes until the writer has made some (T2). */
static bool put(struct w_tape *t, uint64_t time, uint64_t g, uint64_t what, uint64_t arg)
{
    if (unlikely(ld_relaxed(&t->head) >= ld_relaxed(&t->limit))) { /* relaxed: a new limit may be seen late */
        atomic_fetch_and_explicit(&w_tracing, ~(uint32_t)W_TRACE_FILE, memory_order_relaxed); /* relaxed: T4 */
        return false;
    }
    put_one(t, time, g, what, arg);
    return true;
}

/* Is its tape full? Then there is no need to look at the clock. */
static uint64_t time_of(const struct w_tape *t)
{
    return likely(ld_relaxed(&t->head) < ld_relaxed(&t->limit)) ? w_ticks() : 0;
}

static void put_for(struct w_m *m, enum w_event_kind kind, uint64_t g, uint32_t detail, uint64_t arg)
{
    struct w_tape *t = ld_acquire(&m->tape); /* [TR-3] NULL: there was no memory for one */
    if (t != NULL)
        put(t, time_of(t), g, describe(kind, m, m->p, detail), arg);
}

static void put_outside(uint64_t time, uint64_t g, uint64_t what, uint64_t arg)
{
    w_spin_lock(&trace.spin);
    if (trace.outside != NULL)
        put(trace.outside, time, g, what, arg);
    w_spin_unlock(&trace.spin);
}

/* ---- hooks -------------------------------------------------------------------------------------------------------- */

static __attribute__((noinline)) void made_runnable(enum w_event_kind kind, const struct w_g *g)
{
    struct w_m *m = w_m();
    if (m != NULL)
        put_for(m, kind, g->id, 0, m->g != NULL ? m->g->id : 0);
    else
        put_outside(w_ticks(), g->id, describe(kind, NULL, NULL, 0), 0);
}

void w_trace_spawn(const struct w_g *g)
{
    made_runnable(W_EVENT_SPAWN, g);
}

void w_trace_ready(const struct w_g *g)
{
    made_runnable(W_EVENT_READY, g);
}

/* In pieces of 24 bytes. */
static void put_name(struct w_tape *t, const struct w_m *m, const char *name)
{
    enum { PIECE = 24, PIECES = 2 };
    size_t length = strnlen(name, PIECE * PIECES);
    for (size_t at = 0; at < length; at += PIECE) {
        uint64_t text[PIECE / 8] = {0};
        memcpy(text, name + at, length - at < PIECE ? length - at : PIECE);
        put_one(t, text[0], text[1], describe(W_EVENT_NAME, m, m->p, 0), text[2]);
    }
}

static void put_run(struct w_tape *t, const struct w_m *m, const struct w_g *g, uint64_t time)
{
    uintptr_t fn = (uintptr_t)w_member_fn(g);
    if (put(t, time, g->id, describe(W_EVENT_RUN, m, m->p, 0), fn) && unlikely(g->name != NULL))
        put_name(t, m, g->name);
}

__attribute__((noinline)) void w_trace_run(struct w_m *m, const struct w_g *g)
{
    struct w_tape *t = ld_acquire(&m->tape); /* [TR-3] */
    if (t != NULL)
        put_run(t, m, g, time_of(t));
}

/* Without a tape it may be a thread that its run has left behind: its G is gone. */
__attribute__((noinline)) void w_trace_switch(struct w_m *m, const struct w_g *from, const struct w_g *to)
{
    struct w_tape *t = ld_acquire(&m->tape); /* [TR-3] */
    if (t == NULL)
        return;
    uint64_t time = time_of(t), state = ld_relaxed(&from->state);
    uint64_t reason = state == W_WAITING ? ld_relaxed(&from->reason) : 0;
    put(t, time, from->id, describe(W_EVENT_LEAVE, m, m->p, state | reason << 8), (uintptr_t)w_member_fn(from));
    if (to != NULL)
        put_run(t, m, to, time);
}

void w_trace_steal(const struct w_p *victim, const struct w_g *g)
{
    put_for(w_m(), W_EVENT_STEAL, g->id, victim->id, 0);
}

void w_trace_block(struct w_m *m)
{
    put_for(m, W_EVENT_BLOCK, m->g->id, 0, (uintptr_t)w_member_fn(m->g));
}

void w_trace_unblock(struct w_m *m)
{
    put_for(m, W_EVENT_UNBLOCK, m->g->id, 0, (uintptr_t)w_member_fn(m->g));
}

void w_trace_found(struct w_m *m)
{
    put_for(m, W_EVENT_FOUND, m->g->id, 0, m->taken_at);
}

void w_trace_taken_locked(struct w_m *m, const struct w_p *p)
{
    m->taken_at = w_ticks();
    put_outside(m->taken_at, m->id, describe(W_EVENT_TAKEN, NULL, p, 0), m->g->id);
}

void w_trace_retaken(const struct w_m *m, const struct w_p *p)
{
    put_outside(w_ticks(), m->id, describe(W_EVENT_RETAKEN, NULL, p, 0), 0);
}

void w_trace_hold(struct w_m *m)
{
    put_for(m, W_EVENT_HOLD, 0, 0, 0);
}

void w_trace_idle(struct w_m *m)
{
    put_for(m, W_EVENT_IDLE, 0, 0, 0);
}

/* ---- tapes -------------------------------------------------------------------------------------------------------- */

struct w_tape *w_trace_tapes(void)
{
    return ld_acquire(&trace.tapes); /* [TR-4] */
}

static size_t size_of(size_t events)
{
    return sizeof(struct w_tape) + events * sizeof(struct w_event);
}

static void set_limit(struct w_tape *t, uint32_t modes)
{
    enum { MORE = 4 }; /* a name of two pieces goes with an event */
    bool endless = modes & W_TRACE_FLIGHT;
    st_relaxed(&t->limit,
               endless ? UINT64_MAX : t->view[W_READER_TRACE].at + t->mask - MORE); /* relaxed: T2 is no law */
}

static struct w_tape *make_tape_locked(void)
{
    struct w_tape *t = w_map(size_of(trace.room));
    if (t == NULL)
        return NULL;
    t->mask = trace.room - 1;
    for (int i = 0; i < W_READERS; i++)
        w_view_reset(t, (enum w_reader)i, 0);
    set_limit(t, ld_relaxed(&w_tracing));
    t->next = ld_relaxed(&trace.tapes);
    st_release(&trace.tapes, t); /* [TR-4] */
    return t;
}

static struct w_tape *take_spare_locked(void)
{
    for (struct w_tape **at = &trace.spares; *at != NULL; at = &(*at)->spare) {
        struct w_tape *t = *at;
        if (t->mask + 1 < trace.room)
            continue;
        *at = t->spare;
        return t;
    }
    return NULL;
}

/* One that is too small is left alone: its M may be writing. */
void w_trace_attach_locked(struct w_m *m)
{
    struct w_tape *old = ld_relaxed(&m->tape);
    if (old != NULL && old->mask + 1 >= trace.room)
        return;
    struct w_tape *t = take_spare_locked();
    if (t == NULL)
        t = make_tape_locked();
    if (t != NULL)
        st_release(&m->tape, t); /* [TR-3] */
}

void w_trace_detach_locked(struct w_m *m)
{
    struct w_tape *t = ld_relaxed(&m->tape);
    if (t == NULL)
        return;
    st_relaxed(&m->tape, NULL);
    t->spare = trace.spares;
    trace.spares = t;
}

static int make_outside_locked(void)
{
    if (trace.outside != NULL)
        return 0;
    struct w_tape *t = make_tape_locked();
    w_spin_lock(&trace.spin);
    trace.outside = t;
    w_spin_unlock(&trace.spin);
    return t != NULL ? 0 : -ENOMEM;
}

static int want_locked(uint32_t mode, size_t events)
{
    uint32_t modes = ld_relaxed(&w_tracing) | mode;
    if (trace.room < events)
        trace.room = events;
    if (make_outside_locked() != 0)
        return -ENOMEM;
    for (struct w_m *m = w_sched.all_ms; m != NULL; m = m->all_next) {
        w_trace_attach_locked(m);
        if (ld_relaxed(&m->tape) == NULL)
            return -ENOMEM;
    }
    for (struct w_tape *t = ld_relaxed(&trace.tapes); t != NULL; t = t->next) {
        for (int i = 0; i < W_READERS; i++)
            if (mode == 1u << i)
                w_view_reset(t, (enum w_reader)i, ld_acquire(&t->head)); /* [TR-2] */
        set_limit(t, modes);
    }
    st_relaxed(&w_tracing, modes); /* relaxed: who sees it takes its tape with acquire */
    return 0;
}

int w_trace_want(uint32_t mode, size_t events)
{
    w_lock(&w_sched.lock, W_RANK_SCHED);
    int r = want_locked(mode, events);
    w_unlock(&w_sched.lock, W_RANK_SCHED);
    return r;
}

void w_trace_unwant(uint32_t mode)
{
    w_lock(&w_sched.lock, W_RANK_SCHED);
    st_relaxed(&w_tracing, ld_relaxed(&w_tracing) & ~mode); /* relaxed: T4 */
    w_unlock(&w_sched.lock, W_RANK_SCHED);
}

static void free_tapes(void)
{
    struct w_tape *t = ld_relaxed(&trace.tapes), *next;
    st_relaxed(&trace.tapes, NULL);
    trace.spares = trace.outside = NULL;
    trace.room = 0;
    for (; t != NULL; t = next) {
        next = t->next;
        munmap(t, size_of(t->mask + 1));
    }
}

/* ---- the writer --------------------------------------------------------------------------------------------------- */

static int64_t own_cpu(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (int64_t)ts.tv_sec * WEFT_SEC + ts.tv_nsec;
}

static void make_room(void)
{
    uint32_t modes = ld_relaxed(&w_tracing);
    for (struct w_tape *t = w_trace_tapes(); t != NULL; t = t->next)
        set_limit(t, modes);
}

/* A tape was full (T2): a gap, and on again, unless the trace is being stopped, which clears the flag after it has said so. */
static void resume(void)
{
    w_trace_gap(trace.out);
    w_lock(&w_sched.lock, W_RANK_SCHED);
    if (ld_relaxed(&trace.status) == ON)
        atomic_fetch_or_explicit(&w_tracing, W_TRACE_FILE, memory_order_relaxed); /* relaxed: as in want_locked */
    w_unlock(&w_sched.lock, W_RANK_SCHED);
}

/* All that is there: and the tapes have room again. */
static void drain(void)
{
    bool paused = !(ld_relaxed(&w_tracing) & W_TRACE_FILE);
    w_trace_drain(trace.out, false);
    make_room();
    if (paused)
        resume();
}

static void move_on(enum status to)
{
    st_release(&trace.status, to); /* [TR-5] */
    w_futex_wake(&trace.status, INT_MAX);
}

static void *writer(void *arg)
{
    (void)arg;
    prctl(PR_SET_NAME, "weft-trace");
    while (ld_acquire(&trace.status) == ON) { /* [TR-5] */
        int64_t before = own_cpu();
        drain();
        int64_t nap = (own_cpu() - before) * (SHARE - 1);
        w_futex_wait(&trace.status, ON, nap < PERIOD ? PERIOD : nap < LONGEST ? nap : LONGEST);
    }
    w_trace_drain(trace.out, true);
    int r = w_trace_error(trace.out);
    w_trace_close(trace.out);
    long closed = w_sys_close(trace.fd);
    st_relaxed(&trace.error, r != 0 ? r : (int)closed);
    move_on(DONE);
    return NULL;
}

/* Signals of the program are for others. */
static int make_writer(void)
{
    pthread_attr_t attr;
    sigset_t all, before;
    int r = pthread_attr_init(&attr);
    if (r != 0)
        return -r;
    pthread_attr_setstacksize(&attr, STACK);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    r = pthread_create(&trace.writer, &attr, writer, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return -r;
}

/* ---- starting and stopping ---------------------------------------------------------------------------------------- */

/* The one before may have a thread to be joined, which has nothing left to do. */
static bool claim(void)
{
    uint32_t off = OFF, done = DONE;
    if (cas_acquire(&trace.status, &off, STARTING)) /* [TR-5] */
        return true;
    if (!cas_acquire(&trace.status, &done, STARTING)) /* [TR-5] */
        return false;
    pthread_join(trace.writer, NULL);
    return true;
}

/* Somebody waits for the file. */
static bool hurried(void)
{
    return ld_relaxed(&trace.status) != ON; /* relaxed: it may be seen late */
}

static int start(int fd)
{
    int r = -ENOMEM;
    if (!claim())
        return -EBUSY;
    W_RESULT(ftruncate(fd, 0)); /* a pipe has no length */
    trace.fd = fd;
    trace.out = w_trace_open(W_READER_TRACE);
    if (trace.out == NULL)
        goto off;
    w_trace_into(trace.out, fd, hurried, false);
    if ((r = w_trace_error(trace.out)) != 0 || (r = w_trace_want(W_TRACE_FILE, TAPE)) != 0)
        goto close;
    st_release(&trace.status, ON); /* [TR-5] */
    if ((r = make_writer()) == 0)
        return 0;
    w_trace_unwant(W_TRACE_FILE);
close:
    w_trace_close(trace.out);
off:
    move_on(OFF);
    return r;
}

static int open_and_start(const char *path)
{
    long fd =
        w_sys_open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666); /* a pipe that nobody reads: -ENXIO */
    if (fd < 0)
        return (int)fd;
    int r = start((int)fd);
    if (r != 0)
        w_sys_close((int)fd);
    return r;
}

/* Starts the end of it; false: none is on. */
static bool end(void)
{
    uint32_t on = ON;
    if (!cas_acquire(&trace.status, &on, STOPPING)) /* [TR-5] */
        return false;
    w_trace_unwant(W_TRACE_FILE);
    w_futex_wake(&trace.status, INT_MAX);
    return true;
}

static void await_end(void)
{
    while (ld_acquire(&trace.status) == STOPPING) /* [TR-5] */
        w_futex_wait(&trace.status, STOPPING, -1);
}

int weft_trace_start(const char *path)
{
    if (path == NULL)
        return -EINVAL;
    struct w_m *m;
    int r = w_enter_call(&m);
    if (r != 0)
        return r;
    uint32_t status = ld_relaxed(&trace.status); /* relaxed: a file that is in use is not opened in vain */
    r = status == OFF || status == DONE ? open_and_start(path) : -EBUSY;
    w_exit_call(m);
    return r;
}

int weft_trace_stop(void)
{
    struct w_m *m;
    int r = w_enter_call(&m);
    if (r != 0)
        return r;
    bool ended = end();
    w_exit_call(m);
    if (!ended)
        return -ESRCH;
    weft_block_enter();
    await_end();
    weft_block_leave();
    return ld_relaxed(&trace.error);
}

/* ---- begin and end of a run --------------------------------------------------------------------------------------- */

int w_trace_begin(void)
{
    const char *path = getenv("WEFT_TRACE");
    trace.counter = counter_is_steady();
    if (path == NULL || *path == '\0')
        return w_flight_begin();
    int r = open_and_start(path);
    if (r != 0)
        w_say("WEFT_TRACE=%s: %s", path, strerror(-r));
    return r != 0 ? r : w_flight_begin();
}

void w_trace_end(void)
{
    bool ended = end();
    await_end();
    if (ld_relaxed(&trace.status) == DONE) {
        pthread_join(trace.writer, NULL);
        if (ended && ld_relaxed(&trace.error) != 0)
            w_say("the trace is not complete: %s", strerror(-ld_relaxed(&trace.error)));
        st_relaxed(&trace.status, OFF);
    }
    w_flight_end();
    free_tapes();
}
