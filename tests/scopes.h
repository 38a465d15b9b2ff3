/* SPDX-License-Identifier: MIT */
/* What the tests of scopes share. */
#ifndef SCOPES_H
#define SCOPES_H

#include "runs.h"
#include <stdlib.h>

/* A scope that is opened need not be zero: it may lie on a stack as it is. */
static inline weft_scope some_scope(void)
{
    weft_scope s;
    memset(&s, 0xa5, sizeof s);
    return s;
}

static inline void on_each_procs(weft_fn *fn)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, fn, NULL), 0);
}

static inline void add_one(void *arg)
{
    ++*(_Atomic int *)arg;
}

static inline void sleep_and_add(void *arg)
{
    CHECK_EQ(weft_sleep(WEFT_MSEC), 0);
    add_one(arg);
}

static inline void wait_till_cancelled(void *arg)
{
    (void)arg;
    CHECK_EQ(weft_recv(NULL, NULL), -ECANCELED);
    CHECK_EQ(weft_cancelled(), -ECANCELED);
}

static inline void wait_till_timeout(void *deadline)
{
    CHECK_EQ(weft_recv(NULL, NULL), -ETIMEDOUT);
    CHECK_EQ(weft_cancelled(), -ETIMEDOUT);
    CHECK(weft_now() >= *(int64_t *)deadline);
}

static inline void cancel_with_eio(void *arg)
{
    weft_scope_cancel(arg, -EIO);
}

#endif
