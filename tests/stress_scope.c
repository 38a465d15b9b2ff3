/* SPDX-License-Identifier: MIT */
/*
 * Trees of scopes that grow and are cut at random: members open scopes, start members, cancel their own scope or one
 * around it, and wait in every way for things that all of them share. Whatever is cut, the counts add up: every member
 * that was started has ended when its scope is closed, all waits in a scope tell the same error, and no token, permit,
 * lock or value is lost.
 */
#include "runs.h"
#include "stress.h"

enum { TOKENS = 5, PERMITS = 7, DEPTH = 4, MEMBERS = 1500 };

static struct {
    weft_mutex mu;
    uint64_t counter; /* mu */
    _Atomic uint64_t locked;
    weft_rwmutex rw;
    uint64_t written; /* rw */
    _Atomic uint64_t write_locked;
    weft_mutex cond_mu;
    weft_cond cond;
    weft_sem sem;
    weft_chan *tokens, *hand; /* buffered with TOKENS in it; unbuffered */
    _Atomic int64_t sent, received;
    _Atomic int budget; /* members that may still be started */
} shared;

static uint64_t seed;
static _Atomic uint64_t streams; /* handed out */

/* One scope, where its opener keeps it. */
struct family {
    weft_scope scope;
    struct family *parent;
    int depth;
    _Atomic int started, ended;
    _Atomic int told; /* what the first wait that was cut returned */
};

static const char KEY; /* of a value: the family itself */

static uint64_t fresh_stream(void)
{
    return stress_stream(seed, atomic_fetch_add(&streams, 1));
}

/* ---- one wait of each kind --------------------------------------------------------------------------------------- */

static int wait_for_lock(uint32_t r)
{
    int e = weft_lock(&shared.mu);
    if (e != 0)
        return e;
    shared.counter++;
    if (r % 4 == 0)
        weft_yield();
    weft_unlock(&shared.mu);
    atomic_fetch_add(&shared.locked, 1);
    return 0;
}

static int wait_to_read(uint32_t r)
{
    int e = weft_rdlock(&shared.rw);
    if (e != 0)
        return e;
    uint64_t before = shared.written;
    if (r % 2 == 0)
        weft_yield();
    CHECK_EQ(shared.written, before);
    weft_rdunlock(&shared.rw);
    return 0;
}

static int wait_to_write(uint32_t r)
{
    int e = weft_wrlock(&shared.rw);
    if (e != 0)
        return e;
    shared.written++;
    if (r % 4 == 0)
        weft_yield();
    weft_wrunlock(&shared.rw);
    atomic_fetch_add(&shared.write_locked, 1);
    return 0;
}

static int wait_for_permits(uint32_t r)
{
    int64_t n = 1 + r % PERMITS;
    int e = weft_sem_acquire(&shared.sem, n);
    if (e != 0)
        return e;
    weft_yield();
    weft_sem_release(&shared.sem, n);
    return 0;
}

static int wait_for_token(uint32_t r)
{
    int token = -1;
    int e = weft_recv(shared.tokens, &token);
    if (e != 0)
        return e;
    CHECK(token >= 0 && token < TOKENS);
    if (r % 2 == 0)
        weft_yield();
    CHECK_EQ(weft_try_send(shared.tokens, &token), 0); /* there is room for all of them */
    return 0;
}

static int wait_to_hand_over(uint32_t r)
{
    int value = (int)(r >> 1 & 0xffff);
    int e = r % 2 ? weft_send(shared.hand, &value) : weft_recv(shared.hand, &value);
    if (e == 0)
        atomic_fetch_add(r % 2 ? &shared.sent : &shared.received, value);
    return e;
}

static int wait_in_select(uint32_t r)
{
    int out = (int)(r >> 1 & 0xffff), in = -1, token = -1;
    weft_case cases[] = {WEFT_SEND(shared.hand, &out), WEFT_RECV(shared.hand, &in), WEFT_RECV(shared.tokens, &token),
                         WEFT_AT(weft_now() + (r >> 8 & 0x7ffff))};
    int first = r % 3 == 0 ? 1 : 0, e = weft_select(cases + first, 4 - first);
    if (e < 0)
        return e;
    e += first;
    CHECK_EQ(cases[e].err, 0);
    if (e == 0)
        atomic_fetch_add(&shared.sent, out);
    else if (e == 1)
        atomic_fetch_add(&shared.received, in);
    else if (e == 2)
        CHECK_EQ(weft_try_send(shared.tokens, &token), 0);
    return 0;
}

