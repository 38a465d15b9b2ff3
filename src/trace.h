/* SPDX-License-Identifier: MIT */
/*
 * What happens to goroutines, as events on tapes. The hooks of the scheduler look at one flag that hardly ever changes; only
 * while somebody wants to know (a trace, trace.c; the flight recorder, flight.c) are these functions called. Each thread of the
 * runtime writes a tape of its own, a ring that nobody else writes, so no lock and no atomic step is needed; all threads that are
 * not ours share one, under a lock.
 *
 *      T1  the owner writes an event, then `head`; a reader takes what lies below head, then looks at head again: what may have
 *          been overwritten meanwhile it throws away
 *      T2  while only a trace is on, nothing from `limit` on is written: whoever comes to it clears the flag for all, and the
 *          writer sets it again. The flight recorder has no limit: what is old is overwritten
 *      T3  a tape belongs to a thread after the other: each event says whose it is. It is never freed while a run is up
 *      T4  who saw the flag too late writes an event more: its time tells that it does not belong to the next trace
 */
#ifndef W_TRACE_H
#define W_TRACE_H

#include "atomic.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct w_g;
struct w_m;
struct w_p;

enum w_event_kind {
    W_EVENT_SPAWN,   /* goroutine `arg` started g; 0: a thread that is not ours did */
    W_EVENT_READY,   /* goroutine `arg` woke g; 0: a time, a descriptor or another thread did */
    W_EVENT_RUN,     /* g runs, its function is `arg` */
    W_EVENT_NAME,    /* time, g and arg: a part of the name of the goroutine whose run was the event before */
    W_EVENT_LEAVE,   /* g no longer runs; detail: its state, and 256 times why it waits. arg: its function */
    W_EVENT_STEAL,   /* g came from P `detail` */
    W_EVENT_BLOCK,   /* g goes into a blocking region */
    W_EVENT_UNBLOCK, /* it comes back, with the P, or without one */
    W_EVENT_FOUND,   /* it comes back from a call that nobody announced: its P was taken at `arg` */
    W_EVENT_TAKEN,   /* the monitor took the P of M `g` for that */
    W_EVENT_RETAKEN, /* the monitor took the P of a blocking region of M `g` */
    W_EVENT_HOLD,    /* the M has the P now */
    W_EVENT_IDLE,    /* the M has none */
};

/* Relaxed each: head orders them (T1). */
struct w_event {
    _Atomic uint64_t time; /* ticks */
    _Atomic uint64_t g;
    _Atomic uint64_t what; /* from the lowest bit on: 8 for the kind, 16 for the P, 16 for the detail, 24 for the M */
    _Atomic uint64_t arg;
};
enum { W_NO_P = 0xffff, W_NO_M = 0xffffff };

/* A copy of one, taken apart. */
struct w_step {
    uint64_t time, g, arg;
    uint64_t text; /* of a name: the first bytes */
    enum w_event_kind kind;
    uint32_t p, detail, m;
};

/* What a reader knows of a tape, after all events below `at`. Reader. */
struct w_view {
    uint64_t at;
    bool more; /* `next` is the one at `at` */
    struct w_step next;
    uint64_t now;                               /* ticks of the one before */
    uint32_t m;                                 /* whose tape it is, or W_NO_M */
    int64_t held_since, run_since, block_since; /* ns; -1: not so */
    uint32_t p;                                 /* that it holds, or W_NO_P */
    uint64_t g, block_g;                        /* who runs, who is in a blocking region */
    const void *fn, *block_fn;                  /* their functions */
    char name[49];                              /* of g, if it has one */
    bool cut;                                   /* what was on the tape before is overwritten */
    bool first; /* nothing is known of what it did before; but whatever that is, it has done it since the beginning */
};

enum w_reader { W_READER_TRACE, W_READER_FLIGHT, W_READERS };

