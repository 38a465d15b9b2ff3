/* SPDX-License-Identifier: MIT */
/*
 * The workloads: one for each thing that is said of the models, on T threads. Each prints what it measured, once; tools/lab.py
 * repeats them.
 *
 *      create N T          N goroutines that all wait for one semaphore: time and memory for each
 *      spawn T             goroutines that end at once
 *      pingpong T          two goroutines that wake each other in turn
 *      blocking B T        B goroutines sleep in the kernel while another one yields: the longest that it had to wait for its turn
 *      parallel T          arithmetic in 8 goroutines: how many cores work at it
 *      contention T        64 goroutines that only yield
 *      scan B T            while B goroutines are in blocking calls: what a search for work takes, and rounds of four short ones
 *      deadlock_own T      T goroutines wait for a semaphore of the model, the next in the queue releases it
 *      deadlock_kernel T   likewise a semaphore of the kernel, in a blocking call
 *      deadlock_hidden T   likewise, but nobody told the model that the call blocks
 */
#include "workloads.h"
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static const int64_t LONG_ENOUGH = 150 * WEFT_MSEC; /* for a loop */

static void print(const char *name, double value, const char *unit)
{
    printf("%s %.6g %s\n", name, value, unit);
}

/* ---- create ----------------------------------------------------------------------------------------------------- */

static struct {
    long wanted, started;
    struct latch here, gone;
    lab_sem gate;
} create;

static void waits(void *arg)
{
    (void)arg;
    latch_down(&create.here, 1);
    lab_acquire(&create.gate);
    latch_down(&create.gone, 1);
}

/* There are no more to be had: how many there were is all that counts, and nobody waits until thousands of threads have ended. */
static void create_ended(int err)
{
    const char *limit = "memory";
    if (err == -EAGAIN)
        lab_thread_room(&limit);
    print("count", (double)create.started, "goroutines");
    printf("ended_by %d %s\n", -err, limit);
    fflush(stdout);
    _exit(0);
}

static void create_main(void *arg)
{
    long n = create.wanted;
    (void)arg;
    latch_init(&create.here, n);
    latch_init(&create.gone, n);
    lab_sem_init(&create.gate, 0);
    int64_t memory = lab_memory(), begin = w_now();
    for (int r; create.started < n; create.started++)
        if ((r = lab_go(waits, NULL)) != 0)
            create_ended(r);
    latch_wait(&create.here);
    int64_t took = w_now() - begin;
    memory = lab_memory() - memory;
    for (long i = 0; i < n; i++)
        lab_release(&create.gate);
    latch_wait(&create.gone);
    print("ns", (double)took / (double)n, "ns");
    print("bytes", (double)memory / (double)n, "B");
}

static void create_workload(const long *args)
{
    create.wanted = args[0];
    run(args[1], create_main, NULL);
}

/* ---- spawn, pingpong -------------------------------------------------------------------------------------------- */

enum { BATCH = 200 };
static struct latch batch;

static void ends(void *arg)
{
    (void)arg;
    latch_down(&batch, 1);
}

static void spawn_main(void *arg)
{
    long n = 0;
    int64_t begin = w_now(), took;
    (void)arg;
    latch_init(&batch, BATCH);
    do {
        latch_again(&batch, BATCH);
        for (int i = 0; i < BATCH; i++)
            start(ends, NULL);
        latch_wait(&batch);
        n += BATCH;
    } while ((took = w_now() - begin) < LONG_ENOUGH);
    print("ns", (double)took / (double)n, "ns");
}

static void spawn_workload(const long *args)
{
    run(args[0], spawn_main, NULL);
}

static struct {
    lab_sem ping, pong;
    bool over; /* written before a release of ping */
} table;

static void partner(void *arg)
{
    bool over;
    (void)arg;
    do {
        lab_acquire(&table.ping);
        over = table.over;
        lab_release(&table.pong);
    } while (!over);
}

/* Both players are goroutines of the model: main only waits. */
static void player(void *arg)
{
    enum { AT_ONCE = 100 };
    int64_t begin = w_now(), took = 0;
    long n = 0;
    (void)arg;
    for (; !table.over; n += AT_ONCE) {
        for (int i = 0; i < AT_ONCE; i++) {
            table.over = took >= LONG_ENOUGH && i == AT_ONCE - 1;
            lab_release(&table.ping);
            lab_acquire(&table.pong);
        }
        took = w_now() - begin;
    }
    print("ns", (double)took / (double)n / 2, "ns");
    latch_down(&batch, 1);
}

static void pingpong_main(void *arg)
{
    (void)arg;
    lab_sem_init(&table.ping, 0);
    lab_sem_init(&table.pong, 0);
    latch_init(&batch, 1);
    start(partner, NULL);
    start(player, NULL);
    latch_wait(&batch);
}

