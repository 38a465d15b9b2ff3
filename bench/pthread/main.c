/* SPDX-License-Identifier: MIT */
/*
 * The same work with plain POSIX threads: what a program without Weft has. Counts are smaller where a thread costs
 * three orders of magnitude more than a goroutine, values are per operation all the same. A workload on one or two
 * processors runs pinned to as many CPUs.
 */
#include "../burn.h"
#include "../files.h"
#include "../net.h"
#include "threads.h"

#include <sched.h>
#include <semaphore.h>

enum { STACK_SIZE = 64 * 1024 }; /* Weft's default */

static pthread_attr_t small_stack;

pthread_t start_thread(void *(*fn)(void *), void *arg)
{
    pthread_t t;
    must("pthread_create", -pthread_create(&t, &small_stack, fn, arg));
    return t;
}

void join(pthread_t t)
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

/* ---- yield_many: 200 threads yield 1,000 times each ------------------------------------------------------------- */

enum { YIELDERS = 200, YIELDS_EACH = 1000 };

static void *yield_often(void *arg)
{
    for (int i = 0; i < YIELDS_EACH; i++)
        sched_yield();
    return arg;
}

static void yield_many_pass(void)
{
    pthread_t threads[YIELDERS];
    for (int i = 0; i < YIELDERS; i++)
        threads[i] = start_thread(yield_often, NULL);
    for (int i = 0; i < YIELDERS; i++)
        join(threads[i]);
}

static void yield_many(const struct workload *w)
{
    report(w, per_op(yield_many_pass, 1) / 1e3, "us");
}

/* ---- spawn, spawnjoin ------------------------------------------------------------------------------------------- */

enum { SPAWNS = 1000, BATCH = 100, MOST_SPAWNED = 10000 };

static void *empty(void *arg)
{
    return arg;
}

