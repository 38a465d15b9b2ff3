/* SPDX-License-Identifier: MIT */
/*
 * Channels under load: what was sent comes out once and in its sender's order, whatever else happens: closes, selects, waits
 * that are cut, another number of Ps. A lost wake-up is a hang, which the harness ends.
 */
#include "stress.h" /* first: chans.h looks for it */
#include "chans.h"
#include <sched.h>

/* ---- many producers, many consumers ----------------------------------------------------------------------------- */

enum { SIDE = 8, CUTS = 3 };

struct item {
    uint32_t producer, seq;
};

struct market {
    weft_chan *ch;
    uint32_t each;         /* items of a producer */
    bool cut;              /* waits are cut now and then */
    _Atomic uint8_t *seen; /* [SIDE][each]: how often it came out */
};

/* A call in a scope that ends soon. Whether it waits at all, and how long, is chance. */
static int in_short_scope(uint64_t *rng, int (*call)(weft_case *), weft_case *c)
{
    weft_scope s;
    uint32_t r = check_random(rng);
    CHECK_EQ(weft_scope_open(&s, r % 2 ? WEFT_NEVER : weft_now() + r / 2 % 64 * WEFT_USEC), 0);
    if (r % 2)
        CHECK_EQ(weft_scope_go(&s, cancel_after_a_while, &s), 0);
    int result = call(c);
    if (was_cut(result))
        CHECK_EQ(weft_cancelled(), result);
    int end = weft_scope_close(&s);
    CHECK(end == 0 || was_cut(end));
    return result;
}

static int plainly(weft_case *c)
{
    return c->op == WEFT_OP_SEND ? weft_send(c->chan, c->value) : weft_recv(c->chan, c->value);
}

static int by_trying(weft_case *c)
{
    int r;
    while ((r = c->op == WEFT_OP_SEND ? weft_try_send(c->chan, c->value) : weft_try_recv(c->chan, c->value)) ==
           -EAGAIN) {
        if ((r = weft_cancelled()) != 0)
            return r;
        weft_yield();
    }
    return r;
}

/* Beside a case that is never ready and one that is chosen now and then in its place. */
static int by_select(weft_case *c)
{
    weft_case cases[] = {WEFT_RECV(NULL, NULL), *c, WEFT_AT(weft_now() + 20 * WEFT_USEC)};
    int at;
    while ((at = weft_select(cases, 3)) == 2)
        cases[2].at = WEFT_NEVER;
    return at == 1 ? cases[1].err : at;
}

static int somehow(struct market *m, uint64_t *rng, weft_case c)
{
    int (*const calls[])(weft_case *) = {plainly, plainly, by_trying, by_select};
    int r;
    for (int i = 0; m->cut && i < CUTS; i++) {
        int (*call)(weft_case *) = calls[check_random(rng) % 4];
        if (!was_cut(r = in_short_scope(rng, call, &c)))
            return r;
    }
    /* Without a buffer two tries never meet: they alone would go on for ever. */
    uint32_t kind = check_random(rng) % 4;
    return calls[kind == 2 && c.op == WEFT_OP_RECV && weft_cap(c.chan) == 0 ? 0 : kind](&c);
}

static void produce(void *arg, int number)
{
    struct market *m = arg;
    uint64_t rng = stress_stream(seed, (uint64_t)number);
    for (struct item it = {(uint32_t)number, 0}; it.seq < m->each; it.seq++)
        CHECK_EQ(somehow(m, &rng, WEFT_SEND(m->ch, &it)), 0);
}

static void consume(void *arg, int number)
{
    struct market *m = arg;
    uint64_t rng = stress_stream(seed, (uint64_t)number + SIDE);
    int64_t last[SIDE];
    struct item it = {0};
    int r;
    for (int i = 0; i < SIDE; i++)
        last[i] = -1;
    while ((r = somehow(m, &rng, WEFT_RECV(m->ch, &it))) == 0) {
        if (it.producer >= SIDE || it.seq >= m->each) {
            check_fail(__FILE__, __LINE__, "an item that nobody sent");
            continue;
        }
        CHECK(it.seq > last[it.producer]);
        last[it.producer] = it.seq;
        m->seen[it.producer * m->each + it.seq]++;
    }
    CHECK_EQ(r, -EPIPE);
}

