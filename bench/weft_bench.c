/* SPDX-License-Identifier: MIT */
/*
 * Weft's side of the benchmarks: the program, and the workloads of bare goroutines. bench/go and bench/pthread do the
 * same work with the same names.
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

static void spawn_batch(int n)
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

/* ---- parked: many goroutines blocked on one channel, then let go all at once ------------------------------------ */

struct crowd {
    weft_wg arrived, left;
    weft_chan *gate;
};

static void parked_one(void *arg)
{
    struct crowd *c = arg;
    weft_wg_done(&c->arrived);
    weft_recv(c->gate, NULL); /* its close */
    weft_wg_done(&c->left);
}

/* Returns when n goroutines stand at the gate. */
static void gather(struct crowd *c, int n)
{
    weft_wg_add(&c->arrived, n);
    weft_wg_add(&c->left, n);
    for (int i = 0; i < n; i++)
        go(parked_one, c);
    wait_for(&c->arrived);
}

static void let_go(struct crowd *c)
{
    weft_close(c->gate);
    wait_for(&c->left);
}

static void parked(const struct workload *w)
{
    spawn_batch(BATCH); /* warm-up: threads and code, hardly any memory */

    struct crowd c = {.gate = new_chan(0, 0)};
    int64_t before = memory_bytes(), start = now_ns();
    gather(&c, w->size);
    report_part(w, "create", ms_since(start), "ms");
    report_part(w, "bytes", (double)(memory_bytes() - before) / w->size, "B");

    start = now_ns();
    let_go(&c);
    report_part(w, "wake", ms_since(start), "ms");
    weft_chan_free(c.gate);
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
    {"parked_10k", 0, parked, 10000},
    {"parked_1m", 0, parked, 1000000},
    {"timers_100k", 0, timers, 100000},
    {"blocking", 2, blocking, 0},
    {"echo_2p", 2, echo, 0},
    {"http_raw", 2, http_raw, 0},
    {"files_hot", 0, files, 0},
    {"files_direct", 0, files, O_DIRECT},
    {0},
};

static void main_goroutine(void *arg)
{
    const struct workload *w = arg;
    w->run(w);
}

static void start(const struct workload *w)
{
    weft_config config = {.procs = w->procs};
    must("weft_run", weft_run_with(&config, main_goroutine, (void *)w));
}

int main(int argc, char **argv)
{
    return bench_main(argc, argv, workloads, start);
}
