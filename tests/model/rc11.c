/* SPDX-License-Identifier: MIT */
/*
 * The checker: depth-first over all ways to go on, with the memory of RC11 as views.
 *
 * A thread has no stack of its own: to go on, its program is run from the beginning with the results that are known so
 * far, up to the first operation that has none. So each moves by one operation at a time, and to go back is to forget
 * a result.
 *
 * Memory: a location is the list of all messages ever written to it. A thread knows a prefix of each list (and of the
 * operations of each thread), and a load returns any message from the last known one on. A release store attaches what
 * its thread knows; an acquire load of it learns that; a swap hands on what the message that it replaces carried.
 *
 *      location   [0] [1] [2] [3]       a load by a thread that knows [1] returns [1], [2] or [3]; then it knows that
 *                      ^known  ^newest  a swap replaces the newest
 *
 * Lists are appended to, which loses nothing here: a location is written by one thread alone, or by swaps alone.
 * Sequentially consistent operations must fit into one order: the graph of program order, reads-from, modification
 * order and from-read between them has no cycle. (Fewer edges than RC11's: more executions.) Loads do not happen late,
 * as relaxed ones may in C11; a check() demands what would go wrong then, see C4 in model_queues.c.
 *
 * Two orders of steps with the same results are the same execution: states are told apart by a hash of what each
 * thread's operations read and wrote, and each is visited once. "schedules" counts the paths through them.
 */
#include "rc11.h"
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEQS = 64 }; /* bits of seq.before */

struct thread {
    struct rc11_view view;
    uint8_t n; /* operations done */
    bool ended;
    uint64_t hash;       /* of what they read and wrote */
    struct rc11_op next; /* unless ended */
};

/* A sequentially consistent operation. */
struct seq {
    uint8_t thread, location;
    int8_t read, wrote;
    uint64_t before, after; /* edges from and to older ones */
};

struct rc11_execution rc11;
static struct rc11_program program;
static struct thread threads[RC11_THREADS];
static struct seq seqs[SEQS];
static int seq_count;

static void learn(struct rc11_view *to, const struct rc11_view *from)
{
    for (int i = 0; i < RC11_LOCATIONS; i++)
        if (to->message[i] < from->message[i])
            to->message[i] = from->message[i];
    for (int t = 0; t < RC11_THREADS; t++)
        if (to->ops[t] < from->ops[t])
            to->ops[t] = from->ops[t];
}

static uint64_t mix(uint64_t hash, uint64_t x)
{
    hash = (hash ^ x) * 0x9E3779B97F4A7C15ull;
    return hash ^ hash >> 29;
}

/* ---- running a program up to its next operation ----------------------------------------------------------------- */

static int running;   /* thread */
static uint8_t at_op; /* how far it is */
static uint8_t call_from;
static jmp_buf unknown;

static struct rc11_result *do_op(struct rc11_op op)
{
    const struct rc11_breakage *b = &program.broken;
    struct thread *t = &threads[running];
    if (at_op < t->n)
        return &rc11.results[running][at_op++];
    if ((b->what < 0 || b->what == (int)op.what) && (b->location < 0 || b->location == op.location) &&
        (b->thread < 0 || b->thread == running))
        op.order &= ~b->without;
    t->next = op;
    longjmp(unknown, 1);
}

uint64_t rc11_perform(enum rc11_what what, enum rc11_order order, void *at, uint64_t value)
{
    return do_op((struct rc11_op){what, order, program.location_of(at), call_from, value, 0})->value;
}

bool rc11_compare_and_swap(enum rc11_order order, void *at, uint32_t *expected, uint32_t value)
{
    struct rc11_result *r = do_op((struct rc11_op){CAS, order, program.location_of(at), call_from, value, *expected});
    *expected = (uint32_t)r->value;
    return r->won;
}

uint8_t rc11_position(void)
{
    return at_op;
}

uint8_t rc11_call_begins(void)
{
    return call_from = at_op;
}

static void advance(int t)
{
    running = t;
    at_op = 0;
    if (setjmp(unknown) != 0)
        return;
    program.run(t);
    threads[t].ended = true;
}

/* ---- one operation ---------------------------------------------------------------------------------------------- */

/* The edges between a new sequentially consistent operation and the older ones. */
static struct seq seq_edges(int t, const struct rc11_op *op, int read, int wrote)
{
    struct seq s = {.thread = (uint8_t)t, .location = op->location, .read = (int8_t)read, .wrote = (int8_t)wrote};
    for (int i = 0; i < seq_count; i++) {
        const struct seq *o = &seqs[i];
        bool same = o->location == s.location;
        if (o->thread == t || (same && (wrote >= 0 || (o->wrote >= 0 && o->wrote == read))))
            s.before |= 1ull << i;
        if (same && wrote < 0 && o->wrote > read)
            s.after |= 1ull << i;
    }
    return s;
}

