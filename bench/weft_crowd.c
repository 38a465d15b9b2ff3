/* SPDX-License-Identifier: MIT */
/*
 * Many goroutines at once: what they cost while they wait, and how the cost of an operation grows with their number and with
 * that of the processors (scale_*, whose size is the number of goroutines). They stand at a gate until all have arrived, so
 * that starting them is not in the figures of what they do.
 */
#include "weft_bench.h"

struct crowd {
    weft_wg arrived, left;
    weft_chan *gate;
};

static void stand_at_gate(struct crowd *c)
{
    weft_wg_done(&c->arrived);
    weft_recv(c->gate, NULL); /* its close */
}

static void expect_crowd(struct crowd *c, int n)
{
    c->gate = new_chan(0, 0);
    weft_wg_add(&c->arrived, n);
    weft_wg_add(&c->left, n);
}

/* Returns how many nanoseconds it took from the opening of the gate until the last had left. */
static int64_t let_go(struct crowd *c)
{
    int64_t start = now_ns();
    weft_close(c->gate);
    wait_for(&c->left);
    int64_t took = now_ns() - start;
    weft_chan_free(c->gate);
    return took;
}

/* ---- parked: goroutines blocked on one channel, then let go all at once ----------------------------------------- */

static void parked_one(void *arg)
{
    struct crowd *c = arg;
    stand_at_gate(c);
    weft_wg_done(&c->left);
}

void parked(const struct workload *w)
{
    spawn_batch(1000); /* warm-up: threads and code, hardly any memory */

    int n = scaled(w->size);
    struct crowd c = {0};
    int64_t before = memory_bytes(), start = now_ns();
    expect_crowd(&c, n);
    for (int i = 0; i < n; i++)
        go(parked_one, &c);
    wait_for(&c.arrived);
    report_part(w, "create", ms_since(start), "ms");
    report_part(w, "bytes", (double)(memory_bytes() - before) / n, "B");
    report_part(w, "wake", (double)let_go(&c) / 1e6, "ms");
}

/* ---- sleepers: goroutines that all sleep; the end of the run ends them ------------------------------------------ */

#define LONG_SLEEP (600 * WEFT_SEC)

static void sleep_long(void *about_to_sleep)
{
    weft_wg_done(about_to_sleep);
    weft_sleep(LONG_SLEEP);
}

void sleepers(const struct workload *w)
{
    static weft_wg about_to_sleep;
    spawn_batch(1000);

    int n = scaled(w->size);
    int64_t before = memory_bytes(), start = now_ns();
    weft_wg_add(&about_to_sleep, n);
    for (int i = 0; i < n; i++)
        go(sleep_long, &about_to_sleep);
    wait_for(&about_to_sleep);
    report_part(w, "create", ms_since(start), "ms");
    report_part(w, "bytes", (double)(memory_bytes() - before) / n, "B");
}

/* ---- scale_spawn: all are started, end at once, and are waited for ---------------------------------------------- */

enum { SCALE_PART = 4 }; /* of the usual time: there are many points */

static int spawned_at_once;

static void spawn_all(void)
{
    spawn_batch(spawned_at_once);
}

void scale_spawn(const struct workload *w)
{
    spawned_at_once = scaled(w->size);
    report(w, per_op_in(measure_ns() / SCALE_PART, spawn_all, spawned_at_once), "ns/spawn");
}

/* ---- scale_pairs: each two play ping-pong ----------------------------------------------------------------------- */

enum { SCALE_OPERATIONS = 1000000 };

/* In all, whatever the number of those who share them. */
static int64_t operations(void)
{
    return quick() ? SCALE_OPERATIONS / QUICKER : SCALE_OPERATIONS;
}

static struct {
    struct crowd crowd;
    int64_t round_trips; /* of a pair */
} pairs;

struct pair {
    weft_chan *ping, *pong;
};

static void pair_pong(void *arg)
{
    struct pair *p = arg;
    for (int64_t v; take_next(p->ping, &v);)
        put(p->pong, v);
    weft_chan_free(p->ping);
    weft_close(p->pong);
    weft_wg_done(&pairs.crowd.left);
}

static void pair_ping(void *arg)
{
    struct pair *p = arg;
    stand_at_gate(&pairs.crowd);
    for (int64_t i = 0; i < pairs.round_trips; i++) {
        put(p->ping, i);
        expect("what came back", take(p->pong), i);
    }
    weft_close(p->ping);
    weft_recv(p->pong, NULL); /* its close */
    weft_chan_free(p->pong);
    weft_wg_done(&pairs.crowd.left);
}

void scale_pairs(const struct workload *w)
{
    int n = w->size / 2 > 0 ? w->size / 2 : 1;
    pairs.round_trips = (operations() + n - 1) / n;
    expect_crowd(&pairs.crowd, n);
    weft_wg_add(&pairs.crowd.left, n); /* the other half does not come to the gate */
    for (int i = 0; i < n; i++) {
        struct pair p = {.ping = new_chan(sizeof(int64_t), 0), .pong = new_chan(sizeof(int64_t), 0)};
        go_copy(pair_pong, &p, sizeof p);
        go_copy(pair_ping, &p, sizeof p);
    }
    wait_for(&pairs.crowd.arrived);
    report(w, (double)let_go(&pairs.crowd) / (double)(pairs.round_trips * n), "ns/round trip");
}

/* ---- scale_mpmc: one half sends, the other receives, by one channel with a buffer ------------------------------- */

enum { SCALE_CAPACITY = 128 };

static struct {
    struct crowd crowd;
    weft_chan *items;
    weft_wg producers;
    int64_t each; /* items of a producer */
    _Atomic int64_t received;
} flow;

static void producer(void *arg)
{
    (void)arg;
    stand_at_gate(&flow.crowd);
    for (int64_t i = 0; i < flow.each; i++)
        put(flow.items, i);
    weft_wg_done(&flow.producers);
    weft_wg_done(&flow.crowd.left);
}

static void consumer(void *arg)
{
    (void)arg;
    stand_at_gate(&flow.crowd);
    int64_t n = 0;
    for (int64_t v; take_next(flow.items, &v);)
        n++;
    flow.received += n;
    weft_wg_done(&flow.crowd.left);
}

static void close_after_producers(void *arg)
{
    (void)arg;
    wait_for(&flow.producers);
    weft_close(flow.items);
}

void scale_mpmc(const struct workload *w)
{
    int n = w->size / 2 > 0 ? w->size / 2 : 1;
    flow.each = (operations() + n - 1) / n;
    flow.items = new_chan(sizeof(int64_t), SCALE_CAPACITY);
    expect_crowd(&flow.crowd, 2 * n);
    weft_wg_add(&flow.producers, n);
    for (int i = 0; i < n; i++) {
        go(producer, NULL);
        go(consumer, NULL);
    }
    go(close_after_producers, NULL);
    wait_for(&flow.crowd.arrived);
    report(w, (double)let_go(&flow.crowd) / (double)(flow.each * n), "ns/item");
    expect("the number of items", flow.received, flow.each * n);
    weft_chan_free(flow.items);
}

/* ---- scale_skynet: a tree with so many leaves, rounded up to a power of ten ------------------------------------- */

static int64_t skynet_leaves;

static void skynet_once(void)
{
    skynet_pass(skynet_leaves);
}

void scale_skynet(const struct workload *w)
{
    for (skynet_leaves = 1; skynet_leaves < w->size;)
        skynet_leaves *= 10;
    report(w, per_op_in(measure_ns() / SCALE_PART, skynet_once, skynet_leaves), "ns/leaf");
}
