/* SPDX-License-Identifier: MIT */
/*
 * weft_dump and weft_dump_json, and the reports at the end of a run.
 *
 * A dump is made by a thread of its own: reading debug information needs a stack that no goroutine has, and takes its time. Who asked for it
 * waits for that thread, a goroutine in a blocking region, so that its P goes to others. If no thread can be made the caller does it
 * himself, with the names that need no debug information.
 *
 * The run cannot end meanwhile: a foreign thread is counted (foreign.c), and a goroutine is inside the runtime as far as the end of the
 * run can tell (DU1), so that its M is waited for.
 *
 * Two turns, waited for asleep. One looks at a time: the places where running threads are met are there once (look.c). And one writes
 * at a time, so that dumps to the same descriptor do not mix; that turn may be kept for as long as nobody reads, so it comes first, and
 * who looks waits for nobody but those who look. Whoever has a descriptor of his own needs the first alone (w_dump_json_apart).
 */
#include "dump.h"
#include "symbol.h"
#include <stdlib.h>

enum { STACK = 1 << 20 };

typedef void write_fn(struct w_out *out, const struct w_census *c);

struct job {
    int fd;
    write_fn *write;
    bool look, quick, hurried;
    int64_t patience; /* for the turn to look; negative: without limit */
    int result;
};

static _Atomic uint32_t looking, writing; /* futexes: 1 while somebody does, 2: and others wait */

/* Waits so long at the most (negative: without limit). */
static bool take_turn(_Atomic uint32_t *turn, int64_t ns)
{
    uint32_t free = 0;
    int64_t until = w_now() + ns;
    if (cas_acquire(turn, &free, 1)) /* [DU-1] the places of look.c, as the last one left them */
        return true;
    while (xchg_acquire(turn, 2) != 0) { /* [DU-1] */
        int64_t left = ns < 0 ? -1 : until - w_now();
        if (ns >= 0 && left <= 0)
            return false;
        w_futex_wait(turn, 2, left);
    }
    return true;
}

static void give_turn(_Atomic uint32_t *turn)
{
    if (xchg_release(turn, 0) == 2) /* [DU-1] */
        w_futex_wake(turn, 1);
}

static int take_census(struct w_census *c, const struct job *job)
{
    bool look = job->look && take_turn(&looking, job->patience);
    int r = w_census_take(c, look);
    if (look)
        give_turn(&looking);
    return r;
}

static void *dump(void *arg)
{
    struct job *job = arg;
    struct w_out out = {.fd = job->fd, .quick = job->quick, .hurried = job->hurried};
    struct w_census c;
    job->result = take_census(&c, job);
    if (job->result != 0)
        return NULL;
    job->write(&out, &c);
    w_out_flush(&out);
    if (!job->quick)
        w_symbols_close();
    w_census_free(&c);
    job->result = out.err;
    return NULL;
}

bool w_call_in_thread(void *(*fn)(void *), void *arg)
{
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    int r = pthread_attr_init(&attr);
    if (r == 0) {
        pthread_attr_setstacksize(&attr, STACK);
        pthread_sigmask(SIG_SETMASK, &all, &before); /* the program's signals are not for this thread */
        r = pthread_create(&thread, &attr, fn, arg);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        pthread_attr_destroy(&attr);
    }
    if (r == 0)
        pthread_join(thread, NULL);
    return r == 0;
}

static void dump_in_thread(struct job *job)
{
    if (!w_call_in_thread(dump, job)) {
        job->quick = true;
        dump(job);
    }
}

static int dump_to(int fd, write_fn *write, bool apart)
{
    struct job job = {.fd = fd, .write = write, .look = true, .hurried = true, .patience = -1};
    int r = w_stay_begin(); /* DU1 */
    if (r != 0)
        return r;
    if (!apart)
        take_turn(&writing, -1);
    dump_in_thread(&job);
    if (!apart)
        give_turn(&writing);
    w_stay_end();
    return job.result;
}

int weft_dump(int fd)
{
    return dump_to(fd, w_dump_text, false);
}

int weft_dump_json(int fd)
{
    return dump_to(fd, w_dump_as_json, false);
}

int w_dump_json_apart(int fd)
{
    return dump_to(fd, w_dump_as_json, true);
}

/* Somebody may be dumping to a descriptor that takes nothing: then without a turn, and without what needs one. */
int w_dump_here(int fd, bool quick)
{
    static const int64_t LIMIT = 5 * WEFT_SEC;
    bool turn_taken = !quick && take_turn(&writing, LIMIT);
    struct job job = {.fd = fd, .write = w_dump_text, .look = turn_taken, .quick = !turn_taken, .patience = LIMIT};
    if (turn_taken) {
        dump_in_thread(&job);
        give_turn(&writing);
    } else {
        dump(&job);
    }
    return job.result;
}

/* ---- the end of a run ------------------------------------------------------------------------------------------- */

static void count_g(struct w_g *g, void *arg)
{
    enum w_state state = ld_relaxed(&g->state);
    *(uint32_t *)arg += state != W_IDLE && state != W_DEAD && !(g->flags & W_G_SERVICE);
}

/* WEFT_DEBUG=leaks: the run has ended with these alive. */
void w_report_leaks(void)
{
    uint32_t n = 0;
    w_gs_each(count_g, &n);
    if (n == 0)
        return;
    w_say("leaks: %u goroutine(s) were alive when the run ended", n);
    w_dump_here(STDERR_FILENO, false);
}

void w_report_deadlock(void)
{
    w_flight_report("deadlock");
    w_say("deadlock: every goroutine is asleep, and nothing can wake one");
    w_dump_here(STDERR_FILENO, false);
}
