/* SPDX-License-Identifier: MIT */
/* Scopes: who lives in them, who ends them and with what. */
#include "scopes.h"

/* ---- members ---------------------------------------------------------------------------------------------------- */

static void exit_early(void *arg)
{
    weft_yield();
    add_one(arg);
    weft_exit();
}

static void members_main(void *arg)
{
    (void)arg;
    weft_scope s = some_scope();
    for (int round = 0; round < scaled(20); round++) { /* it may be opened again */
        _Atomic int ended = 0;
        CHECK_EQ(weft_scope_open(&s, WEFT_NEVER), 0);
        for (int i = 0; i < 30; i++)
            CHECK_EQ(weft_scope_go(&s, i % 3 == 0 ? add_one : i % 3 == 1 ? sleep_and_add : exit_early, &ended), 0);
        CHECK_EQ(weft_scope_close(&s), 0);
        CHECK_EQ(ended, 30);
    }
    CHECK_EQ(weft_scope_open(&s, WEFT_NEVER), 0); /* nobody in it */
    CHECK(weft_scope_go(&s, NULL, NULL) < 0);
    CHECK_EQ(weft_scope_close(&s), 0);
}

CASE(close_waits_for_every_member)
{
    on_each_procs(members_main);
}

struct tree {
    weft_scope *s;
    int depth;
    _Atomic int *leaves;
};

static void grow(void *arg)
{
    struct tree t = *(struct tree *)arg;
    free(arg);
    weft_yield();
    if (t.depth == 0)
        add_one((void *)t.leaves);
    for (int i = 0; t.depth > 0 && i < 2; i++) {
        struct tree *below = malloc(sizeof *below);
        *below = (struct tree){t.s, t.depth - 1, t.leaves};
        CHECK_EQ(weft_scope_go(t.s, grow, below), 0);
    }
}

static void tree_main(void *arg)
{
    (void)arg;
    for (int i = 0; i < scaled(20); i++) {
        weft_scope s = some_scope();
        _Atomic int leaves = 0;
        struct tree *root = malloc(sizeof *root);
        *root = (struct tree){&s, 8, &leaves};
        CHECK_EQ(weft_scope_open(&s, WEFT_NEVER), 0);
        CHECK_EQ(weft_scope_go(&s, grow, root), 0);
        CHECK_EQ(weft_scope_close(&s), 0);
        CHECK_EQ(leaves, 256);
    }
}

CASE(members_start_members_while_close_waits)
{
    on_each_procs(tree_main);
}

/* The member that was the last may still be returning when the scope is gone. */
static void lifetime_main(void *arg)
{
    _Atomic int ended = 0;
    int n = scaled(20000);
    (void)arg;
    for (int i = 0; i < n; i++) {
        weft_scope *s = malloc(sizeof *s);
        CHECK_EQ(weft_scope_open(s, i % 2 ? WEFT_NEVER : weft_now() + WEFT_SEC * 3600), 0);
        CHECK_EQ(weft_scope_go(s, add_one, &ended), 0);
        CHECK_EQ(weft_scope_go(s, i % 3 ? add_one : exit_early, &ended), 0);
        CHECK_EQ(weft_scope_close(s), 0);
        memset(s, 0x5a, sizeof *s);
        free(s);
    }
    CHECK_EQ(ended, 2 * n);
}

CASE(a_scope_may_be_freed_once_it_is_closed)
{
    on_each_procs(lifetime_main);
}

struct outsider {
    weft_chan *go_on;
    _Atomic int begun, ended;
};

static void live_outside(void *arg)
{
    struct outsider *o = arg;
    o->begun = 1;
    CHECK_EQ(weft_recv(o->go_on, NULL), 0);
    CHECK_EQ(weft_cancelled(), 0);
    o->ended = 1;
}

static void start_outsider(void *arg)
{
    CHECK_EQ(weft_go(live_outside, arg), 0);
}

