/* SPDX-License-Identifier: MIT */
/*
 * Weft's side of the benchmarks: the program, and the workloads of bare goroutines. bench/go, bench/tokio, bench/boost and
 * bench/pthread do the same work with the same names.
 *
 * To add a workload: a function that runs on the main goroutine and ends in report, and a line in the table below.
 */
#include "weft_bench.h"

#include <fcntl.h>

/* ---- yield: two goroutines yield in turn ------------------------------------------------------------------------ */

enum { YIELDS = 1000000 };

static void yield_half(void *done)
{
    for (int i = 0; i < YIELDS / 2; i++)
        weft_yield();
    weft_wg_done(done);
}

static void yield_pass(void)
{
    weft_wg done = {0};
    weft_wg_add(&done, 2);
    go(yield_half, &done);
    go(yield_half, &done);
    wait_for(&done);
}

static void yield(const struct workload *w)
{
    report(w, per_op(yield_pass, YIELDS), "ns/switch");
}

/* ---- spawn: empty goroutines in batches, a wait group for each batch -------------------------------------------- */

enum { SPAWNS = 1000000, BATCH = 1000 };

static void empty(void *done)
{
    weft_wg_done(done);
}

void spawn_batch(int n)
{
    weft_wg done = {0};
    weft_wg_add(&done, n);
    for (int i = 0; i < n; i++)
        go(empty, &done);
    wait_for(&done);
}

static void spawn_pass(void)
{
    for (int i = 0; i < SPAWNS / BATCH; i++)
        spawn_batch(BATCH);
}

static void spawn(const struct workload *w)
{
    report(w, per_op(spawn_pass, SPAWNS), "ns/spawn");
}

/* ---- spawnjoin: start one and wait for it ----------------------------------------------------------------------- */

enum { JOINS = 100000 };

static void spawnjoin_pass(void)
{
    for (int i = 0; i < JOINS; i++)
        spawn_batch(1);
}

static void spawnjoin(const struct workload *w)
{
    report(w, per_op(spawnjoin_pass, JOINS), "ns");
}

/* ---- the table -------------------------------------------------------------------------------------------------- */

static const struct workload workloads[] = {
    {"yield_1p", 1, yield, 0},
    {"spawn_1p", 1, spawn, 0},
    {"spawn_2p", 2, spawn, 0},
    {"spawnjoin", 0, spawnjoin, 0},
    {"pingpong_1p", 1, pingpong, 0},
    {"pingpong_2p", 2, pingpong, 0},
    {"buffered_1p", 1, stream, 1},
    {"buffered_2p", 2, stream, 1},
    {"mpmc_2p", 2, stream, 8},
    {"select4_2p", 2, select4, 0},
    {"mutex_uncontended", 0, mutex, 1},
    {"mutex_contended", 2, mutex, 8},
    {"ring_1p", 1, ring, 503},
    {"ring_2p", 2, ring, 503},
    {"skynet_2p", 2, skynet, 0},
    {"fib_2p", 2, fib, 0},
    {"sieve_2p", 2, sieve, 0},
    {"pipeline_warm", 2, pipeline, 0},
    {"parked_10k", 0, parked, 10000},
    {"parked_1m", 0, parked, 1000000},
    {"sleepers_1m", 0, sleepers, 1000000},
    {"timers_100k", 0, timers, 100000},
    {"preempt", 2, preempt, WEFT_NORMAL},
    {"preempt_high", 2, preempt, WEFT_HIGH},
    {"ready_high", 2, ready, WEFT_HIGH},
    {"quantum_cost", RUNS_ITSELF, quantum_cost, 0},
    {"preempt_cost", RUNS_ITSELF, preempt_cost, 0},
    {"preempt_own", RUNS_ITSELF, preempt_own, 0},
    {"blocking", 2, blocking, 0},
    {"echo_2p", 2, echo, 0},
    {"http_raw", 2, http_raw, 0},
    {"mixed", 2, mixed, 0},
    {"files_hot", 0, files, 0},
    {"files_direct", 0, files, O_DIRECT},
    {"chameneos", 0, chameneos, 0},
    {"chained_spawn", 0, chained_spawn, 0},
    {"ping_pong", 0, ping_pong, 0},
    {"spawn_many", 0, spawn_many, 0},
    {"yield_many", 0, yield_many, 0},
    {"matmul", 0, matmul, 0},
    {"create_goroutines", 0, create_goroutines, 0},
    {"pingpong_hog", 1, pingpong_hog, 0},
    {"chan_prodcons", 0, chan_prodcons, 0},
    {"select_prodcons", 0, select_prodcons, 0},
    {"wakeup_parallel", 2, wakeup_parallel, 0},
    {"matmult", 0, matmult, 0},
    {"scale_spawn", 2, scale_spawn, 10000},
    {"scale_pairs", 2, scale_pairs, 10000},
    {"scale_mpmc", 2, scale_mpmc, 10000},
    {"scale_skynet", 2, scale_skynet, 10000},
    {0},
};

static void main_goroutine(void *arg)
{
    const struct workload *w = arg;
    w->run(w);
}

static void start(const struct workload *w)
{
    if (w->procs == RUNS_ITSELF) {
        w->run(w);
        return;
    }
    weft_config config = {.procs = w->procs};
    must("weft_run", weft_run_with(&config, main_goroutine, (void *)w));
}

int main(int argc, char **argv)
{
    return bench_main(argc, argv, workloads, start);
}
