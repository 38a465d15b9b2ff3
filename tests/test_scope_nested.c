/* SPDX-License-Identifier: MIT */
/* Scopes inside scopes: what ends with what, shields, values, and the scopes of foreign threads. */
#include "scopes.h"

/* ---- scopes in scopes ------------------------------------------------------------------------------------------- */

static void nested_main(void *arg)
{
    (void)arg;
    for (int i = 0; i < scaled(50); i++) {
        weft_scope outer = some_scope(), inner = some_scope();
        CHECK_EQ(weft_scope_open(&outer, WEFT_NEVER), 0);
        CHECK_EQ(weft_scope_open(&inner, WEFT_NEVER), 0); /* its end leaves the outer one alone */
        for (int k = 0; k < 3; k++)
            CHECK_EQ(weft_scope_go(&inner, wait_till_cancelled, NULL), 0);
        weft_scope_cancel(&inner, -EIO);
        CHECK_EQ(weft_scope_close(&inner), -EIO);
        CHECK_EQ(weft_cancelled(), 0);
        CHECK_EQ(weft_sleep(1), 0);

        CHECK_EQ(weft_scope_open(&inner, weft_now() + WEFT_SEC * 3600), 0);
        for (int k = 0; k < 6; k++)
            CHECK_EQ(weft_scope_go(k % 2 ? &outer : &inner, wait_till_cancelled, NULL), 0);
        CHECK_EQ(weft_scope_go(&outer, cancel_with_eio, &outer), 0);
        wait_till_cancelled(NULL);
        int r = weft_scope_go(&inner, add_one, NULL), err = weft_scope_close(&inner);
        CHECK(r == err && (err == -EIO || err == -ECANCELED));
        CHECK_EQ(weft_scope_open(&inner, WEFT_NEVER), 0); /* inside one that is over */
        CHECK_EQ(weft_cancelled(), -ECANCELED);
        wait_till_cancelled(NULL);
        CHECK(weft_scope_go(&inner, add_one, NULL) < 0);
        CHECK(weft_scope_close(&inner) < 0);
        CHECK_EQ(weft_scope_close(&outer), -EIO);
    }
}

CASE(the_end_of_a_scope_ends_those_inside_it_only)
{
    on_each_procs(nested_main);
}

static void nested_deadlines_main(void *arg)
{
    (void)arg;
    for (int i = 0; i < 6; i++) {
        weft_scope outer = some_scope(), inner = some_scope();
        bool outer_first = i % 2;
        int64_t soon = weft_now() + 2 * WEFT_MSEC, late = soon + WEFT_SEC * 3600;
        CHECK_EQ(weft_scope_open(&outer, outer_first ? soon : late), 0);
        CHECK_EQ(weft_scope_open(&inner, outer_first ? late : soon), 0);
        wait_till_timeout(&soon);
        CHECK_EQ(weft_scope_close(&inner), -ETIMEDOUT);
        CHECK_EQ(weft_cancelled(), outer_first ? -ETIMEDOUT : 0);
        CHECK_EQ(weft_scope_close(&outer), outer_first ? -ETIMEDOUT : 0);
    }
}

CASE(of_two_deadlines_the_earlier_counts)
{
    on_each_procs(nested_deadlines_main);
}

static _Atomic int sink;

static void deep_main(void *arg)
{
    int n = scaled(10000), cut_at = n / 2;
    weft_scope *s = malloc((size_t)n * sizeof *s);
    (void)arg;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < n; i++) {
            CHECK_EQ(weft_scope_open(&s[i], i % 2 ? WEFT_NEVER : weft_now() + WEFT_SEC * 3600), 0);
            if (i % 100 == 99)
                CHECK_EQ(weft_scope_go(&s[i], i < cut_at ? add_one : wait_till_cancelled, &sink), 0);
        }
        weft_scope_cancel(&s[cut_at - 50], -ECANCELED);
        wait_till_cancelled(NULL);
        for (int i = n; i-- > 0;)
            CHECK_EQ(weft_scope_close(&s[i]), i >= cut_at - 50 ? -ECANCELED : 0);
    }
    free(s);
}

