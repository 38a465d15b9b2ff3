/* SPDX-License-Identifier: MIT */
/*
 * Every execution of src/runq.h and src/fresh.h, the real code, with rings of four and short programs; the checker is
 * model/rc11.c.
 *
 * The program of a thread is a string (see call() and run()); thread 0 is the owner, the others are thieves. Most cases
 * take every program of the owner up to some length. The indices begin so that they wrap in the middle.
 *
 * Checked at the end of each execution:
 *   C1  a goroutine that was put is taken exactly once, or is still there; what its maker wrote is visible to the taker
 *   C2  what goes out at the head (top) goes out in the order in which it went in; a pop returns the newest
 *   C3  an owner finds nothing only if nothing is left; a put fails only if the owner cannot know of room
 *   C4  the winner of a slot has read it before it is written again. (In C11 a relaxed load may happen late; in the
 *       checker it does not, so we demand that it happens before the store that it must not see.)
 * And each of these finds the bug that it is there for: the cases at the end take an order or a swap away.
 */
#define W_RUNQ_SIZE  4u
#define W_FRESH_SIZE 4u

#include "check.h"
#include "model/rc11.h"
#include "fresh.h"
#include "runq.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the programs ----------------------------------------------------------------------------------------------- */

enum { SIZE = 4, THREADS = RC11_THREADS, CALLS = 12, GS = 12 };
enum { HEAD, TAIL, SLOT }; /* locations; top and bottom are HEAD and TAIL too */
_Static_assert(SLOT + SIZE == RC11_LOCATIONS, "a location for each");

struct program {
    bool fresh;
    uint32_t start; /* head and tail at the beginning */
    const char *text[THREADS];
    struct rc11_breakage broken;
};

/* What a call of the queue did. */
struct call {
    char kind;
    bool done;
    uint8_t from, to; /* its operations */
    uint8_t n;
    uintptr_t g[SIZE];
};

static struct program program;
static struct call calls[THREADS][CALLS];
static struct rc11_count total;
static bool expected; /* the program is said to have a violation */

static struct w_runq ring; /* only its addresses are used */
static struct w_fresh deque;

static uint8_t location_of(const void *at)
{
    if (at == &ring.head || at == &deque.top)
        return HEAD;
    if (at == &ring.tail || at == &deque.bottom)
        return TAIL;
    size_t i = program.fresh ? (size_t)((const char *)at - (const char *)deque.slot) / sizeof deque.slot[0]
                             : (size_t)((const char *)at - (const char *)ring.slot) / sizeof ring.slot[0];
    if (i >= SIZE)
        abort();
    return (uint8_t)(SLOT + i);
}

/* Broken: by the time it reads the slots they may be somebody else's. */
static uint32_t steal_swaps_first(struct w_runq *q, struct w_g **out, uint32_t max)
{
    for (;;) {
        uint32_t head = ld_acquire(&q->head), n = ld_acquire(&q->tail) - head;
        n -= n / 2;
        if (n == 0)
            return 0;
        if (n > W_RUNQ_SIZE / 2)
            continue;
        n = n < max ? n : max;
        if (!cas_acq_rel(&q->head, &head, head + n))
            continue;
        for (uint32_t i = 0; i < n; i++)
            out[i] = ld_relaxed(&q->slot[(head + i) % W_RUNQ_SIZE]);
        return n;
    }
}

static bool put(uintptr_t g)
{
    return program.fresh ? w_fresh_push(&deque, (struct w_g *)g) : w_runq_put(&ring, (struct w_g *)g);
}

static uint32_t steal(struct w_g **out)
{
    if (!program.fresh)
        return w_runq_steal(&ring, out, SIZE / 2);
    out[0] = w_fresh_steal(&deque);
    return out[0] != NULL;
}

static uint32_t get(struct w_g **out)
{
    out[0] = program.fresh ? w_fresh_pop(&deque) : w_runq_get(&ring);
    return out[0] != NULL;
}

/* One call of the queue: p put, g get or pop, s steal, h the older half by the owner, x the broken steal. */
static void call(struct call *c, char kind, uintptr_t g)
{
    struct w_g *out[SIZE] = {NULL};
    *c = (struct call){.kind = kind, .from = rc11_call_begins()};
    if (kind == 'p')
        c->n = put(c->g[0] = g);
    else if (kind == 'x')
        c->n = (uint8_t)steal_swaps_first(&ring, out, SIZE / 2);
    else if (kind == 'h' && program.fresh)
        c->n = (uint8_t)w_fresh_shed(&deque, out, SIZE / 2);
    else
        c->n = (uint8_t)(kind == 'g' ? get(out) : steal(out));
    for (int i = 0; kind != 'p' && i < c->n; i++)
        c->g[i] = (uintptr_t)out[i];
    c->to = rc11_position();
    c->done = true;
}

