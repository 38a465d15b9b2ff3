/* SPDX-License-Identifier: MIT */
/* Code of shared objects is not stopped, nor what it has called, unless the object was allowed. What was allowed stays so: each case
 * is a process of its own. */
#include "preempt_object.h"
#include "preempt.h"
#include "preempts.h"
#include <dlfcn.h>
#include <malloc.h>

static struct {
    void *handle;
    void (*outlast)(_Atomic long *rounds, int n);
    void (*wait)(_Atomic long *at, long before);
    void (*call)(void (*fn)(void *), void *arg);
} object;

static void load(void)
{
    object.handle = dlopen(PREEMPT_OBJECT, RTLD_NOW | RTLD_LOCAL);
    CHECK(object.handle != NULL);
    if (object.handle == NULL)
        return;
    object.outlast = (void (*)(_Atomic long *, int))dlsym(object.handle, "object_outlast");
    object.wait = (void (*)(_Atomic long *, long))dlsym(object.handle, "object_wait");
    object.call = (void (*)(void (*)(void *), void *))dlsym(object.handle, "object_call");
}

static void in_child(check_fn *fn)
{
    static char text[16 << 10];
    if (!never_stopped())
        CHECK(child_is_well(fn, text, sizeof text));
}

/* ---- what is not stopped ------------------------------------------------------------------------------------------ */

static void wait_called(void *arg)
{
    (void)arg;
    for (long before = beats; beats == before;)
        ;
}

/* Called by the object, so that nothing but its code and this counts. */
static void its_code(void *arg)
{
    long before = beats;
    object.outlast(&pest.rounds, 5);
    *(bool *)arg = !nobody_ran_since(before);
}

static void called_by_it(void *arg)
{
    long before = beats;
    outlast(5);
    *(bool *)arg = !nobody_ran_since(before);
}

static bool others_run_in(void (*fn)(void *))
{
    bool ran = false;
    object.call(fn, &ran);
    return ran;
}

static void is_not_stopped(void)
{
    for (int i = 0; i < 5; i++) {
        CHECK(!others_run_in(its_code));
        CHECK(!others_run_in(called_by_it));
        wait_called(NULL);
    }
}

static void is_stopped(void)
{
    for (int i = 0; i < 5; i++) {
        object.wait(&beats, beats);
        object.call(wait_called, NULL);
    }
}

static void allow_main(void *arg)
{
    (void)arg;
    beats_start();
    pest_start();
    is_not_stopped();
    CHECK_EQ(weft_preempt_allow((const void *)object.wait), 0);
    is_stopped();
    CHECK_EQ(weft_preempt_allow((const void *)object.call), 0); /* again */
    pest_stop();
    end_all();
}

static void run_allow(void)
{
    load();
    CHECK_EQ(run_on(1, allow_main, NULL), 0);
}

CASE(an_object_is_stopped_once_it_was_allowed)
{
    in_child(run_allow);
}

static void stopped_main(void *arg)
{
    (void)arg;
    beats_start();
    wait_called(NULL); /* the main program's */
    is_stopped();
    end_all();
}

static void run_allowed_in_the_run_before(void)
{
    load();
    CHECK_EQ(run_on(1, allow_main, NULL), 0);
    CHECK_EQ(run_on(1, stopped_main, NULL), 0);
}

CASE(what_was_allowed_stays_allowed_in_the_next_run)
{
    in_child(run_allowed_in_the_run_before);
}

static void run_allow_first(void)
{
    load();
    CHECK_EQ(weft_preempt_allow((const void *)object.wait), 0);
    CHECK_EQ(run_on(1, stopped_main, NULL), 0);
}

CASE(an_object_may_be_allowed_before_the_first_run)
{
    in_child(run_allow_first);
}

/* The linker's lock is taken in the order in which others take it. */
static void *load_again_and_again(void *arg)
{
    for (int i = 0; i < 300; i++) {
        void *handle = dlopen(PREEMPT_OBJECT, RTLD_NOW | RTLD_LOCAL);
        CHECK(handle != NULL);
        if (handle != NULL)
            dlclose(handle);
    }
    *(_Atomic bool *)arg = true;
    return NULL;
}

static void allow_beside_main(void *arg)
{
    _Atomic bool done = false;
    pthread_t thread;
    (void)arg;
    beats_start();
    pest_start();
    CHECK_EQ(pthread_create(&thread, NULL, load_again_and_again, (void *)&done), 0);
    while (!done) {
        CHECK_EQ(weft_preempt_allow((const void *)load_again_and_again), 0);
        CHECK_EQ(weft_preempt_allow(&thread), -EINVAL);
        wait_called(NULL);
    }
    join_in_region(&thread, 1);
    pest_stop();
    end_all();
}

static void run_allow_beside(void)
{
    CHECK_EQ(run_on(2, allow_beside_main, NULL), 0);
}

CASE(objects_are_allowed_while_others_are_loaded)
{
    in_child(run_allow_beside);
}

/* ---- whose code it is ---------------------------------------------------------------------------------------------- */

