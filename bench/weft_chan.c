/* SPDX-License-Identifier: MIT */
/* Channels: between two goroutines, between many, in select, in a ring, in a chain and in many short ones. */
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

/* ---- ring: w->size goroutines in a ring of unbuffered channels pass a token, as in the thread-ring of the Game -- */

enum { RING_HOPS = 500000 };

static weft_chan *ring_first, *ring_ended;

static int ring_members;

struct ring_member {
    int number; /* from 0 */
    weft_chan *in, *out;
};

/* The token says how many hops are left, this one included. Who gets the last one tells its number. */
static void pass_on(void *arg)
{
    struct ring_member *self = arg;
    int64_t hops;
    while (take_next(self->in, &hops)) {
        if (hops > 1)
            put(self->out, hops - 1);
        else
            put(ring_ended, self->number);
    }
}

static void ring_pass(void)
{
    put(ring_first, RING_HOPS);
    expect("the one who got the last hop", take(ring_ended), (RING_HOPS - 1) % ring_members);
}

void ring(const struct workload *w)
{
    ring_first = new_chan(sizeof(int64_t), 0);
    ring_ended = new_chan(sizeof(int64_t), 0);
    ring_members = w->size;
    struct ring_member member = {.out = ring_first};
    for (int i = 0; i < w->size; i++) {
        member.number = i;
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

/* ---- pipeline: 64 chains of 4 stages, in each of which a buffer goes round; every stage reads and writes it ----- */

enum { CHAINS = 64, STAGES = 4, PIPELINE_HOPS = 2000 /* of each buffer in a pass */ };
enum { CACHE_LINE = 64, LINES = 16 * 1024 / CACHE_LINE };

struct message {
    int64_t hops; /* that are left, this one included */
    struct {
        int64_t changes;
        char rest[CACHE_LINE - sizeof(int64_t)];
    } lines[LINES];
};

static struct {
    weft_chan *first[CHAINS];
    struct message *messages[CHAINS];
    weft_wg done;
} chains;

struct stage {
    weft_chan *in, *out;
};

static void change_and_pass_on(void *arg)
{
    struct stage *self = arg;
    for (struct message *m;;) {
        must("weft_recv", weft_recv(self->in, &m));
        for (int i = 0; i < LINES; i++)
            m->lines[i].changes++;
        if (--m->hops > 0)
            must("weft_send", weft_send(self->out, &m));
        else
            weft_wg_done(&chains.done);
    }
}

static void start_chain(weft_chan *first)
{
    struct stage stage = {.out = first};
    for (int i = 0; i < STAGES; i++) {
        stage.in = stage.out;
        stage.out = i < STAGES - 1 ? new_chan(sizeof(struct message *), 0) : first;
        go_copy(change_and_pass_on, &stage, sizeof stage);
    }
}

static void pipeline_pass(void)
{
    weft_wg_add(&chains.done, CHAINS);
    for (int i = 0; i < CHAINS; i++) {
        chains.messages[i]->hops = PIPELINE_HOPS;
        must("weft_send", weft_send(chains.first[i], &chains.messages[i]));
    }
    wait_for(&chains.done);
}

void pipeline(const struct workload *w)
{
    for (int i = 0; i < CHAINS; i++) {
        chains.first[i] = new_chan(sizeof(struct message *), 0);
        if ((chains.messages[i] = calloc(1, sizeof *chains.messages[i])) == NULL)
            die("calloc", ENOMEM);
        start_chain(chains.first[i]);
    }
    report(w, per_op(pipeline_pass, (int64_t)CHAINS * PIPELINE_HOPS), "ns/hop");
    struct message *last = chains.messages[CHAINS - 1];
    expect("a buffer's changes", last->lines[LINES - 1].changes, last->lines[0].changes);
}