/* Of either side the first `threads` are foreign. */
static void trade(size_t capacity, int each, bool cut, int threads)
{
    struct market m = {.ch = chan_of(sizeof(struct item), capacity), .each = (uint32_t)stress_scaled(each), .cut = cut};
    struct crew producers = {.fn = produce, .arg = &m, .n = SIDE, .threads = threads};
    struct crew consumers = {.fn = consume, .arg = &m, .n = SIDE, .threads = threads};
    m.seen = calloc(SIDE * m.each, sizeof *m.seen);
    crew_start(&producers);
    crew_start(&consumers);
    crew_wait(&producers);
    CHECK_EQ(weft_close(m.ch), 0);
    crew_wait(&consumers);
    for (uint32_t i = 0; i < SIDE * m.each; i++)
        if (m.seen[i] != 1)
            check_fail(__FILE__, __LINE__, "item %u of producer %u came out %d times", i % m.each, i / m.each,
                       m.seen[i]);
    free((void *)m.seen);
    weft_chan_free(m.ch);
}

static const size_t CAPACITIES[] = {0, 1, 128};

struct fair {
    int each, threads;
    bool cut, changing;
    _Atomic bool over;
};

static void change_procs(void *arg)
{
    struct fair *f = arg;
    uint64_t rng = stress_stream(seed, 99);
    while (!f->over) {
        CHECK(weft_procs((int)(check_random(&rng) % 8) + 1) > 0);
        for (uint32_t i = check_random(&rng) % 50; i > 0; i--)
            weft_yield();
    }
}

static void fair_main(void *arg)
{
    struct fair *f = arg;
    f->over = false;
    if (f->changing)
        CHECK_EQ(weft_go(change_procs, f), 0);
    for (int i = 0; i < 3; i++)
        trade(CAPACITIES[i], f->each, f->cut, f->threads);
    f->over = true;
    CHECK(others_have_ended());
}

CASE(what_is_sent_comes_out_once_and_in_order)
{
    on_each_procs(fair_main, &(struct fair){.each = 2000});
}

CASE(what_is_sent_comes_out_while_the_number_of_ps_changes)
{
    on_each_procs(fair_main, &(struct fair){.each = 1000, .changing = true});
}

CASE(what_is_sent_comes_out_among_foreign_threads)
{
    on_each_procs(fair_main, &(struct fair){.each = 200, .threads = 2});
}

CASE(what_is_sent_comes_out_although_waits_are_cut)
{
    on_each_procs(fair_main, &(struct fair){.each = 500, .cut = true});
}

CASE(what_is_sent_comes_out_although_waits_of_foreign_threads_are_cut)
{
    on_each_procs(fair_main, &(struct fair){.each = 100, .threads = 2, .cut = true});
}

CASE(what_is_sent_comes_out_with_cuts_and_changes_together)
{
    on_each_procs(fair_main, &(struct fair){.each = 300, .cut = true, .changing = true});
}

/* ---- close storms ----------------------------------------------------------------------------------------------- */

struct storm {
    weft_chan *ch;
    uint64_t rng;
    _Atomic int64_t sent, received; /* sums */
    _Atomic int closed;
};

/* Senders, receivers, and two who close it under them. */
static void in_close_storm(void *arg, int number)
{
    struct storm *s = arg;
    int v, r;
    if (number < 3) {
        for (v = number + 1; (r = put(s->ch, v)) == 0; v += 3) {
            s->sent += v;
            if (v % 4 == 0) /* lest two hand over to each other until their time is up */
                weft_yield();
        }
        CHECK_EQ(r, -EPIPE);
    } else if (number < 6) {
        while ((v = number == 4 ? try_take(s->ch) : take(s->ch)) != -EPIPE)
            if (v >= 0)
                s->received += v;
            else
                weft_yield();
    } else {
        for (uint64_t i = stress_stream(s->rng, (uint64_t)number) % 8; i > 0; i--)
            weft_yield();
        s->closed += weft_close(s->ch) == 0;
    }
}

