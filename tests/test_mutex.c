/* SPDX-License-Identifier: MIT */
/* Mutexes and condition variables. */
#include "waits.h"
#include <stdlib.h>

enum { WAITERS = 6 };

/* ---- one at a time ---------------------------------------------------------------------------------------------- */

static void zero_main(void *arg)
{
    weft_mutex mu = {0};
    (void)arg;
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(weft_lock(&mu), 0);
        CHECK_EQ(weft_try_lock(&mu), -EAGAIN);
        weft_unlock(&mu);
        CHECK_EQ(weft_try_lock(&mu), 0);
        weft_unlock(&mu);
    }
}

CASE(a_mutex_of_zero_bytes_is_ready)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, zero_main, NULL), 0);
    zero_main(NULL); /* without a runtime too */
}

/* A counter that only one may touch at a time. */
struct shared {
    weft_mutex mu;
    weft_wg all;
    int count, rounds;
    _Atomic int inside;
};

static void enter(struct shared *s)
{
    CHECK_EQ(atomic_fetch_add(&s->inside, 1), 0);
    s->count++;
}

static void leave(struct shared *s)
{
    atomic_fetch_sub(&s->inside, 1);
    weft_unlock(&s->mu);
}

static void count_up(void *arg)
{
    struct shared *s = arg;
    for (int i = 0; i < s->rounds; i++) {
        CHECK_EQ(weft_lock(&s->mu), 0);
        enter(s);
        if (i % 64 == 0)
            weft_yield();
        if (i % 1024 == 1)
            CHECK_EQ(weft_sleep(WEFT_USEC), 0);
        leave(s);
    }
    weft_wg_done(&s->all);
}

static void count_main(void *arg)
{
    int goroutines = *(int *)arg;
    struct shared s = {.rounds = scaled(40000) / goroutines + 1};
    weft_wg_add(&s.all, goroutines);
    for (int i = 0; i < goroutines; i++)
        CHECK_EQ(weft_go(count_up, &s), 0);
    CHECK_EQ(weft_wg_wait(&s.all), 0);
    CHECK_EQ(s.count, goroutines * s.rounds);
    CHECK_EQ(weft_try_lock(&s.mu), 0);
}

CASE(one_at_a_time_is_inside)
{
    static int crowds[] = {2, 8, 200};
    for (int i = 0; i < 3; i++)
        EACH_PROCS(p) CHECK_EQ(run_on(p, count_main, &crowds[i]), 0);
}

static void unlock_it(void *arg)
{
    weft_unlock(arg);
}

static void others_unlock_main(void *arg)
{
    weft_mutex mu = {0};
    (void)arg;
    for (int i = 0; i < 100; i++) {
        CHECK_EQ(weft_lock(&mu), 0); /* from the second round on: waits for the other */
        CHECK_EQ(weft_go(unlock_it, &mu), 0);
    }
    CHECK_EQ(weft_lock(&mu), 0);
    CHECK(others_have_ended());
}

CASE(any_goroutine_may_unlock)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, others_unlock_main, NULL), 0);
}

static void lock_while_held(void)
{
    weft_mutex mu = {0};
    CHECK_EQ(weft_lock(&mu), 0);
    weft_lock(&mu);
}

static void deadlock_main(void *arg)
{
    (void)arg;
    lock_while_held();
}

static void deadlock_child(void)
{
    CHECK_EQ(run_on(2, deadlock_main, NULL), -EDEADLK);
}

CASE(a_lock_that_is_never_opened_is_a_deadlock)
{
    char text[4096];
    CHECK(child_is_well(deadlock_child, text, sizeof text));
    CHECK(strstr(text, "deadlock") != NULL);
}

/* ---- turns ------------------------------------------------------------------------------------------------------ */

struct line {
    weft_mutex mu;
    weft_cond cond;
    _Atomic(struct w_g *) who[WAITERS];
    _Atomic int served;
};

