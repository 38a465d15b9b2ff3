/* SPDX-License-Identifier: MIT */
/*
 * Suites that others have published, as they are described there: chameneos-redux of the Computer Language Benchmarks
 * Game, the four of the article on tokio's scheduler, and those of Go's own runtime. bench/go/suites.go and so on do the
 * same. Skynet and the products of matrices are in weft_tree.c, the Game's thread-ring is ring in weft_chan.c.
 */
#include "weft_bench.h"

/* For suites that have several figures: each of them takes its part of the second. */
static int64_t part_of(int parts)
{
    return measure_ns() / parts;
}

/* ---- chameneos: creatures meet in pairs at one place and change their colours ----------------------------------- */

enum { MEETINGS = 100000, MOST_CREATURES = 10 };
enum colour { BLUE, RED, YELLOW };

struct creature {
    enum colour colour;
    int64_t meetings;
    weft_sem met; /* who came first waits for the other one */
};

static struct {
    weft_mutex lock;
    int left;                /* lock: meetings */
    struct creature *waiter; /* lock: who came first */
    int creatures;
    weft_wg done;
} place;

static enum colour after_meeting(enum colour a, enum colour b)
{
    return a == b ? a : (enum colour)(BLUE + RED + YELLOW - a - b);
}

/* Who came second makes the change for both. */
static void meet(struct creature *self, struct creature *other)
{
    self->colour = other->colour = after_meeting(self->colour, other->colour);
    self->meetings++;
    other->meetings++;
    weft_sem_release(&other->met, 1);
}

/* False: there are no meetings any more. */
static bool go_to_meeting(struct creature *self)
{
    must("weft_lock", weft_lock(&place.lock));
    struct creature *other = place.waiter;
    bool open = place.left > 0;
    place.left -= open && other != NULL;
    place.waiter = open && other == NULL ? self : NULL;
    weft_unlock(&place.lock);
    if (open && other != NULL)
        meet(self, other);
    else if (open)
        must("weft_sem_acquire", weft_sem_acquire(&self->met, 1));
    return open;
}

static void live(void *creature)
{
    while (go_to_meeting(creature))
        ;
    weft_wg_done(&place.done);
}

static void chameneos_pass(void)
{
    static const enum colour colours[MOST_CREATURES] = {BLUE, RED, YELLOW, RED, YELLOW, BLUE, RED, YELLOW, RED, BLUE};
    struct creature creatures[MOST_CREATURES] = {0};
    place.left = MEETINGS;
    weft_wg_add(&place.done, place.creatures);
    for (int i = 0; i < place.creatures; i++) {
        creatures[i].colour = colours[i];
        go(live, &creatures[i]);
    }
    wait_for(&place.done);
    int64_t meetings = 0;
    for (int i = 0; i < place.creatures; i++)
        meetings += creatures[i].meetings;
    expect("the number of those who met", meetings, 2 * MEETINGS);
}

void chameneos(const struct workload *w)
{
    place.creatures = 3;
    report_part(w, "3", per_op_in(part_of(2), chameneos_pass, MEETINGS), "ns/meeting");
    place.creatures = MOST_CREATURES;
    report_part(w, "10", per_op_in(part_of(2), chameneos_pass, MEETINGS), "ns/meeting");
}

/* ---- chained_spawn: each of 1,000 goroutines starts the next ---------------------------------------------------- */

enum { CHAIN = 1000 };

struct link {
    int left;
    weft_chan *done;
};

static void chain_link(void *arg)
{
    struct link *l = arg;
    if (l->left == 0) {
        put(l->done, 0);
        return;
    }
    struct link next = {l->left - 1, l->done};
    go_copy(chain_link, &next, sizeof next);
}

/* So many chains of that length at once. */
static void run_chains(int chains, int length)
{
    struct link first = {length, new_chan(sizeof(int64_t), 1)};
    for (int i = 0; i < chains; i++)
        go_copy(chain_link, &first, sizeof first);
    for (int i = 0; i < chains; i++)
        take(first.done);
    weft_chan_free(first.done);
}

static void chained_spawn_pass(void)
{
    run_chains(1, CHAIN);
}

void chained_spawn(const struct workload *w)
{
    report(w, per_op(chained_spawn_pass, 1) / 1e3, "us");
}

/* ---- ping_pong: 1,000 goroutines, each of which starts another one, asks it and is answered --------------------- */

enum { PINGS = 1000 };

/* The last of so many tells who waits. */
static struct {
    _Atomic int left;
    weft_chan *done;
} countdown;

static void begin_countdown(int n)
{
    countdown.left = n;
    countdown.done = new_chan(sizeof(int64_t), 1);
}

static void count_down(void)
{
    if (atomic_fetch_sub(&countdown.left, 1) == 1)
        put(countdown.done, 0);
}

static void end_countdown(void)
{
    take(countdown.done);
    weft_chan_free(countdown.done);
}

struct exchange {
    weft_chan *question, *answer;
};

