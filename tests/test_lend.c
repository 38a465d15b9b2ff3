/* SPDX-License-Identifier: MIT */
/* Whoever holds a mutex that somebody more urgent waits for has that priority meanwhile. */
#include "check.h"
#include "runs.h"
#include "whitebox.h"

/*
 * Whoever is lent a priority does some WORK while hogs compute for a hundred times as long, and is to be done with it before the first
 * hog is: so much that it makes no difference if the kernel gives a thread less than its share. Nothing is lent: it has a turn of a
 * millisecond every eighth quantum, and shares those with OTHERS of low priority for each P, who compute as well: then it needs twice as
 * long as the hogs do.
 */
enum { WORK = 30 * 1000 * 1000, OTHERS = 16 };

static volatile bool over;
static _Atomic int hogs_ended;

static void hog(void *arg)
{
    (void)arg;
    for (volatile long n = 0; n < 100l * WORK && !over; n = n + 1)
        ;
    hogs_ended++;
}

static void low_hog(void *arg)
{
    (void)arg;
    while (!over)
        ;
}

static void start_hogs(void)
{
    int procs = (int)ld_relaxed(&w_sched.procs);
    over = false;
    hogs_ended = 0;
    for (int i = 0; i < OTHERS * procs; i++)
        CHECK_EQ(weft_go_with(&(weft_attr){.priority = WEFT_LOW}, low_hog, NULL), 0);
    for (int i = 0; i < 2 * procs; i++)
        CHECK_EQ(weft_go(hog, NULL), 0);
}

static void work(void)
{
    for (volatile long n = 0; n < WORK; n = n + 1)
        ;
}

struct chain {
    weft_mutex mu[3];
    weft_wg ready, done;
    int length;   /* owners, each of which waits for the next one's mutex */
    int too_late; /* hogs that had ended when the urgent one got the first mutex */
};

struct link {
    struct chain *c;
    int i;
};

/* Holds its mutex while it computes, or waits for that of the next. */
static void holder(void *arg)
{
    struct link *l = arg;
    struct chain *c = l->c;
    CHECK_EQ(weft_lock(&c->mu[l->i]), 0);
    weft_wg_done(&c->ready);
    if (l->i + 1 < c->length) {
        weft_yield();
        CHECK_EQ(weft_lock(&c->mu[l->i + 1]), 0);
        weft_unlock(&c->mu[l->i + 1]);
    } else {
        work();
    }
    weft_unlock(&c->mu[l->i]);
    CHECK_EQ(weft_get_priority(), WEFT_LOW);
    weft_wg_done(&c->done);
}

static void urgent(void *arg)
{
    struct chain *c = arg;
    CHECK_EQ(weft_lock(&c->mu[0]), 0);
    c->too_late = hogs_ended;
    weft_unlock(&c->mu[0]);
    over = true;
    weft_wg_done(&c->done);
}

/* The last first: each finds the mutex that it waits for taken. */
static void start_holders(struct chain *c, struct link *links)
{
    for (int i = c->length - 1; i >= 0; i--) {
        links[i] = (struct link){c, i};
        weft_wg_add(&c->ready, 1);
        weft_wg_add(&c->done, 1);
        CHECK_EQ(weft_go_with(&(weft_attr){.priority = WEFT_LOW}, holder, &links[i]), 0);
        CHECK_EQ(weft_wg_wait(&c->ready), 0);
    }
}

static void lend_main(void *arg)
{
    struct chain c = {.length = *(int *)arg};
    struct link links[3];
    start_holders(&c, links);
    start_hogs();
    weft_wg_add(&c.done, 1);
    CHECK_EQ(weft_go_with(&(weft_attr){.priority = WEFT_HIGH}, urgent, &c), 0);
    CHECK_EQ(weft_wg_wait(&c.done), 0);
    CHECK_EQ(c.too_late, 0);
}

