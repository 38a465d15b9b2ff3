/* SPDX-License-Identifier: MIT */
/* Locks for readers and writers, semaphores, and what is done once. */
#include "waits.h"
#include <stdlib.h>

enum { WAITERS = 5 };

/* ---- readers and writers ---------------------------------------------------------------------------------------- */

static void rw_zero_main(void *arg)
{
    weft_rwmutex rw = {0};
    (void)arg;
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(weft_rdlock(&rw), 0);
        CHECK_EQ(weft_rdlock(&rw), 0); /* nobody waits to write */
        CHECK_EQ(weft_try_rdlock(&rw), 0);
        CHECK_EQ(weft_try_wrlock(&rw), -EAGAIN);
        for (int j = 0; j < 3; j++)
            weft_rdunlock(&rw);
        CHECK_EQ(weft_wrlock(&rw), 0);
        CHECK_EQ(weft_try_wrlock(&rw), -EAGAIN);
        CHECK_EQ(weft_try_rdlock(&rw), -EAGAIN);
        weft_wrunlock(&rw);
        CHECK_EQ(weft_try_wrlock(&rw), 0);
        weft_wrunlock(&rw);
    }
}

CASE(an_rwmutex_of_zero_bytes_is_ready)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, rw_zero_main, NULL), 0);
    rw_zero_main(NULL); /* without a runtime too */
}

struct library {
    weft_rwmutex rw;
    weft_wg all;
    _Atomic int readers, writers, most;
    int edition, rounds;
};

static void read_it(struct library *l)
{
    int n = ++l->readers;
    CHECK_EQ(l->writers, 0);
    if (n > l->most)
        l->most = n;
    int edition = l->edition;
    if (n % 2 == 0)
        weft_yield();
    CHECK_EQ(l->edition, edition);
    l->readers--;
    weft_rdunlock(&l->rw);
}

static void write_it(struct library *l)
{
    CHECK_EQ(++l->writers, 1);
    CHECK_EQ(l->readers, 0);
    l->edition++;
    if (l->edition % 8 == 0)
        weft_yield();
    l->writers--;
    weft_wrunlock(&l->rw);
}

static void read_often(void *arg)
{
    struct library *l = arg;
    for (int i = 0; i < l->rounds; i++) {
        CHECK_EQ(weft_rdlock(&l->rw), 0);
        read_it(l);
    }
    weft_wg_done(&l->all);
}

static void write_often(void *arg)
{
    struct library *l = arg;
    for (int i = 0; i < l->rounds; i++) {
        CHECK_EQ(weft_wrlock(&l->rw), 0);
        write_it(l);
    }
    weft_wg_done(&l->all);
}

static void *read_in_thread(void *arg)
{
    read_often(arg);
    return NULL;
}

static void *write_in_thread(void *arg)
{
    write_often(arg);
    return NULL;
}

static void library_main(void *arg)
{
    struct library l = {.rounds = scaled(2000)};
    pthread_t threads[2];
    (void)arg;
    weft_wg_add(&l.all, 10);
    for (int i = 0; i < 8; i++)
        CHECK_EQ(weft_go(i % 4 == 0 ? write_often : read_often, &l), 0);
    CHECK_EQ(pthread_create(&threads[0], NULL, read_in_thread, &l), 0);
    CHECK_EQ(pthread_create(&threads[1], NULL, write_in_thread, &l), 0);
    join_in_region(threads, 2);
    CHECK_EQ(weft_wg_wait(&l.all), 0);
    CHECK_EQ(l.edition, 3 * l.rounds);
    CHECK(l.most >= 1);
}

CASE(many_read_or_one_writes)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, library_main, NULL), 0);
}

/* Goroutines that come one after the other, each asleep before the next comes. */
struct line {
    weft_rwmutex rw;
    weft_sem sem;
    weft_scope *scope;
    _Atomic(struct w_g *) who[WAITERS];
    _Atomic int served, inside, cut;
};

struct place {
    struct line *line;
    int number;
    int64_t weight;
};

