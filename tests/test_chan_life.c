/* SPDX-License-Identifier: MIT */
/*
 * The life of a channel: freed as soon as the contract allows, kept over the ends of runs, left by waits that are cut, used by
 * foreign threads; and a hand-over that leaves the kernel alone.
 */
#include "chans.h"
#include <dlfcn.h>
#include <limits.h>
#include <malloc.h>
#include <stdarg.h>
#include <sys/syscall.h>

/* Whoever touches a channel that was freed stumbles over this. */
__attribute__((constructor)) static void spoil_freed_memory(void)
{
    mallopt(M_PERTURB, 0xa5);
}

/* ---- freed at once ---------------------------------------------------------------------------------------------- */

/* What the other side does on the channel, and how this side sees it. */
enum deed { SEND, TRY_SEND, SELECT_SEND, CLOSE, DEEDS };
enum sight { RECV, TRY_RECV, SELECT_RECV, SIGHTS, SEND_FAILS = SIGHTS, SIGHTS_OF_CLOSE };

struct job {
    weft_chan *ch;
    enum deed deed;
};

/* The last word is the last that is done to the channel. */
static void say_last_word(const struct job *job)
{
    int r, v = 1;
    switch (job->deed) {
    case SEND:
        CHECK_EQ(put(job->ch, 1), 0);
        break;
    case TRY_SEND:
        while ((r = try_put(job->ch, 1)) == -EAGAIN)
            weft_yield();
        CHECK_EQ(r, 0);
        break;
    case SELECT_SEND:
        CHECK_EQ(weft_select((weft_case[]){WEFT_RECV(NULL, NULL), WEFT_SEND(job->ch, &v)}, 2), 1);
        break;
    default:
        CHECK_EQ(weft_close(job->ch), 0);
    }
}

static void see_last_word(weft_chan *ch, enum deed deed, enum sight sight)
{
    int r, v = -1, expected = deed == CLOSE ? -EPIPE : 1;
    weft_case cases[] = {WEFT_RECV(ch, &v), WEFT_RECV(NULL, NULL)};
    switch (sight) {
    case RECV:
        CHECK_EQ(take(ch), expected);
        break;
    case TRY_RECV:
        while ((r = try_take(ch)) == -EAGAIN)
            weft_yield();
        CHECK_EQ(r, expected);
        break;
    case SELECT_RECV:
        CHECK_EQ(weft_select(cases, 2), 0);
        CHECK_EQ(taken(cases[0].err, v), expected);
        break;
    default:
        while ((r = put(ch, 1)) == 0)
            ;
        CHECK_EQ(r, -EPIPE);
    }
}

static void do_jobs(void *arg, int number)
{
    struct job job;
    (void)number;
    while (weft_recv(arg, &job) == 0)
        say_last_word(&job);
}

static void free_once_seen(weft_chan *jobs, int speakers, struct job job, enum sight sight, size_t capacity)
{
    job.ch = ints(capacity);
    for (int i = 0; i < speakers; i++)
        CHECK_EQ(weft_send(jobs, &job), 0);
    if (sight == SIGHTS - 1)
        weft_yield();
    for (int i = 0; i < speakers; i++)
        see_last_word(job.ch, job.deed, sight);
    weft_chan_free(job.ch);
}

static void free_main(void *arg)
{
    weft_chan *jobs = chan_of(sizeof(struct job), 4);
    struct crew crew = {.fn = do_jobs, .arg = jobs, .n = 4, .threads = *(int *)arg};
    crew_start(&crew);
    for (int i = 0; i < scaled(crew.threads > 0 ? 60 : 500); i++)
        for (enum deed deed = 0; deed < DEEDS; deed++)
            for (enum sight sight = 0; sight < (deed == CLOSE ? SIGHTS_OF_CLOSE : SIGHTS); sight++) {
                if (deed == TRY_SEND && sight == TRY_RECV && i % 3 == 0)
                    continue; /* without a buffer two tries never meet */
                free_once_seen(jobs, deed == CLOSE ? 1 : 1 + i % 4, (struct job){.deed = deed}, sight, (size_t)i % 3);
            }
    CHECK_EQ(weft_close(jobs), 0);
    crew_wait(&crew);
    weft_chan_free(jobs);
}

