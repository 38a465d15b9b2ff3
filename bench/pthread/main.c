/* SPDX-License-Identifier: MIT */
/*
 * The same work with plain POSIX threads: what a program without Weft has. Counts are smaller where a thread costs
 * three orders of magnitude more than a goroutine, values are per operation all the same. A workload on one or two
 * processors runs pinned to as many CPUs.
 */
#include "../files.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>

enum { STACK_SIZE = 64 * 1024 }; /* Weft's default */

static pthread_attr_t small_stack;

static pthread_t start_thread(void *(*fn)(void *), void *arg)
{
    pthread_t t;
    must("pthread_create", -pthread_create(&t, &small_stack, fn, arg));
    return t;
}

static void join(pthread_t t)
{
    must("pthread_join", -pthread_join(t, NULL));
}

/* ---- yield ------------------------------------------------------------------------------------------------------ */

enum { YIELDS = 200000 };

static void *yield_half(void *arg)
{
    for (int i = 0; i < YIELDS / 2; i++)
        sched_yield();
    return arg;
}

static void yield_pass(void)
{
    pthread_t a = start_thread(yield_half, NULL), b = start_thread(yield_half, NULL);
    join(a);
    join(b);
}

static void yield(const struct workload *w)
{
    report(w, per_op(yield_pass, YIELDS), "ns/switch");
}

/* ---- spawn, spawnjoin ------------------------------------------------------------------------------------------- */

enum { SPAWNS = 1000, BATCH = 100 };

static void *empty(void *arg)
{
    return arg;
}

static void spawn_batch(int n)
{
    pthread_t threads[BATCH];
    for (int i = 0; i < n; i++)
        threads[i] = start_thread(empty, NULL);
    for (int i = 0; i < n; i++)
        join(threads[i]);
}

static void spawn_pass(void)
{
    for (int i = 0; i < SPAWNS / BATCH; i++)
        spawn_batch(BATCH);
}

static void spawn(const struct workload *w)
{
    report(w, per_op(spawn_pass, SPAWNS), "ns/spawn");
}

static void spawnjoin_pass(void)
{
    for (int i = 0; i < SPAWNS; i++)
        spawn_batch(1);
}

static void spawnjoin(const struct workload *w)
{
    report(w, per_op(spawnjoin_pass, SPAWNS), "ns");
}

/* ---- parked ----------------------------------------------------------------------------------------------------- */

struct crowd {
    sem_t arrived;
    pthread_mutex_t lock;
    pthread_cond_t opened;
    int is_open; /* lock */
};

