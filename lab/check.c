/* SPDX-License-Identifier: MIT */
/*
 * Does the model work? Each case on as many threads as the model likes, on one, and on four; with a limit, a pool may only be given
 * goroutines that do not wait for others in the queue. That the deadlocks are found is for the workloads to show. How many run at
 * once cannot be counted where one may be stopped between any two instructions.
 */
#include "workloads.h"
#include <stdio.h>
#include <string.h>

enum { MANY = 500, LOOPS = 50, LOCKERS = 20, DEPTH = 6, PAIRS = 10, BLOCKERS = 10 };

static struct {
    _Atomic long sum;
    long counter;          /* guarded by mutex */
    _Atomic int now, most; /* how many are between two calls of the model */
    int limit;             /* how many may be; constant in a case */
    lab_sem mutex;
    struct latch done;
} c;

static int passed, failed;

/* ---- the cases: each returns whether all is well ---------------------------------------------------------------- */

static void adds(void *arg)
{
    add_relaxed(&c.sum, (long)(intptr_t)arg);
    lab_yield();
    latch_down(&c.done, 1);
}

static void each_runs_once(void *arg)
{
    latch_init(&c.done, MANY);
    for (long i = 1; i <= MANY; i++)
        start(adds, (void *)(intptr_t)i);
    latch_wait(&c.done);
    *(bool *)arg = ld_relaxed(&c.sum) == (long)MANY * (MANY + 1) / 2;
}

static void locks(void *arg)
{
    (void)arg;
    for (int i = 0; i < LOOPS; i++) {
        lab_acquire(&c.mutex);
        long seen = c.counter;
        if (i % 8 == 0)
            lab_yield();
        c.counter = seen + 1;
        lab_release(&c.mutex);
    }
    latch_down(&c.done, 1);
}

static void a_semaphore_excludes(void *arg)
{
    latch_init(&c.done, LOCKERS);
    lab_sem_init(&c.mutex, 1);
    for (int i = 0; i < LOCKERS; i++)
        start(locks, NULL);
    latch_wait(&c.done);
    *(bool *)arg = c.counter == LOCKERS * LOOPS;
}

static void blocks(void *arg)
{
    int64_t ns = 100 * WEFT_USEC;
    for (int i = 0; i < 5; i++)
        lab_block(kernel_sleep, &ns);
    adds(arg);
}

static void blocking_calls_come_back(void *arg)
{
    latch_init(&c.done, BLOCKERS + MANY);
    for (int i = 0; i < BLOCKERS; i++)
        start(blocks, (void *)1000);
    for (int i = 0; i < MANY; i++)
        start(adds, (void *)1);
    latch_wait(&c.done);
    *(bool *)arg = ld_relaxed(&c.sum) == 1000 * BLOCKERS + MANY;
}

static void is_counted(void *arg)
{
    int64_t ns = 100 * WEFT_USEC;
    (void)arg;
    for (int i = 0; i < 20; i++) {
        lab_block(kernel_sleep, &ns);
        int now = add_relaxed(&c.now, 1) + 1;
        if (now > ld_relaxed(&c.most))
            st_relaxed(&c.most, now); /* relaxed, and perhaps overwritten by less: too many are seen more than once */
        for (int64_t begin = w_now(); w_now() - begin < 20 * WEFT_USEC;)
            ;
        add_relaxed(&c.now, -1);
    }
    latch_down(&c.done, 1);
}

/* Those who come back from blocking calls are no more than may run. The main function waits. */
static void no_more_run_than_may(void *arg)
{
    latch_init(&c.done, BLOCKERS);
    for (int i = 0; i < BLOCKERS; i++)
        start(is_counted, NULL);
    latch_wait(&c.done);
    *(bool *)arg = ld_relaxed(&c.most) <= c.limit;
}

struct pair {
    lab_sem ping, pong;
    long value; /* handed to and fro with them */
};

static void answers(void *arg)
{
    struct pair *p = arg;
    for (int i = 0; i < LOOPS; i++) {
        lab_acquire(&p->ping);
        p->value++;
        lab_release(&p->pong);
    }
    latch_down(&c.done, 1);
}

static void asks(void *arg)
{
    struct pair *p = arg;
    for (int i = 0; i < LOOPS; i++) {
        p->value++;
        lab_release(&p->ping);
        lab_acquire(&p->pong);
    }
    add_relaxed(&c.sum, p->value);
    latch_down(&c.done, 1);
}

static void pairs_take_turns(void *arg)
{
    static struct pair pairs[PAIRS];
    latch_init(&c.done, 2 * PAIRS);
    for (int i = 0; i < PAIRS; i++) {
        lab_sem_init(&pairs[i].ping, 0);
        lab_sem_init(&pairs[i].pong, 0);
        pairs[i].value = 0;
        start(answers, &pairs[i]);
        start(asks, &pairs[i]);
    }
    latch_wait(&c.done);
    *(bool *)arg = ld_relaxed(&c.sum) == 2 * LOOPS * PAIRS;
}

struct node {
    long depth, leaves;
    struct latch children;
    struct latch *parent;
};

/* Waits for its children, which it started. */
static void grows(void *arg)
{
    struct node *n = arg, child[2];
    if (n->depth == 0) {
        n->leaves = 1;
    } else {
        latch_init(&n->children, 2);
        for (int i = 0; i < 2; i++) {
            child[i] = (struct node){.depth = n->depth - 1, .parent = &n->children};
            start(grows, &child[i]);
        }
        latch_wait(&n->children);
        n->leaves = child[0].leaves + child[1].leaves;
    }
    latch_down(n->parent, 1);
}

static void a_tree_adds_up(void *arg)
{
    struct node root = {.depth = DEPTH, .parent = &c.done};
    latch_init(&c.done, 1);
    start(grows, &root);
    latch_wait(&c.done);
    *(bool *)arg = root.leaves == 1 << DEPTH;
}

/* ---- all of them ------------------------------------------------------------------------------------------------ */

static void check(const char *name, int threads, lab_fn *fn)
{
    bool good = false;
    c.counter = 0;
    c.limit = threads;
    st_relaxed(&c.sum, 0); /* relaxed, like the next: nobody else is there */
    st_relaxed(&c.most, 0);
    int r = lab_run(threads, fn, &good);
    printf("%s %s_%s_%d%s\n", r == 0 && good ? "ok" : "FAIL", lab_name, name, threads, r != 0 ? " the run failed" : "");
    *(r == 0 && good ? &passed : &failed) += 1;
}

int lab_check(void)
{
    static const int threads[] = {0, 1, 4};
    bool pool = strcmp(lab_name, "pool") == 0;
    bool limits = strcmp(lab_name, "threads") != 0 && strcmp(lab_name, "mpn") != 0;
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        check("each_runs_once", threads[i], each_runs_once);
        check("a_semaphore_excludes", threads[i], a_semaphore_excludes);
        check("blocking_calls_come_back", threads[i], blocking_calls_come_back);
        if (limits && threads[i] > 0)
            check("no_more_run_than_may", threads[i], no_more_run_than_may);
        if (pool && threads[i] > 0)
            continue;
        check("pairs_take_turns", threads[i], pairs_take_turns);
        check("a_tree_adds_up", threads[i], a_tree_adds_up);
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
