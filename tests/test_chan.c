/* SPDX-License-Identifier: MIT */
/* Channels: values, their order, the order of who waits, closing, trying, and the odd sizes. */
#include "chans.h"

/* ---- values ----------------------------------------------------------------------------------------------------- */

struct parcels {
    weft_chan *ch;
    size_t size;
    int n;
};

/* Parcel i is of bytes that tell i and their place. */
static void pack(uint8_t *bytes, size_t size, int i)
{
    for (size_t k = 0; k < size; k++)
        bytes[k] = (uint8_t)((size_t)i * 31 + k * 7 + k / 251);
}

static bool packed_as(const uint8_t *bytes, size_t size, int i)
{
    for (size_t k = 0; k < size; k++)
        if (bytes[k] != (uint8_t)((size_t)i * 31 + k * 7 + k / 251))
            return false;
    return true;
}

static void send_parcels(void *arg)
{
    struct parcels *p = arg;
    uint8_t *bytes = malloc(p->size + 1);
    for (int i = 0; i < p->n; i++) {
        pack(bytes, p->size, i);
        bytes[p->size] = 0xaa; /* is not theirs */
        CHECK_EQ(weft_send(p->ch, bytes), 0);
        memset(bytes, 0, p->size); /* was copied */
    }
    free(bytes);
    CHECK_EQ(weft_close(p->ch), 0);
}

static void receive_parcels(struct parcels *p)
{
    uint8_t *bytes = malloc(p->size + 1);
    bytes[p->size] = 0x55;
    for (int i = 0; i < p->n; i++) {
        CHECK_EQ(weft_recv(p->ch, bytes), 0);
        CHECK(packed_as(bytes, p->size, i));
        if (i % 5 == 0)
            weft_yield();
    }
    memset(bytes, 0xff, p->size);
    CHECK_EQ(weft_recv(p->ch, bytes), -EPIPE);
    for (size_t k = 0; k < p->size; k++)
        if (bytes[k] != 0) {
            check_fail(__FILE__, __LINE__, "byte %zu of %zu is not zero", k, p->size);
            break;
        }
    CHECK_EQ(bytes[p->size], 0x55);
    free(bytes);
}

static void parcels_main(void *arg)
{
    static const size_t sizes[] = {0,  1,  2,  3,  4,  5,  7,   8,    9,    12,     16,
                                   17, 24, 32, 63, 64, 65, 100, 1000, 4096, 100000, 1 << 20};
    static const size_t capacities[] = {0, 1, 2, 3, 16};
    (void)arg;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (size_t k = 0; k < sizeof capacities / sizeof capacities[0]; k++) {
            struct parcels p = {chan_of(sizes[i], capacities[k]), sizes[i], sizes[i] > 4096 ? 2 + scaled(3) : 50};
            CHECK_EQ(weft_cap(p.ch), capacities[k]);
            CHECK_EQ(weft_go(send_parcels, &p), 0);
            receive_parcels(&p);
            weft_chan_free(p.ch); /* the close was seen */
        }
    CHECK(others_have_ended());
}

CASE(values_of_any_size_come_out_as_they_went_in)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, parcels_main, NULL), 0);
}

/* One goroutine fills and drains it by turns, so that the ends of the buffer meet at each place. */
static void fill_and_drain(size_t capacity)
{
    weft_chan *ch = ints(capacity);
    uint64_t rng = capacity * 7919 + 1;
    size_t in = 0, out = 0;
    for (int round = 0; round < 200; round++) {
        for (size_t n = check_random(&rng) % (capacity + 2); n > 0; n--) {
            bool full = in - out == capacity;
            CHECK_EQ(try_put(ch, (int)in), full ? -EAGAIN : 0);
            in += !full;
            CHECK_EQ(weft_len(ch), in - out);
        }
        for (size_t n = check_random(&rng) % (capacity + 2); n > 0; n--) {
            bool empty = in == out;
            CHECK_EQ(empty || n % 2 ? try_take(ch) : take(ch), empty ? -EAGAIN : (int)out);
            out += !empty;
            CHECK_EQ(weft_len(ch), in - out);
        }
        CHECK_EQ(weft_cap(ch), capacity);
    }
    weft_chan_free(ch); /* with what is in it */
}