static void close_main(void *arg)
{
    (void)arg;
    for (int i = 0; i < stress_scaled(600); i++) {
        struct storm s = {.ch = ints((size_t)i % 4), .rng = stress_stream(seed, (uint64_t)i)};
        struct crew crew = {.fn = in_close_storm, .arg = &s, .n = 8};
        crew_start(&crew);
        crew_wait(&crew);
        CHECK_EQ(s.sent, s.received);
        CHECK_EQ(s.closed, 1);
        weft_chan_free(s.ch);
    }
}

CASE(a_close_storm_loses_nothing)
{
    on_each_procs(close_main, NULL);
}

/* ---- select storms ---------------------------------------------------------------------------------------------- */

enum { PLACES = 5, HOLDERS = 12, TOKENS = 64, PURSE = TOKENS };

struct bazaar {
    weft_chan *ch[PLACES];
    _Atomic int next_token, seen[TOKENS], finished;
    int rounds;
};

struct purse {
    int token[PURSE], n;
};

static weft_case any_case(struct bazaar *b, struct purse *purse, int *got, uint32_t r)
{
    weft_chan *ch = b->ch[r % PLACES];
    return r / 16 % 2 && purse->n > 0 ? WEFT_SEND(ch, &purse->token[purse->n - 1]) : WEFT_RECV(ch, got);
}

/* false: the bazaar is closed. */
static bool deal(struct bazaar *b, struct purse *purse, uint64_t *rng)
{
    weft_case cases[9];
    int got = -1, n = (int)(check_random(rng) % 9);
    for (int i = 0; i < n; i++)
        cases[i] = any_case(b, purse, &got, check_random(rng));
    cases[n] = WEFT_AT(weft_now() + check_random(rng) % 200 * WEFT_USEC); /* lest all want the same */
    int at = check_random(rng) % 4 ? weft_select(cases, n + 1) : weft_try_select(cases, n);
    if (at == -EAGAIN) {
        weft_yield();
        return true;
    }
    CHECK(at >= 0 && at <= n);
    if (at < 0 || at > n || cases[at].err != 0)
        return false;
    if (cases[at].op == WEFT_OP_SEND)
        purse->n--;
    else if (cases[at].op == WEFT_OP_RECV)
        purse->token[purse->n++] = got;
    return true;
}

static void hold(void *arg, int number)
{
    struct bazaar *b = arg;
    uint64_t rng = stress_stream(seed, (uint64_t)number);
    struct purse purse = {.n = 0};
    for (int i = number; i < TOKENS; i += HOLDERS)
        purse.token[purse.n++] = i;
    for (int i = 0; i < b->rounds && deal(b, &purse, &rng); i++)
        ;
    b->finished++;
    while (purse.n > 0)
        b->seen[purse.token[--purse.n]]++;
}

static void bazaar_main(void *arg)
{
    struct bazaar b = {.rounds = stress_scaled(3000)};
    struct crew crew = {.fn = hold, .arg = &b, .n = HOLDERS, .threads = *(int *)arg};
    int v;
    for (int i = 0; i < PLACES; i++)
        b.ch[i] = ints((size_t)(i < 3 ? 0 : i - 2));
    crew_start(&crew);
    CHECK(reaches(&b.finished, 1, 100)); /* who is left may have nobody to deal with */
    for (int i = 0; i < PLACES; i++)
        CHECK_EQ(weft_close(b.ch[i]), 0);
    crew_wait(&crew);
    for (int i = 0; i < PLACES; i++)
        while ((v = take(b.ch[i])) >= 0)
            b.seen[v]++;
    for (int i = 0; i < TOKENS; i++)
        CHECK_EQ(b.seen[i], 1);
    free_all(b.ch, PLACES);
}

CASE(a_select_storm_loses_no_token)
{
    on_each_procs(bazaar_main, &(int){0});
}

CASE(a_select_storm_among_foreign_threads_loses_no_token)
{
    on_each_procs(bazaar_main, &(int){3});
}

static void send_its_number(void *arg, int number)
{
    weft_chan **ch = arg;
    CHECK_EQ(put(ch[number], number), 0);
}