static void spawn_batch(int n)
{
    static pthread_t threads[MOST_SPAWNED];
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

static int spawned_at_once;

static void spawn_all(void)
{
    spawn_batch(spawned_at_once);
}

static void scale_spawn(const struct workload *w)
{
    if (w->size > MOST_SPAWNED) {
        fprintf(stderr, "bench: no more than %d threads at once\n", MOST_SPAWNED);
        return;
    }
    spawned_at_once = w->size;
    report(w, per_op_in(measure_ns() / 4, spawn_all, spawned_at_once), "ns/spawn");
}

static void spawn_many_pass(void)
{
    spawn_batch(MOST_SPAWNED);
}

static void spawn_many(const struct workload *w)
{
    report(w, per_op(spawn_many_pass, 1) / 1e3, "us");
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

/* ---- preempt: a thread sleeps while others compute -------------------------------------------------------------- */

static void sleep_ns(int64_t ns)
{
    struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    nanosleep(&t, NULL);
}

static void *hog(void *arg)
{
    be_a_hog();
    return arg;
}

static void preempt(const struct workload *w)
{
    pthread_t hogs[HOGS];
    for (int i = 0; i < HOGS; i++)
        hogs[i] = start_thread(hog, NULL);
    int64_t times[SAMPLES];
    size_t n = wanted_samples();
    for (size_t i = 0; i < n; i++) {
        int64_t begin = now_ns();
        sleep_ns(PERIOD_NS);
        times[i] = now_ns() - begin - PERIOD_NS;
    }
    stop_hogs();
    for (int i = 0; i < HOGS; i++)
        join(hogs[i]);
    report_spread_us(w, times, n);
}

/* ---- blocking: threads sleep while others count ------------------------------------------------------------------ */

enum { BLOCKERS = 64, COUNTERS = 2, BLOCKS = 200, COUNT_AT_ONCE = 100000 };

static struct {
    atomic_bool stop;
    _Atomic int64_t counted;
} blocks;

static void *block_often(void *arg)
{
    for (int i = 0; i < BLOCKS; i++)
        sleep_ns(1000000);
    return arg;
}

static void *count(void *arg)
{
    int64_t n = 0;
    for (; !atomic_load_explicit(&blocks.stop, memory_order_relaxed); sched_yield())
        for (int i = 0; i < COUNT_AT_ONCE; i++)
            __asm__ volatile("" : "=r"(n) : "0"(n + 1));
    blocks.counted += n;
    return arg;
}

static void blocking(const struct workload *w)
{
    pthread_t counters[COUNTERS], blockers[BLOCKERS];
    for (int i = 0; i < COUNTERS; i++)
        counters[i] = start_thread(count, NULL);
    int64_t start = now_ns();
    for (int i = 0; i < BLOCKERS; i++)
        blockers[i] = start_thread(block_often, NULL);
    int64_t threads = status_field("Threads");
    for (int i = 0; i < BLOCKERS; i++)
        join(blockers[i]);
    double total = ms_since(start);
    atomic_store(&blocks.stop, true);
    for (int i = 0; i < COUNTERS; i++)
        join(counters[i]);
    report_part(w, "total", total, "ms");
    report_part(w, "counted", (double)blocks.counted / 1e3 / total, "M/s");
    report_part(w, "threads", (double)threads, "threads");
}

/* ---- echo: a thread at each end of each connection --------------------------------------------------------------- */

static struct {
    atomic_bool stop;
    struct tally tallies[CONNECTIONS];
    int fds[CONNECTIONS]; /* of the clients */
} echoes;

static void *echo_server(void *arg)
{
    int fd = (int)(intptr_t)arg;
    char buffer[BUFFER_SIZE];
    ssize_t n;
    while ((n = read(fd, buffer, sizeof buffer)) > 0)
        expect("what was written", write(fd, buffer, (size_t)n), n);
    close(fd);
    return NULL;
}

static void *echo_client(void *arg)
{
    int64_t i = (intptr_t)arg;
    char message[MESSAGE_SIZE] = "m", answer[MESSAGE_SIZE];
    while (!atomic_load_explicit(&echoes.stop, memory_order_relaxed)) {
        expect("what was written", write(echoes.fds[i], message, sizeof message), sizeof message);
        expect("what came back", recv(echoes.fds[i], answer, sizeof answer, MSG_WAITALL), sizeof answer);
        count_one(&echoes.tallies[i]);
    }
    close(echoes.fds[i]);
    return NULL;
}

static void echo(const struct workload *w)
{
    struct sockaddr_in address;
    int listener = listen_here(&address);
    pthread_t threads[2 * CONNECTIONS];
    for (int i = 0; i < CONNECTIONS; i++) {
        echoes.fds[i] = tcp_socket();
        if (connect(echoes.fds[i], (struct sockaddr *)&address, sizeof address) != 0)
            die("connect", errno);
        int server = accept(listener, NULL, NULL);
        if (server < 0)
            die("accept", errno);
        send_at_once(echoes.fds[i]);
        send_at_once(server);
        threads[2 * i] = start_thread(echo_server, (void *)(intptr_t)server);
        threads[2 * i + 1] = start_thread(echo_client, (void *)(intptr_t)i);
    }
    struct rates r = measure_rates(echoes.tallies, CONNECTIONS, sleep_ns);
    atomic_store(&echoes.stop, true);
    for (int i = 0; i < 2 * CONNECTIONS; i++)
        join(threads[i]);
    close(listener);
    report_echoes(w, r);
}

/* ---- http, mixed: a thread for each connection ------------------------------------------------------------------ */

static int64_t heavy_steps; /* of computation for a heavy request */

/* Until the other side is gone. */
static void *serve_http(void *arg)
{
    int fd = (int)(intptr_t)arg;
    struct http_input in = {0};
    struct iovec answers[MAX_ANSWERS];
    ssize_t n, sent = 0;
    send_at_once(fd);
    while (sent >= 0 && (n = read(fd, in.bytes + in.have, sizeof in.bytes - in.have)) > 0) {
        in.have += (size_t)n;
        int whole = take_requests(&in, answers);
        for (; in.heavy > 0; in.heavy--)
            burn(heavy_steps);
        sent = sendmsg(fd, &(struct msghdr){.msg_iov = answers, .msg_iovlen = (size_t)whole}, MSG_NOSIGNAL);
    }
    close(fd);
    return NULL;
}

static void *accept_all(void *arg)
{
    for (;;) {
        int fd = accept4((int)(intptr_t)arg, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            die("accept", errno);
        must("pthread_detach", -pthread_detach(start_thread(serve_http, (void *)(intptr_t)fd)));
    }
    return NULL;
}

static void serve(struct sockaddr_in *address)
{
    start_thread(accept_all, (void *)(intptr_t)listen_here(address));
}

static void http_raw(const struct workload *w)
{
    struct sockaddr_in address;
    serve(&address);
    measure_http(w, &address);
}

static void mixed(const struct workload *w)
{
    struct sockaddr_in address;
    heavy_steps = burns_in(HEAVY_NS);
    serve(&address);
    measure_mixed(w, &address);
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
    {"buffered_1p", 1, stream, 1},
    {"buffered_2p", 2, stream, 1},
    {"mpmc_2p", 2, stream, 8},
    {"mutex_uncontended", 0, mutex, 1},
    {"mutex_contended", 2, mutex, 8},
    {"ring_1p", 1, ring, 503},
    {"ring_2p", 2, ring, 503},
    {"parked_10k", 0, parked, 10000},
    {"preempt", 2, preempt, 0},
    {"blocking", 2, blocking, 0},
    {"echo_2p", 2, echo, 0},
    {"http_raw", 2, http_raw, 0},
    {"mixed", 2, mixed, 0},
    {"files_hot", 0, files, 0},
    {"files_direct", 0, files, O_DIRECT},
    {"chameneos", 0, chameneos, 0},
    {"ping_pong", 0, ping_pong, 0},
    {"spawn_many", 0, spawn_many, 0},
    {"yield_many", 0, yield_many, 0},
    {"chan_prodcons", 0, chan_prodcons, 0},
    {"scale_spawn", 2, scale_spawn, 1000},
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