static int wait_for_signal(uint32_t r)
{
    int e = weft_lock(&shared.cond_mu);
    if (e != 0)
        return e;
    if (r % 2)
        weft_cond_signal(&shared.cond);
    e = weft_cond_wait(&shared.cond, &shared.cond_mu);
    CHECK_EQ(weft_try_lock(&shared.cond_mu), -EAGAIN);
    weft_unlock(&shared.cond_mu);
    return e;
}

static int wait_for_time(uint32_t r)
{
    int64_t ns = r >> 8 & 0x3ffff, start = weft_now();
    int e = weft_sleep(ns);
    CHECK(e != 0 || weft_now() - start >= ns);
    return e;
}

static int wait_for_nothing(uint32_t r)
{
    weft_wg wg = {0};
    weft_wg_add(&wg, 1);
    return r % 3 == 0 ? weft_recv(NULL, NULL) : r % 3 == 1 ? weft_select(NULL, 0) : weft_wg_wait(&wg);
}

static int one_wait(uint64_t *rng)
{
    static int (*const kinds[])(uint32_t) = {
        wait_for_lock,  wait_to_read,      wait_to_write,  wait_for_permits, wait_for_token,
        wait_for_token, wait_to_hand_over, wait_in_select, wait_for_signal,  wait_for_time,
        wait_for_lock,  wait_for_permits,  wait_in_select, wait_for_time,    wait_for_nothing,
    };
    uint32_t r = check_random(rng);
    return kinds[r % (sizeof kinds / sizeof kinds[0])](check_random(rng));
}

/* ---- families ---------------------------------------------------------------------------------------------------- */

static void live(struct family *f, uint64_t *rng);

/* All who run in a scope are told the same. */
static void tell(struct family *f, int e)
{
    int none = 0;
    CHECK(e == -ECANCELED || e == -ETIMEDOUT);
    if (!atomic_compare_exchange_strong(&f->told, &none, e))
        CHECK_EQ(none, e);
    CHECK_EQ(weft_cancelled(), e);
}

static void be_a_member(void *arg)
{
    struct family *f = arg;
    uint64_t rng = fresh_stream();
    CHECK(weft_local_get(&KEY) == f);
    live(f, &rng);
    atomic_fetch_add(&f->ended, 1);
    if (check_random(&rng) % 4 == 0)
        weft_exit();
}

static void start_member(struct family *f)
{
    if (atomic_fetch_sub(&shared.budget, 1) <= 0)
        return;
    atomic_fetch_add(&f->started, 1);
    int e = weft_scope_go(&f->scope, be_a_member, f);
    if (e == 0)
        return;
    CHECK(e < 0 && e != -ENOMEM);
    atomic_fetch_sub(&f->started, 1);
}

static void cancel_one(struct family *f, uint64_t *rng)
{
    static const int errors[] = {-ECANCELED, -EIO, -EPERM, -ETIMEDOUT};
    uint32_t r = check_random(rng);
    for (; f->parent != NULL && r % 4 == 0; r >>= 2)
        f = f->parent; /* it is open as long as what lies in it */
    if (f->parent == NULL && r % 16 != 1)
        return; /* the whole tree: not so often */
    weft_scope_cancel(&f->scope, errors[r >> 8 & 3]);
}

static int64_t some_deadline(uint32_t r)
{
    int64_t now = weft_now();
    return r % 4 == 0   ? WEFT_NEVER
           : r % 4 == 1 ? now + (r >> 8 & 0xfffff)
           : r % 4 == 2 ? now + 3600 * WEFT_SEC
                        : now + (int64_t)(r >> 8 & 0x1ffff) - 0x4000;
}

static void raise_family(struct family *parent, uint32_t members, int64_t deadline, uint64_t *rng)
{
    struct family f = {.parent = parent, .depth = parent != NULL ? parent->depth + 1 : 0};
    memset(&f.scope, 0xa5, sizeof f.scope);
    CHECK_EQ(weft_scope_open(&f.scope, deadline), 0);
    CHECK_EQ(weft_scope_set(&f.scope, &KEY, &f), 0);
    for (uint32_t n = 0; n < members; n++)
        start_member(&f);
    live(&f, rng);
    int err = weft_scope_close(&f.scope);
    CHECK_EQ(f.started, f.ended);
    int told = atomic_load(&f.told);
    CHECK(told == 0 || told == (err == -ETIMEDOUT ? -ETIMEDOUT : -ECANCELED));
    CHECK(weft_local_get(&KEY) == parent);
    memset(&f, 0x5a, sizeof f);
}

/* A member's or an opener's life: some waits, some children, perhaps the end of it all. */
static void live(struct family *f, uint64_t *rng)
{
    for (uint32_t n = check_random(rng) % 8; n > 0; n--) {
        uint32_t r = check_random(rng);
        if (r % 32 < 1)
            cancel_one(f, rng);
        else if (r % 32 < 6)
            start_member(f);
        else if (r % 32 < 12 && f->depth < DEPTH && shared.budget > 0)
            raise_family(f, r >> 8 & 7, some_deadline(check_random(rng)), rng);
        int e = one_wait(rng);
        if (e == 0)
            continue;
        tell(f, e);
        if (check_random(rng) % 4 != 0)
            return;
    }
}

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

