/* SPDX-License-Identifier: MIT */
/*
 * Every call that can wait, as a table. A kind of wait is four functions on a world of its own: what must be so that the
 * call waits, the call, what lets it go, and what is so afterwards. A trial is one such wait: it has either happened or
 * had no effect, never both and never neither.
 */
#ifndef WAIT_KINDS_H
#define WAIT_KINDS_H

#include "runs.h"

enum { UNTOUCHED = -77, FIRST = 1, SECOND = 2 };

struct world {
    weft_chan *ch, *other;
    weft_mutex mu;
    weft_rwmutex rw;
    weft_cond cond;
    weft_wg wg;
    weft_sem sem;
    int value;     /* what the call received */
    int arrived;   /* at cond; under mu */
    int waiters;   /* so many will arrive there */
    int64_t sleep; /* so long */
    int64_t slept;
};

struct kind {
    const char *name;
    void (*prepare)(struct world *);
    int (*wait)(struct world *);   /* 0 or more, or -EPIPE: it happened */
    bool (*event)(struct world *); /* lets it go; false: it cannot yet. NULL: nothing ever does */
    void (*check)(struct world *, bool happened, bool event);
    bool in_turn; /* an event lets go one of several, the next event the next one */
};

static void nothing_to_prepare(struct world *w)
{
    (void)w;
}

/* ---- channels --------------------------------------------------------------------------------------------------- */

static void unbuffered(struct world *w)
{
    w->ch = weft_chan_new(sizeof(int), 0);
}

static void with_room(struct world *w)
{
    w->ch = weft_chan_new(sizeof(int), 1);
}

static void full(struct world *w)
{
    with_room(w);
    CHECK_EQ(weft_try_send(w->ch, &(int){FIRST}), 0);
}

static int receive(struct world *w)
{
    return weft_recv(w->ch, &w->value);
}

static int send_second(struct world *w)
{
    return weft_send(w->ch, &(int){SECOND});
}

static bool try_to_send(struct world *w)
{
    return weft_try_send(w->ch, &(int){FIRST}) == 0;
}

static bool try_to_receive(struct world *w)
{
    return weft_try_recv(w->ch, &w->value) == 0;
}

static bool close_it(struct world *w)
{
    CHECK_EQ(weft_close(w->ch), 0);
    return true;
}

static void handed_to_receiver(struct world *w, bool happened, bool event)
{
    CHECK_EQ(happened, event);
    CHECK_EQ(w->value, event ? FIRST : UNTOUCHED);
    CHECK_EQ(weft_try_recv(w->ch, NULL), -EAGAIN);
}

static void received_or_still_there(struct world *w, bool happened, bool event)
{
    CHECK(event || !happened);
    CHECK_EQ(w->value, happened ? FIRST : UNTOUCHED);
    CHECK_EQ(weft_len(w->ch), event && !happened);
    CHECK_EQ(weft_try_recv(w->ch, NULL), event && !happened ? 0 : -EAGAIN);
}

static void handed_by_sender(struct world *w, bool happened, bool event)
{
    CHECK_EQ(happened, event);
    CHECK_EQ(w->value, event ? SECOND : UNTOUCHED);
    CHECK_EQ(weft_try_recv(w->ch, NULL), -EAGAIN);
}

static void sent_or_not(struct world *w, bool happened, bool event)
{
    int left = 0;
    CHECK(event || !happened);
    CHECK_EQ(w->value, event ? FIRST : UNTOUCHED);
    CHECK_EQ(weft_try_recv(w->ch, &left), happened || !event ? 0 : -EAGAIN);
    CHECK_EQ(left, happened ? SECOND : event ? 0 : FIRST);
    CHECK_EQ(weft_try_recv(w->ch, NULL), -EAGAIN);
}

/* The end is seen, with a zero, or it is not. */
static void saw_the_end(struct world *w, bool happened, bool event)
{
    CHECK(event || !happened);
    CHECK_EQ(w->value, happened ? 0 : UNTOUCHED);
    CHECK_EQ(weft_try_recv(w->ch, NULL), event ? -EPIPE : -EAGAIN);
}