struct place {
    struct line *line;
    int number;
};

static void lock_in_turn(void *arg)
{
    struct place *at = arg;
    says_who(&at->line->who[at->number]);
    CHECK_EQ(weft_lock(&at->line->mu), 0);
    CHECK_EQ(at->line->served++, at->number);
    weft_unlock(&at->line->mu);
}

/* Each is asleep before the next comes. */
static void line_up(struct line *l, weft_fn *fn)
{
    for (int i = 0; i < WAITERS; i++) {
        CHECK_EQ(weft_go_copy(fn, &(struct place){l, i}, sizeof(struct place)), 0);
        CHECK(is_asleep(&l->who[i]));
    }
}

static void turns_main(void *arg)
{
    struct line l = {0};
    (void)arg;
    CHECK_EQ(weft_lock(&l.mu), 0);
    line_up(&l, lock_in_turn);
    CHECK_EQ(l.served, 0);
    weft_unlock(&l.mu);
    CHECK(reaches(&l.served, WAITERS, 20));
    CHECK(others_have_ended());
}

CASE(waiters_get_the_lock_in_turn)
{
    for (int i = 0; i < scaled(20); i++)
        EACH_PROCS(p) CHECK_EQ(run_on(p, turns_main, NULL), 0);
}

struct greedy {
    weft_mutex mu;
    _Atomic bool over;
    _Atomic int victims;
};

static void lock_for_ever(void *arg)
{
    struct greedy *s = arg;
    while (!s->over) {
        CHECK_EQ(weft_lock(&s->mu), 0);
        spin_for(1000);
        weft_unlock(&s->mu);
        weft_id(); /* where it may be asked to let others run */
    }
    s->victims--;
}

static void lock_a_few_times(void *arg)
{
    struct greedy *s = arg;
    for (int i = 0; i < 10; i++) {
        CHECK_EQ(weft_lock(&s->mu), 0);
        weft_unlock(&s->mu);
        weft_yield();
    }
    s->victims--;
}

/* The greedy ones never pause: without preference for those who waited long, the others might wait for ever. */
static void greedy_main(void *arg)
{
    struct greedy s = {0};
    int many = *(int *)arg;
    for (int i = 0; i < many; i++) {
        s.victims++;
        CHECK_EQ(weft_go(lock_a_few_times, &s), 0);
    }
    for (int i = 0; i < 2; i++)
        CHECK_EQ(weft_go(lock_for_ever, &s), 0);
    while (s.victims > 0)
        CHECK_EQ(weft_sleep(WEFT_MSEC), 0);
    s.victims = 2;
    s.over = true;
    while (s.victims > 0)
        weft_yield();
}

CASE(nobody_waits_for_ever_behind_newcomers)
{
    static int many[] = {1, 5};
    for (int i = 0; i < 2; i++)
        EACH_PROCS(p) CHECK_EQ(run_on(p, greedy_main, &many[i]), 0);
}

/* ---- waits that are cut ----------------------------------------------------------------------------------------- */

struct cut {
    weft_mutex mu;
    weft_cond cond;
    weft_scope *scope;
    _Atomic(struct w_g *) who, other;
    _Atomic int cut, passed, cancelled;
    int64_t deadline;
    int expected;
};

static void lock_in_scope(void *arg)
{
    struct cut *c = arg;
    weft_scope s;
    CHECK_EQ(weft_scope_open(&s, c->deadline), 0);
    c->scope = &s;
    says_who(&c->who);
    CHECK_EQ(weft_lock(&c->mu), c->expected);
    CHECK_EQ(weft_lock(&c->mu), c->expected); /* it is over: the next wait does not begin */
    weft_scope_close(&s);
    c->cut++;
}

static void lock_and_pass(void *arg)
{
    struct cut *c = arg;
    says_who(&c->other);
    CHECK_EQ(weft_lock(&c->mu), 0);
    weft_unlock(&c->mu);
    c->passed++;
}

