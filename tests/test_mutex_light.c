/* SPDX-License-Identifier: MIT */
/* Unlocks of mutexes that are light while nobody waits, and heavy when somebody does. */
#include "locks.h"
#include <stdlib.h>

static void light_main(void *arg)
{
    static struct cut c;
    (void)arg;
    c = (struct cut){0};
    for (int i = 0; i < 5; i++) {
        calm_down(&c.mu);
        CHECK_EQ(light(&c.mu), can_be_light());
        c.other = NULL;
        CHECK_EQ(weft_lock(&c.mu), 0);
        CHECK_EQ(weft_go(lock_and_pass, &c), 0);
        CHECK(is_asleep(&c.other));
        CHECK(!light(&c.mu));
        weft_unlock(&c.mu);
        CHECK(reaches(&c.passed, i + 1, 20));
    }
    CHECK(others_have_ended());
}

CASE(an_unlock_is_light_again_when_nobody_has_waited_for_long)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, light_main, NULL), 0);
}

/* The unlock has stored its 0 before the waiter comes, but is so slow that it looks at the bucket when the waiter sleeps. */
static void late_unlock_main(void *arg)
{
    static struct cut c;
    (void)arg;
    c = (struct cut){0};
    CHECK_EQ(weft_lock(&c.mu), 0);
    CHECK_EQ(weft_go(lock_and_pass, &c), 0);
    CHECK(is_asleep(&c.other));
    __atomic_store_n((unsigned char *)&c.mu.state_, 0, __ATOMIC_RELEASE);
    let_others_run();
    CHECK_EQ(c.passed, 0);
    weft_unlocked_late_(&c.mu);
    CHECK(reaches(&c.passed, 1, 20));

    weft_unlocked_late_(&c.mu); /* nobody waits */
    CHECK_EQ(weft_try_lock(&c.mu), 0);
    weft_unlocked_late_(&c.mu); /* somebody has it */
    CHECK_EQ(weft_try_lock(&c.mu), -EAGAIN);
    c.other = NULL;
    CHECK_EQ(weft_go(lock_and_pass, &c), 0);
    CHECK(is_asleep(&c.other));
    weft_unlocked_late_(&c.mu); /* and somebody waits for it: for the one who has it to see to */
    let_others_run();
    CHECK_EQ(c.passed, 1);
    weft_unlock(&c.mu);
    CHECK(reaches(&c.passed, 2, 20));
    CHECK(others_have_ended());
}

CASE(a_light_unlock_that_is_late_wakes_the_waiter)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, late_unlock_main, NULL), 0);
}

/* A waiter comes at about the time of the last of many light unlocks. */
struct meeting {
    weft_mutex mu;
    _Atomic int called, came;
    int rounds, count;
};

static void meet(void *arg)
{
    struct meeting *m = arg;
    for (int i = 1; i <= m->rounds; i++) {
        CHECK(reaches(&m->called, i, 20));
        CHECK_EQ(weft_lock(&m->mu), 0);
        m->count++;
        weft_unlock(&m->mu);
        m->came = i;
    }
}

static void meeting_main(void *arg)
{
    struct meeting m = {.rounds = scaled(200)};
    (void)arg;
    CHECK_EQ(weft_go(meet, &m), 0);
    for (int i = 1; i <= m.rounds; i++) {
        calm_down(&m.mu);
        CHECK_EQ(weft_lock(&m.mu), 0);
        m.called = i;
        spin_for(3000 + i * 7919 % 3000); /* the other spins for some microseconds before it sleeps */
        m.count++;
        weft_unlock(&m.mu);
        CHECK(reaches(&m.came, i, 20));
    }
    CHECK_EQ(m.count, 2 * m.rounds);
    CHECK(others_have_ended());
}

CASE(a_light_unlock_is_not_missed_by_the_first_waiter)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, meeting_main, NULL), 0);
}

/* One that takes the lock again and again with light unlocks, and one that comes whenever they have become light. */
static void come_and_go(void *arg)
{
    struct meeting *m = arg;
    for (int i = 1; i <= m->rounds; i++) {
        for (int j = 0; j < 10000 && !light(&m->mu) && can_be_light(); j++)
            weft_yield();
        CHECK_EQ(weft_lock(&m->mu), 0);
        m->count++;
        weft_unlock(&m->mu);
        m->came = i;
    }
}

static void hammer_main(void *arg)
{
    struct meeting m = {.rounds = scaled(200)};
    int n = 0;
    (void)arg;
    CHECK_EQ(weft_go(come_and_go, &m), 0);
    for (; m.came < m.rounds; n++) {
        CHECK_EQ(weft_lock(&m.mu), 0);
        m.count++;
        spin_for(50);
        weft_unlock(&m.mu);
        if (n % 1000 == 0)
            weft_yield();
    }
    CHECK_EQ(m.count, n + m.rounds);
    CHECK(others_have_ended());
}

CASE(light_unlocks_go_on_while_waiters_come_and_go)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, hammer_main, NULL), 0);
}

enum { MANY = 2000 };

struct crowd {
    weft_mutex mu[MANY];
    _Atomic int arrived, passed;
};

static void lock_its_own(void *arg)
{
    struct crowd *c = *(struct crowd **)arg;
    int i = c->arrived++;
    CHECK_EQ(weft_lock(&c->mu[i]), 0);
    weft_unlock(&c->mu[i]);
    c->passed++;
}

static void crowd_main(void *arg)
{
    struct crowd *c = calloc(1, sizeof *c);
    (void)arg;
    for (int i = 0; i < MANY; i++)
        CHECK_EQ(weft_lock(&c->mu[i]), 0);
    for (int i = 0; i < MANY; i++)
        CHECK_EQ(weft_go_copy(lock_its_own, &c, sizeof c), 0);
    CHECK(reaches(&c->arrived, MANY, 20));
    let_others_run();
    CHECK_EQ(c->passed, 0);
    for (int i = 0; i < MANY; i++)
        weft_unlock(&c->mu[i * 7 % MANY]);
    CHECK(reaches(&c->passed, MANY, 20));
    CHECK(others_have_ended());
    free(c);
}

CASE(many_mutexes_are_waited_for_at_once)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, crowd_main, NULL), 0);
}
