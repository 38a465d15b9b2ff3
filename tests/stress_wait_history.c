/* SPDX-License-Identifier: MIT */
/*
 * Histories: goroutines send, receive, try, select, close and are cut, at random. Each call is recorded with a stamp before
 * and one after it, from a counter that all share; then the history is held against what a channel is.
 *
 * Short ones, exactly. A call arrives at one moment between its stamps. If it can do something it does it then and is done; else
 * it gets in line, and is done when a later one that arrives serves it, first come first served, or closes. A search over
 * all orders of arrival that the stamps allow (Wing and Gong, with a memory of the states that led nowhere) finds one
 * that gives the results that were seen, or there is none, and the channel is wrong. A call that was cut has had no
 * effect: it never arrives.
 *
 * Long ones, by rules that hold for any two calls of which one ended before the other began.
 *
 * WEFT_TEST_OPS says how many operations there are in all; half of them go into either kind.
 */
#include "stress.h" /* first: chans.h looks for it */
#include "chans.h"

static _Atomic uint32_t clock_now;

static uint32_t stamp(void)
{
    return atomic_fetch_add(&clock_now, 1);
}

static int64_t operations(void)
{
    const char *text = getenv("WEFT_TEST_OPS");
    return (text != NULL ? atoll(text) : scaled(1000000)) / 2 / STRESS_PROCS_COUNT;
}

static void yield_some(uint32_t n)
{
    for (; n > 0; n--)
        weft_yield();
}

struct cancel {
    weft_scope *scope;
    uint32_t yields;
};

static void cancel(void *arg)
{
    struct cancel *c = arg;
    yield_some(c->yields);
    weft_scope_cancel(c->scope, -ECANCELED);
}

/* A scope that will be over some time, so that nobody waits in it for ever. */
static void open_scope(weft_scope *s, struct cancel *c, uint32_t r)
{
    bool timed = r % 4 == 0;
    *c = (struct cancel){s, r / 4 % 32};
    CHECK_EQ(weft_scope_open(s, timed ? weft_now() + r / 4 % 128 * WEFT_USEC : WEFT_NEVER), 0);
    int err = timed ? 0 : weft_scope_go(s, cancel, c);
    CHECK(err == 0 || was_cut(err)); /* the scope around it may be over */
}

/* ---- short histories: recording --------------------------------------------------------------------------------- */

enum { CHANS = 2, CASES = 3, OPS = 24, MAX_CAPACITY = 3, WORKERS = 4 };

enum kind { WAITS, TRIES, CLOSES };

/* The value that case k of operation i sends is i * CASES + k. */
struct op {
    enum kind kind;
    int n; /* cases; on[0] tells the channel of a close */
    struct {
        int ch;
        bool sends;
    } on[CASES];
    int fired;  /* the case, or -1 */
    int result; /* 0, -EPIPE, -EAGAIN, or why it was cut */
    int got;    /* by the case that fired, if it received */
    uint32_t start, end;
};

static struct history {
    weft_chan *ch[CHANS];
    int capacity[CHANS], n;
    struct op op[OPS];
    uint64_t seed;
    int each;        /* operations of a worker */
    int by_end[OPS]; /* in the order in which they ended */
    _Atomic int next_worker;
} history;

static void choose(struct op *op, uint64_t *rng)
{
    uint32_t r = check_random(rng);
    *op = (struct op){.kind = r % 32 == 0 ? CLOSES : r % 4 == 1 ? TRIES : WAITS, .n = 1, .fired = -1};
    if (op->kind != CLOSES && r / 32 % 3 == 0)
        op->n += (int)(r / 128 % CASES);
    for (int k = 0; k < op->n; k++) {
        op->on[k].ch = check_random(rng) % 4 == 0;
        op->on[k].sends = check_random(rng) % 2;
    }
}

/* A single case goes through the plain calls half of the time. */
static int call_one(struct op *op, weft_case *c)
{
    if (op->kind == TRIES)
        return c->op == WEFT_OP_SEND ? weft_try_send(c->chan, c->value) : weft_try_recv(c->chan, c->value);
    return c->op == WEFT_OP_SEND ? weft_send(c->chan, c->value) : weft_recv(c->chan, c->value);
}

