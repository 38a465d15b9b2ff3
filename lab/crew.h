/* SPDX-License-Identifier: MIT */
/*
 * The OS threads of a model that has several, and a limit on how many of them run goroutines at once: the places.
 *
 * A thread that runs goroutines, or looks for some, has a place. It gives it up when it rests, and when it enters a blocking call;
 * then the model may let another thread have it. One that comes back from such a call and finds no place puts its
 * goroutine where others take it, and rests.
 */
#ifndef LAB_CREW_H
#define LAB_CREW_H

#include "fibers.h"

enum { LAB_MAX_THREADS = 32768 };

struct lab_crew {
    struct w_lock lock;
    int limit;                /* constant in a run */
    _Atomic int running;      /* places taken; lock, but they may be given up without; others guess */
    bool stopping;            /* lock */
    struct lab_m *idle;       /* who rests, the latest first; lock */
    uint64_t locks, waits;    /* how often the lock was taken; and held by another just before; lock */
    _Atomic uint32_t threads; /* of all[]; lock, others read */
    struct lab_m *all[LAB_MAX_THREADS];
};
extern struct lab_crew lab_crew;

/* The model: a thread's memory, of which the struct lab_m is the first member, zeroed; NULL: none. */
struct lab_m *lab_crew_new(void);

/* The model: what m runs next; may look everywhere. NULL: nothing. */
struct w_g *lab_crew_find(struct lab_m *m);

/* The model: m, which found nothing, gives up its place: lab_crew_resign_locked, and whatever else has to be looked at. false: the end. */
bool lab_crew_rest(struct lab_m *m);

int lab_crew_run(int limit, lab_fn *fn, void *arg); /* lab_run */

void lab_crew_lock(void);
void lab_crew_unlock(void);

bool lab_crew_place_locked(void);           /* takes a place; false: there is none */
void lab_crew_unlock_and_start(bool place); /* opens the lock; if there is a place for it, lets one more thread run */
bool lab_crew_resign_locked(
    struct lab_m *m);      /* its place, if it has one, is free, and it can be woken; false: the end */
void lab_crew_leave(void); /* gives up the place: a blocking call */

#endif
