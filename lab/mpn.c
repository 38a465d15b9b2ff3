/* SPDX-License-Identifier: MIT */
/*
 * M:P:N. Weft itself, behind the lab's interface.
 *
 * What a thread needs to run goroutines, its queue above all, belongs to one of P processors. A thread that blocks gives its
 * processor to another thread; so there are never more queues than processors, however many threads are in the kernel, and
 * a search is over after P of them. src/sched.c has the rest.
 */
#include "lab.h"
#include "weft_internal.h"

const char lab_name[] = "mpn";

struct start {
    lab_fn *fn;
    void *arg;
};

/* Whoever is still on the way out may go on. */
static void main_g(void *arg)
{
    struct start *start = arg;
    start->fn(start->arg);
    weft_exit();
}

int lab_run(int threads, lab_fn *fn, void *arg)
{
    struct start start = {fn, arg};
    return weft_run_with(&(weft_config){.procs = threads}, main_g, &start);
}

int lab_go(lab_fn *fn, void *arg)
{
    return weft_go(fn, arg);
}

void lab_yield(void)
{
    weft_yield();
}

void lab_sem_init(lab_sem *sem, uint32_t permits)
{
    *sem = (lab_sem){0};
    if (permits > 0)
        weft_sem_release(&sem->weft, permits);
}

void lab_acquire(lab_sem *sem)
{
    weft_sem_acquire(&sem->weft, 1);
}

void lab_release(lab_sem *sem)
{
    weft_sem_release(&sem->weft, 1);
}

void lab_block(lab_fn *call, void *arg)
{
    weft_block_enter();
    call(arg);
    weft_block_leave();
}

void lab_search(void)
{
    struct w_m *m = w_enter();
    struct w_g *g = w_steal(m->p);
    if (g != NULL)
        w_after_yield(m, g, NULL); /* it takes its turn here */
    w_leave();
}

struct lab_counts lab_counts(void)
{
    return (struct lab_counts){0};
}
