/* SPDX-License-Identifier: MIT */
/* Every kind of wait, cut in every way: by a cancel, by a deadline, beforehand, or not because of a shield. */
#include "wait_kinds.h"

static uint64_t seed;

static void each_kind(weft_fn *fn)
{
    seed = check_seed();
    EACH_PROCS(p) for (int k = 0; k < KIND_COUNT; k++)
    {
        CHECK_EQ(run_on(p, fn, (void *)&KINDS[k]), 0);
    }
}

/* ---- cut -------------------------------------------------------------------------------------------------------- */

static void cancel_main(void *arg)
{
    uint64_t rng = seed;
    for (int i = 0; i < scaled(40); i++) {
        static const int errors[] = {-ECANCELED, -EIO, -ETIMEDOUT};
        struct trial t;
        weft_scope s;
        int err = errors[i % 3];
        trial_begin(&t, arg);
        CHECK_EQ(weft_scope_open(&s, i % 2 ? WEFT_NEVER : weft_now() + 3600 * WEFT_SEC), 0);
        CHECK_EQ(weft_scope_go(&s, trial_wait, &t), 0);
        CHECK(reaches(&t.begun, 1, 60));
        a_moment(&rng);
        weft_scope_cancel(&s, err);
        CHECK_EQ(weft_scope_close(&s), err);
        trial_end(&t, err == -EIO ? -ECANCELED : err);
    }
}

CASE(every_wait_is_cut_when_its_scope_is_cancelled)
{
    each_kind(cancel_main);
}

static void deadline_main(void *arg)
{
    for (int i = 0; i < scaled(10); i++) {
        struct trial t;
        weft_scope outer, s;
        int64_t deadline = weft_now() + 200 * WEFT_USEC * i;
        trial_begin(&t, arg);
        CHECK_EQ(weft_scope_open(&outer, i % 2 ? deadline : WEFT_NEVER), 0);
        CHECK_EQ(weft_scope_open(&s, i % 2 ? WEFT_NEVER : deadline), 0);
        trial_wait(&t); /* the one who opened it */
        CHECK(weft_now() >= deadline);
        CHECK_EQ(weft_scope_close(&s), -ETIMEDOUT);
        CHECK_EQ(weft_scope_close(&outer), i % 2 ? -ETIMEDOUT : 0);
        trial_end(&t, -ETIMEDOUT);
    }
}

CASE(every_wait_is_cut_when_its_deadline_passes)
{
    each_kind(deadline_main);
}

static void over_main(void *arg)
{
    for (int i = 0; i < 4; i++) {
        struct trial t;
        weft_scope s;
        trial_begin(&t, arg);
        CHECK_EQ(weft_scope_open(&s, i % 2 ? weft_now() - 1 : WEFT_NEVER), 0);
        if (i % 2 == 0)
            weft_scope_cancel(&s, -EPERM);
        trial_wait(&t);
        CHECK_EQ(weft_scope_close(&s), i % 2 ? -ETIMEDOUT : -EPERM);
        trial_end(&t, i % 2 ? -ETIMEDOUT : -ECANCELED);
    }
}

CASE(no_wait_begins_in_a_scope_that_is_over)
{
    each_kind(over_main);
}

/* ---- not cut ---------------------------------------------------------------------------------------------------- */

static void event_main(void *arg)
{
    uint64_t rng = seed;
    for (int i = 0; i < 2 * scaled(20); i++) {
        bool cancelled = i % 2;
        struct trial t;
        weft_scope s;
        trial_begin(&t, arg);
        t.shielded = cancelled;
        t.world.sleep = 30 * WEFT_USEC;
        if (t.kind->check == never_happens)
            return;
        CHECK_EQ(weft_scope_open(&s, WEFT_NEVER), 0);
        CHECK_EQ(weft_scope_go(&s, trial_wait, &t), 0);
        CHECK(reaches(&t.begun, 1, 60));
        a_moment(&rng);
        if (cancelled)
            weft_scope_cancel(&s, -ECANCELED);
        weft_shield();
        if (t.kind->event != NULL)
            let_it_go(&t);
        weft_unshield();
        CHECK_EQ(weft_scope_close(&s), cancelled ? -ECANCELED : 0);
        trial_end(&t, 0);
    }
}