static void pingpong_workload(const long *args)
{
    run(args[0], pingpong_main, NULL);
}

/* ---- blocking --------------------------------------------------------------------------------------------------- */

static struct {
    long blockers;
    int64_t sleep, last, longest; /* when the one that yields last had its turn, and the longest that it waited */
    _Atomic long asleep;          /* still to come back */
    struct latch done;
} blocking = {.sleep = 50 * WEFT_MSEC};

static void blocks(void *arg)
{
    (void)arg;
    lab_block(kernel_sleep, &blocking.sleep);
    add_acq_rel(&blocking.asleep, -1);
    latch_down(&blocking.done, 1);
}

static void ticks(void *arg)
{
    (void)arg;
    do {
        int64_t now = w_now();
        if (now - blocking.last > blocking.longest)
            blocking.longest = now - blocking.last;
        blocking.last = now;
        lab_yield();
    } while (ld_acquire(&blocking.asleep) > 0);
    latch_down(&blocking.done, 1);
}

/* The time that it waits for its first turn counts too. */
static void blocking_main(void *arg)
{
    (void)arg;
    latch_init(&blocking.done, blocking.blockers + 1);
    st_relaxed(&blocking.asleep, blocking.blockers);
    blocking.last = w_now();
    for (long i = 0; i < blocking.blockers; i++)
        start(blocks, NULL);
    start(ticks, NULL);
    latch_wait(&blocking.done);
    print("longest", (double)blocking.longest, "ns");
}

static void blocking_workload(const long *args)
{
    blocking.blockers = args[0];
    run(args[1], blocking_main, NULL);
}

/* ---- parallel --------------------------------------------------------------------------------------------------- */

enum { BURNERS = 8, STEPS = 8000000 };

