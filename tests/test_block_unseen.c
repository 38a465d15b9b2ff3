/* SPDX-License-Identifier: MIT */
/*
 * Calls that block and that nobody announced: the monitor finds the thread asleep and gives its P to the others. A goroutine
 * that comes back goes on as if nothing had happened.
 */
#include "runs.h"
#include "stress.h"
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/socket.h>

/* A P is taken with the help of membarrier, of which TSan knows nothing: there it is left where it is. */
static bool never_found(void)
{
    if (check_under_tsan())
        skipped("under TSan nobody takes a P from a call that was not announced");
    return check_under_tsan();
}

/* ---- others run ------------------------------------------------------------------------------------------------- */

static _Atomic bool over;
static _Atomic long beats;

static void beat(void *arg)
{
    (void)arg;
    for (; !over; beats++)
        weft_yield();
}

/* A way to block until `release` is called. */
struct way {
    const char *name;
    void (*prepare)(void);
    void (*block)(void);
    void (*release)(void);
    void (*clean)(void);
};

static int fds[2];
static char path[64];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static bool signalled; /* mutex */
static sem_t sem;

static void make_pipe(void)
{
    CHECK_EQ(pipe2(fds, O_CLOEXEC), 0);
}

static void close_pipe(void)
{
    close(fds[0]);
    close(fds[1]);
}

static void read_pipe(void)
{
    char c;
    CHECK_EQ(read(fds[0], &c, 1), 1);
}

static void poll_pipe(void)
{
    struct pollfd p = {.fd = fds[0], .events = POLLIN};
    CHECK_EQ(poll(&p, 1, -1), 1);
}

static void write_pipe(void)
{
    CHECK_EQ(write(fds[1], "x", 1), 1);
}

static void hold_lock(void)
{
    snprintf(path, sizeof path, "/tmp/weft-flock-%d", (int)getpid());
    fds[0] = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    fds[1] = open(path, O_RDWR | O_CLOEXEC);
    CHECK_EQ(flock(fds[1], LOCK_EX), 0);
}

static void take_lock(void)
{
    CHECK_EQ(flock(fds[0], LOCK_EX), 0);
}

static void drop_lock(void)
{
    CHECK_EQ(flock(fds[1], LOCK_UN), 0);
}

static void remove_lock(void)
{
    close_pipe();
    unlink(path);
}

static void reset_cond(void)
{
    signalled = false;
}

static void wait_cond(void)
{
    pthread_mutex_lock(&mutex);
    while (!signalled)
        pthread_cond_wait(&cond, &mutex);
    pthread_mutex_unlock(&mutex);
}

static void signal_cond(void)
{
    pthread_mutex_lock(&mutex);
    signalled = true;
    pthread_cond_signal(&cond);
    pthread_mutex_unlock(&mutex);
}

static void make_sem(void)
{
    CHECK_EQ(sem_init(&sem, 0, 0), 0);
}

static void wait_sem(void)
{
    while (sem_wait(&sem) != 0)
        ;
}

static void post_sem(void)
{
    CHECK_EQ(sem_post(&sem), 0);
}

static void free_sem(void)
{
    CHECK_EQ(sem_destroy(&sem), 0);
}

static const struct way WAYS[] = {
    {"read", make_pipe, read_pipe, write_pipe, close_pipe},
    {"poll", make_pipe, poll_pipe, write_pipe, close_pipe},
    {"flock", hold_lock, take_lock, drop_lock, remove_lock},
    {"pthread_cond_wait", reset_cond, wait_cond, signal_cond, reset_cond},
    {"sem_wait", make_sem, wait_sem, post_sem, free_sem},
};
enum { WAYS_N = sizeof WAYS / sizeof WAYS[0] };

struct blocked {
    const struct way *way;
    bool pinned;
    _Atomic int about_to, back;
};