static void one_of_many_main(void *arg)
{
    weft_chan *ch[6];
    weft_case cases[6];
    int got[6];
    (void)arg;
    for (int i = 0; i < 6; i++) {
        ch[i] = ints(i % 2);
        cases[i] = WEFT_RECV(ch[i], &got[i]);
    }
    for (int round = 0; round < scaled(2000); round++) {
        struct crew crew = {.fn = send_its_number, .arg = ch, .n = 6};
        int seen = 0;
        crew_start(&crew);
        for (int i = 0; i < 6; i++) {
            int at = weft_select(cases, 6);
            CHECK_EQ(got[at], at);
            seen |= 1 << at;
        }
        CHECK_EQ(seen, 63);
        CHECK_EQ(weft_try_select(cases, 6), -EAGAIN);
        crew_wait(&crew);
    }
    free_all(ch, 6);
}

CASE(each_value_is_taken_once)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, one_of_many_main, NULL), 0);
}

/* Two who would send and would receive, on one channel or on two in either order: each meets the other each time. */
struct duel {
    weft_chan *ch[2];
    int rounds;
    struct side {
        long sent, received;
    } side[2];
};

static void fight(void *arg, int me)
{
    struct duel *d = arg;
    int got = -1, last = -1, next = 0;
    weft_case cases[] = {WEFT_SEND(d->ch[me], &next), WEFT_RECV(d->ch[!me], &got), WEFT_RECV(d->ch[me], &got),
                         WEFT_SEND(d->ch[!me], &next)};
    for (int i = 0; i < d->rounds; i++) {
        int at = i % 2 ? weft_select(cases, 4) : weft_select(cases + 1 - me, 3);
        at += i % 2 ? 0 : 1 - me;
        CHECK(at >= 0 && at < 4 && cases[at].err == 0);
        if (cases[at].op == WEFT_OP_SEND) {
            d->side[me].sent++;
            next++;
        } else {
            d->side[me].received++;
            CHECK_EQ(got, last + 1);
            last = got;
        }
    }
}

static void duel_main(void *arg)
{
    for (int both = 0; both < 2; both++) {
        weft_chan *a = ints(0), *b = ints(0);
        struct duel d = {.ch = {a, both ? a : b}, .rounds = scaled(*(int *)arg > 0 ? 2000 : 20000)};
        struct crew crew = {.fn = fight, .arg = &d, .n = 2, .threads = *(int *)arg};
        crew_start(&crew);
        crew_wait(&crew);
        CHECK_EQ(d.side[0].sent, d.side[1].received);
        CHECK_EQ(d.side[1].sent, d.side[0].received);
        free_all((weft_chan *[]){a, b}, 2);
    }
}

CASE(two_selects_meet_each_other)
{
    for (int threads = 0; threads <= 2; threads++)
        EACH_PROCS(p) CHECK_EQ(run_on(p, duel_main, &threads), 0);
}

/* ---- at the same moment ----------------------------------------------------------------------------------------- */

static int close_it(weft_chan *ch)
{
    return weft_close(ch);
}

static int put_7(weft_chan *ch)
{
    return put(ch, 7);
}

static int try_put_7(weft_chan *ch)
{
    return try_put(ch, 7);
}

static int select_from(weft_chan *ch)
{
    int v = -1;
    weft_case cases[] = {WEFT_RECV(NULL, NULL), WEFT_RECV(ch, &v)};
    int at = weft_select(cases, 2);
    return at == 1 ? taken(cases[1].err, v) : at;
}

/* Two calls on a new channel, whichever comes first: what they give adds up to the same, and leaves the same. */
static const struct pair {
    int (*call[2])(weft_chan *);
    int capacity, filled, sum, left;
} PAIRS[] = {
    {{close_it, take}, 0, 0, -EPIPE, 0},
    {{close_it, put_7}, 0, 0, -EPIPE, 0},
    {{close_it, close_it}, 1, 1, -EPIPE, 1},
    {{close_it, select_from}, 3, 0, -EPIPE, 0},
    {{put_7, put_7}, 2, 0, 0, 2},
    {{take, take}, 2, 2, 14, 0},
    {{try_put_7, try_put_7}, 1, 0, -EAGAIN, 1},
    {{try_take, try_take}, 1, 1, 7 - EAGAIN, 0},
    {{put_7, take}, 0, 0, 7, 0},
    {{put_7, select_from}, 0, 0, 7, 0},
    {{put_7, take}, 1, 1, 7, 1},
};
enum { PAIRS_COUNT = sizeof PAIRS / sizeof PAIRS[0] };