struct w_tape {
    _Atomic uint64_t head;         /* events ever written; owner */
    _Atomic uint64_t limit;        /* T2; atomic: the reader of a trace */
    uint64_t mask;                 /* room for so many and one; constant */
    struct w_tape *next;           /* of all; constant */
    struct w_tape *spare;          /* next of those that no M has; w_sched.lock */
    struct w_view view[W_READERS]; /* reader */
    struct w_event event[];
};

/* Nothing is known of whose it is. */
static inline void w_view_forget(struct w_view *v)
{
    v->held_since = v->run_since = v->block_since = -1;
    v->p = W_NO_P;
    v->m = W_NO_M;
    v->first = false;
}

static inline void w_view_reset(struct w_tape *t, enum w_reader reader, uint64_t at)
{
    struct w_view *v = &t->view[reader];
    *v = (struct w_view){.at = at};
    w_view_forget(v);
    v->first = true;
}

/* Is anybody interested? Alone in its line, which all have in their caches. (Hidden: else its address is looked up each time.) */
extern _Atomic uint32_t w_tracing __attribute__((visibility("hidden")));
#define w_traced() __builtin_expect(ld_relaxed(&w_tracing) != 0, 0)

/* ---- hooks: called if w_traced() ---------------------------------------------------------------------------------- */

void w_trace_spawn(const struct w_g *g);
void w_trace_ready(const struct w_g *g);
void w_trace_run(struct w_m *m, const struct w_g *g);
void w_trace_switch(struct w_m *m, const struct w_g *from, const struct w_g *to); /* to: NULL for the M's own stack */
void w_trace_steal(const struct w_p *victim, const struct w_g *g);
void w_trace_block(struct w_m *m);
void w_trace_unblock(struct w_m *m);
void w_trace_found(struct w_m *m);
void w_trace_taken_locked(struct w_m *m, const struct w_p *p);
void w_trace_retaken(const struct w_m *m, const struct w_p *p);
void w_trace_hold(struct w_m *m);
void w_trace_idle(struct w_m *m);

/* ---- trace.c ------------------------------------------------------------------------------------------------------ */

enum { W_TRACE_FILE = 1, W_TRACE_FLIGHT = 2 };

int w_trace_begin(void);                        /* of a run: what the environment asks for */
void w_trace_end(void);                         /* of a run; its threads are gone */
int w_trace_want(uint32_t mode, size_t events); /* w_tracing gets it; tapes have room for so many events */
void w_trace_unwant(uint32_t mode);             /* and loses it */
void w_trace_attach_locked(struct w_m *m);      /* a new M; under w_sched.lock */
void w_trace_detach_locked(struct w_m *m);      /* an M ends; likewise */
struct w_tape *w_trace_tapes(void);             /* the newest */
uint64_t w_ticks(void);

/* ---- trace_json.c: from tapes to a file; everything here may be done in a signal handler --------------------------- */

struct w_trace_out;
struct w_trace_out *w_trace_open(enum w_reader reader); /* times count from now on. NULL: no memory. Not in a handler */
void w_trace_into(struct w_trace_out *out, int fd, bool (*hurried)(void),
                  bool dying); /* begins a file. hurried: see w_deliver; dying: in a handler */
void w_trace_drain(struct w_trace_out *out,
                   bool last);                    /* what is on the tapes; last: all of it, and the end of the file */
void w_trace_gap(struct w_trace_out *out);        /* from the last event until now nothing was written */
int w_trace_error(const struct w_trace_out *out); /* the first one of writing, or 0 */
void w_trace_close(struct w_trace_out *out);      /* the descriptor is the caller's */

/* ---- flight.c ----------------------------------------------------------------------------------------------------- */

int w_flight_begin(void); /* of a run: what the environment asks for */
void w_flight_end(void);  /* of a run */
void w_flight_report(
    const char *cause); /* the program is stuck or dies: to the file that was agreed; from any context */

#endif