static void sender_saw_the_end(struct world *w, bool happened, bool event)
{
    int left = 0;
    CHECK(event || !happened);
    CHECK_EQ(weft_try_recv(w->ch, &left), 0); /* only what was there before */
    CHECK_EQ(left, FIRST);
    CHECK_EQ(weft_try_recv(w->ch, NULL), event ? -EPIPE : -EAGAIN);
}

/* ---- select ----------------------------------------------------------------------------------------------------- */

static void two_channels(struct world *w)
{
    with_room(w);
    w->other = weft_chan_new(sizeof(int), 0);
}

static void two_channels_one_full(struct world *w)
{
    full(w);
    w->other = weft_chan_new(sizeof(int), 0);
}

static int select_to_receive(struct world *w)
{
    weft_case cases[] = {WEFT_RECV(w->other, NULL), WEFT_RECV(w->ch, &w->value), WEFT_RECV(NULL, NULL),
                         WEFT_AT(WEFT_NEVER)};
    int r = weft_select(cases, 4);
    CHECK(r == 1 || r < 0);
    return r;
}

static int select_to_send(struct world *w)
{
    weft_case cases[] = {WEFT_RECV(w->other, NULL), WEFT_SEND(w->ch, &(int){SECOND}), WEFT_SEND(NULL, NULL)};
    int r = weft_select(cases, 3);
    CHECK(r == 1 || r < 0);
    return r;
}

static int select_nothing(struct world *w)
{
    weft_case cases[] = {WEFT_RECV(NULL, &w->value), WEFT_SEND(NULL, &w->value)};
    return weft_select(cases, w->sleep % 2 ? 2 : 0);
}

static int receive_from_null(struct world *w)
{
    return weft_recv(NULL, &w->value);
}

static int send_to_null(struct world *w)
{
    return weft_send(NULL, &w->value);
}

static void never_happens(struct world *w, bool happened, bool event)
{
    CHECK(!happened && !event);
    CHECK_EQ(w->value, UNTOUCHED);
}

/* ---- time ------------------------------------------------------------------------------------------------------- */

static int sleep_so_long(struct world *w)
{
    int64_t start = weft_now();
    int r = weft_sleep(w->sleep);
    w->slept = weft_now() - start;
    return r;
}

static int select_a_time(struct world *w)
{
    int64_t start = weft_now();
    weft_case cases[] = {WEFT_AT(start + w->sleep), WEFT_RECV(NULL, NULL)};
    int r = weft_select(cases, 2);
    w->slept = weft_now() - start;
    return r;
}

static void has_slept(struct world *w, bool happened, bool event)
{
    (void)event;
    CHECK(!happened || w->slept >= w->sleep);
}

/* ---- locks ------------------------------------------------------------------------------------------------------ */

static void locked(struct world *w)
{
    CHECK_EQ(weft_lock(&w->mu), 0);
}

static int lock_it(struct world *w)
{
    return weft_lock(&w->mu);
}

static bool unlock_it(struct world *w)
{
    weft_unlock(&w->mu);
    return true;
}

static void holds_the_lock(struct world *w, bool happened, bool event)
{
    CHECK(event || !happened);
    CHECK_EQ(weft_try_lock(&w->mu), event && !happened ? 0 : -EAGAIN);
    weft_unlock(&w->mu);
    CHECK_EQ(weft_try_lock(&w->mu), 0);
}

static void read_locked(struct world *w)
{
    CHECK_EQ(weft_rdlock(&w->rw), 0);
}

static void write_locked(struct world *w)
{
    CHECK_EQ(weft_wrlock(&w->rw), 0);
}

static int lock_to_read(struct world *w)
{
    return weft_rdlock(&w->rw);
}

static int lock_to_write(struct world *w)
{
    return weft_wrlock(&w->rw);
}

static bool end_reading(struct world *w)
{
    weft_rdunlock(&w->rw);
    return true;
}

static bool end_writing(struct world *w)
{
    weft_wrunlock(&w->rw);
    return true;
}

