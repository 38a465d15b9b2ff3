/* SPDX-License-Identifier: MIT */
/*
 * Everything at once while goroutines are stopped anywhere: channels, locks, selects, timers, scopes that are cut, memory,
 * sums over registers and stack, priorities that change at random, with quanta that are much shorter than what is computed.
 * Every result is checked; in the end nothing is lost, and many were stopped.
 */
#include "runs.h"
#include "stress.h"
#include <math.h>

enum { WORKERS = 48, STEPS = 120, TOKENS = 6, TABLE = 512 };

static struct {
    weft_wg ended;
    weft_mutex mu;
    uint64_t guarded[8]; /* mu: always the same in all */
    uint64_t locked;     /* mu */
    weft_rwmutex rw;
    uint64_t written[4]; /* rw: always the same in all */
    weft_chan *numbers, *sums, *tokens, *hand;
    _Atomic uint64_t sent, received, sent_sum, received_sum, lock_count, write_count;
    _Atomic uint64_t started, closed, steps;
} all;

static uint64_t seed;
static uint64_t expected_table[TABLE];

/* ---- computing -------------------------------------------------------------------------------------------------- */

/* Many values in registers at once. The same for the same argument. */
static __attribute__((noinline)) uint64_t mix_integers(uint64_t x, int n)
{
    uint64_t a = x, b = ~x, c = x * 3, d = x ^ 77, e = x + 5, f = x >> 3, g = x << 7, h = 1;
    for (int i = 0; i < n; i++) {
        a = a * 0x9E3779B97F4A7C15ull + b;
        b = (b ^ a) >> 1 | c << 63;
        c += d * a;
        d = (d << 13 | d >> 51) ^ e;
        e += f ^ g;
        f = f * 31 + h;
        g ^= a >> 11;
        h += g ^ c;
    }
    return a ^ b ^ c ^ d ^ e ^ f ^ g ^ h;
}

static __attribute__((noinline)) double mix_floats(double x, int n)
{
    double a = x, b = x + 1, c = x / 3, d = 2;
    long double l = (long double)x;
    for (int i = 0; i < n; i++) {
        a = a * 0.75 + b * 0.125;
        b = b * 0.5 + c;
        c = (c + d) * 0.25;
        d = d * 0.875 + a * 0.0625;
        l = l * 0.5L + (long double)a;
    }
    return a + b + c + d + (double)l;
}

/* Deeper than a signal's frame. */
static __attribute__((noinline)) uint64_t mix_deep(uint64_t x, int depth)
{
    volatile uint64_t local[24];
    for (int i = 0; i < 24; i++)
        local[i] = x + (uint64_t)i;
    uint64_t below = depth > 0 ? mix_deep(x * 7 + 1, depth - 1) : mix_integers(x, 500);
    for (int i = 0; i < 24; i++)
        if (local[i] != x + (uint64_t)i)
            check_fail(__FILE__, __LINE__, "a stack was changed");
    return below + local[depth % 24];
}

static int length(void)
{
    return stress_scaled(20000);
}

static void compute(uint64_t *rng)
{
    uint32_t r = check_random(rng), at = r >> 8 & (TABLE - 1);
    CHECK_EQ(mix_integers(at, length()), expected_table[at]);
    double first = mix_floats((double)(r & 1023), length() / 2), again = mix_floats((double)(r & 1023), length() / 2);
    CHECK(memcmp(&first, &again, sizeof first) == 0);
    CHECK_EQ(mix_deep(r, 20), mix_deep(r, 20));
}

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* libc's own, with a callback of ours that must not be stopped. */
static void sort(uint64_t *rng)
{
    uint32_t n = 200 + check_random(rng) % 2000;
    uint32_t *values = malloc(n * sizeof *values);
    uint64_t before = 0, after = 0;
    for (uint32_t i = 0; i < n; i++)
        before += values[i] = check_random(rng);
    qsort(values, n, sizeof *values, compare);
    for (uint32_t i = 0; i < n; i++) {
        after += values[i];
        CHECK(i == 0 || values[i - 1] <= values[i]);
    }
    CHECK_EQ(before, after);
    free(values);
}

