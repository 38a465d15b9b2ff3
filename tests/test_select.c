/* SPDX-License-Identifier: MIT */
/* Select: which case is chosen, what it waits for, and that the cases that were not chosen have had no effect. */
#include "chans.h"
#include <limits.h>
#include <math.h>

/* ---- a fair choice ---------------------------------------------------------------------------------------------- */

enum { MOST = 24 };

struct draws {
    weft_case cases[MOST];
    bool ready[MOST];
    int n;
};

static void add_case(struct draws *d, weft_case c, bool ready)
{
    d->ready[d->n] = ready;
    d->cases[d->n++] = c;
}

/* Undoes what the case did. */
static void undo(weft_case *c)
{
    if (c->err == 0 && c->op == WEFT_OP_RECV)
        CHECK_EQ(put(c->chan, 1), 0);
    if (c->err == 0 && c->op == WEFT_OP_SEND)
        CHECK_EQ(take(c->chan), 1);
}

/* So far from even is less likely than one in a million million. */
static bool is_even(const int *counts, const struct draws *d, int total)
{
    int kinds = 0;
    double chi2 = 0;
    for (int i = 0; i < d->n; i++)
        kinds += d->ready[i];
    for (int i = 0; i < d->n; i++) {
        double expected = d->ready[i] ? (double)total / kinds : 0;
        if (d->ready[i])
            chi2 += (counts[i] - expected) * (counts[i] - expected) / expected;
        else if (counts[i] > 0)
            return false;
    }
    return chi2 < kinds - 1 + 10 * sqrt(2 * (kinds - 1)) + 30;
}

static void draw(struct draws *d)
{
    for (int try = 0; try < 2; try++) {
        int counts[MOST] = {0}, total = scaled(20000);
        for (int i = 0; i < total; i++) {
            int at = try ? weft_try_select(d->cases, d->n) : weft_select(d->cases, d->n);
            CHECK(at >= 0 && at < d->n);
            if (at < 0 || at >= d->n)
                return;
            counts[at]++;
            undo(&d->cases[at]);
        }
        if (is_even(counts, d, total))
            continue;
        for (int i = 0; i < d->n; i++)
            fprintf(stderr, "# case %d was chosen %d times%s\n", i, counts[i], d->ready[i] ? "" : ", but is not ready");
        check_fail(__FILE__, __LINE__, "the choice is not even");
    }
}

static void fair_main(void *arg)
{
    static int v = 1;
    weft_chan *full[2] = {ints(2), ints(1)}, *empty = ints(2), *nobody = ints(0), *closed = ints(0);
    struct draws two = {.n = 0}, one_channel = {.n = 0}, mixed = {.n = 0}, sparse = {.n = 0};
    (void)arg;
    CHECK_EQ(put(full[0], 1) | put(full[0], 1) | put(full[1], 1) | weft_close(closed), 0);
    add_case(&two, WEFT_RECV(full[0], &v), true);
    add_case(&two, WEFT_RECV(full[1], &v), true);
    add_case(&one_channel, WEFT_RECV(full[0], &v), true);
    add_case(&one_channel, WEFT_RECV(full[0], &v), true);
    add_case(&one_channel, WEFT_RECV(full[0], &v), true);
    add_case(&one_channel, WEFT_RECV(full[1], &v), true);
    add_case(&mixed, WEFT_RECV(full[0], &v), true);
    add_case(&mixed, WEFT_SEND(full[0], &v), false);
    add_case(&mixed, WEFT_SEND(empty, &v), true);
    add_case(&mixed, WEFT_AT(0), true);
    add_case(&mixed, WEFT_RECV(closed, NULL), true);
    add_case(&mixed, WEFT_AT(WEFT_NEVER), false);
    add_case(&mixed, WEFT_SEND(closed, &v), true);
    for (int i = 0; i < MOST; i++)
        add_case(&sparse, i % 5 == 3 ? WEFT_RECV(full[i & 1], &v) : WEFT_RECV(i % 3 ? nobody : NULL, &v), i % 5 == 3);
    draw(&two);
    draw(&one_channel);
    draw(&mixed);
    draw(&sparse);
    free_all((weft_chan *[]){full[0], full[1], empty, nobody, closed}, 5);
}