static void buffer_main(void *arg)
{
    static const size_t capacities[] = {1, 2, 3, 4, 5, 7, 8, 64, 100, 1000};
    (void)arg;
    for (size_t i = 0; i < sizeof capacities / sizeof capacities[0]; i++)
        fill_and_drain(capacities[i]);
}

CASE(a_buffer_holds_its_capacity_in_order)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, buffer_main, NULL), 0);
}

static void nothings_main(void *arg)
{
    (void)arg;
    for (size_t capacity = 1; capacity < 100; capacity *= 3) {
        weft_chan *ch = chan_of(0, capacity);
        char untouched = 'u';
        for (size_t i = 0; i < capacity; i++)
            CHECK_EQ(i % 2 ? weft_send(ch, NULL) : weft_try_send(ch, &untouched), 0);
        CHECK_EQ(weft_try_send(ch, NULL), -EAGAIN);
        CHECK_EQ(weft_len(ch), capacity);
        for (size_t i = 0; i < capacity; i++)
            CHECK_EQ(i % 2 ? weft_recv(ch, NULL) : weft_try_recv(ch, &untouched), 0);
        CHECK_EQ(weft_try_recv(ch, &untouched), -EAGAIN);
        CHECK_EQ(weft_close(ch), 0);
        CHECK_EQ(weft_recv(ch, &untouched), -EPIPE);
        CHECK_EQ(untouched, 'u');
        weft_chan_free(ch);
    }
}

CASE(values_of_no_size_are_counted)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, nothings_main, NULL), 0);
}

static void send_three(void *arg)
{
    for (int i = 0; i < 3; i++)
        CHECK_EQ(put(arg, i), 0);
    CHECK_EQ(weft_close(arg), 0);
}

static void drop_main(void *arg)
{
    (void)arg;
    for (size_t capacity = 0; capacity < 4; capacity++)
        for (int late = 0; late < 2; late++) { /* they wait for us, or we for them */
            weft_chan *ch = ints(capacity);
            CHECK_EQ(weft_go(send_three, ch), 0);
            for (int i = 0; late && i < 10; i++)
                weft_yield();
            CHECK_EQ(weft_recv(ch, NULL), 0);
            CHECK_EQ(take(ch), 1);
            CHECK_EQ(weft_recv(ch, NULL), 0);
            CHECK_EQ(weft_recv(ch, NULL), -EPIPE);
            CHECK_EQ(weft_try_recv(ch, NULL), -EPIPE);
            weft_chan_free(ch);
        }
}

CASE(a_value_may_be_dropped)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, drop_main, NULL), 0);
}

CASE(impossible_sizes_give_no_channel)
{
    static const size_t sizes[][2] = {{SIZE_MAX, 2},        {SIZE_MAX, 3},         {2, SIZE_MAX},        {3, SIZE_MAX},
                                      {SIZE_MAX, SIZE_MAX}, {SIZE_MAX / 2 + 1, 2}, {2, SIZE_MAX / 2 + 1}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        CHECK(weft_chan_new(sizes[i][0], sizes[i][1]) == NULL);
    if (check_under_asan() || check_under_tsan())
        skipped("a sanitizer aborts where malloc gives NULL");
    else
        CHECK(weft_chan_new(SIZE_MAX / 4, 1) == NULL && weft_chan_new(1, SIZE_MAX / 4) == NULL);
    weft_chan *ch = weft_chan_new(0, (size_t)1 << 62); /* takes no memory, so it may be had */
    if (ch != NULL) {
        CHECK_EQ(weft_cap(ch), (size_t)1 << 62);
        CHECK_EQ(weft_try_send(ch, NULL), 0);
        CHECK_EQ(weft_len(ch), 1);
        CHECK_EQ(weft_try_recv(ch, NULL), 0);
        weft_chan_free(ch);
    }
}

/* ---- no channel ------------------------------------------------------------------------------------------------- */

static int send_to(void *ch)
{
    return put(ch, 7);
}

static int receive_from(void *ch)
{
    return take(ch);
}

static void null_main(void *arg)
{
    (void)arg;
    int value = 5;
    CHECK_EQ(weft_try_send(NULL, &value), -EAGAIN);
    CHECK_EQ(weft_try_recv(NULL, &value), -EAGAIN);
    CHECK_EQ(weft_try_recv(NULL, NULL), -EAGAIN);
    CHECK_EQ(value, 5);
    CHECK_EQ(weft_len(NULL), 0);
    CHECK_EQ(weft_cap(NULL), 0);
    CHECK(weft_close(NULL) < 0);
    weft_chan_free(NULL);
    is_cut(send_to, NULL);
    is_cut(receive_from, NULL);
}

CASE(no_channel_is_never_ready)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, null_main, NULL), 0);
}