static void comes(struct line *l, int number, weft_fn *fn, int64_t weight)
{
    CHECK_EQ(weft_go_copy(fn, &(struct place){l, number, weight}, sizeof(struct place)), 0);
    CHECK(is_asleep(&l->who[number]));
}

static void read_in_turn(void *arg)
{
    struct place *at = arg;
    says_who(&at->line->who[at->number]);
    CHECK_EQ(weft_rdlock(&at->line->rw), 0);
    CHECK_EQ(at->line->served++, at->number);
    weft_rdunlock(&at->line->rw);
}

static void write_in_turn(void *arg)
{
    struct place *at = arg;
    says_who(&at->line->who[at->number]);
    CHECK_EQ(weft_wrlock(&at->line->rw), 0);
    CHECK_EQ(at->line->served++, at->number);
    weft_wrunlock(&at->line->rw);
}

static void rw_turns_main(void *arg)
{
    struct line l = {0};
    (void)arg;
    CHECK_EQ(weft_rdlock(&l.rw), 0);
    comes(&l, 0, write_in_turn, 0);
    CHECK_EQ(weft_try_rdlock(&l.rw), -EAGAIN); /* a writer waits */
    comes(&l, 1, read_in_turn, 0);
    comes(&l, 2, write_in_turn, 0);
    comes(&l, 3, write_in_turn, 0);
    comes(&l, 4, read_in_turn, 0);
    CHECK_EQ(l.served, 0);
    weft_rdunlock(&l.rw);
    CHECK(reaches(&l.served, WAITERS, 20));
    CHECK(others_have_ended());
    CHECK_EQ(weft_try_wrlock(&l.rw), 0);
}

CASE(readers_and_writers_are_let_in_in_turn)
{
    for (int i = 0; i < scaled(20); i++)
        EACH_PROCS(p) CHECK_EQ(run_on(p, rw_turns_main, NULL), 0);
}

static void read_together(void *arg)
{
    struct place *at = arg;
    struct line *l = at->line;
    says_who(&l->who[at->number]);
    CHECK_EQ(weft_rdlock(&l->rw), 0);
    l->inside++;
    CHECK(reaches(&l->inside, WAITERS, 20));
    weft_rdunlock(&l->rw);
}

static void together_main(void *arg)
{
    struct line l = {0};
    (void)arg;
    CHECK_EQ(weft_wrlock(&l.rw), 0);
    for (int i = 0; i < WAITERS; i++)
        comes(&l, i, read_together, 0);
    CHECK_EQ(l.inside, 0);
    weft_wrunlock(&l.rw);
    CHECK(reaches(&l.inside, WAITERS, 20));
    CHECK(others_have_ended());
    CHECK_EQ(weft_try_wrlock(&l.rw), 0);
}

CASE(readers_that_wait_together_are_let_in_together)
{
    for (int i = 0; i < scaled(20); i++)
        EACH_PROCS(p) CHECK_EQ(run_on(p, together_main, NULL), 0);
}

/* The others come again and again without a pause; a few rounds of one who has to wait each time all the same. */
struct greedy {
    weft_rwmutex rw;
    _Atomic bool over;
    _Atomic int running;
};

static void read_for_ever(void *arg)
{
    struct greedy *s = arg;
    while (!s->over) {
        CHECK_EQ(weft_rdlock(&s->rw), 0);
        spin_for(500);
        weft_yield(); /* another one comes before this one goes */
        weft_rdunlock(&s->rw);
    }
    s->running--;
}

static void write_for_ever(void *arg)
{
    struct greedy *s = arg;
    while (!s->over) {
        CHECK_EQ(weft_wrlock(&s->rw), 0);
        spin_for(500);
        weft_yield();
        weft_wrunlock(&s->rw);
    }
    s->running--;
}

