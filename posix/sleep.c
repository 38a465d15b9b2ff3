/* SPDX-License-Identifier: MIT */
/* sleep, usleep, nanosleep, clock_nanosleep: weft_sleep. If the scope ends meanwhile they say how much is left, as they do
 * for a signal. */
#include "shim.h"
#include <errno.h>
#include <time.h>
#include <unistd.h>

/* *left: of ns. */
static int sleep_for(int64_t ns, int64_t *left)
{
    int64_t deadline = w_deadline(ns);
    int r = weft_sleep(ns);
    int64_t now = weft_now();
    *left = r < 0 && now < deadline ? deadline - now : 0;
    return r;
}

static int sleep_relative(const struct timespec *ts, struct timespec *left)
{
    int64_t ns;
    int r = sleep_for(w_nanoseconds(ts), &ns);
    if (r < 0 && left != NULL)
        *left = (struct timespec){.tv_sec = ns / WEFT_SEC, .tv_nsec = ns % WEFT_SEC};
    return r;
}

/* By a clock that may be set: looked at after each sleep. */
static int sleep_until(clockid_t clock, const struct timespec *at)
{
    for (int r;;) {
        struct timespec now;
        if ((r = W_RESULT(clock_gettime(clock, &now))) < 0)
            return r;
        int64_t left = w_nanoseconds(at) - w_nanoseconds(&now), ignored;
        if (left <= 0)
            return 0;
        if ((r = sleep_for(left, &ignored)) < 0)
            return r;
    }
}

/* The others run at another speed than weft_sleep's. */
static bool wall_clock(clockid_t clock)
{
    return clock == CLOCK_REALTIME || clock == CLOCK_MONOTONIC || clock == CLOCK_BOOTTIME || clock == CLOCK_TAI;
}

WEFT_API int nanosleep(const struct timespec *ts, struct timespec *left)
{
    if (!w_parks() || !w_valid(ts))
        return W_REAL(nanosleep)(ts, left);
    return (int)w_result(sleep_relative(ts, left));
}

/* Returns the error. */
WEFT_API int clock_nanosleep(clockid_t clock, int flags, const struct timespec *ts, struct timespec *left)
{
    if (!w_parks())
        return W_REAL(clock_nanosleep)(clock, flags, ts, left);
    if (!wall_clock(clock) || !w_valid(ts))
        return W_IN_REGION(W_REAL(clock_nanosleep)(clock, flags, ts, left));
    return flags & TIMER_ABSTIME ? -sleep_until(clock, ts) : -sleep_relative(ts, left);
}

/* Returns what is left, in whole seconds. */
WEFT_API unsigned sleep(unsigned seconds)
{
    if (!w_parks())
        return W_REAL(sleep)(seconds);
    int64_t left;
    sleep_for(seconds * WEFT_SEC, &left);
    return (unsigned)((left + WEFT_SEC - 1) / WEFT_SEC);
}

WEFT_API int usleep(useconds_t us)
{
    int64_t left;
    return w_parks() ? (int)w_result(sleep_for(us * WEFT_USEC, &left)) : W_REAL(usleep)(us);
}
