/* SPDX-License-Identifier: MIT */
/* Priorities: whose a goroutine has, that a change takes effect at once, and that it ends with its goroutine. */
#include "priorities.h"

/* ---- whose priority it is --------------------------------------------------------------------------------------- */

struct child {
    int expected;
    weft_wg *ended;
    bool starts_another;
};

static int level_of_this(void)
{
    struct w_g *g = w_call_begin();
    int level = ld_relaxed(&g->level);
    w_call_end(g);
    return level == W_HEAVY ? W_NORMAL : level; /* it may have been stopped before */
}

static int level_for(int priority)
{
    return priority == WEFT_HIGH ? W_HIGH : priority == WEFT_LOW ? W_LOW : W_NORMAL;
}

static void is_as_expected(void *arg)
{
    struct child c = *(struct child *)arg;
    CHECK_EQ(weft_get_priority(), c.expected);
    CHECK_EQ(level_of_this(), level_for(c.expected));
    if (c.starts_another) {
        c.starts_another = false;
        CHECK_EQ(weft_go_copy(is_as_expected, &c, sizeof c), 0);
    } else {
        weft_wg_done(c.ended);
    }
}

static void inherit_main(void *arg)
{
    (void)arg;
    for (int i = 0; i < 30; i++) {
        weft_wg ended = {0};
        weft_scope scope;
        int own = CLASSES[i % 3], given = CLASSES[i / 3 % 3];
        struct child same = {own, &ended, true}, other = {given, &ended, true}, plain = {WEFT_NORMAL, &ended, true};
        weft_wg_add(&ended, 5);
        CHECK_EQ(weft_set_priority(own), 0);
        CHECK_EQ(weft_go(is_as_expected, &same), 0);
        CHECK_EQ(weft_go_copy(is_as_expected, &same, sizeof same), 0);
        CHECK_EQ(go_as(given, is_as_expected, &other), 0);
        CHECK_EQ(weft_go_with(&(weft_attr){.name = "plain"}, is_as_expected, &plain), 0);
        CHECK_EQ(weft_scope_open(&scope, WEFT_NEVER), 0);
        CHECK_EQ(weft_scope_go(&scope, is_as_expected, &same), 0);
        CHECK_EQ(weft_wg_wait(&ended), 0);
        CHECK_EQ(weft_scope_close(&scope), 0);
        CHECK_EQ(weft_get_priority(), own);
    }
}

CASE(a_child_is_of_its_parents_priority_unless_an_attribute_is_given)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, inherit_main, NULL), 0);
}

static void *start_and_set_from_outside(void *arg)
{
    CHECK_EQ(weft_set_priority(WEFT_HIGH), -EPERM);
    CHECK_EQ(weft_set_priority(77), -EINVAL);
    CHECK_EQ(weft_get_priority(), WEFT_NORMAL);
    CHECK_EQ(weft_go(is_as_expected, arg), 0);
    return NULL;
}

static void nonsense_main(void *arg)
{
    static const int nonsense[] = {WEFT_HIGH + 1, WEFT_LOW - 1, 1000, -1000, 256, -256, INT32_MAX, INT32_MIN};
    weft_wg ended = {0};
    struct child plain = {WEFT_NORMAL, &ended, true};
    pthread_t thread;
    (void)arg;
    weft_wg_add(&ended, 1);
    for (int i = 0; i < 24; i++) {
        CHECK_EQ(weft_set_priority(CLASSES[i % 3]), 0);
        CHECK_EQ(weft_set_priority(nonsense[i / 3]), -EINVAL);
        CHECK_EQ(weft_get_priority(), CLASSES[i % 3]);
    }
    CHECK_EQ(pthread_create(&thread, NULL, start_and_set_from_outside, &plain), 0);
    join_in_region(&thread, 1);
    CHECK_EQ(weft_wg_wait(&ended), 0);
}

CASE(a_priority_that_makes_no_sense_is_refused_and_so_is_a_thread)
{
    CHECK_EQ(weft_set_priority(WEFT_HIGH), -EPERM);
    CHECK_EQ(weft_get_priority(), WEFT_NORMAL);
    EACH_PROCS(p) CHECK_EQ(run_on(p, nonsense_main, NULL), 0);
}

/* ---- a change takes effect at once ------------------------------------------------------------------------------ */

static int changes_good;

static void lower_main(void *arg)
{
    const int *to = arg;
    _Atomic int ran = 0;
    int from = *to == WEFT_LOW ? WEFT_NORMAL : WEFT_HIGH, other = *to == WEFT_LOW ? WEFT_NORMAL : WEFT_HIGH;
    CHECK_EQ(weft_set_priority(from), 0);
    weft_preempt_off(); /* so that the other one is ready, and waits */
    CHECK_EQ(go_as(other, count, (void *)&ran), 0);
    changes_good += ran == 0;
    weft_preempt_on();
    CHECK_EQ(weft_set_priority(*to), 0);
    changes_good += ran == 1;
    CHECK(reaches(&ran, 1, 20));
}