static void call_send_to(void *ch)
{
    send_to(ch);
}

static void call_receive_from(void *ch)
{
    receive_from(ch);
}

static void deadlocks(void)
{
    weft_chan *ch = ints(0), *full = ints(1);
    CHECK_EQ(try_put(full, 1), 0);
    EACH_PROCS(p)
    {
        CHECK_EQ(run_on(p, call_send_to, NULL), -EDEADLK);
        CHECK_EQ(run_on(p, call_receive_from, NULL), -EDEADLK);
        CHECK_EQ(run_on(p, call_send_to, ch), -EDEADLK);
        CHECK_EQ(run_on(p, call_receive_from, ch), -EDEADLK);
        CHECK_EQ(run_on(p, call_send_to, full), -EDEADLK);
    }
    CHECK_EQ(take(full), 1);
    weft_chan_free(ch);
    weft_chan_free(full);
}

CASE(who_waits_for_nobody_is_a_deadlock)
{
    char text[1 << 16];
    CHECK(child_is_well(deadlocks, text, sizeof text));
    CHECK(strstr(text, "deadlock") != NULL);
}

/* ---- closing ---------------------------------------------------------------------------------------------------- */

static void closed_main(void *arg)
{
    (void)arg;
    for (int capacity = 0; capacity < 5; capacity++)
        for (int left = 0; left <= capacity; left++) {
            weft_chan *ch = ints((size_t)capacity);
            for (int i = 0; i < left; i++)
                CHECK_EQ(put(ch, i), 0);
            CHECK_EQ(weft_close(ch), 0);
            CHECK_EQ(weft_close(ch), -EPIPE);
            CHECK_EQ(weft_len(ch), left);
            CHECK_EQ(put(ch, 9), -EPIPE);
            CHECK_EQ(try_put(ch, 9), -EPIPE);
            for (int i = 0; i < left; i++)
                CHECK_EQ(i % 2 ? take(ch) : try_take(ch), i);
            for (int i = 0; i < 3; i++) { /* the value is zeroed each time */
                CHECK_EQ(take(ch), -EPIPE);
                CHECK_EQ(try_take(ch), -EPIPE);
                CHECK_EQ(put(ch, 9), -EPIPE);
            }
            CHECK_EQ(weft_len(ch), 0);
            CHECK_EQ(weft_cap(ch), capacity);
            CHECK_EQ(weft_close(ch), -EPIPE);
            weft_chan_free(ch);
        }
}

CASE(a_closed_channel_is_drained_then_closed)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, closed_main, NULL), 0);
}

struct crowd {
    weft_chan *ch;
    _Atomic int about_to, ended;
};

static void receive_the_close(void *arg)
{
    struct crowd *c = arg;
    c->about_to++;
    CHECK_EQ(take(c->ch), -EPIPE);
    c->ended++;
}

static void send_into_the_close(void *arg)
{
    struct crowd *c = arg;
    c->about_to++;
    CHECK_EQ(put(c->ch, 99), -EPIPE);
    c->ended++;
}

static void close_on_crowd(weft_fn *member, int capacity)
{
    struct crowd c = {.ch = ints((size_t)capacity)};
    int n = scaled(2000), filled = member == send_into_the_close ? capacity : 0;
    for (int i = 0; i < filled; i++)
        CHECK_EQ(put(c.ch, i), 0);
    for (int i = 0; i < n; i++)
        CHECK_EQ(weft_go(member, &c), 0);
    let_wait(&c.about_to, n);
    CHECK_EQ(c.ended, 0);
    CHECK_EQ(weft_close(c.ch), 0);
    CHECK(reaches(&c.ended, n, 60));
    for (int i = 0; i < filled; i++)
        CHECK_EQ(take(c.ch), i); /* and nothing of those who waited */
    CHECK_EQ(take(c.ch), -EPIPE);
    weft_chan_free(c.ch);
}

