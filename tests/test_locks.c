/* SPDX-License-Identifier: MIT */
/* Semaphores, and of all locks but the mutex: the end of an object, threads, and runs that end. */
#include "locks.h"
#include <stdlib.h>

/* ---- semaphores ------------------------------------------------------------------------------------------------- */

static void sem_zero_main(void *arg)
{
    weft_sem sem = {0};
    (void)arg;
    CHECK_EQ(weft_sem_try_acquire(&sem, 1), -EAGAIN);
    CHECK_EQ(weft_sem_acquire(&sem, 0), 0);
    CHECK_EQ(weft_sem_try_acquire(&sem, 0), 0);
    CHECK_EQ(weft_sem_acquire(&sem, -1), -EINVAL);
    CHECK_EQ(weft_sem_try_acquire(&sem, INT64_MIN), -EINVAL);
    weft_sem_release(&sem, 0);
    weft_sem_release(&sem, 3);
    CHECK_EQ(weft_sem_try_acquire(&sem, 4), -EAGAIN);
    CHECK_EQ(weft_sem_acquire(&sem, 2), 0);
    CHECK_EQ(weft_sem_try_acquire(&sem, 1), 0);
    CHECK_EQ(weft_sem_try_acquire(&sem, 1), -EAGAIN);
    weft_sem_release(&sem, INT64_MAX);
    CHECK_EQ(weft_sem_acquire(&sem, INT64_MAX), 0);
}

CASE(a_semaphore_of_zero_bytes_has_no_permits)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, sem_zero_main, NULL), 0);
    sem_zero_main(NULL); /* without a runtime too */
}

static void acquire_in_turn(void *arg)
{
    struct place *at = arg;
    says_who(&at->line->who[at->number]);
    CHECK_EQ(weft_sem_acquire(&at->line->sem, at->weight), 0);
    CHECK_EQ(at->line->served++, at->number);
}

static void weights_main(void *arg)
{
    struct line l = {0};
    (void)arg;
    weft_sem_release(&l.sem, 3);
    comes(&l, 0, acquire_in_turn, 5);
    comes(&l, 1, acquire_in_turn, 1); /* there would be enough for it */
    comes(&l, 2, acquire_in_turn, 2);
    CHECK_EQ(weft_sem_try_acquire(&l.sem, 1), -EAGAIN);
    CHECK_EQ(weft_sem_acquire(&l.sem, 0), 0);
    weft_sem_release(&l.sem, 1);
    let_others_run();
    CHECK_EQ(l.served, 0);
    weft_sem_release(&l.sem, 1);
    CHECK(reaches(&l.served, 1, 20));
    let_others_run();
    CHECK_EQ(l.served, 1);
    weft_sem_release(&l.sem, 1);
    CHECK(reaches(&l.served, 2, 20));
    weft_sem_release(&l.sem, 3);
    CHECK(reaches(&l.served, 3, 20));
    CHECK_EQ(weft_sem_try_acquire(&l.sem, 2), -EAGAIN);
    CHECK_EQ(weft_sem_try_acquire(&l.sem, 1), 0);
    CHECK(others_have_ended());
}

CASE(permits_are_given_in_turn_whatever_the_weight)
{
    for (int i = 0; i < scaled(20); i++)
        EACH_PROCS(p) CHECK_EQ(run_on(p, weights_main, NULL), 0);
}

static void acquire_together(void *arg)
{
    struct place *at = arg;
    struct line *l = at->line;
    says_who(&l->who[at->number]);
    CHECK_EQ(weft_sem_acquire(&l->sem, at->weight), 0);
    l->inside++;
    CHECK(reaches(&l->inside, WAITERS, 20));
}

static void one_release_main(void *arg)
{
    struct line l = {0};
    (void)arg;
    for (int i = 0; i < WAITERS; i++)
        comes(&l, i, acquire_together, i + 1);
    weft_sem_release(&l.sem, WAITERS * (WAITERS + 1) / 2);
    CHECK(reaches(&l.inside, WAITERS, 20));
    CHECK_EQ(weft_sem_try_acquire(&l.sem, 1), -EAGAIN);
    CHECK(others_have_ended());
}