static void run(int t)
{
    struct call *c = calls[t];
    uintptr_t g = 1;
    memset(c, 0, sizeof calls[t]);
    for (const char *k = program.text[t]; k != NULL && *k != '\0'; k++) {
        if (*k != 'o') {
            call(c++, *k, *k == 'p' ? g++ : 0);
            continue;
        }
        call(c++, 'p', g++); /* o: a put that makes room if it must, as sched.c does */
        if (c[-1].n != 0)
            continue;
        call(c++, 'h', 0);
        if (program.fresh)
            call(c++, 'p', g - 1);
    }
}

/* ---- the checks at the end of an execution ---------------------------------------------------------------------- */

struct taken {
    int times, thread, call;
};

struct tally {
    struct taken of[GS];   /* by goroutine */
    uintptr_t at_head[GS]; /* what went out at start + i */
    int put_from[GS];      /* the owner's operations before its put; -1: not accepted */
    uint32_t heads;
};

static bool is_take(const struct call *c)
{
    return c->done && c->kind != 'p';
}

static struct rc11_result *last_op(int t, const struct call *c, enum rc11_what what, int location)
{
    for (int i = c->to - 1; i >= c->from; i--)
        if (rc11.results[t][i].op.what == what && rc11.results[t][i].op.location == location &&
            (what != CAS || rc11.results[t][i].won))
            return &rc11.results[t][i];
    return NULL;
}

/* C4, and the load must be there at all. */
static void check_slot(int t, const struct call *c, uint32_t index)
{
    int location = (int)(SLOT + index % SIZE);
    struct rc11_result *r = last_op(t, c, LOAD, location);
    rc11_demand(r != NULL, "C4: a slot was not read");
    if (r == NULL || r->read + 1 >= rc11.written[location])
        return;
    const struct rc11_message *over = &rc11.memory[location][r->read + 1];
    rc11_demand(over->writer.ops[t] > r - rc11.results[t], "C4: a slot is overwritten while its winner reads it");
}

static void check_take(struct tally *y, int t, int number)
{
    const struct call *c = &calls[t][number];
    struct rc11_result *swap = last_op(t, c, CAS, HEAD), *claim = last_op(t, c, SWAP, TAIL);
    rc11_demand(c->n == 0 || swap != NULL || claim != NULL, "C2: taken without a swap");
    if (c->n == 0 || rc11.violation != NULL)
        return;
    uint32_t index = (uint32_t)(swap != NULL ? swap->op.expected : claim->op.value);
    for (uint32_t i = 0; i < c->n; i++) {
        uintptr_t g = c->g[i];
        rc11_demand(g > 0 && g < GS, "C1: an empty slot was taken");
        if (rc11.violation != NULL)
            return;
        rc11_demand(y->put_from[g] >= 0, "C1: taken, but never put");
        rc11_demand(t == 0 || rc11.results[t][c->to - 1].knows.ops[0] > y->put_from[g],
                    "C1: the payload is not visible");
        rc11_demand(y->of[g].times++ == 0, "C1: taken twice");
        y->of[g] = (struct taken){y->of[g].times, t, number};
        check_slot(t, c, index + i);
        if (swap != NULL && index + i - program.start < GS)
            y->at_head[index + i - program.start] = g;
    }
}

/* What was put before that call of the owner and not taken by the owner before it: the newest, and how many. */
static uintptr_t newest_left(const struct tally *y, int number, int *count)
{
    uintptr_t newest = 0;
    *count = 0;
    for (uintptr_t g = 1; g < GS; g++) {
        bool taken = y->of[g].times > 0 && y->of[g].thread == 0 && y->of[g].call < number;
        if (y->put_from[g] < 0 || y->put_from[g] >= calls[0][number].from || taken)
            continue;
        newest = g;
        ++*count;
    }
    return newest;
}

static void check_owner_call(const struct tally *y, int number)
{
    const struct call *c = &calls[0][number];
    int left;
    uintptr_t newest = newest_left(y, number, &left);
    if (c->kind == 'p' && c->n == 0) {
        rc11_demand(left >= SIZE, "C3: no room in a queue that is not full");
        rc11_demand(number == 0 || calls[0][number - 1].kind != 'h', "C3: no room after half of them left");
    }
    if (c->kind != 'g')
        return;
    if (program.fresh && c->n == 1)
        rc11_demand(c->g[0] == newest, "C2: not the newest");
    for (uintptr_t g = 1; g < GS && c->n == 0; g++)
        if (y->put_from[g] >= 0 && y->put_from[g] < c->from)
            rc11_demand(y->of[g].times > 0 && (y->of[g].thread != 0 || y->of[g].call < number), "C3: it found nothing");
}