static void block_so(void *arg)
{
    struct blocked *b = arg;
    bool pinned = b->pinned;
    if (pinned)
        weft_pin();
    b->about_to = 1;
    b->way->block();
    b->back = 1; /* b may be gone from here on */
    if (pinned)
        weft_unpin();
}

/* Goroutines that are started after it are served, and one of them ends the wait. */
static void others_go_on(const struct way *way, bool pinned)
{
    struct blocked b = {.way = way, .pinned = pinned};
    way->prepare();
    CHECK_EQ(weft_go(block_so, &b), 0);
    CHECK(reaches(&b.about_to, 1, 60));
    long before = beats;
    while (beats < before + 100)
        weft_yield();
    CHECK_EQ(b.back, 0);
    way->release();
    CHECK(reaches(&b.back, 1, 60));
    way->clean();
}

static void ways_main(void *arg)
{
    (void)arg;
    over = false;
    CHECK_EQ(weft_go(beat, NULL), 0);
    for (int i = 0; i < WAYS_N * 2; i++)
        others_go_on(&WAYS[i / 2], i % 2);
    over = true;
    CHECK(others_have_ended());
}

CASE(others_run_while_a_thread_is_stopped)
{
    if (never_found())
        return;
    EACH_PROCS(p) CHECK_EQ(run_on(p, ways_main, NULL), 0);
}

/* Every P's goroutine is stopped, and the one that could help is in the queue. */
static void wait_for_post(void *arg)
{
    wait_sem();
    ++*(_Atomic int *)arg;
}

static void post_many(void *arg)
{
    for (int n = *(int *)arg; n > 0; n--) /* who is posted for may be gone with it after the last */
        post_sem();
}

static void seeds_main(void *arg)
{
    int n = 3 * weft_procs(0);
    _Atomic int back = 0;
    (void)arg;
    make_sem();
    for (int i = 0; i < n; i++)
        CHECK_EQ(weft_go(wait_for_post, (void *)&back), 0);
    CHECK_EQ(weft_go(post_many, &n), 0);
    CHECK(reaches(&back, n, 60));
    free_sem();
}

CASE(all_are_stopped_and_one_in_the_queue_helps)
{
    if (never_found())
        return;
    EACH_PROCS(p)
    for (int i = 0; i < 5; i++)
        CHECK_EQ(run_on(p, seeds_main, NULL), 0);
}

/* The main goroutine too. */
static void main_waits(void *arg)
{
    int one = 1;
    (void)arg;
    make_sem();
    CHECK_EQ(weft_go(post_many, &one), 0);
    wait_sem();
    free_sem();
}

CASE(the_main_goroutine_may_be_stopped)
{
    if (never_found())
        return;
    EACH_PROCS(p)
    for (int i = 0; i < 5; i++)
        CHECK_EQ(run_on(p, main_waits, NULL), 0);
}

static void sleep_plainly(void *arg)
{
    usleep(50000);
    ++*(_Atomic int *)arg;
}

static void sleepers_main(void *arg)
{
    _Atomic int back = 0;
    (void)arg;
    for (int i = 0; i < 20; i++)
        CHECK_EQ(weft_go(sleep_plainly, (void *)&back), 0);
    CHECK(reaches(&back, 20, 60));
}

CASE(many_sleep_at_once)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, sleepers_main, NULL), 0);
}

static void look_up(void *arg)
{
    struct addrinfo *list = NULL, hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    CHECK_EQ(getaddrinfo("localhost", "80", &hints, &list), 0);
    if (list != NULL)
        freeaddrinfo(list);
    ++*(_Atomic int *)arg;
}

static void look_up_main(void *arg)
{
    static const weft_attr ROOMY = {.stack_size = 1 << 20};
    _Atomic int back = 0;
    (void)arg;
    over = false;
    CHECK_EQ(weft_go(beat, NULL), 0);
    for (int i = 0; i < 5; i++)
        CHECK_EQ(weft_go_with(&ROOMY, look_up, (void *)&back), 0);
    CHECK(reaches(&back, 5, 60));
    over = true;
    CHECK(others_have_ended());
}