static void outside_main(void *arg)
{
    (void)arg;
    for (int by_member = 0; by_member < 2; by_member++) {
        weft_scope s = some_scope();
        struct outsider o = {.go_on = weft_chan_new(0, 0)};
        CHECK_EQ(weft_scope_open(&s, WEFT_NEVER), 0);
        if (by_member)
            CHECK_EQ(weft_scope_go(&s, start_outsider, &o), 0);
        else
            start_outsider(&o);
        CHECK(reaches(&o.begun, 1, 60));
        weft_scope_cancel(&s, -ECANCELED);
        CHECK_EQ(weft_scope_close(&s), -ECANCELED);
        CHECK_EQ(o.ended, 0);
        CHECK_EQ(weft_send(o.go_on, NULL), 0);
        CHECK(reaches(&o.ended, 1, 60));
        weft_chan_free(o.go_on);
    }
}

CASE(weft_go_starts_a_goroutine_in_no_scope)
{
    on_each_procs(outside_main);
}

/* ---- who ends it ------------------------------------------------------------------------------------------------ */

static void *cancel_in_thread(void *arg)
{
    cancel_with_eio(arg);
    return NULL;
}

static void cancel_by_thread(void *arg)
{
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, cancel_in_thread, arg), 0);
    join_in_region(&thread, 1);
}

static void cancel_main(void *arg)
{
    weft_fn *const ways[] = {cancel_with_eio, cancel_by_thread};
    (void)arg;
    for (int i = 0; i < 6 * scaled(20); i++) {
        weft_scope s = some_scope();
        CHECK_EQ(weft_scope_open(&s, WEFT_NEVER), 0);
        for (int k = 0; k < 10; k++)
            CHECK_EQ(weft_scope_go(&s, wait_till_cancelled, NULL), 0);
        if (i % 3 == 0)
            ways[i % 2](&s);
        else if (i % 3 == 1)
            CHECK_EQ(weft_scope_go(&s, ways[i % 2], &s), 0);
        else
            CHECK_EQ(weft_go(ways[i % 2], &s), 0);
        CHECK_EQ(weft_recv(NULL, NULL), -ECANCELED);
        CHECK_EQ(weft_cancelled(), -ECANCELED);
        weft_scope_cancel(&s, -ENOENT); /* the first one counts */
        CHECK_EQ(weft_scope_go(&s, add_one, NULL), -EIO);
        CHECK_EQ(weft_scope_close(&s), -EIO);
        CHECK_EQ(weft_cancelled(), 0);
    }
    CHECK(others_have_ended()); /* and have joined their threads */
}

CASE(anybody_may_cancel_a_scope_and_the_first_error_counts)
{
    on_each_procs(cancel_main);
}

static void crowd_main(void *arg)
{
    int n = scaled(10000);
    weft_scope s = some_scope();
    (void)arg;
    CHECK_EQ(weft_scope_open(&s, WEFT_NEVER), 0);
    for (int i = 0; i < n; i++)
        CHECK_EQ(weft_scope_go(&s, wait_till_cancelled, NULL), 0);
    CHECK_EQ(weft_sleep(10 * WEFT_MSEC), 0);
    weft_scope_cancel(&s, -ECANCELED);
    CHECK_EQ(weft_scope_close(&s), -ECANCELED);
}

CASE(ten_thousand_members_are_cancelled_at_once)
{
    on_each_procs(crowd_main);
}

static void ignore_for_a_while(void *arg)
{
    weft_shield();
    CHECK_EQ(weft_sleep(5 * WEFT_MSEC), 0);
    weft_unshield();
    add_one(arg);
}

static void patient_main(void *arg)
{
    (void)arg;
    for (int i = 0; i < 3; i++) {
        weft_scope outer = some_scope(), s = some_scope();
        _Atomic int ended = 0;
        CHECK_EQ(weft_scope_open(&outer, WEFT_NEVER), 0);
        CHECK_EQ(weft_scope_open(&s, i == 2 ? weft_now() + WEFT_MSEC : WEFT_NEVER), 0);
        int started = 0;
        for (int k = 0; k < 5; k++)
            started += weft_scope_go(&s, ignore_for_a_while, &ended) == 0;
        CHECK(started == 5 || i == 2);
        if (i < 2)
            weft_scope_cancel(i == 0 ? &s : &outer, -ECANCELED);
        int err = weft_scope_close(&s);
        CHECK_EQ(ended, started);
        CHECK(err == (i == 2 ? -ETIMEDOUT : -ECANCELED) || (i == 2 && started == 0));
        CHECK_EQ(weft_scope_close(&outer), i == 1 ? -ECANCELED : 0);
    }
}