static bool fits(const struct seq *s)
{
    uint64_t reached = s->after, former = 0;
    while (reached != former) {
        former = reached;
        for (int i = 0; i < seq_count; i++) {
            if (reached >> i & 1)
                reached |= seqs[i].after;
            if (seqs[i].before & reached)
                reached |= 1ull << i;
        }
    }
    return (reached & s->before) == 0;
}

/* Does the operation happen in the order of all that are sequentially consistent? */
static bool is_seq(const struct rc11_op *op, bool won)
{
    return op->order == SEQ && (op->what != CAS || won);
}

static void write_message(int t, const struct rc11_op *op, int replaces)
{
    struct rc11_view *v = &threads[t].view;
    int n = rc11.written[op->location]++;
    struct rc11_message *m = &rc11.memory[op->location][n];
    v->message[op->location] = (uint8_t)n;
    *m = (struct rc11_message){.value = op->value, .writer = *v};
    if (op->order & RELEASE)
        m->carries = *v;
    if (replaces >= 0)
        learn(&m->carries, &rc11.memory[op->location][replaces].carries);
    m->carries.message[op->location] = (uint8_t)n;
}

/* Thread t does its next operation: it reads that message (-1: none), and writes if it is to. */
static void step(int t, int read, bool writes)
{
    struct thread *th = &threads[t];
    struct rc11_op op = th->next;
    struct rc11_result *r = &rc11.results[t][th->n];
    uint8_t *written = &rc11.written[op.location];
    bool won = op.what == CAS && writes;
    enum rc11_order order = op.what == CAS && !won ? RELAXED : op.order;
    if (th->n == RC11_OPS - 1 || *written == RC11_MESSAGES || seq_count == SEQS)
        abort(); /* a longer program needs larger tables */
    if (is_seq(&op, won))
        seqs[seq_count++] = seq_edges(t, &op, read, writes ? *written : -1);
    th->view.ops[t] = ++th->n;
    if (read >= 0) {
        if (th->view.message[op.location] < read)
            th->view.message[op.location] = (uint8_t)read;
        if (order & ACQUIRE)
            learn(&th->view, &rc11.memory[op.location][read].carries);
    }
    if (writes)
        write_message(t, &op, op.what == STORE ? -1 : read);
    *r = (struct rc11_result){.op = op, .won = won, .read = (int8_t)read, .wrote = -1, .knows = th->view};
    r->value = read >= 0 ? rc11.memory[op.location][read].value : 0;
    if (writes)
        r->wrote = (int8_t)(*written - 1);
    th->hash = mix(th->hash, (uint64_t)(uint8_t)r->read << 8 | (uint8_t)r->wrote);
    advance(t);
}

/* ---- what check() says ------------------------------------------------------------------------------------------ */

void rc11_demand(bool cond, const char *what)
{
    if (!cond && rc11.violation == NULL)
        rc11.violation = what;
}

void rc11_print(const char *const *location_names)
{
    static const char *const whats[] = {"load", "store", "swap", "compare-and-swap"};
    for (int t = 0; t < RC11_THREADS; t++)
        for (int i = 0; i < threads[t].n; i++) {
            const struct rc11_result *r = &rc11.results[t][i];
            printf("#   thread %d: %s %s read [%d]=%llu wrote [%d]=%llu%s\n", t, whats[r->op.what],
                   location_names[r->op.location], r->read, (unsigned long long)r->value, r->wrote,
                   (unsigned long long)r->op.value, r->won ? " won" : "");
        }
}

/* ---- the states that were visited ------------------------------------------------------------------------------- */

struct seen {
    uint64_t hash;
    double paths;
};

static struct seen *seen;
static size_t seen_size, seen_count;

static struct seen *look_up(uint64_t hash)
{
    size_t i = hash & (seen_size - 1);
    while (seen[i].hash != 0 && seen[i].hash != hash)
        i = (i + 1) & (seen_size - 1);
    return &seen[i];
}

static void remember(uint64_t hash, double paths)
{
    if (2 * seen_count >= seen_size) {
        struct seen *old = seen;
        size_t n = seen_size;
        seen_size = n == 0 ? 1 << 12 : 4 * n;
        seen = calloc(seen_size, sizeof *seen);
        if (seen == NULL)
            abort();
        for (size_t i = 0; i < n; i++)
            if (old[i].hash != 0)
                *look_up(old[i].hash) = old[i];
        free(old);
    }
    *look_up(hash) = (struct seen){hash, paths};
    seen_count++;
}

