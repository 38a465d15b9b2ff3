/* SPDX-License-Identifier: MIT */
/*
 * What the files of Weft's benchmark program share: the workloads by file, and calls that have to succeed. A workload
 * runs on the main goroutine and ends in report; the table in weft_bench.c gives it its names.
 */
#ifndef WEFT_BENCH_H
#define WEFT_BENCH_H

#include "harness.h"
#include "weft.h"

/* In place of a number of processors: a workload that runs outside and calls weft_run itself. */
enum { RUNS_ITSELF = -1 };

/* weft_bench.c */
void spawn_batch(int n);

/* weft_chan.c */
void pingpong(const struct workload *w);
void stream(const struct workload *w);
void select4(const struct workload *w);
void ring(const struct workload *w);
void sieve(const struct workload *w);
void pipeline(const struct workload *w);

/* weft_tree.c */
void skynet_pass(int64_t leaves);
void skynet(const struct workload *w);
void fib(const struct workload *w);
void matmul(const struct workload *w);
void matmult(const struct workload *w);

/* weft_sync.c */
void mutex(const struct workload *w);
void timers(const struct workload *w);

/* weft_fair.c */
void preempt(const struct workload *w);
void ready(const struct workload *w);
void quantum_cost(const struct workload *w);
void preempt_cost(const struct workload *w);
void preempt_own(const struct workload *w);

/* weft_suites.c */
void chameneos(const struct workload *w);
void chained_spawn(const struct workload *w);
void ping_pong(const struct workload *w);
void spawn_many(const struct workload *w);
void yield_many(const struct workload *w);
void create_goroutines(const struct workload *w);
void pingpong_hog(const struct workload *w);
void chan_prodcons(const struct workload *w);
void select_prodcons(const struct workload *w);
void wakeup_parallel(const struct workload *w);

/* weft_crowd.c */
void parked(const struct workload *w);
void sleepers(const struct workload *w);
void scale_spawn(const struct workload *w);
void scale_pairs(const struct workload *w);
void scale_mpmc(const struct workload *w);
void scale_skynet(const struct workload *w);

/* weft_io.c */
void blocking(const struct workload *w);
void echo(const struct workload *w);
void http_raw(const struct workload *w);
void mixed(const struct workload *w);
void files(const struct workload *w);

static inline void go(weft_fn *fn, void *arg)
{
    must("weft_go", weft_go(fn, arg));
}

static inline void go_copy(weft_fn *fn, const void *arg, size_t size)
{
    must("weft_go_copy", weft_go_copy(fn, arg, size));
}

static inline void wait_for(weft_wg *wg)
{
    must("weft_wg_wait", weft_wg_wait(wg));
}

static inline weft_chan *new_chan(size_t elem_size, size_t capacity)
{
    weft_chan *ch = weft_chan_new(elem_size, capacity);
    if (ch == NULL)
        die("weft_chan_new", ENOMEM);
    return ch;
}

/* put, take: on a channel of int64_t. */
static inline void put(weft_chan *ch, int64_t value)
{
    must("weft_send", weft_send(ch, &value));
}

static inline int64_t take(weft_chan *ch)
{
    int64_t value;
    must("weft_recv", weft_recv(ch, &value));
    return value;
}

/* False once the channel is closed and drained. */
static inline bool take_next(weft_chan *ch, int64_t *value)
{
    int result = weft_recv(ch, value);
    if (result != -EPIPE)
        must("weft_recv", result);
    return result == 0;
}

#endif