CASE(names_are_looked_up)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, look_up_main, NULL), 0);
}

/* ---- errno ------------------------------------------------------------------------------------------------------ */

static __attribute__((noinline)) int errno_now(void)
{
    return errno;
}

static __attribute__((noinline)) void set_errno(int e)
{
    errno = e;
}

/* Between two calls of the runtime a goroutine stays on its thread, also if that lost its P meanwhile. */
static void keep_errno(void *arg)
{
    for (int i = 0; i < 30; i++) {
        set_errno(1000 + i);
        struct timespec ts = {.tv_nsec = i % 3 * 1000000};
        clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, NULL); /* tells of errors without errno */
        CHECK_EQ(errno_now(), 1000 + i);
        CHECK_EQ(close(-1), -1);
        int e = usleep(500) == 0 ? EBADF : EINTR; /* it may be preempted in the very moment in which it goes to sleep */
        CHECK_EQ(errno_now(), e);
        weft_yield();
    }
    ++*(_Atomic int *)arg;
}

static void errno_main(void *arg)
{
    _Atomic int ended = 0;
    (void)arg;
    over = false;
    CHECK_EQ(weft_go(beat, NULL), 0);
    for (int i = 0; i < 8; i++)
        CHECK_EQ(weft_go(keep_errno, (void *)&ended), 0);
    CHECK(reaches(&ended, 8, 60));
    over = true;
    CHECK(others_have_ended());
}

CASE(errno_is_kept)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, errno_main, NULL), 0);
}

/* ---- coming back at any moment ---------------------------------------------------------------------------------- */

static uint64_t seed;

struct storm {
    weft_chan *ch;
    weft_mutex mu;
    long under_lock; /* mu */
    _Atomic long sent, received, started, ended;
    _Atomic int number;
    int each;
    weft_wg wg;
};

static void short_life(void *arg)
{
    ((struct storm *)arg)->ended++;
}

static void stumble(void *arg)
{
    struct storm *s = arg;
    uint64_t rng = stress_stream(seed, (uint64_t)s->number++);
    bool pinned = check_random(&rng) % 8 == 0;
    if (pinned)
        weft_pin();
    for (int i = 0; i < s->each; i++) {
        int v = 1;
        usleep(check_random(&rng) % 300);
        switch (check_random(&rng) % 7) {
        case 0:
            s->sent += weft_try_send(s->ch, &v) == 0;
            break;
        case 1:
            s->received += weft_try_recv(s->ch, &v) == 0;
            break;
        case 2:
            CHECK_EQ(weft_lock(&s->mu), 0);
            s->under_lock++;
            if (check_random(&rng) % 4 == 0)
                usleep(check_random(&rng) % 200);
            weft_unlock(&s->mu);
            break;
        case 3:
            s->started++;
            CHECK_EQ(weft_go(short_life, s), 0);
            break;
        case 4:
            weft_block_enter();
            usleep(check_random(&rng) % 100);
            weft_block_leave();
            break;
        case 5:
            weft_sleep(check_random(&rng) % 100 * WEFT_USEC);
            break;
        default:
            weft_yield();
        }
    }
    if (pinned)
        weft_unpin();
    weft_wg_done(&s->wg);
}

static void count_up(void *arg)
{
    struct storm *s = arg;
    for (int i = 0; i < 20 * s->each; i++) {
        CHECK_EQ(weft_lock(&s->mu), 0);
        s->under_lock++;
        weft_unlock(&s->mu);
        weft_yield();
    }
    weft_wg_done(&s->wg);
}