/* What is still there counts as taken, so that C1 is one look. */
static void check_rest(struct tally *y)
{
    uint32_t head = (uint32_t)rc11.memory[HEAD][rc11.written[HEAD] - 1].value,
             tail = (uint32_t)rc11.memory[TAIL][rc11.written[TAIL] - 1].value;
    rc11_demand((int32_t)(tail - head) >= 0 && tail - head <= SIZE, "C1: the indices are out of order");
    for (uint32_t i = head; rc11.violation == NULL && i != tail; i++) {
        int location = (int)(SLOT + i % SIZE);
        uintptr_t g = (uintptr_t)rc11.memory[location][rc11.written[location] - 1].value;
        rc11_demand(g > 0 && g < GS && y->put_from[g] >= 0, "C1: an empty slot is left");
        if (rc11.violation == NULL)
            rc11_demand(y->of[g].times++ == 0, "C1: taken, and still there");
    }
    for (uintptr_t g = 1; g < GS; g++)
        rc11_demand(y->put_from[g] < 0 || y->of[g].times == 1, "C1: lost");
    y->heads = head - program.start;
}

static void check_order(const struct tally *y)
{
    rc11_demand(y->heads < GS, "C2: the head is beyond everything");
    for (uint32_t i = 0; rc11.violation == NULL && i < y->heads; i++) {
        rc11_demand(y->at_head[i] != 0, "C2: a gap");
        rc11_demand(i == 0 || y->at_head[i] > y->at_head[i - 1], "C2: out of order");
    }
}

static const char *text_of(int t)
{
    return program.text[t] != NULL ? program.text[t] : "-";
}

static void print_execution(void)
{
    static const char *const names[] = {"head", "tail", "slot 0", "slot 1", "slot 2", "slot 3"};
    printf("# %s, programs %s %s %s: %s\n", program.fresh ? "fresh" : "runq", program.text[0], text_of(1), text_of(2),
           rc11.violation);
    rc11_print(names);
}

static void check_end(void)
{
    struct tally y = {0};
    memset(y.put_from, -1, sizeof y.put_from);
    for (int k = 0; k < CALLS && calls[0][k].done; k++)
        if (calls[0][k].kind == 'p' && calls[0][k].n != 0)
            y.put_from[calls[0][k].g[0]] = calls[0][k].from;
    for (int t = 0; t < THREADS; t++)
        for (int k = 0; k < CALLS; k++)
            if (is_take(&calls[t][k]))
                check_take(&y, t, k);
    for (int k = 0; k < CALLS && calls[0][k].done; k++)
        check_owner_call(&y, k);
    check_rest(&y);
    check_order(&y);
    if (rc11.violation != NULL && !expected)
        print_execution();
}

/* Explores one program; does it keep all promises? */
static bool holds(struct program p)
{
    struct rc11_program model = {
        .run = run,
        .check = check_end,
        .location_of = location_of,
        .initial = {[HEAD] = p.start, [TAIL] = p.start},
        .writer = {[HEAD] = -1}, /* the owner writes all else */
        .broken = p.broken,
    };
    program = p;
    return rc11_holds(&model, &total);
}

/* ---- cases: it is right ----------------------------------------------------------------------------------------- */

static const uint32_t NEAR_END = UINT32_MAX - 2; /* the indices wrap in the middle of the program */

static void report(const char *what)
{
    printf("# %s: %llu programs, %llu states, %.3g schedules\n", what, (unsigned long long)total.programs,
           (unsigned long long)total.states, total.schedules);
    total = (struct rc11_count){0};
}

/* Every program of the owner of up to that many calls, against these thieves. */
static void check_all(const char *what, bool fresh, const char *kinds, int length, const char *thief, const char *other)
{
    char text[CALLS];
    int n = (int)strlen(kinds);
    length -= check_scale() >= 20 ? 2 : check_scale() > 1 ? 1 : 0;
    expected = false;
    for (int len = 1, all = n; len <= length; len++, all *= n)
        for (int code = 0; code < all; code++) {
            for (int i = 0, rest = code; i < len; i++, rest /= n)
                text[i] = kinds[rest % n];
            text[len] = '\0';
            CHECK(holds((struct program){fresh, NEAR_END, {text, thief, other}, {0}}));
        }
    report(what);
}

static void check_one(bool fresh, uint32_t start, const char *owner, const char *thief, const char *other)
{
    expected = false;
    CHECK(holds((struct program){fresh, start, {owner, thief, other}, {0}}));
    report(owner);
}