static void is_free(weft_rwmutex *rw)
{
    CHECK_EQ(weft_try_wrlock(rw), 0);
    weft_wrunlock(rw);
}

static void reader_after_writer(struct world *w, bool happened, bool event)
{
    CHECK(event || !happened);
    if (!event)
        weft_wrunlock(&w->rw);
    if (happened) {
        CHECK_EQ(weft_try_wrlock(&w->rw), -EAGAIN);
        CHECK_EQ(weft_try_rdlock(&w->rw), 0);
        weft_rdunlock(&w->rw);
        weft_rdunlock(&w->rw);
    }
    is_free(&w->rw);
}

static void writer_after_reader(struct world *w, bool happened, bool event)
{
    CHECK(event || !happened);
    CHECK_EQ(weft_try_rdlock(&w->rw), happened ? -EAGAIN : 0); /* a writer that was cut is in no reader's way */
    if (happened)
        weft_wrunlock(&w->rw);
    else
        weft_rdunlock(&w->rw);
    if (!event)
        weft_rdunlock(&w->rw);
    is_free(&w->rw);
}

static void writer_after_writer(struct world *w, bool happened, bool event)
{
    CHECK(event || !happened);
    if (!event || happened) {
        CHECK_EQ(weft_try_rdlock(&w->rw), -EAGAIN);
        weft_wrunlock(&w->rw);
    }
    is_free(&w->rw);
}

/* ---- conditions, wait groups, semaphores ------------------------------------------------------------------------ */

static int wait_for_condition(struct world *w)
{
    weft_shield();
    CHECK_EQ(weft_lock(&w->mu), 0);
    weft_unshield();
    w->arrived++;
    int r = weft_cond_wait(&w->cond, &w->mu);
    CHECK_EQ(weft_try_lock(&w->mu), -EAGAIN); /* whatever it returned */
    weft_unlock(&w->mu);
    return r;
}

static bool signal_it(struct world *w)
{
    CHECK_EQ(weft_lock(&w->mu), 0);
    bool arrived = w->arrived == w->waiters;
    if (arrived)
        weft_cond_signal(&w->cond);
    weft_unlock(&w->mu);
    return arrived;
}

static void condition_is_quiet(struct world *w, bool happened, bool event)
{
    CHECK(event || !happened);
    CHECK_EQ(weft_try_lock(&w->mu), 0);
    weft_cond_broadcast(&w->cond);
}

static void one_to_do(struct world *w)
{
    weft_wg_add(&w->wg, 1);
}

static int wait_for_group(struct world *w)
{
    return weft_wg_wait(&w->wg);
}

static bool done_with_it(struct world *w)
{
    weft_wg_done(&w->wg);
    return true;
}

static void group_still_counts(struct world *w, bool happened, bool event)
{
    CHECK(event || !happened);
    if (!event)
        weft_wg_done(&w->wg);
    CHECK_EQ(weft_wg_wait(&w->wg), 0);
    weft_wg_add(&w->wg, 2);
    weft_wg_add(&w->wg, -2);
    CHECK_EQ(weft_wg_wait(&w->wg), 0);
}

static void one_permit(struct world *w)
{
    weft_sem_release(&w->sem, 1);
}

static int acquire_two(struct world *w)
{
    return weft_sem_acquire(&w->sem, 2);
}

static bool release_two(struct world *w)
{
    weft_sem_release(&w->sem, 2);
    return true;
}

static void permits_add_up(struct world *w, bool happened, bool event)
{
    CHECK(event || !happened);
    int left = 1 + 2 * event - 2 * happened;
    CHECK_EQ(weft_sem_try_acquire(&w->sem, left + 1), -EAGAIN);
    CHECK_EQ(weft_sem_try_acquire(&w->sem, left), 0);
    CHECK_EQ(weft_sem_try_acquire(&w->sem, 1), -EAGAIN);
}

/* ---- all of them ------------------------------------------------------------------------------------------------ */