CASE(a_channel_may_be_freed_once_the_last_word_was_heard)
{
    int threads = 0;
    EACH_PROCS(p) CHECK_EQ(run_on(p, free_main, &threads), 0);
}

CASE(a_channel_may_be_freed_once_a_foreign_last_word_was_heard)
{
    int threads = 4;
    EACH_PROCS(p) CHECK_EQ(run_on(p, free_main, &threads), 0);
}

/* The last of several who saw the close frees the channel, perhaps before the closer is back. */
struct shared {
    weft_chan *ch;
    _Atomic int users;
    weft_wg *ended;
};

static void see_close_and_drop(void *arg)
{
    struct shared *s = arg;
    weft_wg *ended = s->ended;
    see_last_word(s->ch, CLOSE, (enum sight)(weft_id() % SIGHTS));
    if (--s->users == 0) {
        weft_chan_free(s->ch);
        free(s);
    }
    weft_wg_done(ended);
}

static void close_it(void *arg)
{
    CHECK_EQ(weft_close(arg), 0);
}

static void last_of_several_main(void *arg)
{
    weft_wg ended = {0};
    (void)arg;
    for (int i = 0; i < scaled(2000); i++) {
        struct shared *s = malloc(sizeof *s);
        *s = (struct shared){.ch = ints(0), .users = 4, .ended = &ended};
        weft_chan *ch = s->ch;
        weft_wg_add(&ended, 4);
        for (int k = 0; k < 4; k++) {
            if (k == i % 5)
                CHECK_EQ(weft_go(close_it, ch), 0);
            CHECK_EQ(weft_go(see_close_and_drop, s), 0);
        }
        if (i % 2)
            weft_yield();
        if (i % 5 == 4)
            close_it(ch);
        CHECK_EQ(weft_wg_wait(&ended), 0);
    }
}

CASE(the_last_who_saw_the_close_may_free_the_channel)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, last_of_several_main, NULL), 0);
}

/* ---- freed too early -------------------------------------------------------------------------------------------- */

struct waiting {
    weft_chan *ch;
    int (*call)(void *ch);
    _Atomic int about_to;
};

static int receive_from(void *ch)
{
    return take(ch);
}

static int send_to(void *ch)
{
    return put(ch, 9);
}

static int select_from(void *ch)
{
    return weft_select((weft_case[]){WEFT_RECV(ch, NULL), WEFT_AT(WEFT_NEVER)}, 2);
}

static int select_to(void *ch)
{
    int v = 9;
    return weft_select((weft_case[]){WEFT_SEND(ch, &v), WEFT_RECV(NULL, NULL)}, 2);
}

static int (*const WAITS[])(void *) = {receive_from, select_from, send_to, select_to};
enum { WAITS_COUNT = 4, RECEIVING = 2 }; /* the first so many receive */

static void wait_on(void *arg)
{
    struct waiting *w = arg;
    w->about_to++;
    w->call(w->ch);
}

static struct waiting early; /* what the child is to free too early */

static void free_early_main(void *arg)
{
    (void)arg;
    early.ch = ints(0);
    CHECK_EQ(weft_go(wait_on, &early), 0);
    let_wait(&early.about_to, 1);
    weft_chan_free(early.ch);
}

static void free_early(void)
{
    run_alone(free_early_main, NULL);
}

static bool free_aborts(void *call)
{
    char text[4096];
    early = (struct waiting){.call = *(int (**)(void *))call};
    int status = check_child(free_early, text, sizeof text);
    const char *newline = strchr(text, '\n');
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && strstr(text, "chan") != NULL && newline != NULL &&
           newline[1] == '\0';
}

CASE(to_free_a_channel_that_somebody_waits_on_aborts_with_one_line)
{
    for (int i = 0; i < WAITS_COUNT; i++)
        CHECK(comes_true(free_aborts, (void *)&WAITS[i]));
}