static void whose_main(void *arg)
{
    (void)arg;
    CHECK(w_code_may_stop((uintptr_t)whose_main) && !w_code_is_other((uintptr_t)whose_main));
    CHECK(!w_code_may_stop((uintptr_t)weft_yield) && w_code_is_ours((uintptr_t)weft_yield));
    static const char *const OTHERS[] = {"printf", "malloc", "pthread_mutex_lock", "__tls_get_addr"};
    for (int i = 0; i < 4; i++) {
        uintptr_t at = (uintptr_t)dlsym(RTLD_DEFAULT, OTHERS[i]);
        CHECK(!w_code_may_stop(at) && w_code_is_other(at) && at - w_code_span().at < w_code_span().size);
    }
}

CASE(only_the_programs_own_code_may_be_stopped)
{
    if (!never_stopped())
        CHECK_EQ(run_on(1, whose_main, NULL), 0);
}

/* ---- what is refused ---------------------------------------------------------------------------------------------- */

static void *found(const char *name)
{
    return dlsym(RTLD_DEFAULT, name);
}

static void refusals_main(void *arg)
{
    void *heap = malloc(100);
    int on_stack = 0;
    (void)arg;
    CHECK_EQ(weft_preempt_allow(NULL), -EINVAL);
    CHECK_EQ(weft_preempt_allow((const void *)8), -EINVAL);
    CHECK_EQ(weft_preempt_allow(heap), -EINVAL);
    CHECK_EQ(weft_preempt_allow(&on_stack), -EINVAL);
    CHECK_EQ(weft_preempt_allow(found("printf")), -EPERM);
    CHECK_EQ(weft_preempt_allow(found("malloc")), -EPERM);
    CHECK_EQ(weft_preempt_allow(found("__tls_get_addr")), -EPERM); /* the dynamic linker's */
    CHECK_EQ(weft_preempt_allow((const void *)refusals_main), 0);  /* it is */
    free(heap);
}

static void run_refusals(void)
{
    refusals_main(NULL);
    CHECK_EQ(run_on(2, refusals_main, NULL), 0);
}

CASE(libc_and_what_is_no_object_cannot_be_allowed)
{
    in_child(run_refusals);
}

/* Here the library is part of the program; where it is an object, that one is refused. */
static void run_shared_weft(void)
{
    void *weft = dlopen(SHARED_WEFT, RTLD_NOW | RTLD_LOCAL);
    CHECK(weft != NULL);
    if (weft == NULL)
        return;
    int (*allow)(const void *) = (int (*)(const void *))dlsym(weft, "weft_preempt_allow");
    CHECK((void *)allow != (void *)weft_preempt_allow);
    CHECK_EQ(allow(dlsym(weft, "weft_run")), -EPERM);
    CHECK_EQ(allow((const void *)allow), -EPERM);
}

CASE(the_library_itself_cannot_be_allowed)
{
    in_child(run_shared_weft);
}

/* ---- objects that come during the run ----------------------------------------------------------------------------- */

/* Its stack has nothing of libc on it, but only what was loaded just now. */
static void use_loaded(void *arg)
{
    is_not_stopped();
    weft_wg_done(arg);
}

static void load_main(void *arg)
{
    weft_wg wg = {0};
    (void)arg;
    beats_start();
    pest_start();
    wait_called(NULL);
    for (int i = 0; i < 3; i++) {
        load();
        weft_wg_add(&wg, 1);
        CHECK_EQ(weft_go(use_loaded, &wg), 0);
        CHECK_EQ(weft_wg_wait(&wg), 0);
        CHECK_EQ(dlclose(object.handle), 0);
    }
    pest_stop();
    end_all();
}

/* ---- tables ---------------------------------------------------------------------------------------------------- */

static size_t memory_in_use(void)
{
#if __GLIBC_PREREQ(2, 33)
    return mallinfo2().uordblks;
#else
    return (unsigned)mallinfo().uordblks;
#endif
}

/* Two objects in turn, so that each time the table is another one. */
static void load_in_turn(int n)
{
    for (int i = 0; i < n; i++) {
        void *handle = dlopen(i % 2 == 0 ? PREEMPT_OBJECT : SHARED_WEFT, RTLD_NOW | RTLD_LOCAL);
        CHECK(handle != NULL);
        w_code_refresh();
        if (handle != NULL)
            dlclose(handle);
    }
}

static void tables_main(void *arg)
{
    (void)arg;
    beats_start();
    pest_start();
    wait_called(NULL);
    load_in_turn(10);
    size_t before = memory_in_use();
    load_in_turn(1000);
    size_t after = memory_in_use();
    CHECK(after < before + (32 << 10));
    pest_stop();
    end_all();
}

/* What was learnt about its code is of no use for what comes to lie there. */
static void forget_main(void *arg)
{
    (void)arg;
    load();
    w_code_refresh();
    unsigned long long before = w_code_changes();
    CHECK_EQ(dlclose(object.handle), 0);
    w_code_refresh();
    CHECK(w_code_changes() != before);
}

static void run_forget(void)
{
    CHECK_EQ(run_on(1, forget_main, NULL), 0);
}

CASE(an_object_that_has_gone_is_forgotten)
{
    in_child(run_forget);
}

static void run_tables(void)
{
    CHECK_EQ(weft_run_with(&(weft_config){.procs = 2, .stack_size = 256 << 10}, tables_main, NULL), 0);
}

CASE(objects_that_come_and_go_leave_no_tables_behind)
{
    in_child(run_tables);
}

static void run_load(void)
{
    CHECK_EQ(run_on(1, load_main, NULL), 0);
}

CASE(an_object_that_is_loaded_during_the_run_is_not_stopped)
{
    in_child(run_load);
}