CASE(one_release_serves_all_that_it_suffices_for)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, one_release_main, NULL), 0);
}

static void acquire_until_cut(void *arg)
{
    struct place *at = arg;
    struct line *l = at->line;
    weft_scope s;
    CHECK_EQ(weft_scope_open(&s, WEFT_NEVER), 0);
    l->scope = &s;
    says_who(&l->who[at->number]);
    CHECK_EQ(weft_sem_acquire(&l->sem, at->weight), -ECANCELED);
    CHECK_EQ(weft_sem_acquire(&l->sem, at->weight), -ECANCELED);
    CHECK_EQ(weft_sem_acquire(&l->sem, 0), 0);
    weft_scope_close(&s);
    l->cut++;
}

static void heavy_cut_main(void *arg)
{
    struct line l = {0};
    (void)arg;
    weft_sem_release(&l.sem, 3);
    comes(&l, 4, acquire_until_cut, 100);
    comes(&l, 0, acquire_in_turn, 2);
    comes(&l, 1, acquire_in_turn, 2);
    weft_scope_cancel(l.scope, -ECANCELED);
    CHECK(reaches(&l.served, 1, 20));
    CHECK(reaches(&l.cut, 1, 20));
    let_others_run();
    CHECK_EQ(l.served, 1);
    weft_sem_release(&l.sem, 1);
    CHECK(reaches(&l.served, 2, 20));
    CHECK_EQ(weft_sem_try_acquire(&l.sem, 1), -EAGAIN); /* the one that was cut took nothing */
    CHECK(others_have_ended());
}

CASE(those_behind_a_heavy_waiter_that_is_cut_are_served)
{
    for (int i = 0; i < scaled(20); i++)
        EACH_PROCS(p) CHECK_EQ(run_on(p, heavy_cut_main, NULL), 0);
}

enum { PERMITS = 10 };

struct sem_storm {
    struct storm storm;
    weft_sem sem;
    _Atomic int64_t taken;
};

static void acquire_in_a_storm(void *arg)
{
    struct sem_storm *st = arg;
    uint64_t rng = storm_rng(&st->storm);
    for (int i = 0; i < st->storm.rounds; i++) {
        weft_scope scope;
        int64_t n = check_random(&rng) % (PERMITS + 1), ns = check_random(&rng) % (100 * WEFT_USEC);
        CHECK_EQ(weft_scope_open(&scope, weft_now() + ns), 0);
        int r = i % 4 == 0 ? weft_sem_try_acquire(&st->sem, n) : weft_sem_acquire(&st->sem, n);
        CHECK(r == 0 || r == (i % 4 == 0 ? -EAGAIN : -ETIMEDOUT));
        if (r == 0) {
            CHECK(atomic_fetch_add(&st->taken, n) + n <= PERMITS);
            weft_yield();
            st->taken -= n;
            weft_sem_release(&st->sem, n);
        }
        weft_scope_close(&scope);
    }
    weft_wg_done(&st->storm.all);
}

static void sem_storm_main(void *arg)
{
    struct sem_storm st = {.storm = {.rounds = scaled(1000), .seed = *(uint64_t *)arg}};
    weft_sem_release(&st.sem, PERMITS);
    storm_of(acquire_in_a_storm, &st.storm);
    CHECK_EQ(weft_sem_try_acquire(&st.sem, PERMITS), 0); /* none is lost */
    CHECK_EQ(weft_sem_try_acquire(&st.sem, 1), -EAGAIN); /* none is made up */
}

CASE(permits_are_neither_lost_nor_made_while_waits_are_cut)
{
    uint64_t seed = check_seed();
    EACH_PROCS(p) CHECK_EQ(run_on(p, sem_storm_main, &seed), 0);
}