struct duet {
    const struct pair *pair;
    weft_chan *ch;
    int result;
    _Atomic int begun, ended; /* rounds; begun is -1 after the last */
};

/* Fast if the other one has a core of its own. */
static void await(_Atomic int *at, int than)
{
    for (int i = 0; *at == than; i++) {
        if (i < 200) {
            w_pause();
        } else {
            weft_yield();
            sched_yield();
        }
    }
}

static void second_voice(void *arg, int number)
{
    struct duet *d = arg;
    (void)number;
    for (int i = 0; await(&d->begun, i), d->begun >= 0; i++) {
        d->result = d->pair->call[1](d->ch);
        d->ended++;
    }
}

static void sing(struct duet *d, int rounds, uint64_t *rng)
{
    int64_t until = weft_now() + WEFT_SEC / 8; /* where there is one core only it takes long */
    for (int i = 0; i < rounds && weft_now() < until; i++) {
        int left = 0;
        d->ch = ints((size_t)d->pair->capacity);
        for (int k = 0; k < d->pair->filled; k++)
            CHECK_EQ(put(d->ch, 7), 0);
        d->begun++;
        for (volatile uint32_t k = check_random(rng) % 256; k > 0; k--)
            ;
        int result = d->pair->call[0](d->ch);
        await(&d->ended, d->begun - 1);
        CHECK_EQ(result + d->result, d->pair->sum);
        while (try_take(d->ch) >= 0)
            left++;
        CHECK_EQ(left, d->pair->left);
        weft_chan_free(d->ch);
    }
}

static void duets_main(void *arg)
{
    uint64_t rng = stress_stream(seed, 3);
    for (int i = 0; i < 2 * PAIRS_COUNT; i++) {
        struct duet d = {.pair = &PAIRS[i / 2]};
        struct crew second = {.fn = second_voice, .arg = &d, .n = 1, .threads = i % 2};
        crew_start(&second);
        sing(&d, stress_scaled(10000), &rng);
        d.begun = -1;
        crew_wait(&second);
    }
    (void)arg;
}

CASE(calls_at_the_same_moment_come_one_after_the_other)
{
    seed = check_seed();
    stress_run(2, seed, duets_main, NULL);
}

/* ---- crowds that are cancelled ---------------------------------------------------------------------------------- */

struct crowd {
    weft_chan *ch[2];
    _Atomic int got, cut, about_to;
};

static void one_of_a_crowd(void *arg)
{
    struct crowd *c = arg;
    int me = c->about_to++, v = -1, r;
    weft_case cases[] = {WEFT_RECV(c->ch[0], &v), WEFT_RECV(c->ch[1], &v)};
    r = me % 3 ? weft_recv(c->ch[me % 2], &v) : weft_select(cases, 2);
    CHECK(r >= 0 ? v == 5 : r == -ECANCELED && v == -1);
    ++*(r >= 0 ? &c->got : &c->cut);
}

/* The cancel meets senders who serve the crowd at that very moment. */
static void crowds_main(void *arg)
{
    uint64_t rng = stress_stream(seed, 5);
    (void)arg;
    for (int i = 0; i < stress_scaled(200); i++) {
        struct crowd c = {.ch = {ints(0), ints(0)}};
        int n = (int)(check_random(&rng) % 200), served = 0;
        weft_scope s;
        CHECK_EQ(weft_scope_open(&s, WEFT_NEVER), 0);
        for (int k = 0; k < n; k++)
            CHECK_EQ(weft_scope_go(&s, one_of_a_crowd, &c), 0);
        CHECK_EQ(weft_scope_go(&s, cancel_after_a_while, &s), 0);
        for (uint32_t k = check_random(&rng) % 300; k > 0; k--) {
            served += try_put(c.ch[k % 2], 5) == 0;
            if (k % 4 == 0)
                weft_yield();
        }
        CHECK_EQ(weft_scope_close(&s), -ECANCELED);
        CHECK_EQ(c.got, served);
        CHECK_EQ(c.got + c.cut, n);
        for (int k = 0; k < 2; k++)
            CHECK_EQ(try_put(c.ch[k], 1), -EAGAIN);
        free_all(c.ch, 2);
    }
}

CASE(a_crowd_is_cancelled_while_it_is_served)
{
    on_each_procs(crowds_main, NULL);
}