CASE(runq_with_one_thief)
{
    check_all("put, get and one thief", false, "pg", 7, "ss", NULL);
}

CASE(runq_with_two_thieves)
{
    check_all("put, get and two thieves", false, "pg", 6, "s", "s");
}

CASE(runq_overflows_beside_thieves)
{
    check_one(false, NEAR_END, "ppppoo", "s", "s");
    check_one(false, 0, "oooooogo", "ss", NULL);
}

CASE(fresh_with_one_thief)
{
    check_all("push, pop and one thief", true, "pg", 7, "sss", NULL);
}

CASE(fresh_with_two_thieves)
{
    check_all("push, pop and two thieves", true, "pg", 6, "ss", "s");
}

CASE(fresh_overflows_and_ages_beside_thieves)
{
    check_all("push, pop, age and one thief", true, "pgh", 6, "ss", NULL);
    check_all("push, pop, age and two thieves", true, "pgh", 5, "s", "s");
    check_one(true, NEAR_END, "ppppogo", "s", "s");
    check_one(true, 0, "pppphog", "ss", NULL);
}

/* ---- cases: it notices what is wrong ---------------------------------------------------------------------------- */

/* Does it all seem to be right although something is broken? */
static bool missed(bool fresh, const char *owner, const char *thief, const char *other, struct rc11_breakage broken)
{
    expected = true;
    return holds((struct program){fresh, NEAR_END, {owner, thief, other}, broken});
}

enum { OWNER = 0, THIEF = 1, ANY = -1 };

CASE(catches_a_runq_that_publishes_without_release)
{
    CHECK(!missed(false, "pp", "s", NULL, (struct rc11_breakage){STORE, TAIL, OWNER, RELEASE, false}));
}

CASE(catches_a_runq_thief_that_loads_tail_without_acquire)
{
    CHECK(!missed(false, "pp", "s", NULL, (struct rc11_breakage){LOAD, TAIL, THIEF, ACQUIRE, false}));
}

CASE(catches_a_runq_thief_that_swaps_without_release)
{
    CHECK(!missed(false, "ppppp", "s", NULL, (struct rc11_breakage){CAS, HEAD, THIEF, RELEASE, false}));
}

CASE(catches_a_runq_owner_that_overwrites_without_acquire)
{
    CHECK(!missed(false, "ppppp", "s", NULL, (struct rc11_breakage){LOAD, HEAD, OWNER, ACQUIRE, false}));
}

CASE(catches_a_runq_get_without_swap)
{
    CHECK(!missed(false, "ppg", "s", NULL, (struct rc11_breakage){.blind = true}));
}

CASE(catches_a_runq_steal_that_reads_after_the_swap)
{
    CHECK(!missed(false, "ppppp", "x", NULL, (struct rc11_breakage){.blind = false}));
}

CASE(catches_a_fresh_push_without_release)
{
    CHECK(!missed(true, "pp", "s", NULL, (struct rc11_breakage){STORE, TAIL, OWNER, RELEASE, false}));
}

CASE(catches_a_fresh_push_that_overwrites_without_acquire)
{
    CHECK(!missed(true, "ppppp", "s", NULL, (struct rc11_breakage){LOAD, HEAD, OWNER, SEQ, false}));
}

CASE(catches_a_fresh_pop_without_a_claim_in_the_total_order)
{
    CHECK(!missed(true, "ppg", "ss", NULL, (struct rc11_breakage){SWAP, TAIL, OWNER, TOTAL_ORDER, false}));
    CHECK(!missed(true, "ppg", "ss", NULL, (struct rc11_breakage){LOAD, HEAD, OWNER, TOTAL_ORDER, false}));
}

CASE(catches_a_fresh_steal_that_is_not_in_the_total_order)
{
    CHECK(!missed(true, "ppg", "ss", NULL, (struct rc11_breakage){LOAD, TAIL, THIEF, TOTAL_ORDER, false}));
    CHECK(!missed(true, "ppg", "s", "s", (struct rc11_breakage){LOAD, HEAD, ANY, TOTAL_ORDER, false}));
    CHECK(!missed(true, "ppg", "ss", NULL, (struct rc11_breakage){CAS, HEAD, THIEF, TOTAL_ORDER, false}));
}

CASE(catches_a_fresh_pop_of_the_last_without_swap)
{
    CHECK(!missed(true, "pg", "s", NULL, (struct rc11_breakage){.blind = true}));
}

/* The owner's lowered bottom goes out with its swap of top: without it a thief takes what the owner popped. */
CASE(catches_a_fresh_shed_without_release)
{
    CHECK(!missed(true, "ppgh", "ss", NULL, (struct rc11_breakage){CAS, HEAD, OWNER, RELEASE, false}));
}