static void cut_main(void *arg)
{
    struct cut c = {.deadline = WEFT_NEVER, .expected = -ECANCELED};
    (void)arg;
    CHECK_EQ(weft_lock(&c.mu), 0);
    CHECK_EQ(weft_go(lock_in_scope, &c), 0);
    CHECK(is_asleep(&c.who));
    CHECK_EQ(weft_go(lock_and_pass, &c), 0);
    CHECK(is_asleep(&c.other));
    weft_scope_cancel(c.scope, -ECANCELED);
    CHECK(reaches(&c.cut, 1, 20));
    let_others_run();
    CHECK_EQ(c.passed, 0); /* the one behind it waits as before */
    weft_unlock(&c.mu);
    CHECK(reaches(&c.passed, 1, 20));
    CHECK_EQ(weft_try_lock(&c.mu), 0);
    CHECK(others_have_ended());
}

CASE(a_wait_that_is_cut_holds_nothing)
{
    for (int i = 0; i < scaled(20); i++)
        EACH_PROCS(p) CHECK_EQ(run_on(p, cut_main, NULL), 0);
}

static void late_main(void *arg)
{
    struct cut c = {.deadline = weft_now() + WEFT_MSEC, .expected = -ETIMEDOUT};
    (void)arg;
    CHECK_EQ(weft_lock(&c.mu), 0);
    CHECK_EQ(weft_go(lock_in_scope, &c), 0);
    CHECK(reaches(&c.cut, 1, 20));
    weft_unlock(&c.mu);
    CHECK(others_have_ended());
}

CASE(a_deadline_ends_the_wait_for_a_lock)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, late_main, NULL), 0);
}

static void over_main(void *arg)
{
    weft_mutex mu = {0};
    weft_scope s;
    (void)arg;
    CHECK_EQ(weft_scope_open(&s, WEFT_NEVER), 0);
    weft_scope_cancel(&s, -ECANCELED);
    CHECK_EQ(weft_lock(&mu), 0);
    CHECK_EQ(weft_lock(&mu), -ECANCELED);
    CHECK_EQ(weft_try_lock(&mu), -EAGAIN);
    weft_unlock(&mu);
    CHECK_EQ(weft_try_lock(&mu), 0);
    CHECK_EQ(weft_scope_close(&s), -ECANCELED);
}

CASE(a_lock_that_is_free_is_taken_in_a_scope_that_is_over)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, over_main, NULL), 0);
}

/* The first waiter is cut and woken at about the same time; the second must get the lock whichever came first. */
static void lock_in_scope_or_not(void *arg)
{
    struct cut *c = arg;
    weft_scope s;
    CHECK_EQ(weft_scope_open(&s, WEFT_NEVER), 0);
    c->scope = &s;
    says_who(&c->who);
    int r = weft_lock(&c->mu);
    CHECK(r == 0 || r == -ECANCELED);
    if (r == 0)
        weft_unlock(&c->mu);
    CHECK(reaches(&c->cancelled, 1, 20)); /* the scope is needed until then */
    weft_scope_close(&s);
    c->cut++;
}

static void cancel_it(void *arg)
{
    struct cut *c = arg;
    weft_scope_cancel(c->scope, -ECANCELED);
    c->cancelled++;
}

static void race_round(int i)
{
    struct cut c = {0};
    CHECK_EQ(weft_lock(&c.mu), 0);
    CHECK_EQ(weft_go(lock_in_scope_or_not, &c), 0);
    CHECK(is_asleep(&c.who));
    CHECK_EQ(weft_go(lock_and_pass, &c), 0);
    CHECK(is_asleep(&c.other));
    CHECK_EQ(weft_go(cancel_it, &c), 0);
    if (i % 2 == 0)
        weft_yield();
    spin_for(i % 50 * 20);
    weft_unlock(&c.mu);
    CHECK(reaches(&c.passed, 1, 20));
    CHECK(reaches(&c.cut, 1, 20));
    CHECK_EQ(weft_lock(&c.mu), 0);
    CHECK(others_have_ended());
}