CASE(no_wait_is_cut_in_a_scope_that_lasts_or_behind_a_shield)
{
    each_kind(event_main);
}

/* ---- cut or not ------------------------------------------------------------------------------------------------- */

static void let_it_go_once(void *arg)
{
    struct trial *t = arg;
    a_moment(&t->rng);
    if (t->kind->event != NULL)
        t->event = t->kind->event(&t->world);
    weft_wg_done(&t->ended);
}

static void cut_it(void *arg)
{
    struct trial *t = arg;
    a_moment(&t->cut_rng);
    weft_scope_cancel(t->scope, -ECANCELED);
    weft_wg_done(&t->ended);
}

static void race_main(void *arg)
{
    uint64_t rng = seed;
    for (int i = 0; i < scaled(1500); i++) {
        struct trial t;
        weft_scope s;
        uint32_t r = check_random(&rng);
        trial_begin(&t, arg);
        t.world.sleep = r >> 8 & 0xffff;
        t.rng = r | 1;
        t.cut_rng = ~r | 1;
        t.scope = &s;
        bool by_deadline = r % 4 == 0;
        CHECK_EQ(weft_scope_open(&s, by_deadline ? weft_now() + (r >> 8 & 0x3ffff) : WEFT_NEVER), 0);
        weft_wg_add(&t.ended, by_deadline ? 1 : 2);
        CHECK_EQ(weft_go(let_it_go_once, &t), 0);
        if (!by_deadline)
            CHECK_EQ(weft_go(cut_it, &t), 0);
        trial_wait(&t);
        weft_shield();
        CHECK_EQ(weft_wg_wait(&t.ended), 0);
        weft_unshield();
        int err = weft_scope_close(&s);
        CHECK(by_deadline ? err == 0 || err == -ETIMEDOUT : err == -ECANCELED);
        trial_end(&t, 1);
    }
}

CASE(a_wait_that_is_cut_while_it_happens_has_happened_or_not)
{
    each_kind(race_main);
}

/* ---- others behind the one that is cut -------------------------------------------------------------------------- */

struct pair {
    struct trial t; /* the one who is cut, or not */
    int second;     /* what the other's wait returned */
    _Atomic int second_begun, second_ended;
};

static void wait_second(void *arg)
{
    struct pair *p = arg;
    p->second_begun = 1;
    p->second = p->t.kind->wait(&p->t.world);
    p->second_ended = 1;
}

static void let_one_go(void *arg)
{
    struct trial *t = arg;
    a_moment(&t->rng);
    let_it_go(t);
    weft_wg_done(&t->ended);
}

static void pair_main(void *arg)
{
    const struct kind *kind = arg;
    uint64_t rng = seed;
    for (int i = 0; kind->in_turn && i < scaled(600); i++) {
        struct pair p = {.second = 0};
        weft_scope s;
        trial_begin(&p.t, kind);
        p.t.world.waiters = 2;
        p.t.rng = check_random(&rng) | 1;
        p.t.cut_rng = check_random(&rng) | 1;
        p.t.scope = &s;
        CHECK_EQ(weft_scope_open(&s, WEFT_NEVER), 0);
        CHECK_EQ(weft_scope_go(&s, trial_wait, &p.t), 0);
        if (i % 2)
            CHECK(reaches(&p.t.begun, 1, 60));
        CHECK_EQ(weft_go(wait_second, &p), 0);
        weft_wg_add(&p.t.ended, 2);
        CHECK_EQ(weft_go(let_one_go, &p.t), 0);
        CHECK_EQ(weft_go(cut_it, &p.t), 0);
        weft_shield();
        CHECK_EQ(weft_wg_wait(&p.t.ended), 0);
        weft_unshield();
        CHECK_EQ(weft_scope_close(&s), -ECANCELED);
        if (p.t.result != -ECANCELED) {
            for (int k = 0; k < 10; k++)
                weft_yield();
            CHECK_EQ(p.second_ended, 0);
            let_it_go(&p.t);
        }
        CHECK(reaches(&p.second_ended, 1, 60)); /* if the first was cut, the event was for this one */
        CHECK(p.second >= 0);
        trial_free(&p.t);
    }
}