static void greedy_main(void *arg)
{
    struct greedy s = {.running = 4};
    bool writing = *(bool *)arg;
    for (int i = 0; i < 4; i++)
        CHECK_EQ(weft_go(writing ? write_for_ever : read_for_ever, &s), 0);
    for (int i = 0; i < 100; i++) {
        CHECK_EQ(writing ? weft_rdlock(&s.rw) : weft_wrlock(&s.rw), 0);
        if (writing)
            weft_rdunlock(&s.rw);
        else
            weft_wrunlock(&s.rw);
        weft_yield();
    }
    s.over = true;
    while (s.running > 0)
        weft_yield();
}

CASE(a_writer_is_not_starved_by_readers)
{
    static bool writing = false;
    EACH_PROCS(p) CHECK_EQ(run_on(p, greedy_main, &writing), 0);
}

CASE(a_reader_is_not_starved_by_writers)
{
    static bool writing = true;
    EACH_PROCS(p) CHECK_EQ(run_on(p, greedy_main, &writing), 0);
}

static void write_until_cut(void *arg)
{
    struct place *at = arg;
    struct line *l = at->line;
    weft_scope s;
    CHECK_EQ(weft_scope_open(&s, WEFT_NEVER), 0);
    l->scope = &s;
    says_who(&l->who[at->number]);
    CHECK_EQ(weft_wrlock(&l->rw), -ECANCELED);
    CHECK_EQ(weft_wrlock(&l->rw), -ECANCELED);
    weft_scope_close(&s);
    l->cut++;
}

static void rw_cut_main(void *arg)
{
    struct line l = {0};
    (void)arg;
    CHECK_EQ(weft_rdlock(&l.rw), 0);
    comes(&l, 4, write_until_cut, 0);
    comes(&l, 0, read_in_turn, 0);
    let_others_run();
    CHECK_EQ(l.served, 0);
    weft_scope_cancel(l.scope, -ECANCELED);
    CHECK(reaches(&l.served, 1, 20)); /* while we still read */
    CHECK(reaches(&l.cut, 1, 20));
    weft_rdunlock(&l.rw);
    CHECK(others_have_ended());
    CHECK_EQ(weft_try_wrlock(&l.rw), 0);
}

CASE(readers_behind_a_writer_that_is_cut_are_let_in)
{
    for (int i = 0; i < scaled(20); i++)
        EACH_PROCS(p) CHECK_EQ(run_on(p, rw_cut_main, NULL), 0);
}

struct storm {
    struct library l;
    weft_sem sem;
    uint64_t seed;
    _Atomic int number;
    _Atomic int64_t taken;
};

static void read_and_write_in_a_storm(void *arg)
{
    struct storm *st = arg;
    uint64_t rng = st->seed + (uint64_t)++st->number * 7919;
    for (int i = 0; i < st->l.rounds; i++) {
        weft_scope scope;
        bool writes = check_random(&rng) % 2 == 0;
        int64_t ns = check_random(&rng) % (100 * WEFT_USEC);
        CHECK_EQ(weft_scope_open(&scope, weft_now() + ns), 0);
        int r = writes ? weft_wrlock(&st->l.rw) : weft_rdlock(&st->l.rw);
        CHECK(r == 0 || r == -ETIMEDOUT);
        if (r == 0 && writes)
            write_it(&st->l);
        else if (r == 0)
            read_it(&st->l);
        weft_scope_close(&scope);
    }
    weft_wg_done(&st->l.all);
}

static void storm_of(weft_fn *fn, struct storm *st)
{
    enum { GOROUTINES = 20 };
    weft_wg_add(&st->l.all, GOROUTINES);
    for (int i = 0; i < GOROUTINES; i++)
        CHECK_EQ(weft_go(fn, st), 0);
    CHECK_EQ(weft_wg_wait(&st->l.all), 0);
}

static void rw_storm_main(void *arg)
{
    struct storm st = {.l.rounds = scaled(1000), .seed = *(uint64_t *)arg};
    storm_of(read_and_write_in_a_storm, &st);
    CHECK_EQ(weft_try_wrlock(&st.l.rw), 0);
}