CASE(a_low_holder_runs_for_a_high_waiter_beside_hogs)
{
    int one = 1;
    if (!check_under_tsan())
        EACH_PROCS(p) CHECK_EQ(run_on(p, lend_main, &one), 0);
}

CASE(what_is_lent_goes_on_along_a_chain_of_holders)
{
    int three = 3;
    if (!check_under_tsan())
        EACH_PROCS(p) CHECK_EQ(run_on(p, lend_main, &three), 0);
}

/* ---- lent to one that runs on another P -------------------------------------------------------------------------- */

static struct {
    weft_mutex mu;
    weft_wg ready, done;
    _Atomic bool busy; /* the other P is, for good */
    _Atomic bool set, late;
} elsewhere;

static void hog_elsewhere(void *arg)
{
    elsewhere.busy = true;
    low_hog(arg);
}

static void set_it(void *arg)
{
    (void)arg;
    elsewhere.set = true;
}

/* It is lent a high level while it runs, and waits for one that is behind it, on the same P. */
static void holder_elsewhere(void *arg)
{
    (void)arg;
    CHECK_EQ(weft_lock(&elsewhere.mu), 0);
    weft_preempt_off();
    weft_wg_done(&elsewhere.ready);
    for (struct w_g *g = w_m()->g; ld_relaxed(&g->level) != W_HIGH || !elsewhere.busy;)
        ;
    CHECK_EQ(weft_go_with(&(weft_attr){.priority = WEFT_NORMAL}, set_it, NULL), 0);
    weft_preempt_on();
    for (int64_t end = weft_now() + 20 * WEFT_SEC; !elsewhere.set && !elsewhere.late;) {
        work();
        elsewhere.late = weft_now() > end;
    }
    over = true;
    weft_unlock(&elsewhere.mu);
    weft_wg_done(&elsewhere.done);
}

static void wait_elsewhere(void *arg)
{
    (void)arg;
    CHECK_EQ(weft_lock(&elsewhere.mu), 0);
    weft_unlock(&elsewhere.mu);
    weft_wg_done(&elsewhere.done);
}

static void elsewhere_main(void *arg)
{
    (void)arg;
    memset(&elsewhere, 0, sizeof elsewhere);
    over = false;
    weft_wg_add(&elsewhere.ready, 1);
    weft_wg_add(&elsewhere.done, 2);
    CHECK_EQ(weft_go_with(&(weft_attr){.priority = WEFT_LOW}, holder_elsewhere, NULL), 0);
    CHECK_EQ(weft_wg_wait(&elsewhere.ready), 0);
    CHECK_EQ(weft_go_with(&(weft_attr){.priority = WEFT_HIGH}, wait_elsewhere, NULL), 0);
    CHECK_EQ(weft_go_with(&(weft_attr){.priority = WEFT_HIGH}, hog_elsewhere, NULL), 0);
    CHECK_EQ(weft_wg_wait(&elsewhere.done), 0);
    CHECK(!elsewhere.late);
}

CASE(who_is_lent_a_level_while_it_runs_gives_way_as_one_of_that_level)
{
    if (!check_under_tsan())
        CHECK_EQ(run_on(2, elsewhere_main, NULL), 0);
}

/* ---- two mutexes, and one that is taken again and again ---------------------------------------------------------- */

struct pair {
    weft_mutex a, b;
    weft_wg ready, done;
    _Atomic int waiting;
    int too_late;
};

static void holder_of_both(void *arg)
{
    struct pair *s = arg;
    CHECK_EQ(weft_lock(&s->a), 0);
    CHECK_EQ(weft_lock(&s->b), 0);
    weft_wg_done(&s->ready);
    while (s->waiting < 2) /* it is lent for both before it gives back the first */
        ;
    work();
    weft_unlock(&s->a);
    work();
    weft_unlock(&s->b);
    weft_wg_done(&s->done);
}

static void waiter_for_a(void *arg)
{
    struct pair *s = arg;
    s->waiting++;
    CHECK_EQ(weft_lock(&s->a), 0);
    weft_unlock(&s->a);
    weft_wg_done(&s->done);
}