static void race_main(void *arg)
{
    (void)arg;
    for (int i = 0; i < scaled(1000); i++)
        race_round(i);
}

CASE(a_wake_up_that_meets_a_cut_goes_to_the_next)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, race_main, NULL), 0);
}

struct storm {
    struct shared s;
    uint64_t seed;
    _Atomic int got, cut, number;
};

static void lock_in_a_storm(void *arg)
{
    struct storm *st = arg;
    uint64_t rng = st->seed + (uint64_t)++st->number * 7919;
    for (int i = 0; i < st->s.rounds; i++) {
        weft_scope scope;
        bool brief = check_random(&rng) % 4 != 0;
        int64_t ns = check_random(&rng) % (50 * WEFT_USEC);
        CHECK_EQ(weft_scope_open(&scope, brief ? weft_now() + ns : WEFT_NEVER), 0);
        int r = weft_lock(&st->s.mu);
        if (r == 0) {
            enter(&st->s);
            st->got++;
            if (check_random(&rng) % 4 == 0)
                weft_yield();
            spin_for((int)(check_random(&rng) % 2000));
            leave(&st->s);
        } else {
            CHECK(brief && r == -ETIMEDOUT);
            st->cut++;
        }
        weft_scope_close(&scope);
    }
    weft_wg_done(&st->s.all);
}

static void storm_main(void *arg)
{
    enum { GOROUTINES = 20 };
    struct storm st = {.s.rounds = scaled(1000), .seed = *(uint64_t *)arg};
    weft_wg_add(&st.s.all, GOROUTINES);
    for (int i = 0; i < GOROUTINES; i++)
        CHECK_EQ(weft_go(lock_in_a_storm, &st), 0);
    CHECK_EQ(weft_wg_wait(&st.s.all), 0);
    CHECK_EQ(st.got, st.s.count);
    CHECK_EQ(st.got + st.cut, GOROUTINES * st.s.rounds);
    CHECK_EQ(weft_try_lock(&st.s.mu), 0);
}

CASE(one_at_a_time_is_inside_while_waits_are_cut)
{
    uint64_t seed = check_seed();
    EACH_PROCS(p) CHECK_EQ(run_on(p, storm_main, &seed), 0);
}

/* ---- the end of a mutex ----------------------------------------------------------------------------------------- */

/* Whoever finds that it was the last frees it, while the unlock of the one before may still be returning. */
struct passing {
    weft_mutex mu;
    int left;
};

static void pass_and_free(void *arg)
{
    struct passing *p = arg;
    CHECK_EQ(weft_lock(&p->mu), 0);
    int left = --p->left;
    weft_unlock(&p->mu);
    if (left > 0)
        return;
    memset(p, 0xa5, sizeof *p);
    free(p);
}

static void *pass_in_thread(void *arg)
{
    pass_and_free(arg);
    return NULL;
}

/* While a thread has the lock, and only then, a run may seem to be in a deadlock: somebody stays awake. */
static _Atomic bool awake;

static void stay_awake(void *arg)
{
    (void)arg;
    while (awake)
        CHECK_EQ(weft_sleep(WEFT_MSEC), 0);
}

static void free_main(void *arg)
{
    (void)arg;
    awake = true;
    CHECK_EQ(weft_go(stay_awake, NULL), 0);
    for (int i = 0; i < scaled(3000); i++) {
        struct passing *p = calloc(1, sizeof *p);
        p->left = 3;
        for (int j = 0; j < 2; j++)
            CHECK_EQ(weft_go(pass_and_free, p), 0);
        if (i % 2 == 0)
            weft_yield();
        pass_and_free(p);
    }
    for (int i = 0; i < scaled(200); i++) {
        pthread_t thread;
        struct passing *p = calloc(1, sizeof *p);
        p->left = 2;
        CHECK_EQ(pthread_create(&thread, NULL, pass_in_thread, p), 0);
        pass_and_free(p);
        join_in_region(&thread, 1);
    }
    awake = false;
    CHECK(others_have_ended());
}