CASE(many_read_or_one_writes_while_waits_are_cut)
{
    uint64_t seed = check_seed();
    EACH_PROCS(p) CHECK_EQ(run_on(p, rw_storm_main, &seed), 0);
}

static void rdunlock_unlocked(void)
{
    weft_rwmutex rw = {0};
    weft_rdunlock(&rw);
}

static void wrunlock_unlocked(void)
{
    weft_rwmutex rw = {0};
    weft_wrunlock(&rw);
}

static void rdunlock_written(void)
{
    weft_rwmutex rw = {0};
    CHECK_EQ(weft_wrlock(&rw), 0);
    weft_rdunlock(&rw);
}

static void wrunlock_read(void)
{
    weft_rwmutex rw = {0};
    CHECK_EQ(weft_rdlock(&rw), 0);
    weft_wrunlock(&rw);
}

CASE(the_wrong_unlock_of_an_rwmutex_aborts)
{
    aborts_with_one_line(rdunlock_unlocked, "rwmutex");
    aborts_with_one_line(wrunlock_unlocked, "rwmutex");
    aborts_with_one_line(rdunlock_written, "rwmutex");
    aborts_with_one_line(wrunlock_read, "rwmutex");
}

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

static void acquire_in_a_storm(void *arg)
{
    struct storm *st = arg;
    uint64_t rng = st->seed + (uint64_t)++st->number * 7919;
    for (int i = 0; i < st->l.rounds; i++) {
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
    weft_wg_done(&st->l.all);
}

static void sem_storm_main(void *arg)
{
    struct storm st = {.l.rounds = scaled(1000), .seed = *(uint64_t *)arg};
    weft_sem_release(&st.sem, PERMITS);
    storm_of(acquire_in_a_storm, &st);
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
    weft_once once;
    _Atomic int ran;
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

static void note_run(void *arg)
{
    ((struct ends *)arg)->ran++;
}

static void do_once(void *arg)
{
    struct ends *e = arg;
    weft_once_do(&e->once, note_run, e);
}

/* Of two that do it once the other may still be returning: it says when. */
static void do_once_and_say(void *arg)
{
    do_once(arg);
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
        do_once(e);
        CHECK_EQ(weft_sem_acquire(&e->sem, 1), 0);
        CHECK_EQ(e->ran, 1);
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

/* ---- once ------------------------------------------------------------------------------------------------------- */

struct first {
    weft_once once;
    weft_sem go_on;
    _Atomic int calls, returned;
    _Atomic bool complete;
    _Atomic(struct w_g *) who;
};

static void take_a_while(void *arg)
{
    struct first *f = arg;
    CHECK_EQ(++f->calls, 1);
    for (int i = 0; i < 5; i++)
        weft_yield();
    CHECK_EQ(weft_sleep(WEFT_USEC), 0);
    f->complete = true;
}

static void do_it(void *arg)
{
    struct first *f = arg;
    weft_once_do(&f->once, take_a_while, f);
    CHECK(f->complete);
    f->returned++;
}

static void *do_it_in_thread(void *arg)
{
    do_it(arg);
    return NULL;
}

static void once_main(void *arg)
{
    (void)arg;
    for (int i = 0; i < scaled(100); i++) {
        struct first f = {0};
        for (int j = 0; j < 10; j++)
            CHECK_EQ(weft_go(do_it, &f), 0);
        if (i % 2 == 0)
            do_it(&f);
        CHECK(reaches(&f.returned, 10 + (i % 2 == 0), 20));
        CHECK_EQ(f.calls, 1);
        do_it(&f);
        CHECK(others_have_ended());
    }
}

CASE(nobody_returns_before_it_was_done_once)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, once_main, NULL), 0);
}