CASE(ten_thousand_scopes_lie_in_one_another)
{
    on_each_procs(deep_main);
}

static void open_in_member(void *arg)
{
    weft_scope s = some_scope();
    CHECK_EQ(weft_scope_open(&s, WEFT_NEVER), 0);
    for (int i = 0; i < 3; i++) {
        int r = weft_scope_go(&s, wait_till_cancelled, NULL);
        CHECK(r == 0 || r == -ECANCELED);
    }
    add_one(arg);
    CHECK_EQ(weft_scope_close(&s), -ECANCELED);
}

static void family_main(void *arg)
{
    (void)arg;
    for (int i = 0; i < scaled(50); i++) {
        weft_scope s = some_scope();
        _Atomic int opened = 0;
        CHECK_EQ(weft_scope_open(&s, WEFT_NEVER), 0);
        for (int k = 0; k < 10; k++)
            CHECK_EQ(weft_scope_go(&s, open_in_member, &opened), 0);
        CHECK(i % 2 || reaches(&opened, 10, 60));
        weft_scope_cancel(&s, -ECANCELED);
        CHECK_EQ(weft_scope_close(&s), -ECANCELED);
        CHECK_EQ(opened, 10);
    }
}

CASE(a_cancel_reaches_the_scopes_that_members_opened)
{
    on_each_procs(family_main);
}

/* ---- shields ---------------------------------------------------------------------------------------------------- */

static void shield_main(void *arg)
{
    weft_scope s = some_scope();
    _Atomic int ended = 0;
    (void)arg;
    CHECK_EQ(weft_scope_open(&s, WEFT_NEVER), 0);
    weft_shield();
    CHECK_EQ(weft_scope_go(&s, wait_till_cancelled, NULL), 0); /* a shield is nobody else's */
    weft_scope_cancel(&s, -ECANCELED);
    CHECK_EQ(weft_sleep(WEFT_USEC), 0);
    weft_shield();
    weft_shield();
    CHECK_EQ(weft_sleep(WEFT_USEC), 0);
    weft_unshield();
    weft_unshield();
    CHECK_EQ(weft_go(sleep_and_add, &ended), 0);
    CHECK_EQ(weft_sleep(WEFT_MSEC), 0);
    weft_unshield();
    CHECK_EQ(weft_sleep(WEFT_SEC * 3600), -ECANCELED);
    weft_shield();
    CHECK_EQ(weft_sleep(WEFT_USEC), 0);
    weft_unshield();
    CHECK_EQ(weft_scope_close(&s), -ECANCELED);
    CHECK(reaches(&ended, 1, 60));
}

CASE(shields_nest)
{
    on_each_procs(shield_main);
}

/* ---- values ----------------------------------------------------------------------------------------------------- */

static const char KEY, OTHER_KEY;
static int one, two, three;

static void finds(void *value)
{
    CHECK(weft_local_get(&KEY) == value);
    weft_yield();
    CHECK(weft_local_get(&KEY) == value);
}

static void values_main(void *arg)
{
    weft_scope outer = some_scope(), inner = some_scope();
    (void)arg;
    finds(NULL);
    CHECK_EQ(weft_scope_open(&outer, WEFT_NEVER), 0);
    CHECK_EQ(weft_scope_set(&outer, NULL, &one), -EINVAL);
    CHECK_EQ(weft_scope_set(&outer, &KEY, &one), 0);
    finds(&one);
    CHECK(weft_local_get(&OTHER_KEY) == NULL && weft_local_get(NULL) == NULL);
    CHECK_EQ(weft_scope_go(&outer, finds, &one), 0);
    CHECK_EQ(weft_go(finds, NULL), 0); /* in no scope */
    CHECK_EQ(weft_scope_open(&inner, WEFT_NEVER), 0);
    finds(&one);
    CHECK_EQ(weft_scope_set(&inner, &KEY, &two), 0);
    CHECK_EQ(weft_scope_set(&inner, &OTHER_KEY, &three), 0);
    finds(&two);
    CHECK(weft_local_get(&OTHER_KEY) == &three);
    CHECK_EQ(weft_scope_go(&inner, finds, &two), 0);
    CHECK_EQ(weft_scope_go(&outer, finds, &one), 0); /* it lives in the outer one, whoever starts it */
    CHECK_EQ(weft_scope_close(&inner), 0);
    finds(&one);
    CHECK(weft_local_get(&OTHER_KEY) == NULL);
    CHECK_EQ(weft_scope_open(&inner, WEFT_NEVER), 0); /* the values of its former life are gone */
    finds(&one);
    CHECK_EQ(weft_scope_set(&inner, &KEY, &two), 0);
    CHECK_EQ(weft_scope_set(&inner, &KEY, &three), 0);
    finds(&three);
    CHECK_EQ(weft_scope_set(&inner, &KEY, NULL), 0);
    finds(&one);
    CHECK_EQ(weft_scope_close(&inner), 0);
    CHECK_EQ(weft_scope_close(&outer), 0);
    finds(NULL);
    CHECK(others_have_ended());
}