static void use_memory(uint64_t *rng)
{
    enum { PIECES = 40 };
    uint8_t *piece[PIECES];
    size_t size[PIECES];
    for (int i = 0; i < PIECES; i++) {
        size[i] = 1 + check_random(rng) % (i % 8 == 0 ? 40000 : 400);
        piece[i] = malloc(size[i]);
        memset(piece[i], i, size[i]);
    }
    for (int i = 0; i < PIECES; i++) {
        if (i % 3 == 0) {
            piece[i] = realloc(piece[i], size[i] * 2);
            memset(piece[i] + size[i], i, size[i]);
        }
        for (size_t k = 0; k < size[i]; k += 7)
            CHECK_EQ(piece[i][k], i);
        free(piece[i]);
    }
}

/* What it is stopped in keeps its errno, which libc sets in between; and its text. */
static void use_errno(uint64_t *rng)
{
    char text[64];
    uint32_t r = check_random(rng);
    for (int i = 0; i < 20; i++) {
        errno = 0;
        CHECK(close(-1) < 0);
        uint64_t sum = mix_integers(r & (TABLE - 1), 50);
        CHECK_EQ(errno, EBADF);
        int n = snprintf(text, sizeof text, "%llu", (unsigned long long)sum);
        CHECK(n > 0 && strtoull(text, NULL, 10) == sum);
    }
}

/* ---- waiting ---------------------------------------------------------------------------------------------------- */

static void lock_and_change(uint64_t *rng)
{
    if (weft_lock(&all.mu) != 0)
        return;
    uint64_t value = all.guarded[0] + check_random(rng);
    for (int i = 0; i < 8; i++) {
        CHECK_EQ(all.guarded[i], all.guarded[7]);
        if (i == 4)
            mix_integers(value, length() / 10);
    }
    for (int i = 0; i < 8; i++)
        all.guarded[i] = value;
    all.locked++;
    weft_unlock(&all.mu);
    all.lock_count++;
}

static void read_or_write(uint64_t *rng)
{
    if (check_random(rng) % 4 != 0) {
        if (weft_rdlock(&all.rw) != 0)
            return;
        uint64_t before = all.written[0];
        mix_integers(before, length() / 20);
        for (int i = 0; i < 4; i++)
            CHECK_EQ(all.written[i], before);
        weft_rdunlock(&all.rw);
    } else if (weft_wrlock(&all.rw) == 0) {
        for (int i = 0; i < 4; i++) {
            all.written[i]++;
            mix_integers(all.written[i], length() / 50);
        }
        weft_wrunlock(&all.rw);
        all.write_count++;
    }
}

static void sent(uint64_t v)
{
    all.sent++;
    all.sent_sum += v;
}

static void received(uint64_t v)
{
    all.received++;
    all.received_sum += v;
}

/* Sends if it can, else receives: nobody waits for ever. */
static void pass_values(uint64_t *rng)
{
    for (int i = 0; i < 10; i++) {
        uint64_t v = check_random(rng), got = 0;
        weft_case cases[] = {WEFT_SEND(all.numbers, &v), WEFT_RECV(all.numbers, &got),
                             WEFT_AT(weft_now() + 300 * WEFT_USEC), WEFT_RECV(all.hand, &got), WEFT_SEND(all.hand, &v)};
        switch (weft_select(cases, 5)) {
        case 0:
        case 4:
            sent(v);
            break;
        case 1:
        case 3:
            received(got);
            break;
        default:
            break;
        }
        mix_integers(v, 200);
    }
}