static void waiter_for_b(void *arg)
{
    struct pair *s = arg;
    s->waiting++;
    CHECK_EQ(weft_lock(&s->b), 0);
    s->too_late = hogs_ended;
    over = true;
    weft_unlock(&s->b);
    weft_wg_done(&s->done);
}

static void both_main(void *arg)
{
    struct pair s = {.too_late = 0};
    (void)arg;
    weft_wg_add(&s.ready, 1);
    weft_wg_add(&s.done, 3);
    CHECK_EQ(weft_go_with(&(weft_attr){.priority = WEFT_LOW}, holder_of_both, &s), 0);
    CHECK_EQ(weft_wg_wait(&s.ready), 0);
    start_hogs();
    CHECK_EQ(weft_go_with(&(weft_attr){.priority = WEFT_HIGH}, waiter_for_a, &s), 0);
    CHECK_EQ(weft_go_with(&(weft_attr){.priority = WEFT_HIGH}, waiter_for_b, &s), 0);
    CHECK_EQ(weft_wg_wait(&s.done), 0);
    CHECK_EQ(s.too_late, 0);
}

CASE(what_is_lent_for_one_mutex_stays_when_another_is_given_back)
{
    if (!check_under_tsan())
        EACH_PROCS(p) CHECK_EQ(run_on(p, both_main, NULL), 0);
}

static void lock_often(void *arg)
{
    struct pair *s = arg;
    while (!over) {
        CHECK_EQ(weft_lock(&s->a), 0);
        for (volatile int i = 0; i < 100000; i = i + 1)
            ;
        weft_unlock(&s->a);
    }
    weft_wg_done(&s->done);
}

static void lock_now_and_then(void *arg)
{
    struct pair *s = arg;
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(weft_lock(&s->a), 0);
        weft_unlock(&s->a);
        weft_sleep(WEFT_MSEC);
    }
    s->too_late = hogs_ended;
    over = true;
    weft_wg_done(&s->done);
}

static void often_main(void *arg)
{
    struct pair s = {.too_late = 0};
    (void)arg;
    weft_wg_add(&s.done, 2);
    start_hogs();
    CHECK_EQ(weft_go_with(&(weft_attr){.priority = WEFT_LOW}, lock_often, &s), 0);
    CHECK_EQ(weft_go_with(&(weft_attr){.priority = WEFT_HIGH}, lock_now_and_then, &s), 0);
    CHECK_EQ(weft_wg_wait(&s.done), 0);
    CHECK_EQ(s.too_late, 0);
}

/* A low holder is asked to let others run all the time: that it holds the lock is known before it does. */
CASE(who_holds_a_lock_is_known_before_others_run)
{
    if (!check_under_tsan())
        EACH_PROCS(p) CHECK_EQ(run_on(p, often_main, NULL), 0);
}

/* ---- somebody who is about to wait -------------------------------------------------------------------------------- */

/* last holds y and is in a blocking region; middle holds x and is about to wait for y when urgent waits for x. */
struct relay {
    weft_mutex x, y;
    weft_wg ready, done;
    _Atomic(struct w_g *) last, middle, urgent;
    _Atomic int meet; /* middle and urgent go on when both are there */
    uint32_t pause;   /* of middle, or of urgent if it is odd */
};

static bool waits(struct w_g *g)
{
    return g != NULL && ld_relaxed(&g->state) == W_WAITING && ld_relaxed(&g->reason) == W_REASON_MUTEX;
}

/* Reads the levels of those who wait; half a minute is for machines with other things to do. */
static bool becomes_high(const struct relay *r)
{
    for (int i = 0; i < 300000 && ld_relaxed(&r->last->level) != W_HIGH; i++)
        usleep(100);
    return ld_relaxed(&r->last->level) == W_HIGH;
}