static void answer_one(void *arg)
{
    struct exchange *e = arg;
    take(e->question);
    put(e->answer, 0);
}

static void ask_one(void *arg)
{
    (void)arg;
    struct exchange e = {new_chan(sizeof(int64_t), 1), new_chan(sizeof(int64_t), 1)};
    go_copy(answer_one, &e, sizeof e);
    put(e.question, 0);
    take(e.answer);
    weft_chan_free(e.question);
    weft_chan_free(e.answer);
    count_down();
}

static void ask_all(void *arg)
{
    (void)arg;
    for (int i = 0; i < PINGS; i++)
        go(ask_one, NULL);
}

static void ping_pong_pass(void)
{
    begin_countdown(PINGS);
    go(ask_all, NULL);
    end_countdown();
}

void ping_pong(const struct workload *w)
{
    report(w, per_op(ping_pong_pass, 1) / 1e3, "us");
}

/* ---- spawn_many: 10,000 goroutines, the last of which tells ----------------------------------------------------- */

enum { MANY = 10000 };

static void one_of_many(void *arg)
{
    (void)arg;
    count_down();
}

static void spawn_many_pass(void)
{
    begin_countdown(MANY);
    for (int i = 0; i < MANY; i++)
        go(one_of_many, NULL);
    end_countdown();
}

void spawn_many(const struct workload *w)
{
    report(w, per_op(spawn_many_pass, 1) / 1e3, "us");
}

/* ---- yield_many: 200 goroutines yield 1,000 times each ---------------------------------------------------------- */

enum { YIELDERS = 200, YIELDS_EACH = 1000 };

static void yield_often(void *done)
{
    for (int i = 0; i < YIELDS_EACH; i++)
        weft_yield();
    put(done, 0);
}

static void yield_many_pass(void)
{
    weft_chan *done = new_chan(sizeof(int64_t), YIELDERS);
    for (int i = 0; i < YIELDERS; i++)
        go(yield_often, done);
    for (int i = 0; i < YIELDERS; i++)
        take(done);
    weft_chan_free(done);
}

void yield_many(const struct workload *w)
{
    report(w, per_op(yield_many_pass, 1) / 1e3, "us");
}

/* ---- create_goroutines: each starts the next, in one chain, and in one for each P ------------------------------- */

enum { CREATED = 200000 };

static void create_one_chain(void)
{
    run_chains(1, CREATED);
}

static void create_chains(void)
{
    int procs = weft_procs(0);
    run_chains(procs, CREATED / procs);
}

void create_goroutines(const struct workload *w)
{
    report(w, per_op_in(part_of(2), create_one_chain, CREATED), "ns");
    report_part(w, "parallel", per_op_in(part_of(2), create_chains, CREATED), "ns");
}

/* ---- pingpong_hog: two play ping-pong on one P beside one who never stops looking at a channel ------------------ */

enum { HOG_ROUND_TRIPS = 200000 };

static struct {
    weft_chan *ping, *pong, *stop;
    weft_wg done;
} game;

static void look_at_channel(void *arg)
{
    (void)arg;
    while (weft_try_recv(game.stop, NULL) == -EAGAIN)
        ;
    weft_wg_done(&game.done);
}

static void hog_pong(void *arg)
{
    (void)arg;
    for (int i = 0; i < HOG_ROUND_TRIPS; i++)
        put(game.pong, take(game.ping));
    weft_wg_done(&game.done);
}

static void hog_pass(void)
{
    game.ping = new_chan(sizeof(int64_t), 0);
    game.pong = new_chan(sizeof(int64_t), 0);
    game.stop = new_chan(0, 0);
    weft_wg_add(&game.done, 2);
    go(look_at_channel, NULL);
    go(hog_pong, NULL);
    for (int64_t i = 0; i < HOG_ROUND_TRIPS; i++) {
        put(game.ping, i);
        take(game.pong);
    }
    weft_close(game.stop);
    wait_for(&game.done);
    weft_chan_free(game.ping);
    weft_chan_free(game.pong);
    weft_chan_free(game.stop);
}

void pingpong_hog(const struct workload *w)
{
    report(w, per_op(hog_pass, HOG_ROUND_TRIPS), "ns/round trip");
}

/* ---- chan_prodcons, select_prodcons: for each P a producer and a consumer, all on one channel ------------------- */

enum { PRODCONS_CALLS = 200000, CALLS_AT_ONCE = 1000, SELECT_CAPACITY = 128, SELECT_WORK = 100, PRODCONS_PARTS = 4 };

static struct {
    size_t capacity;
    int work; /* steps of computation for each item, on either side */
    bool select;
    _Atomic int batches;
    weft_chan *items, *closed; /* the latter never is */
    int64_t never;             /* a deadline that no pass comes to */
    weft_wg done;
} prodcons;

static void local_work(void)
{
    int64_t x = 0;
    for (int i = 0; i < prodcons.work; i++)
        __asm__ volatile("" : "=r"(x) : "0"(x * 2 / 2));
}

