/* SPDX-License-Identifier: MIT */
/*
 * What the owner of a mutex is lent by somebody more urgent (mutex.c: own, disown, lend_locked; priority.c: w_lend, w_repay) as a
 * model for spin: NS goroutines, one more urgent than the other, lock and unlock ROUNDS times; how they sleep and are woken is
 * mutex.pml's business. A step is one access to shared memory; the fences of [MX-2] make such interleavings enough. A section
 * under the bucket's guard sets `guard`, one under the scheduler's lock is one step.
 *
 *   - when all have ended nobody has anything that it was lent, and no mutex says so;
 *   - who holds the lock while somebody more urgent waits, and nobody is in the middle of anything, has at least its level.
 * Broken on purpose, with -D:
 *   BROKEN_LENT_LOOKED_AT_FIRST   disown looks at LENT, then takes its name off
 *   BROKEN_OWNER_LOOKED_AT_FIRST  lend_locked looks for the owner, then sets LENT
 *   BROKEN_WAITERS_LOOKED_AT_FIRST own looks for waiters, then says who it is
 *   BROKEN_LENT_BEFORE_WAITING    who waits has lent before it was seen waiting, and not since
 *   BROKEN_COUNTED_TWICE          own counts what it is lent though LENT is set
 */
#ifndef NS
#define NS 2
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#define NONE 255

bool locked, lent, guard;
byte owner = NONE, waiters;
bool waits[NS];
byte level[NS], loans[NS];
byte ended;
byte busy; /* goroutines between two places where the second property is looked at */

/* One's own level is its number. */
inline w_lend(g, to, first)
{
    d_step {
        done = to > g;
        if
        :: level[g] <= g -> loans[g] = 0
        :: else
        fi;
        if
        :: done -> loans[g] = loans[g] + first; level[g] = (to > level[g] -> to : level[g])
        :: else
        fi
    }
}

inline w_repay(g)
{
    d_step {
        if
        :: level[g] > g && loans[g] > 0 -> loans[g]--; if :: loans[g] == 0 -> level[g] = g :: else fi
        :: else
        fi
    }
}

inline take_guard()
{
    atomic { !guard -> guard = true }
}

inline lend_locked()
{
#ifdef BROKEN_OWNER_LOOKED_AT_FIRST
    o = owner;
    d_step { first = !lent; lent = true }
#else
    d_step { first = !lent; lent = true }
    o = owner;
#endif
    done = false;
    if
    :: o != NONE -> w_lend(o, me, first)
    :: else
    fi;
    if
    :: !done && first -> lent = false
    :: else
    fi
}

inline lock()
{
    do
    :: atomic { !locked -> locked = true; break }
    :: locked ->
        take_guard(); /* lend */
        lend_locked();
        guard = false;
        take_guard(); /* announce_locked, and once more */
        if
        :: atomic { !locked -> locked = true; guard = false; break }
        :: atomic { locked -> waiters++; waits[me] = true };
#ifndef BROKEN_LENT_BEFORE_WAITING
            lend_locked();
#endif
            atomic { busy--; guard = false };
            atomic { !locked -> waiters--; waits[me] = false; busy++ }
        fi
    od
}

inline own()
{
#ifdef BROKEN_WAITERS_LOOKED_AT_FIRST
    seen = waiters;
    owner = me;
#else
    owner = me;
    seen = waiters;
#endif
    if
    :: seen > 0 ->
        take_guard();
        d_step {
            o = 0;
            j = 0;
            do
            :: j < NS -> if :: waits[j] && j > o -> o = j :: else fi; j++
            :: else -> break
            od
        }
#ifdef BROKEN_COUNTED_TWICE
        w_lend(me, o, 1);
#else
        w_lend(me, o, !lent);
#endif
        if
        :: done -> lent = true
        :: else
        fi;
        guard = false
    :: else
    fi
}

inline disown()
{
#ifdef BROKEN_LENT_LOOKED_AT_FIRST
    first = lent;
    owner = NONE;
#else
    owner = NONE;
    first = lent;
#endif
    if
    :: first ->
        take_guard();
        d_step { first = lent; lent = false }
        if
        :: first -> w_repay(me)
        :: else
        fi;
        guard = false
    :: else
    fi
}

active [NS] proctype goroutine()
{
    byte me = _pid, o, seen, j, round;
    bool first, done;
    atomic { level[me] = me; busy++ }
    do
    :: round < ROUNDS ->
        lock();
        own();
        atomic {
            busy--;
            j = 0;
            do
            :: j < NS -> assert(!(busy == 0 && waits[j] && level[me] < j)); j++
            :: else -> break
            od;
            busy++
        }
        disown();
        locked = false;
        round++
    :: else -> break
    od;
    atomic { busy--; ended++ }
}

active proctype end()
{
    byte i;
    atomic {
        (ended == NS) ->
        assert(!lent && !locked && owner == NONE);
        do
        :: i < NS -> assert(level[i] == i); i++
        :: else -> break
        od
    }
}
