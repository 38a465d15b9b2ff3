/* SPDX-License-Identifier: MIT */
/* What threads have instead of channels: a queue with a bound, made of a mutex and two condition variables. */
#include "threads.h"

#include <sched.h>

enum { MOST_ITEMS = 128 };

struct queue {
    pthread_mutex_t lock;
    pthread_cond_t not_empty, not_full;
    bool closed; /* lock, as all below */
    int capacity, first, count;
    int64_t items[MOST_ITEMS];
};

static void open_queue(struct queue *q, int capacity)
{
    *q = (struct queue){.lock = PTHREAD_MUTEX_INITIALIZER,
                        .not_empty = PTHREAD_COND_INITIALIZER,
                        .not_full = PTHREAD_COND_INITIALIZER,
                        .capacity = capacity};
}

static void put(struct queue *q, int64_t item)
{
    pthread_mutex_lock(&q->lock);
    while (q->count == q->capacity)
        pthread_cond_wait(&q->not_full, &q->lock);
    q->items[(q->first + q->count++) % q->capacity] = item;
    pthread_cond_signal(&q->not_empty);
    pthread_mutex_unlock(&q->lock);
}

/* False once it is closed and drained. */
static bool take(struct queue *q, int64_t *item)
{
    pthread_mutex_lock(&q->lock);
    while (q->count == 0 && !q->closed)
        pthread_cond_wait(&q->not_empty, &q->lock);
    bool found = q->count > 0;
    if (found) {
        *item = q->items[q->first];
        q->first = (q->first + 1) % q->capacity;
        q->count--;
        pthread_cond_signal(&q->not_full);
    }
    pthread_mutex_unlock(&q->lock);
    return found;
}

static void close_queue(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->closed = true;
    pthread_cond_broadcast(&q->not_empty);
    pthread_mutex_unlock(&q->lock);
}

/* ---- buffered, mpmc: w->size producers, as many consumers, one queue -------------------------------------------- */

enum { STREAM_ITEMS = 80000, MOST_ENDS = 8 };

static struct {
    int ends; /* producers, and as many consumers */
    struct queue items;
} flow;

static void *producer(void *arg)
{
    for (int64_t v = 0; v < STREAM_ITEMS / flow.ends; v++)
        put(&flow.items, v);
    return arg;
}

static void *consumer(void *arg)
{
    for (int64_t v; take(&flow.items, &v);)
        ;
    return arg;
}

static void stream_pass(void)
{
    pthread_t producers[MOST_ENDS], consumers[MOST_ENDS];
    open_queue(&flow.items, MOST_ITEMS);
    for (int i = 0; i < flow.ends; i++) {
        producers[i] = start_thread(producer, NULL);
        consumers[i] = start_thread(consumer, NULL);
    }
    for (int i = 0; i < flow.ends; i++)
        join(producers[i]);
    close_queue(&flow.items);
    for (int i = 0; i < flow.ends; i++)
        join(consumers[i]);
}

void stream(const struct workload *w)
{
    flow.ends = w->size < MOST_ENDS ? w->size : MOST_ENDS;
    report(w, per_op(stream_pass, STREAM_ITEMS), "ns/item");
}

/* ---- ring: w->size threads pass a token by queues of one item --------------------------------------------------- */

enum { RING_HOPS = 20000 };

static struct {
    int size;
    struct queue *queues; /* one into each member */
    struct queue ended;
} members;

static void *pass_on(void *arg)
{
    int64_t i = (intptr_t)arg;
    for (int64_t hops; take(&members.queues[i], &hops);) {
        if (hops > 1)
            put(&members.queues[(i + 1) % members.size], hops - 1);
        else
            put(&members.ended, i);
    }
    return NULL;
}

static void ring_pass(void)
{
    int64_t last;
    put(&members.queues[0], RING_HOPS);
    take(&members.ended, &last);
    expect("the one who got the last hop", last, (RING_HOPS - 1) % members.size);
}

void ring(const struct workload *w)
{
    members.size = w->size;
    members.queues = calloc((size_t)w->size, sizeof *members.queues);
    if (members.queues == NULL)
        die("calloc", ENOMEM);
    open_queue(&members.ended, 1);
    for (int i = 0; i < w->size; i++)
        open_queue(&members.queues[i], 1);
    for (intptr_t i = 0; i < w->size; i++)
        start_thread(pass_on, (void *)i); /* the end of the process ends them */
    report(w, per_op(ring_pass, RING_HOPS), "ns/hop");
}

/* ---- chameneos: creatures meet in pairs at one place and change their colours ----------------------------------- */

enum { MEETINGS = 20000, MOST_CREATURES = 10 };
enum colour { BLUE, RED, YELLOW };

struct creature {
    enum colour colour;
    int64_t meetings;
    bool met;               /* the place's lock */
    pthread_cond_t changed; /* who came first waits for the other one */
};

static struct {
    pthread_mutex_t lock;
    int left;                /* lock: meetings */
    struct creature *waiter; /* lock: who came first */
    int creatures;
} place = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void wait_for_other(struct creature *self)
{
    place.waiter = self;
    for (self->met = false; !self->met;)
        pthread_cond_wait(&self->changed, &place.lock);
}