CASE(each_ready_case_is_as_likely_as_the_others)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, fair_main, NULL), 0);
}

/* ---- what a case gives ------------------------------------------------------------------------------------------ */

static void only_main(void *arg)
{
    int v = 5, got = -1;
    weft_chan *a = ints(1), *b = ints(0);
    (void)arg;
    weft_case cases[] = {WEFT_RECV(b, &got), WEFT_SEND(a, &v), WEFT_AT(WEFT_NEVER)};
    for (int i = 0; i < 3; i++)
        cases[i].err = 77; /* is set only in the case that fired */
    CHECK_EQ(weft_select(cases, 3), 1);
    CHECK(cases[0].err == 77 && cases[1].err == 0 && cases[2].err == 77);
    CHECK_EQ(weft_try_select(cases, 3), -EAGAIN);
    CHECK_EQ(cases[1].err, 0);
    cases[1] = WEFT_RECV(a, &got);
    CHECK_EQ(weft_select(cases, 3), 1);
    CHECK_EQ(got, 5);
    CHECK_EQ(put(a, 6), 0);
    CHECK_EQ(weft_close(a), 0);
    CHECK_EQ(weft_select(cases, 3), 1);
    CHECK(cases[1].err == 0 && got == 6);
    CHECK_EQ(weft_try_select(cases, 3), 1);
    CHECK(cases[1].err == -EPIPE && got == 0);
    cases[1] = WEFT_SEND(a, &v);
    CHECK_EQ(weft_select(cases, 3), 1);
    CHECK(cases[0].err == 77 && cases[1].err == -EPIPE && cases[2].err == 77);
    cases[1] = WEFT_RECV(a, NULL);
    CHECK_EQ(weft_select(cases, 3), 1);
    CHECK_EQ(cases[1].err, -EPIPE);
    cases[2] = WEFT_AT(-1);
    cases[2].err = 77;
    cases[1].chan = NULL;
    CHECK_EQ(weft_select(cases, 3), 2);
    CHECK_EQ(cases[2].err, 0);
    free_all((weft_chan *[]){a, b}, 2);
}

CASE(the_case_that_fired_tells_what_happened)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, only_main, NULL), 0);
}

struct waiting {
    weft_case cases[8];
    int n, fired;
    _Atomic int about_to;
    weft_wg ended;
};

static void wait_in_select(void *arg)
{
    struct waiting *w = arg;
    w->about_to++;
    w->fired = weft_select(w->cases, w->n);
    weft_wg_done(&w->ended);
}

static void start_waiting(struct waiting *w)
{
    w->ended = (weft_wg){0};
    w->about_to = 0;
    w->fired = INT_MIN;
    weft_wg_add(&w->ended, 1);
    CHECK_EQ(weft_go(wait_in_select, w), 0);
    let_wait(&w->about_to, 1);
}

