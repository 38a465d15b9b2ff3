/* SPDX-License-Identifier: MIT */
/*
 * The lab: six ways to run goroutines behind one interface, and the same workloads for each of them.
 *
 *      threads.c      1:1      an OS thread for each goroutine
 *      single.c       N:1      all goroutines on one OS thread
 *      pool.c                  a pool of OS threads, each of which runs one goroutine to its end, then the next
 *      shared.c       M:N      goroutines move between OS threads; one queue under one lock
 *      distributed.c  M:N      a queue for each OS thread, and stealing among all of them
 *      mpn.c          M:P:N    a queue for each processor: Weft
 *
 * Each is a program of its own, build/lab/lab_NAME: one of these files with main.c and the workloads. Where goroutines have
 * stacks of their own (single, shared, distributed) they, the stacks and the switch are the library's (fibers.c): the
 * models differ in who runs what, and in nothing else. What they do not have: timers, descriptors, preemption.
 *
 * Whatever a workload started must be past its last call of these when its main function returns.
 */
#ifndef LAB_H
#define LAB_H

#include "lock.h"
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>
#include <weft.h>

typedef void lab_fn(void *arg);

/* ---- what a model is -------------------------------------------------------------------------------------------- */

struct lab_queue {
    struct w_g *head, *tail;
};

/* A semaphore: of whichever kind the model has. */
typedef union lab_sem {
    sem_t thread; /* 1:1 and the pool: waiting blocks the OS thread */
    weft_sem weft;
    struct {
        struct w_spin guard;
        uint32_t permits;         /* guard */
        struct lab_queue waiting; /* first come first served; guard */
    } fiber;
} lab_sem;

extern const char lab_name[];

/* Runs fn as the main goroutine; at most `threads` goroutines run at once (1:1 and N:1 have no choice). 0: as many as there are
 * cores, and a pool grows without limit. 0 or a negative errno; -EDEADLK where the model knows that nobody can ever run again. */
int lab_run(int threads, lab_fn *fn, void *arg);

int lab_go(lab_fn *fn, void *arg); /* 0 or a negative errno */
void lab_yield(void);
void lab_sem_init(lab_sem *s, uint32_t permits);
void lab_acquire(lab_sem *s);
void lab_release(lab_sem *s);
void lab_block(lab_fn *call, void *arg); /* call(arg) may sleep in the kernel */

/* One search for something to run, as a thread makes it that has nothing to do: while nothing is ready, and by a goroutine. Where a
 * model has no such search it does nothing. */
void lab_search(void);

/* What some models count; zero where it means nothing. */
struct lab_counts {
    uint64_t locks, lock_waits; /* of the one queue: how often it was taken, and taken by somebody else first */
    uint64_t searches, looks;   /* for something to steal; queues that were looked at then */
};
struct lab_counts lab_counts(void);

/* ---- OS threads (os.c) ------------------------------------------------------------------------------------------ */

/* A joinable thread with a stack as large as a goroutine's may grow to. -EAGAIN: the kernel gives no more, or all that are left
 * are needed by others: the lab keeps away from the limits of the machine. */
int lab_thread(pthread_t *t, void *(*fn)(void *), void *arg);
int lab_thread_detached(void *(*fn)(void *), void *arg);
long lab_thread_room(const char **limit); /* how many more it would start, and what ends it */

/* From here on somebody watches: a process of which every thread sleeps for a while without having run meanwhile will sleep for
 * ever. stuck() is called then, by the watch's own thread. */
void lab_watch(void (*stuck)(void));

int64_t lab_memory(void);   /* bytes: resident, page tables and kernel stacks */
int64_t lab_cpu_time(void); /* of the process, ns */

/* ---- the programs ----------------------------------------------------------------------------------------------- */

int lab_check(void); /* check.c */

struct lab_workload {
    const char *name, *arguments;
    void (*fn)(const long *args);
};
extern const struct lab_workload lab_workloads[]; /* workloads.c; ends with a NULL name */

#endif
