/* SPDX-License-Identifier: MIT */
/* Locks for readers and writers. */
#include "locks.h"

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
    comes(&l, 5, write_in_turn, 0);
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
    line_up(&l, read_together);
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

struct rw_storm {
    struct storm storm;
    struct library l;
};

static void read_and_write_in_a_storm(void *arg)
{
    struct rw_storm *st = arg;
    uint64_t rng = storm_rng(&st->storm);
    for (int i = 0; i < st->storm.rounds; i++) {
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
    weft_wg_done(&st->storm.all);
}

static void rw_storm_main(void *arg)
{
    struct rw_storm st = {.storm = {.rounds = scaled(1000), .seed = *(uint64_t *)arg}};
    storm_of(read_and_write_in_a_storm, &st.storm);
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