/* Whichever ends the wait, the others are left alone. */
static void end_one(int which, int close)
{
    weft_chan *ch[4] = {ints(0), ints(3), ints(0), ints(1)};
    int got[2] = {-1, -1}, out[2] = {70, 71};
    CHECK_EQ(put(ch[3], 9), 0);
    struct waiting w = {.n = 5};
    w.cases[0] = WEFT_RECV(ch[0], &got[0]);
    w.cases[1] = WEFT_RECV(ch[1], &got[1]);
    w.cases[2] = WEFT_SEND(ch[2], &out[0]);
    w.cases[3] = WEFT_SEND(ch[3], &out[1]);
    w.cases[4] = WEFT_AT(weft_now() + 3600 * WEFT_SEC);
    start_waiting(&w);
    if (close)
        CHECK_EQ(weft_close(ch[which]), 0);
    else if (which < 2)
        CHECK_EQ(put(ch[which], 40 + which), 0);
    else
        CHECK_EQ(take(ch[which]), which == 2 ? 70 : 9);
    CHECK_EQ(weft_wg_wait(&w.ended), 0);
    CHECK_EQ(w.fired, which);
    CHECK_EQ(w.cases[which].err, close ? -EPIPE : 0);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(got[i], i != which ? -1 : close ? 0 : 40 + i);
    CHECK_EQ(weft_len(ch[1]), 0);
    CHECK_EQ(try_take(ch[3]), which != 3 || close ? 9 : 71);
    for (int i = 0; i < 4; i += 2)
        if (!close || i != which) {
            CHECK_EQ(try_put(ch[i], 1), -EAGAIN);
            CHECK_EQ(try_take(ch[i]), -EAGAIN);
        }
    free_all(ch, 4);
}

static void ends_main(void *arg)
{
    (void)arg;
    for (int which = 0; which < 4; which++)
        for (int close = 0; close < 2; close++)
            end_one(which, close);
}

CASE(one_case_ends_the_wait_and_the_others_have_had_no_effect)
{
    CHECK_EQ(run_alone(ends_main, NULL), 0);
    EACH_PROCS(p) CHECK_EQ(run_on(p, ends_main, NULL), 0);
}

/* ---- cases that are never ready --------------------------------------------------------------------------------- */

static struct waiting never[] = {
    {.n = 0},
    {.n = 1, .cases = {{.op = WEFT_OP_SEND}}},
    {.n = 1, .cases = {{.op = WEFT_OP_RECV}}},
    {.n = 3, .cases = {{.op = WEFT_OP_RECV}, {.op = 9}, {.op = WEFT_OP_SEND}}},
    {.n = 1, .cases = {{.op = WEFT_OP_AT, .at = WEFT_NEVER}}},
    {.n = 2, .cases = {{.op = WEFT_OP_RECV}, {.op = WEFT_OP_AT, .at = WEFT_NEVER}}},
};
enum { NEVER_COUNT = sizeof never / sizeof never[0] };

static int select_of(void *arg)
{
    struct waiting *w = arg;
    return weft_select(w->cases, w->n);
}

static void never_main(void *arg)
{
    (void)arg;
    for (int i = 0; i < NEVER_COUNT; i++) {
        CHECK_EQ(weft_try_select(never[i].cases, never[i].n), -EAGAIN);
        is_cut(select_of, &never[i]);
    }
    CHECK_EQ(weft_try_select(NULL, 0), -EAGAIN);
}

CASE(a_select_of_nothing_waits_for_its_scope)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, never_main, NULL), 0);
}

static void call_select_of(void *arg)
{
    select_of(arg);
}

static void deadlocks(void)
{
    for (int i = 0; i < NEVER_COUNT; i++)
        EACH_PROCS(p) CHECK_EQ(run_on(p, call_select_of, &never[i]), -EDEADLK);
}

CASE(a_select_of_nothing_is_a_deadlock)
{
    char text[1 << 16];
    CHECK(child_is_well(deadlocks, text, sizeof text));
    CHECK(strstr(text, "deadlock") != NULL);
}

/* ---- how many cases --------------------------------------------------------------------------------------------- */

static void put_into(void *arg)
{
    CHECK_EQ(put(arg, 8), 0);
}