static void set_out(void)
{
    memset(&shared, 0, sizeof shared);
    shared.tokens = weft_chan_new(sizeof(int), TOKENS);
    shared.hand = weft_chan_new(sizeof(int), 0);
    for (int i = 0; i < TOKENS; i++)
        CHECK_EQ(weft_try_send(shared.tokens, &i), 0);
    weft_sem_release(&shared.sem, PERMITS);
    shared.budget = stress_scaled(MEMBERS);
}

static void add_up(void)
{
    bool seen[TOKENS] = {0};
    for (int i = 0, token = -1; i < TOKENS; i++) {
        CHECK_EQ(weft_try_recv(shared.tokens, &token), 0);
        if (token >= 0 && token < TOKENS) {
            CHECK(!seen[token]);
            seen[token] = true;
        }
    }
    CHECK_EQ(weft_sem_try_acquire(&shared.sem, PERMITS), 0);
    CHECK_EQ(weft_sem_try_acquire(&shared.sem, 1), -EAGAIN);
    CHECK_EQ(weft_try_lock(&shared.mu), 0);
    CHECK_EQ(shared.counter, shared.locked);
    CHECK_EQ(weft_try_wrlock(&shared.rw), 0);
    CHECK_EQ(shared.written, shared.write_locked);
    CHECK_EQ(weft_try_lock(&shared.cond_mu), 0);
    CHECK_EQ(shared.sent, shared.received);
    weft_chan_free(shared.tokens);
    weft_chan_free(shared.hand);
}

/* Nobody waits for ever: the scope around all has a deadline. */
static void one_tree(uint64_t *rng)
{
    int64_t life = WEFT_MSEC + check_random(rng) % (3 * WEFT_MSEC);
    raise_family(NULL, (uint32_t)stress_scaled(100), weft_now() + life, rng);
}

static void trees_main(void *arg)
{
    uint64_t rng = fresh_stream();
    (void)arg;
    for (int i = 0; i < stress_scaled(100); i++) {
        set_out();
        one_tree(&rng);
        add_up();
    }
}

static void on_each_procs(weft_fn *fn)
{
    seed = check_seed();
    streams = 0;
    for (int i = 0; i < STRESS_PROCS_COUNT; i++)
        stress_run(STRESS_PROCS[i], seed, fn, NULL);
}

CASE(trees_of_scopes_are_cut_and_the_counts_add_up)
{
    on_each_procs(trees_main);
}

static _Atomic bool over;

static void change_procs(void *arg)
{
    uint64_t rng = fresh_stream();
    while (!atomic_load(&over)) {
        CHECK(weft_procs(1 + (int)(check_random(&rng) % 8)) > 0);
        CHECK_EQ(weft_sleep(check_random(&rng) % 300000), 0);
    }
    weft_wg_done(arg);
}

static void changing_main(void *arg)
{
    weft_wg wg = {0};
    atomic_store(&over, false);
    weft_wg_add(&wg, 1);
    CHECK_EQ(weft_go(change_procs, &wg), 0);
    trees_main(arg);
    atomic_store(&over, true);
    CHECK_EQ(weft_wg_wait(&wg), 0);
}

CASE(trees_of_scopes_while_the_number_of_ps_changes)
{
    on_each_procs(changing_main);
}

/* Several trees at once wait for the same things; threads that are not the runtime's raise some of them. */
static void *tree_in_thread(void *arg)
{
    uint64_t rng = fresh_stream();
    for (int i = 0; i < 3; i++)
        one_tree(&rng);
    return arg;
}

static void tree_in_goroutine(void *arg)
{
    tree_in_thread(NULL);
    weft_wg_done(arg);
}

static void forest_main(void *arg)
{
    (void)arg;
    for (int i = 0; i < stress_scaled(20); i++) {
        pthread_t threads[3];
        weft_wg wg = {0};
        set_out();
        weft_wg_add(&wg, 3);
        for (int k = 0; k < 3; k++) {
            CHECK_EQ(pthread_create(&threads[k], NULL, tree_in_thread, NULL), 0);
            CHECK_EQ(weft_go(tree_in_goroutine, &wg), 0);
        }
        join_in_region(threads, 3);
        CHECK_EQ(weft_wg_wait(&wg), 0);
        add_up();
    }
}

CASE(goroutines_and_threads_raise_trees_side_by_side)
{
    on_each_procs(forest_main);
}