CASE(values_are_inherited_and_hidden_by_inner_ones)
{
    on_each_procs(values_main);
}

static void many_values_main(void *arg)
{
    static char keys[500];
    weft_scope s = some_scope();
    (void)arg;
    CHECK_EQ(weft_scope_open(&s, WEFT_NEVER), 0);
    for (int i = 0; i < 500; i++)
        CHECK_EQ(weft_scope_set(&s, &keys[i], &keys[499 - i]), 0);
    for (int i = 0; i < 500; i += 2)
        CHECK_EQ(weft_scope_set(&s, &keys[i], NULL), 0);
    for (int i = 0; i < 500; i++)
        CHECK(weft_local_get(&keys[i]) == (i % 2 ? &keys[499 - i] : NULL));
    CHECK_EQ(weft_scope_close(&s), 0);
    CHECK(weft_local_get(&keys[1]) == NULL);
}

CASE(a_scope_has_many_values)
{
    on_each_procs(many_values_main);
}

/* ---- foreign threads -------------------------------------------------------------------------------------------- */

static void *open_in_thread(void *arg)
{
    weft_scope outer = some_scope(), inner = some_scope();
    _Atomic int ended = 0;
    CHECK_EQ(weft_cancelled(), 0);
    CHECK_EQ(weft_scope_open(&outer, WEFT_NEVER), 0);
    CHECK_EQ(weft_scope_set(&outer, &KEY, &one), 0);
    CHECK_EQ(weft_scope_open(&inner, WEFT_NEVER), 0);
    CHECK(weft_local_get(&KEY) == &one);
    for (int i = 0; i < 5; i++) {
        CHECK_EQ(weft_scope_go(&inner, sleep_and_add, &ended), 0);
        CHECK_EQ(weft_scope_go(&inner, finds, &one), 0);
    }
    CHECK_EQ(weft_scope_close(&inner), 0);
    CHECK_EQ(ended, 5);
    CHECK_EQ(weft_scope_open(&inner, weft_now() + WEFT_SEC * 3600), 0);
    for (int i = 0; i < 5; i++)
        CHECK_EQ(weft_scope_go(i % 2 ? &inner : &outer, wait_till_cancelled, NULL), 0);
    CHECK_EQ(weft_scope_go(&outer, cancel_with_eio, &outer), 0);
    wait_till_cancelled(NULL);
    weft_shield();
    CHECK_EQ(weft_sleep(WEFT_USEC), 0);
    weft_unshield();
    CHECK(weft_scope_close(&inner) < 0);
    CHECK_EQ(weft_scope_close(&outer), -EIO);
    CHECK_EQ(weft_cancelled(), 0);
    CHECK(weft_local_get(&KEY) == NULL);
    return arg;
}

static void threads_main(void *arg)
{
    pthread_t threads[4];
    (void)arg;
    for (int i = 0; i < scaled(20); i++) {
        for (int k = 0; k < 4; k++)
            CHECK_EQ(pthread_create(&threads[k], NULL, open_in_thread, NULL), 0);
        join_in_region(threads, 4);
    }
}

CASE(foreign_threads_have_scopes_of_their_own)
{
    on_each_procs(threads_main);
}