/* Of n cases on so many channels the one that is ready, or becomes so while we wait, is the one that fires. */
static void find_among(int n, int channels)
{
    weft_chan **ch = calloc((size_t)channels, sizeof *ch);
    weft_case *cases = calloc((size_t)n, sizeof *cases);
    int got = -1, picks[] = {0, channels / 2, channels - 1};
    for (int i = 0; i < channels; i++)
        ch[i] = ints(1);
    for (int i = 0; i < n; i++)
        cases[i] = WEFT_RECV(ch[i % channels], &got);
    for (int i = 0; i < 6; i++) {
        weft_chan *picked = ch[picks[i % 3]];
        if (i < 3)
            CHECK_EQ(put(picked, 8), 0);
        else
            CHECK_EQ(weft_go(put_into, picked), 0);
        int at = weft_select(cases, n);
        CHECK_EQ(at % channels, picks[i % 3]);
        CHECK_EQ(cases[at].err, 0);
        CHECK_EQ(got, 8);
        got = -1;
        CHECK_EQ(weft_try_select(cases, n), -EAGAIN);
    }
    CHECK(others_have_ended());
    free_all(ch, channels);
    free(ch);
    free(cases);
}

static void sizes_main(void *arg)
{
    static const int sizes[][2] = {{1, 1},     {2, 2},     {3, 1},       {63, 63},     {64, 64},
                                   {65, 65},   {65, 2},    {128, 100},   {1000, 1000}, {1000, 7},
                                   {4097, 99}, {65536, 1}, {65536, 100}, {65535, 999}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i][0] <= *(int *)arg)
            find_among(sizes[i][0], sizes[i][1]);
}

CASE(a_select_of_many_cases_finds_the_one)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, sizes_main, &(int){p == 2 || check_scale() == 1 ? 65536 : 1000}), 0);
}

static void refused_main(void *arg)
{
    weft_case *cases = calloc(65537, sizeof *cases);
    (void)arg;
    static const int sizes[] = {-1, INT_MIN, 65537, INT_MAX};
    for (int i = 0; i < 65537; i++)
        cases[i] = WEFT_AT(0);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(weft_select(cases, sizes[i]), -EINVAL);
        CHECK_EQ(weft_try_select(cases, sizes[i]), -EINVAL);
    }
    CHECK(weft_select(cases, 65536) >= 0);
    free(cases);
}

CASE(fewer_than_none_and_too_many_cases_are_refused)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, refused_main, NULL), 0);
}

/* ---- no memory is asked for ------------------------------------------------------------------------------------- */

static _Atomic long allocations;

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !__has_feature(thread_sanitizer) && \
    !__has_feature(address_sanitizer)
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);

/* In place of libc's, for the whole program. */
void *malloc(size_t size)
{
    allocations++;
    return __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    allocations++;
    return __libc_calloc(n, size);
}

static const bool COUNTED = true;
#else
static const bool COUNTED = false;
#endif

struct asked {
    weft_chan *ch[64], *go;
    int got;
};

static void send_when_asked(void *arg)
{
    struct asked *a = arg;
    for (int at; (at = take(a->go)) >= 0;)
        CHECK_EQ(put(a->ch[at], at), 0);
}

static void heap_main(void *arg)
{
    struct asked a = {.go = ints(1)};
    weft_case cases[64];
    (void)arg;
    for (int i = 0; i < 64; i++)
        a.ch[i] = ints(0);
    CHECK_EQ(weft_go(send_when_asked, &a), 0);
    for (int i = 0; i < 64; i++)
        cases[i] = i == 63 ? WEFT_AT(weft_now() + 3600 * WEFT_SEC) : WEFT_RECV(a.ch[i], &a.got);
    long before = allocations;
    CHECK(!COUNTED || before > 0);
    for (int i = 0; i < 1000; i++) {
        CHECK_EQ(put(a.go, i % 63), 0);
        CHECK_EQ(weft_select(cases, 64), i % 63);
        CHECK_EQ(a.got, i % 63);
    }
    long more = allocations - before;
    if (more >= 100) /* a few may be somebody else's: a thread is started */
        check_fail(__FILE__, __LINE__, "1000 selects asked for memory %ld times", more);
    CHECK_EQ(weft_close(a.go), 0);
    CHECK(others_have_ended());
    free_all(a.ch, 64);
    weft_chan_free(a.go);
}