static void crowds_main(void *arg)
{
    (void)arg;
    for (int capacity = 0; capacity < 4; capacity++) {
        close_on_crowd(receive_the_close, capacity);
        close_on_crowd(send_into_the_close, capacity);
    }
}

CASE(close_wakes_everybody_who_waits)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, crowds_main, NULL), 0);
}

/* ---- the order of who waits ------------------------------------------------------------------------------------- */

enum { LINE = 10 };

struct line {
    weft_chan *ch;
    int got[LINE];
    _Atomic int about_to, ended;
};

static void receive_in_line(void *arg)
{
    struct line *l = arg;
    int me = l->about_to++;
    l->got[me] = take(l->ch);
    l->ended++;
}

static void send_in_line(void *arg)
{
    struct line *l = arg;
    int me = l->about_to++;
    CHECK_EQ(put(l->ch, me), 0);
    l->ended++;
}

static void form_line(struct line *l, weft_fn *member, size_t capacity)
{
    *l = (struct line){.ch = ints(capacity)};
    for (int i = 0; i < LINE; i++) {
        CHECK_EQ(weft_go(member, l), 0);
        let_wait(&l->about_to, i + 1);
    }
}

static bool receivers_are_served_in_turn(void *capacity)
{
    struct line l;
    bool in_turn = true;
    form_line(&l, receive_in_line, *(size_t *)capacity);
    for (int i = 0; i < LINE; i++)
        CHECK_EQ(put(l.ch, i), 0);
    CHECK(reaches(&l.ended, LINE, 60));
    for (int i = 0; i < LINE; i++)
        in_turn &= l.got[i] == i;
    weft_chan_free(l.ch);
    return in_turn;
}

static bool senders_are_served_in_turn(void *capacity)
{
    struct line l;
    bool in_turn = true;
    form_line(&l, send_in_line, *(size_t *)capacity);
    for (int i = 0; i < LINE; i++)
        in_turn &= (i % 2 ? take(l.ch) : try_take(l.ch)) == i;
    for (int v; (v = try_take(l.ch)) >= 0 || l.ended < LINE;)
        weft_yield(); /* who was not there in time */
    weft_chan_free(l.ch);
    return in_turn;
}

static void lines_main(void *arg)
{
    (void)arg;
    for (size_t capacity = 0; capacity < 4; capacity++) {
        CHECK(comes_true(receivers_are_served_in_turn, &capacity));
        CHECK(comes_true(senders_are_served_in_turn, &capacity));
    }
}

CASE(waiters_are_served_in_the_order_in_which_they_came)
{
    CHECK_EQ(run_alone(lines_main, NULL), 0);
    EACH_PROCS(p) CHECK_EQ(run_on(p, lines_main, NULL), 0);
}

/* ---- trying ----------------------------------------------------------------------------------------------------- */

static bool a_try_finds_who_waits(void *arg)
{
    struct line l;
    bool found = true;
    (void)arg;
    form_line(&l, receive_in_line, 0);
    for (int i = 0; i < LINE; i++)
        found &= try_put(l.ch, i) == 0;
    CHECK_EQ(weft_close(l.ch), 0);
    CHECK(reaches(&l.ended, LINE, 60));
    weft_chan_free(l.ch);
    form_line(&l, send_in_line, 0);
    CHECK_EQ(weft_len(l.ch), 0); /* who waits is not in the buffer */
    for (int i = 0; i < LINE; i++)
        found &= try_take(l.ch) >= 0;
    while (try_take(l.ch) >= 0 || l.ended < LINE)
        weft_yield();
    weft_chan_free(l.ch);
    return found;
}

static void try_main(void *arg)
{
    (void)arg;
    weft_chan *ch = ints(0);
    CHECK_EQ(try_take(ch), -EAGAIN);
    CHECK_EQ(try_put(ch, 1), -EAGAIN); /* two tries never meet */
    CHECK_EQ(try_take(ch), -EAGAIN);
    weft_chan_free(ch);
    CHECK(comes_true(a_try_finds_who_waits, NULL));
}

