/* SPDX-License-Identifier: MIT */
/* Nobody who is ready waits for ever, whatever the others do; who has used little runs before who has used much. */
#include "hogs.h"
#include "io.h"

/* ---- those who must get on -------------------------------------------------------------------------------------- */

/* One who has to get on: it counts its rounds. */
struct victim {
    const char *name;
    weft_fn *fn;
    _Atomic int rounds;
    int fd[2]; /* of those who need descriptors */
};

static weft_mutex busy_mutex; /* that hogs lock */
static weft_chan *from_outside;
static weft_wg writers; /* that have not closed their end of a pipe */

static void yields(void *arg)
{
    for (struct victim *v = arg; !over; v->rounds++)
        weft_yield();
}

static void sleeps(void *arg)
{
    for (struct victim *v = arg; !over; v->rounds++)
        CHECK_EQ(weft_sleep(200 * WEFT_USEC), 0);
}

static void waits_in_select(void *arg)
{
    for (struct victim *v = arg; !over; v->rounds++) {
        weft_case cases[] = {WEFT_RECV(NULL, NULL), WEFT_AT(weft_now() + 200 * WEFT_USEC)};
        CHECK_EQ(weft_select(cases, 2), 1);
    }
}

static void child(void *arg)
{
    weft_wg_done(arg);
}

static void starts_children(void *arg)
{
    for (struct victim *v = arg; !over; v->rounds++) {
        weft_wg wg = {0};
        weft_wg_add(&wg, 3);
        for (int i = 0; i < 3; i++)
            CHECK_EQ(weft_go(child, &wg), 0);
        CHECK_EQ(weft_wg_wait(&wg), 0);
    }
}

static void locks(void *arg)
{
    for (struct victim *v = arg; !over; v->rounds++) {
        CHECK_EQ(weft_lock(&busy_mutex), 0);
        weft_unlock(&busy_mutex);
    }
}

static void receives_from_outside(void *arg)
{
    for (struct victim *v = arg; !over && weft_recv(from_outside, NULL) == 0; v->rounds++)
        ;
}

/* For so long that it becomes a heavy one. */
static void computes(void *arg)
{
    for (struct victim *v = arg; !over; v->rounds++)
        for (int i = 0; i < 10000 && !over; i++)
            compute_a_little();
}

static void blocks(void *arg)
{
    for (struct victim *v = arg; !over; v->rounds++) {
        weft_block_enter();
        usleep(100);
        weft_block_leave();
    }
}

/* The byte that it sends comes back from another goroutine. */
static void echoes(void *arg)
{
    struct victim *v = arg;
    char byte;
    while (weft_read(v->fd[1], &byte, 1) == 1 && weft_write(v->fd[1], &byte, 1) == 1)
        ;
}

static void talks(void *arg)
{
    struct victim *v = arg;
    char byte = 'x';
    CHECK_EQ(weft_go(echoes, v), 0);
    while (!over && weft_write(v->fd[0], &byte, 1) == 1 && weft_read(v->fd[0], &byte, 1) == 1)
        v->rounds++;
    shutdown(v->fd[0], SHUT_RDWR);
}

/* What the other one writes comes through a pipe. */
static void writes(void *arg)
{
    struct victim *v = arg;
    while (!over && weft_write(v->fd[1], "x", 1) == 1)
        weft_yield();
    CHECK_EQ(weft_close_fd(v->fd[1]), 0);
    v->fd[1] = -1;
    weft_wg_done(&writers);
}

static void reads(void *arg)
{
    struct victim *v = arg;
    char byte;
    weft_wg_add(&writers, 1);
    CHECK_EQ(weft_go(writes, v), 0);
    while (weft_read(v->fd[0], &byte, 1) == 1)
        v->rounds++;
}

static struct victim victims[] = {
    {.name = "one that yields", .fn = yields},
    {.name = "one that sleeps", .fn = sleeps},
    {.name = "one that waits for time in a select", .fn = waits_in_select},
    {.name = "one that starts others", .fn = starts_children},
    {.name = "one that locks", .fn = locks},
    {.name = "one that receives from a foreign thread", .fn = receives_from_outside},
    {.name = "one that computes", .fn = computes},
    {.name = "one that blocks", .fn = blocks},
    {.name = "one that reads a pipe", .fn = reads},
    {.name = "one that talks over a socket", .fn = talks},
};
enum { VICTIMS = sizeof victims / sizeof victims[0], ROUNDS = 5 };

static void start_victims(void)
{
    for (int i = 0; i < VICTIMS; i++) {
        struct victim *v = &victims[i];
        v->rounds = 0;
        v->fd[0] = v->fd[1] = -1;
        if (v->fn == reads)
            pipe_pair(v->fd);
        if (v->fn == talks)
            tcp_pair(v->fd);
        CHECK_EQ(go_as(WEFT_NORMAL, v->fn, v), 0);
    }
}