static void call(struct op *op, bool plain)
{
    weft_case cases[CASES];
    int value[CASES], i = (int)(op - history.op);
    if (op->kind == CLOSES) {
        op->result = weft_close(history.ch[op->on[0].ch]);
        return;
    }
    for (int k = 0; k < op->n; k++) {
        weft_chan *ch = history.ch[op->on[k].ch];
        value[k] = op->on[k].sends ? i * CASES + k : -1;
        cases[k] = op->on[k].sends ? WEFT_SEND(ch, &value[k]) : WEFT_RECV(ch, &value[k]);
    }
    if (plain) {
        op->result = call_one(op, cases);
        op->fired = op->result == 0 || op->result == -EPIPE ? 0 : -1;
    } else {
        op->fired = op->kind == TRIES ? weft_try_select(cases, op->n) : weft_select(cases, op->n);
        op->result = op->fired < 0 ? op->fired : cases[op->fired].err;
    }
    op->got = op->fired >= 0 ? value[op->fired] : -1;
}

static void work(void *arg)
{
    (void)arg;
    int me = history.next_worker++;
    uint64_t rng = stress_stream(history.seed, (uint64_t)me);
    for (int i = 0; i < history.each; i++) {
        struct op *op = &history.op[me * history.each + i];
        weft_scope s;
        struct cancel c;
        choose(op, &rng);
        bool scoped = check_random(&rng) % 8 == 0, plain = op->n == 1 && check_random(&rng) % 2;
        if (scoped)
            open_scope(&s, &c, check_random(&rng));
        op->start = stamp();
        call(op, plain);
        op->end = stamp();
        if (scoped)
            weft_scope_close(&s);
        if (check_random(&rng) % 4 == 0)
            weft_yield();
    }
}

static void record(uint64_t number)
{
    uint64_t rng = stress_stream(seed, number);
    int workers = 2 + (int)(check_random(&rng) % (WORKERS - 1));
    weft_scope s;
    struct cancel c = {&s, check_random(&rng) % 100};
    history.seed = rng;
    history.next_worker = 0;
    history.each = OPS / workers - (int)(check_random(&rng) % 4);
    history.n = history.each * workers;
    for (int i = 0; i < CHANS; i++) {
        history.capacity[i] = (int)(check_random(&rng) % (MAX_CAPACITY + 1));
        history.ch[i] = ints((size_t)history.capacity[i]);
    }
    clock_now = 0;
    CHECK_EQ(weft_scope_open(&s, WEFT_NEVER), 0);
    for (int i = 0; i < workers; i++)
        CHECK_EQ(weft_scope_go(&s, work, NULL), 0);
    CHECK_EQ(weft_scope_go(&s, cancel, &c), 0);
    CHECK_EQ(weft_scope_close(&s), -ECANCELED);
    free_all(history.ch, CHANS);
}

/* ---- short histories: the search -------------------------------------------------------------------------------- */

/* Sets of operations are bits. All bytes count in the hash: the padding is zero. */
struct state {
    uint32_t arrived, done;
    uint8_t closed[CHANS], len[CHANS], buffer[CHANS][MAX_CAPACITY];
    uint8_t waiting, line[OPS]; /* arrived but not done, in turn */
};

enum { MEMORY = 1 << 12 };
static uint64_t dead_ends[MEMORY];
static int dead_end_count, searches_given_up;

/* true: it is new. */
static bool remember(const struct state *s)
{
    uint64_t h = 0xcbf29ce484222325u;
    const uint8_t *bytes = (const uint8_t *)s;
    for (size_t i = 0; i < sizeof *s; i++)
        h = (h ^ bytes[i]) * 0x100000001b3u;
    h ^= h >> 32;
    h = h != 0 ? h : 1;
    for (uint64_t i = h;; i++) {
        if (dead_ends[i % MEMORY] == h)
            return false;
        if (dead_ends[i % MEMORY] == 0) {
            dead_ends[i % MEMORY] = h;
            dead_end_count++;
            return true;
        }
    }
}

static void finish(struct state *s, int i)
{
    s->done |= 1u << i;
    int at = 0;
    while (at < s->waiting && s->line[at] != i)
        at++;
    if (at == s->waiting)
        return;
    memmove(&s->line[at], &s->line[at + 1], (size_t)(s->waiting - at - 1));
    s->line[--s->waiting] = 0;
}

/* The first in line who would send to or receive from ch, or -1. */
static int first_in_line(const struct state *s, int ch, bool sends)
{
    for (int at = 0; at < s->waiting; at++) {
        const struct op *op = &history.op[s->line[at]];
        for (int k = 0; k < op->n; k++)
            if (op->on[k].ch == ch && op->on[k].sends == sends)
                return s->line[at];
    }
    return -1;
}