CASE(a_mutex_may_be_freed_by_its_last_owner)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, free_main, NULL), 0);
}

/* ---- light and heavy unlocks ------------------------------------------------------------------------------------ */

static bool light(const weft_mutex *mu)
{
    return __atomic_load_n(&weft_light_[weft_bucket_(mu)], __ATOMIC_RELAXED) != 0;
}

static bool can_be_light(void)
{
    return !check_under_tsan() && w_membarrier_register() == 0;
}

/* After so many without a waiter an unlock is a plain store, where there is a membarrier. */
static void calm_down(weft_mutex *mu)
{
    for (int i = 0; i < 200000 && !light(mu) && can_be_light(); i += 1000)
        for (int j = 0; j < 1000; j++) {
            CHECK_EQ(weft_lock(mu), 0);
            weft_unlock(mu);
        }
}

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

/* ---- runs that end ---------------------------------------------------------------------------------------------- */

static weft_mutex outlives;
static weft_cond outlives_too;
static _Atomic int waiting_for_it;

static void wait_for_what_outlives(void *arg)
{
    (void)arg;
    waiting_for_it++;
    CHECK_EQ(weft_lock(&outlives), 0);
    weft_unlock(&outlives);
    waiting_for_it--;
}

static void leave_it_held(void *arg)
{
    (void)arg;
    waiting_for_it = 0;
    CHECK_EQ(weft_lock(&outlives), 0);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(weft_go(wait_for_what_outlives, NULL), 0);
    CHECK(reaches(&waiting_for_it, 3, 20));
    let_others_run();
}

/* One of those who waited is on its way to the lock when the run ends. */
static void leave_it_to_one(void *arg)
{
    leave_it_held(arg);
    weft_unlock(&outlives);
}

static void use_it(void *arg)
{
    (void)arg;
    waiting_for_it = 0;
    CHECK_EQ(weft_lock(&outlives), 0);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(weft_go(wait_for_what_outlives, NULL), 0);
    CHECK(reaches(&waiting_for_it, 3, 20));
    let_others_run();
    weft_unlock(&outlives);
    CHECK(others_have_ended());
    CHECK_EQ(waiting_for_it, 0);
    CHECK_EQ(weft_lock(&outlives), 0);
    weft_unlock(&outlives);
}

CASE(a_lock_that_a_discarded_goroutine_holds_stays_held)
{
    EACH_PROCS(p)
    {
        CHECK_EQ(run_on(p, leave_it_held, NULL), 0);
        CHECK_EQ(weft_try_lock(&outlives), -EAGAIN);
        weft_unlock(&outlives); /* whoever waited is gone */
        CHECK_EQ(weft_try_lock(&outlives), 0);
        weft_unlock(&outlives);
        CHECK_EQ(run_on(p, use_it, NULL), 0);
    }
}

CASE(a_mutex_outlives_the_run_of_those_who_wait_for_it)
{
    EACH_PROCS(p)
    {
        CHECK_EQ(run_on(p, leave_it_held, NULL), 0);
        CHECK_EQ(run_on(p, others_unlock_main, NULL), 0);
        weft_unlock(&outlives);
        CHECK_EQ(run_on(p, use_it, NULL), 0);
    }
}

/* Which of them holds the lock when the run ends, if one does, is left to chance. */
CASE(a_mutex_outlives_the_run_of_one_that_was_woken)
{
    for (int i = 0; i < scaled(100); i++)
        EACH_PROCS(p)
        {
            CHECK_EQ(run_on(p, leave_it_to_one, NULL), 0);
            weft_try_lock(&outlives);
            weft_unlock(&outlives);
            CHECK_EQ(run_on(p, use_it, NULL), 0);
        }
}