static void once_threads_main(void *arg)
{
    (void)arg;
    for (int i = 0; i < scaled(50); i++) {
        struct first f = {0};
        pthread_t threads[3];
        for (int j = 0; j < 3; j++) {
            CHECK_EQ(pthread_create(&threads[j], NULL, do_it_in_thread, &f), 0);
            CHECK_EQ(weft_go(do_it, &f), 0);
        }
        join_in_region(threads, 3);
        CHECK(reaches(&f.returned, 6, 20));
        CHECK_EQ(f.calls, 1);
        CHECK(others_have_ended());
    }
}

CASE(threads_and_goroutines_do_it_once)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, once_threads_main, NULL), 0);
}

static void wait_to_go_on(void *arg)
{
    struct first *f = arg;
    f->calls++;
    CHECK_EQ(weft_sem_acquire(&f->go_on, 1), 0);
    f->complete = true;
}

static void do_it_slowly(void *arg)
{
    struct first *f = arg;
    weft_once_do(&f->once, wait_to_go_on, f);
    f->returned++;
}

static void do_it_in_a_scope_that_is_over(void *arg)
{
    struct first *f = arg;
    weft_scope s;
    CHECK_EQ(weft_scope_open(&s, WEFT_NEVER), 0);
    weft_scope_cancel(&s, -ECANCELED);
    says_who(&f->who);
    do_it_slowly(f);
    CHECK(f->complete);
    CHECK_EQ(weft_scope_close(&s), -ECANCELED);
}

static void *do_it_in_a_scope_of_a_thread(void *arg)
{
    do_it_in_a_scope_that_is_over(arg);
    return NULL;
}

static void once_cut_main(void *arg)
{
    struct first f = {0};
    pthread_t thread;
    (void)arg;
    CHECK_EQ(weft_go(do_it_slowly, &f), 0);
    CHECK(reaches(&f.calls, 1, 20));
    CHECK_EQ(weft_go(do_it_in_a_scope_that_is_over, &f), 0);
    CHECK(is_asleep(&f.who));
    CHECK_EQ(pthread_create(&thread, NULL, do_it_in_a_scope_of_a_thread, &f), 0);
    let_others_run();
    CHECK_EQ(f.returned, 0);
    weft_sem_release(&f.go_on, 1);
    CHECK(reaches(&f.returned, 3, 20));
    CHECK_EQ(f.calls, 1);
    join_in_region(&thread, 1);
    CHECK(others_have_ended());
}

CASE(doing_it_once_is_never_cut)
{
    for (int i = 0; i < scaled(20); i++)
        EACH_PROCS(p) CHECK_EQ(run_on(p, once_cut_main, NULL), 0);
}

CASE(it_is_done_once_without_a_runtime)
{
    struct ends e = {0};
    do_once(&e);
    do_once(&e);
    CHECK_EQ(e.ran, 1);
}

static weft_once again;

static void do_it_again(void *arg)
{
    weft_once_do(&again, do_it_again, arg);
}

static void recursion_in_thread(void)
{
    do_it_again(NULL);
}

static void recursion_in_goroutine(void)
{
    run_on(2, do_it_again, NULL);
}

CASE(doing_it_from_inside_itself_aborts)
{
    aborts_with_one_line(recursion_in_thread, "weft_once_do");
    aborts_with_one_line(recursion_in_goroutine, "weft_once_do");
}

static weft_once unfinished;

static void end_inside(void *arg)
{
    (void)arg;
    weft_exit();
}

static void do_and_exit(void *arg)
{
    (void)arg;
    weft_once_do(&unfinished, end_inside, NULL);
}

static void unfinished_main(void *arg)
{
    (void)arg;
    CHECK_EQ(weft_go(do_and_exit, NULL), 0);
    CHECK(others_have_ended());
    weft_once_do(&unfinished, end_inside, NULL); /* waits for what never returns */
    CHECK(false);
}

static void unfinished_child(void)
{
    CHECK_EQ(run_on(2, unfinished_main, NULL), -EDEADLK);
}

CASE(who_waits_for_one_that_ended_inside_waits_for_ever)
{
    char text[4096];
    CHECK(child_is_well(unfinished_child, text, sizeof text));
    CHECK(strstr(text, "deadlock") != NULL);
}
