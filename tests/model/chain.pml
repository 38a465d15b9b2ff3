/* SPDX-License-Identifier: MIT */
/*
 * What is lent goes on along a chain of owners (mutex.c: lend, lend_locked, lend_late_locked) as a model for spin. Goroutine i holds
 * mutex i and waits for mutex i + 1, which goroutine i + 1 holds or is about to take; the last holds its own and waits for nothing.
 * Somebody urgent waits for mutex 0 at any moment. A step is one access to shared memory; the fences of [MX-2] and [MX-4] make such
 * interleavings enough. That nothing is lent to an owner who has gone is lend.pml's business: here nobody unlocks.
 *
 *   - when all wait who will wait, everybody in the chain is urgent.
 * Broken on purpose, with -D:
 *   BROKEN_NOT_LATE       whoever waits looks at its level before it is known to wait, and not since
 *   BROKEN_FIRST_ONLY     what is lent once one is in the queue goes to the owner, and not on from there
 *   BROKEN_STATE_FIRST    a lender looks whether the owner waits, then raises its level
 */
#ifndef LENGTH
#define LENGTH 3
#endif
#define NONE 255

bool urgent[LENGTH];    /* its level */
bool owned[LENGTH];     /* mutex i is held by goroutine i, and it says so */
bool queued[LENGTH];    /* somebody is in the queue of mutex i: goroutine i - 1, or the urgent one */
bool waits[LENGTH];     /* goroutine i is known to wait for mutex i + 1 */
byte at_rest;

/* lend_locked(mutex): to = the next mutex of the chain, or NONE */
inline lend_locked(mutex, to)
{
    to = NONE;
    if
    :: owned[mutex] ->
#ifdef BROKEN_STATE_FIRST
        to = (waits[mutex] -> mutex + 1 : NONE);
        urgent[mutex] = true
#else
        urgent[mutex] = true;
        to = (waits[mutex] -> mutex + 1 : NONE)
#endif
    :: else
    fi
}

/* lend_on */
inline lend_on(from)
{
    do
    :: from != NONE -> at = from; lend_locked(at, from)
    :: else -> break
    od
}

/* wait_for_lock of a mutex that is held; i waits for it, NONE: the urgent one. high: what it lends. */
inline wait_for(mutex, i)
{
    high = (i == NONE -> true : urgent[i]);
    if
    :: high -> next = mutex; lend_on(next)
    :: else
    fi;
    queued[mutex] = true;
    next = NONE;
    if
    :: high -> lend_locked(mutex, next)
    :: else
    fi;
#ifdef BROKEN_FIRST_ONLY
    next = NONE;
#endif
    if
    :: i != NONE ->
        waits[i] = true;
#ifndef BROKEN_NOT_LATE
        if
        :: urgent[i] && !high -> lend_locked(mutex, next)
        :: else
        fi
#endif
    :: else
    fi;
    lend_on(next);
    at_rest++
}

/* own, of the mutex that it has just taken: whoever is in the queue by then is heard. */
inline own(i)
{
    owned[i] = true;
    if
    :: queued[i] && (i == 0 || urgent[i - 1]) -> urgent[i] = true
    :: else
    fi
}

active [LENGTH] proctype goroutine()
{
    byte me = _pid, next, at;
    bool high;
    own(me);
    if
    :: me + 1 < LENGTH -> wait_for(me + 1, me)
    :: else -> at_rest++
    fi
}

active proctype somebody_urgent()
{
    byte next, at;
    bool high;
    wait_for(0, NONE)
}

active proctype end()
{
    byte i;
    atomic {
        (at_rest == LENGTH + 1) ->
        do
        :: i < LENGTH -> assert(urgent[i]); i++
        :: else -> break
        od
    }
}