/* Is that what the one in line says happened to it? */
static bool fired_as(const struct op *op, int ch, bool sends, int result)
{
    return op->fired >= 0 && op->on[op->fired].ch == ch && op->on[op->fired].sends == sends && op->result == result;
}

static int sent_by(int i)
{
    return i * CASES + history.op[i].fired;
}

static bool is_ready(const struct state *s, int ch, bool sends)
{
    if (s->closed[ch])
        return true;
    return sends ? s->len[ch] < history.capacity[ch] || first_in_line(s, ch, false) >= 0
                 : s->len[ch] > 0 || first_in_line(s, ch, true) >= 0;
}

static bool do_send(struct state *s, int i, int ch)
{
    const struct op *op = &history.op[i];
    if (s->closed[ch])
        return op->result == -EPIPE;
    if (op->result != 0)
        return false;
    int other = first_in_line(s, ch, false);
    if (other < 0) {
        s->buffer[ch][s->len[ch]++] = (uint8_t)sent_by(i);
        return true;
    }
    finish(s, other);
    return fired_as(&history.op[other], ch, false, 0) && history.op[other].got == sent_by(i);
}

static bool do_receive(struct state *s, int i, int ch)
{
    const struct op *op = &history.op[i];
    int other = s->closed[ch] ? -1 : first_in_line(s, ch, true), value;
    if (other >= 0 && !fired_as(&history.op[other], ch, true, 0))
        return false;
    if (other >= 0)
        finish(s, other);
    if (s->len[ch] == 0 && other < 0)
        return op->result == -EPIPE && op->got == 0; /* closed */
    if (s->len[ch] == 0)
        return op->result == 0 && op->got == sent_by(other);
    value = s->buffer[ch][0];
    memmove(&s->buffer[ch][0], &s->buffer[ch][1], MAX_CAPACITY - 1);
    s->buffer[ch][--s->len[ch]] = 0;
    if (other >= 0)
        s->buffer[ch][s->len[ch]++] = (uint8_t)sent_by(other);
    return op->result == 0 && op->got == value;
}

/* Who waits elsewhere too may be served there as long as the close is under way. */
static bool do_close(struct state *s, int i, int ch)
{
    int result = s->closed[ch] ? -EPIPE : 0;
    s->closed[ch] = true;
    for (int at = 0; at < s->waiting;) {
        const struct op *op = &history.op[s->line[at]];
        if (fired_as(op, ch, true, -EPIPE) || (fired_as(op, ch, false, -EPIPE) && op->got == 0))
            finish(s, s->line[at]);
        else
            at++;
    }
    return history.op[i].result == result;
}

/* false: what was seen of it cannot be, if it arrives now. */
static bool arrive(struct state *s, int i)
{
    const struct op *op = &history.op[i];
    bool ready = false;
    s->arrived |= 1u << i;
    if (op->kind == CLOSES) {
        finish(s, i);
        return do_close(s, i, op->on[0].ch);
    }
    for (int k = 0; k < op->n; k++)
        ready |= is_ready(s, op->on[k].ch, op->on[k].sends);
    if (!ready && op->kind == WAITS) {
        s->line[s->waiting++] = (uint8_t)i;
        return true;
    }
    finish(s, i);
    if (!ready)
        return op->result == -EAGAIN;
    if (op->fired < 0)
        return false;
    int ch = op->on[op->fired].ch;
    bool sends = op->on[op->fired].sends;
    return is_ready(s, ch, sends) && (sends ? do_send(s, i, ch) : do_receive(s, i, ch));
}

static bool can_be(const struct state *s)
{
    uint32_t all = (uint32_t)((1ull << history.n) - 1), limit = UINT32_MAX;
    if (s->done == all)
        return true;
    for (int i = 0; i < history.n; i++)
        if (!(s->done >> i & 1) && history.op[i].end < limit)
            limit = history.op[i].end; /* it must be done before anybody arrives who began later */
    for (int k = 0; k < history.n; k++) {
        int i = history.by_end[k];
        struct state next = *s;
        if (s->arrived >> i & 1 || history.op[i].start > limit || !arrive(&next, i) || !remember(&next))
            continue;
        if (dead_end_count > MEMORY / 2 || can_be(&next))
            return true;
    }
    return false;
}

