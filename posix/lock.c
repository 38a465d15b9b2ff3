/* SPDX-License-Identifier: MIT */
/*
 * pthread_mutex_lock, pthread_rwlock_wrlock and their kin: who holds such a lock is not preempted. A recursive or an error-checking
 * mutex, and an rwlock that is held for writing, know their owner by its thread: another goroutine on that thread would be let in,
 * and the owner could not unlock it on another. And whoever waits for a lock of any kind waits with its thread.
 *
 * Locks are counted for the goroutine; one that is unlocked by another than its locker ends the latter's count too late, and costs
 * it preemption, nothing else. Condition variables give a lock back and take it again inside libc: the count is right before and
 * after. Nothing here lets others run: a library may be anywhere when it unlocks.
 */
#include "shim.h"
#include <errno.h>
#include <pthread.h>

/* r: what the lock said. */
static int taken(int r)
{
    if (r == 0 || r == EOWNERDEAD)
        weft_steady_(1);
    return r;
}

WEFT_API int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    return taken(W_REAL(pthread_mutex_lock)(mutex));
}

WEFT_API int pthread_mutex_trylock(pthread_mutex_t *mutex)
{
    return taken(W_REAL(pthread_mutex_trylock)(mutex));
}

WEFT_API int pthread_mutex_timedlock(pthread_mutex_t *mutex, const struct timespec *until)
{
    return taken(W_REAL(pthread_mutex_timedlock)(mutex, until));
}

WEFT_API int pthread_mutex_clocklock(pthread_mutex_t *mutex, clockid_t clock, const struct timespec *until)
{
    return taken(W_REAL(pthread_mutex_clocklock)(mutex, clock, until));
}

WEFT_API int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    int r = W_REAL(pthread_mutex_unlock)(mutex);
    if (r == 0)
        weft_steady_(-1);
    return r;
}

/* A lock for reading is counted as well: unlocking does not tell which it was. */
WEFT_API int pthread_rwlock_wrlock(pthread_rwlock_t *lock)
{
    return taken(W_REAL(pthread_rwlock_wrlock)(lock));
}

WEFT_API int pthread_rwlock_trywrlock(pthread_rwlock_t *lock)
{
    return taken(W_REAL(pthread_rwlock_trywrlock)(lock));
}

WEFT_API int pthread_rwlock_timedwrlock(pthread_rwlock_t *lock, const struct timespec *until)
{
    return taken(W_REAL(pthread_rwlock_timedwrlock)(lock, until));
}

WEFT_API int pthread_rwlock_clockwrlock(pthread_rwlock_t *lock, clockid_t clock, const struct timespec *until)
{
    return taken(W_REAL(pthread_rwlock_clockwrlock)(lock, clock, until));
}

WEFT_API int pthread_rwlock_rdlock(pthread_rwlock_t *lock)
{
    return taken(W_REAL(pthread_rwlock_rdlock)(lock));
}

WEFT_API int pthread_rwlock_tryrdlock(pthread_rwlock_t *lock)
{
    return taken(W_REAL(pthread_rwlock_tryrdlock)(lock));
}

WEFT_API int pthread_rwlock_timedrdlock(pthread_rwlock_t *lock, const struct timespec *until)
{
    return taken(W_REAL(pthread_rwlock_timedrdlock)(lock, until));
}

WEFT_API int pthread_rwlock_clockrdlock(pthread_rwlock_t *lock, clockid_t clock, const struct timespec *until)
{
    return taken(W_REAL(pthread_rwlock_clockrdlock)(lock, clock, until));
}

WEFT_API int pthread_rwlock_unlock(pthread_rwlock_t *lock)
{
    int r = W_REAL(pthread_rwlock_unlock)(lock);
    if (r == 0)
        weft_steady_(-1);
    return r;
}