static void storm_main(void *arg)
{
    enum { STUMBLERS = 16, COUNTERS = 4 };
    struct storm s = {.ch = weft_chan_new(sizeof(int), 8), .each = stress_scaled(300)};
    int v;
    (void)arg;
    weft_wg_add(&s.wg, STUMBLERS + COUNTERS);
    for (int i = 0; i < STUMBLERS; i++)
        CHECK_EQ(weft_go(stumble, &s), 0);
    for (int i = 0; i < COUNTERS; i++)
        CHECK_EQ(weft_go(count_up, &s), 0);
    CHECK_EQ(weft_wg_wait(&s.wg), 0);
    CHECK(others_have_ended());
    while (weft_try_recv(s.ch, &v) == 0)
        s.received++;
    CHECK_EQ(s.sent, s.received);
    CHECK_EQ(s.started, s.ended);
    CHECK(s.under_lock >= (long)COUNTERS * 20 * s.each);
    weft_chan_free(s.ch);
}

CASE(who_comes_back_while_its_processor_is_taken_loses_nothing)
{
    seed = check_seed();
    EACH_PROCS(p) stress_run(p, seed, storm_main, NULL);
}

/* ---- work from elsewhere ---------------------------------------------------------------------------------------- */

static void nothing(void *arg)
{
    (void)arg;
}

/* A foreign thread starts a goroutine while the only P's thread sleeps, nobody waits for it, and the monitor sleeps long. */
static void *start_from_outside(void *arg)
{
    int64_t end = weft_now() + 60 * WEFT_SEC;
    for (int woken = 0; woken < 5 && weft_now() < end; usleep(100)) {
        if (!ld_relaxed(&w_sched.drowsy))
            continue;
        uint32_t word = ld_relaxed(&w_sched.monitor_word);
        CHECK_EQ(weft_go(nothing, NULL), 0);
        woken += ld_relaxed(&w_sched.monitor_word) != word;
        *(int *)arg = woken;
    }
    over = true;
    return NULL;
}

static void stopped_main(void *arg)
{
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, start_from_outside, arg), 0);
    while (!over) {
        usleep(40000);
        weft_yield(); /* has its P again */
    }
    join_in_region(&thread, 1);
}

CASE(work_from_elsewhere_wakes_the_monitor)
{
    int woken = 0;
    if (never_found())
        return;
    over = false; /* with a short quantum it does not sleep long */
    CHECK_EQ(run_with_own_quantum(&(weft_config){.procs = 1}, stopped_main, &woken), 0);
    CHECK_EQ(woken, 5);
}

/* ---- the end of a run ------------------------------------------------------------------------------------------- */

static void sleep_again_and_again(void *arg)
{
    for (;;) {
        ++*(_Atomic int *)arg;
        usleep(2000);
    }
}

static _Atomic int rounds;

static void leave_sleepers_main(void *arg)
{
    (void)arg;
    rounds = 0;
    for (int i = 0; i < 6; i++)
        CHECK_EQ(weft_go(sleep_again_and_again, (void *)&rounds), 0);
    CHECK(reaches(&rounds, 3, 60));
}

/* They never call the runtime, so their threads stay behind; what is left of them is not the harness's. */
static void leave_sleepers(void)
{
    for (int i = 0; i < 3; i++)
        EACH_PROCS(p) CHECK_EQ(run_on(p, leave_sleepers_main, NULL), 0);
}

static void sleep_and_yield(void *arg)
{
    for (;;) {
        ++*(_Atomic int *)arg;
        usleep(2000);
        weft_yield();
    }
}

static void end_sleepers_main(void *arg)
{
    (void)arg;
    rounds = 0;
    for (int i = 0; i < 10; i++)
        CHECK_EQ(weft_go(sleep_and_yield, (void *)&rounds), 0);
    CHECK(reaches(&rounds, 10, 60));
}

CASE(a_run_ends_while_threads_are_stopped)
{
    for (int i = 0; i < 10; i++)
        EACH_PROCS(p) CHECK_EQ(run_on(p, end_sleepers_main, NULL), 0);
}

CASE(threads_that_never_come_back_are_left_behind)
{
    static char text[64 << 10];
    if (never_found())
        return;
    CHECK(child_is_well(leave_sleepers, text, sizeof text));
}