CASE(close_is_not_cut)
{
    on_each_procs(patient_main);
}

/* ---- deadlines -------------------------------------------------------------------------------------------------- */

static void deadline_main(void *arg)
{
    (void)arg;
    for (int i = 0; i < 10; i++) {
        weft_scope s = some_scope();
        int64_t deadline = weft_now() + i * WEFT_MSEC;
        CHECK_EQ(weft_scope_open(&s, deadline), 0);
        for (int k = 0; k < 10; k++) {
            int r = weft_scope_go(&s, wait_till_timeout, &deadline);
            CHECK(r == 0 || (r == -ETIMEDOUT && weft_now() >= deadline));
        }
        if (i % 2)
            wait_till_timeout(&deadline);
        CHECK_EQ(weft_scope_close(&s), -ETIMEDOUT);
        CHECK(weft_now() >= deadline);
    }
}

CASE(a_deadline_that_passes_ends_the_scope)
{
    on_each_procs(deadline_main);
}

/* Nothing else happens: who is not woken by its deadline sleeps for ever. */
static void time_out_often(void *arg)
{
    uint64_t rng = weft_id() * 0x9E3779B97F4A7C15ull;
    for (int i = 0; i < scaled(3000); i++) {
        weft_scope s = some_scope();
        int64_t deadline = weft_now() + check_random(&rng) % 40000;
        CHECK_EQ(weft_scope_open(&s, deadline), 0);
        wait_till_timeout(&deadline);
        CHECK_EQ(weft_scope_close(&s), -ETIMEDOUT);
    }
    weft_wg_done(arg);
}

static void often_main(void *arg)
{
    weft_wg wg = {0};
    (void)arg;
    weft_wg_add(&wg, 5);
    for (int i = 0; i < 5; i++)
        CHECK_EQ(weft_go(time_out_often, &wg), 0);
    CHECK_EQ(weft_wg_wait(&wg), 0);
}

CASE(no_deadline_is_lost)
{
    on_each_procs(often_main);
}

static void first_main(void *arg)
{
    (void)arg;
    for (int i = 0; i < 5; i++) {
        weft_scope s = some_scope();
        int64_t deadline = weft_now() + 20 * WEFT_MSEC;
        CHECK_EQ(weft_scope_open(&s, deadline), 0);
        weft_scope_cancel(&s, -EIO);
        bool in_time = weft_now() < deadline; /* else it does not matter what came first */
        weft_shield();
        CHECK_EQ(weft_sleep(25 * WEFT_MSEC), 0);
        weft_unshield();
        CHECK(!in_time || weft_cancelled() == -ECANCELED);
        CHECK(!in_time || weft_recv(NULL, NULL) == -ECANCELED);
        int err = weft_scope_close(&s);
        CHECK(err == -EIO || (!in_time && err == -ETIMEDOUT));

        CHECK_EQ(weft_scope_open(&s, weft_now() + WEFT_MSEC), 0);
        CHECK_EQ(weft_recv(NULL, NULL), -ETIMEDOUT);
        weft_scope_cancel(&s, -EIO);
        CHECK_EQ(weft_scope_go(&s, add_one, NULL), -ETIMEDOUT);
        CHECK_EQ(weft_scope_close(&s), -ETIMEDOUT);
    }
}

CASE(of_cancel_and_deadline_the_first_decides)
{
    on_each_procs(first_main);
}

/* Nothing else runs on this processor: only the clock can tell. */
static void compute(void *arg)
{
    int64_t deadline = *(int64_t *)arg;
    int r;
    while ((r = weft_cancelled()) == 0)
        ;
    CHECK_EQ(r, -ETIMEDOUT);
    CHECK(weft_now() >= deadline);
}