static void show_history(uint64_t number)
{
    static const char *const names[] = {"waits", "tries", "closes"};
    fprintf(stderr, "# history %llu; capacities %d and %d\n", (unsigned long long)number, history.capacity[0],
            history.capacity[1]);
    for (int i = 0; i < history.n; i++) {
        const struct op *op = &history.op[i];
        fprintf(stderr, "# %3u to %3u: op %2d by %d %s", op->start, op->end, i, i / history.each, names[op->kind]);
        for (int k = 0; k < op->n; k++)
            fprintf(stderr, " %s%c", op->kind == CLOSES ? "" : op->on[k].sends ? "->" : "<-", 'a' + op->on[k].ch);
        fprintf(stderr, ": case %d gives %d, value %d\n", op->fired, op->result, op->got);
    }
}

static int by_end(const void *a, const void *b)
{
    return history.op[*(const int *)a].end < history.op[*(const int *)b].end ? -1 : 1;
}

static void check_history(uint64_t number)
{
    struct state s;
    for (int i = 0; i < history.n; i++)
        history.by_end[i] = i;
    qsort(history.by_end, (size_t)history.n, sizeof(int), by_end);
    memset(&s, 0, sizeof s);
    memset(dead_ends, 0, sizeof dead_ends);
    dead_end_count = 0;
    for (int i = 0; i < history.n; i++)
        if (was_cut(history.op[i].result))
            s.arrived |= 1u << i, s.done |= 1u << i;
    if (!can_be(&s)) {
        check_fail(__FILE__, __LINE__, "no order of arrival explains history %llu", (unsigned long long)number);
        show_history(number);
    }
    searches_given_up += dead_end_count > MEMORY / 2;
}

static void short_main(void *arg)
{
    static uint64_t number;
    (void)arg;
    for (int64_t done = 0; done < operations(); done += history.n) {
        record(++number);
        check_history(number);
    }
}

CASE(short_histories_are_those_of_channels)
{
    searches_given_up = 0;
    on_each_procs(short_main, NULL);
    if (searches_given_up > 0)
        printf("# %d searches were given up\n", searches_given_up);
}

/* ---- long histories: recording ---------------------------------------------------------------------------------- */

enum { CREW = 12, EACH = 2000, LONG = CREW * EACH, DRAIN = 256, AT_ONCE = 16 };

/* The value that a record sends is its index. */
struct record {
    bool sends, tries;
    int result;
    int got;   /* the index of the record whose value it received */
    int taken; /* by the record with this index, or -1 */
    uint32_t start, end;
};

static struct {
    weft_chan *ch;
    int capacity, each, n; /* n: with those that drained it in the end */
    struct record record[LONG + DRAIN];
    uint64_t seed;
    uint32_t close_start, close_end;
} log_;

static int perform(struct record *r)
{
    int value = (int)(r - log_.record);
    r->start = stamp();
    if (r->sends)
        r->result = r->tries ? weft_try_send(log_.ch, &value) : weft_send(log_.ch, &value);
    else
        r->result = r->tries ? weft_try_recv(log_.ch, &value) : weft_recv(log_.ch, &value);
    r->end = stamp();
    r->got = value;
    r->taken = -1;
    return r->result;
}

/* A few operations in a scope, until it is over. */
static void log_some(void *arg, int me)
{
    uint64_t rng = stress_stream(log_.seed, (uint64_t)me);
    (void)arg;
    for (int i = 0; i < log_.each;) {
        weft_scope s;
        struct cancel c;
        open_scope(&s, &c, check_random(&rng));
        for (int k = 0, r = 0; k < AT_ONCE && i < log_.each && !was_cut(r); k++) {
            uint32_t x = check_random(&rng);
            log_.record[me * log_.each + i] = (struct record){.sends = x & 1, .tries = x / 2 % 4 == 0};
            r = perform(&log_.record[me * log_.each + i++]);
            if (x / 8 % 8 == 0)
                weft_yield();
        }
        weft_scope_close(&s);
    }
}

static void log_close(void)
{
    log_.close_start = stamp();
    CHECK_EQ(weft_close(log_.ch), 0);
    log_.close_end = stamp();
}

static void record_log(uint64_t number)
{
    static const int capacities[] = {0, 1, 2, 16, 128};
    struct crew crew = {.fn = log_some, .n = CREW};
    log_.seed = stress_stream(seed, number);
    log_.capacity = capacities[number % 5];
    log_.ch = ints((size_t)log_.capacity);
    log_.each = scaled(EACH);
    log_.n = CREW * log_.each;
    clock_now = 0;
    bool early = number % 4 == 0;
    crew_start(&crew);
    if (early) { /* under way */
        yield_some((uint32_t)(log_.seed % 500));
        log_close();
    }
    crew_wait(&crew);
    if (!early)
        log_close();
    do
        log_.record[log_.n] = (struct record){.sends = false};
    while (perform(&log_.record[log_.n++]) == 0 && log_.n < LONG + DRAIN);
    weft_chan_free(log_.ch);
}

