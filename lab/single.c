/* SPDX-License-Identifier: MIT */
/*
 * N:1. All goroutines on one OS thread: a queue that needs no lock, a switch that asks nobody.
 *
 * Nothing is cheaper. But two goroutines never run at the same time, however many cores there are, and a call that sleeps in the
 * kernel stops all of them: the thread that would run the others is the one that sleeps.
 */
#include "fibers.h"

const char lab_name[] = "single";

static struct {
    struct lab_m m;
    struct lab_queue ready;
    lab_fn *main;
    void *arg;
    bool done; /* main has returned */
} s;

void lab_ready(struct w_g *g)
{
    lab_put(&s.ready, g);
}

struct w_g *lab_next(struct lab_m *m)
{
    (void)m;
    return lab_take(&s.ready);
}

void lab_yield(void)
{
    lab_take_turns();
}

void lab_block(lab_fn *call, void *arg)
{
    call(arg); /* everybody waits */
}

static void main_g(void *arg)
{
    (void)arg;
    s.main(s.arg);
    s.done = true;
}

int lab_run(int threads, lab_fn *fn, void *arg)
{
    (void)threads;
    s.main = fn;
    s.arg = arg;
    s.done = false;
    int r = lab_fibers_begin();
    if (r == 0)
        r = lab_m_init(&s.m);
    if (r != 0)
        return r;
    lab_m_enter(&s.m);
    r = lab_go(main_g, NULL);
    for (struct w_g *g; r == 0 && (g = lab_next(&s.m)) != NULL;)
        lab_resume(&s.m, g);
    if (r == 0 && !s.done)
        r = -EDEADLK; /* the queue is empty, and there is nobody else who could fill it */
    lab_m_done(&s.m);
    lab_fibers_end();
    return r;
}

void lab_search(void)
{
}

struct lab_counts lab_counts(void)
{
    return (struct lab_counts){0};
}
