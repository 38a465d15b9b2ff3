/* SPDX-License-Identifier: MIT */
/*
 * What the models with goroutines of their own share: goroutines (the library's struct w_g, with its stacks and its switch) and the
 * OS threads that run them. A model adds who runs what: it defines lab_ready and lab_next, and the loop of its threads.
 *
 * A goroutine that leaves its thread switches straight to the next one if lab_next has one at hand, and otherwise to the loop of
 * the thread. What must happen to it once it is off its stack, such as putting it where others may take it, goes into an
 * `after` function, which whoever runs next on that thread calls first.
 */
#ifndef LAB_FIBERS_H
#define LAB_FIBERS_H

#include "lab.h"
#include "weft_internal.h"
#include <pthread.h>

struct lab_m;
typedef void lab_after(struct lab_m *m, struct w_g *left, void *arg);

/* An OS thread that runs goroutines. All: the thread itself, unless said otherwise. */
struct lab_m {
    void *sp;         /* of its loop, while a goroutine runs */
    struct w_g *g;    /* runs here; NULL: the loop */
    struct w_g *left; /* was left last, and is still to be seen to */
    lab_after *after;
    void *after_arg;
    struct w_p *cache;      /* free goroutines and stacks; of a P, only these fields are used */
    struct lab_m *link;     /* in the list of those that rest; the crew's lock */
    bool out;               /* it has no place among those who run (crew.h) */
    _Atomic uint32_t awake; /* futex; atomic: 0 while it rests, whoever wakes it sets it */
    pthread_t thread;       /* constant */
    W_SANITIZER_FIELDS
};

/* The model: g can run. By any goroutine. */
void lab_ready(struct w_g *g);

/* The model: what m runs next, if that is quickly told; or NULL. */
struct w_g *lab_next(struct lab_m *m);

/* This thread's. Dead after any call that may switch. */
struct lab_m *lab_m(void);

int lab_fibers_begin(void);
void lab_fibers_end(void);

int lab_m_init(struct lab_m *m);   /* by anybody */
void lab_m_enter(struct lab_m *m); /* by its thread, before it runs anything */
void lab_m_done(struct lab_m *m);

void lab_m_rest(
    struct lab_m *m); /* sleeps until lab_m_wake; `awake` was cleared before others could see m as resting */
void lab_m_wake(struct lab_m *m);

/* From the loop: runs g, and whoever follows it, until somebody leaves for the loop. */
void lab_resume(struct lab_m *m, struct w_g *g);

/* From a goroutine: leaves it for next, or for the loop if that is NULL. Returns when it is resumed, perhaps on another thread. */
void lab_leave(struct lab_m *m, struct w_g *next, lab_after *after, void *arg);

/* A yield: the next one runs, if there is one, and the caller is ready again. */
void lab_take_turns(void);

struct w_g *lab_new(struct lab_m *m, lab_fn *fn, void *arg); /* NULL: no memory */

/* ---- queues, under the lock of whoever has them ----------------------------------------------------------------- */

static inline void lab_put(struct lab_queue *q, struct w_g *g)
{
    g->link = NULL;
    if (q->head == NULL)
        q->head = g;
    else
        q->tail->link = g;
    q->tail = g;
}

static inline struct w_g *lab_take(struct lab_queue *q)
{
    struct w_g *g = q->head;
    if (g != NULL)
        q->head = g->link;
    return g;
}

#endif