CASE(a_select_of_64_cases_waits_without_the_heap)
{
    if (!COUNTED)
        skipped("a sanitizer has a malloc of its own");
    CHECK_EQ(run_alone(heap_main, NULL), 0);
    EACH_PROCS(p) CHECK_EQ(run_on(p, heap_main, NULL), 0);
}

/* ---- times ------------------------------------------------------------------------------------------------------ */

static void times_main(void *arg)
{
    weft_chan *ch = ints(0);
    int v = 1;
    (void)arg;
    static const int64_t past[] = {INT64_MIN, -1, 0, 1};
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(weft_select((weft_case[]){WEFT_AT(past[i])}, 1), 0);
        CHECK_EQ(weft_try_select((weft_case[]){WEFT_RECV(ch, &v), WEFT_AT(past[i])}, 2), 1);
    }
    CHECK_EQ(weft_try_select((weft_case[]){WEFT_AT(weft_now() + 3600 * WEFT_SEC)}, 1), -EAGAIN);
    for (int i = 0; i < 20; i++) {
        int64_t soon = weft_now() + i * 100 * WEFT_USEC, late = weft_now() + 3600 * WEFT_SEC;
        weft_case cases[] = {WEFT_AT(late), WEFT_RECV(ch, &v), WEFT_AT(soon), WEFT_SEND(ch, &v), WEFT_AT(WEFT_NEVER)};
        CHECK_EQ(i % 4 == 0 ? weft_select(&cases[2], 1) : weft_select(cases, 5), i % 4 == 0 ? 0 : 2);
        CHECK(weft_now() >= soon);
        CHECK_EQ(cases[2].err, 0);
        CHECK_EQ(try_put(ch, 1), -EAGAIN); /* it waits no longer */
        CHECK_EQ(try_take(ch), -EAGAIN);
    }
    weft_chan_free(ch);
}

CASE(a_time_is_a_case_that_never_comes_early)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, times_main, NULL), 0);
}

/* ---- both sides ------------------------------------------------------------------------------------------------- */

static void both_main(void *arg)
{
    (void)arg;
    for (int capacity = 0; capacity < 4; capacity++) {
        weft_chan *ch = ints((size_t)capacity);
        int v = 3, got = -1;
        struct waiting w = {.n = 4};
        w.cases[0] = w.cases[3] = WEFT_SEND(ch, &v);
        w.cases[1] = w.cases[2] = WEFT_RECV(ch, &got);
        for (int i = 0, len = 0; i < 200 && capacity > 0; i++, len = (int)weft_len(ch)) {
            int at = i % 2 ? weft_select(w.cases, 4) : weft_try_select(w.cases, 4);
            bool sent = at == 0 || at == 3;
            CHECK(sent ? len < capacity : len > 0);
            CHECK_EQ(weft_len(ch), sent ? len + 1 : len - 1);
        }
        if (capacity == 0) { /* nobody meets himself */
            CHECK_EQ(weft_try_select(w.cases, 4), -EAGAIN);
            is_cut(select_of, &w);
            CHECK_EQ(try_put(ch, 1), -EAGAIN);
            CHECK_EQ(try_take(ch), -EAGAIN);
        }
        weft_chan_free(ch);
    }
}

CASE(a_channel_may_stand_for_sending_and_receiving_at_once)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, both_main, NULL), 0);
}

/* ---- in line, cut, and from foreign threads --------------------------------------------------------------------- */

static bool selects_wait_in_line(void *arg)
{
    weft_chan *ch = ints(0);
    struct waiting w[5] = {{.n = 0}};
    int got[5];
    bool in_line = true;
    (void)arg;
    for (int i = 0; i < 5; i++) {
        w[i].n = i % 2 ? 1 : 2;
        w[i].cases[0] = WEFT_RECV(ch, &got[i]);
        w[i].cases[1] = WEFT_AT(WEFT_NEVER);
        start_waiting(&w[i]);
    }
    for (int i = 0; i < 5; i++)
        CHECK_EQ(put(ch, i), 0);
    for (int i = 0; i < 5; i++) {
        CHECK_EQ(weft_wg_wait(&w[i].ended), 0);
        in_line &= got[i] == i;
    }
    weft_chan_free(ch);
    return in_line;
}