static void be_last(void *arg)
{
    struct relay *r = arg;
    CHECK_EQ(weft_lock(&r->y), 0);
    r->last = w_m()->g;
    weft_block_enter();
    weft_wg_done(&r->ready);
    while (!waits(r->middle) || !waits(r->urgent))
        usleep(50);
    CHECK(becomes_high(r));
    weft_block_leave();
    weft_unlock(&r->y);
    weft_wg_done(&r->done);
}

static void meet_and_pause(struct relay *r, uint32_t pause)
{
    for (r->meet++; r->meet < 2;)
        ;
    for (volatile uint32_t i = 0; i < pause; i = i + 1)
        ;
}

static void be_in_the_middle(void *arg)
{
    struct relay *r = arg;
    CHECK_EQ(weft_lock(&r->x), 0);
    weft_wg_done(&r->ready);
    meet_and_pause(r, r->pause % 2 == 0 ? r->pause : 0);
    r->middle = w_m()->g;
    CHECK_EQ(weft_lock(&r->y), 0);
    weft_unlock(&r->y);
    weft_unlock(&r->x);
    weft_wg_done(&r->done);
}

static void be_urgent(void *arg)
{
    struct relay *r = arg;
    meet_and_pause(r, r->pause % 2 == 1 ? r->pause : 0);
    r->urgent = w_m()->g;
    CHECK_EQ(weft_lock(&r->x), 0);
    weft_unlock(&r->x);
    weft_wg_done(&r->done);
}

static void relay_main(void *arg)
{
    uint64_t *seed = arg;
    for (int i = 0; i < scaled(4000); i++) {
        struct relay r = {.pause = check_random(seed) % 400};
        weft_wg_add(&r.ready, 2);
        weft_wg_add(&r.done, 3);
        CHECK_EQ(weft_go_with(&(weft_attr){.priority = WEFT_LOW}, be_last, &r), 0);
        CHECK_EQ(weft_go_with(&(weft_attr){.priority = WEFT_LOW}, be_in_the_middle, &r), 0);
        CHECK_EQ(weft_wg_wait(&r.ready), 0);
        CHECK_EQ(weft_go_with(&(weft_attr){.priority = WEFT_HIGH}, be_urgent, &r), 0);
        CHECK_EQ(weft_wg_wait(&r.done), 0);
    }
}

CASE(who_is_lent_something_while_it_is_about_to_wait_lends_it_on)
{
    uint64_t seed = check_seed();
    if (!check_under_tsan())
        CHECK_EQ(run_on(4, relay_main, &seed), 0);
}

/* ---- somebody who was woken, or is handed the lock ----------------------------------------------------------------- */

struct turns {
    weft_mutex mu;
    weft_wg done;
    _Atomic(struct w_g *) low, urgent;
    int too_late;
};

static void be_low_in_turn(void *arg)
{
    struct turns *s = arg;
    s->low = w_m()->g;
    CHECK_EQ(weft_lock(&s->mu), 0);
    weft_unlock(&s->mu);
    weft_wg_done(&s->done);
}

static void be_urgent_in_turn(void *arg)
{
    struct turns *s = arg;
    s->urgent = w_m()->g;
    CHECK_EQ(weft_lock(&s->mu), 0);
    s->too_late = hogs_ended;
    over = true;
    weft_unlock(&s->mu);
    weft_wg_done(&s->done);
}

static void start_in_turn(struct turns *s, int priority, weft_fn *fn, _Atomic(struct w_g *) *at)
{
    weft_wg_add(&s->done, 1);
    CHECK_EQ(weft_go_with(&(weft_attr){.priority = priority}, fn, s), 0);
    while (!waits(*at))
        weft_sleep(WEFT_MSEC);
}

static void handed_main(void *arg)
{
    struct turns s = {.too_late = 0};
    (void)arg;
    CHECK_EQ(weft_set_priority(WEFT_HIGH), 0);
    CHECK_EQ(weft_lock(&s.mu), 0);
    start_in_turn(&s, WEFT_LOW, be_low_in_turn, &s.low);
    start_in_turn(&s, WEFT_HIGH, be_urgent_in_turn, &s.urgent);
    start_hogs();
    weft_unlock(&s.mu);
    CHECK_EQ(weft_wg_wait(&s.done), 0);
    CHECK_EQ(s.too_late, 0);
}