static void release_negative(void)
{
    weft_sem sem = {0};
    weft_sem_release(&sem, -1);
}

static void release_too_much(void)
{
    weft_sem sem = {0};
    weft_sem_release(&sem, INT64_MAX);
    weft_sem_release(&sem, 1);
}

CASE(an_impossible_release_aborts)
{
    aborts_with_one_line(release_negative, "permits");
    aborts_with_one_line(release_too_much, "permits");
}

/* ---- the end of an object --------------------------------------------------------------------------------------- */

/* The one that was waited for frees it while the call that ended the wait may still be returning. */
struct ends {
    weft_sem sem;
    weft_rwmutex rw;
    struct counted once;
};

static void release_one(void *arg)
{
    weft_sem_release(&((struct ends *)arg)->sem, 1);
}

static void write_unlock(void *arg)
{
    weft_wrunlock(&((struct ends *)arg)->rw);
}

static void *release_in_thread(void *arg)
{
    release_one(arg);
    return NULL;
}

/* Of two that do it once the other may still be returning: it says when. */
static void do_once_and_say(void *arg)
{
    do_once(&((struct ends *)arg)->once);
    release_one(arg);
}

static void dispose(struct ends *e)
{
    memset(e, 0xa5, sizeof *e);
    free(e);
}

static void free_main(void *arg)
{
    (void)arg;
    for (int i = 0; i < scaled(2000); i++) {
        struct ends *e = calloc(1, sizeof *e);
        CHECK_EQ(weft_go(release_one, e), 0);
        CHECK_EQ(weft_sem_acquire(&e->sem, 1), 0);
        dispose(e);

        e = calloc(1, sizeof *e);
        CHECK_EQ(weft_wrlock(&e->rw), 0);
        CHECK_EQ(weft_go(write_unlock, e), 0);
        CHECK_EQ(i % 2 == 0 ? weft_wrlock(&e->rw) : weft_rdlock(&e->rw), 0);
        dispose(e);

        e = calloc(1, sizeof *e);
        CHECK_EQ(weft_go(do_once_and_say, e), 0);
        if (i % 2 == 0)
            weft_yield();
        do_once(&e->once);
        CHECK_EQ(weft_sem_acquire(&e->sem, 1), 0);
        CHECK_EQ(e->once.ran, 1);
        dispose(e);
    }
    for (int i = 0; i < scaled(200); i++) {
        pthread_t thread;
        struct ends *e = calloc(1, sizeof *e);
        CHECK_EQ(pthread_create(&thread, NULL, release_in_thread, e), 0);
        weft_block_enter(); /* somebody is awake while the thread is on its way */
        weft_block_leave();
        while (weft_sem_try_acquire(&e->sem, 1) != 0)
            weft_yield();
        dispose(e);
        join_in_region(&thread, 1);
    }
    CHECK(others_have_ended());
}

CASE(an_object_may_be_freed_when_the_wait_for_it_has_ended)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, free_main, NULL), 0);
}

/* ---- threads, and runs that end --------------------------------------------------------------------------------- */

static weft_rwmutex lasting_rw;
static weft_sem lasting_sem;
static _Atomic int begun;

static void wait_to_read(void *arg)
{
    (void)arg;
    begun++;
    CHECK_EQ(weft_rdlock(&lasting_rw), 0);
    begun--;
    weft_rdunlock(&lasting_rw);
}

static void wait_for_permits(void *arg)
{
    (void)arg;
    begun++;
    CHECK_EQ(weft_sem_acquire(&lasting_sem, 2), 0);
    begun--;
}

static void leave_waiters(void *arg)
{
    (void)arg;
    begun = 0;
    CHECK_EQ(weft_wrlock(&lasting_rw), 0);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(weft_go(wait_to_read, NULL), 0);
        CHECK_EQ(weft_go(wait_for_permits, NULL), 0);
    }
    CHECK(reaches(&begun, 6, 20));
    let_others_run();
}