static void *send_until_over(void *arg)
{
    for (int i = 0; !over; i++) {
        weft_try_send(from_outside, &i);
        usleep(300);
    }
    return arg;
}

/* Each of them has done so many rounds more. */
static bool all_get_on(const void *arg)
{
    const int *target = arg;
    for (int i = 0; i < VICTIMS; i++)
        if (victims[i].rounds < target[i])
            return false;
    return true;
}

/* ---- beside all kinds of others --------------------------------------------------------------------------------- */

struct crowd {
    int procs, each; /* so many for each P */
    bool hogs;       /* and as many hogs as there are Ps */
    weft_fn *fn;
};

static weft_chan *balls[4 * 8 * 2];

static void beside_main(void *arg)
{
    const struct crowd *c = arg;
    int n = c->procs * c->each, rounds = scaled(ROUNDS), target[VICTIMS];
    pthread_t thread;
    begin_scene();
    from_outside = weft_chan_new(sizeof(int), 4);
    for (int i = 0; i < 2 * n; i++)
        balls[i] = weft_chan_new(sizeof(int), 0);
    start_victims();
    for (intptr_t i = 0; i < n; i++)
        CHECK_EQ(go_as(WEFT_NORMAL, c->fn, (void *)i), 0);
    start_hogs(c->hogs ? c->procs : 0, WEFT_NORMAL);
    weft_block_enter();
    CHECK_EQ(pthread_create(&thread, NULL, send_until_over, NULL), 0);
    CHECK(comes_to(&hogs.began, n));
    for (int i = 0; i < VICTIMS; i++)
        target[i] = victims[i].rounds + rounds;
    if (!comes_true(all_get_on, target))
        for (int i = 0; i < VICTIMS; i++)
            if (victims[i].rounds < target[i])
                check_fail(__FILE__, __LINE__, "on %d P(s) %s did %d rounds of %d", c->procs, victims[i].name,
                           victims[i].rounds + rounds - target[i], rounds);
    over = true;
    pthread_join(thread, NULL);
    weft_close(from_outside);
    for (int i = 0; i < 2 * n; i++)
        weft_close(balls[i]);
    end_scene();
    for (int i = 0; i < 2 * n; i++)
        weft_chan_free(balls[i]);
    weft_chan_free(from_outside);
    CHECK_EQ(weft_wg_wait(&writers), 0);
    for (int i = 0; i < VICTIMS; i++)
        close_both(victims[i].fd);
}

static void run_beside(const struct crowd *c, int64_t quantum)
{
    CHECK_EQ(weft_run_with(&(weft_config){.procs = c->procs, .quantum = quantum}, beside_main, (void *)c), 0);
}

static void beside(weft_fn *fn, int each)
{
    EACH_PROCS(p)
    for (int h = 0; h < 2; h++)
        run_beside(&(struct crowd){p, each, h != 0, fn}, 0);
}

static void hog_alone(void *arg)
{
    be_a_hog(&hogs.hog[(intptr_t)arg % MAX_HOGS]);
}

CASE(all_get_on_beside_hogs_on_every_p)
{
    EACH_PROCS(p) run_beside(&(struct crowd){p, 2, false, hog_alone}, 0);
}

static void yield_loop(void *arg)
{
    (void)arg;
    hogs.began++;
    while (!over)
        weft_yield();
}

CASE(all_get_on_beside_yield_loops_on_every_p)
{
    beside(yield_loop, 3);
}

/* Each starts the next, which is always the newest: it lies in the slot. */
static void chain(void *arg)
{
    if (!over)
        CHECK_EQ(weft_go(chain, arg), 0);
}

static void begin_chain(void *arg)
{
    hogs.began++;
    chain(arg);
}

CASE(all_get_on_beside_chains_of_starts)
{
    beside(begin_chain, 2);
}

static void nothing(void *arg)
{
    (void)arg;
}

static void spawn_storm(void *arg)
{
    (void)arg;
    hogs.began++;
    while (!over) {
        for (int i = 0; i < 200; i++)
            CHECK_EQ(weft_go(nothing, NULL), 0);
        while (weft_count() > 4000 && !over)
            weft_yield();
    }
}

CASE(all_get_on_beside_a_spawn_storm)
{
    beside(spawn_storm, 1);
}

/* Two that hand over to each other: the one that is woken lies in the slot. */
static void ping(void *arg)
{
    intptr_t at = (intptr_t)arg;
    int v = 0;
    while (weft_send(balls[2 * at], &v) == 0 && weft_recv(balls[2 * at + 1], &v) == 0)
        ;
}