static void compute_main(void *arg)
{
    weft_scope s = some_scope(), inner = some_scope();
    (void)arg;
    CHECK_EQ(weft_cancelled(), 0);
    int64_t deadline = weft_now() + 5 * WEFT_MSEC;
    CHECK_EQ(weft_scope_open(&s, deadline), 0);
    int r = weft_scope_go(&s, compute, &deadline);
    CHECK(r == 0 || r == -ETIMEDOUT);
    CHECK_EQ(weft_scope_open(&inner, WEFT_NEVER), 0);
    compute(&deadline);
    CHECK_EQ(weft_scope_close(&inner), -ETIMEDOUT);
    CHECK_EQ(weft_scope_close(&s), -ETIMEDOUT);
    CHECK_EQ(weft_cancelled(), 0);
}

CASE(long_computations_see_their_deadline_by_the_clock)
{
    static const int64_t quanta[] = {0, WEFT_NEVER};
    EACH_PROCS(p) for (int q = 0; q < 2; q++)
    {
        weft_config c = {.procs = p, .quantum = quanta[q]};
        CHECK_EQ(weft_run_with(&c, compute_main, NULL), 0);
    }
}

/* ---- misuse ----------------------------------------------------------------------------------------------------- */

static weft_scope shared_scope, second_scope;

static void close_shared(void *arg)
{
    (void)arg;
    weft_scope_close(&shared_scope);
}

static void close_by_member(void *arg)
{
    (void)arg;
    weft_scope_open(&shared_scope, WEFT_NEVER);
    weft_scope_go(&shared_scope, close_shared, NULL);
    weft_sleep(WEFT_SEC);
}

static void close_by_outsider(void *arg)
{
    (void)arg;
    weft_scope_open(&shared_scope, WEFT_NEVER);
    weft_go(close_shared, NULL);
    weft_sleep(WEFT_SEC);
}

static void close_outer_first(void *arg)
{
    weft_scope_open(&shared_scope, WEFT_NEVER);
    weft_scope_open(&second_scope, WEFT_NEVER);
    close_shared(arg);
}

static void close_twice(void *arg)
{
    weft_scope_open(&shared_scope, WEFT_NEVER);
    close_shared(arg);
    close_shared(arg);
}

static void leave_open(void *arg)
{
    (void)arg;
    weft_scope_open(&shared_scope, WEFT_NEVER);
}

static void exit_with_it_open(void *arg)
{
    leave_open(arg);
    weft_exit();
}

static void member_leaves_open(void *arg)
{
    (void)arg;
    weft_scope_open(&second_scope, WEFT_NEVER);
    weft_scope_go(&second_scope, leave_open, NULL);
    weft_scope_close(&second_scope);
}

static void outsider_leaves_open(void *arg)
{
    weft_go(exit_with_it_open, arg);
    weft_sleep(WEFT_SEC);
}

static void cancel_with_zero(void *arg)
{
    leave_open(arg);
    weft_scope_cancel(&shared_scope, 0);
}

static void cancel_with_success(void *arg)
{
    leave_open(arg);
    weft_scope_cancel(&shared_scope, EIO);
}

static void unshield_too_often(void *arg)
{
    (void)arg;
    weft_shield();
    weft_unshield();
    weft_unshield();
}

static weft_fn *misuse;

static void run_misuse(void)
{
    run_on(2, misuse, NULL);
}

CASE(misuse_of_scopes_aborts_with_one_line)
{
    weft_fn *const kinds[] = {close_by_member,  close_by_outsider,  close_outer_first,  close_twice,
                              leave_open,       exit_with_it_open,  member_leaves_open, outsider_leaves_open,
                              cancel_with_zero, cancel_with_success};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        misuse = kinds[i];
        aborts_with_one_line(run_misuse, "scope");
    }
    misuse = unshield_too_often;
    aborts_with_one_line(run_misuse, "shield");
}