static void use_token(uint64_t *rng)
{
    int token;
    if (weft_recv(all.tokens, &token) != 0)
        return;
    CHECK(token >= 0 && token < TOKENS);
    mix_integers(check_random(rng), length() / 10);
    CHECK_EQ(weft_send(all.tokens, &token), 0); /* there is room: no wait */
}

static void nap(uint64_t *rng)
{
    int64_t ns = check_random(rng) % 300 * WEFT_USEC, began = weft_now();
    if (weft_sleep(ns) == 0)
        CHECK(weft_now() >= began + ns);
}

static void change_priority(uint64_t *rng)
{
    int p = (int)(check_random(rng) % 3) - 1;
    CHECK_EQ(weft_set_priority(p), 0);
    mix_integers(1, length() / 10);
    CHECK_EQ(weft_get_priority(), p);
}

static void stay_for_a_while(uint64_t *rng)
{
    weft_preempt_off();
    uint64_t at = check_random(rng) & (TABLE - 1);
    pid_t tid = gettid();
    uint64_t sum = mix_integers(at, length());
    CHECK_EQ(gettid(), tid);
    CHECK_EQ(sum, expected_table[at]);
    weft_preempt_on();
}

/* ---- scopes ------------------------------------------------------------------------------------------------------ */

struct member {
    uint64_t rng;
    weft_scope *scope;
    _Atomic int *ended;
};

static void member(void *arg)
{
    struct member m = *(struct member *)arg;
    uint32_t r = check_random(&m.rng);
    int e = 0;
    if (r % 4 == 0)
        weft_scope_cancel(m.scope, -EIO);
    else if (r % 4 == 1)
        e = weft_recv(NULL, NULL); /* until somebody cancels, or the deadline */
    else if (r % 4 == 2)
        e = weft_sleep(check_random(&m.rng) % 2000 * WEFT_USEC);
    else
        while (weft_cancelled() == 0)
            mix_integers(r, length() / 20);
    CHECK(e == 0 || e == -EIO || e == -ETIMEDOUT || e == -ECANCELED);
    ++*m.ended;
}

static void open_scope(uint64_t *rng)
{
    weft_scope scope;
    _Atomic int ended = 0;
    int started = 0, n = 1 + (int)(check_random(rng) % 4);
    struct member members[4];
    int e = weft_scope_open(&scope, weft_now() + 2 * WEFT_MSEC);
    CHECK_EQ(e, 0);
    for (int i = 0; i < n; i++) {
        members[i] = (struct member){stress_stream(*rng, (uint64_t)i), &scope, &ended};
        started += weft_scope_go(&scope, member, &members[i]) == 0;
    }
    e = weft_scope_close(&scope);
    CHECK(e == 0 || e == -EIO || e == -ETIMEDOUT);
    CHECK_EQ(ended, started);
    all.started += (uint64_t)started;
    all.closed += (uint64_t)ended;
}

static void wait_for_children(uint64_t *rng);

/* ---- all together ------------------------------------------------------------------------------------------------ */

typedef void step_fn(uint64_t *rng);
static step_fn *const STEP[] = {
    compute,
    sort,
    use_memory,
    use_errno,
    lock_and_change,
    read_or_write,
    pass_values,
    use_token,
    nap,
    open_scope,
    compute,
    change_priority,
    compute,
    stay_for_a_while,
    pass_values,
    lock_and_change,
    use_memory,
    compute,
    read_or_write,
    wait_for_children,
    compute,
};
enum { STEP_COUNT = sizeof STEP / sizeof STEP[0] };

struct child {
    uint64_t rng;
    weft_wg *wg;
};

static void child(void *arg)
{
    struct child *c = arg;
    compute(&c->rng);
    use_memory(&c->rng);
    weft_wg_done(c->wg);
}

static void wait_for_children(uint64_t *rng)
{
    weft_wg wg = {0};
    weft_wg_add(&wg, 3);
    for (uint64_t i = 0; i < 3; i++)
        CHECK_EQ(weft_go_copy(child, &(struct child){stress_stream(*rng, i), &wg}, sizeof(struct child)), 0);
    CHECK_EQ(weft_wg_wait(&wg), 0);
}

