/* SPDX-License-Identifier: MIT */
/* Who gets a processor, and when, while others compute without a call: sleepers, those who are woken, and what it costs. */
#include "pending.h"
#include "weft_bench.h"

#include <math.h>

/* One goroutine measures; it starts the hogs itself, so that they cannot keep it from beginning. */
static struct {
    weft_wg hogs, measured;
    int64_t times[SAMPLES];
    _Atomic size_t n;
} fair;

static void hog(void *arg)
{
    (void)arg;
    be_a_hog();
    weft_wg_done(&fair.hogs);
}

static void start_hogs(void)
{
    limit_hogs();
    weft_wg_add(&fair.hogs, HOGS);
    for (int i = 0; i < HOGS; i++) /* of normal priority, whatever that of who starts them */
        must("weft_go_with", weft_go_with(&(weft_attr){.priority = WEFT_NORMAL}, hog, NULL));
}

/* Lets a goroutine of the priority w->size fill fair.times, and reports them. */
static void measure(const struct workload *w, weft_fn *fn, void *arg)
{
    weft_wg_add(&fair.measured, 1);
    must("weft_go_with", weft_go_with(&(weft_attr){.priority = w->size}, fn, arg));
    wait_for(&fair.measured);
    wait_for(&fair.hogs);
    report_spread_us(w, fair.times, fair.n);
}

static void measured(void)
{
    stop_hogs();
    weft_wg_done(&fair.measured);
}

/* ---- preempt: how late does a sleeper wake? --------------------------------------------------------------------- */

static void sleep_often(void *arg)
{
    (void)arg;
    start_hogs();
    do {
        int64_t begin = now_ns();
        must("weft_sleep", weft_sleep(PERIOD_NS));
        fair.times[fair.n++] = now_ns() - begin - PERIOD_NS;
    } while (fair.n < wanted_samples() && hogs_go_on());
    measured();
}

void preempt(const struct workload *w)
{
    measure(w, sleep_often, NULL);
}

/* ---- ready: how long after a foreign thread has sent to it does a receiver run? --------------------------------- */

/* Sends the time. */
static void *send_often(void *ch)
{
    for (size_t i = 0; i < wanted_samples() && hogs_go_on(); i++) {
        nanosleep(&(struct timespec){.tv_nsec = PERIOD_NS}, NULL);
        put(ch, now_ns());
    }
    weft_close(ch);
    return NULL;
}

static void receive_often(void *ch)
{
    start_hogs();
    pthread_t sender;
    must("pthread_create", -pthread_create(&sender, NULL, send_often, ch));
    must("pthread_detach", -pthread_detach(sender));
    for (int64_t sent; take_next(ch, &sent);)
        fair.times[fair.n++] = now_ns() - sent;
    measured();
}

void ready(const struct workload *w)
{
    weft_chan *ch = new_chan(sizeof(int64_t), 0);
    measure(w, receive_often, ch);
    weft_chan_free(ch); /* its close was observed */
}

/* ---- quantum_cost: what preemption costs those who need none ---------------------------------------------------- */

enum { COMPUTERS = 4, COST_ROUNDS = 20, COMPUTE_NS = 30000000 /* each, in a run */ };

struct cost {
    double wall, cpu; /* milliseconds, the least */
};

static int64_t compute_steps;

static void compute(void *done)
{
    burn(compute_steps);
    weft_wg_done(done);
}

static void compute_all(void *arg)
{
    (void)arg;
    weft_wg done = {0};
    weft_wg_add(&done, COMPUTERS);
    for (int i = 0; i < COMPUTERS; i++)
        go(compute, &done);
    wait_for(&done);
}

static void run_with_quantum(int64_t quantum, struct cost *least)
{
    weft_config config = {.procs = 2, .quantum = quantum};
    int64_t start = now_ns();
    double before = cpu_ms();
    must("weft_run", weft_run_with(&config, compute_all, NULL));
    double cpu = cpu_ms() - before, wall = ms_since(start);
    least->cpu = cpu < least->cpu ? cpu : least->cpu;
    least->wall = wall < least->wall ? wall : least->wall;
}

/* Outside of a run: it makes its own, in turn with a quantum and without. */
void quantum_cost(const struct workload *w)
{
    compute_steps = burns_in(COMPUTE_NS);
    struct cost with = {INFINITY, INFINITY}, without = {INFINITY, INFINITY};
    for (int i = 0; i < scaled(COST_ROUNDS); i++) {
        run_with_quantum(WEFT_NEVER, &without);
        run_with_quantum(WEFT_MSEC, &with);
    }
    report_part(w, "percent", 100 * (with.wall / without.wall - 1), "%");
    report_part(w, "cpu_percent", 100 * (with.cpu / without.cpu - 1), "%");
}

/* ---- preempt_cost: from the last instruction of one goroutine to the first of the next, both stopped by signal --------- */

static struct {
    _Atomic int64_t at; /* when somebody last looked at the clock */
    _Atomic(const void *) by;
} last_look;

static size_t looks_wanted;

static void note(int64_t ns)
{
    size_t i = fair.n++; /* in one step: it may be stopped anywhere */
    if (i < looks_wanted)
        fair.times[i] = ns;
}

static void look_often(void *done)
{
    const void *self = &done;
    while (hogs_go_on() && fair.n < looks_wanted) {
        burn(BURN_BETWEEN_LOOKS);
        int64_t now = now_ns(), at = last_look.at;
        if (last_look.by != NULL && last_look.by != self && at < now) /* else it was stopped right here */
            note(now - at);
        last_look.at = now; /* first: who is stopped in between loses a sample, and makes no wrong one */
        last_look.by = self;
    }
    weft_wg_done(done);
}

/* ---- preempt_own: the same from the moment when the signal is let in ------------------------------------------------- */

static void let_in_often(void *done)
{
    const void *self = &done;
    while (hogs_go_on() && fair.n < looks_wanted) {
        keep_out_until_one_waits();
        last_look.by = self;
        last_look.at = now_ns();
        let_in(true);
        int64_t now = now_ns();
        if (last_look.by != self)
            note(now - last_look.at);
    }
    weft_wg_done(done);
}

/* ---- both --------------------------------------------------------------------------------------------------------- */

static void two_in_turn(void *fn)
{
    weft_wg done = {0};
    limit_hogs();
    weft_wg_add(&done, 2);
    go((weft_fn *)fn, &done);
    go((weft_fn *)fn, &done);
    wait_for(&done);
}

/* Outside of a run: it has a quantum of its own. */
static void measure_in_turn(const struct workload *w, weft_fn *fn)
{
    weft_config config = {.procs = 1, .quantum = WEFT_MSEC};
    looks_wanted = wanted_samples();
    must("weft_run", weft_run_with(&config, two_in_turn, (void *)fn));
    report_spread_us(w, fair.times, fair.n < looks_wanted ? fair.n : looks_wanted);
}

void preempt_cost(const struct workload *w)
{
    measure_in_turn(w, look_often);
}

void preempt_own(const struct workload *w)
{
    measure_in_turn(w, let_in_often);
}