/* ---- before, after and between runs ----------------------------------------------------------------------------- */

static void use_between_main(void *ch)
{
    CHECK_EQ(weft_len(ch), 3);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(take(ch), i);
    CHECK_EQ(put(ch, 10), 0);
    CHECK_EQ(try_put(ch, 11), 0);
}

CASE(a_channel_works_before_and_after_a_run)
{
    EACH_PROCS(p)
    {
        weft_chan *ch = ints(4);
        int v = 2;
        CHECK_EQ(try_take(ch), -EAGAIN);
        CHECK_EQ(put(ch, 0), 0);
        CHECK_EQ(try_put(ch, 1), 0);
        CHECK_EQ(weft_try_select((weft_case[]){WEFT_SEND(ch, &v)}, 1), 0);
        CHECK_EQ(run_on(p, use_between_main, ch), 0);
        CHECK_EQ(take(ch), 10);
        CHECK_EQ(weft_close(ch), 0);
        CHECK_EQ(weft_close(ch), -EPIPE);
        CHECK_EQ(put(ch, 1), -EPIPE);
        CHECK_EQ(take(ch), 11);
        CHECK_EQ(take(ch), -EPIPE);
        CHECK_EQ(try_take(ch), -EPIPE);
        weft_chan_free(ch);
    }
}

/* One channel for each way to wait; those who send find two values in the buffer already. */
static struct waiting left[WAITS_COUNT];

static size_t capacity_for(int i)
{
    return i < RECEIVING ? 0 : 2;
}

static void leave_waiters_main(void *arg)
{
    (void)arg;
    for (int i = 0; i < WAITS_COUNT; i++)
        for (int k = 0; k < 5; k++)
            CHECK_EQ(weft_go(wait_on, &left[i]), 0);
    for (int i = 0; i < WAITS_COUNT; i++)
        let_wait(&left[i].about_to, 5);
}

static void send_a_hundred(void *arg)
{
    for (int i = 0; i < 100; i++)
        CHECK_EQ(put(arg, i), 0);
    CHECK_EQ(weft_close(arg), 0);
}

static void take_two(weft_chan *ch)
{
    for (int k = 0; k < 2; k++)
        CHECK_EQ(take(ch), k);
}

/* Nothing is to be seen of those who waited in the run before. */
static void use_again(weft_chan *ch, int i)
{
    if (i < RECEIVING)
        CHECK_EQ(try_put(ch, 5), -EAGAIN);
    else
        take_two(ch);
    CHECK_EQ(weft_len(ch), 0);
    CHECK_EQ(try_take(ch), -EAGAIN);
}

static void use_again_main(void *arg)
{
    (void)arg;
    for (int i = 0; i < WAITS_COUNT; i++) {
        weft_chan *ch = left[i].ch;
        if (i % 2) /* the first call is a try, or one that may wait */
            use_again(ch, i);
        else if (i >= RECEIVING)
            take_two(ch);
        CHECK_EQ(weft_go(send_a_hundred, ch), 0);
        for (int k = 0; k < 100; k++)
            CHECK_EQ(take(ch), k);
        CHECK_EQ(take(ch), -EPIPE);
    }
}

CASE(waiters_that_ended_with_their_run_are_forgotten)
{
    for (int after = 0; after < 4; after++)
        EACH_PROCS(p)
        {
            for (int i = 0; i < WAITS_COUNT; i++) {
                left[i] = (struct waiting){.ch = ints(capacity_for(i)), .call = WAITS[i]};
                for (int k = 0; i >= RECEIVING && k < 2; k++)
                    CHECK_EQ(put(left[i].ch, k), 0);
            }
            CHECK_EQ(run_on(p, leave_waiters_main, NULL), 0);
            for (int i = 0; i < WAITS_COUNT && after == 1; i++)
                use_again(left[i].ch, i);
            for (int i = 0; i < WAITS_COUNT && after == 2; i++)
                CHECK_EQ(weft_close(left[i].ch), 0);
            if (after == 3)
                CHECK_EQ(run_on(p, use_again_main, NULL), 0);
            for (int i = 0; i < WAITS_COUNT; i++)
                weft_chan_free(left[i].ch);
        }
}