static void burn(long steps)
{
    uint64_t x = 1;
    for (long i = 0; i < steps; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    __asm__ volatile("" : : "r"(x));
}

static void burns(void *arg)
{
    (void)arg;
    burn(STEPS);
    latch_down(&batch, 1);
}

static void parallel_main(void *arg)
{
    int64_t begin = w_now(), cpu = lab_cpu_time();
    (void)arg;
    latch_init(&batch, BURNERS);
    for (int i = 0; i < BURNERS; i++)
        start(burns, NULL);
    latch_wait(&batch);
    print("cores", (double)(lab_cpu_time() - cpu) / (double)(w_now() - begin), "cores");
}

static void parallel_workload(const long *args)
{
    run(args[0], parallel_main, NULL);
}

/* ---- contention ------------------------------------------------------------------------------------------------- */

enum { YIELDERS = 64, YIELDS = 40000 };
static struct {
    _Atomic int here; /* yielders that have begun */
    _Atomic bool go;  /* all of them have: who comes early would have the queue to itself */
} contention;

static void yields(void *arg)
{
    (void)arg;
    add_relaxed(&contention.here, 1);
    while (!ld_acquire(&contention.go))
        lab_yield();
    for (int i = 0; i < YIELDS; i++)
        lab_yield();
    latch_down(&batch, 1);
}

static void contention_main(void *arg)
{
    (void)arg;
    latch_init(&batch, YIELDERS);
    for (int i = 0; i < YIELDERS; i++)
        start(yields, NULL);
    while (ld_relaxed(&contention.here) < YIELDERS)
        lab_yield();
    struct lab_counts before = lab_counts();
    int64_t begin = w_now(), cpu = lab_cpu_time();
    st_release(&contention.go, true);
    latch_wait(&batch);
    const double n = (double)YIELDERS * YIELDS;
    print("ns", (double)(w_now() - begin) / n, "ns");
    print("cpu", (double)(lab_cpu_time() - cpu) / n, "ns");
    struct lab_counts c = lab_counts();
    if (c.locks > before.locks)
        print("waits", 100.0 * (double)(c.lock_waits - before.lock_waits) / (double)(c.locks - before.locks), "%");
}

static void contention_workload(const long *args)
{
    run(args[0], contention_main, NULL);
}

/* ---- scan ------------------------------------------------------------------------------------------------------- */

enum { ROUND = 4, SHORT = 150 /* steps of burn: some 300 ns */ };

static struct {
    long blocked;
    sem_t kernel;
    _Atomic long in; /* about to block */
    struct latch out;
} scan;

static void waits_in_kernel(void *arg)
{
    (void)arg;
    add_relaxed(&scan.in, 1);
    lab_block(kernel_wait, &scan.kernel);
    latch_down(&scan.out, 1);
}

static void is_short(void *arg)
{
    (void)arg;
    burn(SHORT);
    latch_down(&batch, 1);
}

/* What one search takes, and how many queues it looks at. */
static void scan_search(void)
{
    enum { TIMES = 1000 };
    struct lab_counts before = lab_counts();
    int64_t best = INT64_MAX;
    for (int i = 0; i < 20; i++) {
        int64_t begin = w_now();
        for (int k = 0; k < TIMES; k++)
            lab_search();
        int64_t took = w_now() - begin;
        best = took < best ? took : best;
    }
    struct lab_counts c = lab_counts();
    print("search", (double)best / TIMES, "ns");
    if (c.searches > before.searches)
        print("looks", (double)(c.looks - before.looks) / (double)(c.searches - before.searches), "queues");
}

static void scan_rounds(void)
{
    int64_t begin = w_now(), cpu = lab_cpu_time(), took;
    long n = 0;
    latch_init(&batch, ROUND);
    do {
        latch_again(&batch, ROUND);
        for (int i = 0; i < ROUND; i++)
            start(is_short, NULL);
        latch_wait(&batch);
        n++;
    } while ((took = w_now() - begin) < LONG_ENOUGH);
    print("ns", (double)took / (double)n / ROUND, "ns");
    print("cpu", (double)(lab_cpu_time() - cpu) / (double)n / ROUND, "ns");
}

static void scan_main(void *arg)
{
    (void)arg;
    sem_init(&scan.kernel, 0, 0);
    latch_init(&scan.out, scan.blocked + 1);
    for (long i = 0; i < scan.blocked; i++)
        start(waits_in_kernel, NULL);
    int64_t short_time = WEFT_MSEC;
    while (ld_relaxed(&scan.in) < scan.blocked)
        lab_yield();
    lab_block(kernel_sleep, &short_time);
    scan_search();
    scan_rounds();
    for (long i = 0; i < scan.blocked; i++)
        sem_post(&scan.kernel);
    latch_down(&scan.out, 1);
    latch_wait(&scan.out);
}

static void scan_workload(const long *args)
{
    scan.blocked = args[0];
    run(args[1], scan_main, NULL);
}

/* ---- deadlock --------------------------------------------------------------------------------------------------- */

enum how { OWN, KERNEL, HIDDEN };

static struct {
    long waiters;
    enum how how;
    lab_sem own;
    sem_t kernel;
    struct latch done;
} knot;

static void is_stuck(void)
{
    printf("deadlock 1 yes\n");
    fflush(stdout);
    _exit(0);
}

static void knot_waits(void *arg)
{
    (void)arg;
    if (knot.how == OWN)
        lab_acquire(&knot.own);
    else if (knot.how == KERNEL)
        lab_block(kernel_wait, &knot.kernel);
    else
        kernel_wait(&knot.kernel);
    latch_down(&knot.done, 1);
}

static void knot_releases(void *arg)
{
    (void)arg;
    for (long i = 0; i < knot.waiters; i++) {
        if (knot.how == OWN)
            lab_release(&knot.own);
        else
            sem_post(&knot.kernel);
    }
    latch_down(&knot.done, 1);
}

static void knot_main(void *arg)
{
    (void)arg;
    lab_sem_init(&knot.own, 0);
    sem_init(&knot.kernel, 0, 0);
    latch_init(&knot.done, knot.waiters + 1);
    for (long i = 0; i < knot.waiters; i++)
        start(knot_waits, NULL);
    start(knot_releases, NULL);
    latch_wait(&knot.done);
}

static void deadlock(long threads, enum how how)
{
    knot.waiters = threads;
    knot.how = how;
    lab_watch(is_stuck);
    run(threads, knot_main, NULL);
    printf("deadlock 0 no\n");
}

static void deadlock_own(const long *args)
{
    deadlock(args[0], OWN);
}

static void deadlock_kernel(const long *args)
{
    deadlock(args[0], KERNEL);
}

static void deadlock_hidden(const long *args)
{
    deadlock(args[0], HIDDEN);
}

const struct lab_workload lab_workloads[] = {
    {"create", "GOROUTINES THREADS", create_workload},
    {"spawn", "THREADS", spawn_workload},
    {"pingpong", "THREADS", pingpong_workload},
    {"blocking", "BLOCKED THREADS", blocking_workload},
    {"parallel", "THREADS", parallel_workload},
    {"contention", "THREADS", contention_workload},
    {"scan", "BLOCKED THREADS", scan_workload},
    {"deadlock_own", "THREADS", deadlock_own},
    {"deadlock_kernel", "THREADS", deadlock_kernel},
    {"deadlock_hidden", "THREADS", deadlock_hidden},
    {NULL, NULL, NULL},
};