/* ---- threads that are no goroutines ----------------------------------------------------------------------------- */

static void *count_in_thread(void *arg)
{
    struct shared *s = arg;
    for (int i = 0; i < s->rounds; i++) {
        CHECK_EQ(weft_lock(&s->mu), 0);
        enter(s);
        if (i % 64 == 0)
            sched_yield();
        leave(s);
    }
    return NULL;
}

static void threads_main(void *arg)
{
    enum { THREADS = 3, GOROUTINES = 5 };
    struct shared s = {.rounds = scaled(4000)};
    pthread_t threads[THREADS];
    (void)arg;
    weft_wg_add(&s.all, GOROUTINES);
    for (int i = 0; i < GOROUTINES; i++)
        CHECK_EQ(weft_go(count_up, &s), 0);
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, count_in_thread, &s), 0);
    join_in_region(threads, THREADS);
    CHECK_EQ(weft_wg_wait(&s.all), 0);
    CHECK_EQ(s.count, (THREADS + GOROUTINES) * s.rounds);
}

CASE(threads_and_goroutines_share_a_mutex)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, threads_main, NULL), 0);
}

CASE(without_a_runtime_nobody_waits_for_a_lock)
{
    weft_mutex mu = {0};
    weft_cond cond = {0};
    CHECK_EQ(weft_lock(&mu), 0);
    CHECK_EQ(weft_lock(&mu), -EPERM);
    weft_cond_signal(&cond);
    weft_cond_broadcast(&cond);
    CHECK_EQ(weft_cond_wait(&cond, &mu), -EPERM);
    CHECK_EQ(weft_try_lock(&mu), -EAGAIN); /* it is still held */
    weft_unlock(&mu);
}

static _Atomic int begun;

static void *lock_what_outlives(void *arg)
{
    (void)arg;
    begun++;
    int r = weft_lock(&outlives);
    CHECK(r == -ECANCELED || r == -EPERM);
    return NULL;
}

static void end_under_a_thread(void *arg)
{
    CHECK_EQ(weft_lock(&outlives), 0);
    begun = 0;
    CHECK_EQ(pthread_create(arg, NULL, lock_what_outlives, NULL), 0);
    CHECK(reaches(&begun, 1, 20));
    sleep_in_region(2);
}

CASE(the_end_of_the_run_cuts_the_wait_of_a_thread)
{
    EACH_PROCS(p)
    {
        pthread_t thread;
        CHECK_EQ(run_on(p, end_under_a_thread, &thread), 0);
        pthread_join(thread, NULL);
        weft_unlock(&outlives);
    }
}

/* ---- condition variables ---------------------------------------------------------------------------------------- */

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

/* ---- misuse ----------------------------------------------------------------------------------------------------- */

static void unlock_unlocked(void)
{
    weft_mutex mu = {0};
    weft_unlock(&mu);
}

static void unlock_twice_main(void *arg)
{
    static weft_mutex mu;
    (void)arg;
    calm_down(&mu);
    CHECK_EQ(weft_lock(&mu), 0);
    weft_unlock(&mu);
    weft_unlock(&mu);
}

static void unlock_twice(void)
{
    run_on(2, unlock_twice_main, NULL);
}

static void wait_unlocked_main(void *arg)
{
    weft_mutex mu = {0};
    weft_cond cond = {0};
    (void)arg;
    weft_cond_wait(&cond, &mu);
}

static void wait_unlocked(void)
{
    run_on(2, wait_unlocked_main, NULL);
}

CASE(the_unlock_of_an_unlocked_mutex_aborts)
{
    aborts_with_one_line(unlock_unlocked, "unlocked mutex");
    aborts_with_one_line(unlock_twice, "unlocked mutex");
    aborts_with_one_line(wait_unlocked, "unlocked mutex");
}