static void pong(void *arg)
{
    intptr_t at = (intptr_t)arg;
    int v = 0;
    hogs.began++;
    CHECK_EQ(weft_go(ping, arg), 0);
    while (weft_recv(balls[2 * at], &v) == 0 && weft_send(balls[2 * at + 1], &v) == 0)
        ;
}

CASE(all_get_on_beside_pairs_that_hand_over_to_each_other)
{
    beside(pong, 2);
}

static void lock_and_compute(void *arg)
{
    (void)arg;
    hogs.began++;
    while (!over) {
        CHECK_EQ(weft_lock(&busy_mutex), 0);
        for (int i = 0; i < 1000 && !over; i++)
            compute_a_little();
        weft_unlock(&busy_mutex);
    }
}

CASE(all_get_on_beside_hogs_that_hold_a_mutex)
{
    beside(lock_and_compute, 2);
}

static void tick(void *arg)
{
    (void)arg;
    hogs.began++;
    while (!over)
        weft_sleep(1);
}

CASE(all_get_on_beside_timers_that_are_always_due)
{
    beside(tick, 4);
}

static void talk_to_itself(void *arg)
{
    int fd[2];
    char bytes[64] = {0};
    (void)arg;
    hogs.began++;
    pipe_pair(fd);
    while (!over) {
        CHECK_EQ(weft_write(fd[1], bytes, sizeof bytes), sizeof bytes);
        CHECK_EQ(weft_read(fd[0], bytes, sizeof bytes), sizeof bytes);
    }
    close_both(fd);
}

CASE(all_get_on_beside_descriptors_that_are_always_ready)
{
    beside(talk_to_itself, 2);
}

/* Urgent and low ones as well: beside those the others have a turn every eighth quantum. */
static void hog_of_each_class(void *arg)
{
    intptr_t at = (intptr_t)arg;
    hogs.began++;
    CHECK_EQ(weft_set_priority((int)(at % 3) - 1), 0);
    while (!over)
        compute_a_little();
}

CASE(all_get_on_beside_hogs_of_each_class)
{
    EACH_PROCS(p) run_beside(&(struct crowd){p, 3, false, hog_of_each_class}, 200 * WEFT_USEC);
}

/* ---- light before heavy ----------------------------------------------------------------------------------------- */

enum { CROWD = 8, VISITS = 12 };

static struct {
    _Atomic int visits, late;
    _Atomic int waits; /* how often it was about to wait */
    bool heavy;        /* the visitor computes until it is a heavy one itself, and then waits */
    weft_chan *ch;
    int fd[2];
} visit;

/* One hog may have been on its way; of those who wait, each has a turn before a heavy one that comes. */
static void note_visit(int turns_before)
{
    visit.late += hogs.turns - turns_before > 2;
    visit.visits++;
}

static bool is_heavy(void)
{
    struct w_g *g = w_call_begin();
    bool heavy = ld_relaxed(&g->level) == W_HEAVY;
    w_call_end(g);
    return heavy;
}

static void become_heavy(void)
{
    while (visit.heavy && !is_heavy() && !over)
        compute_a_little();
    visit.waits++;
}

static void visit_by_time(void *arg)
{
    (void)arg;
    while (visit.visits < VISITS && !over) {
        become_heavy();
        int before = hogs.turns;
        CHECK_EQ(weft_sleep(3 * WEFT_MSEC), 0);
        note_visit(before);
    }
}

static void visit_by_value(void *arg)
{
    int before;
    (void)arg;
    while (become_heavy(), weft_recv(visit.ch, &before) == 0)
        note_visit(before);
}

static void visit_by_byte(void *arg)
{
    int before;
    (void)arg;
    while (become_heavy(), weft_read(visit.fd[0], &before, sizeof before) == sizeof before)
        note_visit(before);
}

/* Once the visitor waits for the i-th time. */
static void ring(bool by_value, int i)
{
    if (!comes_to(&visit.waits, i))
        return;
    usleep(3000);
    int now = hogs.turns;
    if (by_value)
        CHECK_EQ(weft_try_send(visit.ch, &now), 0);
    else
        CHECK_EQ(write(visit.fd[1], &now, sizeof now), sizeof now);
}

static void *ring_often(void *arg)
{
    for (int i = 1; i <= VISITS; i++)
        ring(*(bool *)arg, i);
    return NULL;
}