/* ---- waits that are cut ----------------------------------------------------------------------------------------- */

static void cut_main(void *arg)
{
    (void)arg;
    for (int i = 0; i < WAITS_COUNT; i++)
        for (int capacity = 0; capacity < 3; capacity++) {
            weft_chan *ch = ints((size_t)capacity);
            int filled = i < RECEIVING ? 0 : capacity;
            for (int k = 0; k < filled; k++)
                CHECK_EQ(put(ch, k), 0);
            is_cut(WAITS[i], ch);
            CHECK_EQ(weft_len(ch), filled);
            for (int k = 0; k < filled; k++)
                CHECK_EQ(take(ch), k);
            CHECK_EQ(try_take(ch), -EAGAIN);
            for (int k = 0; k < capacity; k++)
                CHECK_EQ(try_put(ch, k), 0);
            CHECK_EQ(try_put(ch, 5), -EAGAIN);
            weft_chan_free(ch);
        }
}

CASE(a_wait_that_was_cut_has_had_no_effect)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, cut_main, NULL), 0);
}

/* Of four in line the second and the last are cut: the others are served in turn. */
struct in_line {
    weft_chan *ch;
    _Atomic int about_to;
    int got[4];
};

static void receive_in_line(void *arg)
{
    struct in_line *l = arg;
    int me = l->about_to++;
    l->got[me] = take(l->ch);
}

static bool others_keep_their_turn(void *arg)
{
    struct in_line l = {.ch = ints(0)};
    weft_scope all, some;
    (void)arg;
    CHECK_EQ(weft_scope_open(&all, WEFT_NEVER), 0);
    CHECK_EQ(weft_scope_open(&some, WEFT_NEVER), 0);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(weft_scope_go(i % 2 ? &some : &all, receive_in_line, &l), 0);
        let_wait(&l.about_to, i + 1);
    }
    weft_scope_cancel(&some, -ECANCELED);
    CHECK_EQ(weft_scope_close(&some), -ECANCELED);
    CHECK_EQ(put(l.ch, 0), 0);
    CHECK_EQ(put(l.ch, 2), 0);
    CHECK_EQ(weft_scope_close(&all), 0);
    weft_chan_free(l.ch);
    return l.got[0] == 0 && l.got[1] == -ECANCELED && l.got[2] == 2 && l.got[3] == -ECANCELED;
}

static void turns_main(void *arg)
{
    (void)arg;
    CHECK(comes_true(others_keep_their_turn, NULL));
}

CASE(the_others_in_line_keep_their_turn_when_one_is_cut)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, turns_main, NULL), 0);
}

/* ---- foreign threads -------------------------------------------------------------------------------------------- */

struct stream {
    weft_chan *there, *back;
    int n;
};

/* The first member sends numbers, the second sends them back, the third checks them. */
static void carry(void *arg, int number)
{
    struct stream *s = arg;
    int v;
    if (number == 0) {
        for (int i = 0; i < s->n; i++)
            CHECK_EQ(put(s->there, i), 0);
        CHECK_EQ(weft_close(s->there), 0);
    } else if (number == 1) {
        while ((v = take(s->there)) >= 0)
            CHECK_EQ(put(s->back, v), 0);
        CHECK_EQ(v, -EPIPE);
        CHECK_EQ(weft_close(s->back), 0);
    } else {
        for (int i = 0; i < s->n; i++)
            CHECK_EQ(take(s->back), i);
        CHECK_EQ(take(s->back), -EPIPE);
    }
}