/* To normal while an urgent one is ready, to low while a normal one is. */
CASE(who_lowers_itself_lets_higher_ones_run_at_once)
{
    static const int to[] = {WEFT_NORMAL, WEFT_LOW};
    for (int k = 0; k < 2; k++) {
        changes_good = 0;
        for (int i = 0; i < 10; i++)
            CHECK_EQ(run_long(1, lower_main, (void *)&to[k]), 0);
        CHECK(changes_good >= 18);
    }
}

/* Runs on through a yield beside ready ones of its former class; and they run when it is over. */
static void raise_main(void *arg)
{
    const int *from = arg;
    _Atomic int ran = 0;
    CHECK_EQ(weft_set_priority(*from), 0);
    CHECK_EQ(weft_set_priority(*from + 1), 0);
    CHECK_EQ(go_as(*from, count, (void *)&ran), 0);
    weft_yield();
    weft_cancelled();
    changes_good += ran == 0;
    CHECK_EQ(weft_set_priority(*from), 0);
    CHECK(reaches(&ran, 1, 20));
}

CASE(who_raises_itself_runs_before_its_former_equals_at_once)
{
    static const int from[] = {WEFT_LOW, WEFT_NORMAL};
    for (int k = 0; k < 2; k++) {
        changes_good = 0;
        for (int i = 0; i < 10; i++)
            CHECK_EQ(run_long(1, raise_main, (void *)&from[k]), 0);
        CHECK(changes_good >= 9);
    }
}

/* One that computes is lowered, and is stopped for a normal one; raised, it is not. */
static struct {
    _Atomic int step, asleep, other_ran;
} changing;

static void compute_as_told(void *arg)
{
    (void)arg;
    hogs.began++;
    changing.step = 1;
    CHECK_EQ(weft_set_priority(WEFT_LOW), 0); /* it was urgent; the other one may run at once */
    while (changing.step == 1 && !over)
        compute_a_little();
    CHECK_EQ(weft_set_priority(WEFT_HIGH), 0);
    for (changing.step = 3; changing.step == 3 && !over;)
        compute_a_little();
}

static void normal_beside_changing(void *arg)
{
    changing.asleep = 1;
    weft_sleep(30 * WEFT_MSEC);
    count(arg);
    weft_sleep(5 * WEFT_MSEC);
    count(arg);
}

/* On one P: the other one runs while it is low; while it is high only when it has to give way, or never with that quantum. */
static void changing_main(void *arg)
{
    int *good = arg;
    begin_scene();
    changing.step = changing.asleep = changing.other_ran = 0;
    CHECK_EQ(go_as(WEFT_NORMAL, normal_beside_changing, (void *)&changing.other_ran), 0);
    while (!changing.asleep)
        weft_sleep(WEFT_MSEC);
    CHECK_EQ(go_as(WEFT_HIGH, compute_as_told, NULL), 0);
    into_region_beside_hogs();
    CHECK(comes_to(&changing.other_ran, 1));
    changing.step = 2;
    CHECK(comes_to(&changing.step, 3));
    int before = changing.other_ran;
    usleep(50000);
    *good += changing.other_ran == before;
    end_scene();
}

CASE(one_that_computes_is_stopped_for_others_by_its_present_priority)
{
    int good = 0;
    for (int i = 0; i < 10; i++)
        CHECK_EQ(run_long(1, changing_main, &good), 0);
    CHECK(good >= 8);
}

/* ---- the next one ----------------------------------------------------------------------------------------------- */

enum { REUSES = 200 };

static _Atomic(struct w_g *) classed_g;
static _Atomic int reused;

static void set_and_end(void *arg)
{
    uintptr_t how = (uintptr_t)arg;
    says_who(&classed_g);
    CHECK_EQ(weft_set_priority(CLASSES[how % 3]), 0);
    if (how % 2 == 0)
        weft_exit();
}

static void be_given_and_end(void *arg)
{
    says_who(&classed_g);
    if ((uintptr_t)arg % 2 == 0)
        weft_exit();
}

static void is_plain(void *arg)
{
    _Atomic(struct w_g *) self = NULL;
    says_who(&self);
    reused += self == classed_g;
    is_as_expected(&(struct child){WEFT_NORMAL, arg, true});
}

static void reuse_main(void *arg)
{
    (void)arg;
    CHECK_EQ(weft_get_priority(), WEFT_NORMAL);
    reused = 0;
    for (uintptr_t i = 0; i < REUSES; i++) {
        weft_wg ended = {0};
        weft_wg_add(&ended, 1);
        if (i % 5 < 2)
            CHECK_EQ(weft_go(set_and_end, (void *)i), 0);
        else
            CHECK_EQ(go_as(CLASSES[i % 3], be_given_and_end, (void *)i), 0);
        while (weft_count() > 1)
            weft_sleep(50 * WEFT_USEC); /* a low one runs when nobody else is ready */
        CHECK_EQ(weft_go(is_plain, &ended), 0);
        CHECK_EQ(weft_wg_wait(&ended), 0);
    }
    CHECK(reused > 0);
    CHECK_EQ(weft_set_priority(WEFT_HIGH), 0); /* nor does the next run know of it */
}

CASE(a_priority_ends_with_its_goroutine_and_with_the_run)
{
    for (int i = 0; i < 3; i++)
        EACH_PROCS(p) CHECK_EQ(run_on(p, reuse_main, NULL), 0);
}