/* Who comes second makes the change for both. */
static void meet(struct creature *self, struct creature *other)
{
    enum colour a = self->colour, b = other->colour;
    place.waiter = NULL;
    place.left--;
    self->colour = other->colour = a == b ? a : (enum colour)(BLUE + RED + YELLOW - a - b);
    self->meetings++;
    other->meetings++;
    other->met = true;
    pthread_cond_signal(&other->changed);
}

static void *live(void *arg)
{
    pthread_mutex_lock(&place.lock);
    while (place.left > 0) {
        if (place.waiter == NULL)
            wait_for_other(arg);
        else
            meet(arg, place.waiter);
    }
    pthread_mutex_unlock(&place.lock);
    return NULL;
}

static void chameneos_pass(void)
{
    static const enum colour colours[MOST_CREATURES] = {BLUE, RED, YELLOW, RED, YELLOW, BLUE, RED, YELLOW, RED, BLUE};
    struct creature creatures[MOST_CREATURES] = {0};
    pthread_t lives[MOST_CREATURES];
    place.left = MEETINGS;
    for (int i = 0; i < place.creatures; i++) {
        creatures[i] = (struct creature){.colour = colours[i], .changed = PTHREAD_COND_INITIALIZER};
        lives[i] = start_thread(live, &creatures[i]);
    }
    int64_t meetings = 0;
    for (int i = 0; i < place.creatures; i++) {
        join(lives[i]);
        meetings += creatures[i].meetings;
    }
    expect("the number of those who met", meetings, 2 * MEETINGS);
}

void chameneos(const struct workload *w)
{
    place.creatures = 3;
    report_part(w, "3", per_op_in(measure_ns() / 2, chameneos_pass, MEETINGS), "ns/meeting");
    place.creatures = MOST_CREATURES;
    report_part(w, "10", per_op_in(measure_ns() / 2, chameneos_pass, MEETINGS), "ns/meeting");
}

/* ---- ping_pong: 1,000 threads, each of which starts another one, asks it and is answered ------------------------ */

enum { PINGS = 1000 };

struct exchange {
    struct queue question, answer;
};

static void *answer_one(void *arg)
{
    struct exchange *e = arg;
    int64_t v;
    take(&e->question, &v);
    put(&e->answer, v);
    return NULL;
}

static void *ask_one(void *arg)
{
    struct exchange e;
    int64_t v;
    open_queue(&e.question, 1);
    open_queue(&e.answer, 1);
    pthread_t other = start_thread(answer_one, &e);
    put(&e.question, 0);
    take(&e.answer, &v);
    join(other);
    return arg;
}

static void ping_pong_pass(void)
{
    pthread_t threads[PINGS];
    for (int i = 0; i < PINGS; i++)
        threads[i] = start_thread(ask_one, NULL);
    for (int i = 0; i < PINGS; i++)
        join(threads[i]);
}

void ping_pong(const struct workload *w)
{
    report(w, per_op(ping_pong_pass, 1) / 1e3, "us");
}

/* ---- chan_prodcons: for each CPU a producer and a consumer, all on one queue ------------------------------------ */

enum { PRODCONS_CALLS = 20000, CALLS_AT_ONCE = 1000, MOST_CPUS = 256, PRODCONS_PARTS = 3 };

static struct {
    int capacity, work; /* steps of computation for each item, on either side */
    _Atomic int batches;
    struct queue items;
} prodcons;

static void local_work(void)
{
    int64_t x = 0;
    for (int i = 0; i < prodcons.work; i++)
        __asm__ volatile("" : "=r"(x) : "0"(x * 2 / 2));
}

static void *produce(void *arg)
{
    while (atomic_fetch_sub(&prodcons.batches, 1) > 0)
        for (int i = 0; i < CALLS_AT_ONCE; i++) {
            local_work();
            put(&prodcons.items, 1);
        }
    put(&prodcons.items, 0);
    return arg;
}

static void *consume(void *arg)
{
    for (int64_t v; take(&prodcons.items, &v) && v != 0;)
        local_work();
    return arg;
}

static int cpus(void)
{
    cpu_set_t usable;
    if (sched_getaffinity(0, sizeof usable, &usable) != 0)
        die("sched_getaffinity", errno);
    int n = CPU_COUNT(&usable);
    return n < MOST_CPUS ? n : MOST_CPUS;
}

static void prodcons_pass(void)
{
    pthread_t producers[MOST_CPUS], consumers[MOST_CPUS];
    int n = cpus();
    open_queue(&prodcons.items, prodcons.capacity);
    prodcons.batches = PRODCONS_CALLS / CALLS_AT_ONCE;
    for (int i = 0; i < n; i++) {
        producers[i] = start_thread(produce, NULL);
        consumers[i] = start_thread(consume, NULL);
    }
    for (int i = 0; i < n; i++) {
        join(producers[i]);
        join(consumers[i]);
    }
}

static void report_prodcons(const struct workload *w, const char *part, int capacity, int work)
{
    prodcons.capacity = capacity;
    prodcons.work = work;
    report_part(w, part, per_op_in(measure_ns() / PRODCONS_PARTS, prodcons_pass, PRODCONS_CALLS), "ns/item");
}

/* A queue without room hands nothing over: that part is left out. */
void chan_prodcons(const struct workload *w)
{
    report_prodcons(w, "10", 10, 0);
    report_prodcons(w, "100", 100, 0);
    report_prodcons(w, "work100", 100, 100);
}