static void carry_main(void *arg)
{
    (void)arg;
    for (int threads = 1; threads <= 3; threads++)
        for (size_t capacity = 0; capacity < 20; capacity = capacity * 3 + 1) {
            struct stream s = {ints(capacity), ints(capacity / 2), scaled(400)};
            struct crew crew = {.fn = carry, .arg = &s, .n = 3, .threads = threads};
            crew_start(&crew);
            crew_wait(&crew);
            weft_chan_free(s.there);
            weft_chan_free(s.back);
        }
}

CASE(foreign_threads_send_receive_and_close)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, carry_main, NULL), 0);
}

static _Atomic int foreign_about_to;

static void *wait_in_thread(void *ch)
{
    foreign_about_to++;
    CHECK(take(ch) < 0);
    return NULL;
}

static void end_under_thread(void *arg)
{
    (void)arg;
    let_wait(&foreign_about_to, 2);
    sleep_in_region(2);
}

/* Whether the thread was waiting already or comes too late. */
CASE(a_foreign_wait_ends_with_the_run)
{
    EACH_PROCS(p)
    {
        pthread_t threads[2];
        weft_chan *ch = ints(0);
        foreign_about_to = 0;
        for (int i = 0; i < 2; i++)
            CHECK_EQ(pthread_create(&threads[i], NULL, wait_in_thread, ch), 0);
        CHECK_EQ(run_on(p, end_under_thread, NULL), 0);
        for (int i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
        CHECK_EQ(try_put(ch, 1), -EAGAIN);
        weft_chan_free(ch);
    }
}

/* ---- the kernel is left alone ----------------------------------------------------------------------------------- */

/* The monitor, which is the thread that called weft_run, looks around now and then; all others are counted. */
static __thread bool is_monitor;
static _Atomic long futex_calls;
static long (*libc_syscall)(long number, ...);

__attribute__((constructor)) static void find_syscall(void)
{
    libc_syscall = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
}

/* In place of libc's, for the whole program. */
long syscall(long number, ...)
{
    long a[6];
    va_list ap;
    va_start(ap, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(ap, long);
    va_end(ap);
    if (number == SYS_futex && !is_monitor)
        atomic_fetch_add_explicit(&futex_calls, 1, memory_order_relaxed);
    if (libc_syscall == NULL)
        find_syscall();
    return libc_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

struct table {
    weft_chan *there, *back;
};

static void play_back(void *arg)
{
    struct table *t = arg;
    int v;
    while ((v = take(t->there)) >= 0)
        CHECK_EQ(put(t->back, v + 1), 0);
}

static long calls_in_rounds(struct table *t, int rounds)
{
    long before = futex_calls;
    for (int i = 0; i < rounds; i++) {
        CHECK_EQ(put(t->there, i), 0);
        CHECK_EQ(take(t->back), i + 1);
    }
    return futex_calls - before;
}

/* When the machine takes a core away for a while, others are woken to help out, and some more after that. */
static void ping_pong_main(void *arg)
{
    struct table t = {ints(0), ints(0)};
    int rounds = scaled(20000);
    long fewest = LONG_MAX;
    (void)arg;
    CHECK_EQ(weft_go(play_back, &t), 0);
    for (int trial = 0; trial < 300 && fewest >= 20; trial++) {
        long calls = calls_in_rounds(&t, rounds);
        fewest = calls < fewest ? calls : fewest;
        if (trial % 10 == 9)
            sleep_in_region(5);
    }
    if (check_under_tsan() || check_under_emulator())
        skipped("so slow that threads look stuck and others are woken");
    else if (fewest >= 20)
        check_fail(__FILE__, __LINE__, "%d round trips took %ld futex calls at best", rounds, fewest);
    CHECK_EQ(weft_close(t.there), 0);
    CHECK(others_have_ended());
    free_all((weft_chan *[]){t.there, t.back}, 2);
}

CASE(a_ping_pong_leaves_the_kernel_alone)
{
    is_monitor = true;
    futex_calls = 0;
    CHECK_EQ(run_on(2, ping_pong_main, NULL), 0);
    is_monitor = false;
    CHECK(futex_calls > 0); /* at its end, at the latest, a run wakes its threads: they are counted at all */
}