static void worker(void *arg)
{
    uint64_t rng = stress_stream(seed, (uintptr_t)arg);
    for (int i = stress_scaled(STEPS); i > 0; i--) {
        STEP[check_random(&rng) % STEP_COUNT](&rng);
        all.steps++;
    }
    weft_wg_done(&all.ended);
}

static void drain(weft_chan *ch)
{
    for (uint64_t v; weft_try_recv(ch, &v) == 0;)
        received(v);
}

static uint64_t stopped_so_far(void)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < ld_relaxed(&w_sched.p_count); i++)
        sum += ld_relaxed(&w_sched.ps[i]->count.stopped);
    return sum;
}

static void check_all(void)
{
    drain(all.numbers);
    CHECK_EQ(all.sent, all.received);
    CHECK_EQ(all.sent_sum, all.received_sum);
    CHECK_EQ(all.locked, all.lock_count);
    CHECK_EQ(all.started, all.closed);
    for (int i = 0; i < 4; i++)
        CHECK_EQ(all.written[i], all.write_count);
    CHECK_EQ(weft_len(all.tokens), TOKENS);
    CHECK_EQ(all.steps, (uint64_t)WORKERS * (uint64_t)stress_scaled(STEPS));
}

static void storm_main(void *arg)
{
    memset(&all, 0, sizeof all);
    all.numbers = weft_chan_new(sizeof(uint64_t), 16);
    all.hand = weft_chan_new(sizeof(uint64_t), 0);
    all.tokens = weft_chan_new(sizeof(int), TOKENS);
    for (int i = 0; i < TOKENS; i++)
        CHECK_EQ(weft_send(all.tokens, &i), 0);
    weft_wg_add(&all.ended, WORKERS);
    for (uintptr_t i = 0; i < WORKERS; i++)
        CHECK_EQ(weft_go(worker, (void *)i), 0);
    CHECK_EQ(weft_wg_wait(&all.ended), 0);
    check_all();
    *(uint64_t *)arg += stopped_so_far();
    weft_chan_free(all.numbers);
    weft_chan_free(all.hand);
    weft_chan_free(all.tokens);
}

/* Where no signal stops anybody (preempt.c), or a second of ours is a fraction of one. */
static bool stops_are_rare(void)
{
#ifdef __clang__
    if (check_under_asan())
        return true;
#endif
    return check_under_tsan() || check_under_emulator();
}

/* Three times, and again until enough were stopped: on a crowded machine fewer are in the same work. */
static void storm(int procs)
{
    enum { QUANTA = 3, MOST_TIMES = 15 };
    const uint64_t enough = check_under_asan() ? 10 : 200;
    static const int64_t quanta[QUANTA] = {100 * WEFT_USEC, 250 * WEFT_USEC, WEFT_MSEC};
    uint64_t stopped = 0;
    seed = check_seed();
    for (uint64_t i = 0; i < TABLE; i++)
        expected_table[i] = mix_integers(i, length());
    for (int i = 0; i < QUANTA || (i < MOST_TIMES && stopped < enough && !stops_are_rare()); i++) {
        weft_config c = {.procs = procs, .seed = seed, .quantum = quanta[i % QUANTA]};
        CHECK_EQ(run_with_own_quantum(&c, storm_main, &stopped), 0);
    }
    printf("# %llu times one was stopped\n", (unsigned long long)stopped);
    if (!stops_are_rare() && stopped < enough)
        check_fail(__FILE__, __LINE__, "only %llu were stopped", (unsigned long long)stopped);
}

CASE(all_at_once_on_one_p)
{
    storm(1);
}

CASE(all_at_once_on_two_ps)
{
    storm(2);
}

CASE(all_at_once_on_eight_ps)
{
    storm(8);
}
