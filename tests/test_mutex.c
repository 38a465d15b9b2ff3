/* SPDX-License-Identifier: MIT */
/* Mutexes. */
#include "locks.h"
#include <stdlib.h>

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

static void lock_in_turn(void *arg)
{
    struct place *at = arg;
    says_who(&at->line->who[at->number]);
    CHECK_EQ(weft_lock(&at->line->mu), 0);
    CHECK_EQ(at->line->served++, at->number);
    weft_unlock(&at->line->mu);
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
        weft_cancelled(); /* where it may be asked to let others run */
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

struct lock_storm {
    struct storm storm;
    struct shared s;
    _Atomic int got, cut;
};

static void lock_in_a_storm(void *arg)
{
    struct lock_storm *st = arg;
    uint64_t rng = storm_rng(&st->storm);
    for (int i = 0; i < st->storm.rounds; i++) {
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
    weft_wg_done(&st->storm.all);
}

static void storm_main(void *arg)
{
    struct lock_storm st = {.storm = {.rounds = scaled(1000), .seed = *(uint64_t *)arg}};
    storm_of(lock_in_a_storm, &st.storm);
    CHECK_EQ(st.got, st.s.count);
    CHECK_EQ(st.got + st.cut, STORM_GOROUTINES * st.storm.rounds);
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

/* ---- runs that end ---------------------------------------------------------------------------------------------- */

static weft_mutex outlives;
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