/* ---- long histories: the rules ---------------------------------------------------------------------------------- */

/* Of the receives [0] and sends [1] that succeeded: how many had begun [0] or ended [1] before each moment. */
enum { MOMENTS = 2 * (LONG + DRAIN) + 2 };
static int count[2][2][MOMENTS + 1];

static void broken(const char *rule, const struct record *r)
{
    check_fail(__FILE__, __LINE__, "%s: record %d of a channel of %d, %s%s from %u to %u, gives %d and %d", rule,
               (int)(r - log_.record), log_.capacity, r->tries ? "try " : "", r->sends ? "send" : "receive", r->start,
               r->end, r->result, r->got);
}

static void count_all(void)
{
    memset(count, 0, sizeof count);
    for (const struct record *r = log_.record; r < log_.record + log_.n; r++)
        if (r->result == 0) {
            count[r->sends][0][r->start + 1]++;
            count[r->sends][1][r->end + 1]++;
        }
    for (int i = 0; i < 4; i++)
        for (int t = 0; t < MOMENTS; t++)
            count[i / 2][i % 2][t + 1] += count[i / 2][i % 2][t];
}

/* What is received was sent, once, not later, and by one who was there. */
static void check_pairs(void)
{
    for (struct record *r = log_.record; r < log_.record + log_.n; r++) {
        if (r->sends || r->result != 0)
            continue;
        bool known = r->got >= 0 && r->got < log_.n;
        struct record *from = &log_.record[known ? r->got : 0];
        if (!known || !from->sends || from->result != 0)
            broken("what nobody sent", r);
        else if (from->taken >= 0)
            broken("received twice", r);
        else if (from->start > r->end)
            broken("received before it was sent", r);
        else if (log_.capacity == 0 && from->end < r->start)
            broken("handed over to nobody", r);
        else
            from->taken = (int)(r - log_.record);
    }
    for (struct record *r = log_.record; r < log_.record + log_.n; r++)
        if (r->sends && r->result == 0 && r->taken < 0)
            broken("lost", r);
}

/* What a call says about the channel was so at some moment between its stamps. */
static void check_call(const struct record *r)
{
    bool never_empty = count[1][1][r->start] > count[0][0][r->end];
    bool never_full = count[1][0][r->end] - count[0][1][r->start] < log_.capacity;
    if (r->result == -EAGAIN && (!r->tries || (r->sends ? never_full : never_empty) || r->start > log_.close_end))
        broken("would wait, but need not", r);
    if (r->result == -EPIPE && (r->end < log_.close_start || (!r->sends && (never_empty || r->got != 0))))
        broken("closed, but not yet", r);
    if (r->result == 0 && r->sends && r->start > log_.close_end)
        broken("sent to a closed channel", r);
    if (r->result != 0 && r->result != -EAGAIN && r->result != -EPIPE && (!was_cut(r->result) || r->tries))
        broken("no such result", r);
}

/* If one was sent before the other, it is not received after it. */
static void check_order(void)
{
    static const struct record *begun_or_ended[MOMENTS];
    uint32_t latest = 0; /* start of a receive, of all that had been sent */
    memset(begun_or_ended, 0, sizeof begun_or_ended);
    for (const struct record *r = log_.record; r < log_.record + log_.n; r++)
        if (r->sends && r->taken >= 0)
            begun_or_ended[r->start] = begun_or_ended[r->end] = r;
    for (uint32_t t = 0; t < MOMENTS; t++) {
        const struct record *r = begun_or_ended[t];
        if (r == NULL)
            continue;
        const struct record *to = &log_.record[r->taken];
        if (t == r->start && to->end < latest)
            broken("received before one that was sent before", r);
        if (t == r->end && to->start > latest)
            latest = to->start;
    }
}

static void long_main(void *arg)
{
    static uint64_t number;
    (void)arg;
    for (int64_t done = 0; done < operations(); done += log_.n) {
        record_log(++number);
        count_all();
        check_pairs();
        for (const struct record *r = log_.record; r < log_.record + log_.n; r++)
            check_call(r);
        check_order();
    }
}

CASE(long_histories_keep_the_rules_of_channels)
{
    on_each_procs(long_main, NULL);
}
