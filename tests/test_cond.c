/* SPDX-License-Identifier: MIT */
/* Condition variables. */
#include "locks.h"

static void wait_in_turn(void *arg)
{
    struct place *at = arg;
    struct line *l = at->line;
    CHECK_EQ(weft_lock(&l->mu), 0);
    says_who(&l->who[at->number]);
    CHECK_EQ(weft_cond_wait(&l->cond, &l->mu), 0);
    CHECK_EQ(weft_try_lock(&l->mu), -EAGAIN); /* it is held again */
    CHECK_EQ(l->served++, at->number);
    weft_unlock(&l->mu);
}

static void signal_main(void *arg)
{
    struct line l = {0};
    (void)arg;
    weft_cond_signal(&l.cond); /* nobody waits: it is forgotten */
    line_up(&l, wait_in_turn);
    for (int i = 0; i < WAITERS; i++) {
        let_others_run();
        CHECK_EQ(l.served, i); /* nobody wakes by himself */
        if (i % 2 == 0) {
            weft_cond_signal(&l.cond);
        } else {
            CHECK_EQ(weft_lock(&l.mu), 0);
            weft_cond_signal(&l.cond);
            weft_unlock(&l.mu);
        }
        CHECK(reaches(&l.served, i + 1, 20));
    }
    CHECK(others_have_ended());
}

CASE(a_signal_wakes_the_one_that_waits_longest)
{
    for (int i = 0; i < scaled(20); i++)
        EACH_PROCS(p) CHECK_EQ(run_on(p, signal_main, NULL), 0);
}

static void wait_for_all(void *arg)
{
    struct line *l = ((struct place *)arg)->line;
    CHECK_EQ(weft_lock(&l->mu), 0);
    says_who(&l->who[((struct place *)arg)->number]);
    CHECK_EQ(weft_cond_wait(&l->cond, &l->mu), 0);
    l->served++;
    weft_unlock(&l->mu);
}

static void broadcast_main(void *arg)
{
    struct line l = {0};
    (void)arg;
    weft_cond_broadcast(&l.cond);
    line_up(&l, wait_for_all);
    CHECK_EQ(weft_lock(&l.mu), 0);
    weft_cond_broadcast(&l.cond);
    let_others_run();
    CHECK_EQ(l.served, 0); /* we have the mutex */
    weft_unlock(&l.mu);
    CHECK(reaches(&l.served, WAITERS, 20));
    CHECK(others_have_ended());
}

CASE(a_broadcast_wakes_all)
{
    for (int i = 0; i < scaled(20); i++)
        EACH_PROCS(p) CHECK_EQ(run_on(p, broadcast_main, NULL), 0);
}

static void wait_in_scope(void *arg)
{
    struct cut *c = arg;
    weft_scope s;
    CHECK_EQ(weft_lock(&c->mu), 0);
    CHECK_EQ(weft_scope_open(&s, WEFT_NEVER), 0);
    c->scope = &s;
    says_who(&c->who);
    CHECK_EQ(weft_cond_wait(&c->cond, &c->mu), -ECANCELED);
    CHECK_EQ(weft_try_lock(&c->mu), -EAGAIN);
    c->cut++;
    CHECK_EQ(weft_cond_wait(&c->cond, &c->mu), -ECANCELED); /* at once */
    CHECK_EQ(weft_try_lock(&c->mu), -EAGAIN);
    weft_unlock(&c->mu);
    weft_scope_close(&s);
}

static void relock_main(void *arg)
{
    struct cut c = {0};
    (void)arg;
    CHECK_EQ(weft_go(wait_in_scope, &c), 0);
    CHECK(is_asleep(&c.who));
    CHECK_EQ(weft_lock(&c.mu), 0);
    weft_scope_cancel(c.scope, -ECANCELED);
    let_others_run();
    CHECK_EQ(weft_sleep(2 * WEFT_MSEC), 0);
    CHECK_EQ(c.cut, 0); /* the wait is cut, the way back to the mutex is not */
    weft_unlock(&c.mu);
    CHECK(reaches(&c.cut, 1, 20));
    CHECK_EQ(weft_lock(&c.mu), 0);
    CHECK(others_have_ended());
}

CASE(a_wait_for_a_signal_holds_the_mutex_again_when_it_is_cut)
{
    for (int i = 0; i < scaled(20); i++)
        EACH_PROCS(p) CHECK_EQ(run_on(p, relock_main, NULL), 0);
}

/* One signal, two waiters, the first of which is cut at about the same time. */
static void wait_in_scope_or_not(void *arg)
{
    struct cut *c = arg;
    weft_scope s;
    CHECK_EQ(weft_lock(&c->mu), 0);
    CHECK_EQ(weft_scope_open(&s, WEFT_NEVER), 0);
    c->scope = &s;
    says_who(&c->who);
    int r = weft_cond_wait(&c->cond, &c->mu);
    CHECK(r == 0 || r == -ECANCELED);
    c->expected = r;
    weft_unlock(&c->mu);
    CHECK(reaches(&c->cancelled, 1, 20));
    weft_scope_close(&s);
    c->cut++;
}

static void wait_and_count(void *arg)
{
    struct cut *c = arg;
    CHECK_EQ(weft_lock(&c->mu), 0);
    says_who(&c->other);
    CHECK_EQ(weft_cond_wait(&c->cond, &c->mu), 0);
    weft_unlock(&c->mu);
    c->cut += 2;
}