static void visits_main(void *arg)
{
    weft_fn *visitor = *(weft_fn **)arg;
    bool by_value = visitor == visit_by_value;
    pthread_t thread;
    begin_scene();
    visit.visits = visit.late = visit.waits = 0;
    visit.ch = weft_chan_new(sizeof(int), 1);
    pipe_pair(visit.fd);
    start_hogs(CROWD, WEFT_NORMAL);
    CHECK_EQ(go_as(WEFT_NORMAL, visitor, NULL), 0);
    weft_block_enter();
    CHECK(comes_to(&hogs.began, CROWD));
    if (visitor != visit_by_time) {
        CHECK_EQ(pthread_create(&thread, NULL, ring_often, &by_value), 0);
        pthread_join(thread, NULL);
    }
    CHECK(comes_to(&visit.visits, VISITS));
    over = true;
    weft_close(visit.ch);
    CHECK_EQ(weft_close_fd(visit.fd[1]), 0);
    end_scene();
    CHECK_EQ(weft_close_fd(visit.fd[0]), 0);
    weft_chan_free(visit.ch);
}

/* With one P: a hog computes for a quantum at a time, and all of them have computed for long. */
static void visit_hogs(bool heavy, int64_t quantum)
{
    static weft_fn *const visitors[] = {visit_by_time, visit_by_value, visit_by_byte};
    visit.heavy = heavy;
    for (int i = 0; i < 3; i++) {
        weft_fn *visitor = visitors[i];
        CHECK_EQ(run_with_own_quantum(&(weft_config){.procs = 1, .quantum = quantum}, visits_main, &visitor), 0);
        if (visit.late > VISITS * 3 / 4) /* of which a crowded machine makes some */
            check_fail(__FILE__, __LINE__, "visitor %d was late %d times of %d", i, visit.late, VISITS);
    }
}

CASE(a_light_one_that_is_woken_runs_before_the_hogs_that_wait)
{
    visit_hogs(false, 20 * WEFT_MSEC);
}

CASE(a_heavy_one_that_waits_is_light_again)
{
    visit_hogs(true, 5 * WEFT_MSEC);
}

/* ---- heavy beside light ------------------------------------------------------------------------------------------ */

/* Light ones are ready all the time, for they wait again and again: a heavy one gets turns all the same. */
enum { RELAYS = 4 };

static void relay(void *arg)
{
    intptr_t at = (intptr_t)arg;
    int v = 0;
    hogs.began++;
    weft_preempt_off(); /* or a crowded machine makes a heavy one of it */
    while (weft_recv(balls[at], &v) == 0 && weft_send(balls[at ^ 1], &v) == 0)
        spin_for(100);
}

static void heavy_beside_light(void *arg)
{
    int n = RELAYS * *(int *)arg;
    struct victim v = {.name = "a heavy one"};
    begin_scene();
    for (int i = 0; i < n; i++)
        balls[i] = weft_chan_new(sizeof(int), 4);
    for (intptr_t i = 0; i < n; i++) {
        CHECK_EQ(go_as(WEFT_NORMAL, relay, (void *)i), 0);
        for (int k = 0; k < 2; k++)
            CHECK_EQ(weft_send(balls[i], &k), 0);
    }
    CHECK_EQ(go_as(WEFT_NORMAL, computes, &v), 0);
    weft_block_enter();
    CHECK(comes_to(&hogs.began, n));
    if (!comes_to(&v.rounds, 30))
        check_fail(__FILE__, __LINE__, "on %d P(s) a heavy one did %d rounds", *(int *)arg, v.rounds);
    over = true;
    for (int i = 0; i < n; i++)
        weft_close(balls[i]);
    end_scene();
    for (int i = 0; i < n; i++)
        weft_chan_free(balls[i]);
}

CASE(a_heavy_one_gets_turns_beside_light_ones_that_are_always_ready)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, heavy_beside_light, &p), 0);
}

/* ---- shares ----------------------------------------------------------------------------------------------------- */

static int least_share; /* of a hog, in percent of the mean */

static bool has_computed(const void *arg)
{
    return check_cpu_ns() >= *(const int64_t *)arg;
}

static void shares_main(void *arg)
{
    int n = 2 * *(int *)arg + 1;
    int64_t end = check_cpu_ns() + 1200 * WEFT_MSEC;
    begin_scene();
    start_hogs(n, WEFT_NORMAL);
    weft_block_enter();
    CHECK(comes_true(has_computed, &end));
    over = true;
    uint64_t sum = 0, least = UINT64_MAX;
    for (int i = 0; i < n; i++) {
        uint64_t work = hogs.hog[i].work;
        sum += work;
        least = work < least ? work : least;
    }
    least_share = (int)(least * 100 * (uint64_t)n / (sum + 1));
    end_scene();
}

/* The machine has its own ideas of who computes now: so it is enough if it is so once. */
CASE(hogs_get_about_equal_shares)
{
    EACH_PROCS(p)
    {
        least_share = 0;
        for (int i = 0; i < 5 && least_share < 33; i++)
            CHECK_EQ(run_on(p, shares_main, &p), 0);
        if (least_share < 33)
            check_fail(__FILE__, __LINE__, "on %d P(s) one got %d %% of the mean", p, least_share);
    }
}