CASE(a_try_meets_who_waits_and_nobody_else)
{
    CHECK_EQ(run_alone(try_main, NULL), 0);
    EACH_PROCS(p) CHECK_EQ(run_on(p, try_main, NULL), 0);
}

/* Whoever holds a ticket knows that there is a value for him, or room for his. */
struct tickets {
    weft_chan *ch;
    _Atomic int values, rooms, missed;
    _Atomic bool over;
};

static bool draw(_Atomic int *tickets)
{
    for (int n = *tickets; n > 0;)
        if (atomic_compare_exchange_weak(tickets, &n, n - 1))
            return true;
    return false;
}

static void try_with_tickets(void *arg, int number)
{
    struct tickets *t = arg;
    for (int i = 0; i < scaled(20000); i++) {
        bool sends = (i + number) % 2 == 0;
        if (!draw(sends ? &t->rooms : &t->values))
            continue;
        t->missed += (sends ? try_put(t->ch, i) : try_take(t->ch)) == -EAGAIN;
        ++*(sends ? &t->values : &t->rooms);
        if (i % 64 == 0)
            weft_yield();
    }
}

static void tickets_main(void *arg)
{
    static const int capacities[] = {1, 2, 3, 8, 100};
    for (size_t i = 0; i < sizeof capacities / sizeof capacities[0]; i++) {
        struct tickets t = {.ch = ints((size_t)capacities[i]), .rooms = capacities[i]};
        struct crew crew = {.fn = try_with_tickets, .arg = &t, .n = 6, .threads = *(int *)arg};
        crew_start(&crew);
        crew_wait(&crew);
        CHECK_EQ(t.missed, 0);
        CHECK_EQ(t.values, weft_len(t.ch));
        CHECK_EQ(t.values + t.rooms, capacities[i]);
        weft_chan_free(t.ch);
    }
}

CASE(a_try_never_misses_a_value_or_a_room)
{
    for (int threads = 0; threads <= 2; threads += 2)
        EACH_PROCS(p) CHECK_EQ(run_on(p, tickets_main, &threads), 0);
}

/* ---- what was written before is seen after ---------------------------------------------------------------------- */

struct seen {
    weft_chan *ch;
    long plain; /* guarded by the channel alone */
    int rounds;
};

static void lock_and_add(void *arg, int number)
{
    struct seen *s = arg;
    for (int i = 0; i < s->rounds; i++) {
        CHECK_EQ(put(s->ch, number), 0);
        s->plain++;
        CHECK_EQ(take(s->ch), number);
    }
}

static void lock_main(void *arg)
{
    (void)arg;
    struct seen s = {.ch = ints(1), .rounds = scaled(5000)};
    struct crew crew = {.fn = lock_and_add, .arg = &s, .n = 8};
    crew_start(&crew);
    crew_wait(&crew);
    CHECK_EQ(s.plain, 8L * s.rounds);
    weft_chan_free(s.ch);
}

CASE(a_channel_of_one_is_a_lock)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, lock_main, NULL), 0);
}

/* With no buffer either side sees what the other did before they met; a close shows what was before it. */
static void receiver_writes(void *arg)
{
    struct seen *s = arg;
    for (int i = 0; i < s->rounds; i++) {
        s->plain = 2 * i + 1;
        CHECK_EQ(take(s->ch), i);
        CHECK_EQ(take(s->ch), i);
    }
    s->plain = -1;
    CHECK_EQ(weft_close(s->ch), 0);
}

static void meet_main(void *arg)
{
    (void)arg;
    struct seen s = {.ch = ints(0), .rounds = scaled(5000)};
    CHECK_EQ(weft_go(receiver_writes, &s), 0);
    for (int i = 0; i < s.rounds; i++) {
        CHECK_EQ(put(s.ch, i), 0);
        CHECK_EQ(s.plain, 2 * i + 1);
        s.plain = 0;
        CHECK_EQ(put(s.ch, i), 0);
    }
    CHECK_EQ(take(s.ch), -EPIPE);
    CHECK_EQ(s.plain, -1);
    weft_chan_free(s.ch);
}

CASE(who_met_sees_what_the_other_did)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, meet_main, NULL), 0);
}