CASE(what_lets_one_go_is_not_lost_on_another_that_is_cut)
{
    each_kind(pair_main);
}

/* Readers wait behind a writer that waits behind a reader. */
struct queue {
    weft_rwmutex rw;
    weft_sem sem;
    _Atomic int begun, passed;
};

static void write_behind(void *arg)
{
    struct queue *q = arg;
    q->begun = 1;
    CHECK_EQ(weft_wrlock(&q->rw), -ECANCELED);
}

static void read_behind(void *arg)
{
    struct queue *q = arg;
    CHECK_EQ(weft_rdlock(&q->rw), 0);
    q->passed++;
    weft_rdunlock(&q->rw);
}

static void acquire_much(void *arg)
{
    struct queue *q = arg;
    q->begun = 1;
    CHECK_EQ(weft_sem_acquire(&q->sem, 10), -ECANCELED);
}

static void acquire_little(void *arg)
{
    struct queue *q = arg;
    CHECK_EQ(weft_sem_acquire(&q->sem, 1), 0);
    q->passed++;
}

static void queue_main(void *arg)
{
    uint64_t rng = seed;
    bool reading = arg != NULL;
    for (int i = 0; i < scaled(300); i++) {
        struct queue q = {.begun = 0};
        weft_scope s;
        CHECK_EQ(weft_rdlock(&q.rw), 0);
        weft_sem_release(&q.sem, 4);
        CHECK_EQ(weft_scope_open(&s, WEFT_NEVER), 0);
        CHECK_EQ(weft_scope_go(&s, reading ? write_behind : acquire_much, &q), 0);
        CHECK(reaches(&q.begun, 1, 60));
        a_moment(&rng);
        for (int k = 0; k < 4; k++)
            CHECK_EQ(weft_go(reading ? read_behind : acquire_little, &q), 0);
        a_moment(&rng);
        weft_scope_cancel(&s, -ECANCELED);
        CHECK_EQ(weft_scope_close(&s), -ECANCELED);
        CHECK(reaches(&q.passed, 4, 60));
        CHECK(others_have_ended());
        CHECK_EQ(weft_sem_try_acquire(&q.sem, 4), reading ? 0 : -EAGAIN);
        weft_rdunlock(&q.rw);
        CHECK_EQ(weft_try_wrlock(&q.rw), 0);
    }
}

CASE(a_writer_that_is_cut_lets_the_readers_behind_it_go)
{
    seed = check_seed();
    EACH_PROCS(p) CHECK_EQ(run_on(p, queue_main, &seed), 0);
}

CASE(a_large_acquire_that_is_cut_lets_the_small_ones_behind_it_go)
{
    seed = check_seed();
    EACH_PROCS(p) CHECK_EQ(run_on(p, queue_main, NULL), 0);
}

/* ---- what is never cut ------------------------------------------------------------------------------------------ */

struct uncut {
    weft_mutex mu;
    weft_cond cond;
    weft_once once;
    _Atomic int begun, back, called;
};

static void wait_and_lock_again(void *arg)
{
    struct uncut *u = arg;
    weft_shield();
    CHECK_EQ(weft_lock(&u->mu), 0);
    weft_unshield();
    u->begun++;
    CHECK_EQ(weft_cond_wait(&u->cond, &u->mu), -ECANCELED);
    u->back++;
    weft_unlock(&u->mu);
}

