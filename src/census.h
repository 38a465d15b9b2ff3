/* SPDX-License-Identifier: MIT */
/* All goroutines, those that do the same together (census.c). */
#ifndef W_CENSUS_H
#define W_CENSUS_H

#include "frames.h"
#include "look.h"
#include "weft_internal.h"

enum { W_NAMED = 20, W_NAME_SIZE = 32, W_MAX_GROUPS = 8192 };

/* One that is named in its group. */
struct w_one {
    uint64_t id;
    char name[W_NAME_SIZE]; /* "": none; cut if it is longer */
};

/* From the least to the most; of none: lo > hi. */
struct w_span_ns {
    int64_t lo, hi;
};

/* Goroutines with the same state, reason, priority, entry function, start and backtrace. */
struct w_group {
    uint64_t hash;
    uint64_t count;
    enum w_state state;
    enum w_reason reason; /* if WAITING */
    int8_t priority;      /* WEFT_LOW .. WEFT_HIGH: its own */
    bool lent;            /* it has a higher one at the moment */
    bool moved;           /* it did not stand still long enough for a backtrace */
    bool many_objects;    /* they wait for different ones: object is that of the first */
    bool same_name;
    const void *object; /* or the number of a descriptor */
    weft_fn *entry;
    void *started_at;       /* or NULL */
    struct w_span_ns since; /* for how long in this state, if WAITING or BLOCKED */
    struct w_span_ns left;  /* until a sleep ends */
    struct w_span_ns over;  /* for how long they go on though their scope is over */
    enum w_seen seen;       /* if RUNNING or BLOCKED */
    pid_t tid;              /* of the first; 0: none */
    uint32_t m;             /* likewise */
    int32_t p;              /* likewise; -1: none */
    struct w_trace trace;
    struct w_one one[W_NAMED]; /* the first of them */
};

struct w_census {
    struct w_group *group;
    uint32_t n;
    uint64_t count;  /* goroutines in all */
    uint64_t others; /* of them, in no group: there were too many */
    struct w_rows *rows;
    struct w_sights sights;
    uint32_t *index; /* by hash: number of the group and 1 */
    int64_t now;
};

/* look: at running goroutines too, which takes the scheduler's lock. -ENOMEM. */
int w_census_take(struct w_census *c, bool look);
void w_census_free(struct w_census *c);

#endif