static void line_main(void *arg)
{
    CHECK(comes_true(selects_wait_in_line, arg));
}

CASE(a_select_takes_its_turn)
{
    CHECK_EQ(run_alone(line_main, NULL), 0);
    EACH_PROCS(p) CHECK_EQ(run_on(p, line_main, NULL), 0);
}

static void cut_main(void *arg)
{
    weft_chan *ch[4];
    int v = 1, got = 42;
    struct waiting w = {.n = 8};
    (void)arg;
    for (int i = 0; i < 4; i++) {
        ch[i] = ints(0);
        w.cases[i] = WEFT_RECV(ch[i], &got);
        w.cases[7 - i] = WEFT_SEND(ch[i], &v);
        w.cases[i].err = w.cases[7 - i].err = 77;
    }
    for (int i = 0; i < scaled(200); i++)
        CHECK_EQ(when_cancelled(select_of, &w), -ECANCELED);
    is_cut(select_of, &w);
    CHECK_EQ(got, 42);
    for (int i = 0; i < 4; i++) {
        CHECK(w.cases[i].err == 77 && w.cases[7 - i].err == 77);
        CHECK_EQ(try_put(ch[i], 1), -EAGAIN);
        CHECK_EQ(try_take(ch[i]), -EAGAIN);
    }
    free_all(ch, 4);
}

CASE(a_select_that_was_cut_has_had_no_effect)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, cut_main, NULL), 0);
}

/* Each member passes on what it gets from either of two channels, until both are closed. */
struct relay {
    weft_chan *in[2], *out;
};

static void relay(void *arg, int number)
{
    struct relay *r = arg;
    int got;
    weft_case cases[] = {WEFT_RECV(r->in[0], &got), WEFT_AT(WEFT_NEVER), WEFT_RECV(r->in[1], &got)};
    CHECK_EQ(weft_try_select(cases + 1, 1), -EAGAIN);
    CHECK_EQ(weft_select((weft_case[]){WEFT_AT(weft_now() + number * WEFT_MSEC)}, 1), 0);
    for (int open = 2; open > 0;) {
        int at = weft_select(cases, 3);
        CHECK(at == 0 || at == 2);
        if (at < 0)
            break;
        if (cases[at].err == 0)
            CHECK_EQ(put(r->out, got), 0);
        else
            cases[at].chan = NULL, open--;
    }
}

static void relay_main(void *arg)
{
    struct relay r = {{ints(0), ints(3)}, ints(1)};
    struct crew crew = {.fn = relay, .arg = &r, .n = 4, .threads = *(int *)arg};
    int n = scaled(2000), sent = 0, got = 0, v;
    long sum = 0;
    crew_start(&crew);
    while (got < n) {
        weft_case cases[] = {WEFT_SEND(sent < n ? r.in[0] : NULL, &sent), WEFT_SEND(sent < n ? r.in[1] : NULL, &sent),
                             WEFT_RECV(r.out, &v)};
        if (weft_select(cases, 3) < 2)
            sent++;
        else
            sum += v, got++;
    }
    CHECK_EQ(sum, (long)n * (n - 1) / 2);
    CHECK_EQ(weft_close(r.in[0]) | weft_close(r.in[1]), 0);
    crew_wait(&crew);
    free_all((weft_chan *[]){r.in[0], r.in[1], r.out}, 3);
}

CASE(goroutines_and_foreign_threads_select)
{
    for (int threads = 0; threads <= 4; threads += 2)
        EACH_PROCS(p) CHECK_EQ(run_on(p, relay_main, &threads), 0);
}