static void end_with_waiters(void *arg)
{
    leave_waiters(arg);
}

static void serve_the_new_ones(void *arg)
{
    leave_waiters(arg);
    weft_wrunlock(&lasting_rw);
    weft_sem_release(&lasting_sem, 6);
    CHECK(others_have_ended());
    CHECK_EQ(begun, 0);
}

CASE(locks_outlive_the_run_of_those_who_wait_for_them)
{
    EACH_PROCS(p)
    {
        CHECK_EQ(run_on(p, end_with_waiters, NULL), 0);
        CHECK_EQ(weft_try_rdlock(&lasting_rw), -EAGAIN); /* held for ever by one that is gone */
        weft_wrunlock(&lasting_rw);
        weft_sem_release(&lasting_sem, 1);
        CHECK_EQ(weft_sem_acquire(&lasting_sem, 1), 0); /* nobody is before us */
        CHECK_EQ(run_on(p, serve_the_new_ones, NULL), 0);
    }
}

CASE(without_a_runtime_nobody_waits)
{
    weft_rwmutex rw = {0};
    weft_sem sem = {0};
    CHECK_EQ(weft_sem_acquire(&sem, 1), -EPERM);
    CHECK_EQ(weft_wrlock(&rw), 0);
    CHECK_EQ(weft_wrlock(&rw), -EPERM);
    CHECK_EQ(weft_rdlock(&rw), -EPERM);
    weft_wrunlock(&rw);
    CHECK_EQ(weft_rdlock(&rw), 0);
}

static void *wait_in_vain(void *arg)
{
    begun++;
    int r = arg == NULL ? weft_sem_acquire(&lasting_sem, 1000) : weft_wrlock(&lasting_rw);
    CHECK(r == -ECANCELED || r == -EPERM);
    return NULL;
}

static void end_under_threads(void *arg)
{
    pthread_t *threads = arg;
    begun = 0;
    CHECK_EQ(weft_rdlock(&lasting_rw), 0);
    CHECK_EQ(pthread_create(&threads[0], NULL, wait_in_vain, NULL), 0);
    CHECK_EQ(pthread_create(&threads[1], NULL, wait_in_vain, threads), 0);
    CHECK(reaches(&begun, 2, 20));
    sleep_in_region(2);
}

CASE(the_end_of_the_run_cuts_the_waits_of_threads)
{
    EACH_PROCS(p)
    {
        pthread_t threads[2];
        CHECK_EQ(run_on(p, end_under_threads, threads), 0);
        for (int i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
        CHECK_EQ(weft_try_rdlock(&lasting_rw), 0); /* the writer that was cut is not in the way */
        weft_rdunlock(&lasting_rw);
        weft_rdunlock(&lasting_rw);
        CHECK_EQ(weft_sem_try_acquire(&lasting_sem, 1), -EAGAIN);
    }
}

static void *acquire_in_thread(void *arg)
{
    struct line *l = arg;
    for (int i = 0; i < 500; i++)
        CHECK_EQ(weft_sem_acquire(&l->sem, 1), 0);
    return NULL;
}

static void acquire_often(void *arg)
{
    acquire_in_thread(arg);
    ((struct line *)arg)->served++;
}

static void mixed_main(void *arg)
{
    struct line l = {0};
    pthread_t threads[2];
    (void)arg;
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(pthread_create(&threads[i], NULL, acquire_in_thread, &l), 0);
        CHECK_EQ(weft_go(acquire_often, &l), 0);
    }
    for (int i = 0; i < 1000; i++) {
        weft_sem_release(&l.sem, 2);
        if (i % 16 == 0)
            weft_yield();
    }
    join_in_region(threads, 2);
    CHECK(reaches(&l.served, 2, 20));
    CHECK_EQ(weft_sem_try_acquire(&l.sem, 1), -EAGAIN);
    CHECK(others_have_ended());
}

CASE(threads_and_goroutines_share_a_semaphore)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, mixed_main, NULL), 0);
}
