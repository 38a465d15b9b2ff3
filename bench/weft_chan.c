/* SPDX-License-Identifier: MIT */
/* Channels: between two goroutines, between many, in select, in a ring and in a chain. */
#include "weft_bench.h"

/* ---- pingpong: a value goes to and fro between two goroutines --------------------------------------------------- */

enum { ROUND_TRIPS = 200000 };

struct table_tennis {
    weft_chan *ping, *pong;
};

static void pong_player(void *arg)
{
    struct table_tennis *t = arg;
    int64_t v;
    while (take_next(t->ping, &v))
        put(t->pong, v);
    weft_close(t->pong);
}

static void pingpong_pass(void)
{
    struct table_tennis t = {.ping = new_chan(sizeof(int64_t), 0), .pong = new_chan(sizeof(int64_t), 0)};
    go(pong_player, &t);
    for (int64_t i = 0; i < ROUND_TRIPS; i++) {
        put(t.ping, i);
        take(t.pong);
    }
    weft_close(t.ping);
    weft_recv(t.pong, NULL); /* its close: the other one is done with both */
    weft_chan_free(t.ping);
    weft_chan_free(t.pong);
}

void pingpong(const struct workload *w)
{
    report(w, per_op(pingpong_pass, ROUND_TRIPS), "ns/round trip");
}

/* ---- buffered, mpmc: w->size producers, as many consumers, one channel with a buffer ---------------------------- */

enum { STREAM_ITEMS = 800000, STREAM_CAPACITY = 128 };

static struct {
    int ends; /* producers, and as many consumers */
    weft_chan *items;
    weft_wg producers, consumers;
} flow;

static void producer(void *arg)
{
    (void)arg;
    int n = STREAM_ITEMS / flow.ends;
    for (int64_t v = 0; v < n; v++)
        put(flow.items, v);
    weft_wg_done(&flow.producers);
}

static void consumer(void *arg)
{
    (void)arg;
    int64_t v;
    while (take_next(flow.items, &v))
        ;
    weft_wg_done(&flow.consumers);
}

static void stream_pass(void)
{
    flow.items = new_chan(sizeof(int64_t), STREAM_CAPACITY);
    weft_wg_add(&flow.producers, flow.ends);
    weft_wg_add(&flow.consumers, flow.ends);
    for (int i = 0; i < flow.ends; i++) {
        go(producer, NULL);
        go(consumer, NULL);
    }
    wait_for(&flow.producers);
    weft_close(flow.items);
    wait_for(&flow.consumers);
    weft_chan_free(flow.items);
}

void stream(const struct workload *w)
{
    flow.ends = w->size;
    report(w, per_op(stream_pass, STREAM_ITEMS), "ns/item");
}

/* ---- select4: one consumer selects over 4 unbuffered channels with a producer each ------------------------------ */

enum { CASES = 4, SELECT_EACH = 50000, SELECTS = CASES * SELECT_EACH };

static void select_producer(void *ch)
{
    for (int64_t v = 0; v < SELECT_EACH; v++)
        put(ch, v);
}

static void select_pass(void)
{
    weft_case cases[CASES];
    int64_t v, sum = 0;
    for (int i = 0; i < CASES; i++) {
        cases[i] = WEFT_RECV(new_chan(sizeof v, 0), &v);
        go(select_producer, cases[i].chan);
    }
    for (int i = 0; i < SELECTS; i++) {
        must("weft_select", weft_select(cases, CASES));
        sum += v;
    }
    expect("the sum of select4", sum, (int64_t)CASES * SELECT_EACH * (SELECT_EACH - 1) / 2);
    for (int i = 0; i < CASES; i++)
        weft_chan_free(cases[i].chan); /* the last value was received: nobody uses it */
}

void select4(const struct workload *w)
{
    report(w, per_op(select_pass, SELECTS), "ns/item");
}

/* ---- ring: w->size goroutines in a ring of unbuffered channels pass a token ------------------------------------- */

enum { RING_HOPS = 500000 };

static weft_chan *ring_first, *ring_ended;

struct ring_member {
    weft_chan *in, *out;
};

/* The token says how many hops are left, this one included. */
static void pass_on(void *arg)
{
    struct ring_member *self = arg;
    int64_t hops;
    while (take_next(self->in, &hops))
        put(hops > 1 ? self->out : ring_ended, hops - 1);
}

static void ring_pass(void)
{
    put(ring_first, RING_HOPS);
    take(ring_ended);
}

void ring(const struct workload *w)
{
    ring_first = new_chan(sizeof(int64_t), 0);
    ring_ended = new_chan(sizeof(int64_t), 0);
    struct ring_member member = {.out = ring_first};
    for (int i = 0; i < w->size; i++) {
        member.in = member.out;
        member.out = i < w->size - 1 ? new_chan(sizeof(int64_t), 0) : ring_first;
        go_copy(pass_on, &member, sizeof member);
    }
    report(w, per_op(ring_pass, RING_HOPS), "ns/hop");
}

/* ---- sieve: the first 2,000 primes through a chain of filters, each of which takes out the multiples of one ----- */

enum { PRIMES = 2000, LAST_PRIME = 17389 };

struct filter {
    int64_t prime;
    weft_chan *in, *out;
};

static void numbers(void *out)
{
    for (int64_t v = 2; v <= LAST_PRIME; v++)
        put(out, v);
    weft_close(out);
}

static void take_out(void *arg)
{
    struct filter *f = arg;
    int64_t v;
    while (take_next(f->in, &v))
        if (v % f->prime != 0)
            put(f->out, v);
    weft_chan_free(f->in);
    weft_close(f->out);
}

static void sieve_pass(void)
{
    weft_chan *ch = new_chan(sizeof(int64_t), 0);
    go(numbers, ch);
    int64_t primes = 0, prime;
    while (take_next(ch, &prime)) {
        struct filter f = {.prime = prime, .in = ch, .out = new_chan(sizeof(int64_t), 0)};
        go_copy(take_out, &f, sizeof f);
        ch = f.out;
        primes++;
    }
    weft_chan_free(ch);
    expect("the number of primes", primes, PRIMES);
}

void sieve(const struct workload *w)
{
    report(w, per_op(sieve_pass, 1) / 1e6, "ms");
}