static void relock_main(void *arg)
{
    (void)arg;
    for (int i = 0; i < scaled(100); i++) {
        struct uncut u = {.begun = 0};
        weft_scope s;
        CHECK_EQ(weft_scope_open(&s, WEFT_NEVER), 0);
        for (int k = 0; k < 5; k++)
            CHECK_EQ(weft_scope_go(&s, wait_and_lock_again, &u), 0);
        CHECK(reaches(&u.begun, 5, 60));
        CHECK_EQ(weft_lock(&u.mu), 0);
        weft_scope_cancel(&s, -ECANCELED);
        for (int k = 0; k < 20; k++)
            weft_yield();
        CHECK_EQ(u.back, 0);
        weft_unlock(&u.mu);
        CHECK_EQ(weft_scope_close(&s), -ECANCELED);
        CHECK_EQ(u.back, 5);
    }
}

CASE(a_condition_that_is_cut_still_takes_its_mutex_again)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, relock_main, NULL), 0);
}

static void call_slowly(void *arg)
{
    struct uncut *u = arg;
    u->begun++;
    CHECK_EQ(weft_sleep(2 * WEFT_MSEC), 0);
    u->called++;
}

static void call_once(void *arg)
{
    struct uncut *u = arg;
    weft_once_do(&u->once, call_slowly, u);
    CHECK_EQ(u->called, 1);
}

static void once_main(void *arg)
{
    (void)arg;
    for (int i = 0; i < scaled(20); i++) {
        struct uncut u = {.begun = 0};
        weft_scope s;
        CHECK_EQ(weft_go(call_once, &u), 0);
        CHECK(reaches(&u.begun, 1, 60));
        CHECK_EQ(weft_scope_open(&s, WEFT_NEVER), 0);
        weft_scope_cancel(&s, -ECANCELED);
        call_once(&u);
        CHECK_EQ(weft_scope_close(&s), -ECANCELED);
        CHECK(others_have_ended());
    }
}

CASE(nobody_returns_from_once_before_the_call_has)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, once_main, NULL), 0);
}

/* ---- foreign threads -------------------------------------------------------------------------------------------- */

static void *wait_in_thread(void *arg)
{
    struct trial *t = arg;
    weft_scope s;
    int err = t->event ? 0 : -EIO; /* it is to happen */
    t->scope = &s;
    CHECK_EQ(weft_scope_open(&s, WEFT_NEVER), 0);
    trial_wait(t);
    CHECK_EQ(weft_scope_close(&s), err);
    CHECK_EQ(weft_cancelled(), 0);
    return NULL;
}

static void *time_out_in_thread(void *arg)
{
    struct trial *t = arg;
    weft_scope s;
    CHECK_EQ(weft_scope_open(&s, weft_now() + WEFT_MSEC), 0);
    trial_wait(t);
    CHECK_EQ(weft_scope_close(&s), -ETIMEDOUT);
    return NULL;
}

static void sleep_on(void *arg)
{
    (void)arg;
    weft_sleep(3600 * WEFT_SEC);
}

static void thread_main(void *arg)
{
    const struct kind *kind = arg;
    uint64_t rng = seed;
    CHECK_EQ(weft_go(sleep_on, NULL), 0); /* who waits for what a thread holds would be a deadlock else */
    static const int results[] = {-ECANCELED, -ETIMEDOUT, 0};
    for (int mode = 0; mode < 3; mode++) {
        struct trial t;
        pthread_t thread;
        trial_begin(&t, kind);
        t.event = results[mode] == 0;
        if (t.event && kind->event == NULL)
            continue;
        CHECK_EQ(pthread_create(&thread, NULL, mode == 1 ? time_out_in_thread : wait_in_thread, &t), 0);
        CHECK(reaches(&t.begun, 1, 60));
        a_moment(&rng);
        if (mode == 0)
            weft_scope_cancel(t.scope, -EIO);
        else if (mode == 2)
            let_it_go(&t);
        join_in_region(&thread, 1);
        trial_end(&t, results[mode]);
    }
}

CASE(the_waits_of_foreign_threads_are_cut_too)
{
    each_kind(thread_main);
}