/* By select beside a deadline and a channel that are never ready, or without. */
static void transfer(weft_case item)
{
    if (!prodcons.select) {
        must("a transfer",
             item.op == WEFT_OP_SEND ? weft_send(item.chan, item.value) : weft_recv(item.chan, item.value));
        return;
    }
    weft_case cases[] = {item, WEFT_AT(prodcons.never), WEFT_RECV(prodcons.closed, NULL)};
    expect("the case that was ready", weft_select(cases, 3), 0);
}

static void produce(void *arg)
{
    (void)arg;
    const int64_t one = 1, last = 0;
    while (atomic_fetch_sub(&prodcons.batches, 1) > 0)
        for (int i = 0; i < CALLS_AT_ONCE; i++) {
            local_work();
            transfer(WEFT_SEND(prodcons.items, &one));
        }
    transfer(WEFT_SEND(prodcons.items, &last));
    weft_wg_done(&prodcons.done);
}

static void consume(void *arg)
{
    (void)arg;
    int64_t v = 0;
    for (transfer(WEFT_RECV(prodcons.items, &v)); v != 0; transfer(WEFT_RECV(prodcons.items, &v)))
        local_work();
    weft_wg_done(&prodcons.done);
}

static void prodcons_pass(void)
{
    int procs = weft_procs(0);
    prodcons.items = new_chan(sizeof(int64_t), prodcons.capacity);
    prodcons.closed = new_chan(0, 0);
    prodcons.never = weft_now() + 3600 * WEFT_SEC;
    prodcons.batches = PRODCONS_CALLS / CALLS_AT_ONCE;
    weft_wg_add(&prodcons.done, 2 * procs);
    for (int i = 0; i < procs; i++) {
        go(produce, NULL);
        go(consume, NULL);
    }
    wait_for(&prodcons.done);
    weft_chan_free(prodcons.items);
    weft_chan_free(prodcons.closed);
}

static void report_prodcons(const struct workload *w, const char *part, size_t capacity, int work)
{
    prodcons.capacity = capacity;
    prodcons.work = work;
    report_part(w, part, per_op_in(part_of(PRODCONS_PARTS), prodcons_pass, PRODCONS_CALLS), "ns/item");
}

void chan_prodcons(const struct workload *w)
{
    report_prodcons(w, "0", 0, 0);
    report_prodcons(w, "10", 10, 0);
    report_prodcons(w, "100", 100, 0);
    report_prodcons(w, "work100", 100, 100);
}

void select_prodcons(const struct workload *w)
{
    prodcons.select = true;
    prodcons.capacity = SELECT_CAPACITY;
    prodcons.work = SELECT_WORK;
    report(w, per_op(prodcons_pass, PRODCONS_CALLS), "ns/item");
}

/* ---- wakeup_parallel: two wake each other after some work: does it go on in parallel? --------------------------- */

enum { WAKE_UPS = 1000, WAKE_DELAY_NS = 5000, WAKEUP_PARTS = 5 };

static struct {
    int64_t delay;
    void (*work)(int64_t ns);
    weft_chan *ping, *pong;
} wakeups;

static void spin_for(int64_t ns)
{
    for (int64_t end = now_ns() + ns; now_ns() < end;)
        ;
}

static void sleep_in_kernel(int64_t ns)
{
    weft_block_enter();
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
    weft_block_leave();
}

/* The sender works a little longer, so that the receiver waits for it when both run at once. */
static void wake_other(weft_chan *ch)
{
    wakeups.work(wakeups.delay + WAKE_DELAY_NS);
    put(ch, 0);
}

static void be_woken(weft_chan *ch)
{
    wakeups.work(wakeups.delay);
    take(ch);
}

static void second_waker(void *arg)
{
    (void)arg;
    for (int i = 0; i < WAKE_UPS; i++) {
        be_woken(wakeups.ping);
        wake_other(wakeups.pong);
    }
}

static void wakeup_pass(void)
{
    wakeups.ping = new_chan(sizeof(int64_t), 0);
    wakeups.pong = new_chan(sizeof(int64_t), 0);
    go(second_waker, NULL);
    for (int i = 0; i < WAKE_UPS; i++) {
        wake_other(wakeups.ping);
        be_woken(wakeups.pong);
    }
    weft_chan_free(wakeups.ping); /* the last value was received: nobody uses them */
    weft_chan_free(wakeups.pong);
}

static void report_wakeup(const struct workload *w, const char *part, void (*work)(int64_t), int64_t delay)
{
    wakeups.work = work;
    wakeups.delay = delay;
    report_part(w, part, per_op_in(part_of(WAKEUP_PARTS), wakeup_pass, WAKE_UPS) / 1e3, "us");
}

void wakeup_parallel(const struct workload *w)
{
    report_wakeup(w, "spin0", spin_for, 0);
    report_wakeup(w, "spin1", spin_for, 1000);
    report_wakeup(w, "spin10", spin_for, 10000);
    report_wakeup(w, "spin100", spin_for, 100000);
    report_wakeup(w, "syscall10", sleep_in_kernel, 10000);
}