static void signal_race_round(int i)
{
    struct cut c = {.expected = 1};
    CHECK_EQ(weft_go(wait_in_scope_or_not, &c), 0);
    CHECK(is_asleep(&c.who));
    CHECK_EQ(weft_go(wait_and_count, &c), 0);
    CHECK(is_asleep(&c.other));
    CHECK_EQ(weft_go(cancel_it, &c), 0);
    if (i % 2 == 0)
        weft_yield();
    spin_for(i % 50 * 20);
    weft_cond_signal(&c.cond);
    CHECK(reaches(&c.cut, 1, 20));
    while (c.cut % 2 == 0) /* until the first is back */
        weft_yield();
    if (c.expected == 0)
        weft_cond_signal(&c.cond); /* the first has had the other one */
    CHECK(reaches(&c.cut, 3, 20));
    CHECK(others_have_ended());
}

static void signal_race_main(void *arg)
{
    (void)arg;
    for (int i = 0; i < scaled(1000); i++)
        signal_race_round(i);
}

CASE(a_signal_that_meets_a_cut_is_not_lost)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, signal_race_main, NULL), 0);
}

/* Producers and consumers of a buffer with room for three, some of them threads. */
struct buffer {
    weft_mutex mu;
    weft_cond room, goods;
    int held, to_make, to_take;
    _Atomic int ended;
};

static void make(void *arg)
{
    struct buffer *b = arg;
    CHECK_EQ(weft_lock(&b->mu), 0);
    while (b->to_make > 0) {
        if (b->held == 3) {
            CHECK_EQ(weft_cond_wait(&b->room, &b->mu), 0);
            continue;
        }
        b->to_make--;
        b->held++;
        weft_cond_signal(&b->goods);
    }
    weft_cond_broadcast(&b->room); /* the other makers are through as well */
    weft_unlock(&b->mu);
    b->ended++;
}

static void consume(void *arg)
{
    struct buffer *b = arg;
    CHECK_EQ(weft_lock(&b->mu), 0);
    while (b->to_take > 0) {
        if (b->held == 0) {
            CHECK_EQ(weft_cond_wait(&b->goods, &b->mu), 0);
            continue;
        }
        b->to_take--;
        b->held--;
        weft_cond_signal(&b->room);
    }
    weft_cond_broadcast(&b->goods);
    weft_unlock(&b->mu);
    b->ended++;
}

static void *make_in_thread(void *arg)
{
    make(arg);
    return NULL;
}

static void *consume_in_thread(void *arg)
{
    consume(arg);
    return NULL;
}

static void buffer_main(void *arg)
{
    int n = scaled(20000);
    struct buffer b = {.to_make = n, .to_take = n};
    pthread_t threads[2];
    (void)arg;
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(weft_go(make, &b), 0);
        CHECK_EQ(weft_go(consume, &b), 0);
    }
    CHECK_EQ(pthread_create(&threads[0], NULL, make_in_thread, &b), 0);
    CHECK_EQ(pthread_create(&threads[1], NULL, consume_in_thread, &b), 0);
    join_in_region(threads, 2);
    CHECK(reaches(&b.ended, 8, 20));
    CHECK_EQ(b.held, 0);
    CHECK(others_have_ended());
}

CASE(makers_and_takers_meet_at_a_buffer)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, buffer_main, NULL), 0);
}

static weft_mutex outlives;
static weft_cond outlives_too;
static _Atomic int waiting_for_it, begun;

static void wait_for_what_outlives_too(void *arg)
{
    (void)arg;
    CHECK_EQ(weft_lock(&outlives), 0);
    waiting_for_it++;
    CHECK_EQ(weft_cond_wait(&outlives_too, &outlives), 0);
    waiting_for_it--;
    weft_unlock(&outlives);
}

static void leave_them_waiting(void *arg)
{
    (void)arg;
    waiting_for_it = 0;
    for (int i = 0; i < 3; i++)
        CHECK_EQ(weft_go(wait_for_what_outlives_too, NULL), 0);
    CHECK(reaches(&waiting_for_it, 3, 20));
    CHECK_EQ(weft_lock(&outlives), 0); /* the last of them has let go of it */
    weft_unlock(&outlives);
}

static void wake_the_new_ones(void *arg)
{
    weft_cond_signal(&outlives_too); /* would be for one that is gone */
    leave_them_waiting(arg);
    weft_cond_broadcast(&outlives_too);
    CHECK(others_have_ended());
    CHECK_EQ(waiting_for_it, 0);
}

CASE(a_condition_outlives_the_run_of_those_who_wait_for_it)
{
    EACH_PROCS(p)
    {
        CHECK_EQ(run_on(p, leave_them_waiting, NULL), 0);
        weft_cond_broadcast(&outlives_too);
        CHECK_EQ(run_on(p, wake_the_new_ones, NULL), 0);
    }
}

static void *wait_for_a_signal_that_never_comes(void *arg)
{
    (void)arg;
    CHECK_EQ(weft_lock(&outlives), 0);
    begun++;
    int r = weft_cond_wait(&outlives_too, &outlives);
    CHECK(r == -ECANCELED || r == -EPERM);
    CHECK_EQ(weft_try_lock(&outlives), -EAGAIN);
    usleep(2000); /* the others come meanwhile */
    CHECK_EQ(weft_try_lock(&outlives), -EAGAIN);
    weft_unlock(&outlives);
    return NULL;
}

static void end_under_waiting_threads(void *arg)
{
    pthread_t *threads = arg;
    begun = 0;
    for (int i = 0; i < 3; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, wait_for_a_signal_that_never_comes, NULL), 0);
    CHECK(reaches(&begun, 3, 20));
}

/* They hold the mutex again one after the other, although nobody can wait for it any more. */
CASE(threads_get_the_mutex_back_after_the_end_of_the_run)
{
    EACH_PROCS(p)
    {
        pthread_t threads[3];
        CHECK_EQ(run_on(p, end_under_waiting_threads, threads), 0);
        for (int i = 0; i < 3; i++)
            pthread_join(threads[i], NULL);
    }
}