static const struct kind KINDS[] = {
    {"a receive, unbuffered", unbuffered, receive, try_to_send, handed_to_receiver, true},
    {"a receive, buffered", with_room, receive, try_to_send, received_or_still_there, true},
    {"a receive before a close", unbuffered, receive, close_it, saw_the_end, false},
    {"a send, unbuffered", unbuffered, send_second, try_to_receive, handed_by_sender, true},
    {"a send, buffered", full, send_second, try_to_receive, sent_or_not, true},
    {"a send before a close", full, send_second, close_it, sender_saw_the_end, false},
    {"a select that receives", two_channels, select_to_receive, try_to_send, received_or_still_there, true},
    {"a select that sends", two_channels_one_full, select_to_send, try_to_receive, sent_or_not, true},
    {"a select of nothing", nothing_to_prepare, select_nothing, NULL, never_happens, false},
    {"a receive from NULL", nothing_to_prepare, receive_from_null, NULL, never_happens, false},
    {"a send to NULL", nothing_to_prepare, send_to_null, NULL, never_happens, false},
    {"a sleep", nothing_to_prepare, sleep_so_long, NULL, has_slept, false},
    {"a select of a time", nothing_to_prepare, select_a_time, NULL, has_slept, false},
    {"a lock", locked, lock_it, unlock_it, holds_the_lock, true},
    {"a reader behind a writer", write_locked, lock_to_read, end_writing, reader_after_writer, false},
    {"a writer behind a reader", read_locked, lock_to_write, end_reading, writer_after_reader, false},
    {"a writer behind a writer", write_locked, lock_to_write, end_writing, writer_after_writer, true},
    {"a condition", nothing_to_prepare, wait_for_condition, signal_it, condition_is_quiet, true},
    {"a wait group", one_to_do, wait_for_group, done_with_it, group_still_counts, false},
    {"a semaphore", one_permit, acquire_two, release_two, permits_add_up, true},
};
enum { KIND_COUNT = sizeof KINDS / sizeof KINDS[0] };

/* ---- trials ----------------------------------------------------------------------------------------------------- */

struct trial {
    const struct kind *kind;
    struct world world;
    _Atomic int begun;
    int result;
    bool event, shielded;
    weft_wg ended;
    weft_scope *scope;
    uint64_t rng, cut_rng; /* of who lets it go, and of who cuts it */
};

static inline void trial_begin(struct trial *t, const struct kind *kind)
{
    *t = (struct trial){.kind = kind, .world = {.value = UNTOUCHED, .waiters = 1, .sleep = 3600 * WEFT_SEC}};
    kind->prepare(&t->world);
}

/* The wait itself. */
static inline void trial_wait(void *arg)
{
    struct trial *t = arg;
    if (t->shielded)
        weft_shield();
    t->begun = 1;
    t->result = t->kind->wait(&t->world);
    if (t->shielded)
        weft_unshield();
}

static inline void trial_free(struct trial *t)
{
    if (t->world.ch != NULL)
        weft_chan_free(t->world.ch);
    if (t->world.other != NULL)
        weft_chan_free(t->world.other);
}

/* expected: what the wait returned; 0 stands for all that says that it happened, 1 for either. */
static inline void trial_end(struct trial *t, int expected)
{
    bool cut = t->result == -ECANCELED || t->result == -ETIMEDOUT;
    bool as_expected = expected < 0 ? t->result == expected : expected == 0 ? !cut : true;
    if (!as_expected || (t->result < 0 && !cut && t->result != -EPIPE))
        check_fail(__FILE__, __LINE__, "%s returned %d", t->kind->name, t->result);
    t->kind->check(&t->world, !cut, t->event);
    trial_free(t);
}

/* Not before it can be. */
static inline void let_it_go(struct trial *t)
{
    while (!(t->event = t->kind->event(&t->world)))
        weft_yield();
}

/* From nothing to a few hundred microseconds. */
static inline void a_moment(uint64_t *rng)
{
    uint32_t r = check_random(rng);
    for (uint32_t i = 0; i < r % 4; i++)
        weft_yield();
    if (r % 8 == 7)
        CHECK_EQ(weft_sleep(r >> 8 & 0x3ffff), 0);
}

#endif