CASE(who_is_in_turn_runs_for_those_behind_it)
{
    if (!check_under_tsan())
        EACH_PROCS(p) CHECK_EQ(run_on(p, handed_main, NULL), 0);
}

/* The low one is woken, and the lock taken again before it comes. */
static void overtaken_main(void *arg)
{
    struct turns s = {.too_late = 0};
    (void)arg;
    CHECK_EQ(weft_set_priority(WEFT_HIGH), 0);
    CHECK_EQ(weft_lock(&s.mu), 0);
    weft_wg_add(&s.done, 1);
    CHECK_EQ(weft_go_with(&(weft_attr){.priority = WEFT_LOW}, be_low_in_turn, &s), 0);
    while (!waits(s.low))
        weft_yield(), usleep(100);
    start_hogs();
    weft_unlock(&s.mu);
    CHECK_EQ(weft_lock(&s.mu), 0);
    start_in_turn(&s, WEFT_HIGH, be_urgent_in_turn, &s.urgent);
    weft_unlock(&s.mu);
    CHECK_EQ(weft_wg_wait(&s.done), 0);
    CHECK_EQ(s.too_late, 0);
}

CASE(who_was_woken_and_does_not_come_keeps_nobody_waiting)
{
    if (!check_under_tsan())
        EACH_PROCS(p) CHECK_EQ(run_on(p, overtaken_main, NULL), 0);
}

/* ---- priorities that change meanwhile ----------------------------------------------------------------------------- */

static void change_main(void *arg)
{
    struct turns s = {.too_late = 0};
    struct w_g *self = w_m()->g;
    (void)arg;
    over = false;
    CHECK_EQ(weft_set_priority(WEFT_LOW), 0);
    CHECK_EQ(weft_lock(&s.mu), 0);
    start_in_turn(&s, WEFT_HIGH, be_urgent_in_turn, &s.urgent);
    CHECK_EQ(ld_relaxed(&self->level), W_HIGH);
    CHECK_EQ(weft_set_priority(WEFT_HIGH), 0);
    CHECK_EQ(weft_set_priority(WEFT_NORMAL), 0);
    CHECK_EQ(ld_relaxed(&self->level), W_HIGH);
    start_in_turn(&s, WEFT_LOW, be_low_in_turn, &s.low);
    CHECK_EQ(ld_relaxed(&self->level), W_HIGH);
    weft_unlock(&s.mu);
    CHECK_EQ(ld_relaxed(&self->level), W_NORMAL);
    CHECK_EQ(weft_wg_wait(&s.done), 0);
}

static void step_down_main(void *arg)
{
    struct turns s = {.too_late = 0};
    struct w_g *self = w_m()->g;
    (void)arg;
    over = false;
    CHECK_EQ(weft_set_priority(WEFT_HIGH), 0);
    CHECK_EQ(weft_lock(&s.mu), 0);
    start_in_turn(&s, WEFT_HIGH, be_urgent_in_turn, &s.urgent);
    CHECK_EQ(weft_set_priority(WEFT_LOW), 0);
    CHECK_EQ(weft_get_priority(), WEFT_LOW);
    CHECK_EQ(ld_relaxed(&self->level), W_HIGH);
    weft_unlock(&s.mu);
    CHECK_EQ(ld_relaxed(&self->level), W_LOW);
    CHECK_EQ(weft_wg_wait(&s.done), 0);
}

CASE(who_becomes_less_urgent_while_an_urgent_one_waits_does_so_afterwards)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, step_down_main, NULL), 0);
}

CASE(what_is_lent_stays_while_one_changes_ones_own_and_no_longer)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, change_main, NULL), 0);
}