static void *parked_one(void *arg)
{
    struct crowd *c = arg;
    sem_post(&c->arrived);
    pthread_mutex_lock(&c->lock);
    while (!c->is_open)
        pthread_cond_wait(&c->opened, &c->lock);
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

static void gather(struct crowd *c, pthread_t *threads, int n)
{
    for (int i = 0; i < n; i++)
        threads[i] = start_thread(parked_one, c);
    for (int i = 0; i < n; i++)
        while (sem_wait(&c->arrived) != 0)
            ;
}

static void let_go(struct crowd *c, pthread_t *threads, int n)
{
    pthread_mutex_lock(&c->lock);
    c->is_open = 1;
    pthread_cond_broadcast(&c->opened);
    pthread_mutex_unlock(&c->lock);
    for (int i = 0; i < n; i++)
        join(threads[i]);
}

/* Kernel stacks are not in the bytes: they are nobody's resident memory. */
static void parked(const struct workload *w)
{
    pthread_t *threads = calloc((size_t)w->size, sizeof *threads);
    if (threads == NULL)
        die("calloc", ENOMEM);
    struct crowd c = {.lock = PTHREAD_MUTEX_INITIALIZER, .opened = PTHREAD_COND_INITIALIZER};
    sem_init(&c.arrived, 0, 0);
    spawn_batch(BATCH);

    int64_t before = memory_bytes(), start = now_ns();
    gather(&c, threads, w->size);
    report_part(w, "create", ms_since(start), "ms");
    report_part(w, "bytes", (double)(memory_bytes() - before) / w->size, "B");

    start = now_ns();
    let_go(&c, threads, w->size);
    report_part(w, "wake", ms_since(start), "ms");
    free(threads);
}

/* ---- pingpong: a turn that goes to and fro, with a condition variable for each side ----------------------------- */

enum { ROUND_TRIPS = 20000 };

static struct {
    pthread_mutex_t lock;
    int turn;               /* lock: the side that may play */
    pthread_cond_t came[2]; /* the turn, to that side */
} table_tennis = {.lock = PTHREAD_MUTEX_INITIALIZER, .came = {PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER}};

static void play(int side)
{
    pthread_mutex_lock(&table_tennis.lock);
    for (int i = 0; i < ROUND_TRIPS; i++) {
        while (table_tennis.turn != side)
            pthread_cond_wait(&table_tennis.came[side], &table_tennis.lock);
        table_tennis.turn = !side;
        pthread_cond_signal(&table_tennis.came[!side]);
    }
    pthread_mutex_unlock(&table_tennis.lock);
}

static void *other_side(void *arg)
{
    play(1);
    return arg;
}

static void pingpong_pass(void)
{
    pthread_t other = start_thread(other_side, NULL);
    play(0);
    join(other);
}

static void pingpong(const struct workload *w)
{
    report(w, per_op(pingpong_pass, ROUND_TRIPS), "ns/round trip");
}

/* ---- mutex: w->size threads count under one lock ---------------------------------------------------------------- */

enum { LOCKS = 2000000, MOST_THREADS = 8 };

static struct {
    int threads;
    pthread_mutex_t lock;
    int64_t count; /* lock */
} counter = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *count_locked(void *arg)
{
    int n = LOCKS / counter.threads;
    for (int i = 0; i < n; i++) {
        pthread_mutex_lock(&counter.lock);
        counter.count++;
        pthread_mutex_unlock(&counter.lock);
    }
    return arg;
}

static void mutex_pass(void)
{
    pthread_t threads[MOST_THREADS];
    counter.count = 0;
    for (int i = 0; i < counter.threads; i++)
        threads[i] = start_thread(count_locked, NULL);
    for (int i = 0; i < counter.threads; i++)
        join(threads[i]);
    expect("the count under the lock", counter.count, LOCKS);
}

static void mutex(const struct workload *w)
{
    counter.threads = w->size;
    report(w, per_op(mutex_pass, LOCKS), "ns");
}

/* ---- files: each thread in a loop of pread ---------------------------------------------------------------------- */

static struct {
    struct pages pages;
    struct tally tallies[READERS];
    atomic_bool stop;
} file;

static void *read_pages(void *arg)
{
    struct tally *tally = arg;
    struct page *page = new_pages(1);
    uint64_t state = (uint64_t)(tally - file.tallies) + 1;
    while (!atomic_load_explicit(&file.stop, memory_order_relaxed)) {
        uint64_t number = next_page(&file.pages, &state);
        check_page(page, pread(file.pages.fd, page, PAGE_SIZE, (off_t)(number * PAGE_SIZE)), number);
        count_one(tally);
    }
    free(page);
    return NULL;
}

static void sleep_ns(int64_t ns)
{
    struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    nanosleep(&t, NULL);
}

static void files(const struct workload *w)
{
    if (!make_pages(w, &file.pages, w->size))
        return;
    pthread_t readers[READERS];
    for (int i = 0; i < READERS; i++)
        readers[i] = start_thread(read_pages, &file.tallies[i]);
    struct rates r = measure_rates(file.tallies, READERS, sleep_ns);
    atomic_store(&file.stop, true);
    for (int i = 0; i < READERS; i++)
        join(readers[i]);
    report_reads(w, r);
}

/* ---- the table -------------------------------------------------------------------------------------------------- */

static const struct workload workloads[] = {
    {"yield_1p", 1, yield, 0},
    {"spawn_1p", 1, spawn, 0},
    {"spawn_2p", 2, spawn, 0},
    {"spawnjoin", 0, spawnjoin, 0},
    {"pingpong_1p", 1, pingpong, 0},
    {"pingpong_2p", 2, pingpong, 0},
    {"mutex_uncontended", 0, mutex, 1},
    {"mutex_contended", 2, mutex, 8},
    {"parked_10k", 0, parked, 10000},
    {"files_hot", 0, files, 0},
    {"files_direct", 0, files, O_DIRECT},
    {0},
};

/* Keeps the process on the first n of the CPUs that it may use. */
static void pin_to(int n)
{
    cpu_set_t usable, chosen;
    CPU_ZERO(&chosen);
    if (sched_getaffinity(0, sizeof usable, &usable) != 0)
        die("sched_getaffinity", errno);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&chosen) < n; cpu++)
        if (CPU_ISSET(cpu, &usable))
            CPU_SET(cpu, &chosen);
    if (sched_setaffinity(0, sizeof chosen, &chosen) != 0)
        die("sched_setaffinity", errno);
}

static void start(const struct workload *w)
{
    pthread_attr_init(&small_stack);
    must("pthread_attr_setstacksize", -pthread_attr_setstacksize(&small_stack, STACK_SIZE));
    if (w->procs > 0)
        pin_to(w->procs);
    w->run(w);
}

int main(int argc, char **argv)
{
    return bench_main(argc, argv, workloads, start);
}