static void forget_all(void)
{
    free(seen);
    seen = NULL;
    seen_size = seen_count = 0;
}

static uint64_t state(void)
{
    uint64_t hash = 1;
    for (int t = 0; t < RC11_THREADS; t++)
        hash = mix(hash, threads[t].hash);
    return hash | 1;
}

/* ---- the search ------------------------------------------------------------------------------------------------- */

static double explore(void);

/* One way on, and back again. Messages and results beyond the counts are of no meaning. */
static double branch(int t, int read, bool writes)
{
    struct thread former = threads[t];
    uint8_t location = former.next.location, n = rc11.written[location];
    int seq = seq_count;
    step(t, read, writes);
    double paths = explore();
    threads[t] = former;
    rc11.written[location] = n;
    seq_count = seq;
    return paths;
}

/* A loop that reads the same old message again and again would never end; twice in a call is enough. */
static bool read_enough(int t, int read)
{
    const struct thread *th = &threads[t];
    int n = 0;
    for (int i = th->next.call; i < th->n; i++) {
        const struct rc11_result *r = &rc11.results[t][i];
        n += r->op.location == th->next.location && r->op.what == LOAD && r->read == read;
    }
    return n >= 2 && read + 1 < rc11.written[th->next.location];
}

static bool may_read(int t, int read)
{
    const struct rc11_op *op = &threads[t].next;
    struct seq s = seq_edges(t, op, read, -1);
    if (op->what == CAS)
        return rc11.memory[op->location][read].value != op->expected;
    return !read_enough(t, read) && (op->order != SEQ || s.after == 0 || fits(&s));
}

static double explore_thread(int t)
{
    const struct rc11_op op = threads[t].next;
    int newest = rc11.written[op.location] - 1;
    double paths = 0;
    if (op.what == STORE || (op.what == CAS && program.broken.blind && t == 0))
        return branch(t, op.what == STORE ? -1 : newest, true);
    if (op.what == SWAP || (op.what == CAS && rc11.memory[op.location][newest].value == op.expected))
        paths += branch(t, newest, true);
    for (int i = threads[t].view.message[op.location]; op.what != SWAP && i <= newest && rc11.violation == NULL; i++)
        if (may_read(t, i))
            paths += branch(t, i, false);
    return paths;
}

/* A load of what only its thread writes: it matters to nobody when it happens. */
static bool is_private(int t)
{
    const struct thread *th = &threads[t];
    return !th->ended && th->next.what == LOAD && program.writer[th->next.location] == t && th->next.order != SEQ;
}

static bool all_ended(void)
{
    for (int t = 0; t < RC11_THREADS; t++)
        if (!threads[t].ended)
            return false;
    return true;
}

static double end(void)
{
    for (int t = 0; t < RC11_THREADS; t++)
        advance(t); /* for what run() notes */
    program.check();
    return 1;
}

static double explore_threads(void)
{
    double paths = 0;
    for (int t = 0; t < RC11_THREADS; t++)
        if (is_private(t))
            return explore_thread(t);
    for (int t = 0; t < RC11_THREADS; t++)
        if (!threads[t].ended)
            paths += explore_thread(t);
    return paths;
}

/* All ways to go on from here; how many they are. */
static double explore(void)
{
    uint64_t hash = state();
    if (rc11.violation != NULL)
        return 0;
    struct seen *s = seen_size > 0 ? look_up(hash) : NULL;
    if (s != NULL && s->hash == hash)
        return s->paths;
    double paths = all_ended() ? end() : explore_threads();
    if (rc11.violation == NULL)
        remember(hash, paths);
    return paths;
}

static void reset(void)
{
    memset(threads, 0, sizeof threads);
    memset(rc11.memory, 0, sizeof rc11.memory);
    rc11.violation = NULL;
    seq_count = 0;
    for (int i = 0; i < RC11_LOCATIONS; i++) {
        rc11.memory[i][0].value = program.initial[i];
        rc11.written[i] = 1;
    }
    for (int t = 0; t < RC11_THREADS; t++)
        advance(t);
}

bool rc11_holds(const struct rc11_program *p, struct rc11_count *count)
{
    program = *p;
    reset();
    count->schedules += explore();
    count->states += seen_count;
    count->programs++;
    forget_all();
    return rc11.violation == NULL;
}
